//! StreamingEvent: the text only, turn by turn.
//!
//! The vocabulary is golem-forge's `StreamingEvent`, which its `RuntimeUI` consumes. A turn's
//! `requestId` is `turn-N`, and N counts from 0. Each delta of the root's text is an event. The end
//! of a turn is an event with an empty delta and `done`; so is the end of a run that cuts a turn
//! short or has no turn.
//!
//! # Lossy
//!
//! Everything but the text. Voided text stays, and the text that replaces it follows after a
//! paragraph break. A failed run ends like a completed one.

mod types;
mod write;

#[cfg(test)]
mod tests;

pub use types::StreamingEvent;
pub use write::{StreamingEvents, events};
