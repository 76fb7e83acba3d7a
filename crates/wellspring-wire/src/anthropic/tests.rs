mod properties;
mod reading;
mod writing;

use serde_json::{Value, json};

use super::*;
use crate::provider::tests::{Heard, request, stream_cut_anywhere};
use crate::sse_reader::Framer;

/// A stream of these events.
fn sse(events: &[Value]) -> String {
    let line = |event: &Value| {
        format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or("x"))
    };
    events.iter().map(line).collect()
}

fn read(events: &[Value]) -> Heard {
    stream_cut_anywhere(Reader::default, &Framer::sse(), &sse(events))
}

fn start() -> Value {
    json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
        "model": "claude-x", "content": [], "stop_reason": null,
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 1}}})
}

fn open(index: u32, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u32, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn close(index: u32) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn end(reason: &str) -> [Value; 2] {
    let delta = json!({"stop_reason": reason, "stop_sequence": null});
    [
        json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 42}}),
        json!({"type": "message_stop"}),
    ]
}

fn stop() -> Vec<Value> {
    end("end_turn").into()
}

fn text_block() -> Value {
    json!({"type": "text", "text": ""})
}

/// The message as it is sent back, and what was left out of it.
fn said_again(heard: &Heard) -> String {
    let written = write("claude-x", &request([heard.message()]), &Options { cache: false });
    let body: Value = serde_json::from_slice(&written.body).unwrap();
    let blocks = body["messages"][0]["content"].as_array().cloned().unwrap_or_default();
    let lines: Vec<String> = blocks.iter().map(Value::to_string).collect();
    format!("{}\nleft out: {:?}", lines.join("\n"), written.left_out)
}
