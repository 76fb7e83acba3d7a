//! The text-free fold: what is open at a point of a run.
//!
//! A dialect gets a record and the outline *before* it, and keeps no other state. So any reader
//! can resume anywhere: load the nearest outline, fold the following records, continue.
//!
//! # What is deliberately absent
//!
//! Text and thoughts. The exceptions are the arguments of calls that have not finished and
//! the prompts of open questions, because every surface shows what they ask for. So an
//! outline is bounded by what is open, not by how long the run is.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::event::{
    Event, Form, OutputStream, PartKind, Record, Role, RunsOn, ToolCall, ToolMode, Wait,
};
use crate::id::{AgentNo, InboxNo, Millis, PartId, QuestionId, RunId, Seq, ThreadId};
use crate::inbox_set::InboxSet;

/// What is open at a point of a run.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Outline {
    /// The last record folded; zero before the first.
    pub head: Seq,
    /// The run's ids, once it has started.
    pub run: Option<RunHead>,
    /// The number of times that the run has changed owners.
    pub epoch: u64,
    /// What the run waits for; `None` unless it is paused.
    pub paused: Option<Vec<Wait>>,
    /// Whether the typed result is ready.
    pub has_result: bool,
    /// Whether the run is over.
    pub finished: bool,
    /// The agents that have not finished.
    pub agents: BTreeMap<AgentNo, AgentOutline>,
    /// The parts that are open, and the closed parts of unfinished turns.
    pub parts: BTreeMap<PartId, PartOutline>,
    /// The calls without a result.
    pub calls: BTreeMap<PartId, CallOutline>,
    /// The questions without an answer.
    pub questions: BTreeMap<QuestionId, QuestionOutline>,
    /// The inbox entries that have taken effect.
    pub taken: InboxSet,
    /// Input that was accepted and waits for the end of the turn.
    pub inputs: BTreeSet<InboxNo>,
    /// The id that the next part will have.
    pub next_part: PartId,
    /// The id that the next question will have.
    pub next_question: QuestionId,
    /// The number that the next sub-agent will have.
    pub next_agent: AgentNo,
}

/// The ids of the run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RunHead {
    /// Its id.
    pub run: RunId,
    /// Its thread.
    pub thread: ThreadId,
    /// Its agent's name.
    pub agent: Box<str>,
    /// The client's own id of the thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_thread: Option<Box<str>>,
    /// The client's own id of the run. It may change with each resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_run: Option<Box<str>>,
    /// The client's own id of the run that this one continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_parent: Option<Box<str>>,
}

/// An agent that has not finished.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct AgentOutline {
    /// Its name.
    pub name: Box<str>,
    /// The agent that called it; the root names itself.
    pub parent: AgentNo,
    /// The call that it serves.
    pub call: Option<PartId>,
    /// Its latest turn; zero before the first.
    pub turn: u32,
    /// The latest attempt at that turn.
    pub attempt: u32,
    /// Whether that turn has not ended.
    pub in_turn: bool,
    /// Whether that turn streams.
    pub streaming: bool,
    /// The record that started that turn's first attempt.
    pub turn_at: Seq,
}

/// A part that can still be extended, annotated or voided.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PartOutline {
    /// The agent it belongs to.
    pub agent: AgentNo,
    /// Its kind.
    pub shape: PartShape,
    /// Whether it is still open.
    pub open: bool,
    /// Whether it has had any delta.
    pub grown: bool,
    /// When it was opened.
    pub since: Millis,
    /// The turn in which it was opened; zero outside of turns.
    #[serde(default)]
    pub turn: u32,
}

/// A part's kind without its content.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartShape {
    /// Text.
    Text(Role),
    /// Reasoning.
    Thought,
    /// A call; [`Outline::calls`] has the rest.
    Call,
    /// Output of a call.
    Output(PartId, OutputStream),
    /// Data that only its origin can read.
    Opaque,
}

/// A call without a result.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CallOutline {
    /// The agent it belongs to.
    pub agent: AgentNo,
    /// The tool, and where it runs.
    pub tool: ToolCall,
    /// The arguments so far: complete once the part has finished.
    pub arguments: String,
    /// Its progress.
    pub state: CallState,
}

/// The progress of a call.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// Its arguments are still arriving.
    Asked,
    /// Its arguments are complete.
    Complete,
    /// It waits in the queue.
    Queued,
    /// Its tool is running.
    Started(ToolMode),
}

/// A question without an answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct QuestionOutline {
    /// The agent that asked.
    pub agent: AgentNo,
    /// The call that waits for it.
    pub call: Option<PartId>,
    /// The text that a person reads.
    #[serde(default)]
    pub prompt: Box<str>,
    /// The kind of answer it takes.
    pub form: Form,
    /// When it expires.
    pub expires_at: Option<Millis>,
    /// Whether the run does not pause for it: see [`Question::blocking`](crate::Question::blocking).
    #[serde(default, rename = "in_place", skip_serializing_if = "std::ops::Not::not")]
    pub blocking: bool,
}

impl Outline {
    /// The questions that do not pause the run.
    #[must_use]
    pub fn blocking_questions(&self) -> Vec<Wait> {
        let asked = self.questions.iter().filter(|(_, question)| question.blocking);
        asked.map(|(question, _)| Wait::Question(*question)).collect()
    }

    /// Whether an approval may include edited arguments: only while a call that this process
    /// runs has not started. A remote agent cannot be given other arguments than its own, and a
    /// tool that asks while it runs already has its arguments.
    #[must_use]
    pub fn takes_edited_arguments(&self, question: &QuestionOutline) -> bool {
        let call = question.call.and_then(|call| self.call(call));
        question.form == Form::Approve
            && call.is_some_and(|call| {
                call.tool.runs_on == RunsOn::Here && !matches!(call.state, CallState::Started(_))
            })
    }

    /// Applies one record. An invalid record only changes the head; [`Checker`](crate::Checker)
    /// reports it.
    pub fn apply(&mut self, record: &Record) {
        self.head = record.seq;
        match &record.event {
            Event::PartDelta { part, chunk } => {
                if let Some(outline) = self.parts.get_mut(part) {
                    outline.grown = true;
                    if outline.shape == PartShape::Call
                        && let Some(call) = self.calls.get_mut(part)
                    {
                        call.arguments.push_str(chunk);
                    }
                }
            }
            Event::RunStarted(started) => {
                let names = started.request.wire.as_deref();
                self.run = Some(RunHead {
                    run: started.run,
                    thread: started.thread,
                    agent: started.agent.clone(),
                    wire_thread: names.and_then(|names| names.thread.clone()),
                    wire_run: names.and_then(|names| names.run.clone()),
                    wire_parent: names.and_then(|names| names.parent.clone()),
                });
                self.next_agent = AgentNo::ROOT.next();
                let root = AgentOutline { name: started.agent.clone(), ..AgentOutline::default() };
                self.agents.insert(AgentNo::ROOT, root);
            }
            Event::RunAdopted { epoch, .. } => self.epoch = *epoch,
            Event::RunPaused { waits } => self.paused = Some(waits.clone()),
            Event::RunResumed { inbox, wire_run, amended } => {
                self.paused = None;
                self.taken.extend(*inbox);
                if let (Some(head), Some(name)) = (&mut self.run, wire_run) {
                    head.wire_run = Some(name.clone());
                    head.wire_parent =
                        amended.as_ref().and_then(|amended| amended.wire_parent.clone());
                }
            }
            Event::TurnStarted(turn) => {
                if let Some(agent) = self.agents.get_mut(&record.agent) {
                    if agent.turn != turn.turn {
                        agent.turn_at = record.seq;
                    }
                    agent.turn = turn.turn;
                    agent.attempt = turn.attempt;
                    agent.in_turn = true;
                    agent.streaming = turn.streaming;
                }
            }
            Event::TurnFinished { .. } => {
                if let Some(agent) = self.agents.get_mut(&record.agent) {
                    agent.in_turn = false;
                }
                self.parts.retain(|_, part| part.open || part.agent != record.agent);
            }
            Event::PartStarted { part, kind } => self.open(*part, kind, record),
            Event::PartAnnotated { .. } => {}
            Event::PartFinished { part } => self.close(*part),
            Event::PartsVoided { parts, .. } => {
                for part in parts {
                    self.parts.remove(part);
                    self.calls.remove(part);
                }
            }
            Event::ToolQueued { call, .. } => self.advance(*call, CallState::Queued),
            Event::ToolStarted { call, mode, arguments } => {
                self.advance(*call, CallState::Started(*mode));
                if let (Some(edited), Some(call)) = (arguments, self.calls.get_mut(call)) {
                    call.arguments = edited.to_string();
                }
            }
            Event::ToolUpdated { call, update } => {
                if let (Some(title), Some(call)) = (&update.title, self.calls.get_mut(call)) {
                    call.tool.title = Some(title.clone());
                }
            }
            Event::ToolFinished { call, result, .. } => {
                self.calls.remove(call);
                self.taken.extend(result.inbox);
            }
            Event::QuestionAsked(question) => {
                self.next_question = self.next_question.max(question.question.next());
                let outline = QuestionOutline {
                    agent: record.agent,
                    call: question.call,
                    prompt: question.prompt.clone(),
                    form: question.form.clone(),
                    expires_at: question.expires_at,
                    blocking: question.blocking,
                };
                self.questions.insert(question.question, outline);
            }
            Event::QuestionAnswered(answered) => {
                self.questions.remove(&answered.question);
                self.taken.extend(answered.inbox);
            }
            Event::AgentStarted { parent, call, name, .. } => {
                self.next_agent = self.next_agent.max(record.agent.next());
                let outline = AgentOutline {
                    name: name.clone(),
                    parent: *parent,
                    call: *call,
                    ..AgentOutline::default()
                };
                self.agents.insert(record.agent, outline);
            }
            Event::AgentFinished { .. } => {
                self.agents.remove(&record.agent);
                self.parts.retain(|_, part| part.open || part.agent != record.agent);
            }
            Event::InputAccepted { inbox, content, .. } => {
                self.taken.insert(*inbox);
                if !content.is_empty() {
                    self.inputs.insert(*inbox);
                }
            }
            Event::InputApplied { inbox } => {
                self.inputs.remove(inbox);
            }
            Event::ResultReady { .. } => self.has_result = true,
            Event::RunFinished { .. } => {
                self.finished = true;
                self.paused = None;
            }
            Event::PlanUpdated { .. }
            | Event::StateSet { .. }
            | Event::StatePatched { .. }
            | Event::SourceCited(_)
            | Event::FileProduced(_)
            | Event::UsageReported(_)
            | Event::Attached { .. }
            | Event::Extended(_) => {}
        }
    }

    /// A part that can still be extended, annotated or voided.
    #[must_use]
    pub fn part(&self, part: PartId) -> Option<&PartOutline> {
        self.parts.get(&part)
    }

    /// A call without a result.
    #[must_use]
    pub fn call(&self, call: PartId) -> Option<&CallOutline> {
        self.calls.get(&call)
    }

    /// The parts of `agent` that can still grow, oldest first.
    pub fn open_parts(&self, agent: AgentNo) -> impl Iterator<Item = (PartId, &PartOutline)> {
        let open = move |(_, part): &(&PartId, &PartOutline)| part.open && part.agent == agent;
        self.parts.iter().filter(open).map(|(id, part)| (*id, part))
    }

    fn open(&mut self, part: PartId, kind: &PartKind, record: &Record) {
        self.next_part = self.next_part.max(part.next());
        let shape = match kind {
            PartKind::Text { role } => PartShape::Text(*role),
            PartKind::Thought => PartShape::Thought,
            PartKind::ToolCall(tool) => {
                let call = CallOutline {
                    agent: record.agent,
                    tool: (**tool).clone(),
                    arguments: String::new(),
                    state: CallState::Asked,
                };
                self.calls.insert(part, call);
                PartShape::Call
            }
            PartKind::Output { call, stream } => PartShape::Output(*call, *stream),
            PartKind::Opaque(_) => PartShape::Opaque,
        };
        let in_turn = self.agents.get(&record.agent).filter(|agent| agent.in_turn);
        let outline = PartOutline {
            agent: record.agent,
            shape,
            open: true,
            grown: false,
            since: record.at,
            turn: in_turn.map_or(0, |agent| agent.turn),
        };
        self.parts.insert(part, outline);
    }

    fn close(&mut self, part: PartId) {
        let Some(outline) = self.parts.get_mut(&part) else { return };
        outline.open = false;
        // Outside a turn, parts cannot be annotated or voided later, so the part is dropped.
        if !self.agents.get(&outline.agent).is_some_and(|agent| agent.in_turn) {
            self.parts.remove(&part);
        }
        if let Some(call) = self.calls.get_mut(&part)
            && call.state == CallState::Asked
        {
            call.state = CallState::Complete;
        }
    }

    fn advance(&mut self, call: PartId, state: CallState) {
        if let Some(call) = self.calls.get_mut(&call) {
            call.state = state;
        }
    }
}
