//! The loop of one agent: turns, and the calls they ask for, until there is nothing left to do.
//!
//! The next step is always read from the fold of the log, never from other state. So a run that
//! starts, one that resumes after a pause and one that was adopted after a crash run the same code.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tracing::Span;
use wellspring_core::{
    AgentNo, Answer, Budget, Command, Content, Event, FailureKind, Item, Message, Millis,
    ModelError, Outcome, Outline, PartId, PartKind, QuestionId, RETURN_RESULT, RunId, RunsOn, Stop,
    ToolCall, ToolOutcome, ToolSpec, Transcript, TurnItem, TurnStarted, VoidReason,
};

use wellspring_log::NewCommand;

use crate::agent::{AgentDef, Backend};
use crate::calls::Running;
use crate::calls::result::ResultTool;
use crate::control::key::Key;
use crate::hooks::TurnReport;
use crate::limits::REPETITIONS_MAX;
use crate::run::Run;
use crate::run::activity::Busy;
use crate::telemetry;
use crate::turn::{Turn, TurnConfig};

/// The longest wait between two attempts when the provider does not say.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// The longest wait that a provider may ask for before the run rather fails.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(5 * 60);

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

/// What the fold says must happen next.
enum Next {
    /// Calls of a finished turn have no result yet.
    Calls,
    /// The model has to be asked.
    Turn,
    /// The model ended without the typed result that was asked for.
    Remind { turn: u32 },
    /// There is nothing left to do.
    End(Outcome),
}

impl AgentWork {
    /// An agent that works within `parent`: a call, or nothing.
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

    /// Works until the agent is done, and says how that went. What is still open then is
    /// for the caller to close.
    pub(crate) async fn work(&self) -> Outcome {
        let busy = self.run.activity.busy();
        let outcome = match &self.def.backend {
            Backend::Model(model) => self.work_with(&Arc::clone(model), busy).await,
            Backend::Remote(remote) => Box::pin(self.work_remote(&**remote, busy)).await,
        };
        // What a run costs is counted for all its agents.
        let usage = self.agent.is_root().then(|| self.run.folded(|it| it.usage.clone()));
        telemetry::agent_ended(&self.span, &outcome, usage.as_ref());
        outcome
    }

    async fn work_with(&self, model: &Arc<dyn wellspring_core::Model>, mut busy: Busy) -> Outcome {
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
                    // Boxed, as all that a run seldom does: most of its life it waits for a
                    // model, and what it holds meanwhile is what a waiting run costs.
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

    /// What ends the run at a turn's edge although there is more to do.
    fn edge(&self) -> Option<Outcome> {
        if let Some(outcome) = self.run.cancelled_at_edge() {
            return Some(outcome);
        }
        let limits = &self.def.limits;
        self.run.folded(|transcript| {
            let at = transcript.outline.agents.get(&self.agent)?;
            // What the run may spend, the root agent answers for; a sub-agent for itself.
            let (usage, worked) = if self.agent.is_root() {
                (&transcript.usage, self.run.worked())
            } else {
                (&transcript.agents.get(&self.agent)?.usage, self.began.elapsed())
            };
            let spent = |budget| Some(Outcome::Completed { stop: Stop::Budget(budget) });
            if at.turn >= limits.turns && !at.in_turn {
                Some(Outcome::Completed { stop: Stop::TurnLimit })
            } else if limits.tokens.is_some_and(|max| usage.input + usage.output >= max) {
                spent(Budget::Tokens)
            } else if limits.cost.is_some_and(|max| {
                usage.cost.as_ref().is_some_and(|cost| cost.amount >= max)
            }) {
                spent(Budget::Cost)
            } else if limits.time.is_some_and(|max| worked >= max) {
                spent(Budget::Time)
            } else if repeats_itself(transcript, self.agent) {
                Some(Outcome::Failed {
                    kind: FailureKind::Repetition,
                    message: format!(
                        "the agent made the same calls with the same results {REPETITIONS_MAX} times in a row"
                    )
                    .into(),
                    retryable: false,
                })
            } else {
                None
            }
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

    /// Asks for the typed result that the agent forgot. The request goes through the inbox like
    /// every other command, so that it survives a crash.
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

    /// One turn, with as many attempts as it takes. Gives back the calls that run already.
    async fn turn(
        &self,
        first: &Arc<dyn wellspring_core::Model>,
        result_tool: Option<&ResultTool>,
    ) -> Result<Running<'_>, Outcome> {
        let (turn_no, mut attempt) = self.run.folded(|transcript| {
            let at = transcript.outline.agents.get(&self.agent);
            at.map_or(
                (1, 1),
                |at| if at.in_turn { (at.turn, at.attempt + 1) } else { (at.turn + 1, 1) },
            )
        });
        let mut announced = self.agent.is_root() && self.run.take_announced_turn();
        if announced {
            attempt -= 1;
        } else if attempt > 1 {
            self.void_attempt();
        }
        let mut model = Arc::clone(first);
        let mut config = self.turn_config(&model, result_tool);
        let mut span = telemetry::chat(&self.span, &self.run, &*model, &config);
        // Attempts that were made because another model had failed. Limits count only the other
        // attempts.
        let mut fallbacks = 0;
        loop {
            if !std::mem::take(&mut announced) {
                self.run.push(
                    self.agent,
                    Event::TurnStarted(Box::new(TurnStarted {
                        turn: turn_no,
                        attempt,
                        model: config.model_name.clone().unwrap_or_else(|| model.name().into()),
                        streaming: config.streaming,
                    })),
                );
                self.run.commit().await;
            }
            let mut turn = Turn::new(config);
            let mut running = Running::default();
            let error = match self.attempt(&mut turn, &mut running, result_tool, &span).await {
                Ok(last) => {
                    telemetry::chat_ended(&span, &turn, attempt);
                    return match self.finish_turn(last, &turn, turn_no, attempt, result_tool) {
                        Some(end) => {
                            self.run.commit().await;
                            Err(end)
                        }
                        None => Ok(running),
                    };
                }
                Err(error) => error,
            };
            // Closes the connection, and ends the idempotent tools that had started early.
            drop((turn, running));
            if let Some(outcome) = self.run.cancelled() {
                return Err(outcome);
            }
            if let Some(next) = model.fallback() {
                telemetry::chat_failed(&span, &error, attempt);
                let (run, next_name) = (self.run.id(), next.name());
                tracing::warn!(%run, turn = turn_no, attempt, %error, next_name, "asking the fallback model");
                self.run.commit().await;
                self.void_attempt();
                model = next;
                fallbacks += 1;
                attempt += 1;
                self.run.fallbacks.fetch_add(1, Ordering::Relaxed);
                config = self.turn_config(&model, result_tool);
                // The request named a model of the first one's provider.
                config.model_name = None;
                span = telemetry::chat(&self.span, &self.run, &*model, &config);
                continue;
            }
            let tries = attempt.saturating_sub(fallbacks);
            let wait = error.wait().unwrap_or_else(|| backoff(self.run.id(), tries));
            if !error.is_retryable() || tries >= self.def.limits.attempts || wait > RETRY_AFTER_MAX
            {
                telemetry::chat_failed(&span, &error, attempt);
                return Err(failed(&error));
            }
            let fallen_back = self.run.fallbacks.load(Ordering::Relaxed);
            let retries = self.run.folded(retries).saturating_sub(fallen_back);
            if retries >= self.def.limits.retries {
                telemetry::chat_failed(&span, &error, attempt);
                return Err(spent(failed(&error), retries));
            }
            tracing::warn!(run = %self.run.id(), turn = turn_no, attempt, %error, "the turn is tried again");
            self.run.commit().await;
            self.void_attempt();
            self.run.commit().await;
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.run.signal.cancelled() => {}
            }
            if let Some(outcome) = self.run.cancelled() {
                return Err(outcome);
            }
            attempt += 1;
            if fallbacks > 0 {
                telemetry::chat_failed(&span, &error, attempt - 1);
                model = Arc::clone(first);
                config = self.turn_config(&model, result_tool);
                span = telemetry::chat(&self.span, &self.run, &*model, &config);
            } else {
                config = self.turn_config(&model, result_tool);
            }
        }
    }

    /// Plays one attempt into the log, and starts idempotent tools as soon as they can. What
    /// the model said last is given back, to be appended together with the turn's end.
    async fn attempt<'a>(
        &'a self,
        turn: &mut Turn,
        running: &mut Running<'a>,
        result_tool: Option<&ResultTool>,
        span: &Span,
    ) -> Result<Vec<Event>, ModelError> {
        let mut parts: Vec<PartId> = Vec::new();
        let mut calls_seen = 0;
        let mut asked_at = Some(Instant::now());
        let mut last = Vec::new();
        loop {
            let next = tokio::select! {
                biased;
                next = turn.next() => next,
                Some(_) = running.next(), if !running.is_empty() => continue,
            };
            let Some(mut events) = next.transpose()? else { return Ok(last) };
            if let Some(asked_at) = asked_at.take() {
                let time = asked_at.elapsed().as_secs_f64();
                span.record("gen_ai.response.time_to_first_chunk", time);
            }
            for event in &mut events {
                self.place(event, &mut parts);
                if let Event::PartDelta { .. } = event {
                    for hooks in self.run.runtime.hooks(&self.def) {
                        hooks.on_chunk(self.run.id(), event);
                    }
                }
            }
            // A model that has stopped ends immediately, and none of its output starts a tool
            // before the turn has ended.
            if turn.stop().is_some() {
                last.append(&mut events);
                continue;
            }
            self.run.push_all(self.agent, events);
            for (at, call) in turn.tool_calls().iter().enumerate().skip(calls_seen) {
                let Some(part) = parts.get(call.part.id().0 as usize) else { continue };
                let earlier = &turn.tool_calls()[..at];
                self.start_early(*part, call, earlier, result_tool, running).await;
            }
            calls_seen = turn.tool_calls().len();
            self.run.room().await;
        }
    }

    /// Gives a model's event its place in the run: parts get their ids, calls what is known
    /// of their tools.
    fn place(&self, event: &mut Event, parts: &mut Vec<PartId>) {
        if let Event::PartStarted { part, kind } = event {
            *part = self.run.mint_part();
            parts.push(*part);
            self.describe(kind);
            return;
        }
        event.rename_parts(|part| parts.get(part.0 as usize).copied().unwrap_or(part));
    }

    pub(crate) fn describe(&self, kind: &mut PartKind) {
        let PartKind::ToolCall(call) = kind else { return };
        let spec = self.def.tool(&call.name).map(|tool| tool.spec());
        let amended = self.run.amended();
        let client = amended.request.client_tools.iter().find(|tool| tool.name == call.name);
        if let Some(spec) = spec.or(client).filter(|_| call.runs_on == RunsOn::Here) {
            let ToolCall { title, kind, runs_on, .. } = &mut **call;
            title.get_or_insert_with(|| spec.title.clone().unwrap_or_else(|| spec.name.clone()));
            *kind = spec.kind;
            *runs_on = if client.is_some() { RunsOn::Client } else { RunsOn::Here };
        }
    }

    /// Appends the end of a turn; and, when nothing can be left to do after it, the end of the
    /// run in the same frame. That is how most runs end, and it saves them a commit.
    fn finish_turn(
        &self,
        mut last: Vec<Event>,
        turn: &Turn,
        number: u32,
        attempts: u32,
        result_tool: Option<&ResultTool>,
    ) -> Option<Outcome> {
        let (stop, usage) = turn.outcome();
        let calls = turn.tool_calls().len();
        for hooks in self.run.runtime.hooks(&self.def) {
            let (stop, usage) = (stop.clone(), usage.clone());
            let report = TurnReport { turn: number, attempts, stop, usage, calls };
            hooks.on_turn(self.run.id(), &report);
        }
        let may_be_last = self.agent.is_root()
            && calls == 0
            && result_tool.is_none()
            && stop != Stop::Paused
            && self.run.cancelled().is_none()
            && !self.run.has_news();
        let outcome = Outcome::Completed { stop: stop.clone() };
        last.push(Event::TurnFinished { stop, usage: usage.map(Box::new) });
        let mut is_last = false;
        self.run.owner.push_with(|transcript, mut waiting| {
            is_last = may_be_last
                && nothing_is_open(&transcript.outline)
                && !last_turn(transcript, self.agent)
                    .is_some_and(|turn| has_calls(transcript, turn))
                && Iterator::all(&mut waiting, only_speaks)
                && last.iter().all(only_speaks);
            if is_last {
                last.push(Event::RunFinished { outcome: Box::new(outcome.clone()) });
            }
            last.into_iter().map(|event| (self.agent, event)).collect()
        });
        is_last.then_some(outcome)
    }

    fn void_attempt(&self) {
        let parts: Vec<PartId> = self.run.folded(|transcript| {
            let mine = transcript.outline.parts.iter().filter(|(_, part)| part.agent == self.agent);
            mine.map(|(part, _)| *part).collect()
        });
        if !parts.is_empty() {
            self.run.push(self.agent, Event::PartsVoided { parts, why: VoidReason::Restarted });
        }
    }

    fn turn_config(
        &self,
        model: &Arc<dyn wellspring_core::Model>,
        result_tool: Option<&ResultTool>,
    ) -> TurnConfig {
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
        // The client or the agent may have set it.
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

/// Retries back off exponentially from 0.5 s, with up to 25 % jitter. The jitter comes from the
/// run's id, so that runs that failed together do not retry together, and a run is still
/// reproducible.
fn backoff(run: RunId, attempt: u32) -> Duration {
    let base = Duration::from_millis(500 << attempt.saturating_sub(1).min(8)).min(BACKOFF_MAX);
    // A prime, so that no attempt has less of it than another.
    let jitter = run.uuid().as_u128().wrapping_mul(u128::from(attempt) + 1) % 101;
    base.mul_f64(1.0 - f64::from(u8::try_from(jitter).unwrap_or(0)) / 404.0)
}

pub(crate) fn failed(error: &ModelError) -> Outcome {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        message.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    Outcome::Failed { kind: error.kind(), message: message.into(), retryable: error.is_retryable() }
}

/// Attempts so far beyond the first ones, over all turns and agents.
fn retries(transcript: &Transcript) -> u32 {
    let turns = transcript.agents.keys().flat_map(|agent| turns(transcript, *agent));
    turns.map(|turn| turn.attempt.saturating_sub(1)).fold(0, u32::saturating_add)
}

/// The same, because trying again has its limit.
fn spent(outcome: Outcome, retries: u32) -> Outcome {
    match outcome {
        Outcome::Failed { kind, message, retryable } => {
            let message = format!("{message}; the run has tried again {retries} times, its limit");
            Outcome::Failed { kind, message: message.into(), retryable }
        }
        other @ (Outcome::Completed { .. } | Outcome::Cancelled { .. }) => other,
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

/// Whether only the root agent's model has anything left to do.
fn nothing_is_open(outline: &Outline) -> bool {
    outline.calls.is_empty()
        && outline.questions.is_empty()
        && outline.inputs.is_empty()
        && outline.agents.len() == 1
}

/// Whether an event is model output that requires no action. An event that is not listed only costs
/// the run a commit.
fn only_speaks(event: &Event) -> bool {
    if let Event::PartStarted { kind, .. } = event {
        return !matches!(kind, PartKind::ToolCall(_));
    }
    matches!(
        event,
        Event::PartDelta { .. }
            | Event::PartAnnotated { .. }
            | Event::PartFinished { .. }
            | Event::SourceCited(_)
            | Event::UsageReported(_)
            | Event::TurnFinished { .. }
    )
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

/// Whether the agent's last turns all made the same calls and got the same results.
fn repeats_itself(transcript: &Transcript, agent: AgentNo) -> bool {
    let mut said = turns(transcript, agent).map(|turn| {
        calls(transcript, turn)
            .map(|(call, part)| {
                let result = part.call.as_ref().and_then(|call| call.finished.as_ref());
                (&call.name, &part.text, result.map(|(_, result)| &result.output))
            })
            .collect::<Vec<_>>()
    });
    let Some(last) = said.next().filter(|calls| !calls.is_empty()) else { return false };
    let same = said.take(REPETITIONS_MAX - 1).filter(|earlier| *earlier == last).count();
    same == REPETITIONS_MAX - 1
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn waits_double_to_a_maximum_and_differ_from_run_to_run() {
        let wanted = [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000];
        for (attempt, most) in (1..).zip(wanted.map(Duration::from_millis)) {
            let waits: std::collections::BTreeSet<Duration> =
                (0..200).map(|run| backoff(RunId::new(Uuid::from_u128(run)), attempt)).collect();
            assert!(waits.iter().all(|wait| *wait <= most && *wait > most.mul_f64(0.75)));
            assert!(waits.len() > 90, "{attempt}: {waits:?}");
        }
        let run = RunId::new(Uuid::from_u128(1));
        assert!(backoff(run, u32::MAX) <= BACKOFF_MAX);
    }
}
