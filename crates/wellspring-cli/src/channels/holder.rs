//! Decides which process serves a bot if several machines share a store.
//!
//! The holder, which is the process that serves the bot, writes a document three times per lease.
//! Another process takes the bot over once the document has not changed for a whole lease, measured
//! by its own monotonic clock. A holder that cannot write the document stops serving the bot before
//! its lease is over. So at most one process serves a chat at any time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use wellspring_log::document::segment;
use wellspring_log::{Expected, Store, Written};

use crate::setup::Setup;

/// Writes of the document per lease, of which one may fail.
const CHANGES_PER_LEASE: u32 = 3;

/// Reads of the document per lease by a process that waits for the bot.
const LOOKS_PER_LEASE: u32 = 10;

/// The right to serve a bot.
#[derive(Clone)]
pub(crate) struct Holder {
    store: Arc<dyn Store>,
    document: Box<str>,
    /// The name of this process, which no other process has.
    node: Box<str>,
    lease: Duration,
}

impl Holder {
    pub(crate) fn new(setup: &Setup, bot: &str, lease: Duration) -> Self {
        let log = setup.log();
        let document = format!("channel-holder/{}", segment(bot)).into();
        Self { store: Arc::clone(log.store()), document, node: log.node().into(), lease }
    }

    /// Waits until no other process serves the bot, and becomes its holder. Returns the document's
    /// revision.
    pub(crate) async fn acquire(&self) -> u64 {
        let mut unchanged: Option<(u64, Instant)> = None;
        let mut looked = Instant::now();
        loop {
            // After a gap between two reads, the time without changes is unknown, so it starts
            // again.
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

    /// Renews the hold. Returns when another process holds the bot, or soon may.
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
                // An earlier write of ours succeeded, although its answer did not arrive in time.
                Ok(Ok(Written::Conflict(Some(found)))) if *found.text == *self.node => {
                    (revision, next) = (found.revision, since + soon);
                }
                Ok(Ok(Written::Conflict(_))) => return,
                Ok(Err(_)) | Err(_) => next = Instant::now() + soon,
            }
        }
    }

    /// Deletes the document, so that another process can serve the bot at once.
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
