//! Every store passes the one suite.

use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use wellspring_log::suite::Subject;
use wellspring_log::{Durability, MemoryStore, SqliteOptions, SqliteStore, Store};

pub(crate) struct Memory(MemoryStore);

impl Memory {
    pub(crate) fn new() -> Self {
        Self(MemoryStore::default())
    }
}

impl Subject for Memory {
    fn open(&self) -> Arc<dyn Store> {
        Arc::new(self.0.beside())
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
