//! use-ai's wire, as its 1.x clients speak it: AG-UI events over a socket that both sides write
//! to.
//!
//! - [`types`]: what is said on the socket, both ways.
//! - [`UseAi`]: the dialect of its events, made of [`ag_ui`](crate::ag_ui)'s.
//! - [`ClientMessage`]: what a client says.
//!
//! A client answers in mid-run: results of its tools and approvals go to the run that waits for
//! them, on the same socket, and the run goes on. So a pause shows nothing.
//!
//! # Mapping
//!
//! As [`ag_ui`](crate::ag_ui), but for:
//!
//! | ours | use-ai |
//! | --- | --- |
//! | run started | RUN_STARTED with `input`, MESSAGES_SNAPSHOT with the thread's earlier runs, STATE_SNAPSHOT (`{}` without a state) |
//! | turn started, finished | STEP_STARTED, STEP_FINISHED with `stepNumber` from 0, and `usage` and `finishReason` (the AI SDK's words) at top level |
//! | thought | REASONING_*, or THINKING_* and THINKING_TEXT_MESSAGE_* by [option](crate::ReasoningEvents) |
//! | approval asked for | TOOL_APPROVAL_REQUEST; a question without a call has its own id as `toolCallId` |
//! | another question | CUSTOM `question`; answered by a `tool_result` with the question's id |
//! | paused, resumed | nothing |
//! | cancelled | RUN_ERROR with the message `Run aborted by user` |
//! | failed | RUN_ERROR with the message API_OVERLOADED, RATE_LIMITED or UNKNOWN_ERROR; `error` says it to people, `code` to programs |
//!
//! Every event has a `timestamp`, and every event but a delta a `runId`: several runs share a
//! socket.
//!
//! A client that comes back and names its run is told RUN_STARTED, MESSAGES_SNAPSHOT and
//! STATE_SNAPSHOT again, what is open with its text so far, and once more what waits for the
//! client: its calls and its approvals.
//!
//! # Lossy
//!
//! Writing: as `ag_ui`.
//!
//! Reading: `mcpHeaders` and other properties that are forwarded to the agent, besides `agent`
//! and `model`.

mod read;
pub mod types;
mod write;

pub use read::{Answers, ClientMessage, MessageError};
pub use write::{UseAi, refusal};

#[cfg(test)]
mod tests;
