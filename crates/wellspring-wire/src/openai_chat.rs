//! OpenAI's Chat Completions API, as implemented by OpenAI, Ollama, llama.cpp, vLLM,
//! OpenRouter, DeepSeek, Groq, Mistral and other compatible servers.
//!
//! One [`Reader`] reads all of them: it accepts `reasoning_content` and `reasoning`, calls
//! without an index or always with the same one, answers without `[DONE]` or without a
//! `finish_reason`, and usage in any position. [`write()`] takes a [`Vendor`], which holds the
//! differences as data.
//!
//! The wire does not announce where parts begin and end, so the reader decides: a thought ends
//! where text begins and vice versa, both end at a call, and calls end when the model stops.
//!
//! # Lossy
//!
//! Reading uses only the first choice, and drops log probabilities, fingerprints and audio.
//! Writing joins an answer's texts into one. It leaves out and reports: thoughts, except where
//! the vendor requires its own back; other providers' opaque data; calls that ran at a
//! provider; media that the vendor does not support. A tool's failure is visible only in its
//! output. Images from a tool follow its result as a user message, because a result is text.

mod read;
mod vendor;
mod write;

pub use read::{CALLS_MAX, EARLY_BYTES_MAX, Reader};
pub use vendor::{CallIdRule, Effort, LimitMember, ReasoningBack, SchemaForm, Vendor};
pub use write::write;

/// The origin of annotations.
pub const ORIGIN: &str = "openai_chat";

#[cfg(test)]
mod tests;
