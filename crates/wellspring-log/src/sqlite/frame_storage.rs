//! How frames are stored in the file.
//!
//! All frames of one transaction are stored in one row of `batches`, whatever runs they belong
//! to: a row per frame, with its index entry, would be most of the cost of an append. The
//! positions of a run's frames are written to the index `places` later, for many frames at
//! once, so that a page of that index is not rewritten with every transaction. Frames that are
//! not indexed yet are found by scanning the last few batches; [`UNPLACED_BYTES_MAX`] limits
//! how many.
//!
//! # Promised
//!
//! A committed batch is found, indexed or not: batch numbers increase and are never reused, and
//! all batches up to the number in `placed` are indexed.

use std::collections::HashMap;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, params};
use wellspring_core::Seq;

use super::{int, uint};
use crate::store::NewFrame;

/// A transaction starts another batch beyond this size: a reader of one frame reads its whole
/// batch.
const BATCH_BYTES: usize = 16 * 1024;

/// Maximum bytes of frames that are not indexed, which have to be scanned to find a run's last
/// frames. This is hundreds of frames of model output.
const UNPLACED_BYTES_MAX: usize = 128 * 1024;

/// What a frame's checksum covers besides its body: its run's key, its first record, the number
/// of records, its length, and the checksum of the run's previous frame.
const PLACE_BYTES: usize = 8 + 8 + 4 + 4 + 4;

/// The bytes before a frame's body: its place, and the checksum of both.
const HEAD_BYTES: usize = PLACE_BYTES + CRC_BYTES;

/// A batch ends with the checksum of all that is in it.
const CRC_BYTES: usize = 4;

/// A frame within a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Entry<'a> {
    pub(super) run: i64,
    pub(super) first: Seq,
    pub(super) count: u32,
    /// The checksum of the run's previous frame.
    pub(super) before: u32,
    /// Its own checksum, over its place and its body.
    pub(super) crc: u32,
    pub(super) body: &'a [u8],
}

impl<'a> Entry<'a> {
    pub(super) fn new(run: i64, first: Seq, count: u32, before: u32, body: &'a [u8]) -> Self {
        let mut entry = Self { run, first, count, before, crc: 0, body };
        entry.crc = entry.checksum();
        entry
    }

    pub(super) fn last(&self) -> Seq {
        // The numbers may be damaged, so the sum must not overflow.
        Seq(self.first.0.saturating_add(u64::from(self.count)).saturating_sub(1))
    }

    pub(super) fn is_whole(&self) -> bool {
        self.count > 0 && self.checksum() == self.crc
    }

    fn checksum(&self) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        crc.update(&self.place());
        crc.update(self.body);
        crc.finalize()
    }

    fn place(&self) -> [u8; PLACE_BYTES] {
        let mut place = [0; PLACE_BYTES];
        // A frame's maximum size is far below.
        let length = u32::try_from(self.body.len()).unwrap_or(u32::MAX);
        place[..8].copy_from_slice(&self.run.to_be_bytes());
        place[8..16].copy_from_slice(&self.first.0.to_be_bytes());
        place[16..20].copy_from_slice(&self.count.to_be_bytes());
        place[20..24].copy_from_slice(&length.to_be_bytes());
        place[24..].copy_from_slice(&self.before.to_be_bytes());
        place
    }

    fn write(&self, batch: &mut Vec<u8>) {
        batch.extend_from_slice(&self.place());
        batch.extend_from_slice(&self.crc.to_be_bytes());
        batch.extend_from_slice(self.body);
    }
}

/// A row of `batches`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch<'a> {
    entries: &'a [u8],
    /// Whether the batch's checksum matches.
    pub(super) whole: bool,
}

impl<'a> Batch<'a> {
    pub(super) fn read(body: &'a [u8]) -> Self {
        match body.split_last_chunk::<CRC_BYTES>() {
            Some((entries, crc)) => {
                Self { entries, whole: crc32fast::hash(entries).to_be_bytes() == *crc }
            }
            None => Self { entries: &[], whole: false },
        }
    }

    /// The frames, as far as they can be separated. If the batch is damaged, each frame must be
    /// verified before it is used.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        split(self.entries)
    }

    /// Finds a frame if it is intact, even behind damaged bytes.
    pub(super) fn find(&self, run: i64, first: Seq) -> Option<Entry<'a>> {
        let wanted = |entry: &Entry<'_>| (entry.run, entry.first) == (run, first);
        if let Some(entry) = self.entries().find(wanted).filter(Entry::is_whole) {
            return Some(entry);
        }
        // A damaged length hides later frames, so the frame's place is searched for directly.
        let mut place = [0; 16];
        place[..8].copy_from_slice(&run.to_be_bytes());
        place[8..].copy_from_slice(&first.0.to_be_bytes());
        let starts = self.entries.windows(place.len()).enumerate();
        let starts = starts.filter(|(_, window)| *window == place).map(|(at, _)| at);
        starts
            .filter_map(|at| split_entry(&mut self.entries.get(at..)?))
            .find(|entry| wanted(entry) && entry.is_whole())
    }

    /// The body of the row without one frame; `None` if nothing is left.
    fn without(&self, run: i64, first: Seq) -> Option<Vec<u8>> {
        let mut others = Vec::with_capacity(self.entries.len());
        let mut rest = self.entries;
        while let Some(entry) = split_entry(&mut rest) {
            if (entry.run, entry.first) != (run, first) {
                entry.write(&mut others);
            }
        }
        // Bytes that cannot be separated are kept, because other runs may have frames in them.
        others.extend_from_slice(rest);
        (!others.is_empty()).then(|| sealed(others))
    }
}

/// The body of a row: the entries, followed by their checksum.
pub(super) fn sealed(mut entries: Vec<u8>) -> Vec<u8> {
    let crc = crc32fast::hash(&entries);
    entries.extend_from_slice(&crc.to_be_bytes());
    entries
}

/// Appends a frame to the entries.
pub(super) fn push(entries: &mut Vec<u8>, entry: &Entry<'_>) {
    entry.write(entries);
}

fn split(entries: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let mut rest = entries;
    std::iter::from_fn(move || split_entry(&mut rest))
}

/// Splits the first entry off; `None` if the rest does not hold a complete one.
fn split_entry<'a>(rest: &mut &'a [u8]) -> Option<Entry<'a>> {
    let mut more = *rest;
    let run = i64::from_be_bytes(*take(&mut more)?);
    let first = Seq(u64::from_be_bytes(*take(&mut more)?));
    let count = u32::from_be_bytes(*take(&mut more)?);
    let length = u32::from_be_bytes(*take(&mut more)?);
    let before = u32::from_be_bytes(*take(&mut more)?);
    let crc = u32::from_be_bytes(*take(&mut more)?);
    let (body, after) = more.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    Some(Entry { run, first, count, before, crc, body })
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, more) = rest.split_first_chunk()?;
    *rest = more;
    Some(taken)
}

/// The frames of a batch in the previous format, which had no checksums.
pub(super) fn entries_without_sums(batch: &[u8]) -> Vec<(i64, Seq, u32, &[u8])> {
    let mut rest = batch;
    let mut next = || {
        let mut more = rest;
        let run = i64::from_be_bytes(*take(&mut more)?);
        let first = Seq(u64::from_be_bytes(*take(&mut more)?));
        let count = u32::from_be_bytes(*take(&mut more)?);
        let length = u32::from_be_bytes(*take(&mut more)?);
        let (body, after) = more.split_at_checked(usize::try_from(length).ok()?)?;
        rest = after;
        Some((run, first, count, body))
    };
    std::iter::from_fn(&mut next).collect()
}

/// The error for a damaged batch that is not indexed: it is unknown which runs lost their last
/// frames, so nothing can be appended.
fn damaged_batch(id: i64) -> rusqlite::Error {
    let what = format!("batch {id}, which holds the last records of some runs, is damaged");
    rusqlite::Error::FromSqlConversionFailure(1, Type::Blob, what.into())
}

/// The frames of a transaction, before they are written as batches.
#[derive(Debug, Default)]
pub(super) struct Batches {
    bytes: Vec<u8>,
    /// What the file contains, if known.
    kept: Option<Kept>,
}

#[derive(Debug)]
struct Kept {
    /// The number of the last batch.
    last: i64,
    unplaced: Unplaced,
}

/// The frames that are not indexed.
#[derive(Debug, Default)]
struct Unplaced {
    bytes: usize,
    places: Vec<Place>,
}

/// The position of a frame: its run, its first record, the number of records, and the batch.
type Place = (i64, i64, u32, i64);

impl Unplaced {
    fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let mut unplaced = Self::default();
        each_unplaced(connection, |batch, entry| unplaced.add(batch, &entry))?.all()?;
        Ok(unplaced)
    }

    fn add(&mut self, batch: i64, entry: &Entry<'_>) {
        self.bytes += HEAD_BYTES + entry.body.len();
        self.places.push((entry.run, int(entry.first.0), entry.count, batch));
    }

    /// Writes the positions of all frames to the index.
    fn place(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let Some(&(.., upto)) = self.places.last() else { return Ok(()) };
        // A run's positions are next to each other, so in this order each page is changed once.
        self.places.sort_unstable();
        let mut statement = connection.prepare_cached(
            "INSERT INTO places (run, first, count, batch, crc)
            VALUES (?1, ?2, ?3, ?4, row_sum(?1, ?2, ?3, ?4))",
        )?;
        for place in self.places.drain(..) {
            statement.execute(place)?;
        }
        self.bytes = 0;
        connection
            .prepare_cached("UPDATE placed SET upto = ?1, crc = row_sum(?1)")?
            .execute([upto])
            .map(drop)
    }
}

impl Batches {
    /// Forgets what was not written, and what other processes or a rollback may have made
    /// invalid.
    pub(super) fn forget(&mut self) {
        self.bytes.clear();
        self.kept = None;
    }

    /// Adds the frame that follows a run's current end. Returns the new end.
    pub(super) fn add(
        &mut self,
        connection: &Connection,
        run: i64,
        end: End,
        frame: &NewFrame,
    ) -> rusqlite::Result<End> {
        let size = HEAD_BYTES + frame.body.len();
        if self.bytes.len() + size > BATCH_BYTES {
            self.write(connection)?;
        }
        let entry = Entry::new(run, end.head.next(), frame.count, end.crc, &frame.body);
        entry.write(&mut self.bytes);
        Ok(End::of(&entry))
    }

    /// The end of a run, if its last frame was added and not yet written.
    pub(super) fn end(&self, run: i64) -> Option<End> {
        split(&self.bytes).filter(|entry| entry.run == run).last().map(|entry| End::of(&entry))
    }

    /// The number of the last batch, if known.
    pub(super) fn last(&self) -> Option<i64> {
        self.kept.as_ref().map(|kept| kept.last)
    }

    /// Writes the added frames, so that reads on this connection find them.
    pub(super) fn write(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let kept = match &mut self.kept {
            Some(kept) => kept,
            None => {
                // A batch may be deleted, but its number is never reused.
                let last: i64 = connection
                    .prepare_cached("SELECT coalesce(max(id), 0) FROM batches")?
                    .query_row([], |row| row.get(0))?;
                let last = last.max(placed_upto(connection)?);
                self.kept.insert(Kept { last, unplaced: Unplaced::read(connection)? })
            }
        };
        kept.last += 1;
        for entry in split(&self.bytes) {
            kept.unplaced.add(kept.last, &entry);
        }
        let crc = crc32fast::hash(&self.bytes);
        self.bytes.extend_from_slice(&crc.to_be_bytes());
        connection
            .prepare_cached("INSERT INTO batches (id, body) VALUES (?1, ?2)")?
            .execute(params![kept.last, &self.bytes])?;
        self.bytes.clear();
        Ok(())
    }

    /// Indexes all frames, so that the next process finds them by the index.
    pub(super) fn place_all(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        Unplaced::read(connection)?.place(connection)?;
        self.forget();
        Ok(())
    }

    /// Writes the rest of a transaction, and indexes the frames if many are not indexed.
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

/// The last record of a run, and the checksum of its last frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct End {
    pub(super) head: Seq,
    pub(super) crc: u32,
}

impl End {
    pub(super) fn of(entry: &Entry<'_>) -> Self {
        Self { head: entry.last(), crc: entry.crc }
    }
}

/// Whether all frames that are not indexed could be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub(super) enum Looked {
    AtAll,
    /// Some frames in this batch could not be read.
    ButSome(i64),
}

impl Looked {
    /// For callers that need all of them.
    pub(super) fn all(self) -> rusqlite::Result<()> {
        match self {
            Self::AtAll => Ok(()),
            Self::ButSome(batch) => Err(damaged_batch(batch)),
        }
    }
}

/// Calls `look` for every intact frame that is not indexed, in commit order.
pub(super) fn each_unplaced(
    connection: &Connection,
    mut look: impl FnMut(i64, Entry<'_>),
) -> rusqlite::Result<Looked> {
    let (mut last, mut gap) = (None, None);
    let looked = each_after(connection, placed_upto(connection)?, |id, entry| {
        // Batch numbers have no gaps here: a batch is deleted only after it was indexed.
        if last.is_some_and(|last| id > last + 1) {
            gap = Some(id);
        }
        last = Some(id);
        look(id, entry);
    })?;
    Ok(gap.map_or(looked, Looked::ButSome))
}

/// Calls `look` for every intact frame in the batches after this one, in commit order.
pub(super) fn each_after(
    connection: &Connection,
    batch: i64,
    mut look: impl FnMut(i64, Entry<'_>),
) -> rusqlite::Result<Looked> {
    let mut statement =
        connection.prepare_cached("SELECT id, body FROM batches WHERE id > ?1 ORDER BY id")?;
    let mut rows = statement.query([batch])?;
    let mut looked = Looked::AtAll;
    while let Some(row) = rows.next()? {
        let id = row.get(0)?;
        let batch = Batch::read(row.get_ref(1)?.as_blob()?);
        if !batch.whole {
            looked = Looked::ButSome(id);
        }
        for entry in batch.entries().filter(|entry| batch.whole || entry.is_whole()) {
            look(id, entry);
        }
    }
    Ok(looked)
}

/// The last batch whose frames are all indexed.
fn placed_upto(connection: &Connection) -> rusqlite::Result<i64> {
    let (upto, whole) = connection
        .prepare_cached("SELECT upto, crc IS row_sum(upto) FROM placed")?
        .query_row([], |row| Ok((row.get(0)?, row.get::<_, bool>(1)?)))?;
    if whole {
        return Ok(upto);
    }
    let what = "the number of the last batch in the index is damaged";
    Err(rusqlite::Error::FromSqlConversionFailure(0, Type::Integer, what.into()))
}

/// The ends of all runs with frames that are not indexed.
pub(super) fn unplaced_ends(
    connection: &Connection,
) -> rusqlite::Result<(HashMap<i64, End>, Looked)> {
    let mut ends = HashMap::new();
    let looked = each_unplaced(connection, |_, entry| {
        ends.insert(entry.run, End::of(&entry));
    })?;
    Ok((ends, looked))
}

/// Deletes up to `limit` frames of a run; `false` if there are none. Other frames in the same
/// batches stay.
pub(super) fn delete(connection: &Connection, run: i64, limit: i64) -> rusqlite::Result<bool> {
    Unplaced::read(connection)?.place(connection)?;
    let places: Vec<(i64, i64)> = connection
        .prepare_cached("SELECT first, batch FROM places WHERE run = ?1 LIMIT ?2")?
        .query_map([run, limit], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (first, batch) in &places {
        let others = connection
            .prepare_cached("SELECT body FROM batches WHERE id = ?1")?
            .query_row([batch], |row| {
                let body = row.get_ref(0)?.as_blob()?;
                Ok(Batch::read(body).without(run, Seq(uint(*first))))
            })
            .optional()?;
        match others {
            // The index entry or the batch was damaged: its data is lost.
            None => {}
            Some(None) => {
                connection.prepare_cached("DELETE FROM batches WHERE id = ?1")?.execute([batch])?;
            }
            Some(Some(others)) => {
                connection
                    .prepare_cached("UPDATE batches SET body = ?2 WHERE id = ?1")?
                    .execute(params![batch, &others])?;
            }
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
        Entry::new(run, Seq(first), 2, 5, body)
    }

    #[test]
    fn what_was_written_is_read() {
        let mut entries = Vec::new();
        push(&mut entries, &entry(7, 1, b"one"));
        push(&mut entries, &entry(-1, u64::MAX - 1, b""));
        let body = sealed(entries);
        let batch = Batch::read(&body);
        assert!(batch.whole);
        let read: Vec<_> = batch.entries().collect();
        assert_eq!(read, [entry(7, 1, b"one"), entry(-1, u64::MAX - 1, b"")]);
        assert_eq!(batch.find(7, Seq(1)), Some(entry(7, 1, b"one")));
        let left = batch.without(7, Seq(1)).unwrap();
        let mut alone = Vec::new();
        push(&mut alone, &entry(-1, u64::MAX - 1, b""));
        assert_eq!(left, sealed(alone));
        assert_eq!(Batch::read(&left).without(-1, Seq(u64::MAX - 1)), None);
    }

    /// Whatever byte is flipped, a frame is found as it was written or not at all, and damage
    /// to one frame does not hide another.
    #[test]
    fn a_damaged_frame_is_not_found_and_others_are() {
        let mut entries = Vec::new();
        push(&mut entries, &entry(7, 1, b"one"));
        let second_at = entries.len();
        push(&mut entries, &entry(8, 1, b"another"));
        let body = sealed(entries);
        for at in 0..body.len() {
            for bit in 0..8 {
                let mut flipped = body.clone();
                flipped[at] ^= 1 << bit;
                let batch = Batch::read(&flipped);
                assert!(!batch.whole, "byte {at}, bit {bit}");
                let whole_tail = at >= body.len() - CRC_BYTES;
                let first = (at >= second_at).then_some(entry(7, 1, b"one"));
                assert_eq!(batch.find(7, Seq(1)), first, "byte {at}, bit {bit}");
                let second = (at < second_at || whole_tail).then_some(entry(8, 1, b"another"));
                assert_eq!(batch.find(8, Seq(1)), second, "byte {at}, bit {bit}");
            }
        }
    }
}
