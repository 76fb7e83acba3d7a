//! StreamingEvent: only the words, turn by turn.
//!
//! The vocabulary is golem-forge's `StreamingEvent`, which its `RuntimeUI` consumes. A turn's
//! `requestId` is `turn-N`, and N counts from 0. Each delta of the root's text is an event. The end
//! of a turn is an event with an empty delta and `done`; so is the end of a run that cuts a turn
//! short or has no turn.
//!
//! # Lossy
//!
//! Everything but the words. Words that were taken back stay, and those that come instead
//! follow after a paragraph break. A run that failed ends like one that did not.

mod types;
mod write;

#[cfg(test)]
mod tests;

pub use types::StreamingEvent;
pub use write::{StreamingEvents, events};
