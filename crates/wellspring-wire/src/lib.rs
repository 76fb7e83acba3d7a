//! Every protocol as pure code: it maps wires to events, and records to the vocabularies of
//! clients.
//!
//! A [`Dialect`] translates one record into the events of a client's wire. It gets the record
//! and the [fold](Fold) of the run before it, so a reader can resume anywhere, by a
//! [`WirePosition`]. It also defines how a stream begins, pauses and ends, and how its events
//! are [framed](Framing). An [`Encoder`] keeps the fold for a dialect. Dialects have names
//! ([`DialectName`]) and [options](Options). The module of each dialect documents its mapping
//! and what is lost.
//!
//! ```
//! use wellspring_core::{AgentNo, Event, Millis, Outcome, Record, Seq, Stop};
//! use wellspring_wire::{DialectName, Encoder, Out};
//!
//! let outcome = Box::new(Outcome::Completed { stop: Stop::EndTurn });
//! let event = Event::RunFinished { outcome };
//! let record = Record { seq: Seq(1), agent: AgentNo::ROOT, at: Millis(0), event };
//!
//! let mut out = Out::default();
//! let dialect: DialectName = "agent_event".parse()?;
//! Encoder::new(dialect).frame(&[record], &mut out);
//! let events: Vec<(String, &[u8])> = out.events().map(|(at, json)| (at.to_string(), json)).collect();
//! assert_eq!(events, [("1".to_owned(), br#"{"type":"final"}"#.as_slice())]);
//! # Ok::<(), wellspring_wire::UnknownDialect>(())
//! ```
//!
//! # What is deliberately absent
//!
//! IO, the clock, any runtime. Protocols do not know each other.

pub mod acp;
pub mod ag_ui;
pub mod agent_event;
pub mod ai_sdk;
pub mod anthropic;
mod dialect;
pub mod dify;
pub mod gemini;
pub mod ollama;
pub mod openai_chat;
pub mod openai_responses;
pub mod openclaw;
pub mod provider;
pub mod record;
pub mod socket_io;
mod sse_reader;
pub mod stream_delta;
pub mod streaming_event;
pub mod thought_event;
pub mod turn_event;
pub mod use_ai;

pub use dialect::encoder::{Encoder, Folded};
pub use dialect::framing::{FramedEvent, Framing, Positions, Shape};
pub use dialect::name::{DialectChoice, DialectName, UnknownDialect};
pub use dialect::options::{
    Encoding, OptionError, OptionName, Options, Reasoning, ReasoningEvents, SubAgents, UsageReports,
};
pub use dialect::out::{Json, Out};
pub use dialect::position::{ParsePositionError, WirePosition};
pub use dialect::{Before, Closed, Dialect, Fold, Joins};
pub use sse_reader::{EVENT_BYTES_MAX, Frame, FrameError, Framer};

#[cfg(test)]
mod test_helpers;
