//! Whether a run makes progress, or only waits for people.
//!
//! All work that makes progress holds a [`Busy`] guard. While no guard is held, only an answer from
//! outside can continue the run, so the run pauses and releases its owner.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Counts the tasks that make progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct Activity(Arc<Counted>);

#[derive(Debug, Default)]
struct Counted {
    busy: AtomicUsize,
    stirred: AtomicBool,
}

impl Activity {
    /// Counts one more until the guard is dropped.
    pub(crate) fn busy(&self) -> Busy {
        self.0.busy.fetch_add(1, Ordering::Relaxed);
        Busy(self.clone())
    }

    /// Whether nothing makes progress. Everything that could change this is polled by one task,
    /// so a check after that task was polled sees the final count.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.busy.load(Ordering::Relaxed) == 0
    }

    /// Records that something arrived for waiting code, which must be polled before the next check
    /// whether the run is idle.
    pub(crate) fn stir(&self) {
        self.0.stirred.store(true, Ordering::Relaxed);
    }

    /// Whether something arrived since the last check.
    pub(crate) fn was_stirred(&self) -> bool {
        self.0.stirred.swap(false, Ordering::Relaxed)
    }

    /// Does not count as busy until the guard is dropped: the task waits for people.
    pub(crate) fn step_aside(&self) -> Aside {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
        Aside(self.clone())
    }
}

/// Held while a task makes progress.
#[derive(Debug)]
pub(crate) struct Busy(Activity);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Held by a busy task while it waits for people.
#[derive(Debug)]
pub(crate) struct Aside(Activity);

impl Drop for Aside {
    fn drop(&mut self) {
        self.0.0.busy.fetch_add(1, Ordering::Relaxed);
    }
}
