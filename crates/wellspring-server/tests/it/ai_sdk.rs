//! The AI SDK's requests, over HTTP and its socket. The peer tests run the SDK itself.

use std::time::Duration;

use serde_json::{Value, json};
use wellspring_core::{Outcome, RunId};
use wellspring_engine::Runtime;
use wellspring_log::Log;
use wellspring_models::{Gate, Say};
use wellspring_server::{ServerConfig, ServerLimits};

use crate::kit::{Kit, agent, config, parse_sse, parts};
use crate::socket::Socket;

fn user(id: &str, text: &str) -> Value {
    json!({ "id": id, "role": "user", "parts": [{ "type": "text", "text": text }] })
}

fn request(chat: &str, messages: Value) -> Value {
    json!({ "id": chat, "messages": messages, "trigger": "submit-message" })
}

/// The parts of a stream; the last line is its end marker.
fn chunks(text: &str) -> Vec<Value> {
    let mut events = parse_sse(text);
    assert_eq!(events.pop().unwrap().data, "[DONE]");
    events.iter().map(|event| serde_json::from_str(&event.data).unwrap()).collect()
}

#[tokio::test]
async fn a_message_sent_twice_is_answered_once() {
    let kit = Kit::new(agent([Say::new().text("Hello there.")], [])).await;
    let body = request("chat", json!([user("m", "Hi")]));
    let mut answers = Vec::new();
    for _ in 0..2 {
        let response = kit.post("/ai-sdk/agent", &body).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["x-vercel-ai-ui-message-stream"], "v1");
        answers.push(chunks(&response.text().await.unwrap()));
    }
    assert_eq!(answers[0], answers[1]);
    let idle = kit.get("/ai-sdk/agent/chat/stream").send().await.unwrap();
    assert_eq!(idle.status(), 204);
    let (status, _, body) =
        parts(kit.post("/ai-sdk/agent/chat/stop", &json!({})).send().await.unwrap()).await;
    assert_eq!((status, body), (202, json!({ "stopped": false })));
}

/// A closed connection does not stop the run; a stop request does.
#[tokio::test]
async fn closing_does_not_stop_and_stopping_does() {
    let kit = Kit::new(agent([Say::new().text("Hello").hang()], [])).await;
    let body = request("chat", json!([user("m", "Hi")]));
    let mut response = kit.post("/ai-sdk/agent", &body).send().await.unwrap();
    let mut said = String::new();
    while !said.contains("Hello") {
        said += std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap();
    }
    drop(response);
    let run: RunId = parse_sse(&said)
        .iter()
        .map(|event| serde_json::from_str::<Value>(&event.data).unwrap())
        .find_map(|chunk| chunk["messageId"].as_str()?.parse().ok())
        .unwrap();
    // A client that resumes gets the whole message and its end.
    let resumed = kit.get("/ai-sdk/agent/chat/stream").send().await.unwrap();
    assert_eq!(resumed.status(), 200);
    let (status, _, stopped) =
        parts(kit.post("/ai-sdk/agent/chat/stop", &json!({})).send().await.unwrap()).await;
    assert_eq!((status, stopped), (202, json!({ "stopped": true })));
    let all = chunks(&resumed.text().await.unwrap());
    assert_eq!(all[0]["messageId"], run.to_string());
    assert_eq!(all.last().unwrap()["type"], "abort");
    let transcript = kit.wait(run).await;
    assert!(matches!(transcript.outcome, Some(Outcome::Cancelled { .. })));
}

/// Every invalid request gets an error, and the server continues.
#[tokio::test]
async fn malformed_requests_get_errors() {
    let limits = ServerLimits { body_bytes: 4096, ..ServerLimits::default() };
    let def = agent([Say::new().text("Hello there.")], []);
    let kit =
        Kit::with(ServerConfig { limits, ..config() }, Runtime::new(Log::in_memory()), def).await;
    let answer = json!({ "id": "a", "role": "assistant", "parts": [
        { "type": "tool-x", "toolCallId": "forged", "state": "output-available", "output": 1 },
    ] });
    let cases = [
        ("agent", json!({}), 400, "bad_json"),
        ("agent", json!({ "id": 7, "messages": [] }), 400, "bad_json"),
        ("agent", json!({ "id": "c", "messages": [{ "role": "wizard" }] }), 400, "bad_json"),
        ("agent", json!({ "id": "c", "messages": [], "trigger": "dance" }), 400, "bad_json"),
        ("agent", request("c", json!([])), 400, "bad_request"),
        (
            "agent",
            request("c", json!([{ "id": "m", "role": "user", "parts": [7] }])),
            400,
            "bad_request",
        ),
        ("agent", request("", json!([user("m", "Hi")])), 400, "bad_id"),
        ("agent", request("c", json!([user(&"m".repeat(300), "Hi")])), 400, "bad_id"),
        ("agent", request("c", json!([user("m", "Hi"), answer])), 409, "nothing_waits"),
        ("nobody", request("c", json!([user("m", "Hi")])), 404, "no_agent"),
        ("agent", request("c", json!([user("m", &"x".repeat(5000))])), 413, "too_large"),
    ];
    for (name, body, status, code) in &cases {
        let path = format!("/ai-sdk/{name}");
        let (got, _, said) = parts(kit.post(&path, body).send().await.unwrap()).await;
        assert_eq!((got, said["error"]["code"].as_str()), (*status, Some(*code)), "{body}: {said}");
    }
    let mut socket = Socket::open(&kit, "/ai-sdk/agent/socket").await.unwrap();
    for message in [
        json!(7),
        json!({ "type": "dance", "requestId": "r" }),
        json!({ "type": "send", "requestId": "r" }),
    ] {
        socket.send(&message).await;
        let said = socket.next().await.unwrap();
        assert_eq!(
            (&said["type"], said["requestId"].is_string()),
            (&json!("error"), true),
            "{said}"
        );
    }
    for (name, body, status, _) in &cases {
        if *name != "agent" || *status == 413 || body["id"].as_str().is_none() {
            continue;
        }
        let mut frame = body.clone();
        frame["type"] = json!("send");
        frame["requestId"] = json!("r");
        socket.send(&frame).await;
        let said = socket.next().await.unwrap();
        assert_eq!(
            (&said["type"], &said["requestId"]),
            (&json!("error"), &json!("r")),
            "{body}: {said}"
        );
        assert!(!said["errorText"].as_str().unwrap().is_empty());
    }
    socket.send(&json!({ "type": "abort", "requestId": "unknown" })).await;
    assert_eq!(socket.next().await.unwrap()["type"], "end");
    socket.send(&json!({ "type": "resume", "requestId": "r", "id": "c" })).await;
    assert_eq!(socket.next().await.unwrap(), json!({ "type": "no-active", "requestId": "r" }));
    // The server still works.
    let mut send = request("c", json!([user("m", "Hi")]));
    send["type"] = json!("send");
    send["requestId"] = json!("s");
    socket.send(&send).await;
    let mut said = Vec::new();
    while said.last().is_none_or(|last: &Value| last["type"] != "end") {
        said.push(socket.next().await.unwrap());
    }
    let sequence: Vec<_> = said.iter().filter_map(|it| it["sequence"].as_u64()).collect();
    assert_eq!(sequence, (0..sequence.len() as u64).collect::<Vec<_>>());
    assert_eq!((&said[0]["type"], &said[1]["chunk"]["type"]), (&json!("start"), &json!("start")));
}

/// A server that shuts down ends a message with an error that its client reports.
#[tokio::test]
async fn a_drain_ends_a_message_with_an_error() {
    let gate = Gate::new();
    let config = ServerConfig { drain: Duration::from_millis(10), ..config() };
    let def = agent([Say::new().text("Hello").gate(&gate)], []);
    let kit = Kit::with(config, Runtime::new(Log::in_memory()), def).await;
    let body = request("chat", json!([user("m", "Hi")]));
    let response = kit.post("/ai-sdk/agent", &body).send().await.unwrap();
    let mut socket = Socket::open(&kit, "/ai-sdk/agent/socket").await.unwrap();
    socket.send(&json!({ "type": "resume", "requestId": "r", "id": "chat" })).await;
    assert_eq!(socket.next().await.unwrap()["type"], "start");
    let stopping = tokio::spawn(kit.server.stop());
    let all = chunks(&response.text().await.unwrap());
    let last = all.last().unwrap();
    assert_eq!(last["type"], "error");
    assert!(last["errorText"].as_str().unwrap().contains("shutting down"), "{last}");
    let mut said = Vec::new();
    while let Ok(message) = socket.next().await {
        said.push(message);
    }
    let told = said.iter().rev().find(|it| it["type"] == "chunk").unwrap();
    assert_eq!((&told["requestId"], &told["chunk"]), (&json!("r"), last));
    stopping.await.unwrap();
}
