//! The core of Wellspring: the event, the record, the grammar of a run, and the traits that
//! models, tools and remote agents implement.
//!
//! A run is an append-only log of typed [`Record`]s. [`Checker`] decides which sequences are
//! valid; [`Outline`] (what is open) and [`Transcript`] (everything) are its two folds.
//!
//! # What is deliberately absent
//!
//! IO, the clock, randomness, any protocol. Nothing here spawns.

mod batch;
mod buffer;
mod cancel;
mod canonical_json;
mod check;
mod chunk;
mod circuit_breaker;
mod command;
mod content;
mod context;
mod environment;
mod event;
mod id;
mod inbox_set;
mod message;
mod model;
mod nullable;
mod outline;
mod remote;
mod render;
mod request;
mod tool;
mod transcript;

pub use batch::{Batch, LocalPart};
pub use buffer::EventBuffer;
pub use cancel::{CancellationToken, Cancelled, DropGuard};
pub use canonical_json::canonical_json;
pub use check::{Checker, Invariant, Violation};
pub use chunk::Chunk;
pub use circuit_breaker::Circuit;
pub use command::{CancelWhen, Command};
pub use content::{Content, MediaSource, ToolContent};
pub use context::{Ask, Context, ContextFacts, Host};
pub use environment::CHILD_ENVIRONMENT;
pub use event::*;
pub use id::{AgentNo, InboxNo, Millis, ParseIdError, PartId, QuestionId, RunId, Seq, ThreadId};
pub use inbox_set::InboxSet;
pub use message::{CallResult, Message, MessagePart, WirePartId};
pub use model::{
    AttemptStream, MAX_OUTPUT_TOKENS_DEFAULT, Model, ModelError, ModelSettings, OutputSchema,
    Thinking, ToolChoice, TurnRequest,
};
pub use outline::{
    AgentOutline, CallOutline, CallState, Outline, PartOutline, PartShape, QuestionOutline, RunHead,
};
pub use remote::{RemoteAgent, RemoteCapabilities, RemoteInputs, RemoteRequest, RemoteResume};
pub use render::render;
pub use request::{Amendment, ContextNote, RunRequest, WireNames};
pub use tool::{Approval, RETURN_RESULT, Tool, ToolError, ToolSpec, ToolTimeouts};
pub use transcript::{
    AgentTranscript, AskedQuestion, CallProgress, Item, Part, Transcript, TurnItem,
};
