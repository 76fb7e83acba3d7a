//! Properties that hold for any answer.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::provider::tests::{stream, whole};
use crate::sse_reader::Framer;

proptest! {
    /// An answer is sent back unchanged: read, written, and read again whole.
    #[test]
    fn round_trip(mut blocks in arb_blocks()) {
        // A message must not end with a thought, and ids are unique within a conversation.
        blocks.push((json!({"type": "text", "text": "."}), vec![]));
        for (index, (block, _)) in blocks.iter_mut().enumerate() {
            if let Some(id) = block.get_mut("id") {
                *id = json!(format!("toolu_{index}"));
            }
        }
        let heard = stream(Reader::default(), Framer::sse(), [sse(&stream_of(&blocks)).as_bytes()]);
        prop_assert_eq!(&heard.error, &None);
        let written = write("claude-x", &request([heard.message()]), &Options { cache: false });
        prop_assert_eq!(&written.left_out, &Default::default());
        let body: Value = serde_json::from_slice(&written.body).unwrap();
        let want: Vec<Value> = blocks.iter().filter_map(|(block, deltas)| assembled(block, deltas)).collect();
        prop_assert_eq!(&body["messages"][0]["content"], &Value::Array(want.clone()));

        let answer = json!({"type": "message", "content": want, "stop_reason": "end_turn"});
        let again = whole(Reader::default(), &answer.to_string());
        let rewritten = write("claude-x", &request([again.message()]), &Options { cache: false });
        prop_assert_eq!(&rewritten, &written);
    }

    #[test]
    fn nonsense_never_panics(body in prop_oneof![
        any::<Vec<u8>>(),
        prop::collection::vec(arb_event(), 0..12).prop_map(|events| sse(&events).into_bytes()),
    ]) {
        let _ = stream(Reader::default(), Framer::sse(), body.chunks(7));
        let _ = whole(Reader::default(), &String::from_utf8_lossy(&body));
    }
}

/// A possible stream of a provider: blocks with deltas, some of them unknown to us.
fn arb_blocks() -> impl Strategy<Value = Vec<(Value, Vec<Value>)>> {
    let text = prop::collection::vec(".{0,8}", 0..4);
    let block = prop_oneof![
        text.clone().prop_map(|texts| {
            let delta = |text: &String| json!({"type": "text_delta", "text": text});
            (text_block(), texts.iter().map(delta).collect())
        }),
        (text.clone(), "[a-zA-Z0-9+/=]{1,20}").prop_map(|(texts, signature)| {
            let delta = |text: &String| json!({"type": "thinking_delta", "thinking": text});
            let mut deltas: Vec<Value> = texts.iter().map(delta).collect();
            deltas.push(json!({"type": "signature_delta", "signature": signature}));
            (json!({"type": "thinking", "thinking": "", "signature": ""}), deltas)
        }),
        ("[a-zA-Z0-9+/=]{1,20}")
            .prop_map(|data| (json!({"type": "redacted_thinking", "data": data}), vec![])),
        ("[a-z_]{1,9}", text, "[a-z]{1,6}").prop_map(|(name, texts, id)| {
            let input = json!({"texts": texts}).to_string();
            let middle =
                input.char_indices().nth(input.chars().count() / 2).map_or(0, |(at, _)| at);
            let delta = |text: &str| json!({"type": "input_json_delta", "partial_json": text});
            let deltas = vec![delta(&input[..middle]), delta(&input[middle..])];
            (json!({"type": "tool_use", "id": id, "name": name, "input": {}}), deltas)
        }),
        (0u32..9).prop_map(|n| (
            json!({"type": "future_block", "n": n, "text": ""}),
            vec![json!({"type": "text_delta", "text": "t"})]
        )),
    ];
    prop::collection::vec(block, 1..6)
}

fn stream_of(blocks: &[(Value, Vec<Value>)]) -> Vec<Value> {
    let mut events = vec![start()];
    for (index, (block, deltas)) in (0..).zip(blocks) {
        events.push(open(index, block.clone()));
        events.extend(deltas.iter().map(|it| delta(index, it.clone())));
        events.push(close(index));
    }
    events.extend(stop());
    events
}

/// A block as the provider would return it after its last delta; `None` if it is empty.
fn assembled(block: &Value, deltas: &[Value]) -> Option<Value> {
    let mut block = block.clone();
    let mut input = String::new();
    for delta in deltas {
        let text = |name: &str| delta[name].as_str().unwrap_or_default();
        for name in ["text", "thinking", "signature"] {
            if delta.get(name).is_some() {
                block[name] = json!(format!("{}{}", block[name].as_str().unwrap(), text(name)));
            }
        }
        input.push_str(text("partial_json"));
    }
    if !input.is_empty() {
        block["input"] = serde_json::from_str(&input).unwrap();
    }
    (block["type"] != "text" || block["text"] != "").then_some(block)
}

/// An event whose members have arbitrary types.
fn arb_event() -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(vec![
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "error",
        "ping",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        prop::sample::select(vec!["text", "tool_use", "text_delta", "thinking", "x"])
            .prop_map(Value::from),
    ];
    let object = prop::collection::btree_map(
        prop::sample::select(vec![
            "type",
            "text",
            "input",
            "id",
            "name",
            "content",
            "usage",
            "stop_reason",
        ]),
        leaf.clone(),
        0..5,
    )
    .prop_map(|map| serde_json::to_value(map).unwrap());
    let any = prop_oneof![leaf, object];
    let member = prop::sample::select(vec!["index", "delta", "content_block", "message", "usage"]);
    (kind, prop::collection::btree_map(member, any, 0..4)).prop_map(|(kind, members)| {
        let mut event = serde_json::to_value(members).unwrap();
        event["type"] = json!(kind);
        event
    })
}
