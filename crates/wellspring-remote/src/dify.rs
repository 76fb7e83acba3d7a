//! Apps of [Dify](https://docs.dify.ai): chats, agents, chatflows and workflows, over HTTP and SSE.
//!
//! # What is deliberately absent
//!
//! Our tools, which Dify cannot call, and files without a URL. Input to an active run: it is
//! the user's next message, once the app has finished.
//!
//! # What is promised
//!
//! A thread is a conversation of a chat app. A cancelled run is stopped at Dify. A stream that
//! is cut off is a failure, because Dify cannot resume it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt as _};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, Url};
use serde_json::{Value, json};
use wellspring_core::{
    Batch, Content, Context, Event as Fact, FailureKind, MediaSource, ModelError, RemoteAgent,
    RemoteCapabilities, RemoteInputs, RemoteRequest, RemoteResume, Stop,
};
use wellspring_wire::Framer;
pub use wellspring_wire::dify::App;
use wellspring_wire::dify::{Ask, End, Reader};
use wellspring_wire::provider::Failure;

pub use crate::http::SetupError;
use crate::http::{client, error_body};

/// Default time that an app may send nothing, not even a ping.
pub const SILENCE_DEFAULT: Duration = Duration::from_secs(120);

/// Maximum size of a run's stream. The longest answers stay far below it. The limit keeps a server
/// that never ends its stream from filling the log.
const STREAM_BYTES_MAX: usize = 256 * 1024 * 1024;

/// How long a stop request may take. The run ends here in any case.
const STOP_TIME: Duration = Duration::from_secs(1);

/// The user id for requests without one.
const USER_DEFAULT: &str = "wellspring";

/// The configuration of a Dify app.
#[derive(Clone, PartialEq)]
pub struct DifyConfig {
    /// The URL of the API, such as `https://api.dify.ai/v1`.
    pub url: Box<str>,
    /// The app's key. It is redacted in `Debug`.
    pub key: Box<str>,
    /// The kind of the app.
    pub app: App,
    /// The variable that takes the text, for a workflow or a completion app.
    pub input: Box<str>,
    /// How long the app may send nothing, not even a ping.
    pub silence: Duration,
}

impl DifyConfig {
    /// A chat app at a URL, with default options.
    #[must_use]
    pub fn new(url: impl Into<Box<str>>, key: impl Into<Box<str>>) -> Self {
        Self {
            url: url.into(),
            key: key.into(),
            app: App::Chat,
            input: "query".into(),
            silence: SILENCE_DEFAULT,
        }
    }
}

impl fmt::Debug for DifyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DifyConfig")
            .field("url", &self.url)
            .field("app", &self.app)
            .field("input", &self.input)
            .field("silence", &self.silence)
            .finish_non_exhaustive()
    }
}

/// An app of Dify.
#[derive(Clone)]
pub struct DifyAgent {
    shared: Arc<Shared>,
}

struct Shared {
    name: Box<str>,
    config: DifyConfig,
    url: Url,
    client: Client,
}

impl DifyAgent {
    /// Creates an agent. `name` is its name in the log. Nothing is sent before its first run.
    ///
    /// # Errors
    ///
    /// If the URL or the key is invalid.
    pub fn new(name: impl Into<Box<str>>, config: DifyConfig) -> Result<Self, SetupError> {
        let key = format!("Bearer {}", config.key).into();
        let (url, client) = client(&config.url, &[("authorization".into(), key)])?;
        Ok(Self { shared: Arc::new(Shared { name: name.into(), config, url, client }) })
    }

    /// Reads the app's name, to check the configuration.
    ///
    /// # Errors
    ///
    /// If Dify cannot be reached or rejects the key.
    pub async fn check(&self) -> Result<Box<str>, ModelError> {
        let shared = &self.shared;
        let asked = shared.client.get(shared.path("info")).timeout(crate::http::CONNECT_TIMEOUT);
        let answer = asked.send().await.map_err(|error| shared.unreachable(error))?;
        if !answer.status().is_success() {
            return Err(shared.refused(answer).await);
        }
        let body = error_body(answer).await;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        Ok(body["name"].as_str().unwrap_or("an app without a name").into())
    }
}

impl RemoteAgent for DifyAgent {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn capabilities(&self) -> RemoteCapabilities {
        RemoteCapabilities { inputs: RemoteInputs::FollowUp, resume: RemoteResume::NewParts }
    }

    fn run(
        &self,
        request: RemoteRequest,
        context: Context,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<Batch, ModelError>>, ModelError>> {
        crate::drive::run(Drive::new(Arc::clone(&self.shared), request, context))
    }
}

impl fmt::Debug for DifyAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { name, config, .. } = &*self.shared;
        f.debug_struct("DifyAgent").field("name", name).field("config", config).finish()
    }
}

impl Shared {
    fn error(&self, kind: FailureKind, what: &str) -> ModelError {
        let secret = Some(&*self.config.key).filter(|key| !key.is_empty());
        ModelError::new(&*self.name, kind, what).redacted(secret)
    }

    fn unreachable(&self, cause: reqwest::Error) -> ModelError {
        self.error(FailureKind::Unavailable, "could not be reached").because(cause)
    }

    async fn refused(&self, response: reqwest::Response) -> ModelError {
        let status = response.status().as_u16();
        let failure = Failure::of_status(status, &error_body(response).await);
        self.error(failure.kind, &failure.message)
    }

    fn path(&self, path: &str) -> String {
        format!("{}/{path}", self.url.as_str().trim_end_matches('/'))
    }
}

/// A run in progress. It advances only while its stream is polled.
struct Drive {
    shared: Arc<Shared>,
    request: RemoteRequest,
    context: Context,
    reader: Reader,
    batch: Batch,
    conversation_id: Option<Box<str>>,
    is_attached: bool,
    phase: Phase,
}

enum Phase {
    Ask,
    Listen(Box<Listening>),
    /// Events that were read before the error are returned first.
    Failed(ModelError),
    Done,
}

struct Listening {
    chunks: BoxStream<'static, Result<Bytes, reqwest::Error>>,
    framer: Framer,
    bytes: usize,
}

impl crate::drive::Drive for Drive {
    async fn next(&mut self) -> Option<Result<Batch, ModelError>> {
        loop {
            if !self.batch.is_empty() {
                return Some(Ok(self.batch.take()));
            }
            let phase = std::mem::replace(&mut self.phase, Phase::Done);
            let next = match phase {
                Phase::Done => return None,
                Phase::Failed(error) => return Some(Err(error)),
                Phase::Ask => self.ask().await,
                Phase::Listen(listening) => self.listen(listening).await,
            };
            self.phase = next.unwrap_or_else(|error| {
                self.reader.close(&mut self.batch);
                Phase::Failed(error)
            });
        }
    }
}

impl Drive {
    fn new(shared: Arc<Shared>, request: RemoteRequest, context: Context) -> Self {
        let phase = if request.attached.is_some() {
            let what = "cannot go on: the process that listened to the app ended, and Dify has no \
                        way to listen again; ask again";
            Phase::Failed(shared.error(FailureKind::Lost, what))
        } else {
            Phase::Ask
        };
        let session = request.session.as_ref();
        let conversation_id = session.and_then(|it| it["conversationId"].as_str()).map(Into::into);
        let reader = Reader::new(shared.config.app);
        let (batch, is_attached) = (Batch::default(), false);
        Self { shared, request, context, reader, batch, conversation_id, is_attached, phase }
    }

    fn user(&self) -> &str {
        self.request.request.by.as_deref().unwrap_or(USER_DEFAULT)
    }

    fn body(&self) -> Result<Value, ModelError> {
        let (mut texts, mut files) = (Vec::new(), Vec::new());
        for content in &self.request.request.input {
            match content {
                Content::Text(text) => texts.push(text.to_string()),
                Content::Link { uri, .. } => texts.push(uri.to_string()),
                Content::Resource { uri, text, .. } => texts.push(format!("{uri}:\n{text}")),
                Content::Media { media_type, source: MediaSource::Url(url), .. } => {
                    files.push((&**media_type, &**url));
                }
                Content::Media { source: MediaSource::Data(_), .. } => {
                    let what = "takes files by their address only; give a URL";
                    return Err(self.shared.error(FailureKind::BadRequest, what));
                }
            }
        }
        let ask = Ask {
            query: &texts.join("\n\n"),
            user: self.user(),
            conversation_id: self.conversation_id.as_deref(),
            input: &self.shared.config.input,
            inputs: self.request.request.inputs.as_ref(),
            files: &files,
        };
        Ok(ask.body(self.shared.config.app))
    }

    async fn ask(&mut self) -> Result<Phase, ModelError> {
        let shared = Arc::clone(&self.shared);
        let request = shared
            .client
            .post(shared.path(shared.config.app.path()))
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "text/event-stream")
            .body(self.body()?.to_string());
        let signal = self.context.signal().clone();
        let sent = tokio::select! {
            biased;
            () = signal.cancelled() => return Ok(self.cancelled().await),
            sent = tokio::time::timeout(shared.config.silence, request.send()) => sent,
        };
        let response = sent.map_err(|_| self.silent())?;
        let response = response.map_err(|error| shared.unreachable(error))?;
        if !response.status().is_success() {
            return Err(shared.refused(response).await);
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
        if !kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            let kind = kind.unwrap_or("no content type");
            let what = format!("answered with {kind}, not with text/event-stream");
            return Err(shared.error(FailureKind::Protocol, &what));
        }
        let chunks = response.bytes_stream().boxed();
        Ok(Phase::Listen(Box::new(Listening { chunks, framer: Framer::sse(), bytes: 0 })))
    }

    async fn listen(&mut self, mut listening: Box<Listening>) -> Result<Phase, ModelError> {
        let shared = Arc::clone(&self.shared);
        let signal = self.context.signal().clone();
        let chunk = tokio::select! {
            biased;
            () = signal.cancelled() => return Ok(self.cancelled().await),
            chunk = tokio::time::timeout(shared.config.silence, listening.chunks.next()) => chunk,
        };
        let chunk = match chunk {
            Err(_) => {
                self.stop().await;
                return Err(self.silent());
            }
            Ok(Some(Ok(chunk))) => chunk,
            Ok(over) => {
                self.reader.stream_ended(&mut self.batch);
                if let Some(end) = self.reader.end().cloned() {
                    return self.ended(end);
                }
                let what = "broke off before its run had ended";
                let error = shared.error(FailureKind::Protocol, what);
                return Err(match over {
                    Some(Err(cause)) => error.because(cause),
                    Some(Ok(_)) | None => error,
                });
            }
        };
        listening.bytes += chunk.len();
        if listening.bytes > STREAM_BYTES_MAX {
            let what = format!("sent more than {STREAM_BYTES_MAX} bytes for one run");
            return Err(shared.error(FailureKind::Protocol, &what));
        }
        let broken = |error: &dyn fmt::Display| {
            shared.error(FailureKind::Protocol, &format!("broke the protocol: {error}"))
        };
        let mut rest = &chunk[..];
        while let Some(frame) = listening.framer.next(&mut rest).map_err(|it| broken(&it))? {
            if frame.data.trim_ascii().is_empty() {
                continue;
            }
            let event: Value = serde_json::from_slice(frame.data).map_err(|it| broken(&it))?;
            self.reader.event(event, &mut self.batch);
            self.attach();
            if let Some(end) = self.reader.end().cloned() {
                return self.ended(end);
            }
        }
        Ok(Phase::Listen(listening))
    }

    /// Emits the handle, with the conversation and the task, as soon as both are known.
    fn attach(&mut self) {
        let Some(task) = self.reader.task_id().filter(|_| !self.is_attached) else { return };
        let conversation = self.reader.conversation_id().or(self.conversation_id.as_deref());
        let handle = json!({"taskId": task, "conversationId": conversation});
        let origin = self.shared.name.clone();
        self.batch.event(Fact::Attached { origin, handle: Box::new(handle) });
        self.is_attached = true;
    }

    fn ended(&mut self, end: End) -> Result<Phase, ModelError> {
        match end {
            End::Finished => {
                self.batch.stop(Stop::EndTurn, None);
                Ok(Phase::Done)
            }
            // We did not stop it: an incomplete answer is not a success.
            End::Stopped => Err(self.shared.error(FailureKind::Lost, "was stopped at Dify")),
            End::Failed { kind, message } => Err(self.shared.error(kind, &message)),
        }
    }

    /// Stops the task. Dify does not stop it when the connection closes.
    async fn stop(&mut self) {
        let Some(task) = self.reader.task_id() else { return };
        let path = self.shared.path(&self.shared.config.app.stop_path(task));
        let stop = self.shared.client.post(path).header(CONTENT_TYPE, "application/json");
        let stop = stop.body(json!({"user": self.user()}).to_string()).timeout(STOP_TIME);
        if let Err(error) = stop.send().await {
            tracing::warn!(agent = &*self.shared.name, %error, "the app could not be stopped");
        }
    }

    async fn cancelled(&mut self) -> Phase {
        self.stop().await;
        self.reader.close(&mut self.batch);
        self.batch.stop(Stop::Other("cancelled".into()), None);
        Phase::Done
    }

    fn silent(&self) -> ModelError {
        let limit = self.shared.config.silence.as_secs_f32();
        self.shared.error(FailureKind::TimedOut, &format!("sent nothing for {limit} s"))
    }
}
