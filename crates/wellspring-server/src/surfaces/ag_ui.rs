//! AG-UI 1.0 at `/ag-ui/{agent}`: what its stock clients speak, as SSE or protobuf.
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
    AgentDef, ClientId, Control, ControlError, InThread, Permission, RequestKey, StartError,
    StartKey, StartRun, Started, StartedAs,
};
use wellspring_log::{Cursor, RunInfo, RunState};
use wellspring_wire::ag_ui::types::{Message, RunAgentInput};
use wellspring_wire::ag_ui::{AgUiBinary, Asked, InputError, Trust};
use wellspring_wire::{DialectChoice, DialectName, Encoding, Options, WirePosition};

use super::Route;
use super::native::wants;
use crate::app::{App, JsonBody, MayRead, MayRun, Params, Trace, run_id};
use crate::error::ApiError;
use crate::stream::{Begin, Until, Wanted};

/// Under which name the clients' run ids are kept.
const RUNS: &str = "ag-ui";

/// Of what kind the clients' thread ids are.
const THREADS: &str = "ag-ui.thread";

/// Of what kind the names of answers are.
const ANSWERS: &str = "ag-ui.answers";

/// How many runs of a thread are asked which message was their input: a client repeats its
/// last messages, not its first.
const KNOWN_RUNS_MAX: usize = 16;

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

/// What may be said of a run besides its body.
#[derive(Deserialize)]
struct RunQuery {
    /// Another model of the agent's provider: stock clients can change their address, and
    /// not always their body.
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
    let Some(def) = app.runtime.agent(&agent) else {
        return Err(ApiError::no_agent(format!("there is no agent {agent:?}")));
    };
    // A client that does not care names neither.
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
    let (run, after, cursor) = match begun {
        Begun::Follows { run, after, cursor } => (run, after, cursor),
        Begun::Joins { run, at } => {
            let name = Some(&*input.run_id).filter(|name| !name.is_empty());
            return joined(&app, &control, Joins { run, at, name }, dialect).await;
        }
    };
    let wanted = Wanted {
        run,
        dialect,
        start: Begin::After(WirePosition::after(after)),
        until: Until::Pause,
        cursor,
    };
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

/// What came of it.
enum Begun {
    /// This run, from here on.
    Follows { run: RunId, after: Seq, cursor: Option<Cursor> },
    /// An existing run: its state at that record, or its current state, and everything after it.
    Joins { run: RunId, at: Option<Seq> },
}

impl Request<'_> {
    /// Begins a conversation; nothing if there is one already.
    async fn begin(&self, app: &App, def: &AgentDef) -> Result<Option<Begun>, ApiError> {
        match Asked::read(self.input, None, |_| false, Trust::User)? {
            Asked::Start(request) => self.start(app, def, *request, InThread::New).await,
            Asked::Answer { .. } => Ok(None),
        }
    }

    /// Goes on with a conversation, or begins it after all.
    async fn go_on(&self, app: &App, def: &AgentDef, thread: ThreadId) -> Result<Begun, ApiError> {
        let runs = self.control.recent(thread, KNOWN_RUNS_MAX).await?;
        // If the thread has no runs, the id is not in use there; if another thread uses it,
        // starting the run fails.
        let named = match &self.name {
            Some(name) if !runs.is_empty() => self.control.resolve(name).await?,
            Some(_) | None => None,
        };
        let latest = runs.first().map(|(info, _)| info);
        // A remote agent waits for its answer without a pause of the run.
        let may_wait = |info: &&RunInfo| match info.state {
            RunState::Paused => true,
            RunState::Running => !self.input.resume.is_empty(),
            RunState::Completed | RunState::Cancelled | RunState::Failed => false,
        };
        let waiting = match latest.filter(may_wait) {
            Some(info) => Some(self.control.waiting(info.run).await?),
            None => None,
        };
        let is_known = |id: &str| {
            let requests = runs.iter().filter_map(|(_, started)| started.as_ref());
            let names = requests.filter_map(|started| started.request.wire.as_ref());
            names.filter_map(|names| names.input.as_deref()).any(|known| known == id)
        };
        let outline = waiting.as_ref().map(|waiting| &waiting.outline);
        let asked = Asked::read(self.input, outline, is_known, Trust::User);
        match (asked, named, latest, &waiting) {
            (Ok(Asked::Answer { commands }), _, Some(info), Some(waiting)) => {
                if named.is_some_and(|run| run != info.run) {
                    return Err(self.name_taken());
                }
                self.answer(info.run, waiting, commands).await
            }
            // The request was understood before, and nothing in it is left to do.
            (Ok(_), Some(run), ..) => Ok(Begun::Joins { run, at: None }),
            (Err(InputError::NotOpen { .. }), Some(run), ..) => match self.resumed() {
                Some(same) if self.control.resolve(&same).await? != Some(run) => {
                    Err(self.name_taken())
                }
                Some(_) | None => Ok(Begun::Joins { run, at: None }),
            },
            (Ok(Asked::Start(request)), None, ..) => {
                let begun = self.start(app, def, *request, InThread::Any).await?;
                begun.ok_or_else(|| ApiError::no_run(&*self.input.run_id))
            }
            (Ok(Asked::Answer { .. }), None, ..) => Err(ApiError::no_run(&*self.input.run_id)),
            (Err(error), ..) => Err(error.into()),
        }
    }

    /// Sends all answers to the run that waits for them: all count, or none does.
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
            return Ok(Begun::Follows { run, after, cursor: Some(cursor) });
        }
        Ok(Begun::Joins { run, at: answers_taken(cursor, answered).await? })
    }

    /// The name of exactly these answers under the client's run id. It tells a request that is
    /// sent again from another one that reuses the id.
    fn resumed(&self) -> Option<ClientId> {
        let name = self.name.as_ref().filter(|_| !self.input.resume.is_empty())?;
        let resume = canonical_json(&self.input.resume);
        let mut hasher = Sha256::new();
        hasher.update((name.id.len() as u64).to_le_bytes());
        hasher.update(name.id.as_bytes());
        hasher.update(resume.as_bytes());
        Some(ClientId::new(ANSWERS, URL_SAFE_NO_PAD.encode(hasher.finalize())))
    }

    fn name_taken(&self) -> ApiError {
        let message = format!("run id {:?} was used for another request", self.input.run_id);
        let remedy = "use a new run id for a new request";
        ApiError::new(StatusCode::CONFLICT, "run_exists", message, remedy)
    }

    /// Starts a run; nothing if it was to be the thread's first and is not.
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
            // Said to this agent: what it cannot have is an error.
            Some(model) => Some(model.into()),
            // Agents that do not allow it ignore a model in the props.
            None => request.model.filter(|_| def.allow_model),
        };
        let Trace { id, parent } = self.trace.clone();
        let (trace_id, trace_parent) = (Some(id), parent);
        let start = StartRun {
            thread: self.thread,
            in_thread,
            key: self.name.clone().map(StartKey::Client),
            ..StartRun::new(self.agent, RunRequest { trace_id, trace_parent, model, ..request })
        };
        let Started { run, how, cursor } = match self.control.start(start).await {
            Err(StartError::NotFirst) => return Ok(None),
            started => started?,
        };
        Ok(Some(match how {
            StartedAs::Existing { .. } => Begun::Joins { run, at: None },
            StartedAs::New | StartedAs::Input => {
                app.metrics.run_started();
                let cursor = match cursor {
                    Some(cursor) => cursor,
                    None => self.control.attach(run, Seq(0)).await?,
                };
                Begun::Follows { run, after: Seq(0), cursor: Some(cursor) }
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

/// Attaches to a run, by the client's name of it or by ours.
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

/// Stops a run: closing a connection does not.
async fn cancel(
    State(app): State<App>,
    MayRun(who): MayRun,
    Path((agent, run)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let control = app.control(&who);
    let run = named(&control, &agent, &run).await?;
    match control.cancel(run, CancelWhen::Now, None).await {
        Ok(_) | Err(ControlError::Finished(_)) => {
            Ok((StatusCode::ACCEPTED, Json(json!({}))).into_response())
        }
        Err(error) => Err(error.into()),
    }
}

/// A run of this agent, by the client's name of it or by ours.
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
    /// As it stood at that record, or as it stands.
    at: Option<Seq>,
    /// What a client's request calls the run: that is what its answer calls it, too.
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
    control.info(run).await?;
    let start = Begin::Join { at, called: name.map(Into::into) };
    let wanted = Wanted { run, dialect, start, until: Until::Pause, cursor: None };
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
