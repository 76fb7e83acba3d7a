//! The types as the protocol documents them.

use std::fmt;

use serde::{Deserialize, Serialize};
use wellspring_core::{PlanEntry, ToolKind};

/// An event of the stream.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ThoughtEvent {
    /// More reasoning.
    Thought {
        /// Text to append.
        text: String,
    },
    /// More of the visible answer.
    Message {
        /// Text to append.
        text: String,
    },
    /// The agent calls a tool.
    ToolStart {
        /// The call's id.
        id: String,
        /// The title for people.
        title: String,
        /// The kind of action.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<ToolKind>,
    },
    /// Progress of a tool.
    ToolUpdate {
        /// The call's id.
        id: String,
        /// The current status.
        status: ToolStatus,
        /// Content to show. Structured progress is a text block with JSON; the records of the run
        /// have it whole.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<Vec<ToolContent>>,
    },
    /// A tool finished.
    ToolDone {
        /// The call's id.
        id: String,
        /// Whether it succeeded.
        status: DoneStatus,
    },
    /// The whole plan.
    Plan {
        /// Its entries, in order.
        entries: Vec<PlanEntry>,
    },
}

/// The status of a tool. On the wire it is any string.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// It has not started.
    Pending,
    /// It is running.
    InProgress,
    /// It waits for a person's answer. The content is the prompt, followed by the question as
    /// JSON text (`subtype`, `question`, `prompt`, `form`).
    Waiting,
    /// It succeeded.
    Completed,
    /// It failed.
    Failed,
    /// A status that this version does not know.
    #[serde(untagged)]
    Other(String),
}

impl ToolStatus {
    /// The status as it is on the wire.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Pending => "pending",
            Self::InProgress => "in_progress",
            Self::Waiting => "waiting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Other(status) => status,
        }
    }
}

impl fmt::Display for ToolStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a tool succeeded.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are enough")]
pub enum DoneStatus {
    Completed,
    Failed,
}

impl fmt::Display for DoneStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
        })
    }
}

/// Content that a tool shows.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ToolContent {
    /// Any content.
    Content {
        /// The block.
        content: ContentBlock,
    },
    /// A change to a file.
    Diff {
        /// The file's path.
        path: String,
        /// The old text; empty for a new file.
        old_text: String,
        /// The new text.
        new_text: String,
    },
    /// The output of a terminal.
    Terminal {
        /// The terminal's id.
        terminal_id: String,
    },
}

/// A block of content.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ContentBlock {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image {
        /// The bytes, in base64.
        data: String,
        /// The media type.
        mime_type: String,
    },
    /// A link to a resource.
    ResourceLink {
        /// Its URI.
        uri: String,
        /// Its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
}
