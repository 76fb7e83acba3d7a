//! A running command and its process group.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use wellspring_core::Context;

use super::Launcher;
use super::capture::{Capture, Decoder, Shown};

/// Size of the read buffer: a quarter of what a pipe holds on Linux.
const READ_BYTES: usize = 16 * 1024;

/// How long the pipes may stay open after the group was killed: only a process that left the group
/// can hold them, and it is not waited for.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// How a command ended.
pub(super) enum End {
    /// It exited with this code, or was ended by a signal: 128 plus the signal's number.
    Exited(i32),
    Cancelled,
    TimedOut,
}

/// A command, its group and its pipes. Dropped, it kills the group.
pub(super) struct Job {
    child: Child,
    /// Present while there may be processes in the group.
    group: Option<Pid>,
    stdout: Pipe<ChildStdout>,
    stderr: Pipe<ChildStderr>,
    /// Closes when this process ends, which tells the launcher to end the command.
    _alive: Option<ChildStdin>,
}

impl Job {
    pub(super) fn start(
        command: &str,
        directory: &Path,
        environment: &[(OsString, OsString)],
        launcher: Option<&Launcher>,
    ) -> io::Result<Self> {
        let (mut starting, stdin) = match launcher {
            None => (Command::new("/bin/sh"), Stdio::null()),
            Some(Launcher { program, arguments }) => {
                let mut starting = Command::new(program);
                starting.args(arguments).arg("/bin/sh");
                (starting, Stdio::piped())
            }
        };
        let mut child = starting
            .args(["-c", command])
            .current_dir(directory)
            .env_clear()
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            // Tokio reaps a child that is dropped while it runs.
            .kill_on_drop(true)
            .spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let stdout = Pipe::new("stdout_chunk", child.stdout.take());
        let stderr = Pipe::new("stderr_chunk", child.stderr.take());
        // Waiting for a child would close its standard input, so it is kept here.
        let alive = child.stdin.take();
        Ok(Self { child, group, stdout, stderr, _alive: alive })
    }

    /// Waits for the end of the command, and reports its output as progress.
    ///
    /// # Cancel safety
    ///
    /// All output was kept, although the last of it may not have been reported.
    pub(super) async fn follow(&mut self, context: &Context) -> io::Result<End> {
        let status = loop {
            tokio::select! {
                read = self.stdout.read(), if self.stdout.open => self.stdout.show(read?, context).await,
                read = self.stderr.read(), if self.stderr.open => self.stderr.show(read?, context).await,
                status = self.child.wait() => break status?,
            }
        };
        // The group outlives its leader while it has members, so its number is still ours.
        self.kill();
        let drained = tokio::time::timeout(DRAIN_TIME, self.drain(context)).await;
        match drained {
            Ok(result) => result?,
            Err(_) => tracing::debug!("a process left the command's group and holds its pipes"),
        }
        Ok(End::Exited(code(status)))
    }

    /// Asks the group to end, kills it after `grace`, and waits for the leader's end.
    pub(super) async fn stop(&mut self, grace: Duration) {
        self.signal(Signal::TERM);
        // Keep reading, so that the command does not block on a full pipe instead of ending.
        let nobody = Context::create("", wellspring_core::CancellationToken::new());
        let ending = async {
            let (drained, status) =
                tokio::join!(drain(&mut self.stdout, &mut self.stderr, &nobody), self.child.wait());
            drained.and(status.map(drop))
        };
        if let Ok(Err(error)) = tokio::time::timeout(grace, ending).await {
            tracing::debug!(%error, "gave up waiting for a command that was told to end");
        }
        self.kill();
        if let Err(error) = self.child.wait().await {
            tracing::warn!(%error, "could not wait for a killed command");
        }
    }

    /// The command's output.
    pub(super) fn output(&mut self) -> Value {
        json!({ "stdout": self.stdout.text(), "stderr": self.stderr.text() })
    }

    async fn drain(&mut self, context: &Context) -> io::Result<()> {
        drain(&mut self.stdout, &mut self.stderr, context).await
    }

    fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.group = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // An error means that the group is empty already.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads both pipes to their end.
async fn drain(
    stdout: &mut Pipe<ChildStdout>,
    stderr: &mut Pipe<ChildStderr>,
    context: &Context,
) -> io::Result<()> {
    while stdout.open || stderr.open {
        tokio::select! {
            read = stdout.read(), if stdout.open => stdout.show(read?, context).await,
            read = stderr.read(), if stderr.open => stderr.show(read?, context).await,
        }
    }
    Ok(())
}

fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

/// One of the command's streams.
struct Pipe<R> {
    subtype: &'static str,
    reader: Option<R>,
    open: bool,
    decoder: Decoder,
    capture: Capture,
    shown: Shown,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Pipe<R> {
    fn new(subtype: &'static str, reader: Option<R>) -> Self {
        Self {
            subtype,
            open: reader.is_some(),
            reader,
            decoder: Decoder::default(),
            capture: Capture::default(),
            shown: Shown::default(),
            buffer: vec![0; READ_BYTES],
        }
    }

    /// The next piece of text, which may be empty.
    async fn read(&mut self) -> io::Result<String> {
        let Some(reader) = &mut self.reader else { return Ok(String::new()) };
        let count = reader.read(&mut self.buffer).await?;
        let text = if count == 0 {
            self.open = false;
            self.decoder.finish().to_owned()
        } else {
            self.decoder.push(&self.buffer[..count])
        };
        self.capture.push(&text);
        Ok(text)
    }

    async fn show(&mut self, text: String, context: &Context) {
        if let Some(content) = self.shown.pass(text) {
            context.progress(json!({ "subtype": self.subtype, "content": content })).await;
        }
    }

    fn text(&mut self) -> String {
        std::mem::take(&mut self.capture).text()
    }
}
