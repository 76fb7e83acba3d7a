//! The context of a running tool or remote agent: facts about its run, and ways to report to
//! it.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, FutureExt as _, ready};
use serde_json::Value;

use crate::batch::LocalPart;
use crate::cancel::CancellationToken;
use crate::content::Content;
use crate::event::{Answer, Event, Form, PlanEntry, ToolUpdate};
use crate::id::{AgentNo, PartId, QuestionId, RunId, ThreadId};
use crate::message::{Message, WirePartId};
use crate::tool::ToolError;

/// What a tool or a remote agent knows about its run. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    facts: Arc<ContextFacts>,
    host: Arc<dyn Host>,
}

/// The plain data of a [`Context`].
#[derive(Clone, Debug)]
pub struct ContextFacts {
    /// The trace id of the run.
    pub trace_id: Box<str>,
    /// The run.
    pub run: RunId,
    /// The thread that the run belongs to.
    pub thread: ThreadId,
    /// The agent within the run.
    pub agent: AgentNo,
    /// The call, if a tool is running.
    pub call: Option<PartId>,
    /// The conversation so far.
    pub messages: Arc<[Message]>,
    /// The working directory that the request named.
    pub cwd: Option<Box<str>>,
    /// Cancelled when the work should end.
    pub signal: CancellationToken,
    /// When the work will be aborted.
    pub deadline: Option<Instant>,
    /// The key of a tool call that a remote agent can repeat: see [`Context::resumable`].
    pub resume_key: Option<Box<str>>,
}

/// Receives the reports of a [`Context`]. The engine implements it.
pub trait Host: Send + Sync {
    /// Reports progress of the call. Resolves when there is room for more.
    fn update(&self, update: ToolUpdate) -> BoxFuture<'_, ()>;

    /// Emits an event that does not belong to the call: a plan, state, a source, a file. Other
    /// events are rejected.
    fn emit(&self, event: Event) -> BoxFuture<'_, Result<(), ToolError>>;

    /// Asks a person.
    fn ask(&self, ask: Ask) -> BoxFuture<'_, Answer>;

    /// Asks whether a remote agent may make a call of its own. The policy may answer without
    /// asking a person.
    fn permit(&self, _call: LocalPart, ask: Ask) -> BoxFuture<'_, Answer> {
        self.ask(ask)
    }

    /// Runs another agent. Resolves with its whole text.
    fn call_agent(
        &self,
        agent: Box<str>,
        input: Vec<Content>,
    ) -> BoxFuture<'_, Result<String, ToolError>>;
}

/// A question to a person.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The text that a person reads.
    pub prompt: Box<str>,
    /// The kind of answer it takes.
    pub form: Form,
    /// How long to wait for an answer; `None` for the engine's own limit.
    pub expires_in: Option<Duration>,
    /// Cancelled when the asker no longer needs the answer.
    pub withdrawn: CancellationToken,
    /// Set to the question's id once it has been asked, so that the asker can look up the
    /// answer's author.
    pub asked_as: Arc<OnceLock<QuestionId>>,
    /// The asker's own name for the question: see [`Ask::resumable`].
    pub resume_key: Option<Box<str>>,
}

impl Ask {
    /// A question with the engine's own time limit.
    #[must_use]
    pub fn new(prompt: impl Into<Box<str>>, form: Form) -> Self {
        let withdrawn = CancellationToken::new();
        let asked_as = Arc::default();
        let (expires_in, resume_key) = (None, None);
        Self { prompt: prompt.into(), form, expires_in, withdrawn, asked_as, resume_key }
    }

    /// Lets a remote agent's run pause while the question is open. When the run continues, the
    /// agent asks again under the same key and gets the answer. Keys are unique within a run.
    #[must_use]
    pub fn resumable(mut self, key: impl Into<Box<str>>) -> Self {
        self.resume_key = Some(key.into());
        self
    }

    /// Withdraws the question when `token` is cancelled.
    #[must_use]
    pub fn until(mut self, withdrawn: CancellationToken) -> Self {
        self.withdrawn = withdrawn;
        self
    }
}

impl Context {
    /// A context with its facts and the host it reports to.
    #[must_use]
    pub fn new(facts: ContextFacts, host: Arc<dyn Host>) -> Self {
        Self { facts: Arc::new(facts), host }
    }

    /// A context outside any run: progress is dropped and questions expire at once. For tests, and
    /// for code that calls a tool directly.
    #[must_use]
    pub fn create(trace_id: impl Into<Box<str>>, signal: CancellationToken) -> Self {
        let nil = uuid::Uuid::nil();
        let facts = ContextFacts {
            trace_id: trace_id.into(),
            run: RunId::new(nil),
            thread: ThreadId::new(nil),
            agent: AgentNo::ROOT,
            call: None,
            messages: Arc::from([]),
            cwd: None,
            signal,
            deadline: None,
            resume_key: None,
        };
        Self::new(facts, Arc::new(Nowhere))
    }

    /// The context for a tool call that a remote agent can repeat: the run may pause until the
    /// call has its result, and a second call under the same key gets that result. Keys are
    /// unique within a run, for example the peer's own id of the call.
    #[must_use]
    pub fn resumable(&self, key: impl Into<Box<str>>) -> Self {
        let facts = ContextFacts { resume_key: Some(key.into()), ..(*self.facts).clone() };
        Self { facts: Arc::new(facts), host: Arc::clone(&self.host) }
    }

    /// The trace id of the run.
    #[must_use]
    pub fn trace_id(&self) -> &str {
        &self.facts.trace_id
    }

    /// Cancelled when the work should end.
    #[must_use]
    pub fn signal(&self) -> &CancellationToken {
        &self.facts.signal
    }

    /// The call's id on wires; `None` unless a tool is running.
    #[must_use]
    pub fn call_id(&self) -> Option<WirePartId> {
        self.facts.call.map(|part| WirePartId { run: self.facts.run, part })
    }

    /// The conversation so far.
    #[must_use]
    pub fn messages(&self) -> &Arc<[Message]> {
        &self.facts.messages
    }

    /// The working directory that the request named, if any.
    #[must_use]
    pub fn cwd(&self) -> Option<&Path> {
        self.facts.cwd.as_deref().map(Path::new)
    }

    /// When the work will be aborted, if there is a deadline.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.facts.deadline
    }

    /// The plain data of this context.
    #[must_use]
    pub fn facts(&self) -> &ContextFacts {
        &self.facts
    }

    /// Reports progress as arbitrary JSON.
    pub async fn progress(&self, data: impl Into<Value>) {
        self.update(ToolUpdate { data: Some(data.into()), ..ToolUpdate::default() }).await;
    }

    /// Reports progress that every surface can show: a title, files, content.
    pub async fn update(&self, update: ToolUpdate) {
        self.host.update(update).await;
    }

    /// Shows a plan, which replaces the previous one.
    pub async fn plan(&self, entries: Vec<PlanEntry>) {
        // A plan is always accepted, so there is no error to return.
        let _ = self.host.emit(Event::PlanUpdated { entries }).await;
    }

    /// Emits an event that does not belong to the call.
    ///
    /// # Errors
    ///
    /// If tools may not emit the event: only plan, state, source, file and extension events are
    /// accepted.
    pub async fn emit(&self, event: Event) -> Result<(), ToolError> {
        self.host.emit(event).await
    }

    /// Asks a person, and waits for the answer, its expiry or the end of the run.
    pub async fn ask(&self, ask: Ask) -> Answer {
        self.host.ask(ask).await
    }

    /// Asks whether a remote agent may make a call of its own: the agent's policy decides, or
    /// otherwise a person. The call is named by the remote agent's own part number, and must
    /// have been yielded before.
    ///
    /// If several kinds of yes and no must be told apart, the form lists them; the policy still
    /// answers with a plain [`Answer::Approve`] or [`Answer::Deny`].
    pub async fn permit(&self, call: LocalPart, ask: Ask) -> Answer {
        self.host.permit(call, ask).await
    }

    /// Runs another agent as part of this call and returns its whole text.
    ///
    /// # Errors
    ///
    /// If the agent does not exist, is nested too deeply, or did not complete.
    pub async fn call_agent(
        &self,
        agent: impl Into<Box<str>>,
        input: Vec<Content>,
    ) -> Result<String, ToolError> {
        self.host.call_agent(agent.into(), input).await
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// The host of a context outside any run.
struct Nowhere;

impl Host for Nowhere {
    fn update(&self, _: ToolUpdate) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }

    fn emit(&self, _: Event) -> BoxFuture<'_, Result<(), ToolError>> {
        ready(Ok(())).boxed()
    }

    fn ask(&self, _: Ask) -> BoxFuture<'_, Answer> {
        ready(Answer::Expired).boxed()
    }

    fn call_agent(
        &self,
        agent: Box<str>,
        _: Vec<Content>,
    ) -> BoxFuture<'_, Result<String, ToolError>> {
        ready(Err(ToolError::new(format!(
            "cannot call agent {agent:?}: this context is outside any run"
        ))))
        .boxed()
    }
}
