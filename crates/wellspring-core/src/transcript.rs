//! The complete fold of a run: its parts, calls, questions and results.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::{Content, ToolContent};
use crate::event::{
    Annotation, Answered, ContentChange, Event, FileProduced, Location, Outcome, PartKind,
    PlanEntry, Question, Record, RunStarted, Source, Stop, ToolOutcome, ToolResult, ToolUpdate,
    Usage, UsageScope,
};
use crate::id::{AgentNo, InboxNo, Millis, PartId, QuestionId};
use crate::message::{CallResult, Message, MessagePart, WirePartId};
use crate::nullable::present;
use crate::outline::Outline;
use crate::request::Amendment;

/// Initial capacity of a part's text in bytes. Deltas have a few bytes each, so growing from zero
/// would take four allocations for the first sentence.
const TEXT_BYTES_START: usize = 128;

/// A run, or a prefix of one, folded. Folding a prefix and then the rest gives the same.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Transcript {
    /// What is still open.
    pub outline: Outline,
    /// How it began.
    pub started: Option<Arc<RunStarted>>,
    /// When it began.
    pub started_at: Millis,
    /// When the last record was appended.
    pub updated_at: Millis,
    /// What each agent did, in order. The root is there from the start.
    // Boxed, as the parts are: a map has room for eleven at once, and most runs have one.
    pub agents: BTreeMap<AgentNo, Box<AgentTranscript>>,
    /// Every part that was not voided.
    pub parts: BTreeMap<PartId, Box<Part>>,
    /// Every question, with its answer if there is one.
    pub questions: BTreeMap<QuestionId, AskedQuestion>,
    /// What the user added while the run went on.
    pub inputs: BTreeMap<InboxNo, Vec<Content>>,
    /// The current plan.
    pub plan: Vec<PlanEntry>,
    /// The current state that is shared with the screen.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub state: Option<Value>,
    /// The sources that the answer cites.
    pub sources: Vec<Source>,
    /// The files that were produced.
    pub files: Vec<FileProduced>,
    /// The total usage, with sub-agents and failed attempts.
    pub usage: Usage,
    /// How long owners have worked on the run, up to the last pause or change of owner.
    #[serde(default)]
    pub worked: Duration,
    /// Since when its owner works on it; `None` without an owner.
    #[serde(default)]
    pub working_since: Option<Millis>,
    /// The typed result.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Handles of remote runs, the latest per remote agent.
    pub attached: BTreeMap<Box<str>, Value>,
    /// How it ended, once it has.
    pub outcome: Option<Outcome>,
}

/// What one agent did.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct AgentTranscript {
    /// Its name.
    pub name: Box<str>,
    /// The call that it serves; `None` for the root.
    pub call: Option<PartId>,
    /// Its input.
    pub input: Vec<Content>,
    /// Its turns and what came between them, in order.
    pub items: Vec<Item>,
    /// How it ended; `None` for the root and while it runs.
    pub outcome: Option<Outcome>,
    /// Its own usage.
    #[serde(default)]
    pub usage: Usage,
    /// The usage of its current turn so far, until the turn reports its total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<Box<Usage>>,
    /// The run total that it reported last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<Box<Usage>>,
}

/// An item in the history of an agent.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Item {
    /// A model call.
    Turn(Box<TurnItem>),
    /// A part outside of turns: remote agents have those.
    Part(PartId),
    /// What the user added.
    Input(InboxNo),
}

/// A model call.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TurnItem {
    /// The turn's number, from 1.
    pub turn: u32,
    /// The number of the latest attempt.
    pub attempt: u32,
    /// The model's name.
    pub model: Box<str>,
    /// Its parts, in order.
    pub parts: Vec<PartId>,
    /// Why it stopped, once it has.
    pub stop: Option<Stop>,
    /// Its usage.
    pub usage: Option<Usage>,
}

/// A part with its text.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Part {
    /// The agent it belongs to.
    pub agent: AgentNo,
    /// Its kind.
    pub kind: PartKind,
    /// Its whole text.
    pub text: String,
    /// Its metadata.
    pub annotations: Vec<Annotation>,
    /// Whether it is complete.
    pub finished: bool,
    /// When it was opened.
    pub started_at: Millis,
    /// When it was closed; until then, when it last grew.
    pub updated_at: Millis,
    /// For a call: its progress and its result.
    pub call: Option<CallProgress>,
}

/// The progress and the result of a call.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct CallProgress {
    /// Whether its tool has started.
    pub started: bool,
    /// The arguments it ran with, if an approver edited them.
    pub arguments: Option<Value>,
    /// Its latest title.
    pub title: Option<Box<str>>,
    /// The files it touches.
    pub locations: Vec<Location>,
    /// Its content.
    pub content: Vec<ToolContent>,
    /// Its latest progress data, in the tool's own shape.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// The sub-agent that serves it.
    pub agent: Option<AgentNo>,
    /// How it ended.
    pub finished: Option<(ToolOutcome, ToolResult)>,
}

/// A question and what became of it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct AskedQuestion {
    /// The agent that asked.
    pub agent: AgentNo,
    /// The question.
    pub question: Question,
    /// The answer, if there is one.
    pub answered: Option<Answered>,
}

impl Transcript {
    /// Folds records from the start.
    #[must_use]
    pub fn fold<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut transcript = Self::default();
        transcript.extend(records);
        transcript
    }

    /// Folds more records in.
    pub fn extend<'a>(&mut self, records: impl IntoIterator<Item = &'a Record>) {
        for record in records {
            self.apply(record);
        }
    }

    /// Applies one record. Total, like [`Outline::apply`].
    pub fn apply(&mut self, record: &Record) {
        let updated_at = std::mem::replace(&mut self.updated_at, record.at);
        match &record.event {
            Event::PartDelta { part, chunk } => {
                if let Some(part) = self.parts.get_mut(part) {
                    if part.text.capacity() == 0 {
                        part.text.reserve(TEXT_BYTES_START.max(chunk.len()));
                    }
                    part.text.push_str(chunk);
                    part.updated_at = record.at;
                }
            }
            Event::RunStarted(started) => {
                self.started_at = record.at;
                self.state.clone_from(&started.request.state);
                let root = AgentTranscript {
                    name: started.agent.clone(),
                    input: started.request.input.clone(),
                    ..AgentTranscript::default()
                };
                self.agents.insert(AgentNo::ROOT, Box::new(root));
                self.started = Some(Arc::clone(started));
                self.working_since = Some(record.at);
            }
            Event::RunAdopted { .. } => {
                // The log does not say how long the previous owner worked after its last record.
                self.rest(updated_at);
                self.working_since = Some(record.at);
            }
            Event::RunPaused { .. } => self.rest(record.at),
            Event::RunResumed { amended, .. } => {
                self.working_since = Some(record.at);
                self.amend(amended.as_deref());
            }
            Event::UsageReported(usage) => self.report(record.agent, usage),
            Event::TurnStarted(turn) => {
                // The usage of the failed attempt counts too.
                self.settle(record.agent, None);
                let items = &mut self.agents.entry(record.agent).or_default().items;
                match items.last_mut() {
                    Some(Item::Turn(item)) if item.turn == turn.turn => {
                        item.attempt = turn.attempt;
                        item.model.clone_from(&turn.model);
                    }
                    _ => items.push(Item::Turn(Box::new(TurnItem {
                        turn: turn.turn,
                        attempt: turn.attempt,
                        model: turn.model.clone(),
                        parts: Vec::new(),
                        stop: None,
                        usage: None,
                    }))),
                }
            }
            Event::TurnFinished { stop, usage } => {
                if let Some(turn) = self.current_turn(record.agent) {
                    turn.stop = Some(stop.clone());
                    turn.usage = usage.as_deref().cloned();
                }
                self.settle(record.agent, usage.as_deref());
            }
            Event::PartStarted { part, kind } => self.start(*part, kind, record),
            Event::PartAnnotated { part, annotation } => {
                if let Some(part) = self.parts.get_mut(part) {
                    part.annotations.push((**annotation).clone());
                }
            }
            Event::PartFinished { part } => {
                if let Some(part) = self.parts.get_mut(part) {
                    part.finished = true;
                    part.updated_at = record.at;
                }
            }
            Event::PartsVoided { parts, .. } => {
                for part in parts {
                    self.parts.remove(part);
                }
                for item in &mut self.agents.entry(record.agent).or_default().items {
                    if let Item::Turn(turn) = item {
                        turn.parts.retain(|part| !parts.contains(part));
                    }
                }
                let gone = |item: &Item| matches!(item, Item::Part(part) if parts.contains(part));
                self.agents.entry(record.agent).or_default().items.retain(|item| !gone(item));
            }
            Event::ToolStarted { call, arguments, .. } => {
                if let Some(progress) = self.progress(*call) {
                    progress.started = true;
                    if let Some(edited) = arguments {
                        progress.arguments = Some((**edited).clone());
                    }
                }
            }
            Event::ToolUpdated { call, update } => {
                if let Some(progress) = self.progress(*call) {
                    progress.update(update);
                }
            }
            Event::ToolFinished { call, outcome, result } => {
                if let Some(progress) = self.progress(*call) {
                    progress.finished = Some((*outcome, (**result).clone()));
                }
            }
            Event::QuestionAsked(question) => {
                let asked = AskedQuestion {
                    agent: record.agent,
                    question: (**question).clone(),
                    answered: None,
                };
                self.questions.insert(question.question, asked);
            }
            Event::QuestionAnswered(answered) => {
                if let Some(asked) = self.questions.get_mut(&answered.question) {
                    asked.answered = Some((**answered).clone());
                }
            }
            Event::AgentStarted { call, name, input, .. } => {
                let agent = AgentTranscript {
                    name: name.clone(),
                    call: *call,
                    input: input.clone(),
                    ..AgentTranscript::default()
                };
                self.agents.insert(record.agent, Box::new(agent));
                if let Some(progress) = call.and_then(|call| self.progress(call)) {
                    progress.agent = Some(record.agent);
                }
            }
            Event::AgentFinished { outcome } => {
                self.settle(record.agent, None);
                if let Some(agent) = self.agents.get_mut(&record.agent) {
                    agent.outcome = Some((**outcome).clone());
                }
            }
            Event::PlanUpdated { entries } => self.plan.clone_from(entries),
            Event::StateSet { state } => self.state = Some((**state).clone()),
            Event::StatePatched { patch } => self.patch_state(patch),
            Event::SourceCited(source) => self.sources.push((**source).clone()),
            Event::FileProduced(file) => self.files.push((**file).clone()),
            Event::InputAccepted { inbox, content, amended } => {
                if !content.is_empty() {
                    self.inputs.insert(*inbox, content.clone());
                }
                self.amend(amended.as_deref());
            }
            Event::InputApplied { inbox } => {
                self.agents.entry(record.agent).or_default().items.push(Item::Input(*inbox));
            }
            Event::ResultReady { value } => self.result = Some((**value).clone()),
            Event::Attached { origin, handle } => {
                self.attached.insert(origin.clone(), (**handle).clone());
            }
            Event::RunFinished { outcome } => {
                self.settle(AgentNo::ROOT, None);
                self.rest(record.at);
                self.outcome = Some((**outcome).clone());
            }
            // The queue matters only while the run is active; the outline has it.
            Event::ToolQueued { .. } | Event::Extended(_) => {}
        }
        self.outline.apply(record);
    }

    /// Adds the usage of a turn: its total, or what was reported so far if it has none.
    fn settle(&mut self, agent: AgentNo, usage: Option<&Usage>) {
        let Some(agent) = self.agents.get_mut(&agent) else { return };
        let unsettled = agent.unsettled.take();
        if let Some(usage) = usage.or(unsettled.as_deref()) {
            agent.usage.add(usage);
            self.usage.scope = UsageScope::Run;
            self.usage.add(usage);
        }
    }

    fn report(&mut self, agent: AgentNo, usage: &Usage) {
        let agent = self.agents.entry(agent).or_default();
        match usage.scope {
            UsageScope::Turn => agent.unsettled = Some(Box::new(usage.clone())),
            UsageScope::Run => {
                let before = agent.reported.replace(Box::new(usage.clone()));
                let more = usage.since(&before.unwrap_or_default());
                agent.usage.add(&more);
                self.usage.scope = UsageScope::Run;
                self.usage.add(&more);
            }
            // A session's total covers other runs too: only its context size can be used.
            UsageScope::Session => {
                self.usage.context = usage.context.or(self.usage.context);
            }
        }
    }

    fn amend(&mut self, amended: Option<&Amendment>) {
        if let (Some(amended), Some(started)) = (amended, &mut self.started) {
            amended.apply(&mut Arc::make_mut(started).request);
        }
    }

    /// Ends the current stretch of working time.
    fn rest(&mut self, at: Millis) {
        if let Some(since) = self.working_since.take() {
            self.worked += at.since(since);
        }
    }

    /// The agent's answer: the text of its last turn with text.
    #[must_use]
    pub fn answer(&self, agent: AgentNo) -> String {
        let Some(agent) = self.agents.get(&agent) else { return String::new() };
        let texts = |parts: &[PartId]| -> String {
            let said = parts.iter().filter(|part| !self.is_preamble(**part));
            said.filter_map(|part| self.text(*part)).collect()
        };
        let mut loose = String::new();
        for item in agent.items.iter().rev() {
            match item {
                Item::Turn(turn) => {
                    let text = texts(&turn.parts);
                    if !text.is_empty() {
                        return text;
                    }
                }
                Item::Part(part) => loose.insert_str(0, self.text(*part).unwrap_or_default()),
                Item::Input(_) => {}
            }
        }
        loose
    }

    /// All text of an agent, in order, without the user's.
    #[must_use]
    pub fn words(&self, agent: AgentNo) -> String {
        self.parts
            .iter()
            .filter(|(_, part)| part.agent == agent)
            .filter_map(|(id, _)| self.text(*id))
            .collect()
    }

    /// The conversation of one agent as a model reads it: its input, and its turns.
    ///
    /// A turn that was cut short contributes what it had finished; a call without a result
    /// is left out, so that the history can be replayed to every provider.
    #[must_use]
    pub fn messages(&self, agent: AgentNo) -> Vec<Message> {
        let mut messages = Vec::new();
        let Some(whose) = self.agents.get(&agent) else { return messages };
        if !whose.input.is_empty() {
            messages.push(Message::User { content: whose.input.clone() });
        }
        for item in &whose.items {
            match item {
                Item::Turn(turn) => self.push_parts(&turn.model, &turn.parts, &mut messages),
                Item::Part(part) => self.push_parts(&whose.name, &[*part], &mut messages),
                Item::Input(inbox) => {
                    if let Some(content) = self.inputs.get(inbox) {
                        messages.push(Message::User { content: content.clone() });
                    }
                }
            }
        }
        messages
    }

    fn push_parts(&self, model: &str, ids: &[PartId], messages: &mut Vec<Message>) {
        let Some(run) = self.started.as_ref().map(|started| started.run) else { return };
        let mut parts = Vec::new();
        let mut results = Vec::new();
        for id in ids {
            let Some(part) = self.parts.get(id).filter(|part| part.finished) else { continue };
            let said = MessagePart {
                id: WirePartId { run, part: *id },
                kind: if self.is_preamble(*id) { PartKind::Thought } else { part.kind.clone() },
                text: part.text.clone(),
                annotations: part.annotations.clone(),
            };
            let finished = part.call.as_ref().and_then(|call| call.finished.as_ref());
            match &part.kind {
                PartKind::ToolCall(tool) if tool.runs_on.is_ours() => {
                    let Some((outcome, result)) = finished else { continue };
                    results.push(CallResult {
                        call: said.id,
                        provider_id: said.provider_id().map(Into::into),
                        name: tool.name.clone(),
                        outcome: *outcome,
                        result: result.clone(),
                    });
                    parts.push(said);
                }
                // Only its own provider or agent can use such a call again.
                PartKind::ToolCall(_)
                | PartKind::Text { .. }
                | PartKind::Thought
                | PartKind::Opaque(_) => parts.push(said),
                PartKind::Output { .. } => {}
            }
        }
        if !parts.is_empty() {
            messages.push(Message::Assistant { model: model.into(), parts });
        }
        if !results.is_empty() {
            messages.push(Message::Results { results });
        }
    }

    /// Whether a part is a text that turned out to be a thought.
    fn is_preamble(&self, part: PartId) -> bool {
        self.parts.get(&part).is_some_and(|part| {
            matches!(part.kind, PartKind::Text { .. })
                && part.annotations.contains(&Annotation::Preamble)
        })
    }

    fn text(&self, part: PartId) -> Option<&str> {
        match self.parts.get(&part).map(AsRef::as_ref) {
            Some(Part { kind: PartKind::Text { role: crate::Role::Assistant }, text, .. }) => {
                Some(text)
            }
            _ => None,
        }
    }

    fn start(&mut self, id: PartId, kind: &PartKind, record: &Record) {
        let call = matches!(kind, PartKind::ToolCall(_)).then(CallProgress::default);
        let part = Part {
            agent: record.agent,
            kind: kind.clone(),
            text: String::new(),
            annotations: Vec::new(),
            finished: false,
            started_at: record.at,
            updated_at: record.at,
            call,
        };
        self.parts.insert(id, Box::new(part));
        let in_turn = self.outline.agents.get(&record.agent).is_some_and(|agent| agent.in_turn);
        match self.current_turn(record.agent) {
            Some(turn) if in_turn => turn.parts.push(id),
            _ => self.agents.entry(record.agent).or_default().items.push(Item::Part(id)),
        }
    }

    fn current_turn(&mut self, agent: AgentNo) -> Option<&mut TurnItem> {
        self.agents.get_mut(&agent)?.items.iter_mut().rev().find_map(|item| match item {
            Item::Turn(turn) => Some(&mut **turn),
            Item::Part(_) | Item::Input(_) => None,
        })
    }

    fn progress(&mut self, call: PartId) -> Option<&mut CallProgress> {
        self.parts.get_mut(&call)?.call.as_mut()
    }

    /// Applies a patch. An invalid patch does not change the state.
    fn patch_state(&mut self, patch: &Value) {
        if let Ok(patch) = serde_json::from_value::<json_patch::Patch>(patch.clone()) {
            let mut state = self.state.clone().unwrap_or(Value::Null);
            if json_patch::patch(&mut state, &patch).is_ok() {
                self.state = Some(state);
            }
        }
    }
}

impl CallProgress {
    fn update(&mut self, update: &ToolUpdate) {
        if let Some(title) = &update.title {
            self.title = Some(title.clone());
        }
        if !update.locations.is_empty() {
            self.locations.clone_from(&update.locations);
        }
        match &update.content {
            Some(ContentChange::Append(more)) => self.content.extend(more.iter().cloned()),
            Some(ContentChange::Replace(all)) => self.content.clone_from(all),
            None => {}
        }
        if let Some(data) = &update.data {
            self.data = Some(data.clone());
        }
    }
}
