//! The state of one reader: a dialect, and the fold of the run so far.

use std::fmt;

use wellspring_core::{Event, Outline, Record, RunId, Seq, Transcript};

use crate::dialect::framing::Framing;
use crate::dialect::out::Out;
use crate::dialect::position::WirePosition;
use crate::dialect::{Before, Dialect, Fold};

/// A dialect and the fold that it needs, at a position in a run.
pub struct Encoder {
    dialect: Box<dyn Dialect>,
    folded: Folded,
    after: WirePosition,
    scratch: Out,
    /// The earlier runs of the thread, until the end of the next frame.
    history: Option<Box<[Transcript]>>,
}

/// The fold of a run, in the form that a dialect needs.
#[derive(Clone, Debug)]
pub enum Folded {
    /// For [`Fold::Outline`], and for [`Fold::Records`] while it is empty.
    Outline(Box<Outline>),
    /// For [`Fold::Transcript`].
    Transcript(Box<Transcript>),
}

impl Encoder {
    /// An encoder at the start of the run.
    #[must_use]
    pub fn new(dialect: impl Into<Box<dyn Dialect>>) -> Self {
        let dialect = dialect.into();
        let folded = match dialect.fold() {
            Fold::Outline | Fold::Records => Folded::Outline(Box::default()),
            Fold::Transcript => Folded::Transcript(Box::default()),
        };
        Self::resume(dialect, folded, WirePosition::START)
    }

    /// An encoder that resumes at a position. `folded` is the dialect's [fold](Dialect::fold)
    /// of the run at or before [`WirePosition::whole`]; push the records after it. Records up
    /// to the position are folded without emitting events, one frame each. For
    /// [`Fold::Records`] the fold is empty, so push all records.
    #[must_use]
    pub fn resume(
        dialect: impl Into<Box<dyn Dialect>>,
        folded: impl Into<Folded>,
        after: WirePosition,
    ) -> Self {
        let (dialect, folded) = (dialect.into(), folded.into());
        Self { dialect, folded, after, scratch: Out::default(), history: None }
    }

    /// What is open after the records so far.
    #[must_use]
    pub fn outline(&self) -> &Outline {
        self.folded.before(None).outline()
    }

    /// The framing of the events over HTTP.
    #[must_use]
    pub fn framing(&self) -> Framing {
        self.dialect.framing()
    }

    /// The run that this one continues, if its history must be [recalled](Encoder::recall)
    /// before the records of this append are encoded. Without the history, the dialect leaves
    /// out the events that need it.
    #[must_use]
    pub fn needs_history(&self, records: &[Record]) -> Option<RunId> {
        let mut new = records.iter().filter(|record| record.seq > self.head());
        let is_needed = |record: &Record| self.dialect.needs_history(self.outline(), &record.event);
        // If the run starts in these records, they name the run that it continues.
        let first = records.iter().find_map(|record| {
            if let Event::RunStarted(started) = &record.event { Some(started) } else { None }
        });
        let started = self.folded.before(None).transcript()?.started.as_ref();
        let continued = started.or(first)?.after;
        continued.filter(|_| new.any(is_needed))
    }

    /// Sets the earlier runs of the thread, oldest first, for the next append.
    pub fn recall(&mut self, earlier: Vec<Transcript>) {
        self.history = Some(earlier.into());
    }

    /// Writes the first events for a reader that joins the run here: see [`Dialect::join`].
    pub fn join(&mut self, out: &mut Out) {
        self.dialect.join(self.folded.before(self.history.as_deref()), out);
        self.history = None;
    }

    /// Encodes the records of one append. Records that were already encoded are skipped.
    pub fn frame(&mut self, records: &[Record], out: &mut Out) {
        for record in records {
            if record.seq > self.head() {
                self.push(record, out);
            }
        }
        let head = self.head();
        if head > self.after.seq {
            out.begin(head);
            self.dialect.frame_end(self.folded.before(self.history.as_deref()), out);
        }
        self.history = None;
    }

    fn head(&self) -> Seq {
        self.outline().head
    }

    fn push(&mut self, record: &Record, out: &mut Out) {
        if record.seq > self.after.seq {
            out.begin(record.seq);
            let before = self.folded.before(self.history.as_deref());
            self.dialect.encode(before, record, out);
        } else {
            self.skip(record, out);
        }
        match &mut self.folded {
            Folded::Outline(outline) => outline.apply(record),
            Folded::Transcript(transcript) => transcript.apply(record),
        }
    }

    /// Encodes a record of which the reader already has some events.
    fn skip(&mut self, record: &Record, out: &mut Out) {
        let rest = self.after.k.filter(|_| record.seq == self.after.seq);
        if rest.is_none() && self.dialect.fold() != Fold::Records {
            return;
        }
        let before = self.folded.before(self.history.as_deref());
        self.scratch.clear();
        self.scratch.begin(record.seq);
        self.dialect.encode(before, record, &mut self.scratch);
        if let Some(seen) = rest {
            out.append_rest(record.seq, &self.scratch, seen);
        }
        if record.seq == self.after.seq {
            // The reader already has the state at the end of its last frame.
            self.dialect.frame_end(before, &mut self.scratch);
        }
    }
}

impl Folded {
    fn before<'a>(&'a self, history: Option<&'a [Transcript]>) -> Before<'a> {
        match (self, history) {
            (Self::Outline(outline), _) => (&**outline).into(),
            (Self::Transcript(transcript), None) => (&**transcript).into(),
            (Self::Transcript(transcript), Some(history)) => Before::in_thread(transcript, history),
        }
    }
}

impl From<Outline> for Folded {
    fn from(outline: Outline) -> Self {
        Self::Outline(Box::new(outline))
    }
}

impl From<Transcript> for Folded {
    fn from(transcript: Transcript) -> Self {
        Self::Transcript(Box::new(transcript))
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder")
            .field("outline", self.outline())
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}
