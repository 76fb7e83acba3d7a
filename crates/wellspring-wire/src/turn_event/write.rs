//! Records to TurnEvents.

use serde_json::Value;
use wellspring_core::{
    AgentNo, AgentOutline, CallOutline, CallState, Event, Item, Outcome, Outline, PartId, PartKind,
    Record, Stop, ToolOutcome, Transcript, Usage,
};

use super::types::{TurnError, TurnEvent, TurnUsage};
use crate::dialect::{Before, Closed, Dialect, Fold};
use crate::options::{Options, UsageReports};
use crate::out::Out;
use crate::project::{Grown, TAKEN_BACK, failure, grown, wire_id};

/// TurnEvents as JSON.
#[derive(Clone, Copy, Debug, Default)]
pub struct TurnEvents {
    usage: UsageReports,
}

impl Dialect for TurnEvents {
    fn encode(&mut self, before: Before<'_>, record: &Record, out: &mut Out) {
        self.project(before, record, |said| match said {
            Said::TextDelta(text) => out.write(|json| {
                json.raw(r#"{"type":"text_delta","text":"#).string(text).raw("}");
            }),
            Said::Other(event) => out.event(&event),
        });
    }

    /// A turn's whole text is repeated at its end.
    fn fold(&self) -> Fold {
        Fold::Transcript
    }

    fn close(&self, why: &Closed<'_>, out: &mut Out) {
        out.event(&TurnEvent::Error { error: TurnError { message: why.text() } });
    }
}

/// An event that borrows what is frequent.
enum Said<'a> {
    TextDelta(&'a str),
    Other(TurnEvent),
}

impl From<Said<'_>> for TurnEvent {
    fn from(said: Said<'_>) -> Self {
        match said {
            Said::TextDelta(text) => Self::TextDelta { text: text.into() },
            Said::Other(event) => event,
        }
    }
}

impl TurnEvents {
    pub(crate) fn new(options: &Options) -> Self {
        Self { usage: options.usage }
    }

    /// What `record` says as TurnEvents, given the run `before` it.
    #[must_use]
    pub fn events(&self, before: Before<'_>, record: &Record) -> Vec<TurnEvent> {
        let mut events = Vec::new();
        self.project(before, record, |said| events.push(said.into()));
        events
    }

    fn project(&self, before: Before<'_>, record: &Record, mut emit: impl FnMut(Said<'_>)) {
        let (transcript, before) = (before.transcript(), before.outline());
        if before.finished {
            return;
        }
        let root = before.agents.get(&AgentNo::ROOT);
        match &record.event {
            Event::PartDelta { part, chunk } => match grown(before, *part) {
                Grown::Message if root.is_none_or(streams) => emit(Said::TextDelta(chunk)),
                Grown::Message
                | Grown::Thought
                | Grown::Output(..)
                | Grown::SubAgent(..)
                | Grown::Hidden => {}
            },
            Event::TurnFinished { stop, usage } if record.agent.is_root() => {
                text_done(transcript, root.is_none_or(streams), &mut emit);
                for (call, outline) in root_calls(before) {
                    if before.parts.contains_key(&call) && !has_started(outline) {
                        announce(before, call, outline, &mut emit);
                    }
                }
                let usage = usage.as_deref().filter(|_| self.usage == UsageReports::Included);
                emit(Said::Other(finished(stop, usage)));
            }
            Event::PartFinished { part } if root.is_none_or(|root| !root.in_turn) => {
                if let Some(outline) = root_call(before, *part)
                    && outline.state == CallState::Asked
                {
                    announce(before, *part, outline, &mut emit);
                }
            }
            Event::PartsVoided { parts, .. } => {
                for part in parts {
                    if let Some(outline) = root_call(before, *part).filter(|call| has_started(call))
                    {
                        let output = TAKEN_BACK.into();
                        result(before, *part, outline, (output, true), &mut emit);
                    }
                }
            }
            Event::ToolStarted { call, .. } => announce_early(before, *call, &mut emit),
            Event::ToolFinished { call, outcome, result: said } => {
                announce_early(before, *call, &mut emit);
                if let Some(outline) = root_call(before, *call) {
                    let is_error = match outcome {
                        ToolOutcome::Ok => false,
                        ToolOutcome::Error
                        | ToolOutcome::Denied
                        | ToolOutcome::Interrupted
                        | ToolOutcome::TimedOut => true,
                    };
                    let output = said.output.clone();
                    result(before, *call, outline, (output, is_error), &mut emit);
                }
            }
            Event::RunFinished { outcome } => match (failure(outcome), &**outcome) {
                (Some(message), _) => {
                    let error = TurnError { message: message.into() };
                    emit(Said::Other(TurnEvent::Error { error }));
                }
                (None, Outcome::Completed { stop }) if root.is_none_or(|root| root.turn == 0) => {
                    text_done(transcript, true, &mut emit);
                    emit(Said::Other(finished(stop, None)));
                }
                (None, _) => {}
            },
            Event::RunStarted(_)
            | Event::RunAdopted { .. }
            | Event::RunPaused { .. }
            | Event::RunResumed { .. }
            | Event::TurnStarted(_)
            | Event::TurnFinished { .. }
            | Event::PartStarted { .. }
            | Event::PartAnnotated { .. }
            | Event::PartFinished { .. }
            | Event::ToolQueued { .. }
            | Event::ToolUpdated { .. }
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
            | Event::Extended(_) => {}
        }
    }
}

/// The text of the root's latest turn; of all that it said, if it has no turns.
fn turn_text(transcript: &Transcript) -> String {
    let Some(root) = transcript.agents.get(&AgentNo::ROOT) else { return String::new() };
    let latest = root.items.iter().rev().find_map(|item| match item {
        Item::Turn(turn) => Some(turn),
        Item::Part(_) | Item::Input(_) => None,
    });
    let Some(turn) = latest else { return transcript.words(AgentNo::ROOT) };
    let parts = turn.parts.iter().filter_map(|part| transcript.parts.get(part));
    parts.filter(|part| part.kind == PartKind::TEXT).map(|part| &*part.text).collect()
}

fn text_done(transcript: Option<&Transcript>, streams: bool, emit: &mut impl FnMut(Said<'_>)) {
    if let Some(text) = transcript.map(turn_text)
        && (streams || !text.is_empty())
    {
        emit(Said::Other(TurnEvent::TextDone { text }));
    }
}

/// Whether words come as deltas. A run without turns streams.
fn streams(root: &AgentOutline) -> bool {
    root.streaming || !root.in_turn
}

fn root_call(before: &Outline, call: PartId) -> Option<&CallOutline> {
    before.call(call).filter(|call| call.agent.is_root())
}

fn root_calls(before: &Outline) -> impl Iterator<Item = (PartId, &CallOutline)> {
    before.calls.iter().filter(|(_, call)| call.agent.is_root()).map(|(id, call)| (*id, call))
}

fn has_started(call: &CallOutline) -> bool {
    matches!(call.state, CallState::Started(_))
}

/// A call that gets on before its turn has ended is shown at that moment.
fn announce_early(before: &Outline, call: PartId, emit: &mut impl FnMut(Said<'_>)) {
    // The outline keeps a part until its turn ends, or until it closes outside one.
    if let Some(outline) = root_call(before, call)
        && before.parts.contains_key(&call)
        && !has_started(outline)
    {
        announce(before, call, outline, emit);
    }
}

fn announce(
    before: &Outline,
    call: PartId,
    outline: &CallOutline,
    emit: &mut impl FnMut(Said<'_>),
) {
    let Some(id) = wire_id(before, call) else { return };
    let args = match serde_json::from_str(&outline.arguments) {
        Ok(Value::Object(args)) => args,
        Ok(_) | Err(_) => serde_json::Map::new(),
    };
    emit(Said::Other(TurnEvent::ToolCall {
        tool_call_id: id.to_string(),
        tool_name: outline.tool.name.as_ref().into(),
        args,
    }));
}

fn result(
    before: &Outline,
    call: PartId,
    outline: &CallOutline,
    (output, is_error): (Value, bool),
    emit: &mut impl FnMut(Said<'_>),
) {
    let Some(id) = wire_id(before, call) else { return };
    emit(Said::Other(TurnEvent::ToolResult {
        tool_call_id: id.to_string(),
        tool_name: outline.tool.name.as_ref().into(),
        output,
        is_error,
    }));
}

fn finished(stop: &Stop, usage: Option<&Usage>) -> TurnEvent {
    let finish_reason = match stop {
        Stop::EndTurn | Stop::StopSequence => "stop",
        Stop::ToolCalls => "tool-calls",
        Stop::MaxTokens => "length",
        Stop::Refusal | Stop::ContentFilter => "content-filter",
        Stop::Paused | Stop::TurnLimit | Stop::Budget(_) => "other",
        Stop::Other(reason) => reason,
    };
    let usage = usage.map(|usage| TurnUsage { input: usage.input, output: usage.output });
    TurnEvent::Finished { finish_reason: finish_reason.into(), usage }
}
