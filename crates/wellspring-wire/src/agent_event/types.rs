//! The types as the protocol documents them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The one event of the wire.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum AgentEvent {
    /// More reasoning.
    Thought {
        /// To be appended.
        content: String,
    },
    /// The agent decided to use a tool.
    ToolCall {
        /// Which.
        tool_name: String,
        /// Its arguments, as JSON text.
        tool_args: String,
    },
    /// A tool got on.
    ToolProgress {
        /// Which.
        tool_name: String,
        /// Anything.
        data: Value,
    },
    /// A tool is done.
    ToolResult {
        /// Which.
        tool_name: String,
        /// The output that the model gets.
        output: String,
        /// Whether it failed; `None` means that it did not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        is_error: Option<bool>,
    },
    /// More of the answer.
    Stream {
        /// To be appended.
        content: String,
    },
    /// The agent has said everything.
    Final,
    /// The agent failed or was cancelled.
    Error {
        /// Why.
        error: String,
    },
}

/// What a tool says while it works.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ToolEvent {
    /// Something that is not final.
    Progress {
        /// Which tool.
        tool_name: String,
        /// Anything.
        data: Value,
    },
    /// The one result.
    Result {
        /// Which tool.
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
