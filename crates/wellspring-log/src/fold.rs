//! Folding a stored run: from the nearest snapshot, then record by record.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use wellspring_core::{Outline, Record, RunId, Seq, Transcript};

use crate::codec;
use crate::error::ReadError;
use crate::frame::Frame;
use crate::store::{SnapshotKind, Store, StoreError, StoredFrame};

/// Changes whenever a fold does: a snapshot of another version is as good as none.
const SNAPSHOT_VERSION: u8 = 1;

/// Something that records fold into.
pub(crate) trait Fold: Default + DeserializeOwned + Serialize {
    const KIND: SnapshotKind;
    fn head(&self) -> Seq;
    fn apply(&mut self, record: &Record);
}

impl Fold for Outline {
    const KIND: SnapshotKind = SnapshotKind::Outline;

    fn head(&self) -> Seq {
        self.head
    }

    fn apply(&mut self, record: &Record) {
        self.apply(record);
    }
}

impl Fold for Transcript {
    const KIND: SnapshotKind = SnapshotKind::Transcript;

    fn head(&self) -> Seq {
        self.outline.head
    }

    fn apply(&mut self, record: &Record) {
        self.apply(record);
    }
}

/// Folds a run up to a record, or up to its head.
pub(crate) async fn fold<F: Fold>(
    store: &dyn Store,
    run: RunId,
    up_to: Option<Seq>,
    page_bytes: usize,
) -> Result<F, ReadError> {
    let up_to = up_to.unwrap_or(Seq(u64::MAX));
    let kept = store.snapshot(run, F::KIND, up_to).await?;
    let mut folded = kept.and_then(|(at, body)| read_snapshot::<F>(at, &body)).unwrap_or_default();
    while folded.head() < up_to {
        let page = store.read(run, folded.head(), page_bytes).await?;
        if page.frames.is_empty() {
            break;
        }
        for stored in &page.frames {
            let frame = read_frame(run, stored)?;
            let fresh = |record: &&Record| record.seq > folded.head() && record.seq <= up_to;
            let records: Vec<_> = frame.records().iter().filter(fresh).collect();
            for record in records {
                folded.apply(record);
            }
        }
    }
    Ok(folded)
}

/// Decodes a frame and checks that it is what the store says it is.
pub(crate) fn read_frame(run: RunId, stored: &StoredFrame) -> Result<Frame, StoreError> {
    let damaged = |what| StoreError::Damaged { run, at: stored.first, what };
    let records =
        codec::decode(stored.first, &stored.body).map_err(|error| damaged(error.to_string()))?;
    if records.is_empty() || records.len() != stored.count as usize {
        return Err(damaged(format!("it has {} records, not {}", records.len(), stored.count)));
    }
    Ok(Frame::new(stored.first, records))
}

/// A snapshot's stored form, or `None` if it has none.
pub(crate) fn write_snapshot(folded: &impl Serialize) -> Option<Vec<u8>> {
    let mut body = codec::to_json(folded).ok()?;
    body.insert(0, SNAPSHOT_VERSION);
    Some(body)
}

fn read_snapshot<F: Fold>(at: Seq, body: &Bytes) -> Option<F> {
    let (version, json) = body.split_first()?;
    let folded: F = (*version == SNAPSHOT_VERSION).then(|| codec::from_json(json).ok())??;
    (folded.head() == at).then_some(folded)
}
