//! Errors of the library.

use std::sync::Arc;

use wellspring_core::{Budget, FailureKind, Stop};
use wellspring_engine::{ControlError, StartError};
use wellspring_log::ReadError;

/// Why a run has no result, or could not be read.
///
/// It can be cloned, because a result can be awaited repeatedly.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ThinkError {
    /// Runs need a Tokio runtime, and there was none, or it was shut down.
    #[error("no Tokio runtime: start runs within one, and keep it alive until they have ended")]
    NoRuntime,
    /// The run could not be started.
    #[error("the run could not be started")]
    Start(#[source] Arc<StartError>),
    /// Two tools of the agent have the same name, so the model could not tell them apart.
    #[error("two tools are named {name:?}: rename one of them")]
    DuplicateTool {
        /// The name.
        name: Box<str>,
    },
    /// The run was cancelled before it had a result.
    #[error("the run was cancelled{}{}", suffix(" by ", .by), suffix(": ", .why))]
    Cancelled {
        /// The principal that cancelled it.
        by: Option<Box<str>>,
        /// The reason.
        why: Option<Box<str>>,
    },
    /// The run failed before it had a result.
    #[error("the run failed: {message}")]
    Failed {
        /// What the caller can do. Branch on this, never on the message.
        kind: FailureKind,
        /// The message for people.
        message: Box<str>,
        /// Whether the same request may succeed later.
        retryable: bool,
    },
    /// The run ended without an error, but without a result.
    #[error("the run ended without a result: {}; the agent said {answer:?}", reason(.stop))]
    NoResult {
        /// Why it stopped.
        stop: Stop,
        /// The agent's answer instead.
        answer: String,
    },
    /// The result matches its schema, but not its type. The type's `Deserialize` and
    /// `JsonSchema` disagree, or the run was started for another type.
    #[error("the result does not match the requested type")]
    InvalidResult(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// A request to the run was refused.
    #[error("the run refused the request")]
    Control(#[source] Arc<ControlError>),
    /// The log could not be read.
    #[error("the run could not be read")]
    Log(#[from] ReadError),
}

impl From<StartError> for ThinkError {
    fn from(error: StartError) -> Self {
        Self::Start(Arc::new(error))
    }
}

impl From<ControlError> for ThinkError {
    fn from(error: ControlError) -> Self {
        if let ControlError::Read(error) = error {
            Self::Log(error)
        } else if let ControlError::NoRun(run) = error {
            Self::Log(ReadError::NoRun(run))
        } else {
            Self::Control(Arc::new(error))
        }
    }
}

fn suffix(before: &str, word: &Option<Box<str>>) -> String {
    word.as_ref().map(|word| format!("{before}{word}")).unwrap_or_default()
}

/// The reason why the run stopped, with the limit to change.
fn reason(stop: &Stop) -> String {
    match stop {
        Stop::EndTurn => "the agent did not return one".into(),
        Stop::TurnLimit => "it reached its limit of turns (Limits::turns)".into(),
        Stop::Budget(Budget::Tokens) => "it reached its limit of tokens (Limits::tokens)".into(),
        Stop::Budget(Budget::Cost) => "it reached its limit of cost (Limits::cost)".into(),
        Stop::Budget(Budget::Time) => "it reached its limit of time (Limits::time)".into(),
        Stop::MaxTokens => {
            "the model reached its limit of tokens (ModelSettings::max_output_tokens)".into()
        }
        Stop::Refusal => "the model refused".into(),
        Stop::ContentFilter => "the provider's content filter intervened".into(),
        Stop::ToolCalls | Stop::StopSequence | Stop::Paused | Stop::Other(_) => {
            format!("the model stopped with {stop:?}")
        }
    }
}
