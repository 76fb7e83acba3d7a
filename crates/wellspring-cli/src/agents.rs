//! Builds the agents, from the configuration, or from the environment if it names no agent.
//!
//! Only the agents that a command needs are built: one agent with the agents that it may call, or
//! all agents. Only then are their providers' keys read and their MCP servers started.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use wellspring_acp::client::{AcpAgent, AcpConfig, AcpTransport, KnownAgent};
use wellspring_core::Model;
use wellspring_engine::{AgentDef, Runtime};
use wellspring_models::{Circuit, SetupError};
use wellspring_remote::ag_ui::AgUiAgent;
use wellspring_remote::dify::DifyAgent;
use wellspring_remote::openclaw::{DeviceIdentity, OpenClawAgent};

use crate::Usage;
use crate::config::Config;
use crate::config::agent::{AgentConfig, BrainConfig, DifyRef, OpenClawRef};
use crate::config::did_you_mean::nearest;
use crate::config::problem::Problems;
use crate::config::provider::{BUILT_IN, ProviderConfig};
use crate::mcp::{Joined, Servers};
use crate::provider::{Client, chain};
use crate::tools::tools;

/// How long to wait for an Ollama that is not configured. It is on this machine.
const OLLAMA_TIME: Duration = Duration::from_millis(300);

/// Which agents a command needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wanted<'a> {
    /// Every agent. MCP servers that fail to start are reported and left out.
    All,
    /// One agent, and the agents that it may call.
    One(&'a str),
}

/// The agents of a configuration and of the environment.
#[derive(Debug)]
pub(crate) struct Agents<'a> {
    config: &'a Config,
    /// Agents named after their providers, if the configuration names no agent, in the order in
    /// which one of them becomes the default.
    found: Vec<(&'a ProviderConfig, Result<Client, SetupError>)>,
    /// The built-in agent, if it should exist.
    demo: Option<AgentDef>,
}

impl<'a> Agents<'a> {
    /// Finds the agents. Only an Ollama on this machine is contacted.
    pub(crate) async fn find(config: &'a Config, demo: Option<AgentDef>) -> Self {
        let mut found = Vec::new();
        if config.agents.is_empty() {
            let configured = config.providers.values().filter(|provider| provider.configured);
            let usual = BUILT_IN.iter().filter_map(|(name, _)| config.providers.get(*name));
            for provider in configured.chain(usual.filter(|provider| !provider.configured)) {
                let client = Client::of(provider);
                let there = match &client {
                    _ if provider.configured => true,
                    Err(SetupError::NoKey { .. }) => false,
                    Ok(Client::Ollama(_)) if std::env::var_os("OLLAMA_HOST").is_none() => {
                        is_there(&client).await
                    }
                    Ok(_) | Err(_) => true,
                };
                if there {
                    found.push((provider, client));
                }
            }
        }
        Self { config, found, demo }
    }

    /// Their names, the default one first if there is a default.
    pub(crate) fn names(&self) -> Vec<&str> {
        let configured = self.config.agents.keys().map(|name| &**name);
        let found = self.found.iter().map(|(provider, _)| &*provider.name);
        let demo = self.demo.as_ref().map(|demo| &*demo.name);
        configured.chain(found).chain(demo).collect()
    }

    /// The agent of a request: the named one, or the default.
    pub(crate) fn choose<'n>(&'n self, named: Option<&'n str>) -> Result<&'n str> {
        let names = self.names();
        if let Some(name) = named {
            if names.contains(&name) {
                return Ok(name);
            }
            let known = KnownAgent::of_name(name);
            if known.is_some_and(KnownAgent::is_installed) {
                return Ok(name);
            }
            if let Some(KnownAgent { program, install, .. }) = known {
                bail!(Usage(format!(
                    "there is no agent {name:?}: {program} is not installed; {install}"
                )));
            }
            let meant = nearest(name, names.iter().copied());
            let meant = meant.map_or(String::new(), |it| format!("; did you mean {it}?"));
            let known = names.join(", ");
            bail!(Usage(format!("there is no agent {name:?}; there are: {known}{meant}")));
        }
        if let Some(name) = &self.config.default_agent {
            return Ok(name);
        }
        match (names.first(), self.config.agents.len()) {
            (Some(name), 0 | 1) => Ok(name),
            (Some(_), _) => bail!(Usage(format!(
                "choose an agent with --agent, or set `default_agent`; there are: {}",
                names.join(", ")
            ))),
            (None, _) => bail!(Usage(
                "there is no agent: set a provider's key, such as ANTHROPIC_API_KEY, or let \
                 `wellspring init` write a configuration"
                    .into()
            )),
        }
    }

    /// Builds the requested agents, and returns which of their parts are missing. An agent that
    /// cannot be built is an error, because its runs could not continue.
    pub(crate) async fn register(
        &self,
        runtime: &Runtime,
        wanted: Wanted<'_>,
    ) -> Result<Vec<anyhow::Error>> {
        let mut troubles = Vec::new();
        if let Some(demo) = &self.demo {
            runtime.register(demo.clone());
        }
        for (provider, client) in &self.found {
            match client {
                Ok(client) => {
                    runtime.register(of_provider(provider, client));
                }
                Err(error) if wanted.includes(&provider.name) => {
                    bail!("agent {}: {}", provider.name, told(error));
                }
                Err(_) => {}
            }
        }
        let agents = self.needed(wanted);
        let circuits: BTreeMap<&str, Circuit> =
            self.config.providers.values().map(circuit).collect();
        let configs = agents.iter().flat_map(|agent| &agent.mcp);
        let servers = Servers::start(configs, wanted).await;
        for agent in agents {
            for config in &agent.mcp {
                let what = format!("agent {} has none of these tools", agent.name);
                match servers.state(config) {
                    Some(Joined::Ready(_)) | None => {}
                    Some(Joined::Failed(error)) if wanted == Wanted::All => {
                        troubles.push(anyhow!(error).context(what));
                    }
                    Some(Joined::Failed(error)) => bail!(error),
                    Some(Joined::Starting) => {
                        let why = format!("the MCP server {} is not ready yet", config.name);
                        troubles.push(anyhow!(why).context(format!("{what} until then")));
                    }
                }
            }
            let def = self.make(agent, &circuits)?;
            servers.register(runtime, def, &agent.mcp);
        }
        Ok(troubles)
    }

    /// An agent that is installed but not configured. Only the command line can use it, never a
    /// server.
    pub(crate) fn installed(&self, name: &str) -> Option<AgentDef> {
        let known = KnownAgent::of_name(name).filter(|known| known.is_installed())?;
        if self.names().contains(&name) {
            return None;
        }
        let config = AcpConfig::new(AcpTransport::Name(known.name.into()));
        Some(AgentDef::remote(name, Arc::new(acp_agent(name, &config))))
    }

    /// The configured agents that are wanted, with all that they may call.
    fn needed(&self, wanted: Wanted<'_>) -> Vec<&'a AgentConfig> {
        let all = &self.config.agents;
        let Wanted::One(name) = wanted else { return all.values().collect() };
        let mut needed: Vec<&AgentConfig> = all.get(name).into_iter().collect();
        let mut looked_at = 0;
        while let Some(agent) = needed.get(looked_at).copied() {
            looked_at += 1;
            for (name, _) in self.others(agent) {
                let other =
                    all.get(&name).filter(|other| !needed.iter().any(|it| it.name == other.name));
                needed.extend(other);
            }
        }
        needed
    }

    /// The agents that an agent may call, and what each is for.
    fn others(&self, agent: &AgentConfig) -> Vec<(Box<str>, Box<str>)> {
        let about = |name: &str| match self.config.agents.get(name) {
            Some(other) => other.description.clone(),
            None => "".into(),
        };
        if agent.sub_agents.iter().any(|name| &**name == "*") {
            let others = self.config.agents.keys().filter(|name| **name != agent.name);
            return others.map(|name| (name.clone(), about(name))).collect();
        }
        agent.sub_agents.iter().map(|name| (name.clone(), about(name))).collect()
    }

    fn make(&self, agent: &AgentConfig, circuits: &BTreeMap<&str, Circuit>) -> Result<AgentDef> {
        let located = |error: String, remedy: String| {
            let mut problems = Problems::default();
            problems.push(
                &agent.file,
                agent.line,
                format!("agent {}: {error}", agent.name),
                remedy,
            );
            anyhow!(problems)
        };
        let (mut def, model) = match &agent.backend {
            BrainConfig::Acp(acp) => {
                let remote = Arc::new(acp_agent(&agent.name, acp));
                (AgentDef::remote(agent.name.clone(), remote), None)
            }
            BrainConfig::AgUi(ag_ui) => {
                let remote = AgUiAgent::new(agent.name.clone(), (**ag_ui).clone());
                let remote =
                    remote.map_err(|error| located(told(&error), "mend `ag_ui`".into()))?;
                (AgentDef::remote(agent.name.clone(), Arc::new(remote)), None)
            }
            BrainConfig::OpenClaw(openclaw) => {
                let remote = openclaw_agent(&agent.name, openclaw)
                    .map_err(|error| located(format!("{error:#}"), "mend `openclaw`".into()))?;
                (AgentDef::remote(agent.name.clone(), Arc::new(remote)), None)
            }
            BrainConfig::Dify(dify) => {
                let remote = dify_agent(&agent.name, dify)
                    .map_err(|error| located(format!("{error:#}"), "mend `dify`".into()))?;
                (AgentDef::remote(agent.name.clone(), Arc::new(remote)), None)
            }
            BrainConfig::Models(models) => {
                let mut links = Vec::new();
                for model in models {
                    let provider = &model.provider;
                    let known = self.config.providers.get(provider).zip(circuits.get(&**provider));
                    let (config, circuit) =
                        known.context("a provider of the configuration is missing")?;
                    let client = Client::of(config).map_err(|error| {
                        located(
                            told(&error),
                            format!("`wellspring doctor` checks {provider} again"),
                        )
                    })?;
                    let client = match &model.model {
                        Some(name) => client.named(name),
                        None => client,
                    };
                    links.push((client, circuit.clone()));
                }
                let model = chain(links).context("an agent has a model")?;
                (AgentDef::model(agent.name.clone(), Arc::clone(&model)), Some(model))
            }
        };
        let tools = tools(agent, model.as_ref(), &self.others(agent));
        def.tools = tools.map_err(|error| {
            located(format!("{error:#}"), "change `tools` or `directory`".into())
        })?;
        def.description = agent.description.clone();
        def.instructions = (*agent.instructions).into();
        def.settings = agent.settings.clone();
        def.streaming = agent.streaming;
        def.queue = agent.queue;
        def.tool_order = agent.tool_order;
        def.queue_rules.clone_from(&agent.queue_rules);
        def.policy = agent.policy.clone();
        def.approvers.clone_from(&agent.approvers);
        def.editors = agent.editors.clone();
        def.sub_agents.clone_from(&agent.sub_agents);
        def.limits = agent.limits.clone();
        def.timeouts = agent.timeouts.clone();
        def.when_busy = agent.when_busy;
        def.allow_model = agent.allow_model;
        def.result_schema = agent.output.clone();
        Ok(def)
    }
}

impl Wanted<'_> {
    fn includes(self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::One(wanted) => wanted == name,
        }
    }
}

/// An agent that consists of a provider's model. Requests may choose another model.
fn of_provider(provider: &ProviderConfig, client: &Client) -> AgentDef {
    let (_, circuit) = circuit(provider);
    let description = format!("{}, of {}", client.name(), provider.name);
    let model = wellspring_models::Breaker::new(client.clone(), circuit);
    let mut def = AgentDef::model(provider.name.clone(), Arc::new(model));
    def.description = description.into();
    def.allow_model = true;
    def
}

/// An agent of a gateway, with the secrets that its configuration names.
pub(crate) fn openclaw_agent(name: &str, openclaw: &OpenClawRef) -> Result<OpenClawAgent> {
    let mut config = openclaw.config.clone();
    config.token = openclaw.token_env.as_deref().map(variable).transpose()?;
    config.password = openclaw.password_env.as_deref().map(variable).transpose()?;
    if let Some(file) = &openclaw.identity {
        config.identity = Some(DeviceIdentity::load_or_create(file)?);
    }
    Ok(OpenClawAgent::new(name, config)?)
}

/// An app of Dify, with the key that its configuration names.
pub(crate) fn dify_agent(name: &str, dify: &DifyRef) -> Result<DifyAgent> {
    let mut config = dify.config.clone();
    config.key = variable(&dify.key_env)?;
    Ok(DifyAgent::new(name, config)?)
}

fn variable(name: &str) -> Result<Box<str>> {
    let value = std::env::var(name).ok().filter(|value| !value.is_empty());
    Ok(value.with_context(|| format!("the variable {name} is not set"))?.into())
}

fn circuit(provider: &ProviderConfig) -> (&str, Circuit) {
    let circuit = Circuit::new(provider.name.clone());
    (&provider.name, circuit.failures(provider.failures).rest(provider.rest))
}

/// It is started by its first run. What cannot take MCP servers over HTTP gets our tools by
/// this very program.
fn acp_agent(name: &str, config: &AcpConfig) -> AcpAgent {
    let mut config = config.clone();
    let here = std::env::current_exe().ok();
    config.bridge = here.map(|program| vec![program.to_string_lossy().into(), "mcp-bridge".into()]);
    AcpAgent::new(name, config)
}

async fn is_there(client: &Result<Client, SetupError>) -> bool {
    let Ok(client) = client else { return false };
    matches!(tokio::time::timeout(OLLAMA_TIME, client.models()).await, Ok(Ok(_)))
}

/// An error with its causes.
pub(crate) fn told(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}
