//! One run in the hands of its owner: what all the code that works on it shares.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures::future::FutureExt as _;
use tokio::sync::Notify;
use tokio::time::Instant;
use wellspring_core::{
    AgentNo, Answer, Answered, CancelWhen, CancellationToken, Command, Event, InboxNo, Message,
    Millis, Outcome, PartId, QuestionId, RunId, RunRequest, RunStarted, RunsOn, Scope, Transcript,
};
use wellspring_log::{InboxEntry, Owner};

use crate::activity::Activity;
use crate::agent::AgentDef;
use crate::answers;
use crate::close::finished;
use crate::runtime::Runtime;

/// One run, owned by this process.
pub(crate) struct Run {
    pub(crate) runtime: Runtime,
    pub(crate) owner: Owner,
    pub(crate) tenant: Box<str>,
    pub(crate) def: Arc<AgentDef>,
    pub(crate) started: Arc<RunStarted>,
    /// What is asked since the run goes on from a pause, where that changed.
    amended: OnceLock<RunRequest>,
    pub(crate) trace_id: Box<str>,
    pub(crate) history: Arc<[Message]>,
    /// The handles of the thread's earlier remote sessions, by origin.
    pub(crate) sessions: BTreeMap<Box<str>, serde_json::Value>,
    /// Cancelled when everything should end now.
    pub(crate) signal: CancellationToken,
    pub(crate) activity: Activity,
    owned_since: Instant,
    worked_before: Duration,
    /// The turn that was announced with the run and has not begun yet.
    announced_turn: AtomicBool,
    parts: AtomicU32,
    questions: AtomicU32,
    agents: AtomicU32,
    desk: Mutex<Desk>,
    desk_changed: Notify,
}

/// What came in from outside and was not yet picked up by those who wait for it.
#[derive(Debug, Default)]
struct Desk {
    handled: BTreeSet<InboxNo>,
    answers: BTreeMap<QuestionId, Answer>,
    results: BTreeSet<PartId>,
    cancel: Option<Outcome>,
    cancel_after_turn: Option<Outcome>,
}

/// What a [`Run`] is made of.
pub(crate) struct NewRunParts {
    pub(crate) runtime: Runtime,
    pub(crate) owner: Owner,
    pub(crate) tenant: Box<str>,
    pub(crate) def: Arc<AgentDef>,
    pub(crate) started: Arc<RunStarted>,
    pub(crate) history: Arc<[Message]>,
    pub(crate) sessions: BTreeMap<Box<str>, serde_json::Value>,
    pub(crate) announced: Announced,
}

/// What the log says already of what is to come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Announced {
    Nothing,
    /// The root agent's first turn.
    Turn,
}

impl Run {
    pub(crate) fn new(parts: NewRunParts) -> Self {
        let NewRunParts { runtime, owner, tenant, def, started, history, sessions, announced } =
            parts;
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
            amended: OnceLock::new(),
            trace_id,
            history,
            sessions,
            signal: CancellationToken::new(),
            activity: Activity::default(),
            owned_since: Instant::now(),
            worked_before: worked,
            announced_turn: AtomicBool::new(announced == Announced::Turn),
            parts: AtomicU32::new(next_part),
            questions: AtomicU32::new(next_question),
            agents: AtomicU32::new(next_agent),
            desk: Mutex::default(),
            desk_changed: Notify::new(),
        }
    }

    /// How long owners have worked on the run, this one and those before it.
    pub(crate) fn worked(&self) -> Duration {
        self.worked_before + self.owned_since.elapsed()
    }

    pub(crate) fn id(&self) -> RunId {
        self.started.run
    }

    /// What is asked, as it stands now.
    pub(crate) fn request(&self) -> &RunRequest {
        self.amended.get().unwrap_or(&self.started.request)
    }

    /// Goes on from a pause, with what the asker says anew.
    pub(crate) async fn resume(&self, entries: &[InboxEntry]) {
        let anew = entries.iter().rev().find_map(|entry| match &entry.command {
            Command::Resume { amended, state, .. } => Some((entry.number, amended, state)),
            Command::Cancel { .. }
            | Command::Answer { .. }
            | Command::FinishCall { .. }
            | Command::AddInput { .. } => None,
        });
        // An answer is named by its effect, not here: it may turn out to have none.
        let inbox = anew.map(|(inbox, ..)| inbox);
        let wire_run = entries.first().and_then(|entry| wire_run(&entry.command));
        let amended = anew.map(|(_, amended, _)| amended.clone());
        let mut events = vec![(AgentNo::ROOT, Event::RunResumed { inbox, wire_run, amended })];
        if let Some(state) = anew.and_then(|(.., state)| state.clone())
            && self.folded(|transcript| transcript.state.as_ref() != Some(&*state))
        {
            events.push((AgentNo::ROOT, Event::StateSet { state }));
        }
        self.owner.push_all(events);
        self.commit().await;
        if anew.is_some()
            && let Some(request) =
                self.folded(|transcript| Some(transcript.started.as_ref()?.request.clone()))
        {
            // A run is taken up once by each owner.
            let _ = self.amended.set(request);
        }
    }

    pub(crate) fn now(&self) -> Millis {
        self.owner_clock()
    }

    fn owner_clock(&self) -> Millis {
        self.runtime.log().clock().now()
    }

    /// Whether the turn that the log has open was announced and has not begun: once.
    pub(crate) fn take_announced_turn(&self) -> bool {
        self.announced_turn.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn push(&self, agent: AgentNo, event: Event) {
        self.owner.push(agent, event);
    }

    pub(crate) fn push_all(&self, agent: AgentNo, events: impl IntoIterator<Item = Event>) {
        self.owner.push_all(events.into_iter().map(|event| (agent, event)));
    }

    /// Waits until all that was pushed is committed. When the run is lost it waits for ever:
    /// whoever drives the run sees the loss and drops everything.
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

    /// How the run was told to stop at once, if it was.
    pub(crate) fn cancelled(&self) -> Option<Outcome> {
        self.desk().cancel.clone()
    }

    /// How the run was told to stop at this turn's edge, if it was.
    pub(crate) fn cancelled_at_edge(&self) -> Option<Outcome> {
        let desk = self.desk();
        desk.cancel.clone().or_else(|| desk.cancel_after_turn.clone())
    }

    /// Stops the run at once, on the engine's own account.
    pub(crate) fn cancel_now(&self, outcome: Outcome) {
        self.desk().cancel.get_or_insert(outcome);
        self.signal.cancel();
        self.desk_changed.notify_waiters();
    }

    /// Waits for the answer to a question.
    pub(crate) async fn answer(&self, question: QuestionId) -> Answer {
        self.until(|desk| desk.answers.get(&question).cloned()).await
    }

    /// Waits until a call that runs in the client has its result.
    pub(crate) async fn client_result(&self, call: PartId) {
        self.until(|desk| desk.results.contains(&call).then_some(())).await;
    }

    /// Answers a question on the engine's own account, unless it has an answer.
    pub(crate) fn answer_myself(&self, agent: AgentNo, question: QuestionId, answer: Answer) {
        let mut desk = self.desk();
        if let Entry::Vacant(open) = desk.answers.entry(question) {
            open.insert(answer.clone());
            let answered = Answered { question, answer, by: None, inbox: None };
            self.push(agent, Event::QuestionAnswered(Box::new(answered)));
            drop(desk);
            self.desk_changed.notify_waiters();
        }
    }

    /// The last inbox entry that was looked at, whether or not it had an effect.
    pub(crate) fn last_seen(&self) -> InboxNo {
        self.desk().handled.last().copied().unwrap_or_default()
    }

    /// Takes what came in before now. At a turn's edge nothing that was accepted before may
    /// be overlooked, however busy the run is.
    pub(crate) async fn look_into_inbox(&self) {
        if self.has_news() {
            self.take_inbox().await;
            self.commit().await;
        }
    }

    /// Whether something may have come in that nobody has looked at.
    pub(crate) fn has_news(&self) -> bool {
        self.owner.inbox_changed().now_or_never().is_some()
    }

    /// Takes what is new in the inbox and appends its effects. Returns the first entry that
    /// had one, with the id under which the asker's own protocol goes on.
    pub(crate) async fn take_inbox(&self) -> Option<(InboxNo, Option<Box<str>>)> {
        let entries = match self.owner.inbox().await {
            Ok(entries) => entries,
            Err(error) => {
                // The entries are durable; the next change, or a take-over, reads them again.
                tracing::warn!(run = %self.id(), %error, "the inbox could not be read");
                return None;
            }
        };
        let mut first = None;
        for entry in entries {
            if self.desk().handled.contains(&entry.number) {
                continue;
            }
            let wire_run = wire_run(&entry.command);
            if self.take(entry.clone()).await && first.is_none() {
                first = Some((entry.number, wire_run));
            }
            self.desk().handled.insert(entry.number);
        }
        if first.is_some() {
            self.activity.stir();
        }
        self.desk_changed.notify_waiters();
        first
    }

    /// Appends the effect of one entry; `false` if it has none: it came too late, or from
    /// someone who has no say.
    async fn take(&self, entry: InboxEntry) -> bool {
        let inbox = entry.number;
        match entry.command {
            Command::Cancel { when, by, why } => {
                let outcome = Outcome::Cancelled { by, why, inbox: Some(inbox) };
                match when {
                    CancelWhen::Now => self.cancel_now(outcome),
                    CancelWhen::AfterTurn => {
                        self.desk().cancel_after_turn.get_or_insert(outcome);
                    }
                }
                true
            }
            Command::Answer { question, answer, by, .. } => {
                self.take_answer(inbox, question, answer, by).await
            }
            Command::FinishCall { call, outcome, mut result, .. } => {
                let waiting = self.folded(|transcript| {
                    let open = transcript.outline.call(call);
                    open.filter(|open| open.tool.runs_on == RunsOn::Client).map(|open| open.agent)
                });
                let Some(agent) = waiting else { return false };
                if !self.desk().results.insert(call) {
                    return false;
                }
                result.inbox = Some(inbox);
                self.push(agent, finished(call, outcome, result));
                true
            }
            // It only says how to go on, and the run does already.
            Command::Resume { .. } => false,
            Command::AddInput { content } => {
                self.push(AgentNo::ROOT, Event::InputAccepted { inbox, content });
                true
            }
        }
    }

    async fn take_answer(
        &self,
        inbox: InboxNo,
        question: QuestionId,
        answer: Answer,
        by: Option<Box<str>>,
    ) -> bool {
        let asked = self.folded(|transcript| {
            let open = transcript.outline.questions.get(&question)?;
            let tool = open.call.and_then(|call| transcript.outline.call(call));
            // What a remote agent calls a tool says too little to allow it for ever; whoever
            // wants that tells the agent.
            let ours = tool.filter(|call| call.tool.runs_on.is_ours());
            let asker = transcript.agents.get(&open.agent).map(|agent| agent.name.clone());
            let tool = ours.map(|call| call.tool.name.clone()).zip(asker);
            Some((open.agent, tool, answers::check(&open.form, &answer)))
        });
        let Some((agent, tool, fits)) = asked else { return false };
        if self.desk().answers.contains_key(&question) || !self.may_answer(by.as_deref()) {
            return false;
        }
        if let Err(why) = fits {
            tracing::warn!(run = %self.id(), %question, why, "an answer that is none was ignored");
            return false;
        }
        if let (Answer::Approve { scope, .. }, Some((tool, asker))) = (&answer, tool) {
            self.remember_approval(*scope, &asker, &tool).await;
        }
        self.desk().answers.insert(question, answer.clone());
        let answered = Answered { question, answer, by, inbox: Some(inbox) };
        self.push(agent, Event::QuestionAnswered(Box::new(answered)));
        true
    }

    /// An answer counts from the person who asked, or from a named approver.
    pub(crate) fn may_answer(&self, by: Option<&str>) -> bool {
        may_answer(&self.def, self.started.request.by.as_deref(), by)
    }

    /// Whether somebody said yes to this tool for longer than one call.
    pub(crate) async fn has_standing_approval(&self, agent: &str, tool: &str) -> bool {
        for name in [self.thread_approval(agent, tool), self.agent_approval(agent, tool)] {
            match self.runtime.log().store().setting(name).await {
                Ok(Some(_)) => return true,
                Ok(None) => {}
                // Without the answer of the store, the safe thing is to ask.
                Err(error) => tracing::warn!(%error, tool, "standing approvals could not be read"),
            }
        }
        false
    }

    async fn remember_approval(&self, scope: Scope, agent: &str, tool: &str) {
        let name = match scope {
            Scope::Once => return,
            Scope::Thread => self.thread_approval(agent, tool),
            Scope::Always => self.agent_approval(agent, tool),
        };
        if let Err(error) = self.runtime.log().store().put_setting(name, Some("yes".into())).await {
            tracing::warn!(%error, tool, "the standing approval could not be kept");
        }
    }

    fn thread_approval(&self, agent: &str, tool: &str) -> Box<str> {
        format!("approval/thread/{}/{agent}/{tool}", self.started.thread).into()
    }

    fn agent_approval(&self, agent: &str, tool: &str) -> Box<str> {
        format!("approval/agent/{}/{agent}/{tool}", self.tenant).into()
    }

    async fn until<T>(&self, found: impl Fn(&Desk) -> Option<T>) -> T {
        loop {
            let changed = self.desk_changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let seen = found(&self.desk());
            match seen {
                Some(value) => return value,
                None => changed.await,
            }
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether `by` may answer a question of a run that `asker` started: the asker, and whom the
/// agent names; anyone, where nobody in particular asked.
pub(crate) fn may_answer(def: &AgentDef, asker: Option<&str>, by: Option<&str>) -> bool {
    match (asker, by) {
        (None, _) => true,
        (Some(asker), Some(by)) => {
            asker == by || def.approvers.iter().any(|approver| &**approver == by)
        }
        (Some(_), None) => false,
    }
}

fn wire_run(command: &Command) -> Option<Box<str>> {
    match command {
        Command::Answer { wire_run, .. }
        | Command::FinishCall { wire_run, .. }
        | Command::Resume { wire_run, .. } => wire_run.clone(),
        Command::Cancel { .. } | Command::AddInput { .. } => None,
    }
}
