//! ThoughtEvent: what users of the library receive while an agent runs.
//!
//! The vocabulary is Thinkwell's `ThoughtStream` (its RFD "Thought Stream API"), with its field
//! names. The result is not an event: callers await it separately.
//!
//! | record | event |
//! | --- | --- |
//! | delta of a thought | `thought` |
//! | delta of the assistant's text | `message` |
//! | a call's part started | `tool_start` |
//! | tool started | `tool_update`, `in_progress` |
//! | tool updated; delta of its output; text of the sub-agent that serves it | `tool_update`, `in_progress`, with the content; data is a text block: its text, or its JSON |
//! | question asked | `tool_update`, `waiting`, of the call that waits, with the prompt and the question as JSON text; a question that belongs to no call has a `tool_start` of its own |
//! | question answered | `tool_update`, `in_progress`, if the call continues; `tool_done` if the question belongs to no call |
//! | tool finished | `tool_update` with the content if it has some, then `tool_done` |
//! | plan updated | `plan` |
//! | parts voided | `thought` and `message` with a paragraph break where some were shown; `tool_done`, `failed`, for calls |
//!
//! # Lossy
//!
//! The id of a call is the one that a remote agent gave it, otherwise `{run}-{part}`. A call
//! that runs inside a remote agent has one update per report of the agent, and none for its
//! start.
//!
//! Not emitted: user input, turns, queues, pauses, state, sources, files, usage, the outcome,
//! and the call that returns the typed result. A sub-agent's thoughts, calls and plan stay in
//! the records; its text loses its author.
//!
//! Tool arguments, output, title changes and locations have no field. The progress data of a remote
//! agent's own calls has no field either. Whether content is appended or replaced is not shown.
//! Audio, and documents without a URL, are dropped; a resource becomes its text. Denied,
//! interrupted, timed out and voided calls are all `failed`. Voided text stays.

mod types;
mod write;

#[cfg(test)]
mod tests;

pub use types::{ContentBlock, DoneStatus, ThoughtEvent, ToolContent, ToolStatus};
pub use wellspring_core::{PlanEntry, PlanStatus, Priority, ToolKind};
pub use write::{ThoughtEvents, events};
