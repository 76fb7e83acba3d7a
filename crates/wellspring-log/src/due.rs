//! Which runs need someone to look at them, and which nodes are alive.

use wellspring_core::{Millis, RunId};

/// The most runs that [`Store::due`](crate::Store::due) gives at once; the next page continues
/// after the last of them.
pub const DUE_PAGE_MAX: usize = 1000;

/// Asks for a page of the runs that are due.
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
    /// Runs whose time is at or before this.
    pub now: Millis,
    /// Nodes that the caller knows to be gone.
    pub gone: Vec<Box<str>>,
    /// Where the page before ended; its last entry is not given again.
    pub after: Option<DuePlace>,
    /// At most so many; [`DUE_PAGE_MAX`] if zero or more than that.
    pub limit: usize,
}

impl DueQuery {
    /// The most runs in this page.
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
    /// Its owner, if that is one of the nodes that are gone.
    pub owner: Option<Box<str>>,
    /// Since when it is due; zero if at once.
    pub since: Millis,
}

impl Due {
    /// Its place in the order of all that are due.
    #[must_use]
    pub fn place(&self) -> DuePlace {
        DuePlace { since: self.since, run: self.run }
    }
}

/// A place in the order of the runs that are due: by time, then by run.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct DuePlace {
    /// Since when.
    pub since: Millis,
    /// Which run.
    pub run: RunId,
}

/// The last sign of life of a node.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct NodeBeat {
    /// The node.
    pub node: Box<str>,
    /// A number that is different after each beat; zero if the store has none of it.
    pub beat: u64,
}
