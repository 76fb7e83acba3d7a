//! WebSockets: one connection, many runs.
//!
//! A surface accepts a socket with [`SocketRequest`] and speaks its own protocol on it through
//! [`SocketProtocol`]; [`serve`] does what all of them share. [`Subscriptions`] is the part for
//! protocols that bring a transport of their own.
//!
//! # What is deliberately absent
//!
//! A queue. A subscription is a cursor, which is pulled when the socket takes more, and the next
//! message of a client is read when the one before it is done.
//!
//! # What is promised
//!
//! 1. A socket passes what every request does: host, origin, token, limits; and so does each of
//!    its messages. It is counted as a connection and as a stream.
//! 2. What a subscription does not take holds up no other.
//! 3. What has arrived of a message counts as a request's body does.
//! 4. A closed socket changes no run. A server that closes says so, on every subscription and
//!    for the socket.

mod subscriptions;

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use futures::SinkExt as _;
use futures::future::BoxFuture;
use tokio::time::{MissedTickBehavior, interval, timeout};
use wellspring_engine::{Permission, Principal};

use crate::app::{App, allow};
use crate::connection::Inflow;
use crate::error::ApiError;
use crate::limits::{BytesPass, StreamPass};
use crate::stream::EventStream;

pub(crate) use self::subscriptions::{Delivery, NotAdded, SUBSCRIPTIONS_MAX, Subscriptions};

/// How long a client may take nothing of what is there for it, as for every connection.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How many keep-alives a client may leave without any sign of life: about a minute.
const SILENT_PINGS_MAX: u32 = 4;

/// How long the streams of a socket may take to say that the server closes.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes of messages that wait in this process for the connection to take them before more are
/// made: as much as a few frames of a run.
const WRITE_BUFFER_BYTES: usize = 16 * 1024;

/// Bytes that are read ahead of a message: a socket that only listens must not cost more.
const READ_BUFFER_BYTES: usize = 4 * 1024;

/// The subprotocol that we speak where a client names some. Browsers fail a connection whose
/// server takes none of those that were offered.
const SUBPROTOCOL: &str = "wellspring";

/// Bytes of a control frame besides what it carries (RFC 6455 section 5.2): a client's always has
/// a mask.
const CONTROL_FRAME_BYTES: usize = 6;

/// What a token is offered with as a subprotocol: a browser's `WebSocket` cannot send headers.
const TOKEN_SUBPROTOCOL: &str = "bearer.";

/// Close code of a server that restarts (RFC 6455 section 7.4.1 and its registry).
const SERVICE_RESTART: u16 = 1012;

/// What a surface speaks on a socket.
///
/// # Contract
///
/// 1. Every message that a client sends is answered, also one that makes no sense.
/// 2. Nothing that a client sends panics.
pub(crate) trait SocketProtocol: Send + Sync + 'static {
    /// What a client calls its subscriptions.
    type Key: Clone + Ord + Send + Sync + 'static;

    /// Does what a message asks for. The next one is read when this is done; events go on in the
    /// meantime.
    fn handle(
        self: Arc<Self>,
        who: Principal,
        text: Utf8Bytes,
    ) -> BoxFuture<'static, Vec<Step<Self::Key>>>;

    /// What a client is told first.
    fn hello(&self) -> Vec<String> {
        Vec::new()
    }

    /// The message that asks a client for a sign of life; a WebSocket's own ping if `None`.
    fn ping(&self) -> Option<String> {
        None
    }

    /// Writes the messages that carry what a subscription gave.
    fn deliver(&self, delivery: &Delivery<Self::Key>, messages: &mut Vec<String>);

    /// The message that says what did not work: with a subscription that could not be added, or
    /// with the socket.
    fn failed(&self, key: Option<&Self::Key>, error: &ApiError) -> String;
}

/// What follows from a client's message.
pub(crate) enum Step<K> {
    Send(String),
    /// Goes on with what another transport of the same client has left.
    Adopt {
        subscriptions: Subscriptions<K>,
        messages: Vec<String>,
    },
    /// The client said goodbye.
    Close,
    Subscribe {
        key: K,
        stream: Box<EventStream>,
        credit: Option<u32>,
        /// What the client is told before the stream's events.
        done: Option<String>,
    },
    Unsubscribe {
        key: K,
        done: Option<String>,
        /// What the client is told if there is no such subscription.
        unknown: Option<String>,
    },
    Credit {
        key: K,
        more: u32,
        done: Option<String>,
        unknown: Option<String>,
    },
}

/// A request for a socket by somebody who may read.
pub(crate) struct SocketRequest {
    upgrade: WebSocketUpgrade,
    /// To be asked again with every message: a token may be revoked.
    parts: Parts,
    pass: StreamPass,
    inflow: Inflow,
}

impl FromRequestParts<App> for SocketRequest {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        take_token(parts);
        let who = app.authenticate(parts).await?;
        allow(&who, Permission::Read)?;
        let upgrade = upgrade(parts, app).await?;
        let pass = app.gates.stream(&who)?;
        // What is kept for as long as the socket is open: who it is, and nothing of the request.
        let mut kept = parts.clone();
        kept.extensions.remove::<hyper::upgrade::OnUpgrade>();
        let inflow = counting(parts, app.gates.bytes(&who.id));
        Ok(Self { upgrade, parts: kept, pass, inflow })
    }
}

async fn upgrade(request: &mut Parts, app: &App) -> Result<WebSocketUpgrade, ApiError> {
    WebSocketUpgrade::from_request_parts(request, app).await.map_err(|error| {
        let remedy = "open it with a WebSocket client, over HTTP/1.1";
        ApiError::new(StatusCode::UPGRADE_REQUIRED, "no_websocket", error.body_text(), remedy)
    })
}

/// Counts what arrives of messages on a request's connection. A listener that is not ours does
/// not count it.
fn counting(request: &mut Parts, held: BytesPass) -> Inflow {
    let inflow = request.extensions.remove::<Inflow>().unwrap_or_default();
    inflow.count(held);
    inflow
}

impl SocketRequest {
    /// A request that goes on with what an earlier one of `who` began, `first`.
    pub(crate) async fn following(
        mut request: Parts,
        first: Parts,
        who: &Principal,
        app: &App,
    ) -> Result<Self, ApiError> {
        let pass = app.gates.stream(who)?;
        let upgrade = upgrade(&mut request, app).await?;
        let inflow = counting(&mut request, app.gates.bytes(&who.id));
        Ok(Self { upgrade, parts: first, pass, inflow })
    }

    /// Accepts the socket and serves it.
    pub(crate) fn accept<P: SocketProtocol>(self, app: App, protocol: P) -> Response {
        let Self { upgrade, parts, pass, inflow } = self;
        let max = app.config.limits.body_bytes;
        upgrade
            .protocols([SUBPROTOCOL])
            .max_message_size(max)
            .max_frame_size(max)
            .read_buffer_size(READ_BUFFER_BYTES)
            .write_buffer_size(WRITE_BUFFER_BYTES)
            .on_failed_upgrade(|error| tracing::debug!(%error, "the socket was not opened"))
            .on_upgrade(move |socket| async move {
                let _pass = pass;
                let session = Session {
                    app,
                    parts,
                    messages: protocol.hello(),
                    protocol: Arc::new(protocol),
                    socket,
                    inflow,
                    subscriptions: Subscriptions::default(),
                };
                // Boxed: it is large, and is moved a few times on its way to its task.
                Box::pin(session.serve()).await;
            })
    }
}

/// Takes a token that was offered as a subprotocol, unless there is a header.
fn take_token(parts: &mut Parts) {
    if parts.headers.contains_key(header::AUTHORIZATION) {
        return;
    }
    let offered = parts.headers.get_all(header::SEC_WEBSOCKET_PROTOCOL);
    let mut names = offered.iter().filter_map(|it| it.to_str().ok()).flat_map(|it| it.split(','));
    let token = names.find_map(|name| name.trim().strip_prefix(TOKEN_SUBPROTOCOL));
    let value = token.and_then(|token| HeaderValue::from_str(&format!("Bearer {token}")).ok());
    if let Some(mut value) = value {
        value.set_sensitive(true);
        parts.headers.insert(header::AUTHORIZATION, value);
    }
}

/// A socket that is open.
struct Session<P: SocketProtocol> {
    app: App,
    parts: Parts,
    protocol: Arc<P>,
    socket: WebSocket,
    inflow: Inflow,
    subscriptions: Subscriptions<P::Key>,
    /// What is to be sent next.
    messages: Vec<String>,
}

/// A message that is being handled, and what it holds meanwhile.
type Handling<K> = BoxFuture<'static, Result<Vec<Step<K>>, ApiError>>;

/// Why a socket ends.
enum Ends {
    /// The client is gone, or takes nothing.
    Gone,
    /// The client said goodbye.
    Closed,
    /// The client broke the protocol, or does not answer; the code says how.
    Refused(u16, ApiError),
    /// The server closes.
    Draining,
}

impl<P: SocketProtocol> Session<P> {
    async fn serve(mut self) {
        match self.talk().await {
            Ends::Gone | Ends::Closed => {}
            Ends::Refused(code, error) => self.say_goodbye(code, &error).await,
            Ends::Draining => {
                // Each stream says in its own words that it ends before its run does.
                self.subscriptions.release();
                let told = async {
                    while !self.subscriptions.is_empty() {
                        let delivery = self.subscriptions.next().await;
                        self.protocol.deliver(&delivery, &mut self.messages);
                        self.flush().await?;
                    }
                    Some(())
                };
                if let Ok(Some(())) = timeout(CLOSE_TIMEOUT, told).await {
                    self.say_goodbye(SERVICE_RESTART, &ApiError::draining()).await;
                }
            }
        }
    }

    /// Takes messages and gives events, until there is a reason to end.
    async fn talk(&mut self) -> Ends {
        let closing = self.app.closing.clone();
        if self.flush().await.is_none() {
            return Ends::Gone;
        }
        let mut handling: Option<Handling<P::Key>> = None;
        let mut ticks = interval(self.app.config.keep_alive.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        let mut silent = 0;
        loop {
            tokio::select! {
                () = closing.cancelled() => return Ends::Draining,
                steps = handled(&mut handling) => {
                    handling = None;
                    match steps {
                        Ok(steps) => {
                            let closes = steps.iter().any(|step| matches!(step, Step::Close));
                            steps.into_iter().for_each(|step| self.take(step));
                            if closes {
                                return Ends::Closed;
                            }
                        }
                        Err(error) if error.status == StatusCode::UNAUTHORIZED => {
                            return Ends::Refused(close_code::POLICY, error);
                        }
                        Err(error) => self.refuse(&error),
                    }
                }
                message = self.socket.recv(), if handling.is_none() => {
                    silent = 0;
                    match self.received(message) {
                        Continue(next) => handling = next,
                        Break(ends) => return ends,
                    }
                }
                delivery = self.subscriptions.next() => {
                    self.protocol.deliver(&delivery, &mut self.messages);
                }
                _ = ticks.tick() => {
                    if silent >= SILENT_PINGS_MAX {
                        return Ends::Gone;
                    }
                    silent += 1;
                    let ping = match self.protocol.ping() {
                        Some(ping) => Message::Text(ping.into()),
                        None => Message::Ping(Default::default()),
                    };
                    let ping = self.socket.send(ping);
                    if !matches!(timeout(UNREAD_TIMEOUT, ping).await, Ok(Ok(()))) {
                        return Ends::Gone;
                    }
                }
            }
            if self.flush().await.is_none() {
                return Ends::Gone;
            }
        }
    }

    /// Begins with what the client sent.
    fn received(
        &mut self,
        message: Option<Result<Message, axum::Error>>,
    ) -> ControlFlow<Ends, Option<Handling<P::Key>>> {
        match message {
            None | Some(Ok(Message::Close(_))) => Break(Ends::Closed),
            Some(Ok(Message::Ping(data) | Message::Pong(data))) => {
                // It may come in the middle of a message, which goes on.
                self.inflow.taken(data.len() + CONTROL_FRAME_BYTES);
                Continue(None)
            }
            Some(Ok(Message::Binary(_))) => {
                let message = "this socket takes text messages, and this one is binary";
                let error = ApiError::bad("binary_message", message);
                Break(Ends::Refused(close_code::UNSUPPORTED, error))
            }
            Some(Ok(Message::Text(text))) => {
                self.inflow.complete();
                self.app.metrics.request();
                Continue(Some(self.handle(text)))
            }
            Some(Err(error)) => Break(self.broken(&error)),
        }
    }

    fn handle(&self, text: Utf8Bytes) -> Handling<P::Key> {
        let (app, parts) = (self.app.clone(), self.parts.clone());
        let protocol = Arc::clone(&self.protocol);
        Box::pin(async move {
            let who = app.authenticate(&parts).await?;
            let mut held: BytesPass = app.gates.bytes(&who.id);
            held.grow(text.len())?;
            Ok(protocol.handle(who, text).await)
        })
    }

    /// What a message that cannot be read means.
    fn broken(&self, error: &axum::Error) -> Ends {
        if let Some(refused) = self.inflow.refused() {
            return Ends::Refused(close_code::AGAIN, refused);
        }
        // The errors of the crate that reads messages are known by what they say; the tests hold
        // them to it. Whatever else happens on the connection means that the client is gone.
        let text = error.to_string();
        if text.starts_with("Space limit exceeded") {
            let max = self.app.config.limits.body_bytes;
            let message = format!("the message is larger than {max} bytes");
            let remedy = "name files by URL instead of sending them";
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            let error = ApiError::new(status, "too_large", message, remedy);
            return Ends::Refused(close_code::SIZE, error);
        }
        if text.contains("UTF-8") || text.contains("utf-8") {
            let error = ApiError::bad("bad_utf8", "the message is not valid UTF-8");
            return Ends::Refused(close_code::INVALID, error);
        }
        Ends::Gone
    }

    fn take(&mut self, step: Step<P::Key>) {
        match step {
            Step::Send(message) => self.messages.push(message),
            Step::Close => {}
            Step::Adopt { subscriptions, messages } => {
                self.subscriptions = subscriptions;
                self.messages.extend(messages);
            }
            Step::Subscribe { key, stream, credit, done } => {
                match self.subscriptions.insert(key.clone(), *stream, credit) {
                    Ok(()) => self.messages.extend(done),
                    Err(not_added) => {
                        let error = ApiError::from(not_added);
                        self.app.metrics.error(error.code);
                        self.messages.push(self.protocol.failed(Some(&key), &error));
                    }
                }
            }
            Step::Unsubscribe { key, done, unknown } => {
                let known = self.subscriptions.remove(&key);
                self.messages.extend(if known { done } else { unknown });
            }
            Step::Credit { key, more, done, unknown } => {
                let known = self.subscriptions.add_credit(&key, more);
                self.messages.extend(if known { done } else { unknown });
            }
        }
    }

    fn refuse(&mut self, error: &ApiError) {
        self.app.metrics.error(error.code);
        self.messages.push(self.protocol.failed(None, error));
    }

    /// Sends what is there. `None` if the client does not take it.
    async fn flush(&mut self) -> Option<()> {
        if self.messages.is_empty() {
            return Some(());
        }
        let Self { socket, messages, .. } = self;
        let send = async {
            for message in messages.drain(..) {
                socket.feed(Message::Text(message.into())).await?;
            }
            socket.flush().await
        };
        matches!(timeout(UNREAD_TIMEOUT, send).await, Ok(Ok(()))).then_some(())
    }

    /// Says why the socket ends, and waits a moment for the client to have heard it.
    async fn say_goodbye(&mut self, code: u16, error: &ApiError) {
        self.refuse(error);
        let goodbye = async {
            self.flush().await?;
            let reason = error.code.into();
            let close = Message::Close(Some(CloseFrame { code, reason }));
            self.socket.send(close).await.ok()?;
            while let Some(Ok(_)) = self.socket.recv().await {}
            Some(())
        };
        // A client that does not listen is not told.
        let _ = timeout(CLOSE_TIMEOUT, goodbye).await;
    }
}

/// What a message led to; never while there is no message.
async fn handled<T>(handling: &mut Option<BoxFuture<'static, T>>) -> T {
    match handling {
        Some(handling) => handling.await,
        None => std::future::pending().await,
    }
}

impl From<NotAdded> for ApiError {
    fn from(not_added: NotAdded) -> Self {
        match not_added {
            NotAdded::Exists => {
                let message = "a subscription of this id is open";
                let remedy = "use an id of its own for each";
                Self::new(StatusCode::CONFLICT, NotAdded::EXISTS, message, remedy)
            }
            NotAdded::Full => {
                let message = format!("this socket has {SUBSCRIPTIONS_MAX} subscriptions already");
                let remedy = "unsubscribe from some, or open another socket";
                Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_subscriptions", message, remedy)
            }
        }
    }
}
