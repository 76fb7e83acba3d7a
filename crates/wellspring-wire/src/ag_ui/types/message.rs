//! The messages of a conversation.

use std::fmt;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::Metadata;

/// One message of a conversation.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Message {
    /// A developer message.
    Developer(TextMessage),
    /// A system message.
    System(TextMessage),
    /// An assistant message, with its tool calls.
    Assistant(AssistantMessage),
    /// A user message.
    User(UserMessage),
    /// The result of a call.
    Tool(ToolMessage),
    /// Progress that is not part of the conversation.
    Activity(ActivityMessage),
    /// A reasoning message.
    Reasoning(ReasoningMessage),
}

impl Message {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Developer(message) | Self::System(message) => &message.id,
            Self::Assistant(message) => &message.id,
            Self::User(message) => &message.id,
            Self::Tool(message) => &message.id,
            Self::Activity(message) => &message.id,
            Self::Reasoning(message) => &message.id,
        }
    }
}

/// Declares a message's struct, with the fields that every message may have.
macro_rules! message_struct {
    ($(#[$doc:meta])* $name:ident { $($fields:tt)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            /// Its id.
            pub id: Box<str>,
            $($fields)*
            /// Arbitrary metadata.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub metadata: Option<Metadata>,
            /// The sub-agent that it belongs to.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub subagent_run_id: Option<Box<str>>,
        }
    };
}

message_struct! {
    /// A message of plain text.
    TextMessage {
        /// The text.
        pub content: String,
        /// The speaker's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<Box<str>>,
        /// Data that only the provider can read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub encrypted_value: Option<Box<str>>,
    }
}
message_struct! {
    /// An assistant message, with its tool calls.
    AssistantMessage {
        /// The text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub content: Option<String>,
        /// The calls.
        #[serde(default, deserialize_with = "super::input::list", skip_serializing_if = "Vec::is_empty")]
        pub tool_calls: Vec<ToolCall>,
        /// The speaker's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<Box<str>>,
        /// Data that only the provider can read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub encrypted_value: Option<Box<str>>,
    }
}
message_struct! {
    /// A user message.
    UserMessage {
        /// The text, or text and media.
        pub content: MessageContent,
        /// The speaker's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<Box<str>>,
        /// Data that only the provider can read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub encrypted_value: Option<Box<str>>,
    }
}
message_struct! {
    /// The result of a tool call.
    ToolMessage {
        /// The output.
        pub content: MessageContent,
        /// The call.
        pub tool_call_id: Box<str>,
        /// Why it failed, if it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub error: Option<Box<str>>,
        /// Data that only the provider can read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub encrypted_value: Option<Box<str>>,
    }
}
message_struct! {
    /// Progress that is not part of the conversation.
    ActivityMessage {
        /// The type of activity.
        pub activity_type: Box<str>,
        /// The whole content.
        pub content: Map<String, Value>,
    }
}
message_struct! {
    /// A reasoning message.
    ReasoningMessage {
        /// The text.
        pub content: String,
        /// Data that only the provider can read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub encrypted_value: Option<Box<str>>,
    }
}

/// A call of a tool.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// Its id.
    pub id: Box<str>,
    /// Always `function`.
    #[serde(default = "function", rename = "type")]
    pub kind: Box<str>,
    /// The called function.
    pub function: FunctionCall,
    /// Data that only the provider can read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encrypted_value: Option<Box<str>>,
    /// Arbitrary metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
}

fn function() -> Box<str> {
    "function".into()
}

/// The called function.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct FunctionCall {
    /// The tool.
    pub name: Box<str>,
    /// Its arguments, as JSON text.
    #[serde(default)]
    pub arguments: String,
}

/// Text, or text and media.
#[derive(Clone, Debug, PartialEq)]
pub enum MessageContent {
    /// Text.
    Text(String),
    /// Parts, in order.
    Parts(Vec<MessagePart>),
}

impl Default for MessageContent {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl Serialize for MessageContent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => text.serialize(serializer),
            Self::Parts(parts) => parts.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for MessageContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = MessageContent;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`content` to be a string or a list of parts")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(MessageContent::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(MessageContent::Text(text))
    }

    /// Older clients send `null` for a tool that returned nothing.
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(MessageContent::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(MessageContent::Parts)
    }
}

/// A part of a user message.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum MessagePart {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// Its id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<Box<str>>,
        /// Arbitrary metadata.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Value>,
    },
    /// An image.
    Image(PartMedia),
    /// A sound.
    Audio(PartMedia),
    /// A video.
    Video(PartMedia),
    /// A document.
    Document(PartMedia),
    /// Removed in 1.0, but older clients still send it. Never written.
    Binary {
        /// The media type.
        #[serde(default)]
        mime_type: Box<str>,
        /// Its bytes, in base64.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<Box<str>>,
        /// The URL.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        url: Option<Box<str>>,
        /// Its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filename: Option<Box<str>>,
    },
}

/// An image, an audio clip, a video or a document.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PartMedia {
    /// The data, or where to find it.
    pub source: PartSource,
    /// Its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Box<str>>,
    /// Arbitrary metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// Where the bytes of a media part are.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum PartSource {
    /// Inline, in base64.
    Data {
        /// The bytes.
        value: Box<str>,
        /// The media type.
        mime_type: Box<str>,
    },
    /// At a URL.
    Url {
        /// The URL.
        value: Box<str>,
        /// The media type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<Box<str>>,
    },
    /// At a provider.
    File {
        /// The id of the file at the provider.
        value: Box<str>,
        /// The provider.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider: Option<Box<str>>,
        /// Its type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<Box<str>>,
    },
}
