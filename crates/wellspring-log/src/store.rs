//! What a backend keeps: the whole of its contract.
//!
//! A store knows nothing of readers, wake-ups or encodings; [`Log`](crate::Log) does that
//! once for all stores. It keeps opaque frames in order, and it refuses any append that
//! does not continue the head it has.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use wellspring_core::{InboxNo, Millis, RunId, Seq, ThreadId};

use crate::audit::{AuditEntry, AuditFilter, NewAudit};
use crate::document::{Document, DocumentFilter, Expected, Written};
use crate::inbox::{InboxEntry, NewCommand, PutAll};

/// What a store's slower operations give.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// What is called once an append is decided.
pub type AppendDone = Box<dyn FnOnce(Result<(), AppendError>) + Send>;

/// A place where runs are kept.
///
/// # Contract
///
/// 1. What was acknowledged is read back, by every process, also after `kill -9` of this one
///    (and, where the store offers it and was told to, after a power loss).
/// 2. An append whose `expected` is not the head changes nothing. So of two owners only one
///    goes on, whatever the clocks say.
/// 3. After a terminal append nothing is appended.
/// 4. Sequence numbers are dense: a read after `n` starts with `n + 1`.
/// 5. Every failure is an error, never a hang or a panic, and leaves what was there.
pub trait Store: Send + Sync + 'static {
    /// Creates a run with its first frame, unless its id exists, its name is taken or its thread
    /// is busy. The name is bound in the same step.
    fn create(&self, new: NewRun, first: NewFrame) -> StoreFuture<'_, Created>;

    /// Appends a frame. Returns at once; `done` is called, on any thread, once it is decided.
    /// It must not block: it publishes the frame and may append the next one.
    fn append(&self, append: Append, done: AppendDone);

    /// Reads whole frames, from the one that holds the record after `after`, until
    /// `bytes_max` is passed (at least one frame, if there is one).
    fn read(&self, run: RunId, after: Seq, bytes_max: usize) -> StoreFuture<'_, Page>;

    /// What is known of a run.
    fn info(&self, run: RunId) -> StoreFuture<'_, Option<RunInfo>>;

    /// Finds runs, newest first.
    fn list(&self, filter: RunFilter) -> StoreFuture<'_, Vec<RunInfo>>;

    /// Puts commands into a run's inbox in one step: all of them, or none if a key holds a
    /// different command. A command that is there already, under its key, is not put again,
    /// also when it has taken effect. Durable when it resolves.
    fn put_inbox(&self, run: RunId, commands: Vec<NewCommand>) -> StoreFuture<'_, PutAll>;

    /// The commands after an entry that have not taken effect, oldest first.
    fn inbox(&self, run: RunId, after: InboxNo) -> StoreFuture<'_, Vec<InboxEntry>>;

    /// Keeps the leases of `node` on these runs until then.
    fn renew(&self, node: Box<str>, runs: Vec<RunId>, until: Millis) -> StoreFuture<'_, ()>;

    /// Runs that are neither finished nor paused and whose lease ended before `now`.
    fn expired(&self, now: Millis, limit: usize) -> StoreFuture<'_, Vec<RunId>>;

    /// Keeps a snapshot of a fold at a record.
    fn put_snapshot(
        &self,
        run: RunId,
        kind: SnapshotKind,
        at: Seq,
        body: Bytes,
    ) -> StoreFuture<'_, ()>;

    /// The latest snapshot at or before a record.
    fn snapshot(
        &self,
        run: RunId,
        kind: SnapshotKind,
        at_most: Seq,
    ) -> StoreFuture<'_, Option<(Seq, Bytes)>>;

    /// Says that a surface's own id means this run; the first to say so wins, and the run that
    /// it means is returned.
    fn bind(&self, external: ExternalId, run: RunId) -> StoreFuture<'_, RunId>;

    /// The run that a surface's own id means.
    fn resolve(&self, external: ExternalId) -> StoreFuture<'_, Option<RunId>>;

    /// Reads a [document](crate::document).
    fn document(&self, name: Box<str>) -> StoreFuture<'_, Option<Document>>;

    /// Writes a document or, if `text` is `None`, deletes it. If what is there is not what is
    /// expected, nothing changes.
    fn put_document(
        &self,
        name: Box<str>,
        text: Option<Box<str>>,
        expected: Expected,
    ) -> StoreFuture<'_, Written>;

    /// Lists documents by a prefix, ordered by name.
    fn documents(&self, filter: DocumentFilter) -> StoreFuture<'_, Vec<Document>>;

    /// Keeps what somebody did, once per tenant and key, and gives its number. Deleting the run
    /// does not touch it; past [`AUDIT_MAX`](crate::AUDIT_MAX) the tenant's oldest goes.
    fn put_audit(&self, entry: NewAudit) -> StoreFuture<'_, u64>;

    /// What was done, newest first.
    fn audit(&self, filter: AuditFilter) -> StoreFuture<'_, Vec<AuditEntry>>;

    /// Deletes a finished run and all that belongs to it, in chunks. `false` if there is none.
    fn delete(&self, run: RunId) -> StoreFuture<'_, bool>;

    /// Copies everything to a new file while runs go on.
    fn backup(&self, to: PathBuf) -> StoreFuture<'_, ()>;

    /// Changes whenever another process has written something. In-process writes are not
    /// reported: whoever made them knows.
    fn foreign_changes(&self) -> watch::Receiver<u64>;
}

/// Forwards to another store, the field of this name, what a wrapper leaves as it is: everything
/// but the ways in: `append`, `create` and `put_inbox`.
#[macro_export]
macro_rules! forward_store {
    ($inner:ident) => {
        $crate::forward_store! { $inner;
            fn read(run: ::wellspring_core::RunId, after: ::wellspring_core::Seq, bytes_max: usize)
                -> $crate::Page;
            fn info(run: ::wellspring_core::RunId) -> Option<$crate::RunInfo>;
            fn list(filter: $crate::RunFilter) -> Vec<$crate::RunInfo>;
            fn inbox(run: ::wellspring_core::RunId, after: ::wellspring_core::InboxNo)
                -> Vec<$crate::InboxEntry>;
            fn renew(
                node: Box<str>,
                runs: Vec<::wellspring_core::RunId>,
                until: ::wellspring_core::Millis
            ) -> ();
            fn expired(now: ::wellspring_core::Millis, limit: usize)
                -> Vec<::wellspring_core::RunId>;
            fn put_snapshot(
                run: ::wellspring_core::RunId,
                kind: $crate::SnapshotKind,
                at: ::wellspring_core::Seq,
                body: ::bytes::Bytes
            ) -> ();
            fn snapshot(
                run: ::wellspring_core::RunId,
                kind: $crate::SnapshotKind,
                at_most: ::wellspring_core::Seq
            ) -> Option<(::wellspring_core::Seq, ::bytes::Bytes)>;
            fn bind(external: $crate::ExternalId, run: ::wellspring_core::RunId)
                -> ::wellspring_core::RunId;
            fn resolve(external: $crate::ExternalId) -> Option<::wellspring_core::RunId>;
            fn document(name: Box<str>) -> Option<$crate::Document>;
            fn put_document(name: Box<str>, text: Option<Box<str>>, expected: $crate::Expected)
                -> $crate::Written;
            fn documents(filter: $crate::DocumentFilter) -> Vec<$crate::Document>;
            fn put_audit(entry: $crate::NewAudit) -> u64;
            fn audit(filter: $crate::AuditFilter) -> Vec<$crate::AuditEntry>;
            fn delete(run: ::wellspring_core::RunId) -> bool;
            fn backup(to: ::std::path::PathBuf) -> ();
        }

        fn foreign_changes(&self) -> ::tokio::sync::watch::Receiver<u64> {
            self.$inner.foreign_changes()
        }
    };
    ($inner:ident; $(fn $name:ident($($value:ident: $kind:ty),*) -> $gives:ty;)*) => {$(
        fn $name(&self, $($value: $kind),*) -> $crate::StoreFuture<'_, $gives> {
            self.$inner.$name($($value),*)
        }
    )*};
}

/// A run that is about to exist.
#[derive(Clone, Debug, PartialEq)]
pub struct NewRun {
    /// Its id.
    pub run: RunId,
    /// Its thread.
    pub thread: ThreadId,
    /// Its agent's name.
    pub agent: Box<str>,
    /// Whose it is.
    pub tenant: Box<str>,
    /// The run that it continues.
    pub after: Option<RunId>,
    /// What a list shows: the beginning of the input.
    pub title: Box<str>,
    /// What a surface calls it, if that has a name of its own for it.
    pub name: Option<ExternalId>,
    /// Whether it is only to be created as its thread's first.
    pub is_first: bool,
    /// Who starts it, and until when it is trusted to be alive.
    pub lease: Lease,
}

/// Who owns a run, and until when that is believed without asking.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Lease {
    /// The owner.
    pub node: Box<str>,
    /// Until when.
    pub until: Millis,
}

/// A frame on its way into a store.
#[derive(Clone, Debug, PartialEq)]
pub struct NewFrame {
    /// How many records it holds.
    pub count: u32,
    /// The records, encoded.
    pub body: Bytes,
    /// When it was made.
    pub at: Millis,
    /// What it makes of the run, where it changes that. A final state closes the run, and
    /// `Paused` or a final state gives up the lease, in the same step.
    pub state: Option<RunState>,
    /// The inbox entries whose effects it holds. From then on they are not read and take no
    /// room; their keys stay.
    pub taken: Vec<InboxNo>,
}

impl NewFrame {
    /// Whether a store takes a frame of this size.
    ///
    /// # Errors
    ///
    /// [`AppendError::TooLarge`] past [`FRAME_BYTES_MAX`].
    pub fn check_size(&self) -> Result<(), AppendError> {
        let (bytes, max) = (self.body.len(), FRAME_BYTES_MAX);
        if bytes > max { Err(AppendError::TooLarge { bytes, max }) } else { Ok(()) }
    }
}

/// The most bytes of one frame: an event as large as this carries a file and should name one
/// instead; a reader has to hold it whole.
pub const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A frame and the place it must have.
#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    /// The run.
    pub run: RunId,
    /// The head that the frame continues.
    pub expected: Seq,
    /// The frame.
    pub frame: NewFrame,
    /// Whoever appends takes the run over with it.
    pub adopt: Option<Adopt>,
}

/// A take-over.
#[derive(Clone, Debug, PartialEq)]
pub struct Adopt {
    /// Counts the owners.
    pub epoch: u64,
    /// The new owner.
    pub lease: Lease,
}

/// What became of a creation.
#[derive(Clone, Debug, PartialEq)]
pub enum Created {
    /// The run is there now.
    New,
    /// The id was taken; nothing changed.
    Exists(Box<RunInfo>),
    /// The name means this run already; nothing changed.
    Named(RunId),
    /// The thread has an unfinished run; nothing changed.
    ThreadBusy(RunId),
    /// The thread has runs, and this was to be its first; nothing changed.
    NotFirst,
}

/// Some frames of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The frames, in order. The first may start at or before the record asked for.
    pub frames: Vec<StoredFrame>,
    /// The last record that is kept now.
    pub head: Seq,
    /// Whether it is the run's last.
    pub closed: bool,
}

/// A frame that is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredFrame {
    /// Its first record.
    pub first: Seq,
    /// How many records it holds.
    pub count: u32,
    /// The records, encoded.
    pub body: Bytes,
}

impl StoredFrame {
    /// Its last record.
    #[must_use]
    pub fn last(&self) -> Seq {
        Seq(self.first.0 + u64::from(self.count) - 1)
    }
}

/// What is known of a run without reading its frames.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunInfo {
    /// Its id.
    pub run: RunId,
    /// Its thread.
    pub thread: ThreadId,
    /// Its agent's name.
    pub agent: Box<str>,
    /// Whose it is.
    pub tenant: Box<str>,
    /// The run that it continues.
    pub after: Option<RunId>,
    /// What a list shows.
    pub title: Box<str>,
    /// How far it is.
    pub state: RunState,
    /// Its last record.
    pub head: Seq,
    /// Counts the owners.
    pub epoch: u64,
    /// Its owner, while it has one.
    pub lease: Option<Lease>,
    /// When it began.
    pub created_at: Millis,
    /// When its state last changed.
    pub updated_at: Millis,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It has an owner, or lost one.
    Running,
    /// It waits for an answer.
    Paused,
    /// It came to an end of its own.
    Completed,
    /// Somebody stopped it.
    Cancelled,
    /// It could not go on.
    Failed,
}

impl RunState {
    /// Whether nothing more will be appended.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Completed | Self::Cancelled | Self::Failed => true,
            Self::Running | Self::Paused => false,
        }
    }
}

/// Which runs to find; absent members match all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFilter {
    /// Of this tenant.
    pub tenant: Option<Box<str>>,
    /// Of this thread.
    pub thread: Option<ThreadId>,
    /// Of this agent.
    pub agent: Option<Box<str>>,
    /// In one of these states; all when empty.
    pub states: Vec<RunState>,
    /// Created at or after.
    pub since: Option<Millis>,
    /// Created before.
    pub before: Option<Millis>,
    /// Older than this run: where the page before ended.
    pub after_run: Option<RunId>,
    /// At most so many; [`LIST_MAX`] when zero or more than that.
    pub limit: usize,
}

impl RunFilter {
    /// How many runs a list gives at most.
    #[must_use]
    pub fn limit_or_max(&self) -> usize {
        if self.limit == 0 { LIST_MAX } else { self.limit.min(LIST_MAX) }
    }

    /// Whether a run is one of them, its place in the list aside.
    #[must_use]
    pub fn matches(&self, info: &RunInfo) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| *tenant == info.tenant)
            && self.thread.is_none_or(|thread| thread == info.thread)
            && self.agent.as_ref().is_none_or(|agent| *agent == info.agent)
            && (self.states.is_empty() || self.states.contains(&info.state))
            && self.since.is_none_or(|since| info.created_at >= since)
            && self.before.is_none_or(|before| info.created_at < before)
    }
}

/// The most runs a list gives at once: a page people can read, an answer that stays small.
pub const LIST_MAX: usize = 1000;

/// Which fold a snapshot is of.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum SnapshotKind {
    /// The text-free one.
    Outline,
    /// The whole one.
    Transcript,
}

/// A surface's own id of a run.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ExternalId {
    /// Whose; ids of different tenants never meet.
    pub tenant: Box<str>,
    /// Which surface.
    pub surface: Box<str>,
    /// What it calls the run.
    pub id: Box<str>,
}

/// A store could not do what it was asked.
///
/// It can be cloned, because everyone who waits for the same append is told.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such run.
    #[error("there is no run {0}")]
    NoRun(RunId),
    /// A named maximum was reached.
    #[error("{what} is full: at most {max}; {remedy}")]
    Full {
        /// What is full.
        what: &'static str,
        /// How much fits.
        max: usize,
        /// What to do about it.
        remedy: &'static str,
    },
    /// What was kept does not read back.
    #[error("run {run} is damaged at record {at}: {what}; restore it from a backup")]
    Damaged {
        /// Which run.
        run: RunId,
        /// Where.
        at: Seq,
        /// What was found.
        what: String,
    },
    /// A document that was kept does not read back.
    #[error("document `{0}` is damaged; delete it, or restore it from a backup")]
    DamagedDocument(Box<str>),
    /// The name or the prefix of a document is not allowed.
    #[error("`{name}` does not name a document: {what}")]
    BadDocument {
        /// The name, or its beginning.
        name: Box<str>,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A run that still goes on cannot be deleted.
    #[error("run {0} is not finished; cancel it first")]
    Unfinished(RunId),
    /// The store does not offer this.
    #[error("{0} is not something this store can do")]
    Unsupported(&'static str),
    /// The disk, the file or the network failed.
    #[error("the store failed while {while_doing}")]
    Failed {
        /// What was tried.
        while_doing: &'static str,
        /// What happened.
        #[source]
        cause: Arc<dyn std::error::Error + Send + Sync>,
    },
}

impl StoreError {
    /// The disk, the file or the network failed.
    pub fn failed(
        while_doing: &'static str,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Failed { while_doing, cause: Arc::from(cause.into()) }
    }
}

/// An append was refused.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// Somebody else has appended: this owner is one no longer.
    #[error("run {run} has moved on to record {head}: another owner took it over")]
    Conflict {
        /// Which run.
        run: RunId,
        /// Its head.
        head: Seq,
    },
    /// The run is over.
    #[error("run {0} is finished")]
    Closed(RunId),
    /// One frame is larger than a store takes.
    #[error("a frame of {bytes} bytes is more than the {max} a store takes")]
    TooLarge {
        /// How large.
        bytes: usize,
        /// How large it may be.
        max: usize,
    },
    /// The store failed; nobody knows whether the frame is there. Read back and compare.
    #[error(transparent)]
    Store(#[from] StoreError),
}
