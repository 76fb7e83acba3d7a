//! Parts: text, thoughts, calls and outputs, and the metadata that belongs to them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Extended, OutputStream, ToolCall};
use crate::id::PartId;

/// The kind of a part.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// Text from the agent, or from the user.
    Text {
        /// The speaker.
        #[serde(default)]
        role: Role,
    },
    /// Reasoning.
    Thought,
    /// A tool call; the deltas are fragments of the arguments' JSON.
    ToolCall(Box<ToolCall>),
    /// Output of a running call.
    Output {
        /// The call.
        call: PartId,
        /// The stream it writes to.
        stream: OutputStream,
    },
    /// Data that only its origin can read, kept whole.
    Opaque(Box<Opaque>),
}

impl PartKind {
    /// Text from the agent.
    pub const TEXT: Self = Self::Text { role: Role::Assistant };

    /// A call of a tool that runs in this process.
    #[must_use]
    pub fn call(name: impl Into<Box<str>>) -> Self {
        Self::ToolCall(Box::new(ToolCall { name: name.into(), ..ToolCall::default() }))
    }
}

/// The speaker of a text.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The agent.
    #[default]
    Assistant,
    /// The user.
    User,
}

/// Data that only its origin can read.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Opaque {
    /// The provider or agent that can read it.
    pub origin: Box<str>,
    /// The data, unchanged.
    pub raw: Value,
}

/// Metadata of a part.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Annotation {
    /// The provider's signature of a thought. It must go back to the provider unchanged.
    Signature(Box<str>),
    /// Encrypted reasoning that only its provider can read.
    Encrypted(Box<str>),
    /// The provider's own id of the part.
    ProviderId(Box<str>),
    /// A citation in the provider's own form.
    Citation(Value),
    /// The text turned out to be a thought: it is not part of the answer, and models read it as
    /// a thought.
    Preamble,
    /// Other metadata that must be kept with the part.
    Other(Box<Extended>),
}

/// Why parts were voided.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VoidReason {
    /// The attempt failed and is repeated.
    Restarted,
    /// The source replaced the text.
    Replaced,
    /// The run ended before the attempt did.
    Abandoned,
}
