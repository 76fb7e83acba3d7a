//! Commands to a run. Each is durable when it is answered and counts once.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use wellspring_core::{Answer, CancelWhen, PartId, QuestionId, ToolOutcome, ToolResult};
use wellspring_engine::{ControlError, RequestKey};
use wellspring_log::Put;

use super::runs::Input;
use super::{Whole, idempotency_key, run_json};
use crate::app::{App, JsonBody, MayApprove, MayRun, run_id};
use crate::error::ApiError;

fn accepted(put: Put) -> Response {
    let body = json!({ "inbox": put.number, "existed": put.existed });
    (StatusCode::ACCEPTED, Json(body)).into_response()
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Cancel {
    when: CancelWhen,
    why: Option<Box<str>>,
}

/// Stops a run. One that is over stays as it ended.
pub(super) async fn cancel(
    State(app): State<App>,
    MayRun(who): MayRun,
    Path(run): Path<String>,
    JsonBody(cancel): JsonBody<Cancel>,
) -> Result<Response, ApiError> {
    let control = app.control(&who);
    match control.cancel(run_id(&run)?, cancel.when, cancel.why.as_deref()).await {
        Ok(put) => Ok(accepted(put)),
        Err(ControlError::Finished(info)) => Ok(Json(run_json(&info)).into_response()),
        Err(error) => Err(error.into()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallResult {
    call: Whole,
    output: Value,
    #[serde(default)]
    is_error: bool,
}

/// The result of a call that ran in the client.
pub(super) async fn tool_result(
    State(app): State<App>,
    MayRun(who): MayRun,
    Path(run): Path<String>,
    JsonBody(body): JsonBody<CallResult>,
) -> Result<Response, ApiError> {
    let outcome = if body.is_error { ToolOutcome::Error } else { ToolOutcome::Ok };
    let result = ToolResult::new(body.output);
    let call = PartId(body.call.0);
    let put = app.control(&who).finish_call(run_id(&run)?, call, outcome, result).await?;
    Ok(accepted(put))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Decision {
    question: Whole,
    answer: Answer,
}

/// The answer to a question.
pub(super) async fn answer(
    State(app): State<App>,
    MayApprove(who): MayApprove,
    Path(run): Path<String>,
    JsonBody(body): JsonBody<Decision>,
) -> Result<Response, ApiError> {
    let (question, answer) = (QuestionId(body.question.0), body.answer);
    let put = app.control(&who).answer(run_id(&run)?, question, answer).await?;
    Ok(accepted(put))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct More {
    content: Input,
}

/// What a user adds while the run goes on.
pub(super) async fn input(
    State(app): State<App>,
    MayRun(who): MayRun,
    Path(run): Path<String>,
    headers: HeaderMap,
    JsonBody(body): JsonBody<More>,
) -> Result<Response, ApiError> {
    if body.content.0.is_empty() {
        return Err(ApiError::bad("no_input", "`content` is empty"));
    }
    let key = idempotency_key(&headers)?;
    let key = key.map_or(RequestKey::Fresh, |key| RequestKey::Named(key.into()));
    let put = app.control(&who).add_input(run_id(&run)?, key, body.content.0).await?;
    Ok(accepted(put))
}
