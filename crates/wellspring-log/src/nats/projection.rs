//! A node's view of the stream: the [`Index`] of all runs, the sequences of their frames, and the
//! newest frames.
//!
//! It is computed from the stream's messages in order and from nothing else, so all nodes have the
//! same projection, and a node rebuilds it when it starts. A write is acknowledged to its caller
//! after it was applied here.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use bytes::Bytes;
use wellspring_core::{RunId, Seq, ThreadId};

use super::api::Kept as Message;
use super::wire::{self, DeletedLine, Entry, FrameLine, Incoming};
use crate::run_index::{ENTRY_BYTES, FrameChange, Index};
use crate::store::{Finding, SnapshotKind, StoreError, StoredFrame};
use crate::watch::Watches;

/// Bytes of the newest frames that a node keeps, so that readers of active runs need no request to
/// the server.
const RECENT_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The positions of this many newest frames of a run are kept, and of every frame whose index is a
/// multiple of this number.
const PLACES: usize = 64;

/// Maximum number of damaged messages that are reported.
const FINDINGS_MAX: usize = 1000;

#[derive(Debug)]
pub(super) struct Projection {
    pub(super) index: Index<Places>,
    /// The last sequence of each thread's subject.
    thread_sequences: HashMap<ThreadId, u64>,
    damaged_documents: BTreeSet<Box<str>>,
    /// Damage that belongs to no known run.
    findings: Vec<Finding>,
    /// Deleted runs whose other messages may still be in the stream.
    pub(super) leftovers: Vec<(RunId, u64, DeletedLine)>,
    recent: Recent,
    /// The prefix of the ids of this process's messages.
    me: Box<str>,
    watches: Watches,
}

/// The positions of a run's frames in the stream.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// The sequence of the run's first frame.
    pub(super) created: u64,
    /// The id of the message that created the run.
    pub(super) created_by: Box<str>,
    /// The last sequence of the run's subject.
    pub(super) sequence: u64,
    /// The last sequence of the run's inbox subject.
    pub(super) inbox_sequence: u64,
    /// The checksum of the run's last frame.
    pub(super) sum: u32,
    pub(super) damage: Option<(Seq, String)>,
    /// The position of every frame whose index is a multiple of [`PLACES`].
    marks: Vec<Place>,
    /// The positions of the newest frames.
    newest: VecDeque<Place>,
    frames: usize,
    pub(super) folds: BTreeMap<(SnapshotKind, Seq), Vec<u64>>,
    /// The sequences of the parts of an incomplete snapshot.
    parts: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    first: Seq,
    sequence: u64,
}

/// The newest frames of all runs, by sequence.
#[derive(Debug, Default)]
struct Recent {
    frames: BTreeMap<u64, (RunId, StoredFrame)>,
    bytes: usize,
}

impl Recent {
    fn push(&mut self, sequence: u64, run: RunId, frame: StoredFrame) {
        self.bytes += frame.body.len();
        self.frames.insert(sequence, (run, frame));
        while self.bytes > RECENT_BYTES_MAX
            && let Some((_, (_, frame))) = self.frames.pop_first()
        {
            self.bytes -= frame.body.len();
        }
    }
}

impl Places {
    fn push(&mut self, place: Place) {
        if self.frames.is_multiple_of(PLACES) {
            self.marks.push(place);
        }
        self.frames += 1;
        self.newest.push_back(place);
        if self.newest.len() > PLACES {
            self.newest.pop_front();
        }
    }

    /// The sequence to read from to find a record: that of its frame, or of an earlier frame.
    pub(super) fn before(&self, record: Seq) -> u64 {
        let newest = self.newest.partition_point(|place| place.first <= record);
        if newest > 0 {
            return self.newest[newest - 1].sequence;
        }
        let mark = self.marks.partition_point(|place| place.first <= record);
        self.marks[..mark].last().map_or(self.created, |place| place.sequence)
    }
}

impl Projection {
    pub(super) fn new(me: Box<str>, watches: Watches) -> Self {
        Self {
            index: Index::default(),
            thread_sequences: HashMap::new(),
            damaged_documents: BTreeSet::new(),
            findings: Vec::new(),
            leftovers: Vec::new(),
            recent: Recent::default(),
            me,
            watches,
        }
    }

    /// The positions of a run's frames. Fails if the run does not exist or is damaged.
    pub(super) fn whole(&self, run: RunId) -> Result<&Places, StoreError> {
        let places = &self.index.kept(run)?.frames;
        match &places.damage {
            Some((at, what)) => Err(StoreError::Damaged { run, at: *at, what: what.clone() }),
            None => Ok(places),
        }
    }

    pub(super) fn thread_sequence(&self, thread: ThreadId) -> u64 {
        self.thread_sequences.get(&thread).copied().unwrap_or_default()
    }

    pub(super) fn is_damaged(&self, document: &str) -> bool {
        self.damaged_documents.contains(document)
    }

    /// The newest frames of a run after a record; `None` if some of them are no longer in memory.
    pub(super) fn recent(&self, run: RunId, after: Seq) -> Option<Vec<StoredFrame>> {
        let kept = self.index.runs.get(&run)?;
        let newest = &kept.frames.newest;
        let from = newest.partition_point(|place| place.first <= after.next());
        let from = from.checked_sub(1)?;
        let found =
            newest.range(from..).map(|place| match self.recent.frames.get(&place.sequence) {
                Some((of, frame)) if *of == run => Some(frame.clone()),
                Some(_) | None => None,
            });
        found.collect()
    }

    /// All known damage.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let of_run = |run: &RunId| {
            let (at, what) = self.index.runs.get(run)?.frames.damage.as_ref()?;
            let what = format!("record {at}: {what}");
            Some(Finding { run: Some(*run), what, remedy: "delete the run, or restore it" })
        };
        let runs = self.index.runs.keys().filter_map(of_run);
        let documents = self.damaged_documents.iter().map(|name| Finding {
            run: None,
            what: format!("document `{name}`"),
            remedy: "write it again, or delete it",
        });
        runs.chain(documents).chain(self.findings.iter().cloned()).take(FINDINGS_MAX).collect()
    }

    /// Applies the next message of the stream.
    pub(super) fn apply(&mut self, message: &Message) {
        let (kind, rest) = message.subject.split_once('.').unwrap_or((&message.subject, ""));
        match message.decode() {
            Ok(incoming) => self.apply_whole(kind, rest, message.sequence, incoming),
            Err(what) => self.note_damage(kind, rest, message.sequence, what),
        }
    }

    fn note_damage(&mut self, kind: &str, rest: &str, sequence: u64, what: String) {
        tracing::error!(kind, rest, sequence, what, "a message of the stream is damaged");
        let run = rest.parse::<RunId>().ok();
        if kind == "document"
            && let Some(name) = wire::document_name(rest)
        {
            self.index.put_document(name.clone(), None, sequence);
            self.damaged_documents.insert(name);
            return;
        }
        if let ("run" | "inbox", Some(run)) = (kind, run)
            && self.index.runs.contains_key(&run)
        {
            self.damage(run, what);
            if kind == "run"
                && let Some(kept) = self.index.runs.get_mut(&run)
            {
                kept.frames.sequence = sequence;
            }
            return;
        }
        // A damaged snapshot is only reported: without it, more records are folded.
        if self.findings.len() < FINDINGS_MAX {
            let what = format!("message {sequence} of {kind}.{rest}: {what}");
            self.findings.push(Finding { run, what, remedy: "remove the message from the stream" });
        }
    }

    fn damage(&mut self, run: RunId, what: String) {
        if let Some(kept) = self.index.runs.get_mut(&run) {
            let at = kept.info.head.next();
            kept.frames.damage.get_or_insert((at, what));
        }
    }

    fn apply_whole(&mut self, kind: &str, rest: &str, sequence: u64, incoming: Incoming) {
        let foreign = !incoming.line.id.starts_with(&*self.me);
        let run = rest.parse::<RunId>().ok();
        match (incoming.line.entry, run) {
            (Entry::Frame(line), Some(run)) => {
                let (id, body, sum) = (incoming.line.id, incoming.body, incoming.sum);
                self.frame(run, sequence, id, *line, body, sum);
            }
            (Entry::Released {}, Some(run)) => {
                self.index.release(run);
                if let Some(kept) = self.index.runs.get_mut(&run) {
                    kept.frames.sequence = sequence;
                }
            }
            (Entry::Deleted(line), Some(run)) => self.deleted(run, sequence, line),
            (Entry::Inbox { of, entries }, Some(run)) => {
                if self.index.runs.get(&run).is_none_or(|kept| kept.frames.created != of) {
                    return;
                }
                let bytes = incoming.body.len() + entries.len() * 2 * ENTRY_BYTES;
                let Ok(kept) = self.index.grow(run, bytes) else { return };
                kept.frames.inbox_sequence = sequence;
                // The run's last frame comes first in the stream, so every node ignores these
                // commands, and their sender gets an error.
                if kept.info.state.is_final() {
                    return;
                }
                entries.into_iter().for_each(|entry| self.index.put_inbox(run, entry.into()));
            }
            (Entry::Fold { of, kind, at, part, parts }, Some(run)) => {
                return self.fold(run, sequence, of, kind.into(), at, part, parts);
            }
            (Entry::Fence { .. }, _) => {
                if let ("thread", Ok(thread)) = (kind, rest.parse()) {
                    self.thread_sequences.insert(thread, sequence);
                }
                return;
            }
            (Entry::Title { title, archived }, _) => {
                if let Ok(thread) = rest.parse() {
                    self.index.set_thread(thread, title, archived);
                }
                return;
            }
            (Entry::Name { name, run }, _) => {
                // The name of a deleted run has no effect.
                let _ = self.index.bind(name.into(), run);
                return;
            }
            (Entry::Document { name, text }, _) => {
                self.damaged_documents.remove(&name);
                return self.index.put_document(name, text, sequence);
            }
            (Entry::Audit(line), _) => {
                self.index.put_audit((*line).into(), sequence);
                return;
            }
            (Entry::Beat { node }, _) => return self.index.beat(node, sequence),
            (
                Entry::Frame(_)
                | Entry::Released {}
                | Entry::Deleted(_)
                | Entry::Inbox { .. }
                | Entry::Fold { .. },
                None,
            ) => return self.note_damage(kind, rest, sequence, "its subject names no run".into()),
        }
        if let (true, Some(run)) = (foreign, run) {
            self.watches.wake(run);
        }
    }

    fn frame(
        &mut self,
        run: RunId,
        sequence: u64,
        id: Box<str>,
        line: FrameLine,
        body: Bytes,
        sum: u32,
    ) {
        if let Some(new) = line.new {
            let new = new.into_new_run(run);
            if self.index.refuses(&new).is_some() {
                // The fences rule this out, so another program has written to the stream.
                return self.note_damage("run", &run.to_string(), sequence, "it exists".into());
            }
            let places = Places { created: sequence, created_by: id, ..Places::default() };
            self.index.insert(new, line.at, places);
        }
        let Some(kept) = self.index.runs.get(&run) else {
            let what = "the run's first frame is missing".to_owned();
            return self.note_damage("run", &run.to_string(), sequence, what);
        };
        let expected = kept.info.head.next();
        let first_of_all = kept.frames.frames == 0 && kept.frames.created == sequence;
        if line.first != expected || (!first_of_all && line.prev != Some(kept.frames.sum)) {
            self.damage(run, format!("the next frame begins with record {}", line.first));
        }
        if line.bytes > body.len() {
            self.damage(run, "its frame is cut off".into());
        }
        let Ok(kept) = self.index.grow(run, ENTRY_BYTES / PLACES) else { return };
        kept.info.head = Seq(line.first.0.saturating_sub(1));
        let last = Seq(kept.info.head.0 + u64::from(line.count));
        let places = &mut kept.frames;
        (places.sequence, places.sum) = (sequence, sum);
        places.push(Place { first: line.first, sequence });
        let records = body.slice(..line.bytes.min(body.len()));
        if records.len() < body.len() {
            places.folds.insert((SnapshotKind::Transcript, last), vec![sequence]);
        }
        if line.state.is_some_and(crate::store::RunState::is_final) {
            places.newest = VecDeque::new();
        }
        let frame = StoredFrame { first: line.first, count: line.count, body: records };
        self.recent.push(sequence, run, frame);
        let change = FrameChange {
            count: line.count,
            at: line.at,
            state: line.state,
            taken: line.taken,
            deadline: line.deadline,
            search: line.search,
            adopt: line.adopt.map(Into::into),
        };
        self.index.advance(run, change);
    }

    fn deleted(&mut self, run: RunId, sequence: u64, line: DeletedLine) {
        self.index.forget(run);
        if !self.index.has_thread(line.thread) {
            self.thread_sequences.remove(&line.thread);
        }
        self.leftovers.retain(|(left, ..)| *left != run);
        if !line.done {
            self.leftovers.push((run, sequence, line));
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the members of one message")]
    fn fold(
        &mut self,
        run: RunId,
        sequence: u64,
        of: u64,
        kind: SnapshotKind,
        at: Seq,
        part: usize,
        parts: usize,
    ) {
        let Some(kept) = self.index.runs.get_mut(&run) else { return };
        let places = &mut kept.frames;
        if places.created != of {
            return;
        }
        if part == 0 {
            places.parts.clear();
        }
        places.parts.push(sequence);
        if part + 1 == parts {
            let sequences = std::mem::take(&mut places.parts);
            if sequences.len() == parts {
                places.folds.insert((kind, at), sequences);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wellspring_core::{CancelWhen, Command, InboxNo};

    use super::*;
    use crate::inbox::{NewCommand, Plan};
    use crate::nats::wire::{InboxLine, Outgoing};
    use crate::store::{Append, NewFrame, NewRun, RunState};

    /// The last frame and a command have no common fence: their order in the stream decides.
    #[test]
    fn a_command_behind_the_end_of_its_run_is_taken_in_nowhere() {
        let run = RunId::new(uuid::Uuid::from_u128(1));
        let cancel = || Command::Cancel { when: CancelWhen::default(), by: None, why: None };
        let new = NewRun {
            run,
            thread: ThreadId::new(uuid::Uuid::from_u128(2)),
            agent: "a".into(),
            tenant: "t".into(),
            after: None,
            title: "go".into(),
            name: None,
            is_first: true,
            node: "n".into(),
        };
        let first = NewFrame { count: 1, body: Bytes::from_static(b"one"), ..NewFrame::default() };
        let end = NewFrame { state: Some(RunState::Completed), ..first.clone() };
        let end = Append { run, expected: Seq(1), frame: end, adopt: None };
        let mut projection = Projection::new("me.".into(), Watches::default());
        let mut apply = |sequence, subject: String, entry, body: &[u8]| {
            let out = Outgoing::new(subject, "me.1".into(), entry, &[body]).unwrap();
            let sum = Some(format!("{:08x}", out.sum));
            let (subject, payload) = (out.subject, out.payload);
            projection.apply(&Message { subject, sum, payload, sequence });
            out.sum
        };
        let put = |number, key: &str| {
            let line = InboxLine { number: InboxNo(number), key: key.into(), command: cancel() };
            Entry::Inbox { of: 1, entries: vec![line] }
        };
        let line = Entry::Frame(Box::new(FrameLine::of_new(&new, &first)));
        let prev = apply(1, wire::run_subject(run), line, b"one");
        apply(2, wire::inbox_subject(run), put(1, "early"), b"");
        let line = Entry::Frame(Box::new(FrameLine::of_append(&end, prev)));
        apply(3, wire::run_subject(run), line, b"one");
        apply(4, wire::inbox_subject(run), put(2, "late"), b"");
        let plan = |key: &str| {
            let command = NewCommand { key: key.into(), command: cancel(), audit: None };
            projection.index.plan_inbox(run, vec![command])
        };
        assert!(matches!(plan("early"), Ok(Plan::Put { puts, new })
            if puts[0].existed && puts[0].number == InboxNo(1) && new.is_empty()));
        assert!(matches!(plan("late"), Err(StoreError::Finished(named)) if named == run));
        assert_eq!(projection.findings(), []);
    }
}
