//! Reading remote agents.

use proptest::prelude::*;
use serde_json::{Value, json};
use wellspring_core::{
    AgentNo, Batch, Checker, Event as Fact, Millis, Outcome, Record, Seq, Stop, Transcript,
};
use wellspring_testkit::arbitrary::arb_run;
use wellspring_testkit::{RunBuilder, samples};

use super::super::types::Event;
use super::super::{End, ReadError, Reader};
use super::whole;

type Facts = Vec<(AgentNo, Fact)>;

/// The events that a reader yields, and how the run ended.
fn read(events: &[Value]) -> Result<(Facts, Option<End>), ReadError> {
    let (mut reader, mut batch) = (Reader::default(), Batch::default());
    let mut end = None;
    for event in events {
        let event: Event = serde_json::from_value(event.clone()).unwrap();
        end = reader.push(event, &mut batch)?;
    }
    Ok((batch.into_events().collect(), end))
}

fn lines(events: &[Value]) -> String {
    let (facts, end) = read(events).unwrap();
    let facts: Vec<String> =
        facts.iter().map(|(agent, fact)| format!("{agent} {fact}\n")).collect();
    format!("{}{end:?}", facts.concat())
}

fn run(events: Value) -> Vec<Value> {
    let started = json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r"});
    let finished = json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r"});
    let events = events.as_array().unwrap().iter().cloned();
    [started].into_iter().chain(events).chain([finished]).collect()
}

#[test]
fn chunks_are_expanded() {
    insta::assert_snapshot!(lines(&run(json!([
        {"type": "REASONING_MESSAGE_CHUNK", "messageId": "r1", "delta": "Hm"},
        {"type": "REASONING_MESSAGE_CHUNK", "delta": "."},
        {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m1", "delta": "One"},
        {"type": "STATE_SNAPSHOT", "snapshot": {"n": 1}},
        {"type": "TEXT_MESSAGE_CHUNK", "delta": " two"},
        {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m2", "role": "user", "delta": "Three"},
        {"type": "TOOL_CALL_CHUNK", "toolCallId": "c", "toolCallName": "clock", "delta": "{"},
        {"type": "TOOL_CALL_CHUNK", "delta": "}"},
        {"type": "TOOL_CALL_RESULT", "messageId": "t", "toolCallId": "c", "content": "12:00"},
    ]))), @r#"
    0 attached to ag-ui
    0 part 0 started thought
    0 part 0 delta "Hm"
    0 part 0 delta "."
    0 part 0 finished
    0 part 1 started text
    0 part 1 delta "One"
    0 state set {"n":1}
    0 part 1 delta " two"
    0 part 1 finished
    0 part 2 started text of user
    0 part 2 delta "Three"
    0 part 2 finished
    0 part 3 started call clock on agent
    0 part 3 delta "{"
    0 part 3 delta "}"
    0 part 3 finished
    0 tool 3 finished ok "12:00"
    Some(Finished { result: None })
    "#);
}

#[test]
fn sub_agents_and_what_there_is_no_word_for() {
    insta::assert_snapshot!(lines(&run(json!([
        {"type": "STEP_STARTED", "stepName": "plan"},
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "ask"},
        {"type": "TOOL_CALL_END", "toolCallId": "c"},
        {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "clerk", "parentToolCallId": "c"},
        {"type": "TEXT_MESSAGE_START", "messageId": "m", "subagentRunId": "s"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Shelf 4.", "subagentRunId": "s"},
        {"type": "SUBAGENT_FINISHED", "subagentRunId": "s"},
        {"type": "TOOL_CALL_RESULT", "messageId": "t", "toolCallId": "c", "content": "Shelf 4.",
         "metadata": {"outcome": "error"}},
        {"type": "TOOL_CALL_START", "toolCallId": "d", "toolCallName": "lost"},
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "p", "activityType": "plan", "content": {
            "entries": [{"content": "Look", "status": "completed"}]}},
        {"type": "RAW", "event": {"x": 1}, "source": "acme"},
        {"type": "CUSTOM", "name": "source", "value": {"title": "Springs"}},
        {"type": "CUSTOM", "name": "mood", "value": "cheerful"},
    ]))), @r#"
    0 attached to ag-ui
    0 extended ag-ui STEP_STARTED {"type":"STEP_STARTED","stepName":"plan"}
    0 part 0 started call ask on agent
    0 part 0 finished
    1 agent clerk started by 0
    1 part 1 started text
    1 part 1 delta "Shelf 4."
    1 part 1 finished
    1 agent finished completed end_turn
    0 tool 0 finished error "Shelf 4."
    0 part 2 started call lost on agent
    0 plan [completed] Look
    0 extended acme RAW {"x":1}
    0 source {"title":"Springs"}
    0 extended ag-ui mood "cheerful"
    0 part 2 finished
    0 tool 2 finished interrupted "the agent gave no result"
    Some(Finished { result: None })
    "#);
}

/// Agents that do not stream send everything in a snapshot at the end. Neither streamed text is
/// repeated nor anything before the user's last message.
#[test]
fn a_snapshot_says_what_was_not_streamed() {
    insta::assert_snapshot!(lines(&run(json!([
        {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m1", "delta": "Streamed."},
        {"type": "MESSAGES_SNAPSHOT", "messages": [
            {"id": "old", "role": "assistant", "content": "Long ago."},
            {"id": "u", "role": "user", "content": "Now?"},
            {"id": "m1", "role": "assistant", "content": "Streamed."},
            {"id": "r1", "role": "reasoning", "content": "Hm."},
            {"id": "m2", "role": "assistant", "content": "And this.", "toolCalls": [
                {"id": "c", "type": "function", "function": {"name": "clock", "arguments": "{}"}}]},
            {"id": "t", "role": "tool", "toolCallId": "c", "content": "", "error": "no clock"},
        ]},
    ]))), @r#"
    0 attached to ag-ui
    0 part 0 started text
    0 part 0 delta "Streamed."
    0 part 0 finished
    0 part 1 started thought
    0 part 1 delta "Hm."
    0 part 1 finished
    0 part 2 started text
    0 part 2 delta "And this."
    0 part 2 finished
    0 part 3 started call clock on agent
    0 part 3 delta "{}"
    0 part 3 finished
    0 tool 3 finished error "no clock"
    Some(Finished { result: None })
    "#);
}

#[test]
fn calls_that_are_ours_wait_for_us() {
    let (mut reader, mut batch) = (Reader::default(), Batch::default());
    let mut push = |event: Value, batch: &mut Batch| {
        reader.push(serde_json::from_value(event).unwrap(), batch).unwrap()
    };
    push(json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r"}), &mut batch);
    push(
        json!({"type": "TOOL_CALL_CHUNK", "toolCallId": "c", "toolCallName": "pick", "delta": "{}"}),
        &mut batch,
    );
    let end = push(
        json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r",
               "outcome": {"type": "success", "pendingToolCallIds": ["c", "made-up"]}}),
        &mut batch,
    );
    let call =
        super::super::PendingCall { id: "c".into(), name: "pick".into(), arguments: "{}".into() };
    assert_eq!(end, Some(End::Pending(vec![call])));
    assert_eq!(batch.take_stop(), None);
}

#[test]
fn rejected_events() {
    let started = json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r"});
    let open = json!({"type": "TEXT_MESSAGE_START", "messageId": "m"});
    let not_open = |event, id: &str| ReadError::NotOpen { event, id: id.into() };
    for (events, want) in [
        (vec![open.clone()], ReadError::NoRun { event: "TEXT_MESSAGE_START" }),
        (vec![started.clone(), started.clone()], ReadError::RunInRun),
        (
            vec![started.clone(), open.clone(), open],
            ReadError::StillOpen { event: "TEXT_MESSAGE_START", id: "m".into() },
        ),
        (
            vec![started.clone(), json!({"type": "TEXT_MESSAGE_END", "messageId": "m"})],
            not_open("TEXT_MESSAGE_END", "m"),
        ),
        (
            vec![
                started.clone(),
                json!({"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": ""}),
            ],
            not_open("TOOL_CALL_ARGS", "c"),
        ),
        (
            vec![started, json!({"type": "TOOL_CALL_CHUNK", "delta": "x"})],
            ReadError::Chunk { event: "TOOL_CALL_CHUNK" },
        ),
    ] {
        assert_eq!(read(&events).map(|_| ()), Err(want), "{events:?}");
    }
}

/// The reader's events as a run, which must obey the grammar.
fn as_run(facts: Facts) -> Vec<Record> {
    let mut records = RunBuilder::new("remote", "Surprise me.").records();
    let end = Fact::RunFinished { outcome: Box::new(Outcome::Completed { stop: Stop::EndTurn }) };
    for (agent, event) in facts.into_iter().chain([(AgentNo::ROOT, end)]) {
        let seq = Seq(records.len() as u64 + 1);
        records.push(Record { seq, agent, at: Millis(0), event });
    }
    records
}

/// A run that our dialect writes is read back as a run with the same text.
fn reads_back(run: &[Record]) -> Result<(), TestCaseError> {
    let (facts, end) = read(&whole(run)).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let ended = matches!(end, Some(End::Finished { .. } | End::Cancelled | End::Failed { .. }));
    prop_assert!(ended, "{end:?}");
    let again = as_run(facts);
    let checked = Checker::check(&again);
    prop_assert!(checked.is_ok(), "{}", checked.unwrap_err());
    Ok(())
}

proptest! {
    #[test]
    fn any_run_reads_back_as_a_run(run in arb_run()) {
        reads_back(&run)?;
    }
}

#[test]
fn samples_read_back_with_the_same_words() {
    for sample in samples::all() {
        reads_back(&sample.records).unwrap();
        let voids = |record: &Record| matches!(record.event, Fact::PartsVoided { .. });
        if sample.records.iter().any(voids) {
            continue;
        }
        let (facts, _) = read(&whole(&sample.records)).unwrap();
        let (ours, theirs) = (Transcript::fold(&sample.records), Transcript::fold(&as_run(facts)));
        assert_eq!(theirs.words(AgentNo::ROOT), ours.words(AgentNo::ROOT), "{}", sample.name);
        assert_eq!(theirs.plan, ours.plan, "{}", sample.name);
        assert_eq!(theirs.sources, ours.sources, "{}", sample.name);
    }
}

fn records(facts: &[(AgentNo, Fact)]) -> Vec<Record> {
    let run = RunBuilder::new("agent", "go").records();
    let start = run.into_iter().take(1);
    let facts = facts.iter().zip(2..).map(|((agent, event), seq)| Record {
        seq: Seq(seq),
        agent: *agent,
        at: Millis(0),
        event: event.clone(),
    });
    start.chain(facts).collect()
}

/// The events of a reader with a tool of ours, disconnected after `cut` events. The peer then
/// sends the run again from the start, to the same reader or to one that knows only the log.
fn cut_and_told_again(events: &[Value], cut: usize, restart: bool) -> Vec<String> {
    let parse = |event: &Value| serde_json::from_value::<Event>(event.clone()).unwrap();
    let tools = || ["pick".into()];
    let (mut reader, mut batch) = (Reader::new(tools()), Batch::default());
    for event in &events[..cut] {
        reader.push(parse(event), &mut batch).unwrap();
    }
    let mut facts: Facts = batch.take().into_events().collect();
    if restart {
        let so_far = Transcript::fold(&records(&facts));
        batch = Batch::after(&so_far.outline);
        reader = Reader::new(tools()).resume(&so_far, &mut batch);
    } else {
        reader.reconnect(&mut batch);
    }
    let mut end = None;
    for event in events {
        end = reader.push(parse(event), &mut batch).unwrap();
    }
    facts.extend(batch.into_events());
    let records = records(&facts);
    let mut checker = Checker::default();
    for record in &records {
        checker.push(record).unwrap();
    }
    let transcript = Transcript::fold(&records);
    let said = transcript.parts.values().map(|part| format!("{:?} {}", part.kind, part.text));
    said.chain([format!("{end:?}")]).collect()
}

#[test]
fn what_is_told_again_is_not_said_twice() {
    let events = run(json!([
        {"type": "REASONING_MESSAGE_START", "messageId": "r1", "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": "r1", "delta": "Hm."},
        {"type": "REASONING_MESSAGE_END", "messageId": "r1"},
        {"type": "TEXT_MESSAGE_START", "messageId": "m1"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "One "},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "two"},
        {"type": "TEXT_MESSAGE_END", "messageId": "m1"},
        {"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "clock"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": "{\"z\":"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": "1}"},
        {"type": "TOOL_CALL_END", "toolCallId": "c1"},
        {"type": "TOOL_CALL_RESULT", "messageId": "t", "toolCallId": "c1", "content": "12:00"},
        {"type": "TOOL_CALL_START", "toolCallId": "c2", "toolCallName": "pick"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c2", "delta": "{}"},
        {"type": "TOOL_CALL_END", "toolCallId": "c2"},
    ]));
    let whole = cut_and_told_again(&events, 0, false);
    assert_eq!(whole.len(), 4, "{whole:?}");
    assert!(whole[3].contains("Pending"), "{whole:?}");
    for cut in 0..events.len() {
        for restart in [false, true] {
            assert_eq!(cut_and_told_again(&events, cut, restart), whole, "{cut} {restart}");
        }
    }
}
