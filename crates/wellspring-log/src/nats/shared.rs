//! State that the parts of the store share: their locks, and the ids of their messages.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use super::api::Api;
use super::projection::Projection;
use super::wire::{Entry, Outgoing};
use crate::lock;
use crate::store::StoreError;
use crate::watch::Watches;

/// Number of locks for concurrent writers of this process. Writers of the same subject share a
/// lock; others rarely do.
pub(super) const STRIPES: usize = 64;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) api: Arc<Api>,
    pub(super) projection: Mutex<Projection>,
    /// The last sequence that the projection has applied.
    pub(super) applied: watch::Sender<u64>,
    pub(super) watches: Watches,
    pub(super) looks: mpsc::Sender<oneshot::Sender<Result<u64, StoreError>>>,
    /// Locks for writers, by subject.
    pub(super) stripes: Vec<tokio::sync::Mutex<()>>,
    /// Locks for operations that read before they write. Taken before a lock in `stripes`.
    pub(super) deciding: Vec<tokio::sync::Mutex<()>>,
    pub(super) hasher: RandomState,
    pub(super) batches: Semaphore,
    pub(super) runtime: Handle,
    /// The prefix of the ids of this process's messages, ending in a dot.
    pub(super) me: Box<str>,
    pub(super) count: AtomicU64,
    pub(super) payload_max: usize,
    pub(super) index_bytes_max: usize,
}

impl Shared {
    pub(super) fn id(&self) -> Box<str> {
        format!("{}{}", self.me, self.count.fetch_add(1, Ordering::Relaxed)).into()
    }

    pub(super) fn outgoing(
        &self,
        subject: String,
        entry: Entry,
        bodies: &[&[u8]],
    ) -> Result<Outgoing, StoreError> {
        let outgoing = Outgoing::new(subject, self.id(), entry, bodies);
        outgoing.map_err(|error| StoreError::failed("writing a message", error))
    }

    /// Excludes other writers of this process to the same subject.
    pub(super) async fn alone(&self, subject: &str) -> tokio::sync::MutexGuard<'_, ()> {
        self.stripes[self.stripe(subject)].lock().await
    }

    /// Excludes other operations of this process that decide about the same thing.
    pub(super) async fn deciding(&self, about: &str) -> tokio::sync::MutexGuard<'_, ()> {
        self.deciding[self.stripe(about)].lock().await
    }

    pub(super) fn stripe(&self, of: &str) -> usize {
        usize::try_from(self.hasher.hash_one(of) % STRIPES as u64).unwrap_or_default()
    }

    /// Fails if the index has reached its maximum size.
    pub(super) fn has_room(&self) -> Result<(), StoreError> {
        if lock(&self.projection).index.bytes > self.index_bytes_max {
            return Err(StoreError::Full {
                what: "the index of runs that each node keeps in memory",
                max: self.index_bytes_max,
                remedy: "delete old runs (`retention`), or raise `index_bytes_max`",
            });
        }
        Ok(())
    }
}
