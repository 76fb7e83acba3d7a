//! Incoming messages and presses, in one format for all networks.

use serde::{Deserialize, Serialize};

use crate::channel::ChatKind;
use crate::texts::Language;

/// A message or a press of a button.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Incoming {
    /// The network's id, by which a second delivery is recognised.
    pub id: Box<str>,
    /// The chat.
    pub chat: Box<str>,
    /// The kind of the chat.
    pub kind: ChatKind,
    /// The topic or thread within the chat.
    pub topic: Option<Box<str>>,
    /// The person.
    pub user: User,
    /// The message or the press.
    pub what: What,
}

/// A person in a network.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct User {
    /// The network's id.
    pub id: Box<str>,
    /// The name to show to operators.
    pub name: Box<str>,
    /// The language of their client; `None` if it is unknown or not supported.
    pub language: Option<Language>,
}

/// A message or a press of a button.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum What {
    /// They wrote a message.
    Message {
        /// The network's id of the message.
        message: Box<str>,
        /// Its text, or the caption of its files.
        text: Box<str>,
        /// Its files.
        files: Vec<IncomingFile>,
    },
    /// They pressed a button.
    Press {
        /// The network's id of the press, to confirm it.
        press: Box<str>,
        /// The data of the button.
        data: Box<str>,
    },
}

/// A file in a message.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct IncomingFile {
    /// The network's id of it.
    pub id: Box<str>,
    /// Its media type.
    pub media_type: Box<str>,
    /// Its name, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Box<str>>,
}
