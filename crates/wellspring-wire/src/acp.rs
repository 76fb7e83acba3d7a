//! The Agent Client Protocol, version 1 (<https://agentclientprotocol.com>): JSON-RPC between
//! a client, such as an editor, and an agent.
//!
//! Reading works on plain JSON rather than on typed messages, because agents are ahead of any
//! list of variants: what has no word here is kept whole, as an
//! [`extended`](wellspring_core::Event::Extended) fact of origin `acp`.
//!
//! | `session/update` | becomes |
//! | --- | --- |
//! | `agent_message_chunk`, `user_message_chunk` | text of that role; pictures and sounds are files |
//! | `agent_thought_chunk` | a thought |
//! | `tool_call`, `tool_call_update` | one call, whichever comes first |
//! | `plan` | the plan |
//! | `usage_update` | usage of the session, with its context window |
//! | everything else, known or not | `extended` |
//!
//! A call that the agent makes to one of our own tools is `extended` too: the call itself comes
//! to us by another way, and what runs it reports it.
//!
//! # Lossy
//!
//! When reading: the raw input of a call that changes after the call has begun is progress in
//! the call's data, not its arguments. Of `_meta` on chunks, that of a message's first chunk and
//! of those where it changes is kept.

mod read;

pub use read::{
    ARGUMENTS_BYTES_MAX, CALLS_MAX, LentTools, Permission, PermissionKind, PermissionOption, Reader,
};

/// Who says what we have no word for.
pub const ORIGIN: &str = "acp";
