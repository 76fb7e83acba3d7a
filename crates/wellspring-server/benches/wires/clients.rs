//! Clients of each wire: they send a request, read the response to its end, and check that the text
//! is complete.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

/// The protocol of a server.
#[derive(Clone, Copy)]
pub(crate) enum Wire {
    /// AG-UI: a POST with a response of server-sent events.
    AgUi,
    /// The AI SDK's default transport: a POST to this path with a response of server-sent events.
    AiSdk { path: &'static str },
    /// The AI SDK's transport over a WebSocket.
    AiSdkSocket,
    /// Our own API on a WebSocket, in AG-UI's dialect.
    Native,
    /// use-ai's plain WebSocket.
    UseAi,
    /// use-ai over Socket.IO's WebSocket.
    SocketIo,
}

/// Runs one client: `runs` runs in sequence, on one connection.
pub(crate) async fn client(wire: Wire, server: SocketAddr, runs: usize, text: Arc<str>) {
    match wire {
        Wire::AgUi => post("/ag-ui/bench", ag_ui, server, runs, &text).await,
        Wire::AiSdk { path } => post(path, ai_sdk, server, runs, &text).await,
        Wire::AiSdkSocket => {
            let mut socket = open(server, "/ai-sdk/bench/socket").await;
            for _ in 0..runs {
                let mut request = ai_sdk();
                request["type"] = json!("send");
                request["requestId"] = request["id"].clone();
                say(&mut socket, request.to_string()).await;
                let answer = read(&mut socket, |message| message["type"] == "end").await;
                answer.check(&text);
            }
        }
        Wire::Native => {
            let mut socket = open(server, "/v1/socket").await;
            for _ in 0..runs {
                let id = id();
                let start = json!({
                    "id": id, "type": "start", "agent": "bench", "input": "go",
                    "subscribe": {"dialect": "ag_ui"},
                });
                say(&mut socket, start.to_string()).await;
                let answer = read(&mut socket, |message| message["type"] == "ended").await;
                answer.check(&text);
            }
        }
        Wire::UseAi => {
            let mut socket = open(server, "/use-ai").await;
            for _ in 0..runs {
                say(&mut socket, run_agent().to_string()).await;
                let is_over = |message: &Value| message["type"] == "RUN_FINISHED";
                read(&mut socket, is_over).await.check(&text);
            }
        }
        Wire::SocketIo => {
            let mut socket = open(server, "/socket.io/?EIO=4&transport=websocket").await;
            say(&mut socket, "40".to_owned()).await;
            while !next(&mut socket).await.starts_with("40") {}
            for _ in 0..runs {
                say(&mut socket, format!("42{}", json!(["message", run_agent()]))).await;
                let is_over = |message: &Value| message["type"] == "RUN_FINISHED";
                read(&mut socket, is_over).await.check(&text);
            }
        }
    }
}

fn id() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).unwrap();
    uuid::Uuid::from_bytes(bytes).to_string()
}

fn ag_ui() -> Value {
    json!({
        "threadId": id(), "runId": id(), "state": {}, "tools": [], "context": [],
        "forwardedProps": {}, "messages": [{"id": id(), "role": "user", "content": "go"}],
    })
}

fn ai_sdk() -> Value {
    let message = json!({"id": id(), "role": "user", "parts": [{"type": "text", "text": "go"}]});
    json!({"id": id(), "messages": [message], "trigger": "submit-message"})
}

fn run_agent() -> Value {
    json!({"type": "run_agent", "data": ag_ui()})
}

/// The text and the state of one run.
#[derive(Default)]
struct Answer(String);

impl Answer {
    /// Records an event, or all events in an array.
    fn take(&mut self, event: &Value) {
        match event["type"].as_str() {
            Some("TEXT_MESSAGE_CONTENT" | "text-delta") => {
                self.0.push_str(event["delta"].as_str().unwrap());
            }
            Some("RUN_ERROR" | "error") => panic!("{event}"),
            Some("chunk") => self.take(&event["chunk"]),
            Some("events") => {
                let events = event["events"].as_array().unwrap();
                events.iter().for_each(|event| self.take(&event["data"]));
            }
            Some(_) | None => {}
        }
    }

    fn check(&self, text: &str) {
        assert_eq!(self.0, text, "the text is whole");
    }
}

/// Sends requests by POST and reads server-sent events.
async fn post(path: &str, body: fn() -> Value, server: SocketAddr, runs: usize, text: &str) {
    let mut connection = TcpStream::connect(server).await.unwrap();
    connection.set_nodelay(true).unwrap();
    for _ in 0..runs {
        let body = body().to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut response = Vec::with_capacity(64 * 1024);
        // This terminator cannot occur within events, and clients request no trailers.
        while !response.ends_with(b"\r\n0\r\n\r\n") {
            assert_ne!(connection.read_buf(&mut response).await.unwrap(), 0, "it is whole");
        }
        let body = dechunked(&response);
        let mut answer = Answer::default();
        for data in body.lines().filter_map(|line| line.strip_prefix("data: ")) {
            if data != "[DONE]" {
                answer.take(&serde_json::from_str(data).unwrap());
            }
        }
        answer.check(text);
    }
}

/// Decodes a chunked response body.
fn dechunked(response: &[u8]) -> String {
    let at = response.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
    assert!(response.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(response));
    let (mut rest, mut body) = (&response[at + 4..], Vec::new());
    loop {
        let end = rest.windows(2).position(|it| it == b"\r\n").unwrap();
        let length = std::str::from_utf8(&rest[..end]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return String::from_utf8(body).unwrap();
        }
        let from = end + 2;
        body.extend_from_slice(&rest[from..from + length]);
        rest = &rest[from + length + 2..];
    }
}

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

async fn open(server: SocketAddr, path: &str) -> Socket {
    connect_async(format!("ws://{server}{path}")).await.unwrap().0
}

async fn say(socket: &mut Socket, message: String) {
    socket.send(Message::text(message)).await.unwrap();
}

async fn next(socket: &mut Socket) -> String {
    loop {
        match socket.next().await.unwrap().unwrap() {
            Message::Text(text) if text == "2" => say(socket, "3".to_owned()).await,
            Message::Text(text) => return text.to_string(),
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Binary(_) | Message::Close(_) | Message::Frame(_) => {
                panic!("the server closes")
            }
        }
    }
}

/// Reads until a message ends the run.
async fn read(socket: &mut Socket, is_over: impl Fn(&Value) -> bool) -> Answer {
    let mut answer = Answer::default();
    loop {
        let text = next(socket).await;
        // Socket.IO's packets begin with a number. Packets other than events belong to the
        // connection.
        let json = match text.strip_prefix("42") {
            Some(packet) => serde_json::from_str::<Value>(packet).unwrap()[1].take(),
            None if text.starts_with('{') => serde_json::from_str(&text).unwrap(),
            None => continue,
        };
        answer.take(&json);
        if is_over(&json) {
            return answer;
        }
    }
}
