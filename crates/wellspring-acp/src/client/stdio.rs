//! A local agent: a process that speaks on its standard input and output, one
//! message per line.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{ChildStdout, Command};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use wellspring_mcp::process::{Pipes, Process, clear_environment};

use super::config::{AcpConfig, AcpTransport};
use super::connection::{Heard, LINES_WAITING_MAX, Wire};
use super::error::AcpError;
use super::known_agents::KnownAgent;
use crate::rpc;

/// Maximum bytes of one message. Files with images take a few megabytes; anything larger comes from
/// a broken peer, and would stay in the log.
pub const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Starts an agent's process.
pub(super) fn start(config: &AcpConfig) -> Result<Wire, AcpError> {
    let mut variables: &[&str] = &[];
    let words = match &config.transport {
        AcpTransport::Command(words) => words.clone(),
        AcpTransport::Name(name) => {
            let known = KnownAgent::of_name(name).ok_or_else(|| AcpError::NotInstalled {
                program: name.clone(),
                hint: "it is not an agent known by name; give its command".into(),
            })?;
            variables = known.variables;
            known.command(&path(config))?
        }
        AcpTransport::Url(url) => {
            return Err(AcpError::Command { line: url.clone(), why: "it is a URL" });
        }
    };
    let Some((program, args)) = words.split_first() else {
        return Err(AcpError::Command { line: "".into(), why: "it is empty" });
    };
    let mut command = Command::new(&**program);
    command.args(args.iter().map(|arg| &**arg));
    clear_environment(&mut command);
    for name in variables {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    for name in &config.env_remove {
        command.env_remove(&**name);
    }
    command.envs(config.env.iter().map(|(name, value)| (&**name, &**value)));
    if let Some(cwd) = &config.cwd {
        command.current_dir(cwd);
    }
    let (process, pipes) = Process::spawn(command).map_err(|error| AcpError::Start {
        program: program.clone(),
        why: error.to_string().into(),
    })?;
    Ok(wire(process, pipes))
}

/// Where programs are searched.
fn path(config: &AcpConfig) -> Vec<PathBuf> {
    let own = config.env.get("PATH").map(|path| path.as_ref().into());
    let path = own.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    std::env::split_paths(&path).filter(|folder| folder != Path::new("")).collect()
}

fn wire(process: Process, Pipes { stdin, stdout }: Pipes) -> Wire {
    let (out, lines_out) = mpsc::channel(LINES_WAITING_MAX);
    let (heard, incoming) = mpsc::channel(LINES_WAITING_MAX);
    // An agent that does not read is gone, and the other pipe reports it.
    let writing = AbortOnDropHandle::new(tokio::spawn(rpc::write(stdin, lines_out)));
    let reading = AbortOnDropHandle::new(tokio::spawn(read(process, stdout, heard)));
    Wire { out, incoming, tasks: vec![writing, reading] }
}

/// Owns the process: dropping it kills the process group.
async fn read(mut process: Process, stdout: ChildStdout, heard: mpsc::Sender<Heard>) {
    let mut stdout = BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = LINE_BYTES_MAX as u64 + 1;
        let read = (&mut stdout).take(limit).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(1..)) {
            break;
        }
        if line.len() > LINE_BYTES_MAX {
            process.end().await;
            let what = format!("a message has more than {LINE_BYTES_MAX} bytes").into();
            let last_words = process.last_words().text().into();
            let _ = heard.send(Heard::End(AcpError::Protocol { what, last_words })).await;
            return;
        }
        if heard.send(Heard::Line(std::mem::take(&mut line))).await.is_err() {
            return;
        }
    }
    let status = process.end().await;
    let last_words = process.last_words().text().into();
    let _ = heard.send(Heard::End(AcpError::Ended { status: said(status), last_words })).await;
}

fn said(status: Option<ExitStatus>) -> Option<Box<str>> {
    status.map(|status| status.to_string().into())
}
