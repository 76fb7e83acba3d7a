//! The records of one append, as readers get them.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use wellspring_core::{Record, Seq};

/// How many dialects may keep their encoding with a frame: as many as there are on earth
/// that anyone speaks at once, and a few more.
pub const ENCODED_SLOTS: usize = 16;

/// The records of one append. Immutable, shared by all readers.
#[derive(Debug)]
pub struct Frame {
    /// Its first record.
    pub first: Seq,
    records: Vec<Record>,
    /// Most frames are read in one dialect or none.
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

    /// Its last record.
    #[must_use]
    pub fn last(&self) -> Seq {
        Seq((self.first.0 + self.records.len() as u64).saturating_sub(1))
    }

    /// What a dialect makes of the whole frame, made once however many read it. A slot
    /// beyond [`ENCODED_SLOTS`] works too but keeps nothing.
    pub fn encoded(&self, slot: usize, make: impl FnOnce() -> Bytes) -> Bytes {
        if slot >= ENCODED_SLOTS {
            return make();
        }
        // At most one of the two places below makes it.
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

    /// What a dialect has made of it already, if anyone has asked.
    #[must_use]
    pub fn encoded_already(&self, slot: usize) -> Option<Bytes> {
        match self.encoded.get() {
            Some((first, bytes)) if *first == slot => Some(bytes.clone()),
            _ => self.encoded_otherwise.get()?.get(slot)?.get().cloned(),
        }
    }
}

/// What a reader has not seen yet of a frame: all of it, or what follows where it resumed.
#[derive(Clone, Debug)]
pub struct FrameSlice {
    frame: Arc<Frame>,
    skip: usize,
}

impl FrameSlice {
    /// What follows `after` in a frame, if anything.
    pub(crate) fn after(frame: Arc<Frame>, after: Seq) -> Option<Self> {
        let skip = usize::try_from((after.0 + 1).saturating_sub(frame.first.0)).ok()?;
        (skip < frame.records.len()).then_some(Self { frame, skip })
    }

    /// The whole frame.
    #[must_use]
    pub fn frame(&self) -> &Arc<Frame> {
        &self.frame
    }

    /// How many records of the frame the reader has had before; zero nearly always.
    #[must_use]
    pub fn skip(&self) -> usize {
        self.skip
    }

    /// The records not yet seen; at least one.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        self.frame.records.get(self.skip..).unwrap_or_default()
    }

    /// The last of them.
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
