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
//! additions only: every new field has a default, and no field changes its meaning. A change
//! that does not fit this rule needs a new [`FORMAT`].

mod call;
mod outcome;
mod part;
mod question;
mod reporter;
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
pub use self::reporter::Reporter;
pub use self::usage::{ContextWindow, Cost, Usage, UsageScope};

/// The version of the records' JSON. A record without a version has this one, and any later
/// version must be able to read it.
pub const FORMAT: u32 = 1;

/// An event with its sequence number, its agent and its time.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Record {
    /// Its sequence number.
    pub seq: Seq,
    /// The agent it belongs to.
    #[serde(default, skip_serializing_if = "AgentNo::is_root")]
    pub agent: AgentNo,
    /// When it was appended.
    pub at: Millis,
    /// The event.
    pub event: Event,
}

/// One fact of a run, in the past tense.
///
/// Rare or large payloads are boxed, so that a delta stays small. How the run began is shared
/// through an `Arc`, because everything that works on the run keeps it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")] // externally tagged: `tag = ".."` would buffer every event
pub enum Event {
    /// The first record of every run.
    RunStarted(Arc<RunStarted>),
    /// A new owner took over; the first thing it appends.
    RunAdopted {
        /// The new owner's node.
        node: Box<str>,
        /// How often the run has changed owners.
        epoch: u64,
    },
    /// The run waits for answers or results from outside. It has no owner while it waits.
    RunPaused {
        /// What it waits for.
        waits: Vec<Wait>,
    },
    /// An answer or a result arrived and the run continues.
    RunResumed {
        /// The inbox entry that resumed it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        inbox: Option<InboxNo>,
        /// The run id that the client's own protocol uses from now on, if it changes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wire_run: Option<Box<str>>,
        /// What the client changed in the request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        amended: Option<Box<Amendment>>,
    },
    /// A model call is about to be made.
    TurnStarted(Box<TurnStarted>),
    /// The model stopped properly; the calls it asked for are all complete.
    TurnFinished {
        /// Why it stopped.
        stop: Stop,
        /// What the turn used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<Box<Usage>>,
    },
    /// A part opened. Its id is unique within the run.
    PartStarted {
        /// The new part's id.
        part: PartId,
        /// Text, thought, call, output or opaque.
        kind: PartKind,
    },
    /// More of an open part, in order. Never empty.
    PartDelta {
        /// The part that grows.
        part: PartId,
        /// Text, thought, output, or a fragment of the arguments' JSON.
        chunk: Chunk,
    },
    /// Metadata of a part: a signature that must go back to the model, a citation, a provider id.
    /// Legal from the part's start until its turn ends.
    PartAnnotated {
        /// The part it is about.
        part: PartId,
        /// The metadata.
        annotation: Box<Annotation>,
    },
    /// A part is complete; no further deltas name it.
    PartFinished {
        /// The part that closed.
        part: PartId,
    },
    /// Parts were taken back: they close, and the transcript forgets them.
    PartsVoided {
        /// The voided parts.
        parts: Vec<PartId>,
        /// Why they were voided.
        why: VoidReason,
    },
    /// A call waits in the queue for its tool.
    ToolQueued {
        /// The call.
        call: PartId,
        /// How many calls are ahead of it.
        place: u32,
    },
    /// A tool is about to run. Written before it does.
    ToolStarted {
        /// The call.
        call: PartId,
        /// Together with other calls, or alone.
        mode: ToolMode,
        /// The arguments it runs with, if an approver edited them.
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
        /// Whether it succeeded.
        outcome: ToolOutcome,
        /// The output for the model, and the content for people.
        result: Box<ToolResult>,
    },
    /// The run asked people a question.
    QuestionAsked(Box<Question>),
    /// A question was answered, expired or withdrawn.
    QuestionAnswered(Box<Answered>),
    /// A sub-agent began; its number is the record's.
    AgentStarted {
        /// The agent that called it.
        parent: AgentNo,
        /// The call that it serves.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<PartId>,
        /// Its name.
        name: Box<str>,
        /// Its input.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        input: Vec<Content>,
    },
    /// A sub-agent ended; its number is the record's.
    AgentFinished {
        /// How it ended.
        outcome: Box<Outcome>,
    },
    /// The whole plan, as it is now.
    PlanUpdated {
        /// Its entries, in order.
        entries: Vec<PlanEntry>,
    },
    /// The state shared with the screen was replaced.
    StateSet {
        /// The whole new state.
        state: Box<Value>,
    },
    /// The shared state was changed.
    StatePatched {
        /// An RFC 6902 patch.
        patch: Box<Value>,
    },
    /// The answer cites a source.
    SourceCited(Box<Source>),
    /// The agent produced a file.
    FileProduced(Box<FileProduced>),
    /// Tokens used so far within the usage's scope: totals, not increments.
    UsageReported(Box<Usage>),
    /// The client added input, or changed its tools or context, during the run.
    /// Content waits until the current turn ends.
    InputAccepted {
        /// The inbox entry that brought it.
        inbox: InboxNo,
        /// The added content. Empty if the client only changed the request; the model then gets
        /// no message, and [`InputApplied`](Self::InputApplied) does not follow.
        content: Vec<Content>,
        /// What the client changed in the request. Holds from the next turn on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        amended: Option<Box<Amendment>>,
    },
    /// The model sees that input from its next turn on.
    InputApplied {
        /// The inbox entry that brought it.
        inbox: InboxNo,
    },
    /// The typed result is ready and valid. The run may continue for a moment.
    ResultReady {
        /// The result.
        value: Box<Value>,
    },
    /// How to find a remote run again after a crash.
    Attached {
        /// The remote agent's name.
        origin: Box<str>,
        /// Whatever the remote agent needs to find the run.
        handle: Box<Value>,
    },
    /// A message of some protocol that has no event of its own, kept whole.
    Extended(Box<Extended>),
    /// The run is over. Always the last record, exactly once.
    RunFinished {
        /// How it ended.
        outcome: Box<Outcome>,
    },
}

impl Event {
    /// Renames every part id in the event: the engine maps a source's own numbers to the
    /// run's.
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
    /// The name of the agent.
    pub agent: Box<str>,
    /// The run that it continues, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<RunId>,
    /// The request.
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
    /// The model's name.
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
    /// What has to be done.
    pub content: Box<str>,
    /// Its status.
    #[serde(default)]
    pub status: PlanStatus,
    /// Its priority.
    #[serde(default)]
    pub priority: Priority,
}

/// The status of a plan entry.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are enough")]
pub enum PlanStatus {
    #[default]
    Pending,
    InProgress,
    Completed,
}

/// The priority of a plan entry.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are enough")]
pub enum Priority {
    High,
    #[default]
    Medium,
    Low,
}

/// A source that an answer cites.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Source {
    /// The provider's id of the source, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Box<str>>,
    /// Its URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Box<str>>,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Box<str>>,
    /// Its media type, for documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<Box<str>>,
    /// The cited passage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<Box<str>>,
}

/// A file that the agent produced.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct FileProduced {
    /// The media type.
    pub media_type: Box<str>,
    /// The data, or where to find it.
    pub source: crate::content::MediaSource,
    /// The file name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Box<str>>,
}

/// A message of some protocol that has no event of its own.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Extended {
    /// The protocol or provider it came from.
    pub origin: Box<str>,
    /// The message's own name.
    pub name: Box<str>,
    /// The whole message.
    pub value: Value,
}
