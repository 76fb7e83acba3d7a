//! An index of runs, without their frames: states, names, threads, inboxes, documents and the
//! audit log, with every query that a store answers from them.
//!
//! The memory store keeps its frames next to it. A store whose servers have no secondary
//! indexes keeps it as a projection.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;

use wellspring_core::{InboxNo, Millis, RunId, Seq, ThreadId};

use crate::audit::{AUDIT_MAX, AuditEntry, AuditFilter, NewAudit};
use crate::document::{Document, DocumentFilter};
use crate::due::{Due, DueQuery, NodeBeat};
use crate::inbox::{InboxEntry, InboxRoom, NewCommand, Plan, plan};
use crate::store::{
    Adopt, Created, ExportedCommand, ExternalId, HistoryQuery, LIST_MAX, NewRun, RunExport,
    RunFilter, RunInfo, RunState, StoreError,
};
use crate::thread::{ThreadChange, ThreadFilter, ThreadInfo};
use crate::thread_search::has_words;

/// Estimated overhead of an entry in bytes, so that many small entries count too.
pub(crate) const ENTRY_BYTES: usize = 64;

/// Estimated overhead of a run in bytes.
pub(crate) const RUN_BYTES: usize = 512;

/// The index. `F` is what a store adds to each run.
#[derive(Debug)]
pub(crate) struct Index<F> {
    pub(crate) runs: BTreeMap<RunId, Kept<F>>,
    /// The runs that are not finished.
    open: BTreeSet<RunId>,
    busy: HashMap<ThreadId, RunId>,
    threads: HashMap<ThreadId, Thread>,
    /// The number of each node's last heartbeat.
    beats: HashMap<Box<str>, u64>,
    external: BTreeMap<ExternalId, RunId>,
    pub(crate) documents: BTreeMap<Box<str>, Document>,
    /// By tenant.
    audit: BTreeMap<Box<str>, Audit>,
    /// Estimated memory use of the whole index, in bytes.
    pub(crate) bytes: usize,
}

#[derive(Debug, Default)]
struct Thread {
    runs: BTreeSet<RunId>,
    title: Option<Box<str>>,
    archived: bool,
}

/// A run.
#[derive(Debug)]
pub(crate) struct Kept<F> {
    pub(crate) info: RunInfo,
    /// The entries, each with whether a frame has taken it.
    inbox: Vec<(InboxEntry, bool)>,
    /// The number of entries that no frame has taken.
    waiting: usize,
    deadline: Option<Millis>,
    /// The searchable text of its thread.
    search: Box<str>,
    /// The ids that surfaces use for it.
    pub(crate) names: Vec<ExternalId>,
    pub(crate) bytes: usize,
    /// What the store adds to it.
    pub(crate) frames: F,
}

/// The audit log of one tenant.
#[derive(Debug, Default)]
struct Audit {
    last: u64,
    numbers: HashMap<Box<str>, u64>,
    /// Each with its size.
    entries: BTreeMap<u64, (AuditEntry, usize)>,
    /// The number of entries that were dropped.
    evicted: usize,
}

/// The changes of a frame apart from its records.
#[derive(Debug, Default)]
pub(crate) struct FrameChange {
    pub(crate) count: u32,
    pub(crate) at: Millis,
    pub(crate) state: Option<RunState>,
    pub(crate) taken: Vec<InboxNo>,
    pub(crate) deadline: Option<Millis>,
    pub(crate) search: Option<Box<str>>,
    pub(crate) adopt: Option<Adopt>,
}

impl<F> Default for Index<F> {
    fn default() -> Self {
        Self {
            runs: BTreeMap::new(),
            open: BTreeSet::new(),
            busy: HashMap::new(),
            threads: HashMap::new(),
            beats: HashMap::new(),
            external: BTreeMap::new(),
            documents: BTreeMap::new(),
            audit: BTreeMap::new(),
            bytes: 0,
        }
    }
}

impl<F> Index<F> {
    pub(crate) fn kept(&self, run: RunId) -> Result<&Kept<F>, StoreError> {
        self.runs.get(&run).ok_or(StoreError::NoRun(run))
    }

    /// Adds to the size of a run.
    pub(crate) fn grow(&mut self, run: RunId, bytes: usize) -> Result<&mut Kept<F>, StoreError> {
        let kept = self.runs.get_mut(&run).ok_or(StoreError::NoRun(run))?;
        kept.bytes += bytes;
        self.bytes += bytes;
        Ok(kept)
    }

    /// The reason why a run cannot be created; `None` if it can.
    pub(crate) fn refuses(&self, new: &NewRun) -> Option<Created> {
        if let Some(kept) = self.runs.get(&new.run) {
            return Some(Created::Exists(Box::new(kept.info.clone())));
        }
        if let Some(run) = new.name.as_ref().and_then(|name| self.external.get(name)) {
            return Some(Created::Named(*run));
        }
        if new.is_first && self.threads.contains_key(&new.thread) {
            return Some(Created::NotFirst);
        }
        self.busy.get(&new.thread).map(|run| Created::ThreadBusy(*run))
    }

    /// The size of a new run without its first frame.
    pub(crate) fn new_bytes(new: &NewRun) -> usize {
        RUN_BYTES + new.title.len() + ENTRY_BYTES + new.name.as_ref().map_or(0, name_bytes)
    }

    /// Adds a run, without frames. The caller has checked [`refuses`](Self::refuses).
    pub(crate) fn insert(&mut self, new: NewRun, at: Millis, frames: F) {
        let bytes = Self::new_bytes(&new);
        self.bytes += bytes;
        self.busy.insert(new.thread, new.run);
        self.open.insert(new.run);
        self.threads.entry(new.thread).or_default().runs.insert(new.run);
        let names: Vec<_> = new.name.into_iter().collect();
        for name in &names {
            self.external.insert(name.clone(), new.run);
        }
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
            created_at: at,
            updated_at: at,
        };
        let (inbox, search) = (Vec::new(), Box::default());
        let kept = Kept { info, inbox, waiting: 0, deadline: None, search, names, bytes, frames };
        self.runs.insert(new.run, kept);
    }

    /// Applies the changes of a frame.
    pub(crate) fn advance(&mut self, run: RunId, change: FrameChange) {
        let Some(kept) = self.runs.get_mut(&run) else { return };
        let info = &mut kept.info;
        if let Some(adopt) = change.adopt {
            info.epoch = adopt.epoch;
            info.owner = Some(adopt.node);
        }
        info.head = Seq(info.head.0 + u64::from(change.count));
        if !change.taken.is_empty() {
            let taken: BTreeSet<_> = change.taken.into_iter().collect();
            for (entry, is_taken) in &mut kept.inbox {
                *is_taken |= taken.contains(&entry.number);
            }
            kept.waiting = kept.inbox.iter().filter(|(_, taken)| !taken).count();
        }
        if let Some(search) = change.search {
            kept.bytes += search.len();
            self.bytes += search.len();
            kept.search = search;
        }
        let Some(state) = change.state else { return };
        if state != info.state {
            info.updated_at = change.at;
        }
        info.state = state;
        kept.deadline = change.deadline.filter(|_| state == RunState::Paused);
        if state != RunState::Running {
            info.owner = None;
        }
        if state.is_final() {
            self.open.remove(&run);
            // A damaged run may end twice; by then, the thread may be busy with another run.
            if self.busy.get(&info.thread) == Some(&run) {
                self.busy.remove(&info.thread);
            }
        }
    }

    /// Removes a run and everything that belongs to it.
    pub(crate) fn forget(&mut self, run: RunId) -> Option<Kept<F>> {
        let kept = self.runs.remove(&run)?;
        self.bytes -= kept.bytes;
        self.open.remove(&run);
        if self.busy.get(&kept.info.thread) == Some(&run) {
            self.busy.remove(&kept.info.thread);
        }
        if let Some(thread) = self.threads.get_mut(&kept.info.thread) {
            thread.runs.remove(&run);
            if thread.runs.is_empty() {
                self.threads.remove(&kept.info.thread);
            }
        }
        for name in &kept.names {
            self.external.remove(name);
        }
        Some(kept)
    }

    /// The finished runs, oldest first: ids are ordered by time.
    pub(crate) fn finished(&self) -> impl Iterator<Item = &Kept<F>> {
        self.runs.values().filter(|kept| kept.info.state.is_final())
    }

    #[cfg(feature = "nats")]
    pub(crate) fn has_thread(&self, thread: ThreadId) -> bool {
        self.threads.contains_key(&thread)
    }

    pub(crate) fn list(&self, filter: &RunFilter) -> Vec<RunInfo> {
        let end = filter.after_run.map_or(Bound::Unbounded, Bound::Excluded);
        let within = (Bound::Unbounded, end);
        let states = &filter.states;
        let take = filter.limit_or_max();
        if !states.is_empty() && !states.iter().any(|state| state.is_final()) {
            // There are few of these, however many have finished.
            let open = self.open.range(within).rev().filter_map(|run| self.runs.get(run));
            let infos = open.map(|kept| &kept.info).filter(|info| filter.matches(info));
            return infos.take(take).cloned().collect();
        }
        let infos = self.runs.range(within).rev().map(|(_, kept)| &kept.info);
        infos.filter(|info| filter.matches(info)).take(take).cloned().collect()
    }

    /// A run and the runs that it continues, newest first.
    pub(crate) fn history(&self, query: &HistoryQuery) -> Vec<&Kept<F>> {
        let mut history = Vec::new();
        let mut next = self.runs.get(&query.run);
        while let Some(kept) = next.filter(|_| history.len() < query.max.min(LIST_MAX)) {
            let info = &kept.info;
            next = info.after.and_then(|after| {
                let older = || {
                    let runs = &self.threads.get(&info.thread)?.runs;
                    self.runs.get(runs.range(..after).next_back()?)
                };
                self.runs.get(&after).or_else(older)
            });
            next = next.filter(|next| next.info.tenant == info.tenant);
            history.push(kept);
        }
        history
    }

    /// Plans how to put commands into the inbox of a run.
    pub(crate) fn plan_inbox(
        &self,
        run: RunId,
        commands: Vec<NewCommand>,
    ) -> Result<Plan, StoreError> {
        let kept = self.kept(run)?;
        let (inbox, state) = (&kept.inbox, kept.info.state);
        // Most calls put one command, so an index of the keys would cost more than it saves.
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
        plan(run, state, commands, last, find, waiting)
    }

    pub(crate) fn put_inbox(&mut self, run: RunId, entry: InboxEntry) {
        if let Some(kept) = self.runs.get_mut(&run) {
            kept.inbox.push((entry, false));
            kept.waiting += 1;
        }
    }

    pub(crate) fn inbox(&self, run: RunId, after: InboxNo) -> Result<Vec<InboxEntry>, StoreError> {
        let waiting = self.kept(run)?.inbox.iter().filter(|(_, taken)| !taken);
        let waiting = waiting.map(|(entry, _)| entry);
        Ok(waiting.filter(|entry| entry.number > after).cloned().collect())
    }

    pub(crate) fn export(&self, run: RunId) -> Result<RunExport, StoreError> {
        let kept = self.kept(run)?;
        let command = |(entry, taken): &(InboxEntry, bool)| ExportedCommand {
            entry: entry.clone(),
            taken: *taken,
        };
        let inbox = kept.inbox.iter().map(command).collect();
        Ok(RunExport { names: kept.names.clone(), inbox })
    }

    /// The tenants that have runs or audit entries, in order.
    pub(crate) fn tenants(&self) -> Vec<Box<str>> {
        let runs = self.runs.values().map(|kept| &kept.info.tenant);
        let tenants: BTreeSet<_> = runs.chain(self.audit.keys()).cloned().collect();
        tenants.into_iter().collect()
    }

    pub(crate) fn beat(&mut self, node: Box<str>, number: u64) {
        self.beats.insert(node, number);
    }

    /// The number of a node's last heartbeat; zero if there was none.
    pub(crate) fn last_beat(&self, node: &str) -> u64 {
        self.beats.get(node).copied().unwrap_or_default()
    }

    pub(crate) fn nodes(&self) -> Vec<NodeBeat> {
        let infos = self.open.iter().filter_map(|run| self.runs.get(run)).map(|kept| &kept.info);
        let running = infos.filter(|info| info.state == RunState::Running);
        let owners: BTreeSet<_> = running.filter_map(|info| info.owner.clone()).collect();
        let beat = |node: Box<str>| NodeBeat { beat: self.last_beat(&node), node };
        owners.into_iter().map(beat).collect()
    }

    /// Whether this node owns a run in this epoch.
    pub(crate) fn is_owner(&self, run: RunId, node: &str, epoch: u64) -> bool {
        self.runs.get(&run).is_some_and(|kept| {
            kept.info.epoch == epoch && kept.info.owner.as_deref() == Some(node)
        })
    }

    pub(crate) fn release(&mut self, run: RunId) {
        if let Some(kept) = self.runs.get_mut(&run) {
            kept.info.owner = None;
        }
    }

    pub(crate) fn due(&self, query: &DueQuery) -> Vec<Due> {
        let mut due: Vec<_> = self
            .open
            .iter()
            .filter_map(|run| self.runs.get(run))
            .filter_map(|kept| {
                let since = kept.due_since(&query.gone)?;
                let RunInfo { run, agent, owner, .. } = kept.info.clone();
                Some(Due { run, agent, owner, since })
            })
            .filter(|due| due.since <= query.now)
            .filter(|due| query.after.is_none_or(|after| due.place() > after))
            .collect();
        due.sort_by_key(Due::place);
        due.truncate(query.limit_or_max());
        due
    }

    /// Binds a name to a run, unless it is bound already. Returns the run that it is bound to.
    pub(crate) fn bind(&mut self, external: ExternalId, run: RunId) -> Result<RunId, StoreError> {
        if let Some(bound) = self.external.get(&external) {
            return Ok(*bound);
        }
        let kept = self.grow(run, name_bytes(&external))?;
        kept.names.push(external.clone());
        self.external.insert(external, run);
        Ok(run)
    }

    pub(crate) fn resolve(&self, external: &ExternalId) -> Option<RunId> {
        self.external.get(external).copied()
    }

    /// Stores a document, or deletes it if `text` is `None`.
    pub(crate) fn put_document(&mut self, name: Box<str>, text: Option<Box<str>>, revision: u64) {
        let old = match text {
            Some(text) => {
                self.bytes += document_bytes(&name, &text);
                self.documents.insert(name.clone(), Document { name, revision, text })
            }
            None => self.documents.remove(&name),
        };
        self.bytes -= old.map_or(0, |old| document_bytes(&old.name, &old.text));
    }

    pub(crate) fn documents(&self, filter: &DocumentFilter) -> Result<Vec<Document>, StoreError> {
        filter.check()?;
        let from = match filter.after.clone() {
            Some(after) if after >= filter.prefix => Bound::Excluded(after),
            Some(_) | None => Bound::Included(filter.prefix.clone()),
        };
        let found = self.documents.range((from, Bound::Unbounded)).map(|(_, it)| it);
        let below = found.take_while(|document| document.name.starts_with(&*filter.prefix));
        Ok(below.take(filter.limit_or_max()).cloned().collect())
    }

    /// The number of the entry with this key.
    pub(crate) fn audit_number(&self, tenant: &str, key: &str) -> Option<u64> {
        self.audit.get(tenant)?.numbers.get(key).copied()
    }

    /// The number after the last.
    pub(crate) fn next_audit(&self, tenant: &str) -> u64 {
        self.audit.get(tenant).map_or(0, |audit| audit.last) + 1
    }

    /// The number of a tenant's oldest entry, if the tenant has more than
    /// [`AUDIT_MAX`](crate::AUDIT_MAX) entries.
    #[cfg(feature = "nats")]
    pub(crate) fn audit_excess(&self, tenant: &str) -> Option<u64> {
        let audit = self.audit.get(tenant)?;
        let (oldest, _) = audit.entries.first_key_value()?;
        (audit.evicted.is_multiple_of(AUDIT_MAX / 10) && audit.evicted > 0).then_some(*oldest)
    }

    /// Stores an entry under a number above all others, unless its key exists. Beyond the
    /// limit, the tenant's oldest entry is dropped, and its number is returned.
    pub(crate) fn put_audit(&mut self, new: NewAudit, number: u64) -> Option<u64> {
        let bytes = audit_bytes(&new);
        let NewAudit { tenant, key, act } = new;
        let audit = self.audit.entry(tenant).or_default();
        if audit.numbers.contains_key(&key) {
            return None;
        }
        audit.last = number;
        audit.numbers.insert(key.clone(), number);
        audit.entries.insert(number, (AuditEntry { number, key, act }, bytes));
        self.bytes += bytes;
        if audit.entries.len() <= AUDIT_MAX {
            return None;
        }
        let (number, (oldest, bytes)) = audit.entries.pop_first()?;
        audit.numbers.remove(&oldest.key);
        audit.evicted += 1;
        self.bytes -= bytes;
        Some(number)
    }

    pub(crate) fn audit(&self, filter: &AuditFilter) -> Vec<AuditEntry> {
        let Some(audit) = self.audit.get(&filter.tenant) else { return Vec::new() };
        let older = audit.entries.range(..filter.before.unwrap_or(u64::MAX)).rev();
        older.take(filter.limit).map(|(_, (entry, ..))| entry.clone()).collect()
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

    pub(crate) fn threads(&self, filter: &ThreadFilter) -> Vec<ThreadInfo> {
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

    /// The title and the archive flag of a thread after a change; `None` if the tenant has no
    /// such thread.
    pub(crate) fn changed_thread(
        &self,
        tenant: &str,
        thread: ThreadId,
        change: ThreadChange,
    ) -> Option<(Option<Box<str>>, bool)> {
        let found = self.threads.get(&thread)?;
        self.thread_info(thread, found).filter(|info| *info.tenant == *tenant)?;
        let title = match change.title {
            Some(title) => Some(title).filter(|title| !title.is_empty()),
            None => found.title.clone(),
        };
        Some((title, change.archived.unwrap_or(found.archived)))
    }

    pub(crate) fn set_thread(&mut self, thread: ThreadId, title: Option<Box<str>>, archived: bool) {
        if let Some(thread) = self.threads.get_mut(&thread) {
            (thread.title, thread.archived) = (title, archived);
        }
    }
}

impl<F> Kept<F> {
    /// The time since when it is due; `None` if it is never due.
    fn due_since(&self, gone: &[Box<str>]) -> Option<Millis> {
        match self.info.state {
            RunState::Running => {
                let owner = self.info.owner.as_ref();
                owner.is_none_or(|owner| gone.contains(owner)).then_some(Millis(0))
            }
            RunState::Paused if self.waiting > 0 => Some(Millis(0)),
            RunState::Paused => self.deadline,
            RunState::Completed | RunState::Cancelled | RunState::Failed => None,
        }
    }
}

/// The size of a surface's id of a run.
pub(crate) fn name_bytes(name: &ExternalId) -> usize {
    ENTRY_BYTES + name.tenant.len() + name.surface.len() + name.id.len()
}

/// The size of an audit entry.
pub(crate) fn audit_bytes(new: &NewAudit) -> usize {
    let words = new.act.by.len() + new.act.did.len() + new.act.details.to_string().len();
    ENTRY_BYTES + 2 * new.key.len() + words
}

/// The size of a document.
pub(crate) fn document_bytes(name: &str, text: &str) -> usize {
    ENTRY_BYTES + name.len() + text.len()
}
