//! What is said on the socket, both ways. Events that are as in AG-UI have its
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
    /// What a request names it by.
    pub id: Box<str>,
    /// What people read.
    pub name: Box<str>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotation: Option<Box<str>>,
}

/// What the server can do; sent when a client connects.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Config {
    /// Whether clients offer to rate answers. use-ai keeps ratings in Langfuse; we keep them
    /// with the run.
    pub langfuse_enabled: bool,
}

/// What the plain WebSocket wraps [`Agents`] and [`Config`] in.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Custom<T> {
    /// Always `CUSTOM`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `agents` or `config`.
    pub name: &'static str,
    /// What the Socket.IO event of that name has.
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
    /// The tokens that it cost.
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
    /// What people read.
    pub error: Box<str>,
    /// For programs: stable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Box<str>>,
    /// What the run cost, per model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub usage: Vec<TokenUsage>,
    /// As in AG-UI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// The run, where the event does not come from the run itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<Box<str>>,
}

/// A call waits for a person's yes: `TOOL_APPROVAL_REQUEST`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolApprovalRequest {
    /// Always `TOOL_APPROVAL_REQUEST`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What the answer names: the call, or the question if it is about no call.
    pub tool_call_id: Box<str>,
    /// The tool; empty without a call.
    pub tool_call_name: Box<str>,
    /// Its arguments; an empty object without a call.
    pub tool_call_args: Value,
    /// The tool's title and kind, and what a person is asked.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub annotations: Map<String, Value>,
}

/// A request to run an agent: AG-UI's, with media in use-ai's form.
#[derive(Clone, Debug, PartialEq)]
pub struct RunAgent {
    /// As AG-UI has it.
    pub input: RunAgentInput,
    /// The agent that the client chose.
    pub agent: Option<Box<str>>,
}

/// The result of a client's tool, in mid-run.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// The message that the client makes of it.
    #[serde(default)]
    pub message_id: Option<Box<str>>,
    /// The call.
    pub tool_call_id: Box<str>,
    /// The result, mostly as JSON.
    pub content: String,
    /// Why the call failed.
    #[serde(default)]
    pub error: Option<Box<str>>,
    /// What changed in the client since its request.
    #[serde(default)]
    pub forwarded_props: Option<ToolResultProps>,
}

/// What a client says with the result of a tool.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
pub struct ToolResultProps {
    /// The client's tools from now on.
    #[serde(default)]
    pub tools: Option<Vec<Tool>>,
    /// The client's state.
    #[serde(default)]
    pub state: Option<Value>,
}

/// A request to stop a run.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct AbortRun {
    /// The run; all of this socket's if absent.
    pub run_id: Option<Box<str>>,
}

/// The answer to a [`ToolApprovalRequest`].
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ToolApprovalResponse {
    /// What the request named.
    pub tool_call_id: Box<str>,
    /// Whether the tool may run.
    pub approved: bool,
    /// Why not.
    #[serde(default)]
    pub reason: Option<Box<str>>,
}

/// A rating of an answer.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MessageFeedback {
    /// The message that is rated.
    pub message_id: Box<str>,
    /// The trace that it belongs to, if the client knows it.
    #[serde(default)]
    pub trace_id: Option<Box<str>>,
    /// `upvote`, `downvote`, or `null` to take it back.
    pub feedback: Option<Box<str>>,
}

/// A request to run a workflow.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RunWorkflow {
    /// What runs it, such as `dify`.
    pub runner: Box<str>,
    /// Which workflow of it.
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
    /// For the workflow, passed through.
    #[serde(default)]
    pub forwarded_props: Option<Value>,
}
