//! One turn with its attempts: what is retried, when, and how often.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use wellspring_core::{
    Event, Model, ModelError, Outcome, PartId, RunId, Transcript, TurnStarted, VoidReason,
};

use super::{AgentWork, turns};
use crate::calls::execute::Running;
use crate::calls::typed_result::ResultTool;
use crate::telemetry;
use crate::turn::Turn;

/// Maximum delay between two attempts if the provider names none.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Maximum delay that a provider may request. With a longer one, the run fails.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(5 * 60);

impl AgentWork {
    /// Runs one turn, with as many attempts as necessary. Returns the calls that are already
    /// running.
    pub(super) async fn turn(
        &self,
        first: &Arc<dyn Model>,
        result_tool: Option<&ResultTool>,
    ) -> Result<Running<'_>, Outcome> {
        let (turn_no, mut attempt) = self.run.folded(|transcript| {
            let at = transcript.outline.agents.get(&self.agent);
            at.map_or(
                (1, 1),
                |at| if at.in_turn { (at.turn, at.attempt + 1) } else { (at.turn + 1, 1) },
            )
        });
        let mut announced = self.agent.is_root() && self.run.take_announced_turn();
        if announced {
            attempt -= 1;
        } else if attempt > 1 {
            self.void_attempt();
        }
        let mut model = Arc::clone(first);
        let mut config = self.turn_config(&model, result_tool);
        let mut span = telemetry::chat(&self.span, &self.run, &*model, &config);
        // Attempts that were made because another model had failed. Limits count only the other
        // attempts.
        let mut fallbacks = 0;
        loop {
            if !std::mem::take(&mut announced) {
                self.run.push(
                    self.agent,
                    Event::TurnStarted(Box::new(TurnStarted {
                        turn: turn_no,
                        attempt,
                        model: config.model_name.clone().unwrap_or_else(|| model.name().into()),
                        streaming: config.streaming,
                    })),
                );
                self.run.commit().await;
            }
            let mut turn = Turn::new(config);
            let mut running = Running::default();
            let error = match self.attempt(&mut turn, &mut running, result_tool, &span).await {
                Ok(last) => {
                    telemetry::chat_ended(&span, &turn, attempt);
                    return match self.finish_turn(last, &turn, turn_no, attempt, result_tool) {
                        Some(end) => {
                            self.run.commit().await;
                            Err(end)
                        }
                        None => Ok(running),
                    };
                }
                Err(error) => error,
            };
            // Closes the connection, and ends the idempotent tools that had started early.
            drop((turn, running));
            if let Some(outcome) = self.run.cancelled() {
                return Err(outcome);
            }
            if let Some(next) = model.fallback() {
                telemetry::chat_failed(&span, &error, attempt);
                let (run, next_name) = (self.run.id(), next.name());
                tracing::warn!(%run, turn = turn_no, attempt, %error, next_name, "asking the fallback model");
                self.run.commit().await;
                self.void_attempt();
                model = next;
                fallbacks += 1;
                attempt += 1;
                self.run.fallbacks.fetch_add(1, Ordering::Relaxed);
                config = self.turn_config(&model, result_tool);
                // The requested model belongs to the first model's provider.
                config.model_name = None;
                span = telemetry::chat(&self.span, &self.run, &*model, &config);
                continue;
            }
            let tries = attempt.saturating_sub(fallbacks);
            let wait = error.wait().unwrap_or_else(|| backoff(self.run.id(), tries));
            if !error.is_retryable() || tries >= self.def.limits.attempts || wait > RETRY_AFTER_MAX
            {
                telemetry::chat_failed(&span, &error, attempt);
                return Err(failed(&error));
            }
            let fallen_back = self.run.fallbacks.load(Ordering::Relaxed);
            let retries = self.run.folded(retries).saturating_sub(fallen_back);
            if retries >= self.def.limits.retries {
                telemetry::chat_failed(&span, &error, attempt);
                return Err(spent(failed(&error), retries));
            }
            tracing::warn!(run = %self.run.id(), turn = turn_no, attempt, %error, "the turn is tried again");
            self.run.commit().await;
            self.void_attempt();
            self.run.commit().await;
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.run.signal.cancelled() => {}
            }
            if let Some(outcome) = self.run.cancelled() {
                return Err(outcome);
            }
            attempt += 1;
            if fallbacks > 0 {
                telemetry::chat_failed(&span, &error, attempt - 1);
                model = Arc::clone(first);
                config = self.turn_config(&model, result_tool);
                span = telemetry::chat(&self.span, &self.run, &*model, &config);
            } else {
                config = self.turn_config(&model, result_tool);
            }
        }
    }

    fn void_attempt(&self) {
        let parts: Vec<PartId> = self.run.folded(|transcript| {
            let mine = transcript.outline.parts.iter().filter(|(_, part)| part.agent == self.agent);
            mine.map(|(part, _)| *part).collect()
        });
        if !parts.is_empty() {
            self.run.push(self.agent, Event::PartsVoided { parts, why: VoidReason::Restarted });
        }
    }
}

/// Retries back off exponentially from 0.5 s, with up to 25 % jitter. The jitter comes from the
/// run's id, so that runs that failed together do not retry together, and a run is still
/// reproducible.
fn backoff(run: RunId, attempt: u32) -> Duration {
    let base = Duration::from_millis(500 << attempt.saturating_sub(1).min(8)).min(BACKOFF_MAX);
    // A prime number, so that the jitter is evenly distributed over the attempts.
    let jitter = run.uuid().as_u128().wrapping_mul(u128::from(attempt) + 1) % 101;
    base.mul_f64(1.0 - f64::from(u8::try_from(jitter).unwrap_or(0)) / 404.0)
}

pub(crate) fn failed(error: &ModelError) -> Outcome {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        message.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    Outcome::Failed { kind: error.kind(), message: message.into(), retryable: error.is_retryable() }
}

/// The number of retries so far, over all turns and agents.
fn retries(transcript: &Transcript) -> u32 {
    let turns = transcript.agents.keys().flat_map(|agent| turns(transcript, *agent));
    turns.map(|turn| turn.attempt.saturating_sub(1)).fold(0, u32::saturating_add)
}

/// Adds to a failure's message that the run has used all its retries.
fn spent(outcome: Outcome, retries: u32) -> Outcome {
    match outcome {
        Outcome::Failed { kind, message, retryable } => {
            let message = format!("{message}; the run has tried again {retries} times, its limit");
            Outcome::Failed { kind, message: message.into(), retryable }
        }
        other @ (Outcome::Completed { .. } | Outcome::Cancelled { .. }) => other,
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn waits_double_to_a_maximum_and_differ_from_run_to_run() {
        let wanted = [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000];
        for (attempt, most) in (1..).zip(wanted.map(Duration::from_millis)) {
            let waits: std::collections::BTreeSet<Duration> =
                (0..200).map(|run| backoff(RunId::new(Uuid::from_u128(run)), attempt)).collect();
            assert!(waits.iter().all(|wait| *wait <= most && *wait > most.mul_f64(0.75)));
            assert!(waits.len() > 90, "{attempt}: {waits:?}");
        }
        let run = RunId::new(Uuid::from_u128(1));
        assert!(backoff(run, u32::MAX) <= BACKOFF_MAX);
    }
}
