//! A delta costs only the memory of its text: allocations are counted.

use allocation_counter::measure;
use wellspring_core::Batch;
use wellspring_wire::provider::AnswerReader;
use wellspring_wire::{Framer, anthropic, gemini, ollama, openai_chat, openai_responses};

/// The size of one packet: nearly every chunk ends within an event.
const CHUNK_BYTES: usize = 1400;

/// Allocations for buffers that double a few times: text, items, and ends of chunks.
const GROWTH: u64 = 24;

/// Allocations while a body is read into one batch.
fn allocations(mut reader: impl AnswerReader, mut framer: Framer, body: &str) -> u64 {
    let mut batch = Batch::default();
    let counted = measure(|| {
        for mut chunk in body.as_bytes().chunks(CHUNK_BYTES) {
            while let Some(frame) = framer.next(&mut chunk).unwrap() {
                reader.push(frame, &mut batch).unwrap();
            }
        }
    });
    assert!(batch.text_bytes() > body.len() / 100, "the deltas are read");
    counted.count_total
}

fn holds<R: AnswerReader>(reader: fn() -> R, start: &str, delta: impl Fn(usize) -> String) {
    holds_with(reader, Framer::sse, start, delta);
}

fn holds_with<R: AnswerReader>(
    reader: fn() -> R,
    framer: fn() -> Framer,
    start: &str,
    delta: impl Fn(usize) -> String,
) {
    let body = |deltas: usize| start.to_owned() + &(0..deltas).map(&delta).collect::<String>();
    let few = allocations(reader(), framer(), &body(100));
    let many = allocations(reader(), framer(), &body(10_000));
    assert!(
        many < few + GROWTH,
        "{few} allocations for 100 deltas, {many} for 10000: {}",
        delta(1)
    );
}

/// Text with and without escapes, alternating.
fn word(index: usize) -> &'static str {
    [" spring", "\\n", " \\\"cold\\\"", " w\u{e4}ter", "\\u00e4"][index % 5]
}

#[test]
fn anthropic() {
    let event = |json: &str| format!("event: x\ndata: {json}\n\n");
    for (block, member, kind) in [
        (r#"{"type":"text","text":""}"#, "text", "text_delta"),
        (r#"{"type":"thinking","thinking":""}"#, "thinking", "thinking_delta"),
        (
            r#"{"type":"tool_use","id":"t","name":"n","input":{}}"#,
            "partial_json",
            "input_json_delta",
        ),
    ] {
        let start = event(&format!(
            r#"{{"type":"content_block_start","index":0,"content_block":{block}}}"#
        ));
        // Every second event has another order of members, and spaces.
        let delta = |index: usize| {
            let text = word(index);
            event(&if index.is_multiple_of(2) {
                format!(
                    r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"{kind}","{member}":"{text}"}}}}"#
                )
            } else {
                format!(
                    r#"{{ "index" : 0, "delta": {{"{member}": "{text}", "type": "{kind}"}}, "type": "content_block_delta" }}"#
                )
            })
        };
        holds(anthropic::Reader::default, &start, delta);
    }
}

#[test]
fn openai_chat() {
    let chunk = |delta: &str| {
        format!(
            "data: {{\"id\":\"c\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":null}}]}}\n\n"
        )
    };
    let words = |member: &'static str| {
        move |index: usize| chunk(&format!(r#"{{"{member}":"{}"}}"#, word(index)))
    };
    holds(openai_chat::Reader::default, "", words("content"));
    holds(openai_chat::Reader::default, "", words("reasoning_content"));
    holds(openai_chat::Reader::default, "", words("reasoning"));
    let call =
        chunk(r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":""}}]}"#);
    let arguments = |index: usize| {
        chunk(&format!(
            r#"{{"tool_calls":[{{"index":0,"function":{{"arguments":"{}"}}}}]}}"#,
            word(index)
        ))
    };
    holds(openai_chat::Reader::default, &call, arguments);
}

#[test]
fn openai_responses() {
    let event = |name: &str, members: &str| {
        format!("data: {{\"type\":\"response.{name}\",\"output_index\":0,{members}}}\n\n")
    };
    for (item, part, delta) in [
        ("message", r#""content_index":0,"part":{"type":"output_text"}"#, "output_text"),
        ("reasoning", r#""content_index":0,"part":{"type":"reasoning_text"}"#, "reasoning_text"),
        ("reasoning", r#""summary_index":0"#, "reasoning_summary_text"),
        ("function_call", "", "function_call_arguments"),
        ("mcp_call", "", "mcp_call_arguments"),
        ("custom_tool_call", "", "custom_tool_call_input"),
        ("code_interpreter_call", "", "code_interpreter_call_code"),
        ("message", r#""content_index":0,"part":{"type":"refusal"}"#, "refusal"),
    ] {
        let item = format!(r#""item":{{"id":"i","type":"{item}","call_id":"c","name":"f"}}"#);
        let mut start = event("output_item.added", &item);
        if delta == "reasoning_summary_text" {
            start += &event("reasoning_summary_part.added", part);
        } else if !part.is_empty() {
            start += &event("content_part.added", part);
        }
        holds(openai_responses::Reader::default, &start, |index| {
            let words = word(index);
            let members = format!(
                r#""sequence_number":{index},"item_id":"i","delta":"{words}","logprobs":[]"#
            );
            event(&format!("{delta}.delta"), &members)
        });
    }
}

#[test]
fn gemini() {
    for thought in ["", r#","thought": true"#] {
        holds(gemini::Reader::default, "", |index| {
            let part = format!(r#"{{"text": "{}"{thought}}}"#, word(index));
            format!(
                "data: {{\"candidates\": [{{\"content\": {{\"parts\": [{part}],\"role\": \"model\"}},\"index\": 0}}],\"usageMetadata\": {{\"promptTokenCount\": {index}}},\"modelVersion\": \"m\"}}\r\n\r\n"
            )
        });
    }
}

/// Arguments that arrive value by value: a string that continues under different spellings of
/// its path, and a list.
#[test]
fn gemini_arguments() {
    let chunk = |call: &str| {
        format!(
            "data: {{\"candidates\": [{{\"content\": {{\"parts\": [{{\"functionCall\": {{{call}\"willContinue\": true}}}}],\"role\": \"model\"}},\"index\": 0}}],\"usageMetadata\": {{\"promptTokenCount\": 1}},\"modelVersion\": \"m\"}}\r\n\r\n"
        )
    };
    let start = chunk(r#""name": "f","#);
    for path in ["$.a", "$['a'].b[0]", r#"$[\"a\"]"#] {
        holds(gemini::Reader::default, &start, |index| {
            let piece = format!(
                r#""jsonPath":"{path}","stringValue":"{}","willContinue":true"#,
                word(index)
            );
            chunk(&format!(r#""partialArgs":[{{{piece}}}],"#))
        });
    }
    holds(gemini::Reader::default, &start, |index| {
        let piece = format!(r#""jsonPath":"$.a[{index}]","numberValue":{index}"#);
        chunk(&format!(r#""partialArgs":[{{{piece}}}],"#))
    });
}

#[test]
fn ollama() {
    for empty in [r#""content":"","thinking""#, r#""content""#] {
        holds_with(ollama::Reader::default, Framer::ndjson, "", |index| {
            let message = format!(r#"{{"role":"assistant",{empty}:"{}"}}"#, word(index));
            format!(
                "{{\"model\":\"m\",\"created_at\":\"{index}\",\"message\":{message},\"done\":false}}\n"
            )
        });
    }
}
