//! Every maximum is reached.

use serde_json::{Value, json};
use uuid::Uuid;
use wellspring_acp::agent::{
    DIRECTORIES_MAX, LIST_SCANNED_MAX, PENDING_MAX, REPLAY_RUNS_MAX, REQUESTS_MAX, SERVERS_MAX,
    SESSIONS_MAX,
};
use wellspring_acp::client::SESSIONS_KEPT_MAX;
use wellspring_core::{AgentNo, Event, Outcome, RunId, RunRequest, RunStarted, Stop, ThreadId};
use wellspring_engine::{DEFAULT_TENANT, Runtime};
use wellspring_models::Say;

use crate::client::{Client, agent, runtime};
use crate::proxy::{asked_of, behind};

#[tokio::test]
async fn sessions_and_servers() {
    let runtime = runtime([agent("a", [Say::new().text("Yes.")], [])]);
    let mut client = Client::ready(&runtime, "a", json!({})).await;
    let mut last = String::new();
    for _ in 0..SESSIONS_MAX {
        last = client.session().await;
    }
    let new = json!({"cwd": "/", "mcpServers": []});
    let refused = client.call("session/new", new.clone()).await.unwrap_err();
    assert_eq!(refused["message"], "256 sessions are open; close one first");
    client.call("session/close", json!({"sessionId": last})).await.unwrap();
    client.call("session/new", new).await.unwrap();

    let server = json!({"name": "s", "command": "true", "args": [], "env": []});
    let servers: Vec<Value> = vec![server; SERVERS_MAX + 1];
    let refused = client.call("session/new", json!({"cwd": "/", "mcpServers": servers})).await;
    assert_eq!(refused.unwrap_err()["message"], "33 MCP servers are more than 32");

    let directories = vec!["/srv"; DIRECTORIES_MAX + 1];
    let params = json!({"cwd": "/", "mcpServers": [], "additionalDirectories": directories});
    let refused = client.call("session/new", params).await;
    assert_eq!(
        refused.unwrap_err()["message"],
        "65 additional directories exceed the maximum of 64"
    );
}

/// A finished run, created without an engine.
async fn finished(runtime: &Runtime, thread: ThreadId, after: Option<RunId>, asked: &str) -> RunId {
    run(runtime, thread, after, asked, None).await
}

async fn run(
    runtime: &Runtime,
    thread: ThreadId,
    after: Option<RunId>,
    asked: &str,
    event: Option<Event>,
) -> RunId {
    let run = RunId::new(Uuid::now_v7());
    let request = RunRequest::text(asked);
    let started = RunStarted { run, thread, agent: "a".into(), after, request };
    let owner = runtime.log().create(DEFAULT_TENANT, started).await.unwrap();
    let outcome = Box::new(Outcome::Completed { stop: Stop::EndTurn });
    if let Some(event) = event {
        owner.push(AgentNo::ROOT, event);
    }
    owner.push(AgentNo::ROOT, Event::RunFinished { outcome });
    owner.commit().await.unwrap();
    run
}

#[tokio::test]
async fn runs_that_are_replayed() {
    let runtime = runtime([agent("a", [], [])]);
    let thread = ThreadId::new(Uuid::now_v7());
    let mut last = None;
    for number in 0..=REPLAY_RUNS_MAX {
        last = Some(finished(&runtime, thread, last, &number.to_string()).await);
    }
    let mut client = Client::ready(&runtime, "a", json!({})).await;
    client.heard.clear();
    let params = json!({"sessionId": thread.to_string(), "cwd": "/", "mcpServers": []});
    client.call("session/load", params).await.unwrap();
    let asked =
        client.heard.iter().filter_map(|it| it["params"]["update"]["content"]["text"].as_str());
    let want: Vec<String> = (1..=REPLAY_RUNS_MAX).map(|number| number.to_string()).collect();
    assert_eq!(asked.collect::<Vec<_>>(), want);
}

#[tokio::test]
async fn runs_that_are_looked_at_for_a_list() {
    let runtime = runtime([agent("a", [], [])]);
    for _ in 0..=LIST_SCANNED_MAX {
        finished(&runtime, ThreadId::new(Uuid::now_v7()), None, "No directory").await;
    }
    let mut client = Client::ready(&runtime, "a", json!({})).await;
    let page = client.call("session/list", json!({})).await.unwrap();
    assert_eq!(page["sessions"], json!([]));
    let next = client.call("session/list", json!({"cursor": page["nextCursor"]})).await.unwrap();
    assert_eq!(next, json!({"sessions": []}));
}

#[tokio::test]
async fn requests_at_work() {
    let runtime = runtime([agent("stuck", [Say::new().hang()], [])]);
    let mut client = Client::ready(&runtime, "stuck", json!({})).await;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS_MAX {
        sessions.push(client.session().await);
    }
    let mut first = None;
    for session in sessions.iter().take(REQUESTS_MAX) {
        let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "Go"}]});
        let id = client.send("session/prompt", prompt).await;
        first.get_or_insert(id);
    }
    let refused = client.call("session/list", json!({})).await.unwrap_err();
    assert_eq!(refused["message"], "256 requests are being worked on; wait for one to end");
    // Cancelling is always possible.
    client.notify("session/cancel", json!({"sessionId": sessions[0]})).await;
    assert_eq!(client.result(first.unwrap()).await.unwrap()["stopReason"], "cancelled");
    assert!(client.call("session/list", json!({})).await.is_ok());
}

/// The maximum number of a proxied agent's sessions that wait for their first prompt. Beyond it the
/// oldest is closed, and opened again when it is prompted.
#[tokio::test]
async fn sessions_that_wait_for_their_first_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("heard").display().to_string();
    let script = json!({"record": record, "prompts": [[{"text": "Hi."}]]});
    let runtime = behind(&script);
    let mut client = Client::ready(&runtime, "behind", json!({})).await;
    let mut sessions = Vec::new();
    for _ in 0..=SESSIONS_KEPT_MAX {
        let new = json!({"cwd": folder.path(), "mcpServers": []});
        let opened = client.call("session/new", new).await.unwrap();
        sessions.push(opened["sessionId"].as_str().unwrap().to_owned());
    }
    let opened = || asked_of(&record).iter().filter(|it| it.starts_with("session/new")).count();
    client.prompt(&sessions[1], "go").await.unwrap();
    assert_eq!(opened(), SESSIONS_KEPT_MAX + 1);
    client.prompt(&sessions[0], "go").await.unwrap();
    assert_eq!(opened(), SESSIONS_KEPT_MAX + 2);
    // A session that is closed before its first prompt is forgotten.
    client.call("session/close", json!({"sessionId": sessions[2]})).await.unwrap();
}

/// The agent's session is searched in a limited number of runs of its thread.
#[tokio::test]
async fn runs_that_are_looked_at_for_a_session() {
    const RUNS_LOOKED_AT_MAX: usize = 50;
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("heard").display().to_string();
    let capabilities = json!({"sessionCapabilities": {"resume": {}}});
    let script = json!({"record": record, "capabilities": capabilities, "prompts": []});
    let runtime = behind(&script);
    for (others, method) in
        [(RUNS_LOOKED_AT_MAX - 1, "session/resume"), (RUNS_LOOKED_AT_MAX, "session/new")]
    {
        let thread = ThreadId::new(Uuid::now_v7());
        let handle = json!({"session": "earlier", "run": Uuid::nil().to_string()});
        let attached = Event::Attached { origin: "behind".into(), handle: Box::new(handle) };
        let mut last = run(&runtime, thread, None, "One", Some(attached)).await;
        for _ in 0..others {
            last = finished(&runtime, thread, Some(last), "Another").await;
        }
        let mut client = Client::ready(&runtime, "behind", json!({})).await;
        let load = json!({"sessionId": thread.to_string(), "cwd": folder.path(), "mcpServers": []});
        client.call("session/resume", load).await.unwrap();
        let asked = asked_of(&record);
        assert!(asked.last().unwrap().starts_with(method), "{others} {asked:?}");
    }
}

/// A client with too many pending requests: further questions are denied.
#[tokio::test]
async fn answers_owed() {
    let mut say = Say::new();
    for _ in 0..=PENDING_MAX {
        say = say.call("read_file", json!({"path": "a"}));
    }
    let mut def = agent("reader", [say, Say::new().text("Done.")], []);
    def.limits.tools_at_once = PENDING_MAX + 1;
    let runtime = runtime([def]);
    let offered = json!({"fs": {"readTextFile": true}});
    let client = Client::ready(&runtime, "reader", offered).await;
    let mut client = client.answer(|_, _| Ok(Value::Null));
    let session = client.session().await;
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "Go"}]});
    client.send("session/prompt", prompt).await;
    let refused = client.until(|it| it["params"]["update"]["status"] == "failed").await;
    let told = refused["params"]["update"]["rawOutput"].as_str().unwrap();
    assert!(told.contains("owes 1024 answers"), "{told}");
}
