//! One typed stream from any agent to any screen: the library.
//!
//! ```toml
//! [dependencies]
//! wellspring = "0.1"
//! serde = { version = "1", features = ["derive"] }
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! An agent thinks, calls tools and answers. Here that is a stream of events to watch, and a
//! typed result to await:
//!
//! ```
//! use serde::Deserialize;
//! use wellspring::prelude::*;
//!
//! #[derive(Debug, Deserialize, JsonSchema, PartialEq)]
//! struct Review {
//!     approve: bool,
//!     remarks: Vec<String>,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), ThinkError> {
//! // A model that follows a script, so that this example runs anywhere.
//! let model = Scripted::new([Say::new()
//!     .thought("The name is fine.")
//!     .call("return_result", json!({"approve": true, "remarks": ["Well done."]}))]);
//!
//! let mut stream = Agent::model(model)
//!     .think::<Review>()
//!     .text("Review this change:")
//!     .quote("- let x = 1;\n+ let answer = 42;")
//!     .stream(); // starts at once
//!
//! let mut thoughts = String::new();
//! while let Some(event) = stream.try_next().await? {
//!     if let ThoughtEvent::Thought { text } = event {
//!         thoughts.push_str(&text);
//!     }
//! }
//! assert_eq!(thoughts, "The name is fine.");
//!
//! let review = stream.result().await?; // independent of the loop
//! assert_eq!(review, Review { approve: true, remarks: vec!["Well done.".into()] });
//! # Ok(())
//! # }
//! ```
//!
//! # How it works
//!
//! A run is an append-only log of typed [records](Record). It starts when
//! [`stream`](Think::stream) is called and continues whether or not you read; every reader is a
//! cursor over the log. You can iterate without awaiting the result, await it without iterating,
//! do both at once, break out of the loop and still get it, and come back later to an active or
//! finished run ([`Agent::attach`]). A slow reader delays nothing and misses nothing.
//!
//! The log is in memory unless you give the agent another ([`Agent::log`]); with the feature
//! `sqlite` it survives the process. For several machines there is a store in NATS JetStream, with
//! the feature `nats` of [`wellspring-log`](https://docs.rs/wellspring-log).
//!
//! **Questions are denied unless you answer them.** A tool that can change things asks first. A
//! request without [`on_question`](Think::on_question) answers no at once and tells the model.
//!
//! # Where to look
//!
//! - [`Agent`]: a model or a remote agent with tools, skills, rules and limits.
//!   [`Agent::open`] starts Claude Code, Codex, Gemini CLI and other agents that speak ACP.
//! - [`Think`]: one request.
//! - [`ThoughtStream`]: its run: events, the result, questions, cancellation.
//! - [`Thread`]: a conversation over several runs.
//! - [`tools`]: typed functions as tools, and the built-in ones.
//! - [`models`]: Anthropic, OpenAI, Gemini, Ollama, a chain of several models
//!   (`Fallback::new([first, second])`), and a scripted model for tests.
//! - [`thought_event`], [`agent_event`], [`turn_event`], [`streaming_event`], [`stream_delta`]: the
//!   vocabularies in which a run can be read, each one method of [`ThoughtStream`] away.
//! - [`Turn`], [`ToolQueue`]: one model call and a queue of calls, for a loop of your own.
//! - [`demo`]: an agent that needs no key and no network.
//! - [`crates`]: the lower crates, complete. They change more often than this one.
//!
//! # Your own parts
//!
//! Each of these examples is a complete program:
//!
//! - the loop around the model: [`examples/own_loop.rs`](https://github.com/wellspring-rs/wellspring/blob/main/crates/wellspring/examples/own_loop.rs)
//! - a [`Tool`] with progress: [`examples/custom_tool.rs`](https://github.com/wellspring-rs/wellspring/blob/main/crates/wellspring/examples/custom_tool.rs)
//! - a [`Model`]: [`examples/custom_model.rs`](https://github.com/wellspring-rs/wellspring/blob/main/crates/wellspring/examples/custom_model.rs)
//! - a [`RemoteAgent`]: [`examples/custom_remote_agent.rs`](https://github.com/wellspring-rs/wellspring/blob/main/crates/wellspring/examples/custom_remote_agent.rs)
//! - a dialect: [`examples/custom_dialect.rs`](https://github.com/wellspring-rs/wellspring/blob/main/crates/wellspring/examples/custom_dialect.rs)
//! - a [`Store`](store::Store): [`examples/custom_store.rs`](https://github.com/wellspring-rs/wellspring/blob/main/crates/wellspring/examples/custom_store.rs)
//!
//! # Features
//!
//! | feature | adds | default |
//! | --- | --- | --- |
//! | `providers` | clients of model providers, over HTTPS | yes |
//! | `tools` | the built-in tools for files, the shell, transfers and the clock, and [`demo`] | yes |
//! | `skills` | [`Skill`] | yes |
//! | `acp` | [`Agent::open`] | no |
//! | `sqlite` | runs that survive the process | no |
//!
//! # Other crates
//!
//! - [`wellspring-mcp`](https://docs.rs/wellspring-mcp): the tools of MCP servers, for
//!   [`Agent::tools`].
//! - [`wellspring-remote`](https://docs.rs/wellspring-remote): agents that speak AG-UI, agents of an
//!   OpenClaw gateway and Dify apps, for [`Agent::remote`].
//! - [`wellspring-server`](https://docs.rs/wellspring-server): agents over HTTP, to mount in an axum
//!   application.
//! - [`wellspring-channels`](https://docs.rs/wellspring-channels): agents in Telegram, Slack,
//!   Discord and WhatsApp.
//!
//! # What is deliberately absent
//!
//! Blocking calls, a server, and protocol code of its own.

mod agent;
#[cfg(feature = "tools")]
pub mod demo;
mod error;
mod events;
mod follow;
#[cfg(feature = "skills")]
pub mod front_matter;
mod prompt;
mod question;
#[cfg(feature = "skills")]
pub mod skill;
mod stream;
mod think;
mod thread;
mod tool;

pub use agent::Agent;
pub use error::ThinkError;
pub use events::ThoughtKind;
#[cfg(feature = "skills")]
pub use skill::{Skill, SkillError};
pub use stream::ThoughtStream;
pub use think::Think;
pub use thread::Thread;
pub use tool::{IntoTool, IsFunction, IsShared, IsTool, event_tool};

#[cfg(feature = "acp")]
pub use wellspring_acp::client::{AcpConfig, AcpError};
pub use wellspring_core::{
    Answer, Approval, Ask, AttemptStream, Batch, CallResult, CancellationToken, Choice, Content,
    ContentChange, Context, Event, FailureKind, Form, LocalPart, Message, MessagePart, Model,
    ModelError, ModelSettings, Outcome, Part, PartKind, PlanEntry, PlanStatus, Priority, Question,
    QuestionId, Record, RemoteAgent, RemoteRequest, RunId, Scope, Seq, Stop, ThreadId, Tool,
    ToolContent, ToolError, ToolKind, ToolMode, ToolOutcome, ToolResult, ToolSpec, ToolUpdate,
    Transcript, TurnRequest, Usage, render,
};
pub use wellspring_engine::{
    AgentDef, Control, ControlError, Hooks, Limits, Permission, Policy, Principal, QueueRule,
    QueuedToolCall, Rule, Runtime, RuntimeUi, StartError, StartRun, Timeouts, ToolOrder, ToolQueue,
    Turn, TurnCall, TurnConfig, TurnEvent, TurnReport, TurnRun, TurnState, WhenBusy, WorkerResult,
    show, tools,
};
pub use wellspring_log::{Log, LogOptions, MemoryStore, ReadError};
#[cfg(feature = "sqlite")]
pub use wellspring_log::{SqliteOptions, SqliteStore};
pub use wellspring_wire::agent_event::ExecutionContext;
pub use wellspring_wire::thought_event::ThoughtEvent;
pub use wellspring_wire::{agent_event, stream_delta, streaming_event, thought_event, turn_event};

// Types in public signatures, so that a program needs no further dependencies for them.
pub use {futures, schemars, serde_json};

/// Models: clients of providers, and one that follows a script.
///
/// Any of them is the argument of [`Agent::model`], also in an `Arc` or a `Box`, so that a program
/// can choose one at run time:
///
/// ```
/// use wellspring::Model;
/// # #[cfg(feature = "providers")]
/// use wellspring::models::Ollama;
/// use wellspring::models::{Breaker, Circuit, Fallback};
/// use wellspring::prelude::*;
///
/// # #[cfg(feature = "providers")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let is_test = true;
/// let model: Box<dyn Model> = if is_test {
///     Box::new(Scripted::new([Say::new().text("Hello.")]))
/// } else {
///     Box::new(Ollama::from_env()?)
/// };
/// // If the first model fails, the next one is asked. A breaker skips a provider that is down.
/// let model = Fallback::new(Breaker::new(model, Circuit::new("first")))
///     .or(Scripted::new([Say::new().text("Hello from the second.")]));
/// assert_eq!(Agent::model(model).say("Hi").run().await?, "Hello.");
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "providers"))]
/// # fn main() {}
/// ```
pub mod models {
    #[cfg(feature = "providers")]
    pub use wellspring_models::{
        Anthropic, Gemini, Ollama, OpenAiChat, OpenAiResponses, Secret, SetupError,
    };
    pub use wellspring_models::{
        Attempts, Breaker, Circuit, Failure, Fallback, Gate, IntoModels, Say, Scripted,
    };
}

/// Dialects: a run in a vocabulary of your own.
pub mod dialect {
    pub use wellspring_wire::{
        Before, Closed, Dialect, DialectName, Encoder, Fold, Framing, Joins, Json, Out, Positions,
        Shape, WirePosition,
    };
}

/// Stores: where the runs of a [`Log`] are kept. [`Store`](store::Store) is the contract;
/// [`forward_store!`](store::forward_store) wraps a store that exists. The tests that every store
/// has to pass are in the feature `suite` of `wellspring-log`.
pub mod store {
    pub use wellspring_log::{
        Adopt, Append, AppendDone, AppendError, AuditEntry, AuditFilter, Created, Document,
        DocumentFilter, Due, DueQuery, Expected, ExternalId, Finding, HistoryQuery, InboxEntry,
        NewAudit, NewCommand, NewFrame, NewRun, NodeBeat, Page, PastRun, PutAll, RunFilter,
        RunInfo, RunState, SnapshotKind, Store, StoreError, StoreFuture, StoredFrame, ThreadChange,
        ThreadFilter, ThreadInfo, Watch, Watches, Written, forward_store,
    };
}

/// The lower crates, complete. The types that this crate re-exports itself are stable; the rest
/// may change with any release.
pub mod crates {
    #[cfg(feature = "acp")]
    pub use wellspring_acp as acp;
    pub use wellspring_core as core;
    pub use wellspring_engine as engine;
    pub use wellspring_log as log;
    pub use wellspring_models as models;
    pub use wellspring_wire as wire;
}

/// What most programs need: `use wellspring::prelude::*;`
///
/// The names for models, tools and dialects of your own (`Model`, `Tool`, `Event`, `Turn` and so
/// on) are at the root of the crate. `wellspring::futures`, `wellspring::schemars` and
/// `wellspring::serde_json` are the versions that this crate uses, so a program need not depend
/// on them.
pub mod prelude {
    #[cfg(feature = "skills")]
    pub use crate::Skill;
    pub use crate::models::{Say, Scripted};
    pub use crate::{
        Agent, Answer, CancellationToken, Context, ExecutionContext as _, ThinkError, ThoughtEvent,
        ThoughtKind, ThoughtStream, Thread, ToolError, ToolKind,
    };
    pub use futures::StreamExt as _;
    // The derive macro names the crate, so both are needed.
    pub use schemars::{self, JsonSchema};
    pub use serde_json::json;
}

/// The guide to agents that speak ACP.
#[cfg(all(doctest, feature = "acp"))]
#[doc = include_str!("../../../docs/acp.md")]
struct AcpGuide;

/// The README's examples, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The example of the package's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct PackageReadme;
