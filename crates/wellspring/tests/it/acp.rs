//! The semantics of a ThoughtStream, with an ACP agent: a real process that follows a script.
//! Time is not paused here, because it cannot be paused for a process.

use serde_json::{Value, json};
use wellspring::crates::core::Content;
use wellspring::prelude::*;
use wellspring::tools::{NoArguments, function};
use wellspring::{AcpConfig, Outcome, Stop};
use wellspring_testkit::acp_agent::SCRIPT;

use crate::kit::{Ended, lines, message, records, soon, thought};

const DONE: Outcome = Outcome::Completed { stop: Stop::EndTurn };

async fn open(prompts: Value) -> Agent {
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    let script = json!({"prompts": prompts}).to_string();
    let config =
        AcpConfig::command([program, "--exact", "scripted_agent", "--nocapture", "--quiet"]);
    let config = config.env(SCRIPT, script).cwd(std::env::temp_dir());
    Agent::open_with(config).await.unwrap().named("scripted")
}

/// Thinks a little, hands over 42, and says a last word.
async fn thinker() -> Agent {
    let result = json!({"name": "return_result", "arguments": {"value": 42}});
    open(json!([[{"thought": "Six times seven."}, {"text": "Here it is."}, {"call": result}, {"text": "Bye."}]]))
        .await
}

fn thinker_events() -> Vec<ThoughtEvent> {
    let taken = message("the result was taken");
    vec![thought("Six times seven."), message("Here it is."), taken, message("Bye.")]
}

#[tokio::test]
async fn a_run_starts_and_ends_without_ever_being_polled() {
    let (hooks, mut ended) = Ended::new();
    drop(thinker().await.hooks(hooks).think::<u32>().text("?").stream());
    assert_eq!(soon(ended.recv()).await, Some(DONE));
}

#[tokio::test]
async fn the_result_can_be_awaited_without_iterating() {
    assert_eq!(soon(thinker().await.think::<u32>().text("?").run()).await.unwrap(), 42);
}

#[tokio::test]
async fn events_can_be_iterated_without_awaiting_the_result_and_none_is_lost_after_it() {
    let mut stream = thinker().await.think::<u32>().text("?").stream();
    let events: Vec<_> = soon(stream.by_ref().collect()).await;
    assert_eq!(events, thinker_events());
    assert_eq!(stream.next().await, None);
    assert!(stream.error().is_none());
}

#[tokio::test]
async fn events_and_result_can_be_had_at_once() {
    let stream = thinker().await.think::<u32>().text("?").stream();
    let result = stream.result();
    let (events, result) = soon(async { tokio::join!(stream.collect::<Vec<_>>(), result) }).await;
    assert_eq!((events, result.unwrap()), (thinker_events(), 42));
}

#[tokio::test]
async fn whoever_breaks_off_still_gets_the_result_and_can_go_on() {
    let mut stream = thinker().await.think::<u32>().text("?").stream();
    let mut seen = vec![soon(stream.next()).await.unwrap()];
    assert_eq!(soon(stream.result()).await.unwrap(), 42);
    seen.extend(soon(stream.collect::<Vec<_>>()).await);
    assert_eq!(seen, thinker_events());
}

#[tokio::test]
async fn the_result_is_there_before_the_prompt_ends_and_the_iterator_ends_with_it() {
    let result = json!({"name": "return_result", "arguments": {"value": 42}});
    let ask = json!({"method": "session/request_permission", "params": {
        "toolCall": {"toolCallId": "c", "title": "go on", "kind": "execute"},
        "options": [{"optionId": "y", "name": "Yes", "kind": "allow_once"}]}});
    let agent = open(json!([[{"call": result}, {"request": ask}, {"text": "After."}]])).await;
    let stream = agent.think::<u32>().text("?").wait_for_answers().stream();
    assert_eq!(soon(stream.result()).await.unwrap(), 42);
    // The prompt still waits for its permission.
    let mut questions = stream.questions();
    let question = soon(questions.next()).await.unwrap();
    assert_eq!(&*question.prompt, "Allow go on?");
    stream.answer(question.question, Answer::yes()).await.unwrap();
    let outcome = stream.outcome();
    let events = soon(stream.collect::<Vec<_>>()).await;
    assert!(events.contains(&message("After.")), "{events:?}");
    assert_eq!(soon(outcome).await.unwrap(), DONE);
}

#[tokio::test]
async fn our_tools_run_inside_the_agent_and_are_shown_as_ours() {
    let call = json!({"name": "add", "arguments": {"a": 2, "b": 3}});
    let agent = open(json!([[{"call": call}]])).await;
    let add = function("add", "Adds.", async |numbers: Numbers, _| Ok(numbers.a + numbers.b));
    let stream = agent.say("Add.").tool(add).stream();
    insta::assert_snapshot!(lines(stream).await.join("\n"), @r#"
    {"type":"tool_start","id":"0","title":"add","kind":"other"}
    {"type":"tool_update","id":"0","status":"in_progress"}
    {"type":"tool_done","id":"0","status":"completed"}
    {"type":"message","text":"5"}
    "#);
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Numbers {
    a: u32,
    b: u32,
}

#[tokio::test]
async fn a_call_of_the_agents_own_is_shown_with_what_it_shows() {
    let agent = open(json!([[
        {"update": {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "Edit a.rs", "kind": "edit",
            "status": "pending"}},
        {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "in_progress",
            "content": [{"type": "diff", "path": "/a.rs", "oldText": "x", "newText": "y"}]}},
        {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"}},
        {"update": {"sessionUpdate": "plan", "entries": [
            {"content": "Edit", "status": "completed", "priority": "high"}]}},
        {"update": {"sessionUpdate": "available_commands_update", "availableCommands": []}},
        {"update": {"sessionUpdate": "current_mode_update", "currentModeId": "code"}},
    ]])).await;
    let stream = agent.say("Edit it.").stream();
    insta::assert_snapshot!(lines(stream).await.join("\n"), @r#"
    {"type":"tool_start","id":"c","title":"Edit a.rs","kind":"edit"}
    {"type":"tool_update","id":"c","status":"in_progress","content":[{"type":"diff","path":"/a.rs","oldText":"x","newText":"y"}]}
    {"type":"tool_done","id":"c","status":"completed"}
    {"type":"plan","entries":[{"content":"Edit","status":"completed","priority":"high"}]}
    "#);
}

#[tokio::test]
async fn only_what_is_included_is_given() {
    let stream = thinker().await.think::<u32>().text("?").include([ThoughtKind::Thought]).stream();
    assert_eq!(soon(stream.collect::<Vec<_>>()).await, [thought("Six times seven.")]);
}

#[tokio::test]
async fn cancelling_ends_the_iteration_and_the_result_says_so() {
    let agent = open(json!([[{"text": "Working."}, {"hang": 1}]])).await;
    let token = CancellationToken::new();
    let mut stream = agent.say("Work.").signal(token.clone()).stream();
    assert_eq!(soon(stream.next()).await, Some(message("Working.")));
    drop(token.drop_guard());
    assert_eq!(soon(stream.next()).await, None);
    let error = soon(stream.result()).await.unwrap_err();
    assert!(matches!(error, ThinkError::Cancelled { .. }), "{error:?}");
}

#[tokio::test]
async fn a_thread_keeps_its_session() {
    let agent = open(json!([[{"text": "First."}], [{"text": "Second."}]])).await;
    let thread = agent.thread();
    assert_eq!(soon(thread.say("One").run()).await.unwrap(), "First.");
    assert_eq!(soon(thread.say("Two").run()).await.unwrap(), "Second.");
    assert_eq!(soon(agent.say("Alone").run()).await.unwrap(), "First.");
}

#[tokio::test]
async fn another_agent_may_call_it() {
    let acp = open(json!([[{"echo": 1}]])).await.description("Says it again.");
    let model = Scripted::new([
        Say::new().call("call-agent", json!({"agentId": "scripted", "input": "Roses are red."})),
        Say::new().text("It said so."),
    ]);
    let host = Agent::model(model).named("host").sub_agent(&acp);
    let stream = host.say("A verse!").stream();
    let all = records(&stream).await;
    assert_eq!(soon(stream.result()).await.unwrap(), "It said so.");
    let told = all.iter().find_map(|record| match &record.event {
        wellspring::Event::ToolFinished { result, .. } => Some(result.output.clone()),
        _ => None,
    });
    assert_eq!(told, Some(json!("Roses are red.")));
    let input = all.iter().find_map(|record| match &record.event {
        wellspring::Event::AgentStarted { input, .. } => Some(input.clone()),
        _ => None,
    });
    assert_eq!(input, Some(vec![Content::text("Roses are red.")]));
}

#[tokio::test]
async fn what_cannot_be_opened_says_why() {
    let error = Agent::open("no-such-program-here --acp").await.unwrap_err();
    let want = "no-such-program-here could not be started: No such file or directory (os error 2)";
    assert_eq!(error.to_string(), want);
    let error = Agent::open("'").await.unwrap_err();
    assert_eq!(error.to_string(), "\"'\" is not a command: a quote is not closed");
}

#[tokio::test]
async fn a_tool_without_arguments_may_ask() {
    let call = json!({"name": "wipe", "arguments": {}});
    let agent = open(json!([[{"call": call}]])).await;
    let wipe =
        function("wipe", "Wipes.", async |_: NoArguments, _| Ok("wiped")).kind(ToolKind::Delete);
    let answer = agent
        .say("Make room.")
        .tool(wipe)
        .on_question(async |question| {
            assert_eq!(&*question.prompt, "Allow wipe {}?");
            Answer::yes()
        })
        .run();
    assert_eq!(soon(answer).await.unwrap(), "wiped");
}
