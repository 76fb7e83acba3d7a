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

#[cfg(feature = "providers")]
pub mod anthropic;
mod breaker;
#[cfg(feature = "providers")]
mod error;
mod fallback;
#[cfg(feature = "providers")]
pub mod gemini;
#[cfg(feature = "providers")]
mod hosted;
#[cfg(feature = "providers")]
pub mod http;
#[cfg(feature = "providers")]
mod listing;
#[cfg(feature = "providers")]
pub mod ollama;
#[cfg(feature = "providers")]
pub mod openai_chat;
#[cfg(feature = "providers")]
pub mod openai_responses;
pub mod scripted;
#[cfg(feature = "providers")]
mod secret;

#[cfg(feature = "providers")]
pub use anthropic::Anthropic;
pub use breaker::Breaker;
#[cfg(feature = "providers")]
pub use error::SetupError;
pub use fallback::{Fallback, IntoModels, IsList, IsModel};
#[cfg(feature = "providers")]
pub use gemini::Gemini;
#[cfg(feature = "providers")]
pub use hosted::{Hosted, KeyForm, Protocol, Variables};
#[cfg(feature = "providers")]
pub use listing::{ListedModel, Listing, PAGES_MAX};
#[cfg(feature = "providers")]
pub use ollama::Ollama;
#[cfg(feature = "providers")]
pub use openai_chat::OpenAiChat;
#[cfg(feature = "providers")]
pub use openai_responses::OpenAiResponses;
pub use scripted::{Attempts, Failure, Gate, Say, Scripted};
#[cfg(feature = "providers")]
pub use secret::{KEY_BYTES_MAX, Secret};
pub use wellspring_core::Circuit;
