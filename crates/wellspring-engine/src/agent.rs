//! What an agent is: a model or a remote agent, with its tools and its rules.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use wellspring_core::{Model, ModelSettings, RemoteAgent, RunRequest, Tool, ToolMode};

use crate::calls::policy::Policy;
use crate::hooks::Hooks;
use crate::limits::{Limits, Timeouts};

/// An agent, ready to run.
#[derive(Clone)]
pub struct AgentDef {
    /// What the log and the surfaces call it.
    pub name: Box<str>,
    /// A sentence for lists.
    pub description: Box<str>,
    /// What it is told to be.
    pub instructions: Arc<str>,
    /// The model or remote agent that does the thinking.
    pub backend: Backend,
    /// How the model should answer.
    pub settings: ModelSettings,
    /// Whether the model streams, unless the run says otherwise.
    pub streaming: bool,
    /// What it can do.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Whether its tools run beside each other, or one by one.
    pub queue: ToolMode,
    /// What it may do.
    pub policy: Policy,
    /// Who, besides the asker, may answer its questions.
    pub approvers: Vec<Box<str>>,
    /// The agents it may call, by name.
    pub sub_agents: Vec<Box<str>>,
    /// What a run may spend.
    pub limits: Limits,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// What becomes of a request while the thread has an unfinished run.
    pub when_busy: WhenBusy,
    /// Whether a request may name another model of the same provider.
    pub allow_model: bool,
    /// The schema of its result, where a request brings none.
    pub result_schema: Option<Value>,
    /// Who is told besides the log.
    pub hooks: Option<Arc<dyn Hooks>>,
    /// Applied to every agent that this one calls. A surface that adapted this agent (an editor
    /// that serves its files, say) adapts the called ones in the same way.
    pub adapt_sub_agents: Option<AdaptAgent>,
}

/// Makes an adapted copy of an agent.
pub type AdaptAgent = Arc<dyn Fn(&AgentDef) -> AgentDef + Send + Sync>;

/// What produces an agent's words: a model that we loop around, or a remote agent.
#[derive(Clone)]
pub enum Backend {
    /// A model, with our own loop around it.
    Model(Arc<dyn Model>),
    /// A remote agent, which runs its own loop.
    Remote(Arc<dyn RemoteAgent>),
}

/// What becomes of a request while its thread has an unfinished run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum WhenBusy {
    /// It is an error that names the run.
    #[default]
    Refuse,
    /// It waits its turn.
    Queue,
    /// It becomes input of the run that is going on.
    Steer,
}

impl AgentDef {
    /// An agent around a model.
    #[must_use]
    pub fn model(name: impl Into<Box<str>>, model: Arc<dyn Model>) -> Self {
        Self::new(name.into(), Backend::Model(model))
    }

    /// A remote agent.
    #[must_use]
    pub fn remote(name: impl Into<Box<str>>, agent: Arc<dyn RemoteAgent>) -> Self {
        Self::new(name.into(), Backend::Remote(agent))
    }

    fn new(name: Box<str>, backend: Backend) -> Self {
        Self {
            name,
            description: "".into(),
            instructions: "".into(),
            backend,
            settings: ModelSettings::default(),
            streaming: true,
            tools: Vec::new(),
            queue: ToolMode::Parallel,
            policy: Policy::default(),
            approvers: Vec::new(),
            sub_agents: Vec::new(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            when_busy: WhenBusy::default(),
            allow_model: false,
            result_schema: None,
            hooks: None,
            adapt_sub_agents: None,
        }
    }

    /// The model that a request names, where it may.
    pub(crate) fn model_named(&self, request: &RunRequest) -> Option<Box<str>> {
        request.model.clone().filter(|_| self.allow_model)
    }

    /// Whether the model streams for a request.
    pub(crate) fn streams(&self, request: &RunRequest) -> bool {
        request.streaming.unwrap_or(self.streaming)
    }

    /// The tool of that name.
    #[must_use]
    pub fn tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.iter().find(|tool| &*tool.spec().name == name)
    }
}

impl fmt::Debug for AgentDef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tools: Vec<_> = self.tools.iter().map(|tool| &tool.spec().name).collect();
        f.debug_struct("AgentDef")
            .field("name", &self.name)
            .field("tools", &tools)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(model) => write!(f, "Model({})", model.name()),
            Self::Remote(agent) => write!(f, "Remote({})", agent.name()),
        }
    }
}
