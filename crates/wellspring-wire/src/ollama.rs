//! Ollama's own API, as of 2026: `POST /api/chat`, with one JSON object per line, or one in total.
//!
//! [`write()`] makes the request; a [`Reader`] turns the answer into parts: `thinking` is a
//! thought, `content` text, and each of the `tool_calls`, which come whole, a call. The line
//! that says `done` ends it; an `error` may come on any line.
//!
//! # Lossy
//!
//! Reading: durations and log probabilities are dropped. The wire does not say what a picture
//! is; it is called PNG.
//!
//! Writing: a turn is one message, so the order of its words and calls is lost, and several
//! texts become one. The choice of a tool, tools that run at a provider, media that are no
//! pictures, pictures that are elsewhere, thoughts and hosted calls of other providers are
//! left out, and [`Written::left_out`](crate::provider::Written::left_out) counts them. A
//! budget of thinking tokens becomes a yes, or a level where the model takes one.

mod read;
mod types;
mod write;

#[cfg(test)]
mod tests;

pub use read::Reader;
pub use write::write;

/// Whose marks these are.
pub const ORIGIN: &str = "ollama";

/// The mark of a thought.
const THINKING: &str = "thinking";
