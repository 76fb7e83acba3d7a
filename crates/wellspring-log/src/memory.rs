//! A store that is gone with the process: the library's default, and what tests use.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::FutureExt;
use tokio::sync::watch;
use wellspring_core::{InboxNo, Millis, RunId, Seq, ThreadId};

use crate::audit::{AUDIT_MAX, AuditEntry, AuditFilter, NewAudit};
use crate::document::{Document, DocumentFilter, Expected, Written, check_document};
use crate::inbox::{InboxEntry, InboxRoom, NewCommand, Plan, PutAll, plan};
use crate::lock;
use crate::store::{
    Append, AppendDone, AppendError, Created, ExternalId, LIST_MAX, Lease, NewFrame, NewRun, Page,
    RunFilter, RunInfo, RunState, SnapshotKind, Store, StoreError, StoreFuture, StoredFrame,
};

/// Bytes a memory store keeps unless told otherwise: a long day of one person's runs, and
/// nothing that surprises a small machine.
pub const MEMORY_BYTES_MAX: usize = 256 * 1024 * 1024;

/// What an entry takes besides its content: a fair guess, so that many tiny ones count too.
const ENTRY_BYTES: usize = 64;

/// What a run takes besides its content.
const RUN_BYTES: usize = 512;

/// A store in memory. It refuses to grow past a maximum.
///
/// For several logs over the same runs, as if each were its own process, give each its own
/// handle: see [`beside`](Self::beside).
#[derive(Debug)]
pub struct MemoryStore {
    shared: Arc<Mutex<Memory>>,
    /// Which of the handles this is.
    me: usize,
    changes: watch::Receiver<u64>,
}

#[derive(Debug)]
struct Memory {
    runs: BTreeMap<RunId, Kept>,
    busy: HashMap<ThreadId, RunId>,
    /// How many runs each thread has.
    threads: HashMap<ThreadId, usize>,
    external: BTreeMap<ExternalId, RunId>,
    documents: BTreeMap<Box<str>, Document>,
    /// The revision of the last write to any document.
    revision: u64,
    /// By tenant.
    audit: BTreeMap<Box<str>, Audit>,
    bytes: usize,
    bytes_max: usize,
    /// One per handle, told what the others write.
    handles: Vec<watch::Sender<u64>>,
}

#[derive(Debug)]
struct Kept {
    info: RunInfo,
    frames: Vec<StoredFrame>,
    /// Each with whether its effect is in a frame.
    inbox: Vec<(InboxEntry, bool)>,
    snapshots: BTreeMap<(SnapshotKind, Seq), Bytes>,
    bytes: usize,
}

/// What a tenant's people did.
#[derive(Debug, Default)]
struct Audit {
    last: u64,
    numbers: HashMap<Box<str>, u64>,
    /// Each with its key and what it takes.
    entries: BTreeMap<u64, (AuditEntry, Box<str>, usize)>,
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::with_bytes_max(MEMORY_BYTES_MAX)
    }
}

impl MemoryStore {
    /// A store that keeps at most so many bytes.
    #[must_use]
    pub fn with_bytes_max(bytes_max: usize) -> Self {
        let (changed, changes) = watch::channel(0);
        let memory = Memory {
            runs: BTreeMap::new(),
            busy: HashMap::new(),
            threads: HashMap::new(),
            external: BTreeMap::new(),
            documents: BTreeMap::new(),
            revision: 0,
            audit: BTreeMap::new(),
            bytes: 0,
            bytes_max,
            handles: vec![changed],
        };
        Self { shared: Arc::new(Mutex::new(memory)), me: 0, changes }
    }

    /// The same runs, as another process would see them: what is written through one handle
    /// is a foreign change to the others.
    #[must_use]
    pub fn beside(&self) -> Self {
        let (changed, changes) = watch::channel(0);
        let mut memory = lock(&self.shared);
        let me = memory.handles.len();
        memory.handles.push(changed);
        Self { shared: Arc::clone(&self.shared), me, changes }
    }

    fn write<'a, T: Send + 'a>(
        &'a self,
        write: impl FnOnce(&mut Memory) -> Result<T, StoreError>,
    ) -> StoreFuture<'a, T> {
        let mut memory = lock(&self.shared);
        let result = write(&mut memory);
        memory.tell_others(self.me);
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
    fn tell_others(&self, me: usize) {
        for (handle, changed) in self.handles.iter().enumerate() {
            if handle != me {
                changed.send_modify(|count| *count += 1);
            }
        }
    }

    fn kept(&self, run: RunId) -> Result<&Kept, StoreError> {
        self.runs.get(&run).ok_or(StoreError::NoRun(run))
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), StoreError> {
        if self.bytes + bytes > self.bytes_max {
            return Err(StoreError::Full {
                what: "the store in memory",
                max: self.bytes_max,
                remedy: "delete finished runs, or keep runs on disk",
            });
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Reserves and counts for a run.
    fn grow(&mut self, run: RunId, bytes: usize) -> Result<&mut Kept, StoreError> {
        self.kept(run)?;
        self.reserve(bytes)?;
        let kept = self.runs.get_mut(&run).ok_or(StoreError::NoRun(run))?;
        kept.bytes += bytes;
        Ok(kept)
    }

    fn create(&mut self, new: NewRun, first: NewFrame) -> Result<Created, StoreError> {
        first.check_size().map_err(|error| StoreError::failed("creating a run", error))?;
        if let Some(kept) = self.runs.get(&new.run) {
            return Ok(Created::Exists(Box::new(kept.info.clone())));
        }
        if let Some(run) = new.name.as_ref().and_then(|name| self.external.get(name)) {
            return Ok(Created::Named(*run));
        }
        if new.is_first && self.threads.contains_key(&new.thread) {
            return Ok(Created::NotFirst);
        }
        if let Some(run) = self.busy.get(&new.thread) {
            return Ok(Created::ThreadBusy(*run));
        }
        let named = new.name.as_ref().map_or(0, name_bytes);
        let bytes = RUN_BYTES + new.title.len() + first.body.len() + ENTRY_BYTES + named;
        self.reserve(bytes)?;
        if let Some(name) = new.name {
            self.external.insert(name, new.run);
        }
        self.busy.insert(new.thread, new.run);
        *self.threads.entry(new.thread).or_default() += 1;
        let info = RunInfo {
            run: new.run,
            thread: new.thread,
            agent: new.agent,
            tenant: new.tenant,
            after: new.after,
            title: new.title,
            state: RunState::Running,
            head: Seq(0),
            epoch: 0,
            lease: Some(new.lease),
            created_at: first.at,
            updated_at: first.at,
        };
        let (frames, inbox, snapshots) = (Vec::new(), Vec::new(), BTreeMap::new());
        let mut kept = Kept { info, frames, inbox, snapshots, bytes };
        self.put_frame(&mut kept, first);
        self.runs.insert(new.run, kept);
        Ok(Created::New)
    }

    fn append(&mut self, append: Append) -> Result<(), AppendError> {
        append.frame.check_size()?;
        let run = append.run;
        let info = &self.kept(run)?.info;
        if info.state.is_final() {
            return Err(AppendError::Closed(run));
        }
        if info.head != append.expected {
            return Err(AppendError::Conflict { run, head: info.head });
        }
        self.grow(run, append.frame.body.len() + ENTRY_BYTES)?;
        let mut kept = self.runs.remove(&run).ok_or(StoreError::NoRun(run))?;
        if let Some(adopt) = append.adopt {
            kept.info.epoch = adopt.epoch;
            kept.info.lease = Some(adopt.lease);
        }
        self.put_frame(&mut kept, append.frame);
        self.runs.insert(run, kept);
        Ok(())
    }

    fn put_audit(&mut self, new: NewAudit) -> Result<u64, StoreError> {
        let NewAudit { tenant, key, act } = new;
        let known = self.audit.get(&tenant).and_then(|audit| audit.numbers.get(&key));
        if let Some(number) = known {
            return Ok(*number);
        }
        let words = act.by.len() + act.did.len() + act.details.to_string().len();
        let bytes = ENTRY_BYTES + 2 * key.len() + words;
        self.reserve(bytes)?;
        let audit = self.audit.entry(tenant).or_default();
        audit.last += 1;
        let number = audit.last;
        audit.numbers.insert(key.clone(), number);
        audit.entries.insert(number, (AuditEntry { number, act }, key, bytes));
        if audit.entries.len() > AUDIT_MAX
            && let Some((_, (_, key, bytes))) = audit.entries.pop_first()
        {
            audit.numbers.remove(&key);
            self.bytes -= bytes;
        }
        Ok(number)
    }

    fn put_document(
        &mut self,
        name: Box<str>,
        text: Option<Box<str>>,
        expected: Expected,
    ) -> Result<Written, StoreError> {
        check_document(&name, text.as_deref())?;
        let found = self.documents.get(&name);
        if !expected.matches(found.map(|document| document.revision)) {
            return Ok(Written::Conflict(found.cloned()));
        }
        let bytes_of = |text: &str| ENTRY_BYTES + name.len() + text.len();
        let old = found.map_or(0, |document| bytes_of(&document.text));
        if let Some(text) = &text {
            self.reserve(bytes_of(text))?;
        }
        self.bytes -= old;
        self.revision += 1;
        let revision = self.revision;
        match text {
            Some(text) => {
                self.documents.insert(name.clone(), Document { name, revision, text });
            }
            None => {
                self.documents.remove(&name);
            }
        }
        Ok(Written::Done(revision))
    }

    /// Puts a frame that is allowed and counted.
    fn put_frame(&mut self, kept: &mut Kept, frame: NewFrame) {
        let info = &mut kept.info;
        let stored = StoredFrame { first: info.head.next(), count: frame.count, body: frame.body };
        info.head = Seq(info.head.0 + u64::from(frame.count));
        kept.frames.push(stored);
        for number in frame.taken {
            // Entries are numbered from 1, without gaps.
            let entry = (number.0 as usize).checked_sub(1).and_then(|at| kept.inbox.get_mut(at));
            if let Some((_, taken)) = entry {
                *taken = true;
            }
        }
        if let Some(state) = frame.state {
            if state != info.state {
                info.updated_at = frame.at;
            }
            info.state = state;
            if state != RunState::Running {
                info.lease = None;
            }
            if state.is_final() {
                self.busy.remove(&info.thread);
            }
        }
    }
}

impl Kept {
    fn page(&self, after: Seq, bytes_max: usize) -> Page {
        let from = self
            .frames
            .partition_point(|frame| frame.first.0 + u64::from(frame.count) <= after.0 + 1);
        let mut bytes = 0;
        let within = |frame: &&StoredFrame| {
            let before = bytes;
            bytes += frame.body.len();
            before == 0 || bytes <= bytes_max
        };
        let frames = self.frames.iter().skip(from).take_while(within).cloned().collect();
        Page { frames, head: self.info.head, closed: self.info.state.is_final() }
    }
}

/// What a surface's own id takes.
fn name_bytes(name: &ExternalId) -> usize {
    ENTRY_BYTES + name.tenant.len() + name.surface.len() + name.id.len()
}

impl Store for MemoryStore {
    fn create(&self, new: NewRun, first: NewFrame) -> StoreFuture<'_, Created> {
        self.write(|memory| memory.create(new, first))
    }

    fn append(&self, append: Append, done: AppendDone) {
        let result = {
            let mut memory = lock(&self.shared);
            let result = memory.append(append);
            memory.tell_others(self.me);
            result
        };
        // Outside the lock: it may append the next frame.
        done(result);
    }

    fn read(&self, run: RunId, after: Seq, bytes_max: usize) -> StoreFuture<'_, Page> {
        self.read_with(|memory| Ok(memory.kept(run)?.page(after, bytes_max)))
    }

    fn info(&self, run: RunId) -> StoreFuture<'_, Option<RunInfo>> {
        self.read_with(|memory| Ok(memory.runs.get(&run).map(|kept| kept.info.clone())))
    }

    fn list(&self, filter: RunFilter) -> StoreFuture<'_, Vec<RunInfo>> {
        self.read_with(|memory| {
            let older = |run: &RunId| filter.after_run.is_none_or(|after| *run < after);
            let limit = filter.limit_or_max();
            let infos = memory.runs.iter().rev().filter(|(run, _)| older(run));
            let infos = infos.map(|(_, kept)| &kept.info).filter(|info| filter.matches(info));
            Ok(infos.take(limit).cloned().collect())
        })
    }

    fn put_inbox(&self, run: RunId, commands: Vec<NewCommand>) -> StoreFuture<'_, PutAll> {
        self.write(|memory| {
            let inbox = &memory.kept(run)?.inbox;
            let find = |key: &str| {
                let found = inbox.iter().find(|(entry, _)| *entry.key == *key);
                Ok::<_, StoreError>(found.map(|(entry, _)| (entry.number, entry.command.clone())))
            };
            let waiting = |room| {
                let waiting = inbox
                    .iter()
                    .filter(|(entry, taken)| !taken && InboxRoom::of(&entry.command) == room);
                Ok(waiting.count())
            };
            let (puts, new) = match plan(commands, InboxNo(inbox.len() as u64), find, waiting)? {
                Plan::KeyTaken { index, number } => return Ok(PutAll::KeyTaken { index, number }),
                Plan::Put { puts, new } => (puts, new),
            };
            let mut bytes = 0;
            for (_, new) in &new {
                let json = serde_json::to_string(&new.command)
                    .map_err(|error| StoreError::failed("writing a command", error))?;
                bytes += ENTRY_BYTES + new.key.len() + json.len();
            }
            memory.grow(run, bytes)?;
            for (number, NewCommand { key, command, audit }) in new {
                if let Some(audit) = audit {
                    memory.put_audit(audit)?;
                }
                if let Some(kept) = memory.runs.get_mut(&run) {
                    kept.inbox.push((InboxEntry { number, key, command }, false));
                }
            }
            Ok(PutAll::Done(puts))
        })
    }

    fn inbox(&self, run: RunId, after: InboxNo) -> StoreFuture<'_, Vec<InboxEntry>> {
        self.read_with(|memory| {
            let waiting = memory.kept(run)?.inbox.iter().filter(|(_, taken)| !taken);
            let waiting = waiting.map(|(entry, _)| entry);
            Ok(waiting.filter(|entry| entry.number > after).cloned().collect())
        })
    }

    fn renew(&self, node: Box<str>, runs: Vec<RunId>, until: Millis) -> StoreFuture<'_, ()> {
        self.write(|memory| {
            for run in runs {
                let kept = memory.runs.get_mut(&run);
                let lease = kept.and_then(|kept| kept.info.lease.as_mut());
                if let Some(lease) = lease.filter(|lease| lease.node == node) {
                    *lease = Lease { node: node.clone(), until };
                }
            }
            Ok(())
        })
    }

    fn expired(&self, now: Millis, limit: usize) -> StoreFuture<'_, Vec<RunId>> {
        self.read_with(|memory| {
            let ended = |info: &&RunInfo| {
                info.state == RunState::Running
                    && info.lease.as_ref().is_none_or(|lease| lease.until < now)
            };
            let infos = memory.runs.values().map(|kept| &kept.info).filter(ended);
            Ok(infos.map(|info| info.run).take(limit.min(LIST_MAX)).collect())
        })
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
            if let Some(old) = kept.snapshots.insert((kind, at), body) {
                let bytes = ENTRY_BYTES + old.len();
                kept.bytes -= bytes;
                memory.bytes -= bytes;
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
        self.read_with(|memory| {
            let snapshots = &memory.kept(run)?.snapshots;
            let latest = snapshots.range((kind, Seq(0))..=(kind, at_most)).next_back();
            Ok(latest.map(|((_, at), body)| (*at, body.clone())))
        })
    }

    fn bind(&self, external: ExternalId, run: RunId) -> StoreFuture<'_, RunId> {
        self.write(|memory| {
            if let Some(bound) = memory.external.get(&external) {
                return Ok(*bound);
            }
            memory.grow(run, name_bytes(&external))?;
            memory.external.insert(external, run);
            Ok(run)
        })
    }

    fn resolve(&self, external: ExternalId) -> StoreFuture<'_, Option<RunId>> {
        self.read_with(|memory| Ok(memory.external.get(&external).copied()))
    }

    fn document(&self, name: Box<str>) -> StoreFuture<'_, Option<Document>> {
        self.read_with(|memory| Ok(memory.documents.get(&name).cloned()))
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
        self.read_with(|memory| {
            filter.check()?;
            let from = match filter.after.clone() {
                Some(after) if after >= filter.prefix => Bound::Excluded(after),
                Some(_) | None => Bound::Included(filter.prefix.clone()),
            };
            let found = memory.documents.range((from, Bound::Unbounded)).map(|(_, it)| it);
            let below = found.take_while(|document| document.name.starts_with(&*filter.prefix));
            Ok(below.take(filter.limit_or_max()).cloned().collect())
        })
    }

    fn put_audit(&self, entry: NewAudit) -> StoreFuture<'_, u64> {
        self.write(|memory| memory.put_audit(entry))
    }

    fn audit(&self, filter: AuditFilter) -> StoreFuture<'_, Vec<AuditEntry>> {
        self.read_with(|memory| {
            let Some(audit) = memory.audit.get(&filter.tenant) else { return Ok(Vec::new()) };
            let older = audit.entries.range(..filter.before.unwrap_or(u64::MAX)).rev();
            Ok(older.take(filter.limit).map(|(_, (entry, ..))| entry.clone()).collect())
        })
    }

    fn delete(&self, run: RunId) -> StoreFuture<'_, bool> {
        self.write(|memory| {
            let Some(kept) = memory.runs.get(&run) else { return Ok(false) };
            if !kept.info.state.is_final() {
                return Err(StoreError::Unfinished(run));
            }
            memory.bytes -= kept.bytes;
            let thread = kept.info.thread;
            memory.runs.remove(&run);
            if let Entry::Occupied(mut runs) = memory.threads.entry(thread) {
                *runs.get_mut() -= 1;
                if *runs.get() == 0 {
                    runs.remove();
                }
            }
            memory.external.retain(|_, bound| *bound != run);
            Ok(true)
        })
    }

    fn backup(&self, _to: PathBuf) -> StoreFuture<'_, ()> {
        let unsupported = StoreError::Unsupported("backing up what is only in memory");
        std::future::ready(Err(unsupported)).boxed()
    }

    fn foreign_changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}
