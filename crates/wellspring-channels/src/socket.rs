//! A WebSocket to a network, for events that come in.

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

/// How long a connection may take to open, and a frame to be sent.
const OPEN_TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes of one frame: events have below a megabyte, and the first one of Discord a few.
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The shortest and the longest wait before a lost connection is opened again.
const AGAIN_MIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(60);

/// A connection.
#[derive(Debug)]
pub(crate) struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

/// Why a connection is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Closed(pub(crate) Option<u16>);

impl Socket {
    pub(crate) async fn open(url: &str) -> Result<Self, CallError> {
        let config = WebSocketConfig::default()
            .max_frame_size(Some(FRAME_BYTES_MAX))
            .max_message_size(Some(FRAME_BYTES_MAX));
        // The URL of a socket is a secret: errors do not name it.
        let failed = |what: String| CallError::Unavailable(what.chars().take(200).collect());
        let opened = timeout(OPEN_TIMEOUT, connect_async_with_config(url, Some(config), false));
        let opened = opened.await.map_err(|_| failed("the socket did not open".into()))?;
        Ok(Self(opened.map_err(|error| failed(error.to_string()))?.0))
    }

    /// The next frame that is JSON. Cancel safe.
    pub(crate) async fn next(&mut self) -> Result<Value, Closed> {
        loop {
            match self.0.next().await {
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

    /// Closes it so that the network knows; a network that does not answer is not waited for.
    pub(crate) async fn close(mut self) {
        let _ = timeout(Duration::from_secs(1), self.0.close(None)).await;
    }
}

/// Waits between two connections, longer each time that one fails at once.
#[derive(Debug)]
pub(crate) struct Again(Duration);

impl Default for Again {
    fn default() -> Self {
        Self(AGAIN_MIN)
    }
}

impl Again {
    /// A connection that was of use: the next wait is short.
    pub(crate) const fn worked(&mut self) {
        self.0 = AGAIN_MIN;
    }

    /// `false` if the bot stops.
    pub(crate) async fn wait(&mut self, instance: &Instance) -> bool {
        let wait = self.0;
        self.0 = (self.0 * 2).min(AGAIN_MAX);
        tokio::select! {
            () = tokio::time::sleep(wait) => true,
            () = instance.stopped() => false,
        }
    }
}
