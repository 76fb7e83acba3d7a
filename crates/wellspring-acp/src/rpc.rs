//! JSON-RPC 2.0 in both directions, with bounded queues.
//!
//! [`Peer`] is the other side of a connection: a client that we serve, or an agent that we drive.
//! We notify it and send it requests; [`Peer::take`] parses what it sends. How
//! messages travel is up to the transport, and how a request is handled is up to the
//! reader.
//!
//! Sending waits until the transport has room. So a peer that reads
//! slowly slows down its sender; if that reads a run, its cursor lags.
//! Requests without an answer are counted ([`PENDING_MAX`]). Messages are untyped JSON, because
//! typed ones would drop unknown members.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use futures::future::{BoxFuture, FutureExt as _, ready};
use serde_json::{Value, json};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use wellspring_core::CancellationToken;

use crate::lock;

/// Maximum number of requests to one peer that wait for an answer: one per prompt, and one per
/// question or tool of a run. A peer that owes this many is not going to answer the next one.
pub const PENDING_MAX: usize = 1024;

/// A JSON-RPC error.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message} ({code})")]
pub(crate) struct RpcError {
    /// The error code.
    pub(crate) code: i64,
    /// The message for people.
    pub(crate) message: String,
    /// Further data.
    pub(crate) data: Option<Value>,
}

impl RpcError {
    pub(crate) const PARSE: i64 = -32700;
    pub(crate) const INVALID_REQUEST: i64 = -32600;
    pub(crate) const NO_METHOD: i64 = -32601;
    pub(crate) const INVALID_PARAMS: i64 = -32602;
    pub(crate) const INTERNAL: i64 = -32603;
    pub(crate) const CANCELLED: i64 = -32800;
    pub(crate) const NOT_FOUND: i64 = -32002;
    pub(crate) const LOGIN_FIRST: i64 = -32000;

    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The request is invalid.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Self::INVALID_PARAMS, message)
    }

    /// The thing that the request names does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Self::NOT_FOUND, message)
    }

    /// The request is valid but failed.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Self::INTERNAL, message)
    }

    /// The request was cancelled.
    pub(crate) fn cancelled() -> Self {
        Self::new(Self::CANCELLED, "cancelled as you asked")
    }

    /// The method is not supported.
    pub(crate) fn no_method(method: &str) -> Self {
        let method: String = method.chars().take(64).collect();
        Self::new(Self::NO_METHOD, format!("there is no method {method:?} here"))
    }

    /// An internal error, with all its causes.
    pub(crate) fn internal(error: &dyn std::error::Error) -> Self {
        let mut message = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
        Self::failed(message)
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

/// A request could not be sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Unasked {
    /// The peer is gone.
    #[error("the other side is gone")]
    Gone,
    /// The peer owes too many answers.
    #[error("the other side owes {PENDING_MAX} answers already")]
    TooMany,
}

impl From<Unasked> for RpcError {
    fn from(unasked: Unasked) -> Self {
        Self::failed(unasked.to_string())
    }
}

/// A message from the peer.
#[derive(Debug)]
pub(crate) enum Wish {
    /// A request.
    Request(Request),
    /// A notification.
    Notification(Box<str>, Value),
}

/// The answer to a request.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    /// The result.
    pub(crate) result: Value,
    /// Notifications to send right after it: method and parameters.
    pub(crate) after: Vec<(&'static str, Value)>,
    /// Runs once the peer may have read the answer.
    pub(crate) then: Option<Next>,
}

/// A deferred action.
pub(crate) struct Next(pub(crate) Box<dyn FnOnce() + Send>);

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Next")
    }
}

impl From<Value> for Reply {
    fn from(result: Value) -> Self {
        Self { result, ..Self::default() }
    }
}

/// A request of the peer. A request that is dropped is answered with an error.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Box<str>,
    pub(crate) params: Value,
    /// Cancelled when the peer no longer needs the answer.
    pub(crate) cancelled: CancellationToken,
    /// `None` once it is answered.
    id: Option<Value>,
    peer: Peer,
}

impl Request {
    /// Answers it. Does nothing if the peer is gone.
    pub(crate) async fn answer(mut self, answer: Result<Reply, RpcError>) {
        let Some(id) = self.close() else { return };
        let mut next = None;
        let lines = match answer {
            Ok(Reply { result, after, then }) => {
                next = then;
                let mut lines = line(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
                for (method, params) in &after {
                    lines.extend(line(&notification(method, params)));
                }
                lines
            }
            Err(error) => refusal(&id, &error),
        };
        let _ = self.peer.say(lines).await;
        if let Some(Next(next)) = next {
            next();
        }
    }

    /// Answers it with a result or an error, without notifications.
    pub(crate) async fn give(self, answer: Result<Value, RpcError>) {
        self.answer(answer.map(Reply::from)).await;
    }

    /// Answers it with the future's output, or with an error once it is cancelled.
    pub(crate) async fn give_unless_cancelled(
        self,
        work: impl Future<Output = Result<Value, RpcError>>,
    ) {
        let done = tokio::select! {
            done = work => done,
            () = self.cancelled.cancelled() => Err(RpcError::cancelled()),
        };
        self.give(done).await;
    }

    /// Takes its id: from now on it cannot be cancelled.
    fn close(&mut self) -> Option<Value> {
        let id = self.id.take()?;
        self.peer.state().asked.remove(&id.to_string());
        Some(id)
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(id) = self.close() {
            let over = RpcError::new(RpcError::CANCELLED, "the run has finished");
            self.peer.say_now(refusal(&id, &over));
        }
    }
}

/// The other side of a connection. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Peer {
    state: Arc<Mutex<State>>,
}

struct State {
    /// Where messages go, each ending with a newline. `None` once the peer is gone.
    out: Option<mpsc::Sender<Vec<u8>>>,
    next: u64,
    waiting: BTreeMap<u64, Then>,
    /// Cancels requests of the peer by id, while they are being handled.
    asked: BTreeMap<String, CancellationToken>,
}

/// Runs with an answer before the peer's next message is read.
type Then = Box<dyn FnOnce(Result<Value, RpcError>) -> BoxFuture<'static, ()> + Send>;

impl Peer {
    /// A peer whose messages go to a transport.
    pub(crate) fn new(out: mpsc::Sender<Vec<u8>>) -> Self {
        // Ids start at one, because some programs treat zero as missing.
        let (waiting, asked) = (BTreeMap::new(), BTreeMap::new());
        let state = State { out: Some(out), next: 1, waiting, asked };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Sends whole lines, and returns once the transport has taken them. Sends nothing if dropped
    /// before that.
    pub(crate) async fn say(&self, lines: Vec<u8>) -> Result<(), Unasked> {
        let out = self.state().out.clone().ok_or(Unasked::Gone)?;
        out.send(lines).await.map_err(|_| {
            self.lose();
            Unasked::Gone
        })
    }

    /// Sends a line without waiting, or drops it.
    fn say_now(&self, lines: Vec<u8>) {
        if let Some(out) = &self.state().out {
            let _ = out.try_send(lines);
        }
    }

    pub(crate) async fn notify(&self, method: &str, params: &Value) -> Result<(), Unasked> {
        self.say(line(&notification(method, params))).await
    }

    /// Sends a notification without waiting, or drops it.
    pub(crate) fn notify_now(&self, method: &str, params: &Value) {
        self.say_now(line(&notification(method, params)));
    }

    /// Sends a request. It is on its way when this returns; the answer is awaited separately.
    pub(crate) async fn request(&self, method: &str, params: &Value) -> Result<Answer, Unasked> {
        let (give, answer) = oneshot::channel();
        let then = move |answered| {
            // The caller may be gone.
            let _ = give.send(answered);
            ready(()).boxed()
        };
        let waits = self.request_then(method, params, then).await?;
        Ok(Answer { waits, answer })
    }

    /// Sends a request with a handler for its answer, which runs before the next message
    /// is read. The handler does not run if the peer goes away, or if the returned guard is dropped.
    pub(crate) async fn request_then(
        &self,
        method: &str,
        params: &Value,
        then: impl FnOnce(Result<Value, RpcError>) -> BoxFuture<'static, ()> + Send + 'static,
    ) -> Result<Waits, Unasked> {
        let waits = {
            let mut state = self.state();
            if state.out.is_none() {
                return Err(Unasked::Gone);
            }
            if state.waiting.len() >= PENDING_MAX {
                return Err(Unasked::TooMany);
            }
            let id = state.next;
            state.next += 1;
            state.waiting.insert(id, Box::new(then));
            Waits { peer: Some(self.clone()), id }
        };
        let id = waits.id;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.say(line(&request)).await?;
        Ok(waits)
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn ask(&self, method: &str, params: &Value) -> Result<Value, RpcError> {
        self.request(method, params).await?.await
    }

    /// Sends a request and waits for its answer or for `cancelled`; in the latter case the peer is
    /// notified.
    pub(crate) async fn ask_until(
        &self,
        method: &str,
        params: &Value,
        cancelled: &CancellationToken,
    ) -> Result<Value, RpcError> {
        let mut answer = self.request(method, params).await?;
        tokio::select! {
            answer = &mut answer => return answer,
            () = cancelled.cancelled() => {}
        }
        answer.cancel().await;
        Err(RpcError::cancelled())
    }

    /// Parses a line from the peer. Answers go to their waiting callers, and cancellations to the
    /// requests that they name; anything else is returned.
    ///
    /// # Errors
    ///
    /// If it is not a message.
    pub(crate) async fn take(&self, line: &[u8]) -> Result<Option<Wish>, RpcError> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        let Ok(mut message) = serde_json::from_slice::<Value>(line) else {
            return Err(RpcError::new(RpcError::PARSE, "the line is not JSON"));
        };
        let id = message.get("id").filter(|id| !id.is_null()).cloned();
        let Some(method) = message.get("method").and_then(Value::as_str).map(Box::<str>::from)
        else {
            let Some(id) = id else {
                let what = "a message has a method, or the id of a request that it answers";
                return Err(RpcError::new(RpcError::INVALID_REQUEST, what));
            };
            self.settle(&id, message).await;
            return Ok(None);
        };
        let params = message.get_mut("params").map(Value::take).unwrap_or_default();
        let Some(id) = id else {
            if &*method != "$/cancel_request" {
                return Ok(Some(Wish::Notification(method, params)));
            }
            let token = self.state().asked.remove(&params["requestId"].to_string());
            token.iter().for_each(CancellationToken::cancel);
            return Ok(None);
        };
        let cancelled = CancellationToken::new();
        self.state().asked.insert(id.to_string(), cancelled.clone());
        let peer = self.clone();
        Ok(Some(Wish::Request(Request { method, params, cancelled, id: Some(id), peer })))
    }

    /// Reports an invalid message to the peer.
    pub(crate) async fn complain(&self, error: &RpcError) {
        let _ = self.say(refusal(&Value::Null, error)).await;
    }

    /// Delivers an answer to its waiting caller.
    async fn settle(&self, id: &Value, mut message: Value) {
        let then = id.as_u64().and_then(|id| self.state().waiting.remove(&id));
        let Some(then) = then else {
            tracing::debug!(%id, "ignored a response to an unknown request");
            return;
        };
        let answer = match message.get("error") {
            Some(error) if !error.is_null() => Err(RpcError::of(error)),
            Some(_) | None => Ok(message.get_mut("result").map(Value::take).unwrap_or_default()),
        };
        then(answer).await;
    }

    /// Whether the peer is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.state().out.is_none()
    }

    /// Marks the peer as gone: waiting callers get an error. Messages already queued still go out.
    pub(crate) fn lose(&self) {
        let waiting = {
            let mut state = self.state();
            state.out = None;
            std::mem::take(&mut state.waiting)
        };
        // Outside of the lock, because dropped values may take it.
        drop(waiting);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").finish_non_exhaustive()
    }
}

/// A pending request; dropping it frees its slot.
#[derive(Debug)]
pub(crate) struct Waits {
    /// `None` if the slot outlives this guard.
    peer: Option<Peer>,
    id: u64,
}

impl Waits {
    /// Keeps the slot until the answer arrives or the peer goes away.
    pub(crate) fn detach(mut self) {
        self.peer = None;
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        let then = self.peer.as_ref().and_then(|peer| peer.state().waiting.remove(&self.id));
        // Outside of the lock, because dropped values may take it.
        drop(then);
    }
}

/// The answer to a request of ours; dropping it abandons the request.
#[derive(Debug)]
pub(crate) struct Answer {
    waits: Waits,
    answer: oneshot::Receiver<Result<Value, RpcError>>,
}

impl Answer {
    /// Tells the peer that the answer is no longer needed.
    pub(crate) async fn cancel(self) {
        let params = json!({"requestId": self.waits.id});
        if let Some(peer) = &self.waits.peer {
            let _ = peer.notify("$/cancel_request", &params).await;
        }
    }
}

impl Future for Answer {
    type Output = Result<Value, RpcError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = Pin::new(&mut self.answer).poll(cx);
        answer.map(|answer| answer.unwrap_or_else(|_| Err(Unasked::Gone.into())))
    }
}

/// Writes outgoing messages until there are no more, or the transport fails.
pub(crate) async fn write(mut to: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<Vec<u8>>) {
    while let Some(some) = lines.recv().await {
        let written = async {
            to.write_all(&some).await?;
            to.flush().await
        };
        if let Err(error) = written.await {
            tracing::debug!(%error, "the other side does not read any more");
            return;
        }
    }
}

pub(crate) fn notification(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

fn refusal(id: &Value, error: &RpcError) -> Vec<u8> {
    line(&json!({"jsonrpc": "2.0", "id": id, "error": error.json()}))
}

fn line(message: &Value) -> Vec<u8> {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests;
