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
//! additions only: every new field has a default, and no field changes its meaning.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::chunk::Chunk;
use crate::content::{Content, ToolContent};
use crate::id::{AgentNo, InboxNo, Millis, PartId, QuestionId, RunId, Seq, ThreadId};
use crate::present::present;
use crate::request::RunRequest;

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
/// Rare or large facts are boxed, so that a delta stays small.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")] // externally tagged: `tag = ".."` would buffer every event
pub enum Event {
    /// The first record of every run.
    RunStarted(Box<RunStarted>),
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

/// Why a model, or a whole run, stopped.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// It had said everything.
    EndTurn,
    /// It wants tools to run.
    ToolCalls,
    /// The output limit was reached.
    MaxTokens,
    /// A stop sequence came up.
    StopSequence,
    /// The model refused.
    Refusal,
    /// The provider's filter stepped in.
    ContentFilter,
    /// The provider paused the turn and wants to be asked again.
    Paused,
    /// The run's limit of turns was reached.
    TurnLimit,
    /// A budget of the run was spent.
    Budget(Budget),
    /// A reason we have no word for.
    Other(Box<str>),
}

/// What can run out.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Budget {
    /// Tokens in and out.
    Tokens,
    /// Money.
    Cost,
    /// Wall-clock time.
    Time,
}

/// What a part is.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// Words for the user, or of the user.
    Text {
        /// Who speaks.
        #[serde(default)]
        role: Role,
    },
    /// Reasoning.
    Thought,
    /// A wish to use a tool; the deltas are fragments of the arguments' JSON.
    ToolCall(Box<ToolCall>),
    /// What a call writes while it runs.
    Output {
        /// The call.
        call: PartId,
        /// Where it writes.
        stream: OutputStream,
    },
    /// Something only its origin can read, kept whole.
    Opaque(Box<Opaque>),
}

impl PartKind {
    /// The assistant's words.
    pub const TEXT: Self = Self::Text { role: Role::Assistant };

    /// A call of a tool that runs here.
    #[must_use]
    pub fn call(name: impl Into<Box<str>>) -> Self {
        Self::ToolCall(Box::new(ToolCall { name: name.into(), ..ToolCall::default() }))
    }
}

/// Who speaks.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The agent.
    #[default]
    Assistant,
    /// The person.
    User,
}

/// Which tool is wanted, and where it runs.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ToolCall {
    /// The tool's name.
    pub name: Box<str>,
    /// What a person would call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Box<str>>,
    /// What sort of thing it does.
    #[serde(default)]
    pub kind: ToolKind,
    /// Where it runs.
    #[serde(default)]
    pub runs_on: RunsOn,
}

/// What sort of thing a tool does; surfaces choose an icon by it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each name says all there is to say")]
pub enum ToolKind {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Execute,
    Think,
    Fetch,
    SwitchMode,
    #[default]
    Other,
}

/// Where a tool runs.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunsOn {
    /// In this process.
    #[default]
    Here,
    /// In the page or the program that asked; the run pauses for it.
    Client,
    /// At the model's provider.
    Provider,
    /// Inside a remote agent.
    Agent,
}

impl RunsOn {
    /// Whether the engine sees to the result, here or through the client; otherwise whoever
    /// runs the tool reports it.
    #[must_use]
    pub const fn is_ours(self) -> bool {
        match self {
            Self::Here | Self::Client => true,
            Self::Provider | Self::Agent => false,
        }
    }
}

/// Where a call writes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each name says all there is to say")]
pub enum OutputStream {
    Stdout,
    Stderr,
    Terminal,
}

/// Something only its origin can read.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Opaque {
    /// Who can read it.
    pub origin: Box<str>,
    /// What it said, unchanged.
    pub raw: Value,
}

/// What is said of a part.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Annotation {
    /// Proves to its provider that a thought is its own.
    Signature(Box<str>),
    /// Reasoning that only its provider can read.
    Encrypted(Box<str>),
    /// The provider's own id of the part.
    ProviderId(Box<str>),
    /// A passage rests on a source; the provider's own form.
    Citation(Value),
    /// Text that turned out to be said before a tool call, not the answer.
    Preamble,
    /// Anything else that must travel with the part.
    Other(Box<Extended>),
}

/// Why parts were taken back.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VoidReason {
    /// The attempt broke and is made again.
    Restarted,
    /// The source said it anew in other words.
    Replaced,
    /// The run ended before the attempt did.
    Abandoned,
}

/// Beside others, or alone.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolMode {
    /// Together with other calls.
    #[default]
    Parallel,
    /// With no other call beside it.
    Sequential,
}

/// What changed about a running call; absent fields did not.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ToolUpdate {
    /// What it does now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Box<str>>,
    /// The files it touches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<Location>,
    /// What it shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentChange>,
    /// Progress in the tool's own shape.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

/// A place in a file.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Location {
    /// The file.
    pub path: Box<str>,
    /// The line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// How an update changes what a call shows.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentChange {
    /// After what is there.
    Append(Vec<ToolContent>),
    /// Instead of what is there.
    Replace(Vec<ToolContent>),
}

/// How a call went.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    /// It did what it should.
    Ok,
    /// It said why not.
    Error,
    /// Somebody, or the policy, did not allow it.
    Denied,
    /// Nobody knows: it was cut short, or its process died.
    Interrupted,
    /// It took too long.
    TimedOut,
}

/// The one result of a call.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ToolResult {
    /// What the model is told. A string goes as it is, anything else as JSON.
    #[serde(default)]
    pub output: Value,
    /// What people see, where that differs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<ToolContent>,
    /// The inbox entry that brought it, when it came from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbox: Option<InboxNo>,
}

impl ToolResult {
    /// A result that says just this.
    #[must_use]
    pub fn new(output: impl Into<Value>) -> Self {
        Self { output: output.into(), ..Self::default() }
    }

    /// The output as the model reads it.
    #[must_use]
    pub fn output_text(&self) -> std::borrow::Cow<'_, str> {
        match &self.output {
            Value::String(text) => text.as_str().into(),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => self.output.to_string().into(),
        }
    }
}

/// Something that somebody has to decide: approvals, elicitations and interrupts alike.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Question {
    /// Its id.
    pub question: QuestionId,
    /// The call that waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<PartId>,
    /// What a person reads.
    pub prompt: Box<str>,
    /// What an answer looks like.
    pub form: Form,
    /// When it answers itself with [`Answer::Expired`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Millis>,
}

/// What an answer looks like.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Yes or no, to a call.
    Approve,
    /// Some of these.
    Choose {
        /// What there is to choose from.
        choices: Vec<Choice>,
        /// Whether several may be chosen.
        #[serde(default)]
        multiple: bool,
    },
    /// A value of this JSON schema.
    Schema(Value),
}

/// One of several possible answers.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Choice {
    /// What an answer names.
    pub id: Box<str>,
    /// What a person reads.
    pub label: Box<str>,
}

/// A question's end.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Answered {
    /// Which.
    pub question: QuestionId,
    /// What was decided.
    pub answer: Answer,
    /// Who decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Box<str>>,
    /// The inbox entry it came by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbox: Option<InboxNo>,
}

/// What was decided.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Yes.
    Approve {
        /// For how long.
        #[serde(default)]
        scope: Scope,
        /// With these arguments instead of the model's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Value>,
    },
    /// No.
    Deny {
        /// What the model is told about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Box<str>>,
    },
    /// These ones.
    Choose(Vec<Box<str>>),
    /// A value that fits the form's schema.
    Value(Value),
    /// Nobody answered in time.
    Expired,
    /// The run ended first.
    Withdrawn,
}

impl Answer {
    /// Yes, this once.
    #[must_use]
    pub fn yes() -> Self {
        Self::Approve { scope: Scope::Once, arguments: None }
    }

    /// No, and what the model is told about it.
    #[must_use]
    pub fn no(reason: impl Into<Box<str>>) -> Self {
        Self::Deny { reason: Some(reason.into()) }
    }
}

/// For how long a yes holds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// This call.
    #[default]
    Once,
    /// Every call of the tool in this thread.
    Thread,
    /// Every call of the tool by this agent.
    Always,
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

/// Tokens and money.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Usage {
    /// What the figures cover.
    #[serde(default)]
    pub scope: UsageScope,
    /// Who was paid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Box<str>>,
    /// For which model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// Tokens read, cached ones included.
    #[serde(default)]
    pub input: u64,
    /// Tokens written, reasoning included.
    #[serde(default)]
    pub output: u64,
    /// Of the output, what was reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
    /// Of the input, what came from the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input: Option<u64>,
    /// Of the input, what was put into the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
    /// What it cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// How full the context window is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextWindow>,
}

impl Usage {
    /// Adds what another turn spent.
    pub fn add(&mut self, other: &Self) {
        fn sum(total: &mut Option<u64>, more: Option<u64>) {
            if let Some(more) = more {
                *total = Some(total.unwrap_or(0).saturating_add(more));
            }
        }
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        sum(&mut self.reasoning, other.reasoning);
        sum(&mut self.cached_input, other.cached_input);
        sum(&mut self.cache_write, other.cache_write);
        if let Some(more) = &other.cost {
            match &mut self.cost {
                Some(cost) if cost.currency == more.currency => cost.amount += more.amount,
                Some(_) => {} // Two currencies have no sum; the first one stays.
                None => self.cost = Some(more.clone()),
            }
        }
        if other.context.is_some() {
            self.context = other.context;
        }
    }
}

/// What a usage covers.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageScope {
    /// One turn.
    #[default]
    Turn,
    /// The run so far.
    Run,
    /// A remote session, over all its runs.
    Session,
}

/// Money.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Cost {
    /// How much. What is not a number is written as `null`, and read as nothing.
    #[serde(deserialize_with = "null_is_nothing")]
    pub amount: f64,
    /// Of what (ISO 4217).
    pub currency: Box<str>,
}

fn null_is_nothing<'de, D: serde::Deserializer<'de>>(value: D) -> Result<f64, D::Error> {
    Option::<f64>::deserialize(value).map(Option::unwrap_or_default)
}

/// How full a context window is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ContextWindow {
    /// Tokens in it.
    pub used: u64,
    /// Tokens that fit.
    pub size: u64,
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

/// How a run, or a sub-agent, ended. Cancellation is an outcome, not an error.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It came to an end of its own.
    Completed {
        /// Which.
        stop: Stop,
    },
    /// Somebody stopped it.
    Cancelled {
        /// Who.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Box<str>>,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<Box<str>>,
        /// The inbox entry that asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        inbox: Option<InboxNo>,
    },
    /// It could not go on.
    Failed {
        /// What a caller can do about it.
        kind: FailureKind,
        /// What a person reads.
        message: Box<str>,
        /// Whether the same request may work later.
        #[serde(default)]
        retryable: bool,
    },
}

/// What a caller can do about a failed run.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The provider is unavailable or overloaded: try later.
    Unavailable,
    /// The provider limits the rate: try later.
    RateLimited,
    /// Credentials, quota or permission: the user must act first.
    Refused,
    /// The request itself was wrong.
    BadRequest,
    /// A peer stopped in mid-stream, or broke its protocol.
    Protocol,
    /// A limit of time was reached.
    TimedOut,
    /// The agent repeated itself without getting anywhere.
    Repetition,
    /// The run lost its process and could not be continued.
    Lost,
    /// A fault of ours.
    Internal,
}
