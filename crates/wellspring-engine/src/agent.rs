//! Agent definitions: a model or a remote agent, with its tools and its rules.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use wellspring_core::{
    Model, ModelSettings, RemoteAgent, RemoteInputs, RunRequest, Tool, ToolMode,
};

use crate::calls::policy::Policy;
use crate::calls::queue::ToolOrder;
use crate::hooks::Hooks;
use crate::limits::{Limits, Timeouts};

/// The definition of an agent.
#[derive(Clone)]
pub struct AgentDef {
    /// Its name, in the log and on every surface.
    pub name: Box<str>,
    /// One sentence, for lists.
    pub description: Box<str>,
    /// Its instructions (the system prompt).
    pub instructions: Arc<str>,
    /// The model or remote agent that does the thinking.
    pub backend: Backend,
    /// Sampling, limits and provider options.
    pub settings: ModelSettings,
    /// Whether the model streams by default. A request may override it.
    pub streaming: bool,
    /// The tools it may call.
    pub tools: Vec<Arc<dyn Tool>>,
    /// Whether its tools may run at the same time.
    pub queue: ToolMode,
    /// Whether parallel calls wait for the sequential calls before them.
    pub tool_order: ToolOrder,
    /// How the calls of some tools are queued, by tool name, whatever the tools say.
    pub queue_rules: BTreeMap<Box<str>, QueueRule>,
    /// Which calls run, ask first or are denied.
    pub policy: Policy,
    /// Principals other than the asker who may answer its questions.
    pub approvers: Vec<Box<str>>,
    /// Who may edit a call's arguments when approving it.
    pub editors: Editors,
    /// The agents it may call, by name.
    pub sub_agents: Vec<Box<str>>,
    /// Budgets of a run.
    pub limits: Limits,
    /// Time limits.
    pub timeouts: Timeouts,
    /// What happens to a request while the thread has an unfinished run.
    pub when_busy: WhenBusy,
    /// Whether a request may name another model of the same provider.
    pub allow_model: bool,
    /// The schema of its typed result, for requests without one.
    pub result_schema: Option<Value>,
    /// Callbacks.
    pub hooks: Option<Arc<dyn Hooks>>,
    /// Applied to every agent that this one calls. A surface that adapts this agent (for example an
    /// editor that serves its files) adapts the called agents in the same way.
    pub adapt_sub_agents: Option<AdaptAgent>,
}

/// How the calls of a tool are queued; `None` for the tool's own setting.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct QueueRule {
    /// Together with other calls, or alone.
    pub mode: Option<ToolMode>,
    /// The priority among waiting sequential calls; the highest runs first.
    pub priority: Option<i32>,
}

/// Makes an adapted copy of an agent.
pub type AdaptAgent = Arc<dyn Fn(&AgentDef) -> AgentDef + Send + Sync>;

/// The source of an agent's output: a model with our own loop, or a remote agent.
#[derive(Clone)]
pub enum Backend {
    /// A model, with our own loop around it.
    Model(Arc<dyn Model>),
    /// A remote agent, which runs its own loop.
    Remote(Arc<dyn RemoteAgent>),
}

/// Who may edit a call's arguments when approving it. Edited arguments have to fit the tool's
/// schema, and the policy must not deny them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Editors {
    /// Everyone who may answer the question.
    #[default]
    Approvers,
    /// No principal: a call runs with the arguments that were shown, or not at all.
    Nobody,
    /// The named principals, among those that may answer.
    Named(Vec<Box<str>>),
}

/// What happens to a request while its thread has an unfinished run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum WhenBusy {
    /// It fails with an error that names the run.
    #[default]
    Refuse,
    /// It waits until that run has ended.
    Queue,
    /// It is added to that run as input.
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
            tool_order: ToolOrder::default(),
            queue_rules: BTreeMap::new(),
            policy: Policy::default(),
            approvers: Vec::new(),
            editors: Editors::default(),
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

    /// The model that a request names, if this agent allows it.
    pub(crate) fn model_named(&self, request: &RunRequest) -> Option<Box<str>> {
        request.model.clone().filter(|_| self.allow_model)
    }

    /// Whether the model streams for a request.
    pub(crate) fn streams(&self, request: &RunRequest) -> bool {
        request.streaming.unwrap_or(self.streaming)
    }

    /// Whether input can be added while a run of this agent is active.
    #[must_use]
    pub fn takes_input(&self) -> bool {
        match &self.backend {
            Backend::Model(_) => true,
            Backend::Remote(agent) => agent.capabilities().inputs != RemoteInputs::Refused,
        }
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
