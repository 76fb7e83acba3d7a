//! The types as the protocol documents them.

use serde::{Deserialize, Serialize};
use wellspring_core::ToolKind;

/// One thing to watch.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ThoughtEvent {
    /// More reasoning.
    Thought {
        /// To be appended.
        text: String,
    },
    /// More of the visible answer.
    Message {
        /// To be appended.
        text: String,
    },
    /// The agent calls a tool.
    ToolStart {
        /// The call.
        id: String,
        /// What a person would call it.
        title: String,
        /// What sort of thing it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<ToolKind>,
    },
    /// A tool got on.
    ToolUpdate {
        /// The call.
        id: String,
        /// How far it is.
        status: ToolStatus,
        /// What it shows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<Vec<ToolContent>>,
    },
    /// A tool is done.
    ToolDone {
        /// The call.
        id: String,
        /// How it went.
        status: DoneStatus,
    },
    /// The plan, all of it.
    Plan {
        /// Its entries, in order.
        entries: Vec<PlanEntry>,
    },
}

/// How far a tool is. On the wire it is any string.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolStatus {
    /// It has not started.
    Pending,
    /// It is running.
    InProgress,
    /// It waits for a person's answer. The content is the prompt, then the question as JSON text
    /// (`subtype`, `question`, `prompt`, `form`).
    Waiting,
    /// It succeeded.
    Completed,
    /// It failed.
    Failed,
    /// A status that this version does not know.
    #[serde(untagged)]
    Other(String),
}

/// How a tool went.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each name says all there is to say")]
pub enum DoneStatus {
    Completed,
    Failed,
}

/// What a tool shows.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ToolContent {
    /// Any content.
    Content {
        /// The block.
        content: ContentBlock,
    },
    /// A change of a file.
    Diff {
        /// Which file.
        path: String,
        /// Before; empty for a new file.
        old_text: String,
        /// After.
        new_text: String,
    },
    /// What a terminal shows.
    Terminal {
        /// Which terminal.
        terminal_id: String,
    },
}

/// A block of content.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ContentBlock {
    /// Words.
    Text {
        /// The words.
        text: String,
    },
    /// A picture.
    Image {
        /// Its bytes in base64.
        data: String,
        /// What it is.
        mime_type: String,
    },
    /// Something that can be fetched.
    ResourceLink {
        /// Where it is.
        uri: String,
        /// What it is called.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
}

/// A step of a plan.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PlanEntry {
    /// What is to be done.
    pub content: String,
    /// How far it is.
    pub status: PlanStatus,
    /// How much it matters.
    pub priority: Priority,
}

/// How far a step is.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each name says all there is to say")]
pub enum PlanStatus {
    Pending,
    InProgress,
    Completed,
}

/// How much a step matters.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each name says all there is to say")]
pub enum Priority {
    High,
    Medium,
    Low,
}
