//! The schema of the file, and its migrations.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use wellspring_core::Seq;

use super::batch::{self, End, Entry};
use super::check::{self, Damage};
use super::group_commit::is_busy;
use super::{MIGRATION_POLL, MIGRATION_TIMEOUT, OpenError, checksum, document, int, read, threads};
use crate::codec;
use crate::document::segment;

/// Marks a file as ours ("Well").
const APPLICATION_ID: i64 = 0x5765_6c6c;

/// The migrations from an empty file to the current schema. A released migration never changes.
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
    (OWNERS_AND_THREADS, None),
    (
        "
    ALTER TABLE runs ADD COLUMN head INTEGER NOT NULL DEFAULT 0; -- when its state last changed
    ALTER TABLE runs ADD COLUMN chain INTEGER NOT NULL DEFAULT 0; -- the last frame's checksum then
    ALTER TABLE runs ADD COLUMN crc INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE inbox ADD COLUMN crc INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE audit ADD COLUMN crc INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE external_ids ADD COLUMN crc INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE places ADD COLUMN crc INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE placed ADD COLUMN crc INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE threads ADD COLUMN crc INTEGER NOT NULL DEFAULT 0;
",
        Some(add_checksums),
    ),
    ("ALTER TABLE inbox ADD COLUMN moved INTEGER; -- its number in the store it comes from", None),
];

/// Adds a checksum to every row. A frame that does not match its own checksum is kept, and
/// stays damaged.
fn add_checksums(connection: &Connection) -> rusqlite::Result<()> {
    let mut ends: BTreeMap<i64, End> = BTreeMap::new();
    let mut runs = connection.prepare("SELECT id, run FROM runs")?;
    let mut rows = runs.query([])?;
    while let Some(row) = rows.next()? {
        let crc = checksum::chain_start(read::run_id(row, 1)?);
        ends.insert(row.get(0)?, End { head: Seq(0), crc });
    }
    let upto: i64 = connection.query_row("SELECT upto FROM placed", [], |row| row.get(0))?;
    let mut next =
        connection.prepare("SELECT id, body FROM batches WHERE id > ?1 ORDER BY id LIMIT 1")?;
    let mut place = connection.prepare(
        "INSERT OR IGNORE INTO places (run, first, count, batch) VALUES (?1, ?2, ?3, ?4)",
    )?;
    let mut update = connection.prepare("UPDATE batches SET body = ?2 WHERE id = ?1")?;
    let mut last = 0;
    while let Some((id, body)) = next
        .query_row([last], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?)))
        .optional()?
    {
        last = id;
        let mut entries = Vec::with_capacity(body.len() + body.len() / 4);
        for (run, first, count, body) in batch::entries_without_sums(&body) {
            let before = ends.get(&run).map_or(0, |end| end.crc);
            let mut entry = Entry::new(run, first, count, before, body);
            if !codec::is_whole(body) {
                entry.crc = !entry.crc;
            }
            ends.insert(run, End::of(&entry));
            batch::push(&mut entries, &entry);
            if id > upto {
                place.execute(params![run, int(first.0), count, id])?;
            }
        }
        update.execute(params![id, batch::sealed(entries)])?;
    }
    connection.execute("UPDATE placed SET upto = max(upto, ?1)", [last])?;
    let mut end = connection.prepare("UPDATE runs SET head = ?2, chain = ?3 WHERE id = ?1")?;
    for (run, at) in ends {
        end.execute(params![run, int(at.head.0), at.crc])?;
    }
    let (old, new) = (check::run_columns("OLD."), check::run_columns(""));
    let thread = threads::COLUMNS;
    connection.execute_batch(&format!(
        "
    UPDATE runs SET crc = row_sum({new});
    UPDATE inbox SET crc = row_sum(run, number, key, command);
    UPDATE audit SET crc = row_sum(tenant, number, key, at, who, run, did, details);
    UPDATE external_ids SET crc = row_sum(tenant, surface, id, run);
    UPDATE places SET crc = row_sum(run, first, count, batch);
    UPDATE placed SET crc = row_sum(upto);
    UPDATE threads SET crc = row_sum({thread});
    CREATE TRIGGER runs_inserted AFTER INSERT ON runs BEGIN
        UPDATE runs SET crc = row_sum({new}) WHERE id = NEW.id;
    END;
    -- What was damaged before stays so.
    CREATE TRIGGER runs_updated AFTER UPDATE OF {new} ON runs
    WHEN OLD.crc = row_sum({old}) BEGIN
        UPDATE runs SET crc = row_sum({new}) WHERE id = NEW.id;
    END;
    CREATE TRIGGER threads_inserted AFTER INSERT ON threads BEGIN
        UPDATE threads SET crc = row_sum({thread}) WHERE thread = NEW.thread;
    END;
    CREATE TRIGGER threads_updated AFTER UPDATE OF {thread} ON threads
    WHEN OLD.crc = row_sum(OLD.thread, OLD.tenant, OLD.latest, OLD.runs, OLD.title, OLD.archived)
    BEGIN
        UPDATE threads SET crc = row_sum({thread}) WHERE thread = NEW.thread;
    END;
"
    ))
}

/// Owners without leases, inbox entries that are numbered in one sequence for all runs, threads
/// with titles, and searchable text.
///
/// Existing inbox entries get numbers above all used ones, because a run remembers the numbers
/// that it took. Paused runs become due once, because their deadlines were not stored.
const OWNERS_AND_THREADS: &str = "
    DROP INDEX runs_lease;
    ALTER TABLE runs DROP COLUMN lease_until;
    -- When a node has to look at the run; NULL while its owner does, and when it is finished.
    ALTER TABLE runs ADD COLUMN due_at INTEGER;
    UPDATE runs SET due_at = 0 WHERE state = 1 OR state = 0 AND node IS NULL;
    CREATE INDEX runs_due ON runs (due_at, run) WHERE due_at IS NOT NULL;
    CREATE INDEX runs_owner ON runs (node, run) WHERE state = 0;
    CREATE TABLE nodes (node TEXT PRIMARY KEY, beat INTEGER NOT NULL) STRICT, WITHOUT ROWID;

    CREATE TABLE entries (
        number INTEGER PRIMARY KEY AUTOINCREMENT, -- never used twice
        run INTEGER NOT NULL,
        key TEXT NOT NULL,
        command TEXT NOT NULL,
        UNIQUE (run, key)
    ) STRICT;
    INSERT INTO entries SELECT rowid + (SELECT max(number) FROM inbox), run, key, command
        FROM inbox ORDER BY rowid;
    DROP TABLE inbox;
    ALTER TABLE entries RENAME TO inbox;
    CREATE INDEX inbox_run ON inbox (run, number);

    -- The last deleted runs, so that other processes learn of them.
    CREATE TABLE deleted (id INTEGER PRIMARY KEY AUTOINCREMENT, run BLOB NOT NULL) STRICT;

    CREATE TABLE threads (
        thread BLOB PRIMARY KEY,
        tenant TEXT NOT NULL,
        latest BLOB NOT NULL, -- its newest run
        runs INTEGER NOT NULL,
        title TEXT, -- what someone set
        archived INTEGER NOT NULL DEFAULT 0
    ) STRICT, WITHOUT ROWID;
    INSERT INTO threads (thread, tenant, latest, runs)
        SELECT thread, min(tenant), max(run), count(*) FROM runs GROUP BY thread;
    CREATE INDEX threads_tenant ON threads (tenant, latest);
    -- A row per finished run, with the number of the run.
    CREATE VIRTUAL TABLE texts USING fts5 (text, content = '', contentless_delete = 1);
";

/// A migration step that SQL cannot express.
type Then = fn(&Connection) -> rusqlite::Result<()>;

fn frames_into_batches(connection: &Connection) -> rusqlite::Result<()> {
    let mut frames = connection.prepare("SELECT id, run, first, count, body FROM frames")?;
    let mut rows = frames.query([])?;
    let mut insert = connection.prepare("INSERT INTO batches (id, body) VALUES (?1, ?2)")?;
    while let Some(row) = rows.next()? {
        let (run, first, count): (i64, i64, u32) = (row.get(1)?, row.get(2)?, row.get(3)?);
        let body = row.get_ref(4)?.as_blob()?;
        let mut batch = run.to_be_bytes().to_vec();
        batch.extend_from_slice(&first.to_be_bytes());
        batch.extend_from_slice(&count.to_be_bytes());
        batch.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
        batch.extend_from_slice(body);
        insert.execute(params![row.get::<_, i64>(0)?, batch])?;
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
        // If a token was ever created, requests require one.
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

/// Whether a read-only file has the current schema, and what is damaged in it.
pub(super) fn look_at(connection: &Connection) -> rusqlite::Result<(bool, Option<Damage>)> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let known = number("application_id")? == APPLICATION_ID
        && number("user_version")? == int(MIGRATIONS.len() as u64);
    Ok((known, check::structure(connection)))
}

/// Migrates the file to the current schema, unless its structure is damaged.
pub(super) fn migrate(
    connection: &mut Connection,
    path: &Path,
) -> Result<Option<Damage>, OpenError> {
    let failed = |cause: rusqlite::Error| match cause.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DatabaseCorrupt) => {
            OpenError::Damaged { path: path.to_path_buf(), what: cause.to_string() }
        }
        _ => OpenError::Failed { path: path.to_path_buf(), cause: cause.into() },
    };
    let path = path.to_path_buf();
    let began = Instant::now();
    let form = loop {
        match migrate_to(connection, int(MIGRATIONS.len() as u64)) {
            // Another process is creating or migrating the file.
            Err(error) if is_busy(&error) && began.elapsed() < MIGRATION_TIMEOUT => {
                std::thread::sleep(MIGRATION_POLL);
            }
            decided => break decided.map_err(failed)?,
        }
    };
    match form {
        Form::Known => Ok(None),
        Form::Newer { found, known } => Err(OpenError::Newer { path, found, known }),
        Form::Foreign => Err(OpenError::Foreign { path }),
        Form::Damaged(damage) => Ok(Some(damage)),
        Form::DamagedAndOlder(damage) => Err(OpenError::Damaged { path, what: damage.what }),
    }
}

enum Form {
    Known,
    Newer {
        found: i64,
        known: i64,
    },
    Foreign,
    Damaged(Damage),
    /// It has no checksums yet, so no row can be trusted.
    DamagedAndOlder(Damage),
}

fn migrate_to(connection: &mut Connection, known: i64) -> rusqlite::Result<Form> {
    let number = |connection: &Connection, pragma: &str| {
        connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0))
    };
    // Checked before anything is changed, so that a foreign file is not modified.
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables > 0 && number(connection, "application_id")? != APPLICATION_ID {
        return Ok(Form::Foreign);
    }
    let found = number(connection, "user_version")?;
    if found > known {
        return Ok(Form::Newer { found, known });
    }
    // A large file is usually checked while it is used, but before a migration it is checked at
    // once.
    if tables > 0
        && (found < known || !is_large(connection)?)
        && let Some(damage) = check::structure(connection)
    {
        return Ok(if found == known {
            Form::Damaged(damage)
        } else {
            Form::DamagedAndOlder(damage)
        });
    }
    if found == known {
        // Nothing to do, so a full disk does not prevent reading.
        return Ok(Form::Known);
    }
    connection.pragma_update(None, "journal_mode", "wal")?;
    // Another process may be migrating too: only under the lock is it certain what is left to
    // do.
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

/// Whether checking the file's structure takes too long to wait for it.
pub(super) fn is_large(connection: &Connection) -> rusqlite::Result<bool> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    Ok(number("page_count")?.saturating_mul(number("page_size")?) > check::AT_ONCE_BYTES)
}

#[cfg(test)]
mod tests {
    use wellspring_core::{AgentNo, Event, InboxNo, Millis, Outcome, PartId, Record, RunId, Stop};

    use super::*;
    use crate::audit::AuditFilter;
    use crate::document::DocumentFilter;
    use crate::sqlite::audit;
    use crate::sqlite::connect::configure;
    use crate::store::{ExternalId, Page, StoreError, StoredFrame};
    use crate::thread::ThreadFilter;

    #[test]
    fn what_an_older_program_kept_is_there() {
        let mut connection = configure(Connection::open_in_memory().unwrap()).unwrap();
        migrate_to(&mut connection, 1).unwrap();
        let run = RunId::new(uuid::Uuid::from_u128(7));
        connection
            .execute(
                "INSERT INTO runs VALUES (1, ?1, x'000102030405060708090a0b0c0d0e0f', 'demo', 't',
                    NULL, 'a title', 2, 0, NULL, NULL, 1, 2)",
                [run.uuid().as_bytes()],
            )
            .unwrap();
        connection.execute("INSERT INTO external_ids VALUES ('t', 'chat', 'a', 1)", []).unwrap();
        let record = |seq| Record {
            seq: Seq(seq),
            agent: AgentNo::ROOT,
            at: Millis(1),
            event: Event::PartDelta { part: PartId(0), chunk: "x".into() },
        };
        let outcome = Box::new(Outcome::Completed { stop: Stop::EndTurn });
        let end = Record { event: Event::RunFinished { outcome }, ..record(3) };
        let bodies = [codec::encode(&[record(1), record(2)]), codec::encode(&[end])];
        let [first, second] = bodies.map(Result::unwrap);
        let sql = "INSERT INTO frames VALUES (?1, 1, ?2, ?3, ?4)";
        connection.execute(sql, params![3, 1, 2, first]).unwrap();
        connection.execute(sql, params![9, 3, 1, second]).unwrap();
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
        assert_eq!(read::resolve(&connection, &name).unwrap().unwrap(), Some(run));
        let filter = AuditFilter { tenant: "t".into(), before: None, limit: 1 };
        assert_eq!(audit::page(&connection, &filter).unwrap().unwrap(), []);
        let frame = |first, count, body: &[u8]| StoredFrame {
            first: Seq(first),
            count,
            body: body.to_vec().into(),
        };
        let page = read::page(&connection, run, Seq(0), 1024).unwrap().unwrap();
        let frames = vec![frame(1, 2, &first), frame(3, 1, &second)];
        assert_eq!(page, Page { frames, head: Seq(3), closed: true });
        assert_eq!(check::everything(&connection), []);
    }

    /// Entries of an older schema are read after the migration, with numbers that the run has
    /// not taken yet.
    #[test]
    fn inbox_entries_of_an_older_form_keep_waiting() {
        let mut connection = configure(Connection::open_in_memory().unwrap()).unwrap();
        migrate_to(&mut connection, 5).unwrap();
        let run = RunId::new(uuid::Uuid::from_u128(7));
        let sql = "INSERT INTO runs VALUES (1, ?1, x'000102030405060708090a0b0c0d0e0f', 'demo',
            'tenant', NULL, '', 0, 0, NULL, NULL, 1, 2)";
        connection.execute(sql, [run.uuid().as_bytes()]).unwrap();
        connection
            .execute_batch(
                r#"INSERT INTO inbox VALUES (1, 1, 'a', '#{"add_input":{"content":[]}}'),
                    (1, 2, 'b', '{"add_input":{"content":[]}}')"#,
            )
            .unwrap();
        migrate_to(&mut connection, int(MIGRATIONS.len() as u64)).unwrap();
        let waiting = read::inbox(&connection, run, InboxNo(0), read::Entries::Waiting);
        let waiting = waiting.unwrap().unwrap();
        let waiting: Vec<_> =
            waiting.iter().map(|it| (&*it.entry.key, it.entry.number.0 > 2)).collect();
        assert_eq!(waiting, [("b", true)]);
        let filter = ThreadFilter { tenant: "tenant".into(), ..ThreadFilter::default() };
        let threads = threads::list(&connection, &filter).unwrap().unwrap();
        assert_eq!(threads.iter().map(|thread| thread.latest).collect::<Vec<_>>(), [run]);
    }

    /// A frame that was damaged before checksums covered its place does not get a matching one.
    #[test]
    fn what_was_damaged_before_stays_so() {
        let mut connection = configure(Connection::open_in_memory().unwrap()).unwrap();
        migrate_to(&mut connection, 1).unwrap();
        let run = RunId::new(uuid::Uuid::from_u128(7));
        let sql = "INSERT INTO runs VALUES
            (1, ?1, x'00', 'demo', 't', NULL, '', 2, 0, NULL, NULL, 1, 2)";
        connection.execute(sql, [run.uuid().as_bytes()]).unwrap();
        connection.execute("INSERT INTO frames VALUES (1, 1, 1, 2, x'6f')", []).unwrap();
        migrate_to(&mut connection, int(MIGRATIONS.len() as u64)).unwrap();
        let page = read::page(&connection, run, Seq(0), 1024).unwrap();
        assert!(matches!(page, Err(StoreError::Damaged { at: Seq(1), .. })), "{page:?}");
        let found = check::everything(&connection);
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
