//! One attempt: a turn of a script, as a stream of batches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use wellspring_core::{AttemptStream, Batch, FailureKind, ModelError, Stop, Usage};

use super::control::{Failure, Gate};
use super::pieces::{NotOpen, Voice};
use super::say::{Say, Step};

/// Plays one turn. It spawns no task, so dropping it ends it.
pub(super) struct Player {
    model: Arc<str>,
    steps: VecDeque<Step>,
    /// `None` once it was emitted, or if there will be none.
    stop: Option<(Stop, Option<Usage>)>,
    voice: Voice,
    pace: Duration,
    each: Option<Gate>,
}

impl Player {
    pub(super) fn new(model: Arc<str>, say: Say, streaming: bool) -> Self {
        let (steps, stop, usage) = say.into_steps();
        Self {
            model,
            steps: steps.into(),
            stop: Some((stop, usage)),
            voice: if streaming { Voice::streaming() } else { Voice::whole() },
            pace: Duration::ZERO,
            each: None,
        }
    }

    /// Plays what happens before the model answers.
    pub(super) async fn connect(&mut self) -> Result<(), ModelError> {
        let Some(at) = self.steps.iter().position(|step| matches!(step, Step::Connected)) else {
            return Ok(());
        };
        for _ in 0..=at {
            let Some(step) = self.steps.pop_front() else { break };
            self.play(step).await?;
        }
        if self.voice.is_silent() {
            Ok(())
        } else {
            Err(self.broken("the script says something before it is connected"))
        }
    }

    pub(super) fn into_stream(self) -> AttemptStream {
        stream::unfold(self, async |mut player| {
            let item = player.next().await.transpose()?;
            Some((item, player))
        })
        .boxed()
    }

    /// The next batch. A batch is emitted before the script waits, fails or ends.
    async fn next(&mut self) -> Result<Option<Batch>, ModelError> {
        while let Some(step) = self.steps.front() {
            if !step.speaks()
                && let Some(batch) = self.voice.flush()
            {
                return Ok(Some(batch));
            }
            let Some(step) = self.steps.pop_front() else { break };
            self.play(step).await?;
        }
        if self.stop.is_some() {
            self.voice.finish_all();
        }
        if let Some(batch) = self.voice.flush() {
            return Ok(Some(batch));
        }
        Ok(self.stop.take().map(|(stop, usage)| self.voice.last_words(stop, usage)))
    }

    async fn play(&mut self, step: Step) -> Result<(), ModelError> {
        match step {
            Step::Cut => self.keep_pace().await,
            Step::Start(kind) => self.voice.start(kind),
            Step::Delta(part, text) => self.allowed(|voice| voice.delta(part, &text))?,
            Step::Annotate(part, annotation) => {
                self.allowed(|voice| voice.annotate(part, annotation))?;
            }
            Step::Finish(part) => self.allowed(|voice| voice.finish(part))?,
            Step::Fact(event) => self.voice.fact(event),
            Step::Connected => {}
            Step::Wait(time) => tokio::time::sleep(time).await,
            Step::Pace(time) => self.pace = time,
            Step::Gate(gate) => gate.wait().await,
            Step::Each(gate) => self.each = Some(gate),
            Step::Flaky(attempts, times, failure) => {
                if attempts.next() <= times {
                    return Err(self.fail(&failure));
                }
            }
            Step::Fail(failure) => return Err(self.fail(&failure)),
            Step::BreakOff => self.end(),
            Step::Hang => std::future::pending().await,
        }
        Ok(())
    }

    async fn keep_pace(&self) {
        if !self.pace.is_zero() {
            tokio::time::sleep(self.pace).await;
        }
        if let Some(gate) = &self.each {
            gate.wait().await;
        }
    }

    fn allowed(
        &mut self,
        say: impl FnOnce(&mut Voice) -> Result<(), NotOpen>,
    ) -> Result<(), ModelError> {
        say(&mut self.voice).map_err(|NotOpen { part }| {
            self.broken(&format!("the script says more of part {part}, which is not open"))
        })
    }

    /// A script that breaks the grammar is a mistake in the test, so it panics.
    fn broken(&mut self, what: &str) -> ModelError {
        self.fail(&Failure::new(FailureKind::Internal, what))
    }

    fn fail(&mut self, failure: &Failure) -> ModelError {
        self.end();
        failure.of(&self.model)
    }

    /// Ends the turn without a stop.
    fn end(&mut self) {
        self.steps.clear();
        self.stop = None;
        self.voice.fall_silent();
    }
}
