//! Google's Gemini API, as of 2026: `generateContent` and `streamGenerateContent?alt=sse`.
//!
//! [`write()`] makes the request; a [`Reader`] turns the answer into parts:
//!
//! | part | ours |
//! | --- | --- |
//! | `text` | text, or a thought where `thought` says so; the chunks of one voice are one part |
//! | `functionCall` | a call; `partialArgs` are written as JSON while they come |
//! | `executableCode`, `codeExecutionResult` | a call that runs at the provider, and its result |
//! | `inlineData`, `fileData` | a file, and an opaque part |
//! | any other | an opaque part |
//!
//! A signature goes back in the place it came from. Where it came with a piece of a text, the
//! mark says which bytes were signed, and the text goes back in the same pieces; where it came
//! with no text, an opaque part holds its place.
//!
//! The stream has no event that ends it: an answer is complete when a finish reason came together
//! with the usage, or when the body ended after a finish reason.
//!
//! # Lossy
//!
//! Reading: safety ratings, log probabilities, token counts by modality and the answer's id
//! are dropped; grounding and URL metadata, and what the prompt was blocked for, are kept as
//! extended events, which do not go back. Only the first candidate counts. Pictures that the
//! model drew are in the run twice: for people, and to go back.
//!
//! Writing: thoughts, hosted calls and opaque parts of other providers are left out, and
//! [`Written::left_out`] counts them. Schemas are cut down to the words that declarations
//! know. Models that check signatures are given a stand-in for calls that another one made.
//!
//! [`Written::left_out`]: crate::provider::Written::left_out

mod arguments;
mod read;
mod schema;
mod types;
mod write;

#[cfg(test)]
mod tests;

pub use read::Reader;
pub use write::write;

/// Whose marks and opaque parts these are.
pub const ORIGIN: &str = "gemini";

/// The mark of a thought, and of a part that goes back as it came.
const PART: &str = "part";
/// The mark of a signature, and the name of its member on the wire.
const SIGNATURE: &str = "thoughtSignature";
/// The mark of arguments that have a member twice.
const REPEATS: &str = "repeats";
