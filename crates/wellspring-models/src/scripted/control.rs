//! Controls for a test while a script plays: gates, counters, failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, watch};
use wellspring_core::{FailureKind, ModelError};

/// A point at which a script waits until the test lets it pass.
///
/// Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate {
    permits: Arc<Semaphore>,
    reached: watch::Sender<u32>,
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new() -> Self {
        Self { permits: Arc::new(Semaphore::new(0)), reached: watch::Sender::new(0) }
    }

    /// Lets one script pass, now or when it arrives.
    pub fn pass(&self) {
        self.permits.add_permits(1);
    }

    /// Lets everything pass from now on.
    pub fn open(&self) {
        self.permits.close();
    }

    /// Resolves once scripts have arrived at this gate `times` times, whether or not they have
    /// passed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no arrivals.
    pub async fn reached(&self, times: u32) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.reached.subscribe().wait_for(|&reached| reached >= times).await;
    }

    pub(super) async fn wait(&self) {
        self.reached.send_modify(|reached| *reached += 1);
        // An error means that the gate is permanently open.
        if let Ok(permit) = self.permits.acquire().await {
            permit.forget();
        }
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

/// Counts how often a script reached a point, for failures that go away after some attempts.
///
/// A request does not tell which attempt it belongs to, so the count is kept outside the
/// script. Clones are the same counter.
#[derive(Clone, Debug, Default)]
pub struct Attempts(Arc<AtomicU32>);

impl Attempts {
    /// A counter at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The count so far.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    pub(super) fn next(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// An error of a script. Makes a [`ModelError`] any number of times.
#[derive(Clone, Debug)]
pub struct Failure {
    kind: FailureKind,
    message: Box<str>,
    retry_after: Option<Duration>,
}

impl Failure {
    /// An error with a kind and a message.
    #[must_use]
    pub fn new(kind: FailureKind, message: impl Into<Box<str>>) -> Self {
        Self { kind, message: message.into(), retry_after: None }
    }

    /// Adds the provider's `Retry-After`.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    pub(super) fn of(&self, model: &str) -> ModelError {
        let error = ModelError::new(model, self.kind, self.message.clone());
        match self.retry_after {
            Some(wait) => error.retry_after(wait),
            None => error,
        }
    }
}
