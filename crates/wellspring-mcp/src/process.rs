//! A process that communicates over its pipes: its process group, its pipes, its last output.
//!
//! The process leads its own group; the rest of the group is killed when the server is closed
//! or dropped. (The engine's shell does the same for commands that run to their end. Here a
//! process outlives many calls, so the code is not shared.)

use std::collections::VecDeque;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio_util::task::AbortOnDropHandle;
use wellspring_core::CHILD_ENVIRONMENT;

use crate::config::McpTransport;

/// Bytes of a server's standard error that are kept: a stack trace and the lines before it.
pub const STDERR_BYTES_MAX: usize = 4 * 1024;

/// How long a server may take to end after its input is closed, and again after it is asked to
/// end: enough to write its files, and hardly noticeable when a program exits.
pub const STOP_GRACE: Duration = Duration::from_secs(2);

/// How long a process that closed its output may take to exit by itself: its own exit code says
/// more than that we killed it.
const EXIT_TIME: Duration = Duration::from_millis(500);

/// Removes all variables from a command's environment except [`CHILD_ENVIRONMENT`].
pub fn clear_environment(command: &mut Command) {
    command.env_clear();
    for name in CHILD_ENVIRONMENT {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
}

/// A process and its group. The group is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    group: ProcessGroup,
    stderr: LastWords,
    reader: AbortOnDropHandle<()>,
}

/// The pipes of a process.
#[derive(Debug)]
pub struct Pipes {
    /// The process's standard input.
    pub stdin: ChildStdin,
    /// The process's standard output.
    pub stdout: ChildStdout,
}

impl Process {
    /// Starts a command; `None` for other transports.
    pub(crate) fn start(transport: &McpTransport) -> Option<io::Result<(Self, Pipes)>> {
        let McpTransport::Stdio { command, args, env, cwd } = transport else { return None };
        let mut starting = Command::new(&**command);
        starting.args(args.iter().map(|arg| &**arg));
        clear_environment(&mut starting);
        starting.envs(env.iter().map(|(name, value)| (&**name, &**value)));
        if let Some(directory) = cwd {
            starting.current_dir(directory);
        }
        Some(Self::spawn(starting))
    }

    /// Starts a command in its own process group.
    ///
    /// # Errors
    ///
    /// If the command does not exist, or must not be executed.
    pub fn spawn(mut command: Command) -> io::Result<(Self, Pipes)> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            // Tokio reaps a child that is dropped while it runs.
            .kill_on_drop(true)
            .spawn()?;
        let group = ProcessGroup::led_by(&child);
        let pipes = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
        let Some(((stdin, stdout), stderr)) = pipes else {
            return Err(io::Error::other("the process has no pipes"));
        };
        let words = LastWords::default();
        let reader = AbortOnDropHandle::new(tokio::spawn(words.clone().keep(stderr)));
        let process = Self { child, group, stderr: words, reader };
        Ok((process, Pipes { stdin, stdout }))
    }

    /// The end of its standard error.
    #[must_use]
    pub fn last_words(&self) -> LastWords {
        self.stderr.clone()
    }

    /// Waits a moment for the process to exit, then terminates and finally kills it, with
    /// everything that it started.
    pub async fn stop(&mut self) -> Option<ExitStatus> {
        let mut status = tokio::time::timeout(STOP_GRACE, self.child.wait()).await;
        if status.is_err() {
            self.group.signal(Signal::TERM);
            status = tokio::time::timeout(STOP_GRACE, self.child.wait()).await;
        }
        // The group exists while it has members, even without its leader, so its id is still
        // ours.
        self.group.kill();
        if let Ok(status) = status {
            return status.ok();
        }
        self.child.wait().await.ok()
    }

    /// Ends a process whose connection was lost. Returns its exit status if it exited by
    /// itself.
    pub async fn end(&mut self) -> Option<ExitStatus> {
        let ended = tokio::time::timeout(EXIT_TIME, self.child.wait()).await;
        self.group.kill();
        let _ = self.child.wait().await;
        // Its last output may still be in the pipe.
        let _ = tokio::time::timeout(EXIT_TIME, &mut self.reader).await;
        ended.ok()?.ok()
    }
}

/// A process group, which is killed when this is dropped.
#[derive(Debug)]
pub struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    /// The group that a child leads.
    #[must_use]
    pub fn led_by(child: &Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(id.cast_signed())))
    }

    /// Kills the group. Its number may be used again afterwards, so later calls do nothing.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.0 = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // An error means that the group is empty.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The end of a server's standard error. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct LastWords(Arc<Mutex<VecDeque<u8>>>);

impl LastWords {
    /// The text that is kept.
    #[must_use]
    pub fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: Vec<u8> = kept.iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(crate) fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = &bytes[bytes.len().saturating_sub(STDERR_BYTES_MAX)..];
        let surplus = (kept.len() + bytes.len()).saturating_sub(STDERR_BYTES_MAX);
        kept.drain(..surplus);
        kept.extend(bytes);
    }

    async fn keep(self, mut stderr: ChildStderr) {
        let mut buffer = [0; 4 * 1024];
        while let Some(count) = read(&mut stderr, &mut buffer).await {
            self.push(&buffer[..count]);
        }
    }
}

async fn read(from: &mut (impl AsyncRead + Unpin), buffer: &mut [u8]) -> Option<usize> {
    from.read(buffer).await.ok().filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_words_is_kept() {
        let words = LastWords::default();
        words.push(&[b'a'; STDERR_BYTES_MAX]);
        words.push(b"the end");
        let kept = words.text();
        assert_eq!(kept.len(), STDERR_BYTES_MAX);
        assert!(kept.ends_with("aathe end"));
        words.push(&[b'b'; 2 * STDERR_BYTES_MAX]);
        assert_eq!(words.text(), "b".repeat(STDERR_BYTES_MAX));
    }
}
