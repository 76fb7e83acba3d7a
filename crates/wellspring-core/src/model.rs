//! Models: what yields one attempt at a turn.

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

/// Something that can attempt one turn.
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
pub trait Model: Send + Sync {
    /// What the log calls it.
    fn name(&self) -> &str;

    /// Whose model it is, as OpenTelemetry's conventions call it; nothing where nobody's.
    fn provider(&self) -> Option<&str> {
        None
    }

    /// Starts one attempt.
    fn attempt(&self, request: TurnRequest) -> BoxFuture<'_, Result<AttemptStream, ModelError>>;
}

/// What a model says, as it says it.
pub type AttemptStream = BoxStream<'static, Result<Batch, ModelError>>;

/// What a model is asked.
#[derive(Clone, Debug)]
pub struct TurnRequest {
    /// Another model of the same provider.
    pub model: Option<Box<str>>,
    /// What the agent is.
    pub instructions: Arc<str>,
    /// The conversation so far.
    pub messages: Arc<[Message]>,
    /// What it can use.
    pub tools: Arc<[ToolSpec]>,
    /// Whether to stream.
    pub streaming: bool,
    /// How to answer.
    pub settings: ModelSettings,
}

/// How a model should answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ModelSettings {
    /// Tokens it may write in one turn.
    pub max_output_tokens: u32,
    /// How freely it chooses its words.
    pub temperature: Option<f32>,
    /// Where it must stop.
    pub stop_sequences: Vec<String>,
    /// How long it should think.
    pub thinking: Option<Thinking>,
    /// Whether it must use a tool.
    pub tool_choice: ToolChoice,
    /// The shape that its answer must have, where the provider can hold it to one.
    pub output: Option<OutputSchema>,
    /// Members for the provider's request that there is no word for here.
    pub extra: Option<Value>,
}

/// Tokens a model may write in one turn unless told otherwise.
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

/// The shape of an answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OutputSchema {
    /// What it is called.
    pub name: Box<str>,
    /// Its JSON schema.
    pub schema: Value,
}

/// How long a model should think.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// Not at all.
    Off,
    /// By the provider's own scale.
    Effort(Box<str>),
    /// At most so many tokens.
    Budget(u32),
}

/// Whether a model must use a tool.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// As it likes.
    #[default]
    Auto,
    /// None.
    None,
    /// Any one.
    Required,
    /// This one.
    Tool(Box<str>),
}

/// A model, or a remote agent, could not start or go on.
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
    /// An error of `source_name`, the provider or agent; the message says while doing what.
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

    /// Adds what lies behind it.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Adds when to try again.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// What a caller can do. Branch on this, never on the message.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// When the provider wants to be asked again.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether another attempt may do better.
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
