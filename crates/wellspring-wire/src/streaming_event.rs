//! StreamingEvent: only the words, turn by turn.
//!
//! The vocabulary is golem-forge's `StreamingEvent`, which its `RuntimeUI` consumes. A turn's
//! `requestId` is `turn-N`, and N counts from 0. A delta of the root's text is an event; the
//! end of its turn is one with an empty delta that is `done`; so is the end of the run, when
//! it cuts a turn short, or when there was none.
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
