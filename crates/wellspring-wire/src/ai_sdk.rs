//! The AI SDK's UI message stream, version 1, in both directions: writes a run as the parts of
//! one assistant message, and reads clients' requests. Used by `ai` 5 and later; tested against
//! 7.0.169.
//!
//! - [`types`]: the protocol's own types.
//! - [`AiSdk`]: the dialect. A reader that joins a run gets it from the start, as its clients
//!   expect.
//! - [`Asked`]: a client's request, read.
//!
//! A run is one assistant message, whose id is the run's. Clients fail the whole stream over an
//! unknown part or a `null`, so neither is ever written.
//!
//! # Mapping
//!
//! | ours | UI message stream |
//! | --- | --- |
//! | run started, resumed | `start` with the run's id as `messageId`; run, thread and agent in `messageMetadata` |
//! | turn started, finished (root) | `start-step`, `finish-step`; after it `message-metadata` with the usage so far |
//! | text, thought | `text-*`, `reasoning-*`, `id` is `{run}-{part}` |
//! | tool call | `tool-input-start`, `-delta`, `-available`, or `tool-input-error` for arguments that are not JSON; `providerExecuted` if the provider or a remote agent runs it |
//! | tool updated | `tool-output-available` with `preliminary`: the tool's data, or title, locations, content and data |
//! | output of a tool | `data-tool-output`, transient |
//! | tool finished | `tool-output-available`, `tool-output-error` or `tool-output-denied` |
//! | parts voided | `reset-step`, then the step's remaining parts again |
//! | question to approve a call | `tool-approval-request`, `tool-approval-response` |
//! | other questions | `data-question` with `prompt` and `form`, later `answer`; answered by `answers` in the body of a request |
//! | sub-agent | `data-agent`; its text as `data-agent-delta`, transient; its calls like all calls |
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
//! Not emitted: times; that a turn was attempted again, and with which model; the queue of
//! tools; annotations and opaque parts; the relative order of a call's output and its progress;
//! user text that a remote agent repeats; the calls that return a typed result.

mod read;
pub mod types;
mod write;

pub use read::{Asked, Branch, InputError};
pub use write::AiSdk;

#[cfg(test)]
mod tests;
