//! The types as the protocol documents them.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// An event of a turn.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum TurnEvent {
    /// More of the text.
    TextDelta {
        /// Text to append.
        text: String,
    },
    /// The text is complete.
    TextDone {
        /// The whole text of the turn.
        text: String,
    },
    /// The model called a tool.
    ToolCall {
        /// The call's id.
        tool_call_id: String,
        /// The tool's name.
        tool_name: String,
        /// Its arguments.
        args: Map<String, Value>,
    },
    /// A call has its result.
    ToolResult {
        /// The call's id.
        tool_call_id: String,
        /// The tool's name.
        tool_name: String,
        /// The tool's output.
        output: Value,
        /// Whether it failed.
        is_error: bool,
    },
    /// The model stopped.
    Finished {
        /// The finish reason, in the AI SDK's vocabulary.
        finish_reason: String,
        /// The usage; absent if the provider did not report it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usage: Option<TurnUsage>,
    },
    /// The run failed or was cancelled.
    Error {
        /// The error.
        error: TurnError,
    },
}

/// The usage of a turn, in tokens.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct TurnUsage {
    /// Input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
}

/// An error.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct TurnError {
    /// The message for people.
    pub message: String,
}
