//! Moves the write-ahead log into the file, outside the writer thread.
//!
//! The log starts over only if all of it was moved while no write happens, which never happens
//! by itself under steady load. So a separate thread moves most of it, again and again, and
//! once the log is large the writer moves the small rest between two transactions.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::hooks::Wal;

use crate::lock;

/// Pages of write-ahead log that trigger a checkpoint: 4 MiB, enough that a page that is
/// written often is copied once.
const PAGES: i32 = 1024;

/// Pages of write-ahead log from which on the writer helps: 16 MiB.
const PAGES_LARGE: i32 = 4 * PAGES;

/// Idle time after which the log is truncated.
const IDLE: Duration = Duration::from_secs(5);

/// How long truncating the log may block the writer because of readers.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_millis(100);

/// The checkpoint thread.
pub(super) struct Checkpointer {
    connection: Connection,
    signals: Receiver<()>,
    wal: WalSize,
}

/// The size of the log, and which thread should make it smaller.
#[derive(Clone, Default)]
pub(super) struct WalSize {
    pages: Arc<AtomicI32>,
    turn: Arc<Mutex<()>>,
}

impl Checkpointer {
    /// Returns the checkpointer, and the hook that the writer's connection calls after each
    /// commit. Setting the hook also disables SQLite's automatic checkpoints.
    pub(super) fn new(
        connection: Connection,
        wal: WalSize,
    ) -> (impl FnMut(&mut Wal, i32) -> rusqlite::Result<()> + Send + 'static, Self) {
        // One pending signal is enough.
        let (signal, signals): (SyncSender<()>, _) = mpsc::sync_channel(1);
        let size = Arc::clone(&wal.pages);
        let hook = move |_: &mut Wal, pages: i32| {
            let before = size.swap(pages, Ordering::Relaxed);
            // Signalled once per [`PAGES`] pages.
            if pages / PAGES > before / PAGES {
                let _ = signal.try_send(());
            }
            Ok(())
        };
        (hook, Self { connection, signals, wal })
    }

    /// Runs until the writer's connection is closed.
    pub(super) fn run(self) {
        let mut cut_back = true;
        loop {
            let signal = if cut_back {
                self.signals.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                self.signals.recv_timeout(IDLE)
            };
            let (mode, done) = match signal {
                Ok(()) => ("passive", false),
                Err(RecvTimeoutError::Timeout) => ("truncate", true),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            cut_back = done;
            let _turn = lock(&self.wal.turn);
            if let Err(error) = checkpoint(&self.connection, mode) {
                // Nothing is lost: the log grows until a later attempt succeeds.
                tracing::warn!(%error, "could not checkpoint");
            }
        }
    }
}

impl WalSize {
    /// Called by the writer between transactions: moves the rest of a large log, so that the
    /// log starts over. It waits at most for a running checkpoint.
    pub(super) fn limit(&self, connection: &Connection, tried_at: &mut i32) {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < *tried_at {
            *tried_at = 0;
        }
        // A reader may prevent it; then it is retried later.
        if pages >= PAGES_LARGE && pages - *tried_at >= PAGES / 4 {
            *tried_at = pages;
            let _turn = lock(&self.turn);
            if let Err(error) = checkpoint(connection, "passive") {
                tracing::warn!(%error, "could not checkpoint");
            }
        }
    }
}

pub(super) fn checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<()> {
    let pragma = format!("PRAGMA wal_checkpoint({mode})");
    connection.query_row(&pragma, [], |_| Ok(()))
}
