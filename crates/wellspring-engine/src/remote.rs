//! Remote agents: they run their own loop, and their events are placed in our log.

pub(crate) mod numbering;
pub(crate) mod tools;

use std::sync::Arc;

use futures::stream::{FuturesUnordered, StreamExt as _};
use wellspring_core::{
    AgentNo, Annotation, Content, Event, FailureKind, InboxNo, Message, ModelError, Outcome,
    PartId, PartShape, RemoteAgent, RemoteInputs, RemoteRequest, RemoteResume, RunRequest, Stop,
    Transcript,
};

use crate::agent_loop::{AgentWork, failed};
use crate::calls::typed_result::ResultTool;
use crate::remote::numbering::{Placed, Placing};
use crate::remote::tools::{RemoteToolCalls, remote_tools};
use crate::run::activity::Busy;
use crate::runtime::close::closed_work;
use crate::tool_context::RunHost;

/// The next prompt of a remote agent.
enum Prompt {
    /// The run's request.
    Request,
    /// To continue its request.
    Resume,
    /// The input that was added while it worked.
    FollowUp { inputs: Vec<InboxNo> },
}

impl AgentWork {
    /// Runs a remote agent and appends its events to the log. Input that is added in the meantime
    /// is a further prompt in the same session.
    pub(crate) async fn work_remote(&self, remote: &dyn RemoteAgent, busy: Busy) -> Outcome {
        let _busy = busy;
        let result_tool = match self.result_tool().await {
            Ok(tool) => tool,
            Err(outcome) => return outcome,
        };
        let mut prompt = match self.first_prompt(remote) {
            Ok(prompt) => prompt,
            Err(outcome) => return outcome,
        };
        loop {
            let stop = match self.prompt_remote(remote, prompt, result_tool.as_ref()).await {
                Ok(stop) => stop,
                Err(error) => return self.run.cancelled().unwrap_or_else(|| failed(&error)),
            };
            self.run.commit().await;
            self.run.look_into_inbox().await;
            if let Some(outcome) = self.run.cancelled() {
                return outcome;
            }
            let inputs = self.waiting_inputs(remote);
            if inputs.is_empty() {
                return Outcome::Completed { stop };
            }
            if let Some(outcome) = self.run.cancelled_at_edge() {
                return outcome;
            }
            prompt = Prompt::FollowUp { inputs };
        }
    }

    async fn prompt_remote(
        &self,
        remote: &dyn RemoteAgent,
        prompt: Prompt,
        result_tool: Option<&ResultTool>,
    ) -> Result<Stop, ModelError> {
        if let Prompt::Resume = prompt {
            self.close_what_was_open(remote.capabilities().resume).await;
        }
        let (request, calls) = self.remote_request(remote, &prompt, result_tool);
        let placed = Placed::default();
        let host = RunHost::remote(self.clone(), placed.clone());
        let context = host.context(self.run.signal.clone(), None);
        let mut playing = Playing {
            work: self,
            placing: Placing::new(self, placed, remote.name(), request.so_far.as_deref()),
            calls,
            host: Arc::clone(&host),
            result_tool,
            inputs: match prompt {
                Prompt::Request | Prompt::Resume => Vec::new(),
                Prompt::FollowUp { inputs } => inputs,
            },
        };
        let played = playing.play(remote, request, context).await;
        host.close();
        played
    }

    /// Closes what cannot continue after the process that drove the agent has ended: calls of our
    /// tools and questions that the agent cannot ask for again, and, if it continues in new parts,
    /// everything that it had open itself.
    async fn close_what_was_open(&self, resume: RemoteResume) {
        let lost = Outcome::Failed {
            kind: FailureKind::Lost,
            message: "the process that drove the agent ended".into(),
            retryable: true,
        };
        let events = self.run.folded(|transcript| {
            let mut events = closed_work(&transcript.outline, &lost);
            events.retain_mut(|event| is_over(transcript, resume, event));
            events
        });
        for (agent, event) in events {
            self.run.push(agent, event);
        }
        self.run.commit().await;
    }

    fn first_prompt(&self, remote: &dyn RemoteAgent) -> Result<Prompt, Outcome> {
        let (attached, adopted) = self.run.folded(|transcript| {
            (transcript.attached.contains_key(remote.name()), transcript.outline.epoch > 0)
        });
        // All calls of a sub-agent share its name, so its handle does not tell which call it
        // belongs to.
        if adopted && attached && self.agent.is_root() {
            return Ok(Prompt::Resume);
        }
        if adopted && self.was_at_work() {
            return Err(Outcome::Failed {
                kind: FailureKind::Lost,
                message:
                    "the process that prompted the remote agent ended before it learned how to \
                          find the run again"
                        .into(),
                retryable: true,
            });
        }
        Ok(Prompt::Request)
    }

    /// The inputs that were added to the run and not yet sent to the agent.
    fn waiting_inputs(&self, remote: &dyn RemoteAgent) -> Vec<InboxNo> {
        match remote.capabilities().inputs {
            RemoteInputs::FollowUp if self.agent.is_root() => {}
            RemoteInputs::FollowUp | RemoteInputs::Refused => return Vec::new(),
        }
        self.run.folded(|transcript| transcript.outline.inputs.iter().copied().collect())
    }

    fn remote_request(
        &self,
        remote: &dyn RemoteAgent,
        prompt: &Prompt,
        result_tool: Option<&ResultTool>,
    ) -> (RemoteRequest, RemoteToolCalls) {
        let root = self.agent.is_root();
        let mut asked = self.asked();
        let ours = self.def.tools.iter().map(|tool| tool.spec().clone());
        let client = asked.client_tools.iter().cloned();
        let result = result_tool.map(|tool| tool.spec.clone());
        let (tools, calls) = remote_tools(ours.chain(client).chain(result));
        let mut history =
            if root { Arc::clone(&self.run.history) } else { Arc::<[Message]>::from([]) };
        let handle =
            || self.run.folded(|transcript| transcript.attached.get(remote.name()).cloned());
        let mut session = self.run.sessions.get(remote.name()).filter(|_| root).cloned();
        let (mut attached, mut so_far) = (None, None);
        match prompt {
            Prompt::Request => {}
            Prompt::Resume => {
                attached = handle();
                so_far = Some(Arc::new(self.run.folded(Transcript::clone)));
            }
            Prompt::FollowUp { inputs } => {
                session = handle().or(session);
                history = self.messages().into();
                asked.input = self.run.folded(|transcript| {
                    let added = inputs.iter().filter_map(|input| transcript.inputs.get(input));
                    added.flatten().cloned().collect::<Vec<Content>>()
                });
            }
        }
        let request = RemoteRequest {
            run: self.run.id(),
            thread: self.run.started.thread,
            request: asked,
            instructions: Arc::clone(&self.def.instructions),
            history,
            tools,
            attached,
            so_far,
            session,
        };
        (request, calls)
    }

    /// The agent's prompt: the run's request, or the input of the call by another agent.
    fn asked(&self) -> RunRequest {
        let amended = self.run.amended();
        let request = &amended.request;
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

    /// Whether the agent has produced any event in this run.
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
    host: Arc<RunHost>,
    result_tool: Option<&'a ResultTool>,
    /// The inputs of this prompt, until the agent has started to work on it.
    inputs: Vec<InboxNo>,
}

impl Playing<'_> {
    async fn play(
        &mut self,
        remote: &dyn RemoteAgent,
        request: RemoteRequest,
        context: wellspring_core::Context,
    ) -> Result<Stop, ModelError> {
        let work = self.work;
        let host = Arc::clone(&self.host);
        let at_once = work.def.limits.tools_at_once;
        let mut running = FuturesUnordered::new();
        let starting = remote.run(request, context);
        let mut starting = std::pin::pin!(starting);
        let mut batches = loop {
            // The agent may call our tools from the start.
            tokio::select! {
                batches = &mut starting => break batches?,
                Some(call) = self.calls.next(), if running.len() < at_once => {
                    running.push(work.run_remote_call(call, &host, self.result_tool));
                }
                Some(()) = running.next() => {}
            }
        };
        let mut stop = None;
        loop {
            let batch = tokio::select! {
                batch = batches.next() => batch,
                Some(call) = self.calls.next(), if running.len() < at_once => {
                    running.push(work.run_remote_call(call, &host, self.result_tool));
                    continue;
                }
                Some(()) = running.next() => continue,
            };
            let Some(batch) = batch else { break };
            let mut batch = batch?;
            if let Some((why, _)) = batch.take_stop() {
                self.apply_inputs();
                stop = Some(why);
            }
            for (agent, event) in batch.into_events() {
                let (agent, event) = self
                    .placing
                    .place(agent, event)
                    .map_err(|what| ModelError::new(remote.name(), FailureKind::Protocol, what))?;
                // The agent may know its session before it has been prompted. If the process
                // ends in between, the input is not applied and will be sent again.
                if !matches!(event, Event::Attached { .. }) {
                    self.apply_inputs();
                }
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

    /// The agent has started to work on the inputs of its prompt.
    fn apply_inputs(&mut self) {
        for inbox in std::mem::take(&mut self.inputs) {
            self.work.run.push(self.work.agent, Event::InputApplied { inbox });
        }
    }
}

/// Whether an event that would close something is to be appended after a crash or a pause. It is
/// not if the agent asks for the same thing again under its key, or continues the part.
fn is_over(
    transcript: &Transcript,
    resume: RemoteResume,
    (agent, event): &mut (AgentNo, Event),
) -> bool {
    let outline = &transcript.outline;
    let is_ours = |call: PartId| outline.call(call).is_some_and(|open| open.tool.runs_on.is_ours());
    // A sub-agent that one of our calls started ends with that call.
    let mut at = *agent;
    while let Some(open) = outline.agents.get(&at).filter(|_| !at.is_root()) {
        if open.call.is_some_and(is_ours) {
            return true;
        }
        at = open.parent;
    }
    if let Event::QuestionAnswered(answered) = event {
        let asked = transcript.questions.get(&answered.question);
        return asked.is_none_or(|asked| asked.question.key.is_none());
    }
    if let Event::ToolFinished { call, .. } = event
        && is_ours(*call)
    {
        return call_key(transcript, *call).is_none();
    }
    if resume == RemoteResume::NewParts {
        return true;
    }
    if let Event::PartsVoided { parts, .. } = event {
        parts.retain(|part| is_ours(*part));
        return !parts.is_empty();
    }
    if let Event::PartFinished { part } = event {
        return match outline.part(*part).map(|part| part.shape) {
            Some(PartShape::Output(call, _)) => is_ours(call),
            Some(PartShape::Call | PartShape::Text(_) | PartShape::Thought | PartShape::Opaque)
            | None => is_ours(*part),
        };
    }
    false
}

/// The key under which a remote agent made a call of our tools, if it did.
pub(crate) fn call_key(transcript: &Transcript, call: PartId) -> Option<&str> {
    transcript.parts.get(&call)?.annotations.iter().find_map(|annotation| match annotation {
        Annotation::ProviderId(id) => Some(&**id),
        Annotation::Signature(_)
        | Annotation::Encrypted(_)
        | Annotation::Citation(_)
        | Annotation::Preamble
        | Annotation::Other(_) => None,
    })
}
