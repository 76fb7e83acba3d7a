//! State that the parts of the store share, and the progress of the projection.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::api::{Api, Kept as Message};
use super::projection::Projection;
use super::wire::{Entry, Outgoing};
use crate::lock;
use crate::store::StoreError;
use crate::watch::Watches;

/// Number of locks for concurrent writers of this process. Writers of the same subject share a
/// lock; others rarely do.
pub(super) const STRIPES: usize = 64;

/// How long to wait for an expected message before asking the server whether it exists.
pub(super) const STALL: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) api: Arc<Api>,
    pub(super) projection: Mutex<Projection>,
    /// The last sequence that the projection has applied.
    pub(super) applied: watch::Sender<u64>,
    /// Makes the follower create its consumer again.
    pub(super) again: tokio::sync::Notify,
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
    pub(super) fn apply(&self, message: &Message) {
        lock(&self.projection).apply(message);
        self.advance(message.sequence);
    }

    pub(super) fn advance(&self, to: u64) {
        self.applied.send_if_modified(|applied| {
            let later = to > *applied;
            *applied = to.max(*applied);
            later
        });
    }

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

    /// Waits until the whole stream is applied. There is no time limit while progress is made.
    pub(super) async fn catch_up(&self) -> Result<(), StoreError> {
        let last = self.api.last_sequence().await?;
        loop {
            let before = *self.applied.borrow();
            match self.applied_to(last).await {
                Err(_) if *self.applied.borrow() > before => {}
                decided => return decided,
            }
        }
    }

    /// Waits until this node has applied everything that is acknowledged now.
    pub(super) async fn current(&self) -> Result<(), StoreError> {
        let closed = || StoreError::failed("asking for the stream's state", "the store is closed");
        let (sender, answer) = oneshot::channel();
        self.looks.send(sender).await.map_err(|_| closed())?;
        let last = answer.await.map_err(|_| closed())??;
        self.applied_to(last).await
    }

    /// Waits until this node has applied all messages up to a sequence.
    pub(super) async fn applied_to(&self, sequence: u64) -> Result<(), StoreError> {
        let mut applied = self.applied.subscribe();
        let until = Instant::now() + self.api.settle;
        loop {
            let stall = (Instant::now() + STALL).min(until);
            if timeout_at(stall, applied.wait_for(|applied| *applied >= sequence)).await.is_ok() {
                return Ok(());
            }
            if Instant::now() >= until {
                let cause = "the stream's messages did not come; check the NATS servers";
                return Err(StoreError::failed("waiting for the stream", cause));
            }
            // A message that was removed in the meantime is never pushed.
            let have = *self.applied.borrow();
            match self.api.next_after(have).await? {
                Some(next) if next <= sequence => {
                    if *self.applied.borrow() == have {
                        self.again.notify_one();
                    }
                }
                Some(_) | None => self.advance(sequence),
            }
        }
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

    /// Reads from the projection once it is current.
    pub(super) async fn ask<T>(
        &self,
        read: impl FnOnce(&Projection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.current().await?;
        read(&lock(&self.projection))
    }
}

/// Asks for the stream's last sequence, with one request for all callers that wait.
pub(super) async fn look(
    api: Arc<Api>,
    mut asked: mpsc::Receiver<oneshot::Sender<Result<u64, StoreError>>>,
) {
    while let Some(first) = asked.recv().await {
        let mut waiting = vec![first];
        while let Ok(next) = asked.try_recv() {
            waiting.push(next);
        }
        let last = api.last_sequence().await;
        for one in waiting {
            let _ = one.send(last.clone());
        }
    }
}
