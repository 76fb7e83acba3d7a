//! OpenClaw: the WebSocket protocol of its gateway, client side.
//!
//! Frames are JSON: our requests, responses, and events of all runs on the gateway. A
//! [`Reader`] reads a run's events. The connection, random values and the device's signature
//! are outside this module.
//!
//! # Mapping of a run
//!
//! | gateway | ours |
//! | --- | --- |
//! | `assistant`, cumulative per message | a text part per message; if text is taken back, its part is voided |
//! | `thinking`, cumulative without an id | one thought until text or a call begins |
//! | `item` of kind `preamble` | the text before a call is annotated as a preamble |
//! | `item` of kind `tool`, `tool` | a call inside the agent, with title, arguments, progress and result |
//! | `command_output` | output of that call |
//! | `usage`, the last response | usage of the run |
//! | `lifecycle` end or error, `chat` final, aborted or error, the last response | the end of the run; the first one counts |
//! | any other event of the run | `extended`, whole |
//!
//! # Lossy
//!
//! `chat` deltas, which repeat `assistant` events, and the boundaries at which cumulative text
//! was coalesced. Unknown fields of a known event are dropped.

mod read;
mod types;
mod write;

#[cfg(test)]
mod tests;

pub use read::{End, Reader};
pub use types::{
    AgentEventPayload, AgentEventStream, Challenge, EventFrame, Frame, GatewayError, HelloOk,
    InFlightRun, Response,
};
pub use write::{
    Abort, Connect, Device, PROTOCOL_MAX, PROTOCOL_MIN, Prompt, request, signed_by_device,
};

/// The origin of extended events.
const ORIGIN: &str = "openclaw";
