//! Remote agents: one that runs its own loop, whose events are placed into our log.

pub(crate) mod place;
pub(crate) mod tools;

use std::sync::Arc;

use futures::stream::{FuturesUnordered, StreamExt as _};
use wellspring_core::{
    ContextFacts, Event, FailureKind, Message, ModelError, Outcome, RemoteAgent, RemoteRequest,
    RunRequest, Stop,
};

use crate::agent_loop::{AgentWork, failed};
use crate::calls::result::ResultTool;
use crate::host::RunHost;
use crate::remote::place::{Placed, Placing};
use crate::remote::tools::{RemoteToolCalls, remote_tools};
use crate::run::activity::Busy;
use crate::runtime::close::closed_work;

impl AgentWork {
    /// Plays a remote agent's run into the log.
    pub(crate) async fn work_remote(&self, remote: &dyn RemoteAgent, busy: Busy) -> Outcome {
        let _busy = busy;
        let result_tool = match self.result_tool() {
            Ok(tool) => tool,
            Err(outcome) => return outcome,
        };
        let (request, calls) = match self.remote_request(remote, result_tool.as_ref()) {
            Ok(request) => request,
            Err(outcome) => return outcome,
        };
        if request.attached.is_some() {
            self.close_what_was_open().await;
        }
        let placed = Placed::default();
        let host = RunHost::remote(self.clone(), placed.clone());
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
            calls,
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
    ) -> Result<(RemoteRequest, RemoteToolCalls), Outcome> {
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
        let (tools, calls) = remote_tools(specs.chain(result_tool.map(|tool| tool.spec.clone())));
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
        Ok((request, calls))
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
    calls: RemoteToolCalls,
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
                Some(call) = self.calls.next(), if running.len() < at_once => {
                    running.push(work.run_remote_call(call, self.result_tool));
                }
                Some(()) = running.next() => {}
            }
        };
        let mut stop = None;
        loop {
            let batch = tokio::select! {
                batch = batches.next() => batch,
                Some(call) = self.calls.next(), if running.len() < at_once => {
                    running.push(work.run_remote_call(call, self.result_tool));
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
