//! Threads: one row each, updated with the runs, and a full-text index of finished runs.

use rusqlite::functions::FunctionFlags;
use rusqlite::types::ToSql;
use rusqlite::{Connection, Row, params};
use wellspring_core::{Millis, RunId, Seq, ThreadId};

use super::integrity::run_columns;
use super::{read, uint};
use crate::store::{NewRun, StoreError};
use crate::thread::{ThreadChange, ThreadFilter, ThreadInfo};
use crate::thread_search::has_words;

/// The columns that a row's checksum covers.
pub(super) const COLUMNS: &str = "thread, tenant, latest, runs, title, archived";

/// Updates the thread of a run that was created.
pub(super) fn created(connection: &Connection, new: &NewRun) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO threads (thread, tenant, latest, runs) VALUES (?1, ?2, ?3, 1)
            ON CONFLICT DO UPDATE SET runs = runs + 1, latest = max(latest, excluded.latest)",
        )?
        .execute(params![new.thread.uuid().as_bytes(), &*new.tenant, new.run.uuid().as_bytes()])
        .map(drop)
}

/// Updates the thread of a run that is about to be deleted.
pub(super) fn deleting(connection: &Connection, key: i64) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM texts WHERE rowid = ?1", [key])?;
    let of_run = "(SELECT thread FROM runs WHERE id = ?1)";
    let last = format!("DELETE FROM threads WHERE thread = {of_run} AND runs = 1");
    if connection.execute(&last, [key])? == 0 {
        let others = format!(
            "UPDATE threads SET runs = runs - 1, latest = (SELECT max(run) FROM runs
                WHERE runs.thread = threads.thread AND id <> ?1) WHERE thread = {of_run}"
        );
        connection.execute(&others, [key])?;
    }
    Ok(())
}

/// Indexes the text of a finished run.
pub(super) fn put_text(connection: &Connection, key: i64, text: &str) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT INTO texts (rowid, text) VALUES (?1, ?2)")?
        .execute(params![key, text])
        .map(drop)
}

pub(super) fn change(
    connection: &Connection,
    tenant: &str,
    thread: ThreadId,
    change: &ThreadChange,
) -> rusqlite::Result<bool> {
    let changed = connection
        .prepare_cached(
            "UPDATE threads SET title = iif(?3 IS NULL, title, nullif(?3, '')),
                archived = coalesce(?4, archived) WHERE thread = ?1 AND tenant = ?2",
        )?
        .execute(params![
            thread.uuid().as_bytes(),
            tenant,
            change.title.as_deref(),
            change.archived
        ])?;
    Ok(changed > 0)
}

pub(super) fn list(
    connection: &Connection,
    filter: &ThreadFilter,
) -> rusqlite::Result<Result<Vec<ThreadInfo>, StoreError>> {
    let mut conditions = vec!["threads.tenant = ?1".to_owned()];
    let mut values: Vec<Box<dyn ToSql>> = vec![Box::new(filter.tenant.to_string())];
    let mut condition = |sql: &str, value: Box<dyn ToSql>| {
        values.push(value);
        conditions.push(sql.replace('?', &format!("?{}", values.len())));
    };
    if let Some(thread) = filter.thread {
        condition("threads.thread = ?", Box::new(*thread.uuid().as_bytes()));
    }
    if let Some(archived) = filter.archived {
        condition("threads.archived = ?", Box::new(archived));
    }
    if let Some(after) = filter.after {
        condition("latest < ?", Box::new(*after.uuid().as_bytes()));
    }
    let words = filter.words();
    if !words.is_empty() {
        // Words consist of letters and digits, so quoting them is enough.
        let wanted: Vec<_> = words.iter().map(|word| format!("\"{word}\"*")).collect();
        condition(
            "(threads.thread IN (SELECT thread FROM runs WHERE id IN
                (SELECT rowid FROM texts WHERE texts MATCH ?)) OR {title})",
            Box::new(wanted.join(" ")),
        );
        let in_title: Vec<_> = words
            .iter()
            .map(|word| {
                values.push(Box::new(word.clone()));
                format!("has_word(coalesce(threads.title, first.title), ?{})", values.len())
            })
            .collect();
        for condition in &mut conditions {
            *condition = condition.replace("{title}", &in_title.join(" AND "));
        }
    }
    let sql = format!(
        "SELECT threads.thread, threads.tenant, coalesce(threads.title, first.title), archived,
            threads.runs, newest.run, newest.agent, newest.state, first.created_at,
            newest.updated_at, newest.crc IS row_sum({}) AND first.crc IS row_sum({})
            AND threads.crc IS row_sum(threads.thread, threads.tenant, threads.latest,
                threads.runs, threads.title, threads.archived)
        FROM threads JOIN runs AS newest ON newest.run = latest
        JOIN runs AS first ON first.run =
            (SELECT min(run) FROM runs WHERE runs.thread = threads.thread)
        WHERE {} ORDER BY latest DESC LIMIT {}",
        run_columns("newest."),
        run_columns("first."),
        conditions.join(" AND "),
        filter.limit_or_max()
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(rusqlite::params_from_iter(values), info)?;
    rows.collect()
}

fn info(row: &Row<'_>) -> rusqlite::Result<Result<ThreadInfo, StoreError>> {
    let latest: RunId = read::run_id(row, 5)?;
    if !row.get::<_, bool>(10)? {
        return Ok(Err(read::damaged(latest, Seq(0), "the row of its thread")));
    }
    Ok(Ok(ThreadInfo {
        thread: ThreadId::new(uuid::Uuid::from_bytes(row.get(0)?)),
        tenant: row.get(1)?,
        title: row.get(2)?,
        archived: row.get(3)?,
        runs: uint(row.get(4)?),
        latest,
        agent: row.get(6)?,
        state: read::state_of(row, 7)?,
        created_at: Millis(uint(row.get(8)?)),
        updated_at: Millis(uint(row.get(9)?)),
    }))
}

/// Registers a SQL function that tells whether a title has a word with a given prefix.
pub(super) fn add_function(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("has_word", 2, flags, |arguments| {
        let (title, word): (String, String) = (arguments.get(0)?, arguments.get(1)?);
        Ok(has_words(&title, &[word]))
    })
}
