//! Parts: what a model says, thinks and calls, and what else is known of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Extended, OutputStream, ToolCall};
use crate::id::PartId;

/// What a part is.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PartKind {
    /// Words for the user, or of the user.
    Text {
        /// Who speaks.
        #[serde(default)]
        role: Role,
    },
    /// Reasoning.
    Thought,
    /// A wish to use a tool; the deltas are fragments of the arguments' JSON.
    ToolCall(Box<ToolCall>),
    /// What a call writes while it runs.
    Output {
        /// The call.
        call: PartId,
        /// Where it writes.
        stream: OutputStream,
    },
    /// Something only its origin can read, kept whole.
    Opaque(Box<Opaque>),
}

impl PartKind {
    /// The assistant's words.
    pub const TEXT: Self = Self::Text { role: Role::Assistant };

    /// A call of a tool that runs here.
    #[must_use]
    pub fn call(name: impl Into<Box<str>>) -> Self {
        Self::ToolCall(Box::new(ToolCall { name: name.into(), ..ToolCall::default() }))
    }
}

/// Who speaks.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The agent.
    #[default]
    Assistant,
    /// The person.
    User,
}

/// Something only its origin can read.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Opaque {
    /// Who can read it.
    pub origin: Box<str>,
    /// What it said, unchanged.
    pub raw: Value,
}

/// What is said of a part.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Annotation {
    /// Proves to its provider that a thought is its own.
    Signature(Box<str>),
    /// Reasoning that only its provider can read.
    Encrypted(Box<str>),
    /// The provider's own id of the part.
    ProviderId(Box<str>),
    /// A passage rests on a source; the provider's own form.
    Citation(Value),
    /// Text that turned out to be said before a tool call, not the answer.
    Preamble,
    /// Anything else that must travel with the part.
    Other(Box<Extended>),
}

/// Why parts were taken back.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum VoidReason {
    /// The attempt broke and is made again.
    Restarted,
    /// The source said it anew in other words.
    Replaced,
    /// The run ended before the attempt did.
    Abandoned,
}
