//! Types that the wires of all model providers share.
//!
//! Each provider's module has a function that writes a
//! [`TurnRequest`](wellspring_core::TurnRequest) as the provider's request ([`Written`]), and
//! an [`AnswerReader`] that turns the answer into a batch of events, streamed or whole. HTTP
//! clients connect the two; they know URLs and headers, but not the content.
//!
//! # Origins
//!
//! Signatures and opaque blocks are meaningful only to the provider that made them. So a reader
//! annotates the parts that carry them with an [`Annotation::Other`] of its own origin, and a
//! writer sends back only parts with its own annotation.
//!
//! # What is deliberately absent
//!
//! IO, timeouts and retries.

use std::collections::BTreeMap;
use std::time::Duration;

use wellspring_core::{
    Annotation, Batch, Extended, FailureKind, MediaSource, MessagePart, Stop, Usage,
};

use crate::sse_reader::Frame;

mod block;
mod body;
pub(crate) mod call_ids;
mod failure;
mod names;
pub(crate) mod scan;
pub(crate) mod surroundings;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod text;
pub(crate) mod think_tags;

pub(crate) use block::Block;
pub(crate) use body::Body;
pub use failure::Failure;
pub use names::{NameRule, ToolNames};

/// Turns a provider's answer into events.
///
/// # Contract
///
/// 1. The events do not depend on how the body was split into chunks.
/// 2. Unknown members and events are kept, never fatal. An invalid order is an error, after
///    which the reader must not be used. No input makes it panic.
/// 3. It stops the batch exactly once, and only if the provider reported that the answer is
///    complete. Otherwise [`end`](AnswerReader::end) is an error.
pub trait AnswerReader: Send {
    /// Reads one event of a streamed answer.
    ///
    /// # Errors
    ///
    /// If the provider violated its protocol or reported a failure.
    fn push(&mut self, frame: Frame<'_>, batch: &mut Batch) -> Result<(), ReadError>;

    /// Ends a streamed answer.
    ///
    /// # Errors
    ///
    /// If the stream ended before the model had stopped.
    fn end(&mut self, batch: &mut Batch) -> Result<(), ReadError>;

    /// Reads an answer that was not streamed.
    ///
    /// # Errors
    ///
    /// As [`push`](AnswerReader::push) and [`end`](AnswerReader::end).
    fn whole(&mut self, body: &[u8], batch: &mut Batch) -> Result<(), ReadError>;
}

/// An answer that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The stream ended too early.
    #[error("the answer ended before the model had stopped")]
    Truncated,
    /// An event is not valid JSON, or has the wrong shape.
    #[error("an event is not the expected JSON")]
    NotJson(#[source] serde_json::Error),
    /// Events in an order that the protocol forbids.
    #[error("{0}")]
    Order(Box<str>),
    /// A limit was exceeded.
    #[error("{0}")]
    TooMuch(Box<str>),
    /// The provider reported a failure.
    #[error("{0}")]
    Failed(Failure),
}

impl ReadError {
    /// What the caller can do about it.
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

/// A request in a provider's format.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// The body of the request.
    pub body: Vec<u8>,
    /// Content that was left out because the provider does not support it: descriptions with
    /// counts.
    pub left_out: BTreeMap<&'static str, u32>,
    /// Our members that `extra` replaced or removed.
    pub replaced: Vec<Box<str>>,
    /// Protected members that `extra` tried to replace. If there are any, the request must not be
    /// sent.
    pub refused: Vec<Box<str>>,
    /// The output limit of this request, in tokens; `None` if `extra` changed the request.
    pub output_limit: Option<u64>,
}

/// Corrects a stop that the usage contradicts: llama.cpp reports an answer as complete even if
/// the output limit cut it off.
#[must_use]
pub fn stop_by_usage(stop: Stop, usage: Option<&Usage>, output_limit: Option<u64>) -> Stop {
    let at_limit = usage.zip(output_limit).is_some_and(|(usage, limit)| usage.output >= limit);
    if stop == Stop::EndTurn && at_limit { Stop::MaxTokens } else { stop }
}

/// Counts what cannot be sent.
#[derive(Debug, Default)]
pub(crate) struct LeftOut(BTreeMap<&'static str, u32>);

impl LeftOut {
    pub(crate) fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }
}

/// An annotation that only its origin understands, and that shows which provider a part comes
/// from.
pub(crate) fn mark(origin: &str, name: &str, value: serde_json::Value) -> Annotation {
    Annotation::Other(Box::new(Extended { origin: origin.into(), name: name.into(), value }))
}

/// The annotations of one origin on a part, in order.
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

/// Whether a part has an annotation of this origin: only then its signature is valid there.
pub(crate) fn is_of(part: &MessagePart, origin: &str) -> bool {
    marks(part, origin).next().is_some()
}

/// Sources that one answer can report to people; the citations themselves are all kept.
/// Reported sources are remembered, so that repeated citations do not report them again. A
/// search returns a few dozen at most.
pub const SOURCES_MAX: usize = 1024;

/// Replaces the arguments of a call that the output limit cut off before they began. Without
/// it, the call would look like one that takes no arguments, and would run.
pub(crate) const CUT_ARGUMENTS: &str =
    "\"the output limit was reached before the arguments were written\"";

/// The stop reason in a member, if there is one. Some servers send an empty string or the
/// strings `null` or `None` in every chunk instead of `null`.
pub(crate) fn stop_reason(member: &str) -> Option<&str> {
    let reason = member.trim();
    let missing = ["", "null", "none"].iter().any(|word| reason.eq_ignore_ascii_case(word));
    (!missing).then_some(reason)
}

/// The text of a thought, in any of the forms that servers use: a string, an object that holds
/// the string, or a list of either.
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

/// The content of a `data:` URL in base64; `None` for any other URL.
pub(crate) fn media_of_data_url(url: &str) -> Option<(Box<str>, MediaSource)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    let media_type = head.strip_suffix(";base64")?;
    Some((media_type.into(), MediaSource::Data(data.into())))
}

/// The text of a file in base64. Invalid UTF-8 is replaced.
pub(crate) fn decoded_text(base64: &str) -> String {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(base64).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
