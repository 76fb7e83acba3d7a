//! TurnEvent: what a model does, turn by turn.
//!
//! The vocabulary is golem-forge's `Turn`. It shows the root agent's turns, one after the
//! other, each in the order `text_delta`…, `text_done`, `tool_call`…, `finished`; the results
//! of the calls follow, before the next turn.
//!
//! | record | event |
//! | --- | --- |
//! | delta of the assistant's text | `text_delta`, unless the turn does not stream |
//! | turn finished | `text_done` with the turn's whole text (for a turn that does not stream: if there is some), a `tool_call` per call, `finished` |
//! | a tool started or finished before its turn did | nothing yet: its `tool_call` and `tool_result` keep the order above |
//! | tool finished | `tool_result` |
//! | parts voided | a failed `tool_result` for calls that were shown |
//! | run finished | `error`, when it was cancelled or failed |
//!
//! A run without turns, as remote agents have, is one turn: its calls come as they are
//! complete, `text_done` and `finished` at its end.
//!
//! Finish reasons are the AI SDK's words, which golem-forge passes on. An `Error` has no JSON
//! form in the vocabulary; here it is an object with a `message`.
//!
//! # Lossy
//!
//! Not emitted: thoughts, tools' progress, questions, plans, sub-agents and all else. Arguments
//! that are no object are `{}`. Deltas that were taken back are not revoked, but `text_done`
//! does not have them.

mod types;
mod write;

#[cfg(test)]
mod tests;

pub use types::{TurnError, TurnEvent, TurnUsage};
pub use write::TurnEvents;
