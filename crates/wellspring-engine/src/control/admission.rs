//! Limits on the number of active runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use wellspring_core::RunId;
use wellspring_log::{RunFilter, RunState};

use super::StartError;
use crate::principal::Principal;
use crate::runtime::Runtime;

/// How many runs a [`Runtime`] works on concurrently.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AdmissionLimits {
    /// Of all principals together.
    pub runs: usize,
    /// Of each principal except [`Principal::local`].
    pub runs_per_principal: usize,
    /// Maximum number of active runs of each tenant, on all nodes together. Each start asks the
    /// store, so runs that start at the same moment do not count each other and can exceed the
    /// maximum.
    pub runs_per_tenant: Option<usize>,
}

/// The limits, and the runs that are about to start, which count already.
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

    /// Fails if the tenant has its maximum number of active runs.
    pub(super) async fn tenant_has_room(&self, who: &Principal) -> Result<(), StartError> {
        let Some(max) = self.admission().limits.get().and_then(|limits| limits.runs_per_tenant)
        else {
            return Ok(());
        };
        let mut filter = RunFilter {
            tenant: Some((*who.tenant).into()),
            states: vec![RunState::Running],
            limit: max,
            ..RunFilter::default()
        };
        let mut found = 0;
        // There may be more runs only if the page is full.
        while found < max {
            let page = self.log().store().list(filter.clone()).await?;
            found += page.len();
            match page.last() {
                Some(last) if page.len() == filter.limit_or_max() => {
                    filter.after_run = Some(last.run);
                }
                Some(_) | None => break,
            }
        }
        if found < max { Ok(()) } else { Err(StartError::TooManyOfTenant(max)) }
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
