//! `initialize`: our capabilities for a client, and the client's for a proxied agent.

use std::time::Duration;

use serde_json::{Value, json};
use wellspring_engine::Backend;
use wellspring_wire::acp::initialize_response;

use super::prompt::acp_agent;
use super::{Agent, Client, VERSION};
use crate::client::AcpAgent;
use crate::lock;
use crate::rpc::RpcError;

/// How long a client waits for its first answer while a proxied agent starts, since only that agent
/// knows what a prompt may contain. The slowest known agent takes 20 s on its first start. An agent
/// that takes longer, because it is being downloaded, continues to start.
pub const INTRODUCTION_TIME: Duration = Duration::from_secs(30);

impl Agent {
    /// Answers `initialize`. The client's capabilities count immediately, also before the answer.
    pub(super) fn initialize(&self, params: &Value) -> impl Future<Output = Value> + use<> {
        *lock(&self.client) = Client::of(&params["clientCapabilities"]);
        let behind = self.behind();
        if let Some(agent) = &behind {
            agent.introduce(params);
            self.attend(agent);
        }
        async move {
            let theirs = match behind {
                Some(agent) => introduced(agent).await,
                None => None,
            };
            match theirs {
                Some(theirs) => initialize_response(ours(), &theirs),
                None => ours(),
            }
        }
    }

    /// The agent of a new session, if it is an ACP agent. It answers requests that name no session.
    pub(super) fn behind(&self) -> Option<AcpAgent> {
        let def = self.runtime.agent(&self.default_agent)?;
        let Backend::Remote(remote) = &def.backend else { return None };
        acp_agent(&**remote).cloned()
    }
}

/// An agent's own answer to `initialize`, if it comes in time.
async fn introduced(agent: AcpAgent) -> Option<Value> {
    let starting = tokio::spawn(async move { agent.start().await.map(|()| agent.info()) });
    match tokio::time::timeout(INTRODUCTION_TIME, starting).await {
        Ok(Ok(Ok(info))) => return info,
        Ok(Ok(Err(error))) => tracing::warn!(%error, "the agent could not be started yet"),
        Ok(Err(error)) => tracing::warn!(%error, "the agent could not be started yet"),
        Err(_) => tracing::warn!("the agent takes long to start; a session waits for it"),
    }
    None
}

/// Our capabilities. Models get pictures and files, and use what they support.
fn ours() -> Value {
    json!({
        "protocolVersion": VERSION,
        "agentCapabilities": {
            "loadSession": true,
            "promptCapabilities": {"image": true, "audio": false, "embeddedContext": true},
            "mcpCapabilities": {"http": true, "sse": false},
            "sessionCapabilities": {
                "list": {}, "resume": {}, "close": {}, "delete": {}, "additionalDirectories": {},
            },
        },
        "agentInfo": {
            "name": "wellspring",
            "title": "Wellspring",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "authMethods": [],
    })
}

/// The error if the agent offers no login.
pub(super) fn no_login() -> RpcError {
    RpcError::invalid("there is nothing to authenticate for")
}
