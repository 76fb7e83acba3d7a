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
    /// What the application told the model.
    Developer(TextMessage),
    /// What the system told the model.
    System(TextMessage),
    /// What the agent said and which tools it wanted.
    Assistant(AssistantMessage),
    /// What a person said.
    User(UserMessage),
    /// What came of a call.
    Tool(ToolMessage),
    /// Progress that is no conversation.
    Activity(ActivityMessage),
    /// What the agent thought.
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

/// Writes a message's struct, with the fields that every message may have.
macro_rules! message_struct {
    ($(#[$doc:meta])* $name:ident { $($fields:tt)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            /// Its id.
            pub id: Box<str>,
            $($fields)*
            /// Extra information.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub metadata: Option<Metadata>,
            /// The sub-agent whose it is.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub subagent_run_id: Option<Box<str>>,
        }
    };
}

message_struct! {
    /// A message that is just words.
    TextMessage {
        /// The words.
        pub content: String,
        /// The speaker's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<Box<str>>,
        /// What only the provider can read of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub encrypted_value: Option<Box<str>>,
    }
}
message_struct! {
    /// What the agent said and which tools it wanted.
    AssistantMessage {
        /// The words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub content: Option<String>,
        /// The calls.
        #[serde(default, deserialize_with = "super::input::list", skip_serializing_if = "Vec::is_empty")]
        pub tool_calls: Vec<ToolCall>,
        /// The speaker's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<Box<str>>,
        /// What only the provider can read of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub encrypted_value: Option<Box<str>>,
    }
}
message_struct! {
    /// What a person said.
    UserMessage {
        /// The words, or words and media.
        pub content: MessageContent,
        /// The speaker's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<Box<str>>,
        /// What only the provider can read of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub encrypted_value: Option<Box<str>>,
    }
}
message_struct! {
    /// What came of a call.
    ToolMessage {
        /// What the tool returned.
        pub content: MessageContent,
        /// The call.
        pub tool_call_id: Box<str>,
        /// Why it failed, if it did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub error: Option<Box<str>>,
        /// What only the provider can read of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub encrypted_value: Option<Box<str>>,
    }
}
message_struct! {
    /// Progress that is no conversation.
    ActivityMessage {
        /// What kind of activity.
        pub activity_type: Box<str>,
        /// All of it.
        pub content: Map<String, Value>,
    }
}
message_struct! {
    /// What the agent thought.
    ReasoningMessage {
        /// The words.
        pub content: String,
        /// What only the provider can read of it.
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
    /// What is called.
    pub function: FunctionCall,
    /// What only the provider can read of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encrypted_value: Option<Box<str>>,
    /// Extra information.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
}

fn function() -> Box<str> {
    "function".into()
}

/// What a call calls.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct FunctionCall {
    /// The tool.
    pub name: Box<str>,
    /// Its arguments, as JSON text.
    #[serde(default)]
    pub arguments: String,
}

/// Words, or words and media.
#[derive(Clone, Debug, PartialEq)]
pub enum MessageContent {
    /// Words.
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

/// A part of what somebody said.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum MessagePart {
    /// Words.
    Text {
        /// The words.
        text: String,
        /// Its id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<Box<str>>,
        /// Extra information.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<Value>,
    },
    /// A picture.
    Image(PartMedia),
    /// A sound.
    Audio(PartMedia),
    /// A film.
    Video(PartMedia),
    /// A document.
    Document(PartMedia),
    /// What 1.0 no longer has and older clients still send. We never write it.
    Binary {
        /// What it is.
        #[serde(default)]
        mime_type: Box<str>,
        /// Its bytes, in base64.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        data: Option<Box<str>>,
        /// Where it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        url: Option<Box<str>>,
        /// What it is called.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filename: Option<Box<str>>,
    },
}

/// A medium.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct PartMedia {
    /// Where its bytes are.
    pub source: PartSource,
    /// Its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Box<str>>,
    /// Extra information.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
}

/// Where the bytes of a medium are.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum PartSource {
    /// Here, in base64.
    Data {
        /// The bytes.
        value: Box<str>,
        /// What they are.
        mime_type: Box<str>,
    },
    /// There.
    Url {
        /// Where.
        value: Box<str>,
        /// What is there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<Box<str>>,
    },
    /// At a provider.
    File {
        /// The provider's id of it.
        value: Box<str>,
        /// Which provider.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        provider: Option<Box<str>>,
        /// What it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime_type: Option<Box<str>>,
    },
}
