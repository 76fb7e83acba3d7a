//! What can go wrong with an agent.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use wellspring_core::{FailureKind, ModelError};

use crate::rpc::RpcError;

/// An agent could not be started, spoken to, or kept.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcpError {
    /// The command line cannot be read.
    #[error("{line:?} is not a command: {why}")]
    Command {
        /// What was given.
        line: Box<str>,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There is neither the agent's program nor a way to fetch it.
    #[error("{program} is not installed: {hint}")]
    NotInstalled {
        /// What was looked for.
        program: Box<str>,
        /// What to do.
        hint: Box<str>,
    },
    /// The process could not be started.
    #[error("{program} could not be started: {why}")]
    Start {
        /// The program.
        program: Box<str>,
        /// What the system said.
        why: Box<str>,
    },
    /// The agent could not be reached.
    #[error("{url} could not be reached: {why}")]
    Unreachable {
        /// Where.
        url: Box<str>,
        /// What happened.
        why: Box<str>,
    },
    /// The agent is gone.
    #[error("the agent ended{}{}", exit(.status), words(.last_words))]
    Ended {
        /// How its process ended, if it did so by itself.
        status: Option<Box<str>>,
        /// The end of what it wrote to its standard error.
        last_words: Box<str>,
    },
    /// The agent broke the protocol.
    #[error("the agent broke the protocol: {what}{}", words(.last_words))]
    Protocol {
        /// How.
        what: Box<str>,
        /// The end of what it wrote to its standard error.
        last_words: Box<str>,
    },
    /// The agent speaks another version.
    #[error("the agent speaks version {theirs} of ACP, and this is version 1")]
    Version {
        /// Theirs.
        theirs: Box<str>,
    },
    /// The agent wants somebody to log in first.
    #[error("the agent wants a login first{}", login(.methods))]
    Login {
        /// How that can be done, in the agent's words.
        methods: Vec<Box<str>>,
    },
    /// The agent answered with an error.
    #[error("{method} failed: {message} ({code}){}", details(.data))]
    Answer {
        /// What was asked.
        method: &'static str,
        /// The error's number.
        code: i64,
        /// What it says.
        message: Box<str>,
        /// More about it.
        data: Value,
    },
    /// The agent took too long.
    #[error("the agent took longer than {} s for {what}", .limit.as_secs())]
    TimedOut {
        /// For what.
        what: &'static str,
        /// How long it had.
        limit: Duration,
    },
    /// The agent never looked at our tools.
    #[error("the agent cannot use our tools: {0}")]
    ToolsNeverSeen(#[source] wellspring_mcp::NeverSeen),
    /// Our tools cannot be given to the agent.
    #[error("our tools cannot be given to the agent: {0}")]
    Tools(Box<str>),
    /// The directory cannot be worked in.
    #[error("{path} cannot be worked in: {why}")]
    Directory {
        /// Which.
        path: Box<str>,
        /// Why.
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

    /// The error that the agent answered with, as the protocol has it.
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
