//! The front door: start, attach, cancel, answer.

pub(crate) mod close;
pub(crate) mod drive;
mod errors;
mod recover;
mod start;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use wellspring_core::{
    Answer, CancelWhen, CancellationToken, Command, Content, PartId, QuestionId, RunId, RunRequest,
    Seq, ToolOutcome, ToolResult, Transcript,
};
use wellspring_log::{Cursor, Log, NewCommand, Put, PutAll, ReadError, RunInfo};

pub use self::errors::{SendError, StartError};
pub use self::start::{AgentRef, StartRun};
use crate::agent::AgentDef;
use crate::calls::answers::{self, may_answer};
use crate::hooks::Hooks;

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
    /// When runs without an owner were first seen whose agents are not known here.
    strangers: BTreeMap<RunId, Instant>,
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

    /// Whether the store failed runs of this runtime that have not come back yet:
    /// [`recover`](Self::recover) takes them up again, once the store works.
    #[must_use]
    pub fn has_lost_runs(&self) -> bool {
        self.state().runs.values().any(|working| working.lost)
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
        self.check_answers(run, [(question, &answer)], by).await?;
        let key = format!("answer-{question}-{}", by.unwrap_or_default());
        let command = Command::Answer { question, answer, by: by.map(Into::into), wire_run: None };
        self.send(run, &key, command).await
    }

    /// Whether these answers would be taken: each question is open, its answer is one, and `by`
    /// has a say. Nothing is sent; the run is given as it stands.
    ///
    /// # Errors
    ///
    /// As those of [`answer`](Self::answer).
    pub async fn check_answers<'a>(
        &self,
        run: RunId,
        answers: impl IntoIterator<Item = (QuestionId, &'a Answer)>,
        by: Option<&str>,
    ) -> Result<Transcript, SendError> {
        let info = self.unfinished(run).await?;
        let transcript = self.inner.log.transcript(run).await.map_err(log_error)?;
        let asker = transcript.started.as_ref().and_then(|started| started.request.by.as_deref());
        let def = self.def_of(&info);
        for (question, answer) in answers {
            let Some(open) = transcript.outline.questions.get(&question) else {
                return Err(SendError::NoQuestion(question));
            };
            answers::check(&open.form, answer).map_err(|why| SendError::BadAnswer(why.into()))?;
            // An agent that is not known here cannot go on here either; it decides who may.
            if def.as_ref().is_some_and(|def| !may_answer(def, asker, by)) {
                return Err(SendError::NotAllowed);
            }
        }
        Ok(transcript)
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
        let info = self.unfinished(run).await?;
        if self.def_of(&info).is_some_and(|def| !def.takes_input()) {
            return Err(SendError::NoInput { agent: info.agent });
        }
        self.send(run, &format!("input-{key}"), Command::AddInput { content }).await
    }

    /// Puts a command into a run's inbox and makes sure that somebody looks.
    ///
    /// # Errors
    ///
    /// When there is no such run, or it is over.
    pub async fn send(&self, run: RunId, key: &str, command: Command) -> Result<Put, SendError> {
        self.unfinished(run).await?;
        let commands = vec![NewCommand { key: key.into(), command }];
        let put = match self.inner.log.send(run, commands).await? {
            PutAll::Done(puts) => puts.into_iter().next(),
            PutAll::KeyTaken { number, .. } => Some(Put { number, existed: true }),
        };
        self.wake(run).await;
        put.ok_or(SendError::NoRun(run))
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

    fn mark(&self, run: RunId, change: impl FnOnce(&mut Working)) {
        if let Some(working) = self.state().runs.get_mut(&run) {
            change(working);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log_error(error: ReadError) -> SendError {
    SendError::Log(Box::new(error))
}
