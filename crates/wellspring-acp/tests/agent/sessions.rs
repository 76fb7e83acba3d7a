//! Sessions that are loaded, resumed, listed, closed and deleted.

use std::sync::Arc;

use serde_json::{Value, json};
use wellspring_models::Say;

use uuid::Uuid;
use wellspring_core::{Millis, Outcome, RunId, RunRequest, RunStarted};
use wellspring_engine::{DEFAULT_TENANT, Runtime};
use wellspring_log::{Clock, LEASE, Log, LogOptions, MemoryStore, Store, TokioClock};

use crate::client::{Client, agent, runtime};

fn params(session: &str) -> Value {
    json!({"sessionId": session, "cwd": "/srv/project", "mcpServers": []})
}

#[tokio::test]
async fn loaded_and_resumed_by_another_client() {
    let runtime = runtime([
        agent("a", [Say::new().thought("Hm, hm.").text("I am a.")], []),
        agent("b", [Say::new().text("I am b.")], []),
    ]);
    let mut first = Client::ready(&runtime, "a", json!({})).await;
    let session = first.session().await;
    first.prompt(&session, "Who are you?").await.unwrap();
    let mode = json!({"sessionId": session, "modeId": "b"});
    first.call("session/set_mode", mode).await.unwrap();
    first.prompt(&session, "And now?").await.unwrap();
    first.leave().await.unwrap();

    let mut second = Client::ready(&runtime, "a", json!({})).await;
    let not_open = second.prompt(&session, "Hello?").await.unwrap_err();
    assert_eq!(not_open["code"], -32002);
    second.said();
    second.call("session/load", params(&session)).await.unwrap();
    insta::assert_snapshot!(second.said());
    second.leave().await.unwrap();

    let mut third = Client::ready(&runtime, "a", json!({})).await;
    third.said();
    third.call("session/resume", params(&session)).await.unwrap();
    third.until(|it| it["method"] == "session/update").await;
    insta::assert_snapshot!(third.said());
    // The same conversation, with the agent that had it last.
    third.prompt(&session, "Still?").await.unwrap();
    assert_eq!(third.words(), "I am b.");
    let runs = runtime.log().store().list(Default::default()).await.unwrap();
    assert_eq!(runs.len(), 3);
    assert_eq!(runs[0].after, Some(runs[1].run));
}

#[tokio::test]
async fn listed_page_by_page_and_deleted() {
    let runtime = runtime([agent("a", [Say::new().text("Yes.")], [])]);
    let mut client = Client::ready(&runtime, "a", json!({})).await;
    let mut sessions = Vec::new();
    for number in 0..wellspring_acp::agent::LIST_PAGE + 3 {
        let session = client.session().await;
        client.prompt(&session, &format!("Question {number}")).await.unwrap();
        sessions.push(session);
    }
    // A thread with several runs is listed once, by its latest run.
    let first = sessions.remove(0);
    client.prompt(&first, "One more").await.unwrap();
    sessions.push(first.clone());
    // A thread without a directory is not a session.
    let elsewhere = wellspring_engine::StartRun::text("a", "Elsewhere");
    let run = runtime.local().start(elsewhere).await.unwrap().run;
    runtime.local().wait(run).await.unwrap();

    let (mut listed, mut cursor) = (Vec::new(), Value::Null);
    let mut pages = Vec::new();
    loop {
        let page = client.call("session/list", json!({"cursor": cursor})).await.unwrap();
        let on_page = page["sessions"].as_array().unwrap().clone();
        pages.push(on_page.len());
        listed.extend(on_page);
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(pages, [50, 3]);
    let ids: Vec<_> = listed.iter().map(|it| it["sessionId"].as_str().unwrap()).collect();
    sessions.reverse();
    assert_eq!(ids, sessions);
    assert_eq!(listed[0]["title"], "One more");
    assert_eq!(listed[0]["cwd"], "/srv/project");
    let other = client.call("session/list", json!({"cwd": "/elsewhere"})).await.unwrap();
    assert_eq!(other, json!({"sessions": []}));
    assert_eq!(
        client.call("session/list", json!({"cursor": "x"})).await.unwrap_err()["code"],
        -32602
    );

    let named = json!({"sessionId": first});
    assert_eq!(client.call("session/delete", named.clone()).await, Ok(json!({})));
    assert_eq!(client.call("session/load", params(&first)).await.unwrap_err()["code"], -32002);
}

#[tokio::test]
async fn closing_cancels_and_forgets() {
    let runtime = runtime([agent("stuck", [Say::new().text("one ").hang()], [])]);
    let mut client = Client::ready(&runtime, "stuck", json!({})).await;
    let session = client.session().await;
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "Go"}]});
    let id = client.send("session/prompt", prompt).await;
    client.until(|it| it["params"]["update"]["sessionUpdate"] == "agent_message_chunk").await;
    let named = json!({"sessionId": session});
    assert_eq!(client.call("session/load", params(&session)).await.unwrap_err()["code"], -32600);
    assert_eq!(client.call("session/delete", named.clone()).await.unwrap_err()["code"], -32600);
    let closed = client.send("session/close", named.clone()).await;
    let (mut stopped, mut done) = (None, None);
    while stopped.is_none() || done.is_none() {
        let message = client.hear().await.unwrap();
        if message["id"] == id {
            stopped = Some(message["result"].clone());
        } else if message["id"] == closed {
            done = Some(message["result"].clone());
        }
    }
    assert_eq!((stopped, done), (Some(json!({"stopReason": "cancelled"})), Some(json!({}))));
    assert_eq!(client.call("session/close", named).await.unwrap_err()["code"], -32002);
}

/// A run of the session that another process owns blocks the prompt. A run whose process has ended
/// is cancelled, and the next prompt starts.
#[tokio::test(start_paused = true)]
async fn a_run_that_was_left_unfinished() {
    let store = Arc::new(MemoryStore::default());
    let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at(Millis(0)));
    let log = |node: &str| {
        let clock = Arc::clone(&clock);
        let options = LogOptions { node: node.into(), clock, ..LogOptions::default() };
        Log::new(Arc::clone(&store) as Arc<dyn Store>, options)
    };
    let runtime = Runtime::new(log("here"));
    runtime.register(agent("a", [Say::new().text("Yes.")], []));
    let mut client = Client::ready(&runtime, "a", json!({})).await;
    let session = client.session().await;
    let elsewhere = log("elsewhere");
    let run = RunId::new(Uuid::now_v7());
    let started = RunStarted {
        run,
        thread: session.parse().unwrap(),
        agent: "a".into(),
        after: None,
        request: RunRequest::text("Go"),
    };
    let owner = elsewhere.create(DEFAULT_TENANT, started).await.unwrap();
    let refused = client.prompt(&session, "Hello").await.unwrap_err();
    assert_eq!(
        refused["message"],
        format!(
            "the session is busy with run {run}, which was started elsewhere; wait for its end, \
             or stop it with `wellspring runs cancel {run}`"
        )
    );
    // Its process ends, so its heartbeats stop.
    drop((owner, elsewhere));
    tokio::time::advance(LEASE).await;
    client.words();
    assert_eq!(client.prompt(&session, "Hello").await.unwrap()["stopReason"], "end_turn");
    assert_eq!(client.words(), "Yes.");
    let left = runtime.local().wait(run).await.unwrap();
    let Some(Outcome::Cancelled { why, .. }) = &left.outcome else { panic!("{left:?}") };
    assert_eq!(why.as_deref(), Some("superseded"));
}
