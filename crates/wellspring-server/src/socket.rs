//! WebSockets: one connection, many runs.
//!
//! A surface accepts a socket with [`SocketRequest`] and speaks its own protocol on it through
//! [`SocketProtocol`]; [`serve`] does what all of them share. [`Subscriptions`] is the part for
//! protocols that bring a transport of their own.
//!
//! # What is deliberately absent
//!
//! A queue. A subscription is a cursor, which is pulled when the socket can take more, and the next
//! message of a client is read when the previous one has been handled.
//!
//! # What is promised
//!
//! 1. Host, origin, token and limits are checked as for every request, and the token and limits
//!    again for each message. A socket counts as a connection and as a stream.
//! 2. A slow subscription does not delay others.
//! 3. The received bytes of an incomplete message count like those of a request's body.
//! 4. Closing a socket changes no run. When the server shuts down, each subscription and the
//!    socket end with a message that says so.

mod messages;
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

pub(crate) use self::messages::Messages;
pub(crate) use self::subscriptions::{Delivery, NotAdded, SUBSCRIPTIONS_MAX, Subscriptions};

/// How long a client may read nothing although data waits for it, as for every connection.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How many keep-alives may go unanswered before the socket is closed: about a minute.
const SILENT_PINGS_MAX: u32 = 4;

/// How long the streams of a socket may take to end when the server shuts down.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes of encoded messages that may wait for the connection before more are encoded: a few frames
/// of a run.
const WRITE_BUFFER_BYTES: usize = 16 * 1024;

/// Size of the read buffer: small, because most sockets only listen.
const READ_BUFFER_BYTES: usize = 4 * 1024;

/// The subprotocol to select if a client offers any: browsers fail a connection if the server
/// selects none of them.
const SUBPROTOCOL: &str = "wellspring";

/// Size of a control frame without its payload (RFC 6455 section 5.2): a client's frame always has
/// a mask.
const CONTROL_FRAME_BYTES: usize = 6;

/// Prefix of a subprotocol that carries a token: a browser's `WebSocket` cannot send headers.
const TOKEN_SUBPROTOCOL: &str = "bearer.";

/// Close code of a server that restarts (RFC 6455 section 7.4.1 and its registry).
const SERVICE_RESTART: u16 = 1012;

/// The protocol of a surface on a socket.
///
/// # Contract
///
/// 1. Every message of a client is answered, also an invalid one.
/// 2. Nothing that a client sends panics.
pub(crate) trait SocketProtocol: Send + Sync + 'static {
    /// The client's name for a subscription.
    type Key: Clone + Ord + Send + Sync + 'static;

    /// Handles a message. The next one is read when this has finished; events are sent meanwhile.
    fn handle(
        self: Arc<Self>,
        who: Principal,
        text: Utf8Bytes,
    ) -> BoxFuture<'static, Vec<Step<Self::Key>>>;

    /// Messages that are sent when the socket opens.
    fn hello(&self) -> Vec<String> {
        Vec::new()
    }

    /// The keep-alive message of the protocol; a WebSocket ping if `None`.
    fn ping(&self) -> Option<String> {
        None
    }

    /// Encodes a piece of a subscription as messages.
    fn deliver(&self, delivery: &Delivery<Self::Key>, messages: &mut Messages);

    /// The error message for a subscription that could not be added; with `None`, for the socket.
    fn failed(&self, key: Option<&Self::Key>, error: &ApiError) -> String;
}

/// A consequence of a client's message.
pub(crate) enum Step<K> {
    Send(String),
    /// Takes over the subscriptions of another transport of the same client.
    Adopt {
        subscriptions: Subscriptions<K>,
        messages: Messages,
    },
    /// The client closes the socket.
    Close,
    Subscribe {
        key: K,
        stream: Box<EventStream>,
        credit: Option<u32>,
        /// Sent before the stream's events.
        done: Option<String>,
    },
    Unsubscribe {
        key: K,
        done: Option<String>,
        /// Sent if there is no such subscription.
        unknown: Option<String>,
    },
    Credit {
        key: K,
        more: u32,
        done: Option<String>,
        unknown: Option<String>,
    },
}

/// A request for a socket by a caller with [`Permission::Read`].
pub(crate) struct SocketRequest {
    upgrade: WebSocketUpgrade,
    /// Authenticated again with every message, because a token may be revoked.
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
        // Kept for as long as the socket is open, so without the upgrade itself.
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

/// Starts counting the received bytes of a request's connection. Connections of other listeners are
/// not counted.
fn counting(request: &mut Parts, held: BytesPass) -> Inflow {
    let inflow = request.extensions.remove::<Inflow>().unwrap_or_default();
    inflow.count(held);
    inflow
}

impl SocketRequest {
    /// A request that continues the session which the same principal `who` began with `first`.
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
                let mut messages = Messages::default();
                messages.extend(protocol.hello().iter().map(String::as_str));
                let session = Session {
                    app,
                    parts,
                    messages,
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

/// Moves a token that was offered as a subprotocol into the `Authorization` header, unless there is
/// one.
pub(crate) fn take_token(parts: &mut Parts) {
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
    /// Messages that have not been sent.
    messages: Messages,
}

/// A message that is being handled.
type Handling<K> = BoxFuture<'static, Result<Vec<Step<K>>, ApiError>>;

/// Why a socket ends.
enum Ends {
    /// The client disconnected, or reads nothing.
    Gone,
    /// The client closed the socket.
    Closed,
    /// The client broke the protocol; with the close code.
    Refused(u16, ApiError),
    /// The server shuts down.
    Draining,
}

impl<P: SocketProtocol> Session<P> {
    async fn serve(mut self) {
        match self.talk().await {
            Ends::Gone | Ends::Closed => {}
            Ends::Refused(code, error) => self.say_goodbye(code, &error).await,
            Ends::Draining => {
                // Each dialect has its own event for a stream that ends before its run.
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

    /// Handles messages and sends events, until there is a reason to end.
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

    /// Begins to handle what the client sent.
    fn received(
        &mut self,
        message: Option<Result<Message, axum::Error>>,
    ) -> ControlFlow<Ends, Option<Handling<P::Key>>> {
        match message {
            None | Some(Ok(Message::Close(_))) => Break(Ends::Closed),
            Some(Ok(Message::Ping(data) | Message::Pong(data))) => {
                // A control frame may arrive between the fragments of a message.
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

    /// Why the socket ends after a message that cannot be read.
    fn broken(&self, error: &axum::Error) -> Ends {
        if let Some(refused) = self.inflow.refused() {
            return Ends::Refused(close_code::AGAIN, refused);
        }
        // The WebSocket crate's errors differ only in their text, which the tests check. Any other
        // error means that the client has disconnected.
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
            Step::Send(message) => self.messages.push(&message),
            Step::Close => {}
            Step::Adopt { subscriptions, mut messages } => {
                self.subscriptions = subscriptions;
                messages.take().for_each(|message| self.messages.push(&message));
            }
            Step::Subscribe { key, stream, credit, done } => {
                match self.subscriptions.insert(key.clone(), *stream, credit) {
                    Ok(()) => self.messages.extend(done.as_deref()),
                    Err(not_added) => {
                        let error = ApiError::from(not_added);
                        self.app.metrics.error(error.code);
                        self.messages.push(&self.protocol.failed(Some(&key), &error));
                    }
                }
            }
            Step::Unsubscribe { key, done, unknown } => {
                let known = self.subscriptions.remove(&key);
                self.messages.extend(if known { done } else { unknown }.as_deref());
            }
            Step::Credit { key, more, done, unknown } => {
                let known = self.subscriptions.add_credit(&key, more);
                self.messages.extend(if known { done } else { unknown }.as_deref());
            }
        }
    }

    fn refuse(&mut self, error: &ApiError) {
        self.app.metrics.error(error.code);
        self.messages.push(&self.protocol.failed(None, error));
    }

    /// Sends the waiting messages. `None` if the client does not read them.
    async fn flush(&mut self) -> Option<()> {
        if self.messages.is_empty() {
            return Some(());
        }
        let Self { socket, messages, .. } = self;
        let send = async {
            for message in messages.take() {
                socket.feed(Message::Text(message)).await?;
            }
            socket.flush().await
        };
        matches!(timeout(UNREAD_TIMEOUT, send).await, Ok(Ok(()))).then_some(())
    }

    /// Sends the reason for the end, and waits briefly for the client to close.
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
        // The client may not read, so this has a time limit.
        let _ = timeout(CLOSE_TIMEOUT, goodbye).await;
    }
}

/// The result of the message that is being handled; pending if there is none.
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
