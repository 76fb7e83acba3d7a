//! Decides which process serves a bot if several processes share a store.
//!
//! The holder, which is the process that serves the bot, writes a document three times per lease.
//! Another process takes the bot over once the document has not changed for a whole lease, measured
//! by its own monotonic clock. A holder that cannot write the document stops serving the bot before
//! its lease is over. So at most one process serves a chat at any time.
//!
//! A store that knows that the holder's process has ended deletes the document, so that another
//! process takes the bot over at once. SQLite knows this of processes that were killed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use wellspring_engine::ControlError;
use wellspring_log::document::{HELD, segment};
use wellspring_log::{Expected, LEASE, Log, Store, Written};

use crate::setup::Setup;

/// Writes of the document per lease, of which one may fail.
const CHANGES_PER_LEASE: u32 = 3;

/// Reads of the document per lease by a process that waits for the bot.
const LOOKS_PER_LEASE: u32 = 10;

/// Pause before a bot that failed or ended is started again.
const START_AGAIN: Duration = Duration::from_secs(5);

/// A bot that is served by one process at a time.
pub(crate) trait Serve: Sync {
    /// Starts the bot, which continues its unfinished work.
    fn start(&self) -> impl Future<Output = Result<(), ControlError>> + Send;

    /// Receives events until the bot ends.
    fn receive(&self) -> impl Future<Output = ()> + Send;

    /// Stops the bot. It makes no calls afterwards.
    fn stop(&self) -> impl Future<Output = ()> + Send;
}

/// The right to serve a bot.
pub(crate) struct Holder {
    store: Arc<dyn Store>,
    document: Box<str>,
    /// The name of this process, which no other process has.
    node: Box<str>,
    lease: Duration,
}

impl Holder {
    /// The right to serve a configured bot, for the configured lease.
    pub(crate) fn of(setup: &Setup, bot: &str) -> Self {
        Self::new(setup.log(), bot, setup.config.store.lease.unwrap_or(LEASE))
    }

    fn new(log: &Log, bot: &str, lease: Duration) -> Self {
        let document = format!("{HELD}channel/{}", segment(bot)).into();
        Self { store: Arc::clone(log.store()), document, node: log.node().into(), lease }
    }

    /// Serves a bot whenever no other process does. A bot that ends, or whose receiver panics, is
    /// stopped and started again, here or in another process.
    pub(crate) async fn serve(&self, bot: &impl Serve) {
        let name = &*self.document;
        loop {
            let revision = self.acquire().await;
            tracing::info!(bot = name, "this process serves the bot now");
            match bot.start().await {
                Ok(()) => {
                    let receiving = AssertUnwindSafe(bot.receive()).catch_unwind();
                    let ended = tokio::select! {
                        ended = receiving => Some(ended),
                        () = self.hold(revision) => None,
                    };
                    bot.stop().await;
                    match ended {
                        Some(Ok(())) => {
                            tracing::warn!(bot = name, "the bot has ended; starting it again");
                        }
                        Some(Err(_)) => {
                            tracing::error!(bot = name, "the bot panicked; starting it again");
                        }
                        None => {
                            tracing::warn!(bot = name, "another process may serve the bot now");
                            continue;
                        }
                    }
                }
                Err(error) => {
                    tracing::warn!(bot = name, %error, "could not start the bot; trying again");
                }
            }
            self.release().await;
            sleep(START_AGAIN).await;
        }
    }

    /// Waits until no other process serves the bot, and becomes its holder. Returns the document's
    /// revision.
    async fn acquire(&self) -> u64 {
        let mut unchanged: Option<(u64, Instant)> = None;
        let mut looked = Instant::now();
        loop {
            // After a gap between two reads, the time without changes is unknown, so it starts
            // again.
            if looked.elapsed() > self.lease / 2 {
                unchanged = None;
            }
            looked = Instant::now();
            // This lets the store release what processes that have ended held.
            if let Err(error) = self.store.nodes().await {
                tracing::debug!(%error, "could not look which processes have ended");
            }
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
    async fn hold(&self, mut revision: u64) {
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use wellspring_log::{LogOptions, MemoryStore};

    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    /// A bot whose receiver ends in a way of its own each time, and then receives for ever.
    struct Ending {
        ends: Mutex<Vec<fn()>>,
        log: Mutex<Vec<&'static str>>,
    }

    impl Serve for Ending {
        async fn start(&self) -> Result<(), ControlError> {
            self.log.lock().unwrap().push("start");
            Ok(())
        }

        async fn receive(&self) {
            let end = self.ends.lock().unwrap().pop();
            match end {
                Some(end) => end(),
                None => std::future::pending().await,
            }
        }

        async fn stop(&self) {
            self.log.lock().unwrap().push("stop");
        }
    }

    fn holder(store: &Arc<MemoryStore>, node: &str) -> Holder {
        let options = LogOptions { node: node.into(), ..LogOptions::default() };
        Holder::new(&Log::new(Arc::clone(store) as _, options), "bot", LEASE)
    }

    /// A receiver that returns or panics is stopped before its bot is started again, and in between
    /// another process may serve the bot.
    #[tokio::test(start_paused = true)]
    async fn a_bot_whose_receiver_panics_is_started_again() {
        let store = Arc::new(MemoryStore::default());
        let ends: Vec<fn()> = vec![|| panic!("a bug of the receiver"), || {}];
        let bot = Ending { ends: Mutex::new(ends), log: Mutex::default() };
        let (one, other) = (holder(&store, "one"), holder(&store, "other"));
        let serving = tokio::time::timeout(4 * START_AGAIN, one.serve(&bot));
        assert!(serving.await.is_err());
        let log = std::mem::take(&mut *bot.log.lock().unwrap());
        assert_eq!(log, ["start", "stop", "start", "stop", "start"]);

        bot.ends.lock().unwrap().push(|| panic!("a bug of the receiver"));
        let taken_over = async {
            let begun = Instant::now();
            other.acquire().await;
            begun.elapsed()
        };
        let waited = tokio::select! {
            () = one.serve(&bot) => unreachable!(),
            waited = taken_over => waited,
        };
        // Sooner than a lease: the document was released.
        assert!(waited < LEASE / 2, "{waited:?}");
    }
}
