//! The time limits of a turn: for the first content, between two pieces, and in total.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};
use wellspring_core::{CancellationToken, Cancelled, FailureKind, ModelError};

use super::Turn;

pub(super) enum Late {
    After(Duration),
    Deadline,
    Cancelled,
}

/// How long to wait for the next piece, and the deadline of the attempt.
pub(super) struct Patience {
    until: Instant,
    limit: Duration,
    deadline: Instant,
}

impl Patience {
    pub(super) fn from(start: Instant, limit: Duration, deadline: Instant) -> Self {
        Self { until: start + limit, limit, deadline }
    }

    pub(super) async fn limit<T>(
        &self,
        watch: &mut Watch,
        work: impl Future<Output = T>,
    ) -> Result<T, Late> {
        let due = self.deadline.min(self.until);
        if due < watch.alarm.deadline() {
            watch.alarm.as_mut().reset(due);
        }
        tokio::pin!(work);
        loop {
            tokio::select! {
                biased;
                () = &mut watch.cancelled => return Err(Late::Cancelled),
                done = &mut work => return Ok(done),
                () = &mut watch.alarm => {
                    if Instant::now() < due {
                        watch.alarm.as_mut().reset(due);
                    } else if self.deadline <= self.until {
                        return Err(Late::Deadline);
                    } else {
                        return Err(Late::After(self.limit));
                    }
                }
            }
        }
    }
}

/// The events that can end a wait for the model. They stay registered between pieces, because
/// creating a timer and a waiter for each piece would cost more than reading it.
#[derive(Debug)]
pub(super) struct Watch {
    cancelled: Cancelled,
    /// Fires at or before the intended time, which is then checked again.
    alarm: Pin<Box<Sleep>>,
}

impl Watch {
    /// Longer than any wait; the first wait sets it.
    const FAR: Duration = Duration::from_secs(24 * 60 * 60);

    pub(super) fn new(signal: &CancellationToken) -> Self {
        Self {
            cancelled: signal.cancelled(),
            alarm: Box::pin(sleep_until(Instant::now() + Self::FAR)),
        }
    }
}

impl Turn {
    /// The result of a wait, or the error for the model that was too slow.
    pub(super) fn in_time<T>(&self, result: Result<T, Late>, what: &str) -> Result<T, ModelError> {
        result.map_err(|late| {
            let model = self.config.model.name();
            match late {
                Late::After(limit) => {
                    let message = format!("{what} within {} s", limit.as_secs_f32());
                    let error = ModelError::new(model, FailureKind::TimedOut, message);
                    self.config.model.timed_out(&error);
                    error
                }
                Late::Deadline => {
                    let limit = self.config.timeouts.turn.as_secs_f32();
                    let message = format!("the turn took longer than {limit} s");
                    ModelError::new(model, FailureKind::TimedOut, message)
                }
                Late::Cancelled => {
                    ModelError::new(model, FailureKind::Lost, "the turn was cancelled")
                }
            }
        })
    }
}
