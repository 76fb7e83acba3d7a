//! Models: clients that attempt one turn of a conversation.
//!
//! Every model here implements [`wellspring_core::Model`] and keeps its numbered contract.
//!
//! # What is deliberately absent
//!
//! Protocols: reading and writing a provider's wire format is pure code in `wellspring-wire`.
//! The turn loop, retries and tools are in `wellspring-engine`.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/models.md")]
struct Guide;

pub mod anthropic;
pub mod breaker;
mod error;
mod fallback;
pub mod gemini;
mod hosted;
pub mod http;
mod listing;
pub mod ollama;
pub mod openai_chat;
pub mod openai_responses;
pub mod scripted;
mod secret;

pub use anthropic::Anthropic;
pub use breaker::{Breaker, Circuit};
pub use error::SetupError;
pub use fallback::Fallback;
pub use gemini::Gemini;
pub use hosted::{Hosted, KeyForm, Protocol, Variables};
pub use listing::{ListedModel, Listing, PAGES_MAX};
pub use ollama::Ollama;
pub use openai_chat::OpenAiChat;
pub use openai_responses::OpenAiResponses;
pub use scripted::{Attempts, Failure, Gate, Say, Scripted};
pub use secret::{KEY_BYTES_MAX, Secret};
