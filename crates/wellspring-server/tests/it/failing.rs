//! A store that fails while clients read runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use reqwest::Response;
use serde_json::json;
use wellspring_core::{Approval, Checker, Event, Record, RunId};
use wellspring_engine::{Policy, Rule, Runtime};
use wellspring_log::{
    Append, AppendDone, Created, Log, LogOptions, MemoryStore, NewCommand, NewFrame, NewRun,
    PutAll, SqliteOptions, SqliteStore, Store, StoreError, StoreFuture,
};
use wellspring_models::{Gate, Say};

use crate::kit::{Kit, SseEvent, agent, config, echo, parse_sse, parts, verify_ag_ui};

/// A store whose disk does not sync while it is broken.
struct Failing {
    store: MemoryStore,
    broken: AtomicBool,
}

fn broken() -> StoreError {
    StoreError::failed("syncing", std::io::Error::other("Input/output error"))
}

impl Failing {
    fn new() -> Arc<Self> {
        Arc::new(Self { store: MemoryStore::default(), broken: AtomicBool::new(false) })
    }
}

impl Store for Failing {
    fn append(&self, append: Append, done: AppendDone) {
        if self.broken.load(Ordering::SeqCst) {
            return done(Err(broken().into()));
        }
        self.store.append(append, done);
    }

    fn create(&self, new: NewRun, first: NewFrame) -> StoreFuture<'_, Created> {
        if self.broken.load(Ordering::SeqCst) {
            return std::future::ready(Err(broken())).boxed();
        }
        self.store.create(new, first)
    }

    fn put_inbox(&self, run: RunId, commands: Vec<NewCommand>) -> StoreFuture<'_, PutAll> {
        if self.broken.load(Ordering::SeqCst) {
            return std::future::ready(Err(broken())).boxed();
        }
        self.store.put_inbox(run, commands)
    }

    wellspring_log::forward_store!(store);
}

/// What a stream sends until some text appears.
async fn until(response: Response, text: &str) -> (String, impl Future<Output = String>) {
    let mut body = response.bytes_stream();
    let mut seen = String::new();
    while !seen.contains(text) {
        seen.push_str(std::str::from_utf8(&body.next().await.unwrap().unwrap()).unwrap());
    }
    let rest = async move {
        let mut rest = String::new();
        while let Some(chunk) = body.next().await {
            rest.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
        }
        rest
    };
    (seen, rest)
}

/// The run stops, every wire reports the error in its own format, and nothing that was not stored
/// is shown. Once the store is repaired, the run continues.
#[tokio::test]
async fn a_failing_sync_is_said_and_the_run_goes_on_after_repair() {
    let store = Failing::new();
    let log = Log::new(Arc::clone(&store) as Arc<dyn Store>, LogOptions::default());
    let gate = Gate::new();
    let def = agent([Say::new().text("one ").gate(&gate).text("two")], []);
    let kit = Kit::with(config(), Runtime::new(log), def).await;
    let run = kit.start().await;
    gate.reached(1).await;
    let watch = async |dialect: &str, after: &str| {
        let path = format!("/v1/runs/{run}/events?dialect={dialect}");
        kit.get(&path).header("last-event-id", after).send().await.unwrap()
    };
    let mut open = Vec::new();
    for dialect in ["record", "ag_ui", "agent_event"] {
        open.push((dialect, until(watch(dialect, "0").await, "one").await));
    }
    store.broken.store(true, Ordering::SeqCst);
    gate.open();
    let mut told = String::new();
    let mut kept: Vec<SseEvent> = Vec::new();
    for (dialect, (seen, rest)) in open {
        let text = seen + &rest.await;
        if dialect == "ag_ui" {
            verify_ag_ui(&text, &json!([]));
        }
        let events = parse_sse(&text);
        assert!(!events.iter().any(|event| event.data.contains("two")), "{events:?}");
        let (last, shown) = events.split_last().unwrap();
        assert_eq!(last.id, None);
        told.push_str(&format!("{dialect}: {:?} {}\n", last.name, last.data));
        if dialect == "record" {
            kept = shown.to_vec();
        }
    }
    insta::assert_snapshot!(told, @r#"
    record: Some("closed") {"error":{"code":"store","message":"the store failed","remedy":"try again; the server's log says more"}}
    ag_ui: None {"type":"RUN_ERROR","message":"the store failed; try again; the server's log says more","code":"store"}
    agent_event: None {"type":"error","error":"the store failed; try again; the server's log says more"}
    "#);
    let new = json!({ "agent": "agent", "input": "go" });
    assert_eq!(kit.post("/v1/runs", &new).send().await.unwrap().status(), 503);
    store.broken.store(false, Ordering::SeqCst);
    // A client that reconnects until the run has ended gets all of it; nothing else is needed.
    let mut over = false;
    while !over {
        let after = kept.last().unwrap().id.clone().unwrap();
        let more = parse_sse(&watch("record", &after).await.text().await.unwrap());
        kept.extend(more.into_iter().filter(|event| event.id.is_some()));
        over = kept.last().unwrap().data.contains("run_finished");
    }
    let another = kit.start().await;
    kit.wait(another).await;
    let records: Vec<Record> =
        kept.iter().map(|event| serde_json::from_str(&event.data).unwrap()).collect();
    Checker::check(&records).unwrap();
    assert!(records.iter().any(|it| matches!(it.event, Event::RunAdopted { .. })));
    let transcript = kit.runtime.log().transcript(run).await.unwrap();
    assert_eq!(transcript.answer(wellspring_core::AgentNo::ROOT), "one two");
}

/// Every request that cannot be stored is refused with a `Retry-After`, and has no effect.
#[tokio::test]
async fn a_request_that_cannot_be_kept_is_told_when_to_come_back() {
    let store = Failing::new();
    let log = Log::new(Arc::clone(&store) as Arc<dyn Store>, LogOptions::default());
    let turns = [Say::new().call("echo", json!({ "say": "x" })), Say::new().text("Done.")];
    let mut def = agent(turns, [echo()]);
    def.policy = Policy::default().rule(Rule::tool("*").decide(Approval::Ask));
    let kit = Kit::with(config(), Runtime::new(log), def).await;
    let run = kit.start().await;
    kit.paused(run).await;
    let ag_ui = json!({
        "threadId": "t", "runId": "r", "messages": [{ "id": "m", "role": "user", "content": "go" }],
    });
    let ask = async |path: &str, body: &serde_json::Value| {
        let request = kit.post(&path.replace("{run}", &run.to_string()), body);
        let (status, headers, body) = parts(request.send().await.unwrap()).await;
        let retry = headers.get("retry-after").map(|it| it.to_str().unwrap().to_owned());
        format!("{path}: {status} {} {retry:?}\n", body["error"]["code"])
    };
    let asked = [
        ("/v1/runs", json!({ "agent": "agent", "input": "go" })),
        ("/ag-ui/agent", ag_ui),
        ("/v1/runs/{run}/input", json!({ "content": "more" })),
        ("/v1/runs/{run}/cancel", json!({})),
        ("/v1/runs/{run}/answers", json!({ "question": 0, "answer": { "approve": {} } })),
    ];
    store.broken.store(true, Ordering::SeqCst);
    let mut told = String::new();
    for (path, body) in &asked {
        told.push_str(&ask(path, body).await);
    }
    insta::assert_snapshot!(told, @r#"
    /v1/runs: 503 "store" Some("5")
    /ag-ui/agent: 503 "store" Some("5")
    /v1/runs/{run}/input: 503 "store" Some("5")
    /v1/runs/{run}/cancel: 503 "store" Some("5")
    /v1/runs/{run}/answers: 503 "store" Some("5")
    "#);
    store.broken.store(false, Ordering::SeqCst);
    let (path, approve) = asked.last().unwrap();
    assert!(ask(path, approve).await.contains("202"));
    let transcript = kit.wait(run).await;
    assert_eq!(transcript.answer(wellspring_core::AgentNo::ROOT), "Done.");
}

/// Another program holds the lock of the store's file: the server is not ready, reports it in time,
/// starts no run, and is ready again once the lock is released. Stored runs can be read in the
/// meantime.
#[tokio::test]
async fn a_server_whose_store_is_locked_is_not_ready() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    let log = Log::new(Arc::new(store), LogOptions::default());
    let def = agent([Say::new().text("one")], []);
    let kit = Kit::with(config(), Runtime::new(log), def).await;
    let run = kit.start().await;
    kit.wait(run).await;
    let status = async |path: &str| kit.get(path).send().await.unwrap().status().as_u16();
    assert_eq!(status("/readyz").await, 200);
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let new = json!({ "agent": "agent", "input": "go" });
    let asked = async || {
        let (ready, read) = (status("/readyz").await, status(&format!("/v1/runs/{run}")).await);
        let started = kit.post("/v1/runs", &new).send().await.unwrap().status().as_u16();
        (ready, read, started)
    };
    // Four times the documented limit, for each of the two requests that have to wait.
    let told = tokio::time::timeout(Duration::from_secs(40), asked()).await;
    assert_eq!(told.unwrap(), (503, 200, 503));
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(status("/readyz").await, 200);
    let another = kit.start().await;
    kit.wait(another).await;
}
