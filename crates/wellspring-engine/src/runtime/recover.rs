//! Owning runs: taking them, letting go of them, and bringing back what a crash left behind.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wellspring_core::{Command, FailureKind, InboxNo, Millis, Outcome, RunId, RunStarted};
use wellspring_log::{AdoptError, AppendError, Owner, RunFilter, RunInfo, RunState, StoreError};

use super::history::Past;
use super::{Runtime, Working};
use crate::agent::AgentDef;
use crate::run::{Announced, NewRunParts, Run};
use crate::runtime::close::closing_events;
use crate::runtime::drive::{Left, drive, waits};

/// How many orphaned runs one [`Runtime::recover`] looks at; the next call takes the rest.
const RECOVER_MAX: usize = 1000;

/// How long a run that lost its process waits for somebody who knows its agent.
const STRANGER_GRACE: Duration = Duration::from_secs(5 * 60);

impl Runtime {
    /// Adopts every run whose owner is gone, and every paused run that something has come in
    /// for. Returns the runs that go on here.
    ///
    /// # Errors
    ///
    /// When the store cannot say which those are.
    pub async fn recover(&self) -> Result<Vec<RunId>, StoreError> {
        let now = self.inner.log.clock().now();
        let store = self.inner.log.store();
        let mut adopted = Vec::new();
        let expired = store.expired(now, RECOVER_MAX).await?;
        // Those that the store failed have a lease of ours that has not ended.
        let lost: Vec<_> =
            self.state().runs.iter().filter(|(_, it)| it.lost).map(|(run, _)| *run).collect();
        for run in lost.into_iter().chain(expired) {
            if self.resume(run).await {
                adopted.push(run);
            }
        }
        let filter = RunFilter {
            states: vec![RunState::Paused],
            limit: RECOVER_MAX,
            ..RunFilter::default()
        };
        for info in store.list(filter).await? {
            let Ok(transcript) = self.inner.log.transcript(info.run).await else { continue };
            let outline = &transcript.outline;
            let def = self.def_of(&info);
            let expires_at = def.and_then(|def| waits(&transcript, &def).1);
            let inbox = store.inbox(info.run, InboxNo(0)).await?;
            let news = inbox.iter().any(|entry| !outline.taken.contains(&entry.number));
            if news || expires_at.is_some_and(|at| at <= now) {
                if self.resume(info.run).await {
                    adopted.push(info.run);
                }
            } else {
                self.wake_at(info.run, expires_at);
            }
        }
        Ok(adopted)
    }

    /// Adopts one run that nobody owns and goes on with it; `false` when somebody else has
    /// it, it is over, or its agent is not known here.
    pub async fn resume(&self, run: RunId) -> bool {
        match self.try_resume(run).await {
            Ok(resumed) => resumed,
            Err(error) => {
                tracing::warn!(%run, error = &*error, "the run could not be resumed");
                false
            }
        }
    }

    /// Starts nothing new, lets runs end until the limit, then lets go of them: whoever
    /// recovers next goes on with them.
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
        let Some(def) = self.def_of(&info) else { return self.end_stranger(&info).await };
        let before = self.state().runs.insert(run, Working::live(&def, None));
        if before.is_some_and(|before| before.live) {
            return Ok(false);
        }
        let owner = match self.inner.log.adopt(run).await {
            Ok(owner) => owner,
            Err(error) => {
                let elsewhere = matches!(error, AdoptError::Owned { .. } | AdoptError::Finished(_));
                self.mark(run, |working| (working.live, working.lost) = (false, !elsewhere));
                return if elsewhere { Ok(false) } else { Err(error.into()) };
            }
        };
        let started = owner.with_transcript(|transcript| transcript.started.clone());
        let started = started.ok_or("the run has no first record")?;
        let past = self.past(&info.tenant, started.after).await?;
        self.own(owner, info.tenant, def, started, past, Announced::Nothing);
        Ok(true)
    }

    /// A run whose agent is not known here is left to those who know it: another node, or this
    /// one once the agent is configured again. It can still be cancelled; and when it has lost
    /// its process and nobody came for it, it fails, so that nobody waits for ever.
    async fn end_stranger(
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
            None if info.state == RunState::Running && self.nobody_came_for(run) => {
                Outcome::Failed {
                    kind: FailureKind::Lost,
                    message: format!(
                        "the run lost its process, and its agent {:?} is not configured any more",
                        info.agent
                    )
                    .into(),
                    retryable: false,
                }
            }
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
        self.state().strangers.remove(&run);
        Ok(true)
    }

    /// Whether a run of an agent that is not known here was first seen without an owner so
    /// long ago that nobody will come for it.
    fn nobody_came_for(&self, run: RunId) -> bool {
        let now = Instant::now();
        let mut state = self.state();
        if state.strangers.len() >= RECOVER_MAX && !state.strangers.contains_key(&run) {
            // Those that somebody came for are never asked about again.
            state.strangers.retain(|_, seen| now - *seen <= 2 * STRANGER_GRACE);
            return false;
        }
        now - *state.strangers.entry(run).or_insert(now) > STRANGER_GRACE
    }

    pub(crate) fn own(
        &self,
        owner: Owner,
        tenant: Box<str>,
        def: Arc<AgentDef>,
        started: Arc<RunStarted>,
        past: Past,
        announced: Announced,
    ) {
        let id = started.run;
        self.state().runs.insert(id, Working::live(&def, started.request.by.as_deref()));
        let run = Arc::new(Run::new(NewRunParts {
            runtime: self.clone(),
            owner,
            tenant,
            def,
            started,
            history: past.messages.into(),
            sessions: past.sessions,
            announced,
        }));
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

    /// A run left its owner's hands.
    async fn settle(&self, run: Arc<Run>, left: Left) {
        let id = run.id();
        let def = Arc::clone(&run.def);
        let seen = run.last_seen();
        // The owner must be gone before anybody may adopt the run again.
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
                // What came in between the last look and the pause found an owner to wake,
                // but the owner was leaving.
                let news = self.inner.log.store().inbox(id, seen).await;
                if news.is_ok_and(|entries| !entries.is_empty()) {
                    self.resume(id).await;
                }
            }
            Left::Lost(error) => {
                tracing::warn!(run = %id, %error, "the run was lost; whoever recovers next goes on with it");
                let lost = matches!(error, AppendError::Store(_));
                self.mark(id, |working| (working.live, working.lost) = (false, lost));
            }
        }
    }

    /// Gives up a run so that another node need not wait for the lease to end.
    async fn let_go(&self, run: &Run) {
        let (node, id) = (self.inner.log.node().into(), run.id());
        if let Err(error) = self.inner.log.store().renew(node, vec![id], Millis(0)).await {
            tracing::warn!(run = %id, %error, "the lease could not be given up; it will end by itself");
        }
        self.mark(id, |working| working.live = false);
    }

    /// Makes sure that an unfinished run's owner looks at its inbox.
    pub(crate) async fn wake(&self, run: RunId) {
        if !self.inner.log.owner_is_here(run) {
            self.resume(run).await;
        }
    }

    fn wake_at(&self, run: RunId, at: Option<Millis>) {
        let Some(at) = at else { return };
        let runtime = self.clone();
        let wait = at.since(self.inner.log.clock().now());
        // Not tracked: a paused run does not hold up a shutdown.
        tokio::spawn(async move {
            tokio::select! {
                () = runtime.inner.closing.cancelled() => {}
                () = tokio::time::sleep(wait) => runtime.wake(run).await,
            }
        });
    }
}
