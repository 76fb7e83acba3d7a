use proptest::prelude::*;
use serde_json::{Value, json};
use wellspring_core::*;

use super::*;

/// The committed frame, which must decode to the same records forever.
const FRAME: &[u8] = include_bytes!("../../fixtures/v1/every_event.bin");
const RECORDS: &str = include_str!("../../fixtures/v1/every_event.jsonl");

fn committed() -> Vec<Record> {
    RECORDS.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn version_1_is_read_for_ever() {
    assert_eq!(decode(Seq(1), FRAME).unwrap(), committed());
}

/// Every kind of event is in the fixture. A new kind fails to compile here, and needs a new
/// fixture file, because a committed one never changes.
#[test]
fn the_fixture_has_every_kind() {
    let mut kinds: Vec<_> = committed().iter().map(|record| kind(&record.event)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds, (0..31).collect::<Vec<_>>());
}

fn kind(event: &Event) -> usize {
    match event {
        Event::RunStarted(_) => 0,
        Event::RunAdopted { .. } => 1,
        Event::RunPaused { .. } => 2,
        Event::RunResumed { .. } => 3,
        Event::TurnStarted(_) => 4,
        Event::TurnFinished { .. } => 5,
        Event::PartStarted { .. } => 6,
        Event::PartDelta { .. } => 7,
        Event::PartAnnotated { .. } => 8,
        Event::PartFinished { .. } => 9,
        Event::PartsVoided { .. } => 10,
        Event::ToolQueued { .. } => 11,
        Event::ToolStarted { .. } => 12,
        Event::ToolUpdated { .. } => 13,
        Event::ToolFinished { .. } => 14,
        Event::QuestionAsked(_) => 15,
        Event::QuestionAnswered(_) => 16,
        Event::AgentStarted { .. } => 17,
        Event::AgentFinished { .. } => 18,
        Event::PlanUpdated { .. } => 19,
        Event::StateSet { .. } => 20,
        Event::StatePatched { .. } => 21,
        Event::SourceCited(_) => 22,
        Event::FileProduced(_) => 23,
        Event::UsageReported(_) => 24,
        Event::InputAccepted { .. } => 25,
        Event::InputApplied { .. } => 26,
        Event::ResultReady { .. } => 27,
        Event::Attached { .. } => 28,
        Event::Extended(_) => 29,
        Event::RunFinished { .. } => 30,
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn event() -> impl Strategy<Value = Event> {
    let kinds = committed();
    prop_oneof![
        (any::<u32>(), any::<String>())
            .prop_map(|(part, text)| Event::PartDelta { part: PartId(part), chunk: text.into() }),
        prop::sample::select(kinds).prop_map(|record| record.event),
        value().prop_map(|value| Event::ResultReady { value: Box::new(value) }),
    ]
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let record = (any::<u32>(), any::<u64>(), event());
    prop::collection::vec(record, 0..40).prop_map(|records| {
        let record = |(seq, (agent, at, event))| Record {
            seq: Seq(seq),
            agent: AgentNo(agent),
            at: Millis(at),
            event,
        };
        (7..).zip(records).map(record).collect()
    })
}

fn with_checksum(mut content: Vec<u8>) -> Vec<u8> {
    let crc = crc32fast::hash(&content);
    content.extend_from_slice(&crc.to_le_bytes());
    content
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(records in records()) {
        let body = encode(&records).unwrap();
        prop_assert_eq!(decode(Seq(7), &body).unwrap(), records);
    }

    #[test]
    fn a_cut_or_a_flipped_bit_is_found(records in records(), at in any::<prop::sample::Index>(), bit in 0..8u32) {
        let body = encode(&records).unwrap();
        let at = at.index(body.len());
        prop_assert!(decode(Seq(7), &body[..at]).is_err());
        let mut flipped = body;
        flipped[at] ^= 1 << bit;
        prop_assert!(decode(Seq(7), &flipped).is_err());
    }

    /// Even if the checksum matches, garbage gives an error or some records, never a panic.
    #[test]
    fn garbage_never_panics(
        records in records(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        noise in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut body = encode(&records).unwrap();
        body.truncate(body.len() - CRC_BYTES);
        for (at, byte) in cuts {
            let at = at.index(body.len());
            if at > 0 {
                body[at] = byte;
            }
        }
        let _ = decode(Seq(7), &with_checksum(body));
        let _ = decode(Seq(7), &with_checksum([&[VERSION], &noise[..]].concat()));
        let _ = decode(Seq(7), &noise);
    }
}

#[test]
fn refused_frames() {
    let huge = |tag| [&[VERSION, 0, tag, 0, 0][..], &[0xff; 9], &[0x01]].concat();
    let nested = |depth: usize| {
        let json = "[".repeat(depth) + &"]".repeat(depth);
        let json = format!("{{\"result_ready\":{{\"value\":{json}}}}}");
        let mut frame = vec![VERSION, 0, TAG_EVENT, 0, 0];
        put_varint(&mut frame, json.len() as u64);
        frame.extend_from_slice(json.as_bytes());
        frame
    };
    let malformed = |at, what: &str| DecodeError::Malformed { at, what: what.into() };
    for (content, want) in [
        (vec![VERSION], DecodeError::Truncated),
        (vec![VERSION, 0x80], DecodeError::Truncated),
        (vec![VERSION, 0, 9, 0, 0], malformed(5, "unknown tag 9")),
        (vec![VERSION, 0, TAG_DELTA, 0, 0, 1, 3, b'a'], DecodeError::Truncated),
        (vec![VERSION, 0, TAG_DELTA, 0, 0, 1, 1, 0xff], malformed(6, "a delta is not UTF-8")),
        (huge(TAG_DELTA), malformed(15, "an id is too large")),
        (huge(TAG_EVENT), DecodeError::Truncated),
        ([&[VERSION][..], &[0xff; 10]].concat(), malformed(11, "a number is too long")),
        (nested(100_000), malformed(5, "it is nested too deeply")),
    ] {
        assert_eq!(
            decode(Seq(1), &with_checksum(content.clone())),
            Err(want),
            "{:?}",
            &content[..5.min(content.len())]
        );
    }
    assert_eq!(decode(Seq(1), &[]), Err(DecodeError::Truncated));
    assert_eq!(decode(Seq(1), &with_checksum(vec![2, 0])), Err(DecodeError::Version(2)));
    assert_eq!(decode(Seq(1), &[VERSION, 0, 1, 2, 3, 4]), Err(DecodeError::Checksum));
    assert!(decode(Seq(1), &with_checksum(nested(DEPTH_MAX - 2))).is_ok());
}

#[test]
fn a_delta_costs_its_text_and_a_few_bytes() {
    let delta = |text: &str| Event::PartDelta { part: PartId(3), chunk: text.into() };
    let record = |seq, event| Record { seq: Seq(seq), agent: AgentNo::ROOT, at: Millis(9), event };
    let one = encode(&[record(1, delta("hello"))]).unwrap().len();
    let two = encode(&[record(1, delta("hello")), record(2, delta("hello"))]).unwrap().len();
    assert_eq!(two - one, 5 + 5);
    assert!(weight(&delta("hello")) >= two - one);
    let records = decode(Seq(1), &encode(&[record(1, delta("hello"))]).unwrap()).unwrap();
    assert_eq!(records, [record(1, delta("hello"))]);
}

/// Writes the fixture on request; see its README. Once committed, the fixture must not change.
#[test]
fn write_fixture() {
    if std::env::var_os("WELLSPRING_WRITE_FIXTURE").is_none() {
        return;
    }
    let records = samples();
    let lines: Vec<_> =
        records.iter().map(|record| serde_json::to_string(record).unwrap()).collect();
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/v1");
    std::fs::write(format!("{directory}/every_event.bin"), encode(&records).unwrap()).unwrap();
    std::fs::write(format!("{directory}/every_event.jsonl"), lines.join("\n") + "\n").unwrap();
}

/// Records with every kind of event, most with every field.
fn samples() -> Vec<Record> {
    let uuid = |number| uuid::Uuid::from_u128(number);
    let call = PartId(2);
    let events = vec![
        json!({"run_started": {
            "run": uuid(1), "thread": uuid(2), "agent": "demo", "after": uuid(3),
            "request": {
                "input": [
                    {"text": "hello"},
                    {"media": {"media_type": "image/png", "source": {"data": "AA=="}, "name": "dot"}},
                    {"link": {"uri": "https://example.org"}},
                    {"resource": {"uri": "file:///a", "text": "a", "media_type": "text/plain"}},
                ],
                "by": "somebody", "model": "m", "streaming": true,
                "result_schema": {"type": "object"},
                "context": [{"description": "d", "value": "v"}],
                "state": {"count": 1.5}, "trace_id": "t",
            },
        }}),
        json!({"run_adopted": {"node": "n", "epoch": 1}}),
        json!({"turn_started": {"turn": 1, "attempt": 1, "model": "m", "streaming": true}}),
        json!({"part_started": {"part": 0, "kind": "thought"}}),
        json!({"part_delta": {"part": 0, "chunk": "hm, é 漢 🦀"}}),
        json!({"part_annotated": {"part": 0, "annotation": {"signature": "s"}}}),
        json!({"part_finished": {"part": 0}}),
        json!({"part_started": {"part": 1, "kind": {"text": {"role": "assistant"}}}}),
        json!({"part_delta": {"part": 1, "chunk": "first"}}),
        json!({"parts_voided": {"parts": [1], "why": "restarted"}}),
        json!({"part_started": {"part": call, "kind": {"tool_call": {
            "name": "clock", "title": "Clock", "kind": "read", "runs_on": "here"}}}}),
        json!({"part_delta": {"part": call, "chunk": "{\"tz\":"}}),
        json!({"part_delta": {"part": call, "chunk": "\"UTC\"}"}}),
        json!({"part_finished": {"part": call}}),
        json!({"usage_reported": {
            "scope": "turn", "provider": "p", "model": "m", "input": 10, "output": 5,
            "reasoning": 2, "cached_input": 3, "cache_write": 1,
            "cost": {"amount": 0.1, "currency": "USD"}, "context": {"used": 15, "size": 1000}}}),
        json!({"turn_finished": {"stop": "tool_calls", "usage": {"input": 10, "output": 5}}}),
        json!({"tool_queued": {"call": call, "place": 0}}),
        json!({"question_asked": {
            "question": 0, "call": call, "prompt": "May I?", "form": "approve", "expires_at": 99}}),
        json!({"run_paused": {"waits": [{"question": 0}, {"call": call}]}}),
        json!({"run_resumed": {"inbox": 1, "wire_run": "r-2"}}),
        json!({"question_answered": {
            "question": 0, "answer": {"approve": {"scope": "thread", "arguments": {"tz": "CET"}}},
            "by": "somebody", "inbox": 1}}),
        json!({"tool_started": {"call": call, "mode": "parallel", "arguments": {"tz": "CET"}}}),
        json!({"tool_updated": {"call": call, "update": {
            "title": "Looking", "locations": [{"path": "/a", "line": 3}],
            "content": {"append": [{"diff": {"path": "/a", "old_text": "x", "new_text": "y"}}]},
            "data": {"percent": 50}}}}),
        json!({"tool_finished": {"call": call, "outcome": "ok", "result": {
            "output": {"time": "noon"}, "content": [{"content": {"text": "noon"}}]}}}),
        json!({"agent_started": {"parent": 0, "call": call, "name": "sub"}}),
        json!({"agent_finished": {"outcome": {"failed": {
            "kind": "timed_out", "message": "too slow", "retryable": true}}}}),
        json!({"plan_updated": {"entries": [
            {"content": "look", "status": "in_progress", "priority": "high"}]}}),
        json!({"state_set": {"state": {"a": [1, 2.5, null]}}}),
        json!({"state_patched": {"patch": [{"op": "add", "path": "/b", "value": true}]}}),
        json!({"source_cited": {"id": "1", "url": "https://example.org", "title": "t", "quote": "q"}}),
        json!({"file_produced": {
            "media_type": "text/plain", "source": {"url": "https://example.org/f"}, "name": "f"}}),
        json!({"input_accepted": {"inbox": 2, "content": [{"text": "also"}]}}),
        json!({"input_applied": {"inbox": 2}}),
        json!({"result_ready": {"value": {"answer": 42, "exact": 0.1}}}),
        json!({"attached": {"origin": "acp", "handle": {"session": "s"}}}),
        json!({"extended": {"origin": "acp", "name": "n", "value": [1]}}),
        json!({"run_finished": {"outcome": {"completed": {"stop": "end_turn"}}}}),
    ];
    let record = |(place, event): (usize, Value)| Record {
        seq: Seq(place as u64 + 1),
        agent: AgentNo(if place == 24 || place == 25 { 1 } else { 0 }),
        at: Millis(1_700_000_000_000 + place as u64 * 7 % 40),
        event: serde_json::from_value(event).unwrap(),
    };
    events.into_iter().enumerate().map(record).collect()
}
