//! Records to StreamingEvents.

use wellspring_core::{AgentNo, AgentOutline, Event, Outline, PartShape, Record, Role};

use super::types::StreamingEvent;
use crate::dialect::out::Out;
use crate::dialect::visible::{Grown, PARAGRAPH, breaks, grown};
use crate::dialect::{Before, Closed, Dialect};

/// StreamingEvents as JSON.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamingEvents;

impl Dialect for StreamingEvents {
    fn encode(&mut self, before: Before<'_>, record: &Record, out: &mut Out) {
        if let Some(EventRef { turn, delta, done }) = project(before.outline(), record) {
            out.write(|json| {
                json.raw(r#"{"requestId":"turn-"#).value(&turn).raw(r#"","delta":"#).string(delta);
                json.raw(if done { r#","done":true}"# } else { r#","done":false}"# });
            });
        }
    }

    fn close(&self, why: &Closed<'_>, out: &mut Out) {
        why.named(out);
    }
}

/// Encodes `record` as a StreamingEvent, given the outline `before` it.
#[must_use]
pub fn events(before: &Outline, record: &Record) -> Option<StreamingEvent> {
    project(before, record).map(|EventRef { turn, delta, done }| StreamingEvent {
        request_id: format!("turn-{turn}"),
        delta: delta.into(),
        done,
    })
}

struct EventRef<'a> {
    turn: u32,
    delta: &'a str,
    done: bool,
}

fn project<'a>(before: &Outline, record: &'a Record) -> Option<EventRef<'a>> {
    if before.finished {
        return None;
    }
    let root = before.agents.get(&AgentNo::ROOT);
    // Our turns count from 1, theirs from 0.
    let turn = root.map_or(0, |root| root.turn.saturating_sub(1));
    let words = |delta| Some(EventRef { turn, delta, done: false });
    let end = EventRef { turn, delta: "", done: true };
    match &record.event {
        Event::PartDelta { part, chunk } => match grown(before, *part) {
            Grown::Message => words(chunk),
            Grown::Thought
            | Grown::Output(..)
            | Grown::SubAgent(..)
            | Grown::SubAgentThought(..)
            | Grown::Hidden => None,
        },
        Event::PartsVoided { parts, why } => {
            breaks(before, parts, *why, PartShape::Text(Role::Assistant))
                .then_some(PARAGRAPH)
                .and_then(words)
        }
        Event::TurnFinished { .. } => record.agent.is_root().then_some(end),
        Event::RunFinished { .. } => {
            let unfinished = |root: &AgentOutline| root.in_turn || root.turn == 0;
            root.is_some_and(unfinished).then_some(end)
        }
        Event::RunStarted(_)
        | Event::RunAdopted { .. }
        | Event::RunPaused { .. }
        | Event::RunResumed { .. }
        | Event::TurnStarted(_)
        | Event::PartStarted { .. }
        | Event::PartAnnotated { .. }
        | Event::PartFinished { .. }
        | Event::ToolQueued { .. }
        | Event::ToolStarted { .. }
        | Event::ToolUpdated { .. }
        | Event::ToolFinished { .. }
        | Event::QuestionAsked(_)
        | Event::QuestionAnswered(_)
        | Event::AgentStarted { .. }
        | Event::AgentFinished { .. }
        | Event::PlanUpdated { .. }
        | Event::StateSet { .. }
        | Event::StatePatched { .. }
        | Event::SourceCited(_)
        | Event::FileProduced(_)
        | Event::UsageReported(_)
        | Event::InputAccepted { .. }
        | Event::InputApplied { .. }
        | Event::ResultReady { .. }
        | Event::Attached { .. }
        | Event::Extended(_) => None,
    }
}
