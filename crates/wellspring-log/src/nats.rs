//! Runs in NATS JetStream, for several machines.
//!
//! One stream holds everything, with a subject per run; [`wire`] documents the subjects and the
//! messages. Every node follows the stream and keeps a [`projection`] of it in memory, from which
//! it answers everything but the older frames.
//!
//! - **Fence**: a write names the last sequence that its subject must have. Of two writers the
//!   server refuses one. A run is created by one atomic batch with the fences of its id, its
//!   thread and its name.
//! - **Reads are current**: a read asks the stream's leader how far the stream is, and waits until
//!   this node is as far. All who ask at once share one question.
//! - **Repeated, not doubled**: a write without an answer is repeated under the same message id
//!   until it is settled, also while the servers choose a new leader.

mod api;
mod projection;
mod settings;
mod tail;
mod wire;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};
use wellspring_core::{InboxNo, RunId, Seq, ThreadId};

use self::api::{Api, How, Kept as Message, PublishError};
use self::projection::Projection;
pub use self::settings::{NatsAuth, NatsOpenError, NatsOptions};
use self::wire::{DeletedLine, Entry, FrameLine, InboxLine, NameLine, OVERHEAD_BYTES, Outgoing};
use crate::audit::{AuditEntry, AuditFilter, NewAudit};
use crate::document::{Document, DocumentFilter, Expected, Written, check_document};
use crate::due::{Due, DueQuery, NodeBeat};
use crate::inbox::{InboxEntry, NewCommand, Plan, PutAll};
use crate::lock;
use crate::store::{
    Append, AppendDone, AppendError, Created, ExternalId, Finding, HistoryQuery, NewFrame, NewRun,
    Page, PastRun, RunFilter, RunInfo, SnapshotKind, Store, StoreError, StoreFuture, StoredFrame,
};
use crate::thread::{ThreadChange, ThreadFilter, ThreadInfo};
use crate::watch::{Watch, Watches};

/// How long a write may take to settle: a change of the leader takes 5 to 7 seconds, and finding
/// out may take as long again.
pub const NATS_SETTLE: Duration = Duration::from_secs(30);

/// The most bytes of a node's index, the newest frames aside: some hundred thousand runs.
pub const NATS_INDEX_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// The most bytes of one snapshot; a larger one is not kept.
const FOLD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Batches that this process has open at once; a server allows 50 for a stream.
const BATCHES: usize = 8;

/// Writers of one process that may write to the same subject wait for each other: the number of
/// places to wait.
const STRIPES: usize = 64;

/// The most readers that wait for the next question about the stream's state; more wait for room.
const LOOKS_MAX: usize = 1024;

/// After so long without the message that someone waits for, it is asked whether there is one.
const STALL: Duration = Duration::from_millis(300);

/// A store in NATS JetStream.
#[derive(Debug)]
pub struct NatsStore {
    shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    api: Arc<Api>,
    projection: Mutex<Projection>,
    /// The last sequence that the projection has.
    applied: watch::Sender<u64>,
    /// Makes the follower begin again.
    again: tokio::sync::Notify,
    watches: Watches,
    looks: mpsc::Sender<oneshot::Sender<Result<u64, StoreError>>>,
    /// For writers of one subject.
    stripes: Vec<tokio::sync::Mutex<()>>,
    /// For those who decide what to write before they do; taken before one of the others.
    deciding: Vec<tokio::sync::Mutex<()>>,
    hasher: RandomState,
    batches: Semaphore,
    runtime: Handle,
    /// How the ids of this process's messages begin, with a dot at the end.
    me: Box<str>,
    count: AtomicU64,
    payload_max: usize,
    index_bytes_max: usize,
}

impl NatsStore {
    /// Connects, creates the stream if there is none, and reads it.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, is too old, or cannot keep what the options promise.
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
            again: tokio::sync::Notify::new(),
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
            tokio::spawn(look(api, asked)),
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

/// Asks how far the stream is, once for all who wait.
async fn look(api: Arc<Api>, mut asked: mpsc::Receiver<oneshot::Sender<Result<u64, StoreError>>>) {
    while let Some(first) = asked.recv().await {
        let mut waiting = vec![first];
        while let Ok(next) = asked.try_recv() {
            waiting.push(next);
        }
        let last = api.last_sequence().await;
        for one in waiting {
            let _ = one.send(last.clone());
        }
    }
}

impl Shared {
    fn apply(&self, message: &Message) {
        lock(&self.projection).apply(message);
        self.advance(message.sequence);
    }

    fn advance(&self, to: u64) {
        self.applied.send_if_modified(|applied| {
            let later = to > *applied;
            *applied = to.max(*applied);
            later
        });
    }

    fn id(&self) -> Box<str> {
        format!("{}{}", self.me, self.count.fetch_add(1, Ordering::Relaxed)).into()
    }

    fn outgoing(
        &self,
        subject: String,
        entry: Entry,
        bodies: &[&[u8]],
    ) -> Result<Outgoing, StoreError> {
        let outgoing = Outgoing::new(subject, self.id(), entry, bodies);
        outgoing.map_err(|error| StoreError::failed("writing a message", error))
    }

    /// Waits for other writers of this process to the same subject.
    async fn alone(&self, subject: &str) -> tokio::sync::MutexGuard<'_, ()> {
        self.stripes[self.stripe(subject)].lock().await
    }

    /// Waits for others of this process who decide about the same thing.
    async fn deciding(&self, about: &str) -> tokio::sync::MutexGuard<'_, ()> {
        self.deciding[self.stripe(about)].lock().await
    }

    fn stripe(&self, of: &str) -> usize {
        usize::try_from(self.hasher.hash_one(of) % STRIPES as u64).unwrap_or_default()
    }

    /// Reads everything, however long it takes, as long as it goes on.
    async fn catch_up(&self) -> Result<(), StoreError> {
        let last = self.api.last_sequence().await?;
        loop {
            let before = *self.applied.borrow();
            match self.applied_to(last).await {
                Err(_) if *self.applied.borrow() > before => {}
                decided => return decided,
            }
        }
    }

    /// Waits until this node knows all that is acknowledged now.
    async fn current(&self) -> Result<(), StoreError> {
        let closed = || StoreError::failed("asking for the stream's state", "the store is closed");
        let (sender, answer) = oneshot::channel();
        self.looks.send(sender).await.map_err(|_| closed())?;
        let last = answer.await.map_err(|_| closed())??;
        self.applied_to(last).await
    }

    /// Waits until this node has taken in everything up to a sequence.
    async fn applied_to(&self, sequence: u64) -> Result<(), StoreError> {
        let mut applied = self.applied.subscribe();
        let until = Instant::now() + self.api.settle;
        loop {
            let stall = (Instant::now() + STALL).min(until);
            if timeout_at(stall, applied.wait_for(|applied| *applied >= sequence)).await.is_ok() {
                return Ok(());
            }
            if Instant::now() >= until {
                let cause = "the stream's messages did not come; check the NATS servers";
                return Err(StoreError::failed("waiting for the stream", cause));
            }
            // What was removed meanwhile is never pushed.
            let have = *self.applied.borrow();
            match self.api.next_after(have).await? {
                Some(next) if next <= sequence => {
                    if *self.applied.borrow() == have {
                        self.again.notify_one();
                    }
                }
                Some(_) | None => self.advance(sequence),
            }
        }
    }

    /// Refuses to grow past the maximum.
    fn has_room(&self) -> Result<(), StoreError> {
        if lock(&self.projection).index.bytes > self.index_bytes_max {
            return Err(StoreError::Full {
                what: "the index of runs that each node keeps in memory",
                max: self.index_bytes_max,
                remedy: "delete old runs (`retention`), or raise `index_bytes_max`",
            });
        }
        Ok(())
    }

    /// The last sequence of a subject, which this node has then taken in, or that a message of
    /// this id is there.
    async fn last_of(&self, subject: &str, id: &str) -> Result<Result<u64, u64>, StoreError> {
        let Some(last) = self.api.last_of(subject).await? else { return Ok(Err(0)) };
        self.applied_to(last.sequence).await?;
        Ok(if last.id.as_deref() == Some(id) { Ok(last.sequence) } else { Err(last.sequence) })
    }

    /// Writes a message as what is known allows, until it is there or refused. `judge` looks at
    /// what is known now: it gives the message's subject's last sequence as this node knows it, or
    /// the result. A refusal is only believed when this node is current.
    async fn write<T>(
        &self,
        message: &Outgoing,
        how: How,
        mut judge: impl FnMut(&Projection) -> Result<u64, T>,
    ) -> Result<Result<u64, T>, StoreError> {
        let _alone = self.alone(&message.subject).await;
        let until = Instant::now() + self.api.settle;
        let (mut is_current, mut known) = (false, None);
        loop {
            let judged = judge(&lock(&self.projection));
            let expected = match judged {
                Ok(expected) => known.unwrap_or(expected),
                Err(refused) if is_current => return Ok(Err(refused)),
                Err(_) => {
                    self.current().await?;
                    is_current = true;
                    continue;
                }
            };
            let how = How { expected: Some(expected), ..how };
            match self.api.publish(message, how).await {
                Ok(sequence) => {
                    self.applied_to(sequence).await?;
                    return Ok(Ok(sequence));
                }
                Err(PublishError::Store(error)) => return Err(error),
                Err(PublishError::Conflict) if Instant::now() >= until => {
                    let cause = "others write to the same subject all the time";
                    return Err(StoreError::failed("writing to the stream", cause));
                }
                Err(PublishError::Conflict) => {
                    match self.last_of(&message.subject, &message.id).await? {
                        Ok(sequence) => return Ok(Ok(sequence)),
                        Err(last) => (known, is_current) = (Some(last), true),
                    }
                }
            }
        }
    }

    /// Writes a message that nothing fences; gives its sequence.
    async fn put(&self, message: &Outgoing, how: How) -> Result<u64, StoreError> {
        match self.api.publish(message, how).await {
            Ok(sequence) => self.applied_to(sequence).await.map(|()| sequence),
            Err(PublishError::Store(error)) => Err(error),
            Err(PublishError::Conflict) => {
                Err(StoreError::failed("writing to the stream", "a conflict without a fence"))
            }
        }
    }

    async fn create(&self, new: NewRun, first: NewFrame) -> Result<Created, StoreError> {
        let too_large = |error| StoreError::failed("creating a run", error);
        first.check_size(self.frame_bytes_max()).map_err(too_large)?;
        self.has_room()?;
        let run = new.run;
        let line = Entry::Frame(Box::new(FrameLine::of_new(&new, &first)));
        let frame = self.outgoing(wire::run_subject(run), line, &[&first.body])?;
        let fence = |subject| self.outgoing(subject, Entry::Fence { run }, &[]);
        let mut batch = vec![(fence(wire::thread_subject(new.thread))?, None)];
        if let Some(name) = new.name.clone() {
            batch.push((fence(wire::name_subject(&name.into()))?, None));
        }
        batch.push((frame, None));
        let id = batch.last().map(|(frame, _)| frame.id.clone()).unwrap_or_default();
        let _alone = self.alone(&batch[0].0.subject).await;
        let _open = self.batches.acquire().await;
        let until = Instant::now() + self.api.settle;
        let mut is_current = false;
        loop {
            let refused = {
                let projection = lock(&self.projection);
                let here = projection.index.runs.get(&run);
                if here.is_some_and(|kept| kept.frames.created_by == id) {
                    return Ok(Created::New);
                }
                batch[0].1.get_or_insert(projection.thread_sequence(new.thread));
                projection.index.refuses(&new)
            };
            match refused {
                Some(refused) if is_current => return Ok(refused),
                Some(_) => {
                    self.current().await?;
                    is_current = true;
                    continue;
                }
                None => {}
            }
            for (_, expected) in &mut batch {
                expected.get_or_insert(0);
            }
            let failed = match self.api.publish_batch(&batch).await {
                Ok(sequence) => {
                    self.applied_to(sequence).await?;
                    continue;
                }
                Err(PublishError::Store(error)) => Some(error),
                Err(PublishError::Conflict) => None,
            };
            if Instant::now() >= until {
                let cause = || StoreError::failed("creating a run", "others create it, too");
                return Err(failed.unwrap_or_else(cause));
            }
            if failed.is_some() {
                sleep(STALL).await;
            }
            for (message, expected) in &mut batch {
                *expected = match self.last_of(&message.subject, &message.id).await? {
                    Ok(last) | Err(last) => Some(last),
                };
            }
            self.current().await?;
            is_current = true;
        }
    }

    async fn append(&self, append: &Append) -> Result<(), AppendError> {
        append.frame.check_size(self.frame_bytes_max())?;
        let (run, subject) = (append.run, wire::run_subject(append.run));
        let _alone = self.deciding(&format!("append.{run}")).await;
        let mut is_current = false;
        let prev = loop {
            let judged = {
                let projection = lock(&self.projection);
                judge_append(&projection, append).map(|()| projection.whole(run).map(|it| it.sum))
            };
            match judged {
                Ok(sum) => break sum?,
                Err(refused) if is_current => return Err(refused),
                Err(_) => self.current().await?,
            }
            is_current = true;
        };
        let line = || Entry::Frame(Box::new(FrameLine::of_append(append, prev)));
        let body = &append.frame.body;
        let folded = append.frame.folded.as_ref().filter(|it| it.len() <= FOLD_BYTES_MAX);
        let room = self.frame_bytes_max() - body.len();
        let beside = folded.filter(|folded| folded.len() <= room);
        let bodies: &[&[u8]] = if let Some(beside) = beside { &[body, beside] } else { &[body] };
        let message = self.outgoing(subject, line(), bodies)?;
        if message.payload.len() + 1024 > self.payload_max {
            let bytes = message.payload.len();
            return Err(AppendError::TooLarge { bytes, max: self.frame_bytes_max() });
        }
        let judge = |projection: &Projection| {
            judge_append(projection, append)?;
            let places = projection.whole(run)?;
            // The sum of the frame before is in the message.
            if places.sum == prev {
                Ok(places.sequence)
            } else {
                Err(AppendError::Conflict { run, head: append.expected })
            }
        };
        let written = self.write(&message, How::default(), judge).await?;
        written?;
        if let (Some(folded), None) = (folded, beside) {
            let at = Seq(append.expected.0 + u64::from(append.frame.count));
            self.put_fold(run, SnapshotKind::Transcript, at, folded.clone()).await?;
        }
        Ok(())
    }

    fn frame_bytes_max(&self) -> usize {
        self.payload_max - OVERHEAD_BYTES
    }

    async fn read(&self, run: RunId, after: Seq, bytes_max: usize) -> Result<Page, StoreError> {
        self.current().await?;
        let until = Instant::now() + self.api.settle;
        let (mut page, mut from) = {
            let projection = lock(&self.projection);
            let places = projection.whole(run)?;
            let info = &projection.index.kept(run)?.info;
            let page = Page { frames: Vec::new(), head: info.head, closed: info.state.is_final() };
            if after >= info.head {
                return Ok(page);
            }
            if let Some(frames) = projection.recent(run, after) {
                return Ok(Page { frames: cut(frames, after, bytes_max), ..page });
            }
            (page, places.before(after.next()))
        };
        let subject = wire::run_subject(run);
        let (mut frames, mut bytes) = (Vec::<StoredFrame>::new(), 0);
        let mut next = None;
        // What is before the record asked for is read, too.
        while bytes <= bytes_max && frames.last().is_none_or(|last| last.last() < page.head) {
            let found = self.api.read_from(&subject, from, bytes_max.max(64 * 1024)).await?;
            let before = from;
            for message in found {
                let damaged = |at, what| StoreError::Damaged { run, at, what };
                let at = next.unwrap_or(after.next());
                let incoming = message.decode().map_err(|what| damaged(at, what))?;
                from = message.sequence + 1;
                let Entry::Frame(line) = incoming.line.entry else { continue };
                if next.is_some_and(|next| next != line.first) || line.bytes > incoming.body.len() {
                    return Err(damaged(at, format!("record {} follows", line.first)));
                }
                next = Some(Seq(line.first.0 + u64::from(line.count)));
                let body = incoming.body.slice(..line.bytes);
                let frame = StoredFrame { first: line.first, count: line.count, body };
                if frame.last() <= after || frame.first > page.head {
                    continue;
                }
                bytes += frame.body.len();
                frames.push(frame);
            }
            if from == before {
                // Deleted meanwhile; or the replica that answered does not have it yet.
                self.current().await?;
                lock(&self.projection).whole(run)?;
                if self.missing(&subject, from, Instant::now() >= until).await? {
                    let at = next.unwrap_or(after.next());
                    return Err(StoreError::Damaged { run, at, what: "it is missing".into() });
                }
            }
        }
        page.frames = cut(frames, after, bytes_max);
        Ok(page)
    }

    /// Whether the leader has nothing of a subject from a sequence on, either.
    async fn missing(&self, subject: &str, from: u64, over: bool) -> Result<bool, StoreError> {
        let last = self.api.last_of(subject).await?;
        if over && last.as_ref().is_some_and(|last| last.sequence >= from) {
            return Err(StoreError::failed("reading frames", "no replica has what the leader has"));
        }
        Ok(last.is_none_or(|last| last.sequence < from))
    }

    /// Puts a snapshot into the stream, in one step however many parts it has.
    async fn put_fold(
        &self,
        run: RunId,
        kind: SnapshotKind,
        at: Seq,
        body: Bytes,
    ) -> Result<(), StoreError> {
        if body.len() > FOLD_BYTES_MAX {
            return Err(StoreError::Full {
                what: "a snapshot",
                max: FOLD_BYTES_MAX,
                remedy: "do without: more is folded then",
            });
        }
        let created = |projection: &Projection| Ok(projection.index.kept(run)?.frames.created);
        let known = created(&lock(&self.projection));
        let of = match known {
            Ok(of) => of,
            Err(StoreError::NoRun(_)) => {
                self.current().await?;
                created(&lock(&self.projection))?
            }
            Err(error) => return Err(error),
        };
        let size = self.frame_bytes_max();
        let parts = body.len().div_ceil(size).max(1);
        let part = |part: usize| {
            let body = &body[part * size..body.len().min((part + 1) * size)];
            let entry = Entry::Fold { of, kind: kind.into(), at, part, parts };
            self.outgoing(wire::fold_subject(run), entry, &[body])
        };
        if parts == 1 {
            return self.put(&part(0)?, How::default()).await.map(drop);
        }
        let batch = (0..parts).map(|number| Ok((part(number)?, None)));
        let batch = batch.collect::<Result<Vec<_>, StoreError>>()?;
        let _open = self.batches.acquire().await;
        match self.api.publish_batch(&batch).await {
            Ok(sequence) => self.applied_to(sequence).await,
            Err(PublishError::Store(error)) => Err(error),
            Err(PublishError::Conflict) => {
                Err(StoreError::failed("keeping a snapshot", "a conflict without a fence"))
            }
        }
    }

    /// The bytes of a snapshot, unless it is gone or damaged: it saves time and nothing else.
    async fn fold(&self, sequences: &[u64]) -> Result<Option<Bytes>, StoreError> {
        let mut bytes = Vec::new();
        for sequence in sequences {
            let Some(message) = self.api.at(*sequence).await? else { return Ok(None) };
            let Ok(incoming) = message.decode() else { return Ok(None) };
            let from = match incoming.line.entry {
                Entry::Frame(line) => line.bytes,
                Entry::Fold { .. } => 0,
                Entry::Released {}
                | Entry::Deleted(_)
                | Entry::Inbox { .. }
                | Entry::Fence { .. }
                | Entry::Title { .. }
                | Entry::Name { .. }
                | Entry::Document { .. }
                | Entry::Audit(_)
                | Entry::Beat { .. } => return Ok(None),
            };
            bytes.extend_from_slice(incoming.body.get(from..).unwrap_or_default());
        }
        Ok(Some(bytes.into()))
    }

    async fn put_inbox(&self, run: RunId, commands: Vec<NewCommand>) -> Result<PutAll, StoreError> {
        let _alone = self.deciding(&format!("put.{run}")).await;
        let until = Instant::now() + self.api.settle;
        loop {
            // A key that is taken, or a full inbox, is only believed when current.
            self.current().await?;
            let (plan, of, sequence) = {
                let projection = lock(&self.projection);
                let places = &projection.index.kept(run)?.frames;
                let (of, sequence) = (places.created, places.inbox_sequence);
                (projection.index.plan_inbox(run, commands.clone())?, of, sequence)
            };
            let (puts, new) = match plan {
                Plan::KeyTaken { index, number } => return Ok(PutAll::KeyTaken { index, number }),
                Plan::Put { puts, new } if new.is_empty() => return Ok(PutAll::Done(puts)),
                Plan::Put { puts, new } => (puts, new),
            };
            self.has_room()?;
            // Kept first, because both cannot be one step.
            for audit in new.iter().filter_map(|(_, new)| new.audit.clone()) {
                self.put_audit(audit).await?;
            }
            let line = |(number, new): (InboxNo, NewCommand)| InboxLine {
                number,
                key: new.key,
                command: new.command,
            };
            let entries = new.into_iter().map(line).collect();
            let message =
                self.outgoing(wire::inbox_subject(run), Entry::Inbox { of, entries }, &[])?;
            if message.payload.len() + 1024 > self.payload_max {
                return Err(StoreError::Full {
                    what: "a message with commands",
                    max: self.payload_max,
                    remedy: "put fewer at once, or raise `max_payload` of the NATS server",
                });
            }
            let seen = |projection: &Projection| {
                let places = projection.index.runs.get(&run).map(|kept| &kept.frames);
                places
                    .filter(|places| places.created == of && places.inbox_sequence == sequence)
                    .map(|_| sequence)
                    .ok_or(())
            };
            match self.write(&message, How::default(), seen).await? {
                // The run may have ended just before; then no node takes the commands in.
                Ok(_) => {
                    lock(&self.projection).index.plan_inbox(run, commands)?;
                    return Ok(PutAll::Done(puts));
                }
                Err(()) if Instant::now() >= until => {
                    let cause = "others write to the same inbox all the time";
                    return Err(StoreError::failed("putting commands", cause));
                }
                // Somebody else was first: what it means is decided anew.
                Err(()) => {}
            }
        }
    }

    async fn put_audit(&self, new: NewAudit) -> Result<u64, StoreError> {
        let (tenant, key) = (new.tenant.clone(), new.key.clone());
        let known = || lock(&self.projection).index.audit_number(&tenant, &key);
        if let Some(number) = known() {
            return Ok(number);
        }
        self.has_room()?;
        let subject = wire::audit_subject(&tenant);
        let message = self.outgoing(subject.clone(), Entry::Audit(Box::new(new.into())), &[])?;
        let sequence = self.put(&message, How::default()).await?;
        // The first of two with the same key counts.
        let number = known().unwrap_or(sequence);
        let oldest = lock(&self.projection).index.audit_excess(&tenant);
        if let Some(oldest) = oldest {
            self.api.purge(&subject, oldest).await?;
        }
        Ok(number)
    }

    async fn release(&self, run: RunId, node: &str, epoch: u64) -> Result<(), StoreError> {
        let message = self.outgoing(wire::run_subject(run), Entry::Released {}, &[])?;
        let judge = |projection: &Projection| {
            let kept = projection.index.runs.get(&run);
            let owned = kept.filter(|_| projection.index.is_owner(run, node, epoch));
            owned.map(|kept| kept.frames.sequence).ok_or(())
        };
        self.write(&message, How::default(), judge).await.map(drop)
    }

    async fn bind(&self, external: ExternalId, run: RunId) -> Result<RunId, StoreError> {
        let name = NameLine::from(external.clone());
        let subject = wire::name_subject(&name);
        let message = self.outgoing(subject, Entry::Name { name, run }, &[])?;
        let judge = |projection: &Projection| match projection.index.resolve(&external) {
            Some(bound) => Err(Ok(bound)),
            None => projection.index.kept(run).map(|_| 0).map_err(Err),
        };
        match self.write(&message, How::default(), judge).await? {
            Ok(_) => Ok(run),
            Err(decided) => decided,
        }
    }

    async fn put_document(
        &self,
        name: Box<str>,
        text: Option<Box<str>>,
        expected: Expected,
    ) -> Result<Written, StoreError> {
        check_document(&name, text.as_deref())?;
        if text.is_some() {
            self.has_room()?;
        }
        let subject = wire::document_subject(&name);
        let how = How { replaces: true, expires: text.is_none(), expected: None };
        let message = self.outgoing(subject, Entry::Document { name: name.clone(), text }, &[])?;
        if expected == Expected::Anything {
            return self.put(&message, how).await.map(Written::Done);
        }
        let judge = |projection: &Projection| {
            let found = projection.index.documents.get(&name);
            let revision = found.map(|document| document.revision);
            if expected.matches(revision) {
                Ok(revision.unwrap_or_default())
            } else {
                Err(Written::Conflict(found.cloned()))
            }
        };
        let written = self.write(&message, how, judge).await?;
        Ok(written.map_or_else(|conflict| conflict, Written::Done))
    }

    async fn change_thread(
        &self,
        tenant: &str,
        thread: ThreadId,
        change: ThreadChange,
    ) -> Result<bool, StoreError> {
        change.check()?;
        let _alone = self.deciding(&format!("change.{thread}")).await;
        self.current().await?;
        let changed = lock(&self.projection).index.changed_thread(tenant, thread, change);
        let Some((title, archived)) = changed else { return Ok(false) };
        let entry = Entry::Title { title, archived };
        let message = self.outgoing(wire::title_subject(thread), entry, &[])?;
        let how = How { replaces: true, ..How::default() };
        self.put(&message, how).await.map(|_| true)
    }

    async fn delete(&self, run: RunId) -> Result<bool, StoreError> {
        self.current().await?;
        let line = {
            let projection = lock(&self.projection);
            let Some(kept) = projection.index.runs.get(&run) else { return Ok(false) };
            let names = kept.names.iter().cloned().map(NameLine::from).collect();
            DeletedLine { thread: kept.info.thread, names, done: false }
        };
        let message = self.outgoing(wire::run_subject(run), Entry::Deleted(line.clone()), &[])?;
        let judge = |projection: &Projection| match projection.index.runs.get(&run) {
            None => Err(Ok(false)),
            // What is damaged cannot go on, and would stay for ever.
            Some(kept) if !kept.info.state.is_final() && kept.frames.damage.is_none() => {
                Err(Err(StoreError::Unfinished(run)))
            }
            Some(kept) => Ok(kept.frames.sequence),
        };
        match self.write(&message, How::default(), judge).await? {
            Ok(sequence) => self.clean(run, sequence, &line).await.map(|()| true),
            Err(decided) => decided,
        }
    }

    /// Removes what belongs to a run that was deleted at a sequence.
    async fn clean(&self, run: RunId, at: u64, line: &DeletedLine) -> Result<(), StoreError> {
        self.api.purge(&wire::inbox_subject(run), at).await?;
        self.api.purge(&wire::fold_subject(run), at).await?;
        for name in &line.names {
            self.api.purge(&wire::name_subject(name), at).await?;
        }
        if !lock(&self.projection).index.has_thread(line.thread) {
            self.api.purge(&wire::thread_subject(line.thread), at).await?;
            self.api.purge(&wire::title_subject(line.thread), at).await?;
        }
        // The last word replaces the frames, and expires when every node has heard it.
        let done = Entry::Deleted(DeletedLine { done: true, ..line.clone() });
        let message = self.outgoing(wire::run_subject(run), done, &[])?;
        let how = How { expected: Some(at), replaces: true, expires: true };
        match self.api.publish(&message, how).await {
            Ok(sequence) => self.applied_to(sequence).await,
            // Another node was faster, or the id is in use again.
            Err(PublishError::Conflict) => Ok(()),
            Err(PublishError::Store(error)) => Err(error),
        }
    }

    /// Removes what a node that died in the middle of a deletion has left.
    async fn sweep(&self) {
        let leftovers = std::mem::take(&mut lock(&self.projection).leftovers);
        for (run, at, line) in leftovers {
            if let Err(error) = self.clean(run, at, &line).await {
                tracing::warn!(%error, %run, "could not remove all that belonged to a deleted run");
            }
        }
    }

    async fn history(&self, query: &HistoryQuery) -> Result<Vec<PastRun>, StoreError> {
        self.current().await?;
        let found: Vec<_> = {
            let projection = lock(&self.projection);
            let past = projection.index.history(query).into_iter().map(|kept| {
                let places =
                    (SnapshotKind::Transcript, Seq(0))..=(SnapshotKind::Transcript, kept.info.head);
                let fold = kept.frames.folds.range(places).next_back();
                let fold = fold.filter(|_| query.folded);
                (kept.info.clone(), fold.map(|((_, at), it)| (*at, it.clone())))
            });
            past.collect()
        };
        // All at once: a long conversation is not read one by one.
        let past = found.into_iter().map(async |(info, fold)| {
            let Some((at, sequences)) = fold else { return Ok(PastRun { info, folded: None }) };
            let folded = self.fold(&sequences).await?.map(|body| (at, body));
            Ok(PastRun { info, folded })
        });
        futures::future::try_join_all(past).await
    }

    /// Answers from what is known, once that is current.
    async fn ask<T>(
        &self,
        read: impl FnOnce(&Projection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.current().await?;
        read(&lock(&self.projection))
    }
}

fn judge_append(projection: &Projection, append: &Append) -> Result<(), AppendError> {
    let run = append.run;
    let info = &projection.index.kept(run)?.info;
    projection.whole(run)?;
    if info.state.is_final() {
        return Err(AppendError::Closed(run));
    }
    if info.head != append.expected {
        return Err(AppendError::Conflict { run, head: info.head });
    }
    Ok(())
}

/// The frames from the one with the record after `after`, at least one and not past so many bytes.
fn cut(frames: Vec<StoredFrame>, after: Seq, bytes_max: usize) -> Vec<StoredFrame> {
    let mut bytes = 0;
    let within = |frame: &StoredFrame| {
        let is_first = bytes == 0;
        bytes += frame.body.len();
        is_first || bytes <= bytes_max
    };
    frames.into_iter().filter(|frame| frame.last() > after).take_while(within).collect()
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
            self.shared.put(&message, how).await.map(drop)
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
            // Reading the stream anew looks at every byte of it.
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
