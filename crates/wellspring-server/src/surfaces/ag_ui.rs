//! AG-UI 1.0 at `/ag-ui/{agent}`: what its stock clients speak, as SSE or protobuf.
//!
//! A client names its threads and runs itself; its names mean our runs, per tenant. The
//! protocol has no resumption, so a request that names a run we know attaches to it: the
//! client is told a run that begins now and has already got this far. A run that waits for
//! the client ends on this wire and goes on, under the client's next id, with its answer.
//!
//! # What is deliberately absent
//!
//! The client's history: the log is the history, and of a request only what the user says
//! anew and answers to what a run waits for count.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;
use uuid::Uuid;
use wellspring_core::{
    Answer, CancelWhen, Command, Event, QuestionId, RunId, RunRequest, Seq, ThreadId,
};
use wellspring_engine::{AgentDef, LOCAL, SendError, StartError, StartRun};
use wellspring_log::{Cursor, ExternalId, NewCommand, RunInfo, RunState};
use wellspring_wire::ag_ui::types::{Message, RunAgentInput};
use wellspring_wire::ag_ui::{AgUiBinary, Asked, InputError, Trust};
use wellspring_wire::{DialectChoice, DialectName, Encoding, Options, WirePosition};

use super::Route;
use super::native::{Deed, runs_of, wants};
use crate::app::{App, JsonBody, MayRead, MayRun, Params, Trace, allow, thread_named};
use crate::error::ApiError;
use crate::stream::{Begin, Until, Wanted};
use wellspring_engine::{Permission, Principal};

/// Under which name the clients' run ids are kept.
const RUNS: &str = "ag-ui";

/// Of what kind the clients' thread ids are.
const THREADS: &str = "ag-ui.thread";

/// How many runs of a thread are asked which message was their input: a client repeats its
/// last messages, not its first.
const KNOWN_RUNS_MAX: usize = 16;

/// How long answers may take to reach what waits for them at work. Mostly that is a moment;
/// after a crash it is until somebody takes the run up.
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
    let run_name = (!input.run_id.is_empty()).then(|| external(&who, RUNS, &input.run_id));
    let thread_name =
        (!input.thread_id.is_empty()).then(|| external(&who, THREADS, &input.thread_id));
    let thread = thread_name.as_ref().map(thread_named);
    let alone = match &thread_name {
        Some(name) => Some(app.alone(name).await),
        None => None,
    };
    let asked = Request {
        who: &who,
        agent: &agent,
        model: query.model.as_deref(),
        trace: &trace,
        input: &input,
        thread,
        name: run_name,
    };
    // One thing that a user says is most often a conversation's first: then nothing is looked
    // for, and starting finds out whether that was right.
    let seems_new = matches!(&*input.messages, [Message::User(_)]) && input.resume.is_empty();
    let begun = if thread.is_none() || seems_new { asked.begin(&app, &def).await? } else { None };
    let begun = match (begun, thread) {
        (Some(begun), _) => begun,
        (None, Some(thread)) => asked.go_on(&app, &def, thread).await?,
        (None, None) => return Err(ApiError::no_run(&*input.run_id)),
    };
    drop(alone);
    let (run, after, cursor) = match begun {
        Begun::Follows { run, after, cursor } => (run, after, cursor),
        Begun::Joins { run, at } => {
            let name = Some(&*input.run_id).filter(|name| !name.is_empty());
            return joined(&app, &who, Joins { run, at, name }, dialect).await;
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
    who: &'a Principal,
    agent: &'a str,
    model: Option<&'a str>,
    trace: &'a Trace,
    input: &'a RunAgentInput,
    thread: Option<ThreadId>,
    name: Option<ExternalId>,
}

/// What came of it.
enum Begun {
    /// This run, from here on.
    Follows { run: RunId, after: Seq, cursor: Option<Cursor> },
    /// A run that goes on: as it stood at that record, or as it stands, and what comes then.
    Joins { run: RunId, at: Option<Seq> },
}

impl Request<'_> {
    /// Begins a conversation; nothing if there is one already.
    async fn begin(&self, app: &App, def: &AgentDef) -> Result<Option<Begun>, ApiError> {
        match Asked::read(self.input, None, |_| false, Trust::User)? {
            Asked::Start(request) => self.start(app, def, *request, true).await,
            Asked::Answer { .. } => Ok(None),
        }
    }

    /// Goes on with a conversation, or begins it after all.
    async fn go_on(&self, app: &App, def: &AgentDef, thread: ThreadId) -> Result<Begun, ApiError> {
        let log = app.runtime.log();
        let runs = runs_of(app, self.who, thread, KNOWN_RUNS_MAX).await?;
        // A thread without runs has none of that name; should another have it, starting says so.
        if let (Some(name), false) = (&self.name, runs.is_empty())
            && let Some(run) = log.store().resolve(name.clone()).await?
        {
            return Ok(Begun::Joins { run, at: None });
        }
        let latest = runs.first();
        // A remote agent waits for its answer at work, without a pause.
        let may_wait = |info: &&RunInfo| match info.state {
            RunState::Paused => true,
            RunState::Running => !self.input.resume.is_empty(),
            RunState::Completed | RunState::Cancelled | RunState::Failed => false,
        };
        let paused = match latest.filter(may_wait) {
            Some(info) => Some(log.transcript(info.run).await?),
            None => None,
        };
        let known = known_inputs(app, &runs).await?;
        let is_known = |id: &str| known.iter().any(|known| &**known == id);
        let outline = paused.as_ref().map(|paused| &paused.outline);
        match Asked::read(self.input, outline, is_known, Trust::User)? {
            Asked::Start(request) => {
                let begun = self.start(app, def, *request, false).await?;
                begun.ok_or_else(|| ApiError::no_run(&*self.input.run_id))
            }
            Asked::Answer { commands } => {
                let (Some(info), Some(paused)) = (latest, &paused) else {
                    return Err(ApiError::no_run(&*self.input.run_id));
                };
                let after = paused.outline.head;
                let answered = commands.iter().filter_map(answer_of).map(|(question, _)| question);
                let answered: BTreeSet<_> = answered.collect();
                self.answer(app, info, commands).await?;
                if let Some(name) = &self.name {
                    log.store().bind(name.clone(), info.run).await?;
                }
                if paused.outline.paused.is_some() {
                    return Ok(Begun::Follows { run: info.run, after, cursor: None });
                }
                let at = answers_taken(app, info.run, after, answered).await?;
                Ok(Begun::Joins { run: info.run, at })
            }
        }
    }

    /// Puts all answers into the run's inbox before anybody wakes it: it goes on once, with all;
    /// or, where one of them is none or not the caller's to give, with none.
    async fn answer(
        &self,
        app: &App,
        info: &RunInfo,
        commands: Vec<Command>,
    ) -> Result<(), ApiError> {
        let who = self.who;
        let answers: Vec<_> = commands.iter().filter_map(answer_of).collect();
        if !answers.is_empty() {
            allow(who, Permission::Approve)?;
        }
        let checked =
            app.runtime.check_answers(info.run, answers.iter().copied(), Some(&who.id)).await?;
        for (question, answer) in answers {
            Deed::answer(&checked, question, answer).keep(app, who, info).await?;
        }
        let asker = checked.started.as_ref().and_then(|started| started.request.by.as_deref());
        let count = commands.len();
        for (index, mut command) in commands.into_iter().enumerate() {
            let key = match &mut command {
                Command::Answer { question, by, .. } => {
                    *by = Some((*who.id).into());
                    format!("answer-{question}-{}", who.id)
                }
                Command::FinishCall { call, .. } => format!("result-{call}"),
                Command::Resume { .. } => format!("resume-{}", self.input.run_id),
                Command::AddInput { .. } | Command::Cancel { .. } => {
                    format!("{}-{index}", self.input.run_id)
                }
            };
            if index + 1 < count {
                let key = key.into();
                app.runtime.log().send(info.run, vec![NewCommand { key, command }]).await?;
            } else {
                app.runtime.send(info.run, &key, command).await?;
            }
        }
        if let Some(asker) = asker.filter(|asker| *asker != LOCAL)
            && checked.outline.paused.is_some()
        {
            app.gates.run_goes_on(asker, info.run);
        }
        Ok(())
    }

    /// Starts a run; nothing if it was to be the thread's first and is not.
    async fn start(
        &self,
        app: &App,
        def: &AgentDef,
        request: RunRequest,
        is_first: bool,
    ) -> Result<Option<Begun>, ApiError> {
        if request.input.is_empty() {
            return Err(ApiError::bad("no_input", "no message of a user is new"));
        }
        let model = match self.model {
            // Said to this agent: what it cannot have is an error.
            Some(model) => Some(model.into()),
            // Props are for whoever understands them.
            None => request.model.filter(|_| def.allow_model),
        };
        let by = Some((*self.who.id).into());
        let Trace { id, parent } = self.trace.clone();
        let (trace_id, trace_parent) = (Some(id), parent);
        let log = app.runtime.log();
        let new = RunId::new(Uuid::now_v7());
        let start = StartRun {
            tenant: (*self.who.tenant).into(),
            thread: self.thread,
            is_first,
            run: Some(new),
            name: self.name.clone(),
            ..StartRun::new(self.agent, RunRequest { by, trace_id, trace_parent, model, ..request })
        };
        let ahead = log.cursor_ahead(new);
        let _pass = app.may_start(self.who, new)?;
        let run = match app.runtime.start(start).await {
            Err(StartError::Named(run)) => return Ok(Some(Begun::Joins { run, at: None })),
            Err(StartError::NotFirst) => return Ok(None),
            started => started?,
        };
        app.metrics.run_started();
        if run != new
            && let Some(name) = &self.name
        {
            // It became input of a run that goes on.
            log.store().bind(name.clone(), run).await?;
        }
        Ok(Some(Begun::Follows { run, after: Seq(0), cursor: (run == new).then_some(ahead) }))
    }
}

/// Waits until answers that something waits for at work have reached it: whoever comes before
/// that is told that it waits, and who comes there sees all that follows from them. Nobody may
/// be there to take them; then that is what is told.
async fn answers_taken(
    app: &App,
    run: RunId,
    after: Seq,
    mut missing: BTreeSet<QuestionId>,
) -> Result<Option<Seq>, ApiError> {
    if missing.is_empty() {
        return Ok(None);
    }
    let mut cursor = app.runtime.log().cursor(run, after).await?;
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

fn answer_of(command: &Command) -> Option<(QuestionId, &Answer)> {
    match command {
        Command::Answer { question, answer, .. } => Some((*question, answer)),
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
    let info = named(&app, &who, &agent, &run).await?;
    let joins = Joins { run: info.run, at: None, name: None };
    joined(&app, &who, joins, dialect(&headers)).await
}

/// Stops a run: closing a connection does not.
async fn cancel(
    State(app): State<App>,
    MayRun(who): MayRun,
    Path((agent, run)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let info = named(&app, &who, &agent, &run).await?;
    if !info.state.is_final() {
        Deed::cancel(None).keep(&app, &who, &info).await?;
    }
    match app.runtime.cancel(info.run, CancelWhen::Now, Some(&who.id), None).await {
        Ok(_) | Err(SendError::Finished(_)) => {
            Ok((StatusCode::ACCEPTED, Json(json!({}))).into_response())
        }
        Err(error) => Err(error.into()),
    }
}

/// A run of this agent, by the client's name of it or by ours.
async fn named(app: &App, who: &Principal, agent: &str, name: &str) -> Result<RunInfo, ApiError> {
    let store = app.runtime.log().store();
    let info = match store.resolve(external(who, RUNS, name)).await? {
        Some(run) => store.info(run).await?.ok_or_else(|| ApiError::no_run(name))?,
        None => app.run_of(who, name).await?,
    };
    if *info.agent == *agent { Ok(info) } else { Err(ApiError::no_run(name)) }
}

/// Somebody who joins a run.
struct Joins<'a> {
    run: RunId,
    /// As it stood at that record, or as it stands.
    at: Option<Seq>,
    /// What a client's request calls the run: that is what its answer calls it, too.
    name: Option<&'a str>,
}

/// A run as it stood at a record, or as it stands, and then what comes.
async fn joined(
    app: &App,
    who: &Principal,
    joins: Joins<'_>,
    dialect: DialectChoice,
) -> Result<Response, ApiError> {
    let Joins { run, at, name } = joins;
    let start = Begin::Join { at, called: name.map(Into::into) };
    let wanted = Wanted { run, dialect, start, until: Until::Pause, cursor: None };
    Ok(app.stream(who, wanted, None).await?.into_response())
}

/// What the client called the messages that these runs were asked with.
async fn known_inputs(app: &App, runs: &[RunInfo]) -> Result<Vec<Box<str>>, ApiError> {
    let mut known = Vec::new();
    for info in runs {
        let mut cursor = app.runtime.log().cursor(info.run, Seq(0)).await?;
        let Some(frames) = cursor.next().await? else { continue };
        let first = frames.first().and_then(|frame| frame.first());
        if let Some(Event::RunStarted(started)) = first.map(|record| &record.event) {
            known.extend(started.request.wire.as_ref().and_then(|wire| wire.input.clone()));
        }
    }
    Ok(known)
}

fn external(who: &Principal, surface: &str, id: &str) -> ExternalId {
    ExternalId { tenant: (*who.tenant).into(), surface: surface.into(), id: id.into() }
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
