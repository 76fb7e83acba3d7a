//! The types as the protocol documents them.

use serde::{Deserialize, Serialize};

/// How the answer stands.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "phase", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum StreamDelta {
    /// No words yet.
    Thinking {
        /// All thoughts so far.
        thinking: String,
        /// How long it has been thinking.
        thinking_elapsed_ms: u64,
    },
    /// Some words.
    Content {
        /// All of them.
        content: String,
        /// All thoughts, if there are any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thinking: Option<String>,
        /// How long they took.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thinking_duration_ms: Option<u64>,
    },
    /// All words.
    Final {
        /// All of them.
        content: String,
        /// All thoughts, if there are any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thinking: Option<String>,
        /// How long they took.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thinking_duration_ms: Option<u64>,
    },
    /// It went wrong, or was stopped.
    Error {
        /// How.
        error: String,
    },
}
