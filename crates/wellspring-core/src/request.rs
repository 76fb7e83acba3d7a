//! The request of a run. It is stored in the log, so that any node that adopts the run knows
//! it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::content::Content;
use crate::tool::ToolSpec;

/// A run's request: the input and its options.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct RunRequest {
    /// The user's input.
    #[serde(default)]
    pub input: Vec<Content>,
    /// The input by name, such as a workflow's variables. Agents that only read text get the same
    /// in [`input`](Self::input).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Map<String, Value>>,
    /// The principal that started the run, who may also answer its questions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Box<str>>,
    /// Another model of the agent's provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// Whether the model streams; `None` for the agent's own setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streaming: Option<bool>,
    /// The JSON schema of the typed result; `None` without a typed result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_schema: Option<Value>,
    /// Tools that run in the client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_tools: Vec<ToolSpec>,
    /// Facts from the client in addition to the input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<ContextNote>,
    /// The initial state that is shared between the client and the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Value>,
    /// The working directory: remote agents work in it, and file tools resolve paths
    /// against it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Box<str>>,
    /// The trace id of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<Box<str>>,
    /// The caller's span, as a [`traceparent`](https://www.w3.org/TR/trace-context/) header:
    /// the parent of the run's spans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_parent: Option<Box<str>>,
    /// The client's own ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<Box<WireNames>>,
}

/// The client's own ids of the thread, the run and the input, if its protocol has any.
/// Everything that is sent back to the client uses them.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct WireNames {
    /// The thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<Box<str>>,
    /// The run. A resume may change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Box<str>>,
    /// The message that holds the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Box<str>>,
    /// The run that this one continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Box<str>>,
}

/// Changes that a client makes to a request after the run has started. Fields that are `None`
/// do not change.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Amendment {
    /// The tools that run in the client from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_tools: Option<Vec<ToolSpec>>,
    /// The facts from the client from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Vec<ContextNote>>,
    /// The client's own id of the run that this one continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_parent: Option<Box<str>>,
}

impl Amendment {
    /// Applies the changes to a request.
    pub fn apply(&self, request: &mut RunRequest) {
        let Self { client_tools, context, wire_parent: _ } = self.clone();
        request.client_tools = client_tools.unwrap_or(std::mem::take(&mut request.client_tools));
        request.context = context.unwrap_or(std::mem::take(&mut request.context));
    }
}

impl RunRequest {
    /// A request with this text as its input.
    #[must_use]
    pub fn text(input: impl Into<Box<str>>) -> Self {
        Self { input: vec![Content::text(input)], ..Self::default() }
    }
}

/// A fact from the client.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ContextNote {
    /// What the fact is about.
    pub description: Box<str>,
    /// The fact.
    pub value: Box<str>,
}
