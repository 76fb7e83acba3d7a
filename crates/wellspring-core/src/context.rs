//! What running code knows of the run around it, and how it speaks to it.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures::future::{BoxFuture, FutureExt as _, ready};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::batch::LocalPart;
use crate::content::Content;
use crate::event::{Answer, Event, Form, PlanEntry, ToolUpdate};
use crate::id::{AgentNo, PartId, QuestionId, RunId, ThreadId};
use crate::message::{Message, WirePartId};
use crate::tool::ToolError;

/// What a tool or a remote agent knows of its run: who, what for, until when. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    facts: Arc<ContextFacts>,
    host: Arc<dyn Host>,
}

/// The plain data of a [`Context`].
#[derive(Clone, Debug)]
pub struct ContextFacts {
    /// The trace that the run belongs to.
    pub trace_id: Box<str>,
    /// The run.
    pub run: RunId,
    /// The thread.
    pub thread: ThreadId,
    /// The agent within the run.
    pub agent: AgentNo,
    /// The call, when a tool runs.
    pub call: Option<PartId>,
    /// The conversation so far.
    pub messages: Arc<[Message]>,
    /// The directory that the request is about.
    pub cwd: Option<Box<str>>,
    /// Cancelled when the work should end.
    pub signal: CancellationToken,
    /// When the work will be cut short.
    pub deadline: Option<Instant>,
}

/// Where a [`Context`] sends what it is told. The engine is one.
pub trait Host: Send + Sync {
    /// A call reports progress. Resolves when there is room for more.
    fn update(&self, update: ToolUpdate) -> BoxFuture<'_, ()>;

    /// A fact besides the call: a plan, state, a source, a file. Others are refused.
    fn emit(&self, event: Event) -> BoxFuture<'_, Result<(), ToolError>>;

    /// Asks a person.
    fn ask(&self, ask: Ask) -> BoxFuture<'_, Answer>;

    /// Asks whether a call that a remote agent makes itself may go on. Rules may answer before
    /// a person does.
    fn permit(&self, _call: LocalPart, ask: Ask) -> BoxFuture<'_, Answer> {
        self.ask(ask)
    }

    /// Lets another agent work; resolves with its joined text.
    fn call_agent(
        &self,
        agent: Box<str>,
        input: Vec<Content>,
    ) -> BoxFuture<'_, Result<String, ToolError>>;
}

/// A question on its way to a person.
#[derive(Clone, Debug)]
pub struct Ask {
    /// What they read.
    pub prompt: Box<str>,
    /// What an answer looks like.
    pub form: Form,
    /// How long it may take; the engine's own limit when absent.
    pub expires_in: Option<Duration>,
    /// Cancelled when whoever asked does not want to know any more.
    pub withdrawn: CancellationToken,
    /// The question's id, once somebody is asked: whoever asks can tell by it what else is known
    /// of the answer.
    pub asked_as: Arc<OnceLock<QuestionId>>,
}

impl Ask {
    /// A question that may take as long as the engine lets it.
    #[must_use]
    pub fn new(prompt: impl Into<Box<str>>, form: Form) -> Self {
        let withdrawn = CancellationToken::new();
        let asked_as = Arc::default();
        Self { prompt: prompt.into(), form, expires_in: None, withdrawn, asked_as }
    }

    /// Withdrawn when this is cancelled.
    #[must_use]
    pub fn until(mut self, withdrawn: CancellationToken) -> Self {
        self.withdrawn = withdrawn;
        self
    }
}

impl Context {
    /// A context with its facts and the run it speaks to.
    #[must_use]
    pub fn new(facts: ContextFacts, host: Arc<dyn Host>) -> Self {
        Self { facts: Arc::new(facts), host }
    }

    /// A context outside any run: progress goes nowhere, questions expire. For tests, and
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
        };
        Self::new(facts, Arc::new(Nowhere))
    }

    /// The trace that the run belongs to.
    #[must_use]
    pub fn trace_id(&self) -> &str {
        &self.facts.trace_id
    }

    /// Cancelled when the work should end.
    #[must_use]
    pub fn signal(&self) -> &CancellationToken {
        &self.facts.signal
    }

    /// The call's id on wires, when a tool runs.
    #[must_use]
    pub fn call_id(&self) -> Option<WirePartId> {
        self.facts.call.map(|part| WirePartId { run: self.facts.run, part })
    }

    /// The conversation so far.
    #[must_use]
    pub fn messages(&self) -> &Arc<[Message]> {
        &self.facts.messages
    }

    /// The directory that the request is about, if it named one.
    #[must_use]
    pub fn cwd(&self) -> Option<&Path> {
        self.facts.cwd.as_deref().map(Path::new)
    }

    /// When the work will be cut short.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.facts.deadline
    }

    /// Everything else there is to know.
    #[must_use]
    pub fn facts(&self) -> &ContextFacts {
        &self.facts
    }

    /// Reports progress in the tool's own shape.
    pub async fn progress(&self, data: impl Into<Value>) {
        self.update(ToolUpdate { data: Some(data.into()), ..ToolUpdate::default() }).await;
    }

    /// Reports progress that surfaces understand: a title, files, content.
    pub async fn update(&self, update: ToolUpdate) {
        self.host.update(update).await;
    }

    /// Shows a plan, replacing the one before.
    pub async fn plan(&self, entries: Vec<PlanEntry>) {
        // A plan is always allowed, so there is no error to hand on.
        let _ = self.host.emit(Event::PlanUpdated { entries }).await;
    }

    /// States a fact besides the call.
    ///
    /// # Errors
    ///
    /// When the fact is not a tool's to state: anything but plan, state, source, file and
    /// extension.
    pub async fn emit(&self, event: Event) -> Result<(), ToolError> {
        self.host.emit(event).await
    }

    /// Asks a person, and waits for the answer, its expiry or the end of the run.
    pub async fn ask(&self, ask: Ask) -> Answer {
        self.host.ask(ask).await
    }

    /// Asks whether a call that a remote agent makes itself may go on: the agent's policy
    /// decides, or else a person. The call is named as the remote agent counts its parts, and
    /// must have been yielded before.
    ///
    /// Where several kinds of yes and no are to be told apart, the form lists them; an answer
    /// by the rules is still a plain [`Answer::Approve`] or [`Answer::Deny`].
    pub async fn permit(&self, call: LocalPart, ask: Ask) -> Answer {
        self.host.permit(call, ask).await
    }

    /// Lets another agent work, as part of this call; gives its joined text.
    ///
    /// # Errors
    ///
    /// When there is no such agent, it is nested too deeply, or it did not complete.
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

/// A host with nobody listening.
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
        ready(Err(ToolError::new(format!("there is no run to call agent {agent:?} in")))).boxed()
    }
}
