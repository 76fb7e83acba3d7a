//! Threads: listing, finding, naming, archiving and deleting them.

use wellspring_core::ThreadId;
use wellspring_log::{RunFilter, StoreError, ThreadChange, ThreadFilter, ThreadInfo};

use super::audit::Entry;
use super::key::Key;
use super::{Control, ControlError};
use crate::principal::Permission;

impl Control {
    /// Threads of the principal's tenant, the one with the newest run first; the filter's own
    /// tenant does not count. Requires [`Permission::Read`].
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
