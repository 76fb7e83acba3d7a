//! An agent that runs its own loop elsewhere: its events are placed into our log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::stream::{FuturesUnordered, StreamExt as _};
use wellspring_core::{
    AgentNo, Checker, ContextFacts, Event, FailureKind, Message, Millis, ModelError, Outcome,
    PartId, Record, RemoteAgent, RemoteRequest, RunRequest, Stop,
};

use crate::activity::Busy;
use crate::agent_loop::{AgentWork, failed};
use crate::close::closed_work;
use crate::host::RunHost;
use crate::lent::{Lending, lend};
use crate::result::ResultTool;

impl AgentWork {
    /// Plays a remote agent's run into the log.
    pub(crate) async fn work_elsewhere(&self, remote: &dyn RemoteAgent, busy: Busy) -> Outcome {
        let _busy = busy;
        let result_tool = match self.result_tool() {
            Ok(tool) => tool,
            Err(outcome) => return outcome,
        };
        let (request, lending) = match self.remote_request(remote, result_tool.as_ref()) {
            Ok(request) => request,
            Err(outcome) => return outcome,
        };
        if request.attached.is_some() {
            self.close_what_was_open().await;
        }
        let placed = Placed::default();
        let host = RunHost::elsewhere(self.clone(), placed.clone());
        let context = host.context(ContextFacts {
            trace_id: self.run.trace_id.clone(),
            run: self.run.id(),
            thread: self.run.started.thread,
            agent: self.agent,
            call: None,
            messages: self.messages().into(),
            cwd: self.run.started.request.cwd.clone(),
            signal: self.run.signal.clone(),
            deadline: None,
        });
        let mut playing = Playing {
            work: self,
            placing: Placing::new(self, placed),
            lending,
            result_tool: result_tool.as_ref(),
        };
        let played = playing.play(remote, request, context).await;
        host.close();
        match played {
            Ok(stop) => self.run.cancelled().unwrap_or(Outcome::Completed { stop }),
            Err(error) => self.run.cancelled().unwrap_or_else(|| failed(&error)),
        }
    }

    /// What the agent was doing when our process ended is over: it has other words for what it
    /// does from here on.
    async fn close_what_was_open(&self) {
        let lost = Outcome::Failed {
            kind: FailureKind::Lost,
            message: "the process that drove the agent ended".into(),
            retryable: true,
        };
        let events = self.run.folded(|transcript| closed_work(&transcript.outline, &lost));
        for (agent, event) in events {
            self.run.push(agent, event);
        }
        self.run.commit().await;
    }

    fn remote_request(
        &self,
        remote: &dyn RemoteAgent,
        result_tool: Option<&ResultTool>,
    ) -> Result<(RemoteRequest, Lending), Outcome> {
        let (attached, adopted) = self.run.folded(|transcript| {
            (transcript.attached.get(remote.name()).cloned(), transcript.outline.epoch > 0)
        });
        // A sub-agent's calls share its name, so its handle does not say which of them it was.
        let attached = attached.filter(|_| adopted && self.agent.is_root());
        if adopted && attached.is_none() && self.was_at_work() {
            return Err(Outcome::Failed {
                kind: FailureKind::Lost,
                message:
                    "the process that prompted the remote agent ended before it learned how to \
                          find the run again"
                        .into(),
                retryable: true,
            });
        }
        let root = self.agent.is_root();
        let specs = self.def.tools.iter().map(|tool| tool.spec().clone());
        let (tools, lending) = lend(specs.chain(result_tool.map(|tool| tool.spec.clone())));
        let request = RemoteRequest {
            run: self.run.id(),
            thread: self.run.started.thread,
            request: self.asked(),
            instructions: Arc::clone(&self.def.instructions),
            history: if root { Arc::clone(&self.run.history) } else { Arc::from([]) },
            tools,
            attached,
            session: self.run.sessions.get(remote.name()).filter(|_| root).cloned(),
        };
        Ok((request, lending))
    }

    /// What the agent is asked: the run's request, or what another agent called it with.
    fn asked(&self) -> RunRequest {
        let request = self.run.request();
        if self.agent.is_root() {
            return request.clone();
        }
        let said = self.run.folded(|transcript| transcript.messages(self.agent));
        let input = said.into_iter().find_map(|message| match message {
            Message::User { content } => Some(content),
            Message::Assistant { .. } | Message::Results { .. } => None,
        });
        RunRequest {
            input: input.unwrap_or_default(),
            by: request.by.clone(),
            cwd: request.cwd.clone(),
            trace_id: request.trace_id.clone(),
            trace_parent: request.trace_parent.clone(),
            ..RunRequest::default()
        }
    }

    /// Whether the agent has said or done anything in this run.
    fn was_at_work(&self) -> bool {
        self.agent.is_root()
            || self.run.folded(|transcript| {
                transcript.agents.get(&self.agent).is_some_and(|agent| !agent.items.is_empty())
            })
    }
}

/// A remote agent's run on its way into the log, and the calls it makes of our tools.
struct Playing<'a> {
    work: &'a AgentWork,
    placing: Placing<'a>,
    lending: Lending,
    result_tool: Option<&'a ResultTool>,
}

impl Playing<'_> {
    async fn play(
        &mut self,
        remote: &dyn RemoteAgent,
        request: RemoteRequest,
        context: wellspring_core::Context,
    ) -> Result<Stop, ModelError> {
        let work = self.work;
        let at_once = work.def.limits.tools_at_once;
        let mut running = FuturesUnordered::new();
        let starting = remote.run(request, context);
        let mut starting = std::pin::pin!(starting);
        let mut batches = loop {
            // Whatever an agent does first, it may already call our tools.
            tokio::select! {
                batches = &mut starting => break batches?,
                Some(call) = self.lending.next(), if running.len() < at_once => {
                    running.push(work.run_lent(call, self.result_tool));
                }
                Some(()) = running.next() => {}
            }
        };
        let mut stop = None;
        loop {
            let batch = tokio::select! {
                batch = batches.next() => batch,
                Some(call) = self.lending.next(), if running.len() < at_once => {
                    running.push(work.run_lent(call, self.result_tool));
                    continue;
                }
                Some(()) = running.next() => continue,
            };
            let Some(batch) = batch else { break };
            let mut batch = batch?;
            if let Some((why, _)) = batch.take_stop() {
                stop = Some(why);
            }
            for (agent, event) in batch.into_events() {
                let (agent, event) = self
                    .placing
                    .place(agent, event)
                    .map_err(|what| ModelError::new(remote.name(), FailureKind::Protocol, what))?;
                if let Event::PartDelta { .. } = &event {
                    for hooks in work.run.runtime.hooks(&work.def) {
                        hooks.on_chunk(work.run.id(), &event);
                    }
                }
                work.run.push(agent, event);
            }
            work.run.room().await;
        }
        stop.ok_or_else(|| {
            let message = "the stream ended before the agent had stopped";
            ModelError::new(remote.name(), FailureKind::Protocol, message)
        })
    }
}

/// Where a remote agent's parts are in the run. Clones know the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Placed(Arc<Mutex<BTreeMap<PartId, PartId>>>);

impl Placed {
    pub(crate) fn get(&self, part: PartId) -> Option<PartId> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&part).copied()
    }

    fn insert(&self, part: PartId, placed: PartId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(part, placed);
    }
}

/// Gives a remote agent's events their place, and holds them to the grammar: a peer that
/// breaks it must not break our log.
struct Placing<'a> {
    work: &'a AgentWork,
    parts: Placed,
    agents: BTreeMap<AgentNo, AgentNo>,
    checker: Checker,
}

impl<'a> Placing<'a> {
    fn new(work: &'a AgentWork, parts: Placed) -> Self {
        let checker = work.run.folded(|transcript| Checker::resume(transcript.outline.clone()));
        let agents = BTreeMap::from([(AgentNo::ROOT, work.agent)]);
        Self { work, parts, agents, checker }
    }

    fn place(&mut self, agent: AgentNo, event: Event) -> Result<(AgentNo, Event), String> {
        if matches!(event, Event::AgentStarted { .. }) {
            self.agents.insert(agent, self.work.run.mint_agent());
        }
        let agent = *self.agents.get(&agent).ok_or("it spoke for an agent that has not started")?;
        let event = self.place_event(event)?;
        let seq = self.checker.outline().head.next();
        let record = Record { seq, agent, at: Millis::default(), event };
        self.checker.push(&record).map_err(|violation| violation.to_string())?;
        Ok((agent, record.event))
    }

    fn place_event(&mut self, mut event: Event) -> Result<Event, String> {
        if !is_a_remote_agents(&event) {
            return Err(format!("it stated what is not a remote agent's to state: {event}"));
        }
        if let Event::PartStarted { part, .. } = &event {
            self.parts.insert(*part, self.work.run.mint_part());
        }
        let mut unknown = None;
        event.rename_parts(|part| {
            self.parts.get(part).unwrap_or_else(|| {
                unknown = Some(part);
                part
            })
        });
        if let Event::AgentStarted { parent, .. } = &mut event {
            *parent = *self.agents.get(parent).ok_or("a sub-agent's parent has not started")?;
        }
        match unknown {
            Some(part) => Err(format!("it named part {part}, which it never opened")),
            None => Ok(event),
        }
    }
}

fn is_a_remote_agents(event: &Event) -> bool {
    match event {
        Event::TurnStarted(_)
        | Event::TurnFinished { .. }
        | Event::PartStarted { .. }
        | Event::PartDelta { .. }
        | Event::PartAnnotated { .. }
        | Event::PartFinished { .. }
        | Event::PartsVoided { .. }
        | Event::ToolQueued { .. }
        | Event::ToolStarted { .. }
        | Event::ToolUpdated { .. }
        | Event::ToolFinished { .. }
        | Event::AgentStarted { .. }
        | Event::AgentFinished { .. }
        | Event::PlanUpdated { .. }
        | Event::StateSet { .. }
        | Event::StatePatched { .. }
        | Event::SourceCited(_)
        | Event::FileProduced(_)
        | Event::UsageReported(_)
        | Event::ResultReady { .. }
        | Event::Attached { .. }
        | Event::Extended(_) => true,
        Event::RunStarted(_)
        | Event::RunAdopted { .. }
        | Event::RunPaused { .. }
        | Event::RunResumed { .. }
        | Event::QuestionAsked(_)
        | Event::QuestionAnswered(_)
        | Event::InputAccepted { .. }
        | Event::InputApplied { .. }
        | Event::RunFinished { .. } => false,
    }
}
