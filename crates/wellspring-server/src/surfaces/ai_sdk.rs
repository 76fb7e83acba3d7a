//! The AI SDK at `/ai-sdk/{agent}`: the protocol of `useChat` and its transports.
//!
//! The client's chat id names a thread, and each run is one assistant message. A client sends its
//! whole conversation; only the new message of its user and answers to what a run waits for are
//! used. If it edits a message or regenerates one, the new run branches off the conversation there.
//!
//! # What is promised
//!
//! 1. A closed connection changes nothing: the message can be resumed. Stopping is a separate
//!    request.
//! 2. A resumed message is sent from its beginning.

mod socket;

use axum::extract::{Path, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use wellspring_core::{CancelWhen, RunRequest, Seq, ThreadId};
use wellspring_engine::{
    ClientId, Control, InThread, Permission, RequestKey, StartError, StartKey, StartRun, Started,
    StartedAs,
};
use wellspring_log::{RunFilter, RunInfo, RunState};
use wellspring_wire::ai_sdk::types::ChatRequest;
use wellspring_wire::ai_sdk::{Asked, Branch, InputError};
use wellspring_wire::{DialectName, WirePosition};

use super::Route;
use crate::app::{App, JsonBody, MayRead, MayRun, Params, Trace};
use crate::error::ApiError;
use crate::stream::{Begin, Readable, Until, Wanted};

/// The kind of the clients' chat ids.
const CHATS: &str = "ai-sdk.chat";

/// The kind of the runs' ids: each is the id of the user message that the run answers.
const MESSAGES: &str = "ai-sdk.message";

/// Bytes of a client's id: a UUID, or a few of them.
const ID_BYTES_MAX: usize = 255;

pub(super) fn routes() -> Vec<Route> {
    let route = |method, path, scope, handler| Route { method, path, scope: Some(scope), handler };
    vec![
        route(Method::POST, "/ai-sdk/{agent}", Permission::Run, post(chat)),
        route(Method::GET, "/ai-sdk/{agent}/socket", Permission::Read, get(socket::open)),
        route(Method::GET, "/ai-sdk/{agent}/{chat}/stream", Permission::Read, get(resume)),
        route(Method::POST, "/ai-sdk/{agent}/{chat}/stop", Permission::Run, post(stop)),
    ]
}

/// Starts a run, passes on answers to a run that waits, or regenerates a message.
async fn chat(
    State(app): State<App>,
    MayRun(who): MayRun,
    Path(agent): Path<String>,
    Extension(trace): Extension<Trace>,
    JsonBody(request): JsonBody<ChatRequest>,
) -> Result<Response, ApiError> {
    let asked_at = Instant::now();
    let chat = Chat::new(&app, app.control(&who), &agent, &request.id)?;
    let wanted = chat.send(&request, trace).await?;
    Ok(app.stream(&who, wanted, Some(asked_at)).await?.into_response())
}

/// How a client resumes.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Resume {
    finished: bool,
}

/// Resumes the current message from its beginning; 204 if no run is active. With `finished`, the
/// last message is sent also if its run has ended: a page that kept the first half gets the rest.
async fn resume(
    State(app): State<App>,
    MayRead(who): MayRead,
    Path((agent, chat)): Path<(String, String)>,
    Params(Resume { finished }): Params<Resume>,
) -> Result<Response, ApiError> {
    let chat = Chat::new(&app, app.control(&who), &agent, &chat)?;
    match chat.resume(finished).await? {
        Some(wanted) => Ok(app.stream(&who, wanted, None).await?.into_response()),
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

/// Stops the run of a chat.
async fn stop(
    State(app): State<App>,
    MayRun(who): MayRun,
    Path((agent, chat)): Path<(String, String)>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let chat = Chat::new(&app, app.control(&who), &agent, &chat)?;
    let stopped = match chat.control.latest_run(chat.thread).await? {
        Some(info) => chat.control.stop(info.run, CancelWhen::Now, None).await?,
        None => false,
    };
    Ok((StatusCode::ACCEPTED, Json(json!({ "stopped": stopped }))))
}

/// A conversation with an agent, with the client's id of it.
struct Chat<'a> {
    app: &'a App,
    control: Control,
    agent: &'a str,
    id: &'a str,
    thread: ThreadId,
}

impl<'a> Chat<'a> {
    fn new(app: &'a App, control: Control, agent: &'a str, id: &'a str) -> Result<Self, ApiError> {
        app.agent(agent)?;
        let thread = control.thread(&ClientId::new(CHATS, format!("{agent}/{}", check(id)?)));
        Ok(Self { app, control, agent, id, thread })
    }

    /// Handles a request. Returns what its response streams.
    async fn send(&self, request: &ChatRequest, trace: Trace) -> Result<Wanted, ApiError> {
        match Asked::read(request)? {
            Asked::Start { request: new, branch } => {
                let seems_new = matches!(&*request.messages, [_]) && branch.is_none();
                self.start(*new, branch, seems_new, trace).await
            }
            Asked::Answer => self.answer(request).await,
        }
    }

    async fn start(
        &self,
        request: RunRequest,
        branch: Option<Branch>,
        seems_new: bool,
        trace: Trace,
    ) -> Result<Wanted, ApiError> {
        let message = request.wire.as_ref().and_then(|names| names.input.as_deref());
        // A message that is sent again starts no second run, unless it was edited.
        let key = match (message, branch) {
            (Some(message), None) => {
                let name = format!("{}/{}/{}", self.agent, self.id, check(message)?);
                Some(StartKey::Client(ClientId::new(MESSAGES, name)))
            }
            (Some(_), Some(_)) | (None, _) => None,
        };
        let (in_thread, after) = match branch {
            None => (InThread::Any, None),
            Some(Branch::After(run)) => (InThread::Any, Some(run)),
            Some(Branch::Start) => (InThread::Branch, None),
        };
        let start = StartRun {
            thread: Some(self.thread),
            in_thread,
            after,
            key,
            ..StartRun::new(self.agent, trace.with(request))
        };
        // A chat that seems new usually is, and starting it as new looks nothing up.
        if seems_new {
            let first = StartRun { in_thread: InThread::New, ..start.clone() };
            match self.control.start(first).await {
                Err(StartError::NotFirst) => {}
                started => return self.follow(started?).await,
            }
        }
        self.follow(self.control.start(start).await?).await
    }

    /// The run of a start, from its beginning to its next pause.
    async fn follow(&self, started: Started) -> Result<Wanted, ApiError> {
        match started.how {
            StartedAs::New | StartedAs::Input => self.app.metrics.run_started(),
            StartedAs::Existing { .. } => {}
        }
        let cursor = self.control.read_started(started).await?;
        Ok(wanted(Readable::At(cursor), WirePosition::START, Until::Pause))
    }

    /// Passes on answers. The stream continues the message where it stopped.
    async fn answer(&self, request: &ChatRequest) -> Result<Wanted, ApiError> {
        let latest = self.control.latest_run(self.thread).await?;
        let nothing = || {
            let message = "nothing in this chat waits for these answers";
            let remedy = "resume the stream to see how the message went on";
            ApiError::new(StatusCode::CONFLICT, "nothing_waits", message, remedy)
        };
        let info = latest.filter(|info| !info.state.is_final()).ok_or_else(nothing)?;
        let waiting = self.control.waiting(info.run).await?;
        let commands = match Asked::answers(request, &waiting.outline) {
            Err(InputError::NotOpen { .. }) => return Err(nothing()),
            commands => commands?,
        };
        if commands.is_empty() {
            return Err(nothing());
        }
        let after = waiting.outline.head;
        let cursor = self.control.attach(info.run, after).await?;
        self.control.respond(info.run, commands, RequestKey::Fresh).await?;
        Ok(wanted(Readable::At(cursor), WirePosition::after(after), Until::Pause))
    }

    /// The message of the active run, if there is one; with `finished`, of the last run.
    async fn resume(&self, finished: bool) -> Result<Option<Wanted>, ApiError> {
        let filter = RunFilter { thread: Some(self.thread), limit: 1, ..RunFilter::default() };
        Ok(self.control.list(filter).await?.pop().and_then(|info| resumed(info, finished)))
    }
}

/// A message from its beginning. Earlier pauses of the run do not end the stream.
fn resumed(info: RunInfo, finished: bool) -> Option<Wanted> {
    let seen = match info.state {
        RunState::Running => info.head,
        RunState::Paused => Seq(info.head.0.saturating_sub(1)),
        RunState::Completed | RunState::Cancelled | RunState::Failed if finished => info.head,
        RunState::Completed | RunState::Cancelled | RunState::Failed => return None,
    };
    Some(wanted(Readable::Run(info), WirePosition::START, Until::PauseAfter(seen)))
}

fn wanted(run: Readable, after: WirePosition, until: Until) -> Wanted {
    Wanted { run, dialect: DialectName::AiSdk.into(), start: Begin::After(after), until }
}

fn check(id: &str) -> Result<&str, ApiError> {
    if (1..=ID_BYTES_MAX).contains(&id.len()) {
        return Ok(id);
    }
    Err(ApiError::bad(
        "bad_id",
        format!("an id of a chat or message has 1 to {ID_BYTES_MAX} bytes"),
    ))
}

impl From<InputError> for ApiError {
    fn from(error: InputError) -> Self {
        Self::bad("bad_request", error.to_string())
    }
}
