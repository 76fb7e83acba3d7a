//! The conversation as a model reads it. Derived from transcripts, never stored.

use std::fmt;

use crate::content::Content;
use crate::event::{Annotation, PartKind, ToolOutcome, ToolResult};
use crate::id::{ParseIdError, PartId, RunId};

/// One entry of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// What a person said.
    User {
        /// The blocks of it.
        content: Vec<Content>,
    },
    /// What a model said in one turn.
    Assistant {
        /// Which model; only the same provider understands its signatures.
        model: Box<str>,
        /// The parts, in the order in which they began.
        parts: Vec<MessagePart>,
    },
    /// What came of the calls of the turn before, in call order.
    Results {
        /// One per call.
        results: Vec<CallResult>,
    },
}

impl Message {
    /// What a person said, when it was just words.
    #[must_use]
    pub fn user(text: impl Into<Box<str>>) -> Self {
        Self::User { content: vec![Content::text(text)] }
    }
}

/// A part of a turn.
#[derive(Clone, Debug, PartialEq)]
pub struct MessagePart {
    /// Which one; a call's result names the same.
    pub id: WirePartId,
    /// What it is.
    pub kind: PartKind,
    /// All its deltas.
    pub text: String,
    /// What must go back with it.
    pub annotations: Vec<Annotation>,
}

impl MessagePart {
    /// The provider's own id, where it gave one.
    #[must_use]
    pub fn provider_id(&self) -> Option<&str> {
        self.annotations.iter().find_map(|annotation| match annotation {
            Annotation::ProviderId(id) => Some(&**id),
            Annotation::Signature(_)
            | Annotation::Encrypted(_)
            | Annotation::Citation(_)
            | Annotation::Preamble
            | Annotation::Other(_) => None,
        })
    }
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallResult {
    /// The call's part.
    pub call: WirePartId,
    /// The provider's own id of the call, where it gave one.
    pub provider_id: Option<Box<str>>,
    /// The tool.
    pub name: Box<str>,
    /// How it went.
    pub outcome: ToolOutcome,
    /// What it said.
    pub result: ToolResult,
}

/// A part's name outside its run: on wires, and in conversations over several runs.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct WirePartId {
    /// The run.
    pub run: RunId,
    /// The part in it.
    pub part: PartId,
}

impl fmt::Display for WirePartId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.run, self.part)
    }
}

impl std::str::FromStr for WirePartId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.rsplit_once('-').map(|(run, part)| (run.parse(), part.parse())) {
            Some((Ok(run), Ok(part))) => Ok(Self { run, part: PartId(part) }),
            _ => Err(ParseIdError::of(text)),
        }
    }
}
