//! How a remote run ends, and errors of the reader.

use serde_json::Value;

use super::super::super::types::Interrupt;

/// How a remote run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// It completed; the batch holds the stop.
    Finished {
        /// Its result.
        result: Option<Value>,
    },
    /// It waits for the results of these calls, which the next run on its thread must provide.
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

/// A call of one of our tools by a remote agent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PendingCall {
    /// Its id.
    pub id: Box<str>,
    /// The tool.
    pub name: Box<str>,
    /// Its arguments as JSON text.
    pub arguments: String,
}

/// An event that AG-UI's rules forbid.
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
    #[error("RUN_STARTED before the end of the previous run")]
    RunInRun,
    /// Content or an end for something that is not open.
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
    /// A text that is sent again after a reconnect differs from the first time.
    #[error("{event} repeats {id:?} with a different text")]
    Diverged {
        /// The event's type.
        event: &'static str,
        /// The id that it named.
        id: Box<str>,
    },
    /// More items than are tracked for one run.
    #[error("the run has more than {max} {what}")]
    TooMany {
        /// What exceeds its maximum.
        what: &'static str,
        /// The maximum.
        max: usize,
    },
}
