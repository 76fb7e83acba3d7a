//! Finds damage in a file: in its structure, its rows, and the frames of its runs.
//!
//! Checksums detect that a row or a frame was changed. That a row is *missing* is only detected
//! by SQLite's own check of the file's structure. So the structure is checked when a file is
//! opened; if it is damaged, the file is not written, and a row that is not found is not
//! reported as absent.

use std::sync::Arc;

use rusqlite::{Connection, ErrorCode, Row};
use wellspring_core::{Event, RunId, Seq};

use super::frame_storage::{self, Batch, Looked};
use super::read::{self, OWN_ROW};
use super::{document, uint};
use crate::fold::{self, read_page};
use crate::store::{Finding, Page, SnapshotKind, StoreError, StoredFrame};

/// Up to this size, the structure is checked before the file is used, which takes a fraction of
/// a second. A larger file is checked while it is used.
pub(super) const AT_ONCE_BYTES: i64 = 64 * 1024 * 1024;

/// Maximum number of findings in a report: beyond it, a list does not help.
const FINDINGS_MAX: usize = 1000;

/// Bytes of a run that are checked at once.
const PAGE_BYTES: usize = 1024 * 1024;

const RESTORE: &str = "restore the store from a backup";
const DELETE: &str = "delete the run, or restore the store from a backup";
const NOTHING: &str = "none needed: it is ignored, and deleted with the run";

/// The tables from which rows can be missing without a trace in another table.
const TABLES: [&str; 12] = [
    "runs",
    "places",
    "placed",
    "batches",
    "inbox",
    "snapshots",
    "external_ids",
    "audit",
    "documents",
    "document_revision",
    "threads",
    "texts",
];

/// Why a file is read-only: its structure is damaged, or it cannot be written.
#[derive(Debug)]
pub(super) struct Damage {
    pub(super) what: String,
    /// The tables from which rows may be missing.
    tables: Vec<&'static str>,
    is_damaged: bool,
}

impl Damage {
    /// An intact file that cannot be written.
    pub(super) fn unwritable(what: String) -> Self {
        Self { what, tables: Vec::new(), is_damaged: false }
    }

    /// Whether rows of these tables may be missing.
    pub(super) fn concerns(&self, tables: &[&str]) -> bool {
        self.tables.iter().any(|table| tables.contains(table))
    }

    pub(super) fn error(&self) -> StoreError {
        if self.is_damaged {
            StoreError::DamagedStore { what: self.what.clone() }
        } else {
            StoreError::failed("writing", self.what.clone())
        }
    }
}

/// Checks the structure of the whole file.
pub(super) fn structure(connection: &Connection) -> Option<Damage> {
    let what = look("PRAGMA integrity_check(10)", connection)?;
    let mut tables: Vec<_> = TABLES
        .into_iter()
        .filter(|table| look(&format!("PRAGMA integrity_check('{table}')"), connection).is_some())
        .collect();
    if tables.is_empty() {
        tables.extend(TABLES);
    } else {
        // These have no other index that would show missing rows.
        tables.extend(["places", "batches"]);
    }
    Some(Damage { what, tables, is_damaged: true })
}

/// What SQLite's check reports; `None` if the file is intact.
fn look(pragma: &str, connection: &Connection) -> Option<String> {
    let found = connection.prepare(pragma).and_then(|mut statement| {
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        rows.collect::<rusqlite::Result<Vec<_>>>()
    });
    match found {
        Ok(lines) if lines == ["ok"] => None,
        Ok(lines) => Some(lines.join("; ").replace('\n', " ")),
        // The check was interrupted.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => None,
        Err(error) => Some(error.to_string()),
    }
}

/// The columns of a run's row that its checksum covers, each with a prefix.
pub(super) fn run_columns(prefix: &str) -> String {
    const COLUMNS: [&str; 15] = [
        "id",
        "run",
        "thread",
        "agent",
        "tenant",
        "after",
        "title",
        "state",
        "epoch",
        "node",
        "created_at",
        "updated_at",
        "due_at",
        "head",
        "chain",
    ];
    COLUMNS.map(|column| format!("{prefix}{column}")).join(", ")
}

/// Maps a SQLite error to damage or to a failure.
pub(super) fn store_error(while_doing: &'static str, error: Arc<rusqlite::Error>) -> StoreError {
    use rusqlite::Error;
    let code = error.sqlite_error_code();
    // Our queries never change, so an error in them means that the file's schema did.
    let damaged = matches!(code, Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
        || matches!(
            &*error,
            Error::SqlInputError { .. }
                | Error::FromSqlConversionFailure(..)
                | Error::IntegralValueOutOfRange(..)
                | Error::InvalidColumnType(..)
                | Error::Utf8Error(..)
        );
    if damaged {
        return StoreError::DamagedStore { what: format!("{while_doing}: {error}") };
    }
    StoreError::Failed { while_doing, cause: error }
}

/// Reads all frames of a run without decoding their records.
pub(super) fn frames(
    connection: &Connection,
    run: RunId,
) -> rusqlite::Result<Result<(), StoreError>> {
    each_page(connection, run, |_, page| {
        Ok(page.frames.last().map_or(page.head, StoredFrame::last))
    })
}

/// Reads all records of a run.
fn records(connection: &Connection, run: RunId) -> rusqlite::Result<Result<(), StoreError>> {
    let mut finished = false;
    each_page(connection, run, |mut after, page| {
        for frame in read_page(run, after, page)? {
            after = frame.last();
            let is_end = |event: &Event| matches!(event, Event::RunFinished { .. });
            finished |= frame.records().iter().any(|record| is_end(&record.event));
        }
        if after >= page.head {
            fold::check_end(run, after, page.closed, finished)?;
        }
        Ok(after)
    })
}

/// Calls `look` for every page of a run, with the record before it. `look` returns the last
/// record of the page.
fn each_page(
    connection: &Connection,
    run: RunId,
    mut look: impl FnMut(Seq, &Page) -> Result<Seq, StoreError>,
) -> rusqlite::Result<Result<(), StoreError>> {
    let mut after = Seq(0);
    loop {
        let page = read::page(connection, run, after, PAGE_BYTES)?;
        match page.and_then(|page| Ok((look(after, &page)?, page.head))) {
            Ok((last, head)) if last >= head => return Ok(Ok(())),
            Ok((last, _)) => after = last,
            Err(error) => return Ok(Err(error)),
        }
    }
}

/// Finds all damage.
pub(super) fn everything(connection: &Connection) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(damage) = structure(connection) {
        found.push(Finding { run: None, what: damage.what, remedy: RESTORE });
    }
    let steps: [Step; 4] = [check_runs, check_snapshots, check_rows, check_batches];
    for step in steps {
        if let Err(error) = step(connection, &mut found) {
            found.push(Finding { run: None, what: error.to_string(), remedy: RESTORE });
        }
    }
    found.truncate(FINDINGS_MAX);
    found
}

/// One check, which adds its findings.
type Step = fn(&Connection, &mut Vec<Finding>) -> rusqlite::Result<()>;

fn check_runs(connection: &Connection, found: &mut Vec<Finding>) -> rusqlite::Result<()> {
    let sql = format!("SELECT run, crc IS row_sum({}) FROM runs ORDER BY run", run_columns(""));
    let mut statement = connection.prepare(&sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let run = read::run_id(row, 0).ok();
        let (Some(id), true) = (run, row.get(1)?) else {
            found.push(Finding { run, what: OWN_ROW.into(), remedy: DELETE });
            continue;
        };
        match records(connection, id) {
            Ok(Ok(())) => {}
            Ok(Err(StoreError::Damaged { at, what, .. })) => {
                let what = format!("record {at}: {what}");
                found.push(Finding { run, what, remedy: DELETE });
            }
            Ok(Err(error)) => {
                found.push(Finding { run, what: error.to_string(), remedy: RESTORE });
            }
            Err(error) => found.push(Finding { run, what: error.to_string(), remedy: RESTORE }),
        }
        if found.len() >= FINDINGS_MAX {
            break;
        }
    }
    Ok(())
}

fn check_snapshots(connection: &Connection, found: &mut Vec<Finding>) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(
        "SELECT runs.run, kind, at, body FROM snapshots LEFT JOIN runs ON runs.id = snapshots.run",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        // Those of a deleted run are about to be removed.
        let Ok(run) = read::run_id(row, 0) else { continue };
        let kind = match row.get(1)? {
            0 => Some(SnapshotKind::Outline),
            1 => Some(SnapshotKind::Transcript),
            2.. | ..0 => None::<SnapshotKind>,
        };
        let (at, body) = (Seq(uint(row.get(2)?)), row.get_ref(3)?.as_blob()?);
        if kind.is_none_or(|kind| !fold::is_whole_snapshot(run, kind, at, body)) {
            let what = format!("the snapshot at record {at}");
            found.push(Finding { run: Some(run), what, remedy: NOTHING });
        }
    }
    Ok(())
}

/// Finds rows whose checksum does not match.
fn check_rows(connection: &Connection, found: &mut Vec<Finding>) -> rusqlite::Result<()> {
    let of_runs = [
        (
            "an entry of its inbox",
            "SELECT runs.run FROM inbox JOIN runs ON runs.id = inbox.run
            WHERE inbox.crc
                IS NOT row_sum(inbox.run, coalesce(moved, number), key, command)",
        ),
        (
            "the name that a client gave it",
            "SELECT runs.run FROM external_ids JOIN runs ON runs.id = external_ids.run
            WHERE external_ids.crc
                IS NOT row_sum(external_ids.tenant, surface, external_ids.id, external_ids.run)",
        ),
        (
            "the index of its frames",
            "SELECT runs.run FROM places JOIN runs ON runs.id = places.run
            WHERE places.crc IS NOT row_sum(places.run, first, count, batch)",
        ),
    ];
    for (what, sql) in of_runs {
        let mut statement = connection.prepare(sql)?;
        let run = |row: &Row<'_>| Ok(read::run_id(row, 0).ok());
        for run in statement.query_map([], run)? {
            found.push(Finding { run: run?, what: what.into(), remedy: DELETE });
        }
    }
    let threads =
        format!("SELECT latest FROM threads WHERE crc IS NOT row_sum({})", super::threads::COLUMNS);
    let mut statement = connection.prepare(&threads)?;
    for run in statement.query_map([], |row| Ok(read::run_id(row, 0).ok()))? {
        let what = "the thread that it is the newest run of".into();
        found.push(Finding { run: run?, what, remedy: RESTORE });
    }
    let audit = "SELECT count(*) FROM audit
        WHERE crc IS NOT row_sum(tenant, number, key, at, who, run, did, details)";
    let damaged: i64 = connection.query_row(audit, [], |row| row.get(0))?;
    if damaged > 0 {
        let what = format!("entries of the audit log: {damaged}");
        found.push(Finding { run: None, what, remedy: RESTORE });
    }
    for name in document::damaged(connection)? {
        let what = format!("document `{name}`");
        let remedy = "write or delete it, or restore the store from a backup";
        found.push(Finding { run: None, what, remedy });
    }
    Ok(())
}

fn check_batches(connection: &Connection, found: &mut Vec<Finding>) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("SELECT id, body FROM batches ORDER BY id")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if !Batch::read(row.get_ref(1)?.as_blob()?).whole {
            let what = format!("batch {} of frames", row.get::<_, i64>(0)?);
            let remedy = "the runs whose frames in it are damaged are listed by themselves";
            found.push(Finding { run: None, what, remedy });
        }
    }
    if let Looked::ButSome(id) = frame_storage::each_unplaced(connection, |_, _| {})? {
        let what = format!("batch {id}, which holds the last records of runs that go on");
        found.push(Finding { run: None, what, remedy: RESTORE });
    }
    Ok(())
}
