//! The contract of a backend.
//!
//! A store keeps opaque frames in order and refuses an append that does not continue the head.
//! Encoding, folding, readers and the judgement which nodes are alive are the
//! [`Log`](crate::Log)'s, once for all stores.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use wellspring_core::{InboxNo, Millis, RunId, Seq, ThreadId};

use crate::audit::{AuditEntry, AuditFilter, NewAudit};
use crate::document::{Document, DocumentFilter, Expected, Written};
use crate::due::{Due, DueQuery, NodeBeat};
use crate::inbox::{InboxEntry, NewCommand, PutAll};
use crate::thread::{ThreadChange, ThreadFilter, ThreadInfo};
use crate::watch::Watch;

/// The future of a store's operation.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Called once an append is decided.
pub type AppendDone = Box<dyn FnOnce(Result<(), AppendError>) + Send>;

/// A place where runs are kept.
///
/// # Contract
///
/// 1. **Durable.** What was acknowledged is read back, by every process, also after `kill -9` of
///    this one (and, if the store offers it and was told to, after a power loss).
/// 2. **Fenced.** An append whose `expected` is not the head changes nothing. So of two owners
///    only one continues, whatever the clocks say.
/// 3. **Closed.** After a terminal append nothing is appended, and no new command is put into the
///    inbox.
/// 4. **Dense records.** A read after record `n` starts with record `n + 1`.
/// 5. **Errors.** Every failure is an error, never a hang or a panic, and leaves what was there.
///    A frame larger than [`frame_bytes_max`](Self::frame_bytes_max) is refused by name.
/// 6. **Created in one step.** The id, the name, the place in the thread, the first frame and the
///    owner of a new run are there together or not at all.
/// 7. **Owners.** A run has an owner from its creation or adoption until a frame pauses or ends
///    it, or until its owner [releases](Self::release) it. Nothing else takes the owner away,
///    except that a store that knows for certain that a node has ended may release its runs.
///    No clock is involved.
/// 8. **Beats.** Each [`beat`](Self::beat) of a node changes its number in
///    [`nodes`](Self::nodes), which lists every node that owns a running run.
/// 9. **Due.** [`due`](Self::due) gives everything that is due, in pages, ordered by time and then
///    by run. What is due at once is found however much else waits.
/// 10. **Watched.** Once [`watch`](Self::watch) has returned, each append, inbox entry or deletion
///     that another process makes to that run wakes the watch. What happens to other runs does
///     not, except after a time in which changes may have been missed.
/// 11. **Inbox.** Commands are kept once per key, and all commands of one
///     [`put_inbox`](Self::put_inbox) together or not at all. Numbers increase in the order of
///     putting and are never used twice for one run; they need not be dense.
/// 12. **Audit.** Entries are kept once per key, outlive their runs, and have increasing numbers
///     per tenant, which need not be dense.
/// 13. **Documents** are written by compare-and-set; of two writers one wins.
/// 14. **Threads** are listed per tenant in one query, ordered by their newest runs.
/// 15. **Bounded.** Every list has a maximum, and a page that is full says where to continue.
/// 16. **Undamaged.** What is damaged is [`StoreError::Damaged`] or [`StoreError::DamagedStore`],
///     and is never served. Everything else stays readable.
pub trait Store: Send + Sync + 'static {
    /// Creates a run with its first frame, unless its id exists, its name is taken or its thread
    /// is busy.
    fn create(&self, new: NewRun, first: NewFrame) -> StoreFuture<'_, Created>;

    /// Appends a frame. Returns at once; `done` is called, on any thread, once it is decided.
    /// `done` must not block: it publishes the frame and may append the next one.
    fn append(&self, append: Append, done: AppendDone);

    /// Reads whole frames, from the one that holds the record after `after`, until
    /// `bytes_max` is passed (at least one frame, if there is one).
    fn read(&self, run: RunId, after: Seq, bytes_max: usize) -> StoreFuture<'_, Page>;

    /// The most bytes of one frame.
    fn frame_bytes_max(&self) -> usize;

    /// Describes a run.
    fn info(&self, run: RunId) -> StoreFuture<'_, Option<RunInfo>>;

    /// Finds runs, newest first.
    fn list(&self, filter: RunFilter) -> StoreFuture<'_, Vec<RunInfo>>;

    /// A run and the runs that it continues, newest first, in one query. Where a run was deleted,
    /// the thread's next older run follows. Runs of other tenants end the history. Empty if
    /// there is no such run.
    fn history(&self, query: HistoryQuery) -> StoreFuture<'_, Vec<PastRun>>;

    /// Wakes for what other processes do to a run. The run need not exist yet.
    fn watch(&self, run: RunId) -> Watch;

    /// Puts commands into a run's inbox in one step: all of them, or none if a key holds a
    /// different command. A command that is there already, under its key, is not put again,
    /// also when it has taken effect or the run is over. Durable when it resolves.
    fn put_inbox(&self, run: RunId, commands: Vec<NewCommand>) -> StoreFuture<'_, PutAll>;

    /// The commands after an entry that no frame has taken, oldest first.
    fn inbox(&self, run: RunId, after: InboxNo) -> StoreFuture<'_, Vec<InboxEntry>>;

    /// Gives a sign of life for a node: one write, however many runs it owns.
    fn beat(&self, node: Box<str>) -> StoreFuture<'_, ()>;

    /// The last beat of every node that owns a running run.
    fn nodes(&self) -> StoreFuture<'_, Vec<NodeBeat>>;

    /// Gives up a running run, which is due from then on. Nothing happens unless this node owns
    /// it in this epoch.
    fn release(&self, run: RunId, node: Box<str>, epoch: u64) -> StoreFuture<'_, ()>;

    /// A page of the runs that someone has to look at; see [`DueQuery`].
    fn due(&self, query: DueQuery) -> StoreFuture<'_, Vec<Due>>;

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

    /// Lets a surface's own id mean this run, unless it means a run already. Gives the run that
    /// it means.
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

    /// Keeps an audit entry, once per tenant and key, and gives its number. Deleting the run
    /// does not delete it; past [`AUDIT_MAX`](crate::AUDIT_MAX) the tenant's oldest goes.
    fn put_audit(&self, entry: NewAudit) -> StoreFuture<'_, u64>;

    /// Audit entries, newest first.
    fn audit(&self, filter: AuditFilter) -> StoreFuture<'_, Vec<AuditEntry>>;

    /// Lists threads, the one with the newest run first.
    fn threads(&self, filter: ThreadFilter) -> StoreFuture<'_, Vec<ThreadInfo>>;

    /// Changes a thread's title, or whether it is archived. `false` if this tenant has no such
    /// thread.
    fn change_thread(
        &self,
        tenant: Box<str>,
        thread: ThreadId,
        change: ThreadChange,
    ) -> StoreFuture<'_, bool>;

    /// Deletes a finished run and all that belongs to it, in chunks. Its thread goes with its
    /// last run. `false` if there is no such run.
    fn delete(&self, run: RunId) -> StoreFuture<'_, bool>;

    /// Copies everything to a new file while runs go on.
    fn backup(&self, to: PathBuf) -> StoreFuture<'_, ()>;

    /// What is kept of a run besides its frames and its snapshots, for a copy in another store.
    fn export(&self, run: RunId) -> StoreFuture<'_, RunExport>;

    /// Puts commands into the inbox of a run that is being copied, under the numbers and the keys
    /// that they had. Its next commands get higher numbers.
    fn import_inbox(&self, run: RunId, entries: Vec<InboxEntry>) -> StoreFuture<'_, ()>;

    /// The tenants that have runs or audit entries, in order.
    fn tenants(&self) -> StoreFuture<'_, Vec<Box<str>>>;

    /// Fails if nothing can be written now, and answers within a few seconds. By default a
    /// document that is not there is not changed, which takes the store's lock and writes nothing.
    fn ready(&self) -> StoreFuture<'_, ()> {
        let unchanged = self.put_document("ready".into(), None, Expected::Revision(u64::MAX));
        unchanged.map(|written| written.map(drop)).boxed()
    }

    /// Looks at everything that is kept, and reports what is damaged. A store that nothing can
    /// damage has nothing to report.
    fn check(&self) -> StoreFuture<'_, Vec<Finding>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }
}

/// Forwards everything but `append`, `create` and `put_inbox` to another store, the field of this
/// name: for a store that counts, limits or observes what another one keeps. With the name of a
/// method beside it, each future goes through that method, with the name of the operation.
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
    /// Create it only as the first run of its thread.
    pub is_first: bool,
    /// The node that starts it and owns it.
    pub node: Box<str>,
}

/// A frame on its way into a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewFrame {
    /// How many records it holds.
    pub count: u32,
    /// The records, encoded.
    pub body: Bytes,
    /// When it was made.
    pub at: Millis,
    /// The run's state from this frame on, if it changes. A final state closes the run; `Paused`
    /// or a final state gives up the owner, in the same step.
    pub state: Option<RunState>,
    /// The inbox entries that are done with this frame: it holds their effects, or they have
    /// none. From then on they are not read and take no room; their keys stay.
    pub taken: Vec<InboxNo>,
    /// When a run that this frame pauses is due although nothing came in: the first of its
    /// questions or client calls expires then.
    pub deadline: Option<Millis>,
    /// The run up to and including this frame, folded: a [`SnapshotKind::Transcript`], kept in
    /// the same step. The frame that ends a run carries it.
    pub folded: Option<Bytes>,
    /// Text by which the run's thread is found, kept in the same step, at most
    /// [`SEARCH_BYTES_MAX`](crate::SEARCH_BYTES_MAX). The frame that ends a run carries it.
    pub search: Option<Box<str>>,
}

impl NewFrame {
    /// Whether it is small enough for a store.
    ///
    /// # Errors
    ///
    /// [`AppendError::TooLarge`] past `max` bytes.
    pub fn check_size(&self, max: usize) -> Result<(), AppendError> {
        let bytes = self.body.len();
        if bytes > max { Err(AppendError::TooLarge { bytes, max }) } else { Ok(()) }
    }
}

/// A frame and the place it must have.
#[derive(Clone, Debug, PartialEq)]
pub struct Append {
    /// The run.
    pub run: RunId,
    /// The head that the frame continues.
    pub expected: Seq,
    /// The frame.
    pub frame: NewFrame,
    /// The run's owner from this frame on, if it changes.
    pub adopt: Option<Adopt>,
}

/// A take-over.
#[derive(Clone, Debug, PartialEq)]
pub struct Adopt {
    /// Counts the owners.
    pub epoch: u64,
    /// The new owner.
    pub node: Box<str>,
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
    /// The node that owns it, while it has an owner.
    pub owner: Option<Box<str>>,
    /// When it began.
    pub created_at: Millis,
    /// When its state last changed.
    pub updated_at: Millis,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It has an owner, or lost its owner.
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

/// Asks for a run and the runs that it continues.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryQuery {
    /// The newest run.
    pub run: RunId,
    /// At most so many; [`LIST_MAX`] if more than that.
    pub max: usize,
    /// Whether the folded form is wanted.
    pub folded: bool,
}

/// A run of a history.
#[derive(Clone, Debug, PartialEq)]
pub struct PastRun {
    /// The run.
    pub info: RunInfo,
    /// Its latest [transcript snapshot](SnapshotKind::Transcript), if it is wanted and there is
    /// one, and the record that it is of.
    pub folded: Option<(Seq, Bytes)>,
}

/// What is kept of a run besides its frames and its snapshots.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunExport {
    /// What surfaces call it.
    pub names: Vec<ExternalId>,
    /// Its inbox, in the order of the numbers.
    pub inbox: Vec<ExportedCommand>,
}

/// A command of an inbox.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportedCommand {
    /// The command.
    pub entry: InboxEntry,
    /// Whether a frame has taken it.
    pub taken: bool,
}

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

/// Something that is damaged in a store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// The run that it belongs to, where that is known.
    pub run: Option<RunId>,
    /// What is damaged, and where.
    pub what: String,
    /// What to do about it.
    pub remedy: &'static str,
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
    #[error("run {run} is damaged at record {at}: {what}; delete it, or restore it from a backup")]
    Damaged {
        /// Which run.
        run: RunId,
        /// Where.
        at: Seq,
        /// What was found.
        what: String,
    },
    /// The store itself is damaged: what is not found in it may have been there.
    #[error("the store is damaged ({what}); check it, and restore it from a backup")]
    DamagedStore {
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
    /// The title of a thread is not allowed.
    #[error("failed to set the title: {0}")]
    BadTitle(&'static str),
    /// A run that still goes on cannot be deleted.
    #[error("run {0} is not finished; cancel it first")]
    Unfinished(RunId),
    /// A run that is over takes no more commands.
    #[error("run {0} has already finished")]
    Finished(RunId),
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
