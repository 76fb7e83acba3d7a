//! ACP, the Agent Client Protocol, version 1 (schema 1.15): what editors and agents speak.
//!
//! # Writing
//!
//! The dialect says a run as the `update`s of `session/update` notifications; a session is a
//! thread. Around it is what else an agent needs to say: a prompt's content, a question as a
//! permission request or a form, the reason for which a run stopped.
//!
//! | record | update |
//! | --- | --- |
//! | run started; input accepted; delta of the user's words | `user_message_chunk` |
//! | delta of the assistant's text; source cited; file produced | `agent_message_chunk` |
//! | delta of a thought | `agent_thought_chunk` |
//! | a call's part started | `tool_call`, `pending` |
//! | a call's part finished | `tool_call_update` with the arguments |
//! | tool started | `tool_call_update`, `in_progress` |
//! | tool updated; delta of its output; words of the sub-agent that serves it | `tool_call_update` with all that the call shows |
//! | tool finished | `tool_call_update`, `completed` or `failed`, with its output |
//! | plan updated | `plan` |
//! | usage reported, where the size of the context is known | `usage_update` |
//! | parts voided | a paragraph break where words were shown; `failed` for calls |
//! | what an ACP agent said that we have no word for | as that agent said it; carried, where the protocol has no word for it either |
//!
//! What is carried is in the `_meta` of a `session_info_update` that changes nothing, as
//! `wellspring.update`: clients may be strict about what they know, and `_meta` may hold anything.
//! That is also how an update comes that was understood in part only, right after the part.
//!
//! # What it remembers
//!
//! An update of a call replaces everything that the call shows. So the dialect remembers what
//! open calls show (up to [`SHOWN_BYTES_MAX`] and [`RUNNING_BYTES_MAX`] each), and the run's
//! directory, because paths are absolute here. Text that grows piece by piece is shown again
//! each time it has grown by an eighth: what is written stays a small multiple of what was said.
//!
//! # Reading
//!
//! Reading works on plain JSON rather than on typed messages, because agents are ahead of any
//! list of variants: what has no word here is kept whole, as an
//! [`extended`](wellspring_core::Event::Extended) fact of origin `acp`. What an update says besides
//! what was understood, `_meta` above all, is kept as its `rest`, and said with it again.
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
//! A permission that the agent asks for is `extended` too, for the sake of its options, right
//! before the question; and so is what it says with a form besides it.
//!
//! A call that the agent makes to one of our own tools is `extended` too, as `lent_tool_call`: the
//! call itself comes to us by another way, and what runs it reports it.
//!
//! # Lossy
//!
//! When writing, not emitted: turns, queues, pauses, state, the typed result and the call that
//! hands it over, the outcome (it is the answer to `session/prompt`), the user's name. Questions
//! are requests, not updates. A sub-agent's thoughts, calls and plan stay in the records; its words
//! lose their author. Words that were taken back stay where they are. Denied, interrupted,
//! timed out and taken back are all `failed`. A `usage_update` must have the size of the context
//! window, so without it there is none; what a run spent is in the answer to its prompt
//! ([`prompt_response`]), and its cost in the `_meta` there. Of a prompt,
//! annotations are dropped, except for an agent behind us.
//!
//! What an agent behind us says is passed on whole, but for its ids, which are ours, and for its
//! reports of calls of our own tools. Its terminals are the client's if the client lends them
//! ([`Acp::lending_terminals`]); otherwise what they showed is text. A word that the protocol does
//! not know where only known ones are allowed is a known one, with the agent's own in `_meta`: the
//! stop reason in the answer to the prompt, the kind in an option of a permission, the modes,
//! options and commands that have no known shape. The other way it is the same
//! ([`permission_response`], [`elicitation_response`]).
//!
//! When reading: the raw input of a call that changes after the call has begun is progress in
//! the call's data, not its arguments.

mod read;
#[cfg(test)]
mod through;
mod unknown;
mod validate;
mod write;

pub use read::{
    ARGUMENTS_BYTES_MAX, CALLS_MAX, OurTools, Permission, PermissionKind, PermissionOption, Reader,
};
pub use unknown::{besides, carry, merge};
pub use validate::part_offers;
pub use write::{
    Acp, Asked, Asking, Offers, PromptError, RUNNING_BYTES_MAX, SHOWN_BYTES_MAX, content_block,
    elicitation_response, initialize_response, permission_response, prompt, prompt_response,
};

/// Who says what we have no word for.
pub const ORIGIN: &str = "acp";

/// What an agent's report of a call calls its input, once that changes, and its output so far.
const RAW_INPUT: &str = "rawInput";
const RAW_OUTPUT: &str = "rawOutput";

/// What an agent asks before it does something.
const PERMISSION: &str = "session/request_permission";

/// A form that an agent asks the user to fill in.
const ELICITATION: &str = "elicitation/create";
