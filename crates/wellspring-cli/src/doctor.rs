//! `wellspring doctor`: checks that everything works, and suggests fixes.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::Result;
use futures::future::join_all;
use serde_json::json;
use wellspring_core::{FailureKind, Model as _};
use wellspring_mcp::{McpConfig, McpServer};
use wellspring_models::ListedModel;

use crate::Exit;
use crate::agents::{Agents, dify_agent, openclaw_agent, told};
use crate::args::{ServeArgs, SetupArgs};
use crate::config::agent::{AgentConfig, BrainConfig};
use crate::config::did_you_mean::nearest;
use crate::config::provider::{KeySource, ModelRef, ProviderConfig, ProviderKind};
use crate::config::settings::{StoreKind, TelemetryConfig};
use crate::config::{Config, DemoConfig};
use crate::models::{Listed, is_a_guess, list};
use crate::output::{Ink, is_rich, print_lines};
use crate::provider::Client;
use crate::setup::Missing;
use crate::setup::open_store::{self, Backend};
use crate::text::{Line, Style, clean_line, span};

/// The result of one check.
struct Check {
    what: String,
    state: State,
    says: String,
    /// What to do about it.
    remedy: Option<String>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Good,
    /// It works, but perhaps not as meant.
    Doubtful,
    Bad,
    /// Not used by any agent.
    Unused,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Doubtful => "doubtful",
            Self::Bad => "bad",
            Self::Unused => "unused",
        }
    }

    fn sign(self) -> (&'static str, Style) {
        match self {
            Self::Good => ("✓", Style::GREEN),
            Self::Doubtful => ("!", Style::YELLOW),
            Self::Bad => ("✗", Style::RED),
            Self::Unused => ("-", Style::DIM),
        }
    }
}

fn good(what: impl Into<String>, says: impl Into<String>) -> Check {
    Check { what: what.into(), state: State::Good, says: says.into(), remedy: None }
}

fn check(
    state: State,
    what: impl Into<String>,
    says: impl Into<String>,
    remedy: impl Into<String>,
) -> Check {
    Check { what: what.into(), state, says: says.into(), remedy: Some(remedy.into()) }
}

/// Runs all checks. Exits with 1 if one fails.
pub(crate) async fn doctor(args: &SetupArgs, json: bool) -> Result<Exit> {
    let mut checks = Vec::new();
    match Config::load(args.config.as_deref()) {
        Err(problems) => {
            let remedy = "fix it, then run `wellspring doctor` again to check the rest";
            checks.push(check(State::Bad, "configuration", problems.to_string(), remedy));
        }
        Ok(config) => {
            checks.push(match &config.file {
                Some(file) => good("configuration", file.display().to_string()),
                None => good("configuration", "no file; `wellspring init` creates one"),
            });
            checks.push(store(args, &config).await);
            checks.push(port(&config).await);
            checks.extend(providers_and_agents(&config).await);
            checks.extend(servers(&config).await);
            checks.extend(channels(&config).await);
            checks.extend(telemetry(config.telemetry).await);
        }
    }
    let bad = checks.iter().any(|check| check.state == State::Bad);
    if json {
        let shown = checks.iter().map(|check| {
            json!({
                "check": check.what,
                "state": check.state.word(),
                "says": check.says,
                "remedy": check.remedy,
            })
        });
        let shown = json!({"ok": !bad, "checks": shown.collect::<Vec<_>>()});
        writeln!(std::io::stdout(), "{shown:#}")?;
    } else {
        print(&checks)?;
    }
    Ok(if bad { Exit::Failed } else { Exit::Completed })
}

fn print(checks: &[Check]) -> Result<()> {
    let mut lines = Vec::new();
    for check in checks {
        let (sign, style) = check.state.sign();
        let mut says = check.says.lines();
        let first = clean_line(says.next().unwrap_or_default());
        lines.push(Line::of([
            span(format!("{sign} "), style),
            span(check.what.clone(), Style::BOLD),
            span(format!(": {first}"), Style::PLAIN),
        ]));
        lines.extend(says.map(|line| Line::of([span(format!("  {line}"), Style::PLAIN)])));
        if let Some(remedy) = &check.remedy {
            lines.push(Line::of([span(format!("  → {remedy}"), Style::DIM)]));
        }
    }
    Ok(print_lines(
        &mut std::io::stdout().lock(),
        &lines,
        if is_rich() { Ink::Coloured } else { Ink::Plain },
    )?)
}

async fn store(args: &SetupArgs, config: &Config) -> Check {
    let kind = open_store::kind(args, &config.store);
    let (what, remedy) = match kind {
        StoreKind::Sqlite | StoreKind::Memory => {
            ("data directory", "choose another with --data-dir or `directory` in [store]")
        }
        StoreKind::Nats => ("NATS", "check [store] and [store.nats], and what docs/nats.md says"),
    };
    let Backend { store, shown, .. } =
        match open_store::open(kind, args, &config.store, Missing::Make).await {
            Ok(opened) => match opened {
                Some(backend) => backend,
                None => return check(State::Bad, what, "there is no store", remedy),
            },
            Err(error) => return check(State::Bad, what, format!("{error:#}"), remedy),
        };
    match store.check().await {
        Ok(found) if found.is_empty() => good(what, shown),
        Ok(found) => {
            let lines = found.iter().map(crate::store::line).collect::<Vec<_>>().join("\n");
            let says = format!("{shown} is damaged:\n{lines}");
            check(State::Bad, what, says, "`wellspring store check` says what to do")
        }
        Err(error) => check(State::Bad, what, format!("{shown}: {}", told(&error)), remedy),
    }
}

async fn port(config: &Config) -> Check {
    let listen = match crate::serve::settings(&config.server, ServeArgs::default()) {
        Ok(settings) => settings.listen,
        Err(error) => {
            return check(State::Bad, "address", format!("{error:#}"), "correct the variable");
        }
    };
    match tokio::net::TcpListener::bind(listen).await {
        Ok(_) => good("address", format!("{listen} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => check(
            State::Doubtful,
            "address",
            format!("{listen} is in use"),
            "expected if Wellspring is running; otherwise choose another with --listen",
        ),
        Err(error) => check(
            State::Bad,
            "address",
            format!("cannot listen on {listen}: {error}"),
            "choose another with --listen or `listen` in [server]",
        ),
    }
}

async fn providers_and_agents(config: &Config) -> Vec<Check> {
    let demo = (config.demo != DemoConfig::Off).then(wellspring::demo::agent);
    let agents = Agents::find(config, demo).await;
    let names = agents.names();
    let providers: Vec<&ProviderConfig> = config.providers.values().collect();
    let listed = join_all(providers.iter().map(|provider| list(provider))).await;
    let mut checks = Vec::new();
    let mut models: BTreeMap<&str, &[ListedModel]> = BTreeMap::new();
    for (provider, listed) in providers.iter().zip(&listed) {
        if let Listed::Models(listed) = listed {
            models.insert(&provider.name, listed);
        }
        let used = provider.configured || names.contains(&&*provider.name) || {
            let agents = config.agents.values();
            agents.flat_map(models_of).any(|model| model.provider == provider.name)
        };
        checks.push(provider_check(provider, listed, used));
    }
    for agent in config.agents.values() {
        checks.extend(models_of(agent).map(|model| {
            let what = format!("agent {}", agent.name);
            let provider = &config.providers[&model.provider];
            model_check(what, provider, model.model.as_deref(), &models)
        }));
    }
    checks.extend(join_all(config.agents.values().map(remote_check)).await.into_iter().flatten());
    for name in names {
        if !config.agents.contains_key(name)
            && let Some(provider) = config.providers.get(name)
        {
            checks.push(model_check(format!("agent {name}"), provider, None, &models));
        } else if name == wellspring::demo::NAME {
            checks.push(good("agent demo", "is built in"));
        }
    }
    checks
}

/// Checks that an agent on another machine accepts our credentials.
async fn remote_check(agent: &AgentConfig) -> Option<Check> {
    let what = format!("agent {}", agent.name);
    let (says, remedy) = match &agent.backend {
        BrainConfig::OpenClaw(openclaw) => {
            let remedy = "check the gateway's `url`, `token_env` and `identity`";
            let says = match openclaw_agent(&agent.name, openclaw) {
                Ok(remote) => remote.check().await.map(|version| format!("a gateway, {version}")),
                Err(error) => return Some(check(State::Bad, what, format!("{error:#}"), remedy)),
            };
            (says, remedy)
        }
        BrainConfig::Dify(dify) => {
            let remedy = "check the app's `url` and `key_env`";
            let says = match dify_agent(&agent.name, dify) {
                Ok(remote) => remote.check().await.map(|name| format!("the Dify app {name:?}")),
                Err(error) => return Some(check(State::Bad, what, format!("{error:#}"), remedy)),
            };
            (says, remedy)
        }
        BrainConfig::Models(_) | BrainConfig::Acp(_) | BrainConfig::AgUi(_) => return None,
    };
    Some(match says {
        Ok(says) => good(what, says),
        Err(error) => check(State::Bad, what, told(&error), remedy),
    })
}

fn models_of(agent: &AgentConfig) -> impl Iterator<Item = &ModelRef> {
    match &agent.backend {
        BrainConfig::Models(models) => models.iter(),
        BrainConfig::Acp(_)
        | BrainConfig::AgUi(_)
        | BrainConfig::OpenClaw(_)
        | BrainConfig::Dify(_) => [].iter(),
    }
}

fn provider_check(provider: &ProviderConfig, listed: &Listed, used: bool) -> Check {
    let what = format!("provider {}", provider.name);
    let unless_used = if used { State::Bad } else { State::Unused };
    match listed {
        Listed::Models(models) => good(what, format!("responds; {} models", models.len())),
        Listed::NotSetUp(error) => {
            check(unless_used, what, "no key", error.to_string().trim_start_matches("no key: "))
        }
        Listed::Failed(error, kind) => {
            let state = if is_a_guess(provider) && !used { State::Unused } else { State::Bad };
            check(state, what, error.clone(), provider_remedy(provider, *kind))
        }
    }
}

fn provider_remedy(provider: &ProviderConfig, kind: Option<FailureKind>) -> String {
    let key = match &provider.key {
        KeySource::Usual => "the key in its usual variable".to_owned(),
        KeySource::Variable(variable) => format!("the key in {variable}"),
        KeySource::File(file) => format!("the key in {}", file.display()),
        KeySource::None => "whether it requires a key (`key_env` or `key_file`)".to_owned(),
    };
    match kind {
        Some(FailureKind::Refused) => format!("check {key}"),
        Some(FailureKind::RateLimited) => "wait, or check the account's limits".to_owned(),
        Some(FailureKind::Unavailable | FailureKind::TimedOut)
            if provider.kind == ProviderKind::Ollama =>
        {
            "start it with `ollama serve`, or set OLLAMA_HOST to its address".to_owned()
        }
        Some(FailureKind::Unavailable | FailureKind::TimedOut) => {
            "check its address, the network and any proxy".to_owned()
        }
        Some(FailureKind::Protocol | FailureKind::BadRequest) => {
            "check that `base_url` and `kind` match the server".to_owned()
        }
        Some(FailureKind::Repetition | FailureKind::Lost | FailureKind::Internal) | None => {
            "check its settings".to_owned()
        }
    }
}

/// Checks that a provider has an agent's model.
fn model_check(
    what: String,
    provider: &ProviderConfig,
    model: Option<&str>,
    listed: &BTreeMap<&str, &[ListedModel]>,
) -> Check {
    let name = match (model, Client::of(provider)) {
        (Some(model), _) => model.to_owned(),
        (None, Ok(client)) => client.name().to_owned(),
        (None, Err(error)) => return check(State::Bad, what, told(&error), "see its provider"),
    };
    let Some(models) = listed.get(&*provider.name) else {
        let says = format!("cannot check that {} has the model {name}", provider.name);
        return check(State::Doubtful, what, says, "see its provider");
    };
    // Ollama's names have a tag that may be left out.
    let tagged = format!("{name}:latest");
    if models.iter().any(|model| *model.id == *name || *model.id == *tagged) {
        return good(what, format!("{}/{name}", provider.name));
    }
    let says = format!("{} does not list the model {name}", provider.name);
    let near = nearest(&name, models.iter().map(|model| &*model.id));
    let remedy = match (near, provider.kind) {
        (Some(near), _) => format!("did you mean {}/{near}?", provider.name),
        (None, ProviderKind::Ollama) => format!("fetch it with `ollama pull {name}`"),
        (None, _) => format!("`wellspring models {}` lists what it has", provider.name),
    };
    // Gateways often answer for more than they list.
    check(State::Doubtful, what, says, remedy)
}

/// Checks that the collector accepts spans.
async fn telemetry(config: TelemetryConfig) -> Option<Check> {
    let what = "telemetry";
    let remedy = "check `endpoint` and `headers` in [telemetry] or OpenTelemetry's variables, and \
                  that the collector runs; runs do without it";
    let probed = tokio::task::spawn_blocking(move || crate::telemetry::probe(&config)).await;
    match probed {
        Ok(probed) => probed.map(|probed| match probed {
            Ok(endpoint) => good(what, format!("{endpoint} accepts spans")),
            Err(error) => check(State::Bad, what, format!("{error:#}"), remedy),
        }),
        Err(error) => Some(check(State::Bad, what, error.to_string(), remedy)),
    }
}

/// Checks that each chat network accepts our credentials.
async fn channels(config: &Config) -> Vec<Check> {
    let checking = config.channels.values().map(|channel| async move {
        let what = format!("channel {}", channel.bot.name);
        let remedy = "check its `secrets`, the network, and what docs/channels.md says of it";
        let checked = match crate::channels::connect(channel) {
            Ok(connected) => connected.as_channel().check().await,
            Err(error) => Err(error),
        };
        match checked {
            Ok(name) => good(what, format!("is {name}")),
            Err(error) => check(State::Bad, what, error.to_string(), remedy),
        }
    });
    join_all(checking).await
}

async fn servers(config: &Config) -> Vec<Check> {
    let mut servers: Vec<&McpConfig> = config.mcp.values().collect();
    for server in config.agents.values().flat_map(|agent| &agent.mcp) {
        if !servers.contains(&server) {
            servers.push(server);
        }
    }
    let checking = servers.into_iter().map(|config| async {
        let what = format!("MCP server {}", config.name);
        match McpServer::new(config.clone()).connect().await {
            Ok(server) => {
                let count = server.tools().len();
                server.close().await;
                good(what, format!("has {count} tools"))
            }
            Err(error) => {
                let remedy =
                    "check its `command` or `url`, and what it needs in `env` or `headers`";
                let words = error.stderr().map_or(String::new(), |it| format!("\n{it}"));
                check(State::Bad, what, format!("{}{words}", error.kind()), remedy)
            }
        }
    });
    join_all(checking).await
}
