//! Errors of MCP servers, with remedies.

use std::fmt;
use std::time::Duration;

/// An operation with an MCP server failed.
///
/// The message names the server, what happened, the last lines of the server's standard error,
/// and the remedy.
#[derive(Clone, Debug, thiserror::Error)]
#[error("MCP server {server:?}: {kind}{}", Words(.last_words.as_deref()))]
pub struct McpError {
    server: Box<str>,
    kind: McpErrorKind,
    /// The end of what the server wrote to its standard error.
    last_words: Option<Box<str>>,
}

/// The kind of the error. Branch on this, never on the message.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum McpErrorKind {
    /// The configuration is invalid.
    #[error("{0}")]
    Configuration(Box<str>),
    /// The command could not be started.
    #[error("{command:?} could not be started ({why}); is it installed and in PATH?")]
    NotStarted {
        /// The program.
        command: Box<str>,
        /// The error of the operating system.
        why: Box<str>,
    },
    /// It did not complete the handshake in time.
    #[error("it did not answer within {} s of its start", .0.as_secs_f32())]
    StartupTimeout(Duration),
    /// It ended, or closed the connection, before the handshake was complete.
    #[error("it ended before it was ready{}", Exit(.exit.as_deref()))]
    EndedEarly {
        /// How the process ended.
        exit: Option<Box<str>>,
    },
    /// It ended, or closed the connection.
    #[error("it ended{}", Exit(.exit.as_deref()))]
    Ended {
        /// How the process ended.
        exit: Option<Box<str>>,
    },
    /// It rejected the connection, or could not be reached.
    #[error("it could not be reached: {0}")]
    Unreachable(Box<str>),
    /// It requires credentials.
    #[error("it requires authorization; check the credentials in its headers")]
    Unauthorized,
    /// It ended and is being restarted.
    #[error("{why}. It is started again in {} s; try again then, or do without it", .retry_in.as_secs_f32())]
    Restarting {
        /// Why it ended.
        why: Box<str>,
        /// The maximum time until the next attempt.
        retry_in: Duration,
    },
    /// It could not be restarted. The next call triggers one more attempt.
    #[error(
        "{why}. It was started {attempts} times in vain; do without it, or try again after one more attempt, which is under way"
    )]
    Down {
        /// Why the last attempt failed.
        why: Box<str>,
        /// The number of attempts.
        attempts: u32,
    },
    /// It stopped while a call was running.
    #[error("it stopped while the call was running{}; whether the call had an effect is unknown", Exit(.exit.as_deref()))]
    DiedMidCall {
        /// How the process ended.
        exit: Option<Box<str>>,
    },
    /// It sent a message that is too large.
    #[error("it sent a message of more than {} MiB, which was not read", .bytes_max / (1024 * 1024))]
    TooLarge {
        /// The maximum size.
        bytes_max: usize,
    },
    /// It did not respond to a request other than a tool call in time.
    #[error("no answer to {what} within {} s", .after.as_secs_f32())]
    RequestTimeout {
        /// The method.
        what: Box<str>,
        /// The time limit.
        after: Duration,
    },
    /// It returned an error response.
    #[error("{message}")]
    Refused {
        /// The protocol's error code.
        code: i32,
        /// The error message.
        message: Box<str>,
    },
    /// It violated the protocol.
    #[error("it does not keep to the protocol: {0}")]
    Protocol(Box<str>),
    /// We closed it.
    #[error("it was closed")]
    Closed,
}

impl McpError {
    pub(crate) fn new(server: &str, kind: McpErrorKind) -> Self {
        Self { server: server.into(), kind, last_words: None }
    }

    pub(crate) fn last_words(mut self, words: String) -> Self {
        let words = words.trim();
        self.last_words = (!words.is_empty()).then(|| words.into());
        self
    }

    /// The server's name.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> &McpErrorKind {
        &self.kind
    }

    /// The last lines of the server's standard error; `None` if it wrote nothing.
    #[must_use]
    pub fn stderr(&self) -> Option<&str> {
        self.last_words.as_deref()
    }
}

struct Words<'a>(Option<&'a str>);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |words| write!(f, "; the last it wrote: {words}"))
    }
}

struct Exit<'a>(Option<&'a str>);

impl fmt::Display for Exit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |exit| write!(f, " ({exit})"))
    }
}
