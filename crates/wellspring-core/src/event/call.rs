//! Calls: a tool that is called, what is seen of it while it runs, and how it ended.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::ToolContent;
use crate::id::InboxNo;
use crate::present::present;

/// Which tool is wanted, and where it runs.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ToolCall {
    /// The tool's name.
    pub name: Box<str>,
    /// What a person would call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Box<str>>,
    /// What sort of thing it does.
    #[serde(default)]
    pub kind: ToolKind,
    /// Where it runs.
    #[serde(default)]
    pub runs_on: RunsOn,
}

/// What sort of thing a tool does; surfaces choose an icon by it.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each name says all there is to say")]
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
    /// In the page or the program that asked; the run pauses for it.
    Client,
    /// At the model's provider.
    Provider,
    /// Inside a remote agent.
    Agent,
}

impl RunsOn {
    /// Whether the engine sees to the result, here or through the client; otherwise whoever
    /// runs the tool reports it.
    #[must_use]
    pub const fn is_ours(self) -> bool {
        match self {
            Self::Here | Self::Client => true,
            Self::Provider | Self::Agent => false,
        }
    }
}

/// Where a call writes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each name says all there is to say")]
pub enum OutputStream {
    Stdout,
    Stderr,
    Terminal,
}

/// Beside others, or alone.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolMode {
    /// Together with other calls.
    #[default]
    Parallel,
    /// With no other call beside it.
    Sequential,
}

/// What changed about a running call; absent fields did not.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ToolUpdate {
    /// What it does now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Box<str>>,
    /// The files it touches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locations: Vec<Location>,
    /// What it shows.
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

/// How an update changes what a call shows.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentChange {
    /// After what is there.
    Append(Vec<ToolContent>),
    /// Instead of what is there.
    Replace(Vec<ToolContent>),
}

/// How a call went.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOutcome {
    /// It did what it should.
    Ok,
    /// It said why not.
    Error,
    /// Somebody, or the policy, did not allow it.
    Denied,
    /// Nobody knows: it was cut short, or its process died.
    Interrupted,
    /// It took too long.
    TimedOut,
}

/// The one result of a call.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ToolResult {
    /// What the model is told. A string goes as it is, anything else as JSON.
    #[serde(default)]
    pub output: Value,
    /// What people see, where that differs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<ToolContent>,
    /// The inbox entry that brought it, when it came from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbox: Option<InboxNo>,
}

impl ToolResult {
    /// A result that says just this.
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
