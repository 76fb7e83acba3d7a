//! A reader's way through a run, and the folds that readers share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use wellspring_core::{Outline, RunId, Seq};
use wellspring_engine::HISTORY_RUNS_MAX;
use wellspring_log::{Cursor, FrameSlice, Log, ReadError};
use wellspring_wire::{Conversation, DialectName, Encoder, Out, WirePosition};

use super::encoding::{encode, some_records};
use super::{Form, Wanted};
use crate::lock;

/// The folds that readers of the same run and dialect share.
#[derive(Default)]
pub(crate) struct Folds {
    shared: Mutex<HashMap<(RunId, DialectName), Weak<Shared>>>,
}

/// One fold, as far as its foremost reader.
struct Shared {
    key: (RunId, DialectName),
    home: Arc<Folds>,
    encoder: Mutex<Encoder>,
}

impl Folds {
    fn of(self: &Arc<Self>, run: RunId, dialect: DialectName) -> Arc<Shared> {
        let key = (run, dialect);
        let mut all = lock(&self.shared);
        if let Some(shared) = all.get(&key).and_then(Weak::upgrade) {
            return shared;
        }
        let encoder = Mutex::new(Encoder::new(dialect));
        let shared = Arc::new(Shared { key, home: Arc::clone(self), encoder });
        all.insert(key, Arc::downgrade(&shared));
        shared
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut all = lock(&self.home.shared);
        // Someone may have come in between; then the entry is theirs.
        if all.get(&self.key).is_some_and(|shared| shared.strong_count() == 0) {
            all.remove(&self.key);
        }
    }
}

/// A reader's way through a run: the cursor, and how frames become bytes.
pub(super) struct Reader {
    pub(super) cursor: Cursor,
    pub(super) wanted: Wanted,
    shared: Arc<Shared>,
    /// While it is behind, or has seen part of a record.
    pub(super) own: Option<Box<Encoder>>,
}

impl Reader {
    /// A reader of a run that is there.
    pub(super) async fn open(
        log: &Log,
        folds: &Arc<Folds>,
        mut wanted: Wanted,
    ) -> Result<Self, ReadError> {
        let (run, after) = (wanted.run, wanted.after);
        let cursor = match wanted.cursor.take() {
            Some(cursor) => cursor,
            None => log.cursor(run, after.whole()).await?,
        };
        let own = match after.k {
            None => None,
            Some(_) => Some(own(log, run, wanted.dialect, after).await?),
        };
        let shared = folds.of(run, wanted.dialect);
        Ok(Self { cursor, wanted, shared, own })
    }

    /// A frame's events, as the wire has them.
    pub(super) async fn encode(
        &mut self,
        log: &Log,
        slice: &FrameSlice,
    ) -> Result<Bytes, ReadError> {
        if let Some(kinds) = &self.wanted.kinds {
            return Ok(some_records(kinds, slice));
        }
        let before = Seq(slice.first().map_or(0, |record| record.seq.0 - 1));
        let mut recalled = None;
        if self.may_share(slice, before) {
            loop {
                match self.encode_shared(slice, before, &mut recalled) {
                    Shares::Made(bytes) => return Ok(bytes),
                    Shares::Needs => {
                        recalled = Some(Box::pin(recall(log, self.wanted.run, before)).await?);
                    }
                    Shares::Not => break,
                }
            }
        }
        let mut encoder = match self.own.take() {
            Some(own) if own.outline().head == before => own,
            _ => {
                let after = WirePosition::after(before);
                // Boxed, as all that a reader seldom does: there may be many that wait.
                Box::pin(own(log, self.wanted.run, self.wanted.dialect, after)).await?
            }
        };
        if encoder.needs(slice) {
            let conversation = match recalled {
                Some(conversation) => conversation,
                None => Box::pin(recall(log, self.wanted.run, before)).await?,
            };
            encoder.recall(conversation);
        }
        if self.may_share(slice, before) {
            let mut shared = lock(&self.shared.encoder);
            if encoder.outline().head > shared.outline().head {
                // This reader is the foremost: its fold serves those who come after it.
                *shared = *encoder;
                return Ok(slice
                    .frame()
                    .encoded(slot(self.wanted.dialect), || encode(&mut shared, slice, Form::Sse)));
            }
        }
        let bytes = encode(&mut encoder, slice, self.wanted.form);
        self.own = Some(encoder);
        Ok(bytes)
    }

    /// Whether others see the same bytes of this frame.
    fn may_share(&self, slice: &FrameSlice, before: Seq) -> bool {
        let partial = self.wanted.after.k.is_some() && self.wanted.after.whole() >= before;
        slice.skip() == 0
            && !partial
            && self.wanted.form == Form::Sse
            && self.wanted.called.is_none()
    }

    /// What the frame looks like, if somebody has made that, or the shared fold can.
    fn encode_shared(
        &mut self,
        slice: &FrameSlice,
        before: Seq,
        recalled: &mut Option<Conversation>,
    ) -> Shares {
        let slot = slot(self.wanted.dialect);
        let mut made = slice.frame().encoded_already(slot);
        if made.is_none() {
            let mut shared = lock(&self.shared.encoder);
            // Somebody may have made it just before the lock.
            made = slice.frame().encoded_already(slot);
            if made.is_none() && shared.outline().head == before {
                if shared.needs(slice) {
                    match recalled.take() {
                        Some(conversation) => shared.recall(conversation),
                        None => return Shares::Needs,
                    }
                }
                let make = || encode(&mut shared, slice, Form::Sse);
                made = Some(slice.frame().encoded(slot, make));
            }
        }
        match made {
            Some(bytes) => {
                self.own = None;
                Shares::Made(bytes)
            }
            None => Shares::Not,
        }
    }
}

/// What the shared fold can do for a reader.
enum Shares {
    Made(Bytes),
    /// It could, if it were told the conversation so far.
    Needs,
    /// The reader is behind it, or ahead.
    Not,
}

/// A thread up to a record of its run: for what can only be said with all of it at hand.
pub(crate) async fn recall(log: &Log, run: RunId, head: Seq) -> Result<Conversation, ReadError> {
    let current = log.transcript_before(run, head).await?;
    let mut earlier = Vec::new();
    let mut next = current.started.as_ref().and_then(|started| started.after);
    while let Some(run) = next.filter(|_| earlier.len() < HISTORY_RUNS_MAX) {
        // A run that was deleted ends what is known.
        let Ok(transcript) = log.transcript(run).await else { break };
        next = transcript.started.as_ref().and_then(|started| started.after);
        earlier.push(transcript);
    }
    earlier.reverse();
    Ok(Conversation { earlier, current })
}

/// An encoder that goes on after a place.
pub(super) async fn own(
    log: &Log,
    run: RunId,
    dialect: DialectName,
    after: WirePosition,
) -> Result<Box<Encoder>, ReadError> {
    let whole = after.whole();
    if whole == Seq(0) {
        return Ok(Box::new(Encoder::resume(dialect, Outline::default(), after)));
    }
    if !dialect.remembers() {
        let outline = log.outline_before(run, whole).await?;
        return Ok(Box::new(Encoder::resume(dialect, outline, after)));
    }
    let mut encoder = Box::new(Encoder::resume(dialect, Outline::default(), after));
    let mut cursor = log.cursor(run, Seq(0)).await?;
    while encoder.outline().head < whole {
        let Some(frames) = cursor.next().await? else { break };
        for slice in &frames {
            let seen = slice.partition_point(|record| record.seq <= whole);
            encoder.frame(&slice[..seen], &mut Out::default());
        }
    }
    Ok(encoder)
}

fn slot(dialect: DialectName) -> usize {
    // One that is not listed keeps nothing, which is only slower.
    DialectName::ALL.iter().position(|it| *it == dialect).unwrap_or(usize::MAX)
}
