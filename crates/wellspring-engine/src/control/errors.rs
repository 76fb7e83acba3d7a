//! Why an action on a run was refused.

use wellspring_core::{InboxNo, PartId, QuestionId, RETURN_RESULT, RunId, ThreadId};
use wellspring_log::{ReadError, RunInfo, StoreError};

use crate::principal::Permission;
use crate::schema::SchemaError;

/// A run could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The agent does not exist.
    #[error("there is no agent {name:?}; there are: {known}")]
    UnknownAgent {
        /// The name that was asked for.
        name: Box<str>,
        /// The names of the existing agents.
        known: String,
    },
    /// The request names a model, and the agent does not allow that.
    #[error("the agent {agent} does not allow a request to choose its model; leave the model out")]
    ModelNotAllowed {
        /// The agent's name.
        agent: Box<str>,
    },
    /// A tool has the name that is reserved for returning results.
    #[error("no tool can be called {RETURN_RESULT}: agents return their results by that name")]
    ReservedTool,
    /// The schema of the result cannot be used.
    #[error("the result cannot be typed: {0}")]
    ResultSchema(#[source] SchemaError),
    /// The thread has an unfinished run.
    #[error("the thread is busy with run {0}; wait for it, cancel it, or add input to it")]
    ThreadBusy(RunId),
    /// The thread has runs, and this one was to be its first.
    #[error("the thread has runs already")]
    NotFirst,
    /// The thread belongs to another tenant.
    #[error("there is no thread {0}")]
    NoThread(ThreadId),
    /// The run to continue does not exist, or belongs to another tenant.
    #[error("there is no run {0} to continue")]
    NoRun(RunId),
    /// The run to continue is in another thread.
    #[error("run {run} is not in thread {thread}")]
    NotInThread {
        /// The run to continue.
        run: RunId,
        /// The thread that was named.
        thread: ThreadId,
    },
    /// The runtime has its maximum number of active runs.
    #[error("{0} runs are being worked on, and no more are allowed; try again later")]
    TooManyRuns(usize),
    /// The principal has its maximum number of active runs.
    #[error("{0} runs of yours are being worked on, and no more are allowed; wait or cancel some")]
    TooManyOfYours(usize),
    /// The tenant has its maximum number of active runs, counted on all nodes.
    #[error(
        "{0} runs of your tenant are being worked on, and no more are allowed; wait or cancel some"
    )]
    TooManyOfTenant(usize),
    /// The principal lacks a permission.
    #[error("this requires the permission `{0}`")]
    NotPermitted(Permission),
    /// The runtime is shutting down.
    #[error("the runtime is shutting down; try again later")]
    ShuttingDown,
    /// The log could not store the run.
    #[error("the log could not take the run")]
    Log(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<StoreError> for StartError {
    fn from(error: StoreError) -> Self {
        Self::Log(Box::new(error))
    }
}

impl From<ReadError> for StartError {
    fn from(error: ReadError) -> Self {
        Self::Log(Box::new(error))
    }
}

/// An action on a run was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// There is no such run, or it belongs to another tenant.
    #[error("there is no run {0}")]
    NoRun(RunId),
    /// There is no such thread, or it belongs to another tenant.
    #[error("there is no thread {0}")]
    NoThread(ThreadId),
    /// The title is not allowed.
    #[error("failed to set the title: {0}")]
    BadTitle(&'static str),
    /// The principal lacks a permission.
    #[error("this requires the permission `{0}`")]
    NotPermitted(Permission),
    /// The run has finished.
    #[error("run {} has already finished", .0.run)]
    Finished(Box<RunInfo>),
    /// The run has not finished.
    #[error("run {0} is not finished; cancel it first")]
    Unfinished(RunId),
    /// The question is not open.
    #[error("question {0} is not open: it was answered, expired or never asked")]
    NoQuestion(QuestionId),
    /// The answer does not fit the question.
    #[error("that does not answer the question: {0}")]
    BadAnswer(Box<str>),
    /// The call does not wait for a result from a client.
    #[error("call {0} does not wait for a result from a client")]
    NoCall(PartId),
    /// The run's remote agent accepts no input during a run.
    #[error("the agent {agent} takes no input while it works; wait until the run has finished")]
    NoInput {
        /// The agent's name.
        agent: Box<str>,
    },
    /// A tool has the name that is reserved for returning results.
    #[error("no tool can be called {RETURN_RESULT}: agents return their results by that name")]
    ReservedTool,
    /// The principal may not answer.
    #[error("only the principal that started the run, or a named approver, may answer")]
    NotAnApprover,
    /// The question or call has another answer or result already.
    #[error("another answer was accepted before, as inbox entry {number}; the first one counts")]
    AlreadyAnswered {
        /// The inbox entry that was accepted.
        number: InboxNo,
    },
    /// The key was used for a different request.
    #[error("the key was used for a different request before; use a new key for a new request")]
    KeyReused {
        /// The inbox entry that was accepted.
        number: InboxNo,
    },
    /// The run could not be read.
    #[error(transparent)]
    Read(ReadError),
    /// The store failed.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for ControlError {
    fn from(error: StoreError) -> Self {
        if let StoreError::NoRun(run) = error {
            Self::NoRun(run)
        } else if let StoreError::Unfinished(run) = error {
            Self::Unfinished(run)
        } else {
            Self::Store(error)
        }
    }
}

impl From<ReadError> for ControlError {
    fn from(error: ReadError) -> Self {
        if let ReadError::NoRun(run) = error { Self::NoRun(run) } else { Self::Read(error) }
    }
}
