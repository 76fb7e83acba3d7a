//! Whether a run does anything, or only waits for people.
//!
//! Everything that makes progress holds a [`Busy`] guard. When none is held, nothing but an
//! answer from outside can move the run on: it pauses and gives up its owner.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Counts what makes progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct Activity(Arc<Counted>);

#[derive(Debug, Default)]
struct Counted {
    busy: AtomicUsize,
    stirred: AtomicBool,
}

impl Activity {
    /// Something makes progress until the guard is dropped.
    pub(crate) fn busy(&self) -> Busy {
        self.0.busy.fetch_add(1, Ordering::Relaxed);
        Busy(self.clone())
    }

    /// Whether nothing does. Everything that could change this is polled by one task, so a
    /// look after that task's work has been polled sees a settled number.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.busy.load(Ordering::Relaxed) == 0
    }

    /// Something came in for those who wait: they have to be polled before anybody looks
    /// whether the run is idle.
    pub(crate) fn stir(&self) {
        self.0.stirred.store(true, Ordering::Relaxed);
    }

    /// Whether something came in since the last look.
    pub(crate) fn was_stirred(&self) -> bool {
        self.0.stirred.swap(false, Ordering::Relaxed)
    }

    /// Steps aside while something that already counted as busy waits for people.
    pub(crate) fn step_aside(&self) -> Aside {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
        Aside(self.clone())
    }
}

/// Held while something makes progress.
#[derive(Debug)]
pub(crate) struct Busy(Activity);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Held by what is busy in principle but waits for people.
#[derive(Debug)]
pub(crate) struct Aside(Activity);

impl Drop for Aside {
    fn drop(&mut self) {
        self.0.0.busy.fetch_add(1, Ordering::Relaxed);
    }
}
