//! A run that this process owns: the state that all code working on it shares.

pub(crate) mod activity;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use wellspring_core::{
    AgentNo, CancellationToken, Event, Message, Millis, PartId, QuestionId, RunId, RunStarted,
    Transcript,
};
use wellspring_log::Owner;

use crate::agent::AgentDef;
use crate::inbox::InboxState;
use crate::run::activity::Activity;
use crate::runtime::Runtime;
use crate::runtime::history::Past;

/// A run that this process owns.
pub(crate) struct Run {
    pub(crate) runtime: Runtime,
    pub(crate) owner: Owner,
    pub(crate) tenant: Box<str>,
    pub(crate) def: Arc<AgentDef>,
    pub(crate) started: Arc<RunStarted>,
    pub(crate) trace_id: Box<str>,
    pub(crate) history: Arc<[Message]>,
    /// The handles of the thread's earlier remote sessions, by origin.
    pub(crate) sessions: BTreeMap<Box<str>, serde_json::Value>,
    /// Cancelled when all work must end now.
    pub(crate) signal: CancellationToken,
    pub(crate) activity: Activity,
    owned_since: Instant,
    worked_before: Duration,
    /// The turn that was announced with the run and has not begun yet.
    announced_turn: AtomicBool,
    parts: AtomicU32,
    questions: AtomicU32,
    agents: AtomicU32,
    /// Attempts that were made because another model had failed.
    pub(crate) fallbacks: AtomicU32,
    pub(crate) inbox: Mutex<InboxState>,
    pub(crate) inbox_state_changed: Notify,
}

/// The work that was announced in the log together with the start of the run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Announced {
    Nothing,
    /// The root agent's first turn.
    Turn,
}

impl Run {
    pub(crate) fn new(
        runtime: Runtime,
        owner: Owner,
        tenant: Box<str>,
        def: Arc<AgentDef>,
        started: Arc<RunStarted>,
        past: Past,
        announced: Announced,
    ) -> Self {
        let trace_id = started
            .request
            .trace_id
            .clone()
            .unwrap_or_else(|| started.run.uuid().simple().to_string().into());
        let (next_part, next_question, next_agent, worked) = owner.with_transcript(|transcript| {
            let outline = &transcript.outline;
            let next_agent = outline.next_agent.0.max(1);
            (outline.next_part.0, outline.next_question.0, next_agent, transcript.worked)
        });
        Self {
            runtime,
            owner,
            tenant,
            def,
            started,
            trace_id,
            history: past.messages.into(),
            sessions: past.sessions,
            signal: CancellationToken::new(),
            activity: Activity::default(),
            owned_since: Instant::now(),
            worked_before: worked,
            announced_turn: AtomicBool::new(announced == Announced::Turn),
            parts: AtomicU32::new(next_part),
            questions: AtomicU32::new(next_question),
            agents: AtomicU32::new(next_agent),
            fallbacks: AtomicU32::new(0),
            inbox: Mutex::default(),
            inbox_state_changed: Notify::new(),
        }
    }

    /// The time that this owner and earlier ones have worked on the run.
    pub(crate) fn worked(&self) -> Duration {
        self.worked_before + self.owned_since.elapsed()
    }

    pub(crate) fn id(&self) -> RunId {
        self.started.run
    }

    /// The run's start, with the later changes of clients to its request.
    pub(crate) fn amended(&self) -> Arc<RunStarted> {
        let folded = self.folded(|transcript| transcript.started.clone());
        folded.unwrap_or_else(|| Arc::clone(&self.started))
    }

    pub(crate) fn now(&self) -> Millis {
        self.runtime.now()
    }

    /// Waits until a time; with `None`, forever.
    pub(crate) async fn until(&self, at: Option<Millis>) {
        match at {
            // No timer if the time has passed: even the shortest timer is not ready immediately, so
            // a run that waits only for it would be paused and woken again.
            Some(at) if at <= self.now() => {}
            Some(at) => tokio::time::sleep(at.since(self.now())).await,
            None => std::future::pending().await,
        }
    }

    /// Whether the first turn was announced with the run and has not begun. `true` at most once.
    pub(crate) fn take_announced_turn(&self) -> bool {
        self.announced_turn.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn push(&self, agent: AgentNo, event: Event) {
        self.owner.push(agent, event);
    }

    pub(crate) fn push_all(&self, agent: AgentNo, events: impl IntoIterator<Item = Event>) {
        self.owner.push_all(events.into_iter().map(|event| (agent, event)));
    }

    /// Waits until everything that was pushed is committed. If the run is lost, it waits forever:
    /// the code that drives the run notices the loss and drops everything.
    pub(crate) async fn commit(&self) {
        if self.owner.commit().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits while too much is uncommitted; like [`commit`](Self::commit) when the run is lost.
    pub(crate) async fn room(&self) {
        if self.owner.room().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Reads the fold of everything committed. Call [`commit`](Self::commit) first.
    pub(crate) fn folded<R>(&self, read: impl FnOnce(&Transcript) -> R) -> R {
        self.owner.with_transcript(read)
    }

    pub(crate) fn mint_part(&self) -> PartId {
        PartId(self.parts.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn mint_question(&self) -> QuestionId {
        QuestionId(self.questions.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn mint_agent(&self) -> AgentNo {
        AgentNo(self.agents.fetch_add(1, Ordering::Relaxed))
    }
}
