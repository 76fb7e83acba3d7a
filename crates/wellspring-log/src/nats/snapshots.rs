//! Stores and reads snapshots of runs, in parts if they are large.

use bytes::Bytes;
use wellspring_core::{RunId, Seq};

use super::api::{How, PublishError};
use super::projection::Projection;
use super::shared::Shared;
use super::wire::{self, Entry};
use crate::lock;
use crate::store::{SnapshotKind, StoreError};

/// Maximum size of a snapshot in bytes; a larger one is not stored.
pub(super) const FOLD_BYTES_MAX: usize = 16 * 1024 * 1024;

impl Shared {
    /// Stores a snapshot in one step, however many parts it has.
    pub(super) async fn put_fold(
        &self,
        run: RunId,
        kind: SnapshotKind,
        at: Seq,
        body: Bytes,
    ) -> Result<(), StoreError> {
        if body.len() > FOLD_BYTES_MAX {
            return Err(StoreError::Full {
                what: "a snapshot",
                max: FOLD_BYTES_MAX,
                remedy: "do without: more is folded then",
            });
        }
        let created = |projection: &Projection| Ok(projection.index.kept(run)?.frames.created);
        let known = created(&lock(&self.projection));
        let of = match known {
            Ok(of) => of,
            Err(StoreError::NoRun(_)) => {
                self.current().await?;
                created(&lock(&self.projection))?
            }
            Err(error) => return Err(error),
        };
        let size = self.frame_bytes_max();
        let parts = body.len().div_ceil(size).max(1);
        let part = |part: usize| {
            let body = &body[part * size..body.len().min((part + 1) * size)];
            let entry = Entry::Fold { of, kind: kind.into(), at, part, parts };
            self.outgoing(wire::fold_subject(run), entry, &[body])
        };
        if parts == 1 {
            return self.publish(&part(0)?, How::default()).await.map(drop);
        }
        let batch = (0..parts).map(|number| Ok((part(number)?, None)));
        let batch = batch.collect::<Result<Vec<_>, StoreError>>()?;
        let _open = self.batches.acquire().await;
        match self.api.publish_batch(&batch).await {
            Ok(sequence) => self.applied_to(sequence).await,
            Err(PublishError::Store(error)) => Err(error),
            Err(PublishError::Conflict) => {
                Err(StoreError::failed("keeping a snapshot", "a conflict without a fence"))
            }
        }
    }

    /// The bytes of a snapshot; `None` if it was removed or is damaged. Without it, more records
    /// are folded.
    pub(super) async fn fold(&self, sequences: &[u64]) -> Result<Option<Bytes>, StoreError> {
        let mut bytes = Vec::new();
        for sequence in sequences {
            let Some(message) = self.api.at(*sequence).await? else { return Ok(None) };
            let Ok(incoming) = message.decode() else { return Ok(None) };
            let from = match incoming.line.entry {
                Entry::Frame(line) => line.bytes,
                Entry::Fold { .. } => 0,
                Entry::Released {}
                | Entry::Deleted(_)
                | Entry::Inbox { .. }
                | Entry::Fence { .. }
                | Entry::Title { .. }
                | Entry::Name { .. }
                | Entry::Document { .. }
                | Entry::Audit(_)
                | Entry::Beat { .. } => return Ok(None),
            };
            bytes.extend_from_slice(incoming.body.get(from..).unwrap_or_default());
        }
        Ok(Some(bytes.into()))
    }
}
