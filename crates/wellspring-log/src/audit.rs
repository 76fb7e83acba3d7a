//! The audit log: who decided what. It is separate from the runs and survives their deletion.

use serde_json::Value;
use wellspring_core::{Millis, RunId};

/// Maximum number of entries per tenant; beyond it, the oldest are dropped. Enough for years of
/// decisions by people, and small enough to need no cleanup.
pub const AUDIT_MAX: usize = 10_000;

/// An action to audit.
#[derive(Clone, Debug, PartialEq)]
pub struct Act {
    /// When it was done.
    pub at: Millis,
    /// The id of the principal.
    pub by: Box<str>,
    /// The run that it concerns.
    pub run: RunId,
    /// The kind of action: `approve`, `cancel`, `delete`.
    pub did: Box<str>,
    /// Further details, because the run may be deleted by the time they are read.
    pub details: Value,
}

/// An entry to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAudit {
    /// The tenant of the run.
    pub tenant: Box<str>,
    /// The idempotency key: an entry with a known key is not written again.
    pub key: Box<str>,
    /// The action.
    pub act: Act,
}

/// A stored entry.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    /// Its number within the tenant, from 1. Increasing, not necessarily dense.
    pub number: u64,
    /// Identifies the action, so that repeating the entry does not count twice.
    pub key: Box<str>,
    /// The action.
    pub act: Act,
}

/// Selects entries, newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditFilter {
    /// The tenant.
    pub tenant: Box<str>,
    /// Only entries before this number: the last one of the previous page.
    pub before: Option<u64>,
    /// Maximum number of entries.
    pub limit: usize,
}
