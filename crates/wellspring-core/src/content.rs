//! What is said, shown and handed over: blocks of content.

use serde::{Deserialize, Serialize};

/// A block of what a user says or a tool shows.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Words.
    Text(Box<str>),
    /// A picture, a sound, a document: its media type says which.
    Media {
        /// What it is.
        media_type: Box<str>,
        /// Where its bytes are.
        source: MediaSource,
        /// What it is called.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<Box<str>>,
    },
    /// Something that can be fetched.
    Link {
        /// Where it is.
        uri: Box<str>,
        /// What it is called.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<Box<str>>,
        /// What it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media_type: Option<Box<str>>,
    },
    /// A text that comes from somewhere: a file, a page.
    Resource {
        /// Where it comes from.
        uri: Box<str>,
        /// What it says.
        text: Box<str>,
        /// What it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media_type: Option<Box<str>>,
    },
}

impl Content {
    /// Words.
    #[must_use]
    pub fn text(text: impl Into<Box<str>>) -> Self {
        Self::Text(text.into())
    }

    /// The words in it, if it is made of words.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Resource { text, .. } => Some(text),
            Self::Media { .. } | Self::Link { .. } => None,
        }
    }
}

/// Where the bytes of a medium are.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MediaSource {
    /// Here, in base64.
    Data(Box<str>),
    /// There.
    Url(Box<str>),
}

/// A block of what a call shows.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolContent {
    /// Any content.
    Content(Content),
    /// A change of a file.
    Diff {
        /// Which file.
        path: Box<str>,
        /// Before; absent for a new file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        old_text: Option<Box<str>>,
        /// After.
        new_text: Box<str>,
    },
    /// What a terminal shows.
    Terminal {
        /// Which terminal.
        terminal_id: Box<str>,
    },
}
