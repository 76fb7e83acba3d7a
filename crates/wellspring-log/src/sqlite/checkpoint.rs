//! Moving the write-ahead log into the file, away from the writer.
//!
//! The log starts over only when all of it was moved while nobody writes, which under steady
//! load never happens by itself. So a thread of its own moves the bulk, again and again, and
//! once the log is large the writer moves the little that is left, between two transactions.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::hooks::Wal;

use crate::lock;

/// From how many pages of write-ahead log on a checkpoint is made: 4 MiB, enough that a page
/// written often is copied once.
const PAGES: i32 = 1024;

/// From how many pages on the writer helps the log to start over: 16 MiB.
const PAGES_LARGE: i32 = 4 * PAGES;

/// After how long without a checkpoint the log is cut back to nothing.
const IDLE: Duration = Duration::from_secs(5);

/// How long cutting the log back may keep the writer waiting for readers.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_millis(100);

/// The thread that makes checkpoints.
pub(super) struct Checkpointer {
    connection: Connection,
    signals: Receiver<()>,
    wal: WalSize,
}

/// How large the log is, and whose turn it is to make it smaller.
#[derive(Clone, Default)]
pub(super) struct WalSize {
    pages: Arc<AtomicI32>,
    turn: Arc<Mutex<()>>,
}

impl Checkpointer {
    /// The checkpointer, and what the writer's connection calls after each commit. Setting
    /// that also turns SQLite's own checkpoints off.
    pub(super) fn new(
        connection: Connection,
        wal: WalSize,
    ) -> (impl FnMut(&mut Wal, i32) -> rusqlite::Result<()> + Send + 'static, Self) {
        // One signal is as good as many.
        let (signal, signals): (SyncSender<()>, _) = mpsc::sync_channel(1);
        let size = Arc::clone(&wal.pages);
        let hook = move |_: &mut Wal, pages: i32| {
            let before = size.swap(pages, Ordering::Relaxed);
            // Once for every so many pages; after that many again there is work again.
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
                // Nothing is lost: the log grows until the next attempt succeeds.
                tracing::warn!(%error, "could not checkpoint");
            }
        }
    }
}

impl WalSize {
    /// Called by the writer between transactions: moves what is left of a large log, so that
    /// it starts over. It waits at most for the checkpoint that is being made.
    pub(super) fn limit(&self, connection: &Connection, tried_at: &mut i32) {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < *tried_at {
            *tried_at = 0;
        }
        // A reader in the way makes it vain; then it is tried again a little later.
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
