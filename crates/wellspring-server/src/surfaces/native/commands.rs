//! Commands to a run. Each is durable when it is answered, and takes effect once.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use wellspring_core::{
    Amendment, Answer, CancelWhen, Command, ContextNote, PartId, QuestionId, RunId, ToolOutcome,
    ToolResult, ToolSpec,
};
use wellspring_engine::{Control, ControlError, RequestKey};
use wellspring_log::{Put, RunInfo};

use super::runs::Input;
use super::{Whole, idempotency_key, run_json};
use crate::app::{App, JsonBody, MayApprove, MayRun, run_id};
use crate::error::ApiError;

/// The result of a command.
pub(super) enum Sent {
    /// It is durable, and the run will see it.
    Accepted(Put),
    /// The run has finished, so there was nothing to do.
    Over(Box<RunInfo>),
}

impl Sent {
    pub(super) fn json(&self) -> Value {
        match self {
            Self::Accepted(put) => json!({ "inbox": put.number, "existed": put.existed }),
            Self::Over(info) => run_json(info),
        }
    }
}

impl IntoResponse for Sent {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Accepted(_) => StatusCode::ACCEPTED,
            Self::Over(_) => StatusCode::OK,
        };
        (status, Json(self.json())).into_response()
    }
}

/// Changes to a run's request. Absent members stay as they were.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Amend {
    client_tools: Option<Vec<ToolSpec>>,
    context: Option<Vec<ContextNote>>,
    state: Option<Value>,
}

impl Amend {
    fn command(self) -> Command {
        let Self { client_tools, context, state } = self;
        let amended = Box::new(Amendment { client_tools, context, wire_parent: None });
        Command::Resume { amended, state: state.map(Box::new), wire_run: None }
    }
}

/// Sends amendments and their command as one step. Returns the last entry.
async fn send(
    control: &Control,
    run: RunId,
    amend: Option<Amend>,
    command: Option<Command>,
    key: RequestKey,
) -> Result<Sent, ApiError> {
    let commands: Vec<_> = amend.map(Amend::command).into_iter().chain(command).collect();
    let put = control.respond(run, commands, key).await?.pop();
    put.map(Sent::Accepted).ok_or_else(|| ApiError::bad("no_input", "the request changes nothing"))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Cancel {
    when: CancelWhen,
    why: Option<Box<str>>,
}

impl Cancel {
    /// Cancels a run. A finished run is returned unchanged.
    pub(super) async fn send(self, control: &Control, run: RunId) -> Result<Sent, ApiError> {
        match control.cancel(run, self.when, self.why.as_deref()).await {
            Ok(put) => Ok(Sent::Accepted(put)),
            Err(ControlError::Finished(info)) => Ok(Sent::Over(info)),
            Err(error) => Err(error.into()),
        }
    }
}

pub(super) async fn cancel(
    State(app): State<App>,
    MayRun(who): MayRun,
    Path(run): Path<String>,
    JsonBody(cancel): JsonBody<Cancel>,
) -> Result<Sent, ApiError> {
    cancel.send(&app.control(&who), run_id(&run)?).await
}

/// The result of a call that ran in the client.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallResult {
    call: Whole,
    output: Value,
    #[serde(default)]
    is_error: bool,
    #[serde(default)]
    amend: Option<Amend>,
}

impl CallResult {
    pub(super) async fn send(self, control: &Control, run: RunId) -> Result<Sent, ApiError> {
        let outcome = if self.is_error { ToolOutcome::Error } else { ToolOutcome::Ok };
        let (call, result) = (PartId(self.call.0), ToolResult::new(self.output));
        let command = Command::FinishCall { call, outcome, result, wire_run: None };
        send(control, run, self.amend, Some(command), RequestKey::Fresh).await
    }
}

pub(super) async fn tool_result(
    State(app): State<App>,
    MayRun(who): MayRun,
    Path(run): Path<String>,
    JsonBody(result): JsonBody<CallResult>,
) -> Result<Sent, ApiError> {
    result.send(&app.control(&who), run_id(&run)?).await
}

/// The answer to a question.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Decision {
    question: Whole,
    answer: Answer,
    #[serde(default)]
    amend: Option<Amend>,
}

impl Decision {
    pub(super) async fn send(self, control: &Control, run: RunId) -> Result<Sent, ApiError> {
        let (question, answer) = (QuestionId(self.question.0), self.answer);
        let command = Command::Answer { question, answer, by: None, wire_run: None };
        send(control, run, self.amend, Some(command), RequestKey::Fresh).await
    }
}

pub(super) async fn answer(
    State(app): State<App>,
    MayApprove(who): MayApprove,
    Path(run): Path<String>,
    JsonBody(decision): JsonBody<Decision>,
) -> Result<Sent, ApiError> {
    decision.send(&app.control(&who), run_id(&run)?).await
}

/// Input for a run that has started, or changes to its request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct More {
    #[serde(default)]
    content: Option<Input>,
    #[serde(default)]
    amend: Option<Amend>,
}

impl More {
    pub(super) async fn send(
        self,
        control: &Control,
        run: RunId,
        key: Option<&str>,
    ) -> Result<Sent, ApiError> {
        let content = self.content.map(|content| content.0);
        if content.as_ref().map_or(self.amend.is_none(), Vec::is_empty) {
            return Err(ApiError::bad("no_input", "`content` is empty"));
        }
        let key = key.map_or(RequestKey::Fresh, |key| RequestKey::Named(key.into()));
        let command = content.map(|content| Command::AddInput { content, message: None });
        send(control, run, self.amend, command, key).await
    }
}

pub(super) async fn input(
    State(app): State<App>,
    MayRun(who): MayRun,
    Path(run): Path<String>,
    headers: HeaderMap,
    JsonBody(more): JsonBody<More>,
) -> Result<Sent, ApiError> {
    let key = idempotency_key(headers.get("idempotency-key").map(HeaderValue::as_bytes))?;
    more.send(&app.control(&who), run_id(&run)?, key).await
}
