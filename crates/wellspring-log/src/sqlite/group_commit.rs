//! The writer thread, with group commit.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use rusqlite::{Connection, Error, ErrorCode, ffi};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use wellspring_core::RunId;

use super::checkpoint::{WalSize, checkpoint};
use super::frame_storage::{Batches, End};
use super::watch::Marks;
use super::{FOREIGN_POLL, integrity, write};
use crate::store::{Append, AppendDone, AppendError, StoreError};
use crate::watch::Watches;

/// Maximum number of jobs per transaction: enough for every run of a busy server, and short
/// enough for others to wait for.
const JOBS_MAX: usize = 4096;

/// Maximum number of runs whose heads are cached. Beyond it, they are read again.
const HEADS_MAX: usize = 64 * 1024;

pub(super) enum Message {
    Job(Box<dyn Job>),
    /// A run is watched again after none was.
    Watch,
}

/// A write. It may be applied twice: with others, and, if their transaction failed, alone.
pub(super) trait Job: Send {
    fn apply(&mut self, db: &mut Db) -> rusqlite::Result<()>;
    /// The runtime of the caller that waits for it.
    fn runtime(&self) -> Option<&Handle>;
    /// Called once the transaction is decided.
    fn done(self: Box<Self>, committed: Result<(), Arc<rusqlite::Error>>);
}

/// The writer's connection, and its cache of the runs that it has appended to.
pub(super) struct Db {
    pub(super) connection: Connection,
    heads: HashMap<RunId, Head>,
    pub(super) batches: Batches,
    /// SQLite's count of other connections' commits when it was last read.
    foreign: i64,
    /// The changes of other processes that were already seen.
    marks: Marks,
    watches: Watches,
    /// Whether changes of other processes are polled, because a run is watched.
    watching: bool,
    /// Whether this transaction has put inbox entries or deleted a run.
    pub(super) numbered: bool,
    /// The file being written; `None` in memory.
    file: Option<OpenFile>,
}

/// The file that was opened. If it is deleted or replaced meanwhile, SQLite keeps writing to a
/// file that cannot be opened again.
#[derive(Debug)]
pub(super) struct OpenFile {
    path: PathBuf,
    id: FileId,
}

/// Distinguishes a file from another one of the same name.
type FileId = Option<(u64, u64)>;

impl OpenFile {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), id: file_id(path)? })
    }

    fn check(&self) -> rusqlite::Result<()> {
        if file_id(&self.path).is_ok_and(|id| id == self.id) {
            return Ok(());
        }
        let what = format!(
            "{} was deleted or replaced while it was open; restore it, and start again",
            self.path.display()
        );
        Err(Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR), Some(what)))
    }
}

fn file_id(path: &Path) -> io::Result<FileId> {
    let metadata = std::fs::metadata(path)?;
    #[cfg(unix)]
    let id = {
        use std::os::unix::fs::MetadataExt as _;
        Some((metadata.dev(), metadata.ino()))
    };
    #[cfg(not(unix))]
    let id = {
        drop(metadata);
        None
    };
    Ok(id)
}

/// The head of a run. Only heads of unfinished runs are cached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) key: i64,
    pub(super) end: End,
}

impl Db {
    pub(super) fn new(
        connection: Connection,
        watches: Watches,
        file: Option<OpenFile>,
    ) -> rusqlite::Result<Self> {
        let mut db = Self {
            connection,
            heads: HashMap::new(),
            batches: Batches::default(),
            foreign: 0,
            marks: Marks::default(),
            watches,
            watching: false,
            numbered: false,
            file,
        };
        db.look_for_others()?;
        Ok(db)
    }

    /// Starts polling changes of other processes if a run is watched. All watches are then
    /// woken, because earlier changes were not polled.
    fn set_watching(&mut self) -> rusqlite::Result<bool> {
        let wanted = !self.watches.is_empty();
        if wanted && !self.watching {
            self.marks = Marks::now(&self.connection)?;
            self.watches.wake_all();
        }
        self.watching = wanted;
        Ok(wanted)
    }

    pub(super) fn head(&self, run: RunId) -> Option<Head> {
        self.heads.get(&run).copied()
    }

    pub(super) fn remember(&mut self, run: RunId, head: Head) {
        if self.heads.len() >= HEADS_MAX {
            self.heads.clear();
        }
        self.heads.insert(run, head);
    }

    pub(super) fn forget(&mut self, run: RunId) {
        self.heads.remove(&run);
    }

    fn forget_all(&mut self) {
        self.heads.clear();
        self.batches.forget();
    }

    /// Runs something that is allowed to exceed the maximum size: freeing space needs some.
    pub(super) fn past_maximum<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        /// SQLite's maximum.
        const ALL: i64 = 4_294_967_294;
        let set = |connection: &Connection, pages: i64| {
            connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
        };
        let max = self.connection.pragma_query_value(None, "max_page_count", |row| row.get(0))?;
        set(&self.connection, ALL)?;
        let done = work(self);
        set(&self.connection, max)?;
        done
    }

    /// Checks whether other processes have written since the last time. If so, the caches are
    /// cleared, and the watches of the changed runs are woken.
    fn look_for_others(&mut self) -> rusqlite::Result<()> {
        let now = self
            .connection
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get::<_, i64>(0))?;
        let changed = std::mem::replace(&mut self.foreign, now) != now;
        if changed {
            self.forget_all();
        }
        if changed
            && self.watching
            && let Err(error) = self.marks.wake(&self.connection, &self.watches)
        {
            // Writing continues even if a frame of another run is damaged.
            tracing::warn!(%error, "could not read which runs other processes have changed");
            self.watches.wake_all();
            self.marks = Marks::now(&self.connection)?;
        }
        Ok(())
    }

    /// Applies jobs in one transaction.
    fn transact(&mut self, jobs: &mut [Box<dyn Job>]) -> rusqlite::Result<()> {
        self.transact_with(|db| {
            jobs.iter_mut().try_for_each(|job| job.apply(db))?;
            db.batches.finish(&db.connection)
        })
    }

    fn transact_with(
        &mut self,
        work: impl FnOnce(&mut Self) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let result = self.try_transact(work);
        if result.is_err() {
            self.forget_all();
            if !self.connection.is_autocommit() {
                let _ = self.connection.execute_batch("ROLLBACK");
            }
        }
        result
    }

    fn try_transact(
        &mut self,
        work: impl FnOnce(&mut Self) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        if let Some(file) = &self.file {
            file.check()?;
        }
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        // Inside the transaction, so that no other process can write between this check and the
        // commit.
        self.look_for_others()?;
        self.numbered = false;
        work(self)?;
        // Changes of this transaction are not foreign.
        let marks = if self.numbered && self.watching {
            Marks::now(&self.connection)?
        } else {
            Marks { batch: self.batches.last().unwrap_or(self.marks.batch), ..self.marks }
        };
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        self.marks = marks;
        Ok(())
    }
}

pub(super) struct Writer {
    pub(super) db: Db,
    pub(super) wal: WalSize,
    pub(super) messages: Receiver<Message>,
    pub(super) asleep: Arc<AtomicBool>,
}

impl Writer {
    /// Runs until the store is dropped and everything is written.
    pub(super) fn run(mut self) {
        let mut jobs = Vec::new();
        let mut checkpoint_tried_at = 0;
        loop {
            match self.receive() {
                Ok(Message::Job(job)) => {
                    jobs.push(job);
                    // On few processors, the sender was interrupted when this thread woke up,
                    // and has more to send: yielding lets one transaction take all of it.
                    std::thread::yield_now();
                }
                Ok(Message::Watch) => {}
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(error) = self.db.look_for_others() {
                        tracing::warn!(%error, "failed to look for changes of other processes");
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return self.close(),
            }
            while jobs.len() < JOBS_MAX
                && let Ok(message) = self.messages.try_recv()
            {
                match message {
                    Message::Job(job) => jobs.push(job),
                    Message::Watch => {}
                }
            }
            if !jobs.is_empty() {
                self.write(&mut jobs);
                self.wal.limit(&self.db.connection, &mut checkpoint_tried_at);
            }
        }
    }

    /// Closes the file with a complete index of frames.
    fn close(mut self) {
        let placed = self.db.transact_with(|db| db.batches.place_all(&db.connection));
        if let Err(error) = placed {
            tracing::debug!(%error, "could not place the last frames");
        }
        // If several connections close at once, this may be left to the next process, which may
        // not be able to write.
        if let Err(error) = checkpoint(&self.db.connection, "truncate") {
            tracing::debug!(%error, "could not checkpoint");
        }
    }

    /// Waits for a message, and polls for changes of other processes while a run is watched.
    fn receive(&mut self) -> Result<Message, RecvTimeoutError> {
        self.asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let watching = self.db.set_watching().unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to look for changes of other processes");
            true
        });
        if watching {
            self.asleep.store(false, Ordering::SeqCst);
            return self.messages.recv_timeout(FOREIGN_POLL);
        }
        let message = self.messages.recv().map_err(|_| RecvTimeoutError::Disconnected);
        self.asleep.store(false, Ordering::SeqCst);
        message
    }

    fn write(&mut self, jobs: &mut Vec<Box<dyn Job>>) {
        match self.db.transact(jobs) {
            Ok(()) => finish(jobs, &Ok(())),
            // Another process holds the lock. All waiting jobs fail now: retried one after the
            // other, the last would wait for a very long time.
            Err(error) if is_busy(&error) => {
                while let Ok(message) = self.messages.try_recv() {
                    if let Message::Job(job) = message {
                        jobs.push(job);
                    }
                }
                finish(jobs, &Err(Arc::new(error)));
            }
            // One of the jobs may be the cause; alone, the others succeed.
            Err(_) if jobs.len() > 1 => {
                for mut job in jobs.drain(..) {
                    let result = self.db.transact(std::slice::from_mut(&mut job));
                    job.done(result.map_err(Arc::new));
                }
            }
            Err(error) => {
                finish(jobs, &Err(Arc::new(error)));
            }
        }
    }
}

/// Whether the error means that another process holds the lock.
pub(super) fn is_busy(error: &Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Reports the outcome to all jobs of a transaction. Each of them then publishes a frame and
/// appends the next one, so that the next transaction takes them all.
///
/// All jobs of one runtime are called in one task on that runtime: calling them from here would
/// wake a thread for each.
fn finish(jobs: &mut Vec<Box<dyn Job>>, decided: &Result<(), Arc<rusqlite::Error>>) {
    while let Some(first) = jobs.first() {
        let runtime = first.runtime().cloned();
        let id = runtime.as_ref().map(Handle::id);
        let count = jobs.iter().take_while(|job| job.runtime().map(Handle::id) == id).count();
        let neighbours: Vec<_> = jobs.drain(..count).collect();
        let decided = decided.clone();
        let tell = move || neighbours.into_iter().for_each(|job| job.done(decided.clone()));
        match runtime {
            Some(runtime) => drop(runtime.spawn(async move { tell() })),
            None => tell(),
        }
    }
}

/// An append and its callback.
pub(super) struct AppendJob {
    append: Append,
    result: Result<(), AppendError>,
    done: Option<AppendDone>,
    runtime: Option<Handle>,
}

impl AppendJob {
    pub(super) fn new(append: Append, done: AppendDone) -> Self {
        let runtime = Handle::try_current().ok();
        Self { append, result: Ok(()), done: Some(done), runtime }
    }
}

impl Job for AppendJob {
    fn apply(&mut self, db: &mut Db) -> rusqlite::Result<()> {
        self.result = write::append(db, &self.append)?;
        Ok(())
    }

    fn runtime(&self) -> Option<&Handle> {
        self.runtime.as_ref()
    }

    fn done(mut self: Box<Self>, committed: Result<(), Arc<rusqlite::Error>>) {
        let result = match committed {
            Ok(()) => std::mem::replace(&mut self.result, Ok(())),
            Err(cause) => Err(integrity::store_error("appending", cause).into()),
        };
        if let Some(done) = self.done.take() {
            done(result);
        }
    }
}

impl Drop for AppendJob {
    /// Reports an error if the writer is gone, so that no caller waits forever.
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done(Err(StoreError::failed("appending", "the store is closed").into()));
        }
    }
}

/// Any other write, and the caller that waits for its result.
pub(super) struct Call<T, W> {
    while_doing: &'static str,
    work: W,
    result: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
    runtime: Option<Handle>,
}

impl<T, W> Call<T, W> {
    pub(super) fn new(
        while_doing: &'static str,
        work: W,
        reply: oneshot::Sender<Result<T, StoreError>>,
    ) -> Self {
        let runtime = Handle::try_current().ok();
        Self { while_doing, work, result: None, reply, runtime }
    }
}

impl<T, W> Job for Call<T, W>
where
    T: Send,
    W: FnMut(&mut Db) -> rusqlite::Result<Result<T, StoreError>> + Send,
{
    fn apply(&mut self, db: &mut Db) -> rusqlite::Result<()> {
        self.result = Some((self.work)(db)?);
        Ok(())
    }

    fn runtime(&self) -> Option<&Handle> {
        self.runtime.as_ref()
    }

    fn done(self: Box<Self>, committed: Result<(), Arc<rusqlite::Error>>) {
        let Self { while_doing, result, reply, .. } = *self;
        let failed = |cause| Err(integrity::store_error(while_doing, cause));
        let result = match (committed, result) {
            (Ok(()), Some(result)) => result,
            (Ok(()), None) => failed(Arc::new(rusqlite::Error::InvalidQuery)),
            (Err(cause), _) => failed(cause),
        };
        // The caller may have stopped waiting; the write is done anyway.
        let _ = reply.send(result);
    }
}

#[cfg(test)]
mod tests {
    use wellspring_core::Seq;

    use super::*;

    #[test]
    fn remembered_heads_are_bounded() {
        let connection = Connection::open_in_memory().unwrap();
        let mut db = Db::new(connection, Watches::default(), None).unwrap();
        let run = |number| RunId::new(uuid::Uuid::from_u128(number));
        for number in 0..=HEADS_MAX as u128 {
            db.remember(run(number), Head { key: 1, end: End { head: Seq(1), crc: 0 } });
            assert!(db.heads.len() <= HEADS_MAX);
        }
        assert!(db.head(run(0)).is_none() && db.head(run(HEADS_MAX as u128)).is_some());
    }
}
