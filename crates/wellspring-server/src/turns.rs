//! Requests about the same thing, one after the other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::OwnedMutexGuard;
use wellspring_log::ExternalId;

use crate::lock;

/// Lets requests that name the same outside id go one after the other, so that two of them do
/// not start two runs. Requests that name different ids never wait for each other. There is an
/// entry per id only while a request holds it or waits for it, so the limits of requests and
/// connections bound it.
#[derive(Clone, Default)]
pub(crate) struct Turns(Arc<Mutex<HashMap<ExternalId, Arc<tokio::sync::Mutex<()>>>>>);

impl Turns {
    /// Waits until no other request has this id; it is free again when the turn is dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up its place in the queue.
    pub(crate) async fn take(&self, id: &ExternalId) -> Turn {
        let mutex = Arc::clone(lock(&self.0).entry(id.clone()).or_default());
        let mut turn = Turn { turns: self.clone(), id: id.clone(), guard: None };
        turn.guard = Some(mutex.lock_owned().await);
        turn
    }
}

/// An id that one request has to itself.
pub(crate) struct Turn {
    turns: Turns,
    id: ExternalId,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        drop(self.guard.take());
        let mut all = lock(&self.turns.0);
        // Clones are made under this lock only, so nobody can come in between.
        if all.get(&self.id).is_some_and(|mutex| Arc::strong_count(mutex) == 1) {
            all.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::task::unconstrained;

    use super::*;

    fn id(tenant: &str, id: usize) -> ExternalId {
        ExternalId { tenant: tenant.into(), surface: "x".into(), id: id.to_string().into() }
    }

    /// One tenant holds a thousand ids; none of another tenant's requests waits for them.
    #[tokio::test]
    async fn different_ids_never_wait_for_each_other() {
        let turns = Turns::default();
        let mut held = Vec::new();
        for number in 0..1000 {
            held.push(unconstrained(turns.take(&id("one", number))).now_or_never().unwrap());
        }
        for number in 0..1000 {
            drop(unconstrained(turns.take(&id("two", number))).now_or_never().unwrap());
        }
        let same = id("one", 7);
        assert!(
            unconstrained(turns.take(&same)).now_or_never().is_none(),
            "it is taken, and this one gives up"
        );
        let waits = unconstrained(turns.take(&same));
        tokio::pin!(waits);
        assert!(waits.as_mut().now_or_never().is_none());
        held.remove(7);
        drop(waits.await);
        held.clear();
        assert!(lock(&turns.0).is_empty(), "nothing is kept of what is over");
    }
}
