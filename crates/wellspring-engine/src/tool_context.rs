//! The engine's side of a [`Context`](wellspring_core::Context): receives the progress, the
//! questions and the sub-agents of running code.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use tokio::time::Instant;
use tracing::Span;
use wellspring_core::{
    AgentNo, Answer, Approval, Ask, AskedQuestion, CancellationToken, Content, Context,
    ContextFacts, Event, Host, LocalPart, Outcome, PartId, Question, QuestionId, Reporter,
    ToolError, ToolSpec, ToolUpdate,
};

use crate::agent_loop::AgentWork;
use crate::calls::arguments::parse_arguments;
use crate::calls::run_tool::too_large;
use crate::limits::AGENT_DEPTH_MAX;
use crate::remote::numbering::Placed;
use crate::run::Run;
use crate::run::activity::Aside;
use crate::runtime_ui::is_success;

/// The host of one call, or of one remote agent.
pub(crate) struct RunHost {
    work: AgentWork,
    call: Option<PartId>,
    /// The running call; sub-agents and nested calls belong to it.
    span: Span,
    /// Whether the work can be repeated from its start; if so, a pause may drop it.
    repeatable: bool,
    /// The remote agent that made the call and also gets its progress.
    listener: Option<Context>,
    /// Maps a remote agent's parts to the run's.
    placed: Placed,
    asked: AtomicUsize,
    /// Set once the call has its result; later reports of the tool are ignored.
    closed: AtomicBool,
    /// Questions and calls that a remote agent can repeat after a pause.
    resumable_waits: Mutex<ResumableWaits>,
    patience: Mutex<Patience>,
}

/// The pending answers and results that a remote agent can request again by key. While there are
/// any, the agent itself does not count as busy.
#[derive(Debug, Default)]
struct ResumableWaits {
    count: usize,
    aside: Option<Aside>,
}

/// Held while a remote agent waits for something that it can request again after a pause.
pub(crate) struct ResumableWait<'a>(&'a RunHost);

impl Drop for ResumableWait<'_> {
    fn drop(&mut self) {
        let mut waits = self.0.resumable_waits();
        waits.count -= 1;
        if waits.count == 0 {
            waits.aside = None;
        }
    }
}

/// The times that limits are measured from.
#[derive(Debug)]
struct Patience {
    progress_at: Instant,
    /// Time spent waiting for people, which does not count.
    excused: Duration,
    asking_since: Option<Instant>,
    /// A sub-agent is running: it reports its own progress.
    delegating: bool,
}

impl RunHost {
    /// The host of a remote agent.
    pub(crate) fn remote(work: AgentWork, placed: Placed) -> Arc<Self> {
        let span = work.span.clone();
        Arc::new(Self { placed, ..Self::made(work, None, false, span) })
    }

    /// The host of a call.
    pub(crate) fn call(
        work: AgentWork,
        call: PartId,
        repeatable: bool,
        span: Span,
        listener: Option<Context>,
    ) -> Arc<Self> {
        Arc::new(Self { listener, ..Self::made(work, Some(call), repeatable, span) })
    }

    fn made(work: AgentWork, call: Option<PartId>, repeatable: bool, span: Span) -> Self {
        Self {
            work,
            call,
            span,
            repeatable,
            listener: None,
            placed: Placed::default(),
            asked: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            resumable_waits: Mutex::default(),
            patience: Mutex::new(Patience {
                progress_at: Instant::now(),
                excused: Duration::ZERO,
                asking_since: None,
                delegating: false,
            }),
        }
    }

    /// The context of the work.
    pub(crate) fn context(
        self: &Arc<Self>,
        signal: CancellationToken,
        deadline: Option<Instant>,
    ) -> Context {
        let started = &self.run().started;
        let facts = ContextFacts {
            trace_id: self.run().trace_id.clone(),
            run: self.run().id(),
            thread: started.thread,
            agent: self.work.agent,
            call: self.call,
            messages: self.work.messages().into(),
            cwd: started.request.cwd.clone(),
            signal,
            deadline: deadline.map(Instant::into_std),
            resume_key: None,
        };
        Context::new(facts, Arc::clone(self) as Arc<dyn Host>)
    }

    /// The call's deadline as currently known: `total` after `started`, or `idle` after its last
    /// progress. Time spent waiting for people does not count.
    pub(crate) fn too_late_at(&self, started: Instant, total: Duration, idle: Duration) -> Instant {
        let patience = self.patience();
        let deadline = started + total + patience.excused;
        match patience.asking_since {
            Some(_) => Instant::now() + idle,
            None if patience.delegating => deadline,
            None => deadline.min(patience.progress_at + idle),
        }
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Lets the run pause until the guard is dropped, unless other work prevents it. `None` for a
    /// sub-agent, which cannot be found again by its handle.
    pub(crate) fn resumable_wait(&self) -> Option<ResumableWait<'_>> {
        if !self.work.agent.is_root() {
            return None;
        }
        let mut waits = self.resumable_waits();
        waits.count += 1;
        waits.aside.get_or_insert_with(|| self.run().activity.step_aside());
        Some(ResumableWait(self))
    }

    fn resumable_waits(&self) -> MutexGuard<'_, ResumableWaits> {
        self.resumable_waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) -> &Arc<Run> {
        &self.work.run
    }

    fn touch(&self) {
        self.patience().progress_at = Instant::now();
    }

    fn patience(&self) -> MutexGuard<'_, Patience> {
        self.patience.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// The question that this call asked at this point, or that a remote agent asked under this
    /// key, before the run paused or its process died.
    fn asked_before(&self, nth: usize, key: Option<&str>) -> Option<(QuestionId, Option<Answer>)> {
        self.run().folded(|transcript| {
            let answer = |asked: &AskedQuestion| {
                let answer = asked.answered.as_ref().map(|answered| answered.answer.clone());
                (asked.question.question, answer)
            };
            let Some(call) = self.call else {
                let mut asked = transcript.questions.values().rev();
                return asked
                    .find(|asked| {
                        key.is_some()
                            && asked.question.key.as_deref() == key
                            && asked.agent == self.work.agent
                    })
                    .map(answer);
            };
            let ours = transcript.questions.values().filter(|asked| {
                asked.question.call == Some(call)
                    && !matches!(asked.question.form, wellspring_core::Form::Approve)
            });
            ours.into_iter().nth(nth).map(answer)
        })
    }

    async fn ask_now(&self, ask: Ask, about: Option<PartId>) -> Answer {
        let run = self.run();
        let nth = self.asked.fetch_add(1, Ordering::Relaxed);
        let may_pause =
            ask.resume_key.is_some() && self.call.is_none() && self.work.agent.is_root();
        let (question, expires_at) = match self.asked_before(nth, ask.resume_key.as_deref()) {
            Some((_, Some(answer))) => return answer,
            Some((question, None)) => {
                let expires_at = run.folded(|transcript| {
                    transcript.outline.questions.get(&question).and_then(|open| open.expires_at)
                });
                (question, expires_at)
            }
            None => {
                let question = run.mint_question();
                let wait = ask.expires_in.unwrap_or(self.work.def.timeouts.question);
                let expires_at = run.now().plus(wait);
                let asked = Question {
                    question,
                    call: about,
                    prompt: ask.prompt,
                    form: ask.form,
                    expires_at: Some(expires_at),
                    blocking: !self.repeatable && !may_pause,
                    key: ask.resume_key,
                };
                run.push(self.work.agent, Event::QuestionAsked(Box::new(asked)));
                run.commit().await;
                (question, Some(expires_at))
            }
        };
        // A repeated question is the same question.
        let _ = ask.asked_as.set(question);
        let aside = self.repeatable.then(|| run.activity.step_aside());
        let waits = may_pause.then(|| self.resumable_wait());
        self.patience().asking_since = Some(Instant::now());
        let answer = tokio::select! {
            biased;
            answer = self.work.wait_for_answer(question, expires_at) => answer,
            () = ask.withdrawn.cancelled() => {
                run.answer_myself(self.work.agent, question, Answer::Withdrawn);
                run.answer(question).await
            }
        };
        drop((aside, waits));
        let mut patience = self.patience();
        patience.progress_at = Instant::now();
        let asked_for = patience.asking_since.take().map_or(Duration::ZERO, |at| at.elapsed());
        patience.excused += asked_for;
        answer
    }

    async fn permit_now(&self, call: LocalPart, ask: Ask) -> Answer {
        let call = self.placed.get(call.id());
        self.run().commit().await;
        let open = self.run().folded(|transcript| transcript.outline.call(call?).cloned());
        if let Some(open) = &open {
            // The agent asks because it is not certain; without a rule, a person decides.
            let spec = ToolSpec {
                kind: open.tool.kind,
                approval: Some(Approval::Ask),
                ..ToolSpec::new(open.tool.name.clone(), "")
            };
            let arguments = parse_arguments(&open.arguments);
            match self.work.def.policy.decide_remote(&spec, &arguments) {
                Approval::Allow => return Answer::yes(),
                Approval::Deny => return Answer::no("the policy does not allow this call"),
                Approval::Ask => {}
            }
        }
        self.ask_now(ask, call.filter(|_| open.is_some())).await
    }

    async fn call_agent_now(
        &self,
        name: Box<str>,
        input: Vec<Content>,
    ) -> Result<String, ToolError> {
        let run = self.run();
        let allowed = &self.work.def.sub_agents;
        if !allowed.iter().any(|allowed| *allowed == name || &**allowed == "*") {
            let known = allowed.join(", ");
            return Err(ToolError::new(format!(
                "there is no agent {name:?} to call; there are: {known}"
            )));
        }
        let Some(def) = run.runtime.agent(&name) else {
            return Err(ToolError::new(format!("agent {name:?} is not configured")));
        };
        let def = self
            .work
            .def
            .adapt_sub_agents
            .as_ref()
            .map_or(Arc::clone(&def), |adapt| Arc::new(adapt(&def)));
        if self.work.depth >= AGENT_DEPTH_MAX {
            let message =
                format!("agents are nested {AGENT_DEPTH_MAX} deep already; do it yourself");
            return Err(ToolError::new(message));
        }
        let agent = match self.sub_agent_before() {
            Some(SubAgentBefore::Finished(agent, outcome)) => {
                return self.sub_agent_result(agent, &name, &outcome);
            }
            Some(SubAgentBefore::AtWork(agent)) => agent,
            None => {
                let agent = run.mint_agent();
                let started = Event::AgentStarted {
                    parent: self.work.agent,
                    call: self.call,
                    name: name.clone(),
                    input,
                };
                run.push(agent, started);
                run.commit().await;
                agent
            }
        };
        let inner = AgentWork::new(Arc::clone(run), agent, def, self.work.depth + 1, &self.span);
        // A sub-agent counts its own usage.
        let aside = self.repeatable.then(|| run.activity.step_aside());
        self.patience().delegating = true;
        let outcome = inner.work().boxed().await;
        self.patience().delegating = false;
        self.touch();
        drop(aside);
        run.commit().await;
        let mut events = Vec::new();
        run.folded(|transcript| {
            crate::runtime::close::close_agent(&transcript.outline, agent, &outcome, &mut events);
        });
        events.push((agent, Event::AgentFinished { outcome: Box::new(outcome.clone()) }));
        run.owner.push_all(events);
        run.commit().await;
        self.sub_agent_result(agent, &name, &outcome)
    }

    fn sub_agent_before(&self) -> Option<SubAgentBefore> {
        let call = self.call?;
        self.run().folded(|transcript| {
            let agent = transcript.parts.get(&call)?.call.as_ref()?.agent?;
            let outcome = transcript.agents.get(&agent)?.outcome.clone();
            Some(match outcome {
                Some(outcome) => SubAgentBefore::Finished(agent, outcome),
                None => SubAgentBefore::AtWork(agent),
            })
        })
    }

    fn sub_agent_result(
        &self,
        agent: AgentNo,
        name: &str,
        outcome: &Outcome,
    ) -> Result<String, ToolError> {
        match outcome {
            Outcome::Completed { .. } => {
                let words = self.run().folded(|transcript| transcript.words(agent));
                if is_success(outcome) {
                    return Ok(words);
                }
                Err(ToolError::new(format!("agent {name:?} {outcome}; it had said: {words}")))
            }
            Outcome::Cancelled { .. } | Outcome::Failed { .. } => {
                Err(ToolError::new(format!("agent {name:?} {outcome}")))
            }
        }
    }
}

enum SubAgentBefore {
    Finished(AgentNo, Outcome),
    AtWork(AgentNo),
}

impl Host for RunHost {
    fn update(&self, update: ToolUpdate) -> BoxFuture<'_, ()> {
        if let (Some(call), false) = (self.call, self.is_closed()) {
            self.touch();
            let update = match too_large(&update) {
                None => update,
                Some(bytes) => {
                    let note = format!("progress of {bytes} bytes was too large to be kept");
                    ToolUpdate { data: Some(note.into()), ..ToolUpdate::default() }
                }
            };
            let heard = self.listener.as_ref().map(|listener| (listener, update.clone()));
            let event = Event::ToolUpdated { call, update: Box::new(update) };
            self.run().push(self.work.agent, event);
            if let Some((listener, update)) = heard {
                return async move {
                    listener.update(update).await;
                    self.run().room().await;
                }
                .boxed();
            }
        }
        self.run().room().boxed()
    }

    fn emit(&self, event: Event) -> BoxFuture<'_, Result<(), ToolError>> {
        if self.is_closed() {
            return async { Ok(()) }.boxed();
        }
        if !event.may_be_reported_by(Reporter::Tool) {
            let message = format!("only the engine states this: {event}");
            return async { Err(ToolError::new(message)) }.boxed();
        }
        self.touch();
        self.run().push(self.work.agent, event);
        self.run().room().map(Ok).boxed()
    }

    fn ask(&self, ask: Ask) -> BoxFuture<'_, Answer> {
        self.ask_now(ask, self.call).boxed()
    }

    fn permit(&self, call: LocalPart, ask: Ask) -> BoxFuture<'_, Answer> {
        self.permit_now(call, ask).boxed()
    }

    fn call_agent(
        &self,
        agent: Box<str>,
        input: Vec<Content>,
    ) -> BoxFuture<'_, Result<String, ToolError>> {
        self.call_agent_now(agent, input).boxed()
    }
}
