//! use-ai's protocol, as its 1.x clients use it: AG-UI events over a socket that both sides
//! write to.
//!
//! - [`types`]: the messages on the socket, in both directions.
//! - [`UseAi`]: the dialect of its events, based on [`ag_ui`](crate::ag_ui)'s.
//! - [`ClientMessage`]: a message from a client.
//!
//! Clients answer while a run is active: results of their tools and approvals go to the waiting run
//! on the same socket, and the run continues. So a pause is not shown.
//!
//! # Mapping
//!
//! As [`ag_ui`](crate::ag_ui), except:
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
//! | failed | RUN_ERROR with the message API_OVERLOADED, RATE_LIMITED or UNKNOWN_ERROR; `error` holds the text for people, `code` the code for programs |
//!
//! Every event has a `timestamp`, and every event except deltas a `runId`: several runs share a
//! socket.
//!
//! A client that reconnects and names its run gets RUN_STARTED, MESSAGES_SNAPSHOT and
//! STATE_SNAPSHOT again, then everything that is open with its text so far, and finally what
//! waits for the client: its calls and its approvals.
//!
//! # Lossy
//!
//! Writing: as `ag_ui`.
//!
//! Reading: `mcpHeaders` and other properties that are forwarded to the agent, except `agent`
//! and `model`.

mod read;
pub mod types;
mod write;

pub use read::{Answers, ClientMessage, MessageError};
pub use write::{UseAi, refusal};

#[cfg(test)]
mod tests;
