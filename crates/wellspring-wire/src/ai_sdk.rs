//! The AI SDK's UI message stream, version 1, both ways: a run as the parts of one assistant
//! message, and its clients' requests as ours. Spoken by `ai` 5 and later; held against 7.0.169.
//!
//! - [`types`]: the protocol's own types.
//! - [`AiSdk`]: the dialect. A reader that joins a run gets all of it again, as its clients
//!   expect.
//! - [`Asked`]: what a client's request asks of us.
//!
//! A run is one assistant message, whose id is the run's. A client ends the whole stream over a
//! part that it does not know and over a `null`, so neither is ever written.
//!
//! # Mapping
//!
//! | ours | UI message stream |
//! | --- | --- |
//! | run started, resumed | `start` with the run's id as `messageId`; run, thread and agent in `messageMetadata` |
//! | turn started, finished (root) | `start-step`, `finish-step`; after it `message-metadata` with the usage so far |
//! | text, thought | `text-*`, `reasoning-*`, `id` is `{run}-{part}` |
//! | tool call | `tool-input-start`, `-delta`, `-available`, or `tool-input-error` for arguments that are not JSON; `providerExecuted` where the provider or a remote agent runs it |
//! | tool updated | `tool-output-available` with `preliminary`: the tool's data, or title, locations, content and data |
//! | output of a tool | `data-tool-output`, transient |
//! | tool finished | `tool-output-available`, `tool-output-error` or `tool-output-denied` |
//! | parts voided | `reset-step`, then what else the step had |
//! | question to approve a call | `tool-approval-request`, `tool-approval-response` |
//! | other questions | `data-question` with `prompt` and `form`, later `answer`; answered by `answers` in the body of a request |
//! | sub-agent | `data-agent`; its words as `data-agent-delta`, transient; its calls like all calls |
//! | plan, state, patch of the state, result | `data-plan`, `data-state`, `data-state-patch` (transient), `data-result` |
//! | source, file | `source-url` or `source-document`, `file` |
//! | steering input | `steering-message` |
//! | usage reported, extended | `data-usage`, `data-extended`, transient |
//! | paused | `finish` with `tool-calls` |
//! | completed | `finish` with the reason and the usage |
//! | cancelled | `abort` |
//! | failed, a stream that is cut off | `error` |
//!
//! # Lossy
//!
//! When things happened; that a turn was attempted again, and with which model; the queue of
//! tools; annotations and opaque parts; the order of a call's output and its progress; words
//! that a remote agent repeats of its user; the calls that hand over a typed result.

mod read;
pub mod types;
mod write;

pub use read::{Asked, Branch, InputError};
pub use write::AiSdk;

#[cfg(test)]
mod tests;
