//! Moving the write-ahead log into the file, away from the writer.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::hooks::Wal;

/// From how many pages of write-ahead log on a checkpoint is made: 4 MiB, enough that a page
/// written often is copied once.
const PAGES: i32 = 1024;

/// From how many pages on the log is cut back even while writing goes on: 64 MiB.
const PAGES_LARGE: i64 = 16 * 1024;

/// After how long without writing the log is cut back.
const IDLE: Duration = Duration::from_secs(5);

/// How long a checkpoint may keep the writer waiting for readers.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_millis(100);

pub(super) struct Checkpointer {
    connection: Connection,
    signals: Receiver<()>,
}

impl Checkpointer {
    /// The checkpointer, and what the writer's connection calls after each commit. Setting
    /// that also turns SQLite's own checkpoints off.
    pub(super) fn new(
        connection: Connection,
    ) -> (impl FnMut(&mut Wal, i32) -> rusqlite::Result<()> + Send + 'static, Self) {
        // One signal is as good as many.
        let (signal, signals): (SyncSender<()>, _) = mpsc::sync_channel(1);
        let hook = move |_: &mut Wal, pages: i32| {
            if pages >= PAGES {
                let _ = signal.try_send(());
            }
            Ok(())
        };
        (hook, Self { connection, signals })
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
            let result = match signal {
                Ok(()) => self.checkpoint("passive").and_then(|pages| {
                    cut_back = false;
                    if pages > PAGES_LARGE { self.checkpoint("truncate") } else { Ok(pages) }
                }),
                Err(RecvTimeoutError::Timeout) => {
                    cut_back = true;
                    self.checkpoint("truncate")
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if let Err(error) = result {
                // Nothing is lost: the log grows until the next attempt succeeds.
                tracing::warn!(%error, "could not checkpoint");
            }
        }
    }

    /// Makes a checkpoint and says how many pages the log has.
    fn checkpoint(&self, mode: &str) -> rusqlite::Result<i64> {
        let pragma = format!("PRAGMA wal_checkpoint({mode})");
        self.connection.query_row(&pragma, [], |row| row.get(1))
    }
}
