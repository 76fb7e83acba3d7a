//! A `RuntimeUi`: streaming text by request, and a result at the end.

use wellspring_core::{AgentNo, Event, Outcome, PartShape, Record, Role, Stop, Transcript};
use wellspring_log::{Cursor, ReadError};

/// A screen that shows one text at a time.
///
/// A request is one turn; its id is `turn-N`, counted from 0.
pub trait RuntimeUi {
    /// A turn started.
    fn start_streaming(&mut self, request_id: &str);

    /// More text of the turn arrived.
    fn append_streaming(&mut self, request_id: &str, delta: &str);

    /// The turn has ended; this is its whole text. After a retried attempt it differs from the
    /// appended text, and is right.
    fn end_streaming(&mut self, request_id: &str, full_text: &str);
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerResult {
    /// Whether it succeeded.
    pub success: bool,
    /// The answer.
    pub response: String,
    /// Input tokens.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Number of turns.
    pub turns: u32,
    /// Why it stopped.
    pub outcome: Outcome,
}

impl WorkerResult {
    /// The result of a finished run; `None` while it is running.
    #[must_use]
    pub fn of(transcript: &Transcript) -> Option<Self> {
        let outcome = transcript.outcome.clone()?;
        let root = transcript.outline.agents.get(&AgentNo::ROOT);
        Some(Self {
            success: is_success(&outcome),
            response: transcript.answer(AgentNo::ROOT),
            input_tokens: transcript.usage.input,
            output_tokens: transcript.usage.output,
            turns: root.map_or(0, |root| root.turn),
            outcome,
        })
    }
}

/// Whether an agent ended by itself, and was not cut off by a limit.
pub(crate) fn is_success(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Completed { stop } => match stop {
            Stop::EndTurn | Stop::StopSequence | Stop::ToolCalls | Stop::Other(_) => true,
            Stop::MaxTokens
            | Stop::Refusal
            | Stop::ContentFilter
            | Stop::Paused
            | Stop::TurnLimit
            | Stop::Budget(_) => false,
        },
        Outcome::Cancelled { .. } | Outcome::Failed { .. } => false,
    }
}

/// Shows a run on a screen until it ends, and returns its result.
///
/// # Errors
///
/// If the log cannot be read.
pub async fn show(
    mut cursor: Cursor,
    ui: &mut dyn RuntimeUi,
) -> Result<Option<WorkerResult>, ReadError> {
    let mut shown = Shown::default();
    while let Some(frames) = cursor.next().await? {
        for frame in &frames {
            for record in frame.records() {
                shown.apply(record, ui);
            }
        }
    }
    Ok(WorkerResult::of(&shown.transcript))
}

#[derive(Default)]
struct Shown {
    transcript: Transcript,
    request: Option<String>,
}

impl Shown {
    fn apply(&mut self, record: &Record, ui: &mut dyn RuntimeUi) {
        if record.agent.is_root() {
            self.show(record, ui);
        }
        self.transcript.apply(record);
    }

    fn show(&mut self, record: &Record, ui: &mut dyn RuntimeUi) {
        if let Event::TurnStarted(turn) = &record.event
            && turn.attempt == 1
        {
            let id = format!("turn-{}", turn.turn.saturating_sub(1));
            ui.start_streaming(&id);
            self.request = Some(id);
        }
        if let (Event::PartDelta { part, chunk }, Some(id)) = (&record.event, &self.request)
            && let Some(part) = self.transcript.outline.part(*part)
            && part.shape == PartShape::Text(Role::Assistant)
        {
            ui.append_streaming(id, chunk);
        }
        if matches!(record.event, Event::TurnFinished { .. } | Event::RunFinished { .. })
            && let Some(id) = self.request.take()
        {
            ui.end_streaming(&id, &self.turn_text());
        }
    }

    fn turn_text(&self) -> String {
        let items = self.transcript.agents.get(&AgentNo::ROOT).map_or(&[][..], |root| &root.items);
        let turn = items.iter().rev().find_map(|item| match item {
            wellspring_core::Item::Turn(turn) => Some(turn),
            wellspring_core::Item::Part(_) | wellspring_core::Item::Input(_) => None,
        });
        let parts = turn.map_or(&[][..], |turn| &turn.parts);
        let texts = parts
            .iter()
            .filter_map(|id| self.transcript.parts.get(id))
            .filter(|part| part.kind == wellspring_core::PartKind::TEXT);
        texts.map(|part| part.text.as_str()).collect()
    }
}
