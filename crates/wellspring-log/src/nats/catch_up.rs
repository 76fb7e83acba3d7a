//! Keeps the projection current: counts what it has applied, and lets reads wait until it has
//! applied everything that the stream had when they began.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::api::{Api, Kept as Message};
use super::projection::Projection;
use super::shared::Shared;
use crate::lock;
use crate::store::StoreError;

/// How long to wait for an expected message before asking the server whether it exists.
pub(super) const STALL: Duration = Duration::from_millis(300);

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
            let before = *applied.borrow();
            let stall = (Instant::now() + STALL).min(until);
            if timeout_at(stall, applied.wait_for(|applied| *applied >= sequence)).await.is_ok() {
                return Ok(());
            }
            if Instant::now() >= until {
                let cause = "the stream's messages did not come; check the NATS servers";
                return Err(StoreError::failed("waiting for the stream", cause));
            }
            let have = *self.applied.borrow();
            if have > before {
                continue;
            }
            // A message that was removed in the meantime is never pushed.
            if self.api.next_after(have).await?.is_none_or(|next| next > sequence) {
                self.advance(sequence);
            }
        }
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
