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
//! Reading takes the first choice only, and leaves out log probabilities, fingerprints and
//! audio. Writing joins an answer's texts into one. It leaves out, and says so: thoughts,
//! except where the vendor wants its own back; what only another provider can read; calls that
//! ran at a provider; media that the vendor does not take. That a tool failed is said in its
//! output only. Pictures that a tool shows follow its result as words of the user, because a
//! result is text.

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
