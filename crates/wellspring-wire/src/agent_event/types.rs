//! The types as the protocol documents them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The only event type of the wire.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum AgentEvent {
    /// More reasoning.
    Thought {
        /// Text to append.
        content: String,
    },
    /// The agent called a tool.
    ToolCall {
        /// The tool's name.
        tool_name: String,
        /// Its arguments, as JSON text.
        tool_args: String,
    },
    /// Progress of a tool.
    ToolProgress {
        /// The tool's name.
        tool_name: String,
        /// Any JSON.
        data: Value,
    },
    /// A tool finished.
    ToolResult {
        /// The tool's name.
        tool_name: String,
        /// The output that the model gets.
        output: String,
        /// Whether it failed; `None` means that it did not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        is_error: Option<bool>,
    },
    /// More of the answer.
    Stream {
        /// Text to append.
        content: String,
    },
    /// The answer is complete.
    Final,
    /// The agent failed or was cancelled.
    Error {
        /// The error message.
        error: String,
    },
}

/// Progress and the result of a tool.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ToolEvent {
    /// Progress.
    Progress {
        /// The tool's name.
        tool_name: String,
        /// Any JSON.
        data: Value,
    },
    /// The result. Emitted once.
    Result {
        /// The tool's name.
        tool_name: String,
        /// The output that the model gets.
        output: String,
        /// Whether it failed; `None` means that it did not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        is_error: Option<bool>,
    },
}

impl From<ToolEvent> for AgentEvent {
    fn from(event: ToolEvent) -> Self {
        match event {
            ToolEvent::Progress { tool_name, data } => Self::ToolProgress { tool_name, data },
            ToolEvent::Result { tool_name, output, is_error } => {
                Self::ToolResult { tool_name, output, is_error }
            }
        }
    }
}
