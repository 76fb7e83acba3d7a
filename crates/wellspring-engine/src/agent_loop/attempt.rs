//! One attempt at a turn: appends the model's output to the log as it arrives.

use tokio::time::Instant;
use tracing::Span;
use wellspring_core::{
    Event, ModelError, Outcome, Outline, PartId, PartKind, RunsOn, Stop, ToolCall,
};

use super::{AgentWork, has_calls, last_turn};
use crate::calls::execute::Running;
use crate::calls::typed_result::ResultTool;
use crate::hooks::TurnReport;
use crate::turn::Turn;

impl AgentWork {
    /// Appends one attempt to the log, and starts idempotent tools as soon as possible. Returns the
    /// last events of the model, to be appended together with the end of the turn.
    pub(super) async fn attempt<'a>(
        &'a self,
        turn: &mut Turn,
        running: &mut Running<'a>,
        result_tool: Option<&ResultTool>,
        span: &Span,
    ) -> Result<Vec<Event>, ModelError> {
        let mut parts: Vec<PartId> = Vec::new();
        let mut calls_seen = 0;
        let mut asked_at = Some(Instant::now());
        let mut last = Vec::new();
        loop {
            let next = tokio::select! {
                biased;
                next = turn.next() => next,
                Some(_) = running.next(), if !running.is_empty() => continue,
            };
            let Some(mut events) = next.transpose()? else { return Ok(last) };
            if let Some(asked_at) = asked_at.take() {
                let time = asked_at.elapsed().as_secs_f64();
                span.record("gen_ai.response.time_to_first_chunk", time);
            }
            for event in &mut events {
                self.place(event, &mut parts);
                if let Event::PartDelta { .. } = event {
                    for hooks in self.run.runtime.hooks(&self.def) {
                        hooks.on_chunk(self.run.id(), event);
                    }
                }
            }
            // A model that has stopped ends immediately, and none of its output starts a tool
            // before the turn has ended.
            if turn.stop().is_some() {
                last.append(&mut events);
                continue;
            }
            self.run.push_all(self.agent, events);
            for (at, call) in turn.tool_calls().iter().enumerate().skip(calls_seen) {
                let Some(part) = parts.get(call.part.id().0 as usize) else { continue };
                let earlier = &turn.tool_calls()[..at];
                self.start_early(*part, call, earlier, result_tool, running).await;
            }
            calls_seen = turn.tool_calls().len();
            self.run.room().await;
        }
    }

    /// Renumbers the parts of a model's event, and adds the properties of a call's tool.
    fn place(&self, event: &mut Event, parts: &mut Vec<PartId>) {
        if let Event::PartStarted { part, kind } = event {
            *part = self.run.mint_part();
            parts.push(*part);
            self.describe(kind);
            return;
        }
        event.rename_parts(|part| parts.get(part.0 as usize).copied().unwrap_or(part));
    }

    pub(crate) fn describe(&self, kind: &mut PartKind) {
        let PartKind::ToolCall(call) = kind else { return };
        let spec = self.def.tool(&call.name).map(|tool| tool.spec());
        let amended = self.run.amended();
        let client = amended.request.client_tools.iter().find(|tool| tool.name == call.name);
        if let Some(spec) = spec.or(client).filter(|_| call.runs_on == RunsOn::Here) {
            let ToolCall { title, kind, runs_on, .. } = &mut **call;
            title.get_or_insert_with(|| spec.title.clone().unwrap_or_else(|| spec.name.clone()));
            *kind = spec.kind;
            *runs_on = if client.is_some() { RunsOn::Client } else { RunsOn::Here };
        }
    }

    /// Appends the end of a turn; if nothing is left to do, also the end of the run, in the same
    /// frame. Most runs end this way, which saves a commit.
    pub(super) fn finish_turn(
        &self,
        mut last: Vec<Event>,
        turn: &Turn,
        number: u32,
        attempts: u32,
        result_tool: Option<&ResultTool>,
    ) -> Option<Outcome> {
        let (stop, usage) = turn.outcome();
        let calls = turn.tool_calls().len();
        for hooks in self.run.runtime.hooks(&self.def) {
            let (stop, usage) = (stop.clone(), usage.clone());
            let report = TurnReport { turn: number, attempts, stop, usage, calls };
            hooks.on_turn(self.run.id(), &report);
        }
        let may_be_last = self.agent.is_root()
            && calls == 0
            && result_tool.is_none()
            && stop != Stop::Paused
            && self.run.cancelled().is_none()
            && !self.run.has_news();
        let outcome = Outcome::Completed { stop: stop.clone() };
        last.push(Event::TurnFinished { stop, usage: usage.map(Box::new) });
        let mut is_last = false;
        self.run.owner.push_with(|transcript, mut waiting| {
            is_last = may_be_last
                && nothing_is_open(&transcript.outline)
                && !last_turn(transcript, self.agent)
                    .is_some_and(|turn| has_calls(transcript, turn))
                && Iterator::all(&mut waiting, only_speaks)
                && last.iter().all(only_speaks);
            if is_last {
                last.push(Event::RunFinished { outcome: Box::new(outcome.clone()) });
            }
            last.into_iter().map(|event| (self.agent, event)).collect()
        });
        is_last.then_some(outcome)
    }
}

/// Whether only the root agent's model has anything left to do.
fn nothing_is_open(outline: &Outline) -> bool {
    outline.calls.is_empty()
        && outline.questions.is_empty()
        && outline.inputs.is_empty()
        && outline.agents.len() == 1
}

/// Whether an event is model output that requires no action. An event that is not listed only costs
/// the run a commit.
fn only_speaks(event: &Event) -> bool {
    if let Event::PartStarted { kind, .. } = event {
        return !matches!(kind, PartKind::ToolCall(_));
    }
    matches!(
        event,
        Event::PartDelta { .. }
            | Event::PartAnnotated { .. }
            | Event::PartFinished { .. }
            | Event::SourceCited(_)
            | Event::UsageReported(_)
            | Event::TurnFinished { .. }
    )
}
