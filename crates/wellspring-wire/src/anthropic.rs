//! Anthropic's Messages API (`anthropic-version: 2023-06-01`), as Anthropic, llama.cpp and
//! many gateways speak it.
//!
//! [`Reader`] reads answers, [`write()`] writes requests. A content block is a part: `text` and
//! `thinking` are text and thought, `tool_use` is a call of our tools, `server_tool_use` and
//! `mcp_tool_use` are calls that run at the provider. Everything else (results of the provider's
//! tools, container uploads, unknown blocks) is an opaque part with its deltas. Calls that ran at
//! the provider are also reported as tools that started and finished.
//!
//! What a block has beyond the members that a part can express travels in a mark of this
//! origin ([`ORIGIN`]) named `block`; so it goes back as it came.
//!
//! # Lossy
//!
//! Reading leaves out: the answer's own id; which of the usage figures had which time to
//! live; the `container` an answer ran in, and members of `message_delta` without a word of
//! ours, are kept as extended events, which a conversation does not carry on.
//!
//! Writing leaves out, and lists in [`Written::left_out`](crate::provider::Written): thoughts
//! without a signature of Anthropic's, calls that ran at another provider, other providers' opaque
//! parts, and media that are neither images nor documents. Thoughts at the very end of a turn that
//! was cut short are left out too, because a message must not end in one. Arguments that are not a
//! JSON object are sent as an empty one. Opaque blocks and citations keep their values but not the
//! order of their members; a call's arguments are sent back byte for byte.

mod read;
mod types;
mod write;

pub use read::{BLOCKS_MAX, Reader};
pub use write::{Options, write};

/// Whose marks and opaque parts these are.
pub const ORIGIN: &str = "anthropic";

#[cfg(test)]
mod tests;
