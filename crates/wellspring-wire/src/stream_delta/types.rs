//! The types as the protocol documents them.

use serde::{Deserialize, Serialize};

/// A snapshot of the answer.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "phase", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum StreamDelta {
    /// No text yet.
    Thinking {
        /// All thoughts so far.
        thinking: String,
        /// The duration of the thoughts so far, in milliseconds.
        thinking_elapsed_ms: u64,
    },
    /// Some text.
    Content {
        /// The whole text so far.
        content: String,
        /// All thoughts, if there are any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thinking: Option<String>,
        /// The duration of the thoughts, in milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thinking_duration_ms: Option<u64>,
    },
    /// The complete answer.
    Final {
        /// The whole text.
        content: String,
        /// All thoughts, if there are any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thinking: Option<String>,
        /// The duration of the thoughts, in milliseconds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thinking_duration_ms: Option<u64>,
    },
    /// The run failed or was cancelled.
    Error {
        /// The error message.
        error: String,
    },
}
