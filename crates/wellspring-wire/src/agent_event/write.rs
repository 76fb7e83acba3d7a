//! Records to AgentEvents.

use serde::Serialize;
use serde_json::Value;
use wellspring_core::{
    CallOutline, ContentChange, Event, Location, Outline, OutputStream, PartShape, QuestionId,
    Record, Role, ToolContent, ToolOutcome, ToolUpdate,
};

use super::types::{AgentEvent, ToolEvent};
use crate::dialect::end_message::shortfall;
use crate::dialect::options::{Options, Reasoning, SubAgents};
use crate::dialect::out::Out;
use crate::dialect::visible::{
    AskedBy, Asking, Grown, PARAGRAPH, TAKEN_BACK, asked_by, breaks, grown, shown_call,
};
use crate::dialect::{Before, Closed, Dialect};

/// The tool name of a question that belongs to no call.
const QUESTION: &str = "question";

/// AgentEvents as JSON.
#[derive(Clone, Copy, Debug, Default)]
pub struct AgentEvents {
    reasoning: Reasoning,
    sub_agents: SubAgents,
}

impl AgentEvents {
    pub(crate) fn new(options: &Options) -> Self {
        Self { reasoning: options.reasoning, sub_agents: options.sub_agents }
    }

    /// Also forwards the thoughts of sub-agents, as progress of the calls that they serve:
    /// `{subtype: "thought", content}`.
    #[must_use]
    pub fn with_sub_agent_thoughts(mut self) -> Self {
        self.sub_agents = SubAgents::Thoughts;
        self
    }

    /// Encodes `record` as AgentEvents, given the outline `before` it.
    #[must_use]
    pub fn events(&self, before: &Outline, record: &Record) -> Vec<AgentEvent> {
        let mut events = Vec::new();
        project(before, record, |event| {
            if self.shows(&event) {
                events.push(event.into());
            }
        });
        events
    }

    fn shows(&self, event: &EventRef<'_>) -> bool {
        let reasoning = self.reasoning == Reasoning::Shown;
        match event {
            EventRef::Thought(_) => reasoning,
            EventRef::Progress(_, Progress::Thought { .. }) => {
                reasoning && self.sub_agents == SubAgents::Thoughts
            }
            EventRef::Stream(_) | EventRef::Progress(..) | EventRef::Other(_) => true,
        }
    }
}

impl Dialect for AgentEvents {
    fn encode(&mut self, before: Before<'_>, record: &Record, out: &mut Out) {
        project(before.outline(), record, |event| match event {
            event if !self.shows(&event) => {}
            EventRef::Thought(text) => out.write(|json| {
                json.raw(r#"{"type":"thought","content":"#).string(text).raw("}");
            }),
            EventRef::Stream(text) => out.write(|json| {
                json.raw(r#"{"type":"stream","content":"#).string(text).raw("}");
            }),
            EventRef::Progress(tool, data) => out.write(|json| {
                json.raw(r#"{"type":"tool_progress","toolName":"#).string(tool);
                json.raw(r#","data":"#).value(&data).raw("}");
            }),
            EventRef::Other(event) => out.event(&event),
        });
    }

    fn close(&self, why: &Closed<'_>, out: &mut Out) {
        out.event(&AgentEvent::Error { error: why.text() });
    }
}

/// Encodes `record` as AgentEvents, given the outline `before` it.
#[must_use]
pub fn events(before: &Outline, record: &Record) -> Vec<AgentEvent> {
    AgentEvents::default().events(before, record)
}

/// An event that borrows its frequent members.
enum EventRef<'a> {
    Thought(&'a str),
    Stream(&'a str),
    /// Progress of the named tool.
    Progress(&'a str, Progress<'a>),
    Other(AgentEvent),
}

/// The shapes of progress.
#[derive(Serialize)]
#[serde(untagged)] // Only written.
enum Progress<'a> {
    Words(&'a str),
    Data(&'a Value),
    Chunk { subtype: &'static str, content: &'a str },
    Thought { subtype: &'static str, content: &'a str },
    Question(Asking<'a>),
    Answered { subtype: &'static str, question: QuestionId },
    Update(Update<'a>),
}

/// An update without data.
#[derive(Serialize)]
struct Update<'a> {
    subtype: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "<[Location]>::is_empty")]
    locations: &'a [Location],
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a ContentChange>,
}

impl From<EventRef<'_>> for AgentEvent {
    fn from(event: EventRef<'_>) -> Self {
        match event {
            EventRef::Thought(text) => Self::Thought { content: text.into() },
            EventRef::Stream(text) => Self::Stream { content: text.into() },
            EventRef::Progress(tool, data) => ToolEvent::Progress {
                tool_name: tool.into(),
                // Strings, values and our own structs always serialise.
                data: serde_json::to_value(data).unwrap_or_default(),
            }
            .into(),
            EventRef::Other(event) => event,
        }
    }
}

fn project(before: &Outline, record: &Record, mut emit: impl FnMut(EventRef<'_>)) {
    if before.finished {
        return;
    }
    match &record.event {
        Event::PartDelta { part, chunk } => match grown(before, *part) {
            Grown::Message => emit(EventRef::Stream(chunk)),
            Grown::Thought => emit(EventRef::Thought(chunk)),
            Grown::SubAgent(_, call) => {
                emit(EventRef::Progress(&call.tool.name, Progress::Words(chunk)));
            }
            Grown::SubAgentThought(call) => {
                let thought = Progress::Thought { subtype: "thought", content: chunk };
                emit(EventRef::Progress(&call.tool.name, thought));
            }
            Grown::Output(_, call, stream) => {
                let subtype = match stream {
                    OutputStream::Stdout => "stdout_chunk",
                    OutputStream::Stderr => "stderr_chunk",
                    OutputStream::Terminal => "terminal_chunk",
                };
                let chunk = Progress::Chunk { subtype, content: chunk };
                emit(EventRef::Progress(&call.tool.name, chunk));
            }
            Grown::Hidden => {}
        },
        Event::PartFinished { part } => {
            if let Some(call) = shown_call(before, *part).filter(|_| is_open(before, *part)) {
                emit(EventRef::Other(tool_call(call)));
            }
        }
        Event::ToolUpdated { call, update } => {
            if let Some(call) = shown_call(before, *call) {
                emit(EventRef::Progress(&call.tool.name, progress(update)));
            }
        }
        Event::ToolFinished { call, outcome, result } => {
            if let Some(outline) = shown_call(before, *call) {
                // A remote agent may finish a call before its arguments are complete.
                if is_open(before, *call) {
                    emit(EventRef::Other(tool_call(outline)));
                }
                let output = result.output_text();
                let is_error = match outcome {
                    ToolOutcome::Ok => result.stated_success.then_some(false),
                    ToolOutcome::Error
                    | ToolOutcome::Denied
                    | ToolOutcome::Interrupted
                    | ToolOutcome::TimedOut => Some(true),
                };
                emit(EventRef::Other(tool_result(outline, &output, is_error)));
            }
        }
        Event::PartsVoided { parts, why } => {
            if breaks(before, parts, *why, PartShape::Thought) {
                emit(EventRef::Thought(PARAGRAPH));
            }
            if breaks(before, parts, *why, PartShape::Text(Role::Assistant)) {
                emit(EventRef::Stream(PARAGRAPH));
            }
            for part in parts {
                let call = shown_call(before, *part).filter(|_| !is_open(before, *part));
                if let Some(call) = call {
                    emit(EventRef::Other(tool_result(call, TAKEN_BACK, Some(true))));
                }
            }
        }
        Event::QuestionAsked(question) => {
            let asking = Progress::Question(Asking::of(question));
            match asked_by(before, record.agent, question.call) {
                AskedBy::Call(_, call) => emit(EventRef::Progress(&call.tool.name, asking)),
                AskedBy::Run => emit(EventRef::Progress(QUESTION, asking)),
                AskedBy::Hidden => {}
            }
        }
        Event::QuestionAnswered(answered) => {
            let Some(open) = before.questions.get(&answered.question) else { return };
            let question = answered.question;
            let answered = Progress::Answered { subtype: "answered", question };
            match asked_by(before, open.agent, open.call) {
                AskedBy::Call(_, call) => emit(EventRef::Progress(&call.tool.name, answered)),
                AskedBy::Run => emit(EventRef::Progress(QUESTION, answered)),
                AskedBy::Hidden => {}
            }
        }
        Event::RunFinished { outcome } => emit(EventRef::Other(match shortfall(before, outcome) {
            None => AgentEvent::Final,
            Some(error) => AgentEvent::Error { error: error.into() },
        })),
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

/// Whether a call's arguments are incomplete, so that the call was not shown yet.
fn is_open(before: &Outline, call: wellspring_core::PartId) -> bool {
    before.part(call).is_some_and(|part| part.open)
}

fn tool_call(call: &CallOutline) -> AgentEvent {
    let tool_args = if call.arguments.is_empty() { "{}".into() } else { call.arguments.clone() };
    AgentEvent::ToolCall { tool_name: call.tool.name.as_ref().into(), tool_args }
}

fn tool_result(call: &CallOutline, output: &str, is_error: Option<bool>) -> AgentEvent {
    let tool_name = call.tool.name.as_ref().into();
    ToolEvent::Result { tool_name, output: output.into(), is_error }.into()
}

fn progress(update: &ToolUpdate) -> Progress<'_> {
    let plain = update.title.is_none() && update.locations.is_empty();
    let only_words = || match update.content.as_ref().filter(|_| plain)? {
        ContentChange::Append(content) | ContentChange::Replace(content) => match &content[..] {
            [ToolContent::Content(content)] => content.as_text(),
            _ => None,
        },
    };
    match (&update.data, only_words()) {
        (Some(data), _) => Progress::Data(data),
        (None, Some(words)) => Progress::Words(words),
        (None, None) => Progress::Update(Update {
            subtype: "update",
            title: update.title.as_deref(),
            locations: &update.locations,
            content: update.content.as_ref(),
        }),
    }
}
