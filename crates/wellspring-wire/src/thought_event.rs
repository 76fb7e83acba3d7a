//! ThoughtEvent: what a library user watches while an agent thinks.
//!
//! The vocabulary is Thinkwell's `ThoughtStream` (its RFD "Thought Stream API"), with its
//! field names. The result is no event of it: that is awaited on its own.
//!
//! | record | event |
//! | --- | --- |
//! | delta of a thought | `thought` |
//! | delta of the assistant's text | `message` |
//! | a call's part started | `tool_start` |
//! | tool started | `tool_update`, `in_progress` |
//! | tool updated; delta of its output; words of the sub-agent that serves it | `tool_update`, `in_progress`, with the content |
//! | tool finished | `tool_update` with the content if it has some, then `tool_done` |
//! | plan updated | `plan` |
//! | parts voided | `thought` and `message` with a paragraph break where some were shown; `tool_done`, `failed`, for calls |
//!
//! # Lossy
//!
//! Not emitted: the user's own words, turns, queues, questions, pauses, state, sources, files,
//! usage, the outcome, and the call by which the agent hands over its result. A sub-agent's
//! thoughts, calls and plan stay in the records; its words lose their author.
//!
//! Of a tool: its arguments, output, title changes, locations and progress data (words
//! excepted) have no field. Whether content is appended or replaced is not said. Sounds and
//! documents without an address have no shape and are left out; a resource becomes its text.
//! Denied, interrupted, timed out and taken back are all `failed`. Words that were taken back
//! stay where they are.

mod types;
mod write;

#[cfg(test)]
mod tests;

pub use types::{
    ContentBlock, DoneStatus, PlanEntry, PlanStatus, Priority, ThoughtEvent, ToolContent, ToolKind,
    ToolStatus,
};
pub use write::{ThoughtEvents, events};
