//! Deletes runs and what belongs to them.

use wellspring_core::RunId;

use super::api::{How, PublishError};
use super::projection::Projection;
use super::shared::Shared;
use super::wire::{self, DeletedLine, Entry, NameLine};
use crate::lock;
use crate::store::StoreError;

impl Shared {
    pub(super) async fn delete(&self, run: RunId) -> Result<bool, StoreError> {
        self.current().await?;
        let line = {
            let projection = lock(&self.projection);
            let Some(kept) = projection.index.runs.get(&run) else { return Ok(false) };
            let names = kept.names.iter().cloned().map(NameLine::from).collect();
            DeletedLine { thread: kept.info.thread, names, done: false }
        };
        let message = self.outgoing(wire::run_subject(run), Entry::Deleted(line.clone()), &[])?;
        let judge = |projection: &Projection| match projection.index.runs.get(&run) {
            None => Err(Ok(false)),
            // A damaged run cannot continue, so it can be deleted before it has ended.
            Some(kept) if !kept.info.state.is_final() && kept.frames.damage.is_none() => {
                Err(Err(StoreError::Unfinished(run)))
            }
            Some(kept) => Ok(kept.frames.sequence),
        };
        match self.publish_fenced(&message, How::default(), judge).await? {
            Ok(sequence) => self.clean(run, sequence, &line).await.map(|()| true),
            Err(decided) => decided,
        }
    }

    /// Removes everything that belongs to a run whose deletion has the sequence `at`.
    pub(super) async fn clean(
        &self,
        run: RunId,
        at: u64,
        line: &DeletedLine,
    ) -> Result<(), StoreError> {
        self.api.purge(&wire::inbox_subject(run), at).await?;
        self.api.purge(&wire::fold_subject(run), at).await?;
        for name in &line.names {
            self.api.purge(&wire::name_subject(name), at).await?;
        }
        if !lock(&self.projection).index.has_thread(line.thread) {
            self.api.purge(&wire::thread_subject(line.thread), at).await?;
            self.api.purge(&wire::title_subject(line.thread), at).await?;
        }
        // The final deletion message replaces the frames, and expires after every node has received
        // it.
        let done = Entry::Deleted(DeletedLine { done: true, ..line.clone() });
        let message = self.outgoing(wire::run_subject(run), done, &[])?;
        let how = How { expected: Some(at), replaces: true, expires: true };
        match self.api.publish(&message, how).await {
            Ok(sequence) => self.applied_to(sequence).await,
            // Another node was first, or the id is in use again.
            Err(PublishError::Conflict) => Ok(()),
            Err(PublishError::Store(error)) => Err(error),
        }
    }

    /// Removes what remains of runs whose deletion was interrupted by the end of a process.
    pub(super) async fn sweep(&self) {
        let leftovers = std::mem::take(&mut lock(&self.projection).leftovers);
        for (run, at, line) in leftovers {
            if let Err(error) = self.clean(run, at, &line).await {
                tracing::warn!(%error, %run, "could not remove all that belonged to a deleted run");
            }
        }
    }
}
