//! Stopping a run: by its handle and by a token.

use serde_json::json;
use wellspring::models::Gate;
use wellspring::prelude::*;
use wellspring::tools::{NoArguments, function};
use wellspring::{Outcome, render};

use crate::kit::{Ended, lines, message, records, soon};

fn endless() -> Agent {
    Agent::model(Scripted::new([Say::new().text("word").hang()]))
}

fn why(error: ThinkError) -> (Option<String>, Option<String>) {
    match error {
        ThinkError::Cancelled { by, why } => {
            (by.map(|by| by.to_string()), why.map(|why| why.to_string()))
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn cancelling_ends_the_events_and_the_result_says_so() {
    let mut stream = endless().say("?").by("ada").stream();
    assert_eq!(soon(stream.next()).await, Some(message("word")));
    soon(stream.cancel()).await.unwrap();
    assert_eq!(soon(stream.next()).await, None);
    assert!(stream.error().is_none());
    assert_eq!(why(soon(stream.result()).await.unwrap_err()), (Some("ada".into()), None));
    insta::assert_snapshot!(render(&records(&stream).await[1..]), @r#"
    turn 1.1 started with scripted
    part 0 started text
    part 0 delta "word"
    part 0 finished
    run finished cancelled
    "#);
}

#[tokio::test(start_paused = true)]
async fn cancelling_twice_or_too_late_is_fine() {
    let stream = endless().say("?").stream();
    soon(stream.cancel()).await.unwrap();
    soon(stream.cancel()).await.unwrap();
    soon(stream.outcome()).await.unwrap();
    soon(stream.cancel()).await.unwrap();
    soon(stream.cancel_after_turn()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_result_that_was_there_stays_after_a_cancellation() {
    let model = Scripted::new([Say::new()
        .call("hang", json!({}))
        .call("return_result", json!({"value": 1}))]);
    let hang = function("hang", "Hangs.", async |_: NoArguments, _| {
        std::future::pending::<()>().await;
        Ok(())
    });
    let stream = Agent::model(model).think::<u32>().text("?").tool(hang).stream();
    assert_eq!(soon(stream.result()).await.unwrap(), 1);
    soon(stream.cancel()).await.unwrap();
    assert!(matches!(soon(stream.outcome()).await.unwrap(), Outcome::Cancelled { .. }));
    assert_eq!(soon(stream.result()).await.unwrap(), 1);
    insta::assert_snapshot!(lines(stream).await.join("\n"), @r#"
    {"type":"tool_start","id":"0","title":"hang","kind":"other"}
    {"type":"tool_update","id":"0","status":"in_progress"}
    {"type":"tool_done","id":"0","status":"failed"}
    "#);
}

#[tokio::test(start_paused = true)]
async fn the_turn_may_be_let_finish() {
    let gate = Gate::new();
    let model = Scripted::new([
        Say::new().text("one").gate(&gate).call("go", json!({})),
        Say::new().text("two"),
    ]);
    let go = function("go", "Goes.", async |_: NoArguments, _| Ok(()));
    let stream = Agent::model(model).say("?").tool(go).stream();
    soon(gate.reached(1)).await;
    soon(stream.cancel_after_turn()).await.unwrap();
    gate.open();
    assert_eq!(why(soon(stream.result()).await.unwrap_err()), (Some("local".into()), None));
    insta::assert_snapshot!(lines(stream).await.join("\n"), @r#"
    {"type":"message","text":"one"}
    {"type":"tool_start","id":"1","title":"go","kind":"other"}
    {"type":"tool_update","id":"1","status":"in_progress"}
    {"type":"tool_done","id":"1","status":"completed"}
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_token_cancels_the_run() {
    let signal = CancellationToken::new();
    let mut stream = endless().say("?").signal(signal.clone()).stream();
    assert_eq!(soon(stream.next()).await, Some(message("word")));
    signal.cancel();
    assert_eq!(soon(stream.next()).await, None);
    let because = Some("its signal was cancelled".into());
    assert_eq!(why(soon(stream.result()).await.unwrap_err()), (Some("local".into()), because));
}

#[tokio::test(start_paused = true)]
async fn a_token_cancels_the_run_also_when_nobody_holds_the_stream() {
    let signal = CancellationToken::new();
    let (hooks, mut ended) = Ended::new();
    let gate = Gate::new();
    let model = Scripted::new([Say::new().gate(&gate)]);
    drop(Agent::model(model).hooks(hooks).say("?").signal(signal.clone()).stream());
    soon(gate.reached(1)).await;
    signal.cancel();
    assert!(matches!(soon(ended.recv()).await, Some(Outcome::Cancelled { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_cancelled_already_starts_nothing() {
    let signal = CancellationToken::new();
    signal.cancel();
    let agent = endless();
    let mut stream = agent.say("?").signal(signal).stream();
    let because = Some("its signal was cancelled".into());
    assert_eq!(why(soon(stream.result()).await.unwrap_err()), (None, because));
    assert_eq!(soon(stream.next()).await, None);
    assert_eq!(agent.engine().log().live_runs(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_guard_ties_a_run_to_a_scope() {
    let signal = CancellationToken::new();
    let stream = {
        let _guard = signal.clone().drop_guard();
        endless().say("?").signal(signal).stream()
    };
    assert!(matches!(soon(stream.result()).await, Err(ThinkError::Cancelled { .. })));
}
