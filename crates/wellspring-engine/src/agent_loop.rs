//! The loop of one agent: turns, and their calls, until nothing is left to do.
//!
//! The next step is always read from the fold of the log, never from other state. So a run that
//! starts, one that resumes after a pause and one that was adopted after a crash run the same code.

mod attempt;
mod repetition;
mod retry;

use std::sync::Arc;

use tokio::time::Instant;
use tracing::Span;
use wellspring_core::{
    AgentNo, Answer, Command, Content, Event, FailureKind, Item, Message, Millis, Model, Outcome,
    PartKind, QuestionId, RETURN_RESULT, Stop, ToolCall, ToolOutcome, ToolSpec, Transcript,
    TurnItem,
};
use wellspring_log::NewCommand;

use self::repetition::repetition;
pub(crate) use self::retry::failed;

use crate::agent::{AgentDef, Backend};
use crate::calls::execute::Running;
use crate::calls::typed_result::ResultTool;
use crate::control::key::Key;
use crate::run::Run;
use crate::run::activity::Busy;
use crate::telemetry;
use crate::turn::TurnConfig;

/// One agent within a run.
#[derive(Clone)]
pub(crate) struct AgentWork {
    pub(crate) run: Arc<Run>,
    pub(crate) agent: AgentNo,
    pub(crate) def: Arc<AgentDef>,
    pub(crate) depth: usize,
    began: Instant,
    /// The agent's span, for telemetry.
    pub(crate) span: Span,
}

/// The next step, according to the fold.
enum Next {
    /// Calls of a finished turn have no result yet.
    Calls,
    /// The model has to be asked.
    Turn,
    /// The model ended without the requested typed result.
    Remind { turn: u32 },
    /// There is nothing left to do.
    End(Outcome),
}

impl AgentWork {
    /// An agent that works within `parent`: a call, or `None` for the root agent.
    pub(crate) fn new(
        run: Arc<Run>,
        agent: AgentNo,
        def: Arc<AgentDef>,
        depth: usize,
        parent: &Span,
    ) -> Self {
        let span = telemetry::agent(parent, &run, &def);
        if agent.is_root() {
            run.runtime.set_span_parent(&span, &run.started.request);
        }
        Self { run, agent, def, depth, began: Instant::now(), span }
    }

    /// Works until the agent is done, and returns its outcome. The caller closes what is still open.
    pub(crate) async fn work(&self) -> Outcome {
        let busy = self.run.activity.busy();
        let outcome = match &self.def.backend {
            Backend::Model(model) => self.work_with(&Arc::clone(model), busy).await,
            Backend::Remote(remote) => Box::pin(self.work_remote(&**remote, busy)).await,
        };
        // The cost of a run is counted for all its agents.
        let usage = self.agent.is_root().then(|| self.run.folded(|it| it.usage.clone()));
        telemetry::agent_ended(&self.span, &outcome, usage.as_ref());
        outcome
    }

    async fn work_with(&self, model: &Arc<dyn Model>, mut busy: Busy) -> Outcome {
        let result_tool = match self.result_tool().await {
            Ok(tool) => tool,
            Err(outcome) => return outcome,
        };
        let mut running = Running::default();
        loop {
            self.run.commit().await;
            self.run.look_into_inbox().await;
            if let Some(outcome) = self.run.cancelled() {
                return outcome;
            }
            match self.run.folded(|transcript| self.next(transcript, result_tool.as_ref())) {
                Next::Calls => {
                    // Rare work is boxed: most of the time a run waits for a model, and the size of
                    // its future is then the cost of the run.
                    busy = Box::pin(self.execute(result_tool.as_ref(), busy, running)).await;
                    running = Running::default();
                    continue;
                }
                Next::End(outcome) => return outcome,
                Next::Remind { turn } => {
                    Box::pin(self.remind(turn)).await;
                    continue;
                }
                Next::Turn => {}
            }
            if let Some(outcome) = self.edge() {
                return outcome;
            }
            self.apply_inputs();
            match self.turn(model, result_tool.as_ref()).await {
                Ok(early) => running = early,
                Err(outcome) => return outcome,
            }
        }
    }

    pub(crate) async fn result_tool(&self) -> Result<Option<ResultTool>, Outcome> {
        let schema = self.run.started.request.result_schema.as_ref();
        let Some(schema) = schema.filter(|_| self.agent.is_root()) else { return Ok(None) };
        ResultTool::new(schema).await.map(Some).map_err(|error| Outcome::Failed {
            kind: FailureKind::BadRequest,
            message: format!("the schema of the result cannot be used: {error}").into(),
            retryable: false,
        })
    }

    fn next(&self, transcript: &Transcript, result_tool: Option<&ResultTool>) -> Next {
        let outline = &transcript.outline;
        let Some(at) = outline.agents.get(&self.agent) else {
            return Next::End(Outcome::Completed { stop: Stop::EndTurn });
        };
        if at.in_turn || at.turn == 0 {
            return Next::Turn;
        }
        let mine = |call: &&wellspring_core::CallOutline| call.agent == self.agent;
        if outline.calls.values().filter(mine).any(|call| call.tool.runs_on.is_ours()) {
            return Next::Calls;
        }
        if result_tool.is_some() && outline.has_result {
            return Next::End(Outcome::Completed { stop: Stop::EndTurn });
        }
        if self.agent.is_root() && !outline.inputs.is_empty() {
            return Next::Turn;
        }
        let Some(turn) = last_turn(transcript, self.agent) else { return Next::Turn };
        let stop = turn.stop.clone().unwrap_or(Stop::EndTurn);
        let failed_results = failed_results(transcript);
        let repairs = self.def.limits.repairs;
        if result_tool.is_some() && failed_results > repairs {
            return Next::End(Outcome::Failed {
                kind: FailureKind::Protocol,
                message: format!("the agent gave no valid result in {failed_results} tries").into(),
                retryable: true,
            });
        }
        if has_calls(transcript, turn) || stop == Stop::Paused {
            return Next::Turn;
        }
        let reminder = reminder();
        let reminders = transcript.inputs.values().filter(|input| **input == reminder).count();
        let reminders = u32::try_from(reminders).unwrap_or(u32::MAX);
        if result_tool.is_some() && reminders < repairs && stop == Stop::EndTurn {
            return Next::Remind { turn: turn.turn };
        }
        Next::End(Outcome::Completed { stop })
    }

    /// The outcome if a cancellation or a limit ends the run between two turns.
    fn edge(&self) -> Option<Outcome> {
        if let Some(outcome) = self.run.cancelled_at_edge() {
            return Some(outcome);
        }
        self.run.folded(|transcript| {
            let at = transcript.outline.agents.get(&self.agent)?;
            // The root agent's limits apply to the whole run, a sub-agent's to itself.
            let (usage, worked) = if self.agent.is_root() {
                (&transcript.usage, self.run.worked())
            } else {
                (&transcript.agents.get(&self.agent)?.usage, self.began.elapsed())
            };
            let stop = self.def.limits.reached(at, usage, worked);
            let over = stop.map(|stop| Outcome::Completed { stop });
            over.or_else(|| repetition(transcript, self.agent))
        })
    }

    fn apply_inputs(&self) {
        if self.agent.is_root() {
            let inputs = self.run.folded(|transcript| transcript.outline.inputs.clone());
            for inbox in inputs {
                self.run.push(self.agent, Event::InputApplied { inbox });
            }
        }
    }

    /// Reminds the agent of its typed result. The reminder goes through the inbox, so that it
    /// survives a crash.
    async fn remind(&self, turn: u32) {
        let command = Command::AddInput { content: reminder(), message: None };
        let key = Key::Reminder { turn }.encode();
        let reminder = vec![NewCommand { key, command, audit: None }];
        if let Err(error) = self.run.runtime.log().send(self.run.id(), reminder).await {
            tracing::warn!(run = %self.run.id(), %error, "the reminder could not be sent");
            self.run.cancel_now(Outcome::Failed {
                kind: FailureKind::Internal,
                message: format!("the agent could not be asked for its result: {error}").into(),
                retryable: true,
            });
        }
        self.run.take_inbox().await;
    }

    fn turn_config(&self, model: &Arc<dyn Model>, result_tool: Option<&ResultTool>) -> TurnConfig {
        let amended = self.run.amended();
        let request = &amended.request;
        let mut tools: Vec<ToolSpec> =
            self.def.tools.iter().map(|tool| tool.spec().clone()).collect();
        if self.agent.is_root() {
            tools.extend(request.client_tools.iter().cloned());
        }
        tools.extend(result_tool.map(|tool| tool.spec.clone()));
        let model_name = self.def.model_named(request).filter(|_| self.agent.is_root());
        TurnConfig {
            model: Arc::clone(model),
            model_name,
            instructions: self.instructions(),
            messages: self.messages().into(),
            tools: tools.into(),
            settings: self.def.settings.clone(),
            streaming: self.def.streams(request),
            timeouts: self.def.timeouts.clone(),
            signal: self.run.signal.clone(),
        }
    }

    /// The conversation before this run, and the agent's part of this one.
    pub(crate) fn messages(&self) -> Vec<Message> {
        let mut messages =
            if self.agent.is_root() { self.run.history.to_vec() } else { Vec::new() };
        messages.extend(self.run.folded(|transcript| transcript.messages(self.agent)));
        messages
    }

    fn instructions(&self) -> Arc<str> {
        let amended = self.run.amended();
        let request = &amended.request;
        if !self.agent.is_root() {
            return Arc::clone(&self.def.instructions);
        }
        // Set by the client or the agent.
        let state = self.run.folded(|transcript| transcript.state.clone());
        if request.context.is_empty() && state.is_none() && request.cwd.is_none() {
            return Arc::clone(&self.def.instructions);
        }
        let mut text = self.def.instructions.to_string();
        if let Some(cwd) = &request.cwd {
            text.push_str(&format!("\n\nThe working directory is {cwd}"));
        }
        for note in &request.context {
            text.push_str(&format!("\n\n{}:\n{}", note.description, note.value));
        }
        if let Some(state) = state {
            text.push_str(&format!("\n\nThe state shared with the user's screen:\n{state}"));
        }
        text.into()
    }

    /// Waits for an answer until it expires or the run ends.
    pub(crate) async fn wait_for_answer(
        &self,
        question: QuestionId,
        expires_at: Option<Millis>,
    ) -> Answer {
        tokio::select! {
            biased;
            answer = self.run.answer(question) => answer,
            () = self.run.signal.cancelled() => Answer::Withdrawn,
            () = self.run.until(expires_at) => {
                self.run.answer_myself(self.agent, question, Answer::Expired);
                self.run.answer(question).await
            }
        }
    }
}

fn turns(transcript: &Transcript, agent: AgentNo) -> impl Iterator<Item = &TurnItem> {
    let items = transcript.agents.get(&agent).map_or(&[][..], |agent| &agent.items);
    items.iter().rev().filter_map(|item| match item {
        Item::Turn(turn) => Some(&**turn),
        Item::Part(_) | Item::Input(_) => None,
    })
}

/// The reminder for an agent that forgot its result.
fn reminder() -> Vec<Content> {
    vec![Content::text(format!("Now call {RETURN_RESULT} with the final result."))]
}

fn last_turn(transcript: &Transcript, agent: AgentNo) -> Option<&TurnItem> {
    turns(transcript, agent).next()
}

fn calls<'a>(
    transcript: &'a Transcript,
    turn: &'a TurnItem,
) -> impl Iterator<Item = (&'a ToolCall, &'a wellspring_core::Part)> {
    turn.parts.iter().filter_map(|id| {
        let part = &**transcript.parts.get(id)?;
        let PartKind::ToolCall(call) = &part.kind else { return None };
        call.runs_on.is_ours().then_some((&**call, part))
    })
}

fn has_calls(transcript: &Transcript, turn: &TurnItem) -> bool {
    calls(transcript, turn).next().is_some()
}

fn failed_results(transcript: &Transcript) -> u32 {
    let failed = turns(transcript, AgentNo::ROOT).flat_map(|turn| calls(transcript, turn)).filter(
        |(call, part)| {
            let finished = part.call.as_ref().and_then(|call| call.finished.as_ref());
            &*call.name == RETURN_RESULT
                && finished.is_some_and(|(outcome, _)| *outcome == ToolOutcome::Error)
        },
    );
    u32::try_from(failed.count()).unwrap_or(u32::MAX)
}
