//! The answer so far, from a transcript.

use wellspring_core::{
    AgentNo, Event, Item, Millis, Part, PartId, PartKind, PartShape, Record, Role, Transcript,
};

use super::types::StreamDelta;
use crate::dialect::end_message::failure;
use crate::dialect::options::{Options, Reasoning};
use crate::dialect::out::Out;
use crate::dialect::visible::PARAGRAPH;
use crate::dialect::{Before, Closed, Dialect, Fold};

impl StreamDelta {
    /// The snapshot at `now`; `None` if there is nothing to show yet.
    ///
    /// ```
    /// use wellspring_core::{AgentNo, Event, Millis, PartId, PartKind, Record, Seq, Transcript};
    /// use wellspring_wire::stream_delta::StreamDelta;
    ///
    /// let record = |seq, event| Record { seq: Seq(seq), agent: AgentNo::ROOT, at: Millis(seq), event };
    /// let part = PartId(0);
    /// let transcript = Transcript::fold(&[
    ///     record(1, Event::PartStarted { part, kind: PartKind::Thought }),
    ///     record(2, Event::PartDelta { part, chunk: "Hm.".into() }),
    /// ]);
    /// let thinking = StreamDelta::Thinking { thinking: "Hm.".into(), thinking_elapsed_ms: 41 };
    /// assert_eq!(StreamDelta::of(&transcript, Millis(42)), Some(thinking));
    /// ```
    #[must_use]
    pub fn of(transcript: &Transcript, now: Millis) -> Option<Self> {
        Self::with(transcript, now, Reasoning::Shown)
    }

    fn with(transcript: &Transcript, now: Millis, reasoning: Reasoning) -> Option<Self> {
        let content = content(transcript);
        let thoughts = match reasoning {
            Reasoning::Shown => thoughts(transcript, now),
            Reasoning::Hidden => None,
        };
        if let Some(outcome) = &transcript.outcome {
            let (thinking, thinking_duration_ms) = thoughts.unzip();
            return Some(match failure(outcome) {
                Some(error) => Self::Error { error: error.into() },
                None => Self::Final { content, thinking, thinking_duration_ms },
            });
        }
        if !content.is_empty() {
            let (thinking, thinking_duration_ms) = thoughts.unzip();
            return Some(Self::Content { content, thinking, thinking_duration_ms });
        }
        thoughts
            .map(|(thinking, thinking_elapsed_ms)| Self::Thinking { thinking, thinking_elapsed_ms })
    }
}

/// The root agent's text, with a paragraph break where a tool call, a new turn or added input came
/// between.
fn content(transcript: &Transcript) -> String {
    let mut content = String::new();
    let mut interrupted = false;
    let mut add = |part: &PartId, interrupted: &mut bool| {
        let Some(part) = transcript.parts.get(part) else { return };
        match &part.kind {
            PartKind::Text { role: Role::Assistant } if !part.text.is_empty() => {
                if std::mem::take(interrupted) && !content.is_empty() {
                    content.push_str(PARAGRAPH);
                }
                content.push_str(&part.text);
            }
            PartKind::ToolCall(_) => *interrupted = true,
            PartKind::Text { .. }
            | PartKind::Thought
            | PartKind::Output { .. }
            | PartKind::Opaque(_) => {}
        }
    };
    for item in transcript.agents.get(&AgentNo::ROOT).iter().flat_map(|root| &root.items) {
        match item {
            Item::Turn(turn) => {
                interrupted = true;
                turn.parts.iter().for_each(|part| add(part, &mut interrupted));
            }
            Item::Part(part) => add(part, &mut interrupted),
            Item::Input(_) => interrupted = true,
        }
    }
    content
}

/// The root agent's thoughts, one paragraph each, and their duration in milliseconds; `None` if
/// it has none.
fn thoughts(transcript: &Transcript, now: Millis) -> Option<(String, u64)> {
    // The end of the run closes what an invalid log left open.
    let now = if transcript.outcome.is_some() { transcript.updated_at } else { now };
    let mut text = String::new();
    let mut millis = 0u64;
    let is_ours = |part: &&Part| part.agent.is_root() && part.kind == PartKind::Thought;
    for part in transcript.parts.values().map(AsRef::as_ref).filter(is_ours) {
        if !text.is_empty() && !part.text.is_empty() {
            text.push_str(PARAGRAPH);
        }
        text.push_str(&part.text);
        let until = if part.finished { part.updated_at } else { now };
        let spent = until.since(part.started_at).as_millis();
        millis = millis.saturating_add(u64::try_from(spent).unwrap_or(u64::MAX));
    }
    (!text.is_empty()).then_some((text, millis))
}

/// StreamDeltas as JSON: a snapshot for each frame that changed something.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamDeltas {
    reasoning: Reasoning,
    /// Whether the snapshot changed since the last one.
    changed: bool,
}

impl StreamDeltas {
    pub(crate) fn new(options: &Options) -> Self {
        Self { reasoning: options.reasoning, changed: false }
    }
}

impl Dialect for StreamDeltas {
    fn encode(&mut self, before: Before<'_>, record: &Record, _: &mut Out) {
        let before = before.outline();
        if before.finished {
            return;
        }
        let is_shown = |part: &PartId| {
            before.part(*part).is_some_and(|part| match part.shape {
                PartShape::Text(Role::Assistant) => part.agent.is_root(),
                PartShape::Thought => part.agent.is_root() && self.reasoning == Reasoning::Shown,
                PartShape::Text(Role::User)
                | PartShape::Call
                | PartShape::Output(..)
                | PartShape::Opaque => false,
            })
        };
        self.changed |= match &record.event {
            Event::PartDelta { part, .. } => is_shown(part),
            Event::PartsVoided { parts, .. } => parts.iter().any(is_shown),
            Event::RunFinished { .. } => true,
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
            | Event::Extended(_) => false,
        };
    }

    fn frame_end(&mut self, after: Before<'_>, out: &mut Out) {
        if std::mem::take(&mut self.changed)
            && let Some(transcript) = after.transcript()
            && let Some(snapshot) =
                StreamDelta::with(transcript, transcript.updated_at, self.reasoning)
        {
            out.event(&snapshot);
        }
    }

    /// Each snapshot repeats the whole answer.
    fn fold(&self) -> Fold {
        Fold::Transcript
    }

    fn close(&self, why: &Closed<'_>, out: &mut Out) {
        out.event(&StreamDelta::Error { error: why.text() });
    }
}
