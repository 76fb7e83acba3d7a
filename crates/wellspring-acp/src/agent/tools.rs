//! The client's files and terminals, as tools.
//!
//! They work on what the editor shows, including unsaved changes, and users see commands run in a
//! terminal. Paths stay below the session's directories.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use wellspring_core::{
    ContentChange, Context, Location, Tool, ToolContent, ToolError, ToolKind, ToolUpdate,
};
use wellspring_engine::tools::files::READ_BYTES_MAX;
use wellspring_engine::tools::function;

use super::Client;
use super::host::SHOW_TIME;
use super::session::Session;
use crate::rpc::{Peer, RpcError};

/// Maximum bytes of a command's output that the model gets: the last ones.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Default time limit of a command, in seconds.
const SECONDS_DEFAULT: u64 = 120;

/// Maximum time limit of a command, in seconds, even if the model asks for more.
const SECONDS_MAX: u64 = 3600;

/// The tools that a client provides for a session.
pub(super) fn client_tools(
    peer: &Peer,
    session: &Arc<Session>,
    client: Client,
) -> Vec<Arc<dyn Tool>> {
    let resources = ClientResources {
        peer: peer.clone(),
        session: Arc::clone(session),
        reads_files: client.reads_files,
    };
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    if client.reads_files {
        let resources = resources.clone();
        let about =
            "Reads a text file, as the user's editor has it, or the lines from `offset` on.";
        let tool = function("read_file", about, move |arguments, context| {
            resources.clone().read(arguments, context)
        });
        tools.push(Arc::new(tool.title("Read file").kind(ToolKind::Read).idempotent()));
    }
    if client.writes_files {
        let resources = resources.clone();
        let about = "Writes a text file in the user's editor, replacing its content.";
        let tool = function("write_file", about, move |arguments, context| {
            resources.clone().write(arguments, context)
        });
        tools.push(Arc::new(tool.title("Write file").kind(ToolKind::Edit).idempotent()));
    }
    if client.has_terminals {
        let about = "Runs a shell command (sh) in a terminal of the user's editor and returns its \
            exit code and its output, both streams combined. It gets no input.";
        let tool = function("run_shell_command", about, move |arguments, context| {
            resources.clone().run(arguments, context)
        });
        let tool = tool.title("Shell").kind(ToolKind::Execute).sequential();
        // A command may be silent until its time limit.
        let limit = Duration::from_secs(SECONDS_MAX + 60);
        tools.push(Arc::new(tool.idle_timeout(limit).timeout(limit)));
    }
    tools
}

#[derive(Clone, Debug)]
struct ClientResources {
    peer: Peer,
    session: Arc<Session>,
    reads_files: bool,
}

#[derive(Deserialize, JsonSchema)]
struct Read {
    /// The file, relative to the working directory.
    path: Box<str>,
    /// The first line to read; lines count from 1.
    #[schemars(range(min = 1))]
    offset: Option<u32>,
    /// How many lines to read; all when absent.
    #[schemars(range(min = 1))]
    limit: Option<u32>,
}

#[derive(Deserialize, JsonSchema)]
struct Write {
    /// The file, relative to the working directory.
    path: Box<str>,
    /// The new content of the file.
    content: Box<str>,
}

#[derive(Deserialize, JsonSchema)]
struct Run {
    /// The command line.
    command: Box<str>,
    /// The directory to start in, relative to the working directory.
    cwd: Option<Box<str>>,
    /// Seconds it may take, at most 3600.
    #[serde(default = "default_seconds")]
    timeout: u64,
}

fn default_seconds() -> u64 {
    SECONDS_DEFAULT
}

impl ClientResources {
    async fn read(self, arguments: Read, context: Context) -> Result<Value, ToolError> {
        let path = self.path(&arguments.path)?;
        let locations = vec![Location { path: shown(&path), line: arguments.offset }];
        context.update(ToolUpdate { locations, ..ToolUpdate::default() }).await;
        let mut params = json!({"sessionId": self.session.id, "path": shown(&path)});
        for (name, value) in [("line", arguments.offset), ("limit", arguments.limit)] {
            if let Some(value) = value {
                params[name] = value.into();
            }
        }
        let answer = self.ask(&context, "fs/read_text_file", &params).await?;
        let text = answer["content"].as_str().unwrap_or_default();
        let end = text.floor_char_boundary(READ_BYTES_MAX);
        let mut excerpt = json!({"content": &text[..end]});
        if end < text.len() {
            excerpt["cut_by_bytes"] = (text.len() - end).into();
        }
        Ok(excerpt)
    }

    async fn write(self, arguments: Write, context: Context) -> Result<Value, ToolError> {
        let path = self.path(&arguments.path)?;
        let params = json!({"sessionId": self.session.id, "path": shown(&path)});
        // A file that cannot be read counts as new.
        let old_text = match self.reads_files {
            true => self.ask(&context, "fs/read_text_file", &params).await.ok(),
            false => None,
        };
        let diff = ToolContent::Diff {
            path: shown(&path),
            old_text: old_text.as_ref().and_then(|it| it["content"].as_str()).map(Into::into),
            new_text: arguments.content.clone(),
        };
        let update = ToolUpdate {
            locations: vec![Location { path: shown(&path), line: None }],
            content: Some(ContentChange::Replace(vec![diff])),
            ..ToolUpdate::default()
        };
        context.update(update).await;
        let mut params = params;
        params["content"] = (&*arguments.content).into();
        self.ask(&context, "fs/write_text_file", &params).await?;
        Ok(json!({"written_bytes": arguments.content.len()}))
    }

    async fn run(self, arguments: Run, context: Context) -> Result<Value, ToolError> {
        let cwd = self.path(arguments.cwd.as_deref().unwrap_or("."))?;
        let params = json!({
            "sessionId": self.session.id,
            "command": "sh",
            "args": ["-c", arguments.command],
            "env": [],
            "cwd": shown(&cwd),
            "outputByteLimit": OUTPUT_BYTES_MAX,
        });
        let created = self.ask(&context, "terminal/create", &params).await?;
        let id = created["terminalId"].as_str();
        let id = id.ok_or_else(|| ToolError::new("the client made a terminal without an id"))?;
        let mut terminal = Terminal {
            params: json!({"sessionId": self.session.id, "terminalId": id}),
            peer: self.peer.clone(),
            is_released: false,
        };
        let content = vec![ToolContent::Terminal { terminal_id: id.into() }];
        let title = Some(arguments.command.chars().take(200).collect::<String>().into());
        let content = Some(ContentChange::Replace(content));
        context.update(ToolUpdate { title, content, ..ToolUpdate::default() }).await;
        let timeout = Duration::from_secs(arguments.timeout.clamp(1, SECONDS_MAX));
        let ended = tokio::select! {
            ended = self.peer.ask("terminal/wait_for_exit", &terminal.params) => {
                ended.map(|status| (status, None)).map_err(|error| failed("terminal/wait_for_exit", &error))
            }
            () = context.signal().cancelled() => Ok((Value::Null, Some("killed on request".to_owned()))),
            () = tokio::time::sleep(timeout) => {
                Ok((Value::Null, Some(format!("killed after {} s", timeout.as_secs()))))
            }
        };
        if !matches!(ended, Ok((_, None))) {
            // It may have ended meanwhile.
            let _ = self.peer.ask("terminal/kill", &terminal.params).await;
        }
        let output = self.peer.ask("terminal/output", &terminal.params).await;
        // A terminal can be shown only before it is released.
        let _ = tokio::time::timeout(SHOW_TIME, self.session.showing(id)).await;
        terminal.release().await;
        let (status, killed) = ended?;
        let output = output.map_err(|error| failed("terminal/output", &error))?;
        let all = output["output"].as_str().unwrap_or_default();
        // The client was asked to limit the output, but need not have done so.
        let text = &all[all.ceil_char_boundary(all.len().saturating_sub(OUTPUT_BYTES_MAX))..];
        if let Some(why) = killed {
            return Err(ToolError::new(format!("{why}; so far it wrote {text}")));
        }
        let mut result = json!({"stdout": text, "exit_code": status["exitCode"]});
        if let Some(signal) = status["signal"].as_str() {
            result["signal"] = signal.into();
        }
        if output["truncated"] == json!(true) || text.len() < all.len() {
            result["truncated"] = true.into();
        }
        Ok(result)
    }

    async fn ask(
        &self,
        context: &Context,
        method: &str,
        params: &Value,
    ) -> Result<Value, ToolError> {
        tokio::select! {
            answer = self.peer.ask(method, params) => answer.map_err(|error| failed(method, &error)),
            () = context.signal().cancelled() => Err(ToolError::new("cancelled before the end")),
        }
    }

    fn path(&self, path: &str) -> Result<PathBuf, ToolError> {
        self.session.below(path).map_err(ToolError::new)
    }
}

/// A terminal of the client. It is always released, which also ends its command.
struct Terminal {
    peer: Peer,
    params: Value,
    is_released: bool,
}

impl Terminal {
    async fn release(&mut self) {
        self.is_released = true;
        if let Err(error) = self.peer.ask("terminal/release", &self.params).await {
            tracing::debug!(%error, "the client failed to release its terminal");
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if self.is_released {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (peer, params) = (self.peer.clone(), self.params.take());
            runtime.spawn(async move {
                let _ = peer.ask("terminal/release", &params).await;
            });
        }
    }
}

fn failed(method: &str, error: &RpcError) -> ToolError {
    ToolError::new(format!("the client refused {method}: {}", error.message))
}

fn shown(path: &Path) -> Box<str> {
    path.to_string_lossy().into()
}
