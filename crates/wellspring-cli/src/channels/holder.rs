//! Which process serves a bot, where several machines share a store.
//!
//! The process that serves it changes a document three times per lease. Another process serves the
//! bot once the document has not changed for a lease, measured by its own monotonic clock; so at
//! any moment a chat is served by one process. One that cannot write the document gives the bot up
//! before its lease is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use wellspring_log::document::segment;
use wellspring_log::{Expected, Store, Written};

use crate::place::Place;

/// Changes of the document per lease: one may fail.
const CHANGES_PER_LEASE: u32 = 3;

/// Looks at the document per lease, of a process that waits for the bot.
const LOOKS_PER_LEASE: u32 = 10;

/// The right to serve a bot.
#[derive(Clone)]
pub(crate) struct Holder {
    store: Arc<dyn Store>,
    document: Box<str>,
    /// Who we are: no other process has this name.
    node: Box<str>,
    lease: Duration,
}

impl Holder {
    pub(crate) fn new(place: &Place, bot: &str, lease: Duration) -> Self {
        let log = place.log();
        let document = format!("channel-holder/{}", segment(bot)).into();
        Self { store: Arc::clone(log.store()), document, node: log.node().into(), lease }
    }

    /// Waits until no other process serves the bot; gives the document's revision.
    pub(crate) async fn acquire(&self) -> u64 {
        let mut unchanged: Option<(u64, Instant)> = None;
        let mut looked = Instant::now();
        loop {
            // While this process did not look, the document may have changed.
            if looked.elapsed() > self.lease / 2 {
                unchanged = None;
            }
            looked = Instant::now();
            let expected = match self.store.document(self.document.clone()).await {
                Ok(None) => Some(Expected::Absent),
                Ok(Some(found)) => {
                    let (revision, since) = unchanged
                        .filter(|it| it.0 == found.revision)
                        .unwrap_or((found.revision, looked));
                    unchanged = Some((revision, since));
                    let is_free = *found.text == *self.node || since.elapsed() >= self.lease;
                    is_free.then_some(Expected::Revision(revision))
                }
                Err(error) => {
                    tracing::debug!(%error, bot = &*self.document, "could not look who serves a bot");
                    None
                }
            };
            if let Some(expected) = expected
                && let Ok(Written::Done(revision)) = self.write(expected).await
            {
                return revision;
            }
            sleep(self.lease / LOOKS_PER_LEASE).await;
        }
    }

    /// Keeps the bot until another process has it, or may have it.
    pub(crate) async fn hold(&self, mut revision: u64) {
        let every = self.lease / CHANGES_PER_LEASE;
        let soon = every / CHANGES_PER_LEASE;
        let mut kept = Instant::now();
        let mut next = kept + every;
        loop {
            // The rest of the lease is for the calls that are in progress.
            let until = kept + every * (CHANGES_PER_LEASE - 1);
            if next >= until {
                return;
            }
            sleep_until(next).await;
            let since = Instant::now();
            match timeout_at(until, self.write(Expected::Revision(revision))).await {
                Ok(Ok(Written::Done(written))) => {
                    (revision, kept, next) = (written, since, since + every);
                }
                // Written before, by a change whose answer was late.
                Ok(Ok(Written::Conflict(Some(found)))) if *found.text == *self.node => {
                    (revision, next) = (found.revision, since + soon);
                }
                Ok(Ok(Written::Conflict(_))) => return,
                Ok(Err(_)) | Err(_) => next = Instant::now() + soon,
            }
        }
    }

    /// Lets another process serve the bot at once.
    pub(crate) async fn release(&self) {
        let ours = self.store.document(self.document.clone()).await;
        if let Ok(Some(found)) = ours
            && *found.text == *self.node
        {
            let expected = Expected::Revision(found.revision);
            let released = self.store.put_document(self.document.clone(), None, expected).await;
            if let Err(error) = released {
                tracing::debug!(%error, bot = &*self.document, "could not give a bot up");
            }
        }
    }

    async fn write(&self, expected: Expected) -> Result<Written, wellspring_log::StoreError> {
        self.store.put_document(self.document.clone(), Some(self.node.clone()), expected).await
    }
}
