//! Properties that hold for any answer.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::provider::tests::{request, stream, whole};
use crate::sse_reader::Framer;

proptest! {
    #[test]
    fn nonsense_never_panics(body in prop_oneof![
        any::<Vec<u8>>(),
        (arb_deltas(), 0usize..400).prop_map(|(deltas, cut)| {
            let mut body = sse(&deltas.into_iter().map(chunk).collect::<Vec<_>>()).into_bytes();
            if let Some(byte) = body.get_mut(cut) {
                *byte = b'"';
            }
            body
        }),
    ]) {
        let _ = stream(Reader::default(), Framer::sse(), body.chunks(7));
        let _ = whole(Reader::default(), &String::from_utf8_lossy(&body));
    }

    /// An answer is sent back unchanged: text, calls and arguments.
    #[test]
    fn round_trip(text in ".{0,20}", calls in prop::collection::vec(("[a-z]{1,8}", ".{0,9}"), 0..4)) {
        prop_assume!(!text.is_empty() || !calls.is_empty());
        let calls: Vec<Value> = calls.iter().enumerate().map(|(index, (name, value))| {
            let arguments = json!({"v": value}).to_string();
            json!({"id": format!("call_{index}"), "type": "function", "function": {"name": name, "arguments": arguments}})
        }).collect();
        let mut message = json!({"role": "assistant", "content": text});
        if text.is_empty() {
            message["content"] = Value::Null;
        }
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        let body = json!({"choices": [{"message": message, "finish_reason": "stop"}]});
        let heard = whole(Reader::default(), &body.to_string());
        let written = write("m", &request([heard.message()]), &Vendor::COMPATIBLE);
        let body: Value = serde_json::from_slice(&written.body).unwrap();
        prop_assert_eq!(&body["messages"][0], &message);
    }
}

/// Possible streams of a server.
fn arb_deltas() -> impl Strategy<Value = Vec<Value>> {
    let delta = prop_oneof![
        ".{0,6}".prop_map(|text| json!({"content": text})),
        ".{0,6}".prop_map(|text| json!({"reasoning_content": text})),
        (0u32..3, ".{0,6}").prop_map(|(index, text)| json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]})),
        (0u32..3, "[a-z]{1,3}").prop_map(|(index, id)| json!({"tool_calls": [{"index": index, "id": id, "function": {"name": "f", "arguments": "{}"}}]})),
    ];
    prop::collection::vec(delta, 1..12)
}
