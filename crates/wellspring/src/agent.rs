//! Agents.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use uuid::Uuid;
#[cfg(feature = "acp")]
use wellspring_acp::client::{AcpAgent, AcpConfig, AcpError};
use wellspring_core::{Model, ModelSettings, RemoteAgent, RunId, ThreadId, Tool as _, ToolMode};
use wellspring_engine::tools::call_agent;
use wellspring_engine::{
    AgentDef, Hooks, Limits, Policy, QueueRule, Runtime, Timeouts, ToolOrder, WhenBusy,
};
use wellspring_log::{Log, StoreError};

use crate::follow::{Following, Which};
#[cfg(feature = "skills")]
use crate::skill::{self, Skill};
use crate::stream::ThoughtStream;
use crate::think::Think;
use crate::thread::Thread;
use crate::tool::IntoTool;

/// An agent: a model or a remote agent, with its tools, policy and limits.
///
/// Configure it with its methods. It is cheap to clone; a clone that is configured further is
/// another agent over the same log.
///
/// ```
/// use wellspring::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), wellspring::ThinkError> {
/// let model = Scripted::new([Say::new().text("Bonjour.")]);
/// let agent = Agent::model(model).named("translator").instructions("Say it in French.");
/// assert_eq!(agent.say("Hello.").run().await?, "Bonjour.");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Agent {
    def: Arc<AgentDef>,
    runtime: Runtime,
    /// The agents that it may call, and those that they may call.
    sub_agents: BTreeMap<Box<str>, Arc<AgentDef>>,
    #[cfg(feature = "skills")]
    skills: Vec<Skill>,
}

impl Agent {
    /// An agent with a model, named after the model. Its runs are kept in memory, up to
    /// [`MEMORY_BYTES_MAX`](wellspring_log::MEMORY_BYTES_MAX); beyond that, the oldest finished
    /// runs are dropped.
    #[must_use]
    pub fn model(model: impl Model + 'static) -> Self {
        let name: Box<str> = model.name().into();
        AgentDef { when_busy: WhenBusy::Queue, ..AgentDef::model(name, Arc::new(model)) }.into()
    }

    /// An agent that runs outside this process. Its runs are kept in memory.
    #[must_use]
    pub fn remote(agent: impl RemoteAgent + 'static) -> Self {
        let name: Box<str> = agent.name().into();
        AgentDef { when_busy: WhenBusy::Queue, ..AgentDef::remote(name, Arc::new(agent)) }.into()
    }

    /// An agent that speaks the Agent Client Protocol (ACP), given by its name (`claude`,
    /// `codex`, `gemini`, `opencode`, `goose`, `kiro`, `auggie`: found in the PATH, or started
    /// with `npx`), by a command, or by a URL. It is started at once, and stopped when the last
    /// clone is dropped. Its runs are kept in memory.
    ///
    /// It has its own tools and ours. It asks before it changes things; answer these questions
    /// with [`Think::on_question`], or with a [policy](Self::policy).
    ///
    /// ```
    /// use wellspring::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// match Agent::open("my-agent --acp").await {
    ///     Ok(agent) => {
    ///         let lines = agent.think::<u32>().text("How many lines has README.md?").run().await?;
    ///         println!("{lines}");
    ///     }
    ///     Err(error) => println!("{error}"), // here: there is no such program
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If it is not installed, does not start, or supports another version of the protocol.
    #[cfg(feature = "acp")]
    pub async fn open(agent: impl AsRef<str>) -> Result<Self, AcpError> {
        Self::open_with(agent.as_ref().parse()?).await
    }

    /// As [`open`](Self::open), with options such as environment, directory and mode.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    #[cfg(feature = "acp")]
    pub async fn open_with(config: AcpConfig) -> Result<Self, AcpError> {
        let agent = AcpAgent::new(config.name(), config);
        agent.start().await?;
        Ok(Self::remote(agent))
    }

    /// Sets the agent's name, which is shown in the log and to agents that call it.
    #[must_use]
    pub fn named(mut self, name: impl Into<Box<str>>) -> Self {
        self.change().name = name.into();
        self
    }

    /// Sets the agent's description, which is shown in lists and to agents that may call it.
    #[must_use]
    pub fn description(mut self, description: impl Into<Box<str>>) -> Self {
        self.change().description = description.into();
        self
    }

    /// Sets the instructions (the system prompt).
    #[must_use]
    pub fn instructions(mut self, instructions: impl Into<Arc<str>>) -> Self {
        self.change().instructions = instructions.into();
        self
    }

    /// Adds a tool. Names must be unique: with two tools of the same name, no run starts
    /// ([`ThinkError::DuplicateTool`](crate::ThinkError::DuplicateTool)).
    #[must_use]
    pub fn tool<M>(mut self, tool: impl IntoTool<M>) -> Self {
        self.change().tools.push(tool.into_tool());
        self
    }

    /// Adds several tools, such as those of an MCP server. Functions have types of their own: add
    /// each with [`tool`](Self::tool).
    ///
    /// ```
    /// use wellspring::prelude::*;
    /// use wellspring::tools::{NoArguments, function};
    ///
    /// let tool = |name| function(name, "Does nothing.", async |_: NoArguments, _| Ok(()));
    /// let agent = Agent::model(Scripted::new([])).tools(["a", "b"].map(tool));
    /// assert_eq!(agent.def().tools.len(), 2);
    /// ```
    #[must_use]
    pub fn tools<M>(self, tools: impl IntoIterator<Item = impl IntoTool<M>>) -> Self {
        tools.into_iter().fold(self, Self::tool)
    }

    /// Adds a skill, replacing one of the same name.
    #[cfg(feature = "skills")]
    #[must_use]
    pub fn skill(mut self, skill: Skill) -> Self {
        self.skills.retain(|known| known.name() != skill.name());
        self.skills.push(skill);
        self
    }

    /// Allows the agent to call another agent with the tool `call-agent`. The other agent's
    /// events are part of the run. Its name must be unique within the runtime.
    ///
    /// ```
    /// use wellspring::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), wellspring::ThinkError> {
    /// let poet = Agent::model(Scripted::new([Say::new().text("Roses are red.")]))
    ///     .named("poet")
    ///     .description("Writes verses.");
    /// # let model = Scripted::new([
    /// #     Say::new().call("call-agent", json!({"agentId": "poet", "input": "A line, please."})),
    /// #     Say::new().text("It says: roses are red."),
    /// # ]);
    /// let host = Agent::model(model).named("host").sub_agent(&poet);
    /// assert_eq!(host.say("A verse!").run().await?, "It says: roses are red.");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn sub_agent(mut self, agent: &Self) -> Self {
        let name = agent.def.name.clone();
        let (def, sub_agents) = agent.ready();
        self.sub_agents.extend(sub_agents);
        self.sub_agents.insert(name.clone(), def);
        let names = &mut self.change().sub_agents;
        names.retain(|known| *known != name);
        names.push(name);
        self
    }

    /// Sets the approval policy of its tools.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.change().policy = policy;
        self
    }

    /// Adds a principal who may answer its questions, in addition to the one that started the
    /// run.
    #[must_use]
    pub fn approver(mut self, name: impl Into<Box<str>>) -> Self {
        self.change().approvers.push(name.into());
        self
    }

    /// Sets the limits of a run, such as turns and tokens.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.change().limits = limits;
        self
    }

    /// Sets the time limits.
    #[must_use]
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.change().timeouts = timeouts;
        self
    }

    /// Sets the model's settings.
    #[must_use]
    pub fn settings(mut self, settings: ModelSettings) -> Self {
        self.change().settings = settings;
        self
    }

    /// Sets whether the model streams [default: `true`].
    #[must_use]
    pub fn streaming(mut self, streaming: bool) -> Self {
        self.change().streaming = streaming;
        self
    }

    /// Sets whether parallel calls wait for the sequential calls before them in the same turn.
    /// They do by default, so that a read never runs before an earlier write.
    #[must_use]
    pub fn tool_order(mut self, order: ToolOrder) -> Self {
        self.change().tool_order = order;
        self
    }

    /// Sets how the calls of a tool are queued, overriding the tool's own settings.
    #[must_use]
    pub fn queue_rule(mut self, tool: impl Into<Box<str>>, rule: QueueRule) -> Self {
        self.change().queue_rules.insert(tool.into(), rule);
        self
    }

    /// Sets whether its tools may run concurrently, or one by one.
    #[must_use]
    pub fn queue(mut self, mode: ToolMode) -> Self {
        self.change().queue = mode;
        self
    }

    /// Sets what happens to a request while its thread has an unfinished run [default: it
    /// waits]. Waiting is the default because a result is available before its run has ended,
    /// and the next request may follow at once.
    #[must_use]
    pub fn when_busy(mut self, when_busy: WhenBusy) -> Self {
        self.change().when_busy = when_busy;
        self
    }

    /// Adds hooks, which are called during runs.
    #[must_use]
    pub fn hooks(mut self, hooks: impl Hooks + 'static) -> Self {
        self.change().hooks = Some(Arc::new(hooks));
        self
    }

    /// Keeps its runs in this log, with a new runtime.
    #[must_use]
    pub fn log(self, log: Log) -> Self {
        self.runtime(Runtime::new(log))
    }

    /// Runs it in this runtime, together with other agents.
    #[must_use]
    pub fn runtime(mut self, runtime: Runtime) -> Self {
        self.runtime = runtime;
        self
    }

    /// The agent's definition.
    #[must_use]
    pub fn def(&self) -> &AgentDef {
        &self.def
    }

    /// The agent's runtime.
    #[must_use]
    pub fn engine(&self) -> &Runtime {
        &self.runtime
    }

    /// Starts a request with a typed result. The schema is derived from the type, and the
    /// result is validated against it.
    ///
    /// The type need not be a struct: `think::<Vec<String>>()` and `think::<u32>()` work too.
    ///
    /// The model returns the result by calling a tool named `return_result`, whose arguments are
    /// the result; a result that is not an object is its argument `value`. A [`Scripted`] model
    /// does the same: `Say::new().call("return_result", json!({"value": 42}))`.
    ///
    /// [`Scripted`]: crate::models::Scripted
    pub fn think<T: DeserializeOwned + JsonSchema>(&self) -> Think<T> {
        Think::typed(self.clone())
    }

    /// Starts a request whose result matches a JSON schema that is only known at run time.
    ///
    /// ```
    /// use wellspring::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ThinkError> {
    /// # let agent = Agent::model(Scripted::new([
    /// #     Say::new().call("return_result", json!({"city": "Oslo"})),
    /// # ]));
    /// let schema = json!({
    ///     "type": "object",
    ///     "properties": {"city": {"type": "string"}},
    ///     "required": ["city"],
    /// });
    /// let place = agent.think_json(schema).text("Where is the opera?").run().await?;
    /// assert_eq!(place["city"], "Oslo");
    /// # Ok(())
    /// # }
    /// ```
    pub fn think_json(&self, schema: Value) -> Think<Value> {
        Think::json(self.clone(), schema)
    }

    /// Starts a request with a text; the result is the answer's text.
    pub fn say(&self, text: impl AsRef<str>) -> Think<String> {
        Think::untyped(self.clone()).text(text)
    }

    /// Starts a conversation.
    #[must_use]
    pub fn thread(&self) -> Thread {
        self.open_thread(ThreadId::new(Uuid::now_v7()))
    }

    /// Continues a conversation from the log.
    #[must_use]
    pub fn open_thread(&self, thread: ThreadId) -> Thread {
        Thread::new(self.clone(), thread)
    }

    /// Attaches to a run, active or finished: its events from the start, and its result.
    ///
    /// ```
    /// use wellspring::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), wellspring::ThinkError> {
    /// let agent = Agent::model(Scripted::new([Say::new().text("Hello again.")]));
    /// let run = agent.say("Hi").stream().run_id().await?; // and forget the stream
    ///
    /// let again = agent.attach::<String>(run);
    /// let events: Vec<_> = again.collect().await;
    /// assert_eq!(events, ["Hello ", "again."].map(|text| ThoughtEvent::Message { text: text.into() }));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A run that lost its process is only read; [`recover`](Self::recover) continues it.
    #[must_use]
    pub fn attach<T: DeserializeOwned>(&self, run: RunId) -> ThoughtStream<T> {
        let which = Which::Old(run);
        ThoughtStream::new(Following::begin(self.runtime.local(), which, None))
    }

    /// Registers the agent in its runtime under its name, so that it can be started by name and
    /// its runs can be recovered.
    pub fn register(&self) {
        let (def, sub_agents) = self.ready();
        for agent in sub_agents.into_values().chain([def]) {
            self.runtime.register((*agent).clone());
        }
    }

    /// Continues the runs that an earlier process left unfinished. Returns their ids. Register
    /// every other agent of the log first: a run whose agent is unknown is ended.
    ///
    /// The tools, skills and functions of a request are not in the log; a recovered run only
    /// has those of its agent.
    ///
    /// # Errors
    ///
    /// If the log cannot list those runs.
    pub async fn recover(&self) -> Result<Vec<RunId>, StoreError> {
        self.register();
        self.runtime.recover().await
    }

    /// The agent's definition for the engine, and those of the agents that it may call.
    pub(crate) fn ready(&self) -> (Arc<AgentDef>, BTreeMap<Box<str>, Arc<AgentDef>>) {
        let mut def = Arc::clone(&self.def);
        if !self.def.sub_agents.is_empty() {
            let callable = self.def.sub_agents.iter().filter_map(|name| self.sub_agents.get(name));
            let tool = call_agent(callable.map(|agent| (&*agent.name, &*agent.description)));
            let tools = &mut Arc::make_mut(&mut def).tools;
            tools.retain(|known| known.spec().name != tool.spec().name);
            tools.push(Arc::new(tool));
        }
        #[cfg(feature = "skills")]
        if !self.skills.is_empty() {
            skill::give(Arc::make_mut(&mut def), &self.skills);
        }
        (def, self.sub_agents.clone())
    }

    pub(crate) fn change(&mut self) -> &mut AgentDef {
        Arc::make_mut(&mut self.def)
    }
}

impl From<AgentDef> for Agent {
    /// An agent from a definition. Its runs are kept in memory.
    fn from(def: AgentDef) -> Self {
        Self {
            def: Arc::new(def),
            runtime: Runtime::new(Log::in_memory()),
            sub_agents: BTreeMap::new(),
            #[cfg(feature = "skills")]
            skills: Vec::new(),
        }
    }
}
