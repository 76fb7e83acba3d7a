//! The messages on the socket, in both directions. Events that are the same as in AG-UI use its
//! [types](crate::ag_ui::types).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ag_ui::types::{Metadata, RunAgentInput, TokenUsage, Tool};

/// The agents that a client can choose from; sent when it connects.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Agents {
    /// In the order in which they are offered.
    pub agents: Vec<AgentInfo>,
    /// The agent of a request that names no agent.
    pub default_agent: Box<str>,
}

/// An agent.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct AgentInfo {
    /// The id that a request names.
    pub id: Box<str>,
    /// The name for people.
    pub name: Box<str>,
    /// A description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotation: Option<Box<str>>,
}

/// The server's features; sent when a client connects.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// Whether clients offer to rate answers. use-ai keeps ratings in Langfuse; we keep them
    /// with the run.
    pub langfuse_enabled: bool,
}

/// The wrapper of [`Agents`] and [`Config`] on the plain WebSocket.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Custom<T> {
    /// Always `CUSTOM`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `agents` or `config`.
    pub name: &'static str,
    /// The payload of the Socket.IO event of that name.
    pub value: T,
}

impl<T> Custom<T> {
    /// A CUSTOM event.
    pub fn new(name: &'static str, value: T) -> Self {
        Self { kind: "CUSTOM", name, value }
    }
}

/// A step began: `STEP_STARTED`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepStarted {
    /// Always `STEP_STARTED`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// AG-UI's name of the step.
    pub step_name: Box<str>,
    /// Counted from 0.
    pub step_number: u64,
    /// The sub-agent that it belongs to; `None` for the agent itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subagent_run_id: Option<Box<str>>,
    /// As in AG-UI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
}

/// A step ended: `STEP_FINISHED`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepFinished {
    /// Always `STEP_FINISHED`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// AG-UI's name of the step.
    pub step_name: Box<str>,
    /// Counted from 0.
    pub step_number: u64,
    /// The step's token usage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Value>,
    /// `stop`, `tool-calls`, `length`, `content-filter`, `other` or the provider's own word;
    /// `None` for a step that broke off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<Box<str>>,
    /// The sub-agent that it belongs to; `None` for the agent itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subagent_run_id: Option<Box<str>>,
}

/// A run ended without an answer, or a message was refused: `RUN_ERROR`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunError {
    /// Always `RUN_ERROR`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `API_OVERLOADED`, `RATE_LIMITED`, `UNKNOWN_ERROR`, or `Run aborted by user`.
    pub message: &'static str,
    /// The text for people.
    pub error: Box<str>,
    /// A stable code, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Box<str>>,
    /// The usage per model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<TokenUsage>,
    /// As in AG-UI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// The run, if the run itself did not emit this error. Otherwise `None`, because the dialect
    /// adds the run's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<Box<str>>,
}

/// A call waits for approval: `TOOL_APPROVAL_REQUEST`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolApprovalRequest {
    /// Always `TOOL_APPROVAL_REQUEST`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The id that the answer names: the call's, or the question's if it belongs to no call.
    pub tool_call_id: Box<str>,
    /// The tool; empty without a call.
    pub tool_call_name: Box<str>,
    /// Its arguments; an empty object without a call.
    pub tool_call_args: Value,
    /// The tool's title and kind, and the prompt for people.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub annotations: Map<String, Value>,
}

/// A request to run an agent: AG-UI's, with media in use-ai's form.
#[derive(Clone, Debug, PartialEq)]
pub struct RunAgent {
    /// The request in AG-UI's form.
    pub input: RunAgentInput,
    /// The agent that the client chose.
    pub agent: Option<Box<str>>,
}

/// The result of a client's tool, sent while the run is waiting.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// The id of the message that the client stores it as.
    #[serde(default)]
    pub message_id: Option<Box<str>>,
    /// The call.
    pub tool_call_id: Box<str>,
    /// The result, usually as JSON text.
    pub content: String,
    /// The error message, if the call failed.
    #[serde(default)]
    pub error: Option<Box<str>>,
    /// Changes in the client since its request.
    #[serde(default)]
    pub forwarded_props: Option<ToolResultProps>,
}

/// Changes that a client sends with the result of a tool.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub struct ToolResultProps {
    /// The client's tools from now on; `None` if unchanged.
    #[serde(default)]
    pub tools: Option<Vec<Tool>>,
    /// The client's state; `None` if unchanged.
    #[serde(default)]
    pub state: Option<Value>,
}

/// A request to stop a run.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct AbortRun {
    /// The run; if absent, all runs of this socket.
    pub run_id: Option<Box<str>>,
}

/// The answer to a [`ToolApprovalRequest`].
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ToolApprovalResponse {
    /// The id that the request named.
    pub tool_call_id: Box<str>,
    /// Whether the tool may run.
    pub approved: bool,
    /// The reason for a denial.
    #[serde(default)]
    pub reason: Option<Box<str>>,
}

/// A rating of an answer.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MessageFeedback {
    /// The rated message.
    pub message_id: Box<str>,
    /// The trace of the message, if the client knows it.
    #[serde(default)]
    pub trace_id: Option<Box<str>>,
    /// `upvote`, `downvote`, or `null` to remove the rating.
    pub feedback: Option<Box<str>>,
}

/// A request to run a workflow.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RunWorkflow {
    /// The system that runs it, such as `dify`.
    pub runner: Box<str>,
    /// The workflow's id in that system.
    pub workflow_id: Box<str>,
    /// Its inputs.
    #[serde(default)]
    pub inputs: Map<String, Value>,
    /// Tools that run in the client.
    #[serde(default)]
    pub tools: Option<Vec<Tool>>,
    /// The client's id of the run.
    #[serde(default)]
    pub run_id: Box<str>,
    /// The client's id of the thread.
    #[serde(default)]
    pub thread_id: Box<str>,
    /// Properties for the workflow, passed through.
    #[serde(default)]
    pub forwarded_props: Option<Value>,
}
