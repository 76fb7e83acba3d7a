//! Records as AG-UI events.
//!
//! This file contains the dialect itself, with a fast path for deltas. [`fact`] encodes one record,
//! with a module each for parts, tools, starts and ends. [`scene`] determines what is open, and
//! [`ask`] encodes open questions and calls.

mod cut_off_json;
mod open_parts;
mod parts;
mod questions;
mod record;
mod starts_and_ends;
mod tools;

use wellspring_core::{AgentNo, Event as Fact, Outline, PartId, PartOutline, PartShape, Record};

pub(super) use open_parts::{Scene, result_metadata, tool_metadata};
pub(super) use parts::messages_snapshot;
use record::Project;
pub(super) use record::words;
pub(super) use starts_and_ends::terminal;
pub(super) use tools::progress_start;

use super::join::{interrupted, join};
use super::messages::{Texts, conversation_messages};
use super::types::{Event, Message, RunError};
use super::{ids, proto};
use crate::dialect::framing::{Framing, Shape};
use crate::dialect::options::{Options, Reasoning, UsageReports};
use crate::dialect::out::Out;
use crate::dialect::{Before, Closed, Dialect, Fold, Joins};

/// The dialect `ag_ui`.
///
/// ```
/// use wellspring_core::{AgentNo, Event, Millis, PartId, PartKind, Record, RunRequest};
/// use wellspring_core::{RunStarted, Seq, WireNames};
/// use wellspring_wire::{DialectName, Encoder, Out};
///
/// let names = WireNames { thread: Some("t".into()), run: Some("r".into()), ..WireNames::default() };
/// let request = RunRequest { wire: Some(Box::new(names)), ..RunRequest::text("Hello?") };
/// let (run, thread) = ("01920000-0000-7000-8000-000000000001", "01920000-0000-7000-8000-000000000002");
/// let started = RunStarted {
///     run: run.parse()?,
///     thread: thread.parse()?,
///     agent: "demo".into(),
///     after: None,
///     request,
/// };
/// let event = Event::RunStarted(started.into());
/// let record = Record { seq: Seq(1), agent: AgentNo::ROOT, at: Millis(0), event };
///
/// let mut out = Out::default();
/// Encoder::new(DialectName::AgUi).frame(&[record], &mut out);
/// let (_, json) = out.events().next().ok_or("one event")?;
/// assert_eq!(json, br#"{"type":"RUN_STARTED","threadId":"t","runId":"r","protocolVersion":"1.0"}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct AgUi {
    reasoning: Reasoning,
    usage: UsageReports,
    pauses: Pauses,
    /// The bytes around the deltas of the part that grew last.
    memo: Option<Memo>,
}

/// What a pause of the run looks like on the wire.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Pauses {
    /// It ends the wire's run; an answer starts another one.
    #[default]
    EndTheRun,
    /// The wire's run continues, because its clients answer while it runs.
    Invisible,
}

/// The result of the fast path for deltas.
pub(crate) enum Delta<'a> {
    /// The bytes around it, and its text.
    Shown { before: &'a str, chunk: &'a str, after: &'a str },
    /// The reader does not see this part.
    Hidden,
    /// The record is not a delta, or needs the full encoding.
    Other,
}

/// The bytes around a part's deltas.
#[derive(Debug)]
struct Memo {
    part: PartId,
    agent: AgentNo,
    shape: PartShape,
    before: String,
    after: String,
}

impl AgUi {
    pub(crate) fn new(options: &Options) -> Self {
        Self::pausing(options, Pauses::default())
    }

    /// Creates the dialect for a variant of AG-UI that shows pauses in another way.
    pub(crate) fn pausing(options: &Options, pauses: Pauses) -> Self {
        Self { reasoning: options.reasoning, usage: options.usage, pauses, memo: None }
    }

    /// Encodes `record` as AG-UI events, given the run `before` it.
    #[must_use]
    pub fn events(&self, before: Before<'_>, record: &Record) -> Vec<Event> {
        let mut events = Vec::new();
        self.project(before, record, &mut |event| events.push(event));
        events
    }

    pub(crate) fn project(&self, before: Before<'_>, record: &Record, emit: &mut dyn FnMut(Event)) {
        if !before.outline().finished {
            let emit = &mut |event| {
                if let Some(event) = self.chosen(event) {
                    emit(event);
                }
            };
            let (outline, pauses) = (before.outline(), self.pauses);
            Project { before: outline, run: before, record, emit, pauses }.fact();
        }
    }

    /// The events of [`join`], filtered by the reader's options.
    pub(crate) fn joined(&self, now: Before<'_>) -> impl Iterator<Item = Event> {
        let history = now.history().unwrap_or_default();
        let events = now.transcript().map(|run| join(history, run, self.pauses));
        events.unwrap_or_default().into_iter().filter_map(|event| self.chosen(event))
    }

    /// The whole conversation including `record`; `None` if the thread's history was not
    /// loaded.
    pub(crate) fn conversation(&self, before: Before<'_>, record: &Record) -> Option<Event> {
        let mut current = before.transcript()?.clone();
        current.apply(record);
        let history = before.history().unwrap_or_default();
        let messages = conversation_messages(history, &current, Texts::Whole);
        self.chosen(messages_snapshot(messages).into())
    }

    /// Removes from an event what the reader opted out of; `None` if nothing is left.
    pub(crate) fn chosen(&self, mut event: Event) -> Option<Event> {
        if self.usage == UsageReports::Omitted {
            if let Event::RunFinished(finished) = &mut event {
                finished.usage.clear();
            } else if let Event::RunError(error) = &mut event {
                error.usage.clear();
            } else if let Event::StepFinished(finished) = &mut event {
                finished.metadata.as_mut().map(|metadata| metadata.remove("usage"));
            } else if let Event::Custom(custom) = &event
                && &*custom.name == "usage"
            {
                return None;
            }
        }
        if self.reasoning == Reasoning::Hidden {
            if let Event::ReasoningStart(_)
            | Event::ReasoningMessageStart(_)
            | Event::ReasoningMessageContent(_)
            | Event::ReasoningMessageEnd(_)
            | Event::ReasoningEnd(_)
            | Event::ReasoningEncryptedValue(_) = &event
            {
                return None;
            }
            if let Event::MessagesSnapshot(snapshot) = &mut event {
                snapshot.messages.retain(|it| !matches!(it, Message::Reasoning(_)));
            }
        }
        Some(event)
    }

    /// The bytes around the deltas of a part; `None` if the part is not shown.
    fn memo(&mut self, before: &Outline, part: PartId, outline: &PartOutline) -> Option<&Memo> {
        // Nothing more is sent for a call that is hidden or has its result.
        let silent = match outline.shape {
            PartShape::Call => Scene::new(before)?.call(part).is_none(),
            PartShape::Thought => self.reasoning == Reasoning::Hidden,
            PartShape::Text(_) | PartShape::Output(..) | PartShape::Opaque => false,
        };
        if silent || !outline.open {
            return None;
        }
        let fits = |memo: &Memo| {
            (memo.part, memo.agent, memo.shape) == (part, outline.agent, outline.shape)
        };
        if !self.memo.as_ref().is_some_and(fits) {
            let head = before.run.as_ref()?;
            let (kind, name) = match outline.shape {
                PartShape::Text(_) => ("TEXT_MESSAGE_CONTENT", "messageId"),
                PartShape::Thought => ("REASONING_MESSAGE_CONTENT", "messageId"),
                PartShape::Call => ("TOOL_CALL_ARGS", "toolCallId"),
                PartShape::Output(..) | PartShape::Opaque => return None,
            };
            let id = ids::part(head.run, part);
            let after = match Scene::new(before)?.tag(outline.agent) {
                Some(tag) => format!(r#","subagentRunId":"{tag}"}}"#),
                None => "}".to_owned(),
            };
            self.memo = Some(Memo {
                part,
                agent: outline.agent,
                shape: outline.shape,
                before: format!(r#"{{"type":"{kind}","{name}":"{id}","delta":"#),
                after,
            });
        }
        self.memo.as_ref()
    }
}

impl AgUi {
    /// The bytes of a delta. Most records are deltas, and only need the name of their part.
    pub(crate) fn delta<'a>(&'a mut self, outline: &Outline, record: &'a Record) -> Delta<'a> {
        if let Fact::AgentStarted { .. } | Fact::AgentFinished { .. } = &record.event {
            // Any other record may change which agent a part belongs to.
            self.memo = None;
        }
        if let Fact::PartDelta { part, chunk } = &record.event
            && (outline.paused.is_none() || self.pauses == Pauses::Invisible)
            && !outline.finished
            && let Some(part_outline) = outline.part(*part)
            && !matches!(part_outline.shape, PartShape::Output(..))
        {
            return match self.memo(outline, *part, part_outline) {
                Some(Memo { before, after, .. }) => Delta::Shown { before, chunk, after },
                None => Delta::Hidden,
            };
        }
        Delta::Other
    }
}

impl Dialect for AgUi {
    fn encode(&mut self, before: Before<'_>, record: &Record, out: &mut Out) {
        match self.delta(before.outline(), record) {
            Delta::Shown { before, chunk, after } => out.write(|json| {
                json.raw(before).string(chunk).raw(after);
            }),
            Delta::Hidden => {}
            Delta::Other => self.project(before, record, &mut |event| out.event(&event)),
        }
    }

    /// The transcript, because the end repeats the answer and a snapshot repeats everything.
    fn fold(&self) -> Fold {
        Fold::Transcript
    }

    fn needs_history(&self, before: &Outline, event: &Fact) -> bool {
        matches!(event, Fact::PartsVoided { .. } | Fact::RunResumed { .. })
            || (before.paused.is_some() && matches!(event, Fact::RunFinished { .. }))
    }

    fn joins(&self) -> Joins {
        Joins::Snapshot
    }

    fn join(&self, now: Before<'_>, out: &mut Out) {
        self.joined(now).for_each(|event| out.event(&event));
    }

    fn interrupt(&self, now: &Outline, out: &mut Out) {
        interrupted(now).iter().for_each(|event| out.event(event));
    }

    fn close(&self, why: &Closed<'_>, out: &mut Out) {
        out.event(&closed(why));
    }
}

/// The dialect `ag_ui` in the protocol's binary encoding: each event is preceded by its length.
#[derive(Debug, Default)]
pub struct AgUiBinary(AgUi);

impl AgUiBinary {
    /// The media type of the binary encoding.
    pub const MEDIA_TYPE: &str = "application/vnd.ag-ui.event+proto";

    pub(crate) fn new(options: &Options) -> Self {
        Self(AgUi::new(options))
    }
}

impl Dialect for AgUiBinary {
    fn encode(&mut self, before: Before<'_>, record: &Record, out: &mut Out) {
        self.0.project(before, record, &mut |event| binary(&event, out));
    }

    fn fold(&self) -> Fold {
        self.0.fold()
    }

    fn needs_history(&self, before: &Outline, event: &Fact) -> bool {
        self.0.needs_history(before, event)
    }

    fn joins(&self) -> Joins {
        self.0.joins()
    }

    fn join(&self, now: Before<'_>, out: &mut Out) {
        self.0.joined(now).for_each(|event| binary(&event, out));
    }

    fn interrupt(&self, now: &Outline, out: &mut Out) {
        interrupted(now).iter().for_each(|event| binary(event, out));
    }

    fn close(&self, why: &Closed<'_>, out: &mut Out) {
        binary(&closed(why), out);
    }

    fn framing(&self) -> Framing {
        Framing { shape: Shape::Bare, content_type: Self::MEDIA_TYPE, headers: &[], marker: None }
    }
}

fn binary(event: &Event, out: &mut Out) {
    out.bytes(|bytes| proto::frame(event, bytes));
}

/// The event for a stream that ends before its run does.
fn closed(why: &Closed<'_>) -> Event {
    let code = Some(why.code.into());
    RunError { message: why.text().into(), code, ..RunError::default() }.into()
}
