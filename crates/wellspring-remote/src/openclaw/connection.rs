//! The connection to a gateway: handshake, requests, and routing of events to the runs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use wellspring_core::{FailureKind, ModelError};
use wellspring_wire::openclaw::{
    Challenge, Connect, Device, EventFrame, Frame, GatewayError, HelloOk, PROTOCOL_MAX,
    PROTOCOL_MIN, Response, request, signed_by_device,
};

use super::Shared;
use crate::http::CONNECT_TIMEOUT;

/// Maximum size of a frame, the same as the gateway's.
const FRAME_BYTES_MAX: usize = 25 * 1024 * 1024;

/// Requests that wait to be sent. Each run has at most one or two.
const REQUESTS_WAITING_MAX: usize = 256;

/// Events of one run that wait to be read. Snapshots of one text are merged, so only a run that
/// is not read for a long time reaches the limit.
const EVENTS_WAITING_MAX: usize = 1_024;

/// Maximum number of end events and responses that are kept in addition. The first end event ends
/// the run; later ones contain its last text, its usage and its files.
const ENDS_WAITING_MAX: usize = 64;

/// How often a gateway that is starting is retried.
const STARTUP_TRIES_MAX: u32 = 120;

/// The maximum wait between two of these retries.
const STARTUP_WAIT_MAX: Duration = Duration::from_secs(2);

/// How long the response to a request may take.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// The default time between two ticks.
const TICK_DEFAULT: Duration = Duration::from_secs(30);

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A connection and its receivers.
pub(super) struct Link {
    pub(super) hello: HelloOk,
    out: mpsc::Sender<String>,
    routes: Arc<Mutex<Routes>>,
    closed: CancellationToken,
    next_id: AtomicU64,
    _task: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Routes {
    runs: BTreeMap<Box<str>, Arc<Inbox>>,
    requests: BTreeMap<Box<str>, Reply>,
}

/// The receiver of a response.
enum Reply {
    Caller(oneshot::Sender<Response>),
    /// A run, which may get several responses.
    Run(Arc<Inbox>),
}

/// Messages about a run that the run has not read yet.
#[derive(Default)]
pub(super) struct Inbox {
    queue: Mutex<VecDeque<Heard>>,
    arrived: Notify,
}

/// A message about a run.
#[derive(Debug)]
pub(super) enum Heard {
    Event(EventFrame),
    Response(Response),
}

impl Inbox {
    fn push(&self, heard: Heard) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let replaces = match (&heard, queue.back()) {
            (Heard::Event(new), Some(Heard::Event(old))) => {
                is_later_snapshot(&old.payload, &new.payload)
            }
            (Heard::Event(_) | Heard::Response(_), _) => false,
        };
        if replaces {
            queue.pop_back();
        }
        let room = if is_terminal(&heard) { ENDS_WAITING_MAX } else { 0 };
        if queue.len() >= EVENTS_WAITING_MAX + room {
            tracing::warn!("an event was dropped: its run is not read");
            return;
        }
        queue.push_back(heard);
        drop(queue);
        self.arrived.notify_one();
    }

    /// The next message. Cancel safe.
    pub(super) async fn next(&self) -> Heard {
        loop {
            if let Some(heard) = self.pop() {
                return heard;
            }
            self.arrived.notified().await;
        }
    }

    pub(super) fn pop(&self) -> Option<Heard> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// Whether an event is a later snapshot, which contains everything of an earlier one.
fn is_later_snapshot(old: &Value, new: &Value) -> bool {
    let text = |event: &Value| event["data"]["text"].as_str().map(str::len);
    matches!(old["stream"].as_str(), Some("assistant" | "thinking"))
        && old["stream"] == new["stream"]
        && old["data"]["itemId"] == new["data"]["itemId"]
        && text(old).zip(text(new)).is_some_and(|(old, new)| old <= new)
}

/// Whether a message ends the run. Such messages are kept even if the inbox is full.
fn is_terminal(heard: &Heard) -> bool {
    match heard {
        Heard::Response(_) => true,
        Heard::Event(event) => match &*event.event {
            "chat" => event.payload["state"] != "delta",
            _ => {
                event.payload["stream"] == "lifecycle"
                    && matches!(event.payload["data"]["phase"].as_str(), Some("end" | "error"))
            }
        },
    }
}

impl Link {
    /// Connects and does the handshake. A gateway that is still starting is retried.
    pub(super) async fn open(shared: &Shared) -> Result<Self, ModelError> {
        let mut tries = 0;
        loop {
            match Self::try_open(shared).await? {
                Ok(link) => return Ok(link),
                Err(error) if error.is_starting() && tries < STARTUP_TRIES_MAX => {
                    tries += 1;
                    let wait = Duration::from_millis(error.retry_after_ms.unwrap_or(500));
                    tokio::time::sleep(wait.min(STARTUP_WAIT_MAX)).await;
                }
                Err(error) => return Err(refused(shared, &error)),
            }
        }
    }

    async fn try_open(shared: &Shared) -> Result<Result<Self, GatewayError>, ModelError> {
        let unreachable = |what: &str| {
            let what = format!("could not be reached at {}: {what}", shared.config.url);
            shared.error(FailureKind::Unavailable, &what)
        };
        let limits = WebSocketConfig::default()
            .max_message_size(Some(FRAME_BYTES_MAX))
            .max_frame_size(Some(FRAME_BYTES_MAX));
        let connecting = connect_async_with_config(&*shared.config.url, Some(limits), true);
        let connected = timeout(CONNECT_TIMEOUT, connecting).await;
        let connected = connected.map_err(|_| unreachable("it did not answer"))?;
        let (mut socket, _) = connected.map_err(|error| unreachable(&error.to_string()))?;
        let shaking = async {
            let challenge = loop {
                match next_frame(&mut socket).await.map_err(|why| unreachable(&why))? {
                    Frame::Event(event) if &*event.event == "connect.challenge" => {
                        break Challenge::of(&event.payload);
                    }
                    Frame::Event(_) | Frame::Response(_) | Frame::Other(_) => {}
                }
            };
            let params = connect_params(shared, &challenge);
            let message = Message::text(request("connect", "connect", params).to_string());
            socket.send(message).await.map_err(|error| unreachable(&error.to_string()))?;
            loop {
                match next_frame(&mut socket).await.map_err(|why| unreachable(&why))? {
                    Frame::Response(response) if &*response.id == "connect" => return Ok(response),
                    Frame::Event(_) | Frame::Response(_) | Frame::Other(_) => {}
                }
            }
        };
        let answer = timeout(CONNECT_TIMEOUT, shaking).await;
        let answer: Response =
            answer.map_err(|_| unreachable("it did not answer the handshake"))??;
        if !answer.ok {
            return Ok(Err(answer.error.unwrap_or_default()));
        }
        let hello = HelloOk::of(&answer.payload);
        // If the gateway reports no version, we assume a version in our range, because the gateway
        // accepted the range.
        if hello.protocol != 0 && !(PROTOCOL_MIN..=PROTOCOL_MAX).contains(&hello.protocol) {
            let what = format!(
                "it speaks protocol {}, and Wellspring {PROTOCOL_MIN} to {PROTOCOL_MAX}; update \
                 the older of the two",
                hello.protocol
            );
            return Err(shared.error(FailureKind::BadRequest, &what));
        }
        tracing::debug!(agent = &*shared.name, version = &*hello.version, "connected to a gateway");
        let tick = hello.tick_interval_ms.map_or(TICK_DEFAULT, Duration::from_millis);
        let (out, requests) = mpsc::channel(REQUESTS_WAITING_MAX);
        let routes = Arc::<Mutex<Routes>>::default();
        let closed = CancellationToken::new();
        let task = Serving {
            agent: shared.name.clone(),
            socket,
            requests,
            routes: Arc::clone(&routes),
            silence_max: 2 * tick,
            last_seq: None,
        };
        let ends = closed.clone();
        let task = tokio::spawn(async move {
            let _guard = ends.clone().drop_guard();
            tokio::select! {
                () = task.serve() => {}
                () = ends.cancelled() => {}
            }
        });
        let next_id = AtomicU64::new(1);
        let _task = AbortOnDropHandle::new(task);
        Ok(Ok(Self { hello, out, routes, closed, next_id, _task }))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Waits until the connection is lost.
    pub(super) async fn lost(&self) {
        self.closed.cancelled().await;
    }

    /// Registers a run: from here on its events are kept for it.
    pub(super) fn register(&self, run_id: &str, inbox: &Arc<Inbox>) {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        routes.runs.insert(run_id.into(), Arc::clone(inbox));
    }

    pub(super) fn unregister(&self, run_id: &str) {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(gone) = routes.runs.remove(run_id) else { return };
        routes.requests.retain(|_, reply| match reply {
            Reply::Run(inbox) => !Arc::ptr_eq(inbox, &gone),
            Reply::Caller(_) => true,
        });
    }

    /// Sends a request whose responses go to a run. If the connection is lost, or its queue is
    /// full because the gateway takes no requests, [`lost`](Self::lost) resolves.
    pub(super) fn request_for(&self, inbox: &Arc<Inbox>, method: &str, params: Value) {
        let frame = self.numbered(method, params, Reply::Run(Arc::clone(inbox)));
        if self.out.try_send(frame).is_err() {
            self.closed.cancel();
        }
    }

    /// Sends a request and waits for its response; `None` if the connection is lost, or no
    /// response arrives in time.
    pub(super) async fn request(&self, method: &str, params: Value) -> Option<Response> {
        let (reply, answer) = oneshot::channel();
        let frame = self.numbered(method, params, Reply::Caller(reply));
        let asking = async {
            self.out.send(frame).await.ok()?;
            answer.await.ok()
        };
        tokio::select! {
            answer = timeout(ANSWER_TIME, asking) => answer.ok()?,
            () = self.lost() => None,
        }
    }

    fn numbered(&self, method: &str, params: Value, reply: Reply) -> String {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed).to_string();
        let frame = request(&id, method, params).to_string();
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        routes.requests.insert(id.into(), reply);
        frame
    }
}

/// The task that owns the socket.
struct Serving {
    agent: Box<str>,
    socket: Socket,
    requests: mpsc::Receiver<String>,
    routes: Arc<Mutex<Routes>>,
    /// The gateway sends ticks: a longer silence means that the connection is dead.
    silence_max: Duration,
    last_seq: Option<u64>,
}

impl Serving {
    async fn serve(mut self) {
        // Measured from the gateway's last frame: our own frames do not show that it is alive.
        let mut silent_at = Instant::now() + self.silence_max;
        let why: Box<str> = loop {
            tokio::select! {
                heard = timeout_at(silent_at, self.socket.next()) => {
                    silent_at = Instant::now() + self.silence_max;
                    match heard {
                        Err(_) => break "no tick came".into(),
                        Ok(Some(Ok(Message::Text(text)))) => {
                            if let Ok(frame) = serde_json::from_str(&text) {
                                self.route(Frame::of(frame));
                            }
                        }
                        Ok(None | Some(Ok(Message::Close(_)))) => break "it was closed".into(),
                        // The library answers pings; no other frame belongs to the protocol.
                        Ok(Some(Ok(
                            Message::Binary(_)
                            | Message::Ping(_)
                            | Message::Pong(_)
                            | Message::Frame(_),
                        ))) => {}
                        Ok(Some(Err(error))) => break error.to_string().into(),
                    }
                }
                frame = self.requests.recv() => {
                    let Some(frame) = frame else { return };
                    // A send to a dead peer blocks once its window is full.
                    let sending = self.socket.send(Message::text(frame));
                    match timeout(self.silence_max, sending).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => break error.to_string().into(),
                        Err(_) => break "it takes no requests".into(),
                    }
                }
            }
        };
        tracing::warn!(agent = &*self.agent, %why, "the connection to the gateway was lost");
    }

    fn route(&mut self, frame: Frame) {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        match frame {
            Frame::Response(response) => {
                let Some(reply) = routes.requests.remove(&response.id) else { return };
                match reply {
                    Reply::Caller(caller) => drop(caller.send(response)),
                    Reply::Run(inbox) => {
                        if response.is_interim() {
                            let again = Reply::Run(Arc::clone(&inbox));
                            routes.requests.insert(response.id.clone(), again);
                        }
                        inbox.push(Heard::Response(response));
                    }
                }
            }
            Frame::Event(event) => {
                if let Some(seq) = event.seq {
                    if let Some(last) = self.last_seq.filter(|last| last + 1 != seq) {
                        // Later snapshots restore text that a gap lost.
                        tracing::warn!(
                            agent = &*self.agent,
                            last,
                            seq,
                            "the gateway skipped events"
                        );
                    }
                    self.last_seq = Some(seq);
                }
                let inbox = event.run_id().and_then(|run| routes.runs.get(run).cloned());
                if let Some(inbox) = inbox {
                    inbox.push(Heard::Event(event));
                }
            }
            Frame::Other(_) => {}
        }
    }
}

async fn next_frame(socket: &mut Socket) -> Result<Frame, String> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => {
                let frame = serde_json::from_str(&text).map_err(|error| error.to_string())?;
                return Ok(Frame::of(frame));
            }
            Some(Ok(Message::Close(close))) => {
                let why = close.map(|close| format!("{}: {}", close.code, close.reason));
                return Err(format!("it closed the connection ({})", why.unwrap_or_default()));
            }
            None => return Err("it closed the connection".into()),
            Some(Err(error)) => return Err(error.to_string()),
            Some(Ok(
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_),
            )) => {}
        }
    }
}

fn connect_params(shared: &Shared, challenge: &Challenge) -> Value {
    let config = &shared.config;
    let (version, platform) = (env!("CARGO_PKG_VERSION"), std::env::consts::OS);
    let token = config.token.as_deref();
    let signed = config.identity.as_ref().and_then(|identity| {
        let text = signed_by_device(identity.id(), token, platform, challenge);
        Some((identity, identity.sign(&text)?))
    });
    let device = signed.as_ref().map(|(identity, signature)| Device {
        id: identity.id(),
        public_key: identity.public_key(),
        signature,
        challenge,
    });
    Connect { version, platform, token, password: config.password.as_deref(), device }.params()
}

/// The gateway's error response to the handshake, with a remedy.
fn refused(shared: &Shared, error: &GatewayError) -> ModelError {
    let details = &error.details;
    let advice = match error.detail_code() {
        "PROTOCOL_MISMATCH" => format!(
            "it speaks protocol {}, and Wellspring {PROTOCOL_MIN} to {PROTOCOL_MAX}; update the \
             older of the two",
            details["expectedProtocol"]
        ),
        "PAIRING_REQUIRED" | "NOT_PAIRED" => {
            let request = details["requestId"].as_str().unwrap_or("REQUEST");
            let device = shared.config.identity.as_ref().map_or("unknown", |it| it.id());
            format!(
                "approve this device ({device}) on the gateway's machine: `openclaw devices \
                 list`, then `openclaw devices approve {request}`"
            )
        }
        "DEVICE_IDENTITY_REQUIRED" | "CONTROL_UI_DEVICE_IDENTITY_REQUIRED" => {
            "set `identity` to a file for this device's key".into()
        }
        "DEVICE_AUTH_SIGNATURE_EXPIRED" => "compare the clocks of the two machines".into(),
        code if code.starts_with("AUTH_") => {
            "set `token` to the gateway's (`openclaw config get gateway.auth.token`)".into()
        }
        _ => String::new(),
    };
    let kind = match error.detail_code() {
        "PROTOCOL_MISMATCH" => FailureKind::BadRequest,
        _ if error.retryable => FailureKind::Unavailable,
        _ => FailureKind::Refused,
    };
    let mut what = format!("refused the connection: {} ({})", error.message, error.detail_code());
    if !advice.is_empty() {
        what += "; ";
        what += &advice;
    }
    shared.error(kind, &what)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(stream: &str, data: &Value) -> Heard {
        let payload = json!({"runId": "r", "stream": stream, "data": data});
        Heard::Event(EventFrame { event: "agent".into(), seq: None, payload })
    }

    /// A run that is not read for long keeps a bounded number of events and only the latest
    /// snapshot of a text. It always keeps the run's end.
    #[test]
    fn ends_are_kept_however_many_events_wait() {
        let inbox = Inbox::default();
        for n in 0..2 * EVENTS_WAITING_MAX {
            inbox.push(event("tool", &json!({"phase": "update", "toolCallId": n})));
        }
        for _ in 0..2 * ENDS_WAITING_MAX {
            inbox.push(event("lifecycle", &json!({"phase": "end"})));
        }
        let waiting: Vec<Heard> = std::iter::from_fn(|| inbox.pop()).collect();
        let ends = waiting.iter().filter(|it| is_terminal(it)).count();
        assert_eq!((waiting.len(), ends), (EVENTS_WAITING_MAX + ENDS_WAITING_MAX, 64));

        for text in ["One", "One two", "One two three"] {
            inbox.push(event("assistant", &json!({"text": text, "itemId": "m"})));
        }
        let waiting: Vec<Heard> = std::iter::from_fn(|| inbox.pop()).collect();
        assert!(
            matches!(&*waiting, [Heard::Event(it)] if it.payload["data"]["text"] == "One two three")
        );
    }
}
