//! A `RuntimeUi`: streaming text by request, the queue of tools, and a result at the end.

use std::collections::BTreeMap;

use wellspring_core::{
    AgentNo, Event, Item, Outcome, PartId, PartKind, PartShape, Record, Role, Stop, Transcript,
    WirePartId,
};
use wellspring_log::{Cursor, ReadError};

use crate::calls::arguments::parse_arguments;
use crate::calls::queue::QueuedToolCall;

/// A screen that shows one text at a time.
///
/// A request is one turn; its id is `turn-N`, counted from 0. A remote agent has no turns: there,
/// a request is one prompt, and its id is `remote-N`.
pub trait RuntimeUi {
    /// A turn started.
    fn start_streaming(&mut self, request_id: &str);

    /// More text of the turn arrived. Not called for a turn that does not stream, and not for
    /// what an earlier attempt at the turn has said in the same words.
    fn append_streaming(&mut self, request_id: &str, delta: &str);

    /// The turn has ended; this is its whole text. After a retried attempt it differs from the
    /// appended text, and is right.
    fn end_streaming(&mut self, request_id: &str, full_text: &str);

    /// The queue of waiting calls has changed. `waiting` lists them in the order in which they will
    /// start. The log does not contain their priorities, so those are `None`. The default does
    /// nothing.
    fn queue_changed(&mut self, waiting: &[QueuedToolCall]) {
        let _ = waiting;
    }
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
    request: Option<Request>,
    /// How many requests outside of turns there were.
    remote_requests: u32,
    /// The calls that wait for their tools, with their places.
    queued: BTreeMap<PartId, u32>,
    /// The queue that was last passed to the interface.
    queue: Vec<QueuedToolCall>,
}

/// A request whose text is shown.
struct Request {
    id: String,
    /// What was appended.
    shown: String,
    /// The text of the current attempt, while all of it is known from an earlier attempt.
    repeated: Option<String>,
    streaming: bool,
}

impl Request {
    fn start(id: String, streaming: bool, ui: &mut dyn RuntimeUi) -> Self {
        ui.start_streaming(&id);
        Self { id, shown: String::new(), repeated: None, streaming }
    }

    /// Appends text. What an earlier attempt said in the same words is not said twice.
    fn append(&mut self, text: &str, ui: &mut dyn RuntimeUi) {
        if !self.streaming {
            return;
        }
        let Some(repeated) = &mut self.repeated else {
            self.shown.push_str(text);
            ui.append_streaming(&self.id, text);
            return;
        };
        repeated.push_str(text);
        let new = if let Some(new) = repeated.strip_prefix(&*self.shown) {
            new.to_owned()
        } else if self.shown.starts_with(&**repeated) {
            return;
        } else {
            format!("\n\n{repeated}")
        };
        self.repeated = None;
        if !new.is_empty() {
            self.append(&new, ui);
        }
    }
}

impl Shown {
    fn apply(&mut self, record: &Record, ui: &mut dyn RuntimeUi) {
        if record.agent.is_root() {
            self.show(record, ui);
            self.show_queue(&record.event, ui);
        }
        self.transcript.apply(record);
    }

    fn show_queue(&mut self, event: &Event, ui: &mut dyn RuntimeUi) {
        if let Event::ToolQueued { call, place } = event {
            self.queued.insert(*call, *place);
        } else if let Event::ToolStarted { call, .. } | Event::ToolFinished { call, .. } = event {
            self.queued.remove(call);
        } else if let Event::PartsVoided { parts, .. } = event {
            self.queued.retain(|call, _| !parts.contains(call));
        } else {
            return;
        }
        let mut calls: Vec<_> = self.queued.iter().map(|(call, place)| (*place, *call)).collect();
        calls.sort_unstable();
        let queue: Vec<_> = calls.iter().filter_map(|(_, call)| self.waiting(*call)).collect();
        if self.queue != queue {
            ui.queue_changed(&queue);
            self.queue = queue;
        }
    }

    fn waiting(&self, part: PartId) -> Option<QueuedToolCall> {
        let outline = &self.transcript.outline;
        let (run, call) = (outline.run.as_ref()?.run, outline.call(part)?);
        Some(QueuedToolCall {
            tool_call_id: WirePartId { run, part }.to_string().into(),
            tool_name: call.tool.name.clone(),
            tool_args: parse_arguments(&call.arguments).as_object().cloned().unwrap_or_default(),
            priority: None,
        })
    }

    fn show(&mut self, record: &Record, ui: &mut dyn RuntimeUi) {
        let in_turn = self.transcript.outline.agents.get(&AgentNo::ROOT).map(|root| root.in_turn);
        if let Event::TurnStarted(turn) = &record.event {
            if turn.attempt == 1 || self.request.is_none() {
                self.end(ui);
                let id = format!("turn-{}", turn.turn.saturating_sub(1));
                self.request = Some(Request::start(id, turn.streaming, ui));
            } else if let Some(request) = &mut self.request {
                request.streaming = turn.streaming;
                request.repeated = Some(String::new());
            }
        }
        // A remote agent has no turns: what it says and does is one request per prompt.
        let speaks = matches!(
            &record.event,
            Event::PartStarted { kind, .. } if *kind != PartKind::Text { role: Role::User }
        );
        if speaks && in_turn == Some(false) && self.request.is_none() && !self.has_turns() {
            let id = format!("remote-{}", self.remote_requests);
            self.remote_requests += 1;
            self.request = Some(Request::start(id, true, ui));
        }
        if let (Event::PartDelta { part, chunk }, Some(request)) =
            (&record.event, &mut self.request)
            && let Some(part) = self.transcript.outline.part(*part)
            && part.shape == PartShape::Text(Role::Assistant)
        {
            request.append(chunk, ui);
        }
        // A follow-up prompt ends the request of a remote agent.
        let is_follow_up =
            matches!(record.event, Event::InputApplied { .. }) && in_turn == Some(false);
        if is_follow_up
            || matches!(record.event, Event::TurnFinished { .. } | Event::RunFinished { .. })
        {
            self.end(ui);
        }
    }

    fn has_turns(&self) -> bool {
        self.transcript.outline.agents.get(&AgentNo::ROOT).is_some_and(|root| root.turn > 0)
    }

    fn end(&mut self, ui: &mut dyn RuntimeUi) {
        if let Some(request) = self.request.take() {
            ui.end_streaming(&request.id, &self.text());
        }
    }

    /// The whole text of the latest turn; of a remote agent, since its latest prompt.
    fn text(&self) -> String {
        let items = self.transcript.agents.get(&AgentNo::ROOT).map_or(&[][..], |root| &root.items);
        let mut parts = Vec::new();
        for item in items.iter().rev() {
            match item {
                Item::Turn(turn) if parts.is_empty() => {
                    parts.extend(turn.parts.iter().rev());
                    break;
                }
                Item::Part(part) => parts.push(part),
                Item::Turn(_) | Item::Input(_) => break,
            }
        }
        let texts = parts
            .into_iter()
            .rev()
            .filter_map(|id| self.transcript.parts.get(id))
            .filter(|part| part.kind == PartKind::TEXT);
        texts.map(|part| part.text.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use wellspring_core::{FailureKind, VoidReason};
    use wellspring_testkit::RunBuilder;

    use super::*;

    #[derive(Default)]
    struct Screen(Vec<String>);

    impl RuntimeUi for Screen {
        fn start_streaming(&mut self, id: &str) {
            self.0.push(format!("start {id}"));
        }

        fn append_streaming(&mut self, id: &str, delta: &str) {
            self.0.push(format!("append {id} {delta:?}"));
        }

        fn end_streaming(&mut self, id: &str, full_text: &str) {
            self.0.push(format!("end {id} {full_text:?}"));
        }

        fn queue_changed(&mut self, waiting: &[QueuedToolCall]) {
            let calls = waiting.iter().map(|call| {
                let (_, part) = call.tool_call_id.rsplit_once('-').unwrap();
                format!("{part} {} {}", call.tool_name, Value::from(call.tool_args.clone()))
            });
            self.0.push(format!("queue {:?}", calls.collect::<Vec<_>>()));
        }
    }

    fn shown(records: &[Record]) -> Vec<String> {
        let mut screen = Screen::default();
        let mut shown = Shown::default();
        records.iter().for_each(|record| shown.apply(record, &mut screen));
        screen.0
    }

    /// A remote agent has no turns, and streams like any other.
    #[test]
    fn a_remote_agent_streams_under_a_request_id_of_its_own() {
        let mut run = RunBuilder::new("acp", "Hello?");
        run.thought(&["Hm."]);
        run.text(&["Hello", " there."]);
        let call = run.call("read", &["{}"]);
        run.start(call).ok(call, "x");
        run.text(&[" Done."]);
        let want = [
            "start remote-0",
            r#"append remote-0 "Hello""#,
            r#"append remote-0 " there.""#,
            r#"append remote-0 " Done.""#,
            r#"end remote-0 "Hello there. Done.""#,
        ];
        assert_eq!(shown(&run.complete()), want);
    }

    #[test]
    fn a_retried_attempt_does_not_append_its_text_twice() {
        let mut run = RunBuilder::new("demo", "Hello?");
        run.turn();
        let first = run.open(PartKind::TEXT);
        run.delta(first, "Hello").delta(first, " th").void(&[first], VoidReason::Restarted);
        run.turn();
        run.text(&["Hel", "lo the", "re."]);
        run.stop(Stop::EndTurn);
        let want = [
            "start turn-0",
            r#"append turn-0 "Hello""#,
            r#"append turn-0 " th""#,
            r#"append turn-0 "e""#,
            r#"append turn-0 "re.""#,
            r#"end turn-0 "Hello there.""#,
        ];
        assert_eq!(shown(&run.complete()), want);
    }

    /// A screen that can only append shows another answer below; the whole text is right.
    #[test]
    fn a_retried_attempt_that_says_something_else_starts_a_paragraph() {
        let mut run = RunBuilder::new("demo", "Hello?");
        run.turn();
        let first = run.open(PartKind::TEXT);
        run.delta(first, "Hello").void(&[first], VoidReason::Restarted);
        run.turn();
        run.text(&["Good", " day."]);
        let want = [
            "start turn-0",
            r#"append turn-0 "Hello""#,
            r#"append turn-0 "\n\nGood""#,
            r#"append turn-0 " day.""#,
            r#"end turn-0 "Good day.""#,
        ];
        assert_eq!(shown(&run.fail(FailureKind::Internal, "no")), want);
    }

    /// An interface gets every change of the queue: which calls wait, and in which order.
    #[test]
    fn the_queue_is_shown() {
        let mut run = RunBuilder::new("demo", "Go.");
        run.turn();
        let edit = run.call("edit", &[r#"{"path":"#, r#""a"}"#]);
        let urgent = run.call("urgent", &["{}"]);
        run.stop(Stop::ToolCalls).queue(edit, 1).queue(urgent, 0);
        run.start(urgent).ok(urgent, "x").start(edit).ok(edit, "y");
        let queue: Vec<_> =
            shown(&run.complete()).into_iter().filter(|line| line.starts_with("queue")).collect();
        let want = [
            r#"queue ["0 edit {\"path\":\"a\"}"]"#,
            r#"queue ["1 urgent {}", "0 edit {\"path\":\"a\"}"]"#,
            r#"queue ["0 edit {\"path\":\"a\"}"]"#,
            "queue []",
        ];
        assert_eq!(queue, want);
    }

    #[test]
    fn a_blocking_turn_appends_nothing() {
        let mut run = RunBuilder::new("demo", "Hello?");
        run.blocking_turn();
        run.text(&["Hello", " there."]);
        run.stop(Stop::EndTurn);
        assert_eq!(shown(&run.complete()), ["start turn-0", r#"end turn-0 "Hello there.""#]);
    }
}
