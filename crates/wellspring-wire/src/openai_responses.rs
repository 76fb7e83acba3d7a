//! The OpenAI Responses API, as of 2026: `POST /v1/responses`, streamed or not.
//!
//! [`write()`] writes the request; a [`Reader`] turns the answer into parts:
//!
//! | item | part |
//! | --- | --- |
//! | `message` | text, one part per content part; a refusal is text too, and sets the stop |
//! | `reasoning` | a thought per summary or reasoning text, or one empty thought |
//! | `function_call`, `custom_tool_call` | a call; free-text input becomes one JSON string |
//! | `web_search_call`, `file_search_call`, `code_interpreter_call`, `image_generation_call`, `mcp_call` | a call that runs at the provider, with its progress and result |
//! | `computer_call`, `local_shell_call`, `shell_call`, `apply_patch_call` | a call of our tool of that name, with the action as its arguments |
//! | any other | an opaque part |
//!
//! An item's first part is annotated with the item itself, in which each text is replaced by
//! the number of the part that holds it. So the item can be sent back unchanged, including
//! encrypted reasoning. Requests set `store: false`: the conversation is kept only in our log.
//!
//! Content of a closing event that was not streamed is read from that event, and every member
//! is optional: compatible servers omit `sequence_number`, `output_index`, `content_part`
//! events and more.
//!
//! # Lossy
//!
//! Reading: `logprobs`, `obfuscation`, the response's id and its echo of the request are
//! dropped. Audio events and unknown events are kept as extended events, and are not sent back.
//! A request to approve a remote MCP call is opaque, because there is no way to answer it.
//!
//! Writing: left out, and counted by [`Written::left_out`], are: stop sequences, audio and
//! video; thoughts, hosted calls and opaque parts of other providers; reasoning whose following
//! item was lost in an abort. A thinking budget becomes an effort. The order of an item's
//! members is not kept.
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

/// The origin of annotations, opaque parts and extended events.
pub const ORIGIN: &str = "openai_responses";
/// The annotation that holds an item.
const ITEM: &str = "item";
/// The annotation of a further part of an item; it holds the item's id.
const PIECE: &str = "piece";
