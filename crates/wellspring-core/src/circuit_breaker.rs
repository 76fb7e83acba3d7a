//! The state of a circuit breaker: whether a service that keeps failing may be asked again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::event::FailureKind;
use crate::model::ModelError;

/// Suspends a service that keeps failing. After a rest period it lets one request through, to check
/// whether the service works again. Clones share their state.
///
/// Only failures of the service count: unavailable, rate limited, disconnected, timed out. An
/// invalid request does not.
#[derive(Clone, Debug)]
pub struct Circuit {
    service: Box<str>,
    failures_max: u32,
    rest: Duration,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Consecutive failures so far.
    failures: u32,
    /// Until then, no request is let through; `None` while closed.
    open_until: Option<Instant>,
}

impl Circuit {
    /// Default number of consecutive failures that open it: more than the attempts of one turn, so
    /// that one run alone does not stop all others.
    pub const FAILURES_DEFAULT: u32 = 5;

    /// How long it stays open, by default.
    pub const REST_DEFAULT: Duration = Duration::from_secs(30);

    /// A closed circuit. `service` is the name of the service in errors.
    #[must_use]
    pub fn new(service: impl Into<Box<str>>) -> Self {
        Self {
            service: service.into(),
            failures_max: Self::FAILURES_DEFAULT,
            rest: Self::REST_DEFAULT,
            state: Arc::default(),
        }
    }

    /// Sets how many consecutive failures open it [default: [`Self::FAILURES_DEFAULT`]].
    #[must_use]
    pub fn failures(mut self, max: u32) -> Self {
        self.failures_max = max.max(1);
        self
    }

    /// Sets how long it stays open [default: [`Self::REST_DEFAULT`]].
    #[must_use]
    pub fn rest(mut self, rest: Duration) -> Self {
        self.rest = rest;
        self
    }

    /// Checks that a request may be made now. After the rest period, one request is let through;
    /// others are refused until it has ended.
    ///
    /// # Errors
    ///
    /// While it is open: unavailable, with the time until its rest period is over.
    pub fn admit(&self, now: Instant) -> Result<(), ModelError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.open_until {
            Some(until) if until > now => {
                let failures = state.failures;
                let message = format!("is suspended after {failures} failures in a row");
                Err(ModelError::new(&*self.service, FailureKind::Unavailable, message)
                    .retry_after(until - now))
            }
            Some(_) => {
                state.open_until = Some(now + self.rest);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Records how a request ended. An error that is not retryable counts as a success: the service
    /// answered, and the request was at fault.
    pub fn note(&self, error: Option<&ModelError>, now: Instant) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match error.filter(|error| error.is_retryable()) {
            None => *state = State::default(),
            Some(error) => {
                state.failures = state.failures.saturating_add(1);
                if state.failures >= self.failures_max {
                    // The service may ask for a longer wait.
                    let rest = error.wait().unwrap_or_default().max(self.rest);
                    state.open_until = Some(now + rest);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a time to count from")]
    fn opens_rests_and_lets_one_through() {
        let start = Instant::now();
        let circuit = Circuit::new("g");
        let down = ModelError::new("g", FailureKind::Unavailable, "down");
        let refused = ModelError::new("g", FailureKind::Refused, "no");
        for _ in 1..Circuit::FAILURES_DEFAULT {
            circuit.note(Some(&down), start);
        }
        circuit.note(Some(&refused), start);
        for _ in 0..Circuit::FAILURES_DEFAULT {
            assert!(circuit.admit(start).is_ok());
            circuit.note(Some(&down), start);
        }
        let said = circuit.admit(start).unwrap_err().to_string();
        assert_eq!(said, "g: is suspended after 5 failures in a row");
        let rested = start + Circuit::REST_DEFAULT;
        let admitted = || circuit.admit(rested).is_ok();
        assert_eq!((admitted(), admitted()), (true, false));
        circuit.note(None, rested);
        assert!(admitted());
    }
}
