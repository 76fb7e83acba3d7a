//! AG-UI 1.0, in both directions: writes a run as its events, and reads its requests and
//! events.
//!
//! - [`types`]: the protocol's own types.
//! - [`AgUi`]: the dialect; [`AgUiBinary`] is the same in the protobuf encoding.
//! - [`messages`]: a run as the protocol's conversation. The protocol cannot resume, so a
//!   client that attaches to a running run gets a run that begins now, with these messages.
//! - [`Asked`]: a client's request, read; [`Reader`]: a remote agent's events, read.
//! - [`proto`]: the binary encoding of events.
//!
//! If the request names the thread, the run or the input, those names are used
//! ([`WireNames`](wellspring_core::WireNames)). They are in the log, so that every reader of a
//! run gets the same bytes.
//!
//! # Mapping
//!
//! | ours | AG-UI |
//! | --- | --- |
//! | run started | RUN_STARTED, STATE_SNAPSHOT if the request brought a state |
//! | turn started, finished | STEP_STARTED, STEP_FINISHED `step-N`; number, model, usage and finish reason in `metadata`. A further attempt is the same step |
//! | text | TEXT_MESSAGE_*, `messageId` is `{run}-{part}` |
//! | thought | REASONING_START, REASONING_MESSAGE_*, REASONING_END, all of one id |
//! | signature, encrypted value | REASONING_ENCRYPTED_VALUE of the message or the call |
//! | tool call | TOOL_CALL_START (its parent is the turn's text before it), ARGS, END; title, kind and place in `metadata` |
//! | tool updated, output | ACTIVITY_SNAPSHOT `tool_progress` with `replace: false`, then ACTIVITY_DELTA |
//! | tool finished | TOOL_CALL_RESULT; outcome and content for people in `metadata`. Also sent for results that the client itself returned: other clients watch too, and the snapshot before it removed the client's own message |
//! | parts voided | what they left open is closed, then MESSAGES_SNAPSHOT |
//! | plan | ACTIVITY_SNAPSHOT `plan` |
//! | state | STATE_SNAPSHOT, STATE_DELTA |
//! | sub-agent | SUBAGENT_STARTED, SUBAGENT_FINISHED or SUBAGENT_ERROR; its events carry `subagentRunId` |
//! | paused | everything open is closed (sub-agents `suspended`), then RUN_FINISHED: `interrupt` if a question is open, else `success` with `pendingToolCallIds` |
//! | resumed | RUN_STARTED with the client's new run id, MESSAGES_SNAPSHOT, and what was open is opened again |
//! | completed | RUN_FINISHED `success`; `result` is the typed result, or the answer's text; `usage` per model |
//! | cancelled | RUN_FINISHED `cancelled` |
//! | failed | RUN_ERROR, with the kind of failure as `code` |
//! | steering input | a user's TEXT_MESSAGE_* |
//! | source, file, usage, question, answer, annotation, queued, started, result | CUSTOM of that name |
//! | extended, opaque | RAW |
//!
//! # Lossy
//!
//! Writing drops: times; that a turn was attempted again; the owner of the run, and the remote
//! run that it is attached to; the arguments of a call that a remote agent reported after its
//! result; the media of steering input; the calls that return a typed result; after a void, the
//! position of a call whose preceding text was voided: clients put the call's new message last.
//!
//! Joining loses: in which order the streams of one call's output were interleaved (also within
//! one stream, if the call showed two terminals at once), and the position of activities and
//! steering input between the messages.
//!
//! Reading a remote agent: steps, and activities other than a plan, are kept unchanged
//! ([`Event::Extended`](wellspring_core::Event::Extended)). Names of speakers are dropped.

mod agent_request;
pub(crate) mod ids;
mod join;
mod messages;
pub mod proto;
mod read;
mod totals;
pub mod types;
mod write;

pub use agent_request::{
    assistant, call, conversation, question, resume_entry, tool_result, user_message,
};
pub use messages::messages;
pub use read::{Asked, End, InputError, PendingCall, ReadError, Reader, Trust};
pub(crate) use read::{answer, client_tool};
pub use write::{AgUi, AgUiBinary};
pub(crate) use write::{Delta, Pauses};

#[cfg(test)]
mod tests;
