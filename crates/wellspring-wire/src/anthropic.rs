//! Anthropic's Messages API (`anthropic-version: 2023-06-01`), as implemented by Anthropic,
//! llama.cpp and many gateways.
//!
//! [`Reader`] reads answers, [`write()`] writes requests. A content block is a part: `text` and
//! `thinking` are text and thought, `tool_use` is a call of our tools, `server_tool_use` and
//! `mcp_tool_use` are calls that run at the provider. All other blocks (results of the
//! provider's tools, container uploads, unknown types) are opaque parts with their deltas.
//! Calls that ran at the provider are also reported as tools that started and finished.
//!
//! Members of a block that a part cannot express are kept in an annotation of this origin
//! ([`ORIGIN`]) named `block`, so that the block can be sent back unchanged.
//!
//! # Lossy
//!
//! Reading drops the answer's own id, and which cached tokens had which time to live. The
//! `container` that an answer ran in, and unknown members of `message_delta`, are kept as
//! extended events, which are not sent back with the conversation.
//!
//! Writing drops, and lists in [`Written::left_out`](crate::provider::Written): thoughts
//! without Anthropic's signature, calls that ran at another provider, other providers' opaque
//! parts, and media that are neither images nor documents. Thoughts at the end of a turn that
//! was cut short are dropped too, because a message must not end with one. Arguments that are
//! not a JSON object are sent as an empty object. Opaque blocks and citations keep their values
//! but not the order of their members; a call's arguments are sent back byte for byte.

mod read;
mod types;
mod write;

pub use read::{BLOCKS_MAX, Reader};
pub use write::{Options, write};

/// The origin of annotations, opaque parts and extended events.
pub const ORIGIN: &str = "anthropic";

#[cfg(test)]
mod tests;
