//! The calls of a turn: whether and when they run, and their results.

pub(crate) mod answers;
mod approval;
pub(crate) mod arguments;
pub(crate) mod client_call;
pub(crate) mod execute;
pub(crate) mod policy;
pub(crate) mod queue;
pub(crate) mod run_tool;
pub(crate) mod standing_approvals;
pub(crate) mod typed_result;

use std::sync::Arc;

use serde_json::Value;
use wellspring_core::{Context, PartId, Tool, ToolMode, ToolOutcome, ToolResult};

/// A call that may run.
pub(crate) struct ReadyCall {
    call: PartId,
    tool: Arc<dyn Tool>,
    arguments: Value,
    /// An approver changed the arguments.
    edited: bool,
    mode: ToolMode,
    /// The context of the remote agent that made the call: it gets progress, and can cancel.
    caller: Option<Context>,
}

impl ReadyCall {
    /// Reports the call's progress to the remote agent that made it.
    pub(crate) fn heard_by(self, caller: Context) -> Self {
        Self { caller: Some(caller), ..self }
    }
}

/// Whether a call may run.
pub(crate) enum Verdict {
    Run(ReadyCall),
    /// It has its result without running.
    Result(ToolOutcome, ToolResult),
    /// The call was handled elsewhere, or the run is ending.
    Nothing,
}
