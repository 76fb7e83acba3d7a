//! The native format: the record's own JSON. Nothing is lost.
//!
//! A reader may choose [kinds](KINDS) of records.

use std::collections::BTreeSet;

use wellspring_core::{Event, Record};

use crate::dialect::options::Options;
use crate::dialect::out::Out;
use crate::dialect::{Before, Closed, Dialect};

#[cfg(test)]
mod tests;

/// Writes records unchanged.
#[derive(Clone, Debug, Default)]
pub struct Records {
    kinds: Option<BTreeSet<&'static str>>,
}

impl Records {
    pub(crate) fn new(options: &Options) -> Self {
        Self { kinds: options.kinds.clone() }
    }
}

impl Dialect for Records {
    fn encode(&mut self, _: Before<'_>, record: &Record, out: &mut Out) {
        if self.kinds.as_ref().is_some_and(|kinds| !kinds.contains(kind(&record.event))) {
            return;
        }
        // Most records are deltas of the root agent: these are written by hand.
        if let Event::PartDelta { part, chunk } = &record.event
            && record.agent.is_root()
        {
            out.write(|json| {
                json.raw(r#"{"seq":"#).value(&record.seq).raw(r#","at":"#).value(&record.at);
                json.raw(r#","event":{"part_delta":{"part":"#).value(part);
                json.raw(r#","chunk":"#).string(chunk).raw("}}}");
            });
        } else {
            out.event(record);
        }
    }

    fn close(&self, why: &Closed<'_>, out: &mut Out) {
        why.named(out);
    }
}

/// An event's kind: its name in JSON.
#[must_use]
pub fn kind(event: &Event) -> &'static str {
    match event {
        Event::RunStarted(_) => "run_started",
        Event::RunAdopted { .. } => "run_adopted",
        Event::RunPaused { .. } => "run_paused",
        Event::RunResumed { .. } => "run_resumed",
        Event::TurnStarted(_) => "turn_started",
        Event::TurnFinished { .. } => "turn_finished",
        Event::PartStarted { .. } => "part_started",
        Event::PartDelta { .. } => "part_delta",
        Event::PartAnnotated { .. } => "part_annotated",
        Event::PartFinished { .. } => "part_finished",
        Event::PartsVoided { .. } => "parts_voided",
        Event::ToolQueued { .. } => "tool_queued",
        Event::ToolStarted { .. } => "tool_started",
        Event::ToolUpdated { .. } => "tool_updated",
        Event::ToolFinished { .. } => "tool_finished",
        Event::QuestionAsked(_) => "question_asked",
        Event::QuestionAnswered(_) => "question_answered",
        Event::AgentStarted { .. } => "agent_started",
        Event::AgentFinished { .. } => "agent_finished",
        Event::PlanUpdated { .. } => "plan_updated",
        Event::StateSet { .. } => "state_set",
        Event::StatePatched { .. } => "state_patched",
        Event::SourceCited(_) => "source_cited",
        Event::FileProduced(_) => "file_produced",
        Event::UsageReported(_) => "usage_reported",
        Event::InputAccepted { .. } => "input_accepted",
        Event::InputApplied { .. } => "input_applied",
        Event::ResultReady { .. } => "result_ready",
        Event::Attached { .. } => "attached",
        Event::Extended(_) => "extended",
        Event::RunFinished { .. } => "run_finished",
    }
}

/// Every kind of record.
pub const KINDS: [&str; 31] = [
    "run_started",
    "run_adopted",
    "run_paused",
    "run_resumed",
    "turn_started",
    "turn_finished",
    "part_started",
    "part_delta",
    "part_annotated",
    "part_finished",
    "parts_voided",
    "tool_queued",
    "tool_started",
    "tool_updated",
    "tool_finished",
    "question_asked",
    "question_answered",
    "agent_started",
    "agent_finished",
    "plan_updated",
    "state_set",
    "state_patched",
    "source_cited",
    "file_produced",
    "usage_reported",
    "input_accepted",
    "input_applied",
    "result_ready",
    "attached",
    "extended",
    "run_finished",
];
