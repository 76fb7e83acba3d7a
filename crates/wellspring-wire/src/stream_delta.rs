//! StreamDelta: snapshots of the whole answer so far.
//!
//! The vocabulary is Omni's, for chat networks that edit one message. It is a view: a reader
//! makes a snapshot of a transcript ([`StreamDelta::of`]) whenever it needs one. As a
//! [`Dialect`](crate::Dialect), it writes one snapshot per frame that changed something.
//!
//! The content is the root agent's text, with a paragraph break where a tool call or a new turn
//! came between. Thinking is its thoughts, one paragraph each; the duration is the sum of the
//! times between the start and the end of each, by the records' timestamps. Voided parts are
//! removed. A cancelled run is an error.
//!
//! # Lossy
//!
//! Tools, plans, questions, sub-agents and everything else; the individual deltas.

mod types;
mod view;

#[cfg(test)]
mod tests;

pub use types::StreamDelta;
pub use view::StreamDeltas;
