//! How a remote run ends, and which events are errors.

use serde_json::Value;

use super::super::super::types::Interrupt;

/// How a remote run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// It completed; the batch has its stop.
    Finished {
        /// Its result.
        result: Option<Value>,
    },
    /// It waits for these calls of ours, which the next run on its thread must answer.
    Pending(Vec<PendingCall>),
    /// It waits for answers.
    Interrupted(Vec<Interrupt>),
    /// It was cancelled.
    Cancelled,
    /// It failed.
    Failed {
        /// The error message.
        message: Box<str>,
        /// The error code.
        code: Option<Box<str>>,
    },
}

/// A call that a remote agent wants us to run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PendingCall {
    /// Its id.
    pub id: Box<str>,
    /// The tool.
    pub name: Box<str>,
    /// Its arguments as JSON text.
    pub arguments: String,
}

/// An event that AG-UI's own rules forbid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// An event before the run started, or after it ended.
    #[error("{event} outside a run")]
    NoRun {
        /// The event's type.
        event: &'static str,
    },
    /// A run started inside a run.
    #[error("RUN_STARTED while a run is going on")]
    RunInRun,
    /// Content or an end of something that is not open.
    #[error("{event} names {id:?}, which is not open")]
    NotOpen {
        /// The event's type.
        event: &'static str,
        /// The id that it named.
        id: Box<str>,
    },
    /// Something was opened twice.
    #[error("{event} opens {id:?}, which is open already")]
    StillOpen {
        /// The event's type.
        event: &'static str,
        /// The id that it named.
        id: Box<str>,
    },
    /// A chunk without an id while nothing is open.
    #[error("{event} has no id and continues nothing")]
    Chunk {
        /// The event's type.
        event: &'static str,
    },
    /// A text that is told again after a lost connection differs from what was said before.
    #[error("{event} tells {id:?} again, and the text is not the one from before")]
    Diverged {
        /// The event's type.
        event: &'static str,
        /// The id that it named.
        id: Box<str>,
    },
    /// More than we track for one run.
    #[error("the run has more than {max} {what}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// The maximum.
        max: usize,
    },
}
