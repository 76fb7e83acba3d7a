//! ACP, the Agent Client Protocol, version 1 (schema 1.15): the protocol between editors and
//! agents.
//!
//! # Writing
//!
//! The dialect writes a run as the `update`s of `session/update` notifications; a session is a
//! thread. This module also writes the other messages an agent sends: the content of a prompt,
//! questions as permission requests or forms, and the stop reason of a run.
//!
//! | record | update |
//! | --- | --- |
//! | run started; input accepted; delta of the user's text | `user_message_chunk` |
//! | delta of the assistant's text; source cited; file produced | `agent_message_chunk` |
//! | delta of a thought | `agent_thought_chunk` |
//! | a call's part started | `tool_call`, `pending` |
//! | a call's part finished | `tool_call_update` with the arguments |
//! | tool started | `tool_call_update`, `in_progress` |
//! | tool updated; delta of its output; text of the sub-agent that serves it | `tool_call_update` with everything that the call shows |
//! | tool finished | `tool_call_update`, `completed` or `failed`, with its output |
//! | plan updated | `plan` |
//! | usage reported, where the size of the context is known | `usage_update` |
//! | parts voided | a paragraph break where text was shown; `failed` for calls |
//! | an ACP agent's update that has no event of its own | forwarded as the agent sent it; carried in `_meta` if the protocol does not define it |
//!
//! Carried means: in the `_meta` of a `session_info_update` that changes nothing, as
//! `wellspring.update`. Clients may reject unknown updates, but `_meta` may contain anything. An
//! update that was only partly understood is also carried, right after its part.
//!
//! # What the dialect keeps
//!
//! An update of a call replaces everything that the call shows. So the dialect keeps what open
//! calls show (up to [`SHOWN_BYTES_MAX`] and [`RUNNING_BYTES_MAX`] each), and the run's
//! directory, because paths on this wire are absolute. Streamed text is sent again each time it
//! has grown by an eighth, so the bytes written stay a small multiple of the text.
//!
//! # Reading
//!
//! Reading works on plain JSON rather than on typed messages, because agents send variants that
//! no list has yet. An update without an event of its own is kept whole, as an
//! [`extended`](wellspring_core::Event::Extended) event of origin `acp`. Members that were not
//! understood, above all `_meta`, are kept as the update's `rest` and written again with it.
//!
//! | `session/update` | becomes |
//! | --- | --- |
//! | `agent_message_chunk`, `user_message_chunk` | text of that role; images and audio are files |
//! | `agent_thought_chunk` | a thought |
//! | `tool_call`, `tool_call_update` | one call, whichever of the two arrives first |
//! | `plan` | the plan |
//! | `usage_update` | usage of the session, with its context window |
//! | everything else, known or not | `extended` |
//!
//! A permission request is also kept as `extended`, right before the question, because a
//! question cannot hold all members of its options. The same holds for the further members of a
//! form.
//!
//! A call that the agent makes to one of our own tools is kept as `extended` too, named
//! `lent_tool_call`: the call itself reaches us over MCP and is reported by the engine.
//!
//! # Lossy
//!
//! Writing does not emit: turns, queues, pauses, state, the typed result and the call that
//! returns it, the outcome (it is the response to `session/prompt`), and the user's name.
//! Questions are requests, not updates. A sub-agent's thoughts, calls and plan stay in the
//! records; its text loses its author. Voided text stays on the client's screen. Denied,
//! interrupted, timed out and voided calls are all `failed`. A `usage_update` requires the size
//! of the context window; without it, none is sent. The run's usage is in the response to its
//! prompt ([`prompt_response`]), with the cost in `_meta`. Annotations of a prompt are dropped,
//! except for a proxied agent.
//!
//! The updates of a proxied agent are forwarded whole, except for their ids, which are ours,
//! and for reports of calls of our own tools. Its terminals are the client's if the client
//! provides them ([`Acp::lending_terminals`]); otherwise their output is sent as text. Where
//! the protocol allows only known values, an unknown one is replaced by a known one and kept in
//! `_meta`: the stop reason in the response to the prompt, the kind of a permission option, and
//! modes, options and commands of an unknown shape. Answers of the client are treated the same
//! way ([`permission_response`], [`elicitation_response`]).
//!
//! When reading: if a call's raw input changes after the call has started, the change is
//! progress in the call's data, not in its arguments.

mod read;
#[cfg(test)]
mod tests;
mod unknown_members;
mod validate;
mod write;

pub use read::{
    ARGUMENTS_BYTES_MAX, CALLS_MAX, OurTools, Permission, PermissionKind, PermissionOption, Reader,
};
pub use unknown_members::{carry, members_except, merge};
pub use validate::part_offers;
pub use write::{
    Acp, Asked, Asking, Offers, PromptError, RUNNING_BYTES_MAX, SHOWN_BYTES_MAX, content_block,
    elicitation_response, initialize_response, permission_response, prompt, prompt_response,
};

/// The origin of extended events.
pub const ORIGIN: &str = "acp";

/// Members of a `tool_call_update`. Their changes after the start of the call are kept under the
/// same names in the data of the call's progress.
const RAW_INPUT: &str = "rawInput";
const RAW_OUTPUT: &str = "rawOutput";

/// The request by which an agent asks for permission.
const PERMISSION: &str = "session/request_permission";

/// The request by which an agent shows the user a form.
const ELICITATION: &str = "elicitation/create";
