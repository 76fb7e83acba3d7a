//! The types as AG-UI 1.0 publishes them.
//!
//! Reading is patient: fields we do not know are ignored, and a `null` is an absent field.
//! Writing is strict: an optional field that is absent is left out, because the official
//! client rejects a run over a `null`.

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

/// Anything that is attached to something, open by key.
pub type Metadata = Map<String, Value>;

/// Writes an event's struct, with the fields that every event may have.
macro_rules! event_struct {
    ($(#[$doc:meta])* $name:ident run { $($fields:tt)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $($fields)*
            /// Extra information.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub metadata: Option<Metadata>,
            /// When the event was made, in milliseconds.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub timestamp: Option<i64>,
            /// The event of another protocol that it was made from.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub raw_event: Option<Value>,
        }
    };
    ($(#[$doc:meta])* $name:ident part { $($fields:tt)* }) => {
        event_struct! {
            $(#[$doc])* $name run {
                $($fields)*
                /// The sub-agent whose it is; absent for the agent itself.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub subagent_run_id: Option<Box<str>>,
            }
        }
    };
}

/// The event enum and its structs. `part` events can belong to a sub-agent, `run` events not.
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
        /// Which.
        pub message_id: Box<str>,
        /// Who speaks; the assistant when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub role: Option<TextRole>,
        /// The speaker's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<Box<str>>,
    }
    /// More of a text message.
    TextMessageContent part {
        /// Which.
        pub message_id: Box<str>,
        /// To be appended.
        pub delta: Box<str>,
    }
    /// Closes a text message.
    TextMessageEnd part {
        /// Which.
        pub message_id: Box<str>,
    }
    /// Start, content and end in one, for those who do not know where a message begins.
    TextMessageChunk part {
        /// Which; the open one when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub message_id: Option<Box<str>>,
        /// Who speaks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub role: Option<TextRole>,
        /// To be appended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub delta: Option<Box<str>>,
        /// The speaker's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub name: Option<Box<str>>,
    }
    /// Opens a tool call.
    ToolCallStart part {
        /// Which.
        pub tool_call_id: Box<str>,
        /// The tool.
        pub tool_call_name: Box<str>,
        /// The assistant message that holds it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub parent_message_id: Option<Box<str>>,
    }
    /// More of a call's arguments.
    ToolCallArgs part {
        /// Which.
        pub tool_call_id: Box<str>,
        /// To be appended.
        pub delta: Box<str>,
    }
    /// A call's arguments are complete.
    ToolCallEnd part {
        /// Which.
        pub tool_call_id: Box<str>,
    }
    /// Start, arguments and end in one.
    ToolCallChunk part {
        /// Which; the open one when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tool_call_id: Option<Box<str>>,
        /// The tool.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub tool_call_name: Option<Box<str>>,
        /// The assistant message that holds it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub parent_message_id: Option<Box<str>>,
        /// To be appended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub delta: Option<Box<str>>,
    }
    /// What a tool returned.
    ToolCallResult part {
        /// The tool message that this becomes.
        pub message_id: Box<str>,
        /// The call that it answers.
        pub tool_call_id: Box<str>,
        /// What was returned.
        pub content: MessageContent,
        /// Always the tool's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub role: Option<ToolRole>,
    }
    /// The shared state, all of it.
    StateSnapshot part {
        /// The state; any JSON.
        #[serde(default)]
        pub snapshot: Value,
    }
    /// A change of the shared state.
    StateDelta part {
        /// An RFC 6902 patch.
        pub delta: Vec<Value>,
    }
    /// Every message of the conversation.
    MessagesSnapshot run {
        /// In order.
        pub messages: Vec<Message>,
    }
    /// Progress that is no conversation.
    ActivitySnapshot part {
        /// The activity message.
        pub message_id: Box<str>,
        /// What kind of activity.
        pub activity_type: Box<str>,
        /// All of it.
        pub content: Map<String, Value>,
        /// Whether it takes the place of one that is there; it does when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub replace: Option<bool>,
    }
    /// A change of an activity.
    ActivityDelta part {
        /// The activity message.
        pub message_id: Box<str>,
        /// What kind of activity.
        pub activity_type: Box<str>,
        /// An RFC 6902 patch of its content.
        pub patch: Vec<Value>,
    }
    /// What another protocol said.
    Raw part {
        /// As it said it.
        #[serde(default)]
        pub event: Value,
        /// Who said it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub source: Option<Box<str>>,
    }
    /// What the protocol has no word for.
    Custom part {
        /// What it is.
        pub name: Box<str>,
        /// What it says.
        #[serde(default)]
        pub value: Value,
    }
    /// A run began.
    RunStarted run {
        /// The conversation.
        pub thread_id: Box<str>,
        /// The run.
        pub run_id: Box<str>,
        /// What the producer speaks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub protocol_version: Option<Box<str>>,
        /// The run that it branches off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub parent_run_id: Option<Box<str>>,
        /// What was asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub input: Option<RunAgentInput>,
    }
    /// A run ended properly.
    RunFinished run {
        /// The conversation.
        pub thread_id: Box<str>,
        /// The run.
        pub run_id: Box<str>,
        /// What came of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub result: Option<Value>,
        /// How it ended; as a success when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub outcome: Option<RunOutcome>,
        /// What it cost, per model.
        #[serde(default, deserialize_with = "input::list", skip_serializing_if = "Vec::is_empty")]
        pub usage: Vec<TokenUsage>,
    }
    /// A run could not go on.
    RunError run {
        /// Why.
        pub message: Box<str>,
        /// What kind of failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub code: Option<Box<str>>,
        /// What it cost, per model.
        #[serde(default, deserialize_with = "input::list", skip_serializing_if = "Vec::is_empty")]
        pub usage: Vec<TokenUsage>,
    }
    /// A step began.
    StepStarted part {
        /// Which.
        pub step_name: Box<str>,
    }
    /// A step ended.
    StepFinished part {
        /// Which.
        pub step_name: Box<str>,
    }
    /// Opens a span of reasoning.
    ReasoningStart part {
        /// The span.
        pub message_id: Box<str>,
    }
    /// Opens a message of reasoning.
    ReasoningMessageStart part {
        /// Which.
        pub message_id: Box<str>,
        /// Always reasoning.
        #[serde(default)]
        pub role: ReasoningRole,
    }
    /// More reasoning.
    ReasoningMessageContent part {
        /// Which.
        pub message_id: Box<str>,
        /// To be appended.
        pub delta: Box<str>,
    }
    /// Closes a message of reasoning.
    ReasoningMessageEnd part {
        /// Which.
        pub message_id: Box<str>,
    }
    /// Start, content and end in one.
    ReasoningMessageChunk part {
        /// Which; the open one when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub message_id: Option<Box<str>>,
        /// To be appended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub delta: Option<Box<str>>,
    }
    /// Closes a span of reasoning.
    ReasoningEnd part {
        /// The span.
        pub message_id: Box<str>,
    }
    /// What only the provider can read of a message or a call.
    ReasoningEncryptedValue part {
        /// What it belongs to.
        pub subtype: EncryptedSubtype,
        /// Which of them.
        pub entity_id: Box<str>,
        /// The value.
        pub encrypted_value: Box<str>,
    }
    /// A sub-agent began.
    SubagentStarted run {
        /// Which; an id names one invocation.
        pub subagent_run_id: Box<str>,
        /// What it is called.
        pub name: Box<str>,
        /// What it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub description: Option<Box<str>>,
        /// The sub-agent that called it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub parent_subagent_run_id: Option<Box<str>>,
        /// The call that it serves.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub parent_tool_call_id: Option<Box<str>>,
        /// The message that asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub parent_message_id: Option<Box<str>>,
    }
    /// A sub-agent ended.
    SubagentFinished run {
        /// Which.
        pub subagent_run_id: Box<str>,
        /// What came of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub result: Option<Value>,
        /// How it ended; as a success when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub outcome: Option<SubagentOutcome>,
    }
    /// A sub-agent could not go on.
    SubagentError run {
        /// Which.
        pub subagent_run_id: Box<str>,
        /// Why.
        pub message: Box<str>,
        /// What kind of failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub code: Option<Box<str>>,
    }
}

/// Who speaks in a streamed text message.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "each name says all there is to say")]
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
    /// It came to its end, or waits for the client's tools.
    Success {
        /// The calls that the client has to answer.
        #[serde(default, deserialize_with = "input::list", skip_serializing_if = "Vec::is_empty")]
        pending_tool_call_ids: Vec<Box<str>>,
    },
    /// It waits for somebody.
    Interrupt {
        /// What for; at least one.
        interrupts: Vec<Interrupt>,
    },
    /// Somebody stopped it.
    Cancelled {},
}

/// How a sub-agent ended.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase", rename_all_fields = "camelCase")]
pub enum SubagentOutcome {
    /// It came to its end.
    Success {},
    /// It goes on when the run does.
    Suspended {
        /// What it waits for.
        #[serde(default, deserialize_with = "input::list", skip_serializing_if = "Vec::is_empty")]
        interrupt_ids: Vec<Box<str>>,
    },
}

/// What a run waits for.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interrupt {
    /// What an answer names.
    pub id: Box<str>,
    /// `tool_call`, `input_required`, `confirmation`, or the producer's own.
    pub reason: Box<str>,
    /// What a person reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<str>>,
    /// The call that waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<Box<str>>,
    /// The JSON schema of an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Map<String, Value>>,
    /// Until when, in ISO 8601.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Box<str>>,
    /// Extra information.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// The sub-agent that asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subagent_run_id: Option<Box<str>>,
}

/// What one model cost.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenUsage {
    /// Who was paid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<Box<str>>,
    /// For which model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// Tokens read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Tokens written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_tokens: Option<u64>,
    /// Of those written, the reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
    /// Of those read, the ones from a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input_tokens: Option<u64>,
    /// Of those read, the ones put into a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_input_tokens: Option<u64>,
}
