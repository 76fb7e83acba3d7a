//! The engine: runs agents, which are models with tools, or remote agents.
//!
//! [`Runtime`] starts runs, attaches readers, and takes commands for runs. Each run is driven by
//! one task of its owner: it reads the next step from the fold of the log, does it, and appends the
//! result. So starting, resuming after a pause and adopting after a crash are one path.
//!
//! # What is deliberately absent
//!
//! Protocols, HTTP, terminals, and any state outside the log that a run needs to continue.
//!
//! # What is promised
//!
//! 1. Model calls, tools and remote prompts start only after the record that announces them
//!    is committed.
//! 2. Every run ends with exactly one outcome, and everything it opened is closed before.
//! 3. A truncated answer is never a success, and half a call is never executed.
//! 4. A tool that is not idempotent never runs twice for one call.

mod agent;
mod agent_loop;
mod calls;
mod context;
mod control;
mod hooks;
mod inbox;
mod limits;
mod principal;
mod remote;
mod run;
mod runtime;
mod runtime_ui;
pub mod schema;
pub mod telemetry;
pub mod tools;
mod turn;

pub use agent::{AdaptAgent, AgentDef, Backend, Editors, QueueRule, WhenBusy};
pub use calls::policy::{Policy, Rule, RuleError};
pub use calls::queue::{QueuedToolCall, ToolOrder, ToolQueue};
pub use calls::standing_approvals::StandingApproval;
pub use control::{
    AdmissionLimits, AgentRef, ClientId, Control, ControlError, Documents, FEEDBACK_BYTES_MAX,
    Feedback, InThread, RecentRuns, RequestKey, SURFACE_DOCUMENTS_MAX, StartError, StartKey,
    StartRun, Started, StartedAs,
};
pub use hooks::{Hooks, TurnReport};
pub use limits::{
    AGENT_DEPTH_MAX, ARGUMENT_BYTES_MAX, ATTEMPTS_DEFAULT, HISTORY_RUNS_MAX, Limits,
    PARTS_PER_TURN_MAX, REMOTE_CALLS_WAITING_MAX, REPAIRS_DEFAULT, REPETITIONS_MAX,
    RETRIES_DEFAULT, TOOL_BYTES_MAX, TOOLS_AT_ONCE_DEFAULT, TURNS_DEFAULT, Timeouts,
};
pub use principal::{DEFAULT_TENANT, LOCAL, Permission, Permissions, Principal, UnknownPermission};
pub use runtime::Runtime;
pub use runtime_ui::{RuntimeUi, WorkerResult, show};
pub use turn::{Turn, TurnCall, TurnConfig, TurnEvent, TurnRun, TurnState};
