//! Tools: what an agent can do besides talking.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::context::Context;
use crate::event::{RunsOn, ToolKind, ToolMode, ToolResult};

/// The name of the tool by which an agent returns its typed result. Surfaces do not show it:
/// the result is an event of its own.
pub const RETURN_RESULT: &str = "return_result";

/// Something an agent can do.
///
/// # Contract
///
/// 1. Do nothing before the returned future is polled: the call is committed to the log first.
/// 2. Report progress through the [`Context`], and return exactly one result.
/// 3. End soon after [`Context::signal`] is cancelled, and at once when dropped: leave no
///    process and no task behind.
/// 4. Say in [`ToolSpec::idempotent`] whether running twice with the same arguments is the
///    same as running once; after a crash only such a call is run again.
pub trait Tool: Send + Sync {
    /// What the model and the engine need to know.
    fn spec(&self) -> &ToolSpec;

    /// Together with other calls, or alone. A tool may look at the arguments to let a call run
    /// alone.
    fn mode(&self, _arguments: &Value) -> ToolMode {
        self.spec().mode
    }

    /// Among waiting sequential calls, the highest goes first. A tool may look at the
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
    /// The name by which the model calls it.
    pub name: Box<str>,
    /// What it does, for the model to read.
    #[serde(default)]
    pub description: Box<str>,
    /// The JSON schema of its arguments.
    #[serde(default)]
    pub parameters: Arc<Value>,
    /// A title for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Box<str>>,
    /// Read, edit, execute and so on.
    #[serde(default)]
    pub kind: ToolKind,
    /// Where it runs.
    #[serde(default)]
    pub runs_on: RunsOn,
    /// Together with other calls, or alone.
    #[serde(default)]
    pub mode: ToolMode,
    /// Among waiting sequential calls, the highest goes first.
    #[serde(default)]
    pub priority: i32,
    /// Whether running twice is the same as running once.
    #[serde(default)]
    pub idempotent: bool,
    /// Whether it may run without asking; `None` to decide by its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// Its time limits.
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

    /// The tool's own setting, or else the default of its kind: tools that can change things
    /// ask first.
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
    /// It runs without asking.
    Allow,
    /// It runs after a person approved it.
    Ask,
    /// It never runs.
    Deny,
}

/// Time limits of a call; the engine's own where absent.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct ToolTimeouts {
    /// Without any progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Duration>,
    /// In total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Duration>,
}

/// A tool failed. The message is for the model and for people.
///
/// Any error becomes one by `?`; its message then has the messages of its sources, too. For that
/// it is not a [`std::error::Error`] itself.
#[derive(Debug)]
pub struct ToolError {
    message: Box<str>,
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for ToolError {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            message.push_str(&format!(": {error}"));
            source = error.source();
        }
        Self { message: message.into(), cause: Some(Box::new(error)) }
    }
}

/// So that `?` makes a program's own error of it.
impl From<ToolError> for Box<dyn std::error::Error + Send + Sync> {
    fn from(error: ToolError) -> Self {
        Box::new(Failed(error))
    }
}

impl From<ToolError> for Box<dyn std::error::Error> {
    fn from(error: ToolError) -> Self {
        Box::new(Failed(error))
    }
}

/// A tool's error outside of tools.
#[derive(Debug)]
struct Failed(ToolError);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Failed {}

impl ToolError {
    /// An error that says what went wrong and, if the model can do something about it, what.
    #[must_use]
    pub fn new(message: impl Into<Box<str>>) -> Self {
        Self { message: message.into(), cause: None }
    }

    /// The error that it was made from, if any.
    #[must_use]
    pub fn cause(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.cause.as_deref()
    }

    /// Wraps an error of something that the tool used. The message names both.
    #[must_use]
    pub fn because(
        message: impl fmt::Display,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        let cause = cause.into();
        Self { message: format!("{message}: {cause}").into(), cause: Some(cause) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_error_becomes_a_tools_error_by_the_question_mark() {
        fn read() -> Result<u32, ToolError> {
            let text = std::str::from_utf8(b"4x")?;
            Ok(text.parse::<u32>()?)
        }
        assert_eq!(read().unwrap_err().to_string(), "invalid digit found in string");
        let io = || -> Result<(), ToolError> { Err(std::io::Error::other("disk on fire"))? };
        let error = io().unwrap_err();
        assert_eq!(error.to_string(), "disk on fire");
        assert!(error.cause().is_some_and(|cause| cause.is::<std::io::Error>()));
        let program = || -> Result<(), Box<dyn std::error::Error>> { Ok(io()?) };
        assert_eq!(program().unwrap_err().to_string(), "disk on fire");
    }
}
