//! A fake model provider that always sends the same answer, in Anthropic's format.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// Words per answer; each is one delta.
pub(crate) const WORDS: usize = 200;

/// Events per write, as from a provider with a busy network.
const EVENTS_PER_WRITE: usize = 32;

/// The vocabulary of the answer, with all characters that a server must escape.
const VOCABULARY: [&str; 8] =
    ["spring ", "\"water\" ", "runs ", "down\n", "🏔 ", "C:\\hill ", "and\u{2028}", "on, "];

pub(crate) struct Provider {
    listener: TcpListener,
    address: SocketAddr,
}

impl Provider {
    pub(crate) fn bind() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        Self { listener, address }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The text of every answer.
    pub(crate) fn text(&self) -> String {
        words().collect()
    }

    /// Serves requests while it is polled.
    pub(crate) async fn serve(self) {
        self.listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(self.listener).unwrap();
        let pieces: Arc<[Vec<u8>]> = pieces().into();
        loop {
            let (client, _) = listener.accept().await.unwrap();
            // A server that is stopped closes its connections.
            tokio::spawn(answer(client, Arc::clone(&pieces)));
        }
    }
}

fn words() -> impl Iterator<Item = &'static str> {
    VOCABULARY.into_iter().cycle().take(WORDS)
}

/// The chunks of a response body, one per write.
fn pieces() -> Vec<Vec<u8>> {
    let event =
        |kind: &str, rest: &str| format!("event: {kind}\ndata: {{\"type\":\"{kind}\"{rest}}}\n\n");
    let mut events = vec![
        event(
            "message_start",
            r#","message":{"id":"m","type":"message","role":"assistant","content":[],"model":"m","stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"output_tokens":1}}"#,
        ),
        event("content_block_start", r#","index":0,"content_block":{"type":"text","text":""}"#),
    ];
    events.extend(words().map(|word| {
        let word = serde_json::to_string(word).unwrap();
        let delta = format!(r#","index":0,"delta":{{"type":"text_delta","text":{word}}}"#);
        event("content_block_delta", &delta)
    }));
    events.push(event("content_block_stop", r#","index":0"#));
    let stop =
        r#","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":200}"#;
    events.push(event("message_delta", stop));
    events.push(event("message_stop", ""));
    let mut pieces: Vec<Vec<u8>> = events
        .chunks(EVENTS_PER_WRITE)
        .map(|events| {
            let events = events.concat();
            let mut chunk = String::new();
            let _ = write!(chunk, "{:x}\r\n{events}\r\n", events.len());
            chunk.into_bytes()
        })
        .collect();
    pieces.push(b"0\r\n\r\n".to_vec());
    pieces
}

async fn answer(client: TcpStream, pieces: Arc<[Vec<u8>]>) -> std::io::Result<()> {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
        transfer-encoding: chunked\r\n\r\n";
    client.set_nodelay(true)?;
    let mut client = BufReader::new(client);
    let mut line = String::new();
    loop {
        let mut length = 0;
        loop {
            line.clear();
            if client.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let lower = line.to_ascii_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        client.read_exact(&mut body).await?;
        client.write_all(HEAD).await?;
        for piece in &*pieces {
            client.write_all(piece).await?;
        }
    }
}
