//! One task per log renews the leases of all runs owned here.
//!
//! A lease only says when others should try a take-over. Whether an owner still is one, the
//! compare-and-set of its appends decides; so a lost renewal is no event.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use wellspring_core::RunId;

use crate::hot::Shared;
use crate::lock;

/// A lease is renewed this many times before it ends, so that two renewals may fail.
const RENEWALS_PER_LEASE: u32 = 3;

/// The runs whose leases are renewed, and the task that does it while there are any.
#[derive(Default)]
pub(crate) struct Leases(Mutex<State>);

#[derive(Default)]
struct State {
    runs: BTreeSet<RunId>,
    task: Option<JoinHandle<()>>,
}

impl Leases {
    /// Renews the lease of a run from now on.
    pub(crate) fn keep(&self, shared: &Arc<Shared>, run: RunId, runtime: Option<&Handle>) {
        let mut state = lock(&self.0);
        state.runs.insert(run);
        // A task that ended without saying so went down with its runtime.
        let runs = state.task.as_ref().is_some_and(|task| !task.is_finished());
        if let (false, Some(runtime)) = (runs, runtime) {
            let every = shared.options.lease / RENEWALS_PER_LEASE;
            state.task = Some(runtime.spawn(renew(Arc::downgrade(shared), every)));
        }
    }

    /// Lets the lease of a run end.
    pub(crate) fn release(&self, run: RunId) {
        lock(&self.0).runs.remove(&run);
    }

    /// The runs to renew; when there are none, the task is over.
    fn due(&self) -> Option<Vec<RunId>> {
        let mut state = lock(&self.0);
        if state.runs.is_empty() {
            state.task = None;
            return None;
        }
        Some(state.runs.iter().copied().collect())
    }
}

impl Drop for Leases {
    fn drop(&mut self) {
        let state = self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(task) = state.task.take() {
            task.abort();
        }
    }
}

async fn renew(shared: Weak<Shared>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(shared) = shared.upgrade() else { return };
        let Some(runs) = shared.leases.due() else { return };
        let options = &shared.options;
        let until = options.clock.now().plus(options.lease);
        if let Err(error) = shared.store.renew(options.node.clone(), runs, until).await {
            tracing::warn!(%error, node = %options.node, "could not renew leases");
        }
    }
}
