//! Records to TurnEvents.

use serde_json::{Map, Value};
use wellspring_core::{
    AgentNo, AgentOutline, CallOutline, CallState, Event, Item, Outcome, Outline, Part, PartId,
    PartKind, Record, Stop, ToolOutcome, Transcript, TurnItem, Usage,
};

use super::types::{TurnError, TurnEvent, TurnUsage};
use crate::dialect::end_message::{failure, finish_reason};
use crate::dialect::options::{Options, UsageReports};
use crate::dialect::out::Out;
use crate::dialect::visible::{Grown, TAKEN_BACK, grown, wire_id};
use crate::dialect::{Before, Closed, Dialect, Fold};

/// TurnEvents as JSON.
#[derive(Clone, Copy, Debug, Default)]
pub struct TurnEvents {
    usage: UsageReports,
}

impl Dialect for TurnEvents {
    fn encode(&mut self, before: Before<'_>, record: &Record, out: &mut Out) {
        self.project(before, record, |said| match said {
            EventRef::TextDelta(text) => out.write(|json| {
                json.raw(r#"{"type":"text_delta","text":"#).string(text).raw("}");
            }),
            EventRef::Other(event) => out.event(&event),
        });
    }

    /// The end of a turn repeats its whole text.
    fn fold(&self) -> Fold {
        Fold::Transcript
    }

    fn close(&self, why: &Closed<'_>, out: &mut Out) {
        out.event(&TurnEvent::Error { error: TurnError { message: why.text() } });
    }
}

/// An event that borrows its frequent members.
enum EventRef<'a> {
    TextDelta(&'a str),
    Other(TurnEvent),
}

impl From<EventRef<'_>> for TurnEvent {
    fn from(said: EventRef<'_>) -> Self {
        match said {
            EventRef::TextDelta(text) => Self::TextDelta { text: text.into() },
            EventRef::Other(event) => event,
        }
    }
}

impl TurnEvents {
    pub(crate) fn new(options: &Options) -> Self {
        Self { usage: options.usage }
    }

    /// Encodes `record` as TurnEvents, given the run `before` it.
    #[must_use]
    pub fn events(&self, before: Before<'_>, record: &Record) -> Vec<TurnEvent> {
        let mut events = Vec::new();
        self.project(before, record, |said| events.push(said.into()));
        events
    }

    fn project(&self, before: Before<'_>, record: &Record, mut emit: impl FnMut(EventRef<'_>)) {
        let (transcript, before) = (before.transcript(), before.outline());
        if before.finished {
            return;
        }
        let root = before.agents.get(&AgentNo::ROOT);
        match &record.event {
            Event::PartDelta { part, chunk } => match grown(before, *part) {
                Grown::Message if root.is_none_or(streams) => emit(EventRef::TextDelta(chunk)),
                Grown::Message
                | Grown::Thought
                | Grown::Output(..)
                | Grown::SubAgent(..)
                | Grown::SubAgentThought(..)
                | Grown::Hidden => {}
            },
            Event::TurnFinished { stop, usage } if record.agent.is_root() => {
                text_done(transcript, root.is_none_or(streams), &mut emit);
                let calls = transcript.map(turn_calls).unwrap_or_default();
                for (call, name, part) in &calls {
                    let text = part.call.as_ref().and_then(|it| it.arguments.as_ref());
                    let args = match text {
                        Some(edited) => edited.as_object().cloned().unwrap_or_default(),
                        None => arguments(&part.text),
                    };
                    announce(before, *call, name, args, &mut emit);
                }
                let usage = usage.as_deref().filter(|_| self.usage == UsageReports::Included);
                emit(EventRef::Other(finished(stop, usage)));
                // Calls that finished before the model's turn.
                for (call, name, part) in calls {
                    let finished = part.call.as_ref().and_then(|call| call.finished.as_ref());
                    if let Some((outcome, said)) = finished {
                        let said = (said.output.clone(), is_error(*outcome));
                        result(before, call, name, said, &mut emit);
                    }
                }
            }
            Event::PartFinished { part } => {
                if let Some(outline) = root_call(before, *part).filter(|_| !in_turn(before, *part))
                    && outline.state == CallState::Asked
                {
                    let args = arguments(&outline.arguments);
                    announce(before, *part, &outline.tool.name, args, &mut emit);
                }
            }
            // The calls of a turn are shown at its end, with their results if they already have
            // them.
            Event::PartsVoided { parts, .. } => {
                for part in parts {
                    let shown = root_call(before, *part).filter(|_| !in_turn(before, *part));
                    if let Some(outline) = shown.filter(|call| call.state != CallState::Asked) {
                        let said = (TAKEN_BACK.into(), true);
                        result(before, *part, &outline.tool.name, said, &mut emit);
                    }
                }
            }
            Event::ToolFinished { call, outcome, result: said } => {
                if let Some(outline) = root_call(before, *call).filter(|_| !in_turn(before, *call))
                {
                    let said = (said.output.clone(), is_error(*outcome));
                    result(before, *call, &outline.tool.name, said, &mut emit);
                }
            }
            Event::RunFinished { outcome } => match (failure(outcome), &**outcome) {
                (Some(message), _) => {
                    let error = TurnError { message: message.into() };
                    emit(EventRef::Other(TurnEvent::Error { error }));
                }
                (None, Outcome::Completed { stop }) if root.is_none_or(|root| root.turn == 0) => {
                    text_done(transcript, true, &mut emit);
                    emit(EventRef::Other(finished(stop, None)));
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
            | Event::ToolQueued { .. }
            | Event::ToolStarted { .. }
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

/// The text of the root agent's latest turn, or all of its text if it has no turns.
fn turn_text(transcript: &Transcript) -> String {
    let Some(turn) = latest_turn(transcript) else { return transcript.words(AgentNo::ROOT) };
    let parts = turn.parts.iter().filter_map(|part| transcript.parts.get(part));
    parts.filter(|part| part.kind == PartKind::TEXT).map(|part| &*part.text).collect()
}

fn text_done(transcript: Option<&Transcript>, streams: bool, emit: &mut impl FnMut(EventRef<'_>)) {
    if let Some(text) = transcript.map(turn_text)
        && (streams || !text.is_empty())
    {
        emit(EventRef::Other(TurnEvent::TextDone { text }));
    }
}

/// Whether text arrives as deltas. A run without turns streams.
fn streams(root: &AgentOutline) -> bool {
    root.streaming || !root.in_turn
}

fn root_call(before: &Outline, call: PartId) -> Option<&CallOutline> {
    before.call(call).filter(|call| call.agent.is_root())
}

/// Whether a call belongs to a turn that has not ended.
fn in_turn(before: &Outline, call: PartId) -> bool {
    let root = before.agents.get(&AgentNo::ROOT).filter(|root| root.in_turn);
    let part = before.part(call);
    root.is_some_and(|root| part.is_some_and(|part| part.turn == root.turn))
}

/// The calls of the root agent's latest turn, in order.
fn turn_calls(transcript: &Transcript) -> Vec<(PartId, &str, &Part)> {
    let parts = latest_turn(transcript).map_or(&[][..], |turn| &turn.parts);
    let calls = parts.iter().filter_map(|id| {
        let part = &**transcript.parts.get(id)?;
        let PartKind::ToolCall(tool) = &part.kind else { return None };
        Some((*id, &*tool.name, part))
    });
    calls.collect()
}

fn latest_turn(transcript: &Transcript) -> Option<&TurnItem> {
    let root = transcript.agents.get(&AgentNo::ROOT)?;
    root.items.iter().rev().find_map(|item| match item {
        Item::Turn(turn) => Some(&**turn),
        Item::Part(_) | Item::Input(_) => None,
    })
}

fn arguments(text: &str) -> Map<String, Value> {
    match serde_json::from_str(text) {
        Ok(Value::Object(args)) => args,
        Ok(_) | Err(_) => Map::new(),
    }
}

fn is_error(outcome: ToolOutcome) -> bool {
    match outcome {
        ToolOutcome::Ok => false,
        ToolOutcome::Error
        | ToolOutcome::Denied
        | ToolOutcome::Interrupted
        | ToolOutcome::TimedOut => true,
    }
}

fn announce(
    before: &Outline,
    call: PartId,
    name: &str,
    args: Map<String, Value>,
    emit: &mut impl FnMut(EventRef<'_>),
) {
    let Some(id) = wire_id(before, call) else { return };
    let (tool_call_id, tool_name) = (id.to_string(), name.into());
    emit(EventRef::Other(TurnEvent::ToolCall { tool_call_id, tool_name, args }));
}

fn result(
    before: &Outline,
    call: PartId,
    name: &str,
    (output, is_error): (Value, bool),
    emit: &mut impl FnMut(EventRef<'_>),
) {
    let Some(id) = wire_id(before, call) else { return };
    let (tool_call_id, tool_name) = (id.to_string(), name.into());
    emit(EventRef::Other(TurnEvent::ToolResult { tool_call_id, tool_name, output, is_error }));
}

fn finished(stop: &Stop, usage: Option<&Usage>) -> TurnEvent {
    let usage = usage.map(|usage| TurnUsage { input: usage.input, output: usage.output });
    TurnEvent::Finished { finish_reason: finish_reason(stop).into(), usage }
}
