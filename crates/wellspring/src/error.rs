//! Why there is no result.

use std::sync::Arc;

use wellspring_core::{Budget, FailureKind, Stop};
use wellspring_engine::{ControlError, StartError};
use wellspring_log::ReadError;

/// Why a run gave no result, or could not be had.
///
/// It can be cloned, because a result can be asked for as often as one likes.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ThinkError {
    /// Runs are driven by Tokio, and there was none; or it was shut down meanwhile.
    #[error("there is no Tokio runtime to run on: ask from within one, and keep it alive")]
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
    /// Somebody cancelled the run before it had a result.
    #[error("the run was cancelled{}{}", suffix(" by ", .by), suffix(": ", .why))]
    Cancelled {
        /// Who.
        by: Option<Box<str>>,
        /// Why.
        why: Option<Box<str>>,
    },
    /// The run failed before it had a result.
    #[error("the run failed: {message}")]
    Failed {
        /// What can be done about it. Branch on this, never on the message.
        kind: FailureKind,
        /// What a person reads.
        message: Box<str>,
        /// Whether the same request may work later.
        retryable: bool,
    },
    /// The run came to its end, but to no result.
    #[error("the run ended without a result: {}; the agent said {answer:?}", reason(.stop))]
    NoResult {
        /// Why it stopped.
        stop: Stop,
        /// What the agent said instead.
        answer: String,
    },
    /// The result fits its schema, but not its type. The type's `Deserialize` and
    /// `JsonSchema` disagree, or the run was started for another type.
    #[error("the result is not of the type that was asked for")]
    InvalidResult(#[source] Arc<dyn std::error::Error + Send + Sync>),
    /// What was wanted of the run could not be had.
    #[error("the run did not take it")]
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

/// Why the run stopped, and what can be done about it.
fn reason(stop: &Stop) -> String {
    match stop {
        Stop::EndTurn => "the agent never handed one over".into(),
        Stop::TurnLimit => "it reached its limit of turns (Limits::turns)".into(),
        Stop::Budget(Budget::Tokens) => "its tokens are spent (Limits::tokens)".into(),
        Stop::Budget(Budget::Cost) => "its money is spent (Limits::cost)".into(),
        Stop::Budget(Budget::Time) => "its time is spent (Limits::time)".into(),
        Stop::MaxTokens => {
            "the model reached its limit of tokens (ModelSettings::max_output_tokens)".into()
        }
        Stop::Refusal => "the model refused".into(),
        Stop::ContentFilter => "the provider's filter stepped in".into(),
        Stop::ToolCalls | Stop::StopSequence | Stop::Paused | Stop::Other(_) => {
            format!("the model stopped with {stop:?}")
        }
    }
}
