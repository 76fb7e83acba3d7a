//! Records to ThoughtEvents.

use std::fmt;

use serde_json::Value;
use wellspring_core::{
    Answer, CallState, Content, ContentChange, Event, MediaSource, Outline, PartId, PartKind,
    PartShape, QuestionId, RETURN_RESULT, Record, Role, RunId, RunsOn, ToolCall, ToolKind,
    ToolOutcome, ToolUpdate, VoidReason, WirePartId,
};

use super::types::{ContentBlock, DoneStatus, ThoughtEvent, ToolContent, ToolStatus};
use crate::dialect::options::{Options, Reasoning};
use crate::dialect::out::Out;
use crate::dialect::visible::{
    AskedBy, Asking, Grown, PARAGRAPH, asked_by, breaks, chunk_words, grown, shown_call, wire_id,
};
use crate::dialect::{Before, Closed, Dialect};

/// ThoughtEvents as JSON.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThoughtEvents {
    reasoning: Reasoning,
}

impl ThoughtEvents {
    pub(crate) fn new(options: &Options) -> Self {
        Self { reasoning: options.reasoning }
    }
}

impl Dialect for ThoughtEvents {
    fn encode(&mut self, before: Before<'_>, record: &Record, out: &mut Out) {
        project(before.outline(), record, |event| match event {
            EventRef::Thought(_) if self.reasoning == Reasoning::Hidden => {}
            EventRef::Thought(text) => out.write(|json| {
                json.raw(r#"{"type":"thought","text":"#).string(text).raw("}");
            }),
            EventRef::Message(text) => out.write(|json| {
                json.raw(r#"{"type":"message","text":"#).string(text).raw("}");
            }),
            EventRef::ToolText(id, text) => out.write(|json| {
                json.raw(r#"{"type":"tool_update","id":"#).string(&id.to_string());
                json.raw(r#","status":"in_progress","content":[{"type":"content","content":"#);
                json.raw(r#"{"type":"text","text":"#).string(text).raw("}}]}");
            }),
            EventRef::Other(event) => out.event(&event),
        });
    }

    fn close(&self, why: &Closed<'_>, out: &mut Out) {
        why.named(out);
    }
}

/// Encodes `record` as ThoughtEvents, given the outline `before` it.
///
/// ```
/// use wellspring_core::{Event, Millis, Outline, PartId, PartKind, Record, Seq, AgentNo};
/// use wellspring_wire::thought_event::{ThoughtEvent, events};
///
/// let record = |seq, event| Record { seq: Seq(seq), agent: AgentNo::ROOT, at: Millis(0), event };
/// let mut outline = Outline::default();
/// outline.apply(&record(1, Event::PartStarted { part: PartId(0), kind: PartKind::Thought }));
/// let delta = record(2, Event::PartDelta { part: PartId(0), chunk: "Hm.".into() });
/// assert_eq!(events(&outline, &delta), [ThoughtEvent::Thought { text: "Hm.".into() }]);
/// ```
#[must_use]
pub fn events(before: &Outline, record: &Record) -> Vec<ThoughtEvent> {
    let mut events = Vec::new();
    project(before, record, |event| events.push(event.into()));
    events
}

/// An event that borrows its frequent members.
enum EventRef<'a> {
    Thought(&'a str),
    Message(&'a str),
    /// Text that a call shows while it runs.
    ToolText(CallId<'a>, &'a str),
    Other(ThoughtEvent),
}

/// The id of a call or of a question.
#[derive(Clone, Copy)]
enum CallId<'a> {
    /// The id that the remote agent gave it.
    Own(&'a str),
    Wire(WirePartId),
    /// A question that belongs to no call.
    Question(RunId, QuestionId),
}

impl fmt::Display for CallId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(id) => f.write_str(id),
            Self::Wire(id) => id.fmt(f),
            Self::Question(run, question) => write!(f, "{run}-question-{question}"),
        }
    }
}

impl From<EventRef<'_>> for ThoughtEvent {
    fn from(event: EventRef<'_>) -> Self {
        match event {
            EventRef::Thought(text) => Self::Thought { text: text.into() },
            EventRef::Message(text) => Self::Message { text: text.into() },
            EventRef::ToolText(id, text) => {
                let content =
                    ToolContent::Content { content: ContentBlock::Text { text: text.into() } };
                let (id, status) = (id.to_string(), ToolStatus::InProgress);
                Self::ToolUpdate { id, status, content: Some(vec![content]) }
            }
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
            Grown::Message => emit(EventRef::Message(chunk)),
            Grown::Thought => emit(EventRef::Thought(chunk)),
            Grown::Output(call, ..) | Grown::SubAgent(call, _) => {
                if let Some(id) = shown_id(before, call) {
                    emit(EventRef::ToolText(id, chunk));
                }
            }
            Grown::SubAgentThought(..) | Grown::Hidden => {}
        },
        Event::PartStarted { part, kind: PartKind::ToolCall(tool) } if record.agent.is_root() => {
            if let Some(id) = call_id(before, *part, tool).filter(|_| &*tool.name != RETURN_RESULT)
            {
                emit(EventRef::Other(tool_start(id, tool)));
            }
        }
        // A remote agent reports its calls itself: one update per report.
        Event::ToolStarted { call, .. } if !is_remote(before, *call) => {
            if let Some(id) = shown_id(before, *call) {
                emit(EventRef::Other(tool_update(id, ToolStatus::InProgress, Vec::new())));
            }
        }
        Event::ToolUpdated { call, update } => {
            if let Some(id) = shown_id(before, *call) {
                // Progress data of a remote agent's own calls is not shown.
                let data = update.data.as_ref().filter(|_| !is_remote(before, *call));
                match data.and_then(chunk_words) {
                    Some(text) if update.content.is_none() => emit(EventRef::ToolText(id, text)),
                    Some(_) | None => emit(EventRef::Other(progress(id, update, data))),
                }
            }
        }
        Event::ToolFinished { call, outcome, result } => {
            if let Some(id) = shown_id(before, *call) {
                let content = contents(&result.content);
                let (shown, done) = match outcome {
                    ToolOutcome::Ok => (ToolStatus::Completed, DoneStatus::Completed),
                    ToolOutcome::Error
                    | ToolOutcome::Denied
                    | ToolOutcome::Interrupted
                    | ToolOutcome::TimedOut => (ToolStatus::Failed, DoneStatus::Failed),
                };
                if !content.is_empty() {
                    emit(EventRef::Other(tool_update(id, shown, content)));
                }
                emit(EventRef::Other(tool_done(id, done)));
            }
        }
        Event::PartsVoided { parts, why } => void(before, parts, *why, emit),
        Event::QuestionAsked(question) => {
            let Some((id, is_new)) = question_id(before, question.question, asked_by(before, record.agent, question.call))
            else {
                return;
            };
            if is_new {
                let (title, kind) = (question.prompt.as_ref().into(), Some(ToolKind::Other));
                emit(EventRef::Other(ThoughtEvent::ToolStart { id: id.to_string(), title, kind }));
            }
            let asking = serde_json::to_string(&Asking::of(question)).unwrap_or_default();
            let content = [question.prompt.as_ref().into(), asking].map(words);
            emit(EventRef::Other(tool_update(id, ToolStatus::Waiting, content.into())));
        }
        Event::QuestionAnswered(answered) => {
            let Some(open) = before.questions.get(&answered.question) else { return };
            let Some((id, is_own)) = question_id(before, answered.question, asked_by(before, open.agent, open.call))
            else {
                return;
            };
            if is_own {
                emit(EventRef::Other(tool_done(id, done(&answered.answer))));
            } else if goes_on(before, open.agent, open.call) {
                emit(EventRef::Other(tool_update(id, ToolStatus::InProgress, Vec::new())));
            }
        }
        Event::PlanUpdated { entries } if record.agent.is_root() => {
            emit(EventRef::Other(ThoughtEvent::Plan { entries: entries.clone() }));
        }
        // Nothing to show, or no shape for it in this vocabulary: it stays in the records.
        Event::RunStarted(_)
        | Event::RunAdopted { .. }
        | Event::RunPaused { .. }
        | Event::RunResumed { .. }
        | Event::TurnStarted(_)
        | Event::TurnFinished { .. }
        | Event::PartStarted { .. }
        | Event::PartAnnotated { .. }
        | Event::PartFinished { .. }
        // A call stays pending on the client's screen until it starts.
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
        | Event::Extended(_)
        // The stream just ends.
        | Event::RunFinished { .. } => {}
    }
}

fn void(before: &Outline, parts: &[PartId], why: VoidReason, mut emit: impl FnMut(EventRef<'_>)) {
    if breaks(before, parts, why, PartShape::Thought) {
        emit(EventRef::Thought(PARAGRAPH));
    }
    if breaks(before, parts, why, PartShape::Text(Role::Assistant)) {
        emit(EventRef::Message(PARAGRAPH));
    }
    for id in parts.iter().filter_map(|part| shown_id(before, *part)) {
        emit(EventRef::Other(tool_done(id, DoneStatus::Failed)));
    }
}

fn shown_id(before: &Outline, call: PartId) -> Option<CallId<'_>> {
    shown_call(before, call).and_then(|outline| call_id(before, call, &outline.tool))
}

fn call_id<'a>(before: &Outline, call: PartId, tool: &'a ToolCall) -> Option<CallId<'a>> {
    match &tool.id {
        Some(id) => Some(CallId::Own(id)),
        None => wire_id(before, call).map(CallId::Wire),
    }
}

/// Whether a call runs inside a remote agent.
fn is_remote(before: &Outline, call: PartId) -> bool {
    before.call(call).is_some_and(|call| call.tool.runs_on == RunsOn::Agent)
}

/// The id under which a question is shown, and whether it is the question's own id.
fn question_id<'a>(
    before: &'a Outline,
    question: QuestionId,
    by: AskedBy<'a>,
) -> Option<(CallId<'a>, bool)> {
    match by {
        AskedBy::Call(call, outline) => Some((call_id(before, call, &outline.tool)?, false)),
        AskedBy::Run => Some((CallId::Question(before.run.as_ref()?.run, question), true)),
        AskedBy::Hidden => None,
    }
}

/// Whether the call continues where it waited. A call that waited for approval is reported when
/// it starts.
fn goes_on(before: &Outline, agent: wellspring_core::AgentNo, call: Option<PartId>) -> bool {
    let has_started = |call: PartId| {
        before.call(call).is_some_and(|call| matches!(call.state, CallState::Started(_)))
    };
    !agent.is_root() || call.is_some_and(has_started)
}

fn done(answer: &Answer) -> DoneStatus {
    match answer {
        Answer::Approve { .. } | Answer::Choose(_) | Answer::Value(_) => DoneStatus::Completed,
        Answer::Deny { .. } | Answer::Expired | Answer::Withdrawn => DoneStatus::Failed,
    }
}

fn tool_start(id: CallId<'_>, tool: &ToolCall) -> ThoughtEvent {
    let title = tool.title.as_ref().unwrap_or(&tool.name).as_ref().into();
    ThoughtEvent::ToolStart { id: id.to_string(), title, kind: Some(tool.kind) }
}

/// The content, followed by the data as JSON text.
fn progress(id: CallId<'_>, update: &ToolUpdate, data: Option<&Value>) -> ThoughtEvent {
    let mut content = match &update.content {
        Some(ContentChange::Append(content) | ContentChange::Replace(content)) => contents(content),
        None => Vec::new(),
    };
    content.extend(data.map(|data| match chunk_words(data) {
        Some(text) => words(text.into()),
        None => words(data.to_string()),
    }));
    tool_update(id, ToolStatus::InProgress, content)
}

fn words(text: String) -> ToolContent {
    ToolContent::Content { content: ContentBlock::Text { text } }
}

fn tool_update(id: CallId<'_>, status: ToolStatus, content: Vec<ToolContent>) -> ThoughtEvent {
    let content = Some(content).filter(|content| !content.is_empty());
    ThoughtEvent::ToolUpdate { id: id.to_string(), status, content }
}

fn tool_done(id: CallId<'_>, status: DoneStatus) -> ThoughtEvent {
    ThoughtEvent::ToolDone { id: id.to_string(), status }
}

fn contents(contents: &[wellspring_core::ToolContent]) -> Vec<ToolContent> {
    contents.iter().filter_map(tool_content).collect()
}

fn tool_content(content: &wellspring_core::ToolContent) -> Option<ToolContent> {
    Some(match content {
        wellspring_core::ToolContent::Content(content) => {
            ToolContent::Content { content: block(content)? }
        }
        wellspring_core::ToolContent::Diff { path, old_text, new_text } => ToolContent::Diff {
            path: path.as_ref().into(),
            old_text: old_text.as_deref().unwrap_or_default().into(),
            new_text: new_text.as_ref().into(),
        },
        wellspring_core::ToolContent::Terminal { terminal_id } => {
            ToolContent::Terminal { terminal_id: terminal_id.as_ref().into() }
        }
    })
}

fn block(content: &Content) -> Option<ContentBlock> {
    let link = |uri: &str, name: &Option<Box<str>>| ContentBlock::ResourceLink {
        uri: uri.into(),
        name: name.as_deref().map(Into::into),
    };
    match content {
        Content::Text(text) | Content::Resource { text, .. } => {
            Some(ContentBlock::Text { text: text.as_ref().into() })
        }
        Content::Media { source: MediaSource::Url(uri), name, .. }
        | Content::Link { uri, name, .. } => Some(link(uri, name)),
        Content::Media { media_type, source: MediaSource::Data(data), .. } => {
            media_type.starts_with("image/").then(|| ContentBlock::Image {
                data: data.as_ref().into(),
                mime_type: media_type.as_ref().into(),
            })
        }
    }
}
