//! Limits, and that no client exceeds them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::sync::Semaphore;
use wellspring_core::{Approval, FailureKind, Outcome, RunId};
use wellspring_engine::Permission;
use wellspring_engine::{AgentDef, Policy, Rule, Runtime};
use wellspring_log::{
    Append, AppendDone, Created, Log, LogOptions, MemoryStore, NewCommand, NewFrame, NewRun,
    PutAll, RunFilter, Store, StoreFuture,
};
use wellspring_models::{Gate, Say};
use wellspring_server::{ServerConfig, ServerLimits, Tokens};

use crate::access::two_tenants;
use crate::kit::{Kit, agent, config, echo, parts};

/// Each limit, reached.
#[tokio::test]
async fn beyond_a_limit_one_is_told_when_to_come_back() {
    let limits = ServerLimits {
        body_bytes: 1000,
        runs_per_token: 2,
        streams_per_token: 2,
        requests_per_token: 1000,
        ..ServerLimits::default()
    };
    let gate = Gate::new();
    let runtime = Runtime::new(Log::in_memory());
    let tokens = Tokens::new(runtime.log().store().clone());
    let secret = tokens.create("mine", "one", &[Permission::Admin]).await.unwrap();
    let def = agent([Say::new().gate(&gate).text("Hello.")], [echo()]);
    let mut kit = Kit::with(ServerConfig { limits, ..config() }, runtime, def).await;
    kit.token = Some(secret);
    let start = async |input: &str| {
        let body = json!({ "agent": "agent", "input": input });
        let (status, headers, body) =
            parts(kit.post("/v1/runs", &body).send().await.unwrap()).await;
        let retry = headers.get("retry-after").map(|it| it.to_str().unwrap().to_owned());
        (status, body["error"]["code"].as_str().unwrap_or_default().to_owned(), retry)
    };
    assert_eq!(start(&"x".repeat(1000)).await, (413, "too_large".into(), None));
    let run = kit.start().await;
    assert_eq!(start("go").await.0, 201);
    assert_eq!(start("go").await, (429, "too_many_runs".into(), Some("5".into())));
    let path = format!("/v1/runs/{run}/events");
    let open = [kit.get(&path).send().await.unwrap(), kit.get(&path).send().await.unwrap()];
    let (status, headers, body) = parts(kit.get(&path).send().await.unwrap()).await;
    assert_eq!((status, body["error"]["code"].as_str()), (429, Some("too_many_streams")));
    assert!(headers.contains_key("retry-after"));
    gate.open();
    for response in open {
        assert!(response.text().await.unwrap().contains("run_finished"));
    }
    // Finished runs and streams no longer count.
    kit.wait(run).await;
    assert!(kit.get(&path).send().await.unwrap().text().await.unwrap().contains("run_finished"));
}

/// Unread responses and incomplete requests count until the client completes them or disconnects,
/// in every form.
#[tokio::test]
async fn what_requests_hold_has_a_limit() {
    const RUN_BYTES: usize = 1 << 20;
    const LIMIT: usize = 5 * RUN_BYTES / 2;
    let limits =
        ServerLimits { held_bytes: LIMIT, body_bytes: 2 * LIMIT, ..ServerLimits::default() };
    let piece = "0123456789abcdef".repeat(64);
    let long = (0..RUN_BYTES / piece.len()).fold(Say::new(), |say, _| say.text(&piece));
    let config = ServerConfig { limits, ..config() };
    let kit = Kit::with(config, Runtime::new(Log::in_memory()), agent([long], [])).await;
    let run = kit.start().await;
    kit.wait(run).await;
    let address = kit.server.address();
    let connect = async |request: &str| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(8 * 1024).unwrap();
        let mut connection = socket.connect(address).await.unwrap();
        connection.write_all(request.as_bytes()).await.unwrap();
        connection
    };
    let whole = format!("/v1/runs/{run}");
    let refused = async || {
        let (status, headers, said) = parts(kit.get(&whole).send().await.unwrap()).await;
        let code = said["error"]["code"].as_str().map(str::to_owned);
        (status, code, headers.contains_key("retry-after"))
    };
    let too_much = (503, Some("too_much_at_once".to_owned()), true);
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    for request in [get(&whole), get(&format!("/ag-ui/agent/runs/{run}"))] {
        let mut unread = Vec::new();
        let status = loop {
            let mut connection = connect(&request).await;
            let mut status = [0; 12];
            connection.read_exact(&mut status).await.unwrap();
            if &status != b"HTTP/1.1 200" {
                break status;
            }
            unread.push(connection);
            assert!(
                unread.len() <= LIMIT / RUN_BYTES,
                "more was taken on than the limit: {request}"
            );
        };
        assert_eq!((&status, unread.is_empty()), (b"HTTP/1.1 503", false), "{request}");
        assert_eq!(refused().await, too_much, "{request}");
        drop(unread);
        // The server learns from its next write that the client is gone.
        while refused().await == too_much {}
        assert_eq!(refused().await.0, 200);
    }
    let post = format!(
        "POST /v1/runs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        2 * LIMIT
    );
    let mut unsent = connect(&post).await;
    unsent.write_all(&vec![b' '; LIMIT - RUN_BYTES / 2]).await.unwrap();
    // The server reads the request concurrently.
    while refused().await.0 == 200 {}
    assert_eq!(refused().await, too_much);
    drop(unsent);
    while refused().await == too_much {}
}

/// A store that delays the start of runs until the test lets it continue.
struct Slow {
    store: MemoryStore,
    waiting: AtomicUsize,
    released: Semaphore,
}

impl Store for Slow {
    fn create(&self, new: NewRun, first: NewFrame) -> StoreFuture<'_, Created> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        async move {
            // A closed semaphore lets everything through.
            let _ = self.released.acquire().await;
            self.store.create(new, first).await
        }
        .boxed()
    }

    fn append(&self, append: Append, done: AppendDone) {
        self.store.append(append, done);
    }

    fn put_inbox(&self, run: RunId, commands: Vec<NewCommand>) -> StoreFuture<'_, PutAll> {
        self.store.put_inbox(run, commands)
    }

    wellspring_log::forward_store!(store);
}

/// A limit holds for concurrent requests, and a run counts again once it was answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_cannot_be_overrun() {
    let limits =
        ServerLimits { runs_per_token: 2, requests_per_token: 1000, ..ServerLimits::default() };
    let gate = Gate::new();
    let (store, waiting) = (MemoryStore::default(), AtomicUsize::new(0));
    let store = Arc::new(Slow { store, waiting, released: Semaphore::new(0) });
    let log = Log::new(Arc::clone(&store) as Arc<dyn Store>, LogOptions::default());
    let runtime = Runtime::new(log);
    let tokens = Tokens::new(runtime.log().store().clone());
    let secret = tokens.create("mine", "one", &[Permission::Admin]).await.unwrap();
    let turns = [Say::new().call("echo", json!({ "say": "x" })), Say::new().gate(&gate)];
    let mut def = agent(turns, [echo()]);
    def.policy = Policy::default().rule(Rule::tool("*").decide(Approval::Ask));
    let mut kit = Kit::with(ServerConfig { limits, ..config() }, runtime, def).await;
    kit.token = Some(secret);
    let hold = Gate::new();
    kit.runtime.register(AgentDef {
        name: "held".into(),
        ..agent([Say::new().gate(&hold).text("Hello.")], [])
    });
    let refused = AtomicUsize::new(0);
    let count = |status: u16| {
        refused.fetch_add(usize::from(status == 429), Ordering::SeqCst);
        status
    };
    let start = async |agent: &str| {
        let body = json!({ "agent": agent, "input": "go" });
        count(parts(kit.post("/v1/runs", &body).send().await.unwrap()).await.0)
    };
    let ag_ui = async |name: usize| {
        let body = json!({
            // Without a key, requests do not wait for each other.
            "threadId": "", "runId": name.to_string(),
            "messages": [{ "id": "m", "role": "user", "content": "go" }],
        });
        count(kit.post("/ag-ui/held", &body).send().await.unwrap().status().as_u16())
    };
    let native = futures::future::join_all((0..20).map(|_| start("held")));
    let foreign = futures::future::join_all((0..20).map(ag_ui));
    // No run has started before all requests were sent.
    let released = async {
        let decided = || store.waiting.load(Ordering::SeqCst) + refused.load(Ordering::SeqCst);
        let all = async {
            while decided() < 40 {
                tokio::task::yield_now().await;
            }
        };
        // If too many are admitted, some wait for each other; the check below would see it.
        let _ = tokio::time::timeout(Duration::from_secs(10), all).await;
        store.released.close();
    };
    let (native, foreign, ()) = futures::join!(native, foreign, released);
    let begun = native.iter().chain(&foreign).filter(|status| **status < 300).count();
    assert_eq!((begun, refused.load(Ordering::SeqCst)), (2, 38));
    hold.open();
    for info in kit.runtime.log().store().list(RunFilter::default()).await.unwrap() {
        kit.wait(info.run).await;
    }
    // Runs that wait for an answer do not count; runs that got one do.
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let run = kit.start().await;
        kit.paused(run).await;
        // Readers see the pause slightly before the run stops counting.
        while kit.runtime.is_live(run) {
            tokio::task::yield_now().await;
        }
        waiting.push(run);
    }
    for run in waiting {
        let body = json!({ "question": 0, "answer": { "approve": {} } });
        let path = format!("/v1/runs/{run}/answers");
        assert_eq!(kit.post(&path, &body).send().await.unwrap().status(), 202);
    }
    gate.reached(2).await;
    assert_eq!(start("agent").await, 429);
    gate.open();
}

/// A run that another server started counts for its principal on the server that continues it.
#[tokio::test]
async fn a_run_that_was_taken_over_counts() {
    let limits = ServerLimits { runs_per_token: 1, ..ServerLimits::default() };
    let gate = Gate::new();
    let def = agent([Say::new().text("one ").gate(&gate).text("two")], []);
    let store = MemoryStore::default();
    let log = |store: MemoryStore| Log::new(Arc::new(store), LogOptions::default());
    let tokens = Tokens::new(Arc::new(store.reopen()));
    let secret = tokens.create("mine", "one", &[Permission::Admin]).await.unwrap();
    let config = ServerConfig { limits, ..config() };
    let mut first = Kit::with(config.clone(), Runtime::new(log(store.reopen())), def.clone()).await;
    first.token = Some(secret.clone());
    let run = first.start().await;
    gate.reached(1).await;
    first.server.stop().await;
    let mut second = Kit::with(config, Runtime::new(log(store)), def).await;
    second.token = Some(secret);
    gate.reached(2).await;
    let one_more = json!({ "agent": "agent", "input": "go" });
    let (status, _, body) = parts(second.post("/v1/runs", &one_more).send().await.unwrap()).await;
    assert_eq!((status, &body["error"]["code"]), (429, &json!("too_many_runs")));
    gate.open();
    second.wait(run).await;
    second.start().await;
}

/// A page that waits counts as a stream, and a signed URL counts for the token that signed it.
#[tokio::test]
async fn what_is_held_open_or_signed_is_counted_too() {
    let limits =
        ServerLimits { streams_per_token: 1, requests_per_token: 2, ..ServerLimits::default() };
    let (kit, _) = two_tenants(ServerConfig { limits, ..config() }).await;
    let run = kit.start().await;
    kit.paused(run).await;
    let path = format!("/v1/runs/{run}/events");
    let stream = kit.get(&path).send().await.unwrap();
    assert_eq!(stream.status(), 200);
    let sign = kit.post(&format!("{path}/../stream-url"), &json!({}));
    let (_, _, signed) = parts(sign.send().await.unwrap()).await;
    let url = signed["url"].as_str().unwrap();
    let ask = async |url: &str| {
        let request = kit.client.get(kit.url(url)).header("accept", "application/json");
        let (status, headers, body) = parts(request.send().await.unwrap()).await;
        let retry = headers.contains_key("retry-after");
        (status, body["error"]["code"].as_str().unwrap_or_default().to_owned(), retry)
    };
    let waits = format!("{url}&wait=60");
    assert_eq!(ask(&waits).await, (429, "too_many_streams".into(), true));
    let mut codes = Vec::new();
    for _ in 0..4 {
        codes.push(ask(url).await.1);
    }
    assert_eq!(codes.last().unwrap(), "too_often", "{codes:?}");
    drop(stream);
}

/// The limits of all principals together.
#[tokio::test]
async fn beyond_the_limits_of_all_one_is_told_when_to_come_back() {
    let limits = ServerLimits { runs: 1, streams: 1, ..ServerLimits::default() };
    let gate = Gate::new();
    let def = agent([Say::new().gate(&gate).text("Hello.")], []);
    let runtime = Runtime::new(Log::in_memory());
    let kit = Kit::with(ServerConfig { limits, ..config() }, runtime, def).await;
    let refused = async |request: reqwest::RequestBuilder| {
        let (status, headers, body) = parts(request.send().await.unwrap()).await;
        let retry = headers.get("retry-after").map(|it| it.to_str().unwrap().to_owned());
        (status, body["error"]["code"].as_str().unwrap_or_default().to_owned(), retry)
    };
    let full = |code: &str| (503, code.to_owned(), Some("5".to_owned()));
    let run = kit.start().await;
    let one_more = json!({ "agent": "agent", "input": "go" });
    assert_eq!(refused(kit.post("/v1/runs", &one_more)).await, full("too_many_runs"));
    let ag_ui = json!({
        "threadId": "t", "runId": "r", "messages": [{ "id": "m", "role": "user", "content": "go" }],
    });
    assert_eq!(refused(kit.post("/ag-ui/agent", &ag_ui)).await, full("too_many_runs"));
    let path = format!("/v1/runs/{run}/events");
    let open = kit.get(&path).send().await.unwrap();
    assert_eq!(refused(kit.get(&path)).await, full("too_many_streams"));
    gate.open();
    assert!(open.text().await.unwrap().contains("run_finished"));
    kit.wait(run).await;
    assert!(kit.get(&path).send().await.unwrap().text().await.unwrap().contains("run_finished"));
}

/// The server's limit applies to every agent, also to agents that were registered later.
#[tokio::test]
async fn no_run_takes_longer_than_the_server_allows() {
    let run_time = Duration::from_millis(20);
    let limits = ServerLimits { run_time, ..ServerLimits::default() };
    let runtime = Runtime::new(Log::in_memory());
    let config = ServerConfig { limits, ..config() };
    let kit = Kit::with(config, runtime, agent([], [])).await;
    kit.runtime.register(agent([Say::new().text("one ").hang()], []));
    let run = kit.start().await;
    let transcript = kit.wait(run).await;
    assert_eq!(
        transcript.outcome,
        Some(Outcome::Failed {
            kind: FailureKind::TimedOut,
            message: "the run took longer than 0.02 s".into(),
            retryable: true,
        })
    );
}

#[tokio::test]
async fn asking_too_often_is_refused() {
    let limits = ServerLimits { requests_per_token: 1, ..ServerLimits::default() };
    let (kit, _) = two_tenants(ServerConfig { limits, ..config() }).await;
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let response = kit.get("/v1/runs").send().await.unwrap();
        statuses.push((response.status().as_u16(), response.headers().contains_key("retry-after")));
    }
    assert_eq!(statuses, [(200, false), (200, false), (429, true)]);
}
