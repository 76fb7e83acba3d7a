//! What a dialect is, and what it says over the life of a stream.

use serde::Serialize;
use wellspring_core::{Event, Outline, Record, Transcript};

use crate::framing::Framing;
use crate::out::Out;

/// A projection of records into a client's vocabulary, from the first event of a stream to its
/// last.
///
/// # Contract
///
/// 1. Pure: the same records give the same events, however often they are encoded.
/// 2. Total: any record may follow any other. A record that makes no sense gives no events.
/// 3. Resumable: what a record gives depends on the record and on the [fold](Dialect::fold)
///    before it. State of the dialect's own is a cache, unless the fold is [`Fold::Records`].
/// 4. A record's events are counted, so that a reader can resume between them. They come from
///    [`encode`](Dialect::encode), or all from [`frame_end`](Dialect::frame_end).
/// 5. Nothing follows the end of the run.
/// 6. What [`join`](Dialect::join), [`interrupt`](Dialect::interrupt) and
///    [`close`](Dialect::close) say stands for no record and has no position. They do not
///    change the dialect, and nothing follows the last two.
/// 7. A text framing carries JSON objects.
pub trait Dialect: Send {
    /// Writes what `record` says in this vocabulary, given the run `before` it.
    fn encode(&mut self, before: Before<'_>, record: &Record, out: &mut Out);

    /// Writes how the run stands after the records of one append: for a form of which a reader
    /// needs only the latest.
    fn frame_end(&mut self, _after: Before<'_>, _out: &mut Out) {}

    /// Which fold of the run `encode` needs.
    fn fold(&self) -> Fold {
        Fold::Outline
    }

    /// Whether this event is said together with the earlier runs of the thread. It is `true`
    /// for few events: loading those runs is expensive.
    fn needs_history(&self, _before: &Outline, _event: &Event) -> bool {
        false
    }

    /// How a reader begins that joins a run without a position.
    fn joins(&self) -> Joins {
        Joins::Replay
    }

    /// Writes the first events for a reader that joins a run [by a snapshot](Joins::Snapshot). If
    /// the run waits or has finished, they include the end of the stream.
    fn join(&self, _now: Before<'_>, _out: &mut Out) {}

    /// Writes the end of a stream whose reader answers with another request, while the run waits
    /// for an answer without pausing (see [`Outline::blocking_questions`]). A dialect whose streams
    /// continue writes nothing.
    fn interrupt(&self, _now: &Outline, _out: &mut Out) {}

    /// Writes how a stream ends before its run does.
    fn close(&self, why: &Closed<'_>, out: &mut Out);

    /// How events go over HTTP.
    fn framing(&self) -> Framing {
        Framing::SSE
    }
}

/// What a dialect needs to know of the records before the one that it encodes. Everything that
/// resumes a dialect gives it that.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fold {
    /// What is open.
    Outline,
    /// All that was said and done.
    Transcript,
    /// The records themselves: the dialect folds them in its own way, and resumes by encoding all
    /// of them again.
    Records,
}

/// How a reader begins that joins a run without a position.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Joins {
    /// With the first event of the run.
    Replay,
    /// With [what the dialect says](Dialect::join) of the run as it stands.
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
    /// A run and the runs before it in its thread, oldest first.
    #[must_use]
    pub fn in_thread(transcript: &'a Transcript, history: &'a [Transcript]) -> Self {
        Self { history: Some(history), ..transcript.into() }
    }

    /// What is open.
    #[must_use]
    pub fn outline(self) -> &'a Outline {
        self.outline
    }

    /// All that was said and done; `None` for a dialect that does not ask for it.
    #[must_use]
    pub fn transcript(self) -> Option<&'a Transcript> {
        self.transcript
    }

    /// The earlier runs of the thread, oldest first; `None` if there are some that were not
    /// loaded.
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

/// Why a stream ends before its run does. Its JSON is `{"error":{"code","message","remedy"}}`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Closed<'a> {
    /// For programs: stable.
    pub code: &'a str,
    /// For people.
    pub message: &'a str,
    /// What the reader can do.
    pub remedy: &'a str,
}

impl Closed<'_> {
    /// The message and the remedy, for vocabularies that have one text for both.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}; {}", self.message, self.remedy)
    }

    /// The SSE event of vocabularies that have no word for an error: named `closed`, so that
    /// readers of the usual events do not see it.
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
