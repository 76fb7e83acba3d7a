//! The audit log, in a table of its own.

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, params};
use wellspring_core::Millis;

use super::group_commit::Db;
use super::{int, read, uint};
use crate::audit::{AUDIT_MAX, Act, AuditEntry, AuditFilter, NewAudit};
use crate::store::StoreError;

/// Writes an entry, once per key. Returns its number.
pub(super) fn put(db: &mut Db, new: &NewAudit) -> rusqlite::Result<u64> {
    let connection = &db.connection;
    let existing: Option<i64> = connection
        .prepare_cached("SELECT number FROM audit WHERE tenant = ?1 AND key = ?2")?
        .query_row([&new.tenant, &new.key], |row| row.get(0))
        .optional()?;
    if let Some(number) = existing {
        return Ok(uint(number));
    }
    let last: i64 = connection
        .prepare_cached("SELECT coalesce(max(number), 0) FROM audit WHERE tenant = ?1")?
        .query_row([&new.tenant], |row| row.get(0))?;
    let number = last + 1;
    connection
        .prepare_cached(
            "INSERT INTO audit (tenant, number, key, at, who, run, did, details, crc)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, row_sum(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8))",
        )?
        .execute(params![
            &*new.tenant,
            number,
            &*new.key,
            int(new.act.at.0),
            &*new.act.by,
            new.act.run.uuid().as_bytes(),
            &*new.act.did,
            new.act.details.to_string(),
        ])?;
    connection
        .prepare_cached("DELETE FROM audit WHERE tenant = ?1 AND number <= ?2")?
        .execute(params![&*new.tenant, number - int(AUDIT_MAX as u64)])?;
    Ok(uint(number))
}

/// A tenant's entries, newest first.
pub(super) fn page(
    connection: &Connection,
    filter: &AuditFilter,
) -> rusqlite::Result<Result<Vec<AuditEntry>, StoreError>> {
    let before = filter.before.map_or(i64::MAX, int);
    let limit = int(filter.limit.min(AUDIT_MAX) as u64);
    let mut statement = connection.prepare_cached(
        "SELECT number, at, who, run, did, details,
            crc IS row_sum(tenant, number, key, at, who, run, did, details), key FROM audit
        WHERE tenant = ?1 AND number < ?2 ORDER BY number DESC LIMIT ?3",
    )?;
    let rows = statement.query_map(params![&*filter.tenant, before, limit], |row| {
        if !row.get::<_, bool>(6)? {
            let (number, tenant) = (row.get_ref(0)?, &filter.tenant);
            let what = format!("entry {number:?} of the audit log of tenant `{tenant}`");
            return Ok(Err(StoreError::DamagedStore { what }));
        }
        let details: String = row.get(5)?;
        let details = serde_json::from_str(&details).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(5, Type::Text, error.into())
        })?;
        let act = Act {
            at: Millis(uint(row.get(1)?)),
            by: row.get(2)?,
            run: read::run_id(row, 3)?,
            did: row.get(4)?,
            details,
        };
        Ok(Ok(AuditEntry { number: uint(row.get(0)?), key: row.get(7)?, act }))
    })?;
    rows.collect::<rusqlite::Result<Result<_, _>>>()
}
