//! Remote agents: ACP, AG-UI, OpenClaw and Dify.

use std::collections::BTreeMap;
use std::path::PathBuf;

use wellspring_acp::client::{AcpConfig, AcpError, AcpTransport, FileAccess};
use wellspring_models::Secret;
use wellspring_remote::ag_ui::{AgUiAgent, AgUiConfig};
use wellspring_remote::dify::{App, DifyAgent, DifyConfig};
use wellspring_remote::openclaw::{OpenClawAgent, OpenClawConfig};

use super::provider::above_zero;
use super::section::{Section, text};
use super::value::Node;

/// A gateway, and the sources of its secrets, which are read when the agent is built.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OpenClawRef {
    pub(crate) config: OpenClawConfig,
    pub(crate) token_env: Option<Box<str>>,
    pub(crate) password_env: Option<Box<str>>,
    pub(crate) identity: Option<PathBuf>,
}

/// An app of Dify, and the variable with its key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DifyRef {
    pub(crate) config: DifyConfig,
    pub(crate) key_env: Box<str>,
}

pub(super) fn acp(section: &Section<'_>, node: &Node) -> Option<AcpConfig> {
    let bad = |line, error: AcpError| {
        let what = format!("`acp` of {}: {error}", section.title);
        section.source.complain(line, what, "name an agent, its command line, or its URL");
    };
    if let Some(agent) = text(node) {
        return agent.parse().map_err(|error| bad(node.line, error)).ok();
    }
    let inner = section.sub("acp")?;
    let agent = inner.required("agent", "set `agent`");
    let transport =
        agent.and_then(|agent| agent.parse().map_err(|error| bad(inner.line, error)).ok());
    let exposed = |secrets: BTreeMap<Box<str>, Secret>| {
        let exposed = |(name, secret): (_, Secret)| (name, secret.expose().into());
        secrets.into_iter().map(exposed).collect()
    };
    let files =
        [("write", FileAccess::Write), ("read", FileAccess::Read), ("none", FileAccess::None)];
    // A problem is recorded, so this value is never used.
    let mut acp = AcpConfig::new(transport.unwrap_or(AcpTransport::Command(Vec::new())));
    acp.env = exposed(inner.secrets("env"));
    acp.env_remove = inner.texts("env_remove").unwrap_or_default();
    acp.headers = exposed(inner.secrets("headers"));
    acp.cwd = inner.path("cwd");
    acp.mode = inner.text("mode").map(Into::into);
    acp.files = inner.word("files", &files).unwrap_or_default();
    acp.terminals = inner.bool("terminals").unwrap_or(acp.terminals);
    acp.sessions_per_process =
        above_zero(&inner, "sessions_per_process").unwrap_or(acp.sessions_per_process);
    inner.done();
    Some(acp)
}

pub(super) fn ag_ui(section: &Section<'_>, node: &Node) -> Option<AgUiConfig> {
    let config = if let Some(url) = text(node) {
        AgUiConfig::new(url)
    } else {
        let inner = section.sub("ag_ui")?;
        let url = inner.required("url", "set `url` to the URL that requests are posted to");
        let mut config = AgUiConfig::new(url.unwrap_or_default());
        let headers = inner.secrets("headers").into_iter();
        config.headers = headers.map(|(name, secret)| (name, secret.expose().into())).collect();
        config.silence = inner.duration("silence").unwrap_or(config.silence);
        config.resumable = inner.bool("resumable").unwrap_or_default();
        inner.done();
        config
    };
    if let Err(error) = AgUiAgent::new("", config.clone()) {
        let what = format!("`ag_ui` of {}: {error}", section.title);
        section.source.complain(node.line, what, "set it to the URL that requests are posted to");
    }
    Some(config)
}

pub(super) fn openclaw(section: &Section<'_>, node: &Node) -> Option<OpenClawRef> {
    let remedy = "set it to the gateway's URL, such as ws://127.0.0.1:18789";
    let found = if let Some(url) = text(node) {
        let config = OpenClawConfig::new(url);
        OpenClawRef { config, token_env: None, password_env: None, identity: None }
    } else {
        let inner = section.sub("openclaw")?;
        let url = inner.required("url", remedy).unwrap_or_default();
        let mut config = OpenClawConfig::new(url);
        config.agent = inner.text("agent").map_or(config.agent, Into::into);
        config.idle = inner.duration("idle").unwrap_or(config.idle);
        let found = OpenClawRef {
            config,
            token_env: inner.text("token_env").map(Into::into),
            password_env: inner.text("password_env").map(Into::into),
            identity: inner.path("identity"),
        };
        inner.done();
        found
    };
    if let Err(error) = OpenClawAgent::new("", found.config.clone()) {
        let what = format!("`openclaw` of {}: {error}", section.title);
        section.source.complain(node.line, what, remedy);
    }
    Some(found)
}

pub(super) fn dify(section: &Section<'_>, node: &Node) -> Option<DifyRef> {
    let inner = section.sub("dify")?;
    let url = inner.required("url", "set `url` to the API's URL, such as https://api.dify.ai/v1");
    let key_env = inner.required("key_env", "set `key_env` to the variable that has the app's key");
    let apps = [("chat", App::Chat), ("completion", App::Completion), ("workflow", App::Workflow)];
    let mut config = DifyConfig::new(url.unwrap_or_default(), "");
    config.app = inner.word("app", &apps).unwrap_or_default();
    config.input = inner.text("input").map_or(config.input, Into::into);
    config.silence = inner.duration("silence").unwrap_or(config.silence);
    let key_env = key_env.unwrap_or_default().into();
    inner.done();
    if let Err(error) = DifyAgent::new("", config.clone()) {
        let what = format!("`dify` of {}: {error}", section.title);
        section.source.complain(node.line, what, "set `url` to the API's URL");
    }
    Some(DifyRef { config, key_env })
}
