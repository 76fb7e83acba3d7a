//! What can go wrong with a server, and what to do about it.

use std::fmt;
use std::time::Duration;

/// An MCP server could not do what was wanted of it.
///
/// Its message names the server, what happened, the server's own last words, and what to do.
#[derive(Clone, Debug, thiserror::Error)]
#[error("MCP server {server:?}: {kind}{}", Words(.last_words.as_deref()))]
pub struct McpError {
    server: Box<str>,
    kind: McpErrorKind,
    /// The end of what the server wrote to its standard error.
    last_words: Option<Box<str>>,
}

/// What happened. Branch on this, never on the message.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum McpErrorKind {
    /// What the configuration says cannot be.
    #[error("{0}")]
    Configuration(Box<str>),
    /// The command could not be started at all.
    #[error("{command:?} could not be started ({why}); is it installed and in PATH?")]
    NotStarted {
        /// The program.
        command: Box<str>,
        /// What the operating system says.
        why: Box<str>,
    },
    /// It did not introduce itself in time.
    #[error("it did not answer within {} s of its start", .0.as_secs_f32())]
    StartupTimeout(Duration),
    /// It ended, or closed the connection, before it had introduced itself.
    #[error("it ended before it was ready{}", Exit(.exit.as_deref()))]
    EndedEarly {
        /// How the process ended.
        exit: Option<Box<str>>,
    },
    /// It ended, or hung up.
    #[error("it ended{}", Exit(.exit.as_deref()))]
    Ended {
        /// How the process ended.
        exit: Option<Box<str>>,
    },
    /// It refused us, or could not be reached.
    #[error("it could not be reached: {0}")]
    Unreachable(Box<str>),
    /// It requires credentials.
    #[error("it requires authorization; check the credentials in its headers")]
    Unauthorized,
    /// It is gone and is being started again.
    #[error("{why}. It is started again in {} s; try again then, or do without it", .retry_in.as_secs_f32())]
    Restarting {
        /// Why it is gone.
        why: Box<str>,
        /// When the next attempt is made, at the latest.
        retry_in: Duration,
    },
    /// It is gone for good, or until a call asks for it once more.
    #[error(
        "{why}. It was started {attempts} times in vain; do without it, or try again after one more attempt, which is under way"
    )]
    Down {
        /// Why the last attempt failed.
        why: Box<str>,
        /// How many attempts were made.
        attempts: u32,
    },
    /// It stopped while a call was running.
    #[error("it stopped while the call was running{}; whether the call had an effect is unknown", Exit(.exit.as_deref()))]
    DiedMidCall {
        /// How the process ended.
        exit: Option<Box<str>>,
    },
    /// It sent something larger than we keep.
    #[error("it sent a message of more than {} MiB, which was not read", .bytes_max / (1024 * 1024))]
    TooLarge {
        /// The most that is kept.
        bytes_max: usize,
    },
    /// It did not answer a request that is no tool's in time.
    #[error("no answer to {what} within {} s", .after.as_secs_f32())]
    RequestTimeout {
        /// The method.
        what: Box<str>,
        /// How long it had.
        after: Duration,
    },
    /// It answered a request with an error of the protocol.
    #[error("{message}")]
    Refused {
        /// The protocol's number for it.
        code: i32,
        /// What it said.
        message: Box<str>,
    },
    /// It broke the protocol.
    #[error("it does not keep to the protocol: {0}")]
    Protocol(Box<str>),
    /// It was closed by us.
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

    /// Which server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// What happened.
    #[must_use]
    pub fn kind(&self) -> &McpErrorKind {
        &self.kind
    }

    /// The end of what the server wrote to its standard error, if anything.
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
