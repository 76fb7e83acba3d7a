//! Errors of operations on runs.

use wellspring_core::{RunId, Seq};

use crate::store::{RunInfo, StoreError};

/// A run was not created.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// Its id is used already.
    #[error("run {} exists already", .0.run)]
    Exists(Box<RunInfo>),
    /// Its name belongs to another run.
    #[error("the name already belongs to run {0}")]
    Named(RunId),
    /// Its thread has an unfinished run.
    #[error("the thread is busy with run {0}")]
    ThreadBusy(RunId),
    /// Its thread has runs, but it was to be the first.
    #[error("the thread has runs already")]
    NotFirst,
    /// The store failed.
    #[error("could not create the run")]
    Store(#[from] StoreError),
}

/// A run was not adopted.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdoptError {
    /// There is no such run.
    #[error("there is no run {0}")]
    NoRun(RunId),
    /// The run is finished.
    #[error("run {} is finished", .0.run)]
    Finished(Box<RunInfo>),
    /// This process owns it, or another node that counts as alive does.
    #[error("run {run} has an owner")]
    Owned {
        /// Which run.
        run: RunId,
        /// The other node; absent if the owner is in this process.
        owner: Option<Box<str>>,
    },
    /// The head moved at every attempt, so another process is appending.
    #[error("run {run} moved on while it was being adopted, now to record {head}")]
    Contended {
        /// Which run.
        run: RunId,
        /// Its head.
        head: Seq,
    },
    /// The store failed.
    #[error("could not adopt the run")]
    Store(#[from] StoreError),
}

/// A run could not be read, or not any further.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The run does not exist, or was deleted.
    #[error("there is no run {0}")]
    NoRun(RunId),
    /// The requested position does not exist yet.
    #[error("run {run} has no record {after} yet: its head is {head}")]
    Future {
        /// Which run.
        run: RunId,
        /// The requested position.
        after: Seq,
        /// The run's last record.
        head: Seq,
    },
    /// The store failed.
    #[error("could not read the run")]
    Store(#[source] StoreError),
    /// The store failed for the run's owner in this process, so nothing more will be appended
    /// here.
    #[error("the run lost its owner in this process")]
    OwnerLost(#[source] StoreError),
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoRun(run) => Self::NoRun(run),
            StoreError::Full { .. }
            | StoreError::Damaged { .. }
            | StoreError::DamagedStore { .. }
            | StoreError::DamagedDocument(_)
            | StoreError::BadDocument { .. }
            | StoreError::BadTitle(_)
            | StoreError::Unfinished(_)
            | StoreError::Finished(_)
            | StoreError::Unsupported(_)
            | StoreError::Failed { .. } => Self::Store(error),
        }
    }
}
