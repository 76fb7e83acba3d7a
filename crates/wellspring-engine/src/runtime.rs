//! The front door: start, attach, cancel, answer; and bring back what a crash left behind.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio_util::task::TaskTracker;
use uuid::Uuid;
use wellspring_core::{
    AgentNo, Answer, CancelWhen, CancellationToken, Command, Content, Event, FailureKind, InboxNo,
    Message, Millis, Outcome, PartId, QuestionId, RunId, RunRequest, RunStarted, Seq, ThreadId,
    ToolOutcome, ToolResult, Transcript, TurnStarted,
};
use wellspring_log::{
    AdoptError, AppendError, Beginning, CreateError, Cursor, ExternalId, Log, Owner, Put,
    ReadError, RunFilter, RunInfo, RunState, StoreError,
};

use crate::agent::{AgentDef, Brain, WhenBusy};
use crate::close::closing_events;
use crate::drive::{Left, drive};
use crate::hooks::Hooks;
use crate::limits::HISTORY_RUNS_MAX;
use crate::run::{Announced, NewRunParts, Run, may_answer};

/// How many orphaned runs one [`Runtime::recover`] looks at; the next call takes the rest.
const RECOVER_MAX: usize = 1000;

/// Whose runs are when nobody says otherwise.
pub const DEFAULT_TENANT: &str = "default";

/// Runs agents over a log. Cheap to clone.
///
/// ```
/// use std::sync::Arc;
/// use wellspring_engine::{AgentDef, Runtime, StartRun};
/// use wellspring_log::Log;
/// use wellspring_models::{Say, Scripted};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let runtime = Runtime::new(Log::in_memory());
/// runtime.register(AgentDef::model("greeter", Arc::new(Scripted::new([Say::new().text("Hello.")]))));
/// let run = runtime.start(StartRun::text("greeter", "Hi")).await?;
/// let transcript = runtime.wait(run).await?;
/// assert_eq!(transcript.answer(wellspring_core::AgentNo::ROOT), "Hello.");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Runtime {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    log: Log,
    state: Mutex<State>,
    tasks: TaskTracker,
    closing: CancellationToken,
    observer: Observer,
    span_parents: SpanParents,
    run_time_max: OnceLock<Duration>,
}

/// Who is told of every run, whichever its agent.
#[derive(Default)]
struct Observer(OnceLock<Arc<dyn Hooks>>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() { "Observer" } else { "None" })
    }
}

/// How a run's span is put below the caller's.
#[derive(Default)]
struct SpanParents(OnceLock<Box<SetSpanParent>>);

/// Puts a span below the one that a `traceparent` names.
type SetSpanParent = dyn Fn(&tracing::Span, &str) + Send + Sync;

impl fmt::Debug for SpanParents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() { "SpanParents" } else { "None" })
    }
}

#[derive(Debug, Default)]
struct State {
    agents: BTreeMap<Box<str>, Arc<AgentDef>>,
    /// The runs that this runtime works on, with their agents; also paused ones, whose agent
    /// may not be registered by name.
    runs: BTreeMap<RunId, Working>,
}

#[derive(Clone, Debug)]
struct Working {
    def: Arc<AgentDef>,
    live: bool,
    /// The store failed it, and it has not come back yet.
    lost: bool,
}

impl Working {
    fn live(def: &Arc<AgentDef>) -> Self {
        Self { def: Arc::clone(def), live: true, lost: false }
    }
}

/// A run to be started.
#[derive(Clone, Debug)]
pub struct StartRun {
    /// Who is asked.
    pub agent: AgentRef,
    /// Whose run it is.
    pub tenant: Box<str>,
    /// The conversation it belongs to; a new one when absent.
    pub thread: Option<ThreadId>,
    /// Whether that conversation is known to have no run yet: then none is looked for.
    pub is_first: bool,
    /// The run it continues; the thread's latest when absent.
    pub after: Option<RunId>,
    /// Its id; a new one when absent.
    pub run: Option<RunId>,
    /// What a surface calls it. From the run's first moment on that name means this run.
    pub name: Option<ExternalId>,
    /// What is asked.
    pub request: RunRequest,
}

/// An agent, by name or as it is.
#[derive(Clone, Debug)]
pub enum AgentRef {
    /// One that was registered.
    Name(Box<str>),
    /// This one.
    Def(Arc<AgentDef>),
}

impl From<&str> for AgentRef {
    fn from(name: &str) -> Self {
        Self::Name(name.into())
    }
}

impl From<Arc<AgentDef>> for AgentRef {
    fn from(def: Arc<AgentDef>) -> Self {
        Self::Def(def)
    }
}

impl StartRun {
    /// A run of a new thread.
    #[must_use]
    pub fn new(agent: impl Into<AgentRef>, request: RunRequest) -> Self {
        let tenant = DEFAULT_TENANT.into();
        let (thread, after, run, name) = (None, None, None, None);
        let is_first = false;
        Self { agent: agent.into(), tenant, thread, is_first, after, run, name, request }
    }

    /// A run of a new thread that is asked just this.
    #[must_use]
    pub fn text(agent: impl Into<AgentRef>, input: impl Into<Box<str>>) -> Self {
        Self::new(agent, RunRequest::text(input))
    }
}

/// A run could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No agent has that name.
    #[error("there is no agent {name:?}; there are: {known}")]
    UnknownAgent {
        /// What was asked for.
        name: Box<str>,
        /// What there is.
        known: String,
    },
    /// The request names a model, and the agent has one of its own.
    #[error("the agent {agent} lets nobody choose its model; leave the model out")]
    ModelNotAllowed {
        /// Who was asked.
        agent: Box<str>,
    },
    /// The thread has an unfinished run.
    #[error("the thread is busy with run {0}; wait for it, cancel it, or add input to it")]
    ThreadBusy(RunId),
    /// The id is taken.
    #[error("there is a run {} already", .0.run)]
    Exists(Box<RunInfo>),
    /// The name means another run already.
    #[error("that name means run {0} already")]
    Named(RunId),
    /// The run to continue does not exist, or is someone else's.
    #[error("there is no run {0} to continue")]
    NoRun(RunId),
    /// The runtime is shutting down.
    #[error("the runtime is shutting down; ask again elsewhere or later")]
    ShuttingDown,
    /// The log could not take it.
    #[error("the log could not take the run")]
    Log(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Something was wanted of a run that could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is no such run.
    #[error("there is no run {0}")]
    NoRun(RunId),
    /// The run is over.
    #[error("run {0} is over already")]
    Finished(RunId),
    /// The question is not open.
    #[error("question {0} is not open: it was answered, expired or never asked")]
    NoQuestion(QuestionId),
    /// The call does not wait for a result from outside.
    #[error("call {0} does not wait for a result from outside")]
    NoCall(PartId),
    /// The answer is not theirs to give.
    #[error("only whoever started the run, or a named approver, may answer")]
    NotAllowed,
    /// The log could not take it.
    #[error("the log could not take it")]
    Log(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl From<StoreError> for SendError {
    fn from(error: StoreError) -> Self {
        if let StoreError::NoRun(run) = error {
            Self::NoRun(run)
        } else {
            Self::Log(Box::new(error))
        }
    }
}

impl Runtime {
    /// A runtime over a log, with no agents yet.
    #[must_use]
    pub fn new(log: Log) -> Self {
        let inner = Inner {
            log,
            state: Mutex::default(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            observer: Observer::default(),
            span_parents: SpanParents::default(),
            run_time_max: OnceLock::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.inner.log
    }

    /// Tells somebody of every run, whichever its agent: metrics, say. Agents' own hooks are
    /// told too. `false` if there is an observer already.
    pub fn observe(&self, observer: Arc<dyn Hooks>) -> bool {
        self.inner.observer.0.set(observer).is_ok()
    }

    /// How the span of a run is put below its caller's: `set` gets the span, before anything
    /// is within it, and the [`trace_parent`](RunRequest::trace_parent) of the request. Only
    /// whoever exports spans knows how. `false` if that was said already.
    pub fn span_parents(&self, set: impl Fn(&tracing::Span, &str) + Send + Sync + 'static) -> bool {
        self.inner.span_parents.0.set(Box::new(set)).is_ok()
    }

    pub(crate) fn set_span_parent(&self, span: &tracing::Span, request: &RunRequest) {
        if let (Some(set), Some(parent)) = (self.inner.span_parents.0.get(), &request.trace_parent)
        {
            set(span, parent);
        }
    }

    /// Lets no run take longer, whatever its agent allows. `false` if there is such a limit
    /// already.
    pub fn limit_run_time(&self, max: Duration) -> bool {
        self.inner.run_time_max.set(max).is_ok()
    }

    /// How long a run of this agent may take.
    pub(crate) fn run_time(&self, def: &AgentDef) -> Duration {
        let max = self.inner.run_time_max.get();
        max.map_or(def.timeouts.run, |max| def.timeouts.run.min(*max))
    }

    /// Whether this runtime works on a run right now.
    #[must_use]
    pub fn is_live(&self, run: RunId) -> bool {
        self.state().runs.get(&run).is_some_and(|working| working.live)
    }

    /// How many runs this runtime works on right now.
    #[must_use]
    pub fn live_runs(&self) -> usize {
        self.state().runs.values().filter(|working| working.live).count()
    }

    /// Whoever is told of what happens to a run of this agent.
    pub(crate) fn hooks<'a>(&'a self, def: &'a AgentDef) -> impl Iterator<Item = &'a dyn Hooks> {
        def.hooks.as_deref().into_iter().chain(self.inner.observer.0.get().map(AsRef::as_ref))
    }

    /// Makes an agent known by its name, replacing one of the same name.
    pub fn register(&self, def: AgentDef) -> Arc<AgentDef> {
        let def = Arc::new(def);
        self.state().agents.insert(def.name.clone(), Arc::clone(&def));
        def
    }

    /// The agent of that name.
    #[must_use]
    pub fn agent(&self, name: &str) -> Option<Arc<AgentDef>> {
        self.state().agents.get(name).cloned()
    }

    /// Every registered agent, by name.
    #[must_use]
    pub fn agents(&self) -> Vec<Arc<AgentDef>> {
        self.state().agents.values().cloned().collect()
    }

    /// Starts a run and returns once its first record is committed. It goes on whether or
    /// not anyone reads.
    ///
    /// # Errors
    ///
    /// When there is no such agent, it has one model only, the thread is busy and the agent refuses then, or the
    /// log cannot take it.
    pub async fn start(&self, mut start: StartRun) -> Result<RunId, StartError> {
        if self.inner.closing.is_cancelled() {
            return Err(StartError::ShuttingDown);
        }
        let def = match &start.agent {
            AgentRef::Def(def) => Arc::clone(def),
            AgentRef::Name(name) => {
                self.agent(name).ok_or_else(|| self.unknown_agent(name.clone()))?
            }
        };
        if start.request.model.is_some() && !def.allow_model {
            return Err(StartError::ModelNotAllowed { agent: def.name.clone() });
        }
        // In the log, so that whoever adopts the run knows what its result has to be.
        if start.request.result_schema.is_none() {
            start.request.result_schema.clone_from(&def.result_schema);
        }
        let run = start.run.unwrap_or_else(|| RunId::new(Uuid::now_v7()));
        let thread = start.thread.unwrap_or_else(|| ThreadId::new(Uuid::now_v7()));
        loop {
            let after = match (start.after, start.thread) {
                (Some(after), _) => Some(after),
                (None, Some(thread)) if !start.is_first => {
                    self.latest_run(&start.tenant, thread).await?
                }
                (None, _) => None,
            };
            let past = self.past(&start.tenant, after).await?;
            let started = RunStarted {
                run,
                thread,
                agent: def.name.clone(),
                after,
                request: start.request.clone(),
            };
            let first_turn = first_turn(&def, &started.request);
            let announced = if first_turn.is_some() { Announced::Turn } else { Announced::Nothing };
            let beginning = Beginning {
                name: start.name.clone(),
                then: first_turn
                    .map(|turn| Event::TurnStarted(Box::new(turn)))
                    .into_iter()
                    .collect(),
            };
            match self.inner.log.begin(&start.tenant, started.clone(), beginning).await {
                Ok(owner) => {
                    self.own(owner, start.tenant, def, started, past, announced);
                    return Ok(run);
                }
                Err(CreateError::Exists(info)) => return Err(StartError::Exists(info)),
                Err(CreateError::Named(run)) => return Err(StartError::Named(run)),
                Err(CreateError::ThreadBusy(busy)) => {
                    start.is_first = false;
                    if let Some(steered) = self.when_busy(&def, busy, &start.request).await? {
                        return Ok(steered);
                    }
                }
                Err(error) => return Err(StartError::Log(Box::new(error))),
            }
        }
    }

    /// Reads a run from after a record. Detaching changes nothing.
    ///
    /// # Errors
    ///
    /// When there is no such run or record.
    pub async fn attach(&self, run: RunId, after: Seq) -> Result<Cursor, ReadError> {
        self.inner.log.cursor(run, after).await
    }

    /// Waits until a run is over and gives its transcript.
    ///
    /// # Errors
    ///
    /// When there is no such run, or the log fails.
    pub async fn wait(&self, run: RunId) -> Result<Transcript, ReadError> {
        let mut transcript = Transcript::default();
        let mut cursor = self.attach(run, Seq(0)).await?;
        while let Some(frames) = cursor.next().await? {
            for frame in &frames {
                transcript.extend(frame.records());
            }
        }
        Ok(transcript)
    }

    /// Stops a run, wherever it runs. Idempotent; durable when it returns.
    ///
    /// # Errors
    ///
    /// When there is no such run, or it is over.
    pub async fn cancel(
        &self,
        run: RunId,
        when: CancelWhen,
        by: Option<&str>,
        why: Option<&str>,
    ) -> Result<Put, SendError> {
        let key = match when {
            CancelWhen::Now => "cancel",
            CancelWhen::AfterTurn => "cancel-after-turn",
        };
        let command = Command::Cancel { when, by: by.map(Into::into), why: why.map(Into::into) };
        self.send(run, key, command).await
    }

    /// Answers a question. The first answer wins.
    ///
    /// # Errors
    ///
    /// When there is no such run or open question, or `by` has no say.
    pub async fn answer(
        &self,
        run: RunId,
        question: QuestionId,
        answer: Answer,
        by: Option<&str>,
    ) -> Result<Put, SendError> {
        let info = self.unfinished(run).await?;
        let transcript = self.inner.log.transcript(run).await.map_err(log_error)?;
        if !transcript.outline.questions.contains_key(&question) {
            return Err(SendError::NoQuestion(question));
        }
        let asker = transcript.started.as_ref().and_then(|started| started.request.by.as_deref());
        if let Some(def) = self.def_of(&info)
            && !may_answer(&def, asker, by)
        {
            return Err(SendError::NotAllowed);
        }
        let key = format!("answer-{question}-{}", by.unwrap_or_default());
        let command = Command::Answer { question, answer, by: by.map(Into::into), wire_run: None };
        self.send(run, &key, command).await
    }

    /// Hands in the result of a call that ran in the client. The first one wins.
    ///
    /// # Errors
    ///
    /// When there is no such run, or the call does not wait for one.
    pub async fn finish_call(
        &self,
        run: RunId,
        call: PartId,
        outcome: ToolOutcome,
        result: ToolResult,
    ) -> Result<Put, SendError> {
        self.unfinished(run).await?;
        let transcript = self.inner.log.transcript(run).await.map_err(log_error)?;
        let open = transcript.outline.call(call);
        if !open.is_some_and(|open| open.tool.runs_on == wellspring_core::RunsOn::Client) {
            return Err(SendError::NoCall(call));
        }
        let command = Command::FinishCall { call, outcome, result, wire_run: None };
        self.send(run, &format!("result-{call}"), command).await
    }

    /// Adds to what a run was asked; the model sees it from its next turn on. Calls with the
    /// same key add once.
    ///
    /// # Errors
    ///
    /// When there is no such run, or it is over.
    pub async fn add_input(
        &self,
        run: RunId,
        key: &str,
        content: Vec<Content>,
    ) -> Result<Put, SendError> {
        self.send(run, &format!("input-{key}"), Command::AddInput { content }).await
    }

    /// Puts a command into a run's inbox and makes sure that somebody looks.
    ///
    /// # Errors
    ///
    /// When there is no such run, or it is over.
    pub async fn send(&self, run: RunId, key: &str, command: Command) -> Result<Put, SendError> {
        self.unfinished(run).await?;
        let put = self.inner.log.send(run, key, command).await?;
        self.wake(run).await;
        Ok(put)
    }

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
            let (_, expires_at) = crate::drive::waits(outline);
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
        let known = self.def_of(&info);
        if let Some(def) = &known {
            let mut state = self.state();
            let before = state.runs.insert(run, Working::live(def));
            if before.is_some_and(|before| before.live) {
                return Ok(false);
            }
        }
        let owner = match self.inner.log.adopt(run).await {
            Ok(owner) => owner,
            Err(error) => {
                let elsewhere = matches!(error, AdoptError::Owned { .. } | AdoptError::Finished(_));
                self.mark(run, |working| (working.live, working.lost) = (false, !elsewhere));
                return if elsewhere { Ok(false) } else { Err(error.into()) };
            }
        };
        match known {
            Some(def) => {
                let (started, after) = owner.with_transcript(|transcript| {
                    let started = transcript.started.clone();
                    (started.clone(), started.and_then(|started| started.after))
                });
                let started = started.ok_or("the run has no first record")?;
                let past = self.past(&info.tenant, after).await?;
                self.own(owner, info.tenant, def, started, past, Announced::Nothing);
                Ok(true)
            }
            None => self.resume_without_agent(&owner).await,
        }
    }

    /// A run whose agent nobody here knows can still be cancelled.
    async fn resume_without_agent(
        &self,
        owner: &Owner,
    ) -> Result<bool, Box<dyn std::error::Error + Send + Sync>> {
        let cancel = owner.inbox().await?.into_iter().find_map(|entry| match entry.command {
            Command::Cancel { by, why, .. } => {
                Some(Outcome::Cancelled { by, why, inbox: Some(entry.number) })
            }
            Command::Answer { .. } | Command::FinishCall { .. } | Command::AddInput { .. } => None,
        });
        let outcome = cancel.unwrap_or_else(|| Outcome::Failed {
            kind: FailureKind::Lost,
            message: "the run lost its process, and its agent is not configured any more".into(),
            retryable: false,
        });
        owner.push_all(
            owner.with_transcript(|transcript| closing_events(&transcript.outline, outcome)),
        );
        owner.commit().await?;
        Ok(true)
    }

    fn own(
        &self,
        owner: Owner,
        tenant: Box<str>,
        def: Arc<AgentDef>,
        started: RunStarted,
        past: Past,
        announced: Announced,
    ) {
        let id = started.run;
        self.state().runs.insert(id, Working::live(&def));
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
    async fn wake(&self, run: RunId) {
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

    async fn when_busy(
        &self,
        def: &AgentDef,
        busy: RunId,
        request: &RunRequest,
    ) -> Result<Option<RunId>, StartError> {
        let info = self.inner.log.store().info(busy).await;
        let Some(info) = info.map_err(|error| StartError::Log(Box::new(error)))? else {
            return Ok(None);
        };
        let log_error = |error: SendError| StartError::Log(Box::new(error));
        if info.state == RunState::Paused {
            // The next request did not answer what the run waits for: it is superseded.
            match self
                .cancel(busy, CancelWhen::Now, request.by.as_deref(), Some("superseded"))
                .await
            {
                Ok(_) | Err(SendError::Finished(_)) => {}
                Err(error) => return Err(log_error(error)),
            }
        } else {
            match def.when_busy {
                WhenBusy::Refuse => return Err(StartError::ThreadBusy(busy)),
                WhenBusy::Queue => {}
                WhenBusy::Steer => {
                    let key = Uuid::now_v7().to_string();
                    match self.add_input(busy, &key, request.input.clone()).await {
                        Ok(_) => return Ok(Some(busy)),
                        Err(SendError::Finished(_)) => return Ok(None),
                        Err(error) => return Err(log_error(error)),
                    }
                }
            }
        }
        self.wait(busy).await.map_err(|error| StartError::Log(Box::new(error)))?;
        Ok(None)
    }

    async fn latest_run(
        &self,
        tenant: &str,
        thread: ThreadId,
    ) -> Result<Option<RunId>, StartError> {
        let filter = RunFilter {
            tenant: Some(tenant.into()),
            thread: Some(thread),
            limit: 1,
            ..RunFilter::default()
        };
        let runs = self.inner.log.store().list(filter).await;
        let runs = runs.map_err(|error| StartError::Log(Box::new(error)))?;
        Ok(runs.first().map(|info| info.run))
    }

    /// The conversation that leads to a run: what was said, and the remote sessions it used.
    async fn past(&self, tenant: &str, after: Option<RunId>) -> Result<Past, StartError> {
        let mut past = Past::default();
        let mut newest_first = Vec::new();
        let mut next = after;
        while let Some(run) = next.filter(|_| newest_first.len() < HISTORY_RUNS_MAX) {
            let info = self.inner.log.store().info(run).await;
            let info = info.map_err(|error| StartError::Log(Box::new(error)))?;
            let info = info.filter(|info| &*info.tenant == tenant).ok_or(StartError::NoRun(run))?;
            let transcript = self.inner.log.transcript(run).await;
            let transcript = transcript.map_err(|error| StartError::Log(Box::new(error)))?;
            newest_first.push(transcript.messages(AgentNo::ROOT));
            for (origin, handle) in transcript.attached {
                past.sessions.entry(origin).or_insert(handle);
            }
            next = info.after;
        }
        past.messages = newest_first.into_iter().rev().flatten().collect();
        Ok(past)
    }

    async fn unfinished(&self, run: RunId) -> Result<RunInfo, SendError> {
        let info = self.inner.log.store().info(run).await?.ok_or(SendError::NoRun(run))?;
        if info.state.is_final() { Err(SendError::Finished(run)) } else { Ok(info) }
    }

    fn def_of(&self, info: &RunInfo) -> Option<Arc<AgentDef>> {
        let state = self.state();
        let working = state.runs.get(&info.run).map(|working| Arc::clone(&working.def));
        working.or_else(|| state.agents.get(&info.agent).cloned())
    }

    fn unknown_agent(&self, name: Box<str>) -> StartError {
        let known: Vec<_> = self.state().agents.keys().map(ToString::to_string).collect();
        StartError::UnknownAgent { name, known: known.join(", ") }
    }

    fn mark(&self, run: RunId, change: impl FnOnce(&mut Working)) {
        if let Some(working) = self.state().runs.get_mut(&run) {
            change(working);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first turn, where it is certain that there will be one: then it is announced with the
/// run itself, and the model can be asked as soon as the run is there.
fn first_turn(def: &AgentDef, request: &RunRequest) -> Option<TurnStarted> {
    let Brain::Model(model) = &def.brain else { return None };
    let limits = &def.limits;
    let may_end_before = limits.turns == 0
        || limits.tokens == Some(0)
        || limits.cost.is_some_and(|cost| cost <= 0.0)
        || limits.time.is_some_and(|time| time.is_zero())
        || request.result_schema.is_some();
    (!may_end_before).then(|| TurnStarted {
        turn: 1,
        attempt: 1,
        model: def.model_named(request).unwrap_or_else(|| model.name().into()),
        streaming: def.streams(request),
    })
}

#[derive(Default)]
struct Past {
    messages: Vec<Message>,
    sessions: BTreeMap<Box<str>, serde_json::Value>,
}

fn log_error(error: ReadError) -> SendError {
    SendError::Log(Box::new(error))
}
