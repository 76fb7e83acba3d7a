//! The records of one append, as readers receive them.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use wellspring_core::{Record, Seq};

/// Maximum number of cached encodings per frame: enough for all dialects.
pub const ENCODED_SLOTS: usize = 16;

/// The records of one append. Immutable, shared by all readers.
#[derive(Debug)]
pub struct Frame {
    /// The number of its first record.
    pub first: Seq,
    records: Vec<Record>,
    /// The first cached encoding; most frames have at most one.
    encoded: OnceLock<(usize, Bytes)>,
    encoded_otherwise: OnceLock<Box<[OnceLock<Bytes>; ENCODED_SLOTS]>>,
}

impl Frame {
    pub(crate) fn new(first: Seq, records: Vec<Record>) -> Self {
        Self { first, records, encoded: OnceLock::new(), encoded_otherwise: OnceLock::new() }
    }

    /// The records, in order; at least one.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The number of its last record.
    #[must_use]
    pub fn last(&self) -> Seq {
        Seq((self.first.0 + self.records.len() as u64).saturating_sub(1))
    }

    /// The frame's encoding in the given slot, made once for all readers. A slot at or beyond
    /// [`ENCODED_SLOTS`] works too, but is not cached.
    pub fn encoded(&self, slot: usize, make: impl FnOnce() -> Bytes) -> Bytes {
        if slot >= ENCODED_SLOTS {
            return make();
        }
        // Called in at most one of the two branches below.
        let mut make = Some(make);
        let mut made = || make.take().map(|make| make()).unwrap_or_default();
        let (first, bytes) = self.encoded.get_or_init(|| (slot, made()));
        if *first == slot {
            return bytes.clone();
        }
        match self.encoded_otherwise.get_or_init(Box::default).get(slot) {
            Some(slot) => slot.get_or_init(made).clone(),
            None => made(),
        }
    }

    /// The cached encoding in a slot, if there is one.
    #[must_use]
    pub fn encoded_already(&self, slot: usize) -> Option<Bytes> {
        match self.encoded.get() {
            Some((first, bytes)) if *first == slot => Some(bytes.clone()),
            _ => self.encoded_otherwise.get()?.get(slot)?.get().cloned(),
        }
    }
}

/// The unread part of a frame: all of it, or the records after the position where a reader
/// resumed.
#[derive(Clone, Debug)]
pub struct FrameSlice {
    frame: Arc<Frame>,
    skip: usize,
}

impl FrameSlice {
    /// The records after `after` in a frame, if there are any.
    pub(crate) fn after(frame: Arc<Frame>, after: Seq) -> Option<Self> {
        let skip = usize::try_from((after.0 + 1).saturating_sub(frame.first.0)).ok()?;
        (skip < frame.records.len()).then_some(Self { frame, skip })
    }

    /// The whole frame.
    #[must_use]
    pub fn frame(&self) -> &Arc<Frame> {
        &self.frame
    }

    /// The number of records that the reader already has; usually zero.
    #[must_use]
    pub fn skip(&self) -> usize {
        self.skip
    }

    /// The unread records; at least one.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        self.frame.records.get(self.skip..).unwrap_or_default()
    }

    /// The number of the last record.
    #[must_use]
    pub fn last(&self) -> Seq {
        self.frame.last()
    }
}

impl Deref for FrameSlice {
    type Target = [Record];

    fn deref(&self) -> &[Record] {
        self.records()
    }
}
