//! Streams that a provider should not send, and their outcomes.
//!
//! Each stream is written here as code, so that the five wire formats stay side by side. The
//! snapshot has one line per stream.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::stream::{self, StreamExt as _};
use insta::assert_snapshot;
use serde_json::{Value, json};
use wellspring_core::{AgentNo, PartKind, Transcript};
use wellspring_testkit::{Answer, FakeProvider};

use crate::faults::faults;
use crate::kit::{Provider, agent, outcome, play, providers};

/// Runs that are played at the same time, each with its own server.
const AT_ONCE: usize = 16;

/// How a provider frames its events.
fn body(provider: &Provider, events: &[Value]) -> String {
    let framed = |event: &Value| match provider.name {
        "ollama" => format!("{event}\n"),
        _ => format!("data: {event}\n\n"),
    };
    events.iter().map(framed).collect()
}

/// Streams of each provider in its own format. The model's next answer is always "Done".
fn own(provider: &Provider) -> Vec<(&'static str, Answer)> {
    let streams: Vec<(&'static str, Vec<Value>)> = match provider.name {
        "anthropic" => anthropic(),
        "openai_chat" => openai_chat(),
        "openai_responses" => openai_responses(),
        "gemini" => gemini(),
        _ => ollama(),
    };
    let forms = [
        ("a stream as text/plain", Answer::ok("text/plain", &*provider.whole)),
        ("a stream without a type", Answer::status(200, &*provider.whole)),
        ("JSON as an event stream", Answer::ok("text/event-stream", &*provider.call_at_once)),
        ("plain text with success", Answer::ok("text/plain", "hello")),
    ];
    let streams = streams.into_iter();
    let streams = streams.map(|(what, events)| (what, provider.streams(body(provider, &events))));
    streams.chain(forms).collect()
}

fn anthropic() -> Vec<(&'static str, Vec<Value>)> {
    let start = || json!({"type": "message_start", "message": {"id": "m1", "model": "m", "usage": {"input_tokens": 3}}});
    let open = |at: u64, block: Value| json!({"type": "content_block_start", "index": at, "content_block": block});
    let text = |at: u64, words: &str| json!({"type": "content_block_delta", "index": at, "delta": {"type": "text_delta", "text": words}});
    let arguments = |at: u64, part: &str| json!({"type": "content_block_delta", "index": at, "delta": {"type": "input_json_delta", "partial_json": part}});
    let close = |at: u64| json!({"type": "content_block_stop", "index": at});
    let stop = |reason: Value| json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 7}});
    let end = || json!({"type": "message_stop"});
    let words = || open(0, json!({"type": "text", "text": ""}));
    let call = |at: u64, id: &str| {
        open(at, json!({"type": "tool_use", "id": id, "name": "touch", "input": {}}))
    };
    vec![
        ("empty reason", vec![start(), words(), text(0, "Half"), close(0), stop(json!(""))]),
        ("reason \"null\"", vec![start(), words(), text(0, "Half"), close(0), stop(json!("null"))]),
        (
            "reason of another type",
            vec![start(), words(), text(0, "Half"), close(0), stop(json!(7)), end()],
        ),
        (
            "unknown reason",
            vec![start(), words(), text(0, "Hi"), close(0), stop(json!("bored")), end()],
        ),
        ("no reason at all", vec![start(), words(), text(0, "Hi"), close(0), end()]),
        ("nothing but the end", vec![end()]),
        (
            "stop within a call",
            vec![start(), call(0, "t"), arguments(0, "{\"what\":"), stop(json!("tool_use")), end()],
        ),
        (
            "cut by the limit in a call",
            vec![
                start(),
                call(0, "t"),
                arguments(0, "{\"what\":"),
                close(0),
                stop(json!("max_tokens")),
                end(),
            ],
        ),
        (
            "cut by the limit before arguments",
            vec![start(), call(0, "t"), close(0), stop(json!("max_tokens")), end()],
        ),
        (
            "two calls, one id",
            vec![
                start(),
                call(0, "t"),
                arguments(0, "{\"what\":1}"),
                close(0),
                call(1, "t"),
                arguments(1, "{\"what\":2}"),
                close(1),
                stop(json!("tool_use")),
                end(),
            ],
        ),
        (
            "calls without ids",
            vec![
                start(),
                call(0, ""),
                arguments(0, "{}"),
                close(0),
                call(1, ""),
                arguments(1, "{}"),
                close(1),
                stop(json!("tool_use")),
                end(),
            ],
        ),
        (
            "arguments are a list",
            vec![
                start(),
                call(0, "t"),
                arguments(0, "[1]"),
                close(0),
                stop(json!("tool_use")),
                end(),
            ],
        ),
        (
            "arguments are null",
            vec![
                start(),
                call(0, "t"),
                arguments(0, "null"),
                close(0),
                stop(json!("tool_use")),
                end(),
            ],
        ),
        (
            "arguments are a string",
            vec![
                start(),
                call(0, "t"),
                arguments(0, "\"x\""),
                close(0),
                stop(json!("tool_use")),
                end(),
            ],
        ),
        (
            "a block that began twice",
            vec![start(), words(), words(), stop(json!("end_turn")), end()],
        ),
        ("a delta for no block", vec![start(), text(5, "Hi"), stop(json!("end_turn")), end()]),
        (
            "a delta after the block's end",
            vec![start(), words(), close(0), text(0, "Hi"), stop(json!("end_turn")), end()],
        ),
        (
            "unknown events",
            vec![
                start(),
                json!({"type": "weather", "x": 1}),
                words(),
                text(0, "Hi"),
                close(0),
                stop(json!("end_turn")),
                end(),
            ],
        ),
        (
            "usage at the limit",
            vec![
                start(),
                words(),
                text(0, "Hi"),
                close(0),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4096}}),
                end(),
            ],
        ),
        (
            "text after the end",
            vec![
                start(),
                words(),
                text(0, "Hi"),
                close(0),
                stop(json!("end_turn")),
                end(),
                text(0, "more"),
            ],
        ),
    ]
}

fn openai_chat() -> Vec<(&'static str, Vec<Value>)> {
    let chunk = |delta: Value, reason: Value| json!({"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]});
    let text = |words: &str| chunk(json!({"content": words}), Value::Null);
    let calls = |calls: Value| chunk(json!({"tool_calls": calls}), Value::Null);
    let call = |arguments: Value| {
        calls(
            json!([{"index": 0, "id": "t", "function": {"name": "touch", "arguments": arguments}}]),
        )
    };
    let stop = |reason: &str| chunk(json!({}), json!(reason));
    let usage = |tokens: u64| json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": tokens}});
    let twice = |entry: Value| calls(json!([entry, entry]));
    vec![
        ("empty reason", vec![text("Half"), stop("")]),
        ("reason \"null\"", vec![text("Half"), stop("null")]),
        ("reason of another type", vec![text("Half"), chunk(json!({}), json!(7))]),
        ("unknown reason", vec![text("Hi"), stop("bored")]),
        ("empty reason in a call", vec![call(json!("")), stop("")]),
        ("nothing but the end", vec![stop("stop")]),
        ("stop within a call", vec![call(json!("{\"what\":")), stop("tool_calls")]),
        ("cut by the limit in a call", vec![call(json!("{\"what\":")), stop("length")]),
        ("cut by the limit before arguments", vec![call(json!("")), stop("length")]),
        (
            "two calls, one id",
            vec![call(json!("{\"what\":1}")), call(json!("{\"what\":2}")), stop("tool_calls")],
        ),
        (
            "calls without ids",
            vec![
                twice(json!({"function": {"name": "touch", "arguments": "{}"}})),
                stop("tool_calls"),
            ],
        ),
        ("arguments are a list", vec![call(json!([1])), stop("tool_calls")]),
        ("arguments are null", vec![call(json!("null")), stop("tool_calls")]),
        ("arguments are a string", vec![call(json!("\"x\"")), stop("tool_calls")]),
        (
            "a call without a name",
            vec![
                calls(json!([{"index": 0, "id": "t", "function": {"arguments": "{}"}}])),
                stop("tool_calls"),
            ],
        ),
        ("thoughts in tags", vec![text("<think>Hm"), text("</think>Hi"), stop("stop")]),
        ("thoughts with only an end tag", vec![text("Hm\n"), text("</think>\nHi"), stop("stop")]),
        (
            "thoughts only in details",
            vec![
                chunk(
                    json!({"reasoning_details": [{"type": "reasoning.text", "text": "Hm"}]}),
                    Value::Null,
                ),
                text("Hi"),
                stop("stop"),
            ],
        ),
        ("usage at the limit", vec![text("Hi"), stop("stop"), usage(4096)]),
        ("text after the end", vec![text("Hi"), stop("stop"), usage(7), text(" more")]),
    ]
}

fn openai_responses() -> Vec<(&'static str, Vec<Value>)> {
    let event = |kind: &str, members: Value| {
        let mut event = members;
        event["type"] = format!("response.{kind}").into();
        event
    };
    let text = |words: &str| {
        event("output_text.delta", json!({"output_index": 0, "content_index": 0, "delta": words}))
    };
    let item = |at: u64, id: &str, arguments: Value| {
        event(
            "output_item.done",
            json!({"output_index": at, "item": {"id": id, "type": "function_call", "call_id": id, "name": "touch", "arguments": arguments}}),
        )
    };
    let added = || {
        event(
            "output_item.added",
            json!({"output_index": 0, "item": {"id": "f", "type": "function_call", "call_id": "t", "name": "touch"}}),
        )
    };
    let part = |json: &str| {
        event("function_call_arguments.delta", json!({"output_index": 0, "delta": json}))
    };
    let done = |status: Value| {
        event(
            "completed",
            json!({"response": {"id": "r1", "status": status, "usage": {"input_tokens": 3, "output_tokens": 7}}}),
        )
    };
    let completed = || done(json!("completed"));
    let incomplete = |reason: &str| {
        event(
            "incomplete",
            json!({"response": {"status": "incomplete", "incomplete_details": {"reason": reason}}}),
        )
    };
    vec![
        ("empty status", vec![text("Hi"), done(json!(""))]),
        ("status \"null\"", vec![text("Hi"), done(json!("null"))]),
        ("status of another type", vec![text("Half"), done(json!(7))]),
        ("unknown status", vec![text("Half"), done(json!("bored"))]),
        (
            "failed",
            vec![
                text("Half"),
                event(
                    "failed",
                    json!({"response": {"error": {"code": "server_error", "message": "no"}}}),
                ),
            ],
        ),
        ("nothing but the end", vec![completed()]),
        ("stop within a call", vec![added(), part("{\"what\":"), completed()]),
        (
            "cut by the limit in a call",
            vec![added(), part("{\"what\":"), incomplete("max_output_tokens")],
        ),
        ("cut by the limit before arguments", vec![added(), incomplete("max_output_tokens")]),
        (
            "two calls, one id",
            vec![
                item(0, "t", json!("{\"what\":1}")),
                item(1, "t", json!("{\"what\":2}")),
                completed(),
            ],
        ),
        (
            "calls without ids",
            vec![item(0, "", json!("{}")), item(1, "", json!("{}")), completed()],
        ),
        ("arguments are a list", vec![item(0, "t", json!([1])), completed()]),
        ("arguments are null", vec![item(0, "t", json!("null")), completed()]),
        ("arguments are a string", vec![item(0, "t", json!("\"x\"")), completed()]),
        ("arguments for no call", vec![part("{}"), completed()]),
        (
            "an item without a type",
            vec![
                event(
                    "output_item.done",
                    json!({"output_index": 0, "item": {"role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}}),
                ),
                completed(),
            ],
        ),
        ("unknown events", vec![event("weather", json!({"x": 1})), text("Hi"), completed()]),
        ("filtered", vec![text("Half"), incomplete("content_filter")]),
        (
            "usage at the limit",
            vec![
                text("Hi"),
                event(
                    "completed",
                    json!({"response": {"status": "completed", "usage": {"output_tokens": 4096}}}),
                ),
            ],
        ),
        ("text after the end", vec![text("Hi"), completed(), text("more")]),
    ]
}

fn gemini() -> Vec<(&'static str, Vec<Value>)> {
    let chunk = |parts: Value, reason: Value| json!({"candidates": [{"content": {"parts": parts}, "finishReason": reason}], "responseId": "r1"});
    let text = |words: &str| chunk(json!([{"text": words}]), Value::Null);
    let call = |arguments: Value| {
        chunk(json!([{"functionCall": {"name": "touch", "args": arguments}}]), Value::Null)
    };
    let begun = || {
        chunk(
            json!([{"functionCall": {"name": "touch", "willContinue": true, "partialArgs": [{"jsonPath": "$.what", "stringValue": "i", "willContinue": true}]}}]),
            Value::Null,
        )
    };
    let bare =
        || chunk(json!([{"functionCall": {"name": "touch", "willContinue": true}}]), Value::Null);
    let stop = |reason: &str| chunk(json!([]), json!(reason));
    let usage = |tokens: u64| json!({"usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": tokens}});
    let twice = |id: &str| {
        chunk(
            json!([{"functionCall": {"id": id, "name": "touch", "args": {"what": 1}}}, {"functionCall": {"id": id, "name": "touch", "args": {"what": 2}}}]),
            Value::Null,
        )
    };
    vec![
        ("empty reason", vec![text("Half"), stop("")]),
        ("reason \"null\"", vec![text("Half"), stop("null")]),
        ("reason of another type", vec![text("Half"), chunk(json!([]), json!(7))]),
        ("unknown reason", vec![text("Hi"), stop("BORED")]),
        ("unspecified reason", vec![text("Half"), stop("FINISH_REASON_UNSPECIFIED")]),
        ("nothing but the end", vec![stop("STOP")]),
        ("stop within a call", vec![begun(), stop("STOP")]),
        ("cut by the limit in a call", vec![begun(), stop("MAX_TOKENS")]),
        ("cut by the limit before arguments", vec![bare(), stop("MAX_TOKENS")]),
        ("two calls, one id", vec![twice("t"), stop("STOP")]),
        ("calls without ids", vec![twice(""), stop("STOP")]),
        ("arguments are a list", vec![call(json!([1])), stop("STOP")]),
        ("arguments are null", vec![call(Value::Null), stop("STOP")]),
        ("arguments are a string", vec![call(json!("x")), stop("STOP")]),
        ("malformed call", vec![text("Half"), stop("MALFORMED_FUNCTION_CALL")]),
        ("blocked prompt", vec![json!({"promptFeedback": {"blockReason": "SAFETY"}})]),
        (
            "parts of another type",
            vec![json!({"candidates": [{"content": {"parts": 7}}]}), text("Hi"), stop("STOP")],
        ),
        ("filtered", vec![text("Half"), stop("SAFETY")]),
        ("usage at the limit", vec![text("Hi"), stop("STOP"), usage(4096)]),
        ("text after the end", vec![text("Hi"), stop("STOP"), usage(7), text("more")]),
    ]
}

fn ollama() -> Vec<(&'static str, Vec<Value>)> {
    let line = |message: Value, more: Value| {
        let mut line = json!({"model": "m", "message": message, "done": false});
        if let (Value::Object(line), Value::Object(more)) = (&mut line, more) {
            line.extend(more);
        }
        line
    };
    let text = |words: &str| line(json!({"content": words}), json!({}));
    let call = |arguments: Value| {
        line(
            json!({"content": "", "tool_calls": [{"function": {"name": "touch", "arguments": arguments}}]}),
            json!({}),
        )
    };
    let done = |reason: Value| {
        line(json!({"content": ""}), json!({"done": true, "done_reason": reason, "eval_count": 7}))
    };
    let stop = || done(json!("stop"));
    let twice = |id: &str| {
        line(
            json!({"tool_calls": [{"id": id, "function": {"name": "touch", "arguments": {"what": 1}}}, {"id": id, "function": {"name": "touch", "arguments": {"what": 2}}}]}),
            json!({}),
        )
    };
    vec![
        (
            "empty reason, not done",
            vec![text("Half"), line(json!({"content": ""}), json!({"done_reason": ""}))],
        ),
        ("reason \"null\", done", vec![text("Hi"), done(json!("null"))]),
        ("reason of another type", vec![text("Half"), done(json!(7))]),
        ("unknown reason", vec![text("Hi"), done(json!("bored"))]),
        (
            "done of another type",
            vec![text("Half"), line(json!({"content": ""}), json!({"done": "yes"}))],
        ),
        ("nothing but the end", vec![stop()]),
        ("cut by the limit", vec![text("Hi"), done(json!("length"))]),
        ("two calls, one id", vec![twice("t"), stop()]),
        ("calls without ids", vec![twice(""), stop()]),
        ("arguments are a list", vec![call(json!([1])), stop()]),
        ("arguments are null", vec![call(Value::Null), stop()]),
        ("arguments are a string", vec![call(json!("x")), stop()]),
        ("half of the arguments", vec![call(json!("{\"what\":")), stop()]),
        (
            "content of another type",
            vec![line(json!({"content": 7}), json!({})), text("Hi"), stop()],
        ),
        ("thoughts in tags", vec![text("<think>Hm"), text("</think>Hi"), stop()]),
        ("thoughts with only an end tag", vec![text("Hm\n"), text("</think>\nHi"), stop()]),
        (
            "thoughts under another name",
            vec![line(json!({"reasoning": "Hm"}), json!({})), text("Hi"), stop()],
        ),
        ("unknown lines", vec![json!({"weather": 1}), text("Hi"), stop()]),
        (
            "usage at the limit",
            vec![
                text("Hi"),
                line(json!({}), json!({"done": true, "done_reason": "stop", "eval_count": 4096})),
            ],
        ),
        ("text after the end", vec![text("Hi"), stop(), text("more")]),
    ]
}

/// Plays one stream; the server answers all later requests well.
async fn line(provider: &Provider, what: &str, answers: Vec<Answer>) -> String {
    let server = FakeProvider::start(answers).await.unwrap();
    let (mut def, touched) = agent((provider.model)(&server.url()), true);
    def.limits.turns = 3;
    let records = play(def, "go").await;
    let transcript = Transcript::fold(&records);
    let thoughts = transcript
        .parts
        .values()
        .filter(|part| part.kind == PartKind::Thought && !part.text.is_empty());
    let mut ended = outcome(&records).to_string();
    ended = ended.replace(&server.url(), "URL");
    format!(
        "{:<16} | {:<34} | {:>8} | {:>5} | {:>8} | {:<10} | {}",
        provider.name,
        what,
        server.asked().len(),
        touched.load(Ordering::SeqCst),
        thoughts.count(),
        format!("{:?}", transcript.answer(AgentNo::ROOT)),
        ended,
    )
}

/// Every stream is either read or rejected with a named error; none panics, hangs, or runs an
/// incomplete call.
#[tokio::test]
async fn outcomes_of_hostile_streams() {
    let providers = Arc::new(providers());
    let mut rows: Vec<(usize, &'static str, Vec<Answer>)> = Vec::new();
    for (at, provider) in providers.iter().enumerate() {
        rows.extend(faults(provider).into_iter().map(|(what, answers)| (at, what, answers)));
        let whole = || provider.streams(&*provider.whole);
        rows.extend(
            own(provider).into_iter().map(|(what, answer)| (at, what, vec![answer, whole()])),
        );
    }
    let count = rows.len();
    assert!(count >= 200, "{count} streams");
    let lines = stream::iter(rows).map(|(at, what, answers)| {
        let providers = Arc::clone(&providers);
        async move { line(&providers[at], what, answers).await }
    });
    let lines: Vec<String> = lines.buffered(AT_ONCE).collect().await;
    let mut table = format!(
        "{:<16} | {:<34} | {:>8} | {:>5} | {:>8} | {:<10} | outcome\n",
        "provider", "stream", "requests", "calls", "thoughts", "answer"
    );
    for line in lines {
        let _ = writeln!(table, "{}", line.trim_end());
    }
    assert_snapshot!("hostile_streams", table);
}
