//! The configuration of an MCP server.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use wellspring_core::{Approval, ToolTimeouts};

/// The default time limit for starting a server and its handshake. `npx` downloads the package
/// first.
pub const STARTUP_TIME_DEFAULT: Duration = Duration::from_secs(60);

/// The default time limit for requests other than tool calls, such as lists and resources.
pub const REQUEST_TIME_DEFAULT: Duration = Duration::from_secs(30);

/// An MCP server, and which of its tools are used.
///
/// ```
/// use wellspring_mcp::{McpConfig, McpTransport};
///
/// let files = McpConfig::stdio("files", "npx", ["-y", "@modelcontextprotocol/server-filesystem", "."]);
/// let search = McpConfig::http("search", "https://mcp.example.com/mcp")
///     .header("Authorization", "Bearer …");
/// assert!(matches!(files.transport, McpTransport::Stdio { .. }));
/// assert!(!format!("{search:?}").contains("Bearer"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct McpConfig {
    /// The server's name, and the prefix of its tools' names.
    pub name: Box<str>,
    /// The prefix of its tools' names; `None` for `name`.
    pub prefix: Option<Box<str>>,
    /// How to start or reach it.
    pub transport: McpTransport,
    /// Time limits.
    pub timeouts: McpTimeouts,
    /// The only tools to use, by the server's own names; all if `None`.
    pub allow: Option<BTreeSet<Box<str>>>,
    /// Tools not to use, by the server's own names.
    pub deny: BTreeSet<Box<str>>,
    /// Approval per tool, by the server's own names. Overrides the server's hints.
    pub approval: BTreeMap<Box<str>, Approval>,
    /// Approval of the tools not listed in [`approval`](Self::approval). If `None`, tools that
    /// are marked as read-only are allowed, and all others ask.
    pub approval_default: Option<Approval>,
    /// Whether to add two tools that list and read the server's resources.
    pub resources: bool,
}

impl McpConfig {
    /// A server that runs as a command on this machine.
    #[must_use]
    pub fn stdio(
        name: impl Into<Box<str>>,
        command: impl Into<Box<str>>,
        args: impl IntoIterator<Item = impl Into<Box<str>>>,
    ) -> Self {
        Self::new(
            name,
            McpTransport::Stdio {
                command: command.into(),
                args: args.into_iter().map(Into::into).collect(),
                env: BTreeMap::new(),
                cwd: None,
            },
        )
    }

    /// A server that is reached over streamable HTTP.
    #[must_use]
    pub fn http(name: impl Into<Box<str>>, url: impl Into<Box<str>>) -> Self {
        Self::new(name, McpTransport::Http { url: url.into(), headers: BTreeMap::new() })
    }

    /// A server, with all its tools and the default limits.
    #[must_use]
    pub fn new(name: impl Into<Box<str>>, transport: McpTransport) -> Self {
        Self {
            name: name.into(),
            prefix: None,
            transport,
            timeouts: McpTimeouts::default(),
            allow: None,
            deny: BTreeSet::new(),
            approval: BTreeMap::new(),
            approval_default: None,
            resources: false,
        }
    }

    /// Sets an environment variable of the command, in addition to
    /// [`CHILD_ENVIRONMENT`](wellspring_core::CHILD_ENVIRONMENT).
    #[must_use]
    pub fn env(mut self, name: impl Into<Box<str>>, value: impl Into<Box<str>>) -> Self {
        if let McpTransport::Stdio { env, .. } = &mut self.transport {
            env.insert(name.into(), value.into());
        }
        self
    }

    /// Sets the working directory of the command, which is also offered as its root.
    #[must_use]
    pub fn cwd(mut self, directory: impl Into<PathBuf>) -> Self {
        if let McpTransport::Stdio { cwd, .. } = &mut self.transport {
            *cwd = Some(directory.into());
        }
        self
    }

    /// Adds a header to every HTTP request.
    #[must_use]
    pub fn header(mut self, name: impl Into<Box<str>>, value: impl Into<Box<str>>) -> Self {
        if let McpTransport::Http { headers, .. } = &mut self.transport {
            headers.insert(name.into(), value.into());
        }
        self
    }

    /// Whether a tool is used at all.
    pub(crate) fn wants(&self, tool: &str) -> bool {
        self.allow.as_ref().is_none_or(|allowed| allowed.contains(tool))
            && !self.deny.contains(tool)
    }
}

/// How to start or reach a server.
#[derive(Clone, PartialEq)]
pub enum McpTransport {
    /// A command, over its standard input and output.
    Stdio {
        /// The program.
        command: Box<str>,
        /// Its arguments.
        args: Vec<Box<str>>,
        /// Environment variables in addition to
        /// [`CHILD_ENVIRONMENT`](wellspring_core::CHILD_ENVIRONMENT).
        env: BTreeMap<Box<str>, Box<str>>,
        /// The working directory, also offered as the server's root. `None` for this process's
        /// own directory, without a root.
        cwd: Option<PathBuf>,
    },
    /// A URL, over streamable HTTP.
    Http {
        /// The server's URL.
        url: Box<str>,
        /// Headers of every request, such as credentials.
        headers: BTreeMap<Box<str>, Box<str>>,
    },
}

/// Values of variables and headers may be secret and are not shown.
impl fmt::Debug for McpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdio { command, args, env, cwd } => f
                .debug_struct("Stdio")
                .field("command", command)
                .field("args", args)
                .field("env", &env.keys().collect::<Vec<_>>())
                .field("cwd", cwd)
                .finish(),
            Self::Http { url, headers } => f
                .debug_struct("Http")
                .field("url", &without_queries(url))
                .field("headers", &headers.keys().collect::<Vec<_>>())
                .finish(),
        }
    }
}

/// Removes the query of every URL in a text, because queries often contain keys.
pub(crate) fn without_queries(text: &str) -> String {
    let ends = |c: char| c.is_whitespace() || "()<>\"'".contains(c);
    let word = |word: &str| match word.split_once('?') {
        Some((url, query)) if url.contains("://") => {
            // The character after the URL is not part of the query.
            let end = query.find(ends).map_or("", |at| &query[at..]);
            format!("{url}{end}")
        }
        Some(_) | None => word.to_owned(),
    };
    text.split_inclusive(ends).map(word).collect()
}

/// Time limits of a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct McpTimeouts {
    /// From its start to the end of the handshake.
    pub startup: Duration,
    /// For requests other than tool calls.
    pub request: Duration,
    /// For tool calls; the engine enforces it.
    pub call: ToolTimeouts,
}

impl Default for McpTimeouts {
    fn default() -> Self {
        Self {
            startup: STARTUP_TIME_DEFAULT,
            request: REQUEST_TIME_DEFAULT,
            call: ToolTimeouts::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_left_out() {
        for (text, want) in [
            ("at http://a/b?key=1&x=2", "at http://a/b"),
            ("url (https://a/?k=1): refused", "url (https://a/): refused"),
            ("\"http://a?k\" and http://b?k end", "\"http://a\" and http://b end"),
            ("is it there? no", "is it there? no"),
        ] {
            assert_eq!(without_queries(text), want);
        }
        let config = McpConfig::http("s", "https://a/mcp?key=1").header("X-Key", "2");
        let shown = format!("{config:?}");
        assert!(shown.contains("\"https://a/mcp\", headers: [\"X-Key\"]"), "{shown}");
    }
}
