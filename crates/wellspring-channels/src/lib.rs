//! Chat networks: a person writes to a bot and sees its thoughts and its answer in a message
//! that grows.
//!
//! A [`Channel`] is a network with its capabilities. An answer in a chat is a view over a
//! cursor: it is rendered ([`render`]) when the network has capacity, always in its latest
//! state, and the [`Scheduler`] decides when to make which call.
//!
//! # What is deliberately absent
//!
//! The server and the configuration: the command `wellspring` connects them.

mod access;
mod channel;
mod dispatch;
mod incoming;
mod instance;
mod markup;
mod metrics;
mod questions;
mod schedule;
mod sender;
mod state;
mod telegram;
mod texts;
mod view;
mod whatsapp;

pub use access::{Pairing, People};

pub use channel::{
    Action, Body, Button, Call, CallError, CallResult, Capabilities, Channel, ChatKind, File,
    Rates, StreamSender,
};
pub use dispatch::{INCOMING_FILE_BYTES_MAX, IncomingError};
pub use incoming::{Incoming, IncomingFile, User, What};
pub use instance::{Access, Instance, InstanceConfig, WhenBusy};
pub use markup::{Markup, Text};
pub use metrics::ChannelMetrics;
pub use schedule::{Next, Notice, PostState, Preview, Scheduler, Slot, TRIES_MAX};
pub use telegram::{TELEGRAM_API, Telegram};
pub use texts::Language;
pub use view::{
    CURSOR, FINAL_THINKING_CHARS_MAX, Reader, THINKING_CHARS_MAX, THINKING_SHOWN_FROM_MS,
    ThinkingMode, View, note, render, stopped,
};
pub use whatsapp::{WHATSAPP_API, WhatsApp, WhatsAppSecrets};
