//! Wake-ups for other processes' changes to a run.
//!
//! A store keeps a [`Watches`]: the runs that this process waits for. When it learns that
//! another process has appended to a run, put a command into its inbox or deleted it, it wakes
//! the watches of that run only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::watch;
use wellspring_core::RunId;

use crate::lock;

/// Waits for other processes' changes to one run: appends, inbox entries, deletion.
///
/// A clone has seen the same changes as the original. A wake-up may come without a change; a
/// change always causes a wake-up.
#[derive(Clone, Debug)]
pub struct Watch {
    changes: watch::Receiver<u64>,
    _registered: Arc<Registered>,
}

impl Watch {
    /// Waits until something changed since the last call of this method or of
    /// [`mark_seen`](Self::mark_seen). If the store is closed, it waits forever.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no wake-up.
    pub async fn changed(&mut self) {
        if self.changes.changed().await.is_err() {
            // The store is closing, so there will be no further changes.
            std::future::pending().await
        }
    }

    /// Marks all changes so far as seen. Call it before reading, so that changes after the read
    /// count as new.
    pub fn mark_seen(&mut self) {
        self.changes.borrow_and_update();
    }
}

/// The runs that this process waits for. Clones share the same set.
#[derive(Clone, Debug, Default)]
pub struct Watches {
    runs: Arc<Mutex<HashMap<RunId, Watched>>>,
}

#[derive(Debug)]
struct Watched {
    changes: watch::Sender<u64>,
    registered: Weak<Registered>,
}

/// Shared by all watches of a run. When the last one is dropped, the run is no longer watched.
#[derive(Debug)]
struct Registered {
    run: RunId,
    runs: Weak<Mutex<HashMap<RunId, Watched>>>,
}

impl Watches {
    /// Starts watching a run.
    #[must_use]
    pub fn watch(&self, run: RunId) -> Watch {
        let mut runs = lock(&self.runs);
        if let Some(watched) = runs.get(&run)
            && let Some(registered) = watched.registered.upgrade()
        {
            return Watch { changes: watched.changes.subscribe(), _registered: registered };
        }
        let registered = Arc::new(Registered { run, runs: Arc::downgrade(&self.runs) });
        let (sender, changes) = watch::channel(0);
        let weak = Arc::downgrade(&registered);
        runs.insert(run, Watched { changes: sender, registered: weak });
        Watch { changes, _registered: registered }
    }

    /// Wakes the watches of a run, if there are any.
    pub fn wake(&self, run: RunId) {
        if let Some(watched) = lock(&self.runs).get(&run) {
            watched.changes.send_modify(|count| *count += 1);
        }
    }

    /// Wakes all watches, after a time in which changes may have been missed.
    pub fn wake_all(&self) {
        #[expect(clippy::iter_over_hash_type, reason = "all are woken; the order does not matter")]
        for watched in lock(&self.runs).values() {
            watched.changes.send_modify(|count| *count += 1);
        }
    }

    /// Whether no run is watched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        lock(&self.runs).is_empty()
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let Some(runs) = self.runs.upgrade() else { return };
        let mut runs = lock(&runs);
        // The run may be watched again in the meantime; then the entry is not ours.
        if runs.get(&self.run).is_some_and(|watched| watched.registered.strong_count() == 0) {
            runs.remove(&self.run);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_run_is_watched_while_someone_waits_for_it() {
        let watches = Watches::default();
        let run = |number| RunId::new(uuid::Uuid::from_u128(number));
        let mut one = watches.watch(run(1));
        let mut clone = one.clone();
        let mut two = watches.watch(run(2));
        watches.wake(run(1));
        assert!(one.changed().now_or_never().is_some());
        assert!(one.changed().now_or_never().is_none(), "seen");
        assert!(clone.changed().now_or_never().is_some(), "each clone is woken");
        assert!(two.changed().now_or_never().is_none(), "another run");
        watches.wake_all();
        two.mark_seen();
        assert!(two.changed().now_or_never().is_none());
        drop((one, two));
        assert_eq!(lock(&watches.runs).len(), 1);
        drop(clone);
        assert!(watches.is_empty());
        let again = watches.watch(run(1));
        assert!(!watches.is_empty());
        drop(again);
        assert!(watches.is_empty());
    }
}
