//! The AI SDK at `/ai-sdk/{agent}`: what `useChat` and its transports speak.
//!
//! A chat is a thread, by the client's name of it, and each run is one assistant message. A
//! client sends its whole conversation; of that only what its user says now counts, and answers
//! to what a run waits for. Where it edits a message or has one made again, the new run
//! branches off the conversation there.
//!
//! # What is promised
//!
//! 1. A closed connection changes nothing: the message is there to be resumed. Stopping is a
//!    request of its own.
//! 2. A message that is resumed is told from its beginning.

mod socket;

use axum::extract::{Path, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Json};
use serde_json::{Value, json};
use tokio::time::Instant;
use wellspring_core::{CancelWhen, RunId, RunRequest, Seq, ThreadId};
use wellspring_engine::{
    ClientId, Control, ControlError, InThread, Permission, RequestKey, StartKey, StartRun,
    StartedAs,
};
use wellspring_log::{RunFilter, RunInfo, RunState};
use wellspring_wire::ai_sdk::types::ChatRequest;
use wellspring_wire::ai_sdk::{Asked, Branch, InputError};
use wellspring_wire::{DialectName, WirePosition};

use super::Route;
use crate::app::{App, JsonBody, MayRead, MayRun, Trace};
use crate::error::ApiError;
use crate::stream::{Begin, Until, Wanted};

/// Of what kind the clients' chat ids are.
const CHATS: &str = "ai-sdk.chat";

/// Of what kind the names of runs are: the message that each answers.
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

/// Says something, answers what a run waits for, or has an answer made again.
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

/// The current message from its beginning; 204 when nothing is going on.
async fn resume(
    State(app): State<App>,
    MayRead(who): MayRead,
    Path((agent, chat)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let chat = Chat::new(&app, app.control(&who), &agent, &chat)?;
    match chat.resume().await? {
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
    let recent = chat.control.recent(chat.thread, 1).await?;
    let stopped = match recent.first() {
        Some((info, _)) => cancel(&chat.control, info.run).await?,
        None => false,
    };
    Ok((StatusCode::ACCEPTED, Json(json!({ "stopped": stopped }))))
}

/// Stops a run. Whether it was going on.
async fn cancel(control: &Control, run: RunId) -> Result<bool, ApiError> {
    match control.cancel(run, CancelWhen::Now, None).await {
        Ok(_) => Ok(true),
        Err(ControlError::Finished(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A conversation with an agent, as its client names it.
struct Chat<'a> {
    app: &'a App,
    control: Control,
    agent: &'a str,
    id: &'a str,
    thread: ThreadId,
}

impl<'a> Chat<'a> {
    fn new(app: &'a App, control: Control, agent: &'a str, id: &'a str) -> Result<Self, ApiError> {
        if app.runtime.agent(agent).is_none() {
            return Err(ApiError::no_agent(format!("there is no agent {agent:?}")));
        }
        let thread = control.thread(&ClientId::new(CHATS, format!("{agent}/{}", check(id)?)));
        Ok(Self { app, control, agent, id, thread })
    }

    /// Does what a request asks for. Gives what its answer streams.
    async fn send(&self, request: &ChatRequest, trace: Trace) -> Result<Wanted, ApiError> {
        match Asked::read(request)? {
            Asked::Start { request, branch } => self.start(*request, branch, trace).await,
            Asked::Answer => self.answer(request).await,
        }
    }

    async fn start(
        &self,
        request: RunRequest,
        branch: Option<Branch>,
        trace: Trace,
    ) -> Result<Wanted, ApiError> {
        let message = request.wire.as_ref().and_then(|names| names.input.as_deref());
        // A message that is sent again is the same one, unless it was changed.
        let key = match (message, branch) {
            (Some(message), None) => {
                let name = format!("{}/{}/{}", self.agent, self.id, check(message)?);
                Some(StartKey::Client(ClientId::new(MESSAGES, name)))
            }
            (Some(_), Some(_)) | (None, _) => None,
        };
        let Trace { id, parent } = trace;
        let request = RunRequest { trace_id: Some(id), trace_parent: parent, ..request };
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
            ..StartRun::new(self.agent, request)
        };
        let started = self.control.start(start).await?;
        match started.how {
            StartedAs::New | StartedAs::Input => self.app.metrics.run_started(),
            StartedAs::Existing { .. } => {}
        }
        let cursor = match started.cursor {
            Some(cursor) => cursor,
            None => self.control.attach(started.run, Seq(0)).await?,
        };
        Ok(Wanted {
            run: started.run,
            dialect: DialectName::AiSdk.into(),
            start: Begin::After(WirePosition::START),
            until: Until::Pause,
            cursor: Some(cursor),
        })
    }

    /// Hands in answers. The message goes on where it was left.
    async fn answer(&self, request: &ChatRequest) -> Result<Wanted, ApiError> {
        let recent = self.control.recent(self.thread, 1).await?;
        let nothing = || {
            let message = "nothing in this chat waits for these answers";
            let remedy = "resume the stream to see how the message went on";
            ApiError::new(StatusCode::CONFLICT, "nothing_waits", message, remedy)
        };
        let going_on = recent.first().map(|(info, _)| info);
        let info = going_on.filter(|info| !info.state.is_final()).ok_or_else(nothing)?;
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
        Ok(Wanted {
            run: info.run,
            dialect: DialectName::AiSdk.into(),
            start: Begin::After(WirePosition::after(after)),
            until: Until::Pause,
            cursor: Some(cursor),
        })
    }

    /// The message that is going on, if there is one.
    async fn resume(&self) -> Result<Option<Wanted>, ApiError> {
        let filter = RunFilter { thread: Some(self.thread), limit: 1, ..RunFilter::default() };
        let latest = self.control.list(filter).await?;
        Ok(latest.first().and_then(resumed))
    }
}

/// A message from its beginning. Its earlier pauses do not end it.
fn resumed(info: &RunInfo) -> Option<Wanted> {
    let seen = match info.state {
        RunState::Running => info.head,
        RunState::Paused => Seq(info.head.0.saturating_sub(1)),
        RunState::Completed | RunState::Cancelled | RunState::Failed => return None,
    };
    Some(Wanted {
        run: info.run,
        dialect: DialectName::AiSdk.into(),
        start: Begin::After(WirePosition::START),
        until: Until::PauseAfter(seen),
        cursor: None,
    })
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
