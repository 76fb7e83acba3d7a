mod reading;

use proptest::prelude::*;
use serde_json::{Value, json};
use wellspring_core::{
    Event, FailureKind, FileProduced, Form, MediaSource, Opaque, Outcome, PartKind, Record,
    RunRequest, Source, Stop, ToolOutcome, ToolResult, Transcript, Wait,
};
use wellspring_testkit::arbitrary::arb_run;
use wellspring_testkit::{RunBuilder, samples};

use crate::test_helpers::{encode, render_samples, written};
use crate::{Closed, DialectName, Encoder, Options, Out, Reasoning, ReasoningEvents, WirePosition};

fn events(records: &[Record]) -> Vec<Value> {
    let parse = |(_, json): (String, String)| serde_json::from_str(&json).unwrap();
    encode(DialectName::UseAi, records).into_iter().map(parse).collect()
}

fn with(options: Options, records: &[Record]) -> Vec<Value> {
    let choice = DialectName::UseAi.with(options).unwrap();
    let mut encoder = Encoder::new(&choice);
    let mut out = Out::default();
    encoder.frame(records, &mut out);
    values(&out)
}

fn values(out: &Out) -> Vec<Value> {
    out.events().map(|(_, json)| serde_json::from_slice(json).unwrap()).collect()
}

fn joined(records: &[Record]) -> Vec<Value> {
    let transcript = Transcript::fold(records);
    let after = WirePosition::after(transcript.outline.head);
    let mut encoder = Encoder::resume(DialectName::UseAi, transcript, after);
    let mut out = Out::default();
    encoder.join(&mut out);
    values(&out)
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[test]
fn samples() {
    insta::assert_snapshot!(render_samples(DialectName::UseAi));
}

/// A run opens with the request, the conversation with the thread's earlier runs, and the
/// state.
#[test]
fn a_run_opens_with_request_conversation_and_state() {
    let mut first = RunBuilder::new("demo", "Hello?");
    first.turn();
    first.text(&["Hi."]);
    first.stop(Stop::EndTurn);
    let first = Transcript::fold(&first.complete());
    let request = RunRequest { state: Some(json!({"page": 7})), ..RunRequest::text("And now?") };
    let mut records = RunBuilder::of("demo", request).records();
    if let Event::RunStarted(started) = &mut records[0].event {
        std::sync::Arc::make_mut(started).after = Some(wellspring_testkit::RUN);
    }
    let mut encoder = Encoder::new(DialectName::UseAi);
    assert_eq!(encoder.needs_history(&records), Some(wellspring_testkit::RUN));
    encoder.recall(vec![first]);
    let mut out = Out::default();
    encoder.frame(&records, &mut out);
    let events = values(&out);
    assert_eq!(kinds(&events), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT"]);
    assert_eq!(events[0]["input"]["messages"][0]["content"], "And now?");
    assert_eq!(events[0]["input"]["state"], json!({"page": 7}));
    assert_eq!(events[0]["input"]["forwardedProps"], json!({"agent": "demo"}));
    let said = events[1]["messages"].as_array().unwrap();
    let said: Vec<_> = said.iter().map(|message| message["content"].as_str().unwrap()).collect();
    assert_eq!(said, ["Hello?", "Hi.", "And now?"]);
    assert_eq!(events[2]["snapshot"], json!({"page": 7}));
}

/// The requirement's own tests: text, arguments and steps arrive as deltas.
#[test]
fn text_and_arguments_arrive_as_they_are_said() {
    let mut run = RunBuilder::new("demo", "Hello?");
    run.turn();
    run.text(&["Hello ", "world!"]);
    let call = run.call("test_tool", &[r#"{"val"#, r#"ue":"test"}"#]);
    run.stop(Stop::ToolCalls).start(call).ok(call, "done").turn();
    run.text(&["Ready."]);
    run.stop(Stop::EndTurn);
    let events = events(&run.complete());
    let of = |kind: &str, member: &str| -> Vec<Value> {
        let these = events.iter().filter(|event| event["type"] == kind);
        these.map(|event| event[member].clone()).collect()
    };
    assert_eq!(of("TEXT_MESSAGE_CONTENT", "delta"), ["Hello ", "world!", "Ready."]);
    assert_eq!(of("TOOL_CALL_ARGS", "delta"), [r#"{"val"#, r#"ue":"test"}"#]);
    assert_eq!(of("TOOL_CALL_RESULT", "content"), ["done"]);
    assert_eq!(of("STEP_STARTED", "stepNumber"), [0, 1]);
    assert_eq!(of("STEP_FINISHED", "stepNumber"), [0, 1]);
    assert_eq!(of("STEP_FINISHED", "finishReason"), ["tool-calls", "stop"]);
    assert_eq!(of("STEP_FINISHED", "usage")[0]["inputTokens"], 12);
    assert_eq!(of("RUN_FINISHED", "result"), ["Hello world!Ready."]);
}

/// Each chunk of the documented table has its event.
#[test]
fn every_kind_of_chunk_arrives() {
    let mut run = RunBuilder::new("demo", "Hello?");
    run.turn();
    run.thought(&["Well."]);
    run.text(&["Hello."]);
    let call = run.call("look", &["{}"]);
    run.stop(Stop::ToolCalls).start(call);
    run.result(call, ToolOutcome::Error, ToolResult::new("no"));
    let source = Source { url: Some("https://example.org".into()), ..Source::default() };
    run.push(Event::SourceCited(Box::new(source)));
    run.push(Event::FileProduced(Box::new(FileProduced {
        media_type: "image/png".into(),
        source: MediaSource::Url("https://example.org/x.png".into()),
        name: None,
    })));
    run.turn();
    let opaque = Opaque { origin: "anthropic".into(), raw: json!({"redacted": true}) };
    run.part(PartKind::Opaque(Box::new(opaque)), &[]);
    run.stop(Stop::EndTurn);
    let events = events(&run.complete());
    let named = |event: &Value| match event["name"].as_str() {
        Some(name) => format!("CUSTOM {name}"),
        None => event["type"].as_str().unwrap().to_owned(),
    };
    let said: Vec<String> = events.iter().map(named).collect();
    insta::assert_snapshot!(said.join("\n"), @"
    RUN_STARTED
    MESSAGES_SNAPSHOT
    STATE_SNAPSHOT
    STEP_STARTED
    REASONING_START
    REASONING_MESSAGE_START
    REASONING_MESSAGE_CONTENT
    REASONING_MESSAGE_END
    REASONING_END
    TEXT_MESSAGE_START
    TEXT_MESSAGE_CONTENT
    TEXT_MESSAGE_END
    TOOL_CALL_START
    TOOL_CALL_ARGS
    TOOL_CALL_END
    STEP_FINISHED
    CUSTOM tool_started
    TOOL_CALL_RESULT
    CUSTOM source
    CUSTOM file
    STEP_STARTED
    RAW
    STEP_FINISHED
    RUN_FINISHED
    ");
}

#[test]
fn every_event_has_its_time_and_all_but_deltas_their_run() {
    for sample in samples::all() {
        for event in events(&sample.records) {
            assert!(event["timestamp"].is_u64(), "{event}");
            let is_delta = event.get("delta").is_some_and(Value::is_string);
            assert!(is_delta || event["runId"].is_string(), "{event}");
        }
    }
}

#[test]
fn reasoning_has_its_older_names_by_option() {
    let records = samples::thoughts_then_text();
    let options = Options { reasoning_events: ReasoningEvents::Thinking, ..Options::default() };
    let older = with(options, &records);
    let thinking: Vec<&str> =
        kinds(&older).into_iter().filter(|kind| kind.starts_with("THINKING")).collect();
    assert_eq!(
        (thinking[0], thinking[1], thinking[2]),
        ("THINKING_START", "THINKING_TEXT_MESSAGE_START", "THINKING_TEXT_MESSAGE_CONTENT")
    );
    assert_eq!(thinking.last(), Some(&"THINKING_END"));
    assert!(!kinds(&older).iter().any(|kind| kind.starts_with("REASONING")));
    let hidden = with(Options { reasoning: Reasoning::Hidden, ..Options::default() }, &records);
    assert!(!kinds(&hidden).iter().any(|kind| kind.contains("REASONING")));
}

#[test]
fn ends_have_use_ais_names() {
    let end = |outcome: Outcome| {
        let mut run = RunBuilder::new("demo", "Hello?");
        run.push(Event::RunFinished { outcome: Box::new(outcome) });
        let last = events(&run.records()).pop().unwrap();
        (last["type"].to_string(), last["message"].clone(), last["error"].clone())
    };
    let error =
        |message: &str, error: &str| ("\"RUN_ERROR\"".to_owned(), json!(message), json!(error));
    let failed = |kind| Outcome::Failed { kind, message: "because".into(), retryable: false };
    assert_eq!(end(failed(FailureKind::Unavailable)), error("API_OVERLOADED", "because"));
    assert_eq!(end(failed(FailureKind::RateLimited)), error("RATE_LIMITED", "because"));
    assert_eq!(end(failed(FailureKind::Protocol)), error("UNKNOWN_ERROR", "because"));
    let cancelled = Outcome::Cancelled { by: Some("ada".into()), why: None, inbox: None };
    assert_eq!(end(cancelled), error("Run aborted by user", "Run aborted by user"));
}

#[test]
fn a_stream_that_is_cut_off_says_so() {
    let why = Closed { code: "draining", message: "the server stops", remedy: "come back" };
    let mut out = Out::default();
    DialectName::UseAi.dialect().close(&why, &mut out);
    let said = json!({
        "type": "RUN_ERROR", "message": "API_OVERLOADED", "code": "draining",
        "error": "the server stops; come back",
    });
    assert_eq!(values(&out), [said]);
}

/// A client tool and an approval are requested once, and the run continues without a visible pause.
#[test]
fn a_pause_shows_nothing() {
    let events = events(&samples::plan_and_questions());
    let finished = kinds(&events).iter().filter(|kind| **kind == "RUN_FINISHED").count();
    let started = kinds(&events).iter().filter(|kind| **kind == "RUN_STARTED").count();
    assert_eq!((started, finished), (1, 1));
    let asked: Vec<_> =
        events.iter().filter(|event| event["type"] == "TOOL_APPROVAL_REQUEST").collect();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0]["toolCallName"], "delete");
    assert_eq!(asked[0]["toolCallArgs"], json!({"path": "cache"}));
    assert_eq!(asked[0]["annotations"]["message"], "Delete cache?");
    assert!(asked[0]["toolCallId"].as_str().unwrap().ends_with("-0"));
}

/// A reconnecting client gets what is complete, what is open so far, and what waits for it.
#[test]
fn a_client_that_returns_is_told_what_waits() {
    let records = samples::client_tool();
    let paused = records.iter().position(|it| matches!(it.event, Event::RunPaused { .. }));
    let events = joined(&records[..=paused.unwrap()]);
    assert_eq!(
        kinds(&events),
        [
            "RUN_STARTED",
            "MESSAGES_SNAPSHOT",
            "STATE_SNAPSHOT",
            "TOOL_CALL_START",
            "TOOL_CALL_ARGS",
            "TOOL_CALL_END"
        ]
    );
    let mut run = RunBuilder::new("demo", "Hello?");
    run.turn();
    let call = run.call("delete", &["{}"]);
    let question = run.ask(Some(call), "Really?", Form::Approve);
    run.push(Event::RunPaused { waits: vec![Wait::Question(question)] });
    let events = joined(&run.records());
    assert_eq!(kinds(&events).last(), Some(&"TOOL_APPROVAL_REQUEST"));
    let mut run = RunBuilder::new("demo", "Hello?");
    run.turn();
    let part = run.open(PartKind::TEXT);
    run.delta(part, "Hel").delta(part, "lo");
    let events = joined(&run.records());
    assert_eq!(events.last().unwrap()["delta"], "Hello");
}

proptest! {
    /// Both variants of AG-UI carry the same text.
    #[test]
    fn the_words_are_those_of_ag_ui(run in arb_run()) {
        let words = |dialect| -> Vec<Value> {
            let deltas = |event: Value| Some(json!([event.get("delta")?, event["messageId"]]));
            let mut all: Vec<_> = written(dialect, &run).into_iter().filter_map(deltas).collect();
            all.retain(|delta| delta[0].is_string());
            all
        };
        // A pause hides what arrives during it from AG-UI's clients, and reopens calls.
        if !run.iter().any(|it| matches!(it.event, Event::RunPaused { .. })) {
            prop_assert_eq!(words(DialectName::UseAi), words(DialectName::AgUi));
        }
    }
}
