//! Tools: the actions of an agent.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::context::Context;
use crate::event::{RunsOn, ToolKind, ToolMode, ToolResult};

/// The name of the tool by which an agent returns its typed result. Surfaces do not show its
/// calls, because the result is an event of its own.
pub const RETURN_RESULT: &str = "return_result";

/// A tool that agents can call.
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
    /// The tool's description for the model and the engine.
    fn spec(&self) -> &ToolSpec;

    /// Whether a call may run concurrently with others. A tool may decide by the arguments.
    fn mode(&self, _arguments: &Value) -> ToolMode {
        self.spec().mode
    }

    /// The priority among waiting sequential calls; the highest runs first. A tool may decide
    /// by the arguments.
    fn priority(&self, _arguments: &Value) -> i32 {
        self.spec().priority
    }

    /// Runs one call. The arguments match the spec's schema.
    fn call(
        &self,
        arguments: Value,
        context: Context,
    ) -> BoxFuture<'_, Result<ToolResult, ToolError>>;
}

/// The description of a tool for the model and the engine.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct ToolSpec {
    /// The name that the model calls.
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
    /// Whether calls may run concurrently.
    #[serde(default)]
    pub mode: ToolMode,
    /// The priority among waiting sequential calls; the highest runs first.
    #[serde(default)]
    pub priority: i32,
    /// Whether running it twice with the same arguments has the same effect as running it once.
    #[serde(default)]
    pub idempotent: bool,
    /// Whether it may run without approval; `None` to decide by its kind.
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

    /// The tool's own setting, or the default for its kind: tools that can change things ask
    /// first.
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

/// Time limits of a call; `None` for the engine's own.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct ToolTimeouts {
    /// Without progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Duration>,
    /// In total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Duration>,
}

/// A tool failed. The message is for the model and for people.
///
/// `?` converts any error to this type; the message then includes those of its sources. For
/// that reason it does not implement [`std::error::Error`] itself.
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

/// So that `?` converts it to a program's own boxed error.
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

/// A tool's error as a [`std::error::Error`].
#[derive(Debug)]
struct Failed(ToolError);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Failed {}

impl ToolError {
    /// An error with a message for the model: what failed and, if possible, how to correct the
    /// call.
    #[must_use]
    pub fn new(message: impl Into<Box<str>>) -> Self {
        Self { message: message.into(), cause: None }
    }

    /// The error that it was made from, if any.
    #[must_use]
    pub fn cause(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.cause.as_deref()
    }

    /// Wraps an error of a resource that the tool used. The message includes both.
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
