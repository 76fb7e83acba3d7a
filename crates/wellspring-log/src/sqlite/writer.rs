//! The thread that writes, and its group commit.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::{Receiver, RecvTimeoutError};

use rusqlite::Connection;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use wellspring_core::{RunId, Seq};

use super::batch::Batches;
use super::checkpoint::WalSize;
use super::{FOREIGN_POLL, write};
use crate::store::{Append, AppendDone, AppendError, StoreError};

/// The most writes in one transaction: every run of a busy server, and still a transaction
/// that others can wait for.
const JOBS_MAX: usize = 4096;

/// The most runs whose heads are remembered; past it they are read again.
const HEADS_MAX: usize = 64 * 1024;

pub(super) enum Message {
    Job(Box<dyn Job>),
    /// Somebody wants to know about other processes from now on.
    Watch,
}

/// A write. It may be applied twice: with others, and, if their transaction failed, alone.
pub(super) trait Job: Send {
    fn apply(&mut self, db: &mut Db) -> rusqlite::Result<()>;
    /// Where whoever waits for it lives.
    fn runtime(&self) -> Option<&Handle>;
    /// Called once the transaction is decided.
    fn done(self: Box<Self>, committed: Result<(), Arc<rusqlite::Error>>);
}

/// The writer's connection, and what it remembers of runs it has appended to.
pub(super) struct Db {
    pub(super) connection: Connection,
    heads: HashMap<RunId, Head>,
    pub(super) batches: Batches,
    /// SQLite's count of other connections' commits, as of the last look.
    foreign: i64,
}

/// Where a run is. Only unfinished ones are remembered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) key: i64,
    pub(super) head: Seq,
}

impl Db {
    pub(super) fn new(connection: Connection) -> rusqlite::Result<Self> {
        let mut db =
            Self { connection, heads: HashMap::new(), batches: Batches::default(), foreign: 0 };
        db.look_for_others()?;
        Ok(db)
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

    /// Whether others have written since the last look. What is remembered is then worth
    /// nothing.
    fn look_for_others(&mut self) -> rusqlite::Result<bool> {
        let now = self
            .connection
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get::<_, i64>(0))?;
        let changed = std::mem::replace(&mut self.foreign, now) != now;
        if changed {
            self.forget_all();
        }
        Ok(changed)
    }

    /// Applies jobs in one transaction. Says whether others have written before it.
    fn transact(&mut self, jobs: &mut [Box<dyn Job>]) -> rusqlite::Result<bool> {
        let result = self.try_transact(jobs);
        if result.is_err() {
            self.forget_all();
            if !self.connection.is_autocommit() {
                let _ = self.connection.execute_batch("ROLLBACK");
            }
        }
        result
    }

    fn try_transact(&mut self, jobs: &mut [Box<dyn Job>]) -> rusqlite::Result<bool> {
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        // Inside the transaction, so that nobody can write between this look and the commit.
        let changed = self.look_for_others()?;
        for job in jobs {
            job.apply(self)?;
        }
        self.batches.finish(&self.connection)?;
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(changed)
    }
}

pub(super) struct Writer {
    pub(super) db: Db,
    pub(super) wal: WalSize,
    pub(super) messages: Receiver<Message>,
    pub(super) changes: Arc<watch::Sender<u64>>,
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
                    // Where processors are scarce, whoever sent it was interrupted by this
                    // thread's waking up, and has more to send: one transaction takes it all.
                    std::thread::yield_now();
                }
                Ok(Message::Watch) => {}
                Err(RecvTimeoutError::Timeout) => match self.db.look_for_others() {
                    Ok(changed) => self.tell(changed),
                    Err(error) => tracing::warn!(%error, "could not look for foreign changes"),
                },
                Err(RecvTimeoutError::Disconnected) => return,
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

    /// Waits for a message, waking up to look for others while somebody wants that.
    fn receive(&self) -> Result<Message, RecvTimeoutError> {
        self.asleep.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.changes.receiver_count() > 0 {
            self.asleep.store(false, Ordering::SeqCst);
            return self.messages.recv_timeout(FOREIGN_POLL);
        }
        let message = self.messages.recv().map_err(|_| RecvTimeoutError::Disconnected);
        self.asleep.store(false, Ordering::SeqCst);
        message
    }

    fn write(&mut self, jobs: &mut Vec<Box<dyn Job>>) {
        match self.db.transact(jobs) {
            Ok(changed) => {
                self.tell(changed);
                finish(jobs, &Ok(()));
            }
            // One of them may be the cause; alone, the others succeed.
            Err(_) if jobs.len() > 1 => {
                for mut job in jobs.drain(..) {
                    let result = self.db.transact(std::slice::from_mut(&mut job));
                    self.tell(*result.as_ref().unwrap_or(&false));
                    job.done(result.map(drop).map_err(Arc::new));
                }
            }
            Err(error) => {
                finish(jobs, &Err(Arc::new(error)));
            }
        }
    }

    fn tell(&self, changed: bool) {
        if changed {
            self.changes.send_modify(|count| *count += 1);
        }
    }
}

/// Tells everybody who waits for a transaction that it is decided. Each is then on its way to
/// publish a frame and to hand over the next one, so that the next transaction takes them all.
///
/// They are told where they live, all of a runtime in one task: from here every single one of
/// them would be a wake-up across threads.
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

/// An append and who waits for it.
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
            Err(cause) => Err(StoreError::Failed { while_doing: "appending", cause }.into()),
        };
        if let Some(done) = self.done.take() {
            done(result);
        }
    }
}

impl Drop for AppendJob {
    /// Nobody may wait for ever: not even when the writer is gone.
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done(Err(StoreError::failed("appending", "the store is closed").into()));
        }
    }
}

/// Any other write, and who waits for it.
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
        let failed = |cause| Err(StoreError::Failed { while_doing, cause });
        let result = match (committed, result) {
            (Ok(()), Some(result)) => result,
            (Ok(()), None) => failed(Arc::new(rusqlite::Error::InvalidQuery)),
            (Err(cause), _) => failed(cause),
        };
        // Whoever asked may have stopped waiting; the write is made all the same.
        let _ = reply.send(result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembered_heads_are_bounded() {
        let mut db = Db::new(Connection::open_in_memory().unwrap()).unwrap();
        let run = |number| RunId::new(uuid::Uuid::from_u128(number));
        for number in 0..=HEADS_MAX as u128 {
            db.remember(run(number), Head { key: 1, head: Seq(1) });
            assert!(db.heads.len() <= HEADS_MAX);
        }
        assert!(db.head(run(0)).is_none() && db.head(run(HEADS_MAX as u128)).is_some());
    }
}
