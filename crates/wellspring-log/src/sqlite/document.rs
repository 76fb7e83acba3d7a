//! Documents: one row each, with a checksum over all columns.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{int, uint};
use crate::document::{Document, DocumentFilter, Expected, HELD, Written};
use crate::store::StoreError;

type Outcome<T> = rusqlite::Result<Result<T, StoreError>>;

pub(super) fn read(connection: &Connection, name: &str) -> Outcome<Option<Document>> {
    let found = connection
        .prepare_cached("SELECT name, revision, text, crc FROM documents WHERE name = ?1")?
        .query_row([name], checked)
        .optional()?;
    Ok(found.transpose())
}

pub(super) fn put(
    connection: &Connection,
    name: &str,
    text: Option<&str>,
    expected: Expected,
) -> Outcome<Written> {
    // A damaged document must be replaceable, so only its revision is read.
    let found: Option<i64> = connection
        .prepare_cached("SELECT revision FROM documents WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()?;
    if !expected.matches(found.map(uint)) {
        return Ok(read(connection, name)?.map(Written::Conflict));
    }
    let revision: i64 = connection
        .prepare_cached("UPDATE document_revision SET last = last + 1 RETURNING last")?
        .query_row([], |row| row.get(0))?;
    match text {
        Some(text) => insert(connection, name, revision, text)?,
        None => {
            connection.prepare_cached("DELETE FROM documents WHERE name = ?1")?.execute([name])?;
        }
    }
    Ok(Ok(Written::Done(uint(revision))))
}

/// Writes a row, replacing one of the same name.
pub(super) fn insert(
    connection: &Connection,
    name: &str,
    revision: i64,
    text: &str,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO documents (name, revision, text, crc) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![name, revision, text, checksum(name, revision, text)])
        .map(drop)
}

pub(super) fn list(connection: &Connection, filter: &DocumentFilter) -> Outcome<Vec<Document>> {
    // `0` is the character after `/`, so this is the first name after all those below the
    // prefix.
    let end = filter.prefix.strip_suffix('/').map(|prefix| format!("{prefix}0"));
    let mut statement = connection.prepare_cached(
        "SELECT name, revision, text, crc FROM documents
        WHERE name >= ?1 AND name > ?2 AND (?3 IS NULL OR name < ?3) ORDER BY name LIMIT ?4",
    )?;
    let after = filter.after.as_deref().unwrap_or_default();
    let limit = int(filter.limit_or_max() as u64);
    let rows = statement.query_map(params![&*filter.prefix, after, end, limit], checked)?;
    rows.collect()
}

/// Deletes the documents that a node holds.
pub(super) fn delete_held(connection: &Connection, node: &str) -> rusqlite::Result<()> {
    connection
        .prepare_cached("DELETE FROM documents WHERE name GLOB ?1 || '*' AND text = ?2")?
        .execute([HELD, node])
        .map(drop)
}

/// The names of all documents whose checksum does not match.
pub(super) fn damaged(connection: &Connection) -> rusqlite::Result<Vec<Box<str>>> {
    let mut statement = connection.prepare("SELECT name, revision, text, crc FROM documents")?;
    let mut rows = statement.query([])?;
    let mut names = Vec::new();
    while let Some(row) = rows.next()? {
        match checked(row) {
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => names.push(row.get(0).unwrap_or_else(|_| "?".into())),
        }
    }
    Ok(names)
}

/// A row as a document; an error if its checksum does not match.
fn checked(row: &Row<'_>) -> rusqlite::Result<Result<Document, StoreError>> {
    let (name, revision): (Box<str>, i64) = (row.get(0)?, row.get(1)?);
    let (text, crc): (Box<str>, u32) = (row.get(2)?, row.get(3)?);
    if checksum(&name, revision, &text) != crc {
        return Ok(Err(StoreError::DamagedDocument(name)));
    }
    Ok(Ok(Document { name, revision: uint(revision), text }))
}

fn checksum(name: &str, revision: i64, text: &str) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(name.as_bytes());
    // Names contain no zero byte, so name and text cannot be split in two ways.
    crc.update(&[0]);
    crc.update(&revision.to_be_bytes());
    crc.update(text.as_bytes());
    crc.finalize()
}
