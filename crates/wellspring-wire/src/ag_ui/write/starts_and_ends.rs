//! Starts and ends of runs, turns and sub-agents.

use serde_json::{Map, json};
use wellspring_core::{
    Amendment, FailureKind, Outcome, Outline, RunStarted, Stop, Transcript, TurnStarted, Usage,
    Wait,
};

use super::super::ids;
use super::super::totals::{self, token_usage};
use super::super::types::{
    Event, Metadata, RunError, RunFinished, RunOutcome, StateSnapshot, StepFinished, SubagentError,
    SubagentFinished, SubagentOutcome,
};
use super::Scene;
use super::record::Project;

impl Project<'_> {
    pub(super) fn run_started(&mut self, started: &RunStarted) {
        let mut after = Outline::default();
        after.apply(self.record);
        let Some(scene) = Scene::new(&after) else { return };
        self.say(scene.run_started());
        if let Some(state) = &started.request.state {
            self.say(StateSnapshot { snapshot: state.clone(), ..StateSnapshot::default() });
        }
    }

    /// Starts another run on the wire. It repeats the calls that it continues: a client that
    /// knows only this run could not match their results otherwise.
    pub(super) fn resumed(
        &mut self,
        scene: &Scene<'_>,
        wire_run: Option<&str>,
        amended: Option<&Amendment>,
    ) {
        let parent = amended.and_then(|amended| amended.wire_parent.as_deref());
        self.say(match wire_run {
            Some(run) => scene.run_resumed(run, parent),
            None => scene.run_started(),
        });
        self.snapshot(&[]);
        scene.open_all(self.emit);
    }

    pub(super) fn paused(&mut self, scene: &Scene<'_>, waits: &[Wait]) {
        let interrupts = scene.interrupts(waits);
        scene.close_all(&interrupts, self.emit);
        (self.emit)(scene.paused(waits, interrupts));
    }

    pub(super) fn finished(&mut self, scene: &Scene<'_>, outcome: &Outcome) {
        scene.close_all(&[], self.emit);
        self.terminal(scene, outcome);
    }

    /// The end of a run that was never answered. The wire's run has finished, so the end needs
    /// another wire run.
    pub(super) fn finished_while_paused(&mut self, scene: &Scene<'_>, outcome: &Outcome) {
        self.say(scene.run_started());
        self.snapshot(&[]);
        self.terminal(scene, outcome);
    }

    fn terminal(&mut self, scene: &Scene<'_>, outcome: &Outcome) {
        (self.emit)(terminal(scene, self.run.transcript(), outcome));
    }

    pub(super) fn turn_started(&mut self, scene: &Scene<'_>, turn: &TurnStarted) {
        let number = self.record.agent;
        let Some(agent) = self.before.agents.get(&number) else { return };
        if agent.in_turn && agent.turn == turn.turn {
            return;
        }
        scene.close_step(number, self.emit);
        scene.open_step(number, turn.turn, Some(("model", json!(turn.model))), self.emit);
    }

    pub(super) fn turn_finished(&mut self, scene: &Scene<'_>, stop: &Stop, usage: Option<&Usage>) {
        let agent = self.before.agents.get(&self.record.agent).filter(|agent| agent.in_turn);
        let Some(agent) = agent else { return };
        let mut metadata = Metadata::new();
        metadata.insert("number".into(), agent.turn.into());
        metadata.insert("finishReason".into(), finish_reason(stop).into());
        if let Some(usage) = usage {
            metadata.insert("usage".into(), json!(token_usage(usage)));
        }
        self.say(StepFinished {
            step_name: ids::step(agent.turn),
            subagent_run_id: scene.tag(self.record.agent),
            metadata: Some(metadata),
            ..StepFinished::default()
        });
    }

    pub(super) fn agent_finished(&mut self, scene: &Scene<'_>, outcome: &Outcome) {
        let subagent_run_id = ids::agent(scene.head.run, self.record.agent);
        match outcome {
            Outcome::Completed { .. } => self.say(SubagentFinished {
                subagent_run_id,
                outcome: Some(SubagentOutcome::Success {}),
                ..SubagentFinished::default()
            }),
            Outcome::Cancelled { why, .. } => self.say(SubagentError {
                subagent_run_id,
                message: why.clone().unwrap_or_else(|| "cancelled".into()),
                code: Some("cancelled".into()),
                ..SubagentError::default()
            }),
            Outcome::Failed { kind, message, .. } => self.say(SubagentError {
                subagent_run_id,
                message: message.clone(),
                code: Some(failure_code(*kind).into()),
                ..SubagentError::default()
            }),
        }
    }
}

/// A run's end.
pub(in super::super) fn terminal(
    scene: &Scene<'_>,
    run: Option<&Transcript>,
    outcome: &Outcome,
) -> Event {
    let usage = run.map(totals::usage).unwrap_or_default();
    let finished = RunFinished {
        thread_id: ids::thread(scene.head),
        run_id: ids::run(scene.head),
        ..RunFinished::default()
    };
    match outcome {
        Outcome::Completed { stop } => {
            let reason = [("finishReason".to_owned(), finish_reason(stop).into())];
            RunFinished {
                result: run.and_then(totals::result),
                outcome: Some(RunOutcome::Success { pending_tool_call_ids: Vec::new() }),
                usage,
                metadata: Some(Map::from_iter(reason)),
                ..finished
            }
            .into()
        }
        Outcome::Cancelled { why, by, .. } => {
            let why = why.as_ref().map(|why| ("why".to_owned(), json!(why)));
            let by = by.as_ref().map(|by| ("by".to_owned(), json!(by)));
            let metadata: Metadata = why.into_iter().chain(by).collect();
            RunFinished {
                outcome: Some(RunOutcome::Cancelled {}),
                usage,
                metadata: Some(metadata).filter(|metadata| !metadata.is_empty()),
                ..finished
            }
            .into()
        }
        Outcome::Failed { kind, message, retryable } => {
            let metadata = [("retryable".to_owned(), json!(retryable))];
            RunError {
                message: message.clone(),
                code: Some(failure_code(*kind).into()),
                usage,
                metadata: Some(Map::from_iter(metadata)),
                ..RunError::default()
            }
            .into()
        }
    }
}

const fn failure_code(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Unavailable => "unavailable",
        FailureKind::RateLimited => "rate_limited",
        FailureKind::Refused => "refused",
        FailureKind::BadRequest => "bad_request",
        FailureKind::Protocol => "protocol",
        FailureKind::TimedOut => "timed_out",
        FailureKind::Repetition => "repetition",
        FailureKind::Lost => "lost",
        FailureKind::Internal => "internal",
    }
}

fn finish_reason(stop: &Stop) -> &str {
    match stop {
        Stop::EndTurn => "end_turn",
        Stop::ToolCalls => "tool_calls",
        Stop::MaxTokens => "max_tokens",
        Stop::StopSequence => "stop_sequence",
        Stop::Refusal => "refusal",
        Stop::ContentFilter => "content_filter",
        Stop::Paused => "paused",
        Stop::TurnLimit => "turn_limit",
        Stop::Budget(_) => "budget",
        Stop::Other(reason) => reason,
    }
}
