//! How a remote run ends, and what it must not say.

use serde_json::Value;

use super::super::super::types::Interrupt;

/// How a remote run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// It came to its end; the batch has its stop.
    Finished {
        /// What it handed over.
        result: Option<Value>,
    },
    /// It waits for these calls of ours, which the next run on its thread has to answer.
    Pending(Vec<PendingCall>),
    /// It waits for answers.
    Interrupted(Vec<Interrupt>),
    /// It was stopped.
    Cancelled,
    /// It could not go on.
    Failed {
        /// Why.
        message: Box<str>,
        /// What kind of failure.
        code: Option<Box<str>>,
    },
}

/// A call that a remote agent leaves to us.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PendingCall {
    /// Its id.
    pub id: Box<str>,
    /// The tool.
    pub name: Box<str>,
    /// Its arguments' JSON.
    pub arguments: String,
}

/// An event that AG-UI's own rules forbid.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Something before the run started, or after it ended.
    #[error("{event} outside a run")]
    NoRun {
        /// What came.
        event: &'static str,
    },
    /// A run inside a run.
    #[error("RUN_STARTED while a run is going on")]
    RunInRun,
    /// Content or an end of what is not open.
    #[error("{event} names {id:?}, which is not open")]
    NotOpen {
        /// What came.
        event: &'static str,
        /// What it named.
        id: Box<str>,
    },
    /// What is open was opened again.
    #[error("{event} opens {id:?}, which is open already")]
    StillOpen {
        /// What came.
        event: &'static str,
        /// What it named.
        id: Box<str>,
    },
    /// A chunk that names nothing while nothing is open.
    #[error("{event} has no id and continues nothing")]
    Chunk {
        /// What came.
        event: &'static str,
    },
    /// More than we hold for one run.
    #[error("the run has more than {max} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many we hold.
        max: usize,
    },
}
