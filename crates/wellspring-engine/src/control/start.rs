//! Starting a run: its agent, its thread, its key, and what happens if the thread is busy.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;
use wellspring_core::{
    AgentOutline, CancelWhen, Event, RETURN_RESULT, RunId, RunRequest, RunStarted, Seq, ThreadId,
    TurnStarted, Usage,
};
use wellspring_log::{Beginning, CreateError, Cursor, RunFilter, RunInfo, RunState};

use super::admission::Admitted;
use super::key::{RequestKey, StartKey, same_request};
use super::{Control, ControlError, StartError};
use crate::agent::{AgentDef, Backend, WhenBusy};
use crate::calls::typed_result::ResultTool;
use crate::principal::Permission;
use crate::run::{Announced, Run};

/// A run to be started.
#[derive(Clone, Debug)]
pub struct StartRun {
    /// The agent that is asked.
    pub agent: AgentRef,
    /// The thread that the run belongs to; a new one if absent.
    pub thread: Option<ThreadId>,
    /// Whether the thread must be new, or must have runs.
    pub in_thread: InThread,
    /// The run that it continues. If absent, the thread's latest run, except with
    /// [`InThread::Branch`].
    pub after: Option<RunId>,
    /// What identifies a repeated start.
    pub key: Option<StartKey>,
    /// The request. [`Control::start`] sets its principal.
    pub request: RunRequest,
}

/// An agent, by name or by its definition.
#[derive(Clone, Debug)]
pub enum AgentRef {
    /// A registered agent.
    Name(Box<str>),
    /// This agent.
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
        let (thread, after, key) = (None, None, None);
        Self { agent: agent.into(), thread, in_thread: InThread::Any, after, key, request }
    }

    /// A run of a new thread with this text as its input.
    #[must_use]
    pub fn text(agent: impl Into<AgentRef>, input: impl Into<Box<str>>) -> Self {
        Self::new(agent, RunRequest::text(input))
    }
}

/// Condition on the thread of a new run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum InThread {
    /// New, or with runs.
    #[default]
    Any,
    /// A thread without runs; otherwise [`StartError::NotFirst`]. Costs no lookup.
    New,
    /// A thread that has runs; otherwise [`StartError::NoThread`].
    Existing,
    /// Any thread. Without [`StartRun::after`], the run continues no earlier run, so the
    /// conversation starts again.
    Branch,
}

/// The run of a start.
#[derive(Debug)]
pub struct Started {
    /// The run.
    pub run: RunId,
    /// How the start relates to the run.
    pub how: StartedAs,
    /// Reads a new run from its first record on, without asking the store for it.
    pub cursor: Option<Cursor>,
}

/// How a start relates to its run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StartedAs {
    /// It is a new run.
    New,
    /// The thread was busy, and the request became input of its run.
    Input,
    /// An earlier start with the same key started this run.
    Existing {
        /// Whether it was the same request then: agent, thread, input and everything else but
        /// the trace.
        same: bool,
    },
}

impl Control {
    /// Starts a run and returns once its first record is committed. The run does not depend on
    /// readers. Requires [`Permission::Run`], and [`Permission::Read`] to continue another
    /// principal's run.
    ///
    /// # Errors
    ///
    /// If there is no such agent, thread or run to continue, the request is not allowed, there
    /// is no room for another run, the thread is busy and the agent refuses then, or the log
    /// cannot take it.
    pub async fn start(&self, start: StartRun) -> Result<Started, StartError> {
        if !self.who.may(Permission::Run) {
            return Err(StartError::NotPermitted(Permission::Run));
        }
        let StartRun { agent, thread, in_thread, after, key, mut request } = start;
        let def = match agent {
            AgentRef::Def(def) => def,
            AgentRef::Name(name) => {
                let def = self.runtime.agent(&name);
                def.ok_or_else(|| self.runtime.unknown_agent(name))?
            }
        };
        if request.model.is_some() && !def.allow_model {
            return Err(StartError::ModelNotAllowed { agent: def.name.clone() });
        }
        let mut names = def.tools.iter().map(|tool| tool.spec()).chain(&request.client_tools);
        if names.any(|spec| &*spec.name == RETURN_RESULT) {
            return Err(StartError::ReservedTool);
        }
        // Stored in the log, so that any node that adopts the run knows the result's schema.
        if request.result_schema.is_none() {
            request.result_schema.clone_from(&def.result_schema);
        }
        request.by = Some((*self.who.id).into());
        let new = New { def, thread, in_thread, after, key, request };
        // Before the limits: a repeated start is not a new run.
        if let Some(StartKey::Idempotency(_)) = &new.key
            && let Some(existing) = self.existing(&new).await?
        {
            return Ok(existing);
        }
        if let Some(schema) = &new.request.result_schema {
            ResultTool::new(schema).await.map_err(StartError::ResultSchema)?;
        }
        if self.runtime.is_shutting_down() {
            return Err(StartError::ShuttingDown);
        }
        let run = RunId::new(Uuid::now_v7());
        let has_room = self.runtime.tenant_has_room(&self.who).await;
        match has_room.and_then(|()| self.runtime.admit(&self.who, run)) {
            Ok(admitted) => self.begin(run, new, admitted).await,
            Err(full) => self.existing(&new).await?.ok_or(full),
        }
    }

    /// The run that a start led to.
    ///
    /// # Errors
    ///
    /// If it was deleted since, or the store fails.
    pub async fn started(&self, started: &Started) -> Result<RunInfo, ControlError> {
        self.find(started.run).await
    }

    /// Reads the run that a start led to, from its first record. Requires what
    /// [`attach`](Self::attach) does.
    ///
    /// # Errors
    ///
    /// As [`attach`](Self::attach).
    pub async fn read_started(&self, started: Started) -> Result<Cursor, ControlError> {
        match started.cursor {
            Some(cursor) => Ok(cursor),
            None => self.attach(started.run, Seq(0)).await,
        }
    }

    async fn begin(
        &self,
        run: RunId,
        mut new: New,
        mut admitted: Admitted,
    ) -> Result<Started, StartError> {
        let tenant: Box<str> = (*self.who.tenant).into();
        if let Some(after) = new.after {
            let info = match self.find(after).await {
                Err(ControlError::NoRun(run)) => return Err(StartError::NoRun(run)),
                found => found.map_err(|error| StartError::Log(Box::new(error)))?,
            };
            let thread = *new.thread.get_or_insert(info.thread);
            if info.thread != thread {
                return Err(StartError::NotInThread { run: after, thread });
            }
        }
        let log = self.runtime.log();
        let mut started = Arc::new(RunStarted {
            run,
            thread: new.thread.unwrap_or_else(|| ThreadId::new(Uuid::now_v7())),
            agent: new.def.name.clone(),
            after: new.after,
            request: new.request.clone(),
        });
        let cursor = log.cursor_ahead(run);
        loop {
            if let Some(thread) = new.thread.filter(|_| new.in_thread != InThread::New) {
                let latest = self.latest(thread).await?;
                if latest.is_none() && new.in_thread == InThread::Existing {
                    return Err(StartError::NoThread(thread));
                }
                if new.after.is_none() && new.in_thread != InThread::Branch {
                    Arc::make_mut(&mut started).after = latest.map(|info| info.run);
                }
            }
            // The model gets the earlier runs, and may repeat them to the principal.
            if let Some(after) = started.after {
                let may_read = self.may_read(after).await;
                if !may_read.map_err(|error| StartError::Log(Box::new(error)))? {
                    return Err(StartError::NotPermitted(Permission::Read));
                }
            }
            let past = self.runtime.past(&tenant, started.after).await?;
            let first_turn = first_turn(&new.def, &started.request);
            let announced = if first_turn.is_some() { Announced::Turn } else { Announced::Nothing };
            let first_turn = first_turn.map(|turn| Event::TurnStarted(Box::new(turn)));
            let beginning = Beginning {
                name: new.key.as_ref().map(|key| key.external(&self.who)),
                is_first: new.in_thread == InThread::New,
                then: first_turn.into_iter().collect(),
            };
            match log.begin(&tenant, Arc::clone(&started), beginning).await {
                Ok(owner) => {
                    let runtime = self.runtime.clone();
                    let new = Run::new(runtime, owner, tenant, new.def, started, past, announced);
                    self.runtime.spawn(new);
                    return Ok(Started { run, how: StartedAs::New, cursor: Some(cursor) });
                }
                Err(CreateError::Named(_)) => {
                    if let Some(existing) = self.existing(&new).await? {
                        return Ok(existing);
                    }
                }
                Err(CreateError::NotFirst) => return Err(StartError::NotFirst),
                Err(CreateError::ThreadBusy(busy)) => {
                    // A request that waits for its thread does not count as an active run.
                    drop(admitted);
                    if let Some(steered) = self.when_busy(busy, &new).await? {
                        return Ok(steered);
                    }
                    admitted = self.runtime.admit(&self.who, run)?;
                }
                Err(error) => return Err(StartError::Log(Box::new(error))),
            }
        }
    }

    /// Waits until the thread's active run ends, or adds the request to it as input.
    async fn when_busy(&self, busy: RunId, new: &New) -> Result<Option<Started>, StartError> {
        let info = match self.unfinished(busy).await {
            Ok(info) => info,
            Err(ControlError::NoRun(_) | ControlError::Finished(_)) => return Ok(None),
            Err(error) => return Err(StartError::Log(Box::new(error))),
        };
        if info.state == RunState::Paused {
            // The request does not answer the run's questions, so it supersedes the run.
            let stopped = self.stop(busy, CancelWhen::Now, Some("superseded")).await;
            stopped.map_err(|error| StartError::Log(Box::new(error)))?;
        } else {
            match new.def.when_busy {
                WhenBusy::Refuse => return Err(StartError::ThreadBusy(busy)),
                WhenBusy::Queue => {}
                WhenBusy::Steer => return self.steer(busy, new).await,
            }
        }
        let mut cursor = self.runtime.log().cursor(busy, Seq(0)).await?;
        while cursor.next().await?.is_some() {}
        Ok(None)
    }

    async fn steer(&self, busy: RunId, new: &New) -> Result<Option<Started>, StartError> {
        let key = new.key.clone().map_or(RequestKey::Fresh, RequestKey::Start);
        match self.add_input(busy, key, new.request.input.clone()).await {
            Ok(_) => {}
            Err(ControlError::Finished(_)) => return Ok(None),
            Err(ControlError::NoInput { .. }) => return Err(StartError::ThreadBusy(busy)),
            Err(error) => return Err(StartError::Log(Box::new(error))),
        }
        if let Some(key) = &new.key {
            let store = self.runtime.log().store();
            store.bind(key.steered(&self.who, &new.request), busy).await?;
            store.bind(key.external(&self.who), busy).await?;
        }
        Ok(Some(Started { run: busy, how: StartedAs::Input, cursor: None }))
    }

    /// The run of an earlier start with the same key.
    async fn existing(&self, new: &New) -> Result<Option<Started>, StartError> {
        let Some(key) = &new.key else { return Ok(None) };
        let store = self.runtime.log().store();
        let Some(run) = store.resolve(key.external(&self.who)).await? else { return Ok(None) };
        let steered = store.resolve(key.steered(&self.who, &new.request)).await?;
        let started = self.runtime.log().transcript(run).await?.started;
        let same = steered == Some(run)
            || started.is_some_and(|started| {
                started.agent == new.def.name
                    && new.thread.is_none_or(|thread| thread == started.thread)
                    && new.after.is_none_or(|after| started.after == Some(after))
                    && same_request(&started.request, &new.request)
            });
        Ok(Some(Started { run, how: StartedAs::Existing { same }, cursor: None }))
    }

    /// A thread's latest run. A thread of another tenant is not found.
    async fn latest(&self, thread: ThreadId) -> Result<Option<RunInfo>, StartError> {
        let filter = RunFilter { thread: Some(thread), limit: 1, ..RunFilter::default() };
        let latest = self.runtime.log().store().list(filter).await?.pop();
        match latest {
            Some(info) if *info.tenant != *self.who.tenant => Err(StartError::NoThread(thread)),
            latest => Ok(latest),
        }
    }
}

/// A start that was checked.
struct New {
    def: Arc<AgentDef>,
    thread: Option<ThreadId>,
    in_thread: InThread,
    after: Option<RunId>,
    key: Option<StartKey>,
    request: RunRequest,
}

/// The first turn, if it is certain that there will be one: then it is announced together with the
/// run, and the model can be asked as soon as that is committed.
fn first_turn(def: &AgentDef, request: &RunRequest) -> Option<TurnStarted> {
    let Backend::Model(model) = &def.backend else { return None };
    let (agent, usage) = (AgentOutline::default(), Usage::default());
    let ends_before = def.limits.reached(&agent, &usage, Duration::ZERO).is_some();
    (!ends_before && request.result_schema.is_none()).then(|| TurnStarted {
        turn: 1,
        attempt: 1,
        model: def.model_named(request).unwrap_or_else(|| model.name().into()),
        streaming: def.streams(request),
    })
}
