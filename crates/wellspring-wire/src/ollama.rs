//! Ollama's own API, as of 2026: `POST /api/chat`, streamed as one JSON object per line, or
//! answered with one object.
//!
//! [`write()`] writes the request; a [`Reader`] turns the answer into parts: `thinking` is a
//! thought, `content` text, and each of the `tool_calls`, which arrive complete, a call. The
//! line with `done` ends the answer; any line may hold an `error`.
//!
//! # Lossy
//!
//! Reading: durations and log probabilities are dropped. The wire does not give an image's
//! media type; PNG is assumed.
//!
//! Writing: a turn is one message, so the order of its text and calls is lost, and several
//! texts become one. Left out, and counted by
//! [`Written::left_out`](crate::provider::Written::left_out), are: the tool choice, tools that
//! run at a provider, media other than images, images given by URL, and thoughts and hosted
//! calls of other providers. A thinking budget becomes `true`, or a level if the model takes
//! one.

mod read;
mod types;
mod write;

#[cfg(test)]
mod tests;

pub use read::Reader;
pub use write::write;

/// The origin of annotations.
pub const ORIGIN: &str = "ollama";

/// The annotation of a thought.
const THINKING: &str = "thinking";
