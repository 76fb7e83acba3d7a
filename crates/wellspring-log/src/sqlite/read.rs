//! Queries, each inside a short transaction.

use std::collections::HashMap;

use bytes::Bytes;
use rusqlite::types::{ToSql, Type};
use rusqlite::{Connection, OptionalExtension, Row, params};
use wellspring_core::{Command, InboxNo, Millis, RunId, Seq, ThreadId};

use super::checksum::chain_start;
use super::frame_storage::{self, Batch, End, Entry, Looked};
use super::integrity::run_columns;
use super::write::TAKEN;
use super::{int, uint};
use crate::due::{Due, DueQuery, NodeBeat};
use crate::inbox::InboxEntry;
use crate::store::{
    ExportedCommand, ExternalId, HistoryQuery, LIST_MAX, Page, PastRun, RunExport, RunFilter,
    RunInfo, RunState, SnapshotKind, StoreError, StoredFrame,
};

type Outcome<T> = rusqlite::Result<Result<T, StoreError>>;

/// The columns of a run's row, and its last record according to the index; -1 if the index is
/// damaged.
fn select_info() -> String {
    let columns = run_columns("runs.");
    format!(
        "SELECT runs.run, thread, agent, tenant, after, title, state, epoch, node, created_at,
        updated_at, (
            SELECT iif(crc IS row_sum(run, first, count, batch), first + count - 1, -1)
            FROM places WHERE places.run = runs.id ORDER BY first DESC LIMIT 1
        ), runs.id, head, runs.crc IS row_sum({columns})"
    )
}

pub(super) fn info(connection: &Connection, run: RunId) -> Outcome<Option<RunInfo>> {
    let unplaced = frame_storage::unplaced_ends(connection)?;
    let found = connection
        .prepare_cached(&format!("{} FROM runs WHERE run = ?1", select_info()))?
        .query_row([run.uuid().as_bytes()], |row| info_of(row, Some(run), &unplaced))
        .optional()?;
    Ok(found.transpose())
}

pub(super) fn list(connection: &Connection, filter: &RunFilter) -> Outcome<Vec<RunInfo>> {
    let mut conditions = Vec::new();
    let mut values: Vec<Box<dyn ToSql>> = Vec::new();
    let mut condition = |sql: &str, value: Option<Box<dyn ToSql>>| {
        if let Some(value) = value {
            values.push(value);
            conditions.push(format!("{sql} ?{}", values.len()));
        }
    };
    let blob = |uuid: uuid::Uuid| -> Box<dyn ToSql> { Box::new(*uuid.as_bytes()) };
    let text = |text: &str| -> Box<dyn ToSql> { Box::new(text.to_owned()) };
    let time = |at: Millis| -> Box<dyn ToSql> { Box::new(int(at.0)) };
    // A thread has few runs and a tenant many; the plus keeps SQLite from using the tenant
    // index.
    let tenant = if filter.thread.is_some() { "+tenant =" } else { "tenant =" };
    condition(tenant, filter.tenant.as_deref().map(text));
    condition("thread =", filter.thread.map(|thread| blob(thread.uuid())));
    condition("agent =", filter.agent.as_deref().map(text));
    condition("created_at >=", filter.since.map(time));
    condition("created_at <", filter.before.map(time));
    condition("run <", filter.after_run.map(|run| blob(run.uuid())));
    if !filter.states.is_empty() {
        let codes: Vec<_> =
            filter.states.iter().map(|state| state_code(*state).to_string()).collect();
        conditions.push(format!("state IN ({})", codes.join(", ")));
    }
    let conditions =
        if conditions.is_empty() { "true".to_owned() } else { conditions.join(" AND ") };
    let limit = filter.limit_or_max();
    let sql =
        format!("{} FROM runs WHERE {conditions} ORDER BY run DESC LIMIT {limit}", select_info());
    let mut statement = connection.prepare_cached(&sql)?;
    let unplaced = frame_storage::unplaced_ends(connection)?;
    let mut rows = statement.query(rusqlite::params_from_iter(values))?;
    let mut infos: Vec<RunInfo> = Vec::new();
    while let Some(row) = rows.next()? {
        let info = match info_of(row, None, &unplaced)? {
            Ok(info) => info,
            Err(error) => return Ok(Err(error)),
        };
        let before = infos.last().map(|info| info.run).or(filter.after_run);
        if !filter.matches(&info) || before.is_some_and(|before| before <= info.run) {
            return Ok(Err(damaged(info.run, Seq(0), "the index of runs points to the wrong row")));
        }
        infos.push(info);
    }
    Ok(Ok(infos))
}

pub(super) fn page(
    connection: &Connection,
    run: RunId,
    after: Seq,
    bytes_max: usize,
) -> Outcome<Page> {
    let row = match find_run(connection, run)? {
        Ok(row) => row,
        Err(error) => return Ok(Err(error)),
    };
    let mut unplaced = Vec::new();
    let looked = frame_storage::each_unplaced(connection, |_, entry| {
        if entry.run == row.key {
            unplaced.push((stored(&entry), entry.before, entry.crc));
        }
    })?;
    let closed = row.state.is_final();
    let head = if closed {
        row.end.head
    } else {
        // Its last frame may be among those that could not be read.
        looked.all()?;
        match unplaced.last() {
            Some((frame, ..)) => frame.last(),
            None => match placed_head(connection, run, row.key)? {
                Ok(head) => head,
                Err(error) => return Ok(Err(error)),
            },
        }
    };
    if head < row.end.head {
        return Ok(Err(damaged(run, head.next(), "its last records are missing")));
    }
    let mut page = Page { frames: Vec::new(), head, closed };
    if after >= page.head {
        return Ok(Ok(page));
    }
    // Reads from the frame with the previous record on: each frame names the checksum of the
    // one before.
    let start = after.0.max(1);
    let mut statement = connection.prepare_cached(
        "SELECT first, body FROM places LEFT JOIN batches ON batches.id = batch WHERE run = ?1
            AND first >= (SELECT max(first) FROM places WHERE run = ?1 AND first <= ?2)
        ORDER BY first",
    )?;
    let mut rows = statement.query(params![row.key, int(start)])?;
    let mut reading = Reading { run, start, end: None };
    let mut bytes = 0;
    let mut is_full = |frame: &StoredFrame, page: &Page| {
        bytes += frame.body.len();
        !page.frames.is_empty() && bytes > bytes_max
    };
    while let Some(found) = rows.next()? {
        let first = Seq(uint(found.get(0)?));
        let body = found.get_ref(1)?.as_blob_or_null()?.unwrap_or_default();
        let Some(entry) = Batch::read(body).find(row.key, first) else {
            return Ok(Err(damaged(run, first, "a frame does not match its checksum")));
        };
        if let Err(error) = reading.next(&entry) {
            return Ok(Err(error));
        }
        if entry.last() <= after {
            continue;
        }
        let frame = stored(&entry);
        if is_full(&frame, &page) {
            return Ok(Ok(page));
        }
        page.frames.push(frame);
    }
    for (frame, before, crc) in unplaced {
        if frame.last().0 < start && reading.end.is_none() {
            continue;
        }
        let entry = Entry {
            run: row.key,
            first: frame.first,
            count: frame.count,
            before,
            crc,
            body: &frame.body,
        };
        if let Err(error) = reading.next(&entry) {
            return Ok(Err(error));
        }
        if frame.last() <= after {
            continue;
        }
        if is_full(&frame, &page) {
            return Ok(Ok(page));
        }
        page.frames.push(frame);
    }
    let end = reading.end.map_or(Seq(0), |end| end.head);
    if end != head {
        return Ok(Err(damaged(run, end.next(), "its last records are missing")));
    }
    if closed && reading.end != Some(row.end) {
        return Ok(Err(damaged(run, head, "its last frame is not the one that its state names")));
    }
    Ok(Ok(page))
}

/// Checks that frames are consecutive.
struct Reading {
    run: RunId,
    start: u64,
    end: Option<End>,
}

impl Reading {
    fn next(&mut self, entry: &Entry<'_>) -> Result<(), StoreError> {
        let follows = match self.end {
            Some(end) => entry.first == end.head.next() && entry.before == end.crc,
            None if entry.first == Seq(1) => entry.before == chain_start(self.run),
            None => entry.first.0 <= self.start,
        };
        if !follows {
            let at = self.end.map_or(Seq(self.start), |end| end.head.next());
            return Err(damaged(self.run, at, "its frames do not follow each other"));
        }
        self.end = Some(End::of(entry));
        Ok(())
    }
}

fn stored(entry: &Entry<'_>) -> StoredFrame {
    let body = entry.body.to_vec().into();
    StoredFrame { first: entry.first, count: entry.count, body }
}

pub(super) fn damaged(run: RunId, at: Seq, what: &str) -> StoreError {
    StoreError::Damaged { run, at, what: what.into() }
}

pub(super) fn inbox(
    connection: &Connection,
    run: RunId,
    after: InboxNo,
    which: Entries,
) -> Outcome<Vec<ExportedCommand>> {
    let key = match find_run(connection, run)? {
        Ok(row) => row.key,
        Err(error) => return Ok(Err(error)),
    };
    let mut statement = connection.prepare_cached(
        "SELECT coalesce(moved, number) AS own, key, command,
            crc IS row_sum(run, coalesce(moved, number), key, command) FROM inbox
            WHERE run = ?1 AND coalesce(moved, number) > ?2 ORDER BY own",
    )?;
    let mut rows = statement.query(params![key, int(after.0)])?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        if !row.get::<_, bool>(3)? {
            return Ok(Err(damaged(run, Seq(0), "an entry of its inbox")));
        }
        let json = row.get_ref(2)?.as_str()?;
        let is_taken = json.starts_with(TAKEN);
        let json = json.strip_prefix(TAKEN).unwrap_or(json);
        let (number, key) = (InboxNo(uint(row.get(0)?)), row.get(1)?);
        if which == Entries::All || !is_taken {
            let entry = InboxEntry { number, key, command: command(json, 2)? };
            entries.push(ExportedCommand { entry, taken: is_taken });
        }
    }
    Ok(Ok(entries))
}

/// Everything of a run besides its frames and its snapshots.
pub(super) fn export(connection: &Connection, run: RunId) -> Outcome<RunExport> {
    let inbox = match inbox(connection, run, InboxNo(0), Entries::All)? {
        Ok(inbox) => inbox,
        Err(error) => return Ok(Err(error)),
    };
    let mut statement = connection.prepare_cached(
        "SELECT tenant, surface, external_ids.id,
            external_ids.crc IS row_sum(tenant, surface, external_ids.id, external_ids.run)
            FROM external_ids WHERE external_ids.run = (SELECT id FROM runs WHERE run = ?1)",
    )?;
    let mut rows = statement.query([run.uuid().as_bytes()])?;
    let mut names = Vec::new();
    while let Some(row) = rows.next()? {
        if !row.get::<_, bool>(3)? {
            return Ok(Err(damaged(run, Seq(0), "the name that a client gave it")));
        }
        names.push(ExternalId { tenant: row.get(0)?, surface: row.get(1)?, id: row.get(2)? });
    }
    Ok(Ok(RunExport { names, inbox }))
}

/// The tenants that have runs or audit entries, in order.
pub(super) fn tenants(connection: &Connection) -> Outcome<Vec<Box<str>>> {
    let mut statement = connection
        .prepare_cached("SELECT tenant FROM runs UNION SELECT tenant FROM audit ORDER BY 1")?;
    let tenants = statement.query_map([], |row| row.get(0))?;
    Ok(Ok(tenants.collect::<rusqlite::Result<_>>()?))
}

/// Which entries of an inbox to read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Entries {
    /// Entries whose effect is in no frame yet.
    Waiting,
    All,
}

pub(super) fn command(json: &str, column: usize) -> rusqlite::Result<Command> {
    serde_json::from_str(json).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into())
    })
}

pub(super) fn nodes(connection: &Connection) -> rusqlite::Result<Vec<NodeBeat>> {
    // Skips from owner to owner in the index, however many runs each has.
    connection
        .prepare_cached(
            "WITH RECURSIVE owners (node) AS (
                SELECT min(node) FROM runs WHERE state = 0
                UNION ALL
                SELECT (SELECT min(node) FROM runs WHERE state = 0 AND node > owners.node)
                FROM owners WHERE owners.node IS NOT NULL
            )
            SELECT owners.node, coalesce(beat, 0) FROM owners LEFT JOIN nodes USING (node)
            WHERE owners.node IS NOT NULL",
        )?
        .query_map([], |row| Ok(NodeBeat { node: row.get(0)?, beat: uint(row.get(1)?) }))?
        .collect()
}

pub(super) fn due(connection: &Connection, query: &DueQuery) -> rusqlite::Result<Vec<Due>> {
    let limit = query.limit_or_max();
    // Damaged runs cannot be adopted.
    let whole = format!("crc IS row_sum({})", run_columns(""));
    let (since, run) = match query.after {
        Some(after) => (int(after.since.0), *after.run.uuid().as_bytes()),
        None => (-1, [0; 16]),
    };
    let mut values: Vec<Box<dyn ToSql>> =
        vec![Box::new(since), Box::new(run), Box::new(int(query.now.0))];
    let mut sql = format!(
        "SELECT * FROM (SELECT due_at AS since, run, agent, node FROM runs
            WHERE due_at IS NOT NULL AND (due_at, run) > (?1, ?2) AND due_at <= ?3 AND {whole}
            ORDER BY due_at, run LIMIT {limit})"
    );
    // The runs of nodes that are gone are due at once.
    for node in &query.gone {
        values.push(Box::new(node.to_string()));
        sql += &format!(
            " UNION ALL SELECT * FROM (SELECT 0, run, agent, node FROM runs
            WHERE state = 0 AND node = ?{} AND (0, run) > (?1, ?2) AND {whole}
            ORDER BY run LIMIT {limit})",
            values.len()
        );
    }
    let sql = format!("{sql} ORDER BY since, run LIMIT {limit}");
    let mut statement = connection.prepare_cached(&sql)?;
    let due = |row: &Row<'_>| {
        let since = Millis(uint(row.get(0)?));
        Ok(Due { run: run_id(row, 1)?, agent: row.get(2)?, owner: row.get(3)?, since })
    };
    statement.query_map(rusqlite::params_from_iter(values), due)?.collect()
}

pub(super) fn history(connection: &Connection, query: &HistoryQuery) -> Outcome<Vec<PastRun>> {
    let folded = |column| {
        let latest = "FROM snapshots WHERE snapshots.run = runs.id AND kind = ?3
            ORDER BY at DESC LIMIT 1";
        if query.folded { format!("(SELECT {column} {latest})") } else { "NULL".to_owned() }
    };
    // If a run was deleted, the thread's next older run follows.
    let sql = format!(
        "WITH RECURSIVE past (place, key) AS (
            SELECT 1, id FROM runs WHERE run = ?1
            UNION ALL
            SELECT place + 1, older.id FROM past JOIN runs AS newer ON newer.id = key
            JOIN runs AS older ON older.run = coalesce(
                (SELECT run FROM runs WHERE run = newer.after),
                (SELECT max(run) FROM runs WHERE thread = newer.thread AND run < newer.after))
            WHERE place < ?2 AND older.tenant = newer.tenant
        )
        {}, {}, {} FROM past JOIN runs ON runs.id = key ORDER BY place",
        select_info(),
        folded("at"),
        folded("body"),
    );
    let unplaced = frame_storage::unplaced_ends(connection)?;
    let max = int(query.max.min(LIST_MAX) as u64);
    let past = |row: &Row<'_>| {
        let at: Option<i64> = row.get(15)?;
        let body: Option<Vec<u8>> = row.get(16)?;
        let folded = at.zip(body).map(|(at, body)| (Seq(uint(at)), body.into()));
        Ok(info_of(row, None, &unplaced)?.map(|info| PastRun { info, folded }))
    };
    let mut statement = connection.prepare_cached(&sql)?;
    let run = *query.run.uuid().as_bytes();
    if max == 0 {
        return Ok(Ok(Vec::new()));
    }
    if query.folded {
        let kind = kind_code(SnapshotKind::Transcript);
        return statement.query_map(params![run, max, kind], past)?.collect();
    }
    statement.query_map(params![run, max], past)?.collect()
}

pub(super) fn snapshot(
    connection: &Connection,
    run: RunId,
    kind: SnapshotKind,
    at_most: Seq,
) -> Outcome<Option<(Seq, Bytes)>> {
    let key = match find_run(connection, run)? {
        Ok(row) => row.key,
        Err(error) => return Ok(Err(error)),
    };
    let latest = connection
        .prepare_cached(
            "SELECT at, body FROM snapshots WHERE run = ?1 AND kind = ?2 AND at <= ?3
            ORDER BY at DESC LIMIT 1",
        )?
        .query_row(params![key, kind_code(kind), int(at_most.0)], |row| {
            Ok((Seq(uint(row.get(0)?)), row.get::<_, Vec<u8>>(1)?.into()))
        })
        .optional()?;
    Ok(Ok(latest))
}

pub(super) fn resolve(connection: &Connection, external: &ExternalId) -> Outcome<Option<RunId>> {
    let columns = run_columns("runs.");
    let found = connection
        .prepare_cached(&format!(
            "SELECT runs.run, runs.crc IS row_sum({columns}), external_ids.crc
                IS row_sum(external_ids.tenant, surface, external_ids.id, external_ids.run)
            FROM external_ids JOIN runs ON runs.id = external_ids.run
            WHERE external_ids.tenant = ?1 AND surface = ?2 AND external_ids.id = ?3",
        ))?
        .query_row([&*external.tenant, &*external.surface, &*external.id], |row| {
            Ok((run_id(row, 0)?, row.get::<_, bool>(1)? && row.get::<_, bool>(2)?))
        })
        .optional()?;
    Ok(match found {
        Some((run, false)) => Err(damaged(run, Seq(0), "the name that a client gave it")),
        Some((run, true)) => Ok(Some(run)),
        None => Ok(None),
    })
}

/// The columns of a run's own row.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunRow {
    pub(super) key: i64,
    pub(super) state: RunState,
    /// Its end when its state last changed.
    pub(super) end: End,
}

/// Reads a run's own row, if it exists and is intact.
pub(super) fn find_run(connection: &Connection, run: RunId) -> Outcome<RunRow> {
    let columns = run_columns("");
    let found = connection
        .prepare_cached(&format!(
            "SELECT id, state, head, chain, run, crc IS row_sum({columns}) FROM runs WHERE run = ?1"
        ))?
        .query_row([run.uuid().as_bytes()], |row| {
            if !row.get::<_, bool>(5)? || run_id(row, 4)? != run {
                return Ok(Err(damaged(run, Seq(0), OWN_ROW)));
            }
            let end = End { head: Seq(uint(row.get(2)?)), crc: row.get(3)? };
            Ok(Ok(RunRow { key: row.get(0)?, state: state_of(row, 1)?, end }))
        })
        .optional()?;
    Ok(found.unwrap_or(Err(StoreError::NoRun(run))))
}

/// The description of damage to a run's own row.
pub(super) const OWN_ROW: &str = "its state does not match its checksum";

/// The end of a run that is not finished.
pub(super) fn end(connection: &Connection, run: RunId, row: &RunRow) -> Outcome<End> {
    let (ends, looked) = frame_storage::unplaced_ends(connection)?;
    looked.all()?;
    if let Some(end) = ends.get(&row.key) {
        return Ok(Ok(*end));
    }
    let last = connection
        .prepare_cached(
            "SELECT first, body FROM places LEFT JOIN batches ON batches.id = batch
            WHERE run = ?1 ORDER BY first DESC LIMIT 1",
        )?
        .query_row([row.key], |found| {
            let body = found.get_ref(1)?.as_blob_or_null()?.unwrap_or_default();
            let entry = Batch::read(body).find(row.key, Seq(uint(found.get(0)?)));
            Ok(entry.map(|entry| End::of(&entry)))
        })
        .optional()?
        .flatten();
    Ok(match last {
        Some(end) if end.head >= row.end.head => Ok(end),
        Some(_) | None => Err(damaged(run, row.end.head, "its last records are missing")),
    })
}

fn placed_head(connection: &Connection, run: RunId, key: i64) -> Outcome<Seq> {
    let last = connection
        .prepare_cached(
            "SELECT first + count - 1, crc IS row_sum(run, first, count, batch) FROM places
            WHERE run = ?1 ORDER BY first DESC LIMIT 1",
        )?
        .query_row([key], |row| Ok((Seq(uint(row.get(0)?)), row.get::<_, bool>(1)?)))
        .optional()?;
    Ok(match last {
        Some((head, true)) => Ok(head),
        Some((head, false)) => Err(damaged(run, head, PLACE)),
        None => Ok(Seq(0)),
    })
}

/// The description of damage to the index of a run's frames.
const PLACE: &str = "the index of its frames does not match its checksum";

pub(super) fn run_id(row: &Row<'_>, column: usize) -> rusqlite::Result<RunId> {
    row.get(column).map(|bytes| RunId::new(uuid::Uuid::from_bytes(bytes)))
}

pub(super) fn state_code(state: RunState) -> i64 {
    match state {
        RunState::Running => 0,
        RunState::Paused => 1,
        RunState::Completed => 2,
        RunState::Cancelled => 3,
        RunState::Failed => 4,
    }
}

pub(super) fn kind_code(kind: SnapshotKind) -> i64 {
    match kind {
        SnapshotKind::Outline => 0,
        SnapshotKind::Transcript => 1,
    }
}

pub(super) fn state_of(row: &Row<'_>, column: usize) -> rusqlite::Result<RunState> {
    match row.get(column)? {
        0 => Ok(RunState::Running),
        1 => Ok(RunState::Paused),
        2 => Ok(RunState::Completed),
        3 => Ok(RunState::Cancelled),
        4 => Ok(RunState::Failed),
        other => Err(rusqlite::Error::IntegralValueOutOfRange(column, other)),
    }
}

/// Reads a row as a run's info. `asked` is the run that was requested, if any.
fn info_of(
    row: &Row<'_>,
    asked: Option<RunId>,
    (ends, looked): &(HashMap<i64, End>, Looked),
) -> Outcome<RunInfo> {
    // A row with a damaged id is reported without a run.
    let named = asked.or_else(|| run_id(row, 0).ok());
    let run = named.unwrap_or(RunId::new(uuid::Uuid::nil()));
    if !row.get::<_, bool>(14)? || run_id(row, 0).ok() != Some(run) {
        return Ok(Err(damaged(run, Seq(0), OWN_ROW)));
    }
    let state = state_of(row, 6)?;
    let then = Seq(uint(row.get(13)?));
    let head = if state.is_final() {
        then
    } else {
        looked.all()?;
        match (ends.get(&row.get(12)?), row.get::<_, Option<i64>>(11)?) {
            (Some(end), _) => end.head,
            (None, Some(-1)) => return Ok(Err(damaged(run, then, PLACE))),
            (None, placed) => Seq(uint(placed.unwrap_or(0))),
        }
    };
    if head < then {
        return Ok(Err(damaged(run, head.next(), "its last records are missing")));
    }
    let after: Option<[u8; 16]> = row.get(4)?;
    Ok(Ok(RunInfo {
        run,
        thread: ThreadId::new(uuid::Uuid::from_bytes(row.get(1)?)),
        agent: row.get(2)?,
        tenant: row.get(3)?,
        after: after.map(|bytes| RunId::new(uuid::Uuid::from_bytes(bytes))),
        title: row.get(5)?,
        state,
        head,
        epoch: uint(row.get(7)?),
        owner: row.get(8)?,
        created_at: Millis(uint(row.get(9)?)),
        updated_at: Millis(uint(row.get(10)?)),
    }))
}
