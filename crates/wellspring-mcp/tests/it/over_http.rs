//! Faulty servers over streamable HTTP, implemented by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use wellspring_core::{Tool, ToolResult};
use wellspring_mcp::{
    BRIDGED_MAX, MESSAGE_BYTES_MAX, McpConfig, McpConnection, McpErrorKind, McpServer, bridge,
};

use crate::support::{Run, soon, tool};

/// One request, and the connection for its response.
struct Asked {
    method: String,
    last_event_id: Option<String>,
    body: Value,
    back: BufReader<TcpStream>,
}

impl Asked {
    async fn read(connection: TcpStream) -> Option<Self> {
        let mut back = BufReader::new(connection);
        let (mut method, mut length, mut last_event_id) = (String::new(), 0, None);
        loop {
            let mut line = String::new();
            back.read_line(&mut line).await.ok()?;
            let line = line.trim();
            if method.is_empty() {
                method = line.split(' ').next()?.to_owned();
            }
            match line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value)) {
                Some((name, value)) if name == "content-length" => length = value.parse().ok()?,
                Some((name, value)) if name == "last-event-id" => {
                    last_event_id = Some(value.to_owned());
                }
                Some(_) | None => {}
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        back.read_exact(&mut body).await.ok()?;
        let body = serde_json::from_slice(&body).unwrap_or_default();
        Some(Self { method, last_event_id, body, back })
    }

    /// Writes the head of a response that ends with the connection.
    async fn head(&mut self, status: u16, media_type: &str) {
        let head = format!(
            "HTTP/1.1 {status} So\r\ncontent-type: {media_type}\r\nconnection: close\r\n\r\n"
        );
        self.write(head.as_bytes()).await;
    }

    /// Writes; returns whether the client still reads.
    async fn write(&mut self, bytes: &[u8]) -> bool {
        self.back.write_all(bytes).await.is_ok()
    }

    async fn json(&mut self, status: u16, body: &Value) {
        self.head(status, "application/json").await;
        self.write(body.to_string().as_bytes()).await;
    }

    async fn result(&mut self, result: Value) {
        let answer = json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result});
        self.json(200, &answer).await;
    }

    fn answer(&self, text: &str) -> String {
        let result = json!({"content": [{"type": "text", "text": text}]});
        json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result}).to_string()
    }

    /// Writes for as long as the client reads.
    async fn for_ever(&mut self, bytes_written: &AtomicUsize) {
        let piece = vec![b' '; 64 * 1024];
        while self.write(&piece).await {
            bytes_written.fetch_add(piece.len(), Ordering::Relaxed);
        }
    }

    /// Responds to the handshake, like every server.
    async fn introduction(&mut self) -> bool {
        match (&*self.method, self.body["method"].as_str()) {
            ("POST", Some("initialize")) => {
                let version = self.body["params"]["protocolVersion"].clone();
                let info = json!({"name": "by hand", "version": "1"});
                let capabilities = json!({"tools": {}});
                let hello = json!({"protocolVersion": version, "capabilities": capabilities, "serverInfo": info});
                self.result(hello).await;
            }
            ("POST", Some("tools/list")) => {
                let tools = TOOLS.map(|name| json!({"name": name, "inputSchema": {}}));
                self.result(json!({"tools": tools})).await;
            }
            ("POST", Some(notification)) if notification.starts_with("notifications/") => {
                self.head(202, "text/plain").await;
            }
            _ => return false,
        }
        true
    }

    fn tool(&self) -> &str {
        self.body["params"]["name"].as_str().unwrap_or_default()
    }
}

const TOOLS: [&str; 11] = [
    "echo",
    "json_for_ever",
    "json_largest",
    "event_for_ever",
    "event_largest",
    "error_for_ever",
    "error_to_nobody",
    "error_at_length",
    "nonsense",
    "nonsense_at_length",
    "resumes",
];

/// Serves on its own port.
async fn serve<F>(answer: impl Fn(Asked) -> F + Send + Sync + 'static) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            if let Some(mut asked) = Asked::read(connection).await
                && !asked.introduction().await
            {
                tokio::spawn(answer(asked));
            }
        }
    });
    url
}

async fn habits(mut asked: Asked, written: Arc<AtomicUsize>) {
    if asked.method == "GET" {
        // The earlier requests are not known here: it is the only request.
        let id = asked.last_event_id.clone().unwrap_or_default();
        let text = format!("resumed after {id}");
        let request: u64 = id.rsplit('-').next().and_then(|id| id.parse().ok()).unwrap_or(0);
        asked.body = json!({"id": request});
        let answer = asked.answer(&text);
        asked.head(200, "text/event-stream").await;
        asked.write(format!("data: {answer}\n\n").as_bytes()).await;
        return;
    }
    match asked.tool() {
        "json_for_ever" => {
            asked.head(200, "application/json").await;
            asked.for_ever(&written).await;
        }
        "json_largest" => {
            let answer = asked.answer("fits");
            asked.head(200, "application/json").await;
            asked.write(padded(answer, MESSAGE_BYTES_MAX).as_bytes()).await;
        }
        "event_for_ever" => {
            asked.head(200, "text/event-stream").await;
            asked.write(b"id: 1\ndata: ").await;
            asked.for_ever(&written).await;
        }
        "event_largest" => {
            let answer = asked.answer("fits");
            let event = padded(format!("data: {answer}"), MESSAGE_BYTES_MAX);
            asked.head(200, "text/event-stream").await;
            asked.write(format!("{event}\n\n").as_bytes()).await;
        }
        "error_for_ever" => {
            asked.head(500, "application/json").await;
            asked.for_ever(&written).await;
        }
        "error_to_nobody" => {
            let error = json!({"code": -32600, "message": "not like this"});
            asked.json(400, &json!({"jsonrpc": "2.0", "id": null, "error": error})).await;
        }
        "error_at_length" => {
            let error = json!({"code": -32600, "message": "no ".repeat(100_000)});
            let id = asked.body["id"].clone();
            asked.json(200, &json!({"jsonrpc": "2.0", "id": id, "error": error})).await;
        }
        "nonsense_at_length" => asked.json(200, &json!("la ".repeat(100_000))).await,
        "nonsense" => asked.json(200, &json!({"hello": "there"})).await,
        "resumes" => {
            let id = asked.body["id"].clone();
            asked.head(200, "text/event-stream").await;
            // Only the id to resume from, in pieces.
            for piece in ["retry: 1\nid", ": at-", &format!("{id}\n"), "\n"] {
                asked.write(piece.as_bytes()).await;
            }
        }
        name => {
            let answer = json!({"content": [{"type": "text", "text": name}]});
            asked.result(answer).await;
        }
    }
}

fn padded(mut text: String, bytes: usize) -> String {
    text.extend(std::iter::repeat_n(' ', bytes - text.len()));
    text
}

async fn connect() -> (McpConnection, Arc<AtomicUsize>) {
    let written = Arc::new(AtomicUsize::new(0));
    let counted = written.clone();
    let url = serve(move |asked| habits(asked, counted.clone())).await;
    (soon(McpServer::new(McpConfig::http("s", url)).connect()).await.unwrap(), written)
}

fn of(connection: &McpConnection, name: &str) -> Arc<dyn Tool> {
    tool(&connection.tools(), &format!("s__{name}"))
}

/// Endless responses, streams and refusals: each fails its own call with the reason, and
/// affects no other call.
#[tokio::test]
async fn answers_without_an_end() {
    let (connection, written) = connect().await;
    for name in ["json_for_ever", "event_for_ever", "error_for_ever"] {
        let error = Run::new().call(&of(&connection, name), json!({})).await.unwrap_err();
        let want = "the tool could not be used: MCP server \"s\": it sent a message of more than 16 MiB, which was not read";
        assert_eq!(error, want, "{name}");
        let answer = Run::new().call(&of(&connection, "echo"), json!({})).await;
        assert_eq!(answer, Ok(ToolResult::new("echo")), "{name}");
    }
    // The client stopped reading: what was written beyond the maximum is in buffers.
    let slack = 16 * 1024 * 1024;
    assert!(written.load(Ordering::Relaxed) < 3 * (MESSAGE_BYTES_MAX + slack));
}

#[tokio::test]
async fn the_largest_answers_that_fit() {
    let (connection, _) = connect().await;
    for name in ["json_largest", "event_largest"] {
        let answer = Run::new().call(&of(&connection, name), json!({})).await;
        assert_eq!(answer, Ok(ToolResult::new("fits")), "{name}");
    }
}

#[tokio::test]
async fn answers_that_are_odd() {
    let (connection, _) = connect().await;
    let call = async |name: &str| Run::new().call(&of(&connection, name), json!({})).await;
    // An error without an id belongs to the request.
    let error = call("error_to_nobody").await.unwrap_err();
    assert!(error.ends_with("not like this"), "{error}");
    let error = call("nonsense").await.unwrap_err();
    assert!(error.contains(r#"{\"hello\":\"there\"}"#), "{error}");
    // A long message is truncated, because a model reads it.
    let error = call("error_at_length").await.unwrap_err();
    assert_eq!(error.matches("no ").count(), 1024 / 3, "{error}");
    assert!(error.ends_with("[... 298976 bytes left out ...]"), "{error}");
    let error = call("nonsense_at_length").await.unwrap_err();
    assert_eq!(error.matches("la ").count(), 255 / 3, "{error}");
    // A stream may end before its response, with the id to resume from.
    let resumed = call("resumes").await.unwrap().output;
    assert!(resumed.as_str().unwrap().starts_with("resumed after at-"), "{resumed}");
}

#[tokio::test]
async fn a_server_whose_introduction_has_no_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            if let Some(mut asked) = Asked::read(connection).await {
                asked.head(200, "application/json").await;
                asked.for_ever(&AtomicUsize::new(0)).await;
            }
        }
    });
    let error = soon(McpServer::new(McpConfig::http("s", url)).connect()).await.unwrap_err();
    let want = McpErrorKind::TooLarge { bytes_max: MESSAGE_BYTES_MAX };
    assert_eq!(error.kind(), &want);
}

#[tokio::test]
async fn headers_of_the_protocol_are_not_for_a_configuration() {
    for name in ["Accept", "mcp-session-id", "Last-Event-ID"] {
        let config = McpConfig::http("s", "http://127.0.0.1:1/mcp").header(name, "x");
        let error = soon(McpServer::new(config).connect()).await.unwrap_err();
        assert!(matches!(error.kind(), McpErrorKind::Configuration(_)), "{error}");
    }
}

/// However many requests arrive at once, a bridge forwards a limited number and reads no more.
#[tokio::test]
async fn a_bridge_carries_so_many_at_a_time() {
    let open = watch::Sender::new(0);
    let gate = Arc::new(Semaphore::new(0));
    let url = {
        let (open, gate) = (open.clone(), gate.clone());
        serve(move |mut asked| {
            let (open, gate) = (open.clone(), gate.clone());
            async move {
                open.send_modify(|open| *open += 1);
                gate.acquire().await.unwrap().forget();
                open.send_modify(|open| *open -= 1);
                asked.result(json!({})).await;
            }
        })
        .await
    };
    let (near, far) = tokio::io::duplex(1024 * 1024);
    let (input, output) = tokio::io::split(far);
    let bridging = tokio::spawn(async move { bridge(&url, "t", input, output).await });
    let (lines, mut say) = tokio::io::split(near);
    let mut lines = BufReader::new(lines).lines();
    let client = json!({"name": "by hand", "version": "1"});
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    say.write_all(format!("{hello}\n{ready}\n").as_bytes()).await.unwrap();
    soon(lines.next_line()).await.unwrap().unwrap();

    let asked = 2 * BRIDGED_MAX;
    for id in 1..=asked {
        let ping = json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
        say.write_all(format!("{ping}\n").as_bytes()).await.unwrap();
    }
    let mut opened = open.subscribe();
    soon(opened.wait_for(|open| *open == BRIDGED_MAX)).await.unwrap();
    // A bridge without a limit would have had time to forward more.
    for _ in 0..2000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(*open.borrow(), BRIDGED_MAX);
    // A response makes room for one more.
    gate.add_permits(1);
    soon(lines.next_line()).await.unwrap().unwrap();
    soon(opened.wait_for(|open| *open == BRIDGED_MAX)).await.unwrap();
    gate.add_permits(asked);
    for _ in 1..asked {
        soon(lines.next_line()).await.unwrap().unwrap();
    }
    say.shutdown().await.unwrap();
    soon(bridging).await.unwrap().unwrap();
}
