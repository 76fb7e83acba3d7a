//! Records as AG-UI events.

mod ask;
mod mend;
mod scene;

use serde_json::{Map, Value, json};
use wellspring_core::{
    AgentNo, Amendment, Annotation, Content, ContentChange, Event as Fact, FailureKind, Outcome,
    Outline, OutputStream, PartId, PartKind, PartOutline, PartShape, Record, Role, Stop,
    ToolContent, ToolKind, ToolOutcome, ToolUpdate,
};

pub(super) use scene::{Scene, result_metadata, tool_metadata};

use super::messages::{Texts, conversation_messages};
use super::tally::{Tally, token_usage};
use super::types::{
    ActivityDelta, ActivitySnapshot, Custom, EncryptedSubtype, Event, Message, MessageContent,
    MessagesSnapshot, Metadata, Raw, ReasoningEncryptedValue, ReasoningMessage,
    ReasoningMessageContent, RunError, RunFinished, RunOutcome, StateDelta, StateSnapshot,
    StepFinished, SubagentError, SubagentFinished, SubagentOutcome, TextMessageContent,
    TextMessageEnd, TextMessageStart, TextRole, ToolCallArgs, ToolCallResult,
};
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
        let recalled = self.recalled.take();
        match recalled {
            Some(Recalled { tally, messages }) => {
                self.tally = tally;
                Project { before, record, emit, tally: &self.tally, messages: Some(messages) }
                    .fact();
            }
            None => {
                if let Fact::PartDelta { part, .. } = &record.event {
                    self.tally.grow(before.head, record, before.part(*part));
                } else {
                    self.tally.follow(before, record);
                }
                Project { before, record, emit, tally: &self.tally, messages: None }.fact();
            }
        }
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

/// One record on its way to the wire.
struct Project<'a> {
    before: &'a Outline,
    record: &'a Record,
    emit: &'a mut dyn FnMut(Event),
    tally: &'a Tally,
    /// The whole conversation after this record, where it was recalled.
    messages: Option<Vec<Message>>,
}

impl Project<'_> {
    fn say(&mut self, event: impl Into<Event>) {
        (self.emit)(event.into());
    }

    fn fact(&mut self) {
        let record = self.record;
        if let Fact::RunStarted(started) = &record.event {
            if self.before.run.is_none() {
                self.run_started(started);
            }
            return;
        }
        let Some(scene) = Scene::new(self.before) else { return };
        // On the wire a paused run is over; nothing can follow but another one.
        if self.before.paused.is_some() {
            if let Fact::RunResumed { wire_run, amended, .. } = &record.event {
                self.resumed(&scene, wire_run.as_deref(), amended.as_deref());
            } else if let Fact::RunFinished { outcome } = &record.event {
                self.finished_while_paused(&scene, outcome);
            }
            return;
        }
        match &record.event {
            Fact::PartDelta { part, chunk } => self.grown(&scene, *part, chunk),
            Fact::PartStarted { part, kind } => self.part_started(&scene, *part, kind),
            Fact::PartFinished { part } => {
                if self.before.part(*part).is_some_and(|part| part.open) {
                    scene.close_part(*part, self.emit);
                }
            }
            Fact::PartAnnotated { part, annotation } => self.annotated(&scene, *part, annotation),
            Fact::PartsVoided { parts, .. } => self.voided(&scene, parts),
            Fact::TurnStarted(turn) => {
                let Some(agent) = self.before.agents.get(&record.agent) else { return };
                if agent.in_turn && agent.turn == turn.turn {
                    return;
                }
                scene.close_step(record.agent, self.emit);
                let model = Some(("model", json!(turn.model)));
                scene.open_step(record.agent, turn.turn, model, self.emit);
            }
            Fact::TurnFinished { stop, usage } => {
                let agent = self.before.agents.get(&record.agent).filter(|agent| agent.in_turn);
                let Some(agent) = agent else { return };
                let mut metadata = Metadata::new();
                metadata.insert("number".into(), agent.turn.into());
                metadata.insert("finishReason".into(), finish_reason(stop).into());
                if let Some(usage) = usage {
                    metadata.insert("usage".into(), json!(token_usage(usage)));
                }
                self.say(StepFinished {
                    step_name: ids::step(agent.turn),
                    subagent_run_id: scene.tag(record.agent),
                    metadata: Some(metadata),
                    ..StepFinished::default()
                });
            }
            Fact::ToolQueued { call, place } => {
                if scene.call(*call).is_some() {
                    let value = json!({"toolCallId": scene.id(*call), "place": place});
                    self.custom(&scene, "tool_queued", value);
                }
            }
            Fact::ToolStarted { call, mode, arguments } => {
                if scene.call(*call).is_some() {
                    let mut value = json!({"toolCallId": scene.id(*call), "mode": mode});
                    if let (Some(edited), Value::Object(value)) = (arguments, &mut value) {
                        value.insert("arguments".into(), (**edited).clone());
                    }
                    self.custom(&scene, "tool_started", value);
                }
            }
            Fact::ToolUpdated { call, update } => self.tool_updated(&scene, *call, update),
            Fact::ToolFinished { call, outcome, result } => {
                self.tool_finished(&scene, *call, *outcome, result);
            }
            Fact::QuestionAsked(question) => {
                let interrupt = scene.interrupt(question.question, &ask::outline(record, question));
                self.custom(&scene, "question", json!(interrupt));
            }
            Fact::QuestionAnswered(answered) => {
                let mut value = json!({
                    "interruptId": ids::question(scene.head.run, answered.question),
                    "answer": answered.answer,
                });
                if let (Some(by), Value::Object(value)) = (&answered.by, &mut value) {
                    value.insert("by".into(), json!(by));
                }
                self.custom(&scene, "answer", value);
            }
            Fact::AgentStarted { parent, call, name, .. } => {
                if !self.before.agents.contains_key(&record.agent) && !record.agent.is_root() {
                    scene.start_agent(record.agent, *parent, *call, name, self.emit);
                }
            }
            Fact::AgentFinished { outcome } => {
                if self.before.agents.contains_key(&record.agent) && !record.agent.is_root() {
                    scene.close_step(record.agent, self.emit);
                    self.agent_finished(&scene, outcome);
                }
            }
            Fact::PlanUpdated { entries } => {
                let content = Map::from_iter([("entries".to_owned(), json!(entries))]);
                self.say(ActivitySnapshot {
                    message_id: ids::plan(scene.head.run),
                    activity_type: ids::PLAN.into(),
                    content,
                    ..ActivitySnapshot::default()
                });
            }
            Fact::StateSet { state } => self.say(StateSnapshot {
                snapshot: (**state).clone(),
                subagent_run_id: scene.tag(record.agent),
                ..StateSnapshot::default()
            }),
            Fact::StatePatched { patch } => {
                if let Some(delta) = valid_patch(patch) {
                    self.say(StateDelta {
                        delta,
                        subagent_run_id: scene.tag(record.agent),
                        ..StateDelta::default()
                    });
                }
            }
            Fact::SourceCited(source) => self.custom(&scene, "source", json!(source)),
            Fact::FileProduced(file) => self.custom(&scene, "file", json!(file)),
            Fact::UsageReported(usage) => self.custom(&scene, "usage", json!(usage)),
            Fact::InputAccepted { inbox, content } => {
                let id = ids::steering(scene.head.run, *inbox);
                self.user_words(id, content);
            }
            Fact::InputApplied { inbox } => {
                let id = ids::steering(scene.head.run, *inbox);
                self.custom(&scene, "input_applied", json!({"messageId": id}));
            }
            Fact::ResultReady { value } => self.custom(&scene, "result", (**value).clone()),
            Fact::Extended(extended) => self.say(Raw {
                event: json!({"name": extended.name, "value": extended.value}),
                source: Some(extended.origin.clone()),
                subagent_run_id: scene.tag(record.agent),
                ..Raw::default()
            }),
            Fact::RunPaused { waits } => {
                let interrupts = scene.interrupts(waits);
                scene.close_all(&interrupts, self.emit);
                (self.emit)(scene.paused(waits, interrupts));
            }
            Fact::RunFinished { outcome } => {
                scene.close_all(&[], self.emit);
                self.finished(&scene, outcome);
            }
            // A run that is not paused is not resumed. Owners and handles are our own affair.
            Fact::RunStarted(_)
            | Fact::RunResumed { .. }
            | Fact::RunAdopted { .. }
            | Fact::Attached { .. } => {}
        }
    }

    fn run_started(&mut self, started: &wellspring_core::RunStarted) {
        let mut after = Outline::default();
        after.apply(self.record);
        let Some(scene) = Scene::new(&after) else { return };
        self.say(scene.run_started());
        if let Some(state) = &started.request.state {
            self.say(StateSnapshot { snapshot: state.clone(), ..StateSnapshot::default() });
        }
    }

    /// Another run on the wire. It goes on with calls of the one before, so it says them again:
    /// whoever knows only this one could make nothing of their results.
    fn resumed(&mut self, scene: &Scene<'_>, wire_run: Option<&str>, amended: Option<&Amendment>) {
        let parent = amended.and_then(|amended| amended.wire_parent.as_deref());
        self.say(match wire_run {
            Some(run) => scene.run_resumed(run, parent),
            None => scene.run_started(),
        });
        self.snapshot(&[]);
        scene.open_all(self.emit);
    }

    /// A run that nobody answered: the wire's run is over, so the end is one of its own.
    fn finished_while_paused(&mut self, scene: &Scene<'_>, outcome: &Outcome) {
        self.say(scene.run_started());
        self.snapshot(&[]);
        self.finished(scene, outcome);
    }

    fn finished(&mut self, scene: &Scene<'_>, outcome: &Outcome) {
        let tally = Some(self.tally).filter(|tally| tally.is_complete(self.record.seq));
        (self.emit)(terminal(scene, tally, outcome));
    }

    fn part_started(&mut self, scene: &Scene<'_>, part: PartId, kind: &PartKind) {
        let agent = self.record.agent;
        // A log that breaks the grammar may open a part twice; the wire must not.
        if self.before.part(part).is_some_and(|part| part.open) {
            scene.close_part(part, self.emit);
        }
        match kind {
            PartKind::Text { role } => scene.open_text(part, agent, *role, self.emit),
            PartKind::Thought => scene.open_thought(part, agent, self.emit),
            PartKind::ToolCall(tool) => {
                let turn = self.before.agents.get(&agent).filter(|agent| agent.in_turn);
                let turn = turn.map_or(0, |agent| agent.turn);
                scene.open_call(part, agent, turn, tool, self.emit);
            }
            PartKind::Output { call, .. } => self.progress(scene, *call, Vec::new()),
            PartKind::Opaque(opaque) => self.say(Raw {
                event: opaque.raw.clone(),
                source: Some(opaque.origin.clone()),
                subagent_run_id: scene.tag(agent),
                ..Raw::default()
            }),
        }
    }

    fn grown(&mut self, scene: &Scene<'_>, part: PartId, chunk: &str) {
        let Some(outline) = self.before.part(part).filter(|part| part.open) else { return };
        let tag = scene.tag(outline.agent);
        let id = scene.id(part);
        match outline.shape {
            PartShape::Text(_) => self.say(TextMessageContent {
                message_id: id,
                delta: chunk.into(),
                subagent_run_id: tag,
                ..TextMessageContent::default()
            }),
            PartShape::Thought => self.say(ReasoningMessageContent {
                message_id: id,
                delta: chunk.into(),
                subagent_run_id: tag,
                ..ReasoningMessageContent::default()
            }),
            PartShape::Call if scene.call(part).is_some() => self.say(ToolCallArgs {
                tool_call_id: id,
                delta: chunk.into(),
                subagent_run_id: tag,
                ..ToolCallArgs::default()
            }),
            PartShape::Output(call, stream) => {
                let piece = json!({"stream": stream_name(stream), "text": chunk});
                let patch = vec![json!({"op": "add", "path": "/output/-", "value": piece})];
                self.patch_progress(scene, call, patch);
            }
            PartShape::Call | PartShape::Opaque => {}
        }
    }

    fn annotated(&mut self, scene: &Scene<'_>, part: PartId, annotation: &Annotation) {
        let Some(outline) = self.before.part(part) else { return };
        let subtype = match outline.shape {
            PartShape::Text(_) | PartShape::Thought => EncryptedSubtype::Message,
            // Whether it is shown is no longer known of a call that has its result; to a client
            // that was not shown it, this says nothing.
            PartShape::Call => EncryptedSubtype::ToolCall,
            PartShape::Output(..) | PartShape::Opaque => return,
        };
        match annotation {
            Annotation::Signature(value) | Annotation::Encrypted(value) => {
                self.say(ReasoningEncryptedValue {
                    subtype,
                    entity_id: scene.id(part),
                    encrypted_value: value.clone(),
                    subagent_run_id: scene.tag(outline.agent),
                    ..ReasoningEncryptedValue::default()
                });
            }
            Annotation::ProviderId(_)
            | Annotation::Citation(_)
            | Annotation::Preamble
            | Annotation::Other(_) => {
                let value = json!({"entityId": scene.id(part), "annotation": annotation});
                self.say(Custom {
                    name: "annotation".into(),
                    value,
                    subagent_run_id: scene.tag(outline.agent),
                    ..Custom::default()
                });
            }
        }
    }

    fn voided(&mut self, scene: &Scene<'_>, parts: &[PartId]) {
        let mut shown = false;
        let mut thoughts = Vec::new();
        for part in parts {
            let Some(outline) = self.before.part(*part) else { continue };
            shown |= match outline.shape {
                PartShape::Text(_) | PartShape::Thought | PartShape::Call => true,
                PartShape::Output(..) | PartShape::Opaque => false,
            };
            if outline.shape == PartShape::Thought {
                thoughts.push(ReasoningMessage {
                    id: scene.id(*part),
                    subagent_run_id: scene.tag(outline.agent),
                    ..ReasoningMessage::default()
                });
            }
            if outline.open {
                self.complete(scene, *part);
                scene.close_part(*part, self.emit);
            }
        }
        if shown {
            self.snapshot(&thoughts);
        }
    }

    /// Makes the arguments of a call that is taken back ones that can be read.
    fn complete(&mut self, scene: &Scene<'_>, part: PartId) {
        let Some(call) = scene.call(part) else { return };
        let rest = mend::completion(&call.arguments);
        if !call.arguments.is_empty() && !rest.is_empty() {
            self.say(ToolCallArgs {
                tool_call_id: scene.id(part),
                delta: rest.into(),
                subagent_run_id: scene.tag(call.agent),
                ..ToolCallArgs::default()
            });
        }
    }

    /// The whole conversation, without what was taken back.
    fn snapshot(&mut self, voided: &[ReasoningMessage]) {
        let Some(mut messages) = self.messages.take() else { return };
        // Clients keep their reasoning when a snapshot has none at all.
        if !messages.iter().any(|message| matches!(message, Message::Reasoning(_))) {
            messages.extend(voided.iter().cloned().map(Message::Reasoning));
        }
        self.say(messages_snapshot(messages));
    }

    fn tool_updated(&mut self, scene: &Scene<'_>, call: PartId, update: &ToolUpdate) {
        let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
        let mut patch = Vec::new();
        if let Some(title) = &update.title {
            patch.push(add("/title", json!(title)));
        }
        if !update.locations.is_empty() {
            patch.push(add("/locations", json!(update.locations)));
        }
        match &update.content {
            Some(ContentChange::Append(more)) => {
                patch.extend(more.iter().map(|content| add("/content/-", json!(content))));
            }
            Some(ContentChange::Replace(all)) => patch.push(add("/content", json!(all))),
            None => {}
        }
        if let Some(data) = &update.data {
            patch.push(add("/data", data.clone()));
        }
        // An update that says nothing shows nothing, to those who join later either.
        if !patch.is_empty() {
            self.progress(scene, call, patch);
        }
    }

    /// Makes sure that a call's progress is there, then changes it.
    fn progress(&mut self, scene: &Scene<'_>, call: PartId, patch: Vec<Value>) {
        let Some(outline) = scene.call(call) else { return };
        self.say(ActivitySnapshot {
            message_id: ids::progress(scene.head.run, call),
            activity_type: ids::TOOL_PROGRESS.into(),
            content: progress_start(&scene.id(call)),
            replace: Some(false),
            subagent_run_id: scene.tag(outline.agent),
            ..ActivitySnapshot::default()
        });
        if !patch.is_empty() {
            self.patch_progress(scene, call, patch);
        }
    }

    fn patch_progress(&mut self, scene: &Scene<'_>, call: PartId, patch: Vec<Value>) {
        let Some(outline) = scene.call(call) else { return };
        self.say(ActivityDelta {
            message_id: ids::progress(scene.head.run, call),
            activity_type: ids::TOOL_PROGRESS.into(),
            patch,
            subagent_run_id: scene.tag(outline.agent),
            ..ActivityDelta::default()
        });
    }

    fn tool_finished(
        &mut self,
        scene: &Scene<'_>,
        call: PartId,
        outcome: ToolOutcome,
        result: &wellspring_core::ToolResult,
    ) {
        let Some(outline) = scene.call(call) else { return };
        if self.before.part(call).is_some_and(|part| part.open) {
            scene.close_part(call, self.emit);
        }
        self.say(ToolCallResult {
            message_id: ids::result(scene.head.run, call),
            tool_call_id: scene.id(call),
            content: MessageContent::Text(result.output_text().into_owned()),
            role: None,
            subagent_run_id: scene.tag(outline.agent),
            metadata: result_metadata(outcome, result),
            ..ToolCallResult::default()
        });
    }

    fn agent_finished(&mut self, scene: &Scene<'_>, outcome: &Outcome) {
        let subagent_run_id = ids::agent(scene.head.run, self.record.agent);
        match outcome {
            Outcome::Completed { .. } => self.say(SubagentFinished {
                subagent_run_id,
                outcome: Some(SubagentOutcome::Success {}),
                ..SubagentFinished::default()
            }),
            Outcome::Cancelled { why, .. } => self.say(SubagentError {
                subagent_run_id,
                message: why.clone().unwrap_or_else(|| "cancelled".into()),
                code: Some("cancelled".into()),
                ..SubagentError::default()
            }),
            Outcome::Failed { kind, message, .. } => self.say(SubagentError {
                subagent_run_id,
                message: message.clone(),
                code: Some(failure_code(*kind).into()),
                ..SubagentError::default()
            }),
        }
    }

    fn user_words(&mut self, id: Box<str>, content: &[Content]) {
        let words = words(content);
        if words.is_empty() {
            return;
        }
        self.say(TextMessageStart {
            message_id: id.clone(),
            role: Some(TextRole::User),
            ..TextMessageStart::default()
        });
        self.say(TextMessageContent {
            message_id: id.clone(),
            delta: words.into(),
            ..TextMessageContent::default()
        });
        self.say(TextMessageEnd { message_id: id, ..TextMessageEnd::default() });
    }

    fn custom(&mut self, scene: &Scene<'_>, name: &str, value: Value) {
        self.say(Custom {
            name: name.into(),
            value,
            subagent_run_id: scene.tag(self.record.agent),
            ..Custom::default()
        });
    }
}

/// A run's end.
pub(super) fn terminal(scene: &Scene<'_>, tally: Option<&Tally>, outcome: &Outcome) -> Event {
    let usage = tally.map(Tally::usage).unwrap_or_default();
    let finished = RunFinished {
        thread_id: ids::thread(scene.head),
        run_id: ids::run(scene.head),
        ..RunFinished::default()
    };
    match outcome {
        Outcome::Completed { stop } => {
            let reason = [("finishReason".to_owned(), finish_reason(stop).into())];
            RunFinished {
                result: tally.and_then(Tally::result),
                outcome: Some(RunOutcome::Success { pending_tool_call_ids: Vec::new() }),
                usage,
                metadata: Some(Map::from_iter(reason)),
                ..finished
            }
            .into()
        }
        Outcome::Cancelled { why, by, .. } => {
            let why = why.as_ref().map(|why| ("why".to_owned(), json!(why)));
            let by = by.as_ref().map(|by| ("by".to_owned(), json!(by)));
            let metadata: Metadata = why.into_iter().chain(by).collect();
            RunFinished {
                outcome: Some(RunOutcome::Cancelled {}),
                usage,
                metadata: Some(metadata).filter(|metadata| !metadata.is_empty()),
                ..finished
            }
            .into()
        }
        Outcome::Failed { kind, message, retryable } => {
            let metadata = [("retryable".to_owned(), json!(retryable))];
            RunError {
                message: message.clone(),
                code: Some(failure_code(*kind).into()),
                usage,
                metadata: Some(Map::from_iter(metadata)),
                ..RunError::default()
            }
            .into()
        }
    }
}

/// The words in what somebody said, a line each.
pub(super) fn words(content: &[Content]) -> String {
    content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n")
}

/// A call's progress before anything is known of it.
pub(super) fn progress_start(call: &str) -> Map<String, Value> {
    Map::from_iter([
        ("toolCallId".to_owned(), json!(call)),
        ("content".to_owned(), json!(<[ToolContent; 0]>::default())),
        ("output".to_owned(), json!([])),
    ])
}

/// A snapshot of a conversation that also takes back activities of ours it does not have.
pub(super) fn messages_snapshot(messages: Vec<Message>) -> MessagesSnapshot {
    let owned = json!({"authoritativeActivityTypes": [ids::PLAN, ids::TOOL_PROGRESS]});
    let metadata = Map::from_iter([("@ag-ui/client".to_owned(), owned)]);
    MessagesSnapshot { messages, metadata: Some(metadata), ..MessagesSnapshot::default() }
}

pub(super) const fn stream_name(stream: OutputStream) -> &'static str {
    match stream {
        OutputStream::Stdout => "stdout",
        OutputStream::Stderr => "stderr",
        OutputStream::Terminal => "terminal",
    }
}

/// The name of a kind, as the log writes it.
pub(super) const fn kind_name(kind: ToolKind) -> &'static str {
    match kind {
        ToolKind::Read => "read",
        ToolKind::Edit => "edit",
        ToolKind::Delete => "delete",
        ToolKind::Move => "move",
        ToolKind::Search => "search",
        ToolKind::Execute => "execute",
        ToolKind::Think => "think",
        ToolKind::Fetch => "fetch",
        ToolKind::SwitchMode => "switch_mode",
        ToolKind::Other => "other",
    }
}

const fn failure_code(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Unavailable => "unavailable",
        FailureKind::RateLimited => "rate_limited",
        FailureKind::Refused => "refused",
        FailureKind::BadRequest => "bad_request",
        FailureKind::Protocol => "protocol",
        FailureKind::TimedOut => "timed_out",
        FailureKind::Repetition => "repetition",
        FailureKind::Lost => "lost",
        FailureKind::Internal => "internal",
    }
}

fn finish_reason(stop: &Stop) -> &str {
    match stop {
        Stop::EndTurn => "end_turn",
        Stop::ToolCalls => "tool_calls",
        Stop::MaxTokens => "max_tokens",
        Stop::StopSequence => "stop_sequence",
        Stop::Refusal => "refusal",
        Stop::ContentFilter => "content_filter",
        Stop::Paused => "paused",
        Stop::TurnLimit => "turn_limit",
        Stop::Budget(_) => "budget",
        Stop::Other(reason) => reason,
    }
}

pub(super) const fn text_role(role: Role) -> TextRole {
    match role {
        Role::Assistant => TextRole::Assistant,
        Role::User => TextRole::User,
    }
}

/// The operations of a patch, if it is one: clients reject a run over one that is not.
fn valid_patch(patch: &Value) -> Option<Vec<Value>> {
    let operations = patch.as_array()?;
    let is_pointer = |value: &Value| {
        value.as_str().is_some_and(|pointer| {
            let escapes = pointer.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
            (pointer.is_empty() || pointer.starts_with('/')) && escapes
        })
    };
    let is_valid = |operation: &Value| {
        let has = |name: &str| operation.get(name).is_some();
        let op = operation.get("op").and_then(Value::as_str);
        let fits = match op {
            Some("add" | "replace" | "test") => has("value"),
            Some("move" | "copy") => operation.get("from").is_some_and(is_pointer),
            Some("remove") => true,
            _ => false,
        };
        fits && operation.get("path").is_some_and(is_pointer)
    };
    operations.iter().all(is_valid).then(|| operations.clone())
}
