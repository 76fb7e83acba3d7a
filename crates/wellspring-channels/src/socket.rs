//! A WebSocket that receives a network's events.

use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use crate::channel::CallError;
use crate::instance::Instance;

/// Timeout for opening a connection, and for sending a frame.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum size of a frame: events are below a megabyte, and Discord's first event has a few
/// megabytes.
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The shortest and the longest wait before a lost connection is reopened.
const AGAIN_MIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(60);

/// An open WebSocket.
#[derive(Debug)]
pub(crate) struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

/// Why a connection ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Closed(pub(crate) Option<u16>);

impl Socket {
    pub(crate) async fn open(url: &str) -> Result<Self, CallError> {
        let config = WebSocketConfig::default()
            .max_frame_size(Some(FRAME_BYTES_MAX))
            .max_message_size(Some(FRAME_BYTES_MAX));
        // The URL of a socket is a secret, so errors do not contain it.
        let failed = |what: String| CallError::Unavailable(what.chars().take(200).collect());
        let opened = timeout(OPEN_TIMEOUT, connect_async_with_config(url, Some(config), false));
        let opened = opened.await.map_err(|_| failed("the socket did not open".into()))?;
        Ok(Self(opened.map_err(|error| failed(error.to_string()))?.0))
    }

    /// The next JSON frame. A connection that sends nothing for `silence_max`, not even a ping, is
    /// closed. Cancel safe.
    pub(crate) async fn next(&mut self, silence_max: Duration) -> Result<Value, Closed> {
        loop {
            match timeout(silence_max, self.0.next()).await.unwrap_or_default() {
                Some(Ok(Message::Text(text))) => {
                    if let Ok(value) = serde_json::from_str(&text) {
                        return Ok(value);
                    }
                }
                Some(Ok(Message::Close(frame))) => {
                    return Err(Closed(frame.map(|it| it.code.into())));
                }
                Some(Ok(
                    Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_),
                )) => {}
                Some(Err(_)) | None => return Err(Closed(None)),
            }
        }
    }

    pub(crate) async fn send(&mut self, frame: &Value) -> Result<(), Closed> {
        let sent = timeout(OPEN_TIMEOUT, self.0.send(Message::text(frame.to_string()))).await;
        sent.map_err(|_| Closed(None))?.map_err(|_| Closed(None))
    }

    /// Sends a close frame. Does not wait long for a network that does not respond.
    pub(crate) async fn close(mut self) {
        let _ = timeout(Duration::from_secs(1), self.0.close(None)).await;
    }
}

/// The wait between two connections. It doubles while connections fail immediately.
#[derive(Debug)]
pub(crate) struct Again(Duration);

impl Default for Again {
    fn default() -> Self {
        Self(AGAIN_MIN)
    }
}

impl Again {
    /// Records a connection that worked: the next wait is short again.
    pub(crate) const fn worked(&mut self) {
        self.0 = AGAIN_MIN;
    }

    /// Waits; `false` if the bot stops.
    pub(crate) async fn wait(&mut self, instance: &Instance) -> bool {
        let wait = self.0;
        self.0 = (self.0 * 2).min(AGAIN_MAX);
        tokio::select! {
            () = tokio::time::sleep(wait) => true,
            () = instance.stopped() => false,
        }
    }
}
