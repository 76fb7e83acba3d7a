//! Detects which runs other processes have changed.
//!
//! Batches, inbox entries and deletions have increasing numbers. So the changes of other
//! processes are the rows with higher numbers than last time: three queries, however many runs
//! are watched. They run only if SQLite's commit counter shows that another connection has
//! committed.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension};

use super::batch::{self, Looked};
use super::read;
use crate::watch::Watches;

/// Maximum number of deleted runs that are remembered. A process that is farther behind wakes
/// all watches.
const DELETED_MAX: i64 = 1024;

/// The highest numbers that were read.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Marks {
    pub(super) batch: i64,
    pub(super) inbox: i64,
    pub(super) deleted: i64,
}

impl Marks {
    /// The current highest numbers.
    pub(super) fn now(connection: &Connection) -> rusqlite::Result<Self> {
        let batch = connection
            .prepare_cached(
                "SELECT max(upto, (SELECT coalesce(max(id), 0) FROM batches)) FROM placed",
            )?
            .query_row([], |row| row.get(0))?;
        let inbox = last_number(connection, "inbox")?;
        Ok(Self { batch, inbox, deleted: last_number(connection, "deleted")? })
    }

    /// Wakes the watches of the runs that have changed since, and updates the numbers.
    pub(super) fn wake(
        &mut self,
        connection: &Connection,
        watches: &Watches,
    ) -> rusqlite::Result<()> {
        let now = Self::now(connection)?;
        if !watches.is_empty() {
            let mut keys = BTreeSet::new();
            let looked = batch::each_after(connection, self.batch, |_, entry| {
                keys.insert(entry.run);
            })?;
            if looked != Looked::AtAll {
                watches.wake_all();
            }
            let mut entries =
                connection.prepare_cached("SELECT DISTINCT run FROM inbox WHERE number > ?1")?;
            for key in entries.query_map([self.inbox], |row| row.get(0))? {
                keys.insert(key?);
            }
            let mut run = connection.prepare_cached("SELECT run FROM runs WHERE id = ?1")?;
            for key in keys {
                if let Some(run) = run.query_row([key], |row| read::run_id(row, 0)).optional()? {
                    watches.wake(run);
                }
            }
            if now.deleted - self.deleted > DELETED_MAX {
                watches.wake_all();
            } else if now.deleted > self.deleted {
                let mut deleted =
                    connection.prepare_cached("SELECT run FROM deleted WHERE id > ?1")?;
                for run in deleted.query_map([self.deleted], |row| read::run_id(row, 0))? {
                    watches.wake(run?);
                }
            }
        }
        *self = now;
        Ok(())
    }
}

/// The last number that a table has used, also if its row was deleted.
pub(super) fn last_number(connection: &Connection, table: &str) -> rusqlite::Result<i64> {
    let last = connection
        .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = ?1")?
        .query_row([table], |row| row.get(0))
        .optional()?;
    Ok(last.unwrap_or(0))
}

/// Records that a run was deleted.
pub(super) fn note_deletion(connection: &Connection, run: &[u8; 16]) -> rusqlite::Result<()> {
    connection.prepare_cached("INSERT INTO deleted (run) VALUES (?1)")?.execute([run])?;
    let old = connection.last_insert_rowid() - DELETED_MAX;
    connection.prepare_cached("DELETE FROM deleted WHERE id <= ?1")?.execute([old]).map(drop)
}
