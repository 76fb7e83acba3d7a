//! Ownership of runs: adopting, releasing, and recovering after a crash.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;
use wellspring_core::{Command, FailureKind, InboxNo, Millis, Outcome, RunId};
use wellspring_log::{AdoptError, AppendError, Due, RunInfo, RunState, StoreError};

use super::{Runtime, Working};
use crate::run::{Announced, Run};
use crate::runtime::close::closing_events;
use crate::runtime::drive::{Left, drive};

/// Maximum number of concurrent adoptions: enough to hide the network's latency, and few compared
/// with the number of active runs.
const ADOPTED_AT_ONCE: usize = 16;

/// Number of runs per query.
const DUE_PAGE: usize = 256;

/// Number of runs with unknown agents that one [`Runtime::recover`] examines. The next call
/// continues with the rest.
const ORPHANS_PER_RECOVERY: usize = 256;

/// Maximum number of runs with unknown agents that are remembered.
const ORPHANS_MAX: usize = 64 * 1024;

/// How long a run that lost its process waits for a node that knows its agent, before it fails.
const ORPHAN_GRACE: Duration = Duration::from_secs(5 * 60);

/// Number of upcoming deadlines that one [`Runtime::recover`] loads.
const UPCOMING_MAX: usize = 256;

/// Maximum number of deadlines of paused runs with a timer here. [`Runtime::recover`] finds the
/// other runs once their deadlines have passed.
const ALARMS_MAX: usize = 64 * 1024;

impl Runtime {
    /// Adopts every due run: its owner is gone, it is paused and has a command, or its deadline has
    /// passed. Returns the runs that continue here.
    ///
    /// All due runs are examined, oldest first. Runs whose agent is unknown here come last, a
    /// limited number per call.
    ///
    /// # Errors
    ///
    /// If the store cannot list the due runs.
    pub async fn recover(&self) -> Result<Vec<RunId>, StoreError> {
        let log = &self.inner.log;
        let mut adopted = Vec::new();
        // Runs for which the store failed are still owned by this node.
        let lost: Vec<_> =
            self.state().runs.iter().filter(|(_, it)| it.lost).map(|(run, _)| *run).collect();
        for run in lost {
            if self.resume(run).await {
                adopted.push(run);
            }
        }
        let mut orphans = Vec::new();
        let mut after = None;
        loop {
            let page = log.due(after, DUE_PAGE).await?;
            let (known, unknown): (Vec<_>, Vec<_>) =
                page.runs.into_iter().partition(|due| self.knows(due));
            orphans.extend(unknown.into_iter().map(|due| due.run));
            // Several adoptions at a time, in order: over a network, each one waits for several
            // round trips.
            for some in known.chunks(ADOPTED_AT_ONCE) {
                let resumed = join_all(some.iter().map(|due| self.resume(due.run))).await;
                let resumed = some.iter().zip(resumed).filter(|(_, resumed)| *resumed);
                adopted.extend(resumed.map(|(due, _)| due.run));
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        for run in self.next_orphans(orphans) {
            if self.resume(run).await {
                adopted.push(run);
            }
        }
        for due in log.upcoming(UPCOMING_MAX).await? {
            self.wake_at(due.run, Some(due.since));
        }
        Ok(adopted)
    }

    fn knows(&self, due: &Due) -> bool {
        let state = self.state();
        state.runs.contains_key(&due.run) || state.agents.contains_key(&due.agent)
    }

    /// The next runs with unknown agents, in turn.
    fn next_orphans(&self, mut runs: Vec<RunId>) -> Vec<RunId> {
        let mut state = self.state();
        // A run that is no longer due needs no grace period.
        let due: BTreeSet<_> = runs.iter().copied().collect();
        state.orphans.retain(|run, _| due.contains(run));
        let begin = runs.iter().position(|run| Some(*run) > state.last_orphan).unwrap_or(0);
        runs.rotate_left(begin);
        runs.truncate(ORPHANS_PER_RECOVERY);
        state.last_orphan = runs.last().copied();
        runs
    }

    /// Adopts a run without an owner and continues it. `false` if it has an owner, has finished, or
    /// its agent is unknown here.
    pub async fn resume(&self, run: RunId) -> bool {
        match self.try_resume(run).await {
            Ok(resumed) => resumed,
            Err(error) => {
                tracing::warn!(%run, error = &*error, "the run could not be resumed");
                false
            }
        }
    }

    /// Starts no new runs, gives active ones until the limit to end, and then releases them, so that
    /// another process can continue them.
    pub async fn shutdown(&self, limit: Duration) {
        self.inner.tasks.close();
        if tokio::time::timeout(limit, self.inner.tasks.wait()).await.is_err() {
            self.inner.closing.cancel();
            self.inner.tasks.wait().await;
        }
        self.inner.closing.cancel();
    }

    async fn try_resume(
        &self,
        run: RunId,
    ) -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
        let Some(info) = self.inner.log.store().info(run).await? else { return Ok(false) };
        if info.state.is_final() || self.inner.closing.is_cancelled() {
            return Ok(false);
        }
        let Some(def) = self.def_of(&info) else { return self.end_orphan(&info).await };
        {
            let mut state = self.state();
            if state.runs.get(&run).is_some_and(|working| working.live) {
                return Ok(false);
            }
            state.runs.insert(run, Working::live(&def, None));
        }
        let owner = match self.inner.log.adopt(run).await {
            Ok(owner) => owner,
            Err(error) => {
                let elsewhere = matches!(error, AdoptError::Owned { .. } | AdoptError::Finished(_));
                // Retrying does not repair damaged data.
                let damaged = matches!(
                    error,
                    AdoptError::Store(StoreError::Damaged { .. } | StoreError::DamagedStore { .. })
                );
                let lost = !elsewhere && !damaged;
                self.mark(run, |working| (working.live, working.lost) = (false, lost));
                return if elsewhere { Ok(false) } else { Err(error.into()) };
            }
        };
        let history = async {
            let started = owner.with_transcript(|transcript| transcript.started.clone());
            let started = started.ok_or("the run has no first record")?;
            let past = self.past(&info.tenant, started.after).await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>((started, past))
        };
        let (started, past) = match history.await {
            Ok(history) => history,
            Err(error) => {
                // The owner is dropped here, so the run can be adopted again.
                self.mark(run, |working| (working.live, working.lost) = (false, true));
                return Err(error);
            }
        };
        let (runtime, announced) = (self.clone(), Announced::Nothing);
        self.spawn(Run::new(runtime, owner, info.tenant, def, started, past, announced));
        Ok(true)
    }

    /// Leaves a run whose agent is not known here to a node that knows it: another one, or this one
    /// after the agent is configured again. The run can still be cancelled. If it has lost its process
    /// and no node adopts it in time, it fails, so that its readers do not wait indefinitely.
    async fn end_orphan(
        &self,
        info: &RunInfo,
    ) -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
        let run = info.run;
        let inbox = self.inner.log.store().inbox(run, InboxNo(0)).await?;
        let cancel = inbox.into_iter().find_map(|entry| match entry.command {
            Command::Cancel { by, why, .. } => {
                Some(Outcome::Cancelled { by, why, inbox: Some(entry.number) })
            }
            Command::Answer { .. }
            | Command::FinishCall { .. }
            | Command::Resume { .. }
            | Command::AddInput { .. } => None,
        });
        let outcome = match cancel {
            Some(cancel) => cancel,
            None if info.state == RunState::Running && self.is_orphaned(run) => Outcome::Failed {
                kind: FailureKind::Lost,
                message: format!(
                    "the run lost its process, and its agent {:?} is not configured any more",
                    info.agent
                )
                .into(),
                retryable: false,
            },
            None => {
                tracing::debug!(%run, agent = &*info.agent, "left alone: its agent is not known here");
                return Ok(false);
            }
        };
        let owner = match self.inner.log.adopt(run).await {
            Ok(owner) => owner,
            Err(AdoptError::Owned { .. } | AdoptError::Finished(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        owner.push_all(
            owner.with_transcript(|transcript| closing_events(&transcript.outline, outcome)),
        );
        owner.commit().await?;
        self.state().orphans.remove(&run);
        Ok(true)
    }

    /// Whether a run of an unknown agent has been without an owner for so long that no node is
    /// expected to adopt it.
    fn is_orphaned(&self, run: RunId) -> bool {
        let now = Instant::now();
        let mut state = self.state();
        if state.orphans.len() >= ORPHANS_MAX && !state.orphans.contains_key(&run) {
            return false;
        }
        now - *state.orphans.entry(run).or_insert(now) > ORPHAN_GRACE
    }

    /// Works on a run in a task of its own.
    pub(crate) fn spawn(&self, run: Run) {
        let working = Working::live(&run.def, run.started.request.by.as_deref());
        self.state().runs.insert(run.id(), working);
        let run = Arc::new(run);
        let runtime = self.clone();
        let closing = self.inner.closing.clone();
        self.inner.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = closing.cancelled() => Box::pin(runtime.let_go(&run)).await,
                left = drive(&run) => Box::pin(runtime.settle(run, left)).await,
            }
        });
    }

    /// The owner stopped working on a run.
    async fn settle(&self, run: Arc<Run>, left: Left) {
        let id = run.id();
        let def = Arc::clone(&run.def);
        let seen = run.last_seen();
        // The owner must be dropped before the run can be adopted again.
        drop(run);
        match left {
            Left::Finished(outcome) => {
                self.state().runs.remove(&id);
                for hooks in self.hooks(&def) {
                    match outcome {
                        Outcome::Cancelled { .. } => hooks.on_abort(id, &outcome),
                        Outcome::Completed { .. } | Outcome::Failed { .. } => {
                            hooks.on_finish(id, &outcome);
                        }
                    }
                }
            }
            Left::Paused(expires_at) => {
                self.mark(id, |working| working.live = false);
                self.wake_at(id, expires_at);
                // A command that arrived between the last look and the pause woke an owner that was
                // about to leave.
                let news = self.inner.log.store().inbox(id, seen).await;
                if news.is_ok_and(|entries| !entries.is_empty()) {
                    self.resume(id).await;
                }
            }
            Left::Lost(error) => {
                tracing::warn!(run = %id, %error, "the run was lost; the next process that recovers runs continues it");
                let lost = matches!(error, AppendError::Store(_));
                self.mark(id, |working| (working.live, working.lost) = (false, lost));
            }
        }
    }

    /// Releases a run, so that another node continues it at once.
    async fn let_go(&self, run: &Run) {
        let (node, id, epoch) = (self.inner.log.node().into(), run.id(), run.owner.epoch());
        if let Err(error) = self.inner.log.store().release(id, node, epoch).await {
            tracing::warn!(run = %id, %error, "failed to release the run");
        }
        self.mark(id, |working| working.live = false);
    }

    /// Makes sure that an unfinished run's owner looks at its inbox.
    pub(crate) async fn wake(&self, run: RunId) {
        if !self.inner.log.owner_is_here(run) {
            self.resume(run).await;
        }
    }

    /// Wakes a paused run at its deadline. One task waits for all of them.
    fn wake_at(&self, run: RunId, at: Option<Millis>) {
        let Some(at) = at else { return };
        let mut state = self.state();
        if state.alarms.len() >= ALARMS_MAX {
            return;
        }
        state.alarms.insert((at, run));
        let is_next = state.alarms.first() == Some(&(at, run));
        if !state.waits_for_alarms {
            state.waits_for_alarms = true;
            let runtime = self.clone();
            // Not tracked: a paused run does not hold up a shutdown.
            tokio::spawn(async move {
                tokio::select! {
                    () = runtime.inner.closing.cancelled() => {}
                    () = runtime.wait_for_alarms() => {}
                }
            });
        } else if is_next {
            drop(state);
            self.inner.next_alarm.notify_one();
        }
    }

    async fn wait_for_alarms(&self) {
        loop {
            let next = {
                let mut state = self.state();
                let next = state.alarms.first().copied();
                state.waits_for_alarms = next.is_some();
                next
            };
            let Some((at, run)) = next else { return };
            let wait = at.since(self.inner.log.clock().now());
            tokio::select! {
                () = tokio::time::sleep(wait) => {
                    self.state().alarms.remove(&(at, run));
                    // Boxed: waking a run may make it wait for its next deadline.
                    Box::pin(self.wake(run)).await;
                }
                () = self.inner.next_alarm.notified() => {}
            }
        }
    }
}
