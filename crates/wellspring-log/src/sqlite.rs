//! Runs in a SQLite file: the binary's default.
//!
//! One thread writes. Its transaction takes every append that waits, so under load many runs
//! share one commit, and nobody waits for a timer. The frames of a transaction share a row, and
//! an index of where each run's lie is written behind; a run's own row changes only when its
//! state or its owner does. Checkpoints happen on a thread of their own, reads on a few others in short
//! transactions.
//!
//! Several processes may open the same file: each appends to the runs it owns, and the
//! compare-and-set holds between them as well. What the others wrote is noticed by polling
//! SQLite's own counter, and only while somebody here wants to know.
//!
//! # Promised
//!
//! An acknowledged write has reached the operating system, so it survives `kill -9`; with
//! [`Durability::PowerLoss`] it has reached the disk. A disk that is full or fails gives
//! [`StoreError::Failed`], loses nothing that was acknowledged, and once it is repaired
//! writing goes on.

mod alive;
mod audit;
mod batch;
mod checkpoint;
mod document;
mod read;
mod schema;
mod write;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use rusqlite::Connection;
use tokio::sync::{oneshot, watch};
use wellspring_core::{InboxNo, Millis, RunId, Seq};

use self::alive::Alive;
use self::checkpoint::{Checkpointer, WalSize};
use self::writer::{AppendJob, Call, Db, Job, Message};
use crate::audit::{AuditEntry, AuditFilter, NewAudit};
use crate::document::{Document, DocumentFilter, Expected, Written, check_document};
use crate::inbox::{InboxEntry, NewCommand, PutAll};
use crate::lock;
use crate::store::{
    Append, AppendDone, Created, ExternalId, NewFrame, NewRun, Page, RunFilter, RunInfo,
    SnapshotKind, Store, StoreError, StoreFuture,
};

/// How often the writer asks whether another process has written: soon enough that nobody
/// notices, seldom enough that it costs nothing.
const FOREIGN_POLL: Duration = Duration::from_millis(50);

/// Threads that read. Reads are short; this many keep a disk busy.
const READERS: usize = 4;

/// How long to wait for another process's transaction: far longer than any of ours takes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Durability {
    /// The death of the process: it was handed to the operating system.
    #[default]
    ProcessCrash,
    /// The loss of power too: it was synced to the disk.
    PowerLoss,
}

/// How a SQLite store behaves.
#[derive(Clone, Debug, Default)]
pub struct SqliteOptions {
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// The file grows to so many bytes at most; without it, as the disk allows.
    pub bytes_max: Option<u64>,
}

/// A file could not be opened as a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A newer program has changed its form.
    #[error("{path} has schema {found}, this program knows up to {known}: use a newer version")]
    Newer {
        /// Which file.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest known one.
        known: i64,
    },
    /// It is somebody else's database.
    #[error("{path} is a database, but not one of ours: choose another file")]
    Foreign {
        /// Which file.
        path: PathBuf,
    },
    /// The file or its directory failed.
    #[error("could not open {path}")]
    Failed {
        /// Which file.
        path: PathBuf,
        /// What happened.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Runs in a SQLite file.
///
/// ```
/// use std::sync::Arc;
/// use wellspring_log::{Log, LogOptions, SqliteOptions, SqliteStore};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("runs.db");
/// let store = SqliteStore::open(&path, SqliteOptions::default())?;
/// let log = Log::new(Arc::new(store), LogOptions::default());
/// # let _ = log;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    alive: Alive,
    writes: mpsc::Sender<Message>,
    reads: mpsc::Sender<Read>,
    changes: Arc<watch::Sender<u64>>,
    /// The writer waits without polling, because nobody wanted to know about others.
    asleep: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

type Read = Box<dyn FnOnce(&Connection) + Send>;

impl SqliteStore {
    /// Opens a file, or makes one that only its owner may read. It touches the disk: not for
    /// the hot path of an async program.
    ///
    /// # Errors
    ///
    /// When the file or its directory cannot be opened, or is not a store this program knows.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, OpenError> {
        let path = path.as_ref().to_path_buf();
        let failed = |cause: Box<dyn std::error::Error + Send + Sync>| OpenError::Failed {
            path: path.clone(),
            cause,
        };
        schema::make_private(&path).map_err(|error| failed(error.into()))?;
        let mut connection = schema::connect(&path).map_err(|error| failed(error.into()))?;
        schema::migrate(&mut connection, &path)?;
        schema::finish_deletions(&mut connection).map_err(|error| failed(error.into()))?;
        schema::configure_writer(&connection, &options).map_err(|error| failed(error.into()))?;

        let alive = Alive::announce(&path).map_err(|error| failed(error.into()))?;
        write::free_leases_of_the_dead(&connection, &path).map_err(|error| failed(error.into()))?;

        let mut threads = Vec::new();
        let mut spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            let thread = thread::Builder::new().name(name.into()).spawn(body);
            thread.map(|thread| threads.push(thread)).map_err(|error| failed(error.into()))
        };
        let checkpoints = schema::connect(&path).map_err(|error| failed(error.into()))?;
        schema::configure_checkpointer(&checkpoints, &options)
            .map_err(|error| failed(error.into()))?;
        let wal = WalSize::default();
        let (signal, checkpointer) = Checkpointer::new(checkpoints, wal.clone());
        connection.wal_hook(Some(signal)).map_err(|error| failed(error.into()))?;
        spawn("log-checkpoint", Box::new(move || checkpointer.run()))?;

        let (reads, to_read) = mpsc::channel::<Read>();
        let to_read = Arc::new(Mutex::new(to_read));
        for _ in 0..READERS {
            let connection = schema::connect_reader(&path).map_err(|error| failed(error.into()))?;
            let to_read = Arc::clone(&to_read);
            let body = move || {
                loop {
                    let read = lock(&to_read).recv();
                    let Ok(read) = read else { return };
                    read(&connection);
                }
            };
            spawn("log-read", Box::new(body))?;
        }

        let (writes, to_write) = mpsc::channel();
        let changes = Arc::new(watch::Sender::new(0));
        let asleep = Arc::new(AtomicBool::new(false));
        let writer = writer::Writer {
            db: Db::new(connection).map_err(|error| failed(error.into()))?,
            wal,
            messages: to_write,
            changes: Arc::clone(&changes),
            asleep: Arc::clone(&asleep),
        };
        spawn("log-write", Box::new(move || writer.run()))?;
        Ok(Self { path, alive, writes, reads, changes, asleep, threads })
    }

    /// What this process is called. A log that goes by this name has its runs adopted at once
    /// when the process dies; under any other, when their leases end.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.alive.name
    }

    /// Runs something in the writer's next transaction.
    fn write<T: Send + 'static>(
        &self,
        while_doing: &'static str,
        work: impl FnMut(&mut Db) -> rusqlite::Result<Result<T, StoreError>> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let (reply, answer) = oneshot::channel();
        self.job(Box::new(Call::new(while_doing, work, reply)));
        wait(while_doing, answer)
    }

    /// Runs something in a reader's transaction.
    fn query<T: Send + 'static>(
        &self,
        while_doing: &'static str,
        query: impl FnOnce(&Connection) -> rusqlite::Result<Result<T, StoreError>> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let (reply, answer) = oneshot::channel();
        let read = move |connection: &Connection| {
            let result = connection
                .unchecked_transaction()
                .and_then(|transaction| query(&transaction))
                .unwrap_or_else(|error| Err(StoreError::failed(while_doing, error)));
            let _ = reply.send(result);
        };
        // A send can only fail when the threads are gone; the answer then says so.
        let _ = self.reads.send(Box::new(read));
        wait(while_doing, answer)
    }

    fn job(&self, job: Box<dyn Job>) {
        // What cannot be sent is dropped, and says so to whoever waits.
        let _ = self.writes.send(Message::Job(job));
    }
}

fn wait<T: Send + 'static>(
    while_doing: &'static str,
    answer: oneshot::Receiver<Result<T, StoreError>>,
) -> StoreFuture<'static, T> {
    answer
        .map(move |answer| answer.unwrap_or_else(|gone| Err(StoreError::failed(while_doing, gone))))
        .boxed()
}

impl Store for SqliteStore {
    fn create(&self, new: NewRun, first: NewFrame) -> StoreFuture<'_, Created> {
        if let Err(error) = first.check_size() {
            return std::future::ready(Err(StoreError::failed("creating a run", error))).boxed();
        }
        self.write("creating a run", move |db| write::create(db, &new, &first))
    }

    fn append(&self, append: Append, done: AppendDone) {
        match append.frame.check_size() {
            Ok(()) => self.job(Box::new(AppendJob::new(append, done))),
            Err(error) => done(Err(error)),
        }
    }

    fn read(&self, run: RunId, after: Seq, bytes_max: usize) -> StoreFuture<'_, Page> {
        self.query("reading a run", move |connection| read::page(connection, run, after, bytes_max))
    }

    fn info(&self, run: RunId) -> StoreFuture<'_, Option<RunInfo>> {
        self.query("reading a run", move |connection| read::info(connection, run).map(Ok))
    }

    fn list(&self, filter: RunFilter) -> StoreFuture<'_, Vec<RunInfo>> {
        self.query("listing runs", move |connection| read::list(connection, &filter).map(Ok))
    }

    fn put_inbox(&self, run: RunId, commands: Vec<NewCommand>) -> StoreFuture<'_, PutAll> {
        self.write("putting commands", move |db| write::put_inbox(db, run, commands.clone()))
    }

    fn inbox(&self, run: RunId, after: InboxNo) -> StoreFuture<'_, Vec<InboxEntry>> {
        self.query("reading an inbox", move |connection| read::inbox(connection, run, after))
    }

    fn renew(&self, node: Box<str>, runs: Vec<RunId>, until: Millis) -> StoreFuture<'_, ()> {
        self.write("renewing leases", move |db| write::renew(db, &node, &runs, until).map(Ok))
    }

    fn expired(&self, now: Millis, limit: usize) -> StoreFuture<'_, Vec<RunId>> {
        async move {
            let doing = "reading leases";
            let path = self.path.clone();
            let free =
                move |db: &mut Db| write::free_leases_of_the_dead(&db.connection, &path).map(Ok);
            self.write(doing, free).await?;
            self.query(doing, move |connection| read::expired(connection, now, limit).map(Ok)).await
        }
        .boxed()
    }

    fn put_snapshot(
        &self,
        run: RunId,
        kind: SnapshotKind,
        at: Seq,
        body: Bytes,
    ) -> StoreFuture<'_, ()> {
        self.write("keeping a snapshot", move |db| write::put_snapshot(db, run, kind, at, &body))
    }

    fn snapshot(
        &self,
        run: RunId,
        kind: SnapshotKind,
        at_most: Seq,
    ) -> StoreFuture<'_, Option<(Seq, Bytes)>> {
        self.query("reading a snapshot", move |connection| {
            read::snapshot(connection, run, kind, at_most)
        })
    }

    fn bind(&self, external: ExternalId, run: RunId) -> StoreFuture<'_, RunId> {
        self.write("binding an id", move |db| write::bind(db, &external, run))
    }

    fn resolve(&self, external: ExternalId) -> StoreFuture<'_, Option<RunId>> {
        self.query("resolving an id", move |connection| {
            read::resolve(connection, &external).map(Ok)
        })
    }

    fn document(&self, name: Box<str>) -> StoreFuture<'_, Option<Document>> {
        self.query("reading a document", move |connection| document::read(connection, &name))
    }

    fn put_document(
        &self,
        name: Box<str>,
        text: Option<Box<str>>,
        expected: Expected,
    ) -> StoreFuture<'_, Written> {
        if let Err(error) = check_document(&name, text.as_deref()) {
            return std::future::ready(Err(error)).boxed();
        }
        self.write("writing a document", move |db| {
            document::put(&db.connection, &name, text.as_deref(), expected)
        })
    }

    fn documents(&self, filter: DocumentFilter) -> StoreFuture<'_, Vec<Document>> {
        if let Err(error) = filter.check() {
            return std::future::ready(Err(error)).boxed();
        }
        self.query("listing documents", move |connection| document::list(connection, &filter))
    }

    fn put_audit(&self, entry: NewAudit) -> StoreFuture<'_, u64> {
        self.write("keeping what was decided", move |db| audit::put(db, &entry).map(Ok))
    }

    fn audit(&self, filter: AuditFilter) -> StoreFuture<'_, Vec<AuditEntry>> {
        self.query("reading what was decided", move |connection| {
            audit::page(connection, &filter).map(Ok)
        })
    }

    fn delete(&self, run: RunId) -> StoreFuture<'_, bool> {
        async move {
            let doing = "deleting a run";
            let doomed = self.write(doing, move |db| write::doom(db, run)).await?;
            let Some(key) = doomed else { return Ok(false) };
            // Each chunk is a transaction of its own, so that appends come in between.
            while self.write(doing, move |db| write::delete_chunk(db, key).map(Ok)).await? {}
            Ok(true)
        }
        .boxed()
    }

    fn backup(&self, to: PathBuf) -> StoreFuture<'_, ()> {
        let doing = "making a backup";
        let (reply, answer) = oneshot::channel();
        let path = self.path.clone();
        let body = move || {
            let _ = reply.send(schema::backup(&path, &to));
        };
        // A thread of its own: it reads the whole file, and must not keep others from reading.
        match thread::Builder::new().name("log-backup".into()).spawn(body) {
            Ok(_) => wait(doing, answer),
            Err(error) => std::future::ready(Err(StoreError::failed(doing, error))).boxed(),
        }
    }

    fn foreign_changes(&self) -> watch::Receiver<u64> {
        let receiver = self.changes.subscribe();
        fence(Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            let _ = self.writes.send(Message::Watch);
        }
        receiver
    }
}

impl Drop for SqliteStore {
    /// Waits for what was handed over, so that whoever opens the file next finds it complete.
    fn drop(&mut self) {
        let (closed, _) = mpsc::channel();
        self.writes = closed;
        let (closed, _) = mpsc::channel();
        self.reads = closed;
        for thread in self.threads.drain(..) {
            // The last reference may go in a callback on one of these threads.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

/// An unsigned number as SQLite keeps it.
fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A number from SQLite that was unsigned.
fn uint(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
