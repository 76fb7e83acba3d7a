//! A use-ai client and a real server, over Socket.IO's polling: a Dify workflow, and a rating in
//! the trace of its run.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use wellspring_testkit::{Answer, Asked, FakeProvider};

use crate::kit::Home;
use crate::serve::serving;
use crate::telemetry::{exporting_server, spans};

/// A workflow's stream, one event per line.
const WORKFLOW: &str = include_str!("../../../wellspring-wire/fixtures/dify/workflow.jsonl");

/// The separator of packets in a response.
const SEPARATOR: char = '\u{1e}';

/// A session that polls.
struct Polling(SocketAddr, String);

/// The trace id of all requests.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

impl Polling {
    fn open(address: SocketAddr) -> Self {
        let mut polling = Self(address, String::new());
        let hello = polling.ask("GET", "");
        let hello: Value = serde_json::from_str(hello.strip_prefix('0').unwrap()).unwrap();
        polling.1 = format!("&sid={}", hello["sid"].as_str().unwrap());
        polling.ask("POST", "40");
        polling
    }

    fn ask(&self, method: &str, body: &str) -> String {
        let Self(address, session) = self;
        let mut socket = TcpStream::connect(address).unwrap();
        // Long enough that only a hang exceeds it.
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let request = format!(
            "{method} /socket.io/?EIO=4&transport=polling{session} HTTP/1.1\r\n\
             host: localhost\r\nconnection: close\r\ncontent-type: text/plain\r\n\
             traceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
        body.to_owned()
    }

    fn say(&self, message: &Value) {
        self.ask("POST", &format!("42{}", json!(["message", message])));
    }

    /// The events up to the end of a run.
    fn events(&self) -> Vec<Value> {
        let mut events: Vec<Value> = Vec::new();
        loop {
            let packets = self.ask("GET", "");
            for packet in packets.split(SEPARATOR).filter_map(|it| it.strip_prefix("42")) {
                let mut packet: Value = serde_json::from_str(packet).unwrap();
                if packet[0] != "event" {
                    continue;
                }
                let event = packet[1].take();
                let is_last = event["type"] == "RUN_FINISHED" || event["type"] == "RUN_ERROR";
                events.push(event);
                if is_last {
                    return events;
                }
            }
        }
    }
}

/// Responds like Dify, and rejects invalid requests like Dify.
fn strict(asked: &Asked) -> Answer {
    let refused = |status: u16, code: &str| {
        let body = json!({"code": code, "message": code, "status": status});
        Answer::status(status, body.to_string())
    };
    if asked.header("authorization") != Some("Bearer workflow-key") {
        return refused(401, "unauthorized");
    }
    if asked.path != "/v1/workflows/run" {
        return refused(404, "not_found");
    }
    let body = asked.body.as_object().unwrap();
    let known = ["inputs", "response_mode", "user", "files"];
    if !body.keys().all(|name| known.contains(&&**name)) || !body["inputs"].is_object() {
        return refused(400, "invalid_param");
    }
    let stream: String = WORKFLOW.lines().map(|line| format!("data: {line}\n\n")).collect();
    Answer::ok("text/event-stream", stream)
}

/// The inputs of `run_workflow` become the workflow's variables, and its steps and text arrive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workflow_of_dify_gets_its_inputs_by_name() {
    let dify = FakeProvider::answering(strict).await.unwrap();
    let config = format!(
        "[server.use_ai]\nworkflows = {{ \"dify/report\" = \"report\" }}\n\
         [agents.report.dify]\nurl = \"{}/v1\"\nkey_env = \"REPORT_KEY\"\napp = \"workflow\"\n",
        dify.url()
    );
    let home = Home::with_files(&[("wellspring.toml", &config)]);
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = home.paced(0, &["serve", "--listen", &address.to_string()]);
    command.env("REPORT_KEY", "workflow-key");
    let mut server = serving(command, address);

    let polling = Polling::open(address);
    let inputs = json!({"topic": "springs", "words": 100});
    polling.say(&json!({"type": "run_workflow", "data": {
        "runner": "dify", "workflowId": "report", "inputs": inputs, "runId": "r", "threadId": "t",
    }}));
    let events = polling.events();
    let asked = dify.asked();
    assert_eq!(
        asked[0].body,
        json!({"inputs": inputs, "response_mode": "streaming", "user": "local"})
    );
    let shown = events.iter().map(|event| {
        let what = ["toolCallName", "delta", "content", "result"];
        let what = what.iter().find_map(|name| event[name].as_str()).unwrap_or_default();
        format!("{} {what}", event["type"].as_str().unwrap()).trim_end().to_owned()
    });
    insta::assert_snapshot!(shown.collect::<Vec<_>>().join("\n"), @r#"
    RUN_STARTED
    MESSAGES_SNAPSHOT
    STATE_SNAPSHOT
    RAW
    TOOL_CALL_START http-request
    CUSTOM
    TOOL_CALL_ARGS {"url":"https://a.example"}
    TOOL_CALL_END
    CUSTOM
    TOOL_CALL_RESULT status 500
    TOOL_CALL_START template-transform
    CUSTOM
    TOOL_CALL_ARGS {}
    TOOL_CALL_END
    CUSTOM
    RAW
    TOOL_CALL_RESULT {"output":"Done."}
    TEXT_MESSAGE_START
    TEXT_MESSAGE_CONTENT Done.
    CUSTOM
    TEXT_MESSAGE_END
    RUN_FINISHED Done.
    "#);
    server.kill().unwrap();
    server.wait().unwrap();
}

/// A rating is exported as a span in the trace of its run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn feedback_is_exported_with_the_trace() {
    let (collector, home, server, address) = exporting_server().await;

    let polling = Polling::open(address);
    polling.say(&json!({"type": "run_agent", "data": {
        "threadId": "t", "runId": "r", "forwardedProps": {"agent": "demo"},
        "messages": [{"id": "m", "role": "user", "content": "long"}],
    }}));
    let events = polling.events();
    let message = events.iter().find(|event| event["type"] == "TEXT_MESSAGE_START").unwrap();
    let message = message["messageId"].as_str().unwrap();
    polling.say(&json!({"type": "message_feedback", "data": {
        "messageId": message, "traceId": TRACE, "feedback": "upvote",
    }}));
    server.signal(Signal::INT);
    server.end();

    let spans = spans(&collector);
    let span = spans.iter().find(|span| span["name"] == "evaluate user_feedback").unwrap();
    assert_eq!(span["traceId"], TRACE);
    let (run, part) = message.rsplit_once('-').unwrap();
    let attributes = span["attributes"].as_array().unwrap().iter();
    let attribute = |name: &str| {
        let mut named = attributes.clone().filter(|it| it["key"] == name);
        named.next().unwrap()["value"]["stringValue"].clone()
    };
    let said = ["gen_ai.evaluation.score.label", "wellspring.run.id", "wellspring.part"];
    assert_eq!(said.map(attribute), ["upvote", run, part]);
    let exported = home.print(&["runs", "export", run, "--format", "json"]);
    let exported: Value = serde_json::from_str(&exported).unwrap();
    let kept = &exported["feedback"][0];
    assert_eq!((&kept["rating"], &kept["trace"]), (&json!("upvote"), &json!(TRACE)));
}
