//! Properties of every wire: other tenants' ids are not found, and calls in the client expire.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use wellspring_core::{AgentNo, InboxNo, RunId, ToolOutcome};
use wellspring_models::Say;

use crate::access::two_tenants;
use crate::ag_ui::{input, user};
use crate::kit::{Kit, agent, config, parse_sse, parts};
use crate::socket::{Socket, started};
use crate::use_ai::{run_agent, until};

/// A client of Socket.IO that polls.
struct Polling<'a> {
    kit: &'a Kit,
    session: String,
}

impl<'a> Polling<'a> {
    const BEGIN: &'static str = "/socket.io/?EIO=4&transport=polling";

    async fn open(kit: &'a Kit) -> Self {
        let hello = kit.get(Self::BEGIN).send().await.unwrap().text().await.unwrap();
        let hello: Value = serde_json::from_str(hello.strip_prefix('0').unwrap()).unwrap();
        let polling = Self { kit, session: hello["sid"].as_str().unwrap().to_owned() };
        polling.push("40").await;
        polling.poll("\"config\"").await;
        polling
    }

    fn path(&self) -> String {
        format!("{}&sid={}", Self::BEGIN, self.session)
    }

    async fn push(&self, packet: &str) {
        let request = self.kit.request(Method::POST, &self.path()).body(packet.to_owned());
        assert_eq!(request.send().await.unwrap().text().await.unwrap(), "ok");
    }

    /// Polls until a packet contains `what`, and returns it.
    async fn poll(&self, what: &str) -> String {
        let mut all = String::new();
        while !all.contains(what) {
            let response = self.kit.get(&self.path()).send().await.unwrap();
            let (status, text) = (response.status(), response.text().await.unwrap());
            assert_eq!(status, 200, "{what}: {text} after {all}");
            all.push_str(&text);
        }
        all
    }

    async fn ask(&self, message: &Value, what: &str) -> String {
        self.push(&packet(message)).await;
        self.poll(what).await
    }
}

/// A use-ai message as a Socket.IO packet.
fn packet(message: &Value) -> String {
    format!("42{}", json!(["message", message]))
}

/// use-ai requests about a run and one of its calls.
fn use_ai_requests(run: &str, call: &str) -> [Value; 5] {
    [
        json!({"type": "abort_run", "data": {"runId": run}}),
        json!({"type": "abort_run", "data": {"runId": "mine"}}),
        json!({"type": "tool_result", "data": {"toolCallId": call, "content": "1"}}),
        json!({"type": "tool_approval_response", "data": {"toolCallId": call, "approved": true}}),
        json!({"type": "message_feedback", "data": {"messageId": call, "feedback": "upvote"}}),
    ]
}

#[tokio::test]
async fn another_tenants_ids_mean_nothing_on_every_wire() {
    let (kit, secrets) = two_tenants(config()).await;
    ids_mean_nothing(kit, secrets).await;
    let (kit, secrets) = two_tenants(config()).await;
    ids_mean_nothing(kit.mounted().await, secrets).await;
}

/// Starts a run over use-ai and another over the AI SDK, which wait for approvals. Then sends every
/// request about them with another tenant's token.
async fn ids_mean_nothing(mut kit: Kit, [mine, other]: [String; 2]) {
    let mut socket = Socket::open(&kit, "/use-ai").await.unwrap();
    socket.send(&run_agent("agent", "mine", &json!({}))).await;
    let events = until(&mut socket, "TOOL_APPROVAL_REQUEST").await;
    let call = events.last().unwrap()["toolCallId"].as_str().unwrap().to_owned();
    let run: RunId = call.rsplit_once('-').unwrap().0.parse().unwrap();
    kit.paused(run).await;
    let thread = kit.runtime.log().store().info(run).await.unwrap().unwrap().thread;
    let body = json!({ "id": "chat", "messages": [said("m")], "trigger": "submit-message" });
    let chat = kit.post("/ai-sdk/agent", &body).send().await.unwrap().text().await.unwrap();
    let chat_run = run_of(&chat);
    let mut before = Vec::new();
    for run in [run, chat_run] {
        before.push(kit.runtime.log().transcript(run).await.unwrap());
    }
    let my_session = Polling::open(&kit).await.session;

    kit.token = Some(other);
    native_socket_refuses(&kit, run, &thread.to_string()).await;
    ai_sdk_refuses(&kit, chat_run).await;
    let mut socket = Socket::open(&kit, "/use-ai").await.unwrap();
    until(&mut socket, "CUSTOM").await;
    socket.next().await.unwrap();
    let polling = Polling::open(&kit).await;
    let mut socket_io = Socket::open(&kit, "/socket.io/?EIO=4&transport=websocket").await.unwrap();
    socket_io.send_text("40").await;
    while !socket_io.receive_text().await.unwrap().contains("\"config\"") {}
    for message in use_ai_requests(&run.to_string(), &call) {
        socket.send(&message).await;
        let said = socket.next().await.unwrap();
        assert_eq!(said["code"], "no_run", "{message}: {said}");
        let said = polling.ask(&message, "\"code\"").await;
        assert!(said.contains(r#""code":"no_run""#), "{message}: {said}");
        socket_io.send_text(&packet(&message)).await;
        let said = socket_io.receive_text().await.unwrap();
        assert!(said.contains(r#""code":"no_run""#), "{message}: {said}");
    }
    // Another principal cannot use a session's id, on any transport.
    let theirs = Polling { kit: &kit, session: my_session.clone() };
    for (method, body) in [(Method::GET, ""), (Method::POST, "40")] {
        let request = kit.request(method, &theirs.path()).body(body);
        let (status, _, said) = parts(request.send().await.unwrap()).await;
        assert_eq!((status, &said["error"]["code"]), (400, &json!("unknown_session")), "{said}");
    }

    kit.token = Some(mine);
    let owner = Polling { kit: &kit, session: my_session };
    assert_eq!(
        owner.ask(&json!({"type": "nonsense"}), "bad_message").await.matches("42").count(),
        1
    );
    for (run, before) in [run, chat_run].into_iter().zip(before) {
        assert_eq!(kit.runtime.log().transcript(run).await.unwrap(), before, "nothing happened");
        let inbox = kit.runtime.log().store().inbox(run, InboxNo(0)).await.unwrap();
        assert!(inbox.is_empty(), "{inbox:?}");
    }
}

async fn native_socket_refuses(kit: &Kit, run: RunId, thread: &str) {
    let mut socket = Socket::open(kit, "/v1/socket").await.unwrap();
    let start = json!({"type": "start", "agent": "agent", "input": "go"});
    for (mut message, code) in [
        (json!({"type": "subscribe", "run": run}), "no_run"),
        (json!({"type": "cancel", "run": run}), "no_run"),
        (json!({"type": "answer", "run": run, "question": 0, "answer": {"approve": {}}}), "no_run"),
        (json!({"type": "tool_result", "run": run, "call": 0, "output": "x"}), "no_run"),
        (json!({"type": "input", "run": run, "content": "more"}), "no_run"),
        (with(&start, "thread", thread), "no_thread"),
        (with(&start, "after", &run.to_string()), "no_run"),
    ] {
        message["id"] = json!("1");
        let answer = socket.ask(&message).await;
        assert_eq!((&answer["type"], &answer["error"]["code"]), (&json!("error"), &json!(code)));
    }
}

/// For the other tenant, the same chat id names a chat without runs.
async fn ai_sdk_refuses(kit: &Kit, run: RunId) {
    let answer = json!({ "id": run, "role": "assistant", "parts": [{
        "type": "tool-echo", "toolCallId": format!("{run}-0"), "state": "approval-responded",
        "approval": { "id": format!("{run}-question-0"), "approved": true },
    }] });
    let answers = json!({ "id": "chat", "messages": [said("m"), answer] });
    // Regenerates the answer that follows this run.
    let branch = json!({
        "id": "chat", "trigger": "regenerate-message",
        "messages": [said("m"), { "id": run, "role": "assistant", "parts": [] }, said("n")],
    });
    let idle = kit.get("/ai-sdk/agent/chat/stream").send().await.unwrap();
    assert_eq!(idle.status(), 204);
    let stop = kit.post("/ai-sdk/agent/chat/stop", &json!({})).send().await.unwrap();
    assert_eq!(parts(stop).await.2, json!({ "stopped": false }));
    let mut socket = Socket::open(kit, "/ai-sdk/agent/socket").await.unwrap();
    socket.send(&json!({ "type": "resume", "requestId": "r", "id": "chat" })).await;
    assert_eq!(socket.next().await.unwrap()["type"], "no-active");
    for (request, status, code, text) in [
        (answers, 409, "nothing_waits", "nothing in this chat waits"),
        (branch, 404, "no_run", "there is no run"),
    ] {
        let (got, _, body) = parts(kit.post("/ai-sdk/agent", &request).send().await.unwrap()).await;
        assert_eq!((got, body["error"]["code"].as_str()), (status, Some(code)), "{body}");
        let mut frame = with(&request, "type", "send");
        frame["requestId"] = json!("r");
        socket.send(&frame).await;
        let said = socket.next().await.unwrap();
        let error = said["errorText"].as_str().unwrap_or_default();
        assert!(said["type"] == "error" && error.contains(text), "{said}");
    }
    socket.send(&json!({ "type": "abort", "requestId": "r" })).await;
    assert_eq!(socket.next().await.unwrap()["type"], "end");
}

/// A user's message in the AI SDK's format.
fn said(id: &str) -> Value {
    json!({ "id": id, "role": "user", "parts": [{ "type": "text", "text": "go" }] })
}

fn with(message: &Value, member: &str, text: &str) -> Value {
    let mut message = message.clone();
    message[member] = json!(text);
    message
}

/// The run of an AI SDK message.
fn run_of(stream: &str) -> RunId {
    let chunks = parse_sse(stream);
    let mut chunks = chunks.iter().filter_map(|it| serde_json::from_str::<Value>(&it.data).ok());
    chunks.find_map(|chunk| chunk["messageId"].as_str()?.parse().ok()).unwrap()
}

/// The text that the model gets for a call without a result.
const EXPIRED: &str = "timed out: the client gave no result within 0.05 s";

/// A client provides a tool and sends no result. On every wire the model is notified, and a late
/// result is rejected with its own error code.
#[tokio::test]
async fn a_call_in_the_client_expires_on_every_wire() {
    let mut def =
        agent([Say::new().call("paint", json!({})), Say::new().text("Without it, then.")], []);
    def.timeouts.client_call = Duration::from_millis(50);
    let kit = Kit::new(def).await;
    let tool = json!({ "name": "paint", "description": "paints", "parameters": {} });
    let lent = json!([{ "name": "paint", "runs_on": "client" }]);

    // Our own API: the stream continues after the pause.
    let body = json!({ "agent": "agent", "input": "go", "client_tools": lent });
    let request = kit.post("/v1/runs", &body).header("accept", "text/event-stream");
    let response = request.send().await.unwrap();
    let run = response.headers()["x-run-id"].to_str().unwrap().parse().unwrap();
    assert!(response.text().await.unwrap().contains(EXPIRED));
    ended_without(&kit, run).await;
    let late = json!({ "call": 0, "output": "painted" });
    let late = kit.post(&format!("/v1/runs/{run}/tool-results"), &late).send().await.unwrap();
    assert_eq!(parts(late).await.2["error"]["code"], "finished");

    let mut socket = Socket::open(&kit, "/v1/socket").await.unwrap();
    let mut start = with(&body, "type", "start");
    start["id"] = json!("1");
    let run = started(&socket.ask(&start).await);
    socket.ask(&json!({ "id": "2", "type": "subscribe", "run": run })).await;
    let events = socket.events("2", "").await;
    assert!(json!(events).to_string().contains(EXPIRED), "{events:?}");
    ended_without(&kit, run.parse().unwrap()).await;
    let late =
        json!({ "id": "3", "type": "tool_result", "run": run, "call": 0, "output": "painted" });
    assert_eq!(socket.ask(&late).await["error"]["code"], "finished");

    // AG-UI: the stream ends at the pause, and the client attaches again.
    let mut body = input("t", "r1", json!([user("m", "go")]));
    body["tools"] = json!([tool]);
    let text = kit.post("/ag-ui/agent", &body).send().await.unwrap().text().await.unwrap();
    let events: Vec<Value> =
        parse_sse(&text).iter().map(|it| serde_json::from_str(&it.data).unwrap()).collect();
    let call = events.iter().find(|it| it["type"] == "TOOL_CALL_START").unwrap();
    let call = call["toolCallId"].as_str().unwrap();
    ended_without(&kit, call.rsplit_once('-').unwrap().0.parse().unwrap()).await;
    let attached = kit.get("/ag-ui/agent/runs/r1").send().await.unwrap().text().await.unwrap();
    assert!(attached.contains(EXPIRED), "{attached}");
    let late = json!({ "id": "x", "role": "tool", "toolCallId": call, "content": "painted" });
    let mut body = input("t", "r2", json!([user("m", "go"), late]));
    body["tools"] = json!([tool]);
    // The result is part of the history now, and the request contains nothing new.
    let (status, _, refused) = parts(kit.post("/ag-ui/agent", &body).send().await.unwrap()).await;
    assert_eq!((status, &refused["error"]["code"]), (400, &json!("no_input")), "{refused}");

    // The AI SDK, over HTTP and over its socket: the message ends at the pause.
    let page_tool = json!([{ "name": "paint", "description": "paints" }]);
    let mut body = json!({ "id": "http", "messages": [said("m")], "tools": page_tool });
    let text = kit.post("/ai-sdk/agent", &body).send().await.unwrap().text().await.unwrap();
    let run = run_of(&text);
    ended_without(&kit, run).await;
    let late = json!({ "id": run, "role": "assistant", "parts": [{
        "type": "tool-paint", "toolCallId": format!("{run}-0"), "state": "output-available",
        "input": {}, "output": "painted",
    }] });
    body["messages"] = json!([said("m"), late]);
    let (status, _, refused) = parts(kit.post("/ai-sdk/agent", &body).send().await.unwrap()).await;
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("nothing_waits")), "{refused}");
    let mut socket = Socket::open(&kit, "/ai-sdk/agent/socket").await.unwrap();
    let send = json!({
        "type": "send", "requestId": "r", "id": "socket", "messages": [said("m")],
        "body": { "tools": page_tool },
    });
    socket.send(&send).await;
    let start = loop {
        let message = socket.next().await.unwrap();
        if message["chunk"]["type"] == "start" {
            break message["chunk"]["messageId"].as_str().unwrap().parse().unwrap();
        }
    };
    ended_without(&kit, start).await;

    // use-ai, over its plain socket and over polled Socket.IO.
    let ask = |run: &str| run_agent("agent", run, &json!({ "tools": [tool] }));
    let mut socket = Socket::open(&kit, "/use-ai").await.unwrap();
    socket.send(&ask("plain")).await;
    let events = until(&mut socket, "RUN_FINISHED").await;
    assert!(json!(events).to_string().contains(EXPIRED), "{events:?}");
    let call = events.iter().find(|it| it["type"] == "TOOL_CALL_START").unwrap();
    let late = json!({ "toolCallId": call["toolCallId"], "content": "painted", "role": "tool" });
    socket.send(&json!({ "type": "tool_result", "data": late })).await;
    assert_eq!(socket.next().await.unwrap()["code"], "finished");
    let polling = Polling::open(&kit).await;
    let said = polling.ask(&ask("polled"), "RUN_FINISHED").await;
    assert!(said.contains(EXPIRED), "{said}");
}

/// The run has ended, and the model was told that the client sent no result.
async fn ended_without(kit: &Kit, run: RunId) {
    let transcript = kit.wait(run).await;
    let call = transcript.parts.values().find_map(|part| part.call.as_ref()).unwrap();
    let (outcome, result) = call.finished.as_ref().unwrap();
    assert_eq!((*outcome, &*result.output_text()), (ToolOutcome::TimedOut, EXPIRED));
    assert_eq!(transcript.answer(AgentNo::ROOT), "Without it, then.");
}
