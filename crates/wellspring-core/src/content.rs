//! Content blocks of user input, tool output and agents' messages.

use serde::{Deserialize, Serialize};

/// A block of user input or of tool output.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Plain text.
    Text(Box<str>),
    /// An image, an audio clip or a document.
    Media {
        /// The media type.
        media_type: Box<str>,
        /// The data, or where to find it.
        source: MediaSource,
        /// The file name, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<Box<str>>,
    },
    /// A link to a resource.
    Link {
        /// The URI.
        uri: Box<str>,
        /// The title, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<Box<str>>,
        /// The media type, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media_type: Option<Box<str>>,
    },
    /// Text from a file or a page.
    Resource {
        /// The URI it was read from.
        uri: Box<str>,
        /// The text.
        text: Box<str>,
        /// The media type, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media_type: Option<Box<str>>,
    },
}

impl Content {
    /// A text block.
    #[must_use]
    pub fn text(text: impl Into<Box<str>>) -> Self {
        Self::Text(text.into())
    }

    /// The text in the block, if it holds text.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::Resource { text, .. } => Some(text),
            Self::Media { .. } | Self::Link { .. } => None,
        }
    }
}

/// The text in the blocks, one per line.
pub(crate) fn text_of(content: &[Content]) -> String {
    content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n")
}

/// Where the bytes of a media block are.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MediaSource {
    /// Inline, in base64.
    Data(Box<str>),
    /// At a URL.
    Url(Box<str>),
}

/// A block that a tool call shows.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolContent {
    /// Any content.
    Content(Content),
    /// A change to a file.
    Diff {
        /// The file's path.
        path: Box<str>,
        /// The text before; `None` for a new file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        old_text: Option<Box<str>>,
        /// The text after.
        new_text: Box<str>,
    },
    /// The output of a terminal.
    Terminal {
        /// The terminal's id.
        terminal_id: Box<str>,
    },
}
