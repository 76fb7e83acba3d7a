//! Subjects and messages.
//!
//! All subjects begin with the stream's name, here `wellspring`:
//!
//! | subject | messages |
//! | --- | --- |
//! | `wellspring.run.<run>` | a run: its frames, in order, its releases and its deletion |
//! | `wellspring.inbox.<run>` | commands for a run |
//! | `wellspring.fold.<run>` | snapshots of a run, in parts |
//! | `wellspring.thread.<thread>` | the newest run of a thread; fences the creation of the next |
//! | `wellspring.title.<thread>` | the title of a thread, and whether it is archived |
//! | `wellspring.name.<hash>` | the run that a surface's own id is bound to |
//! | `wellspring.document.<segments>` | a document; the last message counts |
//! | `wellspring.audit.<hash of the tenant>` | audit entries |
//! | `wellspring.beat.<hash of the node>` | a node's heartbeat; the last message counts |
//!
//! A message is a line of JSON, then the bytes that belong to it: the records of a frame, a part
//! of a snapshot. The header `Wellspring-Sum` is the CRC-32 of the subject below the stream's name
//! (such as `run.<run>`), a zero byte and the whole message, in eight hexadecimal digits. A frame
//! names the checksum of the run's previous frame, so that a missing frame is detected.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use wellspring_core::{Command, InboxNo, Millis, RunId, Seq, ThreadId};

use crate::audit::{Act, NewAudit};
use crate::inbox::InboxEntry;
use crate::store::{Adopt, Append, ExternalId, NewFrame, NewRun, RunState, SnapshotKind};

/// The header with a message's checksum.
pub(super) const SUM: &str = "Wellspring-Sum";

/// Bytes of a message besides a frame's records: the line of JSON with the searchable text, and the
/// headers.
pub(super) const OVERHEAD_BYTES: usize = 64 * 1024;

/// The first line of a message.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Line {
    /// The writer's name, a dot and a number. Also the message id that the server uses to detect
    /// duplicates.
    pub(super) id: Box<str>,
    pub(super) entry: Entry,
}

/// The content of a message.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Entry {
    Frame(Box<FrameLine>),
    Released {},
    Deleted(DeletedLine),
    Inbox {
        /// The sequence of the run's first frame.
        of: u64,
        entries: Vec<InboxLine>,
    },
    Fold {
        of: u64,
        kind: FoldKind,
        at: Seq,
        part: usize,
        parts: usize,
    },
    /// Marks that a run was created with the thread or the name of this subject. The run's first
    /// frame holds the data; this message is only a fence.
    Fence {
        run: RunId,
    },
    Title {
        title: Option<Box<str>>,
        archived: bool,
    },
    Name {
        name: NameLine,
        run: RunId,
    },
    Document {
        name: Box<str>,
        text: Option<Box<str>>,
    },
    Audit(Box<AuditLine>),
    Beat {
        node: Box<str>,
    },
}

/// The header line of a frame.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct FrameLine {
    pub(super) first: Seq,
    pub(super) count: u32,
    /// The checksum of the run's previous frame; `None` for the first frame.
    pub(super) prev: Option<u32>,
    /// The length of the records in bytes; the rest of the body is the folded run.
    pub(super) bytes: usize,
    pub(super) at: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<RunState>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) taken: Vec<InboxNo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) deadline: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) search: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) adopt: Option<AdoptLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) new: Option<NewLine>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct AdoptLine {
    pub(super) epoch: u64,
    pub(super) node: Box<str>,
}

/// The data of a new run, in its first frame.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct NewLine {
    pub(super) thread: ThreadId,
    pub(super) agent: Box<str>,
    pub(super) tenant: Box<str>,
    pub(super) after: Option<RunId>,
    pub(super) title: Box<str>,
    pub(super) name: Option<NameLine>,
    pub(super) node: Box<str>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct NameLine {
    pub(super) tenant: Box<str>,
    pub(super) surface: Box<str>,
    pub(super) id: Box<str>,
}

/// The deletion of a run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct DeletedLine {
    pub(super) thread: ThreadId,
    pub(super) names: Vec<NameLine>,
    /// Whether the other messages of the run were removed too.
    pub(super) done: bool,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct InboxLine {
    pub(super) number: InboxNo,
    pub(super) key: Box<str>,
    pub(super) command: Command,
}

#[derive(Debug, Deserialize, Serialize)]
pub(super) struct AuditLine {
    pub(super) tenant: Box<str>,
    pub(super) key: Box<str>,
    pub(super) at: Millis,
    pub(super) by: Box<str>,
    pub(super) run: RunId,
    pub(super) did: Box<str>,
    pub(super) details: serde_json::Value,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FoldKind {
    Outline,
    Transcript,
}

/// A message to be published.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    /// The subject without the stream's name.
    pub(super) subject: String,
    pub(super) id: Box<str>,
    pub(super) payload: Bytes,
    pub(super) sum: u32,
}

impl Outgoing {
    pub(super) fn new(
        subject: String,
        id: Box<str>,
        entry: Entry,
        bodies: &[&[u8]],
    ) -> Result<Self, serde_json::Error> {
        let line = Line { id, entry };
        let mut payload = serde_json::to_vec(&line)?;
        payload.push(b'\n');
        bodies.iter().for_each(|body| payload.extend_from_slice(body));
        let sum = sum(&subject, &payload);
        Ok(Self { subject, id: line.id, payload: payload.into(), sum })
    }
}

/// A decoded message.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) line: Line,
    pub(super) body: Bytes,
    pub(super) sum: u32,
}

/// Decodes a message and verifies its checksum.
pub(super) fn decode(
    subject: &str,
    sum_header: Option<&str>,
    payload: &Bytes,
) -> Result<Incoming, String> {
    let found = sum(subject, payload);
    let said = sum_header.and_then(|text| u32::from_str_radix(text, 16).ok());
    if said != Some(found) {
        return Err("its checksum does not match".into());
    }
    let end = payload.iter().position(|byte| *byte == b'\n').ok_or("it has no first line")?;
    let line = serde_json::from_slice(&payload[..end]).map_err(|error| error.to_string())?;
    Ok(Incoming { line, body: payload.slice(end + 1..), sum: found })
}

fn sum(subject: &str, payload: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(subject.as_bytes());
    crc.update(&[0]);
    crc.update(payload);
    crc.finalize()
}

pub(super) fn run_subject(run: RunId) -> String {
    format!("run.{run}")
}

pub(super) fn inbox_subject(run: RunId) -> String {
    format!("inbox.{run}")
}

pub(super) fn fold_subject(run: RunId) -> String {
    format!("fold.{run}")
}

pub(super) fn thread_subject(thread: ThreadId) -> String {
    format!("thread.{thread}")
}

pub(super) fn title_subject(thread: ThreadId) -> String {
    format!("title.{thread}")
}

pub(super) fn name_subject(name: &NameLine) -> String {
    format!("name.{}", hash(&[&name.tenant, &name.surface, &name.id]))
}

pub(super) fn audit_subject(tenant: &str) -> String {
    format!("audit.{}", hash(&[tenant]))
}

pub(super) fn beat_subject(node: &str) -> String {
    format!("beat.{}", hash(&[node]))
}

/// Encodes a document's segments as subject tokens. Characters that a token cannot contain become
/// `=` and two hexadecimal digits.
pub(super) fn document_subject(name: &str) -> String {
    let mut subject = String::from("document.");
    for byte in name.bytes() {
        match byte {
            b'/' => subject.push('.'),
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => subject.push(byte.into()),
            _ => subject.push_str(&format!("={byte:02x}")),
        }
    }
    subject
}

/// The name of the document that a subject after `document.` belongs to.
pub(super) fn document_name(tokens: &str) -> Option<Box<str>> {
    let mut name = Vec::new();
    let mut rest = tokens.bytes();
    while let Some(byte) = rest.next() {
        name.push(match byte {
            b'.' => b'/',
            b'=' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(name).ok().map(Into::into)
}

/// The first half of a SHA-256 over the texts, each with its length.
fn hash(texts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for text in texts {
        hasher.update((text.len() as u64).to_be_bytes());
        hasher.update(text.as_bytes());
    }
    hasher.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

impl FrameLine {
    pub(super) fn of_append(append: &Append, prev: u32) -> Self {
        let adopt = append.adopt.as_ref();
        let adopt = adopt.map(|it| AdoptLine { epoch: it.epoch, node: it.node.clone() });
        Self { adopt, ..Self::of(append.expected.next(), &append.frame, Some(prev), None) }
    }

    pub(super) fn of_new(new: &NewRun, first: &NewFrame) -> Self {
        let new = NewLine {
            thread: new.thread,
            agent: new.agent.clone(),
            tenant: new.tenant.clone(),
            after: new.after,
            title: new.title.clone(),
            name: new.name.clone().map(NameLine::from),
            node: new.node.clone(),
        };
        Self::of(Seq(1), first, None, Some(new))
    }

    fn of(first: Seq, frame: &NewFrame, prev: Option<u32>, new: Option<NewLine>) -> Self {
        Self {
            first,
            count: frame.count,
            prev,
            bytes: frame.body.len(),
            at: frame.at,
            state: frame.state,
            taken: frame.taken.clone(),
            deadline: frame.deadline,
            search: frame.search.clone(),
            adopt: None,
            new,
        }
    }
}

impl NewLine {
    pub(super) fn into_new_run(self, run: RunId) -> NewRun {
        NewRun {
            run,
            thread: self.thread,
            agent: self.agent,
            tenant: self.tenant,
            after: self.after,
            title: self.title,
            name: self.name.map(ExternalId::from),
            is_first: false,
            node: self.node,
        }
    }
}

impl From<AdoptLine> for Adopt {
    fn from(line: AdoptLine) -> Self {
        Self { epoch: line.epoch, node: line.node }
    }
}

impl From<InboxLine> for InboxEntry {
    fn from(line: InboxLine) -> Self {
        Self { number: line.number, key: line.key, command: line.command }
    }
}

impl From<ExternalId> for NameLine {
    fn from(name: ExternalId) -> Self {
        Self { tenant: name.tenant, surface: name.surface, id: name.id }
    }
}

impl From<NameLine> for ExternalId {
    fn from(line: NameLine) -> Self {
        Self { tenant: line.tenant, surface: line.surface, id: line.id }
    }
}

impl From<NewAudit> for AuditLine {
    fn from(new: NewAudit) -> Self {
        let NewAudit { tenant, key, act: Act { at, by, run, did, details } } = new;
        Self { tenant, key, at, by, run, did, details }
    }
}

impl From<AuditLine> for NewAudit {
    fn from(line: AuditLine) -> Self {
        let AuditLine { tenant, key, at, by, run, did, details } = line;
        Self { tenant, key, act: Act { at, by, run, did, details } }
    }
}

impl From<SnapshotKind> for FoldKind {
    fn from(kind: SnapshotKind) -> Self {
        match kind {
            SnapshotKind::Outline => Self::Outline,
            SnapshotKind::Transcript => Self::Transcript,
        }
    }
}

impl From<FoldKind> for SnapshotKind {
    fn from(kind: FoldKind) -> Self {
        match kind {
            FoldKind::Outline => Self::Outline,
            FoldKind::Transcript => Self::Transcript,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_whole_or_refused() {
        let entry = Entry::Beat { node: "n".into() };
        let out = Outgoing::new("beat.x".into(), "a.1".into(), entry, &[b"body"]).unwrap();
        let sum = format!("{:08x}", out.sum);
        let read = decode("beat.x", Some(&sum), &out.payload).unwrap();
        assert_eq!((&*read.line.id, &read.body[..]), ("a.1", &b"body"[..]));
        assert!(decode("beat.y", Some(&sum), &out.payload).is_err(), "another subject");
        assert!(decode("beat.x", None, &out.payload).is_err(), "no sum");
        for index in 0..out.payload.len() {
            let mut bytes = out.payload.to_vec();
            bytes[index] ^= 1;
            assert!(decode("beat.x", Some(&sum), &bytes.into()).is_err(), "byte {index}");
        }
    }

    #[test]
    fn a_documents_subject_is_read_back() {
        for (name, subject) in [
            ("token/ci", "document.token.ci"),
            ("a.b/*", "document.a=2eb.=2a"),
            ("a=>b", "document.a=3d=3eb"),
        ] {
            assert_eq!(document_subject(name), subject);
            let tokens = subject.strip_prefix("document.").unwrap();
            assert_eq!(document_name(tokens).as_deref(), Some(name));
        }
    }
}
