//! The canonical event: what every source produces and every surface consumes.
//!
//! # The grammar
//!
//! A run is a sequence of records, from [`Event::RunStarted`] to exactly one
//! [`Event::RunFinished`]. In between, parts are opened, extended by deltas and closed;
//! they may interleave. A call is a part whose tool is then queued, started, updated and
//! finished. [`Checker`](crate::Checker) is the executable form of this paragraph; if the
//! two disagree, the paragraph is wrong.
//!
//! # What is deliberately absent
//!
//! No variant names a vendor, a protocol or a tool: kinds are data. There is no
//! `#[non_exhaustive]` and there must be no `_ =>` arm over [`Event`]: a new fact has to
//! stop every surface from compiling until someone decides what it looks like there.
//!
//! # Format
//!
//! Events are externally tagged JSON, and this JSON is also what the log keeps. Hence
//! additions only: every new field has a default, and no field changes its meaning. What
//! could not be added so would be another [`FORMAT`].

mod call;
mod outcome;
mod part;
mod question;
mod usage;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::chunk::Chunk;
use crate::content::Content;
use crate::id::{AgentNo, InboxNo, Millis, PartId, QuestionId, RunId, Seq, ThreadId};
use crate::request::{Amendment, RunRequest};

pub use self::call::{
    ContentChange, Location, OutputStream, RunsOn, ToolCall, ToolKind, ToolMode, ToolOutcome,
    ToolResult, ToolUpdate,
};
pub use self::outcome::{Budget, FailureKind, Outcome, Stop};
pub use self::part::{Annotation, Opaque, PartKind, Role, VoidReason};
pub use self::question::{Answer, Answered, Choice, Form, Question, Scope};
pub use self::usage::{ContextWindow, Cost, Usage, UsageScope};

/// The version of the records' JSON. A record that does not say otherwise is of this one, and
/// whatever replaces it has to read this one too.
pub const FORMAT: u32 = 1;

/// An event with its place, its agent and its time.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Record {
    /// Its place in the run.
    pub seq: Seq,
    /// Whose fact it is.
    #[serde(default, skip_serializing_if = "AgentNo::is_root")]
    pub agent: AgentNo,
    /// When it was appended.
    pub at: Millis,
    /// The fact.
    pub event: Event,
}

/// One fact of a run, in the past tense.
///
/// Rare or large facts are boxed, so that a delta stays small; how the run began is shared,
/// because all who work on it keep that.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")] // externally tagged: `tag = ".."` would buffer every event
pub enum Event {
    /// The first record of every run.
    RunStarted(Arc<RunStarted>),
    /// A new owner took over; the first thing it appends.
    RunAdopted {
        /// Who owns the run now.
        node: Box<str>,
        /// Counts the owners.
        epoch: u64,
    },
    /// Nothing but answers from outside can move the run on; it has no owner meanwhile.
    RunPaused {
        /// What it waits for.
        waits: Vec<Wait>,
    },
    /// An answer came and the run goes on.
    RunResumed {
        /// The inbox entry that moved it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        inbox: Option<InboxNo>,
        /// The id under which the asker's own protocol continues the run, if it wants a new one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wire_run: Option<Box<str>>,
        /// What the asker says anew of the request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        amended: Option<Box<Amendment>>,
    },
    /// A model call is about to be made.
    TurnStarted(Box<TurnStarted>),
    /// The model stopped properly; the calls it asked for are all complete.
    TurnFinished {
        /// Why it stopped.
        stop: Stop,
        /// What the turn cost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Box<Usage>>,
    },
    /// A part opened. Its id is unique within the run.
    PartStarted {
        /// The new part.
        part: PartId,
        /// What it is.
        kind: PartKind,
    },
    /// More of an open part, in order. Never empty.
    PartDelta {
        /// The part that grows.
        part: PartId,
        /// Text, thought, output, or a fragment of the arguments' JSON.
        chunk: Chunk,
    },
    /// What must go back to the model unchanged, or says how to read the part.
    /// Legal from the part's start until its turn ends.
    PartAnnotated {
        /// The part it is about.
        part: PartId,
        /// What is said of it.
        annotation: Box<Annotation>,
    },
    /// A part is complete; no further deltas name it.
    PartFinished {
        /// The part that closed.
        part: PartId,
    },
    /// Parts were taken back: they close, and the transcript forgets them.
    PartsVoided {
        /// Which.
        parts: Vec<PartId>,
        /// Why.
        why: VoidReason,
    },
    /// A call waits for its tool.
    ToolQueued {
        /// The call.
        call: PartId,
        /// How many calls are before it.
        place: u32,
    },
    /// A tool is about to run. Written before it does.
    ToolStarted {
        /// The call.
        call: PartId,
        /// Beside others, or alone.
        mode: ToolMode,
        /// The arguments it runs with, where they are not the model's: an approver edited them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Box<Value>>,
    },
    /// A tool reported progress.
    ToolUpdated {
        /// The call.
        call: PartId,
        /// What changed.
        update: Box<ToolUpdate>,
    },
    /// A call has its one result.
    ToolFinished {
        /// The call.
        call: PartId,
        /// How it went.
        outcome: ToolOutcome,
        /// What the model is told, and what people see.
        result: Box<ToolResult>,
    },
    /// Somebody has to decide.
    QuestionAsked(Box<Question>),
    /// Somebody did, or time ran out.
    QuestionAnswered(Box<Answered>),
    /// A sub-agent began; its number is the record's.
    AgentStarted {
        /// Who called it.
        parent: AgentNo,
        /// By which call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<PartId>,
        /// Its name.
        name: Box<str>,
        /// What it was asked.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        input: Vec<Content>,
    },
    /// A sub-agent ended; its number is the record's.
    AgentFinished {
        /// How.
        outcome: Box<Outcome>,
    },
    /// The whole plan, as it is now.
    PlanUpdated {
        /// Its entries, in order.
        entries: Vec<PlanEntry>,
    },
    /// The state shared with the screen was replaced.
    StateSet {
        /// All of it.
        state: Box<Value>,
    },
    /// The shared state was changed.
    StatePatched {
        /// An RFC 6902 patch.
        patch: Box<Value>,
    },
    /// The answer rests on this.
    SourceCited(Box<Source>),
    /// The agent made a file.
    FileProduced(Box<FileProduced>),
    /// Tokens spent so far within the usage's scope: totals, not increments.
    UsageReported(Box<Usage>),
    /// The user added something while the run went on; it waits for the turn's edge.
    InputAccepted {
        /// The inbox entry it came by.
        inbox: InboxNo,
        /// What was added.
        content: Vec<Content>,
    },
    /// The model will see that addition from its next turn on.
    InputApplied {
        /// The inbox entry it came by.
        inbox: InboxNo,
    },
    /// The typed result is there, validated. The run may go on a little.
    ResultReady {
        /// The result.
        value: Box<Value>,
    },
    /// How to find a remote run again.
    Attached {
        /// Whose handle it is.
        origin: Box<str>,
        /// What its owner needs to find it.
        handle: Box<Value>,
    },
    /// What a protocol said that we have no word for, kept whole.
    Extended(Box<Extended>),
    /// The run is over. Always the last record, exactly once.
    RunFinished {
        /// How.
        outcome: Box<Outcome>,
    },
}

impl Event {
    /// Renames every part that the event speaks of: whoever places a source's events into a
    /// run gives its parts their ids there.
    pub fn rename_parts(&mut self, mut rename: impl FnMut(PartId) -> PartId) {
        match self {
            Self::PartDelta { part, .. }
            | Self::PartAnnotated { part, .. }
            | Self::PartFinished { part }
            | Self::ToolQueued { call: part, .. }
            | Self::ToolStarted { call: part, .. }
            | Self::ToolUpdated { call: part, .. }
            | Self::ToolFinished { call: part, .. } => *part = rename(*part),
            Self::PartStarted { part, kind } => {
                *part = rename(*part);
                if let PartKind::Output { call, .. } = kind {
                    *call = rename(*call);
                }
            }
            Self::PartsVoided { parts, .. } => {
                parts.iter_mut().for_each(|part| *part = rename(*part));
            }
            Self::AgentStarted { call, .. } => *call = call.map(rename),
            Self::QuestionAsked(question) => question.call = question.call.map(rename),
            Self::RunPaused { waits } => {
                for wait in waits {
                    if let Wait::Call(call) = wait {
                        *call = rename(*call);
                    }
                }
            }
            Self::RunStarted(_)
            | Self::RunAdopted { .. }
            | Self::RunResumed { .. }
            | Self::TurnStarted(_)
            | Self::TurnFinished { .. }
            | Self::QuestionAnswered(_)
            | Self::AgentFinished { .. }
            | Self::PlanUpdated { .. }
            | Self::StateSet { .. }
            | Self::StatePatched { .. }
            | Self::SourceCited(_)
            | Self::FileProduced(_)
            | Self::UsageReported(_)
            | Self::InputAccepted { .. }
            | Self::InputApplied { .. }
            | Self::ResultReady { .. }
            | Self::Attached { .. }
            | Self::Extended(_)
            | Self::RunFinished { .. } => {}
        }
    }
}

/// How a run began.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RunStarted {
    /// This run.
    pub run: RunId,
    /// The conversation it belongs to.
    pub thread: ThreadId,
    /// The agent's name.
    pub agent: Box<str>,
    /// The run that it continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<RunId>,
    /// What was asked, and under which conditions.
    pub request: RunRequest,
}

/// What a paused run waits for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// The result of a call that runs in the client.
    Call(PartId),
    /// The answer to a question.
    Question(QuestionId),
}

/// A model call.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TurnStarted {
    /// Counts the agent's turns, from 1.
    pub turn: u32,
    /// Counts the attempts at this turn, from 1.
    pub attempt: u32,
    /// Which model.
    pub model: Box<str>,
    /// Whether the model was asked to stream.
    #[serde(default = "yes")]
    pub streaming: bool,
}

fn yes() -> bool {
    true
}

/// A step of a plan.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PlanEntry {
    /// What is to be done.
    pub content: Box<str>,
    /// How far it is.
    #[serde(default)]
    pub status: PlanStatus,
    /// How much it matters.
    #[serde(default)]
    pub priority: Priority,
}

/// How far a step is.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each name says all there is to say")]
pub enum PlanStatus {
    #[default]
    Pending,
    InProgress,
    Completed,
}

/// How much a step matters.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each name says all there is to say")]
pub enum Priority {
    High,
    #[default]
    Medium,
    Low,
}

/// What an answer rests on.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Source {
    /// Its id at the provider, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Box<str>>,
    /// Where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Box<str>>,
    /// What it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Box<str>>,
    /// What it is, for documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<Box<str>>,
    /// The passage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<Box<str>>,
}

/// A file that the agent made.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FileProduced {
    /// What is in it.
    pub media_type: Box<str>,
    /// Where its bytes are.
    pub source: crate::content::MediaSource,
    /// What it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Box<str>>,
}

/// What a protocol said that we have no word for.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Extended {
    /// Who said it.
    pub origin: Box<str>,
    /// What it calls it.
    pub name: Box<str>,
    /// All of it.
    pub value: Value,
}
