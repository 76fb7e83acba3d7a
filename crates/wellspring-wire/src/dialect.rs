//! The `Dialect` trait: what a dialect emits over the life of a stream.

pub(crate) mod encoder;
pub(crate) mod end_message;
pub(crate) mod framing;
pub(crate) mod name;
pub(crate) mod options;
pub(crate) mod out;
pub(crate) mod position;
pub(crate) mod visible;

use serde::Serialize;
use wellspring_core::{Event, Outline, Record, Transcript};

use self::framing::Framing;
use self::out::Out;

/// Translates records into a client's vocabulary, from the first event of a stream to the last.
///
/// # Contract
///
/// 1. Pure: the same records give the same events, however often they are encoded.
/// 2. Total: any record may follow any other. An invalid record gives no events.
/// 3. Resumable: the events of a record depend only on the record and on the
///    [fold](Dialect::fold) before it. Further state is only a cache, unless the fold is
///    [`Fold::Records`].
/// 4. A record's events are counted, so that a reader can resume between them. All of them come
///    from [`encode`](Dialect::encode), or all from [`frame_end`](Dialect::frame_end).
/// 5. No event follows the end of the run.
/// 6. The events of [`join`](Dialect::join), [`interrupt`](Dialect::interrupt) and
///    [`close`](Dialect::close) belong to no record and have no position. These methods do not
///    change the dialect, and no event follows the latter two.
/// 7. A text framing carries JSON objects.
pub trait Dialect: Send {
    /// Writes the events of `record`, given the run `before` it.
    fn encode(&mut self, before: Before<'_>, record: &Record, out: &mut Out);

    /// Writes the state of the run after the records of one append, for a vocabulary in which a
    /// reader needs only the latest state.
    fn frame_end(&mut self, _after: Before<'_>, _out: &mut Out) {}

    /// The fold of the run that `encode` needs.
    fn fold(&self) -> Fold {
        Fold::Outline
    }

    /// Returns whether the events of this record need the earlier runs of the thread. It is
    /// `true` for few records, because loading those runs is expensive.
    fn needs_history(&self, _before: &Outline, _event: &Event) -> bool {
        false
    }

    /// How a reader that joins a run without a position starts.
    fn joins(&self) -> Joins {
        Joins::Replay
    }

    /// Writes the first events for a reader that joins a run [by a snapshot](Joins::Snapshot). If
    /// the run waits or has finished, they include the end of the stream.
    fn join(&self, _now: Before<'_>, _out: &mut Out) {}

    /// Writes the end of a stream while a question blocks the run (see
    /// [`Outline::blocking_questions`]), for readers that answer with another request. A
    /// dialect whose streams continue writes nothing.
    fn interrupt(&self, _now: &Outline, _out: &mut Out) {}

    /// Writes the event that ends a stream before its run ends.
    fn close(&self, why: &Closed<'_>, out: &mut Out);

    /// The framing of the events over HTTP.
    fn framing(&self) -> Framing {
        Framing::SSE
    }
}

/// The information that a dialect needs about earlier records. A resumed dialect gets the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fold {
    /// What is open.
    Outline,
    /// The text, calls and results of the run, as a transcript.
    Transcript,
    /// The records themselves: the dialect folds them in its own way, and resumes by encoding
    /// all of them again.
    Records,
}

/// How a reader that joins a run without a position starts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Joins {
    /// From the first event of the run.
    Replay,
    /// With [a snapshot](Dialect::join) of the run as it stands.
    Snapshot,
}

/// A run up to some record.
#[derive(Clone, Copy, Debug)]
pub struct Before<'a> {
    outline: &'a Outline,
    transcript: Option<&'a Transcript>,
    history: Option<&'a [Transcript]>,
}

impl<'a> Before<'a> {
    /// A run with the earlier runs of its thread, oldest first.
    #[must_use]
    pub fn in_thread(transcript: &'a Transcript, history: &'a [Transcript]) -> Self {
        Self { history: Some(history), ..transcript.into() }
    }

    /// What is open.
    #[must_use]
    pub fn outline(self) -> &'a Outline {
        self.outline
    }

    /// The transcript; `None` if the dialect does not request it.
    #[must_use]
    pub fn transcript(self) -> Option<&'a Transcript> {
        self.transcript
    }

    /// The earlier runs of the thread, oldest first; `None` if they exist but were not loaded.
    #[must_use]
    pub fn history(self) -> Option<&'a [Transcript]> {
        let is_first = || self.transcript?.started.as_ref()?.after.is_none().then_some(&[][..]);
        self.history.or_else(is_first)
    }
}

impl<'a> From<&'a Outline> for Before<'a> {
    fn from(outline: &'a Outline) -> Self {
        Self { outline, transcript: None, history: None }
    }
}

impl<'a> From<&'a Transcript> for Before<'a> {
    fn from(transcript: &'a Transcript) -> Self {
        Self { outline: &transcript.outline, transcript: Some(transcript), history: None }
    }
}

/// Why a stream ends before its run. Its JSON is `{"error":{"code","message","remedy"}}`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Closed<'a> {
    /// A stable code, for programs.
    pub code: &'a str,
    /// A message, for people.
    pub message: &'a str,
    /// What the reader can do.
    pub remedy: &'a str,
}

impl Closed<'_> {
    /// The message and the remedy, for vocabularies with one text for both.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}; {}", self.message, self.remedy)
    }

    /// The SSE event for vocabularies without an error event. It is named `closed`, so that
    /// readers of the usual events ignore it.
    pub(crate) fn named(&self, out: &mut Out) {
        out.named("closed", self);
    }
}

impl Serialize for Closed<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Envelope<'a> {
            error: Inner<'a>,
        }
        #[derive(Serialize)]
        struct Inner<'a> {
            code: &'a str,
            message: &'a str,
            remedy: &'a str,
        }
        let Self { code, message, remedy } = *self;
        Envelope { error: Inner { code, message, remedy } }.serialize(serializer)
    }
}
