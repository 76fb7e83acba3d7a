//! Attacks on sockets, polling sessions, webhooks and chats: by strangers, by tenants that exceed
//! their share, and by clients that send incomplete data.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use wellspring_core::{Command, InboxNo, RunId};
use wellspring_engine::Runtime;
use wellspring_log::Log;
use wellspring_models::Say;
use wellspring_server::{Server, ServerConfig, ServerLimits};

use crate::access::two_tenants;
use crate::kit::{Kit, agent, config, parts};
use crate::socket::Socket;

/// Longer than any timeout of a connection. The tests simulate time where they wait for it.
const LONG: Duration = Duration::from_secs(120);

/// The URL that begins a polling session of Socket.IO.
const POLLING: &str = "/socket.io/?EIO=4&transport=polling";

/// Begins a polling session, and returns the URL of its requests.
async fn session(kit: &Kit) -> Result<String, (u16, String)> {
    let response = kit.get(POLLING).send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    if status != 200 {
        let refused: Value = serde_json::from_str(&text).unwrap();
        return Err((status, refused["error"]["code"].as_str().unwrap().to_owned()));
    }
    let open: Value = serde_json::from_str(&text[1..]).unwrap();
    Ok(format!("{POLLING}&sid={}", open["sid"].as_str().unwrap()))
}

/// Sends packets in a session.
async fn push(kit: &Kit, session: &str, packets: &str) -> (u16, Value) {
    let url = kit.url(session);
    let response = kit.client.post(url).body(packets.to_owned()).send().await.unwrap();
    let (status, _, body) = parts(response).await;
    (status, body)
}

/// Sends the beginning of a request whose body is never completed.
async fn half_a_request(kit: &Kit, path: &str, token: &str) -> TcpStream {
    let mut connection = TcpStream::connect(kit.server.address()).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
         content-length: 100000\r\n\r\nabc"
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    connection
}

async fn status(connection: &mut TcpStream) -> String {
    let mut status = [0; 12];
    connection.read_exact(&mut status).await.unwrap();
    String::from_utf8_lossy(&status[9..]).into_owned()
}

/// On every route, an unauthenticated client is rejected immediately: the server reads nothing of
/// the body before authentication.
#[tokio::test(start_paused = true)]
async fn nothing_is_read_from_strangers() {
    let (mut kit, [mine, _]) = two_tenants(config()).await;
    kit.token = Some(mine);
    let session = session(&kit).await.unwrap();
    for (path, want) in [
        (POLLING.to_owned(), "401"),
        (format!("{POLLING}&sid=guessed"), "400"),
        ("/v1/runs".to_owned(), "401"),
        ("/ag-ui/agent".to_owned(), "401"),
        ("/ai-sdk/agent".to_owned(), "401"),
        ("/ai-sdk/agent/chat/stop".to_owned(), "401"),
    ] {
        let mut connection = half_a_request(&kit, &path, "wrong").await;
        let told = tokio::time::timeout(Duration::from_secs(1), status(&mut connection)).await;
        assert_eq!(told.as_deref(), Ok(want), "{path}");
    }
    assert_eq!(push(&kit, &session, "40").await, (200, json!("ok")));
}

/// Polling sessions count as streams of their token, are limited like streams, and expire when
/// their client stops polling.
#[tokio::test(start_paused = true)]
async fn sessions_that_nobody_polls_are_forgotten() {
    let limits = ServerLimits {
        streams_per_token: 20,
        requests_per_token: 10_000,
        ..ServerLimits::default()
    };
    let (mut kit, [mine, other]) = two_tenants(ServerConfig { limits, ..config() }).await;
    kit.token = None;
    assert_eq!(session(&kit).await, Err((401, "no_token".to_owned())));
    kit.token = Some(mine);
    let mut sessions = Vec::new();
    for _ in 0..20 {
        sessions.push(session(&kit).await.unwrap());
    }
    let full = Err((429, "too_many_streams".to_owned()));
    assert_eq!(session(&kit).await, full);
    // A WebSocket in addition to the session counts as well.
    assert!(Socket::open(&kit, "/use-ai").await.is_err());
    let mine = kit.token.replace(other);
    session(&kit).await.unwrap();
    kit.token = mine;
    tokio::time::sleep(LONG).await;
    let (status, said) = push(&kit, &sessions[0], "40").await;
    assert_eq!((status, &said["error"]["code"]), (400, &json!("unknown_session")));
    for _ in 0..20 {
        session(&kit).await.unwrap();
    }
    assert_eq!(session(&kit).await, full);
}

/// A client that sends requests and never polls gets an error before its responses accumulate.
#[tokio::test]
async fn answers_that_nobody_polls_have_a_maximum() {
    let limits = ServerLimits { requests_per_token: 10_000, ..ServerLimits::default() };
    let (mut kit, [mine, _]) = two_tenants(ServerConfig { limits, ..config() }).await;
    kit.token = Some(mine);
    let session = session(&kit).await.unwrap();
    let many = |count: usize| vec!["42[\"nonsense\",{}]"; count].join("\u{1e}");
    let (status, said) = push(&kit, &session, &many(65)).await;
    assert_eq!((status, &said["error"]["code"]), (400, &json!("too_many_packets")));
    for _ in 0..4 {
        assert_eq!(push(&kit, &session, &many(64)).await.0, 200);
    }
    let (status, said) = push(&kit, &session, &many(1)).await;
    assert_eq!((status, &said["error"]["code"]), (429, &json!("too_many_requests")));
    // Earlier responses are still delivered.
    let answers = kit.client.get(kit.url(&session)).send().await.unwrap().text().await.unwrap();
    assert_eq!(answers.split('\u{1e}').count(), 256);
    assert_eq!(push(&kit, &session, &many(1)).await.0, 200);
}

/// A raw WebSocket connection: the library of the other tests only sends whole messages.
async fn raw_socket(kit: &Kit, path: &str) -> TcpStream {
    let mut socket = TcpStream::connect(kit.server.address()).await.unwrap();
    let token = kit.token.as_ref();
    let token = token.map(|it| format!("authorization: Bearer {it}\r\n")).unwrap_or_default();
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
         {token}sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(socket.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
    socket
}

/// The header of a client's frame, with a mask of zeros.
fn frame(first: u8, bytes: u64) -> Vec<u8> {
    [&[first, 0xff][..], &bytes.to_be_bytes(), &[0; 4]].concat()
}

/// The received bytes of incomplete messages count like bodies, even if the messages are never
/// completed and pongs arrive in between. A token beyond the limit loses a socket; other tokens are
/// not affected.
#[tokio::test]
async fn half_a_message_counts_as_half_a_body_does() {
    const PIECE: usize = 600_000;
    let limits = ServerLimits { held_bytes_per_token: PIECE * 3 / 2, ..ServerLimits::default() };
    for path in ["/v1/socket", "/use-ai", "/ai-sdk/agent/socket"] {
        let config = ServerConfig { limits: limits.clone(), ..config() };
        let (mut kit, [mine, other]) = two_tenants(config).await;
        kit.token = Some(mine);
        // A fragment of a text, followed by a pong.
        let half = [frame(0x01, PIECE as u64), vec![b' '; PIECE], vec![0x8a, 0x80, 0, 0, 0, 0]];
        let half = half.concat();
        let mut sockets = [raw_socket(&kit, path).await, raw_socket(&kit, path).await];
        for socket in &mut sockets {
            // The rejected socket may be closed before everything was sent.
            let _ = socket.write_all(&half).await;
        }
        let ended = async |socket: &mut TcpStream| {
            let mut said = Vec::new();
            // A close with unread data is a reset.
            let _ = socket.read_to_end(&mut said).await;
        };
        let [first, second] = &mut sockets;
        let patience = tokio::time::timeout(Duration::from_secs(30), async {
            tokio::select! {
                () = ended(first) => 1,
                () = ended(second) => 0,
            }
        });
        let left = patience.await.unwrap_or_else(|_| panic!("{path}: nothing was refused"));
        // The other socket can still complete its message.
        let socket = &mut sockets[left];
        socket.write_all(&frame(0x80, 1)).await.unwrap();
        socket.write_all(b"x").await.unwrap();
        let mut said = [0; 2];
        socket.read_exact(&mut said).await.unwrap();
        assert_eq!(said[0], 0x81, "{path}: a text is answered");
        kit.token = Some(other);
        let mut theirs = Socket::open(&kit, path).await.unwrap();
        theirs.send(&json!(7)).await;
        theirs.next().await.unwrap();
    }
}

/// A socket that requests much and reads nothing is closed, and holds little memory until then.
#[tokio::test(start_paused = true)]
async fn a_socket_that_takes_nothing_is_let_go() {
    const RUN_BYTES: usize = 8 << 20;
    let piece = "0123456789abcdef".repeat(64);
    let long = (0..RUN_BYTES / piece.len()).fold(Say::new(), |say, _| say.text(&piece));
    let kit = Kit::new(agent([long], [])).await;
    let run = kit.start().await;
    kit.wait(run).await;
    let mut socket = raw_socket(&kit, "/v1/socket").await;
    let message = json!({ "id": "s", "type": "subscribe", "run": run }).to_string();
    let ask = [frame(0x81, message.len() as u64), message.into_bytes()].concat();
    socket.write_all(&ask).await.unwrap();
    socket.read_u8().await.unwrap();
    tokio::time::sleep(LONG).await;
    let mut got = Vec::new();
    let _ = socket.read_to_end(&mut got).await;
    assert!(got.len() < RUN_BYTES, "{} bytes were made for it", got.len());
    let metrics = kit.get("/metrics").send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("wellspring_streams 0"), "{metrics}");
}

/// Another tenant's ids find and change nothing, over our own socket and in chats of the AI SDK.
#[tokio::test]
async fn another_tenants_ids_are_nothing_on_sockets_and_in_chats() {
    let (mut kit, [mine, other]) = two_tenants(config()).await;
    kit.token = Some(mine);
    let user =
        |id: &str| json!({ "id": id, "role": "user", "parts": [{ "type": "text", "text": "go" }] });
    let asked = kit.post("/ai-sdk/agent", &json!({ "id": "chat", "messages": [user("m")] }));
    let said = asked.send().await.unwrap().text().await.unwrap();
    let run = said.split("\"messageId\":\"").nth(1).unwrap().split('"').next().unwrap();
    let run: RunId = run.parse().unwrap();
    kit.paused(run).await;
    let store = kit.runtime.log().store();
    let thread = store.info(run).await.unwrap().unwrap().thread;
    let before = kit.runtime.log().transcript(run).await.unwrap();
    let mine = kit.token.replace(other);
    let mut socket = Socket::open(&kit, "/v1/socket").await.unwrap();
    let approve = json!({ "approve": {} });
    for (message, code) in [
        (json!({ "type": "subscribe", "run": run }), "no_run"),
        (json!({ "type": "cancel", "run": run }), "no_run"),
        (json!({ "type": "answer", "run": run, "question": 0, "answer": approve }), "no_run"),
        (json!({ "type": "tool_result", "run": run, "call": 0, "output": 1 }), "no_run"),
        (json!({ "type": "input", "run": run, "content": "more" }), "no_run"),
        (json!({ "type": "start", "agent": "agent", "input": "go", "after": run }), "no_run"),
        (
            json!({ "type": "start", "agent": "agent", "input": "go", "thread": thread }),
            "no_thread",
        ),
    ] {
        let mut message = message;
        message["id"] = json!("a");
        socket.send(&message).await;
        let said = socket.next().await.unwrap();
        assert_eq!(said["error"]["code"], code, "{message}: {said}");
    }
    // The same chat id names a different chat for each tenant.
    let resumed = kit.get("/ai-sdk/agent/chat/stream").send().await.unwrap();
    assert_eq!(resumed.status(), 204);
    let stop = kit.post("/ai-sdk/agent/chat/stop", &json!({})).send().await.unwrap();
    assert_eq!(parts(stop).await.2, json!({ "stopped": false }));
    let answered = json!({ "id": run, "role": "assistant", "parts": [{
        "type": "tool-echo", "toolCallId": format!("{run}-0"), "state": "approval-responded",
        "input": {}, "approval": { "id": format!("{run}-0"), "approved": true },
    }] });
    let earlier = json!({ "id": run, "role": "assistant", "parts": [] });
    for (messages, more, want) in [
        (json!([user("m"), answered]), json!({}), 409),
        // An edited message branches off after the preceding answer.
        (json!([user("m"), earlier, user("n")]), json!({ "messageId": "n" }), 404),
    ] {
        let mut body = json!({ "id": "chat", "messages": messages });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (status, _, said) = parts(kit.post("/ai-sdk/agent", &body).send().await.unwrap()).await;
        assert_eq!(status, want, "{body}: {said}");
    }
    kit.token = mine;
    assert_eq!(kit.runtime.log().transcript(run).await.unwrap(), before, "nothing came of it");
    let inbox: Vec<Command> = store
        .inbox(run, InboxNo(0))
        .await
        .unwrap()
        .into_iter()
        .map(|entry| entry.command)
        .collect();
    assert_eq!(inbox, []);
}

/// A server with an additional route, such as a webhook.
async fn with_a_webhook(limits: ServerLimits) -> Server {
    let hook = Router::new().route("/hook", post(async |body: Bytes| body.len().to_string()));
    serving(hook, limits).await
}

async fn serving(hook: Router, limits: ServerLimits) -> Server {
    let runtime = Runtime::new(Log::in_memory());
    let config = ServerConfig { limits, ..config() };
    Server::builder(runtime).config(config).routes(hook).start().await.unwrap()
}

async fn to_webhook(server: &Server, bytes: usize) -> Response {
    let client = Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{}/hook", server.address());
    client.post(url).body(vec![b'x'; bytes]).send().await.unwrap()
}

/// Anyone can send requests to a webhook. An incomplete body times out, so that it cannot occupy a
/// connection indefinitely.
#[tokio::test(start_paused = true)]
async fn half_a_delivery_is_given_up() {
    let server = with_a_webhook(ServerLimits::default()).await;
    let mut connection = TcpStream::connect(server.address()).await.unwrap();
    let head = "POST /hook HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n";
    connection.write_all(head.as_bytes()).await.unwrap();
    let trickle = async {
        // The server may have closed the connection.
        while connection.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::time::timeout(LONG, trickle).await.unwrap();
    assert_eq!(to_webhook(&server, 100).await.text().await.unwrap(), "100");
}

/// Requests of strangers to webhooks share one memory limit, and do not reduce the limits of
/// tokens.
#[tokio::test]
async fn what_strangers_deliver_has_a_share() {
    let limits = ServerLimits { held_bytes_per_token: 100_000, ..ServerLimits::default() };
    let server = with_a_webhook(limits).await;
    assert_eq!(to_webhook(&server, 50_000).await.text().await.unwrap(), "50000");
    assert_eq!(to_webhook(&server, 150_000).await.status(), 400);
    assert_eq!(to_webhook(&server, 50_000).await.status(), 200);
}

/// A body counts until its request is handled, also if its sender closes the connection before.
#[tokio::test]
async fn bodies_of_webhooks_count_until_they_are_handled() {
    let (arrived, done) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (tells, waits) = (Arc::clone(&arrived), Arc::clone(&done));
    let hook = post(move |body: Bytes| {
        let (tells, waits) = (Arc::clone(&tells), Arc::clone(&waits));
        async move {
            tells.add_permits(1);
            waits.acquire().await.unwrap().forget();
            body.len().to_string()
        }
    });
    let limits = ServerLimits { held_bytes: 100_000, ..ServerLimits::default() };
    let server = serving(Router::new().route("/hook", hook), limits).await;
    let sent = tokio::time::timeout(Duration::from_secs(60), async {
        tokio::select! {
            _ = to_webhook(&server, 60_000) => unreachable!("it is not handled yet"),
            permit = arrived.acquire() => permit.unwrap().forget(),
        }
    });
    sent.await.unwrap();
    assert_eq!(to_webhook(&server, 60_000).await.status(), 400);
    done.add_permits(2);
    // The first request is handled at some time after this.
    while to_webhook(&server, 60_000).await.status() != 200 {
        done.add_permits(1);
    }
}
