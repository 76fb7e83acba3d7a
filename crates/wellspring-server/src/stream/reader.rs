//! A reader's way through a run, and the folds that readers share.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use bytes::Bytes;
use wellspring_core::{Outline, RunId, Seq, Transcript};
use wellspring_engine::HISTORY_RUNS_MAX;
use wellspring_log::{Cursor, FrameSlice, Log, ReadError};
use wellspring_wire::{
    Dialect, DialectChoice, DialectName, Encoder, Fold, Framing, Joins, Out, Positions,
    WirePosition,
};

use super::{Begin, Readable, Wanted};
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
        // Another reader may have replaced the entry in the meantime.
        if all.get(&self.key).is_some_and(|shared| shared.strong_count() == 0) {
            all.remove(&self.key);
        }
    }
}

/// A reader's way through a run: the cursor, and how frames become bytes.
pub(super) struct Reader {
    pub(super) cursor: Cursor,
    run: RunId,
    dialect: DialectChoice,
    framing: Framing,
    /// The run's id in the reader's protocol, if it differs from the usual one.
    called: Option<Box<str>>,
    /// The last event that the reader had seen at the start.
    after: WirePosition,
    /// The fold of all readers that see the same bytes; `None` if no other reader does.
    shared: Option<Arc<Shared>>,
    /// Set while the reader is behind, has seen part of a record, or shares no fold.
    own: Option<Box<Encoder>>,
}

impl Reader {
    /// A reader of an existing run. A reader that joins in mid-run also gets the dialect's opening
    /// and the fold at that point.
    pub(super) async fn open(
        log: &Log,
        folds: &Arc<Folds>,
        wanted: Wanted,
    ) -> Result<(Self, Option<(Out, Outline)>), ReadError> {
        let Wanted { run: readable, dialect, start, until: _ } = wanted;
        let run = readable.id();
        let joins = dialect.dialect().joins();
        let (after, joined) = match (start, joins) {
            (Begin::After(after), _) => (after, None),
            (Begin::Join { .. }, Joins::Replay) => (WirePosition::START, None),
            (Begin::Join { at, called }, Joins::Snapshot) => {
                let joined = Box::pin(Joined::new(log, run, &dialect, at, called)).await?;
                (WirePosition::after(joined.encoder.outline().head), Some(joined))
            }
        };
        let cursor = match readable {
            Readable::At(cursor) => cursor,
            Readable::Run(_) => log.cursor(run, after.whole()).await?,
        };
        let (own, called, first) = match joined {
            Some(Joined { encoder, out, called }) => {
                let outline = encoder.outline().clone();
                (Some(encoder), called, Some((out, outline)))
            }
            None => (None, None, None),
        };
        let shares = dialect.options().is_default() && called.is_none();
        let own = match own {
            None if after.k.is_some() || !shares => {
                Some(Box::pin(encoder_at(log, run, &dialect, after)).await?)
            }
            own => own,
        };
        let shared = shares.then(|| folds.of(run, dialect.name()));
        let framing = dialect.dialect().framing();
        Ok((Self { cursor, run, dialect, framing, called, after, shared, own }, first))
    }

    pub(super) fn dialect(&self) -> Box<dyn Dialect> {
        self.dialect.dialect()
    }

    pub(super) fn framing(&self) -> Framing {
        self.framing
    }

    /// What is open after a record, with the run called as this reader calls it.
    pub(super) fn outline_at(
        &self,
        log: &Log,
        seq: Seq,
    ) -> impl Future<Output = Result<Outline, ReadError>> + Send + use<> {
        let (log, run, called) = (log.clone(), self.run, self.called.clone());
        async move {
            let mut outline = log.outline_before(run, seq).await?;
            if let Some(called) = called {
                rename(&mut outline, &called);
            }
            Ok(outline)
        }
    }

    /// A frame's events, as the wire has them.
    pub(super) async fn encode(
        &mut self,
        log: &Log,
        slice: &FrameSlice,
    ) -> Result<Bytes, ReadError> {
        let before = Seq(slice.first().map_or(0, |record| record.seq.0 - 1));
        let mut recalled = None;
        let shared = self.shared.clone().filter(|_| self.may_share(slice, before));
        if let Some(shared) = &shared {
            loop {
                match self.encode_shared(shared, slice, before, &mut recalled) {
                    Shares::Made(bytes) => return Ok(bytes),
                    Shares::Needs(continued) => {
                        recalled = Some(Box::pin(history(log, self.run, continued)).await);
                    }
                    Shares::Not => break,
                }
            }
        }
        let mut encoder = match self.own.take() {
            Some(own) if own.outline().head == before => own,
            _ => {
                let after = WirePosition::after(before);
                // Boxed, because it is rare and many readers may be waiting.
                Box::pin(encoder_at(log, self.run, &self.dialect, after)).await?
            }
        };
        if let Some(continued) = encoder.needs_history(slice) {
            let earlier = match recalled {
                Some(earlier) => earlier,
                None => Box::pin(history(log, self.run, continued)).await,
            };
            encoder.recall(earlier);
        }
        if let Some(shared) = shared {
            let mut shared = lock(&shared.encoder);
            if encoder.outline().head > shared.outline().head {
                // This reader is the foremost: its fold serves those who come after it.
                *shared = *encoder;
                return Ok(slice
                    .frame()
                    .encoded(self.dialect.name().index(), || encode(&mut shared, slice)));
            }
        }
        let bytes = encode(&mut encoder, slice);
        self.own = Some(encoder);
        Ok(bytes)
    }

    /// Whether other readers get the same bytes for this frame.
    fn may_share(&self, slice: &FrameSlice, before: Seq) -> bool {
        let partial = self.after.k.is_some() && self.after.whole() >= before;
        slice.skip() == 0 && !partial
    }

    /// The encoded frame, if another reader has encoded it, or if the shared fold is at its start.
    fn encode_shared(
        &mut self,
        shared: &Shared,
        slice: &FrameSlice,
        before: Seq,
        recalled: &mut Option<Vec<Transcript>>,
    ) -> Shares {
        let slot = self.dialect.name().index();
        let mut made = slice.frame().encoded_already(slot);
        if made.is_none() {
            let mut shared = lock(&shared.encoder);
            // Another reader may have encoded it just before we got the lock.
            made = slice.frame().encoded_already(slot);
            if made.is_none() && shared.outline().head == before {
                if let Some(continued) = shared.needs_history(slice) {
                    match recalled.take() {
                        Some(earlier) => shared.recall(earlier),
                        None => return Shares::Needs(continued),
                    }
                }
                let make = || encode(&mut shared, slice);
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
    /// It needs the runs of the thread up to this one first.
    Needs(RunId),
    /// The reader is behind it, or ahead.
    Not,
}

/// A reader that joins a run in the middle.
struct Joined {
    encoder: Box<Encoder>,
    /// The dialect's opening.
    out: Out,
    called: Option<Box<str>>,
}

impl Joined {
    async fn new(
        log: &Log,
        run: RunId,
        dialect: &DialectChoice,
        at: Option<Seq>,
        called: Option<Box<str>>,
    ) -> Result<Self, ReadError> {
        let mut transcript = match at {
            Some(at) => log.transcript_before(run, at).await?,
            None => log.transcript(run).await?,
        };
        let usual = transcript.outline.run.as_ref().and_then(|head| head.wire_run.as_deref());
        let called = called.filter(|called| usual != Some(called));
        if let Some(called) = &called {
            rename(&mut transcript.outline, called);
        }
        let continued = transcript.started.as_ref().and_then(|started| started.after);
        let after = WirePosition::after(transcript.outline.head);
        let mut encoder = Box::new(Encoder::resume(dialect, transcript, after));
        if let Some(continued) = continued {
            encoder.recall(history(log, run, continued).await);
        }
        let mut out = Out::default();
        encoder.join(&mut out);
        Ok(Self { encoder, out, called })
    }
}

/// Sets the run's id in the reader's protocol.
fn rename(outline: &mut Outline, called: &str) {
    if let Some(head) = &mut outline.run {
        head.wire_run = Some(called.into());
    }
}

/// The runs that a run continues, oldest first, without those that were deleted.
pub(super) async fn history(log: &Log, run: RunId, continued: RunId) -> Vec<Transcript> {
    let mut past = log.history(continued, HISTORY_RUNS_MAX).await.unwrap_or_default();
    if past.is_empty() {
        // That run was deleted; the store knows which older run follows this one.
        past = log.history(run, HISTORY_RUNS_MAX + 1).await.unwrap_or_default();
        past.drain(..past.len().min(1));
    }
    past.into_iter().rev().map(|(_, transcript)| transcript).collect()
}

/// An encoder that continues after a position.
pub(super) async fn encoder_at(
    log: &Log,
    run: RunId,
    dialect: &DialectChoice,
    after: WirePosition,
) -> Result<Box<Encoder>, ReadError> {
    let whole = after.whole();
    let at_start = whole == Seq(0);
    Ok(Box::new(match dialect.dialect().fold() {
        Fold::Transcript if at_start => Encoder::resume(dialect, Transcript::default(), after),
        Fold::Transcript => {
            Encoder::resume(dialect, log.transcript_before(run, whole).await?, after)
        }
        Fold::Outline if !at_start => {
            Encoder::resume(dialect, log.outline_before(run, whole).await?, after)
        }
        Fold::Outline | Fold::Records => {
            let mut encoder = Encoder::resume(dialect, Outline::default(), after);
            if !at_start {
                replay(log, run, whole, &mut encoder).await?;
            }
            encoder
        }
    }))
}

/// Folds all records up to one.
async fn replay(log: &Log, run: RunId, to: Seq, encoder: &mut Encoder) -> Result<(), ReadError> {
    let mut cursor = log.cursor(run, Seq(0)).await?;
    while encoder.outline().head < to {
        let Some(frames) = cursor.next().await? else { break };
        for slice in &frames {
            let seen = slice.partition_point(|record| record.seq <= to);
            encoder.frame(&slice[..seen], &mut Out::default());
        }
    }
    Ok(())
}

thread_local! {
    /// Scratch space for encoding frames; the result is copied to its exact size.
    static SCRATCH: RefCell<Out> = RefCell::default();
}

fn encode(encoder: &mut Encoder, slice: &FrameSlice) -> Bytes {
    #[cfg(test)]
    super::tests::ENCODED.with(|count| count.set(count.get() + 1));
    SCRATCH.with_borrow_mut(|out| {
        out.clear();
        encoder.frame(slice, out);
        encoder.framing().frame(out, Positions::Told).into()
    })
}
