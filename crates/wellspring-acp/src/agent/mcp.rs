//! The MCP servers that come with a session.

use serde_json::Value;
use wellspring_mcp::{McpConfig, McpConnection, connect_all};

use crate::rpc::RpcError;

/// Maximum number of MCP servers of one session: each may be a process.
pub const SERVERS_MAX: usize = 32;

/// Reads the configurations of servers from the client's parameters.
pub(super) fn configs(servers: &Value, cwd: &str) -> Result<Vec<McpConfig>, RpcError> {
    let servers = match servers {
        Value::Null => return Ok(Vec::new()),
        Value::Array(servers) => servers,
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            return Err(RpcError::invalid("`mcpServers` is not a list"));
        }
    };
    if servers.len() > SERVERS_MAX {
        let message = format!("{} MCP servers are more than {SERVERS_MAX}", servers.len());
        return Err(RpcError::invalid(message));
    }
    servers.iter().map(|server| config(server, cwd)).collect()
}

fn config(server: &Value, cwd: &str) -> Result<McpConfig, RpcError> {
    let text = |name: &str| super::text(server, name);
    let name = text("name")?;
    match server.get("type").and_then(Value::as_str) {
        None | Some("stdio") => {
            let args = server["args"].as_array().into_iter().flatten();
            let args: Vec<&str> = args.filter_map(Value::as_str).collect();
            let config = McpConfig::stdio(name, text("command")?, args).cwd(cwd);
            Ok(pairs(&server["env"]).fold(config, |config, (name, value)| config.env(name, value)))
        }
        Some("http") => {
            let config = McpConfig::http(name, text("url")?);
            let headers = pairs(&server["headers"]);
            Ok(headers.fold(config, |config, (name, value)| config.header(name, value)))
        }
        Some(other) => {
            let other: String = other.chars().take(64).collect();
            let message = format!("MCP server {name:?} is reached by {other:?}; use stdio or http");
            Err(RpcError::invalid(message))
        }
    }
}

fn pairs(list: &Value) -> impl Iterator<Item = (&str, &str)> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|it| Some((it["name"].as_str()?, it["value"].as_str()?)))
}

/// Connects to all servers. A server that cannot be reached is a note, not an error.
pub(super) async fn connect(configs: Vec<McpConfig>) -> (Vec<McpConnection>, Vec<String>) {
    let (mut connections, mut notes) = (Vec::new(), Vec::new());
    for connected in connect_all(configs).await {
        match connected {
            Ok(connection) => connections.push(connection),
            Err(error) => notes.push(RpcError::internal(&error).message),
        }
    }
    (connections, notes)
}
