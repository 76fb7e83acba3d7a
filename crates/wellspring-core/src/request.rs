//! What a run was asked to do. It is part of the log, so that whoever adopts the run
//! knows the conditions under which it began.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::Content;
use crate::tool::ToolSpec;

/// What was asked, and under which conditions.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct RunRequest {
    /// What the user says.
    #[serde(default)]
    pub input: Vec<Content>,
    /// Who asks; an answer to a question counts from the same person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Box<str>>,
    /// Another model of the agent's provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// Whether the model streams; the agent's own setting when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streaming: Option<bool>,
    /// The JSON schema of the typed result, when one is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_schema: Option<Value>,
    /// Tools that run in the client.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_tools: Vec<ToolSpec>,
    /// What the client wants the agent to know besides the input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<ContextNote>,
    /// The state shared with the screen, as it is at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Value>,
    /// The directory that the request is about: where an agent works that has a directory, and
    /// where tools look that go by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Box<str>>,
    /// The trace that the run belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<Box<str>>,
    /// The span that asked, as [`traceparent`](https://www.w3.org/TR/trace-context/) says it:
    /// the run's spans lie below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_parent: Option<Box<str>>,
    /// What the asker's own protocol calls it all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<Box<WireNames>>,
}

/// What the asker's own protocol calls the thread, the run and the input, where these are not
/// our ids: what is said back to the asker must use the asker's names.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct WireNames {
    /// The thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<Box<str>>,
    /// The run, until it is resumed under another id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Box<str>>,
    /// The message that is the input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Box<str>>,
    /// The run that the asker continues with it, where the asker says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Box<str>>,
}

/// What a client says anew of a request when it lets the paused run go on. What is absent stays
/// as it was.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Amendment {
    /// The tools that run in the client now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_tools: Option<Vec<ToolSpec>>,
    /// What the client wants the agent to know now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<Vec<ContextNote>>,
    /// The run that the asker's own protocol continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_parent: Option<Box<str>>,
}

impl Amendment {
    /// Changes a request accordingly.
    pub fn apply(&self, request: &mut RunRequest) {
        let Self { client_tools, context, wire_parent: _ } = self.clone();
        request.client_tools = client_tools.unwrap_or(std::mem::take(&mut request.client_tools));
        request.context = context.unwrap_or(std::mem::take(&mut request.context));
    }
}

impl RunRequest {
    /// A request that says just this.
    #[must_use]
    pub fn text(input: impl Into<Box<str>>) -> Self {
        Self { input: vec![Content::text(input)], ..Self::default() }
    }
}

/// Something the client wants the agent to know.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ContextNote {
    /// What it is.
    pub description: Box<str>,
    /// What it says.
    pub value: Box<str>,
}
