//! Responses of providers, written by hand: fakes built from our own types would only show that we
//! agree with ourselves.

use serde_json::json;
use wellspring_testkit::Answer;

/// A list of models, in the format of Anthropic and OpenAI.
pub(crate) fn models(ids: &[&str]) -> Answer {
    let data: Vec<_> = ids.iter().map(|id| json!({"id": id})).collect();
    Answer::ok("application/json", json!({"data": data}).to_string())
}

/// A response of Anthropic.
pub(crate) fn anthropic(words: &str) -> Answer {
    sse(&[
        json!({"type": "message_start",
            "message": {"model": "m", "usage": {"input_tokens": 3, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": words}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
    ])
}

/// A response of Anthropic that calls a tool.
pub(crate) fn anthropic_call(tool: &str, arguments: &str) -> Answer {
    sse(&[
        json!({"type": "message_start",
            "message": {"model": "m", "usage": {"input_tokens": 3, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "tool_use", "id": "t1", "name": tool, "input": {}}}),
        json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": arguments}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
    ])
}

/// A response of Anthropic that stops in the middle of a sentence until it is released, and then
/// calls a tool.
pub(crate) fn anthropic_held(words: [&str; 2], tool: &str, arguments: &str) -> Answer {
    let text = |words| {
        json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": words}})
    };
    let first = [
        json!({"type": "message_start",
            "message": {"model": "m", "usage": {"input_tokens": 3, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "text", "text": ""}}),
        text(words[0]),
    ];
    let rest = [
        text(words[1]),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1,
            "content_block": {"type": "tool_use", "id": "t1", "name": tool, "input": {}}}),
        json!({"type": "content_block_delta", "index": 1,
            "delta": {"type": "input_json_delta", "partial_json": arguments}}),
        json!({"type": "content_block_stop", "index": 1}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 7}}),
        json!({"type": "message_stop"}),
    ];
    sse(&first).then_held(body(&rest))
}

/// A response of Chat Completions.
pub(crate) fn chat(words: &str) -> Answer {
    let choice = |delta: serde_json::Value, reason: serde_json::Value| json!({"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]});
    sse(&[choice(json!({"content": words}), json!(null)), choice(json!({}), json!("stop"))])
}

/// A response of OpenAI's Responses API.
pub(crate) fn responses(words: &str) -> Answer {
    let item = json!({"id": "msg_1", "type": "message", "role": "assistant",
        "content": [{"type": "output_text", "text": words}]});
    sse(&[
        json!({"type": "response.output_item.added", "output_index": 0,
            "item": {"id": "msg_1", "type": "message", "role": "assistant", "content": []}}),
        json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0,
            "delta": words}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.completed", "response": {"id": "r", "model": "m",
            "status": "completed", "output": [item],
            "usage": {"input_tokens": 3, "output_tokens": 7}}}),
    ])
}

/// A response of Gemini.
pub(crate) fn gemini(words: &str) -> Answer {
    sse(&[json!({"candidates": [{"content": {"role": "model", "parts": [{"text": words}]},
        "finishReason": "STOP"}], "modelVersion": "m",
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 7}})])
}

/// A response of Ollama.
pub(crate) fn ollama(words: &str) -> Answer {
    let lines = [
        json!({"model": "m", "message": {"role": "assistant", "content": words}, "done": false}),
        json!({"model": "m", "message": {"role": "assistant", "content": ""}, "done": true,
            "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 7}),
    ];
    Answer::ok("application/x-ndjson", lines.map(|line| format!("{line}\n")).concat())
}

fn sse(events: &[serde_json::Value]) -> Answer {
    Answer::ok("text/event-stream", body(events))
}

fn body(events: &[serde_json::Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}
