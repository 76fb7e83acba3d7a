//! Every store passes the same suite.

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;
use tempfile::TempDir;
use wellspring_core::RunId;
use wellspring_log::suite::{Damage, Subject};
use wellspring_log::{Durability, MemoryStore, SqliteOptions, SqliteStore, Store};

pub(crate) struct Memory(MemoryStore);

impl Memory {
    pub(crate) fn new() -> Self {
        Self(MemoryStore::default())
    }
}

impl Subject for Memory {
    fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.0.reopen())
    }
}

pub(crate) struct Sqlite {
    pub(crate) directory: TempDir,
    pub(crate) options: SqliteOptions,
}

impl Sqlite {
    pub(crate) fn new(durability: Durability) -> Self {
        let options = SqliteOptions { durability, ..SqliteOptions::default() };
        Self { directory: tempfile::tempdir().unwrap(), options }
    }

    pub(crate) fn store(&self) -> SqliteStore {
        SqliteStore::open(self.directory.path().join("runs.db"), self.options.clone()).unwrap()
    }
}

impl Subject for Sqlite {
    fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.store())
    }

    fn open_backup(&self, backup: &Path) -> Option<Arc<dyn Store>> {
        Some(Arc::new(SqliteStore::open(backup, self.options.clone()).unwrap()))
    }

    fn damage(&self, run: RunId, what: Damage) -> bool {
        // Closing a file indexes all its frames.
        drop(self.store());
        let file = Connection::open(self.directory.path().join("runs.db")).unwrap();
        // Checksums of rows are computed by the store; this function always writes valid ones.
        let flags = FunctionFlags::SQLITE_UTF8;
        file.create_scalar_function("row_sum", -1, flags, |_| Ok(0)).unwrap();
        let key = |run: RunId| -> i64 {
            let sql = "SELECT id FROM runs WHERE run = ?1";
            file.query_row(sql, [run.uuid().as_bytes()], |row| row.get(0)).unwrap()
        };
        if what == Damage::State {
            let sql = "UPDATE runs SET state = 0 WHERE id = ?1";
            return file.execute(sql, [key(run)]).unwrap() == 1;
        }
        // A frame starts with its run's key and its first record. Here each frame is alone in
        // its batch, because each was committed separately.
        let start = |run: RunId| {
            let mut start = key(run).to_be_bytes().to_vec();
            start.extend(2u64.to_be_bytes());
            start
        };
        let of = "WHERE substr(body, 1, 16) = CAST(?1 AS BLOB)";
        let changed = match what {
            Damage::Frame => {
                let body = "CAST(substr(body, 1, 40) || 'x' || substr(body, 42) AS BLOB)";
                file.execute(&format!("UPDATE batches SET body = {body} {of}"), [start(run)])
            }
            Damage::Missing => file.execute(&format!("DELETE FROM batches {of}"), [start(run)]),
            Damage::Foreign(other) => {
                let body = format!("(SELECT body FROM batches {})", of.replace("?1", "?2"));
                let sql = format!("UPDATE batches SET body = {body} {of}");
                file.execute(&sql, [start(run), start(other)])
            }
            Damage::State => Ok(0),
        };
        changed.unwrap() == 1
    }
}

mod memory {
    wellspring_log::store_suite!(super::Memory::new());
}

mod sqlite_process_crash {
    wellspring_log::store_suite!(super::Sqlite::new(wellspring_log::Durability::ProcessCrash));
}

mod sqlite_power_loss {
    wellspring_log::store_suite!(super::Sqlite::new(wellspring_log::Durability::PowerLoss));
}
