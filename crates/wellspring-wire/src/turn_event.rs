//! TurnEvent: a model's turns.
//!
//! The vocabulary is golem-forge's `Turn`. It shows the root agent's turns, one after the
//! other, each in the order `text_delta`…, `text_done`, `tool_call`…, `finished`. The results
//! of the calls follow, before the next turn.
//!
//! | record | event |
//! | --- | --- |
//! | delta of the assistant's text | `text_delta`, unless the turn does not stream |
//! | turn finished | `text_done` with the turn's whole text (for a turn that does not stream: only if there is any), a `tool_call` per call, `finished` |
//! | a tool started or finished before its turn did | nothing yet: its `tool_call` and `tool_result` keep the order above |
//! | tool finished | `tool_result` |
//! | parts voided | a failed `tool_result` for calls that were shown |
//! | run finished | `error`, if it was cancelled or failed |
//!
//! A run without turns, as remote agents have, is one turn: its calls are emitted as they
//! complete, `text_done` and `finished` at its end.
//!
//! Finish reasons are those of the AI SDK, which golem-forge forwards. An `Error` has no JSON
//! form in the vocabulary; here it is an object with a `message`.
//!
//! # Lossy
//!
//! Not emitted: thoughts, tools' progress, questions, plans, sub-agents and everything else.
//! Arguments that are not an object are `{}`. Voided deltas are not revoked, but `text_done`
//! does not contain them.

mod types;
mod write;

#[cfg(test)]
mod tests;

pub use types::{TurnError, TurnEvent, TurnUsage};
pub use write::TurnEvents;
