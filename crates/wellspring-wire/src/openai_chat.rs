//! OpenAI's Chat Completions API, and its kin: Ollama, llama.cpp, vLLM, OpenRouter, DeepSeek,
//! Groq, Mistral and everyone else who took it over.
//!
//! [`Reader`] reads all of them alike: it takes `reasoning_content` and `reasoning`, calls
//! without an index or always with the same one, answers without `[DONE]` or without a
//! `finish_reason`, and usage wherever it comes. [`write()`] differs by [`Vendor`], whose
//! peculiarities are data.
//!
//! The wire announces no boundaries, so the reader makes them: a thought ends where words
//! begin and the other way round, both end at a call, and calls end when the model stops.
//!
//! # Lossy
//!
//! Reading takes the first choice only, and drops log probabilities, fingerprints and audio.
//! Writing joins an answer's texts into one. It leaves out and reports: thoughts, except where the
//! vendor requires its own back; data that only another provider can read; calls that ran at a
//! provider; media that the vendor does not support. A tool's failure is visible only in its
//! output. Images from a tool follow its result as a user message, because a result is text.

mod read;
mod vendor;
mod write;

pub use read::{CALLS_MAX, EARLY_BYTES_MAX, Reader};
pub use vendor::{CallIdRule, Effort, LimitMember, ReasoningBack, SchemaForm, Vendor};
pub use write::write;

/// Whose marks these are.
pub const ORIGIN: &str = "openai_chat";

#[cfg(test)]
mod tests;
