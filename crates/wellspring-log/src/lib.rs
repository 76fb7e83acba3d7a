//! The run log: frames, heads, cursors, owners and the inbox.
//!
//! A run is an append-only log of records. One [`Owner`] appends; every reader is a [`Cursor`].
//! [`Log`] implements both for all [`Store`]s: a store keeps opaque frames and rejects an
//! append that does not continue its head; the log numbers, encodes, folds and publishes
//! records, and wakes readers.
//!
//! # What is deliberately absent
//!
//! Timers between a record and its commit, a task or a queue per reader, protocols, the engine.
//!
//! # What is promised
//!
//! 1. A reader gets committed records only, in order, each once, from any starting point.
//! 2. A slow reader neither stalls the owner nor grows memory: it reads from the store.
//! 3. An owner that was taken over appends nothing, whatever the clocks show.
//! 4. Deltas are not joined while the store keeps up.

mod append_retry;
mod audit;
mod clock;
pub mod codec;
mod cursor;
pub mod document;
mod due;
mod error;
mod fold;
mod frame;
mod heartbeat;
mod hot_tail;
mod inbox;
mod index;
mod log;
mod memory;
mod migrate;
#[cfg(feature = "nats")]
mod nats;
mod options;
mod owner;
mod run_state;
#[cfg(feature = "sqlite")]
mod sqlite;
pub mod store;
#[cfg(feature = "suite")]
pub mod suite;
mod thread;
mod watch;
mod writer;

pub use audit::{AUDIT_MAX, Act, AuditEntry, AuditFilter, NewAudit};
pub use clock::{Clock, SystemClock, TokioClock};
pub use cursor::Cursor;
pub use document::{
    DOCUMENT_BYTES_MAX, DOCUMENT_NAME_BYTES_MAX, DOCUMENTS_PAGE_MAX, Document, DocumentFilter,
    Expected, Written,
};
pub use due::{DUE_PAGE_MAX, Due, DuePlace, DueQuery, NodeBeat};
pub use error::{AdoptError, CreateError, ReadError};
pub use frame::{ENCODED_SLOTS, Frame, FrameSlice};
pub use heartbeat::NodeStats;
pub use inbox::{
    INBOX_ANSWERS_MAX, INBOX_CANCELS_MAX, INBOX_MAX, InboxEntry, InboxRoom, NewCommand, Put, PutAll,
};
pub use log::{Beginning, DuePage, Log};
pub use memory::{MEMORY_BYTES_MAX, MemoryStore};
pub use migrate::{MigrateError, Migrated, migrate};
#[cfg(feature = "nats")]
pub use nats::{
    NATS_INDEX_BYTES_MAX, NATS_SETTLE, NatsAuth, NatsOpenError, NatsOptions, NatsStore, NatsTls,
};
pub use options::{
    Durability, JOIN_PAST, LEASE, LogOptions, OUTLINE_BYTES, PAGE_BYTES, SETTLE, TAIL_BYTES_MAX,
    TAIL_BYTES_TOTAL_MAX, UNCOMMITTED_BYTES_MAX,
};
pub use owner::Owner;
#[cfg(feature = "sqlite")]
pub use sqlite::{OpenError, SqliteOptions, SqliteStore};
pub use store::{
    Adopt, Append, AppendDone, AppendError, Created, ExportedCommand, ExternalId, Finding,
    HistoryQuery, LIST_MAX, NewFrame, NewRun, Page, PastRun, RunExport, RunFilter, RunInfo,
    RunState, SnapshotKind, Store, StoreError, StoreFuture, StoredFrame,
};
pub use thread::{
    SEARCH_BYTES_MAX, SEARCH_WORDS_MAX, THREAD_TITLE_CHARS_MAX, THREADS_PAGE_MAX, ThreadChange,
    ThreadFilter, ThreadInfo,
};
pub use watch::{Watch, Watches};

/// The types that [`forward_store!`] uses, for programs that do not depend on the core.
#[doc(hidden)]
pub mod forwarded {
    pub use bytes::Bytes;
    pub use wellspring_core::{InboxNo, RunId, Seq, ThreadId};
}

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, ignoring poisoning: every critical section here leaves its state consistent, and a
/// second panic would only hide the first.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
