//! Recorded runs, scenarios, and properties of the reader.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use wellspring_core::{
    AgentNo, Batch, Checker, Event, Millis, Outcome, Record, RunRequest, RunStarted, Seq, Stop,
    Transcript,
};
use wellspring_testkit::{RUN, THREAD};

use super::*;

/// The events as records of a run, checked against the grammar.
fn records(events: impl IntoIterator<Item = Event>, finished: bool) -> Vec<Record> {
    let started = RunStarted {
        run: RUN,
        thread: THREAD,
        agent: "a".into(),
        after: None,
        request: RunRequest::text("go"),
    };
    let outcome = Box::new(Outcome::Completed { stop: Stop::EndTurn });
    let all = [Event::RunStarted(Arc::new(started))]
        .into_iter()
        .chain(events)
        .chain(finished.then_some(Event::RunFinished { outcome }));
    let records: Vec<Record> = (1..)
        .zip(all)
        .map(|(seq, event)| Record { seq: Seq(seq), agent: AgentNo::ROOT, at: Millis(seq), event })
        .collect();
    Checker::check(&records).unwrap();
    records
}

fn events(batch: Batch) -> Vec<Event> {
    batch.into_events().map(|(_, event)| event).collect()
}

/// A recorded run: the frames that were sent to us, routed as the connection routes them.
fn replay(recording: &str) -> (Vec<Event>, Vec<String>) {
    let mut run: Option<(String, String)> = None;
    let (mut reader, mut batch) = (Reader::default(), Batch::default());
    let mut ends = Vec::new();
    for line in recording.lines() {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let frame = line["frame"].take();
        if line["dir"] == "out" && frame["method"] == "agent" {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            run = Some((text(&frame["id"]), text(&frame["params"]["idempotencyKey"])));
        }
        if run.is_none() && frame["event"] == "agent" {
            // A client that only listens.
            run = Some((String::new(), frame["payload"]["runId"].as_str().unwrap().to_owned()));
        }
        let (Some((request, run)), true) = (&run, line["dir"] == "in") else { continue };
        match Frame::of(frame) {
            Frame::Response(response) if *response.id == **request => {
                reader.response(&response, &mut batch);
            }
            Frame::Event(event) if event.run_id() == Some(run) => reader.event(event, &mut batch),
            Frame::Response(_) | Frame::Event(_) | Frame::Other(_) => {}
        }
        if let Some(end) = reader.end().filter(|_| ends.is_empty()) {
            ends.push(format!("{end:?}"));
        }
    }
    (events(batch), ends)
}

#[test]
fn recordings_replay_into_records() {
    for (name, recording) in [
        ("anth", include_str!("../../fixtures/openclaw/anth.jsonl")),
        ("agabort", include_str!("../../fixtures/openclaw/agabort-chat-abort.jsonl")),
        ("err500", include_str!("../../fixtures/openclaw/err500.jsonl")),
        ("nocaps", include_str!("../../fixtures/openclaw/nocaps.jsonl")),
        ("run1", include_str!("../../fixtures/openclaw/run1.jsonl")),
        ("think", include_str!("../../fixtures/openclaw/think.jsonl")),
    ] {
        let (events, ends) = replay(recording);
        let records = records(events, true);
        let mut shown = wellspring_core::render(&records[1..records.len() - 1]);
        shown += &format!("{}\n", ends.join(""));
        insta::assert_snapshot!(name, shown);
    }
}

/// Handshakes that the gateway rejected, and our errors for them.
#[test]
fn recorded_handshakes() {
    let mut shown = String::new();
    for recording in [
        include_str!("../../fixtures/openclaw/hs-badproto.jsonl"),
        include_str!("../../fixtures/openclaw/hs-badtoken.jsonl"),
        include_str!("../../fixtures/openclaw/hs-cli-device.jsonl"),
        include_str!("../../fixtures/openclaw/hs-range.jsonl"),
        include_str!("../../fixtures/openclaw/hs-readonly.jsonl"),
    ] {
        for line in recording.lines() {
            let mut line: Value = serde_json::from_str(line).unwrap();
            if line["dir"] != "in" {
                continue;
            }
            let Frame::Response(response) = Frame::of(line["frame"].take()) else { continue };
            shown += &match response.error {
                Some(error) => format!("{} {:?}\n", error.detail_code(), End::of_error(&error)),
                None => {
                    let hello = HelloOk::of(&response.payload);
                    format!("{} {} {:?}\n", hello.protocol, hello.version, hello.tick_interval_ms)
                }
            };
        }
    }
    insta::assert_snapshot!(shown);
}

/// The parameters that we send are those that the gateway accepted in the recordings.
#[test]
fn requests_are_those_that_the_gateway_accepted() {
    let recording = include_str!("../../fixtures/openclaw/think.jsonl");
    let sent: Vec<Value> = recording
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|line| line["dir"] == "out")
        .map(|mut line| line["frame"].take())
        .collect();
    let connect = Connect {
        version: "0.0.1",
        platform: "linux",
        token: Some("testtoken123"),
        ..Connect::default()
    };
    let mut recorded = sent[0].clone();
    recorded["params"]["scopes"] = json!(["operator.read", "operator.write"]);
    assert_eq!(request("think-1", "connect", connect.params()), recorded);
    let prompt = Prompt {
        message: "THINK only please",
        session_key: "agent:main:r3",
        run_id: "258b3458-f1f8-4c8e-95c7-1e811cde1023",
        ..Prompt::default()
    };
    assert_eq!(request("think-2", "agent", prompt.params()), sent[1]);
}

#[test]
fn a_device_signs_what_the_gateway_checks() {
    let challenge = Challenge::of(&json!({"nonce": "n1", "ts": 17}));
    assert_eq!(
        signed_by_device("d1", Some("secret"), "Linux", &challenge),
        "v3|d1|gateway-client|backend|operator|operator.read,operator.write|17|secret|n1|linux|"
    );
    let device = Device { id: "d1", public_key: "k", signature: "s", challenge: &challenge };
    let connect = Connect { device: Some(device), ..Connect::default() };
    let want = json!({
        "id": "d1", "publicKey": "k", "signature": "s", "signedAt": 17, "nonce": "n1",
    });
    assert_eq!(connect.params()["device"], want);
}

fn frame(stream: &str, data: &Value) -> EventFrame {
    let payload = json!({"runId": "r", "seq": 1, "stream": stream, "data": data});
    EventFrame { event: "agent".into(), seq: None, payload }
}

fn chat(payload: Value) -> EventFrame {
    EventFrame { event: "chat".into(), seq: None, payload }
}

fn read(frames: impl IntoIterator<Item = EventFrame>) -> (Vec<Event>, Option<End>) {
    let (mut reader, mut batch) = (Reader::default(), Batch::default());
    for frame in frames {
        reader.event(frame, &mut batch);
    }
    let end = reader.end().cloned();
    reader.close(&mut batch);
    (events(batch), end)
}

fn shown(frames: impl IntoIterator<Item = EventFrame>) -> String {
    let (events, end) = read(frames);
    records(events.clone(), true);
    let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
    format!("{lines}{end:?}")
}

#[test]
fn text_that_is_taken_back_voids_its_part() {
    insta::assert_snapshot!(shown([
        frame("assistant", &json!({"text": "The answer is", "itemId": "m"})),
        frame("assistant", &json!({"text": "I do not know", "itemId": "m"})),
        frame("assistant", &json!({"text": "I do", "itemId": "m"})),
        frame("lifecycle", &json!({"phase": "end", "terminalReply": {"text": "I do not."}})),
    ]));
}

#[test]
fn a_preamble_that_was_never_text_is_shown() {
    insta::assert_snapshot!(shown([
        frame("item", &json!({"kind": "preamble", "phase": "end", "progressText": "Let me look."})),
        frame("tool", &json!({"phase": "start", "name": "read", "toolCallId": "c", "args": {}})),
        frame(
            "tool",
            &json!({"phase": "update", "toolCallId": "c",
            "partialResult": {"content": [{"type": "text", "text": "half"}]}})
        ),
        frame(
            "tool",
            &json!({"phase": "result", "toolCallId": "c", "isError": true,
            "result": {"content": [{"type": "text", "text": "no such file"}]}})
        ),
        frame("lifecycle", &json!({"phase": "end"})),
    ]));
}

#[test]
fn the_same_thought_after_a_call_is_a_thought_again() {
    insta::assert_snapshot!(shown([
        frame("thinking", &json!({"text": "Hm."})),
        frame("tool", &json!({"phase": "start", "name": "x", "toolCallId": "c"})),
        frame("thinking", &json!({"text": "Hm."})),
        frame("assistant", &json!({"text": "Yes", "itemId": "m"})),
        frame("thinking", &json!({"text": "Hm. Or no"})),
        frame("assistant", &json!({"text": "Yes.", "itemId": "m"})),
        chat(json!({"runId": "r", "state": "final"})),
    ]));
}

#[test]
fn the_first_terminal_counts() {
    let aborted = json!({"phase": "end", "aborted": true});
    let late = json!({"phase": "error", "aborted": true, "error": "This operation was aborted"});
    let last = json!({"runId": "r", "state": "aborted",
        "message": {"content": [{"type": "text", "text": "One two three"}]}});
    insta::assert_snapshot!(shown([
        frame("assistant", &json!({"text": "One two", "itemId": "m"})),
        chat(last),
        frame("lifecycle", &aborted),
        frame("assistant", &json!({"text": "One two three four", "itemId": "m"})),
        frame("lifecycle", &late),
    ]));
    for (data, want) in [
        (json!({"phase": "end", "aborted": true}), "Some(Aborted)"),
        (json!({"phase": "error", "aborted": true, "error": "x"}), "Some(Aborted)"),
        (json!({"phase": "end"}), "Some(Finished { stop: EndTurn })"),
        (json!({"phase": "end", "stopReason": "length"}), "Some(Finished { stop: MaxTokens })"),
        (
            json!({"phase": "error", "error": "slow down",
                "errorObservation": {"failoverReason": "rate_limit"}}),
            "Some(Failed { kind: RateLimited, message: \"slow down\" })",
        ),
        (json!({"phase": "finishing"}), "None"),
    ] {
        let (_, end) = read([frame("lifecycle", &data)]);
        assert_eq!(format!("{end:?}"), want, "{data}");
    }
}

/// A run that another reader resumes continues in its open parts.
#[test]
fn a_resumed_reader_repeats_nothing() {
    let frames = [
        frame("thinking", &json!({"text": "Hm."})),
        frame("tool", &json!({"phase": "start", "name": "exec", "toolCallId": "c", "args": {}})),
        frame("command_output", &json!({"toolCallId": "c", "output": "a"})),
        frame("command_output", &json!({"toolCallId": "c", "output": "ab"})),
        frame("tool", &json!({"phase": "result", "toolCallId": "c", "result": "done"})),
        frame("thinking", &json!({"text": "Well"})),
        frame("thinking", &json!({"text": "Well."})),
        frame("assistant", &json!({"text": "One", "itemId": "m"})),
        frame("assistant", &json!({"text": "One two", "itemId": "m"})),
        chat(json!({"runId": "r", "state": "final",
            "message": {"content": "One two three"}})),
    ];
    let whole = Transcript::fold(&records(read(frames.clone()).0, true));
    for at in 0..frames.len() {
        let (mut reader, mut batch) = (Reader::default(), Batch::default());
        for frame in &frames[..at] {
            reader.event(frame.clone(), &mut batch);
        }
        let mut all = events(batch);
        let so_far = Transcript::fold(&records(all.clone(), false));
        let mut reader = Reader::resume(&so_far);
        let mut batch = Batch::after(&so_far.outline);
        // The gateway repeats the last snapshot, and continues.
        for frame in &frames[at.saturating_sub(1)..] {
            reader.event(frame.clone(), &mut batch);
        }
        all.extend(events(batch));
        let resumed = Transcript::fold(&records(all, true));
        let texts = |it: &Transcript| it.parts.values().map(|it| it.text.clone()).collect();
        let (resumed, whole): (Vec<String>, Vec<String>) = (texts(&resumed), texts(&whole));
        assert_eq!(resumed, whole, "cut at {at}");
    }
}

/// Messages of an answer, each as growing snapshots.
fn arb_snapshots() -> impl Strategy<Value = Vec<Vec<String>>> {
    let message = prop::collection::vec("[a-zäß \\n]{1,8}", 1..6).prop_map(|pieces| {
        let mut all = String::new();
        pieces
            .iter()
            .map(|piece| {
                all.push_str(piece);
                all.clone()
            })
            .collect()
    });
    prop::collection::vec(message, 1..4)
}

fn arb_json() -> impl Strategy<Value = Value> {
    let names = "(text|delta|itemId|phase|kind|toolCallId|name|args|result|content|progressText|\
        output|aborted|stopReason|terminalReply|message|state|partialResult|x)";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "(start|update|result|end|error|final|preamble|tool|c1|c2|ab?c?|)".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names, inner, 0..8)
                .prop_map(|map: BTreeMap<String, Value>| json!(map)),
        ]
    })
}

proptest! {
    /// The text does not depend on how the gateway coalesces snapshots.
    #[test]
    fn coalescing_changes_nothing(
        messages in arb_snapshots(),
        drop in prop::collection::vec(any::<bool>(), 24),
    ) {
        let mut drop = drop.into_iter().cycle();
        let mut frames = Vec::new();
        for (number, snapshots) in messages.iter().enumerate() {
            for (index, text) in snapshots.iter().enumerate() {
                // The last snapshot of a message always arrives.
                if index + 1 == snapshots.len() || !drop.next().unwrap_or(false) {
                    let data = json!({"text": text, "itemId": format!("m{number}")});
                    frames.push(frame("assistant", &data));
                }
            }
        }
        let (events, _) = read(frames);
        let transcript = Transcript::fold(&records(events, true));
        let said: Vec<&str> = transcript.parts.values().map(|part| &*part.text).collect();
        let want: Vec<&str> = messages.iter().map(|it| it.last().unwrap().as_str()).collect();
        prop_assert_eq!(said, want);
    }

    /// Any JSON is a frame, and any events are read as a legal run.
    #[test]
    fn any_json_is_read(
        frames in prop::collection::vec(
            ("(assistant|thinking|item|tool|command_output|usage|lifecycle|error|new)", arb_json()),
            0..24,
        ),
        other in arb_json(),
    ) {
        let frames = frames.into_iter().map(|(stream, data)| frame(&stream, &data));
        let frames: Vec<EventFrame> = frames.chain([chat(other.clone())]).collect();
        let (mut reader, mut batch) = (Reader::default(), Batch::default());
        for frame in frames {
            reader.event(frame, &mut batch);
        }
        let response = Response { payload: other.clone(), ok: true, ..Response::default() };
        reader.response(&response, &mut batch);
        reader.close(&mut batch);
        records(events(batch), true);
        let _ = (Frame::of(other.clone()), HelloOk::of(&other), InFlightRun::of(&other));
        let _ = Frame::of(json!({"type": "res", "error": other, "payload": other}));
    }
}
