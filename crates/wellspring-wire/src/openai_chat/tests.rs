mod properties;
mod reading;
mod writing;

use serde_json::{Value, json};
use wellspring_core::Message;

use super::*;
use crate::provider::tests::{Heard, request, stream_cut_anywhere};
use crate::sse_reader::Framer;

fn sse(chunks: &[Value]) -> String {
    chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect()
}

/// Reads chunks followed by `[DONE]`.
fn read(chunks: &[Value]) -> Heard {
    read_text(&format!("{}data: [DONE]\n\n", sse(chunks)))
}

fn read_text(body: &str) -> Heard {
    stream_cut_anywhere(Reader::default, &Framer::sse(), body)
}

fn chunk(delta: Value) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "system_fingerprint": null,
        "choices": [{"index": 0, "delta": delta, "finish_reason": null, "logprobs": null}]})
}

fn finish(reason: &str) -> Value {
    json!({"id": "c", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn call(delta: Value) -> Value {
    chunk(json!({"tool_calls": [delta]}))
}

fn texts(heard: &Heard) -> Vec<String> {
    let Message::Assistant { parts, .. } = heard.message() else { unreachable!() };
    parts.iter().map(|part| format!("{} {}", part.kind, part.text)).collect()
}
