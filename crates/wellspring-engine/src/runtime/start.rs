//! Starting a run: who is asked, what was said before, and what if the thread is busy.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;
use wellspring_core::{
    AgentNo, CancelWhen, Event, Message, RETURN_RESULT, RunId, RunRequest, RunStarted, ThreadId,
    TurnStarted,
};
use wellspring_log::{Beginning, CreateError, ExternalId, RunFilter, RunState};

use super::{Runtime, SendError, StartError};
use crate::agent::{AgentDef, Backend, WhenBusy};
use crate::limits::HISTORY_RUNS_MAX;
use crate::principal::DEFAULT_TENANT;
use crate::run::Announced;

/// A run to be started.
#[derive(Clone, Debug)]
pub struct StartRun {
    /// Who is asked.
    pub agent: AgentRef,
    /// Whose run it is.
    pub tenant: Box<str>,
    /// The conversation it belongs to; a new one when absent.
    pub thread: Option<ThreadId>,
    /// Whether it is only to be started as that conversation's first run. Then nobody has to
    /// look for earlier ones, and [`StartError::NotFirst`] says that there are some.
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

impl Runtime {
    /// Starts a run and returns once its first record is committed. It goes on whether or
    /// not anyone reads.
    ///
    /// # Errors
    ///
    /// When there is no such agent, it has one model only, a tool's name is taken, the thread is
    /// busy and the agent refuses then, or the log cannot take it.
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
        let mut names = def.tools.iter().map(|tool| tool.spec()).chain(&start.request.client_tools);
        if names.any(|spec| &*spec.name == RETURN_RESULT) {
            return Err(StartError::ReservedTool);
        }
        // In the log, so that whoever adopts the run knows what its result has to be.
        if start.request.result_schema.is_none() {
            start.request.result_schema.clone_from(&def.result_schema);
        }
        let run = start.run.unwrap_or_else(|| RunId::new(Uuid::now_v7()));
        let mut started = Arc::new(RunStarted {
            run,
            thread: start.thread.unwrap_or_else(|| ThreadId::new(Uuid::now_v7())),
            agent: def.name.clone(),
            after: start.after,
            request: start.request,
        });
        let goes_on = start.thread.filter(|_| start.after.is_none() && !start.is_first);
        loop {
            if let Some(thread) = goes_on {
                let latest = self.latest_run(&start.tenant, thread).await?;
                Arc::make_mut(&mut started).after = latest;
            }
            let past = self.past(&start.tenant, started.after).await?;
            let first_turn = first_turn(&def, &started.request);
            let announced = if first_turn.is_some() { Announced::Turn } else { Announced::Nothing };
            let beginning = Beginning {
                name: start.name.clone(),
                is_first: start.is_first,
                then: first_turn
                    .map(|turn| Event::TurnStarted(Box::new(turn)))
                    .into_iter()
                    .collect(),
            };
            match self.inner.log.begin(&start.tenant, Arc::clone(&started), beginning).await {
                Ok(owner) => {
                    self.own(owner, start.tenant, def, started, past, announced);
                    return Ok(run);
                }
                Err(CreateError::Exists(info)) => return Err(StartError::Exists(info)),
                Err(CreateError::Named(run)) => return Err(StartError::Named(run)),
                Err(CreateError::NotFirst) => return Err(StartError::NotFirst),
                Err(CreateError::ThreadBusy(busy)) => {
                    if let Some(steered) = self.when_busy(&def, busy, &started.request).await? {
                        return Ok(steered);
                    }
                }
                Err(error) => return Err(StartError::Log(Box::new(error))),
            }
        }
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
                        Err(SendError::NoInput { .. }) => {
                            return Err(StartError::ThreadBusy(busy));
                        }
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
    pub(super) async fn past(
        &self,
        tenant: &str,
        after: Option<RunId>,
    ) -> Result<Past, StartError> {
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

    fn unknown_agent(&self, name: Box<str>) -> StartError {
        let known: Vec<_> = self.state().agents.keys().map(ToString::to_string).collect();
        StartError::UnknownAgent { name, known: known.join(", ") }
    }
}

/// The first turn, where it is certain that there will be one: then it is announced with the
/// run itself, and the model can be asked as soon as the run is there.
fn first_turn(def: &AgentDef, request: &RunRequest) -> Option<TurnStarted> {
    let Backend::Model(model) = &def.backend else { return None };
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
pub(super) struct Past {
    pub(super) messages: Vec<Message>,
    pub(super) sessions: BTreeMap<Box<str>, serde_json::Value>,
}
