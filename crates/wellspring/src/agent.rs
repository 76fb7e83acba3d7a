//! Agents: who is asked.

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

/// An agent: a model, or an agent elsewhere, with its tools and its rules.
///
/// It is configured by saying what it should have, and cheap to clone. A clone that is
/// configured further is another agent over the same log.
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
    /// Those it may call, and those they may call.
    sub_agents: BTreeMap<Box<str>, Arc<AgentDef>>,
    #[cfg(feature = "skills")]
    skills: Vec<Skill>,
}

impl Agent {
    /// An agent around a model, called what the model is called. Its runs are kept in memory,
    /// up to [`MEMORY_BYTES_MAX`](wellspring_log::MEMORY_BYTES_MAX); beyond, the oldest finished
    /// runs are forgotten.
    #[must_use]
    pub fn model(model: impl Model + 'static) -> Self {
        let name: Box<str> = model.name().into();
        AgentDef { when_busy: WhenBusy::Queue, ..AgentDef::model(name, Arc::new(model)) }.into()
    }

    /// An agent that lives elsewhere. Its runs are kept in memory.
    #[must_use]
    pub fn remote(agent: impl RemoteAgent + 'static) -> Self {
        let name: Box<str> = agent.name().into();
        AgentDef { when_busy: WhenBusy::Queue, ..AgentDef::remote(name, Arc::new(agent)) }.into()
    }

    /// An agent that speaks the Agent Client Protocol, by its name (`claude`, `codex`, `gemini`,
    /// `opencode`, `goose`, `kiro`, `auggie`: from the PATH, or by `npx`), by a command, or by a
    /// URL. It is started at once, and ends when the last clone is dropped. Its runs are kept in
    /// memory.
    ///
    /// It has tools of its own, and ours too; it asks before it changes things, and these
    /// questions are answered like any others ([`Think::on_question`]), or by a
    /// [policy](Self::policy).
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
    /// When it is not installed, does not start, or speaks another version of the protocol.
    #[cfg(feature = "acp")]
    pub async fn open(agent: impl AsRef<str>) -> Result<Self, AcpError> {
        Self::open_with(agent.as_ref().parse()?).await
    }

    /// The same, with more to say about it: its environment, its directory, its mode.
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

    /// Calls it something else: in the log, and for agents that call it.
    #[must_use]
    pub fn named(mut self, name: impl Into<Box<str>>) -> Self {
        self.change().name = name.into();
        self
    }

    /// Says what it is good for: in lists, and to agents that may call it.
    #[must_use]
    pub fn description(mut self, description: impl Into<Box<str>>) -> Self {
        self.change().description = description.into();
        self
    }

    /// Tells it what to be.
    #[must_use]
    pub fn instructions(mut self, instructions: impl Into<Arc<str>>) -> Self {
        self.change().instructions = instructions.into();
        self
    }

    /// Gives it a tool. Names must differ: with two tools of the same name, no run starts
    /// ([`ThinkError::DuplicateTool`](crate::ThinkError::DuplicateTool)).
    #[must_use]
    pub fn tool<M>(mut self, tool: impl IntoTool<M>) -> Self {
        self.change().tools.push(tool.into_tool());
        self
    }

    /// Gives it a skill; one of the same name is replaced.
    #[cfg(feature = "skills")]
    #[must_use]
    pub fn skill(mut self, skill: Skill) -> Self {
        self.skills.retain(|known| known.name() != skill.name());
        self.skills.push(skill);
        self
    }

    /// Lets it call another agent, by the tool `call-agent`. The other's events join the run.
    /// The other keeps its name, which must be its own within the runtime.
    ///
    /// ```
    /// use wellspring::prelude::*;
    /// # use serde_json::json;
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

    /// Says what its tools may do without asking.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.change().policy = policy;
        self
    }

    /// Lets somebody else than the asker answer its questions.
    #[must_use]
    pub fn approver(mut self, name: impl Into<Box<str>>) -> Self {
        self.change().approvers.push(name.into());
        self
    }

    /// Limits what a run may spend.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.change().limits = limits;
        self
    }

    /// Limits how long things may take.
    #[must_use]
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.change().timeouts = timeouts;
        self
    }

    /// Says how the model should answer.
    #[must_use]
    pub fn settings(mut self, settings: ModelSettings) -> Self {
        self.change().settings = settings;
        self
    }

    /// Whether the model streams. It does unless told otherwise.
    #[must_use]
    pub fn streaming(mut self, streaming: bool) -> Self {
        self.change().streaming = streaming;
        self
    }

    /// Says whether parallel calls wait for the sequential calls before them in the same turn.
    /// They do by default, so that a model never reads before its own write.
    #[must_use]
    pub fn tool_order(mut self, order: ToolOrder) -> Self {
        self.change().tool_order = order;
        self
    }

    /// Queues the calls of a tool in this way, whatever the tool says.
    #[must_use]
    pub fn queue_rule(mut self, tool: impl Into<Box<str>>, rule: QueueRule) -> Self {
        self.change().queue_rules.insert(tool.into(), rule);
        self
    }

    /// Runs its tools beside each other, as they allow it, or one by one.
    #[must_use]
    pub fn queue(mut self, mode: ToolMode) -> Self {
        self.change().queue = mode;
        self
    }

    /// Says what becomes of a request while its thread has an unfinished run. It waits its
    /// turn unless told otherwise: a result is there before its run has ended, and the next
    /// request may follow it at once.
    #[must_use]
    pub fn when_busy(mut self, when_busy: WhenBusy) -> Self {
        self.change().when_busy = when_busy;
        self
    }

    /// Has a program told while runs go on, besides the log.
    #[must_use]
    pub fn hooks(mut self, hooks: impl Hooks + 'static) -> Self {
        self.change().hooks = Some(Arc::new(hooks));
        self
    }

    /// Keeps its runs in this log, with a runtime of its own.
    #[must_use]
    pub fn log(self, log: Log) -> Self {
        self.runtime(Runtime::new(log))
    }

    /// Runs it here, beside the other agents of the runtime.
    #[must_use]
    pub fn runtime(mut self, runtime: Runtime) -> Self {
        self.runtime = runtime;
        self
    }

    /// What it is made of.
    #[must_use]
    pub fn def(&self) -> &AgentDef {
        &self.def
    }

    /// Where it runs.
    #[must_use]
    pub fn engine(&self) -> &Runtime {
        &self.runtime
    }

    /// Asks for a typed result. The schema comes from the type, and the agent is held to it.
    ///
    /// The type need not be a struct: `think::<Vec<String>>()` and `think::<u32>()` do too.
    pub fn think<T: DeserializeOwned + JsonSchema>(&self) -> Think<T> {
        Think::typed(self.clone())
    }

    /// Asks for a result that fits a JSON schema which is only known at run time.
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

    /// Says something; the result is the answer's text.
    pub fn say(&self, text: impl AsRef<str>) -> Think<String> {
        Think::untyped(self.clone()).text(text)
    }

    /// Begins a conversation.
    #[must_use]
    pub fn thread(&self) -> Thread {
        self.open_thread(ThreadId::new(Uuid::now_v7()))
    }

    /// Goes on with a conversation that is in the log.
    #[must_use]
    pub fn open_thread(&self, thread: ThreadId) -> Thread {
        Thread::new(self.clone(), thread)
    }

    /// Comes back to a run, going on or over: its events from the start, and its result.
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
    /// A run that lost its process is only read; [`recover`](Self::recover) goes on with it.
    #[must_use]
    pub fn attach<T: DeserializeOwned>(&self, run: RunId) -> ThoughtStream<T> {
        let which = Which::Old(run);
        ThoughtStream::new(Following::begin(self.runtime.local(), which, None))
    }

    /// Makes it known by its name to whoever shares its runtime: they can start it, and its
    /// runs can be recovered.
    pub fn register(&self) {
        let (def, sub_agents) = self.ready();
        for agent in sub_agents.into_values().chain([def]) {
            self.runtime.register((*agent).clone());
        }
    }

    /// Goes on with the runs that an earlier process left unfinished, and gives their ids.
    /// Register every other agent of the log first: a run whose agent nobody knows is ended.
    ///
    /// What a request had brought along (tools, skills, functions that answer) is not in the
    /// log; a recovered run has what its agent has.
    ///
    /// # Errors
    ///
    /// When the log cannot say which those are.
    pub async fn recover(&self) -> Result<Vec<RunId>, StoreError> {
        self.register();
        self.runtime.recover().await
    }

    /// The agent as the engine takes it, and those it may call.
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
    /// An agent that was put together elsewhere. Its runs are kept in memory.
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
