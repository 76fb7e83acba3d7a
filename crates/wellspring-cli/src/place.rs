//! Where runs are kept, and how they stand.
//!
//! Several commands may work in one data directory. The store knows which of them are alive,
//! so a run whose process was killed is known at once.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use wellspring_engine::Runtime;
use wellspring_log::{Durability, Log, LogOptions, RunInfo, RunState, SqliteOptions, SqliteStore};
use wellspring_server::Metrics;

use crate::args::{DurabilityArg, StoreArgs};

/// Sets the demonstration's pace: people like to read along, tests do not.
const PACE_VARIABLE: &str = "WELLSPRING_DEMO_PACE_MS";

/// A runtime over the runs of a place.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) runtime: Runtime,
    /// What a server counts; it times the store too.
    pub(crate) metrics: Metrics,
}

/// How a run stands, as people see it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Standing {
    /// Somebody works on it.
    Running,
    /// It waits for an answer.
    Waiting,
    /// Its process is gone.
    Interrupted,
    /// It is over.
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

impl Place {
    /// Opens the data directory, or memory, with the agents that are built in.
    pub(crate) fn open(store: &StoreArgs) -> Result<Self> {
        let metrics = Metrics::default();
        let log = if store.ephemeral {
            Log::in_memory()
        } else {
            let directory = data_dir(store)?;
            let durability = match store.durability {
                DurabilityArg::ProcessCrash => Durability::ProcessCrash,
                DurabilityArg::PowerLoss => Durability::PowerLoss,
            };
            let options = SqliteOptions { durability, ..SqliteOptions::default() };
            let path = directory.join("runs.db");
            let store = SqliteStore::open(path, options).with_context(|| {
                format!(
                    "cannot use the data directory {}; choose another with --data-dir, or keep \
                     nothing with --ephemeral",
                    directory.display()
                )
            })?;
            let options = LogOptions { node: store.node().into(), ..LogOptions::default() };
            Log::new(metrics.metered(Arc::new(store)), options)
        };
        let runtime = Runtime::new(log);
        let pace = std::env::var(PACE_VARIABLE).ok().and_then(|pace| pace.parse().ok());
        runtime.register(match pace {
            Some(pace) => wellspring::demo::agent_at(std::time::Duration::from_millis(pace)),
            None => wellspring::demo::agent(),
        });
        Ok(Self { runtime, metrics })
    }

    pub(crate) fn log(&self) -> &Log {
        self.runtime.log()
    }

    pub(crate) fn standing(&self, info: &RunInfo) -> Standing {
        match info.state {
            RunState::Paused => Standing::Waiting,
            RunState::Running => {
                let now = self.log().clock().now();
                let alive = info.lease.as_ref().is_some_and(|lease| lease.until > now);
                if alive { Standing::Running } else { Standing::Interrupted }
            }
            RunState::Completed | RunState::Cancelled | RunState::Failed => {
                Standing::Over(info.state)
            }
        }
    }
}

fn data_dir(store: &StoreArgs) -> Result<PathBuf> {
    if let Some(directory) = &store.data_dir {
        return Ok(directory.clone());
    }
    let project = directories::ProjectDirs::from("", "", "wellspring").context(
        "there is no home directory to keep runs in; say where with --data-dir, or keep nothing \
         with --ephemeral",
    )?;
    Ok(project.data_dir().to_owned())
}
