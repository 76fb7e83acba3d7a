//! What can go wrong with a run, by operation.

use wellspring_core::{RunId, Seq};

use crate::store::{RunInfo, StoreError};

/// A run was not created.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CreateError {
    /// Its id is taken.
    #[error("run {} exists already", .0.run)]
    Exists(Box<RunInfo>),
    /// Its name means another run already.
    #[error("the name means run {0} already")]
    Named(RunId),
    /// Its thread has an unfinished run.
    #[error("the thread is busy with run {0}")]
    ThreadBusy(RunId),
    /// Its thread has runs, and it was to be the first.
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
    /// There is nothing left to do.
    #[error("run {} is finished", .0.run)]
    Finished(Box<RunInfo>),
    /// This process owns it, or another node that is believed to be alive does.
    #[error("run {run} has an owner")]
    Owned {
        /// Which run.
        run: RunId,
        /// The other node; absent if the owner is in this process.
        owner: Option<Box<str>>,
    },
    /// The head moved every time: somebody appends, so somebody owns it.
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

/// A run could not be read, or not further.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// There is no such run, or no longer.
    #[error("there is no run {0}")]
    NoRun(RunId),
    /// The position asked for is not there yet.
    #[error("run {run} has no record {after} yet: its head is {head}")]
    Future {
        /// Which run.
        run: RunId,
        /// What was asked for.
        after: Seq,
        /// How far the run is.
        head: Seq,
    },
    /// The store failed.
    #[error("could not read the run")]
    Store(#[source] StoreError),
    /// The store failed the run's owner in this process; nothing more will come from it.
    #[error("the run lost its owner here")]
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
