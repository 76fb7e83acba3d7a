//! A store in NATS JetStream, shared by several machines.
//!
//! All data is in one stream, with a subject per run; [`wire`] documents the subjects and the
//! messages. Every node follows the stream and keeps a [`projection`] of it in memory. It answers
//! all reads from the projection, except for older frames, which it reads from the stream.
//!
//! - **Fence**: a write names the last sequence that its subject must have, so the server refuses
//!   one of two concurrent writers. A run is created by one atomic batch with the fences of its id,
//!   its thread and its name.
//! - **Reads are current**: a read asks the stream's leader for the stream's last sequence and
//!   waits until this node has applied it. Concurrent reads share one request.
//! - **Repeated, not duplicated**: a write without an answer is repeated under the same message id
//!   until its outcome is known, also while the servers elect a new leader.

mod api;
mod append;
mod catch_up;
mod delete;
mod documents;
mod inbox;
mod projection;
mod publish;
mod read;
mod settings;
mod shared;
mod snapshots;
mod tail;
mod wire;

use std::collections::hash_map::RandomState;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use wellspring_core::{InboxNo, RunId, Seq, ThreadId};

use self::api::{Api, How};
use self::projection::Projection;
pub use self::settings::{NatsAuth, NatsOpenError, NatsOptions, NatsTls};
use self::shared::{STRIPES, Shared};
use self::wire::Entry;
use crate::audit::{AuditEntry, AuditFilter, NewAudit};
use crate::document::{Document, DocumentFilter, Expected, Written};
use crate::due::{Due, DueQuery, NodeBeat};
use crate::inbox::{InboxEntry, NewCommand, PutAll};
use crate::store::{
    Append, AppendDone, Created, ExternalId, Finding, HistoryQuery, NewFrame, NewRun, Page,
    PastRun, RunExport, RunFilter, RunInfo, SnapshotKind, Store, StoreError, StoreFuture,
};
use crate::thread::{ThreadChange, ThreadFilter, ThreadInfo};
use crate::watch::{Watch, Watches};

/// How long a write is repeated while its outcome is unknown. A change of leader takes 5 to 7
/// seconds, and the servers may take as long again to notice that it is necessary.
pub const NATS_SETTLE: Duration = Duration::from_secs(30);

/// Maximum size of a node's index in bytes, without the newest frames: some hundred thousand runs.
pub const NATS_INDEX_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Maximum number of atomic batches that this process has open; a server allows 50 per stream.
const BATCHES: usize = 8;

/// Maximum number of reads that wait for the next request for the stream's last sequence. Further
/// reads wait for a free place.
const LOOKS_MAX: usize = 1024;

/// A store in NATS JetStream.
#[derive(Debug)]
pub struct NatsStore {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

impl NatsStore {
    /// Connects, creates the stream if it does not exist, and reads it to its end.
    ///
    /// # Errors
    ///
    /// If no server can be reached, a server is too old, or the options require a durability that
    /// the servers cannot provide.
    pub async fn open(options: NatsOptions) -> Result<Self, NatsOpenError> {
        let client = settings::connect(&options).await?;
        let settle = options.settle;
        let api = Arc::new(Api {
            client,
            stream: options.stream.clone(),
            settle,
            bytes_max: options.bytes_max,
        });
        settings::ensure_stream(&api, &options).await?;
        let me: Box<str> = format!("{}.", uuid::Uuid::now_v7().simple()).into();
        let watches = Watches::default();
        let (looks, asked) = mpsc::channel(LOOKS_MAX);
        let shared = Arc::new(Shared {
            projection: Mutex::new(Projection::new(me.clone(), watches.clone())),
            applied: watch::channel(0).0,
            watches,
            looks,
            stripes: (0..STRIPES).map(|_| tokio::sync::Mutex::default()).collect(),
            deciding: (0..STRIPES).map(|_| tokio::sync::Mutex::default()).collect(),
            hasher: RandomState::new(),
            batches: Semaphore::new(BATCHES),
            runtime: Handle::current(),
            me,
            count: AtomicU64::new(0),
            payload_max: api.client.max_payload(),
            index_bytes_max: options.index_bytes_max,
            api: Arc::clone(&api),
        });
        let tasks = vec![
            tokio::spawn(tail::follow(Arc::downgrade(&shared))),
            tokio::spawn(catch_up::look(api, asked)),
        ];
        let store = Self { shared, tasks };
        store.shared.catch_up().await.map_err(NatsOpenError::Read)?;
        store.shared.sweep().await;
        Ok(store)
    }

    /// The name of this process as an owner of runs.
    #[must_use]
    pub fn node(&self) -> &str {
        self.shared.me.trim_end_matches('.')
    }
}

impl Drop for NatsStore {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Store for NatsStore {
    fn create(&self, new: NewRun, first: NewFrame) -> StoreFuture<'_, Created> {
        self.shared.create(new, first).boxed()
    }

    fn append(&self, append: Append, done: AppendDone) {
        let shared = Arc::clone(&self.shared);
        self.shared.runtime.spawn(async move { done(shared.append(&append).await) });
    }

    fn read(&self, run: RunId, after: Seq, bytes_max: usize) -> StoreFuture<'_, Page> {
        self.shared.read(run, after, bytes_max).boxed()
    }

    fn frame_bytes_max(&self) -> usize {
        self.shared.frame_bytes_max()
    }

    fn export(&self, run: RunId) -> StoreFuture<'_, RunExport> {
        self.shared.ask(move |known| known.index.export(run)).boxed()
    }

    fn import_inbox(&self, run: RunId, entries: Vec<InboxEntry>) -> StoreFuture<'_, ()> {
        self.shared.import_inbox(run, entries).boxed()
    }

    fn tenants(&self) -> StoreFuture<'_, Vec<Box<str>>> {
        self.shared.ask(|known| Ok(known.index.tenants())).boxed()
    }

    fn ready(&self) -> StoreFuture<'_, ()> {
        async move { self.shared.api.ready().await }.boxed()
    }

    fn info(&self, run: RunId) -> StoreFuture<'_, Option<RunInfo>> {
        self.shared
            .ask(move |known| Ok(known.index.runs.get(&run).map(|kept| kept.info.clone())))
            .boxed()
    }

    fn list(&self, filter: RunFilter) -> StoreFuture<'_, Vec<RunInfo>> {
        self.shared.ask(move |known| Ok(known.index.list(&filter))).boxed()
    }

    fn history(&self, query: HistoryQuery) -> StoreFuture<'_, Vec<PastRun>> {
        async move { self.shared.history(&query).await }.boxed()
    }

    fn watch(&self, run: RunId) -> Watch {
        self.shared.watches.watch(run)
    }

    fn put_inbox(&self, run: RunId, commands: Vec<NewCommand>) -> StoreFuture<'_, PutAll> {
        self.shared.put_inbox(run, commands).boxed()
    }

    fn inbox(&self, run: RunId, after: InboxNo) -> StoreFuture<'_, Vec<InboxEntry>> {
        self.shared.ask(move |known| known.index.inbox(run, after)).boxed()
    }

    fn beat(&self, node: Box<str>) -> StoreFuture<'_, ()> {
        async move {
            let subject = wire::beat_subject(&node);
            let message = self.shared.outgoing(subject, Entry::Beat { node }, &[])?;
            let how = How { replaces: true, expires: true, expected: None };
            self.shared.publish(&message, how).await.map(drop)
        }
        .boxed()
    }

    fn nodes(&self) -> StoreFuture<'_, Vec<NodeBeat>> {
        self.shared.ask(|known| Ok(known.index.nodes())).boxed()
    }

    fn release(&self, run: RunId, node: Box<str>, epoch: u64) -> StoreFuture<'_, ()> {
        async move { self.shared.release(run, &node, epoch).await }.boxed()
    }

    fn due(&self, query: DueQuery) -> StoreFuture<'_, Vec<Due>> {
        self.shared.ask(move |known| Ok(known.index.due(&query))).boxed()
    }

    fn put_snapshot(
        &self,
        run: RunId,
        kind: SnapshotKind,
        at: Seq,
        body: Bytes,
    ) -> StoreFuture<'_, ()> {
        self.shared.put_fold(run, kind, at, body).boxed()
    }

    fn snapshot(
        &self,
        run: RunId,
        kind: SnapshotKind,
        at_most: Seq,
    ) -> StoreFuture<'_, Option<(Seq, Bytes)>> {
        async move {
            let place = self.shared.ask(|known| {
                let folds = &known.index.kept(run)?.frames.folds;
                let latest = folds.range((kind, Seq(0))..=(kind, at_most)).next_back();
                Ok(latest.map(|((_, at), sequences)| (*at, sequences.clone())))
            });
            let Some((at, sequences)) = place.await? else { return Ok(None) };
            Ok(self.shared.fold(&sequences).await?.map(|body| (at, body)))
        }
        .boxed()
    }

    fn bind(&self, external: ExternalId, run: RunId) -> StoreFuture<'_, RunId> {
        self.shared.bind(external, run).boxed()
    }

    fn resolve(&self, external: ExternalId) -> StoreFuture<'_, Option<RunId>> {
        self.shared.ask(move |known| Ok(known.index.resolve(&external))).boxed()
    }

    fn document(&self, name: Box<str>) -> StoreFuture<'_, Option<Document>> {
        self.shared
            .ask(move |known| {
                if known.is_damaged(&name) {
                    return Err(StoreError::DamagedDocument(name));
                }
                Ok(known.index.documents.get(&name).cloned())
            })
            .boxed()
    }

    fn put_document(
        &self,
        name: Box<str>,
        text: Option<Box<str>>,
        expected: Expected,
    ) -> StoreFuture<'_, Written> {
        self.shared.put_document(name, text, expected).boxed()
    }

    fn documents(&self, filter: DocumentFilter) -> StoreFuture<'_, Vec<Document>> {
        self.shared.ask(move |known| known.index.documents(&filter)).boxed()
    }

    fn put_audit(&self, entry: NewAudit) -> StoreFuture<'_, u64> {
        self.shared.put_audit(entry).boxed()
    }

    fn audit(&self, filter: AuditFilter) -> StoreFuture<'_, Vec<AuditEntry>> {
        self.shared.ask(move |known| Ok(known.index.audit(&filter))).boxed()
    }

    fn threads(&self, filter: ThreadFilter) -> StoreFuture<'_, Vec<ThreadInfo>> {
        self.shared.ask(move |known| Ok(known.index.threads(&filter))).boxed()
    }

    fn change_thread(
        &self,
        tenant: Box<str>,
        thread: ThreadId,
        change: ThreadChange,
    ) -> StoreFuture<'_, bool> {
        async move { self.shared.change_thread(&tenant, thread, change).await }.boxed()
    }

    fn delete(&self, run: RunId) -> StoreFuture<'_, bool> {
        self.shared.delete(run).boxed()
    }

    fn backup(&self, _to: PathBuf) -> StoreFuture<'_, ()> {
        let unsupported = "backing up a NATS stream (use `nats stream backup`)";
        std::future::ready(Err(StoreError::Unsupported(unsupported))).boxed()
    }

    fn check(&self) -> StoreFuture<'_, Vec<Finding>> {
        async move {
            self.shared.current().await?;
            // Reading the whole stream again verifies every byte of it.
            let shared = &self.shared;
            let mut anew = Projection::new(shared.me.clone(), Watches::default());
            let last = *shared.applied.borrow();
            let mut from = 1;
            while from <= last {
                let found = shared.api.read_from(">", from, 4 * 1024 * 1024).await?;
                let Some(end) = found.last().map(|message| message.sequence) else { break };
                found.iter().filter(|it| it.sequence <= last).for_each(|it| anew.apply(it));
                from = end + 1;
            }
            Ok(anew.findings())
        }
        .boxed()
    }
}
