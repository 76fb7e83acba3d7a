//! Google's Gemini API, as of 2026: `generateContent` and `streamGenerateContent?alt=sse`.
//!
//! [`write()`] writes the request; a [`Reader`] turns the answer into parts:
//!
//! | part | ours |
//! | --- | --- |
//! | `text` | text, or a thought if `thought` is set; consecutive chunks of one kind are one part |
//! | `functionCall` | a call; `partialArgs` are written as JSON while they arrive |
//! | `executableCode`, `codeExecutionResult` | a call that runs at the provider, and its result |
//! | `inlineData`, `fileData` | a file, and an opaque part |
//! | any other | an opaque part |
//!
//! A signature is sent back at the position where it arrived. If it arrived with a piece of
//! text, an annotation says which bytes were signed, and the text is sent back in the same
//! pieces. If it arrived without text, an opaque part holds its position.
//!
//! No event ends the stream. An answer is complete when a finish reason arrived together with
//! the usage, or when the body ended after a finish reason.
//!
//! # Lossy
//!
//! Reading: safety ratings, log probabilities, token counts by modality and the answer's id are
//! dropped. Grounding and URL metadata, and the reason why a prompt was blocked, are kept as
//! extended events, which are not sent back. Only the first candidate is read. Images that the
//! model generated are in the run twice: as a file for people, and as an opaque part to send
//! back.
//!
//! Writing: thoughts, hosted calls and opaque parts of other providers are left out, and
//! [`Written::left_out`] counts them. Schemas are reduced to the keywords that function
//! declarations support. For models that check signatures, calls that another model made get a
//! placeholder signature.
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

/// The origin of annotations, opaque parts and extended events.
pub const ORIGIN: &str = "gemini";

/// The annotation of a thought, and of a part that is sent back unchanged.
const PART: &str = "part";
/// The annotation of a signature, and the name of its member on the wire.
const SIGNATURE: &str = "thoughtSignature";
/// The annotation of arguments in which a member occurs twice.
const REPEATS: &str = "repeats";
