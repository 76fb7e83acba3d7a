//! What the writer does inside its transaction.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, params};
use wellspring_core::{InboxNo, Millis, RunId, Seq};

use super::alive::is_gone;
use super::read::{self, state_code};
use super::writer::{Db, Head};
use super::{audit, batch};
use super::{int, uint};
use crate::inbox::{InboxRoom, NewCommand, Plan, PutAll, plan};
use crate::store::{
    Append, AppendError, Created, ExternalId, NewFrame, NewRun, RunState, SnapshotKind, StoreError,
};

/// Rows deleted in one transaction: a few milliseconds, so that appends never wait long.
const DELETE_ROWS: i64 = 256;

type Outcome<T> = rusqlite::Result<Result<T, StoreError>>;

pub(super) fn create(db: &mut Db, new: &NewRun, first: &NewFrame) -> Outcome<Created> {
    let named = match &new.name {
        Some(name) => read::resolve(&db.connection, name)?,
        None => None,
    };
    if named.is_some() {
        return in_the_way(db, new, named);
    }
    if new.is_first
        && db
            .connection
            .prepare_cached("SELECT 1 FROM runs WHERE thread = ?1 LIMIT 1")?
            .exists([new.thread.uuid().as_bytes()])?
    {
        return Ok(Ok(Created::NotFirst));
    }
    let inserted = db
        .connection
        .prepare_cached(
            "INSERT INTO runs (run, thread, agent, tenant, after, title, state, epoch, node,
                lease_until, created_at, updated_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 0, ?7, ?8, ?9, ?9) ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            new.run.uuid().as_bytes(),
            new.thread.uuid().as_bytes(),
            &*new.agent,
            &*new.tenant,
            new.after.map(|after| *after.uuid().as_bytes()),
            &*new.title,
            &*new.lease.node,
            int(new.lease.until.0),
            int(first.at.0),
        ])?;
    if inserted == 0 {
        return in_the_way(db, new, None);
    }
    let key = db.connection.last_insert_rowid();
    if let Some(name) = &new.name {
        insert_name(&db.connection, name, key)?;
    }
    db.batches.add(&db.connection, key, Seq(1), first)?;
    if first.state != Some(RunState::Running) {
        change_state(&db.connection, key, first)?;
    }
    if !first.state.is_some_and(RunState::is_final) {
        db.remember(new.run, Head { key, head: Seq(u64::from(first.count)) });
    }
    Ok(Ok(Created::New))
}

/// Why a run was not created. Most are, so this is asked only afterwards.
fn in_the_way(db: &mut Db, new: &NewRun, named: Option<RunId>) -> Outcome<Created> {
    db.batches.write(&db.connection)?;
    if let Some(info) = read::info(&db.connection, new.run)? {
        return Ok(Ok(Created::Exists(Box::new(info))));
    }
    if let Some(run) = named {
        return Ok(Ok(Created::Named(run)));
    }
    let run = db
        .connection
        .prepare_cached("SELECT run FROM runs WHERE thread = ?1 AND state < 2")?
        .query_row([new.thread.uuid().as_bytes()], |row| read::run_id(row, 0))?;
    Ok(Ok(Created::ThreadBusy(run)))
}

pub(super) fn append(db: &mut Db, append: &Append) -> rusqlite::Result<Result<(), AppendError>> {
    let run = append.run;
    let head = match db.head(run) {
        Some(head) => head,
        None => match read::key_and_state(&db.connection, run)? {
            None => return Ok(Err(StoreError::NoRun(run).into())),
            Some((_, state)) if state.is_final() => return Ok(Err(AppendError::Closed(run))),
            Some((key, _)) => {
                let head = match db.batches.head(key) {
                    Some(head) => head,
                    None => read::head(&db.connection, key)?,
                };
                Head { key, head }
            }
        },
    };
    if head.head != append.expected {
        db.remember(run, head);
        return Ok(Err(AppendError::Conflict { run, head: head.head }));
    }
    let frame = &append.frame;
    db.batches.add(&db.connection, head.key, head.head.next(), frame)?;
    if let Some(adopt) = &append.adopt {
        db.connection
            .prepare_cached(
                "UPDATE runs SET epoch = ?2, node = ?3, lease_until = ?4 WHERE id = ?1",
            )?
            .execute(params![
                head.key,
                int(adopt.epoch),
                &*adopt.lease.node,
                int(adopt.lease.until.0)
            ])?;
    }
    change_state(&db.connection, head.key, frame)?;
    take_from_inbox(&db.connection, head.key, &frame.taken)?;
    if frame.state.is_some_and(RunState::is_final) {
        db.forget(run);
    } else {
        let head = Head { head: Seq(head.head.0 + u64::from(frame.count)), ..head };
        db.remember(run, head);
    }
    Ok(Ok(()))
}

fn change_state(connection: &Connection, key: i64, frame: &NewFrame) -> rusqlite::Result<()> {
    let Some(state) = frame.state else { return Ok(()) };
    let sql = match state {
        RunState::Running => {
            "UPDATE runs SET state = ?2, updated_at = ?3 WHERE id = ?1 AND state != ?2"
        }
        // Whoever does not work on it does not own it.
        RunState::Paused | RunState::Completed | RunState::Cancelled | RunState::Failed => {
            "UPDATE runs SET state = ?2, updated_at = iif(state = ?2, updated_at, ?3),
                node = NULL, lease_until = NULL WHERE id = ?1"
        }
    };
    let changed = params![key, state_code(state), int(frame.at.0)];
    connection.prepare_cached(sql)?.execute(changed).map(drop)
}

/// What stands before a command whose effect is in a frame. No JSON begins with it.
pub(super) const TAKEN: &str = "#";

pub(super) fn put_inbox(db: &mut Db, run: RunId, commands: Vec<NewCommand>) -> Outcome<PutAll> {
    let connection = &db.connection;
    let Some((run, _)) = read::key_and_state(connection, run)? else {
        return Ok(Err(StoreError::NoRun(run)));
    };
    let last: i64 = connection
        .prepare_cached("SELECT coalesce(max(number), 0) FROM inbox WHERE run = ?1")?
        .query_row([run], |row| row.get(0))?;
    let find = |key: &str| {
        let found = connection
            .prepare_cached("SELECT number, command FROM inbox WHERE run = ?1 AND key = ?2")?
            .query_row(params![run, key], |row| {
                let json: String = row.get(1)?;
                let json = json.strip_prefix(TAKEN).unwrap_or(&json);
                Ok((InboxNo(uint(row.get(0)?)), read::command(json, 1)?))
            })
            .optional()?;
        Ok(found)
    };
    let waiting = |room| {
        let kinds = match room {
            InboxRoom::Inputs => ["add_input", "resume"],
            InboxRoom::Answers => ["answer", "finish_call"],
            InboxRoom::Cancels => ["cancel", "cancel"],
        };
        let count: i64 = connection
            .prepare_cached(
                "SELECT count(*) FROM inbox WHERE run = ?1
                    AND (command LIKE '{\"' || ?2 || '\"%' OR command LIKE '{\"' || ?3 || '\"%')",
            )?
            .query_row(params![run, kinds[0], kinds[1]], |row| row.get(0))?;
        Ok(uint(count) as usize)
    };
    let (puts, new) = match plan(commands, InboxNo(uint(last)), find, waiting) {
        Ok(Plan::Put { puts, new }) => (puts, new),
        Ok(Plan::KeyTaken { index, number }) => return Ok(Ok(PutAll::KeyTaken { index, number })),
        Err(Refused::Store(error)) => return Ok(Err(error)),
        Err(Refused::Sqlite(error)) => return Err(error),
    };
    for (number, NewCommand { key, command, audit }) in new {
        let command = match serde_json::to_string(&command) {
            Ok(command) => command,
            Err(error) => return Ok(Err(StoreError::failed("writing a command", error))),
        };
        db.connection
            .prepare_cached(
                "INSERT INTO inbox (run, number, key, command) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![run, int(number.0), &*key, command])?;
        if let Some(audit) = audit {
            audit::put(db, &audit)?;
        }
    }
    Ok(Ok(PutAll::Done(puts)))
}

/// Why commands were not put.
enum Refused {
    Store(StoreError),
    Sqlite(rusqlite::Error),
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<rusqlite::Error> for Refused {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

fn take_from_inbox(connection: &Connection, key: i64, taken: &[InboxNo]) -> rusqlite::Result<()> {
    for number in taken {
        connection
            .prepare_cached(
                "UPDATE inbox SET command = ?3 || command
                    WHERE run = ?1 AND number = ?2 AND substr(command, 1, 1) <> ?3",
            )?
            .execute(params![key, int(number.0), TAKEN])?;
    }
    Ok(())
}

pub(super) fn renew(
    db: &mut Db,
    node: &str,
    runs: &[RunId],
    until: Millis,
) -> rusqlite::Result<()> {
    let mut statement = db
        .connection
        .prepare_cached("UPDATE runs SET lease_until = ?3 WHERE run = ?1 AND node = ?2")?;
    for run in runs {
        statement.execute(params![run.uuid().as_bytes(), node, int(until.0)])?;
    }
    Ok(())
}

/// Lets the leases of processes that are gone end now.
pub(super) fn free_leases_of_the_dead(
    connection: &Connection,
    database: &Path,
) -> rusqlite::Result<()> {
    let nodes: Vec<String> = connection
        .prepare_cached("SELECT DISTINCT node FROM runs WHERE state = 0 AND lease_until > 0")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for node in nodes.iter().filter(|node| is_gone(database, node)) {
        connection
            .prepare_cached("UPDATE runs SET lease_until = 0 WHERE state = 0 AND node = ?1")?
            .execute([node])?;
    }
    Ok(())
}

pub(super) fn put_snapshot(
    db: &mut Db,
    run: RunId,
    kind: SnapshotKind,
    at: Seq,
    body: &[u8],
) -> Outcome<()> {
    let Some((key, _)) = read::key_and_state(&db.connection, run)? else {
        return Ok(Err(StoreError::NoRun(run)));
    };
    db.connection
        .prepare_cached(
            "INSERT OR REPLACE INTO snapshots (run, kind, at, body) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![key, read::kind_code(kind), int(at.0), body])?;
    Ok(Ok(()))
}

pub(super) fn bind(db: &mut Db, external: &ExternalId, run: RunId) -> Outcome<RunId> {
    if let Some(bound) = read::resolve(&db.connection, external)? {
        return Ok(Ok(bound));
    }
    let Some((key, _)) = read::key_and_state(&db.connection, run)? else {
        return Ok(Err(StoreError::NoRun(run)));
    };
    insert_name(&db.connection, external, key)?;
    Ok(Ok(run))
}

fn insert_name(connection: &Connection, name: &ExternalId, key: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO external_ids (tenant, surface, id, run) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![&*name.tenant, &*name.surface, &*name.id, key])
        .map(drop)
}

/// Makes a finished run disappear; its rows are swept chunk by chunk. Gives its key.
pub(super) fn doom(db: &mut Db, run: RunId) -> Outcome<Option<i64>> {
    let (key, state) = match read::key_and_state(&db.connection, run)? {
        None => return Ok(Ok(None)),
        Some(found) => found,
    };
    if !state.is_final() {
        return Ok(Err(StoreError::Unfinished(run)));
    }
    db.connection.execute("INSERT INTO doomed (run) VALUES (?1)", [key])?;
    db.connection.execute("DELETE FROM external_ids WHERE run = ?1", [key])?;
    db.connection.execute("DELETE FROM runs WHERE id = ?1", [key])?;
    Ok(Ok(Some(key)))
}

/// Sweeps a chunk; `false` when nothing is left.
pub(super) fn delete_chunk(db: &mut Db, key: i64) -> rusqlite::Result<bool> {
    db.batches.write(&db.connection)?;
    // Sweeping places what is not placed.
    db.batches.forget();
    sweep(&db.connection, key)
}

pub(super) fn sweep(connection: &Connection, key: i64) -> rusqlite::Result<bool> {
    if batch::delete(connection, key, DELETE_ROWS)? {
        return Ok(true);
    }
    let limited = [key, DELETE_ROWS];
    for sql in [
        "DELETE FROM snapshots WHERE rowid IN (SELECT rowid FROM snapshots WHERE run = ?1 LIMIT ?2)",
        "DELETE FROM inbox WHERE rowid IN (SELECT rowid FROM inbox WHERE run = ?1 LIMIT ?2)",
    ] {
        if connection.prepare_cached(sql)?.execute(limited)? > 0 {
            return Ok(true);
        }
    }
    connection.execute("DELETE FROM doomed WHERE run = ?1", [key])?;
    Ok(false)
}
