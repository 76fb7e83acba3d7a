//! Conversations: what a request inherits, and what it does not.

use serde_json::json;
use wellspring::crates::core::MessagePart;
use wellspring::models::Gate;
use wellspring::prelude::*;
use wellspring::{Log, Message, Runtime, StartError, WhenBusy};

use crate::kit::soon;

/// One line per message: its role and its text.
fn shown(messages: &[Message]) -> Vec<String> {
    let said = |part: &MessagePart| part.text.clone();
    messages
        .iter()
        .map(|message| match message {
            Message::User { content } => {
                let text: String = content.iter().filter_map(|content| content.as_text()).collect();
                format!("user: {text}")
            }
            Message::Assistant { parts, .. } => {
                format!("agent: {}", parts.iter().map(said).collect::<String>())
            }
            Message::Results { results } => {
                let results: Vec<_> =
                    results.iter().map(|result| result.result.output_text()).collect();
                format!("results: {}", results.join(", "))
            }
        })
        .collect()
}

/// Answers with the messages that it got.
fn mirror() -> Scripted {
    Scripted::with(|request| Say::new().text(shown(&request.messages).join(" | ")))
}

#[tokio::test(start_paused = true)]
async fn an_agent_knows_what_was_said_in_its_thread() {
    let agent = Agent::model(mirror());
    let thread = agent.thread();
    assert_eq!(soon(thread.say("a").run()).await.unwrap(), "user: a");
    assert_eq!(soon(thread.say("b").run()).await.unwrap(), "user: a | agent: user: a | user: b");
    let history = soon(thread.history()).await.unwrap();
    let want =
        ["user: a", "agent: user: a", "user: b", "agent: user: a | agent: user: a | user: b"];
    assert_eq!(shown(&history), want);
    // Another thread does not have these messages, and neither does a request without a thread.
    assert_eq!(soon(agent.thread().say("c").run()).await.unwrap(), "user: c");
    assert_eq!(soon(agent.say("d").run()).await.unwrap(), "user: d");
}

#[tokio::test(start_paused = true)]
async fn typed_results_are_part_of_the_conversation() {
    let model = Scripted::with(|request| match request.messages.len() {
        1 => Say::new().call("return_result", json!({"value": 7})),
        _ => Say::new().text(shown(&request.messages).join(" | ")),
    });
    let thread = Agent::model(model).thread();
    // The result is available before its run ends; the next request waits for the end.
    assert_eq!(soon(thread.think::<u32>().text("a number").run()).await.unwrap(), 7);
    assert_eq!(
        soon(thread.say("and?").run()).await.unwrap(),
        r#"user: a number | agent: {"value":7} | results: the result was taken | user: and?"#
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_to_a_busy_thread_waits_its_turn() {
    let gate = Gate::new();
    let model = {
        let gate = gate.clone();
        Scripted::with(move |request| {
            Say::new().gate(&gate).text(shown(&request.messages).join(" | "))
        })
    };
    let thread = Agent::model(model).thread();
    let first = thread.say("a").stream();
    soon(gate.reached(1)).await;
    let second = thread.say("b").stream();
    gate.open();
    assert_eq!(soon(first.result()).await.unwrap(), "user: a");
    assert_eq!(soon(second.result()).await.unwrap(), "user: a | agent: user: a | user: b");
}

#[tokio::test(start_paused = true)]
async fn a_request_to_a_busy_thread_may_be_refused() {
    let model = Scripted::new([Say::new().hang()]);
    let thread = Agent::model(model).when_busy(WhenBusy::Refuse).thread();
    let first = thread.say("a").stream();
    let run = soon(first.run_id()).await.unwrap();
    let error = soon(thread.say("b").run()).await.unwrap_err();
    let ThinkError::Start(cause) = &error else { panic!("{error:?}") };
    assert!(matches!(**cause, StartError::ThreadBusy(busy) if busy == run), "{cause:?}");
    assert_eq!(error.to_string(), "the run could not be started");
}

#[tokio::test(start_paused = true)]
async fn a_thread_can_branch() {
    let thread = Agent::model(mirror()).thread();
    let first = thread.say("a").stream();
    let run = soon(first.run_id()).await.unwrap();
    soon(thread.say("b").run()).await.unwrap();
    let branch = thread.say("c").continuing(run);
    assert_eq!(soon(branch.run()).await.unwrap(), "user: a | agent: user: a | user: c");
    // The latest branch is the conversation from now on.
    let history = soon(thread.history()).await.unwrap();
    let want =
        ["user: a", "agent: user: a", "user: c", "agent: user: a | agent: user: a | user: c"];
    assert_eq!(shown(&history), want);
    assert_eq!(soon(thread.runs()).await.unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn agents_over_one_log_can_share_a_thread() {
    let runtime = Runtime::new(Log::in_memory());
    let first = Agent::model(mirror()).named("first").runtime(runtime.clone());
    let second = Agent::model(mirror()).named("second").runtime(runtime);
    let thread = first.thread();
    soon(thread.say("a").run()).await.unwrap();
    let want = "user: a | agent: user: a | user: b";
    assert_eq!(soon(second.say("b").thread(&thread).run()).await.unwrap(), want);
    let runs = soon(second.open_thread(thread.id()).runs()).await.unwrap();
    let agents: Vec<_> = runs.iter().map(|info| &*info.agent).collect();
    assert_eq!(agents, ["second", "first"]);
}
