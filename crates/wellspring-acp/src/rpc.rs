//! JSON-RPC 2.0 by the line, both ways, with nothing in it that grows.
//!
//! There is no queue: whoever has something to say waits for the writer. So a peer that reads
//! slowly slows down whoever talks to it, which for a reader of a run means that its cursor
//! lags. What can wait is counted: our requests without an answer ([`PENDING_MAX`]) and the
//! peer's requests that are being worked on ([`REQUESTS_MAX`]). Messages are untyped JSON,
//! because a typed one drops what it does not know.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use wellspring_core::CancellationToken;
use wellspring_wire::{EVENT_BYTES_MAX, Framer};

/// Our requests that wait for an answer: each belongs to a question or a tool of a run, and a
/// client that answers none of so many is not going to answer the next.
pub const PENDING_MAX: usize = 256;

/// Requests of a peer that are worked on at once: one prompt per session, and a few besides.
pub const REQUESTS_MAX: usize = 256;

/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

/// An error as JSON-RPC knows it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message} ({code})")]
pub(crate) struct RpcError {
    /// What a program goes by.
    pub code: i64,
    /// What a person reads.
    pub message: String,
    /// What else there is to say.
    pub data: Option<Value>,
}

impl RpcError {
    pub(crate) const PARSE: i64 = -32700;
    pub(crate) const INVALID_REQUEST: i64 = -32600;
    pub(crate) const NO_METHOD: i64 = -32601;
    pub(crate) const INVALID_PARAMS: i64 = -32602;
    pub(crate) const INTERNAL: i64 = -32603;
    pub(crate) const CANCELLED: i64 = -32800;
    pub(crate) const NOT_FOUND: i64 = -32002;

    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The request cannot be understood.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Self::INVALID_PARAMS, message)
    }

    /// An error of ours, with all of its causes.
    pub(crate) fn internal(error: &dyn std::error::Error) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
        Self::new(Self::INTERNAL, message)
    }

    fn gone() -> Self {
        Self::new(Self::INTERNAL, "the client is gone")
    }

    fn json(&self) -> Value {
        let mut json = json!({"code": self.code, "message": self.message});
        if let Some(data) = &self.data {
            json["data"] = data.clone();
        }
        json
    }

    fn of(json: &Value) -> Self {
        Self {
            code: json["code"].as_i64().unwrap_or(Self::INTERNAL),
            message: json["message"].as_str().unwrap_or("it did not say why").to_owned(),
            data: json.get("data").cloned(),
        }
    }
}

/// The answer to a request.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    /// The result.
    pub(crate) result: Value,
    /// Notifications that go right after it: method and parameters.
    pub(crate) after: Vec<(&'static str, Value)>,
}

impl From<Value> for Reply {
    fn from(result: Value) -> Self {
        Self { result, after: Vec::new() }
    }
}

/// What happens on a peer's wish.
pub(crate) trait Handler: Send + Sync {
    /// Takes a request. What is done before the future is returned is done before the next
    /// message is read; the future may take its time. It is dropped when the connection ends.
    fn request(
        &self,
        method: &str,
        params: Value,
        cancelled: CancellationToken,
    ) -> BoxFuture<'static, Result<Reply, RpcError>>;

    /// Takes a notification, before the next message is read.
    fn notification(&self, method: &str, params: Value);
}

/// The other side. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Peer {
    inner: Arc<Inner>,
}

struct Inner {
    writer: tokio::sync::Mutex<Writer>,
    pending: Mutex<Pending>,
}

struct Writer {
    out: Box<dyn AsyncWrite + Send + Unpin>,
    /// What is being written: a writer that is dropped half way leaves the rest to the next.
    unsent: Vec<u8>,
    sent: usize,
}

#[derive(Default)]
struct Pending {
    next: u64,
    waiting: BTreeMap<u64, oneshot::Sender<Result<Value, RpcError>>>,
    gone: bool,
}

impl Peer {
    pub(crate) fn new(out: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        let writer = Writer { out: Box::new(out), unsent: Vec::new(), sent: 0 };
        let writer = tokio::sync::Mutex::new(writer);
        Self { inner: Arc::new(Inner { writer, pending: Mutex::default() }) }
    }

    /// Writes whole lines, and returns once they are written.
    pub(crate) async fn write(&self, lines: &[u8]) -> Result<(), RpcError> {
        if self.pending().gone {
            return Err(RpcError::gone());
        }
        let mut writer = self.inner.writer.lock().await;
        let written = writer.write(lines).await;
        drop(writer);
        written.map_err(|error| {
            tracing::debug!(%error, "the client does not read any more");
            self.lose();
            RpcError::gone()
        })
    }

    pub(crate) async fn notify(&self, method: &str, params: &Value) -> Result<(), RpcError> {
        self.write(&line(&notification(method, params))).await
    }

    /// Sends a request. When it returns, the request is written; the answer is awaited.
    pub(crate) async fn request(&self, method: &str, params: &Value) -> Result<Answer, RpcError> {
        let (give, answer) = oneshot::channel();
        let id = {
            let mut pending = self.pending();
            if pending.gone {
                return Err(RpcError::gone());
            }
            if pending.waiting.len() >= PENDING_MAX {
                let message = format!("the client owes {PENDING_MAX} answers already");
                return Err(RpcError::new(RpcError::INTERNAL, message));
            }
            let id = pending.next;
            pending.next += 1;
            pending.waiting.insert(id, give);
            id
        };
        let answer = Answer { peer: self.clone(), id, answer };
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.write(&line(&request)).await?;
        Ok(answer)
    }

    /// Whether nobody is there any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.pending().gone
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn ask(&self, method: &str, params: &Value) -> Result<Value, RpcError> {
        self.request(method, params).await?.await
    }

    /// Reads until the peer is gone, and does what it wishes.
    ///
    /// # Errors
    ///
    /// When reading fails, or the peer sends a line longer than can be held.
    pub(crate) async fn serve(
        &self,
        mut input: impl AsyncRead + Unpin,
        handler: &dyn Handler,
    ) -> std::io::Result<()> {
        let mut work = JoinSet::new();
        let at_work: Arc<Mutex<BTreeMap<String, CancellationToken>>> = Arc::default();
        let mut framer = Framer::ndjson();
        let mut bytes = vec![0; READ_BYTES];
        let served = loop {
            let count = tokio::select! {
                read = input.read(&mut bytes) => match read {
                    Ok(0) => break Ok(()),
                    Ok(count) => count,
                    Err(error) => break Err(error),
                },
                Some(_) = work.join_next() => continue,
            };
            let mut chunk = &bytes[..count];
            let broken = loop {
                match framer.next(&mut chunk) {
                    Ok(Some(frame)) => {
                        self.take(frame.data, handler, &mut work, &at_work).await;
                    }
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            if let Some(error) = broken {
                // Without the message nobody knows what would have been next.
                let message = format!("a message has more than {EVENT_BYTES_MAX} bytes");
                self.refuse(&Value::Null, &RpcError::new(RpcError::PARSE, message)).await;
                break Err(std::io::Error::other(error));
            }
        };
        self.lose();
        work.shutdown().await;
        served
    }

    async fn take(
        &self,
        data: &[u8],
        handler: &dyn Handler,
        work: &mut JoinSet<()>,
        at_work: &Arc<Mutex<BTreeMap<String, CancellationToken>>>,
    ) {
        if data.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let Ok(mut message) = serde_json::from_slice::<Value>(data) else {
            let error = RpcError::new(RpcError::PARSE, "the line is not JSON");
            return self.refuse(&Value::Null, &error).await;
        };
        let params = message.get_mut("params").map(Value::take).unwrap_or_default();
        let id = message.get("id").filter(|id| !id.is_null()).cloned();
        let Some(method) = message.get("method").and_then(Value::as_str) else {
            return match id {
                Some(id) => self.settle(&id, message),
                None => {
                    let what = "a message has a method, or the id of a request that it answers";
                    let error = RpcError::new(RpcError::INVALID_REQUEST, what);
                    self.refuse(&Value::Null, &error).await;
                }
            };
        };
        let Some(id) = id else {
            if method == "$/cancel_request" {
                let token = lock(at_work).get(&params["requestId"].to_string()).cloned();
                token.iter().for_each(CancellationToken::cancel);
            } else {
                handler.notification(method, params);
            }
            return;
        };
        if work.len() >= REQUESTS_MAX {
            let what = format!("{REQUESTS_MAX} requests are being worked on; wait for one to end");
            return self.refuse(&id, &RpcError::new(RpcError::INTERNAL, what)).await;
        }
        let token = CancellationToken::new();
        lock(at_work).insert(id.to_string(), token.clone());
        let work_on = handler.request(method, params, token);
        let (peer, at_work) = (self.clone(), Arc::clone(at_work));
        work.spawn(async move {
            let done = work_on.await;
            lock(&at_work).remove(&id.to_string());
            let _ = match done {
                Ok(reply) => peer.reply(&id, &reply).await,
                Err(error) => return peer.refuse(&id, &error).await,
            };
        });
    }

    async fn reply(&self, id: &Value, reply: &Reply) -> Result<(), RpcError> {
        let mut lines = line(&json!({"jsonrpc": "2.0", "id": id, "result": reply.result}));
        for (method, params) in &reply.after {
            lines.extend(line(&notification(method, params)));
        }
        self.write(&lines).await
    }

    async fn refuse(&self, id: &Value, error: &RpcError) {
        // Who is gone needs no answer.
        let _ =
            self.write(&line(&json!({"jsonrpc": "2.0", "id": id, "error": error.json()}))).await;
    }

    /// Hands an answer to whoever waits for it.
    fn settle(&self, id: &Value, mut message: Value) {
        let waiting = id.as_u64().and_then(|id| self.pending().waiting.remove(&id));
        let Some(waiting) = waiting else {
            tracing::debug!(%id, "an answer that nobody waits for");
            return;
        };
        let answer = match message.get("error") {
            Some(error) if !error.is_null() => Err(RpcError::of(error)),
            Some(_) | None => Ok(message.get_mut("result").map(Value::take).unwrap_or_default()),
        };
        // Whoever asked may have gone on.
        let _ = waiting.send(answer);
    }

    /// Nobody is there any more: whoever waits is told.
    fn lose(&self) {
        let mut pending = self.pending();
        pending.gone = true;
        pending.waiting.clear();
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        lock(&self.inner.pending)
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").finish_non_exhaustive()
    }
}

impl Writer {
    async fn write(&mut self, lines: &[u8]) -> std::io::Result<()> {
        self.unsent.drain(..self.sent);
        self.sent = 0;
        self.unsent.extend_from_slice(lines);
        while self.sent < self.unsent.len() {
            match self.out.write(&self.unsent[self.sent..]).await? {
                0 => return Err(std::io::ErrorKind::WriteZero.into()),
                count => self.sent += count,
            }
        }
        self.unsent.clear();
        self.sent = 0;
        // What was large once need not stay so.
        self.unsent.shrink_to(READ_BYTES);
        self.out.flush().await
    }
}

/// The answer to a request of ours; dropped, nobody waits for it any more.
pub(crate) struct Answer {
    peer: Peer,
    id: u64,
    answer: oneshot::Receiver<Result<Value, RpcError>>,
}

impl Answer {
    /// Tells the peer that nobody needs the answer.
    pub(crate) async fn cancel(self) {
        let params = json!({"requestId": self.id});
        let _ = self.peer.notify("$/cancel_request", &params).await;
    }
}

impl Future for Answer {
    type Output = Result<Value, RpcError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = Pin::new(&mut self.answer).poll(cx);
        answer.map(|answer| answer.unwrap_or_else(|_| Err(RpcError::gone())))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.peer.pending().waiting.remove(&self.id);
    }
}

pub(crate) fn notification(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

fn line(message: &Value) -> Vec<u8> {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
