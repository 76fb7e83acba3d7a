//! The OpenAI Responses API, as of 2026: `POST /v1/responses`, streamed or not.
//!
//! [`write()`] makes the request; a [`Reader`] turns the answer into parts:
//!
//! | item | part |
//! | --- | --- |
//! | `message` | text, one per content part; a refusal is text too, and the stop says so |
//! | `reasoning` | a thought per summary or reasoning text, or one without words |
//! | `function_call`, `custom_tool_call` | a call; free text input becomes one JSON string |
//! | `web_search_call`, `file_search_call`, `code_interpreter_call`, `image_generation_call`, `mcp_call` | a call that runs at the provider, with its progress and result |
//! | `computer_call`, `local_shell_call`, `shell_call`, `apply_patch_call` | a call of our tool of that name, its arguments the action |
//! | any other | an opaque part |
//!
//! With the first part of an item travels the item itself, its words replaced by the number of
//! the part that has them; so it goes back as it came, encrypted reasoning included. Requests
//! say `store: false`: the conversation is in our log, and nowhere else.
//!
//! Whatever a closing event has that was not streamed is taken from there, and every member
//! is optional: servers that imitate this API leave out `sequence_number`, `output_index`,
//! `content_part` events and more.
//!
//! # Lossy
//!
//! Reading: `logprobs`, `obfuscation`, the response's id and its echo of the request are dropped.
//! Audio events and unknown events are kept as extended events, and are not sent back. A request to
//! approve a remote MCP call is opaque, because there is no way to answer it here.
//!
//! Writing: stop sequences, sound and film; thoughts, hosted calls and opaque parts of other
//! providers; reasoning whose item an abort took. [`Written::left_out`] counts them. A budget
//! of thinking tokens becomes an effort. The order of an item's members is not kept.
//!
//! [`Written::left_out`]: crate::provider::Written::left_out

mod items;
mod read;
mod types;
mod write;

#[cfg(test)]
mod tests;

pub use read::{ITEMS_MAX, Reader};
pub use write::write;

/// Whose marks and opaque parts these are.
pub const ORIGIN: &str = "openai_responses";
/// The mark that holds an item.
const ITEM: &str = "item";
/// The mark of a further part of an item; it holds the item's id.
const PIECE: &str = "piece";
