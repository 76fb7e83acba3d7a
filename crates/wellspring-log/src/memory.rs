//! A store in memory: the library's default, and what tests use.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::FutureExt;
use wellspring_core::{InboxNo, Millis, RunId, Seq, ThreadId};

use crate::audit::{AUDIT_MAX, AuditEntry, AuditFilter, NewAudit};
use crate::document::{Document, DocumentFilter, Expected, Written, check_document};
use crate::due::{Due, DueQuery, NodeBeat};
use crate::inbox::{InboxEntry, InboxRoom, NewCommand, Plan, PutAll, plan};
use crate::lock;
use crate::store::{
    Append, AppendDone, AppendError, Created, ExternalId, HistoryQuery, LIST_MAX, NewFrame, NewRun,
    Page, PastRun, RunFilter, RunInfo, RunState, SnapshotKind, Store, StoreError, StoreFuture,
    StoredFrame,
};
use crate::thread::{ThreadChange, ThreadFilter, ThreadInfo, has_words};
use crate::watch::{Watch, Watches};

/// The default maximum of a memory store in bytes: a long day of one person's runs, and little
/// enough for a small machine.
pub const MEMORY_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The most bytes of one frame. A larger event carries a file and should name it instead: a
/// reader has to hold a frame whole.
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What an entry takes besides its content: an estimate, so that many small ones count too.
const ENTRY_BYTES: usize = 64;

/// What a run takes besides its content.
const RUN_BYTES: usize = 512;

/// A store in memory. At its maximum it forgets finished runs, the oldest first; runs that are
/// not finished stay, and when they alone fill it, it refuses to grow.
///
/// To use the same runs from several logs, as if each were its own process, give each its own
/// handle: see [`beside`](Self::beside).
#[derive(Debug)]
pub struct MemoryStore {
    shared: Arc<Mutex<Memory>>,
    /// The number of this handle.
    me: usize,
    watches: Watches,
}

#[derive(Debug)]
struct Memory {
    runs: BTreeMap<RunId, Kept>,
    busy: HashMap<ThreadId, RunId>,
    threads: HashMap<ThreadId, Thread>,
    /// How often each node has beaten.
    beats: HashMap<Box<str>, u64>,
    external: BTreeMap<ExternalId, RunId>,
    documents: BTreeMap<Box<str>, Document>,
    /// The revision of the last write to any document.
    revision: u64,
    /// By tenant.
    audit: BTreeMap<Box<str>, Audit>,
    bytes: usize,
    bytes_max: usize,
    /// The watches of each handle, woken by what is written through the others.
    handles: Vec<Watches>,
}

#[derive(Debug)]
struct Thread {
    runs: BTreeSet<RunId>,
    title: Option<Box<str>>,
    archived: bool,
}

#[derive(Debug)]
struct Kept {
    info: RunInfo,
    frames: Vec<StoredFrame>,
    /// Each with whether a frame has taken it.
    inbox: Vec<(InboxEntry, bool)>,
    snapshots: BTreeMap<(SnapshotKind, Seq), Bytes>,
    deadline: Option<Millis>,
    /// The text by which its thread is found.
    search: Box<str>,
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
        let watches = Watches::default();
        let memory = Memory {
            runs: BTreeMap::new(),
            busy: HashMap::new(),
            threads: HashMap::new(),
            beats: HashMap::new(),
            external: BTreeMap::new(),
            documents: BTreeMap::new(),
            revision: 0,
            audit: BTreeMap::new(),
            bytes: 0,
            bytes_max,
            handles: vec![watches.clone()],
        };
        Self { shared: Arc::new(Mutex::new(memory)), me: 0, watches }
    }

    /// The same runs, as another process would see them: what is written through one handle
    /// wakes the watches of the others.
    #[must_use]
    pub fn beside(&self) -> Self {
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

    /// Writes to a run, and wakes those that watch it through other handles.
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

    fn kept(&self, run: RunId) -> Result<&Kept, StoreError> {
        self.runs.get(&run).ok_or(StoreError::NoRun(run))
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), StoreError> {
        self.reserve_for(None, bytes)
    }

    /// Reserves for a run, which is not forgotten for it.
    fn reserve_for(&mut self, run: Option<RunId>, bytes: usize) -> Result<(), StoreError> {
        if self.bytes + bytes > self.bytes_max {
            self.make_room(run, bytes);
        }
        if self.bytes + bytes > self.bytes_max {
            return Err(StoreError::Full {
                what: "the store in memory",
                max: self.bytes_max,
                remedy: "wait until a run has finished, or keep runs on disk",
            });
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Forgets finished runs, the oldest first, until there is room; none if that does not help.
    fn make_room(&mut self, keep: Option<RunId>, bytes: usize) {
        let finished = self
            .runs
            .values()
            .filter(|kept| kept.info.state.is_final() && Some(kept.info.run) != keep);
        // Ids are in order of time.
        let finished: Vec<_> = finished.map(|kept| (kept.info.run, kept.bytes)).collect();
        let wanted = (self.bytes + bytes).saturating_sub(self.bytes_max);
        if finished.iter().map(|(_, bytes)| bytes).sum::<usize>() < wanted {
            return;
        }
        let mut freed = 0;
        for (run, bytes) in finished {
            if freed >= wanted {
                return;
            }
            self.forget(run);
            freed += bytes;
        }
    }

    fn forget(&mut self, run: RunId) {
        let Some(kept) = self.runs.remove(&run) else { return };
        self.bytes -= kept.bytes;
        if let Entry::Occupied(mut thread) = self.threads.entry(kept.info.thread) {
            thread.get_mut().runs.remove(&run);
            if thread.get().runs.is_empty() {
                thread.remove();
            }
        }
        self.external.retain(|_, bound| *bound != run);
    }

    /// Reserves and counts for a run.
    fn grow(&mut self, run: RunId, bytes: usize) -> Result<&mut Kept, StoreError> {
        self.kept(run)?;
        self.reserve_for(Some(run), bytes)?;
        let kept = self.runs.get_mut(&run).ok_or(StoreError::NoRun(run))?;
        kept.bytes += bytes;
        Ok(kept)
    }

    fn create(&mut self, new: NewRun, first: NewFrame) -> Result<Created, StoreError> {
        first
            .check_size(FRAME_BYTES_MAX)
            .map_err(|error| StoreError::failed("creating a run", error))?;
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
        let new_thread = || Thread { runs: BTreeSet::new(), title: None, archived: false };
        self.threads.entry(new.thread).or_insert_with(new_thread).runs.insert(new.run);
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
            owner: Some(new.node),
            created_at: first.at,
            updated_at: first.at,
        };
        let (frames, inbox, snapshots) = (Vec::new(), Vec::new(), BTreeMap::new());
        let (deadline, search) = (None, Box::default());
        let mut kept = Kept { info, frames, inbox, snapshots, deadline, search, bytes };
        self.put_frame(&mut kept, first);
        self.runs.insert(new.run, kept);
        Ok(Created::New)
    }

    fn append(&mut self, append: Append) -> Result<(), AppendError> {
        append.frame.check_size(FRAME_BYTES_MAX)?;
        let run = append.run;
        let info = &self.kept(run)?.info;
        if info.state.is_final() {
            return Err(AppendError::Closed(run));
        }
        if info.head != append.expected {
            return Err(AppendError::Conflict { run, head: info.head });
        }
        let folded = append.frame.folded.as_ref().map_or(0, |folded| ENTRY_BYTES + folded.len());
        let search = append.frame.search.as_ref().map_or(0, |search| search.len());
        self.grow(run, append.frame.body.len() + ENTRY_BYTES + folded + search)?;
        let mut kept = self.runs.remove(&run).ok_or(StoreError::NoRun(run))?;
        if let Some(adopt) = append.adopt {
            kept.info.epoch = adopt.epoch;
            kept.info.owner = Some(adopt.node);
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
        for (entry, taken) in &mut kept.inbox {
            *taken |= frame.taken.contains(&entry.number);
        }
        if let Some(folded) = frame.folded {
            kept.snapshots.insert((SnapshotKind::Transcript, info.head), folded);
        }
        if let Some(search) = frame.search {
            kept.search = search;
        }
        if let Some(state) = frame.state {
            if state != info.state {
                info.updated_at = frame.at;
            }
            info.state = state;
            kept.deadline = frame.deadline.filter(|_| state == RunState::Paused);
            if state != RunState::Running {
                info.owner = None;
            }
            if state.is_final() {
                self.busy.remove(&info.thread);
            }
        }
    }
}

impl Memory {
    /// Since when a run is due, if it is at some time.
    fn due_since(kept: &Kept, gone: &[Box<str>]) -> Option<Millis> {
        match kept.info.state {
            RunState::Running => {
                let owner = kept.info.owner.as_ref();
                owner.is_none_or(|owner| gone.contains(owner)).then_some(Millis(0))
            }
            RunState::Paused if kept.inbox.iter().any(|(_, taken)| !taken) => Some(Millis(0)),
            RunState::Paused => kept.deadline,
            RunState::Completed | RunState::Cancelled | RunState::Failed => None,
        }
    }

    fn history(&self, query: &HistoryQuery) -> Vec<PastRun> {
        let mut history = Vec::new();
        let mut next = self.runs.get(&query.run);
        while let Some(kept) = next.filter(|_| history.len() < query.max.min(LIST_MAX)) {
            let info = kept.info.clone();
            next = info.after.and_then(|after| {
                let older = || {
                    let runs = &self.threads.get(&info.thread)?.runs;
                    self.runs.get(runs.range(..after).next_back()?)
                };
                self.runs.get(&after).or_else(older)
            });
            next = next.filter(|next| next.info.tenant == info.tenant);
            let places = (SnapshotKind::Transcript, Seq(0))..=(SnapshotKind::Transcript, info.head);
            let folded = query.folded.then(|| kept.snapshots.range(places).next_back()).flatten();
            let folded = folded.map(|((_, at), body)| (*at, body.clone()));
            history.push(PastRun { info, folded });
        }
        history
    }

    fn thread_info(&self, id: ThreadId, thread: &Thread) -> Option<ThreadInfo> {
        let first = &self.runs.get(thread.runs.first()?)?.info;
        let latest = &self.runs.get(thread.runs.last()?)?.info;
        Some(ThreadInfo {
            thread: id,
            tenant: latest.tenant.clone(),
            title: thread.title.as_ref().unwrap_or(&first.title).clone(),
            archived: thread.archived,
            runs: thread.runs.len() as u64,
            latest: latest.run,
            agent: latest.agent.clone(),
            state: latest.state,
            created_at: first.created_at,
            updated_at: latest.updated_at,
        })
    }

    fn threads(&self, filter: &ThreadFilter) -> Vec<ThreadInfo> {
        let words = filter.words();
        let mut found = BTreeMap::new();
        #[expect(clippy::iter_over_hash_type, reason = "what is found is ordered by its key")]
        for (id, thread) in &self.threads {
            let Some(info) = self.thread_info(*id, thread) else { continue };
            let text = |run| self.runs.get(run).is_some_and(|it| has_words(&it.search, &words));
            if info.tenant == filter.tenant
                && filter.thread.is_none_or(|wanted| wanted == *id)
                && filter.archived.is_none_or(|archived| archived == info.archived)
                && filter.after.is_none_or(|after| info.latest < after)
                && (has_words(&info.title, &words) || thread.runs.iter().any(text))
            {
                found.insert(info.latest, info);
            }
        }
        found.into_values().rev().take(filter.limit_or_max()).collect()
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

    fn history(&self, query: HistoryQuery) -> StoreFuture<'_, Vec<PastRun>> {
        self.read_with(|memory| Ok(memory.history(&query)))
    }

    fn watch(&self, run: RunId) -> Watch {
        self.watches.watch(run)
    }

    fn frame_bytes_max(&self) -> usize {
        FRAME_BYTES_MAX
    }

    fn put_inbox(&self, run: RunId, commands: Vec<NewCommand>) -> StoreFuture<'_, PutAll> {
        self.write_run(run, |memory| {
            let kept = memory.kept(run)?;
            let (inbox, state) = (&kept.inbox, kept.info.state);
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
            let last = inbox.last().map_or(InboxNo(0), |(entry, _)| entry.number);
            let (puts, new) = match plan(run, state, commands, last, find, waiting)? {
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

    fn beat(&self, node: Box<str>) -> StoreFuture<'_, ()> {
        self.write(|memory| {
            *memory.beats.entry(node).or_default() += 1;
            Ok(())
        })
    }

    fn nodes(&self) -> StoreFuture<'_, Vec<NodeBeat>> {
        self.read_with(|memory| {
            let infos = memory.runs.values().map(|kept| &kept.info);
            let running = infos.filter(|info| info.state == RunState::Running);
            let owners: BTreeSet<_> = running.filter_map(|info| info.owner.clone()).collect();
            let beat = |node: Box<str>| {
                let beat = memory.beats.get(&node).copied().unwrap_or_default();
                NodeBeat { node, beat }
            };
            Ok(owners.into_iter().map(beat).collect())
        })
    }

    fn release(&self, run: RunId, node: Box<str>, epoch: u64) -> StoreFuture<'_, ()> {
        self.write_run(run, |memory| {
            if let Some(info) = memory.runs.get_mut(&run).map(|kept| &mut kept.info)
                && info.epoch == epoch
            {
                info.owner.take_if(|owner| *owner == node);
            }
            Ok(())
        })
    }

    fn due(&self, query: DueQuery) -> StoreFuture<'_, Vec<Due>> {
        self.read_with(|memory| {
            let mut due: Vec<_> = memory
                .runs
                .values()
                .filter_map(|kept| {
                    let since = Memory::due_since(kept, &query.gone)?;
                    let RunInfo { run, agent, owner, .. } = kept.info.clone();
                    Some(Due { run, agent, owner, since })
                })
                .filter(|due| due.since <= query.now)
                .filter(|due| query.after.is_none_or(|after| due.place() > after))
                .collect();
            due.sort_by_key(Due::place);
            due.truncate(query.limit_or_max());
            Ok(due)
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

    fn threads(&self, filter: ThreadFilter) -> StoreFuture<'_, Vec<ThreadInfo>> {
        self.read_with(|memory| Ok(memory.threads(&filter)))
    }

    fn change_thread(
        &self,
        tenant: Box<str>,
        thread: ThreadId,
        change: ThreadChange,
    ) -> StoreFuture<'_, bool> {
        self.write(|memory| {
            change.check()?;
            let found = memory.threads.get(&thread);
            let info = found.and_then(|found| memory.thread_info(thread, found));
            if info.is_none_or(|info| info.tenant != tenant) {
                return Ok(false);
            }
            if let Some(thread) = memory.threads.get_mut(&thread) {
                if let Some(title) = change.title {
                    thread.title = Some(title).filter(|title| !title.is_empty());
                }
                thread.archived = change.archived.unwrap_or(thread.archived);
            }
            Ok(true)
        })
    }

    fn delete(&self, run: RunId) -> StoreFuture<'_, bool> {
        self.write_run(run, |memory| {
            let Some(kept) = memory.runs.get(&run) else { return Ok(false) };
            if !kept.info.state.is_final() {
                return Err(StoreError::Unfinished(run));
            }
            memory.forget(run);
            Ok(true)
        })
    }

    fn backup(&self, _to: PathBuf) -> StoreFuture<'_, ()> {
        let unsupported = StoreError::Unsupported("backing up what is only in memory");
        std::future::ready(Err(unsupported)).boxed()
    }
}
