//! Nodes: this process's heartbeat, and which other nodes are alive.
//!
//! A node that owns runs writes one heartbeat for all of them, several times per lease. Other
//! nodes read the heartbeats' numbers and measure, by their own monotonic clock, how long a
//! number has not changed. A node whose number has not changed for the length of a lease is
//! silent, and its runs may be adopted. No wall clocks are compared, so a clock that steps
//! changes nothing.
//!
//! Silence only decides when to try an adoption. Whether an owner is still the owner is decided
//! by the compare-and-set of its appends, so a missed heartbeat or a wrong guess loses nothing.
//!
//! # Promised
//!
//! 1. Silence is counted only while this process reads heartbeats. After a gap (it was frozen,
//!    or the machine slept) counting starts again.
//! 2. A node without any heartbeat so far counts as alive for the length of a lease, from the
//!    first read on.
//! 3. If a run was taken away from this process, it is taken back only after twice the silence,
//!    doubling with each further loss, up to 64 leases. So two nodes that cannot read each
//!    other's heartbeats exchange a run less and less often.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use wellspring_core::RunId;

use crate::due::NodeBeat;
use crate::hot_tail::Shared;
use crate::lock;
use crate::store::StoreError;

/// Heartbeats, and reads of other nodes' heartbeats, per lease. Two may fail.
const BEATS_PER_LEASE: u32 = 3;

/// How often the required silence is doubled after losing a run: at most to 32 minutes with the
/// default lease.
const LOSSES_MAX: u32 = 6;

/// Maximum number of lost runs that are remembered. Beyond it, all are forgotten.
const LOST_RUNS_MAX: usize = 64 * 1024;

/// A log's knowledge of nodes.
#[derive(Default)]
pub(crate) struct Nodes {
    heart: Mutex<Heart>,
    others: Mutex<Others>,
    take_overs: AtomicU64,
    lost: AtomicU64,
}

/// What a process knows of the nodes that own runs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct NodeStats {
    /// Runs that this process owns.
    pub owned: usize,
    /// Other nodes that own runs, when they were last looked at.
    pub others: usize,
    /// Of these, nodes that have been silent for the length of a lease.
    pub silent: usize,
    /// How many runs this process has taken over from nodes that were silent.
    pub take_overs: u64,
    /// How many runs other nodes have taken over from this process.
    pub lost: u64,
}

/// The runs that this node owns, and the task that writes heartbeats while there are any.
#[derive(Default)]
struct Heart {
    runs: BTreeSet<RunId>,
    task: Option<JoinHandle<()>>,
}

/// The other nodes, and the task that reads their heartbeats while there are any.
#[derive(Default)]
struct Others {
    looked_at: Option<Instant>,
    /// The last number of each node, and when it last changed.
    beats: BTreeMap<Box<str>, (u64, Instant)>,
    /// How often each run was taken away from this process.
    losses: BTreeMap<RunId, u32>,
    task: Option<JoinHandle<()>>,
}

impl Nodes {
    /// Starts writing heartbeats for a run.
    pub(crate) fn own(&self, shared: &Arc<Shared>, run: RunId, runtime: Option<&Handle>) {
        let mut heart = lock(&self.heart);
        heart.runs.insert(run);
        if let (false, Some(runtime)) = (is_running(heart.task.as_ref()), runtime) {
            heart.task = Some(runtime.spawn(beat(Arc::downgrade(shared), shared.every())));
        }
    }

    /// Stops writing heartbeats for a run.
    pub(crate) fn disown(&self, run: RunId) {
        lock(&self.heart).runs.remove(&run);
    }

    /// Counts a run that was taken over from a silent node.
    pub(crate) fn taken_over(&self) {
        self.take_overs.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self, lease: Duration) -> NodeStats {
        // One lock after the other: neither is held while the next is taken.
        let owned = lock(&self.heart).runs.len();
        let others = lock(&self.others).beats.len();
        let silent = self.silent(lease).len();
        NodeStats {
            owned,
            others,
            silent,
            take_overs: self.take_overs.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
        }
    }

    /// Records that another node took a run away from this process.
    pub(crate) fn lost(&self, run: RunId) {
        self.lost.fetch_add(1, Ordering::Relaxed);
        let mut others = lock(&self.others);
        if others.losses.len() >= LOST_RUNS_MAX {
            others.losses.clear();
        }
        let losses = others.losses.entry(run).or_default();
        *losses = (*losses + 1).min(LOSSES_MAX);
    }

    /// Reads the heartbeats, and keeps reading them while other nodes own runs.
    pub(crate) async fn look(&self, shared: &Arc<Shared>) -> Result<(), StoreError> {
        let beats = shared.store.nodes().await?;
        self.looked(shared, beats);
        let mut others = lock(&self.others);
        if !others.beats.is_empty()
            && !is_running(others.task.as_ref())
            && let Ok(runtime) = Handle::try_current()
        {
            others.task = Some(runtime.spawn(observe(Arc::downgrade(shared), shared.every())));
        }
        Ok(())
    }

    /// Updates the state with the heartbeats that were read. `false` if no other node owns a
    /// run.
    fn looked(&self, shared: &Shared, beats: Vec<NodeBeat>) -> bool {
        let now = Instant::now();
        let mut others = lock(&self.others);
        let gap = others.looked_at.replace(now).map(|before| now - before);
        let mut seen = std::mem::take(&mut others.beats);
        if gap.is_none_or(|gap| gap > shared.options.lease / 2) {
            seen.clear();
        }
        for NodeBeat { node, beat } in beats {
            if node != shared.options.node {
                let unchanged = seen.remove(&node).filter(|(before, _)| *before == beat);
                others.beats.insert(node, unchanged.unwrap_or((beat, now)));
            }
        }
        !others.beats.is_empty()
    }

    /// The nodes that have been silent for the length of a lease.
    pub(crate) fn silent(&self, lease: Duration) -> Vec<Box<str>> {
        let now = Instant::now();
        let others = lock(&self.others);
        let silent = others.beats.iter().filter(|(_, (_, since))| now - *since >= lease);
        silent.map(|(node, _)| node.clone()).collect()
    }

    /// Whether a run may be taken from its owner, because that node is silent.
    pub(crate) fn may_take(&self, run: RunId, owner: &str, lease: Duration) -> bool {
        let now = Instant::now();
        let others = lock(&self.others);
        let losses = others.losses.get(&run).copied().unwrap_or_default();
        let patience = lease * 2_u32.pow(losses);
        others.beats.get(owner).is_some_and(|(_, since)| now - *since >= patience)
    }

    /// Whether the task may end because this node owns nothing.
    fn is_idle(&self) -> bool {
        let mut heart = lock(&self.heart);
        let idle = heart.runs.is_empty();
        if idle {
            heart.task = None;
        }
        idle
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let tasks = [lock(&self.heart).task.take(), lock(&self.others).task.take()];
        tasks.into_iter().flatten().for_each(|task| task.abort());
    }
}

/// Whether a task is running. It may have ended with its runtime.
fn is_running(task: Option<&JoinHandle<()>>) -> bool {
    task.is_some_and(|task| !task.is_finished())
}

impl Shared {
    fn every(&self) -> Duration {
        self.options.lease / BEATS_PER_LEASE
    }
}

async fn beat(shared: Weak<Shared>, every: Duration) {
    loop {
        let Some(strong) = shared.upgrade() else { return };
        if strong.nodes.is_idle() {
            return;
        }
        let node = strong.options.node.clone();
        if let Err(error) = strong.store.beat(node).await {
            tracing::warn!(%error, node = %strong.options.node, "could not write a heartbeat");
        }
        drop(strong);
        tokio::time::sleep(every).await;
    }
}

async fn observe(shared: Weak<Shared>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(shared) = shared.upgrade() else { return };
        match shared.store.nodes().await {
            Ok(beats) => {
                if !shared.nodes.looked(&shared, beats) {
                    return;
                }
            }
            Err(error) => tracing::warn!(%error, "could not read the heartbeats of other nodes"),
        }
    }
}
