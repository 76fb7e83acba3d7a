//! The conversation as a model reads it. Derived from transcripts, never stored.

use std::fmt;

use crate::content::{Content, text_of};
use crate::event::{Annotation, PartKind, ToolOutcome, ToolResult};
use crate::id::{ParseIdError, PartId, RunId};

/// One entry of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// User input.
    User {
        /// The content blocks.
        content: Vec<Content>,
    },
    /// A model's output in one turn.
    Assistant {
        /// The model's name; only the same provider understands its signatures.
        model: Box<str>,
        /// The parts, in the order in which they started.
        parts: Vec<MessagePart>,
    },
    /// The results of the previous turn's calls, in call order.
    Results {
        /// One result per call.
        results: Vec<CallResult>,
    },
}

impl Message {
    /// A user message that is only text.
    #[must_use]
    pub fn user(text: impl Into<Box<str>>) -> Self {
        Self::User { content: vec![Content::text(text)] }
    }

    /// The text of the message: the user's text, the model's answer without its thoughts, or the
    /// outputs of the calls. Blocks and outputs are separated by line breaks.
    ///
    /// ```
    /// use wellspring_core::Message;
    ///
    /// assert_eq!(Message::user("What time is it?").text(), "What time is it?");
    /// ```
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::User { content } => text_of(content),
            Self::Assistant { parts, .. } => {
                parts.iter().filter(|it| it.kind == PartKind::TEXT).map(|it| &*it.text).collect()
            }
            Self::Results { results } => {
                let outputs: Vec<_> = results.iter().map(|it| it.result.output_text()).collect();
                outputs.join("\n")
            }
        }
    }
}

/// A part of a turn.
#[derive(Clone, Debug, PartialEq)]
pub struct MessagePart {
    /// Its id, which the call's result names too.
    pub id: WirePartId,
    /// Text, thought, call or opaque.
    pub kind: PartKind,
    /// Its whole text.
    pub text: String,
    /// Metadata that must go back to the model.
    pub annotations: Vec<Annotation>,
}

impl MessagePart {
    /// The provider's own id, if it gave one.
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
    /// The provider's own id of the call, if it gave one.
    pub provider_id: Option<Box<str>>,
    /// The tool.
    pub name: Box<str>,
    /// Whether it succeeded.
    pub outcome: ToolOutcome,
    /// The output.
    pub result: ToolResult,
}

/// A part's id outside its run: on wires, and in conversations over several runs.
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
