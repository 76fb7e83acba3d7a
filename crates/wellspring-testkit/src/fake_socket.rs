//! A WebSocket server whose connections a test drives by hand.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

/// Timeout of every operation, long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server on its own port.
#[derive(Debug)]
pub struct FakeSocket {
    listener: TcpListener,
    address: SocketAddr,
}

/// A connection of a client. Dropping it cuts the connection.
#[derive(Debug)]
pub struct FakeConnection {
    /// The path of the client's request.
    pub path: String,
    socket: WebSocketStream<TcpStream>,
}

impl FakeSocket {
    /// Starts a server.
    ///
    /// # Errors
    ///
    /// If no port is free.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// The URL of the server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    /// Waits for the next connection.
    ///
    /// # Errors
    ///
    /// If no client connects in time, or the client does not open a WebSocket.
    pub async fn accept(&self) -> io::Result<FakeConnection> {
        let (client, _) = timeout(PATIENCE, self.listener.accept()).await??;
        let mut path = String::new();
        #[expect(clippy::result_large_err, reason = "the type of a callback that never fails")]
        let note = |request: &tokio_tungstenite::tungstenite::handshake::server::Request,
                    response| {
            path = request.uri().to_string();
            Ok(response)
        };
        let socket = tokio_tungstenite::accept_hdr_async(client, note).await;
        Ok(FakeConnection { socket: socket.map_err(io::Error::other)?, path })
    }
}

impl FakeConnection {
    /// Sends a frame.
    ///
    /// # Errors
    ///
    /// If the client has disconnected.
    pub async fn send(&mut self, frame: &Value) -> io::Result<()> {
        self.socket.send(Message::text(frame.to_string())).await.map_err(io::Error::other)
    }

    /// Waits for the next frame from the client.
    ///
    /// # Errors
    ///
    /// If the client has disconnected, or sends nothing in time.
    pub async fn next(&mut self) -> io::Result<Value> {
        loop {
            match timeout(PATIENCE, self.socket.next()).await? {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text)?),
                Some(Ok(Message::Close(_)) | Err(_)) | None => {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                Some(Ok(_)) => {}
            }
        }
    }

    /// Closes the connection with a code.
    ///
    /// # Errors
    ///
    /// If the client has disconnected.
    pub async fn close(mut self, code: u16) -> io::Result<()> {
        let frame = CloseFrame { code: code.into(), reason: "".into() };
        self.socket.close(Some(frame)).await.map_err(io::Error::other)
    }
}
