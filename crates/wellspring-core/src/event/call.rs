//! Tool calls: the tool, its progress and its result.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::ToolContent;
use crate::id::InboxNo;
use crate::nullable::present;

/// The called tool, and where it runs.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ToolCall {
    /// The tool's name.
    pub name: Box<str>,
    /// The id that a remote agent gave the call; `None` for calls that the engine runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Box<str>>,
    /// A title for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Box<str>>,
    /// Read, edit, execute and so on.
    #[serde(default)]
    pub kind: ToolKind,
    /// Where it runs.
    #[serde(default)]
    pub runs_on: RunsOn,
}

/// The kind of a tool; surfaces choose an icon by it, and the default policy looks at it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are enough")]
pub enum ToolKind {
    Read,
    Edit,
    Delete,
    Move,
    Search,
    Execute,
    Think,
    Fetch,
    SwitchMode,
    #[default]
    Other,
}

/// Where a tool runs.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunsOn {
    /// In this process.
    #[default]
    Here,
    /// In the client that started the run; the run pauses for its result.
    Client,
    /// At the model's provider.
    Provider,
    /// Inside a remote agent.
    Agent,
}

impl RunsOn {
    /// Whether the engine provides the result, by running the tool or through the client. For
    /// other calls, the provider or remote agent that runs the tool reports it.
    #[must_use]
    pub const fn is_ours(self) -> bool {
        match self {
            Self::Here | Self::Client => true,
            Self::Provider | Self::Agent => false,
        }
    }
}

/// The stream that a call writes output to.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are enough")]
pub enum OutputStream {
    Stdout,
    Stderr,
    Terminal,
}

/// Whether calls may run at the same time.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolMode {
    /// Together with other parallel calls.
    #[default]
    Parallel,
    /// Alone.
    Sequential,
}

/// Progress of a running call. Absent fields are unchanged.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ToolUpdate {
    /// The new title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Box<str>>,
    /// The files it touches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<Location>,
    /// New content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<ContentChange>,
    /// Progress in the tool's own shape.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

/// A place in a file.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Location {
    /// The file.
    pub path: Box<str>,
    /// The line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

/// How an update changes the content of a call.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentChange {
    /// Append to the content.
    Append(Vec<ToolContent>),
    /// Replace the content.
    Replace(Vec<ToolContent>),
}

/// How a call ended.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    /// It succeeded.
    Ok,
    /// It failed; the result says why.
    Error,
    /// The policy or a person denied it.
    Denied,
    /// It was cut off, or its process died: whether it had an effect is unknown.
    Interrupted,
    /// It took too long.
    TimedOut,
}

/// The one result of a call.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ToolResult {
    /// The output for the model. A string is sent as text, any other value as JSON.
    #[serde(default)]
    pub output: Value,
    /// What people see, if it differs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<ToolContent>,
    /// Whether the tool itself stated that it did not fail. A tool that states nothing has
    /// succeeded too; some vocabularies distinguish the two.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stated_success: bool,
    /// The inbox entry that brought it, for calls that run in the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbox: Option<InboxNo>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_false(it: &bool) -> bool {
    !it
}

impl ToolResult {
    /// A result with this output.
    #[must_use]
    pub fn new(output: impl Into<Value>) -> Self {
        Self { output: output.into(), ..Self::default() }
    }

    /// The output as the model reads it.
    #[must_use]
    pub fn output_text(&self) -> std::borrow::Cow<'_, str> {
        match &self.output {
            Value::String(text) => text.as_str().into(),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => self.output.to_string().into(),
        }
    }
}
