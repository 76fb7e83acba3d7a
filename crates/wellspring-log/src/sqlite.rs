//! A store in a SQLite file: the default of the `wellspring` command.
//!
//! One thread writes. Each transaction takes all waiting appends, so under load many runs share
//! one commit, without a timer. The frames of a transaction share a row, and the index of each
//! run's frames is written later; a run's own row changes only with its state or its owner. One
//! thread makes checkpoints, and a few threads read in short transactions.
//!
//! Several processes may open the same file: each appends to the runs that it owns, and the
//! compare-and-set holds between processes too. While runs are watched, the writer polls
//! SQLite's commit counter; if another process has committed, it finds out which runs changed.
//!
//! # Promised
//!
//! An acknowledged write has reached the operating system, so it survives `kill -9`; with
//! [`Durability::PowerLoss`] it has reached the disk. A full or failing disk gives
//! [`StoreError::Failed`] and loses nothing that was acknowledged. Writing continues after the
//! disk is repaired.
//!
//! Every frame and every row has a checksum, and the structure of the file is checked when it
//! is opened. Damaged data is an error; everything else stays readable. See `check.rs`.

mod audit;
mod backup;
mod batch;
mod check;
mod checkpoint;
mod checksum;
mod connect;
mod document;
mod group_commit;
mod lock_file;
mod read;
mod schema;
mod threads;
mod watch;
mod write;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use rusqlite::{Connection, InterruptHandle};
use tokio::sync::oneshot;
use wellspring_core::{InboxNo, RunId, Seq, ThreadId};

use self::check::Damage;
use self::checkpoint::{Checkpointer, WalSize};
use self::group_commit::{AppendJob, Call, Db, Job, Message, OpenFile};
use self::lock_file::{Alive, Ended};
use crate::audit::{AuditEntry, AuditFilter, NewAudit};
use crate::document::{Document, DocumentFilter, Expected, Written, check_document};
use crate::due::{Due, DueQuery, NodeBeat};
use crate::inbox::{InboxEntry, NewCommand, PutAll};
use crate::lock;
use crate::options::Durability;
use crate::store::{
    Append, AppendDone, Created, ExternalId, Finding, HistoryQuery, NewFrame, NewRun, Page,
    PastRun, RunExport, RunFilter, RunInfo, SnapshotKind, Store, StoreError, StoreFuture,
};
use crate::thread::{ThreadChange, ThreadFilter, ThreadInfo};
use crate::watch::{Watch, Watches};

/// Maximum size of a frame. A larger event contains a file and should refer to it instead:
/// readers hold whole frames in memory.
const FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How often the writer polls for commits of other processes while a run is watched: fast
/// enough for a person, and slow enough to cost next to nothing.
const FOREIGN_POLL: Duration = Duration::from_millis(50);

/// Number of reader threads. Reads are short; this many keep a disk busy.
const READERS: usize = 4;

/// How long to wait for another process's transaction: far longer than any of ours takes. An
/// append or a new run is retried after that, for a few seconds in total.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// How long to wait while another process creates or migrates the file.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(30);

/// How often to check whether the migration is done.
const MIGRATION_POLL: Duration = Duration::from_millis(20);

/// The tables that hold the last frame of an unfinished run.
const HEADS: [&str; 4] = ["runs", "places", "placed", "batches"];

/// Options of a SQLite store.
#[derive(Clone, Debug, Default)]
pub struct SqliteOptions {
    /// The failures that an acknowledged write survives.
    pub durability: Durability,
    /// Maximum size of the file in bytes; `None` for no limit but the disk's.
    pub bytes_max: Option<u64>,
}

/// A file could not be opened as a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A newer program has migrated the file.
    #[error("{path} has schema {found}, this program knows up to {known}: use a newer version")]
    Newer {
        /// The file's path.
        path: PathBuf,
        /// The file's schema version.
        found: i64,
        /// The newest schema version that this program knows.
        known: i64,
    },
    /// It is another program's database.
    #[error("{path} is a database, but not one of ours: choose another file")]
    Foreign {
        /// The file's path.
        path: PathBuf,
    },
    /// The file is damaged so badly that nothing can be read.
    #[error("{path} is damaged ({what}): restore it from a backup")]
    Damaged {
        /// The file's path.
        path: PathBuf,
        /// The damage that was found.
        what: String,
    },
    /// The file or its directory cannot be opened.
    #[error("could not open {path}")]
    Failed {
        /// The file's path.
        path: PathBuf,
        /// The cause.
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
pub struct SqliteStore {
    path: PathBuf,
    node: Box<str>,
    _alive: Option<Alive>,
    /// The damage to the file's structure, once it is known.
    damage: Arc<OnceLock<Damage>>,
    /// Interrupts the structure check of a large file.
    checking: Option<InterruptHandle>,
    writes: mpsc::Sender<Message>,
    reads: mpsc::Sender<Read>,
    watches: Watches,
    /// Whether the writer waits without polling, because no run is watched.
    asleep: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

type Read = Box<dyn FnOnce(&Connection) + Send>;

impl SqliteStore {
    /// Opens a file, or creates one that only its owner may read. This blocks on the disk, so
    /// do not call it on a hot async path.
    ///
    /// # Errors
    ///
    /// If the file or its directory cannot be opened, or is not a store that this program
    /// knows. A file that can be read but not written is opened; every write then fails.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, OpenError> {
        let path = path.as_ref().to_path_buf();
        match Self::open_to_write(path.clone(), options) {
            Err(OpenError::Failed { cause, path: failed }) => {
                Self::open_to_read(&path, &*cause).ok_or(OpenError::Failed { cause, path: failed })
            }
            decided => decided,
        }
    }

    /// Opens a file that cannot be written.
    fn open_to_read(path: &Path, why: &(dyn std::error::Error + 'static)) -> Option<Self> {
        let (known, damage) = schema::look_at(&connect::connect_immutable(path).ok()?).ok()?;
        if !known {
            return None;
        }
        let what = format!("nothing can be written to {} ({why}); make room", path.display());
        tracing::error!(what, "the store is read-only");
        let damage = OnceLock::from(damage.unwrap_or_else(|| Damage::unwritable(what)));
        let (reads, to_read) = mpsc::channel::<Read>();
        let to_read = Arc::new(Mutex::new(to_read));
        let mut threads = Vec::new();
        for _ in 0..READERS {
            let connection = connect::connect_immutable(path).ok()?;
            let read = reader(connection, Arc::clone(&to_read));
            threads.push(thread::Builder::new().name("log-read".into()).spawn(read).ok()?);
        }
        let (writes, _) = mpsc::channel();
        Some(Self {
            path: path.to_owned(),
            node: format!("reader-{}", std::process::id()).into(),
            _alive: None,
            damage: Arc::new(damage),
            checking: None,
            writes,
            reads,
            watches: Watches::default(),
            asleep: Arc::new(AtomicBool::new(false)),
            threads,
        })
    }

    fn open_to_write(path: PathBuf, options: SqliteOptions) -> Result<Self, OpenError> {
        let failed = |cause: Box<dyn std::error::Error + Send + Sync>| OpenError::Failed {
            path: path.clone(),
            cause,
        };
        connect::make_private(&path).map_err(|error| failed(error.into()))?;
        let mut connection = connect::connect(&path).map_err(|error| failed(error.into()))?;
        let damage = Arc::new(OnceLock::new());
        if let Some(found) = schema::migrate(&mut connection, &path)? {
            tracing::error!(path = %path.display(), what = found.what, "the store is damaged");
            let _ = damage.set(found);
        }
        let damaged = damage.get().is_some();
        connect::configure_writer(&connection, &options).map_err(|error| failed(error.into()))?;
        let alive = Alive::announce(&path).map_err(|error| failed(error.into()))?;
        // A file with a damaged structure is not written, because that could make it worse. A
        // file that cannot be written can still be read.
        if !damaged {
            let ended = lock_file::ended(&path);
            let swept = write::finish_deletions(&mut connection)
                .and_then(|()| write::release_ended(&connection, &ended));
            match swept {
                Ok(()) => ended.into_iter().for_each(Ended::forget),
                Err(error) => {
                    let path = path.display();
                    tracing::warn!(%path, %error, "could not write to the store; it is opened read-only");
                }
            }
        }

        let mut threads = Vec::new();
        let mut spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            let thread = thread::Builder::new().name(name.into()).spawn(body);
            thread.map(|thread| threads.push(thread)).map_err(|error| failed(error.into()))
        };
        let checkpoints = connect::connect(&path).map_err(|error| failed(error.into()))?;
        connect::configure_checkpointer(&checkpoints, &options)
            .map_err(|error| failed(error.into()))?;
        let wal = WalSize::default();
        let (signal, checkpointer) = Checkpointer::new(checkpoints, wal.clone());
        connection.wal_hook(Some(signal)).map_err(|error| failed(error.into()))?;
        spawn("log-checkpoint", Box::new(move || checkpointer.run()))?;

        let (reads, to_read) = mpsc::channel::<Read>();
        let to_read = Arc::new(Mutex::new(to_read));
        for _ in 0..READERS {
            let connection =
                connect::connect_reader(&path).map_err(|error| failed(error.into()))?;
            spawn("log-read", Box::new(reader(connection, Arc::clone(&to_read))))?;
        }

        let mut checking = None;
        if !damaged && schema::is_large(&connection).map_err(|error| failed(error.into()))? {
            let connection =
                connect::connect_reader(&path).map_err(|error| failed(error.into()))?;
            checking = Some(connection.get_interrupt_handle());
            let (damage, path) = (Arc::clone(&damage), path.clone());
            let body = move || {
                if let Some(found) = check::structure(&connection) {
                    let (path, what) = (path.display(), &found.what);
                    tracing::error!(%path, what, "the store is damaged");
                    let _ = damage.set(found);
                }
            };
            spawn("log-check", Box::new(body))?;
        }

        let (writes, to_write) = mpsc::channel();
        let watches = Watches::default();
        let asleep = Arc::new(AtomicBool::new(false));
        let file = OpenFile::of(&path).map_err(|error| failed(error.into()))?;
        let writer = group_commit::Writer {
            db: Db::new(connection, watches.clone(), Some(file))
                .map_err(|error| failed(error.into()))?,
            wal,
            messages: to_write,
            asleep: Arc::clone(&asleep),
        };
        spawn("log-write", Box::new(move || writer.run()))?;
        let (node, _alive) = (alive.name.clone(), Some(alive));
        Ok(Self { path, node, _alive, damage, checking, writes, reads, watches, asleep, threads })
    }

    /// The name of this process. If a log uses it as its node, its runs are adopted as soon as
    /// the process ends; otherwise when its heartbeats stop.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Runs a job in the writer's next transaction.
    fn write<T: Send + 'static>(
        &self,
        while_doing: &'static str,
        work: impl FnMut(&mut Db) -> rusqlite::Result<Result<T, StoreError>> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        if let Some(damage) = self.damage.get() {
            return std::future::ready(Err(damage.error())).boxed();
        }
        let (reply, answer) = oneshot::channel();
        self.job(Box::new(Call::new(while_doing, work, reply)));
        wait(while_doing, answer)
    }

    /// Runs a query in a reader's transaction.
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
                .unwrap_or_else(|error| Err(check::store_error(while_doing, Arc::new(error))));
            let _ = reply.send(result);
        };
        // Sending only fails if the threads are gone; the caller then gets an error from the
        // reply.
        let _ = self.reads.send(Box::new(read));
        wait(while_doing, answer)
    }

    /// Fails if rows of these tables may be missing, so that a list of them could be
    /// incomplete.
    fn sure(&self, tables: &[&str]) -> Result<(), StoreError> {
        match self.damage.get() {
            Some(damage) if damage.concerns(tables) => Err(damage.error()),
            Some(_) | None => Ok(()),
        }
    }

    /// Lists rows of these tables.
    fn list_of<T: Send + 'static>(
        &self,
        tables: &'static [&'static str],
        while_doing: &'static str,
        query: impl FnOnce(&Connection) -> rusqlite::Result<Result<T, StoreError>> + Send + 'static,
    ) -> StoreFuture<'_, T> {
        let listed = self.query(while_doing, query);
        async move {
            let listed = listed.await;
            if matches!(listed, Ok(_) | Err(StoreError::NoRun(_))) {
                self.sure(tables)?;
            }
            listed
        }
        .boxed()
    }

    /// Looks up a row in these tables. A row that is found has its own checksum; a row that is
    /// not found is absent only if no rows can be missing.
    fn look_up<T: Send + 'static>(
        &self,
        tables: &'static [&'static str],
        while_doing: &'static str,
        query: impl FnOnce(&Connection) -> rusqlite::Result<Result<Option<T>, StoreError>>
        + Send
        + 'static,
    ) -> StoreFuture<'_, Option<T>> {
        let found = self.query(while_doing, query);
        async move {
            match found.await {
                found @ Ok(Some(_)) => found,
                absent @ (Ok(None) | Err(StoreError::NoRun(_))) => {
                    self.sure(tables)?;
                    absent
                }
                error => error,
            }
        }
        .boxed()
    }

    /// Runs a query that reads the whole file on a thread of its own, so that it blocks no
    /// other reads.
    fn apart<T: Send + 'static>(
        &self,
        while_doing: &'static str,
        work: impl FnOnce(&Path) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let (reply, answer) = oneshot::channel();
        let path = self.path.clone();
        let body = move || {
            let _ = reply.send(work(&path));
        };
        match thread::Builder::new().name("log-whole".into()).spawn(body) {
            Ok(_) => wait(while_doing, answer),
            Err(error) => std::future::ready(Err(StoreError::failed(while_doing, error))).boxed(),
        }
    }

    fn job(&self, job: Box<dyn Job>) {
        // If sending fails, the job is dropped, which reports an error to the caller.
        let _ = self.writes.send(Message::Job(job));
    }
}

/// The loop of a reader thread.
fn reader(connection: Connection, to_read: Arc<Mutex<mpsc::Receiver<Read>>>) -> impl FnOnce() {
    move || {
        loop {
            let read = lock(&to_read).recv();
            let Ok(read) = read else { return };
            read(&connection);
        }
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
        if let Err(error) = first.check_size(FRAME_BYTES_MAX) {
            return std::future::ready(Err(StoreError::failed("creating a run", error))).boxed();
        }
        self.write("creating a run", move |db| write::create(db, &new, &first))
    }

    fn append(&self, append: Append, done: AppendDone) {
        if let Some(damage) = self.damage.get() {
            return done(Err(damage.error().into()));
        }
        match append.frame.check_size(FRAME_BYTES_MAX) {
            Ok(()) => self.job(Box::new(AppendJob::new(append, done))),
            Err(error) => done(Err(error)),
        }
    }

    fn read(&self, run: RunId, after: Seq, bytes_max: usize) -> StoreFuture<'_, Page> {
        let page = self.look_up(&["runs"], "reading a run", move |connection| {
            Ok(read::page(connection, run, after, bytes_max)?.map(Some))
        });
        async move {
            let page = page.await?.ok_or(StoreError::NoRun(run))?;
            if !page.closed {
                self.sure(&HEADS)?;
            }
            Ok(page)
        }
        .boxed()
    }

    fn info(&self, run: RunId) -> StoreFuture<'_, Option<RunInfo>> {
        let info =
            self.look_up(&["runs"], "reading a run", move |connection| read::info(connection, run));
        async move {
            let info = info.await?;
            if info.as_ref().is_some_and(|info| !info.state.is_final()) {
                self.sure(&HEADS)?;
            }
            Ok(info)
        }
        .boxed()
    }

    fn list(&self, filter: RunFilter) -> StoreFuture<'_, Vec<RunInfo>> {
        self.list_of(&HEADS, "listing runs", move |connection| read::list(connection, &filter))
    }

    fn put_inbox(&self, run: RunId, commands: Vec<NewCommand>) -> StoreFuture<'_, PutAll> {
        self.write("putting commands", move |db| write::put_inbox(db, run, commands.clone()))
    }

    fn inbox(&self, run: RunId, after: InboxNo) -> StoreFuture<'_, Vec<InboxEntry>> {
        self.list_of(&["runs", "inbox"], "reading an inbox", move |connection| {
            let waiting = read::inbox(connection, run, after, read::Entries::Waiting)?;
            Ok(waiting.map(|all| all.into_iter().map(|it| it.entry).collect()))
        })
    }

    fn history(&self, query: HistoryQuery) -> StoreFuture<'_, Vec<PastRun>> {
        self.list_of(
            &["runs", "places", "placed", "batches"],
            "reading a history",
            move |connection| read::history(connection, &query),
        )
    }

    fn watch(&self, run: RunId) -> Watch {
        let watch = self.watches.watch(run);
        fence(Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            let _ = self.writes.send(Message::Watch);
        }
        watch
    }

    fn frame_bytes_max(&self) -> usize {
        FRAME_BYTES_MAX
    }

    fn beat(&self, node: Box<str>) -> StoreFuture<'_, ()> {
        self.write("writing a heartbeat", move |db| write::beat(db, &node).map(Ok))
    }

    fn nodes(&self) -> StoreFuture<'_, Vec<NodeBeat>> {
        async move {
            let doing = "reading heartbeats";
            // Processes that have certainly ended need not time out.
            let ended = Arc::new(lock_file::ended(&self.path));
            if !ended.is_empty() {
                let released = Arc::clone(&ended);
                let release =
                    move |db: &mut Db| write::release_ended(&db.connection, &released).map(Ok);
                self.write(doing, release).await?;
                Arc::into_inner(ended).into_iter().flatten().for_each(Ended::forget);
            }
            self.query(doing, |connection| read::nodes(connection).map(Ok)).await
        }
        .boxed()
    }

    fn release(&self, run: RunId, node: Box<str>, epoch: u64) -> StoreFuture<'_, ()> {
        self.write("releasing a run", move |db| write::release(db, run, &node, epoch).map(Ok))
    }

    fn due(&self, query: DueQuery) -> StoreFuture<'_, Vec<Due>> {
        self.query("looking for runs that are due", move |connection| {
            read::due(connection, &query).map(Ok)
        })
    }

    fn threads(&self, filter: ThreadFilter) -> StoreFuture<'_, Vec<ThreadInfo>> {
        self.list_of(&["runs", "threads", "texts"], "listing threads", move |connection| {
            threads::list(connection, &filter)
        })
    }

    fn change_thread(
        &self,
        tenant: Box<str>,
        thread: ThreadId,
        change: ThreadChange,
    ) -> StoreFuture<'_, bool> {
        if let Err(error) = change.check() {
            return std::future::ready(Err(error)).boxed();
        }
        self.write("changing a thread", move |db| {
            threads::change(&db.connection, &tenant, thread, &change).map(Ok)
        })
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
        self.look_up(&["runs"], "reading a snapshot", move |connection| {
            read::snapshot(connection, run, kind, at_most)
        })
    }

    fn bind(&self, external: ExternalId, run: RunId) -> StoreFuture<'_, RunId> {
        self.write("binding an id", move |db| write::bind(db, &external, run))
    }

    fn resolve(&self, external: ExternalId) -> StoreFuture<'_, Option<RunId>> {
        self.look_up(&["runs", "external_ids"], "resolving an id", move |connection| {
            read::resolve(connection, &external)
        })
    }

    fn document(&self, name: Box<str>) -> StoreFuture<'_, Option<Document>> {
        self.look_up(&["documents"], "reading a document", move |connection| {
            document::read(connection, &name)
        })
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
        self.list_of(&["documents"], "listing documents", move |connection| {
            document::list(connection, &filter)
        })
    }

    fn export(&self, run: RunId) -> StoreFuture<'_, RunExport> {
        self.look_up(&["runs", "inbox"], "copying a run", move |connection| {
            Ok(read::export(connection, run)?.map(Some))
        })
        .map(move |found| found?.ok_or(StoreError::NoRun(run)))
        .boxed()
    }

    fn import_inbox(&self, run: RunId, entries: Vec<InboxEntry>) -> StoreFuture<'_, ()> {
        self.write("copying commands", move |db| write::import_inbox(db, run, &entries))
    }

    fn tenants(&self) -> StoreFuture<'_, Vec<Box<str>>> {
        self.list_of(&["runs", "audit"], "listing tenants", read::tenants)
    }

    fn put_audit(&self, entry: NewAudit) -> StoreFuture<'_, u64> {
        // Deletion is audited too, so it must have room.
        self.write("writing the audit log", move |db| {
            db.past_maximum(|db| audit::put(db, &entry)).map(Ok)
        })
    }

    fn audit(&self, filter: AuditFilter) -> StoreFuture<'_, Vec<AuditEntry>> {
        self.list_of(&["audit"], "reading the audit log", move |connection| {
            audit::page(connection, &filter)
        })
    }

    fn delete(&self, run: RunId) -> StoreFuture<'_, bool> {
        async move {
            let doing = "deleting a run";
            let doom = move |db: &mut Db| db.past_maximum(|db| write::doom(db, run));
            let Some(key) = self.write(doing, doom).await? else { return Ok(false) };
            let chunk = move |db: &mut Db| db.past_maximum(|db| write::delete_chunk(db, key));
            // Each chunk is a transaction of its own, so that appends can run in between.
            while self.write(doing, move |db| chunk(db).map(Ok)).await? {}
            Ok(true)
        }
        .boxed()
    }

    fn backup(&self, to: PathBuf) -> StoreFuture<'_, ()> {
        self.apart("making a backup", move |path| backup::backup(path, &to))
    }

    fn check(&self) -> StoreFuture<'_, Vec<Finding>> {
        self.apart("checking the store", |path| {
            let failed = |error| check::store_error("checking the store", Arc::new(error));
            let connection = connect::connect_reader(path).map_err(failed)?;
            let transaction = connection.unchecked_transaction().map_err(failed)?;
            Ok(check::everything(&transaction))
        })
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Drop for SqliteStore {
    /// Waits for pending jobs, so that the next process to open the file finds it complete.
    fn drop(&mut self) {
        if let Some(checking) = &self.checking {
            checking.interrupt();
        }
        let (closed, _) = mpsc::channel();
        self.writes = closed;
        let (closed, _) = mpsc::channel();
        self.reads = closed;
        for thread in self.threads.drain(..) {
            // The last reference may be dropped in a callback on one of these threads.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

/// An unsigned number in SQLite's signed form.
fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// An unsigned number from SQLite's signed form.
fn uint(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}
