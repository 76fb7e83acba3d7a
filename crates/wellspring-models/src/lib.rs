//! Models: what attempts one turn of a conversation.
//!
//! Every model here implements [`wellspring_core::Model`] and keeps its numbered contract.
//!
//! # What is deliberately absent
//!
//! Protocols: reading and writing a provider's wire is pure code that lives elsewhere; a
//! client here is the plumbing around it. The turn loop, retries and tools: the engine's.

pub mod anthropic;
pub mod breaker;
mod error;
mod fallback;
pub mod http;
pub mod openai_chat;
pub mod scripted;
mod secret;

pub use anthropic::Anthropic;
pub use breaker::{Breaker, Circuit};
pub use error::SetupError;
pub use fallback::Fallback;
pub use openai_chat::OpenAiChat;
pub use scripted::{Attempts, Failure, Gate, Say, Scripted};
pub use secret::Secret;
