//! Which agent, and how it is started and treated.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::error::AcpError;
use super::names::KnownAgent;

/// Prompts at a time in one process of an agent, unless told otherwise; beyond, another process
/// is started. Agents share what they have loaded among sessions, and one that hangs takes its
/// neighbours' process with it only when these are done.
pub const SESSIONS_PER_PROCESS_DEFAULT: usize = 32;

/// Which agent, and how it is treated.
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
    /// Set in its environment, besides all that is in ours.
    pub env: BTreeMap<Box<str>, Box<str>>,
    /// Taken out of its environment.
    pub env_remove: Vec<Box<str>>,
    /// Sent with every request, where it is reached at a URL: a token, for example.
    pub headers: BTreeMap<Box<str>, Box<str>>,
    /// Where it works when a request does not say; where we are when this is absent.
    pub cwd: Option<PathBuf>,
    /// The mode its sessions are put into.
    pub mode: Option<Box<str>>,
    /// What it may do with files through us.
    pub files: FileAccess,
    /// Whether it may run commands through us.
    pub terminals: bool,
    /// The command that carries our tools to agents that take MCP servers over stdio only: one
    /// that calls [`wellspring_mcp::bridge`] with `WELLSPRING_MCP_URL` and `WELLSPRING_MCP_TOKEN`.
    pub bridge: Option<Vec<Box<str>>>,
    /// A file that all messages are written to, both ways, a line each: to see what an agent
    /// really says. There may be secrets in it.
    pub record: Option<PathBuf>,
    /// Prompts at a time in one process.
    pub sessions_per_process: usize,
    /// How long things may take.
    pub timeouts: AcpTimeouts,
}

/// Shows no values of variables and headers: there are keys among them.
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
    /// By a command, its program first, which speaks on its standard input and output.
    Command(Vec<Box<str>>),
    /// At a URL: `http` and `https` for streamable HTTP, `ws` and `wss` for WebSocket.
    Url(Box<str>),
}

/// What an agent may do with files through us, below its working directory.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FileAccess {
    /// Read and write.
    #[default]
    Write,
    /// Read.
    Read,
    /// Nothing.
    None,
}

/// How long an agent may take.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AcpTimeouts {
    /// To start and to agree on a version. The first `npx` fetches a package.
    pub start: Duration,
    /// To open, load or resume a session.
    pub session: Duration,
    /// To look at our tools before it is prompted. One that looks later still gets them.
    pub tools: Duration,
    /// Without any message during a prompt, while nobody is asked and nothing of ours runs.
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
    /// An agent that is reached this way, with everything else as it is by default.
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

    /// With a variable in its environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<Box<str>>, value: impl Into<Box<str>>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Working there, when a request does not say.
    #[must_use]
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    /// What to call it: its name, or its program's.
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

    /// Reads a known name, a URL, or a command line, whose words may be in quotes.
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

/// The words of a command line, as a shell would split them; nothing is expanded.
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
