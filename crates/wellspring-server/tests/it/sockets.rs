//! Input that every WebSocket rejects. Each protocol reports the error in its own format, and the
//! server continues. `socket.rs` tests the same for our own protocol.

use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{Bytes, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use wellspring_engine::Runtime;
use wellspring_log::Log;
use wellspring_models::{Gate, Say};
use wellspring_server::{ServerConfig, ServerLimits};

use crate::kit::{Kit, agent, config};

/// The sockets of third-party protocols.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wire {
    UseAi,
    SocketIo,
    AiSdk,
}

const WIRES: [Wire; 3] = [Wire::UseAi, Wire::SocketIo, Wire::AiSdk];

/// A client that only reads its protocol's errors.
struct Client {
    wire: Wire,
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Client {
    async fn open(kit: &Kit, wire: Wire) -> Self {
        let path = match wire {
            Wire::UseAi => "/use-ai",
            Wire::SocketIo => "/socket.io/?EIO=4&transport=websocket",
            Wire::AiSdk => "/ai-sdk/agent/socket",
        };
        let url = kit.url(path).replacen("http", "ws", 1);
        let (socket, _) = connect_async(url.into_client_request().unwrap()).await.unwrap();
        let mut client = Self { wire, socket };
        if wire == Wire::SocketIo {
            client.send(Message::text("40")).await;
        }
        client
    }

    async fn send(&mut self, message: Message) {
        self.socket.send(message).await.unwrap();
    }

    async fn say(&mut self, message: &Value) {
        let text = match self.wire {
            Wire::SocketIo => format!("42{}", json!(["message", message])),
            Wire::UseAi | Wire::AiSdk => message.to_string(),
        };
        self.send(Message::text(text)).await;
    }

    /// Reads until a message contains a text.
    async fn until(&mut self, text: &str) {
        loop {
            let message = self.socket.next().await.unwrap().unwrap();
            if message.to_text().is_ok_and(|message| message.contains(text)) {
                return;
            }
        }
    }

    /// Reads until an error arrives and returns its message. If the socket is closed first, returns
    /// the close code.
    async fn error(&mut self) -> Result<String, u16> {
        loop {
            let text = match self.socket.next().await.unwrap().unwrap() {
                Message::Text(text) => text,
                Message::Close(frame) => return Err(frame.unwrap().code.into()),
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {
                    continue;
                }
            };
            let event = match self.wire {
                Wire::SocketIo => match text.strip_prefix(r#"42["event","#) {
                    Some(event) => &event[..event.len() - 1],
                    None => continue,
                },
                Wire::UseAi | Wire::AiSdk => &text,
            };
            let event: Value = serde_json::from_str(event).unwrap();
            let (kind, member) = match self.wire {
                Wire::UseAi | Wire::SocketIo => ("RUN_ERROR", "error"),
                Wire::AiSdk => ("error", "errorText"),
            };
            if event["type"] == kind {
                return Ok(event[member].as_str().unwrap().to_owned());
            }
        }
    }
}

/// Binary data, oversized messages and messages that are not JSON are reported, and close the
/// socket with the matching code. Valid JSON that is not a valid message only gets an error.
#[tokio::test]
async fn every_socket_refuses_in_its_own_form() {
    let limits = ServerLimits { body_bytes: 4096, ..ServerLimits::default() };
    let config = ServerConfig { limits, ..config() };
    let def = agent([Say::new().text("Hello there.")], []);
    let kit = Kit::with(config, Runtime::new(Log::in_memory()), def).await;
    let not_text = Frame::message(vec![b'{', 0xff], OpCode::Data(Data::Text), true);
    for wire in WIRES {
        for (message, says, code) in [
            (Message::binary(Bytes::from_static(b"{}")), "binary", 1003),
            (Message::text("x".repeat(5000)), "larger than 4096 bytes", 1009),
            (Message::Frame(not_text.clone()), "UTF-8", 1007),
        ] {
            let mut client = Client::open(&kit, wire).await;
            client.send(message).await;
            let said = client.error().await.unwrap();
            assert!(said.contains(says), "{wire:?}: {said}");
            assert_eq!(client.error().await, Err(code), "{wire:?}");
        }
        let mut client = Client::open(&kit, wire).await;
        let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
        for nonsense in ["{", "null", "[]", "7", r#""text""#, r#"{"type":7}"#, &deep] {
            let packet = match wire {
                Wire::SocketIo => format!(r#"42["message",{nonsense}]"#),
                Wire::UseAi | Wire::AiSdk => nonsense.to_owned(),
            };
            client.send(Message::text(packet)).await;
            let said = client.error().await;
            assert!(said.as_ref().is_ok_and(|it| !it.is_empty()), "{wire:?}: {nonsense}: {said:?}");
        }
    }
    assert_eq!(kit.get("/healthz").send().await.unwrap().status(), 200);
}

/// Streams beyond the maximum per socket are rejected in the protocol's format, and open streams
/// continue.
#[tokio::test]
async fn every_socket_refuses_thousands_of_streams() {
    const ASKED: usize = 1100;
    let gate = Gate::new();
    let kit = Kit::new(agent([Say::new().text("Hello").gate(&gate)], [])).await;
    // Socket.IO uses use-ai's subscriptions.
    for wire in [Wire::UseAi, Wire::AiSdk] {
        let mut client = Client::open(&kit, wire).await;
        for index in 0..ASKED {
            // A use-ai client follows a run only once, even if it requests it several times.
            let id = format!("{wire:?}-{index}");
            let message = json!({"id": id, "role": "user", "content": "go"});
            let request = match wire {
                Wire::UseAi | Wire::SocketIo => json!({"type": "run_agent", "data": {
                    "threadId": id, "runId": id, "messages": [message],
                }}),
                Wire::AiSdk => json!({"type": "send", "requestId": id, "id": "chat", "messages": [{
                    "id": "m", "role": "user", "parts": [{"type": "text", "text": "go"}],
                }]}),
            };
            client.say(&request).await;
        }
        for _ in 1024..ASKED {
            let said = client.error().await.unwrap();
            assert!(said.contains("1024 subscriptions already"), "{wire:?}: {said}");
        }
        client.say(&json!({"type": "dance", "requestId": "x"})).await;
        let said = client.error().await.unwrap();
        assert!(said.contains("dance"), "{wire:?}: {said}");
    }
    gate.open();
}

/// A server that shuts down ends each stream with an error event of the protocol, then the socket
/// with an error and a close code.
#[tokio::test]
async fn every_socket_reports_a_drain() {
    for wire in WIRES {
        let gate = Gate::new();
        let kit = Kit::new(agent([Say::new().text("Hello").gate(&gate)], [])).await;
        let mut client = Client::open(&kit, wire).await;
        let message = json!({"id": "m", "role": "user", "content": "go"});
        client
            .say(&match wire {
                Wire::UseAi | Wire::SocketIo => json!({"type": "run_agent", "data": {
                    "threadId": "t", "runId": "r", "messages": [message],
                }}),
                Wire::AiSdk => {
                    json!({"type": "send", "requestId": "r", "id": "chat", "messages": [{
                        "id": "m", "role": "user", "parts": [{"type": "text", "text": "go"}],
                    }]})
                }
            })
            .await;
        client.until("Hello").await;
        let stopping = tokio::spawn(kit.server.stop());
        client.until("shutting down").await;
        let said = client.error().await.unwrap();
        assert!(said.contains("shutting down"), "{wire:?}: {said}");
        assert_eq!(client.error().await, Err(1012), "{wire:?}");
        stopping.await.unwrap();
    }
}
