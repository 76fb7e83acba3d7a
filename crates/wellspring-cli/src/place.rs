//! Where runs are kept, and who is alive there.
//!
//! Several commands may work in one data directory. Each holds a lock on a file of its own
//! for as long as it lives, and its leases bear that file's name: so a run whose process was
//! killed is known at once, without waiting for the lease to end.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use wellspring_core::Millis;
use wellspring_engine::Runtime;
use wellspring_log::{Durability, Log, LogOptions, RunInfo, RunState, SqliteOptions, SqliteStore};

use crate::args::{DurabilityArg, StoreArgs};

/// How the names of our nodes begin.
const NODE_PREFIX: &str = "command-";

/// Sets the demonstration's pace: people like to read along, tests do not.
const PACE_VARIABLE: &str = "WELLSPRING_DEMO_PACE_MS";

/// A runtime over the runs of a place.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) runtime: Runtime,
    nodes: Option<Nodes>,
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
        let (log, nodes) = if store.ephemeral {
            (Log::in_memory(), None)
        } else {
            let directory = data_dir(store)?;
            let nodes = Nodes::enter(&directory.join("nodes")).with_context(|| {
                format!(
                    "cannot use the data directory {}; choose another with --data-dir, or keep \
                     nothing with --ephemeral",
                    directory.display()
                )
            })?;
            let durability = match store.durability {
                DurabilityArg::ProcessCrash => Durability::ProcessCrash,
                DurabilityArg::PowerLoss => Durability::PowerLoss,
            };
            let options = SqliteOptions { durability, ..SqliteOptions::default() };
            let store = SqliteStore::open(directory.join("runs.db"), options)?;
            let options = LogOptions { node: nodes.name.as_str().into(), ..LogOptions::default() };
            (Log::new(Arc::new(store), options), Some(nodes))
        };
        let runtime = Runtime::new(log);
        let pace = std::env::var(PACE_VARIABLE).ok().and_then(|pace| pace.parse().ok());
        runtime.register(match pace {
            Some(pace) => wellspring::demo::agent_at(std::time::Duration::from_millis(pace)),
            None => wellspring::demo::agent(),
        });
        Ok(Self { runtime, nodes })
    }

    pub(crate) fn log(&self) -> &Log {
        self.runtime.log()
    }

    pub(crate) fn standing(&self, info: &RunInfo) -> Standing {
        match info.state {
            RunState::Paused => Standing::Waiting,
            RunState::Running => {
                let now = self.log().clock().now();
                let alive = info.lease.as_ref().is_some_and(|lease| {
                    lease.until > now
                        && !self.nodes.as_ref().is_some_and(|nodes| nodes.is_gone(&lease.node))
                });
                if alive { Standing::Running } else { Standing::Interrupted }
            }
            RunState::Completed | RunState::Cancelled | RunState::Failed => {
                Standing::Over(info.state)
            }
        }
    }

    /// Ends the lease of a process that is gone, so that the run can be adopted at once.
    pub(crate) async fn release(&self, info: &RunInfo) -> Result<()> {
        if let (Standing::Interrupted, Some(lease)) = (self.standing(info), &info.lease) {
            let store = self.log().store();
            store.renew(lease.node.clone(), vec![info.run], Millis(0)).await?;
        }
        Ok(())
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

/// The processes that work in a data directory.
#[derive(Debug)]
struct Nodes {
    directory: PathBuf,
    name: String,
    /// Locked while this process lives.
    _file: File,
}

impl Nodes {
    fn enter(directory: &Path) -> Result<Self> {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        // One at a time: nobody may sweep a file between its creation and its lock.
        let door = File::create(directory.join(".lock"))?;
        door.lock()?;
        for entry in fs::read_dir(directory)?.flatten() {
            let name = entry.file_name();
            let is_node = name.to_str().is_some_and(|name| name.starts_with(NODE_PREFIX));
            if is_node && is_unlocked(&entry.path()) {
                // What cannot be removed now will be by the next one.
                let _ = fs::remove_file(entry.path());
            }
        }
        let name = format!("{NODE_PREFIX}{}", uuid::Uuid::now_v7().simple());
        let file = File::create(directory.join(&name))?;
        file.lock()?;
        Ok(Self { directory: directory.to_owned(), name, _file: file })
    }

    /// Whether a node was one of ours and its process is gone.
    fn is_gone(&self, node: &str) -> bool {
        node.starts_with(NODE_PREFIX)
            && node != self.name
            && !node.contains(['/', '\\'])
            && is_unlocked(&self.directory.join(node))
    }
}

/// Whether no process holds a file: it is not there, or its lock is free.
fn is_unlocked(path: &Path) -> bool {
    match File::open(path) {
        Ok(file) => !matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.directory.join(&self.name));
    }
}
