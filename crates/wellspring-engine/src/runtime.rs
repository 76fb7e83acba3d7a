//! The runtime: agents, hooks, limits, and the runs that it works on.

pub(crate) mod close;
pub(crate) mod drive;
pub(crate) mod history;
mod recover;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use wellspring_core::{CancellationToken, Millis, RunId, RunRequest};
use wellspring_log::{Log, RunInfo};

use crate::agent::AgentDef;
use crate::control::StartError;
use crate::control::admission::Admission;
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
/// let run = runtime.local().start(StartRun::text("greeter", "Hi")).await?.run;
/// let transcript = runtime.local().wait(run).await?;
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
    admission: Admission,
    /// Notified when an earlier deadline becomes the next one.
    next_alarm: Notify,
}

/// Hooks for the runs of all agents.
#[derive(Default)]
struct Observer(OnceLock<Arc<dyn Hooks>>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() { "Observer" } else { "None" })
    }
}

/// Sets the parent of a run's span.
#[derive(Default)]
struct SpanParents(OnceLock<Box<SetSpanParent>>);

/// Makes a span a child of the one that a `traceparent` names.
type SetSpanParent = dyn Fn(&tracing::Span, &str) + Send + Sync;

impl fmt::Debug for SpanParents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.get().is_some() { "SpanParents" } else { "None" })
    }
}

#[derive(Debug, Default)]
struct State {
    agents: BTreeMap<Box<str>, Arc<AgentDef>>,
    /// The runs that this runtime works on, with their agents. Paused runs too, because their
    /// agents may not be registered by name.
    runs: BTreeMap<RunId, Working>,
    /// When each run without an owner whose agent is unknown here was first seen.
    orphans: BTreeMap<RunId, Instant>,
    /// The last of them that was examined.
    last_orphan: Option<RunId>,
    /// The deadlines of paused runs.
    alarms: BTreeSet<(Millis, RunId)>,
    waits_for_alarms: bool,
}

#[derive(Clone, Debug)]
struct Working {
    def: Arc<AgentDef>,
    /// The principal that started it.
    by: Option<Box<str>>,
    live: bool,
    /// The store failed for this run, and the run is not recovered yet.
    lost: bool,
}

impl Working {
    fn live(def: &Arc<AgentDef>, by: Option<&str>) -> Self {
        Self { def: Arc::clone(def), by: by.map(Into::into), live: true, lost: false }
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
            admission: Admission::default(),
            next_alarm: Notify::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> &Log {
        &self.inner.log
    }

    /// The time of the log's clock.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.log().clock().now()
    }

    /// Sets hooks for the runs of all agents, for example for metrics. The agents' own hooks are
    /// called too. `false` if hooks were set before.
    pub fn observe(&self, observer: Arc<dyn Hooks>) -> bool {
        self.inner.observer.0.set(observer).is_ok()
    }

    /// Sets how a run's span becomes a child of its caller's. `set` gets the span, before it has
    /// any children, and the [`trace_parent`](RunRequest::trace_parent) of the request. Only the
    /// code that exports spans can do this. `false` if it was set before.
    pub fn span_parents(&self, set: impl Fn(&tracing::Span, &str) + Send + Sync + 'static) -> bool {
        self.inner.span_parents.0.set(Box::new(set)).is_ok()
    }

    pub(crate) fn set_span_parent(&self, span: &tracing::Span, request: &RunRequest) {
        if let (Some(set), Some(parent)) = (self.inner.span_parents.0.get(), &request.trace_parent)
        {
            set(span, parent);
        }
    }

    /// Limits the duration of every run. Overrides the agents' own limits. `false` if a limit was
    /// set before.
    pub fn limit_run_time(&self, max: Duration) -> bool {
        self.inner.run_time_max.set(max).is_ok()
    }

    /// The maximum duration of a run of this agent.
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

    /// The hooks of a run of this agent: the agent's own and the runtime's.
    pub(crate) fn hooks<'a>(&'a self, def: &'a AgentDef) -> impl Iterator<Item = &'a dyn Hooks> {
        def.hooks.as_deref().into_iter().chain(self.inner.observer.0.get().map(AsRef::as_ref))
    }

    /// Registers an agent by its name, replacing one of the same name.
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

    pub(crate) fn def_of(&self, info: &RunInfo) -> Option<Arc<AgentDef>> {
        let state = self.state();
        let working = state.runs.get(&info.run).map(|working| Arc::clone(&working.def));
        working.or_else(|| state.agents.get(&info.agent).cloned())
    }

    pub(crate) fn unknown_agent(&self, name: Box<str>) -> StartError {
        let known: Vec<_> = self.state().agents.keys().map(ToString::to_string).collect();
        StartError::UnknownAgent { name, known: known.join(", ") }
    }

    pub(crate) fn admission(&self) -> &Admission {
        &self.inner.admission
    }

    /// The number of runs of this principal that this runtime works on right now.
    pub(crate) fn live_runs_of(&self, id: &str) -> usize {
        let theirs = |working: &&Working| working.live && working.by.as_deref() == Some(id);
        self.state().runs.values().filter(theirs).count()
    }

    pub(crate) fn is_shutting_down(&self) -> bool {
        self.inner.tasks.is_closed() || self.inner.closing.is_cancelled()
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
