//! Connects an agent that supports only MCP servers over stdio to a server over HTTP.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use futures::stream::{FuturesUnordered, StreamExt as _};
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ErrorData, JsonRpcMessage, NumberOrString,
    ServerJsonRpcMessage,
};
use rmcp::transport::Transport as _;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::http::BoundedHttp;
use crate::transport::MESSAGE_BYTES_MAX;

/// Concurrent requests of a bridge. At the maximum it reads no further input until one is sent.
pub const BRIDGED_MAX: usize = 64;

/// Forwards messages between a client on standard input and output and a server at a URL, until
/// the input ends. Messages that were read before are still forwarded.
///
/// Use it in the command that is given to an agent in place of a URL.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let url = "http://127.0.0.1:7600/mcp";
/// // The input is empty, so nothing is sent.
/// wellspring_mcp::bridge(url, "token", tokio::io::empty(), tokio::io::sink()).await
/// # })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
///
/// If writing to the client fails, or the server closes the connection. (An error response of
/// the server is forwarded to the client.)
pub async fn bridge(
    url: &str,
    token: &str,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> io::Result<()> {
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(io::Error::other)?;
    let mut config =
        StreamableHttpClientTransportConfig::with_uri(Arc::from(url)).auth_header(token);
    config.max_concurrent_requests = BRIDGED_MAX;
    let mut server = StreamableHttpClientTransport::with_client(BoundedHttp(client), config);
    let mut client =
        AsyncRwTransport::new_server(input, output).with_max_line_length(MESSAGE_BYTES_MAX);
    let mut open = true;
    let mut used = false;
    let mut carrying = FuturesUnordered::new();
    let mut unanswered = HashSet::new();
    while open || !carrying.is_empty() || !unanswered.is_empty() {
        tokio::select! {
            said = client.receive(), if open && carrying.len() < BRIDGED_MAX => match said {
                Some(message) => {
                    used = true;
                    let request = request_id(&message);
                    unanswered.extend(request.clone());
                    // A cancelled request may get no response.
                    if let Some(request) = cancelled_id(&message) {
                        unanswered.remove(request);
                    }
                    let sending = server.send(message);
                    carrying.push(async move { (request, sending.await) });
                }
                None => open = false,
            },
            Some((request, sent)) = carrying.next() => {
                if let (Some(request), Err(error)) = (request, sent) {
                    unanswered.remove(&request);
                    let error = ErrorData::internal_error(format!("not carried: {error}"), None);
                    client.send(JsonRpcMessage::error(error, Some(request))).await?;
                }
            }
            said = server.receive() => match said {
                Some(message) => {
                    if let Some(request) = answered_id(&message) {
                        unanswered.remove(request);
                    }
                    client.send(message).await?;
                }
                None => return Err(io::ErrorKind::ConnectionAborted.into()),
            },
        }
    }
    // A server without any message so far waits for the first one, even to be closed.
    if used {
        let _ = server.close().await;
    }
    client.close().await
}

fn request_id(message: &ClientJsonRpcMessage) -> Option<NumberOrString> {
    match message {
        JsonRpcMessage::Request(request) => Some(request.id.clone()),
        JsonRpcMessage::Response(_)
        | JsonRpcMessage::Notification(_)
        | JsonRpcMessage::Error(_) => None,
    }
}

fn answered_id(message: &ServerJsonRpcMessage) -> Option<&NumberOrString> {
    match message {
        JsonRpcMessage::Response(answer) => Some(&answer.id),
        JsonRpcMessage::Error(answer) => answer.id.as_ref(),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
    }
}

fn cancelled_id(message: &ClientJsonRpcMessage) -> Option<&NumberOrString> {
    let JsonRpcMessage::Notification(notification) = message else { return None };
    let ClientNotification::CancelledNotification(it) = &notification.notification else {
        return None;
    };
    it.params.request_id.as_ref()
}
