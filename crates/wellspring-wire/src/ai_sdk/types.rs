//! The protocol's types, with its own names.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A part of a UI message stream.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the protocol's own names")]
pub enum UiMessageChunk {
    Start {
        message_id: Box<str>,
        message_metadata: Value,
    },
    Finish {
        finish_reason: FinishReason,
        message_metadata: Value,
    },
    Abort {
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<Box<str>>,
    },
    MessageMetadata {
        message_metadata: Value,
    },
    Error {
        error_text: Box<str>,
    },
    StartStep,
    FinishStep,
    ResetStep,
    TextStart {
        id: Box<str>,
    },
    TextDelta {
        id: Box<str>,
        delta: Box<str>,
    },
    TextEnd {
        id: Box<str>,
    },
    ReasoningStart {
        id: Box<str>,
    },
    ReasoningDelta {
        id: Box<str>,
        delta: Box<str>,
    },
    ReasoningEnd {
        id: Box<str>,
    },
    ToolInputStart {
        tool_call_id: Box<str>,
        tool_name: Box<str>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        provider_executed: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        tool_metadata: Option<Value>,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<Box<str>>,
    },
    ToolInputDelta {
        tool_call_id: Box<str>,
        input_text_delta: Box<str>,
    },
    ToolInputAvailable {
        tool_call_id: Box<str>,
        tool_name: Box<str>,
        input: Value,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        provider_executed: bool,
    },
    ToolInputError {
        tool_call_id: Box<str>,
        tool_name: Box<str>,
        input: Value,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        provider_executed: bool,
        error_text: Box<str>,
    },
    ToolApprovalRequest {
        approval_id: Box<str>,
        tool_call_id: Box<str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<Box<str>>,
    },
    ToolApprovalResponse {
        approval_id: Box<str>,
        approved: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<Box<str>>,
    },
    ToolOutputAvailable {
        tool_call_id: Box<str>,
        output: Value,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        preliminary: bool,
    },
    ToolOutputError {
        tool_call_id: Box<str>,
        error_text: Box<str>,
    },
    ToolOutputDenied {
        tool_call_id: Box<str>,
    },
    SourceUrl {
        source_id: Box<str>,
        url: Box<str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<Box<str>>,
    },
    SourceDocument {
        source_id: Box<str>,
        media_type: Box<str>,
        title: Box<str>,
    },
    File {
        url: Box<str>,
        media_type: Box<str>,
    },
    SteeringMessage {
        id: Box<str>,
        parts: Vec<UserPart>,
    },
    #[serde(untagged)]
    Data(DataPart),
}

/// An application-specific part: `data-NAME`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataPart {
    /// `data-` and its name.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The part's id. A part with the same type and id is replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Box<str>>,
    /// Any JSON.
    pub data: Value,
    /// Whether the part is not kept in the message.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub transient: bool,
}

/// Why a message is finished.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the protocol's own names")]
pub enum FinishReason {
    Stop,
    Length,
    ContentFilter,
    ToolCalls,
    Other,
}

/// A part of a user message that is read.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the protocol's own names")]
pub enum UserPart {
    Text {
        text: Box<str>,
    },
    File {
        media_type: Box<str>,
        url: Box<str>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filename: Option<Box<str>>,
    },
}

/// A client's request.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ChatRequest {
    /// The chat's id: our thread.
    pub id: Box<str>,
    /// The whole conversation, as the client has it.
    pub messages: Vec<UiMessage>,
    /// Why the request was sent.
    #[serde(default)]
    pub trigger: Trigger,
    /// The message to regenerate, or that was answered or edited.
    #[serde(default)]
    pub message_id: Option<Box<str>>,
    /// Tools that run in the page, if the application sends them in the `body`.
    #[serde(default)]
    pub tools: Vec<PageTool>,
    /// Another model of the agent's provider, if the application sends one in the `body`.
    #[serde(default)]
    pub model: Option<Box<str>>,
    /// Answers to `data-question` parts, if the application sends any in the `body`.
    #[serde(default)]
    pub answers: Vec<QuestionAnswer>,
}

/// The answer to a `data-question` part. The protocol itself only has answers to calls and
/// approvals.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct QuestionAnswer {
    /// The part's id.
    pub id: Box<str>,
    /// The answer, in the form of `data.answer` in an answered part.
    pub answer: Value,
}

/// Why a request was sent.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum Trigger {
    /// The user sent a message, or the page has answers.
    #[default]
    SubmitMessage,
    /// The last answer is to be generated again.
    RegenerateMessage,
}

/// A message as a client has it.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct UiMessage {
    /// Its id.
    #[serde(default)]
    pub id: Box<str>,
    /// The role of its author.
    pub role: Role,
    /// Its parts. Most are history, and are not read.
    #[serde(default)]
    pub parts: Vec<Value>,
}

/// The role of a message's author.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the protocol's own names")]
pub enum Role {
    System,
    User,
    Assistant,
}

/// A tool that runs in the page.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PageTool {
    /// The name that the model calls.
    pub name: Box<str>,
    /// What it does, for the model to read.
    #[serde(default)]
    pub description: Box<str>,
    /// The JSON schema of its arguments.
    #[serde(default, alias = "parameters")]
    pub input_schema: Option<Value>,
}

/// The tool part of an assistant message, if it holds an answer.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(tag = "state", rename_all = "kebab-case", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the protocol's own names")]
pub enum ToolAnswer {
    OutputAvailable {
        tool_call_id: Box<str>,
        #[serde(default)]
        output: Value,
        #[serde(default)]
        preliminary: bool,
    },
    OutputError {
        tool_call_id: Box<str>,
        #[serde(default)]
        error_text: Box<str>,
    },
    ApprovalResponded {
        approval: Approval,
    },
}

/// A user's decision about a call.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[expect(missing_docs, reason = "the protocol's own names")]
pub struct Approval {
    pub id: Box<str>,
    pub approved: bool,
    #[serde(default)]
    pub reason: Option<Box<str>>,
}
