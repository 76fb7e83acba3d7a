//! Commands that an agent runs through us. Each leads its own process group, and none outlives the
//! run.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;
use wellspring_mcp::process::{ProcessGroup, clear_environment};

use super::files::Files;
use crate::lock;
use crate::rpc::RpcError;

/// Terminals of one run at the same time.
pub const TERMINALS_MAX: usize = 32;

/// Bytes of a terminal's output that an agent can ask for; older output is dropped. All of it is
/// in the log.
pub const TERMINAL_BYTES_MAX: usize = 1024 * 1024;

/// Pieces of output that wait for the log; when full, the command blocks.
const PIECES_WAITING_MAX: usize = 64;

/// The terminals of a run. Dropping them kills their process groups.
pub(super) struct Terminals {
    running: BTreeMap<Box<str>, Terminal>,
    started: u64,
    tell: mpsc::Sender<Wrote>,
    told: mpsc::Receiver<Wrote>,
}

/// An event of a terminal.
#[derive(Debug)]
pub(super) enum Wrote {
    /// Output.
    Text(Box<str>, String),
    /// The output has ended.
    Over(Box<str>),
}

struct Terminal {
    group: ProcessGroup,
    kept: Arc<Mutex<Kept>>,
    exit: watch::Receiver<Option<ExitStatus>>,
    _work: AbortOnDropHandle<()>,
}

/// The end of a terminal's output.
#[derive(Debug)]
struct Kept {
    text: String,
    max: usize,
    truncated: bool,
}

impl Terminals {
    pub(super) fn new() -> Self {
        let (tell, told) = mpsc::channel(PIECES_WAITING_MAX);
        Self { running: BTreeMap::new(), started: 0, tell, told }
    }

    /// The output of all terminals.
    pub(super) async fn wrote(&mut self) -> Wrote {
        match self.told.recv().await {
            Some(wrote) => wrote,
            None => std::future::pending().await,
        }
    }

    /// Whether any command is running.
    pub(super) fn is_busy(&self) -> bool {
        self.running.values().any(|terminal| terminal.exit.borrow().is_none())
    }

    /// Answers a `terminal/` request, immediately or when the command has ended.
    pub(super) fn serve(
        &mut self,
        method: &str,
        params: &Value,
        files: &Files,
    ) -> BoxFuture<'static, Result<Value, RpcError>> {
        let answer = match method {
            "terminal/create" => self.create(params, files),
            "terminal/output" => self.find(params).map(|terminal| terminal.output()),
            "terminal/wait_for_exit" => match self.find(params) {
                Ok(terminal) => return Box::pin(wait(terminal.exit.clone())),
                Err(refusal) => Err(refusal),
            },
            "terminal/kill" => self.find(params).map(|terminal| {
                terminal.group.kill();
                json!({})
            }),
            "terminal/release" => self.find(params).map(|_| ()).map(|()| {
                let id = params["terminalId"].as_str().unwrap_or_default();
                self.running.remove(id);
                let _ = self.tell.try_send(Wrote::Over(id.into()));
                json!({})
            }),
            _ => Err(RpcError::invalid(format!("there is no method {method:?} here"))),
        };
        Box::pin(std::future::ready(answer))
    }

    fn find(&mut self, params: &Value) -> Result<&mut Terminal, RpcError> {
        let id = params["terminalId"].as_str().unwrap_or_default();
        let found = self.running.get_mut(id);
        found.ok_or_else(|| RpcError::not_found(format!("there is no terminal {id:?}")))
    }

    fn create(&mut self, params: &Value, files: &Files) -> Result<Value, RpcError> {
        if self.running.len() >= TERMINALS_MAX {
            let why = format!("there are {TERMINALS_MAX} terminals already; release some");
            return Err(RpcError::failed(why));
        }
        let Some(program) = params["command"].as_str() else {
            return Err(RpcError::invalid("there is no command"));
        };
        let args = params["args"].as_array().into_iter().flatten();
        let mut command = Command::new(program);
        command.args(args.filter_map(Value::as_str)).current_dir(files.folder(&params["cwd"])?);
        clear_environment(&mut command);
        for variable in params["env"].as_array().into_iter().flatten() {
            if let (Some(name), Some(value)) =
                (variable["name"].as_str(), variable["value"].as_str())
            {
                command.env(name, value);
            }
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| RpcError::failed(format!("{program}: {error}")))?;
        self.started += 1;
        let id: Box<str> = format!("terminal-{}", self.started).into();
        let group = ProcessGroup::led_by(&child);
        let limit = params["outputByteLimit"].as_u64().and_then(|it| usize::try_from(it).ok());
        let max = limit.unwrap_or(TERMINAL_BYTES_MAX).min(TERMINAL_BYTES_MAX);
        let kept = Arc::new(Mutex::new(Kept { text: String::new(), max, truncated: false }));
        let (ended, exit) = watch::channel(None);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let writer = Writer { id: id.clone(), kept: Arc::clone(&kept), tell: self.tell.clone() };
        let work = tokio::spawn(async move {
            let reading = async {
                tokio::join!(writer.copy(stdout), writer.copy(stderr));
            };
            let waiting = async {
                if let Ok(status) = child.wait().await {
                    let _ = ended.send(Some(status));
                }
            };
            tokio::join!(reading, waiting);
            let _ = writer.tell.send(Wrote::Over(writer.id.clone())).await;
        });
        let work = AbortOnDropHandle::new(work);
        self.running.insert(id.clone(), Terminal { group, kept, exit, _work: work });
        Ok(json!({"terminalId": id}))
    }
}

impl Terminal {
    fn output(&self) -> Value {
        let kept = lock(&self.kept);
        let exit = self.exit.borrow().map(exit_status);
        json!({"output": kept.text, "truncated": kept.truncated, "exitStatus": exit})
    }
}

async fn wait(mut exit: watch::Receiver<Option<ExitStatus>>) -> Result<Value, RpcError> {
    match exit.wait_for(Option::is_some).await {
        Ok(status) => Ok(status.map(exit_status).unwrap_or_default()),
        Err(_) => Err(RpcError::failed("the terminal was released")),
    }
}

fn exit_status(status: ExitStatus) -> Value {
    let signal = status.signal().map(|number| match Signal::from_named_raw(number) {
        Some(signal) => format!("{signal:?}"),
        None => number.to_string(),
    });
    json!({"exitCode": status.code(), "signal": signal})
}

struct Writer {
    id: Box<str>,
    kept: Arc<Mutex<Kept>>,
    tell: mpsc::Sender<Wrote>,
}

impl Writer {
    async fn copy(&self, from: Option<impl AsyncRead + Unpin>) {
        let Some(mut from) = from else { return };
        let mut buffer = [0; 8 * 1024];
        // A character may be split between reads.
        let mut cut = Vec::new();
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            cut.extend_from_slice(&buffer[..count]);
            let whole = match std::str::from_utf8(&cut) {
                Ok(_) => cut.len(),
                Err(error) if error.error_len().is_none() => error.valid_up_to(),
                Err(_) => cut.len(),
            };
            let rest = cut.split_off(whole);
            self.write(&String::from_utf8_lossy(&cut)).await;
            cut = rest;
        }
        self.write(&String::from_utf8_lossy(&cut)).await;
    }

    async fn write(&self, text: &str) {
        if text.is_empty() {
            return;
        }
        lock(&self.kept).push(text);
        let _ = self.tell.send(Wrote::Text(self.id.clone(), text.to_owned())).await;
    }
}

impl Kept {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        if self.text.len() > self.max {
            let surplus = self.text.ceil_char_boundary(self.text.len() - self.max);
            self.text.drain(..surplus);
            self.truncated = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_output_is_kept() {
        let mut kept = Kept { text: String::new(), max: 2, truncated: false };
        kept.push("ab");
        assert_eq!((kept.text.as_str(), kept.truncated), ("ab", false));
        kept.push("é");
        assert_eq!((kept.text.as_str(), kept.truncated), ("é", true));
        kept.push("f");
        assert_eq!(kept.text, "f", "half a letter is none");
    }

    /// A command whose output is not read blocks, and loses nothing.
    #[tokio::test]
    async fn a_command_waits_for_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::open(folder.path(), super::super::FileAccess::Write).unwrap();
        let mut terminals = Terminals::new();
        let bytes = 4 * PIECES_WAITING_MAX * 8 * 1024;
        let command = format!("head -c {bytes} /dev/zero | tr '\\0' x");
        let params = json!({"command": "sh", "args": ["-c", command]});
        terminals.serve("terminal/create", &params, &files).await.unwrap();
        while terminals.tell.capacity() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(terminals.is_busy());
        let mut written = 0;
        while let Wrote::Text(_, text) = terminals.wrote().await {
            written += text.len();
        }
        assert_eq!(written, bytes);
    }
}
