//! The MCP servers of the agents: started in the background, each once.
//!
//! A server that is slow or broken delays nothing: its tools join when it is ready. When a
//! server's list of tools changes, the runs that start after it see the new list.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{join_all, select_all};
use tokio::sync::watch;
use wellspring_engine::{AgentDef, Runtime};
use wellspring_mcp::{McpConfig, McpConnection, McpError, McpServer};

use crate::agents::Wanted;

/// How long a command that uses all agents waits for MCP servers before it continues without those
/// that are not ready. Most are ready earlier.
const JOIN_WAIT: Duration = Duration::from_secs(3);

/// Delay before a failed server is started again. It doubles with each attempt.
const RETRY_DELAY_FIRST: Duration = Duration::from_secs(1);

/// Maximum delay between two attempts.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(60);

/// The state of a server.
#[derive(Clone, Debug)]
pub(crate) enum Joined {
    Starting,
    /// The last attempt failed; there will be another one.
    Failed(McpError),
    Ready(McpConnection),
}

/// The servers of some agents.
pub(crate) struct Servers {
    known: Vec<(McpConfig, watch::Receiver<Joined>)>,
}

impl Servers {
    /// Starts servers and waits for them: for a limited time if all agents are needed, or until
    /// each one is ready or has failed if one agent is needed.
    pub(crate) async fn start<'c>(
        configs: impl IntoIterator<Item = &'c McpConfig>,
        wanted: Wanted<'_>,
    ) -> Self {
        let mut known: Vec<(McpConfig, watch::Receiver<Joined>)> = Vec::new();
        for config in configs {
            if known.iter().all(|(other, _)| other != config) {
                let (state, receiver) = watch::channel(Joined::Starting);
                tokio::spawn(keep(config.clone(), state));
                known.push((config.clone(), receiver));
            }
        }
        let settled = known.iter_mut().map(|(_, state)| async {
            // The sender lives as long as its task, which never ends.
            let _ = state.wait_for(|state| !matches!(state, Joined::Starting)).await;
        });
        let settled = join_all(settled);
        match wanted {
            Wanted::All => {
                let _ = tokio::time::timeout(JOIN_WAIT, settled).await;
            }
            Wanted::One(_) => {
                settled.await;
            }
        }
        Self { known }
    }

    /// The current state of a server.
    pub(crate) fn state(&self, config: &McpConfig) -> Option<Joined> {
        let (_, state) = self.known.iter().find(|(known, _)| known == config)?;
        Some(state.borrow().clone())
    }

    /// Registers an agent with the tools that its servers currently have, and again after each
    /// change.
    pub(crate) fn register(&self, runtime: &Runtime, def: AgentDef, configs: &[McpConfig]) {
        let mine = self.known.iter().filter(|(known, _)| configs.contains(known));
        let mut states: Vec<_> = mine.map(|(_, state)| state.clone()).collect();
        runtime.register(with_tools(&def, &mut states));
        if states.is_empty() {
            return;
        }
        let runtime = runtime.clone();
        tokio::spawn(async move {
            loop {
                let changes = states.iter_mut().map(|state| state.changed().boxed());
                let (change, ..) = select_all(changes).await;
                if change.is_err() {
                    return;
                }
                runtime.register(with_tools(&def, &mut states));
            }
        });
    }
}

fn with_tools(def: &AgentDef, states: &mut [watch::Receiver<Joined>]) -> AgentDef {
    let mut def = def.clone();
    for state in states {
        if let Joined::Ready(server) = &*state.borrow_and_update() {
            def.tools.extend(server.tools());
        }
    }
    def
}

/// Starts a server, with retries, and reports each change of its tools.
async fn keep(config: McpConfig, state: watch::Sender<Joined>) {
    let mut delay = RETRY_DELAY_FIRST;
    let connection = loop {
        match McpServer::new(config.clone()).connect().await {
            Ok(connection) => break connection,
            Err(error) => {
                tracing::warn!(%error, "an MCP server could not be started; trying again later");
                state.send_replace(Joined::Failed(error));
                tokio::time::sleep(delay).await;
                delay = (2 * delay).min(RETRY_DELAY_MAX);
            }
        }
    };
    let mut versions = connection.versions();
    versions.mark_unchanged();
    state.send_replace(Joined::Ready(connection.clone()));
    while versions.changed().await.is_ok() {
        state.send_replace(Joined::Ready(connection.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use serde_json::{Value, json};
    use wellspring_log::Log;
    use wellspring_models::Scripted;
    use wellspring_testkit::{Answer, FakeProvider};

    use super::*;

    fn tools(runtime: &Runtime) -> Vec<String> {
        let def = runtime.agent("a").unwrap();
        def.tools.iter().map(|tool| tool.spec().name.to_string()).collect()
    }

    fn agent() -> AgentDef {
        AgentDef::model("a", Arc::new(Scripted::new([])))
    }

    /// Accepts connections, and never answers.
    #[tokio::test(start_paused = true)]
    async fn a_hung_server_delays_nothing() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let config = McpConfig::http("hung", url);
        let began = tokio::time::Instant::now();
        let servers = Servers::start([&config], Wanted::All).await;
        assert_eq!(began.elapsed().as_secs(), JOIN_WAIT.as_secs());
        assert!(matches!(servers.state(&config), Some(Joined::Starting)));
    }

    #[tokio::test]
    async fn a_server_that_fails_at_first_joins_later() {
        let broken = Arc::new(AtomicBool::new(true));
        let is_broken = Arc::clone(&broken);
        let server = FakeProvider::answering(move |asked| {
            if is_broken.load(Ordering::SeqCst) {
                return Answer::status(500, "");
            }
            let result = match asked.body["method"].as_str() {
                Some("initialize") => json!({
                    "protocolVersion": asked.body["params"]["protocolVersion"],
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "small", "version": "1"},
                }),
                Some("tools/list") => {
                    json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]})
                }
                Some(_) => return Answer::status(202, ""),
                None => return Answer::status(405, ""),
            };
            let answer: Value = json!({"jsonrpc": "2.0", "id": asked.body["id"], "result": result});
            Answer::ok("application/json", answer.to_string())
        });
        let server = server.await.unwrap();
        let config = McpConfig::http("small", format!("{}/mcp", server.url()));
        let servers = Servers::start([&config], Wanted::All).await;
        assert!(matches!(servers.state(&config), Some(Joined::Failed(_))));
        let runtime = Runtime::new(Log::in_memory());
        servers.register(&runtime, agent(), std::slice::from_ref(&config));
        assert_eq!(tools(&runtime), [""; 0]);

        broken.store(false, Ordering::SeqCst);
        while tools(&runtime).is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(tools(&runtime), ["small__echo"]);
    }

    /// A server with the tool `one`, and after a line in the pipe with the tool `two`.
    const CHANGES: &str = r#"
        tool=one
        answer() { echo '{"jsonrpc":"2.0","id":'"$id"',"result":'"$1"'}'; }
        while read -r line; do
            id=$(echo "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
            case "$line" in
                *'"method":"initialize"'*) answer '{"protocolVersion":"2025-06-18",
                    "capabilities":{"tools":{"listChanged":true}},
                    "serverInfo":{"name":"small","version":"1"}}' | tr -d '\n'; echo ;;
                *'"method":"tools/list"'*)
                    answer '{"tools":[{"name":"'$tool'","inputSchema":{"type":"object"}}]}'
                    [ $tool = two ] && continue
                    read -r tool < "$0"
                    echo '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}' ;;
                *'"id":'*)
                    echo '{"jsonrpc":"2.0","id":'"$id"',"error":{"code":-32601,"message":"no"}}' ;;
            esac
        done"#;

    /// The runs that start after a server changed its tools have the new ones.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_changed_list_reaches_later_runs() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let config = McpConfig::stdio("small", "sh", ["-c", CHANGES, pipe.to_str().unwrap()]);
        let servers = Servers::start([&config], Wanted::One("a")).await;
        let runtime = Runtime::new(Log::in_memory());
        servers.register(&runtime, agent(), std::slice::from_ref(&config));
        assert_eq!(tools(&runtime), ["small__one"]);
        // It opens when the server reads from it.
        std::fs::write(&pipe, "two\n").unwrap();
        while tools(&runtime) != ["small__two"] {
            tokio::task::yield_now().await;
        }
    }
}
