//! A request: its input, its tools and its options.

use std::collections::BTreeSet;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use wellspring_core::{
    Answer, CancellationToken, Content, ContextNote, Model, Question, RunId, RunRequest, ThreadId,
    Tool,
};
use wellspring_engine::{Backend, Limits, Principal, StartRun};

use crate::agent::Agent;
use crate::error::ThinkError;
use crate::events::{Filter, ThoughtKind};
use crate::follow::{Following, Which};
use crate::prompt::Prompt;
use crate::question::{Answering, OnQuestion};
#[cfg(feature = "skills")]
use crate::skill::Skill;
use crate::stream::ThoughtStream;
use crate::thread::Thread;
use crate::tool::{IntoTool, schema};

/// A request to an agent. Describe it, then [`stream`](Self::stream) or [`run`](Self::run) it.
///
/// ```
/// use serde::Deserialize;
/// use wellspring::prelude::*;
///
/// #[derive(Debug, Deserialize, JsonSchema, PartialEq)]
/// enum Verdict { Merge, Rework }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), wellspring::ThinkError> {
/// # let agent = Agent::model(Scripted::new([
/// #     Say::new().call("return_result", json!({"value": "Merge"})),
/// # ]));
/// let verdict = agent
///     .think::<Verdict>()
///     .textln("Is this change fine?")
///     .quote("- let x = 1;\n+ let x = 2;")
///     .run()
///     .await?;
/// assert_eq!(verdict, Verdict::Merge);
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is asked before `stream` or `run`"]
pub struct Think<T> {
    agent: Agent,
    who: Principal,
    prompt: Prompt,
    request: RunRequest,
    thread: Option<ThreadId>,
    after: Option<RunId>,
    filter: Filter,
    signal: Option<CancellationToken>,
    on_question: OnQuestion,
    result: PhantomData<fn() -> T>,
}

impl<T: JsonSchema> Think<T> {
    pub(crate) fn typed(agent: Agent) -> Self {
        let request =
            RunRequest { result_schema: Some(schema::<T>().to_value()), ..RunRequest::default() };
        Self::new(agent, request)
    }
}

impl Think<Value> {
    pub(crate) fn json(agent: Agent, schema: Value) -> Self {
        Self::new(agent, RunRequest { result_schema: Some(schema), ..RunRequest::default() })
    }
}

impl Think<String> {
    pub(crate) fn untyped(agent: Agent) -> Self {
        Self::new(agent, RunRequest::default())
    }
}

impl<T> Think<T> {
    fn new(agent: Agent, request: RunRequest) -> Self {
        Self {
            agent,
            who: Principal::local(),
            prompt: Prompt::default(),
            request,
            thread: None,
            after: None,
            filter: Filter::default(),
            signal: None,
            on_question: OnQuestion::Deny,
            result: PhantomData,
        }
    }

    /// Adds text.
    pub fn text(mut self, text: impl AsRef<str>) -> Self {
        self.prompt.text(text.as_ref());
        self
    }

    /// Adds text and a line break.
    pub fn textln(mut self, text: impl AsRef<str>) -> Self {
        self.prompt.line(text.as_ref());
        self
    }

    /// Adds quoted text. Each line is marked, so that the model does not take it for yours.
    pub fn quote(mut self, text: impl AsRef<str>) -> Self {
        self.prompt.quote(text.as_ref());
        self
    }

    /// Adds a block of code.
    pub fn code(mut self, language: impl AsRef<str>, source: impl AsRef<str>) -> Self {
        self.prompt.code(language.as_ref(), source.as_ref());
        self
    }

    /// Adds an image, a file or a link.
    pub fn content(mut self, content: Content) -> Self {
        self.prompt.push(content);
        self
    }

    /// Adds context in addition to the input, such as the contents of the screen.
    pub fn note(mut self, description: impl Into<Box<str>>, value: impl Into<Box<str>>) -> Self {
        let note = ContextNote { description: description.into(), value: value.into() };
        self.request.context.push(note);
        self
    }

    /// Sets the working directory of the request. It is part of the instructions, remote agents
    /// run in it, and tools find it in [`Context::cwd`](wellspring_core::Context::cwd). The
    /// built-in tools stay within the root that they were created with.
    pub fn cwd(mut self, path: impl Into<Box<str>>) -> Self {
        self.request.cwd = Some(path.into());
        self
    }

    /// Adds a tool for this run. If the agent has a tool of the same name, the run does not
    /// start: [`ThinkError::DuplicateTool`].
    pub fn tool<M>(mut self, tool: impl IntoTool<M>) -> Self {
        self.agent = self.agent.tool(tool);
        self
    }

    /// Adds a skill for this run.
    #[cfg(feature = "skills")]
    pub fn skill(mut self, skill: Skill) -> Self {
        self.agent = self.agent.skill(skill);
        self
    }

    /// Uses another model for this run.
    pub fn model(mut self, model: impl Model + 'static) -> Self {
        self.agent.change().backend = Backend::Model(Arc::new(model));
        self
    }

    /// Uses another model of the same provider for this run.
    pub fn model_name(mut self, name: impl Into<Box<str>>) -> Self {
        self.request.model = Some(name.into());
        self.agent.change().allow_model = true;
        self
    }

    /// Sets the limits of this run.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.agent = self.agent.limits(limits);
        self
    }

    /// Sets whether the model streams in this run.
    pub fn streaming(mut self, streaming: bool) -> Self {
        self.request.streaming = Some(streaming);
        self
    }

    /// Continues a conversation: the agent gets its earlier messages.
    pub fn thread(mut self, thread: &Thread) -> Self {
        self.thread = Some(thread.id());
        self
    }

    /// Continues this run of the thread instead of the latest one, for example after an edit.
    pub fn continuing(mut self, run: RunId) -> Self {
        self.after = Some(run);
        self
    }

    /// Sets the principal that starts the run. Only it and the named
    /// [approvers](Agent::approver) can answer the run's questions.
    pub fn by(mut self, name: impl Into<Box<str>>) -> Self {
        self.who = self.who.named(&*name.into());
        self
    }

    /// Sets the trace id of the run.
    pub fn trace_id(mut self, trace: impl Into<Box<str>>) -> Self {
        self.request.trace_id = Some(trace.into());
        self
    }

    /// Yields only events of these kinds. This does not affect the result.
    pub fn include(mut self, kinds: impl IntoIterator<Item = ThoughtKind>) -> Self {
        self.filter = Filter::only(kinds);
        self
    }

    /// Cancels the run when the token is cancelled, also after the stream was dropped. A
    /// token's [`drop_guard`](CancellationToken::drop_guard) limits the run to a scope.
    pub fn signal(mut self, signal: CancellationToken) -> Self {
        self.signal = Some(signal);
        self
    }

    /// Answers every question of the run with a function. Questions are asked before a tool
    /// that can change things runs, and by tools themselves.
    ///
    /// **Without this, every question is denied at once**, the model gets the reason, and a
    /// warning is logged, because a program that never answers should not wait for a day. To
    /// answer through the [stream](ThoughtStream::questions), call
    /// [`wait_for_answers`](Self::wait_for_answers). The questions of an agent with
    /// [approvers](Agent::approver) always wait. To let tools run without approval, give the
    /// agent a [policy](Agent::policy).
    ///
    /// ```
    /// use wellspring::prelude::*;
    /// use wellspring::tools::{NoArguments, function};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), wellspring::ThinkError> {
    /// # let model = Scripted::new([
    /// #     Say::new().call("deploy", json!({})),
    /// #     Say::new().text("It is live."),
    /// # ]);
    /// let deploy = function("deploy", "Puts it live.", async |_: NoArguments, _| Ok("done"))
    ///     .kind(ToolKind::Execute);
    /// let answer = Agent::model(model)
    ///     .say("Deploy it.")
    ///     .tool(deploy)
    ///     .on_question(async |question| {
    ///         assert_eq!(&*question.prompt, "Allow deploy {}?");
    ///         Answer::yes()
    ///     })
    ///     .run()
    ///     .await?;
    /// assert_eq!(answer, "It is live.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_question<F, Fut>(mut self, answer: F) -> Self
    where
        F: Fn(Question) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Answer> + Send + 'static,
    {
        let answering: Answering = Arc::new(move |question| Box::pin(answer(question)));
        self.on_question = OnQuestion::Answer(answering);
        self
    }

    /// Lets questions wait for an answer, at most as long as
    /// [`Timeouts::question`](wellspring_engine::Timeouts::question), instead of denying them at
    /// once. Answer them through the stream ([`ThoughtStream::questions`]), through a handle
    /// that is [attached](Agent::attach), or from another surface.
    pub fn wait_for_answers(mut self) -> Self {
        self.on_question = OnQuestion::Wait;
        self
    }

    /// Starts the run at once. It continues whether or not you iterate or await.
    ///
    /// Call this within a Tokio runtime. Outside of one, the run is not started, and the result
    /// is [`ThinkError::NoRuntime`].
    #[must_use = "the run goes on without it, but this is how to see what it does"]
    pub fn stream(self) -> ThoughtStream<T> {
        let (def, sub_agents) = self.agent.ready();
        let runtime = self.agent.engine().clone();
        if let Some(name) = duplicate(&def.tools) {
            let following =
                Following::failed(runtime.control(self.who), ThinkError::DuplicateTool { name });
            return ThoughtStream::new(following);
        }
        let has_approvers = !def.approvers.is_empty();
        for agent in sub_agents.into_values() {
            runtime.register((*agent).clone());
        }
        let request = RunRequest { input: self.prompt.into_content(), ..self.request };
        let mut start = StartRun::new(def, request);
        start.thread = self.thread;
        start.after = self.after;
        let which = Which::New(Box::new(start));
        let following = Following::begin(runtime.control(self.who), which, self.signal);
        match self.on_question {
            OnQuestion::Answer(answering) => following.answer_all(answering),
            OnQuestion::Deny if !has_approvers => following.answer_all(crate::question::deny()),
            OnQuestion::Deny | OnQuestion::Wait => {}
        }
        ThoughtStream::new(following).filtered(self.filter)
    }
}

impl<T: DeserializeOwned> Think<T> {
    /// Starts the run and waits for its result: `stream().result()`.
    ///
    /// # Errors
    ///
    /// As [`ThoughtStream::result`].
    pub async fn run(self) -> Result<T, ThinkError> {
        self.stream().result().await
    }
}

/// The first name that two tools share; `None` if names are unique.
fn duplicate(tools: &[Arc<dyn Tool>]) -> Option<Box<str>> {
    let mut names = BTreeSet::new();
    let name = |tool: &Arc<dyn Tool>| tool.spec().name.clone();
    tools.iter().map(name).find(|name| !names.insert(name.clone()))
}

impl<T> fmt::Debug for Think<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Think")
            .field("agent", &self.agent)
            .field("prompt", &self.prompt)
            .finish_non_exhaustive()
    }
}
