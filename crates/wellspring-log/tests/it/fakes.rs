//! A store that wraps another one and fails as instructed.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use futures::FutureExt;
use wellspring_core::{AgentNo, InboxNo, Record, RunId, Seq, ThreadId};
use wellspring_log::{
    Append, AppendDone, AuditEntry, AuditFilter, Created, Document, DocumentFilter, Due, DueQuery,
    Expected, ExternalId, HistoryQuery, InboxEntry, MemoryStore, NewAudit, NewCommand, NewFrame,
    NewRun, NodeBeat, Page, PastRun, PutAll, RunExport, RunFilter, RunInfo, SnapshotKind, Store,
    StoreError, StoreFuture, ThreadChange, ThreadFilter, ThreadInfo, Watch, Written, codec,
};

/// What happens to an append.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// The append succeeds.
    None,
    /// It fails, and the frame is not stored.
    Lost,
    /// It fails, but the frame is stored.
    Stored,
    /// It fails, and the frame is stored just before the next append.
    Late,
}

pub(crate) struct Faulty {
    inner: MemoryStore,
    plan: Mutex<VecDeque<Fault>>,
    late: Mutex<Option<Append>>,
    held: Mutex<Option<VecDeque<(Append, AppendDone)>>>,
    /// Every append and every read fails from now on.
    pub(crate) broken: AtomicBool,
    /// Heartbeats are dropped, as if the process were frozen.
    pub(crate) frozen: AtomicBool,
    /// Another node appends right before every adoption.
    pub(crate) racing: AtomicBool,
    pub(crate) appends: AtomicUsize,
    /// The number of heartbeats written.
    pub(crate) beats: AtomicUsize,
    /// The number of page reads.
    pub(crate) reads: AtomicUsize,
    pub(crate) snapshots: Mutex<Vec<(SnapshotKind, Seq)>>,
}

impl Faulty {
    pub(crate) fn new(inner: MemoryStore) -> Self {
        Self {
            inner,
            plan: Mutex::default(),
            late: Mutex::default(),
            held: Mutex::default(),
            broken: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
            racing: AtomicBool::new(false),
            appends: AtomicUsize::new(0),
            beats: AtomicUsize::new(0),
            reads: AtomicUsize::new(0),
            snapshots: Mutex::default(),
        }
    }

    /// Sets the faults of the next appends.
    pub(crate) fn plan(&self, faults: impl IntoIterator<Item = Fault>) {
        self.plan.lock().unwrap().extend(faults);
    }

    /// Holds all appends until they are released.
    pub(crate) fn hold(&self) {
        self.held.lock().unwrap().get_or_insert_default();
    }

    /// Releases the oldest held append.
    pub(crate) fn release_one(&self) -> bool {
        let held = self.held.lock().unwrap().as_mut().and_then(VecDeque::pop_front);
        let Some((append, done)) = held else { return false };
        self.inner.append(append, done);
        true
    }

    /// Releases all appends, and holds no further ones.
    pub(crate) fn release(&self) {
        // Not while holding the lock: a released append starts the next one.
        let held = self.held.lock().unwrap().take().unwrap_or_default();
        for (append, done) in held {
            self.inner.append(append, done);
        }
    }
}

fn broken<T>() -> Result<T, StoreError> {
    Err(StoreError::failed("pretending", "the disk is gone"))
}

impl Store for Faulty {
    fn append(&self, append: Append, done: AppendDone) {
        self.appends.fetch_add(1, Ordering::SeqCst);
        if let Some(held) = &mut *self.held.lock().unwrap() {
            held.push_back((append, done));
            return;
        }
        if self.broken.load(Ordering::SeqCst) {
            return done(broken().map_err(Into::into));
        }
        if append.adopt.is_some() && self.racing.load(Ordering::SeqCst) {
            let seq = append.expected.next();
            let event = crate::runs::part_started(u32::try_from(seq.0).unwrap());
            let record = Record { seq, agent: AgentNo::ROOT, at: append.frame.at, event };
            let body = codec::encode(&[record]).unwrap().into();
            let frame = NewFrame { count: 1, body, at: append.frame.at, ..NewFrame::default() };
            let first = Append { frame, adopt: None, ..append.clone() };
            self.inner.append(first, Box::new(drop));
        }
        let late = self.late.lock().unwrap().take();
        if let Some(late) = late {
            self.inner.append(late, Box::new(drop));
        }
        let fault = self.plan.lock().unwrap().pop_front().unwrap_or(Fault::None);
        match fault {
            Fault::None => return self.inner.append(append, done),
            Fault::Lost => {}
            Fault::Stored => self.inner.append(append, Box::new(drop)),
            Fault::Late => *self.late.lock().unwrap() = Some(append),
        }
        done(broken().map_err(Into::into));
    }

    fn create(&self, new: NewRun, first: NewFrame) -> StoreFuture<'_, Created> {
        let fault = self.plan.lock().unwrap().pop_front().unwrap_or(Fault::None);
        match fault {
            Fault::None => self.inner.create(new, first),
            Fault::Lost | Fault::Late => std::future::ready(broken()).boxed(),
            Fault::Stored => {
                self.inner.create(new, first).map(|created| created.and_then(|_| broken())).boxed()
            }
        }
    }

    fn read(&self, run: RunId, after: Seq, bytes_max: usize) -> StoreFuture<'_, Page> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        if self.broken.load(Ordering::SeqCst) {
            return std::future::ready(broken()).boxed();
        }
        self.inner.read(run, after, bytes_max)
    }

    fn beat(&self, node: Box<str>) -> StoreFuture<'_, ()> {
        self.beats.fetch_add(1, Ordering::SeqCst);
        if self.frozen.load(Ordering::SeqCst) {
            return std::future::ready(broken()).boxed();
        }
        self.inner.beat(node)
    }

    fn put_snapshot(
        &self,
        run: RunId,
        kind: SnapshotKind,
        at: Seq,
        body: Bytes,
    ) -> StoreFuture<'_, ()> {
        self.snapshots.lock().unwrap().push((kind, at));
        self.inner.put_snapshot(run, kind, at, body)
    }

    fn info(&self, run: RunId) -> StoreFuture<'_, Option<RunInfo>> {
        self.inner.info(run)
    }

    fn list(&self, filter: RunFilter) -> StoreFuture<'_, Vec<RunInfo>> {
        self.inner.list(filter)
    }

    fn put_inbox(&self, run: RunId, commands: Vec<NewCommand>) -> StoreFuture<'_, PutAll> {
        self.inner.put_inbox(run, commands)
    }

    fn inbox(&self, run: RunId, after: InboxNo) -> StoreFuture<'_, Vec<InboxEntry>> {
        self.inner.inbox(run, after)
    }

    fn nodes(&self) -> StoreFuture<'_, Vec<NodeBeat>> {
        self.inner.nodes()
    }

    fn release(&self, run: RunId, node: Box<str>, epoch: u64) -> StoreFuture<'_, ()> {
        self.inner.release(run, node, epoch)
    }

    fn due(&self, query: DueQuery) -> StoreFuture<'_, Vec<Due>> {
        self.inner.due(query)
    }

    fn history(&self, query: HistoryQuery) -> StoreFuture<'_, Vec<PastRun>> {
        self.inner.history(query)
    }

    fn watch(&self, run: RunId) -> Watch {
        self.inner.watch(run)
    }

    fn frame_bytes_max(&self) -> usize {
        self.inner.frame_bytes_max()
    }

    fn threads(&self, filter: ThreadFilter) -> StoreFuture<'_, Vec<ThreadInfo>> {
        self.inner.threads(filter)
    }

    fn change_thread(
        &self,
        tenant: Box<str>,
        thread: ThreadId,
        change: ThreadChange,
    ) -> StoreFuture<'_, bool> {
        self.inner.change_thread(tenant, thread, change)
    }

    fn snapshot(
        &self,
        run: RunId,
        kind: SnapshotKind,
        at_most: Seq,
    ) -> StoreFuture<'_, Option<(Seq, Bytes)>> {
        self.inner.snapshot(run, kind, at_most)
    }

    fn bind(&self, external: ExternalId, run: RunId) -> StoreFuture<'_, RunId> {
        self.inner.bind(external, run)
    }

    fn resolve(&self, external: ExternalId) -> StoreFuture<'_, Option<RunId>> {
        self.inner.resolve(external)
    }

    fn document(&self, name: Box<str>) -> StoreFuture<'_, Option<Document>> {
        self.inner.document(name)
    }

    fn put_document(
        &self,
        name: Box<str>,
        text: Option<Box<str>>,
        expected: Expected,
    ) -> StoreFuture<'_, Written> {
        self.inner.put_document(name, text, expected)
    }

    fn documents(&self, filter: DocumentFilter) -> StoreFuture<'_, Vec<Document>> {
        self.inner.documents(filter)
    }

    fn put_audit(&self, entry: NewAudit) -> StoreFuture<'_, u64> {
        self.inner.put_audit(entry)
    }

    fn audit(&self, filter: AuditFilter) -> StoreFuture<'_, Vec<AuditEntry>> {
        self.inner.audit(filter)
    }

    fn export(&self, run: RunId) -> StoreFuture<'_, RunExport> {
        self.inner.export(run)
    }

    fn import_inbox(&self, run: RunId, entries: Vec<InboxEntry>) -> StoreFuture<'_, ()> {
        self.inner.import_inbox(run, entries)
    }

    fn tenants(&self) -> StoreFuture<'_, Vec<Box<str>>> {
        self.inner.tenants()
    }

    fn delete(&self, run: RunId) -> StoreFuture<'_, bool> {
        self.inner.delete(run)
    }

    fn backup(&self, to: PathBuf) -> StoreFuture<'_, ()> {
        self.inner.backup(to)
    }
}
