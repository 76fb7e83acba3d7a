//! The calls of a turn: whether and when they run, and their results.

pub(crate) mod answers;
pub(crate) mod approvals;
pub(crate) mod policy;
pub(crate) mod queue;
pub(crate) mod typed_result;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{FuturesUnordered, StreamExt as _};
use serde_json::Value;
use tokio::time::{Instant, sleep_until};
use wellspring_core::{
    Answer, Approval, CallOutline, CallState, Context, ContextFacts, Event, FailureKind, Form,
    Outcome, PartId, Question, RETURN_RESULT, RunsOn, Tool, ToolError, ToolMode, ToolOutcome,
    ToolResult,
};

use crate::agent::AgentDef;
use crate::agent_loop::AgentWork;
use crate::calls::queue::{Queue, ToolOrder};
use crate::calls::typed_result::ResultTool;
use crate::host::RunHost;
use crate::limits::TOOL_BYTES_MAX;
use crate::run::activity::Busy;
use crate::runtime::close::{close_agent, finished};
use crate::runtime::drive::client_call_expiry;
use crate::schema::Schema;
use crate::telemetry;
use crate::turn::{TurnCall, parse_arguments};

/// Maximum characters of arguments that a question shows; the call has all of them.
const PROMPT_ARGUMENTS_MAX: usize = 500;

/// The number of places at the front of the queue that are recorded again when they change. A call
/// farther back gets one record of its place. Without a limit, a queue of n calls would need n²
/// records.
const PLACES_TOLD_AGAIN: usize = 16;

/// Calls whose tools are running.
#[derive(Default)]
pub(crate) struct Running<'a> {
    futures: FuturesUnordered<BoxFuture<'a, Busy>>,
    /// Every call that was ever added, also if it has ended.
    calls: BTreeSet<PartId>,
}

impl<'a> Running<'a> {
    fn push(&mut self, call: PartId, future: impl Future<Output = Busy> + Send + 'a) {
        self.calls.insert(call);
        self.futures.push(future.boxed());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.futures.is_empty()
    }

    /// Waits for one to end.
    pub(crate) async fn next(&mut self) -> Option<Busy> {
        self.futures.next().await
    }
}

/// A call that may run.
pub(crate) struct ReadyCall {
    call: PartId,
    tool: Arc<dyn Tool>,
    arguments: Value,
    /// An approver changed the arguments.
    edited: bool,
    mode: ToolMode,
    /// The context of the remote agent that made the call: it gets progress, and can cancel.
    caller: Option<Context>,
}

/// Which calls get a record of their place in the queue.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Tell {
    /// Newly queued calls.
    New,
    /// Also calls whose place has changed.
    Changed,
}

/// Whether a call may run.
pub(crate) enum Verdict {
    Run(ReadyCall),
    /// It has its result without running.
    Result(ToolOutcome, ToolResult),
    /// The call was handled elsewhere, or the run is ending.
    Nothing,
}

impl ReadyCall {
    /// Reports the call's progress to the remote agent that made it.
    pub(crate) fn heard_by(self, caller: Context) -> Self {
        Self { caller: Some(caller), ..self }
    }
}

impl AgentWork {
    /// Brings every call without a result to its end: asks for approval, runs our tools, and waits
    /// for the client's. Returns when all calls have results, or, after a cancellation, when the
    /// running tools have ended.
    pub(crate) async fn execute<'a>(
        &'a self,
        result_tool: Option<&'a ResultTool>,
        busy: Busy,
        mut running: Running<'a>,
    ) -> Busy {
        let mut held = Some(busy);
        let mut queue: Queue<ReadyCall> =
            Queue::new(self.def.tool_order, self.def.limits.tools_at_once);
        let mut told = BTreeMap::new();
        (0..running.futures.len()).for_each(|_| queue.note_running());
        let pending: Vec<(PartId, CallOutline)> = self.run.folded(|transcript| {
            let mine = transcript.outline.calls.iter().filter(|(call, open)| {
                open.agent == self.agent
                    && open.tool.runs_on.is_ours()
                    && !running.calls.contains(call)
            });
            mine.map(|(call, open)| (*call, open.clone())).collect()
        });
        for (call, open) in &pending {
            if self.is_sequential(open) {
                queue.expect(u64::from(call.0));
            }
        }
        let mut gates: FuturesUnordered<_> = pending
            .into_iter()
            .map(|(call, open)| async move {
                let busy = self.run.activity.busy();
                let (verdict, busy) = self.gate(call, &open, result_tool, busy).await;
                (call, verdict, busy)
            })
            .collect();
        loop {
            // All calls that are decided by now are queued before anything starts. Otherwise a call
            // could overtake another of higher priority.
            let mut decided: Vec<_> =
                std::iter::from_fn(|| gates.next().now_or_never().flatten()).collect();
            decided.sort_by_key(|(call, ..)| *call);
            for (call, verdict, busy) in decided {
                self.settle(call, verdict, &mut queue);
                held = Some(busy);
            }
            if self.run.signal.is_cancelled() {
                queue.clear();
            }
            self.tell_places(&queue, &mut told, Tell::New);
            while let Some(ready) = queue.start() {
                let busy = self.run.activity.busy();
                running.push(ready.call, self.run_call(ready, busy));
            }
            self.tell_places(&queue, &mut told, Tell::Changed);
            if gates.is_empty() && running.is_empty() {
                return held.unwrap_or_else(|| self.run.activity.busy());
            }
            // From here on only running tools and open decisions keep the run busy.
            drop(held.take());
            tokio::select! {
                Some((call, verdict, busy)) = gates.next(), if !gates.is_empty() => {
                    self.settle(call, verdict, &mut queue);
                    held = Some(busy);
                }
                Some(busy) = running.next(), if !running.is_empty() => {
                    queue.finish();
                    held = Some(busy);
                }
            }
        }
    }

    fn settle(&self, call: PartId, verdict: Verdict, queue: &mut Queue<ReadyCall>) {
        match verdict {
            Verdict::Run(ready) => {
                let priority = self.priority_of(&*ready.tool, &ready.arguments);
                queue.push(u64::from(call.0), ready.mode, priority, ready);
            }
            Verdict::Result(outcome, result) => {
                queue.forget(u64::from(call.0));
                self.run.push(self.agent, finished(call, outcome, result));
            }
            Verdict::Nothing => queue.forget(u64::from(call.0)),
        }
    }

    /// Records the places of waiting calls.
    fn tell_places(
        &self,
        queue: &Queue<ReadyCall>,
        told: &mut BTreeMap<PartId, usize>,
        tell: Tell,
    ) {
        let events: Vec<_> = self.run.folded(|transcript| {
            let waits = |call: PartId| {
                let open = transcript.outline.call(call);
                open.is_some_and(|open| {
                    matches!(open.state, CallState::Complete | CallState::Queued)
                })
            };
            let mut places: Vec<_> = queue.places().map(|(it, place)| (it.call, place)).collect();
            places.sort_unstable();
            let mut events = Vec::new();
            for (call, place) in places.into_iter().filter(|(call, _)| waits(*call)) {
                let is_due = match told.get(&call) {
                    None => true,
                    Some(before) => {
                        tell == Tell::Changed && *before != place && place < PLACES_TOLD_AGAIN
                    }
                };
                if is_due {
                    told.insert(call, place);
                    let place = u32::try_from(place).unwrap_or(u32::MAX);
                    events.push((self.agent, Event::ToolQueued { call, place }));
                }
            }
            events
        });
        if !events.is_empty() {
            self.run.owner.push_all(events);
        }
    }

    /// Whether a call will run alone, if it runs.
    fn is_sequential(&self, open: &CallOutline) -> bool {
        let tool = self.def.tool(&open.tool.name).filter(|_| open.tool.runs_on == RunsOn::Here);
        tool.is_some_and(|tool| {
            self.mode_of(&**tool, &parse_arguments(&open.arguments)) == ToolMode::Sequential
        })
    }

    /// Starts a call before its turn has ended, if that is safe: the tool is idempotent and may run
    /// without approval.
    pub(crate) async fn start_early<'a>(
        &'a self,
        call: PartId,
        asked: &TurnCall,
        earlier: &[TurnCall],
        result_tool: Option<&ResultTool>,
        running: &mut Running<'a>,
    ) {
        let runs_alone = |call: &TurnCall| {
            let tool = self.def.tool(&call.name);
            tool.is_some_and(|tool| self.mode_of(&**tool, &call.arguments) == ToolMode::Sequential)
        };
        if self.def.tool_order == ToolOrder::AsCalled && earlier.iter().any(runs_alone) {
            return;
        }
        if result_tool.is_some() && &*asked.name == RETURN_RESULT
            || running.futures.len() >= self.def.limits.tools_at_once
        {
            return;
        }
        let Some(tool) = self.def.tool(&asked.name) else { return };
        let spec = tool.spec();
        let harmless = spec.idempotent
            && self.mode_of(&**tool, &asked.arguments) == ToolMode::Parallel
            && spec.runs_on == RunsOn::Here
            && self.def.policy.decide(spec, &asked.arguments) == Approval::Allow
            && check_arguments(&**tool, &asked.arguments).await.is_ok();
        if harmless {
            let ready = ReadyCall {
                call,
                tool: Arc::clone(tool),
                arguments: asked.arguments.clone(),
                edited: false,
                mode: ToolMode::Parallel,
                caller: None,
            };
            running.push(call, self.run_call(ready, self.run.activity.busy()));
        }
    }

    fn mode_of(&self, tool: &dyn Tool, arguments: &Value) -> ToolMode {
        match self.def.queue {
            ToolMode::Parallel => {
                let rule = self.def.queue_rules.get(&tool.spec().name);
                rule.and_then(|rule| rule.mode).unwrap_or_else(|| tool.mode(arguments))
            }
            ToolMode::Sequential => ToolMode::Sequential,
        }
    }

    fn priority_of(&self, tool: &dyn Tool, arguments: &Value) -> i32 {
        let rule = self.def.queue_rules.get(&tool.spec().name);
        rule.and_then(|rule| rule.priority).unwrap_or_else(|| tool.priority(arguments))
    }

    /// Decides whether a call may run. Waiting for people does not count as being busy.
    pub(crate) async fn gate(
        &self,
        call: PartId,
        open: &CallOutline,
        result_tool: Option<&ResultTool>,
        busy: Busy,
    ) -> (Verdict, Busy) {
        let arguments = parse_arguments(&open.arguments);
        if let Some(result_tool) = result_tool.filter(|_| &*open.tool.name == RETURN_RESULT) {
            return (self.take_result(result_tool, arguments).await, busy);
        }
        if open.tool.runs_on == RunsOn::Client {
            drop(busy);
            let expires_at =
                self.run.folded(|transcript| client_call_expiry(transcript, call, &self.run.def));
            let verdict = tokio::select! {
                biased;
                () = self.run.client_result(call) => Verdict::Nothing,
                () = self.run.signal.cancelled() => Verdict::Nothing,
                () = self.run.until(expires_at) => self.expire_client_call(call),
            };
            return (verdict, self.run.activity.busy());
        }
        let Some(tool) = self.def.tool(&open.tool.name) else {
            let names: Vec<_> = self.def.tools.iter().map(|tool| &*tool.spec().name).collect();
            let message =
                format!("there is no tool {:?}; there are: {}", open.tool.name, names.join(", "));
            return (error(message), busy);
        };
        let mut ready = ReadyCall {
            call,
            tool: Arc::clone(tool),
            mode: self.mode_of(&**tool, &arguments),
            arguments,
            edited: false,
            caller: None,
        };
        if let Err(message) = check_arguments(&**tool, &ready.arguments).await {
            return (error(message), busy);
        }
        if matches!(open.state, CallState::Started(_)) {
            // Its process died. The call was allowed before, so it need not be approved again.
            let verdict = if is_repeatable(&**tool) {
                Verdict::Run(ready)
            } else {
                let message = "interrupted: the process that ran the tool ended before the tool did; \
                               it may have taken effect, check before calling it again";
                Verdict::Result(ToolOutcome::Interrupted, ToolResult::new(message))
            };
            return (verdict, busy);
        }
        let mut decision = self.def.policy.decide(tool.spec(), &ready.arguments);
        if decision == Approval::Ask
            && self
                .run
                .has_standing_approval(&self.def.name, &tool.spec().name, &ready.arguments)
                .await
        {
            decision = Approval::Allow;
        }
        match decision {
            Approval::Allow => (Verdict::Run(ready), busy),
            Approval::Deny => (denied("the policy does not allow this call"), busy),
            Approval::Ask => {
                let (answer, busy) = self.ask_approval(&ready, busy).await;
                let verdict = match answer {
                    Answer::Approve { arguments: None, .. } => Verdict::Run(ready),
                    Answer::Approve { arguments: Some(edited), .. } => {
                        match check_edited(&self.def, &tool.spec().name, &edited).await {
                            Ok(()) => {
                                ready.arguments = edited;
                                ready.edited = true;
                                Verdict::Run(ready)
                            }
                            Err(message) => {
                                denied(&format!("approved with other arguments, but {message}"))
                            }
                        }
                    }
                    Answer::Deny { reason: Some(reason), .. } => {
                        denied(&format!("denied: {reason}"))
                    }
                    Answer::Deny { reason: None, .. } => denied("denied by the user"),
                    Answer::Expired => denied("the call was not approved in time"),
                    Answer::Withdrawn => Verdict::Nothing,
                    Answer::Choose(_) | Answer::Value(_) => {
                        denied("the answer was neither a yes nor a no, so it counts as a no")
                    }
                };
                (verdict, busy)
            }
        }
    }

    /// The client gave no result in time. A later result is ignored.
    fn expire_client_call(&self, call: PartId) -> Verdict {
        if !self.run.close_client_call(call) {
            return Verdict::Nothing;
        }
        let limit = self.run.def.timeouts.client_call.as_secs_f32();
        let message = format!("timed out: the client gave no result within {limit} s");
        Verdict::Result(ToolOutcome::TimedOut, ToolResult::new(message))
    }

    async fn ask_approval(&self, ready: &ReadyCall, busy: Busy) -> (Answer, Busy) {
        let before = self.run.folded(|transcript| {
            let about = transcript.questions.values().rev().find(|asked| {
                asked.question.call == Some(ready.call) && asked.question.form == Form::Approve
            });
            about.map(|asked| (asked.question.clone(), asked.answered.clone()))
        });
        let question = match before {
            Some((_, Some(answered))) => return (answered.answer, busy),
            Some((question, None)) => question,
            None => {
                let spec = ready.tool.spec();
                let name = spec.title.as_ref().unwrap_or(&spec.name);
                let arguments = ready.arguments.to_string();
                let shown: String = arguments.chars().take(PROMPT_ARGUMENTS_MAX).collect();
                let cut = if shown.len() < arguments.len() { "…" } else { "" };
                let question = Question {
                    question: self.run.mint_question(),
                    call: Some(ready.call),
                    prompt: format!("Allow {name} {shown}{cut}?").into(),
                    form: Form::Approve,
                    expires_at: Some(self.run.now().plus(self.def.timeouts.question)),
                    blocking: false,
                    key: None,
                };
                self.run.push(self.agent, Event::QuestionAsked(Box::new(question.clone())));
                self.run.commit().await;
                question
            }
        };
        drop(busy);
        let answer = self.wait_for_answer(question.question, question.expires_at).await;
        (answer, self.run.activity.busy())
    }

    async fn take_result(&self, result_tool: &ResultTool, arguments: Value) -> Verdict {
        if self.run.folded(|transcript| transcript.outline.has_result) {
            return error("there is a result already".into());
        }
        match result_tool.accept(arguments).await {
            Ok(value) => {
                self.run.push(self.agent, Event::ResultReady { value: Box::new(value) });
                Verdict::Result(ToolOutcome::Ok, ToolResult::new("the result was taken"))
            }
            Err(message) => error(message),
        }
    }

    /// Runs a tool: announces it, enforces its time limits, and records its result.
    pub(crate) async fn run_call(&self, ready: ReadyCall, busy: Busy) -> Busy {
        let ReadyCall { call, tool, arguments, edited, mode, caller } = ready;
        let edited = edited.then(|| Box::new(arguments.clone()));
        self.run.push(self.agent, Event::ToolStarted { call, mode, arguments: edited });
        self.run.commit().await;

        let span = telemetry::tool(&self.span, &self.run, call, tool.spec(), &arguments);
        let timeouts = tool.spec().timeouts;
        let idle = timeouts.idle.unwrap_or(self.def.timeouts.tool_idle);
        let total = timeouts.total.unwrap_or(self.def.timeouts.tool_total);
        let started = Instant::now();
        let repeatable = is_repeatable(&*tool) && caller.is_none();
        let host = RunHost::call(self.clone(), call, repeatable, span.clone(), caller.clone());
        let signal = self.run.signal.child_token();
        let context = host.context(ContextFacts {
            trace_id: self.run.trace_id.clone(),
            run: self.run.id(),
            thread: self.run.started.thread,
            agent: self.agent,
            call: Some(call),
            messages: self.messages().into(),
            cwd: self.run.started.request.cwd.clone(),
            signal: signal.clone(),
            resume_key: None,
            deadline: Some((started + total).into_std()),
        });
        // A panic in a tool is a failure of the call; the run continues.
        let mut work = Box::pin(AssertUnwindSafe(tool.call(arguments, context)).catch_unwind());
        let ended = loop {
            tokio::select! {
                biased;
                ended = &mut work => break Some(ended),
                () = taken_back(caller.as_ref()), if !signal.is_cancelled() => signal.cancel(),
                () = sleep_until(host.too_late_at(started, total, idle)) => {
                    if Instant::now() >= host.too_late_at(started, total, idle) {
                        break None;
                    }
                }
            }
        };
        if ended.is_none() {
            // It may clean up, but a result that it still returns is ignored.
            signal.cancel();
            let _ = tokio::time::timeout(self.def.timeouts.cancel_grace, &mut work).await;
        }
        drop(work);
        host.close();
        let (outcome, result) = match ended {
            Some(Ok(Ok(result))) => match too_large(&result) {
                None => (ToolOutcome::Ok, result),
                Some(bytes) => {
                    let message = format!(
                        "the result has {bytes} bytes, and at most {TOOL_BYTES_MAX} can be kept; \
                         ask for less at a time"
                    );
                    (ToolOutcome::Error, ToolResult::new(message))
                }
            },
            Some(Ok(Err(error))) => (ToolOutcome::Error, ToolResult::new(error.to_string())),
            Some(Err(panic)) => {
                (ToolOutcome::Error, ToolResult::new(panicked(&*panic).to_string()))
            }
            None => {
                self.close_sub_agents(call).await;
                let limit = if started.elapsed() >= total {
                    "it took longer than it may"
                } else {
                    "it made no progress"
                };
                let message = format!("timed out: {limit}; it may have taken effect");
                (ToolOutcome::TimedOut, ToolResult::new(message))
            }
        };
        telemetry::tool_ended(&span, outcome, &result);
        self.run.push(self.agent, finished(call, outcome, result));
        busy
    }

    /// Closes what sub-agents of a call left open when it was cut short.
    async fn close_sub_agents(&self, call: PartId) {
        self.run.commit().await;
        let events = self.run.folded(|transcript| {
            let outline = &transcript.outline;
            let outcome = Outcome::Failed {
                kind: FailureKind::TimedOut,
                message: "the call it worked for took too long".into(),
                retryable: true,
            };
            let mut nested = BTreeSet::new();
            for (number, agent) in &outline.agents {
                if agent.call == Some(call) || !number.is_root() && nested.contains(&agent.parent) {
                    nested.insert(*number);
                }
            }
            let mut events = Vec::new();
            for agent in nested.into_iter().rev() {
                close_agent(outline, agent, &outcome, &mut events);
                let finished = Event::AgentFinished { outcome: Box::new(outcome.clone()) };
                events.push((agent, finished));
            }
            events
        });
        self.run.owner.push_all(events);
    }
}

/// Resolves when the remote agent cancels its call.
async fn taken_back(caller: Option<&Context>) {
    match caller {
        Some(caller) => caller.signal().cancelled().await,
        None => std::future::pending().await,
    }
}

/// Whether a call can be repeated from its start after its process has died: because the tool is
/// idempotent, or because the sub-agent that it calls continues from the log.
fn is_repeatable(tool: &dyn Tool) -> bool {
    tool.spec().idempotent || &*tool.spec().name == crate::tools::CALL_AGENT
}

/// Checks arguments that an approver edited. Like the model's own, they must match the schema, and
/// the policy must not deny them. Returns the reason if not.
pub(crate) async fn check_edited(def: &AgentDef, tool: &str, edited: &Value) -> Result<(), String> {
    let tool = def.tool(tool).ok_or_else(|| format!("there is no tool {tool:?}"))?;
    check_arguments(&**tool, edited).await?;
    match def.policy.decide(tool.spec(), edited) {
        Approval::Allow | Approval::Ask => Ok(()),
        Approval::Deny => Err("the policy denies the edited arguments".into()),
    }
}

async fn check_arguments(tool: &dyn Tool, arguments: &Value) -> Result<(), String> {
    let name = &tool.spec().name;
    if let Value::String(text) = arguments {
        let start: String = text.chars().take(PROMPT_ARGUMENTS_MAX).collect();
        return Err(format!("the arguments of {name} are not valid JSON: {start}"));
    }
    if !arguments.is_object() {
        let shown: String = arguments.to_string().chars().take(PROMPT_ARGUMENTS_MAX).collect();
        return Err(format!("the arguments of {name} must be a JSON object, but are: {shown}"));
    }
    let schema = Schema::compile_async(&tool.spec().parameters)
        .await
        .map_err(|error| format!("the schema of {name} cannot be used: {error}"))?;
    schema
        .validate_async(arguments)
        .await
        .map_err(|problems| format!("the arguments do not fit {name}: {}", problems.join("; ")))
}

/// The size of a value as JSON in bytes, if it exceeds the maximum.
pub(crate) fn too_large(value: &impl serde::Serialize) -> Option<usize> {
    let mut count = Counted(0);
    // Counting cannot fail; a value that cannot be serialised is not stored anyway.
    let _ = serde_json::to_writer(&mut count, value);
    (count.0 > TOOL_BYTES_MAX).then_some(count.0)
}

/// A writer that only counts.
struct Counted(usize);

impl std::io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> ToolError {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    ToolError::new(format!("the tool panicked: {}", said.unwrap_or("it did not say why")))
}

fn error(message: String) -> Verdict {
    Verdict::Result(ToolOutcome::Error, ToolResult::new(message))
}

fn denied(message: &str) -> Verdict {
    Verdict::Result(ToolOutcome::Denied, ToolResult::new(message))
}
