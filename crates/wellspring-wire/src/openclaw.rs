//! OpenClaw: the WebSocket protocol of its gateway, as a client speaks it.
//!
//! Frames are JSON: requests of ours, responses, and events of all runs on the gateway. A run's
//! events are read into ours by a [`Reader`]. The connection, the random parts and the signature
//! of a device are not here.
//!
//! # How a run is read
//!
//! | gateway | ours |
//! | --- | --- |
//! | `assistant`, cumulative per message | a text part per message; text that is taken back voids its part |
//! | `thinking`, cumulative without an id | a thought per stretch of thinking; it ends where text or a call begins |
//! | `item` of kind `preamble` | the text before a call is annotated as a preamble |
//! | `item` of kind `tool`, `tool` | a call inside the agent, with title, arguments, progress and result |
//! | `command_output` | output of that call |
//! | `usage`, the last response | usage of the run |
//! | `lifecycle` end or error, `chat` final, aborted or error, the last response | the end; the first one counts |
//! | anything else of the run | `extended`, whole |
//!
//! # Lossy
//!
//! `chat` deltas, which repeat what `assistant` events say, and the pieces in which cumulative
//! text was coalesced. Fields of an event that we have no word for are not kept if the event
//! itself has one.

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
