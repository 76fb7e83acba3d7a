//! A store in memory: the library's default, also used in tests.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::FutureExt;
use wellspring_core::{InboxNo, RunId, Seq, ThreadId};

use crate::audit::{AuditEntry, AuditFilter, NewAudit};
use crate::document::{Document, DocumentFilter, Expected, Written, check_document};
use crate::due::{Due, DueQuery, NodeBeat};
use crate::inbox::{InboxEntry, NewCommand, Plan, PutAll};
use crate::lock;
use crate::run_index::{
    ENTRY_BYTES, FrameChange, Index, Kept, audit_bytes, document_bytes, name_bytes,
};
use crate::store::{
    Append, AppendDone, AppendError, Created, ExternalId, HistoryQuery, NewFrame, NewRun, Page,
    PastRun, RunExport, RunFilter, RunInfo, SnapshotKind, Store, StoreError, StoreFuture,
    StoredFrame,
};
use crate::thread::{ThreadChange, ThreadFilter, ThreadInfo};
use crate::watch::{Watch, Watches};

/// Default memory limit in bytes: enough for a long day of one person's runs, and small enough
/// for a small machine.
pub const MEMORY_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Maximum size of a frame. A larger event contains a file and should refer to it instead:
/// readers hold whole frames in memory.
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A store in memory. At its limit it drops finished runs, the oldest first. Unfinished runs
/// are kept; if they alone fill it, writes fail.
///
/// To use the same runs from several logs, as if each were its own process, give each log its
/// own handle: see [`reopen`](Self::reopen).
#[derive(Debug)]
pub struct MemoryStore {
    shared: Arc<Mutex<Memory>>,
    /// The number of this handle.
    me: usize,
    watches: Watches,
}

#[derive(Debug)]
struct Memory {
    index: Index<Frames>,
    /// The revision of the last write to any document.
    revision: u64,
    bytes_max: usize,
    /// The watches of each handle, woken by writes through the others.
    handles: Vec<Watches>,
}

/// The store's data of a run.
#[derive(Debug, Default)]
struct Frames {
    frames: Vec<StoredFrame>,
    snapshots: BTreeMap<(SnapshotKind, Seq), Bytes>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::with_bytes_max(MEMORY_BYTES_MAX)
    }
}

impl MemoryStore {
    /// A store with a memory limit in bytes.
    #[must_use]
    pub fn with_bytes_max(bytes_max: usize) -> Self {
        let watches = Watches::default();
        let (index, handles) = (Index::default(), vec![watches.clone()]);
        let memory = Memory { index, revision: 0, bytes_max, handles };
        Self { shared: Arc::new(Mutex::new(memory)), me: 0, watches }
    }

    /// Another handle to the same runs, which acts like another process: writes through one
    /// handle wake the watches of the others.
    #[must_use]
    pub fn reopen(&self) -> Self {
        let watches = Watches::default();
        let mut memory = lock(&self.shared);
        let me = memory.handles.len();
        memory.handles.push(watches.clone());
        Self { shared: Arc::clone(&self.shared), me, watches }
    }

    fn write<'a, T: Send + 'a>(
        &'a self,
        write: impl FnOnce(&mut Memory) -> Result<T, StoreError>,
    ) -> StoreFuture<'a, T> {
        let result = write(&mut lock(&self.shared));
        std::future::ready(result).boxed()
    }

    /// Writes to a run, and wakes the watches on it in other handles.
    fn write_run<'a, T: Send + 'a>(
        &'a self,
        run: RunId,
        write: impl FnOnce(&mut Memory) -> Result<T, StoreError>,
    ) -> StoreFuture<'a, T> {
        let mut memory = lock(&self.shared);
        let result = write(&mut memory);
        memory.tell_others(self.me, run);
        std::future::ready(result).boxed()
    }

    fn read_with<'a, T: Send + 'a>(
        &'a self,
        read: impl FnOnce(&Memory) -> Result<T, StoreError>,
    ) -> StoreFuture<'a, T> {
        let result = read(&lock(&self.shared));
        std::future::ready(result).boxed()
    }
}

impl Memory {
    fn tell_others(&self, me: usize, run: RunId) {
        for (handle, watches) in self.handles.iter().enumerate() {
            if handle != me {
                watches.wake(run);
            }
        }
    }

    /// Frees memory for `bytes`. The run itself is not dropped for that.
    fn reserve(&mut self, run: Option<RunId>, bytes: usize) -> Result<(), StoreError> {
        if self.index.bytes + bytes > self.bytes_max {
            self.make_room(run, bytes);
        }
        if self.index.bytes + bytes > self.bytes_max {
            return Err(StoreError::Full {
                what: "the store in memory",
                max: self.bytes_max,
                remedy: "wait until a run has finished, or keep runs on disk",
            });
        }
        Ok(())
    }

    /// Drops finished runs, the oldest first, until there is room. Drops none if that is not
    /// enough.
    fn make_room(&mut self, keep: Option<RunId>, bytes: usize) {
        let finished = self.index.finished().filter(|kept| Some(kept.info.run) != keep);
        let finished: Vec<_> = finished.map(|kept| (kept.info.run, kept.bytes)).collect();
        let wanted = (self.index.bytes + bytes).saturating_sub(self.bytes_max);
        if finished.iter().map(|(_, bytes)| bytes).sum::<usize>() < wanted {
            return;
        }
        let mut freed = 0;
        for (run, bytes) in finished {
            if freed >= wanted {
                return;
            }
            self.index.forget(run);
            freed += bytes;
        }
    }

    /// Reserves memory and adds it to a run's size.
    fn grow(&mut self, run: RunId, bytes: usize) -> Result<&mut Kept<Frames>, StoreError> {
        self.index.kept(run)?;
        self.reserve(Some(run), bytes)?;
        self.index.grow(run, bytes)
    }

    fn create(&mut self, new: NewRun, first: NewFrame) -> Result<Created, StoreError> {
        first
            .check_size(FRAME_BYTES_MAX)
            .map_err(|error| StoreError::failed("creating a run", error))?;
        if let Some(refused) = self.index.refuses(&new) {
            return Ok(refused);
        }
        let (run, bytes) = (new.run, first.body.len());
        self.reserve(None, Index::<Frames>::new_bytes(&new) + bytes)?;
        self.index.insert(new, first.at, Frames::default());
        self.index.grow(run, bytes)?;
        self.put_frame(run, first, None);
        Ok(Created::New)
    }

    fn append(&mut self, append: Append) -> Result<(), AppendError> {
        append.frame.check_size(FRAME_BYTES_MAX)?;
        let run = append.run;
        let info = &self.index.kept(run)?.info;
        if info.state.is_final() {
            return Err(AppendError::Closed(run));
        }
        if info.head != append.expected {
            return Err(AppendError::Conflict { run, head: info.head });
        }
        let folded = append.frame.folded.as_ref().map_or(0, |folded| ENTRY_BYTES + folded.len());
        let search = append.frame.search.as_ref().map_or(0, |search| search.len());
        let bytes = append.frame.body.len() + ENTRY_BYTES + folded;
        self.reserve(Some(run), bytes + search)?;
        self.index.grow(run, bytes)?;
        self.put_frame(run, append.frame, append.adopt);
        Ok(())
    }

    fn put_audit(&mut self, new: NewAudit) -> Result<u64, StoreError> {
        if let Some(number) = self.index.audit_number(&new.tenant, &new.key) {
            return Ok(number);
        }
        self.reserve(None, audit_bytes(&new))?;
        let number = self.index.next_audit(&new.tenant);
        self.index.put_audit(new, number);
        Ok(number)
    }

    fn put_document(
        &mut self,
        name: Box<str>,
        text: Option<Box<str>>,
        expected: Expected,
    ) -> Result<Written, StoreError> {
        check_document(&name, text.as_deref())?;
        let found = self.index.documents.get(&name);
        if !expected.matches(found.map(|document| document.revision)) {
            return Ok(Written::Conflict(found.cloned()));
        }
        if let Some(text) = &text {
            self.reserve(None, document_bytes(&name, text))?;
        }
        self.revision += 1;
        self.index.put_document(name, text, self.revision);
        Ok(Written::Done(self.revision))
    }

    /// Appends a frame that was checked and counted.
    fn put_frame(&mut self, run: RunId, frame: NewFrame, adopt: Option<crate::store::Adopt>) {
        let NewFrame { count, body, at, state, taken, deadline, folded, search } = frame;
        if let Some(kept) = self.index.runs.get_mut(&run) {
            let first = kept.info.head.next();
            kept.frames.frames.push(StoredFrame { first, count, body });
            if let Some(folded) = folded {
                let head = Seq(kept.info.head.0 + u64::from(count));
                kept.frames.snapshots.insert((SnapshotKind::Transcript, head), folded);
            }
        }
        self.index.advance(run, FrameChange { count, at, state, taken, deadline, search, adopt });
    }

    fn put_inbox(&mut self, run: RunId, commands: Vec<NewCommand>) -> Result<PutAll, StoreError> {
        let (puts, new) = match self.index.plan_inbox(run, commands)? {
            Plan::KeyTaken { index, number } => return Ok(PutAll::KeyTaken { index, number }),
            Plan::Put { puts, new } => (puts, new),
        };
        let mut bytes = 0;
        for (_, new) in &new {
            let json = serde_json::to_string(&new.command)
                .map_err(|error| StoreError::failed("writing a command", error))?;
            bytes += ENTRY_BYTES + new.key.len() + json.len();
        }
        self.grow(run, bytes)?;
        for (number, NewCommand { key, command, audit }) in new {
            if let Some(audit) = audit {
                self.put_audit(audit)?;
            }
            self.index.put_inbox(run, InboxEntry { number, key, command });
        }
        Ok(PutAll::Done(puts))
    }
}

impl Kept<Frames> {
    fn page(&self, after: Seq, bytes_max: usize) -> Page {
        let frames = &self.frames.frames;
        let from =
            frames.partition_point(|frame| frame.first.0 + u64::from(frame.count) <= after.0 + 1);
        let mut bytes = 0;
        let within = |frame: &&StoredFrame| {
            let before = bytes;
            bytes += frame.body.len();
            before == 0 || bytes <= bytes_max
        };
        let frames = frames.iter().skip(from).take_while(within).cloned().collect();
        Page { frames, head: self.info.head, closed: self.info.state.is_final() }
    }

    fn snapshot(&self, kind: SnapshotKind, at_most: Seq) -> Option<(Seq, Bytes)> {
        let latest = self.frames.snapshots.range((kind, Seq(0))..=(kind, at_most)).next_back();
        latest.map(|((_, at), body)| (*at, body.clone()))
    }
}

impl Store for MemoryStore {
    fn create(&self, new: NewRun, first: NewFrame) -> StoreFuture<'_, Created> {
        self.write_run(new.run, |memory| memory.create(new, first))
    }

    fn append(&self, append: Append, done: AppendDone) {
        let result = {
            let mut memory = lock(&self.shared);
            let run = append.run;
            let result = memory.append(append);
            memory.tell_others(self.me, run);
            result
        };
        // After the lock is released: the callback may append the next frame.
        done(result);
    }

    fn read(&self, run: RunId, after: Seq, bytes_max: usize) -> StoreFuture<'_, Page> {
        self.read_with(|memory| Ok(memory.index.kept(run)?.page(after, bytes_max)))
    }

    fn info(&self, run: RunId) -> StoreFuture<'_, Option<RunInfo>> {
        self.read_with(|memory| Ok(memory.index.runs.get(&run).map(|kept| kept.info.clone())))
    }

    fn list(&self, filter: RunFilter) -> StoreFuture<'_, Vec<RunInfo>> {
        self.read_with(|memory| Ok(memory.index.list(&filter)))
    }

    fn history(&self, query: HistoryQuery) -> StoreFuture<'_, Vec<PastRun>> {
        self.read_with(|memory| {
            let past = |kept: &Kept<Frames>| {
                let snapshot = || kept.snapshot(SnapshotKind::Transcript, kept.info.head);
                let folded = query.folded.then(snapshot).flatten();
                PastRun { info: kept.info.clone(), folded }
            };
            Ok(memory.index.history(&query).into_iter().map(past).collect())
        })
    }

    fn watch(&self, run: RunId) -> Watch {
        self.watches.watch(run)
    }

    fn frame_bytes_max(&self) -> usize {
        FRAME_BYTES_MAX
    }

    fn put_inbox(&self, run: RunId, commands: Vec<NewCommand>) -> StoreFuture<'_, PutAll> {
        self.write_run(run, |memory| memory.put_inbox(run, commands))
    }

    fn inbox(&self, run: RunId, after: InboxNo) -> StoreFuture<'_, Vec<InboxEntry>> {
        self.read_with(|memory| memory.index.inbox(run, after))
    }

    fn beat(&self, node: Box<str>) -> StoreFuture<'_, ()> {
        self.write(|memory| {
            let number = memory.index.last_beat(&node) + 1;
            memory.index.beat(node, number);
            Ok(())
        })
    }

    fn nodes(&self) -> StoreFuture<'_, Vec<NodeBeat>> {
        self.read_with(|memory| Ok(memory.index.nodes()))
    }

    fn release(&self, run: RunId, node: Box<str>, epoch: u64) -> StoreFuture<'_, ()> {
        self.write_run(run, |memory| {
            if memory.index.is_owner(run, &node, epoch) {
                memory.index.release(run);
            }
            Ok(())
        })
    }

    fn due(&self, query: DueQuery) -> StoreFuture<'_, Vec<Due>> {
        self.read_with(|memory| Ok(memory.index.due(&query)))
    }

    fn put_snapshot(
        &self,
        run: RunId,
        kind: SnapshotKind,
        at: Seq,
        body: Bytes,
    ) -> StoreFuture<'_, ()> {
        self.write(|memory| {
            let kept = memory.grow(run, ENTRY_BYTES + body.len())?;
            if let Some(old) = kept.frames.snapshots.insert((kind, at), body) {
                let bytes = ENTRY_BYTES + old.len();
                kept.bytes -= bytes;
                memory.index.bytes -= bytes;
            }
            Ok(())
        })
    }

    fn snapshot(
        &self,
        run: RunId,
        kind: SnapshotKind,
        at_most: Seq,
    ) -> StoreFuture<'_, Option<(Seq, Bytes)>> {
        self.read_with(|memory| Ok(memory.index.kept(run)?.snapshot(kind, at_most)))
    }

    fn bind(&self, external: ExternalId, run: RunId) -> StoreFuture<'_, RunId> {
        self.write(|memory| {
            if memory.index.resolve(&external).is_none() {
                memory.index.kept(run)?;
                memory.reserve(Some(run), name_bytes(&external))?;
            }
            memory.index.bind(external, run)
        })
    }

    fn resolve(&self, external: ExternalId) -> StoreFuture<'_, Option<RunId>> {
        self.read_with(|memory| Ok(memory.index.resolve(&external)))
    }

    fn document(&self, name: Box<str>) -> StoreFuture<'_, Option<Document>> {
        self.read_with(|memory| Ok(memory.index.documents.get(&name).cloned()))
    }

    fn put_document(
        &self,
        name: Box<str>,
        text: Option<Box<str>>,
        expected: Expected,
    ) -> StoreFuture<'_, Written> {
        self.write(|memory| memory.put_document(name, text, expected))
    }

    fn documents(&self, filter: DocumentFilter) -> StoreFuture<'_, Vec<Document>> {
        self.read_with(|memory| memory.index.documents(&filter))
    }

    fn export(&self, run: RunId) -> StoreFuture<'_, RunExport> {
        self.read_with(|memory| memory.index.export(run))
    }

    fn import_inbox(&self, run: RunId, entries: Vec<InboxEntry>) -> StoreFuture<'_, ()> {
        self.write_run(run, |memory| {
            memory.grow(run, entries.len() * 2 * ENTRY_BYTES)?;
            entries.into_iter().for_each(|entry| memory.index.put_inbox(run, entry));
            Ok(())
        })
    }

    fn tenants(&self) -> StoreFuture<'_, Vec<Box<str>>> {
        self.read_with(|memory| Ok(memory.index.tenants()))
    }

    fn put_audit(&self, entry: NewAudit) -> StoreFuture<'_, u64> {
        self.write(|memory| memory.put_audit(entry))
    }

    fn audit(&self, filter: AuditFilter) -> StoreFuture<'_, Vec<AuditEntry>> {
        self.read_with(|memory| Ok(memory.index.audit(&filter)))
    }

    fn threads(&self, filter: ThreadFilter) -> StoreFuture<'_, Vec<ThreadInfo>> {
        self.read_with(|memory| Ok(memory.index.threads(&filter)))
    }

    fn change_thread(
        &self,
        tenant: Box<str>,
        thread: ThreadId,
        change: ThreadChange,
    ) -> StoreFuture<'_, bool> {
        self.write(|memory| {
            change.check()?;
            let changed = memory.index.changed_thread(&tenant, thread, change);
            let Some((title, archived)) = changed else { return Ok(false) };
            memory.index.set_thread(thread, title, archived);
            Ok(true)
        })
    }

    fn delete(&self, run: RunId) -> StoreFuture<'_, bool> {
        self.write_run(run, |memory| {
            let Some(kept) = memory.index.runs.get(&run) else { return Ok(false) };
            if !kept.info.state.is_final() {
                return Err(StoreError::Unfinished(run));
            }
            memory.index.forget(run);
            Ok(true)
        })
    }

    fn backup(&self, _to: PathBuf) -> StoreFuture<'_, ()> {
        let unsupported = StoreError::Unsupported("a backup of a store in memory");
        std::future::ready(Err(unsupported)).boxed()
    }
}
