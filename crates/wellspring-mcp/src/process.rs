//! A process that is talked to over its pipes: its group, its pipes, its last words.
//!
//! The process leads its own group; everything left of the group when the server is closed or
//! dropped is killed. (The engine's shell does the same for commands that run to their end. Here a
//! process outlives many calls, so the two share the idea but not the code.)

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

/// Bytes kept of what a server writes to its standard error: a stack trace and what led to it.
pub const STDERR_BYTES_MAX: usize = 4 * 1024;

/// How long a server has to end, once its input is closed and again once it was asked to:
/// time to write its files, too little to notice when a program ends.
pub const STOP_GRACE: Duration = Duration::from_secs(2);

/// How long a process that closed its output has to end by itself: its exit code says more
/// than that we killed it.
const EXIT_TIME: Duration = Duration::from_millis(500);

/// Leaves a command only [`CHILD_ENVIRONMENT`] of our environment.
pub fn clear_environment(command: &mut Command) {
    command.env_clear();
    for name in CHILD_ENVIRONMENT {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
}

/// A process, and its group. Dropped, it kills the group.
#[derive(Debug)]
pub struct Process {
    child: Child,
    group: Option<Pid>,
    stderr: LastWords,
    reader: AbortOnDropHandle<()>,
}

/// The pipes to talk over.
#[derive(Debug)]
pub struct Pipes {
    /// What it reads.
    pub stdin: ChildStdin,
    /// What it writes.
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
    /// If there is no such command, or it may not be run.
    pub fn spawn(mut command: Command) -> io::Result<(Self, Pipes)> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            // Tokio reaps a child that is dropped while it runs.
            .kill_on_drop(true)
            .spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let pipes = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
        let Some(((stdin, stdout), stderr)) = pipes else {
            return Err(io::Error::other("the process has no pipes"));
        };
        let words = LastWords::default();
        let reader = AbortOnDropHandle::new(tokio::spawn(words.clone().keep(stderr)));
        let process = Self { child, group, stderr: words, reader };
        Ok((process, Pipes { stdin, stdout }))
    }

    /// What it wrote to its standard error, the end of it.
    #[must_use]
    pub fn last_words(&self) -> LastWords {
        self.stderr.clone()
    }

    /// Waits for its end by itself for a moment, then makes an end: asks, then kills. What
    /// it started goes with it.
    pub async fn stop(&mut self) -> Option<ExitStatus> {
        let mut status = tokio::time::timeout(STOP_GRACE, self.child.wait()).await;
        if status.is_err() {
            self.signal(Signal::TERM);
            status = tokio::time::timeout(STOP_GRACE, self.child.wait()).await;
        }
        // The group outlives its leader while it has members, so its number is still ours.
        self.kill();
        if let Ok(status) = status {
            return status.ok();
        }
        self.child.wait().await.ok()
    }

    /// Kills a process whose connection broke. Returns how it ended, if it ended by itself.
    pub async fn end(&mut self) -> Option<ExitStatus> {
        let ended = tokio::time::timeout(EXIT_TIME, self.child.wait()).await;
        self.kill();
        let _ = self.child.wait().await;
        // Its last words may still be in the pipe.
        let _ = tokio::time::timeout(EXIT_TIME, &mut self.reader).await;
        ended.ok()?.ok()
    }

    fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.group = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // An error means that the group is empty: what was wanted.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The end of what a server wrote to its standard error. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct LastWords(Arc<Mutex<VecDeque<u8>>>);

impl LastWords {
    /// What is kept of it.
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
