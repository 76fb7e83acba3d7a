//! Determines what is open at a point of a run, in the protocol's terms, and opens and closes it.

use serde_json::{Value, json};
use wellspring_core::{
    AgentNo, CallOutline, Outline, PartId, PartShape, RETURN_RESULT, Role, RunHead, RunsOn,
    ToolCall, ToolKind, ToolOutcome, ToolResult,
};

use super::super::ids;
use super::super::types::{
    Event, Interrupt, Metadata, PROTOCOL_VERSION, ReasoningEnd, ReasoningMessageEnd,
    ReasoningMessageStart, ReasoningStart, RunStarted, StepFinished, StepStarted, SubagentFinished,
    SubagentOutcome, SubagentStarted, TextMessageEnd, TextMessageStart, TextRole, ToolCallEnd,
    ToolCallStart,
};

/// A run that has started, at some point.
pub(in super::super) struct Scene<'a> {
    pub(in super::super) head: &'a RunHead,
    pub(in super::super) outline: &'a Outline,
}

type Emit<'a> = &'a mut dyn FnMut(Event);

impl<'a> Scene<'a> {
    pub(in super::super) fn new(outline: &'a Outline) -> Option<Self> {
        outline.run.as_ref().map(|head| Self { head, outline })
    }

    /// The id of a part on the wire.
    pub(in super::super) fn id(&self, part: PartId) -> Box<str> {
        ids::part(self.head.run, part)
    }

    /// The tag of a sub-agent; `None` for the root agent.
    pub(in super::super) fn tag(&self, agent: AgentNo) -> Option<Box<str>> {
        let known = !agent.is_root() && self.outline.agents.contains_key(&agent);
        known.then(|| ids::agent(self.head.run, agent))
    }

    /// A call that is shown and has no result yet.
    pub(in super::super) fn call(&self, call: PartId) -> Option<&'a CallOutline> {
        self.outline.call(call).filter(|call| &*call.tool.name != RETURN_RESULT)
    }

    pub(in super::super) fn run_started(&self) -> RunStarted {
        let parent = self.head.wire_parent.as_deref();
        self.run_resumed(&ids::run(self.head), parent)
    }

    /// RUN_STARTED for the same run under another id.
    pub(in super::super) fn run_resumed(&self, run: &str, parent: Option<&str>) -> RunStarted {
        RunStarted {
            thread_id: ids::thread(self.head),
            run_id: run.into(),
            parent_run_id: parent.map(Into::into),
            protocol_version: Some(PROTOCOL_VERSION.into()),
            ..RunStarted::default()
        }
    }

    /// Reopens everything that the pause closed.
    pub(in super::super) fn open_all(&self, emit: Emit<'_>) {
        self.open_agents(emit);
        for (part, outline) in self.outline.parts.iter().filter(|(_, part)| part.open) {
            match outline.shape {
                PartShape::Text(role) => self.open_text(*part, outline.agent, role, emit),
                PartShape::Thought => self.open_thought(*part, outline.agent, emit),
                PartShape::Call => {
                    if let Some(call) = self.call(*part) {
                        self.open_call(*part, outline.agent, outline.turn, &call.tool, emit);
                    }
                }
                PartShape::Output(..) | PartShape::Opaque => {}
            }
        }
    }

    /// Opens the active agents and their steps.
    pub(in super::super) fn open_agents(&self, emit: Emit<'_>) {
        for (number, agent) in &self.outline.agents {
            if !number.is_root() {
                self.start_agent(*number, agent.parent, agent.call, &agent.name, emit);
            }
            if agent.in_turn {
                self.open_step(*number, agent.turn, None, emit);
            }
        }
    }

    /// Closes everything that is open. Sub-agents are suspended for these interrupts.
    pub(in super::super) fn close_all(&self, interrupts: &[Interrupt], emit: Emit<'_>) {
        for (part, _) in self.outline.parts.iter().filter(|(_, part)| part.open) {
            self.close_part(*part, emit);
        }
        for number in self.outline.agents.keys().rev() {
            self.close_step(*number, emit);
            if !number.is_root() {
                let subagent_run_id = ids::agent(self.head.run, *number);
                let theirs = interrupts.iter().filter(|interrupt| {
                    interrupt.subagent_run_id.as_deref() == Some(&*subagent_run_id)
                });
                let interrupt_ids = theirs.map(|interrupt| interrupt.id.clone()).collect();
                let finished = SubagentFinished {
                    subagent_run_id,
                    outcome: Some(SubagentOutcome::Suspended { interrupt_ids }),
                    ..SubagentFinished::default()
                };
                emit(finished.into());
            }
        }
    }

    pub(in super::super) fn start_agent(
        &self,
        agent: AgentNo,
        parent: AgentNo,
        call: Option<PartId>,
        name: &str,
        emit: Emit<'_>,
    ) {
        let started = SubagentStarted {
            subagent_run_id: ids::agent(self.head.run, agent),
            name: name.into(),
            parent_subagent_run_id: self.tag(parent).filter(|_| parent != agent),
            parent_tool_call_id: call.map(|call| self.id(call)),
            ..SubagentStarted::default()
        };
        emit(started.into());
    }

    pub(in super::super) fn open_step(
        &self,
        agent: AgentNo,
        turn: u32,
        more: Option<(&str, Value)>,
        emit: Emit<'_>,
    ) {
        let number = ("number".to_owned(), json!(turn));
        let more = more.map(|(name, value)| (name.to_owned(), value));
        let started = StepStarted {
            step_name: ids::step(turn),
            subagent_run_id: self.tag(agent),
            metadata: Some([number].into_iter().chain(more).collect()),
            ..StepStarted::default()
        };
        emit(started.into());
    }

    /// Closes an agent's step, if it has one.
    pub(in super::super) fn close_step(&self, agent: AgentNo, emit: Emit<'_>) {
        let in_turn = self.outline.agents.get(&agent).filter(|agent| agent.in_turn);
        if let Some(turn) = in_turn.map(|agent| agent.turn) {
            let finished = StepFinished {
                step_name: ids::step(turn),
                subagent_run_id: self.tag(agent),
                metadata: Some(Metadata::from_iter([("number".to_owned(), json!(turn))])),
                ..StepFinished::default()
            };
            emit(finished.into());
        }
    }

    pub(in super::super) fn open_text(
        &self,
        part: PartId,
        agent: AgentNo,
        role: Role,
        emit: Emit<'_>,
    ) {
        let start = TextMessageStart {
            message_id: self.id(part),
            role: Some(match role {
                Role::Assistant => TextRole::Assistant,
                Role::User => TextRole::User,
            }),
            subagent_run_id: self.tag(agent),
            ..TextMessageStart::default()
        };
        emit(start.into());
    }

    pub(in super::super) fn open_thought(&self, part: PartId, agent: AgentNo, emit: Emit<'_>) {
        let (message_id, subagent_run_id) = (self.id(part), self.tag(agent));
        let span = ReasoningStart {
            message_id: message_id.clone(),
            subagent_run_id: subagent_run_id.clone(),
            ..ReasoningStart::default()
        };
        emit(span.into());
        let start = ReasoningMessageStart {
            message_id,
            subagent_run_id,
            ..ReasoningMessageStart::default()
        };
        emit(start.into());
    }

    /// Opens a call, unless it is the one that returns the typed result. Its parent is its
    /// agent's preceding text in the same turn.
    pub(in super::super) fn open_call(
        &self,
        part: PartId,
        agent: AgentNo,
        turn: u32,
        tool: &ToolCall,
        emit: Emit<'_>,
    ) {
        if &*tool.name == RETURN_RESULT {
            return;
        }
        let said = self.outline.parts.range(..part).rev().find(|(_, said)| {
            let is_text = said.shape == PartShape::Text(Role::Assistant);
            is_text && said.agent == agent && said.turn == turn && turn != 0
        });
        let start = ToolCallStart {
            tool_call_id: self.id(part),
            tool_call_name: tool.name.clone(),
            parent_message_id: said.map(|(part, _)| self.id(*part)),
            subagent_run_id: self.tag(agent),
            metadata: tool_metadata(tool),
            ..ToolCallStart::default()
        };
        emit(start.into());
    }

    /// Closes a part that is open.
    pub(in super::super) fn close_part(&self, part: PartId, emit: Emit<'_>) {
        let Some(outline) = self.outline.part(part) else { return };
        let (id, subagent_run_id) = (self.id(part), self.tag(outline.agent));
        match outline.shape {
            PartShape::Text(_) => {
                let end =
                    TextMessageEnd { message_id: id, subagent_run_id, ..TextMessageEnd::default() };
                emit(end.into());
            }
            PartShape::Thought => {
                let end = ReasoningMessageEnd {
                    message_id: id.clone(),
                    subagent_run_id: subagent_run_id.clone(),
                    ..ReasoningMessageEnd::default()
                };
                emit(end.into());
                let span =
                    ReasoningEnd { message_id: id, subagent_run_id, ..ReasoningEnd::default() };
                emit(span.into());
            }
            // A call that has its result was closed before the result.
            PartShape::Call if self.call(part).is_some() => {
                let end =
                    ToolCallEnd { tool_call_id: id, subagent_run_id, ..ToolCallEnd::default() };
                emit(end.into());
            }
            PartShape::Call | PartShape::Output(..) | PartShape::Opaque => {}
        }
    }
}

/// The metadata of a call's start: what it has besides the tool's name.
pub(in super::super) fn tool_metadata(tool: &ToolCall) -> Option<Metadata> {
    let mut metadata = Metadata::new();
    if let Some(title) = &tool.title {
        metadata.insert("title".into(), json!(title));
    }
    if tool.kind != ToolKind::Other {
        metadata.insert("kind".into(), json!(tool.kind));
    }
    if tool.runs_on != RunsOn::Here {
        metadata.insert("runsOn".into(), json!(tool.runs_on));
    }
    Some(metadata).filter(|metadata| !metadata.is_empty())
}

/// The content of a call's result in addition to the model's output.
pub(in super::super) fn result_metadata(
    outcome: ToolOutcome,
    result: &ToolResult,
) -> Option<Metadata> {
    let mut metadata = Metadata::new();
    if outcome != ToolOutcome::Ok {
        metadata.insert("outcome".into(), json!(outcome));
    }
    if !result.content.is_empty() {
        metadata.insert("content".into(), json!(result.content));
    }
    Some(metadata).filter(|metadata| !metadata.is_empty())
}
