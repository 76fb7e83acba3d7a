//! The start of every command: the configuration, a runtime over the stored runs, and the agents that
//! the command needs.
//!
//! Several commands can use one data directory, whose store knows which processes are alive, so
//! that the runs of a killed process are detected immediately. With NATS, commands on several
//! machines use one stream.

pub(crate) mod open_store;

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use wellspring_core::Millis;
use wellspring_engine::{Control, Principal, Runtime};
use wellspring_log::{Log, RunInfo, RunState};
use wellspring_server::{Metrics, ServerConfig};

use self::open_store::Backend;
use crate::agents::{Agents, Wanted};
use crate::args::SetupArgs;
use crate::config::Config;
use crate::config::settings::StoreConfig;
use crate::demo::{Reach, demo};
use crate::telemetry;

/// How long runs may continue after the client has disconnected. Editors kill a process after about
/// two seconds.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// A runtime over the stored runs.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) runtime: Runtime,
    /// The server's metrics, which also measure the store.
    pub(crate) metrics: Metrics,
    /// The principal of the user at the terminal.
    who: Principal,
}

/// What to do if there is no store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Missing {
    /// Create it.
    Make,
    /// Report it, and continue as if there were no runs: reading creates no store.
    AsEmpty,
    /// Fail.
    Refuse,
}

/// The state of a run, for users.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Standing {
    /// A process works on it.
    Running,
    /// It waits for an answer.
    Waiting,
    /// Its process is gone.
    Interrupted,
    /// It has finished.
    Over(RunState),
}

impl Standing {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Interrupted => "interrupted",
            Self::Over(RunState::Cancelled) => "cancelled",
            Self::Over(RunState::Failed) => "failed",
            Self::Over(RunState::Completed | RunState::Running | RunState::Paused) => "completed",
        }
    }
}

impl Setup {
    /// Reads the configuration and opens the store. Builds no agents: commands that only read runs
    /// need none.
    pub(crate) async fn open(args: &SetupArgs, missing: Missing) -> Result<Self> {
        let config = Config::load(args.config.as_deref())?;
        let metrics = Metrics::default();
        let kind = open_store::kind(args, &config.store);
        let log = match open_store::open(kind, args, &config.store, missing).await? {
            Some(Backend { store, options, .. }) => Log::new(metrics.metered(store), options),
            None => Log::in_memory(),
        };
        Self::over(config, metrics, log)
    }

    fn over(config: Config, metrics: Metrics, log: Log) -> Result<Self> {
        let runtime = Runtime::new(log);
        runtime.span_parents(telemetry::set_parent);
        Ok(Self { config, runtime, metrics, who: Principal::local() })
    }

    /// Builds one agent, or the default one, and the agents that it may call. Returns its name.
    pub(crate) async fn agent(&self, named: Option<&str>) -> Result<Box<str>> {
        let agents = self.find_agents(Reach::Terminal).await?;
        let name: Box<str> = agents.choose(named)?.into();
        agents.register(&self.runtime, Wanted::One(&name)).await?;
        agents.installed(&name).map(|def| self.runtime.register(def));
        Ok(name)
    }

    /// Builds all agents for a server's clients, and prints which of their parts are missing.
    pub(crate) async fn agents(&self, server: &ServerConfig) -> Result<()> {
        let reach = Reach::Server { config: server, has_bots: !self.config.channels.is_empty() };
        self.register_all(&self.find_agents(reach).await?).await
    }

    /// Finds the available agents.
    pub(crate) async fn find_agents(&self, reach: Reach<'_>) -> Result<Agents<'_>> {
        let demo = demo(self.config.demo, reach, self.log().store()).await?;
        Ok(Agents::find(&self.config, demo).await)
    }

    /// Builds all agents. Returns the name of this one, or of the default one.
    pub(crate) async fn agents_and(&self, named: Option<&str>) -> Result<Box<str>> {
        let agents = self.find_agents(Reach::Terminal).await?;
        let name: Box<str> = agents.choose(named)?.into();
        self.register_all(&agents).await?;
        agents.installed(&name).map(|def| self.runtime.register(def));
        Ok(name)
    }

    /// Waits until finished runs have exported their spans. A run that is still active is released
    /// after a time limit, and can be resumed.
    pub(crate) async fn settle(&self) {
        self.runtime.shutdown(SETTLE_TIME).await;
    }

    async fn register_all(&self, agents: &Agents<'_>) -> Result<()> {
        for trouble in agents.register(&self.runtime, Wanted::All).await? {
            writeln!(std::io::stderr(), "wellspring: {trouble:#}")?;
        }
        Ok(())
    }

    /// The same, for the runs of another tenant.
    pub(crate) fn in_tenant(self, tenant: String) -> Self {
        Self { who: self.who.in_tenant(tenant), ..self }
    }

    /// The control of the user at the terminal.
    pub(crate) fn control(&self) -> Control {
        self.runtime.control(self.who.clone())
    }

    /// The log, for operations that do not concern runs: tokens and backups.
    pub(crate) fn log(&self) -> &Log {
        self.runtime.log()
    }

    pub(crate) fn now(&self) -> Millis {
        self.runtime.now()
    }

    pub(crate) fn standing(&self, info: &RunInfo) -> Standing {
        match info.state {
            RunState::Paused => Standing::Waiting,
            RunState::Running => {
                if self.log().is_owned(info) {
                    Standing::Running
                } else {
                    Standing::Interrupted
                }
            }
            RunState::Completed | RunState::Cancelled | RunState::Failed => {
                Standing::Over(info.state)
            }
        }
    }
}

/// The data directory: from the flag or its variable, the configuration, or the system's default.
pub(crate) fn data_dir(args: &SetupArgs, store: &StoreConfig) -> Result<PathBuf> {
    if let Some(directory) = args.data_dir.as_ref().or(store.directory.as_ref()) {
        return Ok(directory.clone());
    }
    let project = directories::ProjectDirs::from("", "", "wellspring").context(
        "there is no home directory to keep runs in; say where with --data-dir, or keep nothing \
         with --ephemeral",
    )?;
    Ok(project.data_dir().to_owned())
}
