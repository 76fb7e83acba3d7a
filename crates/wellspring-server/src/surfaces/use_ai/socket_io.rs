//! Socket.IO: its packets, and its WebSocket.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::ws::Utf8Bytes;
use axum::extract::{FromRequestParts as _, OriginalUri, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use futures::future::BoxFuture;
use serde::Deserialize;
use uuid::Uuid;
use wellspring_core::RunId;
use wellspring_engine::{Permission, Principal};
use wellspring_wire::socket_io::{self, Packet, PacketError};
use wellspring_wire::use_ai::ClientMessage;

use super::polling::{self, Polled};
use super::{Client, Steps, error_event, json};
use crate::app::{App, Params, RequestHead, Trace, allow};
use crate::error::ApiError;
use crate::socket::{Delivery, Messages, SocketProtocol, SocketRequest, Step, take_token};

/// How long a client may take to answer a heartbeat.
pub(super) const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// The query string of every request of the protocol.
#[derive(Deserialize)]
pub(super) struct Address {
    /// The version of Engine.IO, the protocol below Socket.IO.
    #[serde(rename = "EIO")]
    pub(super) version: Option<String>,
    pub(super) transport: Option<String>,
    /// The session, from the second request on.
    pub(super) sid: Option<String>,
}

/// Begins a session, polls it, or changes it to a WebSocket.
pub(super) async fn open(
    State(app): State<App>,
    Params(address): Params<Address>,
    RequestHead(mut parts): RequestHead,
) -> Result<Response, ApiError> {
    take_token(&mut parts);
    if address.sid.is_none() {
        // Authenticated before anything else is reported. A session was authenticated when it began.
        allow(&app.authenticate(&parts).await?, Permission::Read)?;
    }
    if address.version.as_deref() != Some("4") {
        let remedy = "use a client of Socket.IO 4 (`EIO=4`)";
        let message = "this server speaks version 4 of the Engine.IO protocol";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "bad_version", message, remedy));
    }
    match (address.transport.as_deref(), address.sid.as_deref()) {
        (Some("polling"), None) => polling::begin(&app, parts).await,
        (Some("polling"), Some(session)) => polling::poll(&app, session, &parts).await,
        (Some("websocket"), None) => {
            let request = SocketRequest::from_request_parts(&mut parts, &app).await?;
            let session = new_session()?;
            let client = client(&app, &parts);
            Ok(request.accept(app, SocketIo::new(client, session, Transport::Only)))
        }
        (Some("websocket"), Some(session)) => {
            let polled = app.polled.find(session)?;
            let who = polled.principal(&app, &parts).await?;
            let first = polled.parts.clone();
            let request = SocketRequest::following(parts, first, &who, &app).await?;
            let client = Arc::clone(&polled.client);
            Ok(request.accept(app, SocketIo::new(client, session.into(), Transport::After(polled))))
        }
        _ => Err(ApiError::bad("bad_transport", "`transport` is `polling` or `websocket`")),
    }
}

/// The client of a request.
pub(super) fn client(app: &App, parts: &Parts) -> Arc<Client> {
    let none = || Trace { id: "".into(), parent: None };
    let trace = parts.extensions.get::<Trace>().cloned().unwrap_or_else(none);
    let address = parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |it| &it.0);
    Arc::new(Client::new(app.clone(), trace, address))
}

/// A session id that cannot be guessed: knowing it is enough to act for the client.
pub(super) fn new_session() -> Result<Box<str>, ApiError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| ApiError::internal("making a session", &std::io::Error::from(error)))?;
    Ok(Uuid::from_bytes(bytes).simple().to_string().into())
}

/// The first packet of a session.
pub(super) fn hello(app: &App, session: &str, upgrades: &[&str]) -> String {
    let ping = (app.config.keep_alive, PING_TIMEOUT);
    socket_io::open(session, upgrades, ping, app.config.limits.body_bytes)
}

/// How a WebSocket began.
enum Transport {
    /// The session began with it.
    Only,
    /// It replaces polling when the client sends an upgrade packet.
    After(Arc<Polled>),
}

pub(super) struct SocketIo {
    client: Arc<Client>,
    session: Box<str>,
    transport: Transport,
    /// Whether the change of transports is complete.
    upgraded: AtomicBool,
}

impl SocketIo {
    fn new(client: Arc<Client>, session: Box<str>, transport: Transport) -> Self {
        let upgraded = AtomicBool::new(matches!(transport, Transport::Only));
        Self { client, session, transport, upgraded }
    }
}

impl SocketProtocol for SocketIo {
    type Key = RunId;

    fn hello(&self) -> Vec<String> {
        match &self.transport {
            Transport::Only => vec![hello(&self.client.app, &self.session, &[])],
            Transport::After(_) => Vec::new(),
        }
    }

    fn ping(&self) -> Option<String> {
        Some(socket_io::PING.to_owned())
    }

    fn handle(
        self: Arc<Self>,
        who: Principal,
        text: Utf8Bytes,
    ) -> BoxFuture<'static, Vec<Step<RunId>>> {
        Box::pin(async move {
            if let Transport::After(polled) = &self.transport
                && !self.upgraded.load(Ordering::Relaxed)
            {
                return match Packet::read(&text) {
                    Ok(Packet::Probe) => {
                        polled.release();
                        vec![Step::Send(socket_io::PROBE_ANSWER.to_owned())]
                    }
                    Ok(Packet::Upgrade) => {
                        self.upgraded.store(true, Ordering::Relaxed);
                        let (mut left, after) = polled.leave(&self.client.app).await;
                        left.extend(after);
                        left
                    }
                    Ok(_) | Err(_) => vec![Step::Close],
                };
            }
            packet(&self.client, &who, &self.session, &text).await
        })
    }

    fn deliver(&self, delivery: &Delivery<RunId>, messages: &mut Messages) {
        deliver(&self.client, delivery, messages);
    }

    fn failed(&self, key: Option<&RunId>, error: &ApiError) -> String {
        if let Some(run) = key {
            self.client.ended(*run);
        }
        event(&error_event(None, error))
    }
}

/// Handles a packet.
pub(super) async fn packet(client: &Client, who: &Principal, session: &str, text: &str) -> Steps {
    match Packet::read(text) {
        Ok(Packet::Connect { namespace }) if namespace == "/" => {
            let agents = socket_io::event("agents", &json(&client.agents()));
            let config = socket_io::event("config", &json(&client.config()));
            let all = [socket_io::connected(session), agents, config];
            all.into_iter().map(Step::Send).collect()
        }
        Ok(Packet::Connect { namespace }) => {
            let error = PacketError::Namespace(namespace.clone()).to_string();
            vec![Step::Send(socket_io::connect_error(&namespace, &error))]
        }
        Ok(Packet::Event { name, data, ack }) => {
            let message = match &*name {
                "message" => ClientMessage::from_value(data),
                "abort_run" => ClientMessage::abort(data),
                _ => {
                    let name: String = name.chars().take(64).collect();
                    let message = format!("{name:?} is not an event: send `message`");
                    let error = ApiError::bad("unknown_event", message);
                    return vec![Step::Send(event(&error_event(None, &error)))];
                }
            };
            let mut steps = client.handle(who, message, event).await;
            steps.extend(ack.map(|ack| Step::Send(socket_io::ack(ack))));
            steps
        }
        Ok(Packet::Close) => vec![Step::Close],
        Ok(Packet::Heartbeat | Packet::Ack | Packet::Probe | Packet::Upgrade) => Vec::new(),
        Err(error) => {
            let error = ApiError::bad("bad_packet", error.to_string());
            client.app.metrics.error(error.code);
            vec![Step::Send(event(&error_event(None, &error)))]
        }
    }
}

/// Writes a packet for each event.
pub(super) fn deliver(client: &Client, delivery: &Delivery<RunId>, messages: &mut Messages) {
    match &delivery.piece {
        Some(piece) => {
            for event in delivery.framing.events(piece) {
                messages.write(|packet| socket_io::put_event(packet, "event", event.data));
            }
        }
        None => client.ended(delivery.key),
    }
}

fn event(json: &[u8]) -> String {
    socket_io::event("event", json)
}
