//! The types as AG-UI 1.0 publishes them.
//!
//! Reading is lenient: unknown fields are ignored, and `null` counts as absent. Writing is
//! strict: absent optional fields are left out, because the official client fails a run over a
//! `null`.

mod input;
mod message;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use input::{Context, ResumeEntry, ResumeStatus, RunAgentInput, Tool};
pub use message::{
    ActivityMessage, AssistantMessage, FunctionCall, Message, MessageContent, MessagePart,
    PartMedia, PartSource, ReasoningMessage, TextMessage, ToolCall, ToolMessage, UserMessage,
};

/// The protocol version that we speak.
pub const PROTOCOL_VERSION: &str = "1.0";

/// Arbitrary metadata, by key.
pub type Metadata = Map<String, Value>;

/// Declares an event's struct, with the fields that every event may have.
macro_rules! event_struct {
    ($(#[$doc:meta])* $name:ident run { $($fields:tt)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $($fields)*
            /// Arbitrary metadata.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub metadata: Option<Metadata>,
            /// When the event was made, in milliseconds.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub timestamp: Option<i64>,
            /// The event of another protocol that this one was made from.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub raw_event: Option<Value>,
        }
    };
    ($(#[$doc:meta])* $name:ident part { $($fields:tt)* }) => {
        event_struct! {
            $(#[$doc])* $name run {
                $($fields)*
                /// The sub-agent that the event belongs to; `None` for the agent itself.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub subagent_run_id: Option<Box<str>>,
            }
        }
    };
}

/// Declares the event enum and its structs. `part` events can belong to a sub-agent, `run`
/// events cannot.
macro_rules! events {
    ($($(#[$doc:meta])* $name:ident $scope:ident { $($fields:tt)* })*) => {
        /// Any AG-UI event.
        #[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
        #[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE")]
        pub enum Event {
            $($(#[$doc])* $name(Box<$name>),)*
        }

        $(
            event_struct! { $(#[$doc])* $name $scope { $($fields)* } }

            impl From<$name> for Event {
                fn from(event: $name) -> Self {
                    Self::$name(Box::new(event))
                }
            }
        )*
    };
}

events! {
    /// Opens a text message.
    TextMessageStart part {
        /// The message's id.
        pub message_id: Box<str>,
        /// The role of the speaker [default: assistant].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub role: Option<TextRole>,
        /// The speaker's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<Box<str>>,
    }
    /// More of a text message.
    TextMessageContent part {
        /// The message's id.
        pub message_id: Box<str>,
        /// The text to append.
        pub delta: Box<str>,
    }
    /// Closes a text message.
    TextMessageEnd part {
        /// The message's id.
        pub message_id: Box<str>,
    }
    /// Start, content and end in one event, for producers that do not track messages.
    TextMessageChunk part {
        /// The message's id; the open one if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub message_id: Option<Box<str>>,
        /// The role of the speaker.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub role: Option<TextRole>,
        /// The text to append.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub delta: Option<Box<str>>,
        /// The speaker's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<Box<str>>,
    }
    /// Opens a tool call.
    ToolCallStart part {
        /// The call's id.
        pub tool_call_id: Box<str>,
        /// The tool.
        pub tool_call_name: Box<str>,
        /// The assistant message that holds it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub parent_message_id: Option<Box<str>>,
    }
    /// More of a call's arguments.
    ToolCallArgs part {
        /// The call's id.
        pub tool_call_id: Box<str>,
        /// The text to append.
        pub delta: Box<str>,
    }
    /// A call's arguments are complete.
    ToolCallEnd part {
        /// The call's id.
        pub tool_call_id: Box<str>,
    }
    /// Start, arguments and end in one event.
    ToolCallChunk part {
        /// The call's id; the open one if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tool_call_id: Option<Box<str>>,
        /// The tool.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tool_call_name: Option<Box<str>>,
        /// The assistant message that holds it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub parent_message_id: Option<Box<str>>,
        /// The text to append.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub delta: Option<Box<str>>,
    }
    /// The result of a tool.
    ToolCallResult part {
        /// The tool message that this becomes.
        pub message_id: Box<str>,
        /// The call that it answers.
        pub tool_call_id: Box<str>,
        /// The output.
        pub content: MessageContent,
        /// Always `tool`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub role: Option<ToolRole>,
    }
    /// The whole shared state.
    StateSnapshot part {
        /// The state; any JSON.
        #[serde(default)]
        pub snapshot: Value,
    }
    /// A patch of the shared state.
    StateDelta part {
        /// An RFC 6902 patch.
        pub delta: Vec<Value>,
    }
    /// Every message of the conversation.
    MessagesSnapshot run {
        /// In chronological order.
        pub messages: Vec<Message>,
    }
    /// Progress that is not part of the conversation.
    ActivitySnapshot part {
        /// The activity message.
        pub message_id: Box<str>,
        /// The type of activity.
        pub activity_type: Box<str>,
        /// The whole content.
        pub content: Map<String, Value>,
        /// Whether it replaces an existing one; `true` if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub replace: Option<bool>,
    }
    /// A patch of an activity.
    ActivityDelta part {
        /// The activity message.
        pub message_id: Box<str>,
        /// The type of activity.
        pub activity_type: Box<str>,
        /// An RFC 6902 patch of its content.
        pub patch: Vec<Value>,
    }
    /// An event of another protocol.
    Raw part {
        /// The event, unchanged.
        #[serde(default)]
        pub event: Value,
        /// Its source.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub source: Option<Box<str>>,
    }
    /// An application-specific event.
    Custom part {
        /// Its type.
        pub name: Box<str>,
        /// Its value.
        #[serde(default)]
        pub value: Value,
    }
    /// A run began.
    RunStarted run {
        /// The thread.
        pub thread_id: Box<str>,
        /// The run.
        pub run_id: Box<str>,
        /// The protocol version of the producer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub protocol_version: Option<Box<str>>,
        /// The parent run, if this run branches off one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub parent_run_id: Option<Box<str>>,
        /// The request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub input: Option<RunAgentInput>,
    }
    /// A run ended without an error: it completed, was interrupted or was cancelled.
    RunFinished run {
        /// The thread.
        pub thread_id: Box<str>,
        /// The run.
        pub run_id: Box<str>,
        /// The result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub result: Option<Value>,
        /// The outcome [default: success].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub outcome: Option<RunOutcome>,
        /// The usage per model.
        #[serde(default, deserialize_with = "input::list", skip_serializing_if = "Vec::is_empty")]
        pub usage: Vec<TokenUsage>,
    }
    /// A run failed.
    RunError run {
        /// The error message.
        pub message: Box<str>,
        /// The error code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub code: Option<Box<str>>,
        /// The usage per model.
        #[serde(default, deserialize_with = "input::list", skip_serializing_if = "Vec::is_empty")]
        pub usage: Vec<TokenUsage>,
    }
    /// A step began.
    StepStarted part {
        /// The step's name.
        pub step_name: Box<str>,
    }
    /// A step ended.
    StepFinished part {
        /// The step's name.
        pub step_name: Box<str>,
    }
    /// Opens a span of reasoning.
    ReasoningStart part {
        /// The span.
        pub message_id: Box<str>,
    }
    /// Opens a message of reasoning.
    ReasoningMessageStart part {
        /// The message's id.
        pub message_id: Box<str>,
        /// Always `reasoning`.
        #[serde(default)]
        pub role: ReasoningRole,
    }
    /// More reasoning.
    ReasoningMessageContent part {
        /// The message's id.
        pub message_id: Box<str>,
        /// The text to append.
        pub delta: Box<str>,
    }
    /// Closes a message of reasoning.
    ReasoningMessageEnd part {
        /// The message's id.
        pub message_id: Box<str>,
    }
    /// Start, content and end in one event.
    ReasoningMessageChunk part {
        /// The message's id; the open one if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub message_id: Option<Box<str>>,
        /// The text to append.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub delta: Option<Box<str>>,
    }
    /// Closes a span of reasoning.
    ReasoningEnd part {
        /// The span.
        pub message_id: Box<str>,
    }
    /// Encrypted data of a message or a call that only the provider can read.
    ReasoningEncryptedValue part {
        /// The kind of thing it belongs to.
        pub subtype: EncryptedSubtype,
        /// Its id.
        pub entity_id: Box<str>,
        /// The value.
        pub encrypted_value: Box<str>,
    }
    /// A sub-agent began.
    SubagentStarted run {
        /// The id of this invocation; unique per run.
        pub subagent_run_id: Box<str>,
        /// Its name.
        pub name: Box<str>,
        /// What it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub description: Option<Box<str>>,
        /// The sub-agent that called it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub parent_subagent_run_id: Option<Box<str>>,
        /// The tool call that it runs for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub parent_tool_call_id: Option<Box<str>>,
        /// The message that asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub parent_message_id: Option<Box<str>>,
    }
    /// A sub-agent ended.
    SubagentFinished run {
        /// Its id.
        pub subagent_run_id: Box<str>,
        /// The result.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub result: Option<Value>,
        /// The outcome [default: success].
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub outcome: Option<SubagentOutcome>,
    }
    /// A sub-agent failed.
    SubagentError run {
        /// Its id.
        pub subagent_run_id: Box<str>,
        /// The error message.
        pub message: Box<str>,
        /// The error code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub code: Option<Box<str>>,
    }
}

/// The role of a streamed text message.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are enough")]
pub enum TextRole {
    Developer,
    System,
    #[default]
    Assistant,
    User,
}

/// The role of a tool's result.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolRole {
    /// The only one.
    #[default]
    Tool,
}

/// The role of a reasoning message.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningRole {
    /// The only one.
    #[default]
    Reasoning,
}

/// What an encrypted value belongs to.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EncryptedSubtype {
    /// A tool call.
    ToolCall,
    /// A message.
    #[default]
    Message,
}

/// How a run ended.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum RunOutcome {
    /// It completed, or waits for the client's tools.
    Success {
        /// The calls that the client has to answer.
        #[serde(default, deserialize_with = "input::list", skip_serializing_if = "Vec::is_empty")]
        pending_tool_call_ids: Vec<Box<str>>,
    },
    /// It waits for answers.
    Interrupt {
        /// The interrupts; at least one.
        interrupts: Vec<Interrupt>,
    },
    /// It was cancelled.
    Cancelled {},
}

/// How a sub-agent ended.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum SubagentOutcome {
    /// It completed.
    Success {},
    /// It continues with the run.
    Suspended {
        /// What it waits for.
        #[serde(default, deserialize_with = "input::list", skip_serializing_if = "Vec::is_empty")]
        interrupt_ids: Vec<Box<str>>,
    },
}

/// An interrupt: an answer that a run waits for.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interrupt {
    /// The id that an answer names.
    pub id: Box<str>,
    /// `tool_call`, `input_required`, `confirmation`, or the producer's own.
    pub reason: Box<str>,
    /// The text that a person reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<str>>,
    /// The call that waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<Box<str>>,
    /// The JSON schema of an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Map<String, Value>>,
    /// When it expires, in ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Box<str>>,
    /// Arbitrary metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// The sub-agent that asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagent_run_id: Option<Box<str>>,
}

/// The usage of one model.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenUsage {
    /// The provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Box<str>>,
    /// The model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// Input tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Output tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Total tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_tokens: Option<u64>,
    /// Output tokens that were reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
    /// Input tokens read from a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input_tokens: Option<u64>,
    /// Input tokens written to a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_input_tokens: Option<u64>,
}
