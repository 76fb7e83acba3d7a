//! Configuration of an ACP agent.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::error::AcpError;
use super::known_agents::KnownAgent;

/// Concurrent prompts in one process of an agent by default; beyond that, another process
/// is started. Sessions share what the agent has loaded, and a process with a hanging session is
/// killed only when its other sessions are done.
pub const SESSIONS_PER_PROCESS_DEFAULT: usize = 32;

/// How to reach an agent, and how to treat it.
///
/// A name, a command line, or a URL is enough:
///
/// ```
/// use wellspring_acp::client::{AcpConfig, AcpTransport};
///
/// let config: AcpConfig = "node 'my agent.js' --verbose".parse()?;
/// let command = ["node", "my agent.js", "--verbose"].map(Box::from).to_vec();
/// assert_eq!(config.transport, AcpTransport::Command(command));
/// # Ok::<(), wellspring_acp::client::AcpError>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct AcpConfig {
    /// How it is reached.
    pub transport: AcpTransport,
    /// Set in its environment, besides [`CHILD_ENVIRONMENT`](wellspring_core::CHILD_ENVIRONMENT)
    /// and, for an agent known by name, its [`KnownAgent::variables`](super::KnownAgent::variables).
    pub env: BTreeMap<Box<str>, Box<str>>,
    /// Variables that it does not get although it would by default.
    pub env_remove: Vec<Box<str>>,
    /// Headers of every request to an agent at a URL, for example a token.
    pub headers: BTreeMap<Box<str>, Box<str>>,
    /// The working directory for requests without one; the current directory by default.
    pub cwd: Option<PathBuf>,
    /// The mode that its sessions are set to.
    pub mode: Option<Box<str>>,
    /// What it may do with files through us.
    pub files: FileAccess,
    /// Whether it may run commands through us.
    pub terminals: bool,
    /// The command that carries our tools to agents that take MCP servers over stdio only: one
    /// that calls [`wellspring_mcp::bridge`] with `WELLSPRING_MCP_URL` and `WELLSPRING_MCP_TOKEN`.
    pub bridge: Option<Vec<Box<str>>>,
    /// A file to which all messages are written, both ways, one per line, for debugging.
    /// It may contain secrets.
    pub record: Option<PathBuf>,
    /// Concurrent prompts in one process.
    pub sessions_per_process: usize,
    /// Time limits.
    pub timeouts: AcpTimeouts,
}

/// Shows no values of variables and headers, since some are keys.
impl fmt::Debug for AcpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcpConfig")
            .field("transport", &self.transport)
            .field("env", &self.env.keys())
            .field("headers", &self.headers.keys())
            .field("cwd", &self.cwd)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

/// How an agent is reached.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AcpTransport {
    /// By its name: see [`known_agents`](super::known_agents).
    Name(Box<str>),
    /// By a command, program first, that speaks on its standard input and output.
    Command(Vec<Box<str>>),
    /// At a URL: `http` and `https` for streamable HTTP, `ws` and `wss` for WebSocket.
    Url(Box<str>),
}

/// File access of an agent through us, below its working directory.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FileAccess {
    /// Read and write.
    #[default]
    Write,
    /// Read only.
    Read,
    /// No access.
    None,
}

/// Time limits of an agent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AcpTimeouts {
    /// To start and to negotiate a version. The first `npx` downloads a package.
    pub start: Duration,
    /// To open, load or resume a session.
    pub session: Duration,
    /// To list our tools before it is prompted. An agent that lists them later still gets them.
    pub tools: Duration,
    /// Silence during a prompt, while no question is open and none of our tools is running.
    pub silence: Duration,
}

impl Default for AcpTimeouts {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(180),
            session: Duration::from_secs(120),
            tools: Duration::from_secs(10),
            silence: Duration::from_secs(15 * 60),
        }
    }
}

impl AcpConfig {
    /// An agent that is reached this way, with defaults for everything else.
    #[must_use]
    pub fn new(transport: AcpTransport) -> Self {
        Self {
            transport,
            env: BTreeMap::new(),
            env_remove: Vec::new(),
            headers: BTreeMap::new(),
            cwd: None,
            mode: None,
            files: FileAccess::default(),
            terminals: true,
            bridge: None,
            record: None,
            sessions_per_process: SESSIONS_PER_PROCESS_DEFAULT,
            timeouts: AcpTimeouts::default(),
        }
    }

    /// An agent that a command starts.
    pub fn command(command: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        Self::new(AcpTransport::Command(command.into_iter().map(Into::into).collect()))
    }

    /// Adds a variable to its environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<Box<str>>, value: impl Into<Box<str>>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Sets the working directory for requests without one.
    #[must_use]
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    /// A name for it: its own, or that of its program.
    #[must_use]
    pub fn name(&self) -> Box<str> {
        match &self.transport {
            AcpTransport::Name(name) | AcpTransport::Url(name) => name.clone(),
            AcpTransport::Command(command) => {
                let program = command.first().map(AsRef::as_ref).unwrap_or_default();
                program.rsplit('/').next().unwrap_or(program).into()
            }
        }
    }
}

impl FromStr for AcpConfig {
    type Err = AcpError;

    /// Parses a known name, a URL, or a command line with quoted words.
    fn from_str(text: &str) -> Result<Self, AcpError> {
        text.parse().map(Self::new)
    }
}

impl FromStr for AcpTransport {
    type Err = AcpError;

    fn from_str(text: &str) -> Result<Self, AcpError> {
        let text = text.trim();
        if KnownAgent::of_name(text).is_some() {
            return Ok(Self::Name(text.into()));
        }
        if ["http://", "https://", "ws://", "wss://"].iter().any(|it| text.starts_with(it)) {
            return Ok(Self::Url(text.into()));
        }
        let command = words(text).map_err(|why| AcpError::Command { line: text.into(), why })?;
        Ok(Self::Command(command))
    }
}

/// Splits a command line into words as a shell would; nothing is expanded.
fn words(line: &str) -> Result<Vec<Box<str>>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => {
                let escaped = letters.next().ok_or("it ends with a backslash")?;
                word.get_or_insert_default().push(escaped);
            }
            (None, letter) if letter.is_whitespace() => {
                words.extend(word.take().map(String::into_boxed_str));
            }
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed");
    }
    words.extend(word.map(String::into_boxed_str));
    if words.is_empty() { Err("it is empty") } else { Ok(words) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_split_as_a_shell_does() {
        for (line, want) in [
            ("a b  c", Ok(vec!["a", "b", "c"])),
            (r#"a 'b c' "d \"e\"" f\ g ''"#, Ok(vec!["a", "b c", "d \"e\"", "f g", ""])),
            ("a 'b", Err("a quote is not closed")),
            ("a \\", Err("it ends with a backslash")),
            ("  ", Err("it is empty")),
        ] {
            let want =
                want.map(|words| words.into_iter().map(Box::from).collect::<Vec<Box<str>>>());
            assert_eq!(words(line), want, "{line}");
        }
    }

    #[test]
    fn names_urls_and_commands_are_told_apart() {
        for (text, want) in [
            ("claude", AcpTransport::Name("claude".into())),
            ("wss://example.com/acp", AcpTransport::Url("wss://example.com/acp".into())),
            ("claude --acp", AcpTransport::Command(vec!["claude".into(), "--acp".into()])),
        ] {
            assert_eq!(text.parse::<AcpConfig>().unwrap().transport, want);
        }
    }
}
