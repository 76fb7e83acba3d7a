//! Chat networks: a person writes to a bot, sees it think and answer in a message that grows, and
//! loses no word of it.
//!
//! A [`Channel`] is a network and what it can do. An answer in a chat is a view over a cursor: it
//! is rendered ([`render`]) when the network has room for it, latest wins, and the [`Scheduler`]
//! decides which call is made when.
//!
//! # What is deliberately absent
//!
//! The server and the configuration: the command puts them together.

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
mod trigger;
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
pub use trigger::{trigger, trigger_stream};
pub use view::{
    CURSOR, FINAL_THINKING_CHARS_MAX, Reader, THINKING_CHARS_MAX, THINKING_SHOWN_FROM_MS,
    ThinkingMode, View, note, render, stopped,
};
pub use whatsapp::{WHATSAPP_API, WhatsApp, WhatsAppSecrets};
