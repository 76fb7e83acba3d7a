//! ACP over a WebSocket: one message per text frame, both ways.

use futures::stream::StreamExt as _;
use futures::{SinkExt as _, Stream};
use tokio::sync::mpsc;
use tokio_tungstenite::connect_async_with_config;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_util::task::AbortOnDropHandle;

use super::config::AcpConfig;
use super::connection::{Heard, LINES_WAITING_MAX, Wire};
use super::error::AcpError;
use super::http::headers;
use super::stdio::LINE_BYTES_MAX;

/// Opens a connection.
pub(super) async fn open(url: &str, config: &AcpConfig) -> Result<Wire, AcpError> {
    let unreachable = |why: String| AcpError::Unreachable { url: url.into(), why: why.into() };
    let mut request = url.into_client_request().map_err(|error| unreachable(error.to_string()))?;
    request.headers_mut().extend(headers(config).map_err(unreachable)?);
    let limits = WebSocketConfig::default()
        .max_message_size(Some(LINE_BYTES_MAX))
        .max_frame_size(Some(LINE_BYTES_MAX));
    let connected = connect_async_with_config(request, Some(limits), true).await;
    let (socket, _) = connected.map_err(|error| unreachable(error.to_string()))?;
    let (mut sink, stream) = socket.split();
    let (out, mut lines) = mpsc::channel::<Vec<u8>>(LINES_WAITING_MAX);
    let (heard, incoming) = mpsc::channel(LINES_WAITING_MAX);
    let writing = tokio::spawn(async move {
        while let Some(line) = lines.recv().await {
            let line = String::from_utf8_lossy(line.trim_ascii_end());
            // A peer that does not read is gone, and the other half reports it.
            if sink.send(Message::text(&*line)).await.is_err() {
                return;
            }
        }
        let _ = sink.close().await;
    });
    let reading = tokio::spawn(read(stream, heard, url.into()));
    let tasks = vec![AbortOnDropHandle::new(writing), AbortOnDropHandle::new(reading)];
    Ok(Wire { out, incoming, tasks })
}

async fn read(
    mut stream: impl Stream<Item = Result<Message, Error>> + Unpin,
    heard: mpsc::Sender<Heard>,
    url: Box<str>,
) {
    let why = loop {
        match stream.next().await {
            Some(Ok(Message::Text(text))) => {
                if heard.send(Heard::Line(text.as_bytes().to_vec())).await.is_err() {
                    return;
                }
            }
            Some(Ok(Message::Close(_))) | None => break "it closed the connection".into(),
            // The library answers pings; no other frame belongs to the protocol.
            Some(Ok(
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_),
            )) => {}
            Some(Err(error)) => break error.to_string().into(),
        }
    };
    let _ = heard.send(Heard::End(AcpError::Unreachable { url, why })).await;
}
