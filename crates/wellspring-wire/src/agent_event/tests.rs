use proptest::prelude::*;
use serde_json::{Value, json};
use wellspring_core::{
    Answer, CancellationToken, Context, Event, Form, Outcome, Outline, Record, Stop,
};
use wellspring_testkit::RunBuilder;
use wellspring_testkit::arbitrary::{arb_records, arb_run};

use super::{AgentEvent, AgentEvents, ExecutionContext as _, ToolEvent, events};
use crate::test_helpers::{encode, render_samples, typed, written};
use crate::{DialectName, Encoder, Options, Out, SubAgents};

#[test]
fn samples() {
    insta::assert_snapshot!(render_samples(DialectName::AgentEvent));
}

/// The documented shapes survive reading into our types and writing again.
#[test]
fn documented_shapes() {
    for json in [
        r#"{"type":"thought","content":"Hm."}"#,
        r#"{"type":"tool_call","toolName":"run_shell_command","toolArgs":"{\"command\":\"ls -l src\"}"}"#,
        r#"{"type":"tool_progress","toolName":"llm_call","data":"Hello, how can I"}"#,
        r#"{"type":"tool_progress","toolName":"FileTransfer","data":{"subtype":"transfer_progress","percent":65}}"#,
        r#"{"type":"tool_progress","toolName":"run_shell_command","data":{"subtype":"stdout_chunk","content":"-rw-r--r-- 1 user group 1024 Feb 12 10:00 file1.txt\n"}}"#,
        r#"{"type":"tool_result","toolName":"x","output":"done"}"#,
        r#"{"type":"tool_result","toolName":"x","output":"no","isError":true}"#,
        r#"{"type":"tool_result","toolName":"x","output":"yes","isError":false}"#,
        r#"{"type":"stream","content":"Hi"}"#,
        r#"{"type":"final"}"#,
        r#"{"type":"error","error":"no"}"#,
    ] {
        let event: AgentEvent = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&event).unwrap(), json);
    }
}

#[test]
fn adapting_replaces_the_type() {
    let signal = CancellationToken::new();
    let context = Context::create("trace-1", signal.clone());
    assert_eq!(context.trace_id(), "trace-1");
    assert!(!context.signal().is_cancelled());
    signal.cancel();
    assert!(context.signal().is_cancelled());
    for (event, own, adapted) in [
        (
            ToolEvent::Progress { tool_name: "a".into(), data: json!({"percent": 1}) },
            json!({"type": "progress", "toolName": "a", "data": {"percent": 1}}),
            json!({"type": "tool_progress", "toolName": "a", "data": {"percent": 1}}),
        ),
        (
            ToolEvent::Result { tool_name: "a".into(), output: "b".into(), is_error: Some(true) },
            json!({"type": "result", "toolName": "a", "output": "b", "isError": true}),
            json!({"type": "tool_result", "toolName": "a", "output": "b", "isError": true}),
        ),
    ] {
        let event = context.tool_event(event);
        assert_eq!(serde_json::to_value(&event).unwrap(), own);
        let event = context.agent_event(context.adapt_tool_event(event));
        assert_eq!(serde_json::to_value(&event).unwrap(), adapted);
    }
}

fn is_terminal(event: &AgentEvent) -> bool {
    matches!(event, AgentEvent::Final | AgentEvent::Error { .. })
}

proptest! {
    #[test]
    fn typed_and_json_agree(run in arb_run(), nonsense in arb_records()) {
        for records in [run, nonsense] {
            prop_assert_eq!(
                written(DialectName::AgentEvent, &records),
                typed(&records, |before, record| events(before.outline(), record))
            );
        }
    }

    /// There is one terminal event, and it is last; there are as many results as calls.
    #[test]
    fn one_terminal_and_every_call_answered(run in arb_run()) {
        let events: Vec<AgentEvent> = encode(DialectName::AgentEvent, &run)
            .iter()
            .map(|(_, json)| serde_json::from_str(json).unwrap())
            .collect();
        let terminals = events.iter().filter(|event| is_terminal(event)).count();
        prop_assert_eq!((terminals, events.last().is_some_and(is_terminal)), (1, true));
        let calls = events.iter().filter(|event| matches!(event, AgentEvent::ToolCall { .. }));
        let results = events.iter().filter(|event| matches!(event, AgentEvent::ToolResult { .. }));
        prop_assert_eq!(calls.count(), results.count());
    }
}

fn said(dialect: AgentEvents, records: &[Record]) -> Vec<AgentEvent> {
    let mut outline = Outline::default();
    let mut all = Vec::new();
    for record in records {
        all.extend(dialect.events(&outline, record));
        outline.apply(record);
    }
    all
}

/// A limit that cuts the answer off ends with an error, as `result()` does. A typed result that
/// was returned before is complete.
#[test]
fn cut_off_is_not_final() {
    let ended = |stop: Stop, has_result: bool| {
        let mut run = RunBuilder::new("demo", "Go.");
        run.turn().text(&["Half an"]);
        if has_result {
            run.push(Event::ResultReady { value: Box::new(json!(1)) });
        }
        let records = run.finish(Outcome::Completed { stop });
        said(AgentEvents::default(), &records).pop().unwrap()
    };
    let error = |error: &str| AgentEvent::Error { error: error.into() };
    let tokens = "the answer was cut off: the model reached its limit of output tokens";
    assert_eq!(ended(Stop::MaxTokens, false), error(tokens));
    let turns = "the run was cut off: it reached its limit of turns";
    assert_eq!(ended(Stop::TurnLimit, false), error(turns));
    assert_eq!(ended(Stop::TurnLimit, true), AgentEvent::Final);
    assert_eq!(ended(Stop::EndTurn, false), AgentEvent::Final);
}

/// A waiting run shows the question and how to answer it.
#[test]
fn a_question_is_progress_of_its_call() {
    let mut run = RunBuilder::new("demo", "Go.");
    run.turn();
    let call = run.call("wipe", &["{}"]);
    run.stop(Stop::ToolCalls);
    let asked = run.ask(Some(call), "Allow wipe?", Form::Approve);
    run.answer(asked, Answer::yes()).start(call).ok(call, "done");
    let own = run.ask_blocking(None, "Go on?", Form::Schema(json!({"type": "string"})));
    run.answer(own, Answer::NO);
    let progress: Vec<_> = said(AgentEvents::default(), &run.complete())
        .into_iter()
        .filter(|event| matches!(event, AgentEvent::ToolProgress { .. }))
        .map(|event| serde_json::to_value(event).unwrap())
        .collect();
    let want = [
        json!({"type": "tool_progress", "toolName": "wipe", "data": {"subtype": "question",
            "question": asked, "prompt": "Allow wipe?", "form": "approve"}}),
        json!({"type": "tool_progress", "toolName": "wipe", "data": {"subtype": "answered",
            "question": asked}}),
        json!({"type": "tool_progress", "toolName": "question", "data": {"subtype": "question",
            "question": own, "prompt": "Go on?", "form": {"schema": {"type": "string"}}}}),
        json!({"type": "tool_progress", "toolName": "question", "data": {"subtype": "answered",
            "question": own}}),
    ];
    assert_eq!(progress, want);
}

/// A sub-agent's text is progress; so are its thoughts, if a reader asks for them. Its calls are
/// not shown.
#[test]
fn thoughts_of_a_sub_agent_can_be_forwarded() {
    let mut run = RunBuilder::new("demo", "A verse!");
    run.turn();
    let call = run.call("call-agent", &["{}"]);
    run.stop(Stop::ToolCalls).start(call);
    run.sub_agent("poet", Some(call));
    run.turn();
    run.thought(&["Something with roses."]);
    run.text(&["Roses"]);
    let inner = run.call("rhymes", &["{}"]);
    run.stop(Stop::ToolCalls).start(inner).ok(inner, "poses").turn();
    run.stop(Stop::EndTurn).sub_agent_done(Outcome::Completed { stop: Stop::EndTurn });
    run.ok(call, "Roses");
    let records = run.complete();
    let progress = |dialect| -> Vec<_> {
        let events = said(dialect, &records).into_iter();
        let data = |event| match event {
            AgentEvent::ToolProgress { data, .. } => Some(data),
            AgentEvent::Thought { .. }
            | AgentEvent::ToolCall { .. }
            | AgentEvent::ToolResult { .. }
            | AgentEvent::Stream { .. }
            | AgentEvent::Final
            | AgentEvent::Error { .. } => None,
        };
        events.filter_map(data).collect()
    };
    assert_eq!(progress(AgentEvents::default()), [json!("Roses")]);
    let of_the_inner_call = |event: &AgentEvent| json!(event)["toolName"] == "rhymes";
    assert!(!said(AgentEvents::default(), &records).iter().any(of_the_inner_call));
    let thought = json!({"subtype": "thought", "content": "Something with roses."});
    let all = progress(AgentEvents::default().with_sub_agent_thoughts());
    assert_eq!(all, [thought.clone(), json!("Roses")]);

    // As a reader over a wire chooses it.
    let options = Options { sub_agents: SubAgents::Thoughts, ..Options::default() };
    let mut out = Out::default();
    Encoder::new(&DialectName::AgentEvent.with(options).unwrap()).frame(&records, &mut out);
    let written: Vec<Value> =
        out.events().map(|(_, json)| serde_json::from_slice(json).unwrap()).collect();
    assert!(written.iter().any(|event| event["data"] == thought), "{written:?}");
}
