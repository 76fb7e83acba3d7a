//! Tests of all providers: the fast path reads the same as the parser, however the bytes
//! arrive.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Heard, for_the_parser, stream};
use crate::provider::AnswerReader;
use crate::{Framer, anthropic, gemini, ollama, openai_chat, openai_responses};

/// A piece of a model's text, and the variable members around it.
#[derive(Clone, Debug)]
struct Delta {
    voice: Voice,
    text: String,
    /// A value that differs between events.
    number: u64,
    padding: String,
    /// Whether non-ASCII text is escaped.
    ascii: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Voice {
    Text,
    Thought,
    Call,
}

impl Delta {
    /// An event of a provider with this text in place of the text `T`.
    fn event(&self, template: &Value) -> String {
        let mut text = Value::from(&*self.text).to_string();
        if self.ascii {
            let escape = |unit: u16| match u8::try_from(unit) {
                Ok(ascii @ 0..128) => char::from(ascii).to_string(),
                _ => format!("\\u{unit:04x}"),
            };
            text = text.encode_utf16().map(escape).collect();
        }
        template.to_string().replacen("\"T\"", &text, 1)
    }
}

fn deltas() -> impl Strategy<Value = Vec<Delta>> {
    let voice = prop::sample::select(vec![Voice::Text, Voice::Text, Voice::Thought, Voice::Call]);
    let text = prop_oneof![".{0,8}", "[a-z \"\\\\\n\t😀ä]{0,8}", Just("T".to_owned())];
    let delta = (voice, text, 0..300u64, "[a-zA-Z0-9]{0,9}", any::<bool>());
    let delta = delta.prop_map(|(voice, text, number, padding, ascii)| Delta {
        voice,
        text,
        number,
        padding,
        ascii,
    });
    // Several deltas of one kind in a row.
    let run = (delta.clone(), prop::collection::vec(delta, 0..5)).prop_map(|(first, mut more)| {
        more.iter_mut().for_each(|delta| delta.voice = first.voice);
        more.insert(0, first);
        more
    });
    prop::collection::vec(run, 1..5).prop_map(|runs| runs.concat())
}

/// Calls `part` where the kind changes, and `delta` for each piece.
fn told(
    deltas: &[Delta],
    mut part: impl FnMut(usize, Voice) -> Vec<String>,
    mut delta: impl FnMut(usize, &Delta) -> String,
) -> Vec<String> {
    let mut events = Vec::new();
    let (mut count, mut last) = (0, None);
    for piece in deltas {
        if last != Some(piece.voice) {
            events.extend(part(count, piece.voice));
            (count, last) = (count + 1, Some(piece.voice));
        }
        events.push(delta(count - 1, piece));
    }
    events
}

fn anthropic(deltas: &[Delta]) -> Vec<String> {
    let part = |index: usize, voice| {
        let block = match voice {
            Voice::Text => json!({"type": "text", "text": ""}),
            Voice::Thought => json!({"type": "thinking", "thinking": ""}),
            Voice::Call => json!({"type": "tool_use", "id": "t", "name": "n", "input": {}}),
        };
        let start = json!({"type": "content_block_start", "index": index, "content_block": block});
        let stop = json!({"type": "content_block_stop", "index": index.saturating_sub(1)});
        let before = if index == 0 { json!({"type": "ping"}) } else { stop };
        vec![before.to_string(), start.to_string()]
    };
    let mut index = 0;
    let mut events = told(deltas, part, |at, delta| {
        index = at;
        let (kind, member) = match delta.voice {
            Voice::Text => ("text_delta", "text"),
            Voice::Thought => ("thinking_delta", "thinking"),
            Voice::Call => ("input_json_delta", "partial_json"),
        };
        let inner = json!({"type": kind, member: "T"});
        delta.event(&json!({"type": "content_block_delta", "index": at, "delta": inner}))
    });
    events.push(json!({"type": "content_block_stop", "index": index}).to_string());
    events.push(json!({"type": "message_stop"}).to_string());
    events
}

fn openai_chat(deltas: &[Delta]) -> Vec<String> {
    let chunk = |delta: Value, reason: Value| json!({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]});
    let part = |index: usize, voice| {
        let function = json!({"name": "f", "arguments": ""});
        let call = json!({"tool_calls": [{"index": index, "id": index.to_string(), "function": function}]});
        let call = (voice == Voice::Call).then(|| chunk(call, Value::Null).to_string());
        call.into_iter().collect()
    };
    let mut events = told(deltas, part, |index, delta| {
        let inner = match delta.voice {
            Voice::Text => json!({"content": "T"}),
            Voice::Thought => json!({"reasoning_content": "T"}),
            Voice::Call => {
                json!({"tool_calls": [{"index": index, "function": {"arguments": "T"}}]})
            }
        };
        let mut chunk = chunk(inner, Value::Null);
        chunk["obfuscation"] = json!(delta.padding);
        chunk["created"] = json!(delta.number);
        delta.event(&chunk)
    });
    events.push(chunk(json!({}), json!("stop")).to_string());
    events.push("[DONE]".to_owned());
    events
}

fn openai_responses(deltas: &[Delta]) -> Vec<String> {
    let item = |voice| match voice {
        Voice::Text => "message",
        Voice::Thought => "reasoning",
        Voice::Call => "function_call",
    };
    let part = |index: usize, voice| {
        let item =
            json!({"id": index.to_string(), "type": item(voice), "call_id": "c", "name": "f"});
        let added =
            json!({"type": "response.output_item.added", "output_index": index, "item": item});
        vec![added.to_string()]
    };
    let mut voices = Vec::new();
    let mut events = told(deltas, part, |index, delta| {
        voices.resize(index + 1, delta.voice);
        let kind = match delta.voice {
            Voice::Text => "output_text",
            Voice::Thought => "reasoning_text",
            Voice::Call => "function_call_arguments",
        };
        delta.event(&json!({
            "type": format!("response.{kind}.delta"), "output_index": index, "item_id": index.to_string(),
            "content_index": 0, "sequence_number": delta.number, "delta": "T", "logprobs": [],
            "obfuscation": delta.padding,
        }))
    });
    for (index, voice) in voices.into_iter().enumerate() {
        let item =
            json!({"id": index.to_string(), "type": item(voice), "call_id": "c", "name": "f"});
        let done =
            json!({"type": "response.output_item.done", "output_index": index, "item": item});
        events.push(done.to_string());
    }
    events.push(
        json!({"type": "response.completed", "response": {"status": "completed"}}).to_string(),
    );
    events
}

fn gemini(deltas: &[Delta]) -> Vec<String> {
    let chunk = |parts: Value, usage: Value| {
        let content = json!({"parts": parts, "role": "model"});
        json!({"candidates": [{"content": content, "index": 0}], "usageMetadata": usage})
    };
    // A call ends when another kind begins.
    let end = || chunk(json!([{"functionCall": {}}]), json!({})).to_string();
    let mut calling = false;
    let part = |_, voice| {
        let mut before: Vec<String> = calling.then(end).into_iter().collect();
        calling = voice == Voice::Call;
        let begin = json!({"functionCall": {"name": "f", "willContinue": true}});
        before.extend(calling.then(|| chunk(json!([begin]), json!({})).to_string()));
        before
    };
    let mut events = told(deltas, part, |_, delta| {
        let part = match delta.voice {
            Voice::Text => json!({"text": "T"}),
            Voice::Thought => json!({"text": "T", "thought": true}),
            Voice::Call => {
                // Usually the same string continues, and sometimes another one starts.
                let path = if delta.number % 4 == 0 { "$.b['c']" } else { "$.a" };
                let piece = json!({"jsonPath": path, "stringValue": "T", "willContinue": true});
                json!({"functionCall": {"partialArgs": [piece], "willContinue": true}})
            }
        };
        let usage =
            json!({"candidatesTokenCount": delta.number, "details": [{"kind": delta.padding}]});
        delta.event(&chunk(json!([part]), usage))
    });
    events.extend(deltas.last().filter(|last| last.voice == Voice::Call).map(|_| end()));
    events.push(json!({"candidates": [{"finishReason": "STOP"}], "usageMetadata": {}}).to_string());
    events
}

fn ollama(deltas: &[Delta]) -> Vec<String> {
    let mut events = told(
        deltas,
        |_, _| Vec::new(),
        |_, delta| {
            let message = match delta.voice {
                Voice::Text => json!({"role": "assistant", "content": "T"}),
                Voice::Thought => json!({"role": "assistant", "content": "", "thinking": "T"}),
                Voice::Call => {
                    let function = json!({"name": "f", "arguments": {"text": "T"}});
                    json!({"role": "assistant", "content": "", "tool_calls": [{"function": function}]})
                }
            };
            delta.event(&json!({"created_at": delta.padding, "message": message, "done": false}))
        },
    );
    events.push(json!({"done": true, "done_reason": "stop"}).to_string());
    events
}

/// Checks one provider's reader.
fn holds<R: AnswerReader>(
    reader: fn() -> R,
    framer: fn() -> Framer,
    body: &str,
    chunk_bytes: usize,
) -> Result<Heard, TestCaseError> {
    let heard = stream(reader(), framer(), [body.as_bytes()]);
    heard.check();
    let parsed = for_the_parser(body);
    prop_assert_ne!(&parsed, body);
    for body in [body, &parsed] {
        let whole = stream(reader(), framer(), [body.as_bytes()]);
        prop_assert_eq!(&whole, &heard);
        let cut = stream(reader(), framer(), body.as_bytes().chunks(chunk_bytes));
        prop_assert_eq!(&cut, &heard);
    }
    Ok(heard)
}

proptest! {
    #[test]
    fn a_shortcut_changes_nothing(deltas in deltas(), chunk_bytes in 1..40usize) {
        let sse = |events: Vec<String>| events.iter().map(|json| format!("data: {json}\n\n")).collect::<String>();
        let lines = |events: Vec<String>| events.iter().map(|json| format!("{json}\n")).collect::<String>();
        let said = |heard: Heard| (heard.error, heard.stop.is_some());
        let whole = (None, true);
        let bytes = chunk_bytes;
        let heard = holds(anthropic::Reader::default, Framer::sse, &sse(anthropic(&deltas)), bytes)?;
        prop_assert_eq!(said(heard), whole.clone());
        let heard = holds(openai_chat::Reader::default, Framer::sse, &sse(openai_chat(&deltas)), bytes)?;
        prop_assert_eq!(said(heard), whole.clone());
        let body = sse(openai_responses(&deltas));
        let heard = holds(openai_responses::Reader::default, Framer::sse, &body, bytes)?;
        prop_assert_eq!(said(heard), whole.clone());
        let heard = holds(gemini::Reader::default, Framer::sse, &sse(gemini(&deltas)), bytes)?;
        prop_assert_eq!(said(heard), whole.clone());
        let heard = holds(ollama::Reader::default, Framer::ndjson, &lines(ollama(&deltas)), bytes)?;
        prop_assert_eq!(said(heard), whole);
    }
}
