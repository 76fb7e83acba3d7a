//! Runs that are due, and heartbeats of nodes.

use wellspring_core::{Millis, RunId};

/// Maximum number of runs per call of [`Store::due`](crate::Store::due); the next page
/// continues after the last of them.
pub const DUE_PAGE_MAX: usize = 1000;

/// Selects a page of the runs that are due.
///
/// A run is due
///
/// - at once, if it is running and has no owner, or its owner is one of `gone`;
/// - at once, if it is paused and its inbox has an entry that no frame has taken;
/// - at its deadline, if it is paused with a [deadline](crate::NewFrame::deadline).
///
/// Finished runs and running runs of other owners are never due.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DueQuery {
    /// The current time. Deadlines at or before it have passed.
    pub now: Millis,
    /// Nodes that the caller considers gone.
    pub gone: Vec<Box<str>>,
    /// Only runs after this place: the last one of the previous page.
    pub after: Option<DuePlace>,
    /// Maximum number of runs; [`DUE_PAGE_MAX`] if zero or larger.
    pub limit: usize,
}

impl DueQuery {
    /// The effective maximum of this page.
    #[must_use]
    pub fn limit_or_max(&self) -> usize {
        if self.limit == 0 { DUE_PAGE_MAX } else { self.limit.min(DUE_PAGE_MAX) }
    }
}

/// A run that is due.
#[derive(Clone, Debug, PartialEq)]
pub struct Due {
    /// The run.
    pub run: RunId,
    /// Its agent's name.
    pub agent: Box<str>,
    /// Its owner; set if that is one of the nodes that are gone.
    pub owner: Option<Box<str>>,
    /// The time since when it is due; zero if it was due at once.
    pub since: Millis,
}

impl Due {
    /// Its place in the order of due runs.
    #[must_use]
    pub fn place(&self) -> DuePlace {
        DuePlace { since: self.since, run: self.run }
    }
}

/// A place in the order of due runs: by time, then by run.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct DuePlace {
    /// The time since when the run is due.
    pub since: Millis,
    /// The run.
    pub run: RunId,
}

/// The last heartbeat of a node.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct NodeBeat {
    /// The node.
    pub node: Box<str>,
    /// A number that changes with each heartbeat; zero if the store has none.
    pub beat: u64,
}
