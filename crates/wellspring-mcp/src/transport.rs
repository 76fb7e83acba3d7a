//! The transport below the SDK: standard input and output, and a tap on any transport.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, OnceLock};

use futures::future::{BoxFuture, FutureExt as _};
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ErrorData, GetExtensions as _, GetMeta as _, JsonRpcMessage,
    NumberOrString, ServerJsonRpcMessage, ServerNotification,
};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::Mutex;
use wellspring_core::CancellationToken;

use crate::calls::{Call, Calls};
use crate::error::McpErrorKind;
use crate::process::{LastWords, Pipes};

/// Maximum size of a server's message: a photograph in base64. A server that sends more is
/// stopped, because the recipient of the message is unknown.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Pending requests of a server (pings, questions); further ones are refused. Servers have a
/// few at a time.
pub const SERVER_REQUESTS_MAX: usize = 32;

/// The reason why a connection ended, if we know more than the SDK.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fate(Arc<OnceLock<McpErrorKind>>);

impl Fate {
    pub(crate) fn known(&self) -> Option<McpErrorKind> {
        self.0.get().cloned()
    }
}

/// A server's standard input and output: one JSON message per line.
///
/// The SDK's own transport drops a line that is too long, and the call waits forever; this one
/// ends the connection with the reason. Lines that are not JSON (a banner, a stray `print`) are
/// kept with the last output, for error messages.
pub(crate) struct Stdio {
    stdout: BufReader<ChildStdout>,
    /// The start of a line that is not complete yet.
    line: Vec<u8>,
    stdin: Arc<Mutex<Option<ChildStdin>>>,
    words: LastWords,
    fate: Fate,
}

impl Stdio {
    pub(crate) fn new(pipes: Pipes, words: LastWords, fate: Fate) -> Self {
        Self {
            stdout: BufReader::new(pipes.stdout),
            line: Vec::new(),
            stdin: Arc::new(Mutex::new(Some(pipes.stdin))),
            words,
            fate,
        }
    }

    /// Reads to the end of a line.
    ///
    /// # Cancel safety
    ///
    /// Bytes that were read stay in `line`.
    async fn read_line(&mut self) -> Option<()> {
        loop {
            let bytes = match self.stdout.fill_buf().await {
                Ok([]) => return None,
                Ok(bytes) => bytes,
                Err(error) => {
                    tracing::debug!(%error, "lost the server's output");
                    return None;
                }
            };
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let count = end.map_or(bytes.len(), |end| end + 1);
            if self.line.len() + count > MESSAGE_BYTES_MAX {
                let _ = self.fate.0.set(McpErrorKind::TooLarge { bytes_max: MESSAGE_BYTES_MAX });
                return None;
            }
            self.line.extend_from_slice(&bytes[..count]);
            self.stdout.consume(count);
            if end.is_some() {
                return Some(());
            }
        }
    }
}

impl Transport<RoleClient> for Stdio {
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let stdin = self.stdin.clone();
        async move {
            let mut line = serde_json::to_vec(&message)?;
            line.push(b'\n');
            let mut stdin = stdin.lock().await;
            let stdin = stdin.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            stdin.write_all(&line).await?;
            stdin.flush().await
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            self.read_line().await?;
            let message = read_message(&self.line);
            if let Unreadable::Noise = message.as_ref().err().unwrap_or(&Unreadable::Nothing) {
                self.words.push(&self.line);
            }
            self.line.clear();
            match message {
                Ok(message) => return Some(message),
                Err(Unreadable::Answer(to)) => {
                    let error = ErrorData::internal_error("an unreadable response", None);
                    return Some(JsonRpcMessage::error(error, Some(to)));
                }
                Err(Unreadable::Noise | Unreadable::Nothing) => {}
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        // Dropping the input closes it, which asks the server to end.
        self.stdin.lock().await.take();
        Ok(())
    }
}

/// A line that is not a valid message.
enum Unreadable {
    /// Not JSON.
    Noise,
    /// An invalid response to this request, whose caller must get an error.
    Answer(NumberOrString),
    /// Empty, or an invalid message without a request's id.
    Nothing,
}

fn read_message(line: &[u8]) -> Result<ServerJsonRpcMessage, Unreadable> {
    let line = line.trim_ascii();
    if line.is_empty() {
        return Err(Unreadable::Nothing);
    }
    serde_json::from_slice(line).map_err(|error| {
        let Ok(value) = serde_json::from_slice::<Value>(line) else { return Unreadable::Noise };
        tracing::debug!(%error, "ignored an invalid message");
        match (value.get("method"), value.get("id").and_then(Value::as_i64)) {
            (None, Some(id)) => Unreadable::Answer(NumberOrString::Number(id)),
            (Some(_) | None, _) => Unreadable::Nothing,
        }
    })
}

/// Carries the call of a request through the SDK to the tap.
#[derive(Clone, Debug)]
pub(crate) struct Caller(pub(crate) Arc<Call>);

/// Sees every message between the SDK and a server. See [`crate::calls`] for the reason.
pub(crate) struct Tap<T> {
    inner: T,
    calls: Arc<Calls>,
    /// Cancelled when the server has gone.
    gone: CancellationToken,
    /// Requests of the server that are not answered yet.
    unanswered: HashSet<NumberOrString>,
    /// A refusal that is being sent. It is stored here because `receive` may be dropped at any
    /// time, and a line must not be written in part.
    refusing: Option<BoxFuture<'static, ()>>,
}

impl<T> Tap<T> {
    pub(crate) fn new(inner: T, calls: Arc<Calls>, gone: CancellationToken) -> Self {
        Self { inner, calls, gone, unanswered: HashSet::new(), refusing: None }
    }
}

impl<T: Transport<RoleClient> + 'static> Transport<RoleClient> for Tap<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        match &message {
            JsonRpcMessage::Request(request) => {
                if let Some(Caller(call)) = request.request.extensions().get() {
                    let token = request.request.get_meta().get_progress_token();
                    self.calls.sent(call, &request.id, token.as_ref().map(|token| &token.0));
                }
            }
            JsonRpcMessage::Response(answer) => {
                self.unanswered.remove(&answer.id);
            }
            JsonRpcMessage::Error(answer) => {
                answer.id.as_ref().map(|id| self.unanswered.remove(id));
            }
            JsonRpcMessage::Notification(_) => {}
        }
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            if let Some(refusing) = &mut self.refusing {
                refusing.await;
                self.refusing = None;
            }
            let Some(message) = self.inner.receive().await else {
                self.gone.cancel();
                return None;
            };
            match message {
                JsonRpcMessage::Notification(notification) => {
                    let notification = notification.notification;
                    if let ServerNotification::ProgressNotification(progress) = notification {
                        self.calls.progress(progress.params);
                        continue;
                    }
                    // The SDK sends no response to a cancelled request.
                    if let ServerNotification::CancelledNotification(cancelled) = &notification {
                        cancelled.params.request_id.as_ref().map(|id| self.unanswered.remove(id));
                    }
                    return Some(JsonRpcMessage::notification(notification));
                }
                JsonRpcMessage::Request(request)
                    if self.unanswered.len() >= SERVER_REQUESTS_MAX =>
                {
                    tracing::warn!("refused a request: too many of the server's are unanswered");
                    let error = ErrorData::internal_error("too many concurrent requests", None);
                    let refusal = JsonRpcMessage::error(error, Some(request.id));
                    self.refusing = Some(self.inner.send(refusal).map(drop).boxed());
                }
                JsonRpcMessage::Request(request) => {
                    self.unanswered.insert(request.id.clone());
                    return Some(JsonRpcMessage::Request(request));
                }
                JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => return Some(message),
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.gone.cancel();
        self.inner.close()
    }
}

/// When the SDK has ended, every waiting caller must get an error.
impl<T> Drop for Tap<T> {
    fn drop(&mut self) {
        self.gone.cancel();
    }
}
