//! Who decided what: kept beside the runs, and untouched when they are deleted.

use serde_json::Value;
use wellspring_core::{Millis, RunId};

/// The most entries kept per tenant; the oldest go first. Years of people's decisions, and
/// little enough that nobody has to sweep them.
pub const AUDIT_MAX: usize = 10_000;

/// Something that somebody did.
#[derive(Clone, Debug, PartialEq)]
pub struct Act {
    /// When.
    pub at: Millis,
    /// Who.
    pub by: Box<str>,
    /// To which run.
    pub run: RunId,
    /// What: `approve`, `cancel`, `delete`.
    pub did: Box<str>,
    /// What else a reader has to know, as the run may be gone by then.
    pub details: Value,
}

/// An act on its way into a store.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAudit {
    /// Whose run it was done to.
    pub tenant: Box<str>,
    /// What makes it one act, however often it is told.
    pub key: Box<str>,
    /// What was done.
    pub act: Act,
}

/// An act that was kept.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    /// Its place among its tenant's, from 1.
    pub number: u64,
    /// What makes it one act, however often it is told.
    pub key: Box<str>,
    /// What was done.
    pub act: Act,
}

/// Which entries to read, newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditFilter {
    /// Whose.
    pub tenant: Box<str>,
    /// Older than this one: where the page before ended.
    pub before: Option<u64>,
    /// At most so many.
    pub limit: usize,
}
