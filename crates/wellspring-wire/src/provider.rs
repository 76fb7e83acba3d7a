//! What the wires of all model providers share.
//!
//! Each provider's module has a function that writes a
//! [`TurnRequest`](wellspring_core::TurnRequest) as the provider's own request ([`Written`]), and
//! an [`AnswerReader`] that turns the answer into a batch of events, streamed or whole. Clients
//! connect the two: they know addresses and headers, and nothing of the content.
//!
//! # Whose it is
//!
//! Signatures and opaque blocks mean something only to the provider that made them. So a reader
//! marks the parts that carry them with an [`Annotation::Other`] of its own origin, and a writer
//! sends back only parts with its own mark.
//!
//! # What is deliberately absent
//!
//! IO, time-outs and trying again.

use std::collections::BTreeMap;
use std::time::Duration;

use wellspring_core::{
    Annotation, Batch, Extended, FailureKind, MediaSource, MessagePart, Stop, Usage,
};

use crate::framer::Frame;

mod block;
mod body;
mod failure;
#[cfg(test)]
mod maxima;
mod names;
#[cfg(test)]
mod recorded;
pub(crate) mod scan;
#[cfg(test)]
mod shortcuts;
pub(crate) mod surroundings;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod think_tags;

pub(crate) use block::Block;
pub(crate) use body::Body;
pub use failure::Failure;
pub use names::{NameRule, ToolNames};

/// Turns a provider's answer into events.
///
/// # Contract
///
/// 1. The same events come out however the body was cut into chunks.
/// 2. Unknown things are kept, never fatal; broken order is an error, and the reader is then
///    spent. No input makes it panic.
/// 3. It stops the batch exactly once, and only when the provider has said that the answer
///    is whole. Otherwise [`end`](AnswerReader::end) is an error.
pub trait AnswerReader: Send {
    /// Reads one event of a streamed answer.
    ///
    /// # Errors
    ///
    /// When the provider broke its protocol, or says that it failed.
    fn push(&mut self, frame: Frame<'_>, batch: &mut Batch) -> Result<(), ReadError>;

    /// The streamed answer ended.
    ///
    /// # Errors
    ///
    /// When it ended before the model had stopped.
    fn end(&mut self, batch: &mut Batch) -> Result<(), ReadError>;

    /// Reads an answer that came in one piece.
    ///
    /// # Errors
    ///
    /// As [`push`](AnswerReader::push) and [`end`](AnswerReader::end).
    fn whole(&mut self, body: &[u8], batch: &mut Batch) -> Result<(), ReadError>;
}

/// An answer that cannot be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The end came too early.
    #[error("the answer ended before the model had stopped")]
    Truncated,
    /// Something else than JSON.
    #[error("an event is not the JSON it should be")]
    NotJson(#[source] serde_json::Error),
    /// Things came in an order that the protocol forbids; it says which.
    #[error("{0}")]
    Order(Box<str>),
    /// More than anyone would hold; it says what.
    #[error("{0}")]
    TooMuch(Box<str>),
    /// The provider says that it failed.
    #[error("{0}")]
    Failed(Failure),
}

impl ReadError {
    /// What a caller can do about it.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Truncated | Self::NotJson(_) | Self::Order(_) | Self::TooMuch(_) => {
                FailureKind::Protocol
            }
            Self::Failed(failure) => failure.kind,
        }
    }

    /// The provider's `Retry-After`.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Failed(failure) => failure.retry_after,
            Self::Truncated | Self::NotJson(_) | Self::Order(_) | Self::TooMuch(_) => None,
        }
    }
}

/// A request in a provider's words.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// The body of the request.
    pub body: Vec<u8>,
    /// The parts of the conversation that the provider cannot be sent, with their counts.
    pub left_out: BTreeMap<&'static str, u32>,
    /// Members of ours that `extra` replaced or left out.
    pub replaced: Vec<Box<str>>,
    /// Members of ours that `extra` tried to replace and cannot: the request must not be sent.
    pub refused: Vec<Box<str>>,
    /// Tokens that the answer may have by this request; `None` if `extra` changed the request.
    pub output_limit: Option<u64>,
}

/// Corrects a stop that usage contradicts: llama.cpp says that an answer is complete although
/// its output limit cut it.
#[must_use]
pub fn stop_by_usage(stop: Stop, usage: Option<&Usage>, output_limit: Option<u64>) -> Stop {
    let at_limit = usage.zip(output_limit).is_some_and(|(usage, limit)| usage.output >= limit);
    if stop == Stop::EndTurn && at_limit { Stop::MaxTokens } else { stop }
}

/// Counts what cannot be said.
#[derive(Debug, Default)]
pub(crate) struct LeftOut(BTreeMap<&'static str, u32>);

impl LeftOut {
    pub(crate) fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }
}

/// An annotation that only its origin understands, and that says whose a part is.
pub(crate) fn mark(origin: &str, name: &str, value: serde_json::Value) -> Annotation {
    Annotation::Other(Box::new(Extended { origin: origin.into(), name: name.into(), value }))
}

/// The marks of one origin on a part, in order.
pub(crate) fn marks<'a>(
    part: &'a MessagePart,
    origin: &'a str,
) -> impl Iterator<Item = (&'a str, &'a serde_json::Value)> {
    part.annotations.iter().filter_map(move |annotation| match annotation {
        Annotation::Other(other) if *other.origin == *origin => Some((&*other.name, &other.value)),
        Annotation::Other(_)
        | Annotation::Signature(_)
        | Annotation::Encrypted(_)
        | Annotation::ProviderId(_)
        | Annotation::Citation(_)
        | Annotation::Preamble => None,
    })
}

/// Whether a part bears a mark of this origin: only then its signature means something there.
pub(crate) fn is_of(part: &MessagePart, origin: &str) -> bool {
    marks(part, origin).next().is_some()
}

/// Sources that one answer names to people; the citations themselves are all kept. They are
/// remembered, so that an answer which repeats them does not name them again. A search gives a
/// few dozen at most.
pub const SOURCES_MAX: usize = 1024;

/// What stands for the arguments of a call that the output limit cut before they began.
/// Nothing at all would mean that the tool takes none, and the call would run.
pub(crate) const CUT_ARGUMENTS: &str =
    "\"the output limit was reached before the arguments were written\"";

/// Why the model stopped, if a member says it. Some servers send an empty string or the words
/// `null` or `None` in every chunk instead of `null`; these are not stops.
pub(crate) fn stop_reason(member: &str) -> Option<&str> {
    let reason = member.trim();
    let missing = ["", "null", "none"].iter().any(|word| reason.eq_ignore_ascii_case(word));
    (!missing).then_some(reason)
}

/// The words of a thought, in any of the forms that servers give it: a string, an object with
/// the string in it, or a list of either.
pub(crate) fn thought_text(value: &serde_json::Value) -> std::borrow::Cow<'_, str> {
    use serde_json::Value;
    match value {
        Value::String(text) => text.into(),
        Value::Array(items) => items.iter().map(thought_text).collect::<Vec<_>>().concat().into(),
        Value::Object(members) => {
            let names = ["text", "content", "summary", "thinking", "reasoning"];
            let found = names.iter().filter_map(|name| members.get(*name)).map(thought_text);
            found.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => "".into(),
    }
}

/// What a `data:` URL holds, if it is one in base64.
pub(crate) fn media_of_data_url(url: &str) -> Option<(Box<str>, MediaSource)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    let media_type = head.strip_suffix(";base64")?;
    Some((media_type.into(), MediaSource::Data(data.into())))
}

/// The words of a text file in base64; what is no text in it is replaced.
pub(crate) fn decoded_text(base64: &str) -> String {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(base64).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
