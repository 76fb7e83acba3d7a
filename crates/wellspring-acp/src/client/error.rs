//! Errors of ACP agents.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use wellspring_core::{FailureKind, ModelError};

use crate::rpc::RpcError;

/// An agent could not be started or reached, or it failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcpError {
    /// The command line is invalid.
    #[error("{line:?} is not a command: {why}")]
    Command {
        /// The command line.
        line: Box<str>,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Neither the agent's program nor a way to download it was found.
    #[error("{program} is not installed: {hint}")]
    NotInstalled {
        /// The program.
        program: Box<str>,
        /// What to do.
        hint: Box<str>,
    },
    /// The process could not be started.
    #[error("{program} could not be started: {why}")]
    Start {
        /// The program.
        program: Box<str>,
        /// The system's error.
        why: Box<str>,
    },
    /// The agent could not be reached.
    #[error("{url} could not be reached: {why}")]
    Unreachable {
        /// The URL.
        url: Box<str>,
        /// The underlying error.
        why: Box<str>,
    },
    /// The agent's process or connection has ended.
    #[error("the agent ended{}{}", exit(.status), words(.last_words))]
    Ended {
        /// The exit status, if the process ended by itself.
        status: Option<Box<str>>,
        /// The end of its standard error.
        last_words: Box<str>,
    },
    /// The agent broke the protocol.
    #[error("the agent broke the protocol: {what}{}", words(.last_words))]
    Protocol {
        /// What it did.
        what: Box<str>,
        /// The end of its standard error.
        last_words: Box<str>,
    },
    /// The agent speaks another protocol version.
    #[error("the agent speaks version {theirs} of ACP, and this is version 1")]
    Version {
        /// The agent's version.
        theirs: Box<str>,
    },
    /// The agent requires a login.
    #[error("the agent requires a login{}", login(.methods))]
    Login {
        /// The agent's login methods.
        methods: Vec<Box<str>>,
    },
    /// The agent answered with an error.
    #[error("{method} failed: {message} ({code}){}", details(.data))]
    Answer {
        /// The method that was called.
        method: &'static str,
        /// The error code.
        code: i64,
        /// The error message.
        message: Box<str>,
        /// The error data.
        data: Value,
    },
    /// The agent took too long.
    #[error("the agent took longer than {} s for {what}", .limit.as_secs())]
    TimedOut {
        /// What it was doing.
        what: &'static str,
        /// The time limit.
        limit: Duration,
    },
    /// The agent never listed our tools.
    #[error("the agent cannot use our tools: {0}")]
    ToolsNeverSeen(#[source] wellspring_mcp::NeverSeen),
    /// The agent cannot take our tools.
    #[error("our tools cannot be given to the agent: {0}")]
    Tools(Box<str>),
    /// The working directory is unusable.
    #[error("{path} cannot be worked in: {why}")]
    Directory {
        /// The directory.
        path: Box<str>,
        /// The reason.
        why: Box<str>,
    },
    /// The run cannot be found again.
    #[error("{0}")]
    Lost(&'static str),
}

impl AcpError {
    /// What a caller can do about it.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Command { .. } | Self::Directory { .. } | Self::Tools(_) => {
                FailureKind::BadRequest
            }
            Self::NotInstalled { .. } | Self::Start { .. } | Self::Login { .. } => {
                FailureKind::Refused
            }
            Self::Ended { .. } | Self::Unreachable { .. } => FailureKind::Unavailable,
            Self::Protocol { .. } | Self::Version { .. } | Self::Answer { .. } => {
                FailureKind::Protocol
            }
            Self::TimedOut { .. } | Self::ToolsNeverSeen(_) => FailureKind::TimedOut,
            Self::Lost(_) => FailureKind::Lost,
        }
    }

    /// The error that the agent answered with, in the protocol's form.
    pub(crate) fn said(&self) -> Option<Value> {
        if let Self::Answer { code, message, data, .. } = self {
            let mut said = json!({"code": code, "message": message});
            if !data.is_null() {
                said["data"] = data.clone();
            }
            return Some(said);
        }
        let wants_login = matches!(self, Self::Login { .. });
        wants_login.then(|| json!({"code": RpcError::LOGIN_FIRST, "message": self.to_string()}))
    }

    pub(crate) fn of(self, agent: &str) -> ModelError {
        ModelError::new(agent, self.kind(), self.to_string())
    }

    pub(crate) fn directory(path: &std::path::Path, why: &io::Error) -> Self {
        Self::Directory { path: path.display().to_string().into(), why: why.to_string().into() }
    }
}

fn exit(status: &Option<Box<str>>) -> String {
    status.as_ref().map(|status| format!(" ({status})")).unwrap_or_default()
}

fn words(words: &str) -> String {
    let words = words.trim();
    if words.is_empty() { String::new() } else { format!("; its last words were:\n{words}") }
}

fn login(methods: &[Box<str>]) -> String {
    if methods.is_empty() { String::new() } else { format!(": {}", methods.join(", or ")) }
}

fn details(data: &Value) -> String {
    if data.is_null() { String::new() } else { format!(": {data}") }
}
