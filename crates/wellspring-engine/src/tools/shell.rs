//! `run_shell_command`: runs a command, and ends all that it started.
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

/// Bytes kept of each of the command's streams, half from the start and half from the end:
/// what a model can read of a log without losing its thread.
pub const CAPTURE_BYTES_MAX: usize = 64 * 1024;

/// Bytes shown as progress of each of the command's streams; beyond it only their number is shown.
/// A command with more output should redirect it into a file.
pub const SHOWN_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Seconds a command may take unless the model asks for another time: a build, not a server.
pub const COMMAND_SECONDS_DEFAULT: u64 = 120;

/// Maximum number of seconds of a command, even if the model asks for more.
pub const COMMAND_SECONDS_MAX: u64 = 3600;

/// What the engine is asked to wait for a command: longer than any may take, because how long
/// it may take is the call's own business.
const LONGEST: Duration = Duration::from_secs(COMMAND_SECONDS_MAX + 60);

/// Between asking a command to end and killing it: time to remove its temporary files, and
/// less than the engine waits for a call that it has cancelled.
pub const STOP_GRACE: Duration = Duration::from_secs(1);

/// A tool that runs shell commands. It asks first, and runs one at a time: a command may
/// depend on what the one before it did.
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

/// A program that starts a shell's commands. It gets the command line after its own arguments,
/// and a pipe as standard input that closes when this process dies, however it dies: then it
/// ends its process group. It exits as the command does. Before it starts the command it may
/// confine itself, and so the command.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Launcher {
    /// The program.
    pub program: PathBuf,
    /// Its arguments before the command line.
    pub arguments: Vec<OsString>,
}

impl Shell {
    /// Commands start in this directory, or below it if the model asks for that. This is not a
    /// sandbox: a command can access whatever its user can.
    ///
    /// # Errors
    ///
    /// When there is no such directory.
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
            // A command says itself how long it may take, and may be silent meanwhile.
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

    /// Starts commands with another program. Without one, a command outlives a process that is
    /// killed.
    #[must_use]
    pub fn launcher(mut self, launcher: Launcher) -> Self {
        self.launcher = Some(launcher);
        self
    }

    /// Gives commands another time to end than [`STOP_GRACE`].
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

    /// Where a command starts; links are followed before it is compared with the root.
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
    /// The command, as one would type it.
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
