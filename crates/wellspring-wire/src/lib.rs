//! Everything protocol-shaped and pure: a run's records in the vocabularies of others.
//!
//! A [`Dialect`] turns one record into the events of somebody's wire. It sees the record
//! and the [`Outline`](wellspring_core::Outline) before it; so a reader can resume anywhere,
//! by a [`WirePosition`]. An [`Encoder`] does the folding around it. Dialects have names
//! ([`DialectName`]), and each has a module that says how it maps and what gets lost.
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
pub mod anthropic;
mod dialect;
mod encoder;
mod framer;
pub mod gemini;
mod name;
pub mod ollama;
pub mod openai_chat;
pub mod openai_responses;
mod out;
mod position;
mod project;
pub mod provider;
pub mod record;
pub mod stream_delta;
pub mod streaming_event;
mod text;
pub mod thought_event;
pub mod turn_event;

pub use dialect::{Conversation, Dialect};
pub use encoder::Encoder;
pub use framer::{EVENT_BYTES_MAX, Frame, FrameError, Framer};
pub use name::{DialectName, UnknownDialect};
pub use out::{Json, Out};
pub use position::{ParsePositionError, WirePosition};

#[cfg(test)]
mod testing;
