//! AG-UI 1.0 at `/ag-ui/{agent}`, for stock clients, as SSE or protobuf.
//!
//! A client chooses the ids of its threads and runs; we map them to our runs, per tenant. The
//! protocol cannot resume a stream, so a request with a known run id attaches to that run: the
//! client gets a run that starts now, with everything so far. A run that waits for the client
//! finishes on this wire, and continues under the client's next run id when the answer arrives.
//!
//! # What is deliberately absent
//!
//! The client's history: the log is the history. Of a request, only new user messages and answers
//! to open questions and calls are used.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Json};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use wellspring_core::{
    CancelWhen, Command, Event, QuestionId, RunId, RunRequest, Seq, ThreadId, Transcript,
    canonical_json,
};
use wellspring_engine::{
    AgentDef, ClientId, Control, InThread, Permission, RequestKey, StartError, StartKey, StartRun,
    StartedAs,
};
use wellspring_log::{Cursor, RunInfo, RunState};
use wellspring_wire::ag_ui::types::{Message, RunAgentInput};
use wellspring_wire::ag_ui::{AgUiBinary, Asked, InputError, Trust};
use wellspring_wire::{DialectChoice, DialectName, Encoding, Options, WirePosition};

use super::Route;
use super::native::wants;
use crate::app::{App, JsonBody, MayRead, MayRun, Params, Trace, run_id};
use crate::error::ApiError;
use crate::stream::{Begin, Readable, Until, Wanted};

/// The kind of the clients' run ids.
const RUNS: &str = "ag-ui";

/// The kind of the clients' thread ids.
const THREADS: &str = "ag-ui.thread";

/// The kind of the ids of answers: digests, so that a repeated request is recognised.
const ANSWERS: &str = "ag-ui.answers";

/// How long to wait until a running run has taken an answer. Usually that is immediate; after a
/// crash it takes until another process adopts the run.
const ANSWERS_TAKEN_TIME: Duration = Duration::from_secs(10);

pub(super) fn routes() -> Vec<Route> {
    let route = |method, path, scope, handler| Route { method, path, scope: Some(scope), handler };
    vec![
        route(Method::POST, "/ag-ui/{agent}", Permission::Run, post(run)),
        route(Method::GET, "/ag-ui/{agent}/runs/{run}", Permission::Read, get(attach)),
        route(Method::POST, "/ag-ui/{agent}/runs/{run}/cancel", Permission::Run, post(cancel)),
    ]
}

/// Query parameters of a run.
#[derive(Deserialize)]
struct RunQuery {
    /// Another model of the agent's provider: stock clients can change their URL, but not always
    /// their body.
    model: Option<Box<str>>,
}

/// Runs an agent, answers a run that waits, or attaches to one that is known.
async fn run(
    State(app): State<App>,
    MayRun(who): MayRun,
    Path(agent): Path<String>,
    Params(query): Params<RunQuery>,
    Extension(trace): Extension<Trace>,
    headers: HeaderMap,
    JsonBody(input): JsonBody<RunAgentInput>,
) -> Result<Response, ApiError> {
    let asked_at = Instant::now();
    let dialect = dialect(&headers);
    let def = app.agent(&agent)?;
    // Both ids are optional.
    let control = app.control(&who);
    let run_name = (!input.run_id.is_empty()).then(|| ClientId::new(RUNS, &*input.run_id));
    let thread_name =
        (!input.thread_id.is_empty()).then(|| ClientId::new(THREADS, &*input.thread_id));
    let thread = thread_name.as_ref().map(|name| control.thread(name));
    let asked = Request {
        control: &control,
        agent: &agent,
        model: query.model.as_deref(),
        trace: &trace,
        input: &input,
        thread,
        name: run_name,
    };
    // A request with a single user message usually starts a conversation. So nothing is looked up;
    // if the thread exists, starting the run fails.
    let seems_new = matches!(&*input.messages, [Message::User(_)]) && input.resume.is_empty();
    let begun = if thread.is_none() || seems_new { asked.begin(&app, &def).await? } else { None };
    let begun = match (begun, thread) {
        (Some(begun), _) => begun,
        (None, Some(thread)) => asked.go_on(&app, &def, thread).await?,
        (None, None) => return Err(ApiError::no_run(&*input.run_id)),
    };
    let (after, cursor) = match begun {
        Begun::Follows { after, cursor } => (after, cursor),
        Begun::Joins { run, at } => {
            let name = Some(&*input.run_id).filter(|name| !name.is_empty());
            return joined(&app, &control, Joins { run, at, name }, dialect).await;
        }
    };
    let start = Begin::After(WirePosition::after(after));
    let wanted = Wanted { run: Readable::At(cursor), dialect, start, until: Until::Pause };
    Ok(app.stream(&who, wanted, Some(asked_at)).await?.into_response())
}

/// What a client asks of an agent.
struct Request<'a> {
    control: &'a Control,
    agent: &'a str,
    model: Option<&'a str>,
    trace: &'a Trace,
    input: &'a RunAgentInput,
    thread: Option<ThreadId>,
    name: Option<ClientId>,
}

/// The result of a request.
enum Begun {
    /// The cursor's run, from this record on.
    Follows { after: Seq, cursor: Cursor },
    /// An existing run: its state at that record, or its current state, and everything after it.
    Joins { run: RunId, at: Option<Seq> },
}

impl Request<'_> {
    /// Begins a conversation; `None` if the thread has runs already.
    async fn begin(&self, app: &App, def: &AgentDef) -> Result<Option<Begun>, ApiError> {
        match Asked::read(self.input, None, |_| false, Trust::User)? {
            Asked::Start(request) => self.start(app, def, *request, InThread::New).await,
            Asked::Answer { .. } => Ok(None),
        }
    }

    /// Continues a conversation, or begins it after all.
    async fn go_on(&self, app: &App, def: &AgentDef, thread: ThreadId) -> Result<Begun, ApiError> {
        let runs = self.control.recent(thread).await?;
        // If the thread has no runs, the run id is not in use there. `start` finds whether another
        // thread uses it.
        let latest = runs.latest();
        let named = match &self.name {
            Some(name) if latest.is_some() => self.control.resolve(name).await?,
            Some(_) | None => None,
        };
        // A run that waits for a remote agent's question is not paused.
        let may_wait = |info: &&RunInfo| match info.state {
            RunState::Paused => true,
            RunState::Running => !self.input.resume.is_empty(),
            RunState::Completed | RunState::Cancelled | RunState::Failed => false,
        };
        let waiting = match latest.filter(may_wait) {
            Some(info) => Some(self.control.waiting(info.run).await?),
            None => None,
        };
        let outline = waiting.as_ref().map(|waiting| &waiting.outline);
        let is_known = |id: &str| runs.know_message(id);
        let asked = Asked::read(self.input, outline, is_known, Trust::User);
        match (asked, named, latest, &waiting) {
            (Ok(Asked::Answer { commands }), _, Some(info), Some(waiting)) => {
                if named.is_some_and(|run| run != info.run) {
                    return Err(ApiError::run_exists(&self.input.run_id));
                }
                self.answer(info.run, waiting, commands).await
            }
            // A repeated request: everything in it has been done.
            (Ok(_), Some(run), ..) => self.join(run).await,
            (Err(InputError::NotOpen { .. }), Some(run), ..) => match self.resumed() {
                Some(same) if self.control.resolve(&same).await? != Some(run) => {
                    Err(ApiError::run_exists(&self.input.run_id))
                }
                Some(_) | None => self.join(run).await,
            },
            (Ok(Asked::Start(request)), None, ..) => {
                let begun = self.start(app, def, *request, InThread::Any).await?;
                begun.ok_or_else(|| ApiError::no_run(&*self.input.run_id))
            }
            (Ok(Asked::Answer { .. }), None, ..) => Err(ApiError::no_run(&*self.input.run_id)),
            (Err(error), ..) => Err(error.into()),
        }
    }

    /// Sends all answers to the run that waits for them, as one step.
    async fn answer(
        &self,
        run: RunId,
        waiting: &Transcript,
        commands: Vec<Command>,
    ) -> Result<Begun, ApiError> {
        let after = waiting.outline.head;
        let is_paused = waiting.outline.paused.is_some();
        // First check that the client may read the run, before anything changes.
        let cursor = self.control.attach(run, after).await?;
        if !is_paused {
            self.control.info(run).await?;
        }
        let answered = commands.iter().filter_map(answer_of).collect();
        self.control.respond(run, commands, RequestKey::Fresh).await?;
        if let Some(name) = &self.name {
            if let Some(resumed) = self.resumed() {
                self.control.name(&resumed, run).await?;
            }
            self.control.name(name, run).await?;
        }
        if is_paused {
            return Ok(Begun::Follows { after, cursor });
        }
        Ok(Begun::Joins { run, at: answers_taken(cursor, answered).await? })
    }

    /// An id of exactly these answers and the client's run id. It distinguishes a repeated request
    /// from another request that reuses the run id.
    fn resumed(&self) -> Option<ClientId> {
        let name = self.name.as_ref().filter(|_| !self.input.resume.is_empty())?;
        let resume = canonical_json(&self.input.resume);
        let mut hasher = Sha256::new();
        hasher.update((name.id.len() as u64).to_le_bytes());
        hasher.update(name.id.as_bytes());
        hasher.update(resume.as_bytes());
        Some(ClientId::new(ANSWERS, URL_SAFE_NO_PAD.encode(hasher.finalize())))
    }

    /// Joins the run that has the client's run id. If it is another thread's or another agent's,
    /// this is a different request, which would be lost.
    async fn join(&self, run: RunId) -> Result<Begun, ApiError> {
        let info = self.control.info(run).await?;
        let same_thread = self.thread.is_none_or(|thread| thread == info.thread);
        if same_thread && *info.agent == *self.agent {
            Ok(Begun::Joins { run, at: None })
        } else {
            Err(ApiError::run_exists(&self.input.run_id))
        }
    }

    /// Starts a run; `None` if it was to be the thread's first and is not.
    async fn start(
        &self,
        app: &App,
        def: &AgentDef,
        request: RunRequest,
        in_thread: InThread,
    ) -> Result<Option<Begun>, ApiError> {
        if request.input.is_empty() {
            return Err(ApiError::bad("no_input", "no message of a user is new"));
        }
        let model = match self.model {
            // In the URL of this agent, so a model that it does not allow is an error.
            Some(model) => Some(model.into()),
            // Agents that do not allow it ignore a model in the props.
            None => request.model.filter(|_| def.allow_model),
        };
        let request = self.trace.clone().with(RunRequest { model, ..request });
        let start = StartRun {
            thread: self.thread,
            in_thread,
            key: self.name.clone().map(StartKey::Client),
            ..StartRun::new(self.agent, request)
        };
        let started = match self.control.start(start).await {
            Err(StartError::NotFirst) => return Ok(None),
            started => started?,
        };
        Ok(Some(match started.how {
            StartedAs::Existing { .. } => self.join(started.run).await?,
            StartedAs::New | StartedAs::Input => {
                app.metrics.run_started();
                let cursor = self.control.read_started(started).await?;
                Begun::Follows { after: Seq(0), cursor }
            }
        }))
    }
}

/// Waits until a running run has taken the answers, and returns the record of the last one. A
/// reader who joined earlier would see the questions as open. If no process takes the answers in
/// time, the stream shows just that.
async fn answers_taken(
    mut cursor: Cursor,
    mut missing: BTreeSet<QuestionId>,
) -> Result<Option<Seq>, ApiError> {
    if missing.is_empty() {
        return Ok(None);
    }
    let taken = async {
        while let Some(frames) = cursor.next().await? {
            for record in frames.iter().flat_map(|frame| frame.iter()) {
                if let Event::QuestionAnswered(answered) = &record.event
                    && missing.remove(&answered.question)
                    && missing.is_empty()
                {
                    return Ok(Some(record.seq));
                }
            }
        }
        Ok(None)
    };
    tokio::time::timeout(ANSWERS_TAKEN_TIME, taken).await.unwrap_or(Ok(None))
}

fn answer_of(command: &Command) -> Option<QuestionId> {
    match command {
        Command::Answer { question, .. } => Some(*question),
        Command::FinishCall { .. }
        | Command::Resume { .. }
        | Command::AddInput { .. }
        | Command::Cancel { .. } => None,
    }
}

/// Attaches to a run, by the client's id or by ours.
async fn attach(
    State(app): State<App>,
    MayRead(who): MayRead,
    Path((agent, run)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let control = app.control(&who);
    let run = named(&control, &agent, &run).await?;
    joined(&app, &control, Joins { run, at: None, name: None }, dialect(&headers)).await
}

/// Stops a run. (Closing a connection does not.)
async fn cancel(
    State(app): State<App>,
    MayRun(who): MayRun,
    Path((agent, run)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let control = app.control(&who);
    let run = named(&control, &agent, &run).await?;
    control.stop(run, CancelWhen::Now, None).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({}))).into_response())
}

/// A run of this agent, by the client's id or by ours.
async fn named(control: &Control, agent: &str, name: &str) -> Result<RunId, ApiError> {
    let run = match control.resolve(&ClientId::new(RUNS, name)).await? {
        Some(run) => run,
        None => run_id(name)?,
    };
    if control.agent_of(run).await? == agent.into() { Ok(run) } else { Err(ApiError::no_run(name)) }
}

/// A reader who joins a run.
struct Joins<'a> {
    run: RunId,
    /// The record at which to join; the latest if `None`.
    at: Option<Seq>,
    /// The run id in the client's request, which the response repeats.
    name: Option<&'a str>,
}

/// A run's state at a record, or its current state, and everything after it.
async fn joined(
    app: &App,
    control: &Control,
    joins: Joins<'_>,
    dialect: DialectChoice,
) -> Result<Response, ApiError> {
    let Joins { run, at, name } = joins;
    let run = Readable::Run(control.info(run).await?);
    let start = Begin::Join { at, called: name.map(Into::into) };
    let wanted = Wanted { run, dialect, start, until: Until::Pause };
    Ok(app.stream(control.principal(), wanted, None).await?.into_response())
}

/// SSE, unless the client takes only the binary encoding.
fn dialect(headers: &HeaderMap) -> DialectChoice {
    let binary = wants(headers, AgUiBinary::MEDIA_TYPE) && !wants(headers, "text/event-stream");
    let encoding = if binary { Encoding::Binary } else { Encoding::Json };
    let options = Options { encoding, ..Options::default() };
    DialectName::AgUi.with(options).unwrap_or(DialectName::AgUi.into())
}

impl From<InputError> for ApiError {
    fn from(error: InputError) -> Self {
        Self::bad("bad_request", error.to_string())
    }
}
