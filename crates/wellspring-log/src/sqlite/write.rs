//! Writes, each within the writer's transaction.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use wellspring_core::{InboxNo, RunId, Seq};

use super::checksum::chain_start;
use super::frame_storage::{self, End};
use super::group_commit::{Db, Head};
use super::lock_file::Ended;
use super::read::{self, state_code};
use super::watch::{last_number, note_deletion};
use super::{audit, document, integrity, threads};
use super::{int, uint};
use crate::inbox::{InboxEntry, InboxRoom, NewCommand, Plan, PutAll, plan};
use crate::store::{
    Append, AppendError, Created, ExternalId, NewFrame, NewRun, RunState, SnapshotKind, StoreError,
};

/// Rows deleted per transaction: a few milliseconds, so that appends never wait long.
const DELETE_ROWS: i64 = 256;

type Outcome<T> = rusqlite::Result<Result<T, StoreError>>;

pub(super) fn create(db: &mut Db, new: &NewRun, first: &NewFrame) -> Outcome<Created> {
    let named = match &new.name {
        Some(name) => match read::resolve(&db.connection, name)? {
            Ok(named) => named,
            Err(error) => return Ok(Err(error)),
        },
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
                created_at, updated_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 0, ?7, ?8, ?8) ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            new.run.uuid().as_bytes(),
            new.thread.uuid().as_bytes(),
            &*new.agent,
            &*new.tenant,
            new.after.map(|after| *after.uuid().as_bytes()),
            &*new.title,
            &*new.node,
            int(first.at.0),
        ])?;
    if inserted == 0 {
        return in_the_way(db, new, None);
    }
    let key = db.connection.last_insert_rowid();
    if let Some(name) = &new.name {
        insert_name(&db.connection, name, key)?;
    }
    threads::created(&db.connection, new)?;
    let end = End { head: Seq(0), crc: chain_start(new.run) };
    let end = db.batches.add(&db.connection, key, end, first)?;
    if first.state != Some(RunState::Running) {
        change_state(&db.connection, key, first, end)?;
    }
    if !first.state.is_some_and(RunState::is_final) {
        db.remember(new.run, Head { key, end });
    }
    Ok(Ok(Created::New))
}

/// The reason why a run was not created. Most runs are, so the query is only made afterwards.
fn in_the_way(db: &mut Db, new: &NewRun, named: Option<RunId>) -> Outcome<Created> {
    db.batches.write(&db.connection)?;
    match read::info(&db.connection, new.run)? {
        Ok(Some(info)) => return Ok(Ok(Created::Exists(Box::new(info)))),
        Ok(None) => {}
        Err(error) => return Ok(Err(error)),
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
        None => match read::find_run(&db.connection, run)? {
            Err(error) => return Ok(Err(error.into())),
            Ok(row) if row.state.is_final() => return Ok(Err(AppendError::Closed(run))),
            Ok(row) => {
                let end = match db.batches.end(row.key) {
                    Some(end) => end,
                    None => match read::end(&db.connection, run, &row)? {
                        Ok(end) => end,
                        Err(error) => return Ok(Err(error.into())),
                    },
                };
                Head { key: row.key, end }
            }
        },
    };
    if head.end.head != append.expected {
        db.remember(run, head);
        return Ok(Err(AppendError::Conflict { run, head: head.end.head }));
    }
    let frame = &append.frame;
    let end = db.batches.add(&db.connection, head.key, head.end, frame)?;
    if let Some(adopt) = &append.adopt {
        db.connection
            .prepare_cached("UPDATE runs SET epoch = ?2, node = ?3, due_at = NULL WHERE id = ?1")?
            .execute(params![head.key, int(adopt.epoch), &*adopt.node])?;
    }
    take_from_inbox(&db.connection, head.key, &frame.taken)?;
    change_state(&db.connection, head.key, frame, end)?;
    if let Some(folded) = &frame.folded {
        insert_snapshot(&db.connection, head.key, SnapshotKind::Transcript, end.head, folded)?;
    }
    if let Some(text) = &frame.search {
        threads::put_text(&db.connection, head.key, text)?;
    }
    if frame.state.is_some_and(RunState::is_final) {
        db.forget(run);
    } else {
        db.remember(run, Head { end, ..head });
    }
    Ok(Ok(()))
}

fn change_state(
    connection: &Connection,
    key: i64,
    frame: &NewFrame,
    end: End,
) -> rusqlite::Result<()> {
    let Some(state) = frame.state else { return Ok(()) };
    let (code, at) = (state_code(state), int(frame.at.0));
    let (last, chain) = (int(end.head.0), end.crc);
    match state {
        RunState::Running => connection
            .prepare_cached(
                "UPDATE runs SET state = ?2, updated_at = ?3, head = ?4, chain = ?5
                WHERE id = ?1 AND state != ?2",
            )?
            .execute(params![key, code, at, last, chain])?,
        // A paused run is due at once if a command waits, and otherwise at its deadline.
        RunState::Paused => connection
            .prepare_cached(
                "UPDATE runs SET state = ?2, updated_at = iif(state = ?2, updated_at, ?3),
                    node = NULL, due_at = iif(EXISTS (SELECT 1 FROM inbox WHERE inbox.run = ?1
                        AND substr(command, 1, 1) <> ?7), 0, ?6), head = ?4, chain = ?5
                WHERE id = ?1",
            )?
            .execute(params![
                key,
                code,
                at,
                last,
                chain,
                frame.deadline.map(|at| int(at.0)),
                TAKEN
            ])?,
        RunState::Completed | RunState::Cancelled | RunState::Failed => connection
            .prepare_cached(
                "UPDATE runs SET state = ?2, updated_at = iif(state = ?2, updated_at, ?3),
                    node = NULL, due_at = NULL, head = ?4, chain = ?5 WHERE id = ?1",
            )?
            .execute(params![key, code, at, last, chain])?,
    };
    Ok(())
}

/// The prefix of a command whose effect is in a frame. JSON never starts with it.
pub(super) const TAKEN: &str = "#";

pub(super) fn put_inbox(db: &mut Db, run: RunId, commands: Vec<NewCommand>) -> Outcome<PutAll> {
    let connection = &db.connection;
    let id = run;
    let (run, state) = match read::find_run(connection, run)? {
        Ok(row) => (row.key, row.state),
        Err(error) => return Ok(Err(error)),
    };
    let last = last_number(connection, "inbox")?;
    let find = |key: &str| {
        let found = connection
            .prepare_cached(
                "SELECT coalesce(moved, number), command,
                    crc IS row_sum(run, coalesce(moved, number), key, command) FROM inbox
                WHERE run = ?1 AND key = ?2",
            )?
            .query_row(params![run, key], |row| {
                if !row.get::<_, bool>(2)? {
                    return Ok(Err(read::damaged(id, Seq(0), "an entry of its inbox")));
                }
                let json = row.get_ref(1)?.as_str()?;
                let json = json.strip_prefix(TAKEN).unwrap_or(json);
                Ok(Ok((InboxNo(uint(row.get(0)?)), read::command(json, 1)?)))
            })
            .optional()?;
        Ok(found.transpose()?)
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
    let (puts, new) = match plan(id, state, commands, InboxNo(uint(last)), find, waiting) {
        Ok(Plan::Put { puts, new }) => (puts, new),
        Ok(Plan::KeyTaken { index, number }) => return Ok(Ok(PutAll::KeyTaken { index, number })),
        Err(Refused::Store(error)) => return Ok(Err(error)),
        Err(Refused::Sqlite(error)) => return Err(error),
    };
    if !new.is_empty() {
        db.numbered = true;
        db.connection
            .prepare_cached("UPDATE runs SET due_at = 0 WHERE id = ?1 AND state = 1")?
            .execute([run])?;
    }
    for (number, NewCommand { key, command, audit }) in new {
        let command = match serde_json::to_string(&command) {
            Ok(command) => command,
            Err(error) => return Ok(Err(StoreError::failed("writing a command", error))),
        };
        db.connection
            .prepare_cached(
                "INSERT INTO inbox (run, number, key, command, crc)
                VALUES (?1, ?2, ?3, ?4, row_sum(?1, ?2, ?3, ?4))",
            )?
            .execute(params![run, int(number.0), &*key, command])?;
        if let Some(audit) = audit {
            audit::put(db, &audit)?;
        }
    }
    Ok(Ok(PutAll::Done(puts)))
}

/// Puts commands of a run that is being copied. Their numbers may be in use by other runs here, so
/// they are stored in a column of their own; the next number is above all of them.
pub(super) fn import_inbox(db: &mut Db, run: RunId, entries: &[InboxEntry]) -> Outcome<()> {
    let key = match read::find_run(&db.connection, run)? {
        Ok(row) => row.key,
        Err(error) => return Ok(Err(error)),
    };
    db.numbered = true;
    for InboxEntry { number, key: name, command } in entries {
        let command = match serde_json::to_string(command) {
            Ok(command) => command,
            Err(error) => return Ok(Err(StoreError::failed("writing a command", error))),
        };
        db.connection
            .prepare_cached(
                "INSERT INTO inbox (run, moved, key, command, crc)
                VALUES (?1, ?2, ?3, ?4, row_sum(?1, ?2, ?3, ?4))",
            )?
            .execute(params![key, int(number.0), &**name, command])?;
        db.connection
            .prepare_cached("UPDATE sqlite_sequence SET seq = max(seq, ?1) WHERE name = 'inbox'")?
            .execute([int(number.0)])?;
    }
    Ok(Ok(()))
}

/// Why commands were not put into an inbox.
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
                "UPDATE inbox SET command = ?3 || command,
                    crc = row_sum(run, coalesce(moved, number), key, ?3 || command)
                WHERE run = ?1 AND coalesce(moved, number) = ?2 AND substr(command, 1, 1) <> ?3
                    AND crc IS row_sum(run, coalesce(moved, number), key, command)",
            )?
            .execute(params![key, int(number.0), TAKEN])?;
    }
    Ok(())
}

pub(super) fn beat(db: &mut Db, node: &str) -> rusqlite::Result<()> {
    db.connection
        .prepare_cached(
            "INSERT INTO nodes (node, beat) VALUES (?1, 1) ON CONFLICT DO UPDATE SET beat = beat + 1",
        )?
        .execute([node])
        .map(drop)
}

pub(super) fn release(db: &mut Db, run: RunId, node: &str, epoch: u64) -> rusqlite::Result<()> {
    db.connection
        .prepare_cached(
            "UPDATE runs SET node = NULL, due_at = 0
                WHERE run = ?1 AND state = 0 AND node = ?2 AND epoch = ?3",
        )?
        .execute(params![run.uuid().as_bytes(), node, int(epoch)])
        .map(drop)
}

/// Releases the runs and the held documents of processes that have ended.
pub(super) fn release_ended(connection: &Connection, ended: &[Ended]) -> rusqlite::Result<()> {
    for Ended { node, .. } in ended {
        connection
            .prepare_cached(
                "UPDATE runs SET node = NULL, due_at = 0 WHERE state = 0 AND node = ?1",
            )?
            .execute([node])?;
        connection.prepare_cached("DELETE FROM nodes WHERE node = ?1")?.execute([node])?;
        document::delete_held(connection, node)?;
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
    let key = match read::find_run(&db.connection, run)? {
        Ok(row) => row.key,
        Err(error) => return Ok(Err(error)),
    };
    insert_snapshot(&db.connection, key, kind, at, body).map(Ok)
}

fn insert_snapshot(
    connection: &Connection,
    key: i64,
    kind: SnapshotKind,
    at: Seq,
    body: &[u8],
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO snapshots (run, kind, at, body) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![key, read::kind_code(kind), int(at.0), body])
        .map(drop)
}

pub(super) fn bind(db: &mut Db, external: &ExternalId, run: RunId) -> Outcome<RunId> {
    match read::resolve(&db.connection, external)? {
        Ok(Some(bound)) => return Ok(Ok(bound)),
        Ok(None) => {}
        Err(error) => return Ok(Err(error)),
    }
    let key = match read::find_run(&db.connection, run)? {
        Ok(row) => row.key,
        Err(error) => return Ok(Err(error)),
    };
    insert_name(&db.connection, external, key)?;
    Ok(Ok(run))
}

fn insert_name(connection: &Connection, name: &ExternalId, key: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO external_ids (tenant, surface, id, run, crc)
            VALUES (?1, ?2, ?3, ?4, row_sum(?1, ?2, ?3, ?4))",
        )?
        .execute(params![&*name.tenant, &*name.surface, &*name.id, key])
        .map(drop)
}

/// Deletes a finished run's row; the rest is removed chunk by chunk. Returns its key.
pub(super) fn doom(db: &mut Db, run: RunId) -> Outcome<Option<i64>> {
    let key = match read::find_run(&db.connection, run)? {
        Err(StoreError::NoRun(_)) => return Ok(Ok(None)),
        Ok(row) if row.state.is_final() => row.key,
        // A damaged run cannot be cancelled, so it is deleted in any state.
        Ok(row) => match integrity::frames(&db.connection, run)? {
            Ok(()) => return Ok(Err(StoreError::Unfinished(run))),
            Err(_) => row.key,
        },
        Err(_) => db
            .connection
            .prepare_cached("SELECT id FROM runs WHERE run = ?1")?
            .query_row([run.uuid().as_bytes()], |row| row.get(0))?,
    };
    threads::deleting(&db.connection, key)?;
    note_deletion(&db.connection, run.uuid().as_bytes())?;
    db.numbered = true;
    db.connection.execute("INSERT INTO doomed (run) VALUES (?1)", [key])?;
    db.connection.execute("DELETE FROM external_ids WHERE run = ?1", [key])?;
    db.connection.execute("DELETE FROM runs WHERE id = ?1", [key])?;
    Ok(Ok(Some(key)))
}

/// Removes a chunk; `false` if nothing is left.
pub(super) fn delete_chunk(db: &mut Db, key: i64) -> rusqlite::Result<bool> {
    db.batches.write(&db.connection)?;
    // Deleting indexes frames that are not indexed yet.
    db.batches.forget();
    sweep(&db.connection, key)
}

pub(super) fn sweep(connection: &Connection, key: i64) -> rusqlite::Result<bool> {
    if frame_storage::delete(connection, key, DELETE_ROWS)? {
        return Ok(true);
    }
    let limited = [key, DELETE_ROWS];
    for sql in [
        "DELETE FROM snapshots WHERE rowid IN (SELECT rowid FROM snapshots WHERE run = ?1 LIMIT ?2)",
        "DELETE FROM inbox WHERE number IN (SELECT number FROM inbox WHERE run = ?1 LIMIT ?2)",
    ] {
        if connection.prepare_cached(sql)?.execute(limited)? > 0 {
            return Ok(true);
        }
    }
    connection.execute("DELETE FROM doomed WHERE run = ?1", [key])?;
    Ok(false)
}

/// Removes what a process that died during a deletion left behind.
pub(super) fn finish_deletions(connection: &mut Connection) -> rusqlite::Result<()> {
    let some = "SELECT 1 FROM doomed LIMIT 1";
    if !connection.prepare(some)?.exists([])? {
        return Ok(());
    }
    // A run that still has a row was not deleted, whatever a damaged row says.
    let next = "SELECT run FROM doomed WHERE run NOT IN (SELECT id FROM runs) LIMIT 1";
    loop {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let key = transaction.query_row(next, [], |row| row.get(0));
        match key {
            Ok(key) => sweep(&transaction, key)?,
            Err(rusqlite::Error::QueryReturnedNoRows) => return Ok(()),
            Err(error) => return Err(error),
        };
        transaction.commit()?;
    }
}
