//! AgentEvent and ToolEvent: a vocabulary for browsers, over SSE.
//!
//! The vocabulary is that of the "Event-Driven Streaming Architecture": one event type for
//! everything, and progress of tools in any shape.
//!
//! | record | event |
//! | --- | --- |
//! | delta of a thought | `thought` |
//! | delta of the assistant's text | `stream` |
//! | a call's part finished: its arguments are complete | `tool_call` |
//! | tool updated | `tool_progress`: its data; without data, its text; without text, the update, with `subtype: "update"` |
//! | delta of a call's output | `tool_progress`, `{subtype: "stdout_chunk", content}` |
//! | text of the sub-agent that serves a call | `tool_progress`, the text |
//! | tool finished | `tool_result`; `isError` is `false` only if the tool stated that |
//! | parts voided | `thought` and `stream` with a paragraph break where some were shown; a failed `tool_result` for calls |
//! | question asked | `tool_progress` of the call that waits, `{subtype: "question", question, prompt, form}`; `toolName` is `question` if it belongs to no call |
//! | question answered | `tool_progress`, `{subtype: "answered", question}` |
//! | run finished | `final` if the answer or the typed result is complete; otherwise `error`, also if a limit cut the run off. Never both |
//!
//! [`ExecutionContext`] gives tools and agents the same vocabulary in code.
//!
//! # Lossy
//!
//! Not emitted: turns, queues, pauses, plans, state, sources, files, usage, the typed result
//! and the call that returns it; a sub-agent's calls, and its thoughts unless [asked
//! for](crate::SubAgents). Calls have no id, so two concurrent calls of one
//! tool cannot be told apart. Arguments that an approver edited are not sent again. Denied,
//! interrupted, timed out and voided calls are all `isError`. Voided text stays on the screen.

mod context;
mod types;
mod write;

#[cfg(test)]
mod tests;

pub use context::ExecutionContext;
pub use types::{AgentEvent, ToolEvent};
pub use write::{AgentEvents, events};
