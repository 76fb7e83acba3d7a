//! Frames as they lie in the file.
//!
//! The frames of one transaction lie together in a row of `batches`, whatever runs they are of:
//! a row for each, and its entry in an index, would be most of what an append costs. Where a
//! run's frames lie is written into `places` behind, for many at once, so that a page of that
//! index changes now and then instead of with every transaction. What is not placed yet is found
//! by looking through the last few batches; [`UNPLACED_BYTES_MAX`] says how many.
//!
//! # Promised
//!
//! A batch that was committed is found, placed or not: batches are numbered upwards, for ever,
//! and all up to the number in `placed` are placed.

use std::collections::HashMap;

use rusqlite::types::Type;
use rusqlite::{Connection, params};
use wellspring_core::Seq;

use super::{int, uint};
use crate::store::NewFrame;

/// From here on a transaction begins another batch: who reads one frame of a run reads the
/// batch that it is in.
const BATCH_BYTES: usize = 16 * 1024;

/// The most bytes of frames that are not placed: so much has to be looked through to find the
/// last ones of a run. It is hundreds of frames while models talk.
const UNPLACED_BYTES_MAX: usize = 128 * 1024;

/// What stands before a frame's body: its run's key, its first record, how many, its length.
const HEAD_BYTES: usize = 8 + 8 + 4 + 4;

/// A frame within a batch.
#[derive(Debug, PartialEq)]
pub(super) struct Entry<'a> {
    pub(super) run: i64,
    pub(super) first: Seq,
    pub(super) count: u32,
    pub(super) body: &'a [u8],
}

impl Entry<'_> {
    pub(super) fn last(&self) -> Seq {
        Seq(self.first.0 + u64::from(self.count) - 1)
    }

    fn write(&self, batch: &mut Vec<u8>) {
        batch.extend_from_slice(&self.run.to_be_bytes());
        batch.extend_from_slice(&self.first.0.to_be_bytes());
        batch.extend_from_slice(&self.count.to_be_bytes());
        // A frame's size has a maximum far below.
        let length = u32::try_from(self.body.len()).unwrap_or(u32::MAX);
        batch.extend_from_slice(&length.to_be_bytes());
        batch.extend_from_slice(self.body);
    }
}

/// A frame as a batch of its own.
pub(super) fn alone(entry: &Entry<'_>) -> Vec<u8> {
    let mut batch = Vec::with_capacity(HEAD_BYTES + entry.body.len());
    entry.write(&mut batch);
    batch
}

/// The frames of a batch.
pub(super) fn entries(batch: &[u8]) -> impl Iterator<Item = rusqlite::Result<Entry<'_>>> {
    let mut rest = batch;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let entry = split_entry(&mut rest);
        if entry.is_none() {
            rest = &[];
        }
        Some(entry.ok_or_else(|| {
            let what = "a batch of frames is damaged";
            rusqlite::Error::FromSqlConversionFailure(0, Type::Blob, what.into())
        }))
    })
}

fn split_entry<'a>(rest: &mut &'a [u8]) -> Option<Entry<'a>> {
    let run = i64::from_be_bytes(*take(rest)?);
    let first = Seq(u64::from_be_bytes(*take(rest)?));
    let count = u32::from_be_bytes(*take(rest)?);
    let length = u32::from_be_bytes(*take(rest)?);
    let (body, more) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = more;
    (count > 0).then_some(Entry { run, first, count, body })
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, more) = rest.split_first_chunk()?;
    *rest = more;
    Some(taken)
}

/// What a transaction appends, on its way into batches.
#[derive(Debug, Default)]
pub(super) struct Batches {
    bytes: Vec<u8>,
    /// What lies in the file, if that is known.
    kept: Option<Kept>,
}

#[derive(Debug)]
struct Kept {
    /// The last batch there is.
    last: i64,
    unplaced: Unplaced,
}

/// The frames that are not placed.
#[derive(Debug, Default)]
struct Unplaced {
    bytes: usize,
    places: Vec<Place>,
}

/// Where a frame lies: its run, its first record, how many, and the batch.
type Place = (i64, i64, u32, i64);

impl Unplaced {
    fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let mut unplaced = Self::default();
        each_unplaced(connection, |batch, entry| unplaced.add(batch, &entry))?;
        Ok(unplaced)
    }

    fn add(&mut self, batch: i64, entry: &Entry<'_>) {
        self.bytes += HEAD_BYTES + entry.body.len();
        self.places.push((entry.run, int(entry.first.0), entry.count, batch));
    }

    /// Writes down where everything lies.
    fn place(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let Some(&(.., upto)) = self.places.last() else { return Ok(()) };
        // A run's places lie side by side, so in this order each page is changed once.
        self.places.sort_unstable();
        let mut statement = connection.prepare_cached(
            "INSERT INTO places (run, first, count, batch) VALUES (?1, ?2, ?3, ?4)",
        )?;
        for place in self.places.drain(..) {
            statement.execute(place)?;
        }
        self.bytes = 0;
        connection.prepare_cached("UPDATE placed SET upto = ?1")?.execute([upto]).map(drop)
    }
}

impl Batches {
    /// Forgets what was not written, and what others or a rollback may have made wrong.
    pub(super) fn forget(&mut self) {
        self.bytes.clear();
        self.kept = None;
    }

    pub(super) fn add(
        &mut self,
        connection: &Connection,
        run: i64,
        first: Seq,
        frame: &NewFrame,
    ) -> rusqlite::Result<()> {
        let size = HEAD_BYTES + frame.body.len();
        if self.bytes.len() + size > BATCH_BYTES {
            self.write(connection)?;
        }
        Entry { run, first, count: frame.count, body: &frame.body }.write(&mut self.bytes);
        Ok(())
    }

    /// The last record of a run, if it was added and not yet written.
    pub(super) fn head(&self, run: i64) -> Option<Seq> {
        let of_it = entries(&self.bytes).flatten().filter(|entry| entry.run == run);
        of_it.last().map(|entry| entry.last())
    }

    /// Writes what was added: from now on readers of this connection see it.
    pub(super) fn write(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let kept = match &mut self.kept {
            Some(kept) => kept,
            None => {
                // A batch may be deleted, but its number is never another's.
                let last = connection
                    .prepare_cached(
                        "SELECT max(upto, (SELECT coalesce(max(id), 0) FROM batches)) FROM placed",
                    )?
                    .query_row([], |row| row.get(0))?;
                self.kept.insert(Kept { last, unplaced: Unplaced::read(connection)? })
            }
        };
        kept.last += 1;
        connection
            .prepare_cached("INSERT INTO batches (id, body) VALUES (?1, ?2)")?
            .execute(params![kept.last, &self.bytes])?;
        for entry in entries(&self.bytes) {
            kept.unplaced.add(kept.last, &entry?);
        }
        self.bytes.clear();
        Ok(())
    }

    /// Writes the rest of a transaction, and places what lies there when it has become much.
    pub(super) fn finish(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        self.write(connection)?;
        match &mut self.kept {
            Some(kept) if kept.unplaced.bytes > UNPLACED_BYTES_MAX => {
                kept.unplaced.place(connection)
            }
            _ => Ok(()),
        }
    }
}

/// Looks at every frame that is not placed, in the order of their commits.
pub(super) fn each_unplaced(
    connection: &Connection,
    mut look: impl FnMut(i64, Entry<'_>),
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "SELECT id, body FROM batches WHERE id > (SELECT upto FROM placed) ORDER BY id",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let id = row.get(0)?;
        for entry in entries(row.get_ref(1)?.as_blob()?) {
            look(id, entry?);
        }
    }
    Ok(())
}

/// The last records of all runs that have frames which are not placed.
pub(super) fn unplaced_heads(connection: &Connection) -> rusqlite::Result<HashMap<i64, Seq>> {
    let mut heads = HashMap::new();
    each_unplaced(connection, |_, entry| {
        heads.insert(entry.run, entry.last());
    })?;
    Ok(heads)
}

/// Deletes up to so many frames of a run; `false` when there are none. What lies in the same
/// batches stays.
pub(super) fn delete(connection: &Connection, run: i64, limit: i64) -> rusqlite::Result<bool> {
    Unplaced::read(connection)?.place(connection)?;
    let places: Vec<(i64, i64)> = connection
        .prepare_cached("SELECT first, batch FROM places WHERE run = ?1 LIMIT ?2")?
        .query_map([run, limit], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let mut others = Vec::new();
    for (first, batch) in &places {
        others.clear();
        connection.prepare_cached("SELECT body FROM batches WHERE id = ?1")?.query_row(
            [batch],
            |row| {
                for entry in entries(row.get_ref(0)?.as_blob()?) {
                    let entry = entry?;
                    if (entry.run, entry.first) != (run, Seq(uint(*first))) {
                        entry.write(&mut others);
                    }
                }
                Ok(())
            },
        )?;
        if others.is_empty() {
            connection.prepare_cached("DELETE FROM batches WHERE id = ?1")?.execute([batch])?;
        } else {
            connection
                .prepare_cached("UPDATE batches SET body = ?2 WHERE id = ?1")?
                .execute(params![batch, &others])?;
        }
        connection
            .prepare_cached("DELETE FROM places WHERE run = ?1 AND first = ?2")?
            .execute([run, *first])?;
    }
    Ok(!places.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(run: i64, first: u64, body: &[u8]) -> Entry<'_> {
        Entry { run, first: Seq(first), count: 2, body }
    }

    #[test]
    fn what_was_written_is_read() {
        let mut batch = alone(&entry(7, 1, b"one"));
        entry(-1, u64::MAX - 1, b"").write(&mut batch);
        let read: Vec<_> = entries(&batch).collect::<rusqlite::Result<_>>().unwrap();
        assert_eq!(read, [entry(7, 1, b"one"), entry(-1, u64::MAX - 1, b"")]);
    }

    #[test]
    fn damage_is_an_error_wherever_it_is() {
        let batch = alone(&entry(7, 1, b"one"));
        for end in 1..batch.len() {
            assert!(entries(&batch[..end]).any(|entry| entry.is_err()), "{end}");
        }
        let mut none = batch;
        none[16..20].fill(0);
        assert!(entries(&none).all(|entry| entry.is_err()), "a frame has records");
    }
}
