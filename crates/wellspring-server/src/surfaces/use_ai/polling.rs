//! Socket.IO over polling: a GET waits for packets, a POST sends some.
//!
//! A client's subscriptions are pulled only while a GET waits. So a client that stops polling costs
//! only its cursors, until its session expires.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::{Instant, sleep_until};
use wellspring_core::RunId;
use wellspring_engine::{Permission, Principal};
use wellspring_wire::socket_io::{self, SEPARATOR};

use super::socket_io::{Address, PING_TIMEOUT, client, deliver, hello, new_session, packet};
use super::{Client, Steps};
use crate::app::{App, Params, allow, text_body};
use crate::auth::AuthError;
use crate::error::ApiError;
use crate::limits::StreamPass;
use crate::lock;
use crate::socket::{Messages, Step, Subscriptions};

/// Maximum number of packets in one POST. Clients send one or a few.
const PACKETS_MAX: usize = 64;

/// Maximum number of answers that wait for the next GET. A client that sends requests and never
/// polls gets an error.
const STEPS_MAX: usize = 256;

/// Approximate number of bytes in one answer to a GET. Further packets are in the next.
const ANSWER_BYTES: usize = 64 * 1024;

/// The sessions that poll, by id.
#[derive(Default)]
pub(crate) struct PolledSessions(Mutex<HashMap<Box<str>, Arc<Polled>>>);

impl PolledSessions {
    pub(super) fn find(&self, session: &str) -> Result<Arc<Polled>, ApiError> {
        lock(&self.0).get(session).cloned().ok_or_else(unknown_session)
    }

    fn remove(&self, session: &str) -> bool {
        lock(&self.0).remove(session).is_some()
    }
}

/// A session that polls.
pub(crate) struct Polled {
    session: Box<str>,
    pub(super) client: Arc<Client>,
    /// The request that began the session; it identifies the principal.
    pub(super) parts: Parts,
    /// The results of POSTs, until the next GET sends them.
    steps: Mutex<Steps>,
    /// Notified when there is something for the GET that waits.
    ring: Notify,
    /// Held by the GET that waits.
    state: AsyncMutex<Waiting>,
    /// The time of the client's last request, and whether it is changing to a WebSocket.
    seen: Mutex<(Instant, bool)>,
    _pass: StreamPass,
}

/// What the next GET sends.
#[derive(Default)]
struct Waiting {
    subscriptions: Subscriptions<RunId>,
    messages: Messages,
    closed: bool,
}

impl Waiting {
    fn take(&mut self, step: Step<RunId>, client: &Client) {
        match step {
            Step::Send(message) => self.messages.push(&message),
            Step::Close => self.closed = true,
            Step::Adopt { .. } | Step::Credit { .. } => {}
            Step::Unsubscribe { key, .. } => {
                self.subscriptions.remove(&key);
            }
            Step::Subscribe { key, stream, credit, .. } => {
                if let Err(not_added) = self.subscriptions.insert(key, *stream, credit) {
                    let error = ApiError::from(not_added);
                    client.app.metrics.error(error.code);
                    client.ended(key);
                    let event = super::error_event(None, &error);
                    self.messages.push(&socket_io::event("event", &event));
                }
            }
        }
    }
}

impl Polled {
    /// The principal that began the session, for whom the session acts. The session's id is a
    /// secret. A request may use it without credentials, because browsers cannot send credentials
    /// with a WebSocket. Credentials of another principal are rejected.
    pub(super) async fn principal(
        &self,
        app: &App,
        request: &Parts,
    ) -> Result<Principal, ApiError> {
        let who = app.authenticate(&self.parts).await?;
        match app.auth.authenticate(request).await {
            Err(AuthError::Missing) => Ok(who),
            Err(error) => Err(app.refused(&error)),
            Ok(asks) if (&asks.tenant, &asks.id) == (&who.tenant, &who.id) => Ok(who),
            Ok(_) => Err(unknown_session()),
        }
    }

    fn heard_of(&self) {
        lock(&self.seen).0 = Instant::now();
    }

    /// Ends the GET that waits, so that the client can change to a WebSocket.
    pub(super) fn release(&self) {
        lock(&self.seen).1 = true;
        self.ring.notify_one();
    }

    fn is_leaving(&self) -> bool {
        lock(&self.seen).1
    }

    /// Hands the session over to the WebSocket; polling ends.
    pub(super) async fn leave(&self, app: &App) -> (Steps, Steps) {
        self.release();
        app.polled.remove(&self.session);
        let Waiting { subscriptions, messages, .. } = std::mem::take(&mut *self.state.lock().await);
        let steps = std::mem::take(&mut *lock(&self.steps));
        (vec![Step::Adopt { subscriptions, messages }], steps)
    }
}

/// Begins a session.
pub(super) async fn begin(app: &App, parts: Parts) -> Result<Response, ApiError> {
    let who = app.authenticate(&parts).await?;
    allow(&who, Permission::Read)?;
    let pass = app.gates.stream(&who)?;
    let session = new_session()?;
    let polled = Arc::new(Polled {
        session: session.clone(),
        client: client(app, &parts),
        parts,
        steps: Mutex::default(),
        ring: Notify::new(),
        state: AsyncMutex::default(),
        seen: Mutex::new((Instant::now(), false)),
        _pass: pass,
    });
    lock(&app.polled.0).insert(session.clone(), Arc::clone(&polled));
    tokio::spawn(forget(app.clone(), polled));
    Ok(answer(hello(app, &session, &["websocket"])))
}

/// Ends a session without requests for too long. Its runs continue.
async fn forget(app: App, polled: Arc<Polled>) {
    let patience = app.config.keep_alive + PING_TIMEOUT;
    loop {
        let due = lock(&polled.seen).0 + patience;
        tokio::select! {
            () = sleep_until(due) => {}
            () = app.closing.cancelled() => sleep_until(Instant::now() + PING_TIMEOUT).await,
        }
        let silent = lock(&polled.seen).0.elapsed() >= patience;
        if silent || app.closing.is_cancelled() || app.polled.find(&polled.session).is_err() {
            app.polled.remove(&polled.session);
            return;
        }
    }
}

/// Waits for packets.
pub(super) async fn poll(app: &App, session: &str, request: &Parts) -> Result<Response, ApiError> {
    let polled = app.polled.find(session)?;
    polled.principal(app, request).await?;
    polled.heard_of();
    let Ok(mut state) = polled.state.try_lock() else {
        app.polled.remove(session);
        polled.ring.notify_one();
        return Err(ApiError::bad("polled_twice", "this session polls already; it is closed"));
    };
    let ping_at = Instant::now() + app.config.keep_alive;
    let packets = loop {
        let steps = std::mem::take(&mut *lock(&polled.steps));
        steps.into_iter().for_each(|step| state.take(step, &polled.client));
        let is_draining = app.closing.is_cancelled();
        if state.closed || (is_draining && state.subscriptions.is_empty()) {
            app.polled.remove(session);
            state.messages.push(socket_io::GOODBYE);
        }
        // There may be no other poll before the server stops, so the ends of all streams belong
        // into this answer.
        let is_ending = is_draining
            && !state.subscriptions.is_empty()
            && state.messages.bytes_len() < ANSWER_BYTES;
        if !state.messages.is_empty() && !is_ending {
            more(&mut state, &polled.client).await;
            break joined(&mut state.messages);
        }
        if polled.is_leaving() || app.polled.find(session).is_err() {
            break socket_io::NOOP.to_owned();
        }
        tokio::select! {
            delivery = state.subscriptions.next() => {
                let Waiting { messages, .. } = &mut *state;
                deliver(&polled.client, &delivery, messages);
            }
            () = polled.ring.notified() => {}
            () = app.closing.cancelled(), if !is_draining => {}
            () = sleep_until(ping_at) => break socket_io::PING.to_owned(),
        }
    };
    polled.heard_of();
    Ok(answer(packets))
}

/// All packets as one body.
fn joined(packets: &mut Messages) -> String {
    let mut body = String::with_capacity(packets.bytes_len());
    for packet in packets.take() {
        if !body.is_empty() {
            body.push(SEPARATOR);
        }
        body.push_str(&packet);
    }
    body
}

/// Adds what is ready, up to the size of an answer.
async fn more(state: &mut Waiting, client: &Client) {
    while state.messages.bytes_len() < ANSWER_BYTES {
        let next = state.subscriptions.next();
        let Some(delivery) = futures::FutureExt::now_or_never(next) else { return };
        deliver(client, &delivery, &mut state.messages);
    }
}

/// Takes packets.
pub(super) async fn push(
    State(app): State<App>,
    Params(address): Params<Address>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let Some(session) = address.sid else {
        allow(&app.authenticate(&parts).await?, Permission::Read)?;
        return Err(unknown_session());
    };
    // The session is checked before any of the body is read.
    let polled = app.polled.find(&session)?;
    let who = polled.principal(&app, &parts).await?;
    polled.heard_of();
    let (body, _held) = text_body(&app, &who, body).await?;
    if body.split(SEPARATOR).count() > PACKETS_MAX {
        let message = format!("a request has at most {PACKETS_MAX} packets");
        return Err(ApiError::bad("too_many_packets", message));
    }
    for text in body.split(SEPARATOR) {
        let steps = packet(&polled.client, &who, &session, text).await;
        {
            let mut waiting = lock(&polled.steps);
            if waiting.len() + steps.len() > STEPS_MAX {
                let message = "too many answers wait for this session to poll";
                let remedy = "poll, and then send more";
                let status = StatusCode::TOO_MANY_REQUESTS;
                return Err(ApiError::new(status, "too_many_requests", message, remedy));
            }
            waiting.extend(steps);
        }
        polled.ring.notify_one();
    }
    Ok(answer("ok".to_owned()))
}

fn unknown_session() -> ApiError {
    let remedy = "connect again";
    let message = "there is no session of this id";
    ApiError::new(StatusCode::BAD_REQUEST, "unknown_session", message, remedy)
}

fn answer(packets: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=UTF-8")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, Bytes::from(packets)).into_response()
}
