//! How events and the result relate: each sentence of "Execution Semantics" is a test.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::Notify;
use wellspring::crates::core::{Content, PlanEntry, ToolContent};
use wellspring::models::Gate;
use wellspring::prelude::*;
use wellspring::tools::{NoArguments, from_function, function, update_plan};
use wellspring::{Event, Log, Outcome, Stop, ToolResult, ToolSpec};

use crate::kit::{Ended, line, lines, message, records, soon, thought};

const DONE: Outcome = Outcome::Completed { stop: Stop::EndTurn };

/// Thinks a little, then hands over 42.
fn thinker() -> Scripted {
    Scripted::new([Say::new()
        .thought("Six times seven.")
        .text("Here it is.")
        .call("return_result", json!({"value": 42}))])
}

fn thinker_events() -> Vec<ThoughtEvent> {
    vec![
        thought("Six "),
        thought("times "),
        thought("seven."),
        message("Here "),
        message("it "),
        message("is."),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_run_starts_and_ends_without_ever_being_polled() {
    let (hooks, mut ended) = Ended::new();
    let _stream = Agent::model(thinker()).hooks(hooks).think::<u32>().text("?").stream();
    assert_eq!(soon(ended.recv()).await, Some(DONE));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_does_not_end_the_run() {
    let (hooks, mut ended) = Ended::new();
    drop(Agent::model(thinker()).hooks(hooks).think::<u32>().text("?").stream());
    assert_eq!(soon(ended.recv()).await, Some(DONE));
}

#[tokio::test(start_paused = true)]
async fn the_result_can_be_awaited_without_iterating() {
    let stream = Agent::model(thinker()).think::<u32>().text("?").stream();
    assert_eq!(soon(stream.result()).await.unwrap(), 42);
}

#[tokio::test(start_paused = true)]
async fn run_is_stream_and_result() {
    assert_eq!(soon(Agent::model(thinker()).think::<u32>().text("?").run()).await.unwrap(), 42);
}

#[tokio::test(start_paused = true)]
async fn events_can_be_iterated_without_awaiting_the_result() {
    let mut stream = Agent::model(thinker()).think::<u32>().text("?").stream();
    let events: Vec<_> = soon(stream.by_ref().collect()).await;
    assert_eq!(events, thinker_events());
    // It resolved without being polled.
    assert_eq!(soon(stream.transcript()).await.unwrap().result, Some(json!(42)));
    // After the end, the stream stays at its end.
    assert_eq!(stream.next().await, None);
    assert!(stream.error().is_none());
}

#[tokio::test(start_paused = true)]
async fn events_and_result_can_be_had_at_once() {
    let stream = Agent::model(thinker()).think::<u32>().text("?").stream();
    let result = stream.result();
    let (events, result) = soon(async { tokio::join!(stream.collect::<Vec<_>>(), result) }).await;
    assert_eq!((events, result.unwrap()), (thinker_events(), 42));
}

#[tokio::test(start_paused = true)]
async fn whoever_breaks_off_still_gets_the_result_and_can_go_on() {
    let mut stream = Agent::model(thinker()).think::<u32>().text("?").stream();
    let mut seen = Vec::new();
    while let Some(event) = soon(stream.next()).await {
        seen.push(event);
        if seen.len() == 2 {
            break;
        }
    }
    assert_eq!(soon(stream.result()).await.unwrap(), 42);
    seen.extend(soon(stream.collect::<Vec<_>>()).await);
    assert_eq!(seen, thinker_events());
}

#[tokio::test(start_paused = true)]
async fn the_result_can_be_had_before_while_and_after_iterating() {
    let mut stream = Agent::model(thinker()).think::<u32>().text("?").stream();
    let before = stream.result();
    soon(stream.next()).await.unwrap();
    let during = soon(stream.result()).await.unwrap();
    while soon(stream.next()).await.is_some() {}
    let after = soon(stream.result()).await.unwrap();
    assert_eq!((soon(before).await.unwrap(), during, after), (42, 42, 42));
}

#[tokio::test(start_paused = true)]
async fn the_result_is_there_before_the_run_ends_and_no_later_event_is_lost() {
    // Another call of the same turn continues after the result was returned.
    let model = Scripted::new([Say::new()
        .call("slow", json!({}))
        .call("return_result", json!({"value": 42}))]);
    let go_on = Arc::new(Notify::new());
    let slow = {
        let go_on = Arc::clone(&go_on);
        function("slow", "Waits.", move |_: NoArguments, cx: Context| {
            let go_on = Arc::clone(&go_on);
            async move {
                go_on.notified().await;
                cx.progress("still here").await;
                Ok("done")
            }
        })
    };
    let (hooks, mut ended) = Ended::new();
    let stream = Agent::model(model).hooks(hooks).think::<u32>().text("?").tool(slow).stream();
    assert_eq!(soon(stream.result()).await.unwrap(), 42);
    assert!(ended.try_recv().is_err(), "the run goes on");
    go_on.notify_one();
    let outcome = stream.outcome();
    insta::assert_snapshot!(lines(stream).await.join("\n"), @r#"
    {"type":"tool_start","id":"0","title":"slow","kind":"other"}
    {"type":"tool_update","id":"0","status":"in_progress"}
    {"type":"tool_update","id":"0","status":"in_progress","content":[{"type":"content","content":{"type":"text","text":"still here"}}]}
    {"type":"tool_done","id":"0","status":"completed"}
    "#);
    assert_eq!(soon(outcome).await.unwrap(), DONE);
}

#[tokio::test(start_paused = true)]
async fn the_iteration_ends_when_the_run_ends_and_not_before() {
    let gate = Gate::new();
    let model = Scripted::new([Say::new().text("word").gate(&gate)]);
    let mut stream = Agent::model(model).say("?").stream();
    assert_eq!(soon(stream.next()).await, Some(message("word")));
    soon(gate.reached(1)).await;
    let more = tokio::time::timeout(std::time::Duration::from_secs(1), stream.next()).await;
    assert!(more.is_err(), "nothing more was said, and it is not over: {more:?}");
    gate.open();
    assert_eq!(soon(stream.next()).await, None);
}

#[tokio::test(start_paused = true)]
async fn tools_show_what_they_do() {
    let model = Scripted::new([
        Say::new().call("edit", json!({"path": "a.rs"})).call("fail", json!({})),
        Say::new().text("Edited."),
    ]);
    let edit = from_function(ToolSpec::new("edit", "Edits."), async |arguments, _| {
        let path = arguments["path"].as_str().unwrap_or_default();
        let diff = ToolContent::Diff { path: path.into(), old_text: None, new_text: "x".into() };
        let note = ToolContent::Content(Content::text("one file"));
        Ok(ToolResult { content: vec![diff, note], ..ToolResult::new("ok") })
    })
    .title("Edit file")
    .sequential();
    let fail = function("fail", "Fails.", async |_: NoArguments, _| {
        Err::<(), _>(ToolError::new("the disk is full"))
    })
    .kind(ToolKind::Search)
    .sequential();
    let stream = Agent::model(model).say("Edit it.").tool(edit).tool(fail).stream();
    insta::assert_snapshot!(lines(stream).await.join("\n"), @r#"
    {"type":"tool_start","id":"0","title":"Edit file","kind":"other"}
    {"type":"tool_start","id":"1","title":"fail","kind":"search"}
    {"type":"tool_update","id":"0","status":"in_progress"}
    {"type":"tool_update","id":"0","status":"completed","content":[{"type":"diff","path":"a.rs","oldText":"","newText":"x"},{"type":"content","content":{"type":"text","text":"one file"}}]}
    {"type":"tool_done","id":"0","status":"completed"}
    {"type":"tool_update","id":"1","status":"in_progress"}
    {"type":"tool_done","id":"1","status":"failed"}
    {"type":"message","text":"Edited."}
    "#);
}

fn planner() -> Scripted {
    let plan = json!({"entries": [{"content": "Read", "status": "in_progress"}]});
    Scripted::new([
        Say::new().thought("Plan first.").text("One moment.").call("update_plan", plan),
        Say::new().thought("Done.").call("return_result", json!({"value": true})),
    ])
}

#[tokio::test(start_paused = true)]
async fn only_what_is_included_is_given() {
    let agent = Agent::model(planner()).tool(update_plan());
    let think = || agent.think::<bool>().text("?");
    let some = think().include([ThoughtKind::Thought, ThoughtKind::Plan]).stream();
    let result = some.result();
    let some = lines(some).await;
    insta::assert_snapshot!(some.join("\n"), @r#"
    {"type":"thought","text":"Plan "}
    {"type":"thought","text":"first."}
    {"type":"plan","entries":[{"content":"Read","status":"in_progress","priority":"medium"}]}
    {"type":"thought","text":"Done."}
    "#);
    assert!(soon(result).await.unwrap());

    let all: Vec<_> = soon(think().stream().collect()).await;
    let kept = |event: &&ThoughtEvent| {
        matches!(ThoughtKind::of(event), ThoughtKind::Thought | ThoughtKind::Plan)
    };
    assert_eq!(all.iter().filter(kept).map(line).collect::<Vec<_>>(), some);
    let none = think().include([]).stream();
    let result = none.result();
    assert_eq!(lines(none).await, [""; 0]);
    assert!(soon(result).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn what_the_context_states_is_shown_or_kept() {
    let note = function("note", "Notes.", async |_: NoArguments, cx: Context| {
        cx.plan(vec![PlanEntry {
            content: "Note".into(),
            status: Default::default(),
            priority: Default::default(),
        }])
        .await;
        cx.emit(Event::StateSet { state: Box::new(json!({"n": 1})) }).await?;
        Ok(())
    });
    let model = Scripted::new([Say::new().call("note", json!({})), Say::new().text("Noted.")]);
    let stream = Agent::model(model).say("?").tool(note).stream();
    let state = stream.transcript();
    insta::assert_snapshot!(lines(stream).await.join("\n"), @r#"
    {"type":"tool_start","id":"0","title":"note","kind":"other"}
    {"type":"tool_update","id":"0","status":"in_progress"}
    {"type":"plan","entries":[{"content":"Note","status":"pending","priority":"medium"}]}
    {"type":"tool_done","id":"0","status":"completed"}
    {"type":"message","text":"Noted."}
    "#);
    assert_eq!(soon(state).await.unwrap().state, Some(json!({"n": 1})));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_sleeps_gets_every_word_later_and_nothing_waits_in_the_handle() {
    const WORDS: usize = 20_000;
    let (hooks, mut ended) = Ended::new();
    let words = (0..WORDS).map(|n| format!("{n} "));
    let model = Scripted::new([Say::new().chunks(words.clone())]);
    let agent = Agent::model(model).hooks(hooks).log(Log::in_memory());
    let mut stream = agent.say("Count.").stream();
    assert_eq!(soon(stream.next()).await, Some(message("0 ")));
    assert_eq!(soon(ended.recv()).await, Some(DONE));
    let kept = agent.engine().log().tail_bytes();
    assert!(kept <= wellspring::crates::log::TAIL_BYTES_MAX, "{kept} bytes wait in memory");
    let mut text = "0 ".to_owned();
    while let Some(event) = soon(stream.next()).await {
        match event {
            ThoughtEvent::Message { text: more } => text.push_str(&more),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(text, words.collect::<String>());
    assert_eq!(soon(stream.result()).await.unwrap(), text);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_does_not_stream_says_each_part_at_once() {
    let agent = Agent::model(thinker());
    let want = [thought("Six times seven."), message("Here it is.")];
    let stream = agent.think::<u32>().text("?").streaming(false).stream();
    assert_eq!(soon(stream.collect::<Vec<_>>()).await, want);
    let stream = agent.streaming(false).think::<u32>().text("?").stream();
    assert_eq!(soon(stream.collect::<Vec<_>>()).await, want);
}

#[tokio::test(start_paused = true)]
async fn words_that_were_taken_back_are_followed_by_a_break_and_the_result_is_right() {
    let attempts = wellspring::models::Attempts::new();
    let failure = wellspring::models::Failure::new(wellspring::FailureKind::Protocol, "cut");
    let say = Say::new().text("Hello").fail_first(&attempts, 1, failure).chunks([" world"]);
    let stream = Agent::model(Scripted::new([say])).say("?").stream();
    let checked = records(&stream).await;
    assert!(checked.iter().any(|record| matches!(record.event, Event::PartsVoided { .. })));
    let result = stream.result();
    let want = [message("Hello"), message("\n\n"), message("Hello"), message(" world")];
    assert_eq!(soon(stream.collect::<Vec<_>>()).await, want);
    assert_eq!(soon(result).await.unwrap(), "Hello world");
}

#[test]
fn without_a_runtime_the_result_says_so() {
    let mut stream = Agent::model(thinker()).think::<u32>().text("?").stream();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let error = stream.result().await.unwrap_err();
        assert!(matches!(error, ThinkError::NoRuntime), "{error:?}");
        assert_eq!(stream.next().await, None);
        assert!(matches!(stream.error(), Some(ThinkError::NoRuntime)));
    });
}

#[test]
fn a_runtime_that_is_shut_down_meanwhile_is_an_error_too() {
    let build = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let first = build();
    let model = Scripted::new([Say::new().hang()]);
    let stream = first.block_on(async { Agent::model(model).say("?").stream() });
    drop(first);
    let error = build().block_on(stream.result()).unwrap_err();
    assert!(matches!(error, ThinkError::NoRuntime), "{error:?}");
}

#[tokio::test]
async fn handles_can_be_sent_to_other_tasks() {
    let mut stream = Agent::model(thinker()).think::<u32>().text("?").stream();
    let task = tokio::spawn(async move {
        stream.next().await.unwrap();
        let id = stream.run_id().await.unwrap();
        (stream.result().await.unwrap(), stream.outcome().await.unwrap(), id)
    });
    let (result, outcome, _) = task.await.unwrap();
    assert_eq!((result, outcome), (42, DONE));
}
