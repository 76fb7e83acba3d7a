//! Chat networks: a person writes to a bot, and sees its thoughts and its answer in a message that
//! is updated while the agent runs.
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
mod discord;
mod dispatch;
mod http;
mod incoming;
mod instance;
mod markup;
mod metrics;
#[cfg(test)]
mod published;
mod questions;
mod schedule;
mod sender;
mod slack;
mod socket;
mod state;
mod telegram;
#[cfg(test)]
mod testing;
mod texts;
mod trigger;
mod view;
mod whatsapp;

pub use access::{Pairing, People};

pub use channel::{
    Action, Body, Button, Call, CallError, CallResult, Capabilities, Channel, ChatKind, Done, File,
    Growth, Limit, Rates, Stream, StreamSender,
};
pub use discord::{DISCORD_API, Discord};
pub use dispatch::{INCOMING_FILE_BYTES_MAX, IncomingError};
pub use incoming::{Incoming, IncomingFile, User, What};
pub use instance::{Access, Instance, InstanceConfig, WhenBusy};
pub use markup::{Markup, Text};
pub use metrics::ChannelMetrics;
pub use schedule::{Next, Notice, PostState, Preview, Scheduler, SharedWaits, Slot, TRIES_MAX};
pub use slack::{SLACK_API, Slack, SlackSecrets};
pub use telegram::{TELEGRAM_API, Telegram};
pub use texts::Language;
pub use trigger::{trigger, trigger_stream};
pub use view::{
    CURSOR, FINAL_THINKING_CHARS_MAX, Reader, THINKING_CHARS_MAX, THINKING_SHOWN_FROM_MS,
    ThinkingMode, View, note, render, stopped,
};
pub use whatsapp::{WHATSAPP_API, WhatsApp, WhatsAppSecrets};
