//! `run_shell_command`: runs a command, and kills all processes that it leaves behind.
//!
//! The command leads its own process group. Everything left of the group when the command has
//! ended, or the call is cancelled or dropped, is killed. A process that leaves the group
//! (`setsid`) is not found.

mod capture;
mod job;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use wellspring_core::{
    CHILD_ENVIRONMENT, Context, Tool, ToolError, ToolKind, ToolMode, ToolResult, ToolSpec,
    ToolTimeouts,
};

use super::function::{parameters, typed};
use job::{End, Job};

/// Bytes kept of each output stream of the command, half from the start and half from the end: as
/// much of a log as a model can use.
pub const CAPTURE_BYTES_MAX: usize = 64 * 1024;

/// Bytes of each output stream that are shown as progress. Beyond that, only the number of bytes is
/// shown; a command with more output should redirect it into a file.
pub const SHOWN_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Default time limit of a command in seconds: enough for a build, but not for a server.
pub const COMMAND_SECONDS_DEFAULT: u64 = 120;

/// Maximum time limit of a command in seconds, even if the model asks for more.
pub const COMMAND_SECONDS_MAX: u64 = 3600;

/// The engine's time limit for the call: longer than any command may take, because the tool
/// enforces the command's own limit.
const LONGEST: Duration = Duration::from_secs(COMMAND_SECONDS_MAX + 60);

/// Time between asking a command to end and killing it: enough to remove its temporary files, and
/// less than the engine waits for a cancelled call.
pub const STOP_GRACE: Duration = Duration::from_secs(1);

/// A tool that runs shell commands. It asks first, and runs one command at a time, because a
/// command may depend on the result of the previous one.
///
/// ```
/// use serde_json::json;
/// use wellspring_core::{CancellationToken, Context, Tool as _};
/// use wellspring_engine::tools::Shell;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let shell = Shell::below(std::env::temp_dir())?;
/// let cx = Context::create("trace-1", CancellationToken::new());
/// let result = shell.call(json!({"command": "echo hello; exit 3"}), cx).await?;
/// assert_eq!(result.output, json!({"stdout": "hello\n", "stderr": "", "exit_code": 3}));
/// # Ok::<(), wellspring_core::ToolError>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct Shell {
    spec: ToolSpec,
    root: PathBuf,
    environment: Vec<(OsString, OsString)>,
    launcher: Option<Launcher>,
    grace: Duration,
}

/// A program that starts the shell's commands. It gets the command line after its own arguments.
/// Its standard input is a pipe that closes when this process ends for any reason; it must then
/// kill its process group. It exits with the command's exit code. It may confine itself, and so the
/// command, before it starts the command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Launcher {
    /// The program's path.
    pub program: PathBuf,
    /// Its arguments in front of the command line.
    pub arguments: Vec<OsString>,
}

impl Shell {
    /// Creates a shell whose commands start in this directory, or below it if the model asks for
    /// that. This is not a sandbox: a command can access whatever its user can.
    ///
    /// # Errors
    ///
    /// If the directory does not exist.
    pub fn below(root: impl AsRef<Path>) -> Result<Self, ToolError> {
        let root = root.as_ref();
        let found = root.canonicalize().map_err(|error| {
            ToolError::because(format!("cannot run commands in {}", root.display()), error)
        })?;
        let description = "Runs a shell command (sh) and gives back what it wrote and its exit \
            code. There is no input and no terminal. What it leaves running in the background \
            is killed when it ends.";
        let spec = ToolSpec {
            parameters: parameters::<Arguments>().into(),
            title: Some("Shell".into()),
            kind: ToolKind::Execute,
            mode: ToolMode::Sequential,
            // The command's own time limit applies, and it may run without output until then.
            timeouts: ToolTimeouts { idle: Some(LONGEST), total: Some(LONGEST) },
            ..ToolSpec::new("run_shell_command", description)
        };
        let inherited = |name: &str| Some((name.into(), std::env::var_os(name)?));
        let environment = CHILD_ENVIRONMENT.into_iter().filter_map(inherited).collect();
        Ok(Self { spec, root: found, environment, launcher: None, grace: STOP_GRACE })
    }

    /// Lets commands see one more variable than [`CHILD_ENVIRONMENT`].
    #[must_use]
    pub fn variable(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Sets a program that starts the commands. Without it, a command outlives this process if this
    /// process is killed.
    #[must_use]
    pub fn launcher(mut self, launcher: Launcher) -> Self {
        self.launcher = Some(launcher);
        self
    }

    /// Sets how long commands may take to end [default: [`STOP_GRACE`]].
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    async fn run(&self, arguments: Arguments, context: Context) -> Result<ToolResult, ToolError> {
        if context.signal().is_cancelled() {
            return Err(ToolError::new("not started: the call was cancelled before"));
        }
        let directory = self.directory(arguments.cwd.as_deref())?;
        let timeout = arguments.time_max();
        let mut job =
            Job::start(&arguments.command, &directory, &self.environment, self.launcher.as_ref())
                .map_err(|error| ToolError::because("the command did not start", error))?;
        let end = tokio::select! {
            ended = job.follow(&context) => ended
                .map_err(|error| ToolError::because("lost sight of the command", error))?,
            () = context.signal().cancelled() => End::Cancelled,
            () = tokio::time::sleep(timeout) => End::TimedOut,
        };
        if !matches!(end, End::Exited(_)) {
            job.stop(self.grace).await;
        }
        let output = job.output();
        match end {
            End::Exited(code) => {
                let mut output = output;
                output["exit_code"] = code.into();
                Ok(ToolResult::new(output))
            }
            End::TimedOut => {
                let seconds = timeout.as_secs();
                let message = format!("killed after {seconds} s; so far it wrote {output}");
                Err(ToolError::new(message))
            }
            End::Cancelled => {
                Err(ToolError::new(format!("killed on request; so far it wrote {output}")))
            }
        }
    }

    /// The directory in which a command starts. Links are resolved before it is compared with the
    /// root.
    fn directory(&self, cwd: Option<&str>) -> Result<PathBuf, ToolError> {
        let Some(cwd) = cwd else { return Ok(self.root.clone()) };
        let found = self.root.join(cwd).canonicalize().map_err(|error| {
            ToolError::because(format!("cannot run a command in {cwd:?}"), error)
        })?;
        if !found.starts_with(&self.root) {
            return Err(ToolError::new(format!(
                "{cwd:?} is outside the working directory; use a path below it"
            )));
        }
        if !found.is_dir() {
            return Err(ToolError::new(format!("{cwd:?} is not a directory")));
        }
        Ok(found)
    }
}

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// The command line.
    command: Box<str>,
    /// The directory to start in, relative to the working directory.
    cwd: Option<Box<str>>,
    /// Seconds it may take, at most 3600.
    #[serde(default = "default_seconds")]
    timeout: u64,
}

impl Arguments {
    fn time_max(&self) -> Duration {
        Duration::from_secs(self.timeout.clamp(1, COMMAND_SECONDS_MAX))
    }
}

fn default_seconds() -> u64 {
    COMMAND_SECONDS_DEFAULT
}

impl Tool for Shell {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(
        &self,
        arguments: Value,
        context: Context,
    ) -> BoxFuture<'_, Result<ToolResult, ToolError>> {
        async move { self.run(typed(arguments)?, context).await }.boxed()
    }
}

#[cfg(test)]
mod tests;
