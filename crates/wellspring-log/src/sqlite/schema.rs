//! The file: its form, its connections, its permissions.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};
use wellspring_core::Seq;

use super::batch::{self, Entry};
use super::document;
use super::{BUSY_TIMEOUT, Durability, OpenError, SqliteOptions, int, uint, write};
use crate::document::segment;
use crate::store::StoreError;

/// Marks a file as ours ("Well").
const APPLICATION_ID: i64 = 0x5765_6c6c;

/// The steps from an empty file to today's form. A step that was released never changes.
const MIGRATIONS: &[(&str, Option<Then>)] = &[
    (
        "
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT, -- never used twice: frames of a deleted run linger
        run BLOB NOT NULL UNIQUE,
        thread BLOB NOT NULL,
        agent TEXT NOT NULL,
        tenant TEXT NOT NULL,
        after BLOB,
        title TEXT NOT NULL,
        state INTEGER NOT NULL, -- 0 running, 1 paused, 2 completed, 3 cancelled, 4 failed
        epoch INTEGER NOT NULL,
        node TEXT,
        lease_until INTEGER,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX runs_unfinished ON runs (thread) WHERE state < 2;
    CREATE INDEX runs_thread ON runs (thread, run);
    CREATE INDEX runs_tenant ON runs (tenant, run);
    CREATE INDEX runs_lease ON runs (lease_until) WHERE state = 0;
    CREATE TABLE frames (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL,
        first INTEGER NOT NULL,
        count INTEGER NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (run, first)
    ) STRICT;
    CREATE TABLE inbox (
        run INTEGER NOT NULL,
        number INTEGER NOT NULL,
        key TEXT NOT NULL,
        command TEXT NOT NULL,
        PRIMARY KEY (run, number),
        UNIQUE (run, key)
    ) STRICT;
    CREATE TABLE snapshots (
        run INTEGER NOT NULL,
        kind INTEGER NOT NULL, -- 0 outline, 1 transcript
        at INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (run, kind, at)
    ) STRICT;
    CREATE TABLE external_ids (
        tenant TEXT NOT NULL,
        surface TEXT NOT NULL,
        id TEXT NOT NULL,
        run INTEGER NOT NULL,
        PRIMARY KEY (tenant, surface, id)
    ) STRICT;
    CREATE INDEX external_ids_run ON external_ids (run);
    CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
    CREATE TABLE doomed (run INTEGER PRIMARY KEY) STRICT; -- deleted, but not yet swept
",
        None,
    ),
    (
        "
    -- Names are looked up by themselves only, so a table beside its index is one too many.
    CREATE TABLE names (
        tenant TEXT NOT NULL,
        surface TEXT NOT NULL,
        id TEXT NOT NULL,
        run INTEGER NOT NULL,
        PRIMARY KEY (tenant, surface, id)
    ) STRICT, WITHOUT ROWID;
    INSERT INTO names SELECT tenant, surface, id, run FROM external_ids;
    DROP TABLE external_ids;
    ALTER TABLE names RENAME TO external_ids;
    CREATE INDEX external_ids_run ON external_ids (run);
",
        None,
    ),
    (
        "
    CREATE TABLE audit (
        tenant TEXT NOT NULL,
        number INTEGER NOT NULL,
        key TEXT NOT NULL,
        at INTEGER NOT NULL,
        who TEXT NOT NULL,
        run BLOB NOT NULL, -- the run's own id: it may be gone
        did TEXT NOT NULL,
        details TEXT NOT NULL,
        PRIMARY KEY (tenant, number),
        UNIQUE (tenant, key)
    ) STRICT;
",
        None,
    ),
    (
        "
    CREATE TABLE batches (id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
    CREATE TABLE places (
        run INTEGER NOT NULL,
        first INTEGER NOT NULL,
        count INTEGER NOT NULL,
        batch INTEGER NOT NULL,
        PRIMARY KEY (run, first)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE placed (upto INTEGER NOT NULL) STRICT; -- one row: the last batch in places
    INSERT INTO placed SELECT coalesce(max(id), 0) FROM frames;
    INSERT INTO places SELECT run, first, count, id FROM frames ORDER BY run, first;
",
        Some(frames_into_batches),
    ),
    (
        "
    CREATE TABLE documents (
        name TEXT PRIMARY KEY,
        revision INTEGER NOT NULL,
        text TEXT NOT NULL,
        crc INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE document_revision (last INTEGER NOT NULL) STRICT; -- one row
    INSERT INTO document_revision VALUES (1);
",
        Some(settings_into_documents),
    ),
];

/// What a step does that SQL cannot.
type Then = fn(&Connection) -> rusqlite::Result<()>;

fn frames_into_batches(connection: &Connection) -> rusqlite::Result<()> {
    let mut frames = connection.prepare("SELECT id, run, first, count, body FROM frames")?;
    let mut rows = frames.query([])?;
    let mut insert = connection.prepare("INSERT INTO batches (id, body) VALUES (?1, ?2)")?;
    while let Some(row) = rows.next()? {
        let frame = Entry {
            run: row.get(1)?,
            first: Seq(uint(row.get(2)?)),
            count: row.get(3)?,
            body: row.get_ref(4)?.as_blob()?,
        };
        insert.execute(params![row.get::<_, i64>(0)?, batch::alone(&frame)])?;
    }
    drop(rows);
    drop(frames);
    connection.execute_batch("DROP TABLE frames")
}

/// Settings become documents. The list of tokens, which was one setting, becomes a document
/// for each token.
fn settings_into_documents(connection: &Connection) -> rusqlite::Result<()> {
    let mut settings = connection.prepare("SELECT name, value FROM settings")?;
    let mut rows = settings.query([])?;
    while let Some(row) = rows.next()? {
        let (name, value): (String, String) = (row.get(0)?, row.get(1)?);
        let tokens: Option<Vec<serde_json::Value>> =
            (name == "server.tokens").then(|| serde_json::from_str(&value).ok()).flatten();
        let Some(tokens) = tokens else {
            document::insert(connection, &name, 1, &value)?;
            continue;
        };
        // Where a token was ever made, requests need one.
        document::insert(connection, "server.tokens-required", 1, "yes")?;
        for token in tokens {
            let id = token.get("id").and_then(serde_json::Value::as_str).unwrap_or_default();
            let name = format!("token/{}", segment(id));
            document::insert(connection, &name, 1, &token.to_string())?;
        }
    }
    drop(rows);
    drop(settings);
    connection.execute_batch("DROP TABLE settings")
}

/// Makes the file, and its directory where that is missing, for its owner's eyes only.
/// SQLite gives its other files the same permissions.
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

fn configure(connection: Connection) -> rusqlite::Result<Connection> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(64);
    // A statement is planned once: without this, many are planned again for every new value.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

/// Brings the file to today's form.
pub(super) fn migrate(connection: &mut Connection, path: &Path) -> Result<(), OpenError> {
    let path = path.to_path_buf();
    match migrate_to(connection, int(MIGRATIONS.len() as u64)) {
        Ok(Form::Known) => Ok(()),
        Ok(Form::Newer { found, known }) => Err(OpenError::Newer { path, found, known }),
        Ok(Form::Foreign) => Err(OpenError::Foreign { path }),
        Err(cause) => Err(OpenError::Failed { path, cause: cause.into() }),
    }
}

enum Form {
    Known,
    Newer { found: i64, known: i64 },
    Foreign,
}

fn migrate_to(connection: &mut Connection, known: i64) -> rusqlite::Result<Form> {
    let number = |connection: &Connection, pragma: &str| {
        connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0))
    };
    // Looked at before anything is changed, so that nothing is done to a foreign file.
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables > 0 && number(connection, "application_id")? != APPLICATION_ID {
        return Ok(Form::Foreign);
    }
    let found = number(connection, "user_version")?;
    if found > known {
        return Ok(Form::Newer { found, known });
    }
    connection.pragma_update(None, "journal_mode", "wal")?;
    // Another process may be doing the same: only inside the lock is it certain what is left.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found = number(&transaction, "user_version")?;
    let done = usize::try_from(found).unwrap_or(0);
    let wanted = usize::try_from(known).unwrap_or(0);
    for (sql, then) in MIGRATIONS.iter().take(wanted).skip(done) {
        transaction.execute_batch(sql)?;
        if let Some(then) = then {
            then(&transaction)?;
        }
    }
    if found < known {
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", known)?;
    }
    transaction.commit()?;
    Ok(Form::Known)
}

/// Sweeps what a process that died while deleting has left.
pub(super) fn finish_deletions(connection: &mut Connection) -> rusqlite::Result<()> {
    let next = "SELECT run FROM doomed LIMIT 1";
    loop {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let key = transaction.query_row(next, [], |row| row.get(0));
        match key {
            Ok(key) => write::sweep(&transaction, key)?,
            Err(rusqlite::Error::QueryReturnedNoRows) => return Ok(()),
            Err(error) => return Err(error),
        };
        transaction.commit()?;
    }
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
    // A checkpoint that has to wait for readers keeps the writer waiting too.
    connection.busy_timeout(super::checkpoint::BUSY_TIMEOUT)
}

fn synchronous(connection: &Connection, options: &SqliteOptions) -> rusqlite::Result<()> {
    let level = match options.durability {
        Durability::ProcessCrash => "normal",
        Durability::PowerLoss => "full",
    };
    connection.pragma_update(None, "synchronous", level)
}

/// Copies everything, as it is at one moment, to a new file.
pub(super) fn backup(from: &Path, to: &Path) -> Result<(), StoreError> {
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
        StoreError::failed("making a backup", error)
    };
    if to.exists() {
        let error = io::Error::new(io::ErrorKind::AlreadyExists, to.display().to_string());
        return Err(failed(error.into()));
    }
    let name = to.to_str().ok_or_else(|| failed("the path is not UTF-8".into()))?;
    new_private_file(to).map_err(|error| failed(error.into()))?;
    let copied = connect_reader(from)
        .and_then(|connection| connection.execute("VACUUM INTO ?1", [name]))
        .map_err(|error| failed(error.into()))
        .and_then(|_| {
            let sync = OpenOptions::new().write(true).open(to).and_then(|file| file.sync_all());
            sync.map_err(|error| failed(error.into()))
        });
    if copied.is_err() {
        // Half a backup is worse than none.
        let _ = fs::remove_file(to);
    }
    copied
}

#[cfg(test)]
mod tests {
    use wellspring_core::RunId;

    use super::*;
    use crate::audit::AuditFilter;
    use crate::document::DocumentFilter;
    use crate::sqlite::{audit, read};
    use crate::store::{ExternalId, Page, StoredFrame};

    #[test]
    fn what_an_older_program_kept_is_there() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate_to(&mut connection, 1).unwrap();
        let run = RunId::new(uuid::Uuid::from_u128(7));
        connection
            .execute(
                "INSERT INTO runs VALUES (1, ?1, x'00', 'demo', 't', NULL, '', 2, 0, NULL, NULL, 1, 2)",
                [run.uuid().as_bytes()],
            )
            .unwrap();
        connection.execute("INSERT INTO external_ids VALUES ('t', 'chat', 'a', 1)", []).unwrap();
        let frames = "INSERT INTO frames VALUES (3, 1, 1, 2, x'6f'), (9, 1, 3, 1, x'70')";
        connection.execute(frames, []).unwrap();
        let settings = r#"INSERT INTO settings VALUES ('approval/thread/x', 'yes'),
            ('server.tokens', '[{"id":"ci","tenant":"a"},{"id":"b"}]')"#;
        connection.execute(settings, []).unwrap();
        migrate_to(&mut connection, int(MIGRATIONS.len() as u64)).unwrap();
        let all = document::list(&connection, &DocumentFilter::default()).unwrap().unwrap();
        let all: Vec<_> = all.iter().map(|it| (&*it.name, it.revision, &*it.text)).collect();
        let token = r#"{"id":"ci","tenant":"a"}"#;
        let want = [
            ("approval/thread/x", 1, "yes"),
            ("server.tokens-required", 1, "yes"),
            ("token/b", 1, r#"{"id":"b"}"#),
            ("token/ci", 1, token),
        ];
        assert_eq!(all, want);
        let name = ExternalId { tenant: "t".into(), surface: "chat".into(), id: "a".into() };
        assert_eq!(read::resolve(&connection, &name).unwrap(), Some(run));
        let filter = AuditFilter { tenant: "t".into(), before: None, limit: 1 };
        assert_eq!(audit::page(&connection, &filter).unwrap(), []);
        let frame = |first, count, body: &'static [u8]| StoredFrame {
            first: Seq(first),
            count,
            body: body.into(),
        };
        let page = read::page(&connection, run, Seq(0), 1024).unwrap().unwrap();
        let frames = vec![frame(1, 2, b"o"), frame(3, 1, b"p")];
        assert_eq!(page, Page { frames, head: Seq(3), closed: true });
    }
}
