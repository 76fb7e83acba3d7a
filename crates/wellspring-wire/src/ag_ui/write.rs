//! Records as AG-UI events.
//!
//! Here is the dialect itself: what it remembers from record to record, and the short way of a
//! delta. What a record says is in [`fact`], which leaves the parts, the tools, and whatever
//! begins and ends to a module each; [`scene`] knows what is open, [`ask`] what is waited for.

mod ask;
mod fact;
mod mend;
mod parts;
mod scene;
mod spans;
mod tools;

use wellspring_core::{AgentNo, Event as Fact, Outline, PartId, PartOutline, PartShape, Record};

use fact::Project;
pub(super) use fact::words;
pub(super) use parts::messages_snapshot;
pub(super) use scene::{Scene, result_metadata, tool_metadata};
pub(super) use spans::terminal;
pub(super) use tools::progress_start;

use super::messages::{Texts, conversation_messages};
use super::tally::Tally;
use super::types::{Event, Message};
use super::{ids, proto};
use crate::dialect::{Conversation, Dialect};
use crate::out::Out;

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
    tally: Tally,
    recalled: Option<Recalled>,
    /// The bytes around the deltas of the part that grew last.
    memo: Option<Memo>,
}

/// What a record cannot be said without.
#[derive(Debug)]
struct Recalled {
    tally: Tally,
    messages: Vec<Message>,
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
    /// The dialect after the records of a transcript: what goes on after [`join`](super::join).
    #[must_use]
    pub fn after(transcript: &wellspring_core::Transcript) -> Self {
        Self { tally: Tally::of(transcript), ..Self::default() }
    }

    /// What `record` says in AG-UI's types, given what was open `before` it.
    #[must_use]
    pub fn events(&mut self, before: &Outline, record: &Record) -> Vec<Event> {
        let mut events = Vec::new();
        self.project(before, record, &mut |event| events.push(event));
        events
    }

    fn project(&mut self, before: &Outline, record: &Record, emit: &mut dyn FnMut(Event)) {
        if before.finished {
            return;
        }
        let messages = match self.recalled.take() {
            Some(Recalled { tally, messages }) => {
                self.tally = tally;
                Some(messages)
            }
            None => {
                if let Fact::PartDelta { part, .. } = &record.event {
                    self.tally.grow(before.head, record, before.part(*part));
                } else {
                    self.tally.follow(before, record);
                }
                None
            }
        };
        Project { before, record, emit, tally: &self.tally, messages }.fact();
    }

    /// The bytes around the deltas of a part, if it is shown.
    fn memo(&mut self, before: &Outline, part: PartId, outline: &PartOutline) -> Option<&Memo> {
        // A call that is hidden, or has its result, says nothing more.
        let silent = outline.shape == PartShape::Call && Scene::new(before)?.call(part).is_none();
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

impl Dialect for AgUi {
    fn encode(&mut self, before: &Outline, record: &Record, out: &mut Out) {
        if let Fact::AgentStarted { .. } | Fact::AgentFinished { .. } = &record.event {
            // Whose a part is may look different from here on.
            self.memo = None;
        }
        if let Fact::PartDelta { part, chunk } = &record.event
            && before.paused.is_none()
            && !before.finished
            && let Some(outline) = before.part(*part)
            && !matches!(outline.shape, PartShape::Output(..))
        {
            self.tally.grow(before.head, record, Some(outline));
            if let Some(memo) = self.memo(before, *part, outline) {
                out.write(|json| {
                    json.raw(&memo.before).string(chunk).raw(&memo.after);
                });
            }
            return;
        }
        self.project(before, record, &mut |event| out.event(&event));
    }

    fn needs(&self, before: &Outline, record: &Record) -> bool {
        let unsure = before.paused.is_some() || !self.tally.is_complete(before.head);
        matches!(record.event, Fact::PartsVoided { .. } | Fact::RunResumed { .. })
            || (unsure && matches!(record.event, Fact::RunFinished { .. }))
    }

    fn recall(&mut self, conversation: &Conversation) {
        self.recalled = Some(Recalled {
            tally: Tally::of(&conversation.current),
            messages: conversation_messages(conversation, Texts::Whole),
        });
    }
}

/// The dialect `ag_ui` in the protocol's binary encoding: each event with its length before it.
#[derive(Debug, Default)]
pub struct AgUiBinary(AgUi);

impl AgUiBinary {
    /// The dialect after the records of a transcript.
    #[must_use]
    pub fn after(transcript: &wellspring_core::Transcript) -> Self {
        Self(AgUi::after(transcript))
    }
}

impl Dialect for AgUiBinary {
    fn encode(&mut self, before: &Outline, record: &Record, out: &mut Out) {
        self.0.project(before, record, &mut |event| out.bytes(|bytes| proto::frame(&event, bytes)));
    }

    fn needs(&self, before: &Outline, record: &Record) -> bool {
        self.0.needs(before, record)
    }

    fn recall(&mut self, conversation: &Conversation) {
        self.0.recall(conversation);
    }
}
