//! A circuit breaker: suspends requests to a gateway that keeps failing.
//!
//! `wellspring-models` has a breaker for providers, around its `Model`. This crate must not depend
//! on `wellspring-models`, and the core, on which both depend, has no clock.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use wellspring_core::{FailureKind, ModelError};

/// Consecutive failures that open the breaker.
pub(crate) const FAILURES_MAX: u32 = 5;

/// How long it stays open. After that, a single run is allowed, to check whether the gateway works
/// again.
pub(crate) const REST: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(crate) struct Circuit(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Consecutive failures so far.
    failures: u32,
    /// Until then, no run is let through; `None` while closed.
    open_until: Option<Instant>,
}

impl Circuit {
    pub(crate) fn admit(&self, name: &str) -> Result<(), ModelError> {
        let now = Instant::now();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.open_until {
            Some(until) if until > now => {
                let failures = state.failures;
                let message = format!("is suspended after {failures} failures in a row");
                let error = ModelError::new(name, FailureKind::Unavailable, message);
                Err(error.retry_after(until - now))
            }
            Some(_) => {
                state.open_until = Some(now + REST);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Records how a run ended. Only failures of the gateway count.
    pub(crate) fn note(&self, error: Option<&ModelError>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match error.filter(|error| error.is_retryable()) {
            None => *state = State::default(),
            Some(error) => {
                state.failures = state.failures.saturating_add(1);
                if state.failures >= FAILURES_MAX {
                    let rest = error.wait().unwrap_or_default().max(REST);
                    state.open_until = Some(Instant::now() + rest);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn opens_rests_and_lets_one_through() {
        let circuit = Circuit::default();
        let down = ModelError::new("g", FailureKind::Unavailable, "down");
        let refused = ModelError::new("g", FailureKind::Refused, "no");
        for _ in 1..FAILURES_MAX {
            circuit.note(Some(&down));
        }
        circuit.note(Some(&refused));
        for _ in 0..FAILURES_MAX {
            assert!(circuit.admit("g").is_ok());
            circuit.note(Some(&down));
        }
        let said = circuit.admit("g").unwrap_err().to_string();
        assert_eq!(said, "g: is suspended after 5 failures in a row");
        tokio::time::advance(REST).await;
        assert_eq!((circuit.admit("g").is_ok(), circuit.admit("g").is_ok()), (true, false));
        circuit.note(None);
        assert!(circuit.admit("g").is_ok());
    }
}
