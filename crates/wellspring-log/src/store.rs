//! The contract of a storage backend.
//!
//! A store keeps opaque frames in order and rejects an append that does not continue the head.
//! Encoding, folding, readers and the decision which nodes are alive are implemented by the
//! [`Log`](crate::Log), once for all stores.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Serialize;
use wellspring_core::{InboxNo, Millis, RunId, Seq, ThreadId};

use crate::audit::{AuditEntry, AuditFilter, NewAudit};
use crate::document::{Document, DocumentFilter, Expected, Written};
use crate::due::{Due, DueQuery, NodeBeat};
use crate::inbox::{InboxEntry, NewCommand, PutAll};
pub use crate::run_state::RunState;
use crate::thread::{ThreadChange, ThreadFilter, ThreadInfo};
use crate::watch::Watch;

/// The future of a store's operation.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Called when the outcome of an append is known.
pub type AppendDone = Box<dyn FnOnce(Result<(), AppendError>) + Send>;

/// A storage backend for runs.
///
/// # Contract
///
/// 1. **Durable.** Acknowledged data is read back, by every process, also after `kill -9` of
///    this one (and after a power loss, if the store offers that and it is enabled).
/// 2. **Fenced.** An append whose `expected` is not the head changes nothing. So of two owners
///    only one continues, whatever the clocks show.
/// 3. **Closed.** After a terminal append, nothing is appended and no new command is put into
///    the inbox.
/// 4. **Dense records.** A read after record `n` starts with record `n + 1`.
/// 5. **Errors.** Every failure is an error, never a hang or a panic, and changes nothing. A
///    frame larger than [`frame_bytes_max`](Self::frame_bytes_max) is rejected with
///    [`AppendError::TooLarge`].
/// 6. **Created in one step.** The id, the name, the place in the thread, the first frame and
///    the owner of a new run are stored together or not at all.
/// 7. **Owners.** A run has an owner from its creation or adoption until a frame pauses or ends
///    it, or until its owner [releases](Self::release) it. Nothing else removes the owner,
///    except that a store may release the runs of a node that it knows for certain to have
///    ended, and delete the documents that the node [holds](crate::document::HELD). No clock is
///    involved.
/// 8. **Heartbeats.** Each [`beat`](Self::beat) of a node changes its number in
///    [`nodes`](Self::nodes), which lists every node that owns a running run.
/// 9. **Due.** [`due`](Self::due) returns every due run, in pages, ordered by time and then by
///    run. Runs that are due at once are found however many others wait.
/// 10. **Watched.** Once [`watch`](Self::watch) has returned, each append, inbox entry or
///     deletion by another process in that run wakes the watch. Changes to other runs do not,
///     except after a time in which changes may have been missed.
/// 11. **Inbox.** Commands are kept once per key, and all commands of one
///     [`put_inbox`](Self::put_inbox) are put together or not at all. Numbers increase in the
///     order of putting and are never used twice for one run; they need not be dense.
/// 12. **Audit.** Entries are kept once per key, outlive their runs, and have increasing
///     numbers per tenant, which need not be dense.
/// 13. **Documents** are written by compare-and-set: of two concurrent writers, one succeeds.
/// 14. **Threads** are listed per tenant in one query, ordered by their newest runs.
/// 15. **Bounded.** Every list has a maximum, and the filter of every list continues after the
///     last entry of a full page.
/// 16. **Undamaged.** Damaged data gives [`StoreError::Damaged`] or
///     [`StoreError::DamagedStore`], and is never returned. Everything else stays readable.
pub trait Store: Send + Sync + 'static {
    /// Creates a run with its first frame, unless its id exists, its name is used or its thread
    /// is busy.
    fn create(&self, new: NewRun, first: NewFrame) -> StoreFuture<'_, Created>;

    /// Appends a frame. Returns at once; `done` is called, on any thread, when the outcome is
    /// known. `done` must not block: it publishes the frame and may append the next one.
    fn append(&self, append: Append, done: AppendDone);

    /// Reads whole frames, starting with the one that holds the record after `after`, until
    /// `bytes_max` is exceeded (at least one frame, if there is one).
    fn read(&self, run: RunId, after: Seq, bytes_max: usize) -> StoreFuture<'_, Page>;

    /// Maximum size of a frame in bytes.
    fn frame_bytes_max(&self) -> usize;

    /// Reads a run's info; `None` if the run does not exist.
    fn info(&self, run: RunId) -> StoreFuture<'_, Option<RunInfo>>;

    /// Lists runs, newest first.
    fn list(&self, filter: RunFilter) -> StoreFuture<'_, Vec<RunInfo>>;

    /// A run and the runs that it continues, newest first, in one query. If a run was deleted,
    /// the thread's next older run follows. The history ends before a run of another tenant.
    /// Empty if the run does not exist.
    fn history(&self, query: HistoryQuery) -> StoreFuture<'_, Vec<PastRun>>;

    /// Watches changes of other processes to a run. The run need not exist yet.
    fn watch(&self, run: RunId) -> Watch;

    /// Puts commands into a run's inbox in one step: all of them, or none if a key belongs to a
    /// different command. A command that exists under its key is not put again, also if it has
    /// taken effect or the run has finished. Durable when the future resolves.
    fn put_inbox(&self, run: RunId, commands: Vec<NewCommand>) -> StoreFuture<'_, PutAll>;

    /// The commands after an entry that no frame has taken yet, oldest first.
    fn inbox(&self, run: RunId, after: InboxNo) -> StoreFuture<'_, Vec<InboxEntry>>;

    /// Writes a heartbeat for a node: one write, however many runs it owns.
    fn beat(&self, node: Box<str>) -> StoreFuture<'_, ()>;

    /// The last heartbeat of every node that owns a running run.
    fn nodes(&self) -> StoreFuture<'_, Vec<NodeBeat>>;

    /// Releases a running run, which is then due. Does nothing unless this node owns it in this
    /// epoch.
    fn release(&self, run: RunId, node: Box<str>, epoch: u64) -> StoreFuture<'_, ()>;

    /// A page of the runs that are due; see [`DueQuery`].
    fn due(&self, query: DueQuery) -> StoreFuture<'_, Vec<Due>>;

    /// Stores a snapshot of a fold at a record.
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

    /// Binds a surface's own id to a run, unless it is bound already. Returns the run that it
    /// is bound to.
    fn bind(&self, external: ExternalId, run: RunId) -> StoreFuture<'_, RunId>;

    /// The run that a surface's own id is bound to.
    fn resolve(&self, external: ExternalId) -> StoreFuture<'_, Option<RunId>>;

    /// Reads a [document](crate::document).
    fn document(&self, name: Box<str>) -> StoreFuture<'_, Option<Document>>;

    /// Writes a document, or deletes it if `text` is `None`. If the precondition fails, nothing
    /// changes.
    fn put_document(
        &self,
        name: Box<str>,
        text: Option<Box<str>>,
        expected: Expected,
    ) -> StoreFuture<'_, Written>;

    /// Lists documents by a prefix, ordered by name.
    fn documents(&self, filter: DocumentFilter) -> StoreFuture<'_, Vec<Document>>;

    /// Writes an audit entry, once per tenant and key. Returns its number. Deleting the run
    /// does not delete it. Beyond [`AUDIT_MAX`](crate::AUDIT_MAX), the tenant's oldest entry is
    /// dropped.
    fn put_audit(&self, entry: NewAudit) -> StoreFuture<'_, u64>;

    /// Audit entries, newest first.
    fn audit(&self, filter: AuditFilter) -> StoreFuture<'_, Vec<AuditEntry>>;

    /// Lists threads, the one with the newest run first.
    fn threads(&self, filter: ThreadFilter) -> StoreFuture<'_, Vec<ThreadInfo>>;

    /// Changes a thread's title or archive flag. `false` if the tenant has no such thread.
    fn change_thread(
        &self,
        tenant: Box<str>,
        thread: ThreadId,
        change: ThreadChange,
    ) -> StoreFuture<'_, bool>;

    /// Deletes a finished run and everything that belongs to it, in chunks. Its thread is
    /// deleted with its last run. `false` if the run does not exist.
    fn delete(&self, run: RunId) -> StoreFuture<'_, bool>;

    /// Copies everything to a new file while runs continue.
    fn backup(&self, to: PathBuf) -> StoreFuture<'_, ()>;

    /// Everything stored for a run besides its frames and its snapshots, for a copy in another
    /// store.
    fn export(&self, run: RunId) -> StoreFuture<'_, RunExport>;

    /// Puts commands into the inbox of a run that is being copied, under their original numbers and
    /// keys. Later commands of the run get higher numbers.
    fn import_inbox(&self, run: RunId, entries: Vec<InboxEntry>) -> StoreFuture<'_, ()>;

    /// The tenants that have runs or audit entries, in order.
    fn tenants(&self) -> StoreFuture<'_, Vec<Box<str>>>;

    /// Fails if the store cannot be written now, and answers within a few seconds. The default puts
    /// a document with an impossible expectation, which takes the write lock but writes nothing.
    fn ready(&self) -> StoreFuture<'_, ()> {
        let unchanged = self.put_document("ready".into(), None, Expected::Revision(u64::MAX));
        unchanged.map(|written| written.map(drop)).boxed()
    }

    /// Checks all stored data, and reports the damage. A store that cannot be damaged reports
    /// nothing.
    fn check(&self) -> StoreFuture<'_, Vec<Finding>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }
}

/// Implements all methods except `append`, `create` and `put_inbox` by forwarding them to
/// another store, which is in the field of this name. Use it for a store that counts, limits or
/// observes another one. If a method is named as well, each future goes through that method, with
/// the name of the operation.
#[macro_export]
macro_rules! forward_store {
    ($inner:ident) => { $crate::forward_store! { @all $inner, () } };
    ($inner:ident, $through:ident) => { $crate::forward_store! { @all $inner, ($through) } };
    (@all $inner:ident, $through:tt) => {
        $crate::forward_store! { @each $inner, $through;
            fn read(run: $crate::forwarded::RunId, after: $crate::forwarded::Seq, bytes_max: usize)
                -> $crate::Page;
            fn info(run: $crate::forwarded::RunId) -> Option<$crate::RunInfo>;
            fn list(filter: $crate::RunFilter) -> Vec<$crate::RunInfo>;
            fn inbox(run: $crate::forwarded::RunId, after: $crate::forwarded::InboxNo)
                -> Vec<$crate::InboxEntry>;
            fn history(query: $crate::HistoryQuery) -> Vec<$crate::PastRun>;
            fn beat(node: Box<str>) -> ();
            fn nodes() -> Vec<$crate::NodeBeat>;
            fn release(run: $crate::forwarded::RunId, node: Box<str>, epoch: u64) -> ();
            fn due(query: $crate::DueQuery) -> Vec<$crate::Due>;
            fn threads(filter: $crate::ThreadFilter) -> Vec<$crate::ThreadInfo>;
            fn change_thread(
                tenant: Box<str>,
                thread: $crate::forwarded::ThreadId,
                change: $crate::ThreadChange
            ) -> bool;
            fn put_snapshot(
                run: $crate::forwarded::RunId,
                kind: $crate::SnapshotKind,
                at: $crate::forwarded::Seq,
                body: $crate::forwarded::Bytes
            ) -> ();
            fn snapshot(
                run: $crate::forwarded::RunId,
                kind: $crate::SnapshotKind,
                at_most: $crate::forwarded::Seq
            ) -> Option<($crate::forwarded::Seq, $crate::forwarded::Bytes)>;
            fn bind(external: $crate::ExternalId, run: $crate::forwarded::RunId)
                -> $crate::forwarded::RunId;
            fn resolve(external: $crate::ExternalId) -> Option<$crate::forwarded::RunId>;
            fn document(name: Box<str>) -> Option<$crate::Document>;
            fn put_document(name: Box<str>, text: Option<Box<str>>, expected: $crate::Expected)
                -> $crate::Written;
            fn documents(filter: $crate::DocumentFilter) -> Vec<$crate::Document>;
            fn put_audit(entry: $crate::NewAudit) -> u64;
            fn audit(filter: $crate::AuditFilter) -> Vec<$crate::AuditEntry>;
            fn delete(run: $crate::forwarded::RunId) -> bool;
            fn backup(to: ::std::path::PathBuf) -> ();
            fn check() -> Vec<$crate::Finding>;
            fn ready() -> ();
            fn export(run: $crate::forwarded::RunId) -> $crate::RunExport;
            fn import_inbox(
                run: $crate::forwarded::RunId,
                entries: Vec<$crate::InboxEntry>
            ) -> ();
            fn tenants() -> Vec<Box<str>>;
        }

        fn watch(&self, run: $crate::forwarded::RunId) -> $crate::Watch {
            self.$inner.watch(run)
        }

        fn frame_bytes_max(&self) -> usize {
            self.$inner.frame_bytes_max()
        }
    };
    (@each $inner:ident, $through:tt;
        $(fn $name:ident($($value:ident: $kind:ty),*) -> $gives:ty;)*) => {$(
        fn $name(&self, $($value: $kind),*) -> $crate::StoreFuture<'_, $gives> {
            $crate::forward_store!(@one self, $through, $name, self.$inner.$name($($value),*))
        }
    )*};
    (@one $self:ident, (), $name:ident, $future:expr) => { $future };
    (@one $self:ident, ($through:ident), $name:ident, $future:expr) => {
        $self.$through(stringify!($name), $future)
    };
}

/// A run to be created.
#[derive(Clone, Debug, PartialEq)]
pub struct NewRun {
    /// Its id.
    pub run: RunId,
    /// Its thread.
    pub thread: ThreadId,
    /// Its agent's name.
    pub agent: Box<str>,
    /// The tenant that it belongs to.
    pub tenant: Box<str>,
    /// The run that it continues.
    pub after: Option<RunId>,
    /// The title in lists: the start of the input.
    pub title: Box<str>,
    /// A surface's own id of the run, if it has one.
    pub name: Option<ExternalId>,
    /// Create it only if it is the first run of its thread.
    pub is_first: bool,
    /// The node that starts it and owns it.
    pub node: Box<str>,
}

/// A frame to be stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewFrame {
    /// The number of records in it.
    pub count: u32,
    /// The records, encoded.
    pub body: Bytes,
    /// When it was cut.
    pub at: Millis,
    /// The run's state from this frame on, if it changes. A final state closes the run;
    /// `Paused` and final states release the owner in the same step.
    pub state: Option<RunState>,
    /// The inbox entries that this frame takes: it holds their effects, or they have none. From
    /// then on they are not read and do not count towards the limits; their keys stay.
    pub taken: Vec<InboxNo>,
    /// When a run that this frame pauses is due even without a command: the first of its
    /// questions or client calls expires then.
    pub deadline: Option<Millis>,
    /// The fold of the run up to and including this frame, as a [`SnapshotKind::Transcript`],
    /// stored in the same step. Set on the frame that ends a run.
    pub folded: Option<Bytes>,
    /// Searchable text for the run's thread, stored in the same step, at most
    /// [`SEARCH_BYTES_MAX`](crate::SEARCH_BYTES_MAX). Set on the frame that ends a run.
    pub search: Option<Box<str>>,
}

impl NewFrame {
    /// Checks that the frame is small enough for a store.
    ///
    /// # Errors
    ///
    /// [`AppendError::TooLarge`] past `max` bytes.
    pub fn check_size(&self, max: usize) -> Result<(), AppendError> {
        let bytes = self.body.len();
        if bytes > max { Err(AppendError::TooLarge { bytes, max }) } else { Ok(()) }
    }
}

/// A frame and the position that it must have.
#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    /// The run.
    pub run: RunId,
    /// The head that the frame continues.
    pub expected: Seq,
    /// The frame.
    pub frame: NewFrame,
    /// The new owner, if this frame adopts the run.
    pub adopt: Option<Adopt>,
}

/// An adoption.
#[derive(Clone, Debug, PartialEq)]
pub struct Adopt {
    /// The number of the owner, counted from 0.
    pub epoch: u64,
    /// The new owner.
    pub node: Box<str>,
}

/// The result of creating a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Created {
    /// The run was created.
    New,
    /// The id is used already; nothing changed.
    Exists(Box<RunInfo>),
    /// The name is bound to this run; nothing changed.
    Named(RunId),
    /// The thread has an unfinished run; nothing changed.
    ThreadBusy(RunId),
    /// The thread has runs, but this was to be its first; nothing changed.
    NotFirst,
}

/// Some frames of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The frames, in order. The first may start at or before the requested record.
    pub frames: Vec<StoredFrame>,
    /// The run's last record.
    pub head: Seq,
    /// Whether the run has finished, so that `head` is final.
    pub closed: bool,
}

/// A stored frame.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredFrame {
    /// Its first record.
    pub first: Seq,
    /// The number of records in it.
    pub count: u32,
    /// The records, encoded.
    pub body: Bytes,
}

impl StoredFrame {
    /// The number of its last record.
    #[must_use]
    pub fn last(&self) -> Seq {
        Seq(self.first.0 + u64::from(self.count) - 1)
    }
}

/// A run's data that can be read without its frames.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunInfo {
    /// Its id.
    pub run: RunId,
    /// Its thread.
    pub thread: ThreadId,
    /// Its agent's name.
    pub agent: Box<str>,
    /// The tenant that it belongs to.
    pub tenant: Box<str>,
    /// The run that it continues.
    pub after: Option<RunId>,
    /// The title in lists.
    pub title: Box<str>,
    /// Its state.
    pub state: RunState,
    /// Its last record.
    pub head: Seq,
    /// The number of its current owner, counted from 0.
    pub epoch: u64,
    /// The node that owns it; `None` without an owner.
    pub owner: Option<Box<str>>,
    /// When it was created.
    pub created_at: Millis,
    /// When its state last changed.
    pub updated_at: Millis,
}

/// Selects runs. Absent members match all runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFilter {
    /// Only runs of this tenant.
    pub tenant: Option<Box<str>>,
    /// Only runs of this thread.
    pub thread: Option<ThreadId>,
    /// Only runs of this agent.
    pub agent: Option<Box<str>>,
    /// Only runs in one of these states; all if empty.
    pub states: Vec<RunState>,
    /// Only runs created at or after this time.
    pub since: Option<Millis>,
    /// Only runs created before this time.
    pub before: Option<Millis>,
    /// Only runs older than this one: the last one of the previous page.
    pub after_run: Option<RunId>,
    /// Maximum number of runs; [`LIST_MAX`] if zero or larger.
    pub limit: usize,
}

impl RunFilter {
    /// The effective maximum of this list.
    #[must_use]
    pub fn limit_or_max(&self) -> usize {
        if self.limit == 0 { LIST_MAX } else { self.limit.min(LIST_MAX) }
    }

    /// Whether a run matches, ignoring the position in the list.
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

/// Maximum number of runs per list: a readable page, and a small response.
pub const LIST_MAX: usize = 1000;

/// Selects a run and the runs that it continues.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryQuery {
    /// The newest run.
    pub run: RunId,
    /// Maximum number of runs; [`LIST_MAX`] if larger.
    pub max: usize,
    /// Whether to include stored transcripts.
    pub folded: bool,
}

/// A run of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct PastRun {
    /// The run.
    pub info: RunInfo,
    /// Its latest [transcript snapshot](SnapshotKind::Transcript) and that snapshot's record,
    /// if requested and stored.
    pub folded: Option<(Seq, Bytes)>,
}

/// Everything stored for a run besides its frames and its snapshots.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunExport {
    /// The names that surfaces have for it.
    pub names: Vec<ExternalId>,
    /// Its inbox, in the order of the numbers.
    pub inbox: Vec<ExportedCommand>,
}

/// A command of an inbox.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportedCommand {
    /// The command.
    pub entry: InboxEntry,
    /// Whether a frame names it as applied.
    pub taken: bool,
}

/// The fold that a snapshot holds.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum SnapshotKind {
    /// An [`Outline`](wellspring_core::Outline): what is open.
    Outline,
    /// A [`Transcript`](wellspring_core::Transcript): everything that was said and done.
    Transcript,
}

/// A surface's own id of a run.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ExternalId {
    /// The tenant. Ids of different tenants are independent.
    pub tenant: Box<str>,
    /// The surface's name.
    pub surface: Box<str>,
    /// The surface's id of the run.
    pub id: Box<str>,
}

/// Damage that was found in a store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// The run that it belongs to, if known.
    pub run: Option<RunId>,
    /// What is damaged.
    pub what: String,
    /// What to do about it.
    pub remedy: &'static str,
}

/// A store operation failed.
///
/// It can be cloned, because all waiters of an append get it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such run.
    #[error("there is no run {0}")]
    NoRun(RunId),
    /// A limit was reached.
    #[error("{what} is full: at most {max}; {remedy}")]
    Full {
        /// What is full.
        what: &'static str,
        /// The limit.
        max: usize,
        /// What to do about it.
        remedy: &'static str,
    },
    /// Stored data of a run is damaged.
    #[error("run {run} is damaged at record {at}: {what}; delete it, or restore it from a backup")]
    Damaged {
        /// The run.
        run: RunId,
        /// The record.
        at: Seq,
        /// What was found.
        what: String,
    },
    /// The store itself is damaged, so that rows may be missing.
    #[error("the store is damaged ({what}); check it, and restore it from a backup")]
    DamagedStore {
        /// What was found.
        what: String,
    },
    /// A stored document is damaged.
    #[error("document `{0}` is damaged; delete it, or restore it from a backup")]
    DamagedDocument(Box<str>),
    /// The name or the prefix of a document is invalid.
    #[error("`{name}` does not name a document: {what}")]
    BadDocument {
        /// The name, possibly truncated.
        name: Box<str>,
        /// The reason.
        what: &'static str,
    },
    /// The title of a thread is invalid.
    #[error("failed to set the title: {0}")]
    BadTitle(&'static str),
    /// A run that has not finished cannot be deleted.
    #[error("run {0} is not finished; cancel it first")]
    Unfinished(RunId),
    /// A finished run takes no commands.
    #[error("run {0} has already finished")]
    Finished(RunId),
    /// The store does not support this operation.
    #[error("this store does not support {0}")]
    Unsupported(&'static str),
    /// The disk, the file or the network failed.
    #[error("the store failed while {while_doing}")]
    Failed {
        /// The operation.
        while_doing: &'static str,
        /// The cause.
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
    /// Another owner has appended, so this owner has lost the run.
    #[error("run {run} has moved on to record {head}: another owner took it over")]
    Conflict {
        /// The run.
        run: RunId,
        /// Its head.
        head: Seq,
    },
    /// The run has finished.
    #[error("run {0} is finished")]
    Closed(RunId),
    /// The frame is larger than the store accepts.
    #[error("a frame of {bytes} bytes exceeds the store's maximum of {max}")]
    TooLarge {
        /// The frame's size.
        bytes: usize,
        /// The maximum size.
        max: usize,
    },
    /// The store failed, and the outcome is unknown. Read back and compare.
    #[error(transparent)]
    Store(#[from] StoreError),
}
