//! Records as use-ai's events: AG-UI's, changed where use-ai differs.

use serde_json::{Map, Value, json};
use wellspring_core::{
    AgentNo, Event as Fact, Millis, Outline, Record, RunHead, RunStarted, Stop, Transcript,
    WirePartId,
};

use super::read::to_use_ai;
use super::types::{RunError, StepFinished, StepStarted, ToolApprovalRequest};
use crate::ag_ui::types::{
    self as ag_ui, Event, Message, MessageContent, Metadata, RunAgentInput, StateSnapshot,
};
use crate::ag_ui::{AgUi, Delta, Pauses, ids, messages};
use crate::dialect::end_message::finish_reason;
use crate::dialect::options::{Options, ReasoningEvents};
use crate::dialect::out::{Json, Out};
use crate::dialect::{Before, Closed, Dialect, Fold, Joins};

/// The message of an aborted run's error.
const ABORTED: &str = "Run aborted by user";

/// The start of a reasoning delta, and what older clients expect instead.
const REASONING_DELTA: &str = r#"{"type":"REASONING_MESSAGE_CONTENT""#;
const THINKING_DELTA: &str = r#"{"type":"THINKING_TEXT_MESSAGE_CONTENT""#;

/// The dialect `use_ai`.
///
/// ```
/// use wellspring_core::{AgentNo, Event, Millis, Record, RunRequest, RunStarted, Seq, WireNames};
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
/// let record = Record { seq: Seq(1), agent: AgentNo::ROOT, at: Millis(5), event };
///
/// let mut out = Out::default();
/// Encoder::new(DialectName::UseAi).frame(&[record], &mut out);
/// let kinds = ["RUN_STARTED", "MESSAGES_SNAPSHOT", "STATE_SNAPSHOT"];
/// for ((_, json), kind) in out.events().zip(kinds) {
///     let event: serde_json::Value = serde_json::from_slice(json)?;
///     assert_eq!((&event["type"], &event["timestamp"]), (&kind.into(), &5.into()));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct UseAi {
    ag_ui: AgUi,
    reasoning_events: ReasoningEvents,
}

/// The members that use-ai adds to every event.
struct Tail {
    at: Millis,
    run: Box<str>,
}

impl Tail {
    fn write(&self, event: &Event, json: &mut Json<'_>) {
        self.timestamp(json);
        // These events already name their run.
        if !matches!(event, Event::RunStarted(_) | Event::RunFinished(_)) {
            self.run(json);
        }
    }

    fn all(&self, json: &mut Json<'_>) {
        self.timestamp(json);
        self.run(json);
    }

    fn timestamp(&self, json: &mut Json<'_>) {
        json.raw(r#","timestamp":"#).value(&self.at.0);
    }

    fn run(&self, json: &mut Json<'_>) {
        json.raw(r#","runId":"#).string(&self.run);
    }
}

impl UseAi {
    pub(crate) fn new(options: &Options) -> Self {
        let ag_ui = AgUi::pausing(options, Pauses::Invisible);
        Self { ag_ui, reasoning_events: options.reasoning_events }
    }

    /// Whether the event is to be sent under its older name.
    fn renames(&self, event: &Event) -> bool {
        self.reasoning_events == ReasoningEvents::Thinking
            && matches!(
                event,
                Event::ReasoningStart(_)
                    | Event::ReasoningMessageStart(_)
                    | Event::ReasoningMessageContent(_)
                    | Event::ReasoningMessageEnd(_)
                    | Event::ReasoningEnd(_)
            )
    }

    /// Starts a run: the request, the conversation and the state.
    fn begin(
        &self,
        before: Before<'_>,
        record: &Record,
        started: &RunStarted,
        tail: &Tail,
        out: &mut Out,
    ) {
        let mut transcript = Transcript::default();
        transcript.apply(record);
        let mut events = self.ag_ui.events(before, record).into_iter();
        let Some(Event::RunStarted(mut first)) = events.next() else { return };
        first.input = Some(input(started, &transcript));
        self.say(Event::RunStarted(first), &transcript.outline, None, tail, out);
        let conversation = self.ag_ui.conversation(before, record);
        let state = events.next().unwrap_or_else(no_state);
        for event in conversation.into_iter().chain([state]).chain(events) {
            self.say(event, &transcript.outline, None, tail, out);
        }
    }

    /// Writes an AG-UI event in use-ai's form. `stop` is the reason why the turn ended, if it
    /// did.
    fn say(
        &self,
        event: Event,
        outline: &Outline,
        stop: Option<&Stop>,
        tail: &Tail,
        out: &mut Out,
    ) {
        if let Event::StepStarted(step) = event {
            let ag_ui::StepStarted { step_name, subagent_run_id, metadata, .. } = *step;
            let step_number = step_number(metadata.as_ref());
            let started = StepStarted {
                kind: "STEP_STARTED",
                step_name,
                step_number,
                subagent_run_id,
                metadata,
            };
            out.event_with(&started, |json| tail.all(json));
        } else if let Event::StepFinished(step) = event {
            let ag_ui::StepFinished { step_name, subagent_run_id, mut metadata, .. } = *step;
            let finished = StepFinished {
                kind: "STEP_FINISHED",
                step_name,
                step_number: step_number(metadata.as_ref()),
                usage: metadata.as_mut().and_then(|metadata| metadata.remove("usage")),
                finish_reason: stop.map(|stop| finish_reason(stop).into()),
                subagent_run_id,
            };
            out.event_with(&finished, |json| tail.all(json));
        } else if let Event::RunFinished(finished) = &event
            && let Some(ag_ui::RunOutcome::Cancelled {}) = finished.outcome
        {
            let aborted = RunError {
                kind: "RUN_ERROR",
                message: ABORTED,
                error: ABORTED.into(),
                code: Some("aborted".into()),
                usage: finished.usage.clone(),
                metadata: finished.metadata.clone(),
                run_id: None,
            };
            out.event_with(&aborted, |json| tail.all(json));
        } else if let Event::RunError(error) = event {
            let ag_ui::RunError { message: error, code, usage, metadata, .. } = *error;
            let message = error_name(code.as_deref());
            let kind = "RUN_ERROR";
            let error = RunError { kind, message, error, code, usage, metadata, run_id: None };
            out.event_with(&error, |json| tail.all(json));
        } else if let Some(approval) = approval(&event, outline) {
            out.event_with(&approval, |json| tail.all(json));
        } else if has_media(&event) || self.renames(&event) {
            let mut value = json!(event);
            to_use_ai(&mut value);
            if self.renames(&event) {
                rename_reasoning(&mut value);
            }
            out.event_with(&value, |json| tail.write(&event, json));
        } else {
            out.event_with(&event, |json| tail.write(&event, json));
        }
    }
}

impl Dialect for UseAi {
    fn encode(&mut self, before: Before<'_>, record: &Record, out: &mut Out) {
        let outline = before.outline();
        match self.ag_ui.delta(outline, record) {
            Delta::Shown { before, chunk, after } => {
                return out.write(|json| {
                    let rest = before.strip_prefix(REASONING_DELTA);
                    match rest.filter(|_| self.reasoning_events == ReasoningEvents::Thinking) {
                        Some(rest) => json.raw(THINKING_DELTA).raw(rest),
                        None => json.raw(before),
                    };
                    json.string(chunk).raw(r#","timestamp":"#).value(&record.at.0).raw(after);
                });
            }
            Delta::Hidden => return,
            Delta::Other => {}
        }
        if let Fact::RunStarted(started) = &record.event {
            if outline.run.is_none() {
                let mut after = Outline::default();
                after.apply(record);
                if let Some(tail) = tail(after.run.as_ref(), record.at) {
                    self.begin(before, record, started, &tail, out);
                }
            }
            return;
        }
        let Some(tail) = tail(outline.run.as_ref(), record.at) else { return };
        let stop =
            if let Fact::TurnFinished { stop, .. } = &record.event { Some(stop) } else { None };
        self.ag_ui.project(before, record, &mut |event| {
            let event = with_all_text(event, before.transcript());
            self.say(event, outline, stop, &tail, out);
        });
    }

    /// The transcript, because the end repeats the answer and a snapshot repeats everything.
    fn fold(&self) -> Fold {
        Fold::Transcript
    }

    fn needs_history(&self, _before: &Outline, event: &Fact) -> bool {
        matches!(event, Fact::RunStarted(_) | Fact::PartsVoided { .. })
    }

    fn joins(&self) -> Joins {
        Joins::Snapshot
    }

    fn join(&self, now: Before<'_>, out: &mut Out) {
        let Some(transcript) = now.transcript() else { return };
        let outline = &transcript.outline;
        let Some(tail) = tail(outline.run.as_ref(), transcript.updated_at) else { return };
        let mut events = self.ag_ui.joined(now).peekable();
        if let Some(Event::RunStarted(mut first)) = events.next() {
            first.input = transcript.started.as_ref().map(|started| input(started, transcript));
            self.say(Event::RunStarted(first), outline, None, &tail, out);
        }
        let is_snapshot = |event: &Event| matches!(event, Event::MessagesSnapshot(_));
        if let Some(conversation) = events.next_if(is_snapshot) {
            self.say(conversation, outline, None, &tail, out);
        }
        let is_state = |event: &Event| matches!(event, Event::StateSnapshot(_));
        let state = events.next_if(is_state).unwrap_or_else(no_state);
        for event in [state].into_iter().chain(events) {
            self.say(with_all_text(event, Some(transcript)), outline, None, &tail, out);
        }
    }

    fn close(&self, why: &Closed<'_>, out: &mut Out) {
        out.event(&refusal(why, None));
    }
}

/// The error for a rejected message, or for a stream that ends before its run.
#[must_use]
pub fn refusal(why: &Closed<'_>, run_id: Option<&str>) -> RunError {
    RunError {
        kind: "RUN_ERROR",
        message: error_name(Some(why.code)),
        error: why.text().into(),
        code: Some(why.code.into()),
        run_id: run_id.map(Into::into),
        ..RunError::default()
    }
}

/// The use-ai error for one of our codes.
fn error_name(code: Option<&str>) -> &'static str {
    match code {
        // The server accepts no requests at the moment.
        Some("unavailable" | "overloaded" | "too_many_runs" | "draining" | "full") => {
            "API_OVERLOADED"
        }
        // This client exceeds a limit.
        Some(
            "rate_limited"
            | "too_often"
            | "too_many_requests"
            | "too_many_streams"
            | "too_many_subscriptions"
            | "too_much_at_once",
        ) => "RATE_LIMITED",
        Some(_) | None => "UNKNOWN_ERROR",
    }
}

fn tail(head: Option<&RunHead>, at: Millis) -> Option<Tail> {
    head.map(|head| Tail { at, run: ids::run(head) })
}

/// Replaces the result of a run by the text of all its turns, as use-ai has it, unless the result
/// is typed. AG-UI's is the text of the last turn.
fn with_all_text(mut event: Event, transcript: Option<&Transcript>) -> Event {
    if let Event::RunFinished(finished) = &mut event
        && let Some(result) = &mut finished.result
        && let Some(transcript) = transcript.filter(|transcript| transcript.result.is_none())
    {
        *result = transcript.words(AgentNo::ROOT).into();
    }
    event
}

fn no_state() -> Event {
    StateSnapshot { snapshot: json!({}), ..StateSnapshot::default() }.into()
}

/// The request as the client could have sent it. Of the conversation, it contains the new
/// input.
fn input(started: &RunStarted, transcript: &Transcript) -> RunAgentInput {
    let request = &started.request;
    let tools = request.client_tools.iter().map(|spec| ag_ui::Tool {
        name: spec.name.clone(),
        description: spec.description.clone(),
        parameters: Some((*spec.parameters).clone()),
        metadata: None,
    });
    let context = request.context.iter().map(|note| ag_ui::Context {
        description: note.description.clone(),
        value: note.value.clone(),
    });
    let head = transcript.outline.run.as_ref();
    let asked = messages(transcript).into_iter().take(usize::from(!request.input.is_empty()));
    RunAgentInput {
        thread_id: head.map(ids::thread).unwrap_or_default(),
        run_id: head.map(ids::run).unwrap_or_default(),
        parent_run_id: head.and_then(|head| head.wire_parent.clone()),
        state: request.state.clone(),
        messages: asked.collect(),
        tools: tools.collect(),
        context: context.collect(),
        forwarded_props: Some(json!({"agent": started.agent})),
        ..RunAgentInput::default()
    }
}

/// The step's number from 0. AG-UI's steps are named after our turns, which count from 1.
fn step_number(metadata: Option<&Metadata>) -> u64 {
    let turn = metadata.and_then(|metadata| metadata.get("number")?.as_u64());
    turn.unwrap_or(1).saturating_sub(1)
}

/// The question of an event, if its answer is yes or no.
fn approval(event: &Event, outline: &Outline) -> Option<ToolApprovalRequest> {
    let Event::Custom(custom) = event else { return None };
    let reason = custom.value.get("reason").and_then(Value::as_str)?;
    if &*custom.name != "question" || !matches!(reason, "tool_call" | "confirmation") {
        return None;
    }
    let name = |member: &str| custom.value.get(member).and_then(Value::as_str);
    let call_id = name("toolCallId");
    let part = call_id.and_then(|id| id.parse::<WirePartId>().ok()).map(|id| id.part);
    let call = part.and_then(|part| outline.call(part));
    let mut annotations = Map::new();
    let said = [("title", call.and_then(|call| call.tool.title.as_deref()))];
    for (member, value) in said.into_iter().chain([("message", name("message"))]) {
        if let Some(value) = value {
            annotations.insert(member.to_owned(), value.into());
        }
    }
    if let Some(call) = call {
        annotations.insert("kind".to_owned(), json!(call.tool.kind));
    }
    let arguments = call.and_then(|call| serde_json::from_str(&call.arguments).ok());
    Some(ToolApprovalRequest {
        kind: "TOOL_APPROVAL_REQUEST",
        tool_call_id: call_id.or_else(|| name("id"))?.into(),
        tool_call_name: call.map(|call| call.tool.name.clone()).unwrap_or_default(),
        tool_call_args: arguments.unwrap_or_else(|| json!({})),
        annotations,
    })
}

/// Whether a user message in the event has parts, which use-ai writes differently.
fn has_media(event: &Event) -> bool {
    let has_parts = |message: &Message| {
        let Message::User(user) = message else { return false };
        matches!(user.content, MessageContent::Parts(_))
    };
    if let Event::MessagesSnapshot(snapshot) = event {
        snapshot.messages.iter().any(has_parts)
    } else if let Event::RunStarted(started) = event {
        started.input.iter().flat_map(|input| &input.messages).any(has_parts)
    } else {
        false
    }
}

/// Renames an event of reasoning to its older name.
fn rename_reasoning(event: &mut Value) {
    let older = match event.get("type").and_then(Value::as_str) {
        Some("REASONING_START") => "THINKING_START",
        Some("REASONING_MESSAGE_START") => "THINKING_TEXT_MESSAGE_START",
        Some("REASONING_MESSAGE_CONTENT") => "THINKING_TEXT_MESSAGE_CONTENT",
        Some("REASONING_MESSAGE_END") => "THINKING_TEXT_MESSAGE_END",
        Some("REASONING_END") => "THINKING_END",
        _ => return,
    };
    event["type"] = older.into();
}
