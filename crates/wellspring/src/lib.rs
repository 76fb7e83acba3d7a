//! One typed stream from any agent to any screen: the library.
//!
//! An agent thinks, calls tools and answers. Here that is a stream of events to watch, and a
//! typed result to await:
//!
//! ```
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//! use serde_json::json;
//! use wellspring::prelude::*;
//!
//! #[derive(Debug, Deserialize, JsonSchema, PartialEq)]
//! struct Review {
//!     approve: bool,
//!     remarks: Vec<String>,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), wellspring::ThinkError> {
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
//! while let Some(event) = stream.next().await {
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
//! [`stream`](Think::stream) is called and goes on whether or not anyone reads; every reader
//! is a cursor over the log. So one can iterate without awaiting the result, await it without
//! iterating, do both at once, break off and still get it, and come back later to a run that
//! is going on or over ([`Agent::attach`]). A slow reader holds up nothing and misses nothing.
//!
//! The log is in memory unless an agent is given another ([`Agent::log`]); with the feature
//! `sqlite` it survives the process.
//!
//! # Where to look
//!
//! - [`Agent`]: who is asked: a model with tools, skills, rules and limits.
//! - [`Think`]: what is asked, and under which conditions.
//! - [`ThoughtStream`]: what comes of it: events, the result, questions, cancellation.
//! - [`Thread`]: a conversation over several runs.
//! - [`tools`]: typed functions as tools, and the built-in ones.
//! - [`Turn`]: one model call, to be tested by itself.
//! - [`demo`]: an agent that needs no key and no network.
//! - [`Agent::open`]: Claude Code, Codex, Gemini CLI and other agents that speak ACP.
//! - [`core`], [`log`], [`engine`], [`models`], [`wire`]: the crates beneath, whole.
//!
//! # What is deliberately absent
//!
//! Blocking calls, a server, and protocol code of its own.

mod agent;
pub mod demo;
mod error;
mod events;
mod follow;
mod prompt;
pub mod skill;
mod stream;
mod think;
mod thread;
mod tool;

pub use agent::Agent;
pub use error::ThinkError;
pub use events::ThoughtKind;
pub use skill::{Skill, SkillError};
pub use stream::ThoughtStream;
pub use think::Think;
pub use thread::Thread;
pub use tool::{IntoTool, IsFunction, IsShared, IsTool};

#[cfg(feature = "acp")]
pub use wellspring_acp as acp;
pub use wellspring_core as core;
pub use wellspring_engine as engine;
pub use wellspring_log as log;
pub use wellspring_models as models;
pub use wellspring_wire as wire;

#[cfg(feature = "acp")]
pub use wellspring_acp::client::{AcpConfig, AcpError};
pub use wellspring_core::{
    Answer, Approval, CancellationToken, Content, Context, Event, FailureKind, Form, Message,
    Model, ModelError, ModelSettings, Outcome, Question, QuestionId, Record, RemoteAgent, RunId,
    Scope, Seq, Stop, ThreadId, Tool, ToolError, ToolKind, ToolMode, ToolResult, ToolSpec,
    ToolUpdate, Transcript, Usage, render,
};
pub use wellspring_engine::{
    AgentDef, Control, ControlError, Hooks, Limits, Permission, Policy, Principal, Rule, Runtime,
    RuntimeUi, StartError, StartRun, Timeouts, Turn, TurnCall, TurnConfig, TurnEvent, TurnReport,
    TurnState, WhenBusy, WorkerResult, show, tools,
};
pub use wellspring_log::{Log, LogOptions, ReadError};
pub use wellspring_wire::agent_event::ExecutionContext;
pub use wellspring_wire::thought_event::ThoughtEvent;

/// What nearly every program needs: `use wellspring::prelude::*;`
pub mod prelude {
    pub use crate::{
        Agent, Answer, CancellationToken, Context, ExecutionContext as _, Skill, ThinkError,
        ThoughtEvent, ThoughtKind, ThoughtStream, Thread, ToolError, ToolKind,
    };
    pub use futures::StreamExt as _;
    pub use wellspring_models::{Say, Scripted};
}

/// The guide to agents that speak ACP.
#[cfg(all(doctest, feature = "acp"))]
#[doc = include_str!("../../../docs/acp.md")]
struct AcpGuide;

/// The README's examples, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
