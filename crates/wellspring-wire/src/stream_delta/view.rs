//! The fold.

use wellspring_core::{Event, Millis, Outline, PartId, PartKind, Record, Role};

use super::types::StreamDelta;
use crate::dialect::Dialect;
use crate::out::Out;
use crate::project::{PARAGRAPH, failure};

/// The answer so far. Holds all of the root agent's words and thoughts, as any message that
/// shows them does.
///
/// ```
/// use wellspring_core::{AgentNo, Event, Millis, PartId, PartKind, Record, Seq};
/// use wellspring_wire::stream_delta::{StreamDelta, StreamDeltaView};
///
/// let record = |seq, event| Record { seq: Seq(seq), agent: AgentNo::ROOT, at: Millis(seq), event };
/// let part = PartId(0);
/// let mut view = StreamDeltaView::default();
/// view.apply(&record(1, Event::PartStarted { part, kind: PartKind::Thought }));
/// view.apply(&record(2, Event::PartDelta { part, chunk: "Hm.".into() }));
/// let thinking = StreamDelta::Thinking { thinking: "Hm.".into(), thinking_elapsed_ms: 41 };
/// assert_eq!(view.snapshot(Millis(42)), Some(thinking));
/// ```
#[derive(Clone, Debug, Default)]
pub struct StreamDeltaView {
    thoughts: Vec<Thought>,
    words: Vec<Words>,
    /// Whether something else came after the last words.
    interrupted: bool,
    /// The end: nothing for a run that completed, else what a person reads.
    ended: Option<Option<String>>,
    /// Whether a snapshot would say something new, but for the time.
    changed: bool,
    /// When the last record was appended.
    at: Millis,
}

#[derive(Clone, Debug)]
struct Thought {
    part: PartId,
    text: String,
    since: Millis,
    until: Option<Millis>,
}

#[derive(Clone, Debug)]
struct Words {
    part: PartId,
    text: String,
    /// Whether a paragraph break comes before them.
    paragraph: bool,
}

impl StreamDeltaView {
    /// Folds one record in. Total, like [`Outline::apply`].
    pub fn apply(&mut self, record: &Record) {
        self.at = record.at;
        if self.ended.is_some() {
            return;
        }
        match &record.event {
            Event::PartDelta { part, chunk } => self.grow(*part, chunk),
            Event::PartStarted { part, kind } if record.agent.is_root() => {
                self.start(*part, kind, record.at);
            }
            Event::PartFinished { part } => {
                let thought = self.thoughts.iter_mut().rev().find(|thought| thought.part == *part);
                if let Some(thought) = thought.filter(|thought| thought.until.is_none()) {
                    thought.until = Some(record.at);
                }
            }
            Event::PartsVoided { parts, .. } => {
                let before = self.thoughts.len() + self.words.len();
                self.thoughts.retain(|thought| !parts.contains(&thought.part));
                // A break that goes with its words is owed to those that come instead.
                let mut voided = self.words.iter().filter(|words| parts.contains(&words.part));
                self.interrupted |= voided.any(|words| words.paragraph);
                self.words.retain(|words| !parts.contains(&words.part));
                self.changed |= self.thoughts.len() + self.words.len() < before;
            }
            Event::TurnStarted(_) if record.agent.is_root() => self.interrupted = true,
            Event::RunFinished { outcome } => {
                self.ended = Some(failure(outcome).map(Into::into));
                self.changed = true;
            }
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
            | Event::Extended(_) => {}
        }
    }

    /// How the answer stands at `now`; nothing before there is anything to show.
    #[must_use]
    pub fn snapshot(&self, now: Millis) -> Option<StreamDelta> {
        let (content, thinking) = (self.content(), self.thinking());
        let elapsed = self.thinking_ms(now);
        let thought = (!thinking.is_empty()).then_some(elapsed);
        match &self.ended {
            Some(Some(error)) => return Some(StreamDelta::Error { error: error.clone() }),
            Some(None) => {
                let thinking = thought.map(|_| thinking);
                return Some(StreamDelta::Final {
                    content,
                    thinking,
                    thinking_duration_ms: thought,
                });
            }
            None => {}
        }
        if !content.is_empty() {
            let thinking = thought.map(|_| thinking);
            Some(StreamDelta::Content { content, thinking, thinking_duration_ms: thought })
        } else {
            thought.map(|elapsed| StreamDelta::Thinking { thinking, thinking_elapsed_ms: elapsed })
        }
    }

    fn start(&mut self, part: PartId, kind: &PartKind, at: Millis) {
        match kind {
            PartKind::Text { role: Role::Assistant } => {
                let paragraph = std::mem::take(&mut self.interrupted);
                self.words.push(Words { part, text: String::new(), paragraph });
            }
            PartKind::Thought => {
                self.thoughts.push(Thought { part, text: String::new(), since: at, until: None });
            }
            PartKind::ToolCall(_) => self.interrupted = true,
            PartKind::Text { role: Role::User } | PartKind::Output { .. } | PartKind::Opaque(_) => {
            }
        }
    }

    fn grow(&mut self, part: PartId, chunk: &str) {
        // What grows is nearly always the latest.
        if let Some(words) = self.words.iter_mut().rev().find(|words| words.part == part) {
            words.text.push_str(chunk);
            self.changed = true;
        } else if let Some(thought) =
            self.thoughts.iter_mut().rev().find(|thought| thought.part == part)
        {
            thought.text.push_str(chunk);
            self.changed = true;
        }
    }

    fn content(&self) -> String {
        let mut content = String::new();
        for words in self.words.iter().filter(|words| !words.text.is_empty()) {
            if words.paragraph && !content.is_empty() {
                content.push_str(PARAGRAPH);
            }
            content.push_str(&words.text);
        }
        content
    }

    fn thinking(&self) -> String {
        let texts = self.thoughts.iter().map(|thought| &*thought.text);
        texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(PARAGRAPH)
    }

    fn thinking_ms(&self, now: Millis) -> u64 {
        // The run's end closes whatever a broken log left open.
        let now = if self.ended.is_some() { self.at } else { now };
        let times = self.thoughts.iter().map(|thought| {
            let spent = thought.until.unwrap_or(now).since(thought.since);
            u64::try_from(spent.as_millis()).unwrap_or(u64::MAX)
        });
        times.fold(0, u64::saturating_add)
    }
}

/// StreamDeltas as JSON: a snapshot for each frame that changed something.
#[derive(Clone, Debug, Default)]
pub struct StreamDeltas {
    view: StreamDeltaView,
}

impl Dialect for StreamDeltas {
    fn encode(&mut self, _: &Outline, record: &Record, _: &mut Out) {
        self.view.apply(record);
    }

    fn frame_end(&mut self, out: &mut Out) {
        if std::mem::take(&mut self.view.changed)
            && let Some(snapshot) = self.view.snapshot(self.view.at)
        {
            out.event(&snapshot);
        }
    }

    fn remembers(&self) -> bool {
        true
    }
}
