//! The configuration: `wellspring.toml` and `agents/*.md`, or else the environment.
//!
//! A file is parsed into a tree of values that know their line numbers ([`value`]), from TOML or
//! YAML. Each [`section`] of it is read key by key, and every key is declared in [`keys`]. So every
//! mistake has a line and a remedy, all mistakes are reported together, and the documentation
//! cannot miss a key.
//!
//! # What is deliberately absent
//!
//! Network, API keys and models: the configuration is only checked for consistency.
//! [`agents`](crate::agents) builds agents from it; `wellspring doctor` checks that they work.

pub(crate) mod agent;
pub(crate) mod channel;
pub(crate) mod did_you_mean;
pub(crate) mod keys;
mod mcp;
pub(crate) mod problem;
pub(crate) mod provider;
pub(crate) mod remote_agent;
mod section;
pub(crate) mod settings;
mod toml;
mod value;
mod yaml;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use wellspring::front_matter::FrontMatter;
use wellspring_mcp::McpConfig;
use wellspring_server::ServerConfig;

use agent::{AgentConfig, Instructions, Known};
use channel::ChannelConfig;
use did_you_mean::did_you_mean;
use problem::Problems;
use provider::{BUILT_IN, ProviderConfig};
use section::{Environment, Section, Source, read_file};
use settings::{StoreConfig, TelemetryConfig};
use value::Node;

/// The name of the configuration file.
pub(crate) const FILE: &str = "wellspring.toml";

/// Maximum bytes of a file: more than instructions need.
pub(crate) const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Maximum number of files in the agents directory: with more, it is probably the wrong directory.
pub(crate) const AGENT_FILES_MAX: usize = 1000;

/// Everything that is configured.
#[derive(Debug)]
pub(crate) struct Config {
    /// The file; `None` without a configuration file.
    pub(crate) file: Option<PathBuf>,
    pub(crate) default_agent: Option<Box<str>>,
    pub(crate) demo: DemoConfig,
    pub(crate) store: StoreConfig,
    pub(crate) server: ServerConfig,
    pub(crate) telemetry: TelemetryConfig,
    /// The configured ones, and the built-in ones that are not configured.
    pub(crate) providers: BTreeMap<Box<str>, ProviderConfig>,
    pub(crate) mcp: BTreeMap<Box<str>, McpConfig>,
    pub(crate) agents: BTreeMap<Box<str>, AgentConfig>,
    pub(crate) channels: BTreeMap<Box<str>, ChannelConfig>,
}

/// What the configuration says of the built-in agent `demo`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum DemoConfig {
    /// Not set: it exists, with a shell, while only the user of this machine can reach it.
    #[default]
    Unset,
    /// It does not exist.
    Off,
    /// It exists for everyone, with a shell only while no other machine can reach it.
    On,
    /// It exists for everyone, with a shell.
    Shell,
}

impl Config {
    /// The defaults, without a configuration file.
    pub(crate) fn without_file() -> Self {
        let usual = BUILT_IN.map(|(name, kind)| (name.into(), ProviderConfig::usual(name, kind)));
        Self {
            file: None,
            default_agent: None,
            demo: DemoConfig::Unset,
            store: StoreConfig::default(),
            server: ServerConfig::default(),
            telemetry: TelemetryConfig::default(),
            providers: usual.into(),
            mcp: BTreeMap::new(),
            agents: BTreeMap::new(),
            channels: BTreeMap::new(),
        }
    }

    /// Reads the file that was named, or the first of those that are looked for.
    pub(crate) fn load(named: Option<&Path>) -> Result<Self, Problems> {
        match named.map(Path::to_owned).or_else(find) {
            Some(file) => Self::read(&file, &|name| std::env::var(name).ok()),
            None => Ok(Self::without_file()),
        }
    }

    /// Reads the configuration file and the agents next to it.
    pub(crate) fn read(file: &Path, environment: Environment<'_>) -> Result<Self, Problems> {
        let problems = RefCell::new(Problems::default());
        let directory = file.parent().unwrap_or(Path::new("")).to_owned();
        let source = Source { file: file.to_owned(), directory, environment, problems: &problems };
        let mut config = Self { file: Some(file.to_owned()), ..Self::without_file() };
        match read_file(file, FILE_BYTES_MAX) {
            Err(error) => source.complain(
                None,
                format!("failed to read: {error}"),
                "choose another file with --config, or create one with `wellspring init`",
            ),
            Ok(text) => match toml::parse(&text) {
                Err(error) => {
                    source.complain(error.line, error.what, "correct the TOML syntax");
                }
                Ok(root) => config.take(&source, &root),
            },
        }
        problems.into_inner().or(config)
    }

    fn take(&mut self, source: &Source<'_>, root: &Node) {
        let section = Section::open(source, root, "", "the file");
        self.demo = demo(&section);
        if let Some(store) = section.sub("store") {
            self.store = settings::store(&store);
        }
        if let Some(server) = section.sub("server") {
            self.server = settings::server(&server);
        }
        if let Some(telemetry) = section.sub("telemetry") {
            self.telemetry = settings::telemetry(&telemetry);
        }
        for (member, title) in section.named("providers") {
            let provider = provider::provider(source, member, &title);
            self.providers.extend(provider.map(|it| (it.name.clone(), it)));
        }
        for (member, title) in section.named("mcp") {
            let server = mcp::mcp(source, member, &title);
            self.mcp.extend(server.map(|it| (it.name.clone(), it)));
        }
        for (member, title) in section.named("agents") {
            let known = Known { providers: &self.providers, mcp: &self.mcp };
            let how = Instructions::Key;
            let agent = agent::agent(source, &member.name, &member.node, &title, how, &known);
            self.agents.extend(agent.map(|it| (it.name.clone(), it)));
        }
        for (member, title) in section.named("channels") {
            let channel = channel::channel(source, member, &title);
            self.channels.extend(channel.map(|it| (it.bot.name.clone(), it)));
        }
        let folder = section.path("agents_directory");
        match folder {
            Some(folder) if !folder.is_dir() => {
                let line = section.get("agents_directory").map(|item| item.node.line);
                let what = format!("there is no directory {}", folder.display());
                source.complain(line, what, "make it, or name another one");
            }
            folder => {
                self.take_files(source, &folder.unwrap_or_else(|| source.directory.join("agents")));
            }
        }
        self.check_names(source, &section);
        section.done();
    }

    /// Agents in files of the agents directory.
    fn take_files(&mut self, source: &Source<'_>, folder: &Path) {
        let Ok(entries) = std::fs::read_dir(folder) else { return };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let is_agent = |path: &PathBuf| {
            let readme = path.file_stem().is_some_and(|stem| stem.eq_ignore_ascii_case("readme"));
            path.extension().is_some_and(|extension| extension == "md") && !readme
        };
        let mut files: Vec<PathBuf> = paths.filter(is_agent).take(AGENT_FILES_MAX + 1).collect();
        if files.len() > AGENT_FILES_MAX {
            let what = format!("{} has more than {AGENT_FILES_MAX} files", folder.display());
            source.complain(None, what, "set `agents_directory` to a directory of agents");
            return;
        }
        files.sort();
        for file in files {
            let source = Source {
                directory: source.directory.clone(),
                file,
                environment: source.environment,
                problems: source.problems,
            };
            self.take_file(&source);
        }
    }

    fn take_file(&mut self, source: &Source<'_>) {
        let name = source.file.file_stem().unwrap_or_default().to_string_lossy();
        let read = read_file(&source.file, FILE_BYTES_MAX);
        let text = match read {
            Ok(text) => text,
            Err(error) => {
                let what = format!("failed to read: {error}");
                return source.complain(None, what, "repair or remove it");
            }
        };
        let parts = match FrontMatter::split(&text) {
            Ok(parts) => parts,
            Err(error) => {
                let remedy = "begin it with a line of ---, what the agent is, and another ---";
                return source.complain(1, error.to_string(), remedy);
            }
        };
        let node = match yaml::parse(parts.head, FrontMatter::LINES_BEFORE) {
            Ok(node) => node,
            Err(error) => {
                return source.complain(error.line, error.what, "correct the YAML syntax");
            }
        };
        let title = "the front matter";
        let known = Known { providers: &self.providers, mcp: &self.mcp };
        let how = Instructions::Body(parts.body);
        let Some(agent) = agent::agent(source, &name, &node, title, how, &known) else { return };
        if let Some(other) = self.agents.get(&agent.name) {
            let place = format!("{}:{}", other.file.display(), other.line);
            let what = format!("there is an agent {name} already, at {place}");
            return source.complain(node.line, what, "give one of them another name");
        }
        self.agents.insert(agent.name.clone(), agent);
    }

    /// Names that agents and the file have for agents.
    fn check_names(&mut self, source: &Source<'_>, section: &Section<'_>) {
        let mut names: Vec<&str> = self.agents.keys().map(|name| &**name).collect();
        if self.agents.is_empty() {
            names.extend(self.providers.keys().map(|name| &**name));
        }
        if self.demo != DemoConfig::Off {
            names.push(wellspring::demo::NAME);
        }
        for agent in self.agents.values() {
            for other in &agent.sub_agents {
                if &**other != "*" && !names.contains(&&**other) {
                    let what =
                        format!("agent {} may call {other:?}, which is not there", agent.name);
                    let remedy = did_you_mean(other, &names);
                    source.problems.borrow_mut().push(&agent.file, agent.line, what, remedy);
                }
            }
            if &*agent.name == wellspring::demo::NAME && self.demo != DemoConfig::Off {
                let what = format!("{} is the name of the built-in agent", agent.name);
                let remedy = "give it another name, or set `demo = false`".to_owned();
                source.problems.borrow_mut().push(&agent.file, agent.line, what, remedy);
            }
        }
        for channel in self.channels.values() {
            let agent = &*channel.bot.agent;
            if !agent.is_empty() && !names.contains(&agent) {
                let what = format!(
                    "channel {} names the agent {agent:?}, which is not there",
                    channel.bot.name
                );
                source.complain(section.line, what, did_you_mean(agent, &names));
            }
        }
        let default = section.text("default_agent");
        if let Some(name) = default
            && !names.contains(&name)
        {
            let line = section.get("default_agent").map(|item| item.node.line);
            let what = format!("there is no agent {name:?} to be the default");
            source.complain(line, what, did_you_mean(name, &names));
        }
        self.default_agent = default.map(Into::into);
    }
}

fn demo(section: &Section<'_>) -> DemoConfig {
    let Some(item) = section.get("demo") else { return DemoConfig::Unset };
    match &item.node.value {
        value::Value::Bool(true) => DemoConfig::On,
        value::Value::Bool(false) => DemoConfig::Off,
        value::Value::Text(word) if word == "shell" => DemoConfig::Shell,
        value::Value::Nothing
        | value::Value::Integer(_)
        | value::Value::Float(_)
        | value::Value::Text(_)
        | value::Value::List(_)
        | value::Value::Table(_) => {
            section.wrong(item);
            DemoConfig::Off
        }
    }
}

/// The default file: in the current directory, or else in the user's configuration directory.
fn find() -> Option<PathBuf> {
    let own = directories::ProjectDirs::from("", "", "wellspring");
    let own = own.map(|project| project.config_dir().join(FILE));
    std::iter::once(PathBuf::from(FILE)).chain(own).find(|file| file.is_file())
}
