//! Reads a remote agent's events.

mod end;
mod values;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use wellspring_core::{
    AgentNo, Annotation, Batch, Event as Fact, Extended, FailureKind, LocalPart, Outcome, PartKind,
    RunsOn, Stop, ToolCall, ToolOutcome, ToolResult, Transcript,
};

pub use self::end::{End, PendingCall, ReadError};
use self::values::{
    ORIGIN, custom, ends_chunk, keep, metadata_kind, metadata_text, name_of, stop, text_kind,
    usage, words,
};
use super::super::ids;
use super::super::types::{Event, Message, RunFinished, RunOutcome, SubagentOutcome};

/// Messages, calls and sub-agents of one run whose names are kept. Our own runs have at most a
/// few hundred; a peer that sends more is misbehaving.
const NAMES_MAX: usize = 65_536;

/// Bytes of arguments kept for one call that we may have to run. Models write a few thousand.
const ARGUMENTS_BYTES_MAX: usize = 1 << 20;

/// Reads a remote agent's events. Chunks are expanded into starts, contents and ends. Events
/// without an equivalent of ours are kept whole.
///
/// One reader serves all runs that answer one prompt: after [`End::Pending`] or
/// [`End::Interrupted`] it continues with the next RUN_STARTED.
///
/// ```
/// use wellspring_core::Batch;
/// use wellspring_wire::ag_ui::{End, Reader};
///
/// let (mut reader, mut batch) = (Reader::default(), Batch::default());
/// let mut end = None;
/// for event in [
///     r#"{"type":"RUN_STARTED","threadId":"t","runId":"r"}"#,
///     r#"{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","delta":"Hello"}"#,
///     r#"{"type":"RUN_FINISHED","threadId":"t","runId":"r"}"#,
/// ] {
///     end = reader.push(serde_json::from_str(event)?, &mut batch)?;
/// }
/// assert_eq!(end, Some(End::Finished { result: None }));
/// let events: Vec<String> = batch.into_events().map(|(_, event)| event.to_string()).collect();
/// assert_eq!(events[1..], ["part 0 started text", "part 0 delta \"Hello\"", "part 0 finished"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Reader {
    running: bool,
    /// The text and reasoning messages that are open. Messages that are not shown have no part.
    open: BTreeMap<(Kind, Box<str>), Open>,
    calls: BTreeMap<Box<str>, Call>,
    agents: BTreeMap<Box<str>, AgentNo>,
    /// The agents that have not finished.
    active: BTreeSet<AgentNo>,
    /// Messages that are already in the log, so that a snapshot does not repeat them.
    said: BTreeSet<Box<str>>,
    /// The message that the last chunk opened.
    chunk: Option<(Kind, Box<str>)>,
    /// The tools that run on our side. Their calls are returned as [`End::Pending`], not
    /// yielded as events.
    tools: BTreeSet<Box<str>>,
    /// Whether parts are annotated with the peer's ids, so that [`Reader::resume`] can find
    /// them.
    annotates: bool,
    /// Messages from before a reconnect that the peer has not sent again yet.
    before: BTreeMap<(Kind, Box<str>), Before>,
    /// The complete messages and their lengths in bytes, needed after a reconnect.
    complete: BTreeMap<(Kind, Box<str>), usize>,
    /// Sub-agents of the run that an earlier reader has numbered.
    agents_before: u32,
}

/// A message that was received, wholly or in part, before a reconnect.
#[derive(Clone, Copy, Debug)]
struct Before {
    /// The part, if it is still open.
    part: Option<LocalPart>,
    /// Bytes that were received.
    bytes: usize,
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Kind {
    Text,
    Reasoning,
    Call,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    agent: AgentNo,
    part: Option<LocalPart>,
    /// Bytes received so far.
    bytes: usize,
    /// Bytes still to skip, because they were received before the reconnect.
    again: usize,
}

#[derive(Debug)]
struct Call {
    agent: AgentNo,
    /// `None` for a call of a tool that runs on our side.
    part: Option<LocalPart>,
    name: Box<str>,
    arguments: String,
    open: bool,
    answered: bool,
    /// Bytes of the arguments still to skip after the call is started again.
    again: usize,
    /// Whether the peer will start the call again after a reconnect.
    restarts: bool,
}

impl Reader {
    /// Creates a reader for an agent that is offered these tools. Calls of them are returned as
    /// [`End::Pending`] and not yielded as events. Parts carry the peer's ids, so that
    /// [`Reader::resume`] can continue them.
    #[must_use]
    pub fn new(tools: impl IntoIterator<Item = Box<str>>) -> Self {
        Self { tools: tools.into_iter().collect(), annotates: true, ..Self::default() }
    }

    /// Continues a run that another reader has read up to here. The batch must continue the
    /// transcript's numbering: see [`Batch::after`].
    ///
    /// Sub-agents are not found again, because the peer's names for them are not kept. They are
    /// ended here, and later events of them start new ones.
    #[must_use]
    pub fn resume(mut self, so_far: &Transcript, batch: &mut Batch) -> Self {
        for (id, said) in &so_far.parts {
            let part = LocalPart::resumed(said.agent, *id);
            let name = said.annotations.iter().find_map(provider_id);
            let Some(name) = name.filter(|_| said.agent.is_root()) else { continue };
            let kind = match &said.kind {
                PartKind::Text { .. } => Kind::Text,
                PartKind::Thought => Kind::Reasoning,
                PartKind::ToolCall(tool) => {
                    let ours = tool.runs_on.is_ours();
                    let progress = said.call.as_ref();
                    let call = Call {
                        agent: said.agent,
                        part: Some(part).filter(|_| !ours),
                        name: tool.name.clone(),
                        arguments: said.text.clone(),
                        open: !said.finished,
                        answered: progress.is_some_and(|it| it.finished.is_some()),
                        again: said.text.len(),
                        restarts: true,
                    };
                    self.calls.insert(name.into(), call);
                    continue;
                }
                PartKind::Output { .. } | PartKind::Opaque(_) => continue,
            };
            let part = (!said.finished).then_some(part);
            let before = Before { part, bytes: said.text.len() };
            self.said.insert(name.into());
            self.before.insert((kind, name.into()), before);
        }
        for agent in so_far.outline.agents.keys().rev().filter(|agent| !agent.is_root()) {
            let outcome = Outcome::Failed {
                kind: FailureKind::Lost,
                message: "the connection to the agent was lost".into(),
                retryable: true,
            };
            close_agent_events(so_far, *agent, batch);
            batch.event_of(*agent, Fact::AgentFinished { outcome: Box::new(outcome) });
        }
        self.agents_before = so_far.outline.next_agent.0.saturating_sub(1);
        self
    }

    /// Prepares for a peer that sends the same run again after a lost connection: content that
    /// is already known is skipped.
    pub fn reconnect(&mut self, batch: &mut Batch) {
        self.end_chunk(batch);
        for ((kind, id), open) in std::mem::take(&mut self.open) {
            let Open { part, bytes, .. } = open;
            self.before.insert((kind, id), Before { part, bytes });
        }
        for (name, bytes) in std::mem::take(&mut self.complete) {
            self.before.insert(name, Before { part: None, bytes });
        }
        for call in self.calls.values_mut().filter(|call| call.open) {
            (call.again, call.restarts) = (call.arguments.len(), true);
        }
        self.running = false;
    }

    /// The part of a call that the agent runs itself.
    #[must_use]
    pub fn call_part(&self, id: &str) -> Option<LocalPart> {
        self.calls.get(id)?.part
    }

    /// A call of one of our tools that has no result yet.
    #[must_use]
    pub fn pending_call(&self, id: &str) -> Option<PendingCall> {
        let call = self.calls.get(id).filter(|call| call.part.is_none() && !call.answered)?;
        Some(PendingCall {
            id: id.into(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
        })
    }

    /// Reads one event into `batch`. Returns the end of the run if the event ends it. An error
    /// means that the peer violated the protocol; the reader must not be used afterwards.
    ///
    /// # Errors
    ///
    /// If AG-UI's rules forbid the event.
    pub fn push(&mut self, event: Event, batch: &mut Batch) -> Result<Option<End>, ReadError> {
        let name = name_of(&event);
        if !self.running && !matches!(event, Event::RunStarted(_) | Event::RunError(_)) {
            return Err(ReadError::NoRun { event: name });
        }
        if self.names() > NAMES_MAX {
            return Err(ReadError::TooMany {
                what: "messages, calls and sub-agents",
                max: NAMES_MAX,
            });
        }
        if ends_chunk(&event) {
            self.end_chunk(batch);
        }
        match event {
            Event::RunStarted(e) => {
                if self.running {
                    return Err(ReadError::RunInRun);
                }
                self.running = true;
                let handle = json!({"threadId": e.thread_id, "runId": e.run_id});
                batch.event(Fact::Attached { origin: ORIGIN.into(), handle: Box::new(handle) });
            }
            Event::TextMessageStart(e) => {
                let agent = self.agent(e.subagent_run_id, batch);
                let role = e.role.unwrap_or_default();
                self.start_message(Kind::Text, e.message_id, agent, text_kind(role), batch, name)?;
            }
            Event::TextMessageContent(e) => {
                self.grow_message(Kind::Text, &e.message_id, &e.delta, batch, name)?;
            }
            Event::TextMessageEnd(e) => self.end_message(Kind::Text, e.message_id, batch, name)?,
            Event::TextMessageChunk(e) => {
                let agent = self.agent(e.subagent_run_id, batch);
                let role = e.role.unwrap_or_default();
                let id = self.chunk(Kind::Text, e.message_id, batch, name)?;
                if !self.open.contains_key(&(Kind::Text, id.clone())) {
                    let kind = text_kind(role);
                    self.start_message(Kind::Text, id.clone(), agent, kind, batch, name)?;
                }
                self.grow_message(Kind::Text, &id, &e.delta.unwrap_or_default(), batch, name)?;
            }
            Event::ReasoningStart(_) | Event::ReasoningEnd(_) => {}
            Event::ReasoningMessageStart(e) => {
                let agent = self.agent(e.subagent_run_id, batch);
                let kind = Some(PartKind::Thought);
                self.start_message(Kind::Reasoning, e.message_id, agent, kind, batch, name)?;
            }
            Event::ReasoningMessageContent(e) => {
                self.grow_message(Kind::Reasoning, &e.message_id, &e.delta, batch, name)?;
            }
            Event::ReasoningMessageEnd(e) => {
                self.end_message(Kind::Reasoning, e.message_id, batch, name)?;
            }
            Event::ReasoningMessageChunk(e) => {
                let agent = self.agent(e.subagent_run_id, batch);
                let id = self.chunk(Kind::Reasoning, e.message_id, batch, name)?;
                if !self.open.contains_key(&(Kind::Reasoning, id.clone())) {
                    let kind = Some(PartKind::Thought);
                    self.start_message(Kind::Reasoning, id.clone(), agent, kind, batch, name)?;
                }
                self.grow_message(Kind::Reasoning, &id, &e.delta.unwrap_or_default(), batch, name)?;
            }
            Event::ReasoningEncryptedValue(e) => {
                let message = [Kind::Text, Kind::Reasoning]
                    .into_iter()
                    .find_map(|kind| self.open.get(&(kind, e.entity_id.clone())));
                let call = self.calls.get(&e.entity_id).filter(|call| call.open);
                let part = message.and_then(|open| open.part);
                match part.or(call.and_then(|call| call.part)) {
                    Some(part) => batch.annotate(part, Annotation::Encrypted(e.encrypted_value)),
                    None => keep(batch, AgentNo::ROOT, &Event::ReasoningEncryptedValue(e)),
                }
            }
            Event::ToolCallStart(e) => {
                let agent = self.agent(e.subagent_run_id, batch);
                let tool = ToolCall {
                    name: e.tool_call_name,
                    title: metadata_text(e.metadata.as_ref(), "title"),
                    kind: metadata_kind(e.metadata.as_ref()),
                    runs_on: RunsOn::Agent,
                    ..ToolCall::default()
                };
                self.start_call(e.tool_call_id, agent, tool, batch, name)?;
            }
            Event::ToolCallArgs(e) => self.grow_call(&e.tool_call_id, &e.delta, batch, name)?,
            Event::ToolCallEnd(e) => self.end_call(&e.tool_call_id, batch, name)?,
            Event::ToolCallChunk(e) => {
                let agent = self.agent(e.subagent_run_id, batch);
                let id = self.chunk(Kind::Call, e.tool_call_id, batch, name)?;
                if !self.calls.contains_key(&id) {
                    let tool = ToolCall {
                        name: e.tool_call_name.unwrap_or_default(),
                        runs_on: RunsOn::Agent,
                        ..ToolCall::default()
                    };
                    self.start_call(id.clone(), agent, tool, batch, name)?;
                }
                self.grow_call(&id, &e.delta.unwrap_or_default(), batch, name)?;
            }
            Event::ToolCallResult(e) => {
                let outcome = e.metadata.as_ref().and_then(|metadata| metadata.get("outcome"));
                let outcome = outcome.and_then(|name| serde_json::from_value(name.clone()).ok());
                let result = ToolResult::new(words(&e.content));
                let outcome = outcome.unwrap_or(ToolOutcome::Ok);
                if !self.finish_call(&e.tool_call_id, outcome, result, batch) {
                    keep(batch, AgentNo::ROOT, &Event::ToolCallResult(e));
                }
            }
            Event::StateSnapshot(e) => {
                let agent = self.agent(e.subagent_run_id, batch);
                batch.event_of(agent, Fact::StateSet { state: Box::new(e.snapshot) });
            }
            Event::StateDelta(e) => {
                let agent = self.agent(e.subagent_run_id, batch);
                let patch = Box::new(Value::Array(e.delta));
                batch.event_of(agent, Fact::StatePatched { patch });
            }
            Event::MessagesSnapshot(e) => self.snapshot(&e.messages, batch),
            Event::ActivitySnapshot(e) if &*e.activity_type == ids::PLAN => {
                let agent = self.agent(e.subagent_run_id.clone(), batch);
                let entries = e.content.get("entries").cloned().unwrap_or_default();
                match serde_json::from_value(entries) {
                    Ok(entries) => batch.event_of(agent, Fact::PlanUpdated { entries }),
                    Err(_) => keep(batch, agent, &Event::ActivitySnapshot(e)),
                }
            }
            Event::Raw(e) => {
                let agent = self.agent(e.subagent_run_id, batch);
                let origin = e.source.unwrap_or_else(|| ORIGIN.into());
                let (name, value) = match (e.event.get("name").and_then(Value::as_str), &e.event) {
                    (Some(name), Value::Object(event)) if event.len() == 2 => {
                        (name.into(), event.get("value").cloned())
                    }
                    _ => ("RAW".into(), None),
                };
                let value = value.unwrap_or(e.event.clone());
                batch.event_of(agent, Fact::Extended(Box::new(Extended { origin, name, value })));
            }
            Event::Custom(e) => {
                let agent = self.agent(e.subagent_run_id, batch);
                batch.event_of(agent, custom(e.name, e.value));
            }
            Event::SubagentStarted(e) => {
                let parent = self.agent(e.parent_subagent_run_id, batch);
                let call = e.parent_tool_call_id.and_then(|call| self.calls.get(&call));
                let call = call.and_then(|call| call.part);
                self.start_agent(e.subagent_run_id, parent, call, &e.name, batch);
            }
            Event::SubagentFinished(e) => {
                // A suspended sub-agent continues with the next run.
                if !matches!(e.outcome, Some(SubagentOutcome::Suspended { .. })) {
                    let outcome = Outcome::Completed { stop: Stop::EndTurn };
                    self.finish_agent(&e.subagent_run_id, outcome, batch);
                }
            }
            Event::SubagentError(e) => {
                let outcome = if e.code.as_deref() == Some("cancelled") {
                    Outcome::Cancelled { by: None, why: Some(e.message), inbox: None }
                } else {
                    let kind = FailureKind::Internal;
                    Outcome::Failed { kind, message: e.message, retryable: false }
                };
                self.finish_agent(&e.subagent_run_id, outcome, batch);
            }
            Event::RunFinished(e) => return Ok(Some(self.finish(*e, batch))),
            Event::RunError(e) => {
                self.close(batch);
                return Ok(Some(End::Failed { message: e.message, code: e.code }));
            }
            Event::StepStarted(_)
            | Event::StepFinished(_)
            | Event::ActivitySnapshot(_)
            | Event::ActivityDelta(_) => keep(batch, AgentNo::ROOT, &event),
        }
        Ok(None)
    }

    /// Sets the result of a call that the agent left for us to run. Returns whether there is
    /// such a call.
    pub fn finish_call(
        &mut self,
        id: &str,
        outcome: ToolOutcome,
        result: ToolResult,
        batch: &mut Batch,
    ) -> bool {
        let Some(call) = self.calls.get_mut(id).filter(|call| !call.answered) else { return false };
        let was_open = std::mem::take(&mut call.open);
        call.answered = true;
        call.arguments = String::new();
        // The engine reports calls of our own tools.
        let Some(part) = call.part else { return true };
        // A part must be closed before the run can end.
        if was_open {
            batch.finish(part);
        }
        batch.tool_finished(part, outcome, result);
        true
    }

    /// Closes everything that is open, because the run has finished or its consumer is gone.
    /// Calls without a result are interrupted.
    pub fn close(&mut self, batch: &mut Batch) {
        self.close_messages(batch);
        let unanswered: Vec<Box<str>> = self.unanswered().cloned().collect();
        for id in unanswered {
            let result = ToolResult::new("the agent gave no result");
            self.finish_call(&id, ToolOutcome::Interrupted, result, batch);
        }
        while let Some(agent) = self.active.pop_last() {
            let outcome = Outcome::Cancelled { by: None, why: None, inbox: None };
            batch.event_of(agent, Fact::AgentFinished { outcome: Box::new(outcome) });
        }
        self.running = false;
    }

    fn finish(&mut self, e: RunFinished, batch: &mut Batch) -> End {
        self.close_messages(batch);
        self.running = false;
        let pending = match e.outcome {
            Some(RunOutcome::Interrupt { interrupts }) => return End::Interrupted(interrupts),
            Some(RunOutcome::Cancelled {}) => {
                self.close(batch);
                return End::Cancelled;
            }
            Some(RunOutcome::Success { pending_tool_call_ids }) => pending_tool_call_ids,
            None => Vec::new(),
        };
        let waits = |id: Box<str>| {
            let call = self.calls.get(&id).filter(|call| !call.answered)?;
            let (name, arguments) = (call.name.clone(), call.arguments.clone());
            Some(PendingCall { id, name, arguments })
        };
        let mut pending: Vec<PendingCall> = pending.into_iter().filter_map(waits).collect();
        // Older agents do not list the calls that the client has to run.
        let ours = self.calls.iter().filter(|(_, call)| call.part.is_none() && !call.answered);
        for (id, _) in ours {
            if !pending.iter().any(|call| call.id == *id) {
                pending.extend(self.pending_call(id));
            }
        }
        if !pending.is_empty() {
            return End::Pending(pending);
        }
        self.close(batch);
        let reason = metadata_text(e.metadata.as_ref(), "finishReason");
        batch.stop(stop(reason.as_deref()), usage(&e.usage));
        End::Finished { result: e.result }
    }

    fn names(&self) -> usize {
        self.open.len() + self.calls.len() + self.agents.len() + self.said.len()
    }

    fn unanswered(&self) -> impl Iterator<Item = &Box<str>> {
        self.calls.iter().filter(|(_, call)| !call.answered).map(|(id, _)| id)
    }

    fn close_messages(&mut self, batch: &mut Batch) {
        for (_, open) in std::mem::take(&mut self.open) {
            if let Some(part) = open.part {
                batch.finish(part);
            }
        }
        for call in self.calls.values_mut().filter(|call| call.open) {
            call.open = false;
            if let Some(part) = call.part {
                batch.finish(part);
            }
        }
        // Messages that were open before the reconnect and were not sent again.
        for before in std::mem::take(&mut self.before).into_values() {
            if let Some(part) = before.part {
                batch.finish(part);
            }
        }
        self.chunk = None;
    }

    /// The agent with this tag. An unknown tag starts a new sub-agent.
    fn agent(&mut self, tag: Option<Box<str>>, batch: &mut Batch) -> AgentNo {
        let Some(tag) = tag else { return AgentNo::ROOT };
        match self.agents.get(&tag) {
            // Events after a sub-agent's end belong to its caller.
            Some(agent) if !self.active.contains(agent) => AgentNo::ROOT,
            Some(agent) => *agent,
            None => self.start_agent(tag.clone(), AgentNo::ROOT, None, &tag, batch),
        }
    }

    fn start_agent(
        &mut self,
        tag: Box<str>,
        parent: AgentNo,
        call: Option<LocalPart>,
        name: &str,
        batch: &mut Batch,
    ) -> AgentNo {
        if let Some(agent) = self.agents.get(&tag) {
            return *agent;
        }
        let count = u32::try_from(self.agents.len()).unwrap_or(u32::MAX);
        let agent = AgentNo(count.saturating_add(self.agents_before)).next();
        self.agents.insert(tag, agent);
        self.active.insert(agent);
        batch.agent_started(agent, parent, call, name);
        agent
    }

    /// Ends a sub-agent, after everything that it left open.
    fn finish_agent(&mut self, tag: &str, outcome: Outcome, batch: &mut Batch) {
        let agent = self.agents.get(tag).copied().filter(|agent| self.active.remove(agent));
        let Some(agent) = agent else { return };
        let theirs = self.open.iter().filter(|(_, open)| open.agent == agent);
        let theirs: Vec<_> = theirs.map(|(name, _)| name.clone()).collect();
        for name in theirs {
            if let Some(part) = self.open.remove(&name).and_then(|open| open.part) {
                batch.finish(part);
            }
        }
        let calls = self.calls.iter().filter(|(_, call)| call.agent == agent && !call.answered);
        let calls: Vec<Box<str>> = calls.map(|(id, _)| id.clone()).collect();
        for id in calls {
            let result = ToolResult::new("the sub-agent ended without a result");
            self.finish_call(&id, ToolOutcome::Interrupted, result, batch);
        }
        batch.event_of(agent, Fact::AgentFinished { outcome: Box::new(outcome) });
    }

    fn start_message(
        &mut self,
        kind: Kind,
        id: Box<str>,
        agent: AgentNo,
        part: Option<PartKind>,
        batch: &mut Batch,
        event: &'static str,
    ) -> Result<(), ReadError> {
        if self.open.contains_key(&(kind, id.clone())) {
            return Err(ReadError::StillOpen { event, id });
        }
        let open = match self.before.remove(&(kind, id.clone())) {
            Some(Before { part, bytes }) => Open { agent, part, bytes, again: bytes },
            None => {
                let part = part.map(|part| batch.start_of(agent, part));
                self.annotate(part, &id, batch);
                Open { agent, part, bytes: 0, again: 0 }
            }
        };
        self.said.insert(id.clone());
        self.open.insert((kind, id), open);
        Ok(())
    }

    fn grow_message(
        &mut self,
        kind: Kind,
        id: &str,
        text: &str,
        batch: &mut Batch,
        event: &'static str,
    ) -> Result<(), ReadError> {
        let open = self.open.get_mut(&(kind, Box::from(id)));
        let open = open.ok_or_else(|| ReadError::NotOpen { event, id: id.into() })?;
        let text = said_anew(text, &mut open.again)
            .ok_or_else(|| ReadError::Diverged { event, id: id.into() })?;
        open.bytes += text.len();
        if let Some(part) = open.part {
            batch.delta(part, text);
        }
        Ok(())
    }

    fn end_message(
        &mut self,
        kind: Kind,
        id: Box<str>,
        batch: &mut Batch,
        event: &'static str,
    ) -> Result<(), ReadError> {
        let open = self.open.remove(&(kind, id.clone()));
        let open = open.ok_or_else(|| ReadError::NotOpen { event, id: id.clone() })?;
        if self.annotates {
            self.complete.insert((kind, id), open.bytes);
        }
        if let Some(part) = open.part {
            batch.finish(part);
        }
        Ok(())
    }

    fn start_call(
        &mut self,
        id: Box<str>,
        agent: AgentNo,
        tool: ToolCall,
        batch: &mut Batch,
        event: &'static str,
    ) -> Result<(), ReadError> {
        match self.calls.get_mut(&id) {
            // The peer repeats this event after a lost connection.
            Some(call) if call.open && call.restarts => {
                call.restarts = false;
                return Ok(());
            }
            Some(call) if call.open => return Err(ReadError::StillOpen { event, id }),
            // A call is opened once; opening it again adds nothing.
            Some(_) => return Ok(()),
            None => {}
        }
        let name = tool.name.clone();
        let part = (!self.tools.contains(&name))
            .then(|| batch.start_of(agent, PartKind::ToolCall(Box::new(tool))));
        self.annotate(part, &id, batch);
        let (arguments, open, answered) = (String::new(), true, false);
        let (again, restarts) = (0, false);
        let call = Call { agent, part, name, arguments, open, answered, again, restarts };
        self.calls.insert(id, call);
        Ok(())
    }

    fn grow_call(
        &mut self,
        id: &str,
        text: &str,
        batch: &mut Batch,
        event: &'static str,
    ) -> Result<(), ReadError> {
        let call = self.calls.get_mut(id);
        let call = call.ok_or_else(|| ReadError::NotOpen { event, id: id.into() })?;
        if call.open {
            if call.arguments.len() + text.len() > ARGUMENTS_BYTES_MAX {
                let (what, max) = ("bytes of a call's arguments", ARGUMENTS_BYTES_MAX);
                return Err(ReadError::TooMany { what, max });
            }
            let text = said_anew(text, &mut call.again)
                .ok_or_else(|| ReadError::Diverged { event, id: id.into() })?;
            call.arguments.push_str(text);
            if let Some(part) = call.part {
                batch.delta(part, text);
            }
        }
        Ok(())
    }

    fn end_call(
        &mut self,
        id: &str,
        batch: &mut Batch,
        event: &'static str,
    ) -> Result<(), ReadError> {
        let call = self.calls.get_mut(id);
        let call = call.ok_or_else(|| ReadError::NotOpen { event, id: id.into() })?;
        if let (true, Some(part)) = (std::mem::take(&mut call.open), call.part) {
            batch.finish(part);
        }
        Ok(())
    }

    /// Returns the message that a chunk continues or opens. If the previous chunk opened
    /// another one, that is closed.
    fn chunk(
        &mut self,
        kind: Kind,
        id: Option<Box<str>>,
        batch: &mut Batch,
        event: &'static str,
    ) -> Result<Box<str>, ReadError> {
        let current = self.chunk.as_ref().filter(|(current, _)| *current == kind);
        let id = match (id, current) {
            (Some(id), _) => id,
            (None, Some((_, id))) => id.clone(),
            (None, None) => return Err(ReadError::Chunk { event }),
        };
        if self.chunk.as_ref().is_some_and(|current| *current != (kind, id.clone())) {
            self.end_chunk(batch);
        }
        self.chunk = Some((kind, id.clone()));
        Ok(id)
    }

    fn end_chunk(&mut self, batch: &mut Batch) {
        let Some((kind, id)) = self.chunk.take() else { return };
        // A chunk opened it, so it is open unless its agent has ended.
        let _ = match kind {
            Kind::Text | Kind::Reasoning => self.end_message(kind, id, batch, "a chunk"),
            Kind::Call => self.end_call(&id, batch, "a chunk"),
        };
    }

    /// Yields what a snapshot contains after the user's last message and what was not streamed.
    fn snapshot(&mut self, messages: &[Message], batch: &mut Batch) {
        let is_user = |message: &Message| matches!(message, Message::User(_));
        let news = messages.iter().rposition(is_user).map_or(0, |user| user + 1);
        for message in &messages[news..] {
            match message {
                Message::Assistant(message) => {
                    let agent = self.agent(message.subagent_run_id.clone(), batch);
                    let text = message.content.as_deref().unwrap_or_default();
                    self.snapshot_text(Kind::Text, &message.id, agent, text, batch);
                    for call in &message.tool_calls {
                        if !self.calls.contains_key(&call.id) {
                            let tool = ToolCall {
                                name: call.function.name.clone(),
                                runs_on: RunsOn::Agent,
                                ..ToolCall::default()
                            };
                            let arguments = call.function.arguments.clone();
                            let name = tool.name.clone();
                            let part = (!self.tools.contains(&name)).then(|| {
                                let kind = PartKind::ToolCall(Box::new(tool));
                                let part = batch.start_of(agent, kind);
                                self.annotate(Some(part), &call.id, batch);
                                batch.delta(part, &arguments);
                                batch.finish(part);
                                part
                            });
                            let (open, answered, again, restarts) = (false, false, 0, false);
                            let call_id = call.id.clone();
                            let call = Call {
                                agent,
                                part,
                                name,
                                arguments,
                                open,
                                answered,
                                again,
                                restarts,
                            };
                            self.calls.insert(call_id, call);
                        }
                    }
                }
                Message::Reasoning(message) => {
                    let agent = self.agent(message.subagent_run_id.clone(), batch);
                    let text = &message.content;
                    self.snapshot_text(Kind::Reasoning, &message.id, agent, text, batch);
                }
                Message::Tool(message) => {
                    let (outcome, result) = match &message.error {
                        Some(error) => (ToolOutcome::Error, ToolResult::new(&**error)),
                        None => (ToolOutcome::Ok, ToolResult::new(words(&message.content))),
                    };
                    self.finish_call(&message.tool_call_id, outcome, result, batch);
                }
                Message::Developer(_)
                | Message::System(_)
                | Message::User(_)
                | Message::Activity(_) => {}
            }
        }
    }

    /// A message that is complete in a snapshot: yielded if it is new, or completed if it was
    /// open when the connection was lost.
    fn snapshot_text(
        &mut self,
        kind: Kind,
        id: &str,
        agent: AgentNo,
        text: &str,
        batch: &mut Batch,
    ) {
        if let Some(Before { part: Some(part), bytes }) = self.before.remove(&(kind, id.into())) {
            batch.delta(part, text.get(bytes..).unwrap_or_default());
            batch.finish(part);
        } else if self.said.insert(id.into()) && !text.is_empty() {
            let part = match kind {
                Kind::Reasoning => PartKind::Thought,
                Kind::Text | Kind::Call => PartKind::TEXT,
            };
            let part = batch.start_of(agent, part);
            self.annotate(Some(part), id, batch);
            batch.delta(part, text);
            batch.finish(part);
        }
    }

    fn annotate(&self, part: Option<LocalPart>, id: &str, batch: &mut Batch) {
        if let Some(part) = part.filter(|_| self.annotates) {
            batch.annotate(part, Annotation::ProviderId(id.into()));
        }
    }
}

/// The rest of `text` after the bytes that are to be skipped. `None` if that splits a
/// character: then it is a different text.
fn said_anew<'a>(text: &'a str, again: &mut usize) -> Option<&'a str> {
    let known = text.len().min(*again);
    *again -= known;
    text.get(known..)
}

fn provider_id(annotation: &Annotation) -> Option<&str> {
    match annotation {
        Annotation::ProviderId(id) => Some(id),
        Annotation::Signature(_)
        | Annotation::Encrypted(_)
        | Annotation::Citation(_)
        | Annotation::Preamble
        | Annotation::Other(_) => None,
    }
}

/// Closes what a sub-agent left open.
fn close_agent_events(so_far: &Transcript, agent: AgentNo, batch: &mut Batch) {
    for (part, _) in so_far.outline.open_parts(agent) {
        batch.finish(LocalPart::resumed(agent, part));
    }
    for (call, open) in &so_far.outline.calls {
        if open.agent == agent {
            let result = ToolResult::new("the connection to the agent was lost");
            let call = LocalPart::resumed(agent, *call);
            batch.tool_finished(call, ToolOutcome::Interrupted, result);
        }
    }
}
