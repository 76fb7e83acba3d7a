//! Counts connections, and closes an idle one to make room for a new one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use super::activity::Activity;
use crate::lock;

/// The places for connections.
#[derive(Clone)]
pub(super) struct Places(Arc<Mutex<Taken>>);

struct Taken {
    max: usize,
    open: usize,
    /// Connections without a request, longest idle first.
    idle: BTreeMap<u64, Weak<Activity>>,
    next: u64,
}

impl Places {
    pub(super) fn new(max: usize) -> Self {
        Self(Arc::new(Mutex::new(Taken { max, open: 0, idle: BTreeMap::new(), next: 0 })))
    }

    /// A place for a new connection; an idle one is closed if necessary. `None` if every connection
    /// has a request.
    pub(super) fn take(&self) -> Option<Arc<Activity>> {
        let is_full = {
            let taken = lock(&self.0);
            taken.open >= taken.max
        };
        if is_full && !self.make_room() {
            return None;
        }
        lock(&self.0).open += 1;
        Some(Activity::new(self.clone()))
    }

    /// Closes the connection that has been idle longest, if there is one.
    pub(super) fn make_room(&self) -> bool {
        let oldest = {
            let mut taken = lock(&self.0);
            std::iter::from_fn(|| taken.idle.pop_first()).find_map(|(_, it)| it.upgrade())
        };
        oldest.is_some_and(|activity| {
            activity.evict();
            true
        })
    }

    /// Puts a connection last among those without a request; gives its number.
    pub(super) fn idle(&self, activity: Weak<Activity>) -> u64 {
        let mut taken = lock(&self.0);
        let number = taken.next;
        taken.next += 1;
        taken.idle.insert(number, activity);
        number
    }

    /// It has a request, or is gone.
    pub(super) fn not_idle(&self, number: u64) {
        lock(&self.0).idle.remove(&number);
    }
}

/// A connection's place; dropped with its socket.
pub(super) struct Place(pub(super) Places);

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.0.0).open -= 1;
    }
}
