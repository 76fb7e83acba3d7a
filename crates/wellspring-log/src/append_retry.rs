//! Appends whose outcome is unknown: looked up, and repeated if they were not stored.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::store::{Append, AppendError, Store, StoreError};

/// The first pause before an append with an unknown outcome is looked up.
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(20);

/// The longest pause between two lookups: a store that recovers is noticed within a second.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Exponential pauses between retries, until [`settle`](crate::LogOptions::settle) has passed.
pub(crate) struct Retries {
    pause: Duration,
    until: Instant,
}

impl Retries {
    pub(crate) fn new(settle: Duration) -> Self {
        Self { pause: RETRY_PAUSE_MIN, until: Instant::now() + settle }
    }

    /// Waits; `false` at once if the time is over.
    pub(crate) async fn pause(&mut self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(RETRY_PAUSE_MAX);
        true
    }
}

/// Appends and waits. If a failure leaves the outcome unknown, it is looked up and retried.
pub(crate) async fn append(
    store: &dyn Store,
    append: &Append,
    limit: Duration,
) -> Result<(), AppendError> {
    match append_once(store, append).await {
        Err(AppendError::Store(error @ StoreError::Failed { .. })) => {
            settle(store, append, error, limit).await
        }
        decided => decided,
    }
}

pub(crate) async fn append_once(store: &dyn Store, append: &Append) -> Result<(), AppendError> {
    let (decided, decision) = oneshot::channel();
    let done = Box::new(move |result| {
        let _ = decided.send(result);
    });
    store.append(append.clone(), done);
    decision.await.unwrap_or_else(|gone| Err(StoreError::failed("appending", gone).into()))
}

/// Reads back whether a failed append was stored, and appends again if it was not, until the
/// outcome is known or the time is over.
pub(crate) async fn settle(
    store: &dyn Store,
    append: &Append,
    mut error: StoreError,
    limit: Duration,
) -> Result<(), AppendError> {
    let mut retries = Retries::new(limit);
    while retries.pause().await {
        match read_back(store, append).await {
            Ok(Fate::There) => return Ok(()),
            Ok(Fate::Overtaken(error)) => return Err(error),
            Ok(Fate::Absent) => match append_once(store, append).await {
                Ok(()) => return Ok(()),
                Err(AppendError::Store(again)) => error = again,
                // The first append may have arrived late: the next lookup decides.
                Err(AppendError::Conflict { .. } | AppendError::Closed(_)) => {}
                Err(refused @ AppendError::TooLarge { .. }) => return Err(refused),
            },
            Err(again) => error = again,
        }
    }
    Err(error.into())
}

enum Fate {
    There,
    Absent,
    Overtaken(AppendError),
}

async fn read_back(store: &dyn Store, append: &Append) -> Result<Fate, StoreError> {
    let page = store.read(append.run, append.expected, 1).await?;
    let place = append.expected.next();
    Ok(match page.frames.first() {
        Some(found) if found.first == place && found.body == append.frame.body => Fate::There,
        None if page.head == append.expected && !page.closed => Fate::Absent,
        _ if page.closed => Fate::Overtaken(AppendError::Closed(append.run)),
        _ => Fate::Overtaken(AppendError::Conflict { run: append.run, head: page.head }),
    })
}
