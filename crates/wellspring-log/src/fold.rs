//! Folds a stored run: from the latest snapshot, then record by record.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use wellspring_core::{Outline, Record, RunId, Seq, Transcript};

use crate::codec;
use crate::error::ReadError;
use crate::frame::Frame;
use crate::store::{Page, SnapshotKind, Store, StoreError, StoredFrame};

/// Changes whenever a fold changes. Snapshots of other versions are ignored.
const SNAPSHOT_VERSION: u8 = 2;

/// The bytes before a snapshot: its version and its checksum.
const SNAPSHOT_HEAD_BYTES: usize = 1 + 4;

/// A fold of records.
pub(crate) trait Fold: Default + DeserializeOwned + Serialize {
    const KIND: SnapshotKind;
    fn head(&self) -> Seq;
    fn is_finished(&self) -> bool;
    fn apply(&mut self, record: &Record);
}

impl Fold for Outline {
    const KIND: SnapshotKind = SnapshotKind::Outline;

    fn head(&self) -> Seq {
        self.head
    }

    fn is_finished(&self) -> bool {
        self.finished
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

    fn is_finished(&self) -> bool {
        self.outline.finished
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
    let mut folded =
        kept.and_then(|(at, body)| read_snapshot::<F>(run, at, &body)).unwrap_or_default();
    while folded.head() < up_to {
        let page = store.read(run, folded.head(), page_bytes).await?;
        for frame in read_page(run, folded.head(), &page)? {
            let fresh = |record: &&Record| record.seq > folded.head() && record.seq <= up_to;
            let records: Vec<_> = frame.records().iter().filter(fresh).collect();
            for record in records {
                folded.apply(record);
            }
        }
        if folded.head() >= page.head {
            if folded.head() == page.head {
                check_end(run, page.head, page.closed, folded.is_finished())?;
            }
            break;
        }
    }
    Ok(folded)
}

/// Decodes a page that was read after a record, and checks that no record is missing.
pub(crate) fn read_page(run: RunId, after: Seq, page: &Page) -> Result<Vec<Frame>, StoreError> {
    let mut next = after.next();
    let mut frames = Vec::with_capacity(page.frames.len());
    for stored in &page.frames {
        let follows = if frames.is_empty() { stored.first <= next } else { stored.first == next };
        if !follows || stored.last() < next {
            let what = format!("found record {} instead", stored.first);
            return Err(StoreError::Damaged { run, at: next, what });
        }
        let frame = read_frame(run, stored)?;
        next = frame.last().next();
        frames.push(frame);
    }
    if frames.is_empty() && after < page.head {
        let what = "the record was committed but is missing".into();
        return Err(StoreError::Damaged { run, at: next, what });
    }
    Ok(frames)
}

/// Checks that a run ends with `run finished` if, and only if, it is stored as finished.
pub(crate) fn check_end(
    run: RunId,
    at: Seq,
    closed: bool,
    finished: bool,
) -> Result<(), StoreError> {
    let what = match (closed, finished) {
        (true, true) | (false, false) => return Ok(()),
        (true, false) => "it is stored as finished, but has no end".into(),
        (false, true) => "it is stored as unfinished, but has an end".into(),
    };
    Err(StoreError::Damaged { run, at, what })
}

/// Decodes a frame and checks it against what the store says about it.
fn read_frame(run: RunId, stored: &StoredFrame) -> Result<Frame, StoreError> {
    let damaged = |what| StoreError::Damaged { run, at: stored.first, what };
    let records =
        codec::decode(stored.first, &stored.body).map_err(|error| damaged(error.to_string()))?;
    if records.is_empty() || records.len() != stored.count as usize {
        return Err(damaged(format!("it has {} records, not {}", records.len(), stored.count)));
    }
    Ok(Frame::new(stored.first, records))
}

/// The stored form of a snapshot: its version, a checksum of its position and its content, and
/// the fold. `None` if it cannot be serialised.
pub(crate) fn write_snapshot<F: Serialize>(
    run: RunId,
    kind: SnapshotKind,
    at: Seq,
    folded: &F,
) -> Option<Vec<u8>> {
    let json = codec::to_json(folded).ok()?;
    let mut body = Vec::with_capacity(SNAPSHOT_HEAD_BYTES + json.len());
    body.push(SNAPSHOT_VERSION);
    body.extend_from_slice(&snapshot_sum(run, kind, at, &json).to_be_bytes());
    body.extend_from_slice(&json);
    Some(body)
}

/// Reads a snapshot; `None` if its checksum does not match. It is then ignored, and more
/// records are folded.
pub(crate) fn read_snapshot<F: Fold>(run: RunId, at: Seq, body: &Bytes) -> Option<F> {
    let (version, rest) = body.split_first()?;
    let (sum, json) = rest.split_first_chunk()?;
    let whole =
        *version == SNAPSHOT_VERSION && snapshot_sum(run, F::KIND, at, json).to_be_bytes() == *sum;
    let folded: F = whole.then(|| codec::from_json(json).ok())??;
    (folded.head() == at).then_some(folded)
}

/// Whether a snapshot is intact, or has another version and is therefore not used.
#[cfg(feature = "sqlite")]
pub(crate) fn is_whole_snapshot(run: RunId, kind: SnapshotKind, at: Seq, body: &[u8]) -> bool {
    /// The last version without checksums.
    const WITHOUT: u8 = 1;
    let Some((version, rest)) = body.split_first() else { return false };
    let Some((sum, json)) = rest.split_first_chunk() else { return false };
    *version == WITHOUT
        || (*version == SNAPSHOT_VERSION && snapshot_sum(run, kind, at, json).to_be_bytes() == *sum)
}

fn snapshot_sum(run: RunId, kind: SnapshotKind, at: Seq, json: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(run.uuid().as_bytes());
    crc.update(&[match kind {
        SnapshotKind::Outline => 0,
        SnapshotKind::Transcript => 1,
    }]);
    crc.update(&at.0.to_be_bytes());
    crc.update(json);
    crc.finalize()
}
