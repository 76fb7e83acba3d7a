//! A server that sends scripted answers, and fails in every way a server can.
//!
//! It implements just enough HTTP/1.1 over plain TCP, and no provider's protocol: tests supply the
//! bytes of each answer.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

/// Maximum size of a request. Tests send small ones.
const REQUEST_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// What the server does with one request.
#[derive(Clone, Debug)]
pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    /// Sent after [`FakeProvider::release`].
    held: Vec<u8>,
    ending: Ending,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Ending {
    /// The body is complete.
    Whole,
    /// The connection is closed within the body.
    Cut,
    /// Nothing more is sent, and the connection stays open.
    Stall,
    /// Nothing is sent, and the connection stays open.
    NoHead,
    /// Nothing is sent, and the connection is closed.
    HangUp,
}

impl Answer {
    /// Status 200 with a body of this type.
    #[must_use]
    pub fn ok(content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::status(200, body).header("content-type", content_type)
    }

    /// Any status, with a body.
    #[must_use]
    pub fn status(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.into(),
            held: Vec::new(),
            ending: Ending::Whole,
        }
    }

    /// Sends nothing until the client disconnects.
    #[must_use]
    pub fn silence() -> Self {
        Self { ending: Ending::NoHead, ..Self::status(200, "") }
    }

    /// Sends nothing and closes the connection, as a server does with one that was idle for too
    /// long.
    #[must_use]
    pub fn hang_up() -> Self {
        Self { ending: Ending::HangUp, ..Self::status(200, "") }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds to the body a part that is sent after [`FakeProvider::release`].
    #[must_use]
    pub fn then_held(mut self, rest: impl Into<Vec<u8>>) -> Self {
        self.held = rest.into();
        self
    }

    /// Closes the connection where the body ends, without completing it.
    #[must_use]
    pub fn cut(mut self) -> Self {
        self.ending = Ending::Cut;
        self
    }

    /// Sends nothing after the body, not even its end, until the client disconnects.
    #[must_use]
    pub fn stall(mut self) -> Self {
        self.ending = Ending::Stall;
        self
    }
}

/// A received request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Asked {
    /// Its method.
    pub method: String,
    /// The path, with its query.
    pub path: String,
    /// Its headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, if it is JSON.
    pub body: Value,
}

impl Asked {
    /// A header's value.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// A server on its own port. It stops when dropped.
#[derive(Debug)]
pub struct FakeProvider {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    answers: Mutex<Answers>,
    asked: Mutex<Vec<Asked>>,
    /// Clients that left before their answer was complete.
    left: watch::Sender<usize>,
    /// One permit per held answer that may continue.
    released: Semaphore,
}

/// The source of the answers.
enum Answers {
    /// One per request; the last one is repeated.
    List(VecDeque<Answer>),
    /// A function from requests to answers.
    Function(Box<dyn FnMut(&Asked) -> Answer + Send>),
}

impl Answers {
    fn next(&mut self, asked: &Asked) -> Answer {
        let next = match self {
            Self::List(answers) if answers.len() > 1 => answers.pop_front(),
            Self::List(answers) => answers.front().cloned(),
            Self::Function(answer) => Some(answer(asked)),
        };
        next.unwrap_or_else(|| Answer::status(500, "no answer was given"))
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("left", &self.left).finish_non_exhaustive()
    }
}

impl FakeProvider {
    /// Starts a server with these answers, one per request; the last one is repeated.
    ///
    /// # Errors
    ///
    /// If no port is free.
    pub async fn start(answers: impl IntoIterator<Item = Answer>) -> io::Result<Self> {
        Self::with(Answers::List(answers.into_iter().collect())).await
    }

    /// Starts a server whose answers a function returns.
    ///
    /// # Errors
    ///
    /// If no port is free.
    pub async fn answering(
        answer: impl FnMut(&Asked) -> Answer + Send + 'static,
    ) -> io::Result<Self> {
        Self::with(Answers::Function(Box::new(answer))).await
    }

    async fn with(answers: Answers) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            answers: Mutex::new(answers),
            asked: Mutex::default(),
            left: watch::Sender::new(0),
            released: Semaphore::new(0),
        });
        let serving = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            let mut clients = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                // Errors are ignored: some tests are about clients that disconnect.
                clients.spawn(async move { shared.serve(client).await.ok() });
            }
        });
        Ok(Self { address, shared, accepting })
    }

    /// The URL of the server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sends one held part ([`Answer::then_held`]), now or when it is held.
    pub fn release(&self) {
        self.shared.released.add_permits(1);
    }

    /// Waits until this many clients have disconnected from an incomplete answer.
    pub async fn left(&self, count: usize) {
        let mut left = self.shared.left.subscribe();
        // The sender lives as long as `self`.
        let _ = left.wait_for(|left| *left >= count).await;
    }
}

impl Drop for FakeProvider {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Shared {
    async fn serve(&self, client: TcpStream) -> io::Result<()> {
        let mut client = BufReader::new(client);
        let asked = read_request(&mut client).await?;
        let answer = self.answers.lock().unwrap_or_else(PoisonError::into_inner).next(&asked);
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        if !matches!(answer.ending, Ending::NoHead | Ending::HangUp) {
            let mut head = format!("HTTP/1.1 {} Whatever\r\n", answer.status);
            for (name, value) in &answer.headers {
                head += &format!("{name}: {value}\r\n");
            }
            head += "transfer-encoding: chunked\r\nconnection: close\r\n\r\n";
            client.write_all(head.as_bytes()).await?;
            write_chunk(&mut client, &answer.body).await?;
            if !answer.held.is_empty() {
                if let Ok(permit) = self.released.acquire().await {
                    permit.forget();
                }
                write_chunk(&mut client, &answer.held).await?;
            }
        }
        match answer.ending {
            Ending::Whole => client.write_all(b"0\r\n\r\n").await?,
            Ending::Cut | Ending::HangUp => {}
            Ending::Stall | Ending::NoHead => {
                // The client has disconnected when its data ends.
                let mut rest = Vec::new();
                let _ = client.read_to_end(&mut rest).await;
                self.left.send_modify(|left| *left += 1);
            }
        }
        client.shutdown().await
    }
}

async fn write_chunk(client: &mut BufReader<TcpStream>, chunk: &[u8]) -> io::Result<()> {
    if !chunk.is_empty() {
        client.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).await?;
        client.write_all(chunk).await?;
        client.write_all(b"\r\n").await?;
    }
    client.flush().await
}

async fn read_request(client: &mut BufReader<TcpStream>) -> io::Result<Asked> {
    let mut client = client.take(REQUEST_BYTES_MAX);
    let mut asked = Asked::default();
    let mut line = String::new();
    client.read_line(&mut line).await?;
    let mut words = line.split(' ').map(ToOwned::to_owned);
    asked.method = words.next().unwrap_or_default();
    asked.path = words.next().unwrap_or_default();
    loop {
        line.clear();
        client.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        asked.headers.push((name.to_lowercase(), value.trim().to_owned()));
    }
    let length = asked.header("content-length").and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    client.read_exact(&mut body).await?;
    asked.body = serde_json::from_slice(&body).unwrap_or_default();
    Ok(asked)
}
