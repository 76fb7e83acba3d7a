//! StreamDelta: how the answer stands, all of it each time.
//!
//! The vocabulary is Omni's, for chat networks that edit one message. It is a view: a reader
//! makes one of a transcript ([`StreamDelta::of`]) when it has time for it. As a
//! [`Dialect`](crate::Dialect) it writes one snapshot per frame that changed something.
//!
//! The content is the root agent's words. Where a tool call or a new turn came between, a
//! paragraph break does too. Thinking is its thoughts, a paragraph each; its time is the sum
//! of the times between the start and the end of each, by the records' own clock. What was
//! taken back is gone. A run that was cancelled is an error.
//!
//! # Lossy
//!
//! Tools, plans, questions, sub-agents and all else; how the words came.

mod types;
mod view;

#[cfg(test)]
mod tests;

pub use types::StreamDelta;
pub use view::StreamDeltas;
