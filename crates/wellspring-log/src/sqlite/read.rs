//! What readers ask, inside a short transaction.

use std::collections::HashMap;

use bytes::Bytes;
use rusqlite::types::{ToSql, Type};
use rusqlite::{Connection, OptionalExtension, Row, params};
use wellspring_core::{Command, InboxNo, Millis, RunId, Seq, ThreadId};

use super::batch::{self, Entry};
use super::write::TAKEN;
use super::{int, uint};
use crate::inbox::InboxEntry;
use crate::store::{
    ExternalId, LIST_MAX, Lease, Page, RunFilter, RunInfo, RunState, SnapshotKind, StoreError,
    StoredFrame,
};

type Outcome<T> = rusqlite::Result<Result<T, StoreError>>;

const INFO: &str = "SELECT run, thread, agent, tenant, after, title, state, epoch, node,
    lease_until, created_at, updated_at,
    (SELECT first + count - 1 FROM places WHERE places.run = runs.id ORDER BY first DESC LIMIT 1),
    id FROM runs";

pub(super) fn info(connection: &Connection, run: RunId) -> rusqlite::Result<Option<RunInfo>> {
    let unplaced = batch::unplaced_heads(connection)?;
    connection
        .prepare_cached(&format!("{INFO} WHERE run = ?1"))?
        .query_row([run.uuid().as_bytes()], |row| info_of(row, &unplaced))
        .optional()
}

pub(super) fn list(connection: &Connection, filter: &RunFilter) -> rusqlite::Result<Vec<RunInfo>> {
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
    // A thread has few runs and a tenant many; with the plus its index is not considered.
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
    let sql = format!("{INFO} WHERE {conditions} ORDER BY run DESC LIMIT {limit}");
    let mut statement = connection.prepare_cached(&sql)?;
    let unplaced = batch::unplaced_heads(connection)?;
    let info = |row: &Row<'_>| info_of(row, &unplaced);
    let rows = statement.query_map(rusqlite::params_from_iter(values), info)?;
    rows.collect()
}

pub(super) fn page(
    connection: &Connection,
    run: RunId,
    after: Seq,
    bytes_max: usize,
) -> Outcome<Page> {
    let Some((key, state)) = key_and_state(connection, run)? else {
        return Ok(Err(StoreError::NoRun(run)));
    };
    let mut unplaced = Vec::new();
    batch::each_unplaced(connection, |_, entry| {
        if entry.run == key {
            unplaced.push(stored(&entry));
        }
    })?;
    let head = match unplaced.last() {
        Some(frame) => frame.last(),
        None => placed_head(connection, key)?,
    };
    let mut page = Page { frames: Vec::new(), head, closed: state.is_final() };
    if after >= page.head {
        return Ok(Ok(page));
    }
    // The frame with the next record is the last one that starts at or before it.
    let mut statement = connection.prepare_cached(
        "SELECT first, body FROM places JOIN batches ON batches.id = batch WHERE run = ?1
            AND first >= (SELECT max(first) FROM places WHERE run = ?1 AND first <= ?2)
        ORDER BY first",
    )?;
    let mut rows = statement.query(params![key, int(after.0.saturating_add(1))])?;
    let mut bytes = 0;
    let mut is_full = |frame: &StoredFrame, page: &Page| {
        bytes += frame.body.len();
        !page.frames.is_empty() && bytes > bytes_max
    };
    while let Some(row) = rows.next()? {
        let first = Seq(uint(row.get(0)?));
        for entry in batch::entries(row.get_ref(1)?.as_blob()?) {
            let entry = entry?;
            if (entry.run, entry.first) != (key, first) || entry.last() <= after {
                continue;
            }
            let frame = stored(&entry);
            if is_full(&frame, &page) {
                return Ok(Ok(page));
            }
            page.frames.push(frame);
        }
    }
    for frame in unplaced.into_iter().filter(|frame| frame.last() > after) {
        if is_full(&frame, &page) {
            break;
        }
        page.frames.push(frame);
    }
    Ok(Ok(page))
}

fn stored(entry: &Entry<'_>) -> StoredFrame {
    let body = entry.body.to_vec().into();
    StoredFrame { first: entry.first, count: entry.count, body }
}

pub(super) fn inbox(
    connection: &Connection,
    run: RunId,
    after: InboxNo,
) -> Outcome<Vec<InboxEntry>> {
    let Some((key, _)) = key_and_state(connection, run)? else {
        return Ok(Err(StoreError::NoRun(run)));
    };
    let mut statement = connection.prepare_cached(
        "SELECT number, key, command FROM inbox
            WHERE run = ?1 AND number > ?2 AND substr(command, 1, 1) <> ?3 ORDER BY number",
    )?;
    let rows = statement.query_map(params![key, int(after.0), TAKEN], |row| {
        let json: String = row.get(2)?;
        let command = command(&json, 2)?;
        Ok(InboxEntry { number: InboxNo(uint(row.get(0)?)), key: row.get(1)?, command })
    })?;
    rows.collect::<rusqlite::Result<_>>().map(Ok)
}

pub(super) fn command(json: &str, column: usize) -> rusqlite::Result<Command> {
    serde_json::from_str(json).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into())
    })
}

pub(super) fn expired(
    connection: &Connection,
    now: Millis,
    limit: usize,
) -> rusqlite::Result<Vec<RunId>> {
    let limit = limit.min(LIST_MAX) as i64;
    connection
        .prepare_cached(
            "SELECT run FROM runs WHERE state = 0 AND (lease_until IS NULL OR lease_until < ?1)
            ORDER BY run LIMIT ?2",
        )?
        .query_map([int(now.0), limit], |row| run_id(row, 0))?
        .collect()
}

pub(super) fn snapshot(
    connection: &Connection,
    run: RunId,
    kind: SnapshotKind,
    at_most: Seq,
) -> Outcome<Option<(Seq, Bytes)>> {
    let Some((key, _)) = key_and_state(connection, run)? else {
        return Ok(Err(StoreError::NoRun(run)));
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

pub(super) fn resolve(
    connection: &Connection,
    external: &ExternalId,
) -> rusqlite::Result<Option<RunId>> {
    connection
        .prepare_cached(
            "SELECT runs.run FROM external_ids JOIN runs ON runs.id = external_ids.run
            WHERE external_ids.tenant = ?1 AND surface = ?2 AND external_ids.id = ?3",
        )?
        .query_row([&*external.tenant, &*external.surface, &*external.id], |row| run_id(row, 0))
        .optional()
}

pub(super) fn key_and_state(
    connection: &Connection,
    run: RunId,
) -> rusqlite::Result<Option<(i64, RunState)>> {
    connection
        .prepare_cached("SELECT id, state FROM runs WHERE run = ?1")?
        .query_row([run.uuid().as_bytes()], |row| Ok((row.get(0)?, state_of(row, 1)?)))
        .optional()
}

pub(super) fn head(connection: &Connection, key: i64) -> rusqlite::Result<Seq> {
    match batch::unplaced_heads(connection)?.get(&key) {
        Some(head) => Ok(*head),
        None => placed_head(connection, key),
    }
}

fn placed_head(connection: &Connection, key: i64) -> rusqlite::Result<Seq> {
    let last = connection
        .prepare_cached(
            "SELECT first + count - 1 FROM places WHERE run = ?1 ORDER BY first DESC LIMIT 1",
        )?
        .query_row([key], |row| row.get(0))
        .optional()?;
    Ok(Seq(uint(last.unwrap_or(0))))
}

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

fn state_of(row: &Row<'_>, column: usize) -> rusqlite::Result<RunState> {
    match row.get(column)? {
        0 => Ok(RunState::Running),
        1 => Ok(RunState::Paused),
        2 => Ok(RunState::Completed),
        3 => Ok(RunState::Cancelled),
        4 => Ok(RunState::Failed),
        other => Err(rusqlite::Error::IntegralValueOutOfRange(column, other)),
    }
}

fn info_of(row: &Row<'_>, unplaced: &HashMap<i64, Seq>) -> rusqlite::Result<RunInfo> {
    let head = match unplaced.get(&row.get(13)?) {
        Some(head) => *head,
        None => Seq(uint(row.get::<_, Option<i64>>(12)?.unwrap_or(0))),
    };
    let node: Option<Box<str>> = row.get(8)?;
    let until: Option<i64> = row.get(9)?;
    let after: Option<[u8; 16]> = row.get(4)?;
    Ok(RunInfo {
        run: run_id(row, 0)?,
        thread: ThreadId::new(uuid::Uuid::from_bytes(row.get(1)?)),
        agent: row.get(2)?,
        tenant: row.get(3)?,
        after: after.map(|bytes| RunId::new(uuid::Uuid::from_bytes(bytes))),
        title: row.get(5)?,
        state: state_of(row, 6)?,
        head,
        epoch: uint(row.get(7)?),
        lease: node.zip(until).map(|(node, until)| Lease { node, until: Millis(uint(until)) }),
        created_at: Millis(uint(row.get(10)?)),
        updated_at: Millis(uint(row.get(11)?)),
    })
}
