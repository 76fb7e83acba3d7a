//! use-ai's wire, for its unchanged clients, over Socket.IO and over a plain WebSocket.
//!
//! A [`Client`] handles the messages of one socket, whatever its transport: [`plain`] is a
//! WebSocket with bare JSON at `/use-ai`, [`socket_io`] is Socket.IO 4 at `/socket.io/`, which
//! begins with [`polling`] and usually changes to a WebSocket.
//!
//! A client names its threads and runs itself. A request that names a known run attaches to it,
//! and so does an answer to a run that the socket does not follow yet. That is how a client
//! continues after it lost its socket.
//!
//! # What is deliberately absent
//!
//! The client's history, as in AG-UI: the log is the history.

mod plain;
mod polling;
mod socket_io;

use std::collections::BTreeSet;
use std::sync::Mutex;

use axum::http::{Method, StatusCode, Uri};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;
use wellspring_core::{CancelWhen, RunId, RunRequest, ThreadId, WirePartId};
use wellspring_engine::{
    AgentDef, ClientId, Control, InThread, Permission, Principal, RequestKey, StartError, StartKey,
    StartRun, StartedAs,
};
use wellspring_wire::ag_ui::types::{Message, RunAgentInput};
use wellspring_wire::ag_ui::{Asked, Trust};
use wellspring_wire::use_ai::types::{
    AbortRun, AgentInfo, Agents, Config, MessageFeedback, RunAgent, RunWorkflow,
};
use wellspring_wire::use_ai::{Answers, ClientMessage, MessageError, refusal};
use wellspring_wire::{
    Closed, DialectChoice, DialectName, Options, Reasoning, ReasoningEvents, WirePosition,
};

use super::Route;
use crate::app::{App, Trace};
use crate::error::ApiError;
use crate::lock;
use crate::socket::Step;
use crate::stream::{Begin, Readable, Until, Wanted};

pub(crate) use self::polling::PolledSessions;

/// The kind of the clients' run ids.
const RUNS: &str = "use-ai";

/// The kind of the clients' thread ids.
const THREADS: &str = "use-ai.thread";

pub(super) fn routes() -> Vec<Route> {
    let route = |method, path, scope, handler| Route { method, path, scope: Some(scope), handler };
    vec![
        route(Method::GET, "/use-ai", Permission::Read, get(plain::open)),
        route(Method::GET, "/socket.io/", Permission::Read, get(socket_io::open)),
        route(Method::POST, "/socket.io/", Permission::Read, post(polling::push)),
    ]
}

/// One client on one socket.
pub(super) struct Client {
    app: App,
    trace: Trace,
    dialect: DialectChoice,
    /// The runs whose events are sent to it.
    followed: Mutex<BTreeSet<RunId>>,
}

/// The options in the query string of a socket.
#[derive(Default, Deserialize)]
struct Choices {
    #[serde(default)]
    reasoning: ReasoningChoice,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ReasoningChoice {
    /// REASONING_*.
    #[default]
    Shown,
    /// THINKING_*.
    Thinking,
    Hidden,
}

/// The error of a message, and the run that it was about.
struct Refused {
    run: Option<Box<str>>,
    error: ApiError,
}

impl<E: Into<ApiError>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self { run: None, error: error.into() }
    }
}

type Steps = Vec<Step<RunId>>;

impl Client {
    fn new(app: App, trace: Trace, address: &Uri) -> Self {
        let chosen = axum::extract::Query::<Choices>::try_from_uri(address);
        let chosen = chosen.map_or(ReasoningChoice::default(), |it| it.0.reasoning);
        let options = Options {
            reasoning: match chosen {
                ReasoningChoice::Hidden => Reasoning::Hidden,
                ReasoningChoice::Shown | ReasoningChoice::Thinking => Reasoning::Shown,
            },
            reasoning_events: match chosen {
                ReasoningChoice::Thinking => ReasoningEvents::Thinking,
                ReasoningChoice::Shown | ReasoningChoice::Hidden => ReasoningEvents::Reasoning,
            },
            ..Options::default()
        };
        let dialect = DialectName::UseAi.with(options).unwrap_or(DialectName::UseAi.into());
        Self { app, trace, dialect, followed: Mutex::default() }
    }

    /// The agents that a client can choose from.
    fn agents(&self) -> Agents {
        let all = self.app.runtime.agents();
        let agents = all.iter().map(|def| AgentInfo {
            id: def.name.clone(),
            name: def.name.clone(),
            annotation: Some(def.description.clone()).filter(|it| !it.is_empty()),
        });
        Agents { agents: agents.collect(), default_agent: self.default_agent() }
    }

    fn config(&self) -> Config {
        Config { langfuse_enabled: true }
    }

    fn default_agent(&self) -> Box<str> {
        let all = self.app.runtime.agents();
        let configured = self.app.config.use_ai.default_agent.as_ref();
        let known = configured.filter(|name| all.iter().any(|def| def.name == **name));
        let first = || all.first().map(|def| def.name.clone());
        known.cloned().or_else(first).unwrap_or_default()
    }

    /// Handles a message. An error is sent as an event.
    async fn handle(
        &self,
        who: &Principal,
        message: Result<ClientMessage, MessageError>,
        event: impl Fn(&[u8]) -> String,
    ) -> Steps {
        let done = match message {
            Ok(message) => self.done(who, message).await,
            Err(error) => Err(Refused::from(ApiError::bad("bad_message", error.to_string()))),
        };
        done.unwrap_or_else(|Refused { run, error }| {
            self.app.metrics.error(error.code);
            vec![Step::Send(event(&error_event(run.as_deref(), &error)))]
        })
    }

    async fn done(&self, who: &Principal, message: ClientMessage) -> Result<Steps, Refused> {
        let control = self.app.control(who);
        match message {
            ClientMessage::RunAgent(asked) => {
                let name = asked.input.run_id.clone();
                self.run_agent(&control, *asked).await.map_err(|error| of(&name, error))
            }
            ClientMessage::RunWorkflow(asked) => {
                let name = asked.run_id.clone();
                self.run_workflow(&control, *asked).await.map_err(|error| of(&name, error))
            }
            ClientMessage::ToolResult(result) => {
                Ok(self.answer(&control, Answers::Result(&result)).await?)
            }
            ClientMessage::ToolApprovalResponse(response) => {
                Ok(self.answer(&control, Answers::Approval(&response)).await?)
            }
            ClientMessage::AbortRun(abort) => self.abort(&control, abort).await,
            ClientMessage::MessageFeedback(feedback) => {
                rate(&control, &feedback).await?;
                Ok(Vec::new())
            }
        }
    }

    async fn run_agent(&self, control: &Control, asked: RunAgent) -> Result<Steps, ApiError> {
        let RunAgent { input, agent } = asked;
        let agent = agent.unwrap_or_else(|| self.default_agent());
        let def = self.app.agent(&agent)?;
        let thread = thread_of(control, &input.thread_id);
        let name = &*input.run_id;
        // A request with a single user message usually starts a conversation. So nothing is looked
        // up; if the thread exists, starting the run fails.
        if thread.is_none() || matches!(&*input.messages, [Message::User(_)]) {
            let request = request_of(&input, &def, |_| false)?;
            let start =
                StartRun { thread, in_thread: InThread::New, ..StartRun::new(&*agent, request) };
            if let Some(steps) = self.start(control, start, name).await? {
                return Ok(steps);
            }
        }
        if let Some(run) = self.named(control, name).await? {
            return self.join_named(control, run, thread, name).await;
        }
        let runs = match thread {
            Some(thread) => Some(control.recent(thread).await?),
            None => None,
        };
        let is_known = |id: &str| runs.as_ref().is_some_and(|runs| runs.know_message(id));
        let request = request_of(&input, &def, is_known)?;
        let start = StartRun { thread, ..StartRun::new(&*agent, request) };
        self.start(control, start, name).await?.ok_or_else(|| ApiError::no_run(name))
    }

    /// Runs the agent that the configuration names for a workflow.
    async fn run_workflow(&self, control: &Control, asked: RunWorkflow) -> Result<Steps, ApiError> {
        let thread = thread_of(control, &asked.thread_id);
        if let Some(run) = self.named(control, &asked.run_id).await? {
            return self.join_named(control, run, thread, &asked.run_id).await;
        }
        let RunWorkflow { runner, workflow_id, .. } = &asked;
        let name = format!("{runner}/{workflow_id}");
        let Some(agent) = self.app.config.use_ai.workflows.get(&*name) else {
            let name: String = name.chars().take(128).collect();
            let message = format!("there is no workflow {name:?}");
            let remedy = "name its agent in `workflows` of the configuration's `[server.use_ai]`";
            return Err(ApiError::new(StatusCode::NOT_FOUND, "no_workflow", message, remedy));
        };
        let start = StartRun { thread, ..StartRun::new(&**agent, asked.request()) };
        let started = self.start(control, start, &asked.run_id).await?;
        started.ok_or_else(|| ApiError::no_run(&*asked.run_id))
    }

    /// Starts a run with the client's id and follows it; `None` if it was to be the thread's first
    /// and is not.
    async fn start(
        &self,
        control: &Control,
        start: StartRun,
        name: &str,
    ) -> Result<Option<Steps>, ApiError> {
        let asked_at = Instant::now();
        let thread = start.thread;
        let request = self.trace.clone().with(start.request);
        let key = (!name.is_empty()).then(|| StartKey::Client(ClientId::new(RUNS, name)));
        let started = match control.start(StartRun { key, request, ..start }).await {
            Err(StartError::NotFirst) => return Ok(None),
            started => started?,
        };
        let run = started.run;
        let steps = match started.how {
            StartedAs::New => {
                self.app.metrics.run_started();
                let cursor = control.read_started(started).await?;
                let start = Begin::After(WirePosition::START);
                self.follow(control, Readable::At(cursor), start, Some(asked_at)).await?
            }
            // The request became input of a run. If the client follows that run, it sees the input there.
            StartedAs::Input if lock(&self.followed).contains(&run) => Vec::new(),
            StartedAs::Input => self.join(control, run).await?,
            StartedAs::Existing { .. } => self.join_named(control, run, thread, name).await?,
        };
        Ok(Some(steps))
    }

    /// Passes on an answer to a run that waits for it.
    async fn answer(&self, control: &Control, answers: Answers<'_>) -> Result<Steps, ApiError> {
        let not_waiting =
            |id: &str| MessageError::NotWaiting { id: id.chars().take(128).collect() };
        let run = answers.run().ok_or_else(|| ApiError::from(not_waiting(answers.id())))?;
        let outline = control.waiting(run).await?.outline;
        let commands = answers.commands(&outline)?;
        control.respond(run, commands, RequestKey::Fresh).await?;
        if lock(&self.followed).contains(&run) {
            return Ok(Vec::new());
        }
        self.join(control, run).await
    }

    /// Stops a run, or all that this socket follows. Their streams report that they were stopped.
    async fn abort(&self, control: &Control, abort: AbortRun) -> Result<Steps, Refused> {
        let runs: Vec<RunId> = match &abort.run_id {
            None => lock(&self.followed).iter().copied().collect(),
            Some(name) => {
                let error = |error: ApiError| of(name, error);
                let run = match self.named(control, name).await.map_err(error)? {
                    Some(run) => run,
                    None => crate::app::run_id(name).map_err(error)?,
                };
                vec![run]
            }
        };
        let mut steps = Vec::new();
        for run in runs {
            let stopped = control.stop(run, CancelWhen::Now, Some("aborted by the user")).await;
            let name = abort.run_id.as_deref().unwrap_or_default();
            stopped.map_err(|error| of(name, error.into()))?;
            if !lock(&self.followed).contains(&run) {
                steps.extend(self.join(control, run).await?);
            }
        }
        Ok(steps)
    }

    /// The run with the client's id; `None` if it does not exist.
    async fn named(&self, control: &Control, name: &str) -> Result<Option<RunId>, ApiError> {
        if name.is_empty() {
            return Ok(None);
        }
        Ok(control.resolve(&ClientId::new(RUNS, name)).await?)
    }

    /// Joins the run that has the client's run id. If it is in another thread, this is a different
    /// request, which would be lost.
    async fn join_named(
        &self,
        control: &Control,
        run: RunId,
        thread: Option<ThreadId>,
        name: &str,
    ) -> Result<Steps, ApiError> {
        let info = control.info(run).await?;
        if thread.is_some_and(|thread| thread != info.thread) {
            return Err(ApiError::run_exists(name));
        }
        self.join(control, run).await
    }

    /// Sends the client the current state of a run, and the events that follow.
    async fn join(&self, control: &Control, run: RunId) -> Result<Steps, ApiError> {
        let run = Readable::Run(control.info(run).await?);
        self.follow(control, run, Begin::Join { at: None, called: None }, None).await
    }

    async fn follow(
        &self,
        control: &Control,
        readable: Readable,
        start: Begin,
        asked_at: Option<Instant>,
    ) -> Result<Steps, ApiError> {
        let (run, dialect) = (readable.id(), self.dialect.clone());
        let wanted = Wanted { run: readable, dialect, start, until: Until::End };
        let stream = self.app.subscribe(control.principal(), wanted, asked_at).await?;
        lock(&self.followed).insert(run);
        let again = Step::Unsubscribe { key: run, done: None, unknown: None };
        let subscribe =
            Step::Subscribe { key: run, stream: Box::new(stream), credit: None, done: None };
        Ok(vec![again, subscribe])
    }

    /// The run's stream has ended.
    fn ended(&self, run: RunId) {
        lock(&self.followed).remove(&run);
    }
}

/// The request for a run. It never contains answers: results and approvals are separate messages.
fn request_of(
    input: &RunAgentInput,
    def: &AgentDef,
    is_known: impl Fn(&str) -> bool,
) -> Result<RunRequest, ApiError> {
    let request = match Asked::read(input, None, is_known, Trust::User)? {
        Asked::Start(request) => *request,
        Asked::Answer { .. } => return Err(ApiError::bad("no_input", "nothing is asked")),
    };
    if request.input.is_empty() {
        return Err(ApiError::bad("no_input", "no message of a user is new"));
    }
    let model = request.model.clone().filter(|_| def.allow_model);
    Ok(RunRequest { model, ..request })
}

/// Stores a user's rating of an answer.
async fn rate(control: &Control, feedback: &MessageFeedback) -> Result<(), ApiError> {
    let MessageFeedback { message_id, trace_id, feedback } = feedback;
    let Ok(WirePartId { run, part }) = message_id.parse() else {
        let id: String = message_id.chars().take(128).collect();
        return Err(ApiError::bad("no_message", format!("there is no message {id:?}")));
    };
    Ok(control.rate(run, Some(part), feedback.as_deref(), trace_id.as_deref()).await?)
}

fn thread_of(control: &Control, name: &str) -> Option<ThreadId> {
    (!name.is_empty()).then(|| control.thread(&ClientId::new(THREADS, name)))
}

fn of(run: &str, error: ApiError) -> Refused {
    let run: String = run.chars().take(128).collect();
    Refused { run: Some(run.into()), error }
}

/// An error as an event.
fn error_event(run: Option<&str>, error: &ApiError) -> Vec<u8> {
    let ApiError { code, message, remedy, .. } = error;
    let refusal = refusal(&Closed { code, message, remedy }, run);
    // Strings always have a JSON form.
    serde_json::to_vec(&refusal).unwrap_or_default()
}

fn json(value: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_else(|_| Value::Null.to_string().into_bytes())
}

impl From<MessageError> for ApiError {
    fn from(error: MessageError) -> Self {
        Self::bad("bad_message", error.to_string())
    }
}
