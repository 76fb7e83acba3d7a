//! The built-in agent `demo`: when it exists, and when it has a shell.
//!
//! Anyone who may approve its question may also edit the command, so a shell in `demo` is a shell
//! for every token. Without tokens and bots, on loopback, only the user of this machine can approve.
//! In all other cases `demo` and its shell exist only if the configuration enables them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::future::{BoxFuture, FutureExt as _};
use serde_json::Value;
use wellspring::demo::{DemoOptions, PACE, agent_with};
use wellspring_core::{Context, Tool, ToolError, ToolResult, ToolSpec};
use wellspring_engine::AgentDef;
use wellspring_engine::tools::Shell;
use wellspring_log::Store;
use wellspring_server::{ServerConfig, Tokens};

use crate::config::DemoConfig;
use crate::launch::launcher;
use crate::tools::unusable;

/// The variable that sets the demo's pace, for tests.
const PACE_VARIABLE: &str = "WELLSPRING_DEMO_PACE_MS";

/// Who can reach the agents of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reach<'a> {
    /// The user at this terminal.
    Terminal,
    /// The clients of a server, and the people who write to its bots in chat networks.
    Server { config: &'a ServerConfig, has_bots: bool },
}

/// Builds the agent, if it should exist.
pub(crate) async fn demo(
    config: DemoConfig,
    reach: Reach<'_>,
    store: &Arc<dyn Store>,
) -> Result<Option<AgentDef>> {
    let tokens = Tokens::new(Arc::clone(store));
    let served = match reach {
        Reach::Terminal => false,
        Reach::Server { config, has_bots } => {
            has_bots || !config.listen.ip().is_loopback() || !config.hosts.is_empty()
        }
    };
    let closed = served || !tokens.list().await?.is_empty();
    let pace = std::env::var(PACE_VARIABLE).ok().and_then(|pace| pace.parse().ok());
    let pace = pace.map_or(PACE, Duration::from_millis);
    let plain = DemoOptions { pace, shell: None };
    let options = match config {
        DemoConfig::Off => return Ok(None),
        DemoConfig::Shell => DemoOptions { pace, shell: Some(Arc::new(shell()?)) },
        DemoConfig::On if closed => plain,
        DemoConfig::Unset if closed => match reach {
            // A run of another process may be adopted here, and its approvers may have tokens.
            Reach::Terminal => plain,
            Reach::Server { .. } => return Ok(None),
        },
        DemoConfig::On | DemoConfig::Unset => {
            let shell = UntilTokens { shell: shell()?, tokens };
            DemoOptions { pace, shell: Some(Arc::new(shell)) }
        }
    };
    Ok(Some(agent_with(options)))
}

fn shell() -> Result<Shell> {
    let here = Path::new(".");
    Ok(Shell::below(here).map_err(unusable)?.launcher(launcher(here, None)?))
}

/// A shell that refuses to run once there is a token: a server can get its first one while it
/// runs.
struct UntilTokens {
    shell: Shell,
    tokens: Tokens,
}

impl Tool for UntilTokens {
    fn spec(&self) -> &ToolSpec {
        self.shell.spec()
    }

    fn call(
        &self,
        arguments: Value,
        context: Context,
    ) -> BoxFuture<'_, Result<ToolResult, ToolError>> {
        async move {
            let tokens = self.tokens.list().await;
            let tokens = tokens.map_err(|error| {
                ToolError::because("cannot tell whether there are tokens", error)
            })?;
            if !tokens.is_empty() {
                return Err(ToolError::new(
                    "the shell of `demo` is off because this server has tokens; to allow it for \
                     everyone with a token, set `demo = \"shell\"` in wellspring.toml",
                ));
            }
            self.shell.call(arguments, context).await
        }
        .boxed()
    }
}
