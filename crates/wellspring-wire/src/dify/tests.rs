//! Streams built from Dify's published event types.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use wellspring_core::{
    AgentNo, Batch, Checker, Event, Millis, Outcome, Record, RunRequest, RunStarted, Seq, Stop,
};
use wellspring_testkit::{RUN, THREAD};

use super::*;

fn shown(app: App, events: impl IntoIterator<Item = Value>) -> String {
    let (mut reader, mut batch) = (Reader::new(app), Batch::default());
    for event in events {
        reader.event(event, &mut batch);
    }
    let end = reader.end().cloned();
    reader.close(&mut batch);
    let events: Vec<Event> = batch.into_events().map(|(_, event)| event).collect();
    check(&events);
    let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
    format!("{lines}{end:?}")
}

/// Asserts that the events obey the grammar of a run.
fn check(events: &[Event]) {
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
        .chain(events.iter().cloned())
        .chain([Event::RunFinished { outcome }]);
    let records: Vec<Record> = (1..)
        .zip(all)
        .map(|(seq, event)| Record { seq: Seq(seq), agent: AgentNo::ROOT, at: Millis(0), event })
        .collect();
    Checker::check(&records).unwrap();
}

fn lines(fixture: &str) -> Vec<Value> {
    fixture.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_chatflow_shows_its_steps_and_its_words() {
    let events = lines(include_str!("../../fixtures/dify/chatflow.jsonl"));
    insta::assert_snapshot!(shown(App::Chat, events));
}

#[test]
fn an_agent_thinks_and_uses_tools() {
    let events = lines(include_str!("../../fixtures/dify/agent.jsonl"));
    insta::assert_snapshot!(shown(App::Chat, events));
}

#[test]
fn a_workflow_answers_with_its_outputs() {
    let events = lines(include_str!("../../fixtures/dify/workflow.jsonl"));
    insta::assert_snapshot!(shown(App::Workflow, events));
}

/// Moderation replaces the text of a workflow, as it replaces that of a chat.
#[test]
fn replaced_text_is_taken_back() {
    let events = [
        json!({"event": "text_chunk", "task_id": "t1", "data": {"text": "Something rude."}}),
        json!({"event": "text_replace", "task_id": "t1", "data": {"text": "Let us not."}}),
        json!({"event": "workflow_finished", "data": {"status": "succeeded", "outputs": {}}}),
    ];
    insta::assert_snapshot!(shown(App::Workflow, events), @r#"
    part 0 started text
    part 0 delta "Something rude."
    parts [0] voided replaced
    part 1 started text
    part 1 delta "Let us not."
    part 1 finished
    Some(Finished)
    "#);
}

#[test]
fn ends() {
    for (app, event, want) in [
        (App::Chat, json!({"event": "message_end"}), "Some(Finished)"),
        (
            App::Chat,
            json!({"event": "error", "status": 400, "code": "invalid_param", "message": "no"}),
            "Some(Failed { kind: BadRequest, message: \"no\" })",
        ),
        (
            App::Workflow,
            json!({"event": "workflow_finished", "data": {"status": "failed", "error": "x"}}),
            "Some(Failed { kind: Unavailable, message: \"x\" })",
        ),
        (
            App::Workflow,
            json!({"event": "workflow_finished", "data": {"status": "stopped"}}),
            "Some(Stopped)",
        ),
        (App::Chat, json!({"event": "workflow_finished", "data": {"status": "succeeded"}}), "None"),
        (App::Chat, json!({"event": "ping"}), "None"),
    ] {
        assert_eq!(shown(app, [event.clone()]), want, "{event}");
    }
}

#[test]
fn requests_have_the_published_form() {
    let ask = Ask {
        query: "Hi",
        user: "ann",
        conversation_id: Some("c1"),
        input: "topic",
        inputs: None,
        files: &[("image/png", "https://a.example/b.png")],
    };
    assert_eq!(
        ask.body(App::Chat),
        json!({"inputs": {}, "query": "Hi", "response_mode": "streaming", "user": "ann",
            "conversation_id": "c1", "files": [{"type": "image",
            "transfer_method": "remote_url", "url": "https://a.example/b.png"}]})
    );
    let workflow = Ask { files: &[], ..ask }.body(App::Workflow);
    assert_eq!(
        workflow,
        json!({"inputs": {"topic": "Hi"}, "response_mode": "streaming", "user": "ann"})
    );
    // Variables that have names stay as they are.
    let variables = json!({"topic": "springs", "words": 100});
    let named = Ask { inputs: variables.as_object(), ..ask };
    assert_eq!(named.body(App::Workflow)["inputs"], variables);
    assert_eq!(named.body(App::Completion)["inputs"], variables);
    let chat = named.body(App::Chat);
    assert_eq!((&chat["inputs"], &chat["query"]), (&variables, &json!("Hi")));
}

proptest! {
    /// Any events, in any order, are read as a legal run.
    #[test]
    fn any_events_are_read(
        names in prop::collection::vec(
            ("(message|agent_message|message_replace|agent_thought|message_file|node_started|\
              node_finished|workflow_finished|text_chunk|text_replace|message_end|new)", 0..4_u8, "[ab]?"),
            0..24,
        ),
        app in prop_oneof![Just(App::Chat), Just(App::Workflow)],
    ) {
        let events = names.into_iter().map(|(name, id, text)| json!({
            "event": name, "id": id.to_string(), "answer": text, "thought": text, "tool": text,
            "observation": text, "url": text,
            "data": {"id": id.to_string(), "text": text, "status": "succeeded", "outputs": text},
        }));
        shown(app, events);
        shown(app, [json!(7), json!(["event"]), json!({"event": {"event": 1}})]);
    }
}
