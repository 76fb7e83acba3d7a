//! Threads: listing, finding, naming, archiving and deleting them, and reading their latest runs.

use std::sync::Arc;

use wellspring_core::{RunStarted, ThreadId};
use wellspring_log::{RunFilter, RunInfo, StoreError, ThreadChange, ThreadFilter, ThreadInfo};

use super::audit::Entry;
use super::key::Key;
use super::{Control, ControlError};
use crate::principal::Permission;

/// Maximum number of runs in [`RecentRuns`]: clients repeat their last messages, not their first.
const RECENT_RUNS_MAX: usize = 16;

/// A thread's latest runs and their requests, against which a surface reads a client's next
/// request.
#[derive(Debug)]
pub struct RecentRuns(Vec<(RunInfo, Option<Arc<RunStarted>>)>);

impl RecentRuns {
    /// The thread's newest run; `None` if the thread has no runs.
    #[must_use]
    pub fn latest(&self) -> Option<&RunInfo> {
        self.0.first().map(|(info, _)| info)
    }

    /// Whether one of the runs was started by the message that the client calls `id`.
    #[must_use]
    pub fn know_message(&self, id: &str) -> bool {
        let requests = self.0.iter().filter_map(|(_, started)| started.as_ref());
        let mut names = requests.filter_map(|started| started.request.wire.as_ref());
        names.any(|names| names.input.as_deref() == Some(id))
    }
}

impl Control {
    /// A thread's latest runs. Requires [`Permission::Run`]; do not show them to a caller that
    /// may not read.
    ///
    /// # Errors
    ///
    /// If the principal may not start runs, or the log cannot be read.
    pub async fn recent(&self, thread: ThreadId) -> Result<RecentRuns, ControlError> {
        let mut recent = Vec::new();
        for info in self.newest(thread, RECENT_RUNS_MAX).await? {
            let started = self.first_record(info.run).await?;
            recent.push((info, started));
        }
        Ok(RecentRuns(recent))
    }

    /// A thread's newest run; `None` if the thread has no runs. Requires [`Permission::Run`]; do
    /// not show it to a caller that may not read.
    ///
    /// # Errors
    ///
    /// If the principal may not start runs, or the store fails.
    pub async fn latest_run(&self, thread: ThreadId) -> Result<Option<RunInfo>, ControlError> {
        Ok(self.newest(thread, 1).await?.pop())
    }

    async fn newest(&self, thread: ThreadId, limit: usize) -> Result<Vec<RunInfo>, ControlError> {
        self.permit(Permission::Run)?;
        let (tenant, thread) = (Some((*self.who.tenant).into()), Some(thread));
        let filter = RunFilter { tenant, thread, limit, ..RunFilter::default() };
        Ok(self.log().store().list(filter).await?)
    }

    /// Threads of the principal's tenant, the one with the newest run first; the filter's own
    /// tenant is ignored. Requires [`Permission::Read`].
    ///
    /// # Errors
    ///
    /// If the principal may not read, `after` is not a run of the tenant, or the store fails.
    pub async fn threads(&self, filter: ThreadFilter) -> Result<Vec<ThreadInfo>, ControlError> {
        self.permit(Permission::Read)?;
        if let Some(run) = filter.after {
            self.find(run).await?;
        }
        let tenant = (*self.who.tenant).into();
        Ok(self.log().store().threads(ThreadFilter { tenant, ..filter }).await?)
    }

    /// Sets a thread's title, or archives it or brings it back. Requires [`Permission::Run`].
    ///
    /// # Errors
    ///
    /// If there is no such thread, the title is not allowed, the principal may not change it, or
    /// the store fails.
    pub async fn change_thread(
        &self,
        thread: ThreadId,
        change: ThreadChange,
    ) -> Result<ThreadInfo, ControlError> {
        self.permit(Permission::Run)?;
        let (store, tenant) = (self.log().store(), (*self.who.tenant).into());
        match store.change_thread(tenant, thread, change).await {
            Ok(true) => self.find_thread(thread).await,
            Ok(false) => Err(ControlError::NoThread(thread)),
            Err(StoreError::BadTitle(what)) => Err(ControlError::BadTitle(what)),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes a thread with all its runs, which must be over. Requires [`Permission::Admin`].
    ///
    /// # Errors
    ///
    /// If there is no such thread, one of its runs is not over, the principal may not delete it,
    /// or the store fails. What was deleted until then stays deleted.
    pub async fn delete_thread(&self, thread: ThreadId) -> Result<(), ControlError> {
        self.permit(Permission::Admin)?;
        let info = self.find_thread(thread).await?;
        // Only the newest run can be unfinished.
        if !info.state.is_final() {
            return Err(ControlError::Unfinished(info.latest));
        }
        let store = self.log().store();
        loop {
            let tenant = Some((*self.who.tenant).into());
            let filter = RunFilter { tenant, thread: Some(thread), ..RunFilter::default() };
            let runs = store.list(filter).await?;
            if runs.is_empty() {
                return Ok(());
            }
            for run in runs {
                let entry = self.audited(&run, &Key::Delete.encode(), Entry::delete());
                store.put_audit(entry).await?;
                store.delete(run.run).await?;
            }
        }
    }

    async fn find_thread(&self, thread: ThreadId) -> Result<ThreadInfo, ControlError> {
        let tenant = (*self.who.tenant).into();
        let filter = ThreadFilter { tenant, thread: Some(thread), ..ThreadFilter::default() };
        let found = self.log().store().threads(filter).await?.pop();
        found.ok_or(ControlError::NoThread(thread))
    }
}
