//! The types as the protocol documents them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One step of a turn.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum TurnEvent {
    /// More of the text.
    TextDelta {
        /// To be appended.
        text: String,
    },
    /// The text is complete.
    TextDone {
        /// All of it.
        text: String,
    },
    /// The model called a tool.
    ToolCall {
        /// The call.
        tool_call_id: String,
        /// The tool.
        tool_name: String,
        /// Its arguments.
        args: Map<String, Value>,
    },
    /// A call has its result.
    ToolResult {
        /// The call.
        tool_call_id: String,
        /// The tool.
        tool_name: String,
        /// What it said.
        output: Value,
        /// Whether it failed.
        is_error: bool,
    },
    /// The model stopped.
    Finished {
        /// Why.
        finish_reason: String,
        /// What it cost.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<TurnUsage>,
    },
    /// It went wrong.
    Error {
        /// How.
        error: TurnError,
    },
}

/// What a turn cost, in tokens.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct TurnUsage {
    /// Read.
    pub input: u64,
    /// Written.
    pub output: u64,
}

/// What went wrong.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct TurnError {
    /// What a person reads.
    pub message: String,
}
