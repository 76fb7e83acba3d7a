//! Limits on the number of active runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use wellspring_core::RunId;

use super::StartError;
use crate::principal::Principal;
use crate::runtime::Runtime;

/// How many runs a [`Runtime`] works on concurrently.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AdmissionLimits {
    /// Of all principals together.
    pub runs: usize,
    /// Of each principal but [`Principal::local`].
    pub runs_per_principal: usize,
}

/// The limits, and the runs that are about to start: they count before anyone works on them.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    limits: OnceLock<AdmissionLimits>,
    starting: Arc<Mutex<BTreeMap<RunId, Arc<str>>>>,
}

/// A run that is about to start. It counts until this is dropped.
pub(super) struct Admitted {
    starting: Arc<Mutex<BTreeMap<RunId, Arc<str>>>>,
    run: RunId,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        lock(&self.starting).remove(&self.run);
    }
}

impl Runtime {
    /// Limits the number of active runs. Starting more is refused; a run that has started can
    /// always continue. `false` if limits were set before.
    pub fn limit_runs(&self, limits: AdmissionLimits) -> bool {
        self.admission().limits.set(limits).is_ok()
    }

    /// Counts a run as starting, if there is room for it.
    pub(super) fn admit(&self, who: &Principal, run: RunId) -> Result<Admitted, StartError> {
        let admission = self.admission();
        let mut starting = lock(&admission.starting);
        if let Some(limits) = admission.limits.get() {
            let not_yet = starting.keys().filter(|run| !self.is_live(**run)).count();
            if self.live_runs() + not_yet >= limits.runs {
                return Err(StartError::TooManyRuns(limits.runs));
            }
            if !who.is_local() {
                let not_yet =
                    starting.iter().filter(|(run, id)| **id == who.id && !self.is_live(**run));
                if self.live_runs_of(&who.id) + not_yet.count() >= limits.runs_per_principal {
                    return Err(StartError::TooManyOfYours(limits.runs_per_principal));
                }
            }
        }
        starting.insert(run, Arc::clone(&who.id));
        Ok(Admitted { starting: Arc::clone(&admission.starting), run })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
