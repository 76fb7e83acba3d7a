//! Connections to the file, and its permissions.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::{BUSY_TIMEOUT, SqliteOptions, checksum, int, threads};
use crate::options::Durability;

/// Creates the file, and its directory if missing, readable by its owner only. SQLite gives its
/// other files the same permissions.
pub(super) fn make_private(path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty())
        && !directory.exists()
    {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(directory)?;
    }
    new_private_file(path)
}

pub(super) fn new_private_file(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

pub(super) fn connect(path: &Path) -> rusqlite::Result<Connection> {
    configure(Connection::open(path)?)
}

pub(super) fn connect_reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    configure(Connection::open_with_flags(path, flags)?)
}

/// A connection that creates no other files, for a disk on which that is impossible. Nothing
/// may write to the file meanwhile, so it fails if the write-ahead log is not empty.
pub(super) fn connect_immutable(path: &Path) -> rusqlite::Result<Connection> {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    let name = path.to_str().filter(|_| fs::metadata(&wal).map_or(0, |wal| wal.len()) == 0);
    let name = name.ok_or(rusqlite::Error::InvalidPath(path.to_owned()))?;
    let name = name.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    configure(Connection::open_with_flags(format!("file:{name}?immutable=1"), flags)?)
}

pub(super) fn configure(connection: Connection) -> rusqlite::Result<Connection> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(64);
    // Keeps a statement's query plan. Without it, many statements are planned again for every
    // new value.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    checksum::register(&connection)?;
    threads::add_function(&connection)?;
    Ok(connection)
}

pub(super) fn configure_writer(
    connection: &Connection,
    options: &SqliteOptions,
) -> rusqlite::Result<()> {
    synchronous(connection, options)?;
    if let Some(bytes) = options.bytes_max {
        let page: i64 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let pages = int(bytes) / page.max(1);
        connection.pragma_update_and_check(None, "max_page_count", pages.max(1), |_| Ok(()))?;
    }
    Ok(())
}

pub(super) fn configure_checkpointer(
    connection: &Connection,
    options: &SqliteOptions,
) -> rusqlite::Result<()> {
    synchronous(connection, options)?;
    // A checkpoint that waits for readers also blocks the writer.
    connection.busy_timeout(super::checkpoint::BUSY_TIMEOUT)
}

fn synchronous(connection: &Connection, options: &SqliteOptions) -> rusqlite::Result<()> {
    let level = match options.durability {
        Durability::ProcessCrash => "normal",
        Durability::PowerLoss => "full",
    };
    connection.pragma_update(None, "synchronous", level)
}
