//! Models: each yields one attempt at a turn.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::batch::Batch;
use crate::event::FailureKind;
use crate::message::Message;
use crate::tool::ToolSpec;

/// A model that can attempt one turn.
///
/// # Contract
///
/// 1. Yield part, annotation, source, file, usage and extended events and one stop; tool
///    events only about calls that run at the provider; never a run, turn or question
///    event: those are the engine's.
/// 2. An end without a stop is an error, never a quiet success.
/// 3. Treat dropping the stream as cancellation: close the connection, leave no task behind.
/// 4. With [`TurnRequest::streaming`] off, make the provider's non-streaming call and yield
///    each part in one delta.
#[diagnostic::on_unimplemented(
    note = "several models are chained with `Fallback::new([first, second])`"
)]
pub trait Model: Send + Sync {
    /// The model's name in the log.
    fn name(&self) -> &str;

    /// The provider's name by OpenTelemetry's conventions; `None` if it has none.
    fn provider(&self) -> Option<&str> {
        None
    }

    /// The host and port that requests go to; `None` for a model without a server.
    fn server(&self) -> Option<(&str, u16)> {
        None
    }

    /// The model to use if this one fails, at any point. The engine then voids this model's output,
    /// and the log names the model that answered.
    fn fallback(&self) -> Option<Arc<dyn Model>> {
        None
    }

    /// Called when the engine gives up an attempt because nothing arrived within a time limit.
    /// The stream itself does not learn that, because it is dropped.
    fn timed_out(&self, error: &ModelError) {
        let _ = error;
    }

    /// Starts one attempt.
    fn attempt(&self, request: TurnRequest) -> BoxFuture<'_, Result<AttemptStream, ModelError>>;
}

/// Shared and boxed models are models, so that a program can choose one at run time.
macro_rules! forward_model {
    ($($pointer:ident),*) => {$(
        impl<M: Model + ?Sized> Model for $pointer<M> {
            fn name(&self) -> &str {
                (**self).name()
            }

            fn provider(&self) -> Option<&str> {
                (**self).provider()
            }

            fn server(&self) -> Option<(&str, u16)> {
                (**self).server()
            }

            fn fallback(&self) -> Option<Arc<dyn Model>> {
                (**self).fallback()
            }

            fn timed_out(&self, error: &ModelError) {
                (**self).timed_out(error);
            }

            fn attempt(
                &self,
                request: TurnRequest,
            ) -> BoxFuture<'_, Result<AttemptStream, ModelError>> {
                (**self).attempt(request)
            }
        }
    )*};
}

forward_model!(Arc, Box);

/// The batches of one attempt.
pub type AttemptStream = BoxStream<'static, Result<Batch, ModelError>>;

/// The request for one turn.
#[derive(Clone, Debug)]
pub struct TurnRequest {
    /// Another model of the same provider, if the request names one.
    pub model: Option<Box<str>>,
    /// The agent's instructions.
    pub instructions: Arc<str>,
    /// The conversation so far.
    pub messages: Arc<[Message]>,
    /// The tools it may call.
    pub tools: Arc<[ToolSpec]>,
    /// Whether to stream the answer.
    pub streaming: bool,
    /// Sampling, limits and provider options.
    pub settings: ModelSettings,
}

/// Sampling, limits and provider options.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelSettings {
    /// Output tokens per turn.
    pub max_output_tokens: u32,
    /// Sampling temperature.
    pub temperature: Option<f32>,
    /// Stop sequences.
    pub stop_sequences: Vec<String>,
    /// How much reasoning to ask for.
    pub thinking: Option<Thinking>,
    /// Whether it must call a tool.
    pub tool_choice: ToolChoice,
    /// The JSON schema of the answer, for providers with structured output.
    pub output: Option<OutputSchema>,
    /// Extra members for the provider's request.
    pub extra: Option<Value>,
}

/// Output tokens per turn by default.
pub const MAX_OUTPUT_TOKENS_DEFAULT: u32 = 4096;

impl Default for ModelSettings {
    fn default() -> Self {
        Self {
            max_output_tokens: MAX_OUTPUT_TOKENS_DEFAULT,
            temperature: None,
            stop_sequences: Vec::new(),
            thinking: None,
            tool_choice: ToolChoice::Auto,
            output: None,
            extra: None,
        }
    }
}

/// The schema of a structured answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OutputSchema {
    /// The schema's name.
    pub name: Box<str>,
    /// Its JSON schema.
    pub schema: Value,
}

/// How much reasoning to ask for.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// No reasoning.
    Off,
    /// An effort level of the provider, for example `high`.
    Effort(Box<str>),
    /// At most this many tokens.
    Budget(u32),
}

/// Whether the model must call a tool.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// It must not call any.
    None,
    /// It must call at least one.
    Required,
    /// It must call this one.
    Tool(Box<str>),
}

/// A model or a remote agent failed to start or to continue.
#[derive(Debug, thiserror::Error)]
#[error("{source_name}: {message}")]
pub struct ModelError {
    source_name: Box<str>,
    message: Box<str>,
    kind: FailureKind,
    retry_after: Option<Duration>,
    #[source]
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl ModelError {
    /// An error of the provider or agent `source_name`; `message` says what failed.
    #[must_use]
    pub fn new(
        source_name: impl Into<Box<str>>,
        kind: FailureKind,
        message: impl Into<Box<str>>,
    ) -> Self {
        Self {
            source_name: source_name.into(),
            message: message.into(),
            kind,
            retry_after: None,
            cause: None,
        }
    }

    /// Redacts secrets in the message. The cause is not changed: a caller that adds one must remove
    /// its secrets.
    #[must_use]
    pub fn redacted<'s>(mut self, secrets: impl IntoIterator<Item = &'s str>) -> Self {
        for secret in secrets {
            if self.message.contains(secret) {
                self.message = self.message.replace(secret, "[redacted]").into();
            }
        }
        self
    }

    /// Adds the underlying cause.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Sets when to retry.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// What the caller can do. Branch on this, never on the message.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// The provider's retry delay.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether another attempt may succeed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self.kind {
            FailureKind::Unavailable
            | FailureKind::RateLimited
            | FailureKind::Protocol
            | FailureKind::TimedOut => true,
            FailureKind::Refused
            | FailureKind::BadRequest
            | FailureKind::Repetition
            | FailureKind::Lost
            | FailureKind::Internal => false,
        }
    }
}
