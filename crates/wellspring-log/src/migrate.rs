//! Copies everything from one store to another of any kind, and compares the two.
//!
//! All data is read and written through the [`Store`] contract. The records of a run stay the same,
//! byte for byte. Frames are cut differently only where the new store's maximum frame size is
//! smaller. Owners are not copied: a run that was running is due in the new store.
//!
//! # What is deliberately absent
//!
//! Outline snapshots, which are created again on demand; revisions of documents and numbers of
//! audit entries, which are meaningful only within one store.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use wellspring_core::{Event, InboxNo, Millis, Record, RunId, Seq, Transcript};

use crate::append_retry::append_once;
use crate::audit::{AuditEntry, AuditFilter, NewAudit};
use crate::codec;
use crate::document::{Document, DocumentFilter, Expected, Written};
use crate::due::{DueQuery, NodeBeat};
use crate::fold::{read_page, write_snapshot};
use crate::inbox::taken_by;
use crate::run_state::state_of;
use crate::store::{
    Adopt, Append, AppendError, Created, LIST_MAX, NewFrame, NewRun, RunExport, RunFilter, RunInfo,
    RunState, SnapshotKind, Store, StoreError,
};
use crate::thread::{ThreadChange, ThreadFilter, ThreadInfo, search_text};

/// Bytes of a run per read.
const PAGE_BYTES: usize = 1024 * 1024;

/// Audit entries per read.
const AUDIT_PAGE: usize = 1000;

/// The name of the node that owns a run while it is copied. It releases every run.
const NODE: &str = "migration";

/// What was copied.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Migrated {
    /// Number of runs.
    pub runs: u64,
    /// Number of records of all runs.
    pub records: u64,
    /// Number of commands in inboxes, including those that have taken effect.
    pub commands: u64,
    /// Number of surfaces' own ids of runs.
    pub names: u64,
    /// Number of threads.
    pub threads: u64,
    /// Number of documents.
    pub documents: u64,
    /// Number of audit entries.
    pub audit: u64,
    /// The CRC-32 of everything, equal in both stores.
    pub sum: u32,
}

/// A migration failed. The original store is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// A process is working on runs of the original store.
    #[error("node {0} is working on runs; stop every process that uses the store")]
    InUse(Box<str>),
    /// The new store is not empty.
    #[error("the store to copy to is not empty: it has {0}; name an empty one, or empty it")]
    NotEmpty(&'static str),
    /// A record is larger than the new store's maximum.
    #[error("record {at} of run {run} has {bytes} bytes; the store to copy to takes {max}")]
    TooLarge {
        /// The run.
        run: RunId,
        /// The number of the record.
        at: Seq,
        /// The record's size.
        bytes: usize,
        /// The new store's maximum.
        max: usize,
    },
    /// The copy differs from the original.
    #[error("the copy differs from the original: {0}; delete the copy and try again")]
    Differs(String),
    /// The original store failed.
    #[error("failed to read the store to copy from")]
    From(#[source] StoreError),
    /// The new store failed.
    #[error("failed to write the store to copy to; delete what is in it and try again")]
    To(#[source] StoreError),
    /// A frame could not be appended to a run.
    #[error("failed to write run {run}; delete what is in the store to copy to and try again")]
    Append {
        /// The run.
        run: RunId,
        /// The cause.
        #[source]
        cause: AppendError,
    },
}

/// Copies everything from a store that no process uses to an empty store, and compares both.
///
/// `beats` is how long to watch for heartbeats of nodes that own runs.
///
/// # Errors
///
/// If a process uses the original store, the new store is not empty, one of them fails or is
/// damaged, or the copy differs.
pub async fn migrate(
    from: &dyn Store,
    to: &dyn Store,
    beats: Duration,
) -> Result<Migrated, MigrateError> {
    check_idle(from, beats).await?;
    check_empty(to).await?;
    let tenants = from.tenants().await.map_err(MigrateError::From)?;
    let runs = all_runs(from).await.map_err(MigrateError::From)?;
    let deadlines = deadlines(from).await.map_err(MigrateError::From)?;
    // Finished runs first: a thread has at most one unfinished run, and while it has one, no other
    // run can be created in it.
    let (finished, unfinished): (Vec<_>, Vec<_>) =
        runs.iter().partition(|info| info.state.is_final());
    for info in finished.into_iter().chain(unfinished) {
        copy_run(from, to, info, deadlines.get(&info.run).copied()).await?;
    }
    for tenant in &tenants {
        for thread in all_threads(from, tenant).await.map_err(MigrateError::From)? {
            let change =
                ThreadChange { title: Some(thread.title), archived: Some(thread.archived) };
            let changed = to.change_thread(tenant.clone(), thread.thread, change).await;
            changed.map_err(MigrateError::To)?;
        }
        for entry in all_audit(from, tenant).await.map_err(MigrateError::From)? {
            let new = NewAudit { tenant: tenant.clone(), key: entry.key, act: entry.act };
            to.put_audit(new).await.map_err(MigrateError::To)?;
        }
    }
    let mut filter = DocumentFilter::default();
    loop {
        let page = from.documents(filter.clone()).await.map_err(MigrateError::From)?;
        let Some(last) = page.last() else { break };
        filter.after = Some(last.name.clone());
        for Document { name, text, .. } in page {
            let put = to.put_document(name.clone(), Some(text), Expected::Absent).await;
            if let Written::Conflict(_) = put.map_err(MigrateError::To)? {
                return Err(MigrateError::Differs(format!("document `{name}` was there")));
            }
        }
    }
    compare(from, to).await
}

/// Fails if a node that owns runs writes a heartbeat within `beats`.
async fn check_idle(store: &dyn Store, beats: Duration) -> Result<(), MigrateError> {
    let before = store.nodes().await.map_err(MigrateError::From)?;
    if before.is_empty() {
        return Ok(());
    }
    tokio::time::sleep(beats).await;
    let after = store.nodes().await.map_err(MigrateError::From)?;
    let alive = |it: &NodeBeat| before.contains(it);
    match after.into_iter().find(|it| !alive(it)) {
        Some(NodeBeat { node, .. }) => Err(MigrateError::InUse(node)),
        None => Ok(()),
    }
}

async fn check_empty(store: &dyn Store) -> Result<(), MigrateError> {
    let one = RunFilter { limit: 1, ..RunFilter::default() };
    if !store.list(one).await.map_err(MigrateError::To)?.is_empty() {
        return Err(MigrateError::NotEmpty("runs"));
    }
    let one = DocumentFilter { limit: 1, ..DocumentFilter::default() };
    if !store.documents(one).await.map_err(MigrateError::To)?.is_empty() {
        return Err(MigrateError::NotEmpty("documents"));
    }
    if !store.tenants().await.map_err(MigrateError::To)?.is_empty() {
        return Err(MigrateError::NotEmpty("an audit"));
    }
    Ok(())
}

/// All runs, oldest first.
async fn all_runs(store: &dyn Store) -> Result<Vec<RunInfo>, StoreError> {
    let mut filter = RunFilter { limit: LIST_MAX, ..RunFilter::default() };
    let mut all = Vec::new();
    loop {
        let page = store.list(filter.clone()).await?;
        let Some(last) = page.last() else { break };
        filter.after_run = Some(last.run);
        all.extend(page);
    }
    all.reverse();
    Ok(all)
}

/// The deadlines of paused runs.
async fn deadlines(store: &dyn Store) -> Result<BTreeMap<RunId, Millis>, StoreError> {
    let mut query = DueQuery { now: Millis(u64::MAX), ..DueQuery::default() };
    let mut deadlines = BTreeMap::new();
    loop {
        let page = store.due(query.clone()).await?;
        let Some(last) = page.last() else { return Ok(deadlines) };
        query.after = Some(last.place());
        // A run that is due at once has no deadline, or its deadline is computed again.
        let later = page.into_iter().filter(|due| due.since > Millis(0));
        deadlines.extend(later.map(|due| (due.run, due.since)));
    }
}

async fn all_threads(store: &dyn Store, tenant: &str) -> Result<Vec<ThreadInfo>, StoreError> {
    let mut filter = ThreadFilter { tenant: tenant.into(), ..ThreadFilter::default() };
    let mut all = Vec::new();
    loop {
        let page = store.threads(filter.clone()).await?;
        let Some(last) = page.last() else { return Ok(all) };
        filter.after = Some(last.latest);
        all.extend(page);
    }
}

/// A tenant's audit entries, oldest first.
async fn all_audit(store: &dyn Store, tenant: &str) -> Result<Vec<AuditEntry>, StoreError> {
    let mut filter = AuditFilter { tenant: tenant.into(), before: None, limit: AUDIT_PAGE };
    let mut all = Vec::new();
    loop {
        let page = store.audit(filter.clone()).await?;
        let Some(last) = page.last() else { break };
        filter.before = Some(last.number);
        all.extend(page);
    }
    all.reverse();
    Ok(all)
}

async fn copy_run(
    from: &dyn Store,
    to: &dyn Store,
    info: &RunInfo,
    deadline: Option<Millis>,
) -> Result<(), MigrateError> {
    let run = info.run;
    let RunExport { names, inbox } = from.export(run).await.map_err(MigrateError::From)?;
    let mut taken: BTreeSet<InboxNo> =
        inbox.iter().filter(|it| it.taken).map(|it| it.entry.number).collect();
    let mut entries = Some(inbox.into_iter().map(|it| it.entry).collect::<Vec<_>>());
    let mut copy = Copy { to, info, deadline, transcript: Transcript::default(), epoch: 0 };
    let mut position = Seq(0);
    while position < info.head {
        let page = from.read(run, position, PAGE_BYTES).await.map_err(MigrateError::From)?;
        let frames = read_page(run, position, &page).map_err(MigrateError::From)?;
        for frame in &frames {
            position = frame.last();
            let mut frame = copy.frame(frame.records());
            if position == info.head {
                // No record names the commands that had no effect, so the last frame takes them.
                frame.taken.extend(std::mem::take(&mut taken));
            } else {
                taken.retain(|number| !frame.taken.contains(number));
            }
            copy.put(frame).await?;
            if let Some(entries) = entries.take().filter(|entries| !entries.is_empty()) {
                to.import_inbox(run, entries).await.map_err(MigrateError::To)?;
            }
        }
    }
    for name in names {
        to.bind(name, run).await.map_err(MigrateError::To)?;
    }
    if info.state == RunState::Running {
        to.release(run, copy.node(), copy.epoch).await.map_err(MigrateError::To)?;
    }
    Ok(())
}

/// The copy of a run.
struct Copy<'a> {
    to: &'a dyn Store,
    info: &'a RunInfo,
    deadline: Option<Millis>,
    transcript: Transcript,
    epoch: u64,
}

/// A frame to be written, and the inbox entries that it takes.
struct CopiedFrame {
    records: Vec<Record>,
    taken: Vec<InboxNo>,
}

impl Copy<'_> {
    fn node(&self) -> Box<str> {
        NODE.into()
    }

    fn frame(&self, records: &[Record]) -> CopiedFrame {
        let taken = records.iter().filter_map(|record| taken_by(&record.event)).collect();
        CopiedFrame { records: records.to_vec(), taken }
    }

    /// Writes a frame, in several pieces if it exceeds the new store's maximum.
    async fn put(&mut self, frame: CopiedFrame) -> Result<(), MigrateError> {
        let CopiedFrame { mut records, taken } = frame;
        let (run, max) = (self.info.run, self.to.frame_bytes_max());
        while !records.is_empty() {
            let mut count = records.len();
            let body = loop {
                let body = encoded(run, &records[..count])?;
                if body.len() <= max {
                    break body;
                }
                if count == 1 {
                    let (at, bytes) = (records[0].seq, body.len());
                    return Err(MigrateError::TooLarge { run, at, bytes, max });
                }
                count /= 2;
            };
            let rest = records.split_off(count);
            let taken = if rest.is_empty() { taken.clone() } else { Vec::new() };
            self.put_piece(&records, body, taken).await?;
            records = rest;
        }
        Ok(())
    }

    async fn put_piece(
        &mut self,
        records: &[Record],
        body: Vec<u8>,
        taken: Vec<InboxNo>,
    ) -> Result<(), MigrateError> {
        let (run, expected) = (self.info.run, self.transcript.outline.head);
        let (mut state, mut adopt) = (None, None);
        for record in records {
            self.transcript.apply(record);
            state = state_of(&record.event).or(state);
            if let Event::RunAdopted { epoch, .. } = &record.event {
                self.epoch = *epoch;
            }
            if let Event::RunAdopted { .. } | Event::RunResumed { .. } = &record.event {
                adopt = Some(Adopt { epoch: self.epoch, node: self.node() });
            }
        }
        let ends = state.is_some_and(RunState::is_final);
        let (kind, at) = (SnapshotKind::Transcript, self.transcript.outline.head);
        let folded = ends.then(|| write_snapshot(run, kind, at, &self.transcript)).flatten();
        let frame = NewFrame {
            count: u32::try_from(records.len()).unwrap_or(u32::MAX),
            body: body.into(),
            at: records.last().map_or(Millis(0), |record| record.at),
            state,
            taken,
            deadline: self.deadline.filter(|_| state == Some(RunState::Paused)),
            folded: folded.map(Into::into),
            search: ends.then(|| search_text(&self.transcript)),
        };
        if expected == Seq(0) {
            return self.create(frame).await;
        }
        let adopt = adopt.filter(|_| state == Some(RunState::Running));
        let append = Append { run, expected, frame, adopt };
        append_once(self.to, &append).await.map_err(|cause| MigrateError::Append { run, cause })
    }

    async fn create(&self, first: NewFrame) -> Result<(), MigrateError> {
        let info = self.info;
        let new = NewRun {
            run: info.run,
            thread: info.thread,
            agent: info.agent.clone(),
            tenant: info.tenant.clone(),
            after: info.after,
            title: info.title.clone(),
            name: None,
            is_first: false,
            node: self.node(),
        };
        match self.to.create(new, first).await.map_err(MigrateError::To)? {
            Created::New => Ok(()),
            Created::Exists(_) | Created::Named(_) | Created::ThreadBusy(_) | Created::NotFirst => {
                Err(MigrateError::Differs(format!("run {} could not be created", info.run)))
            }
        }
    }
}

fn encoded(run: RunId, records: &[Record]) -> Result<Vec<u8>, MigrateError> {
    codec::encode(records).map_err(|error| {
        MigrateError::From(StoreError::Damaged {
            run,
            at: records.first().map_or(Seq(0), |record| record.seq),
            what: error.to_string(),
        })
    })
}

/// Reads both stores completely and compares them.
async fn compare(from: &dyn Store, to: &dyn Store) -> Result<Migrated, MigrateError> {
    let mut migrated = Migrated::default();
    let mut sum = crc32fast::Hasher::new();
    let runs = all_runs(from).await.map_err(MigrateError::From)?;
    let copies = all_runs(to).await.map_err(MigrateError::To)?;
    same("the number of runs", &runs.len(), &copies.len())?;
    for (info, copy) in runs.iter().zip(&copies) {
        let run = info.run;
        let ours = |info: &RunInfo| RunInfo { owner: None, ..info.clone() };
        same(&format!("run {run}"), &ours(info), &ours(copy))?;
        let read = records(from, info).await.map_err(MigrateError::From)?;
        let written = records(to, copy).await.map_err(MigrateError::To)?;
        same(&format!("the records of run {run}"), &read, &written)?;
        let export = from.export(run).await.map_err(MigrateError::From)?;
        let import = to.export(run).await.map_err(MigrateError::To)?;
        same(&format!("the inbox and the names of run {run}"), &sorted(&export), &sorted(&import))?;
        migrated.runs += 1;
        migrated.records += read.0;
        migrated.commands += export.inbox.len() as u64;
        migrated.names += export.names.len() as u64;
        add(&mut sum, &(ours(info), read, sorted(&export)));
    }
    let tenants = from.tenants().await.map_err(MigrateError::From)?;
    same("the tenants", &tenants, &to.tenants().await.map_err(MigrateError::To)?)?;
    for tenant in &tenants {
        let threads = all_threads(from, tenant).await.map_err(MigrateError::From)?;
        let copies = all_threads(to, tenant).await.map_err(MigrateError::To)?;
        same(&format!("the threads of tenant {tenant}"), &threads, &copies)?;
        let acts = |all: Vec<AuditEntry>| -> Vec<_> {
            all.into_iter().map(|entry| (entry.key, entry.act)).collect()
        };
        let audit = acts(all_audit(from, tenant).await.map_err(MigrateError::From)?);
        let copies = acts(all_audit(to, tenant).await.map_err(MigrateError::To)?);
        same(&format!("the audit of tenant {tenant}"), &audit, &copies)?;
        migrated.threads += threads.len() as u64;
        migrated.audit += audit.len() as u64;
        add(&mut sum, &(threads, audit));
    }
    let (mut ours, mut theirs) = (DocumentFilter::default(), DocumentFilter::default());
    loop {
        let texts = |page: Vec<Document>| -> Vec<_> {
            page.into_iter().map(|document| (document.name, document.text)).collect()
        };
        let page = texts(from.documents(ours.clone()).await.map_err(MigrateError::From)?);
        let copies = texts(to.documents(theirs.clone()).await.map_err(MigrateError::To)?);
        same("the documents", &page, &copies)?;
        let Some((last, _)) = page.last() else { break };
        (ours.after, theirs.after) = (Some(last.clone()), Some(last.clone()));
        migrated.documents += page.len() as u64;
        add(&mut sum, &page);
    }
    migrated.sum = sum.finalize();
    Ok(migrated)
}

/// The number of a run's records, and their checksum.
async fn records(store: &dyn Store, info: &RunInfo) -> Result<(u64, u32), StoreError> {
    let (mut count, mut sum) = (0, crc32fast::Hasher::new());
    let mut position = Seq(0);
    while position < info.head {
        let page = store.read(info.run, position, PAGE_BYTES).await?;
        for frame in read_page(info.run, position, &page)? {
            for record in frame.records() {
                count += 1;
                add(&mut sum, record);
            }
            position = frame.last();
        }
    }
    Ok((count, sum.finalize()))
}

/// Sorts the names, whose order differs between stores.
fn sorted(export: &RunExport) -> RunExport {
    let mut export = export.clone();
    export.names.sort();
    export
}

fn add(sum: &mut crc32fast::Hasher, what: &impl std::fmt::Debug) {
    sum.update(format!("{what:?}").as_bytes());
}

fn same<T: std::fmt::Debug + PartialEq>(
    what: &str,
    one: &T,
    other: &T,
) -> Result<(), MigrateError> {
    if one == other {
        return Ok(());
    }
    tracing::error!(what, ?one, ?other, "the copy differs from the original");
    Err(MigrateError::Differs(what.to_owned()))
}
