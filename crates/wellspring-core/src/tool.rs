//! Tools: what an agent can do besides talking.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::context::Context;
use crate::event::{RunsOn, ToolKind, ToolMode, ToolResult};

/// The tool by which an agent hands over its typed result. Surfaces that show tools to people
/// leave it out: the result is an event of its own.
pub const RETURN_RESULT: &str = "return_result";

/// Something an agent can do.
///
/// # Contract
///
/// 1. Do nothing before the returned future is polled: the call is committed to the log first.
/// 2. Report progress through the [`Context`], and return exactly one result.
/// 3. Treat a cancelled [`Context::signal`] as a wish to end soon, and being dropped as
///    the end: leave no process and no task behind.
/// 4. Say in [`ToolSpec::idempotent`] whether running twice with the same arguments is the
///    same as running once; after a crash only such a call is run again.
pub trait Tool: Send + Sync {
    /// What the model and the engine need to know.
    fn spec(&self) -> &ToolSpec;

    /// Among waiting sequential calls, the higher goes first. A tool may look at the
    /// arguments to let one call overtake others.
    fn priority(&self, _arguments: &Value) -> i32 {
        self.spec().priority
    }

    /// Runs one call. The arguments fit the spec's schema.
    fn call(
        &self,
        arguments: Value,
        context: Context,
    ) -> BoxFuture<'_, Result<ToolResult, ToolError>>;
}

/// What the model and the engine need to know about a tool.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ToolSpec {
    /// How the model calls it.
    pub name: Box<str>,
    /// What it does, in the words the model reads.
    #[serde(default)]
    pub description: Box<str>,
    /// The JSON schema of its arguments.
    #[serde(default)]
    pub parameters: Arc<Value>,
    /// What a person would call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Box<str>>,
    /// What sort of thing it does.
    #[serde(default)]
    pub kind: ToolKind,
    /// Where it runs.
    #[serde(default)]
    pub runs_on: RunsOn,
    /// Beside other calls, or alone.
    #[serde(default)]
    pub mode: ToolMode,
    /// Among waiting sequential calls, the higher goes first.
    #[serde(default)]
    pub priority: i32,
    /// Whether running twice is the same as running once.
    #[serde(default)]
    pub idempotent: bool,
    /// Whether it may run without asking; by its kind when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// How long it may take.
    #[serde(default)]
    pub timeouts: ToolTimeouts,
}

impl ToolSpec {
    /// A tool that takes any object.
    #[must_use]
    pub fn new(name: impl Into<Box<str>>, description: impl Into<Box<str>>) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            parameters: Arc::new(serde_json::json!({"type": "object"})),
            ..Self::default()
        }
    }

    /// The tool's own wish: what was set, or else what its kind suggests. What can change
    /// things asks first.
    #[must_use]
    pub fn approval(&self) -> Approval {
        self.approval.unwrap_or(match self.kind {
            ToolKind::Edit | ToolKind::Delete | ToolKind::Move | ToolKind::Execute => Approval::Ask,
            ToolKind::Read
            | ToolKind::Search
            | ToolKind::Think
            | ToolKind::Fetch
            | ToolKind::SwitchMode
            | ToolKind::Other => Approval::Allow,
        })
    }
}

/// Whether a call may run.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    /// Without asking.
    Allow,
    /// After somebody said yes.
    Ask,
    /// Never.
    Deny,
}

/// How long a call may take; the engine's own limits where absent.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct ToolTimeouts {
    /// Without any progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Duration>,
    /// In all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Duration>,
}

/// A tool could not do it. The message is for the model as much as for people.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ToolError {
    message: Box<str>,
    #[source]
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl ToolError {
    /// Says what went wrong and, if the model can do something about it, what.
    #[must_use]
    pub fn new(message: impl Into<Box<str>>) -> Self {
        Self { message: message.into(), cause: None }
    }

    /// Wraps the error of something the tool used. The message names both.
    #[must_use]
    pub fn because(
        message: impl fmt::Display,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        let cause = cause.into();
        Self { message: format!("{message}: {cause}").into(), cause: Some(cause) }
    }
}
