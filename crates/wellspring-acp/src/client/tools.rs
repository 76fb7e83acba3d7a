//! Our tools, offered to an ACP agent.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, FutureExt as _};
use serde_json::{Value, json};
use wellspring_core::{Context, RETURN_RESULT, Tool, ToolError, ToolResult, ToolSpec};
use wellspring_mcp::{Loopback, LoopbackCall, LoopbackHandler};

use super::config::AcpConfig;
use super::error::AcpError;
use super::running_agent::Peer;
use crate::lock;

/// The name of the MCP server with our tools; agents put it before the tools' names.
pub const SERVER_NAME: &str = "wellspring";

/// The tools of a session.
pub(super) struct Toolbox {
    loopback: Loopback,
    desk: Arc<Desk>,
    offered: Vec<ToolSpec>,
}

/// Runs calls within the current run.
#[derive(Default)]
struct Desk {
    context: Mutex<Option<Context>>,
    result_taken: AtomicBool,
    running: AtomicUsize,
    /// Counts calls as they start and end.
    signs_of_life: AtomicUsize,
}

impl LoopbackHandler for Desk {
    fn call(&self, call: LoopbackCall) -> BoxFuture<'_, Result<ToolResult, ToolError>> {
        let context = lock(&self.context).clone();
        async move {
            let Some(context) = context else {
                return Err(ToolError::new("there is no active run that could use this tool"));
            };
            let returns = &*call.tool().spec().name == RETURN_RESULT;
            self.running.fetch_add(1, Ordering::Relaxed);
            self.signs_of_life.fetch_add(1, Ordering::Relaxed);
            let counted = Counted(&self.running);
            let done = call.run(context).await;
            drop(counted);
            self.signs_of_life.fetch_add(1, Ordering::Relaxed);
            if returns && done.is_ok() {
                self.result_taken.store(true, Ordering::Relaxed);
            }
            done
        }
        .boxed()
    }
}

struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Toolbox {
    /// Offers the tools, if there are any.
    pub(super) async fn open(tools: &[Arc<dyn Tool>]) -> Result<Option<Self>, AcpError> {
        if tools.is_empty() {
            return Ok(None);
        }
        let desk = Arc::new(Desk::default());
        let handler = Arc::clone(&desk) as Arc<dyn LoopbackHandler>;
        let loopback = Loopback::start(SERVER_NAME, tools.to_vec(), handler).await;
        let loopback = loopback.map_err(|error| AcpError::Tools(error.to_string().into()))?;
        Ok(Some(Self { loopback, desk, offered: specs(tools) }))
    }

    /// Whether these are the tools that the agent knows.
    pub(super) fn has(&self, tools: &[Arc<dyn Tool>]) -> bool {
        self.offered == specs(tools)
    }

    /// Routes calls to this run from now on.
    pub(super) fn begin(&self, tools: &[Arc<dyn Tool>], context: Context) {
        self.loopback.offer(tools.to_vec());
        self.desk.result_taken.store(false, Ordering::Relaxed);
        *lock(&self.desk.context) = Some(context);
    }

    /// Refuses calls from now on.
    pub(super) fn rest(&self) {
        lock(&self.desk.context).take();
    }

    /// Whether the typed result of this run was returned.
    pub(super) fn has_result(&self) -> bool {
        self.desk.result_taken.load(Ordering::Relaxed)
    }

    /// Whether a call is running.
    pub(super) fn is_busy(&self) -> bool {
        self.desk.running.load(Ordering::Relaxed) > 0
    }

    /// Changes whenever a call starts or ends.
    pub(super) fn signs_of_life(&self) -> usize {
        self.desk.signs_of_life.load(Ordering::Relaxed)
    }

    /// Waits until the agent has listed the tools.
    pub(super) async fn seen(&self, within: std::time::Duration) -> Result<(), AcpError> {
        self.loopback.seen(within).await.map_err(AcpError::ToolsNeverSeen)
    }

    /// The server in the form of `session/new`.
    pub(super) fn server(&self, peer: &Peer, config: &AcpConfig) -> Result<Value, AcpError> {
        if peer.capability("/mcpCapabilities/http") {
            let (name, value) = self.loopback.header();
            let headers = json!([{"name": name, "value": value}]);
            let url = self.loopback.url();
            return Ok(
                json!({"type": "http", "name": SERVER_NAME, "url": url, "headers": headers}),
            );
        }
        let bridge = config.bridge.clone().or_else(own_bridge).ok_or_else(|| {
            let why = "it takes MCP servers over stdio only, and that needs the program \
                       `wellspring` on the PATH, or `bridge` to be configured";
            AcpError::Tools(why.into())
        })?;
        let Some((command, args)) = bridge.split_first() else {
            return Err(AcpError::Tools("`bridge` is empty".into()));
        };
        let variable = |name: &str, value: &str| json!({"name": name, "value": value});
        // In the environment, because other users can read a command line.
        let env = [
            variable("WELLSPRING_MCP_URL", self.loopback.url()),
            variable("WELLSPRING_MCP_TOKEN", self.loopback.token()),
        ];
        Ok(json!({"name": SERVER_NAME, "command": command, "args": args, "env": env}))
    }
}

fn specs(tools: &[Arc<dyn Tool>]) -> Vec<ToolSpec> {
    tools.iter().map(|tool| tool.spec().clone()).collect()
}

/// The bridge command of the program `wellspring`, if it is installed.
fn own_bridge() -> Option<Vec<Box<str>>> {
    let path = std::env::var_os("PATH")?;
    let mut folders = std::env::split_paths(&path);
    let program: PathBuf = folders.find_map(|folder| {
        let program = folder.join("wellspring");
        program.is_file().then_some(program)
    })?;
    Some(vec![program.to_str()?.into(), "mcp-bridge".into()])
}
