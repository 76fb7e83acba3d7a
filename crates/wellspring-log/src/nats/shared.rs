//! What the parts of the store share: how far this node knows the stream, and writes that settle.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::api::{Api, How, Kept as Message, PublishError};
use super::projection::Projection;
use super::wire::{Entry, Outgoing};
use crate::lock;
use crate::store::StoreError;
use crate::watch::Watches;

/// Writers of one process that may write to the same subject wait for each other: the number of
/// places to wait.
pub(super) const STRIPES: usize = 64;

/// After so long without the message that someone waits for, it is asked whether there is one.
pub(super) const STALL: Duration = Duration::from_millis(300);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) api: Arc<Api>,
    pub(super) projection: Mutex<Projection>,
    /// The last sequence that the projection has.
    pub(super) applied: watch::Sender<u64>,
    /// Makes the follower begin again.
    pub(super) again: tokio::sync::Notify,
    pub(super) watches: Watches,
    pub(super) looks: mpsc::Sender<oneshot::Sender<Result<u64, StoreError>>>,
    /// For writers of one subject.
    pub(super) stripes: Vec<tokio::sync::Mutex<()>>,
    /// For those who decide what to write before they do; taken before one of the others.
    pub(super) deciding: Vec<tokio::sync::Mutex<()>>,
    pub(super) hasher: RandomState,
    pub(super) batches: Semaphore,
    pub(super) runtime: Handle,
    /// How the ids of this process's messages begin, with a dot at the end.
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

    /// Waits for other writers of this process to the same subject.
    pub(super) async fn alone(&self, subject: &str) -> tokio::sync::MutexGuard<'_, ()> {
        self.stripes[self.stripe(subject)].lock().await
    }

    /// Waits for others of this process who decide about the same thing.
    pub(super) async fn deciding(&self, about: &str) -> tokio::sync::MutexGuard<'_, ()> {
        self.deciding[self.stripe(about)].lock().await
    }

    pub(super) fn stripe(&self, of: &str) -> usize {
        usize::try_from(self.hasher.hash_one(of) % STRIPES as u64).unwrap_or_default()
    }

    /// Reads everything, however long it takes, as long as it goes on.
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

    /// Waits until this node knows all that is acknowledged now.
    pub(super) async fn current(&self) -> Result<(), StoreError> {
        let closed = || StoreError::failed("asking for the stream's state", "the store is closed");
        let (sender, answer) = oneshot::channel();
        self.looks.send(sender).await.map_err(|_| closed())?;
        let last = answer.await.map_err(|_| closed())??;
        self.applied_to(last).await
    }

    /// Waits until this node has taken in everything up to a sequence.
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
            // What was removed meanwhile is never pushed.
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

    /// Refuses to grow past the maximum.
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

    /// The last sequence of a subject, which this node has then taken in, or that a message of
    /// this id is there.
    pub(super) async fn last_of(
        &self,
        subject: &str,
        id: &str,
    ) -> Result<Result<u64, u64>, StoreError> {
        let Some(last) = self.api.last_of(subject).await? else { return Ok(Err(0)) };
        self.applied_to(last.sequence).await?;
        Ok(if last.id.as_deref() == Some(id) { Ok(last.sequence) } else { Err(last.sequence) })
    }

    /// Writes a message as what is known allows, until it is there or refused. `judge` looks at
    /// what is known now: it gives the message's subject's last sequence as this node knows it, or
    /// the result. A refusal is only believed when this node is current.
    pub(super) async fn write<T>(
        &self,
        message: &Outgoing,
        how: How,
        mut judge: impl FnMut(&Projection) -> Result<u64, T>,
    ) -> Result<Result<u64, T>, StoreError> {
        let _alone = self.alone(&message.subject).await;
        let until = Instant::now() + self.api.settle;
        let (mut is_current, mut known) = (false, None);
        loop {
            let judged = judge(&lock(&self.projection));
            let expected = match judged {
                Ok(expected) => known.unwrap_or(expected),
                Err(refused) if is_current => return Ok(Err(refused)),
                Err(_) => {
                    self.current().await?;
                    is_current = true;
                    continue;
                }
            };
            let how = How { expected: Some(expected), ..how };
            match self.api.publish(message, how).await {
                Ok(sequence) => {
                    self.applied_to(sequence).await?;
                    return Ok(Ok(sequence));
                }
                Err(PublishError::Store(error)) => return Err(error),
                Err(PublishError::Conflict) if Instant::now() >= until => {
                    let cause = "others write to the same subject all the time";
                    return Err(StoreError::failed("writing to the stream", cause));
                }
                Err(PublishError::Conflict) => {
                    match self.last_of(&message.subject, &message.id).await? {
                        Ok(sequence) => return Ok(Ok(sequence)),
                        Err(last) => (known, is_current) = (Some(last), true),
                    }
                }
            }
        }
    }

    /// Writes a message that nothing fences; gives its sequence.
    pub(super) async fn put(&self, message: &Outgoing, how: How) -> Result<u64, StoreError> {
        match self.api.publish(message, how).await {
            Ok(sequence) => self.applied_to(sequence).await.map(|()| sequence),
            Err(PublishError::Store(error)) => Err(error),
            Err(PublishError::Conflict) => {
                Err(StoreError::failed("writing to the stream", "a conflict without a fence"))
            }
        }
    }

    /// Answers from what is known, once that is current.
    pub(super) async fn ask<T>(
        &self,
        read: impl FnOnce(&Projection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.current().await?;
        read(&lock(&self.projection))
    }
}

/// Asks how far the stream is, once for all who wait.
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
