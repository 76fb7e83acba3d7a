//! Checksums of rows, as the SQL function `row_sum`.
//!
//! Every table with data has a column `crc` with the checksum of all other columns, including
//! the key: a row that was changed, or moved to another key, does not match. Rows of `runs` get
//! theirs from triggers, which leave the checksum of a damaged row unchanged.

use crc32fast::Hasher;
use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;
use rusqlite::types::ValueRef;
use wellspring_core::RunId;

/// Registers the SQL function, which a connection needs to read or write rows with checksums.
pub(super) fn register(connection: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function("row_sum", -1, flags, |context| {
        let mut crc = Hasher::new();
        for index in 0..context.len() {
            add(&mut crc, context.get_raw(index));
        }
        Ok(i64::from(crc.finalize()))
    })
}

/// Adds each value with its type and length, so that no two rows give the same bytes.
fn add(crc: &mut Hasher, value: ValueRef<'_>) {
    let (kind, bytes): (u8, &[u8]) = match value {
        ValueRef::Null => (0, &[]),
        ValueRef::Integer(number) => return add_bytes(crc, 1, &number.to_be_bytes()),
        ValueRef::Real(number) => return add_bytes(crc, 2, &number.to_bits().to_be_bytes()),
        ValueRef::Text(text) => (3, text),
        ValueRef::Blob(blob) => (4, blob),
    };
    add_bytes(crc, kind, bytes);
}

fn add_bytes(crc: &mut Hasher, kind: u8, bytes: &[u8]) {
    crc.update(&[kind]);
    crc.update(&(bytes.len() as u64).to_be_bytes());
    crc.update(bytes);
}

/// The start of a run's checksum chain, so that its first frame matches no other run.
pub(super) fn chain_start(run: RunId) -> u32 {
    crc32fast::hash(run.uuid().as_bytes())
}
