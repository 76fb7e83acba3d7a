//! Why a run could not be started, or something wanted of it could not be had.

use wellspring_core::{PartId, QuestionId, RETURN_RESULT, RunId};
use wellspring_log::{RunInfo, StoreError};

/// A run could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No agent has that name.
    #[error("there is no agent {name:?}; there are: {known}")]
    UnknownAgent {
        /// What was asked for.
        name: Box<str>,
        /// What there is.
        known: String,
    },
    /// The request names a model, and the agent has one of its own.
    #[error("the agent {agent} lets nobody choose its model; leave the model out")]
    ModelNotAllowed {
        /// Who was asked.
        agent: Box<str>,
    },
    /// A tool has the name by which a result is handed over.
    #[error(
        "no tool can be called {RETURN_RESULT}: by that name the result is handed over; rename it"
    )]
    ReservedTool,
    /// The thread has an unfinished run.
    #[error("the thread is busy with run {0}; wait for it, cancel it, or add input to it")]
    ThreadBusy(RunId),
    /// The id is taken.
    #[error("there is a run {} already", .0.run)]
    Exists(Box<RunInfo>),
    /// The name means another run already.
    #[error("that name means run {0} already")]
    Named(RunId),
    /// The thread has runs, and this one was to be its first.
    #[error("the thread has runs already")]
    NotFirst,
    /// The run to continue does not exist, or is someone else's.
    #[error("there is no run {0} to continue")]
    NoRun(RunId),
    /// The runtime is shutting down.
    #[error("the runtime is shutting down; ask again elsewhere or later")]
    ShuttingDown,
    /// The log could not take it.
    #[error("the log could not take the run")]
    Log(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Something was wanted of a run that could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is no such run.
    #[error("there is no run {0}")]
    NoRun(RunId),
    /// The run is over.
    #[error("run {0} is over already")]
    Finished(RunId),
    /// The question is not open.
    #[error("question {0} is not open: it was answered, expired or never asked")]
    NoQuestion(QuestionId),
    /// The question cannot be answered so.
    #[error("that is no answer to the question: {0}")]
    BadAnswer(Box<str>),
    /// The call does not wait for a result from outside.
    #[error("call {0} does not wait for a result from outside")]
    NoCall(PartId),
    /// The agent of the run is a remote one that takes no input while it works.
    #[error("the agent {agent} takes no input while it works; wait until the run is over")]
    NoInput {
        /// The agent's name.
        agent: Box<str>,
    },
    /// The answer is not theirs to give.
    #[error("only whoever started the run, or a named approver, may answer")]
    NotAllowed,
    /// The log could not take it.
    #[error("the log could not take it")]
    Log(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<StoreError> for SendError {
    fn from(error: StoreError) -> Self {
        if let StoreError::NoRun(run) = error {
            Self::NoRun(run)
        } else {
            Self::Log(Box::new(error))
        }
    }
}
