//! An agent that runs its own loop elsewhere: its events are placed into our log.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::stream::StreamExt as _;
use wellspring_core::{
    AgentNo, Checker, ContextFacts, Event, FailureKind, Millis, ModelError, Outcome, PartId,
    Record, RemoteAgent, RemoteRequest, Stop,
};

use crate::activity::Busy;
use crate::agent_loop::{AgentWork, failed};
use crate::host::RunHost;

impl AgentWork {
    /// Plays a remote agent's run into the log.
    pub(crate) async fn work_elsewhere(&self, remote: &dyn RemoteAgent, busy: Busy) -> Outcome {
        let _busy = busy;
        let request = match self.remote_request(remote) {
            Ok(request) => request,
            Err(outcome) => return outcome,
        };
        let host = RunHost::new(self.clone(), None, false, self.span.clone());
        let context = host.context(ContextFacts {
            trace_id: self.run.trace_id.clone(),
            run: self.run.id(),
            thread: self.run.started.thread,
            agent: self.agent,
            call: None,
            messages: Arc::clone(&request.history),
            cwd: self.run.started.request.cwd.clone(),
            signal: self.run.signal.clone(),
            deadline: None,
        });
        match self.play(remote, request, context).await {
            Ok(stop) => self.run.cancelled().unwrap_or(Outcome::Completed { stop }),
            Err(error) => self.run.cancelled().unwrap_or_else(|| failed(&error)),
        }
    }

    fn remote_request(&self, remote: &dyn RemoteAgent) -> Result<RemoteRequest, Outcome> {
        let (attached, adopted) = self.run.folded(|transcript| {
            (transcript.attached.get(remote.name()).cloned(), transcript.outline.epoch > 0)
        });
        if adopted && attached.is_none() {
            return Err(Outcome::Failed {
                kind: FailureKind::Lost,
                message:
                    "the process that prompted the remote agent ended before it learned how to \
                          find the run again"
                        .into(),
                retryable: true,
            });
        }
        Ok(RemoteRequest {
            run: self.run.id(),
            thread: self.run.started.thread,
            request: self.run.started.request.clone(),
            instructions: Arc::clone(&self.def.instructions),
            history: self.messages().into(),
            tools: self.def.tools.clone(),
            attached,
            session: self.run.sessions.get(remote.name()).cloned(),
        })
    }

    async fn play(
        &self,
        remote: &dyn RemoteAgent,
        request: RemoteRequest,
        context: wellspring_core::Context,
    ) -> Result<Stop, ModelError> {
        let mut batches = remote.run(request, context).await?;
        let mut placing = Placing::new(self);
        let mut stop = None;
        while let Some(batch) = batches.next().await {
            let mut batch = batch?;
            if let Some((why, _)) = batch.take_stop() {
                stop = Some(why);
            }
            for (agent, event) in batch.into_events() {
                let (agent, event) = placing
                    .place(agent, event)
                    .map_err(|what| ModelError::new(remote.name(), FailureKind::Protocol, what))?;
                self.run.push(agent, event);
            }
            self.run.room().await;
        }
        stop.ok_or_else(|| {
            let message = "the stream ended before the agent had stopped";
            ModelError::new(remote.name(), FailureKind::Protocol, message)
        })
    }
}

/// Gives a remote agent's events their place, and holds them to the grammar: a peer that
/// breaks it must not break our log.
struct Placing<'a> {
    work: &'a AgentWork,
    parts: BTreeMap<PartId, PartId>,
    agents: BTreeMap<AgentNo, AgentNo>,
    checker: Checker,
}

impl<'a> Placing<'a> {
    fn new(work: &'a AgentWork) -> Self {
        let checker = work.run.folded(|transcript| Checker::resume(transcript.outline.clone()));
        let agents = BTreeMap::from([(AgentNo::ROOT, work.agent)]);
        Self { work, parts: BTreeMap::new(), agents, checker }
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
        event.rename_parts(|part| match self.parts.get(&part) {
            Some(placed) => *placed,
            None => {
                unknown = Some(part);
                part
            }
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
