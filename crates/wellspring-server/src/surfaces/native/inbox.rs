//! What people want of a run: it goes to the run's inbox and counts once.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;
use wellspring_core::{Answer, CancelWhen, PartId, QuestionId, ToolOutcome, ToolResult};
use wellspring_engine::SendError;
use wellspring_log::{Put, RunInfo, RunState};

use super::audit::Deed;
use super::runs::Input;
use super::{Whole, idempotency_key, run_json};
use crate::app::{App, JsonBody, MayApprove, MayRun};
use crate::error::ApiError;

fn accepted(put: Put) -> Response {
    let body = json!({ "inbox": put.number, "existed": put.existed });
    (StatusCode::ACCEPTED, Json(body)).into_response()
}

/// A run that waited goes on with what it got, and counts again.
async fn woken(app: &App, before: &RunInfo) -> Result<(), ApiError> {
    if before.state == RunState::Paused { app.goes_on(before.run).await } else { Ok(()) }
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
    let info = app.run_of(&who, &run).await?;
    if !info.state.is_final() {
        Deed::cancel(cancel.why.as_deref()).keep(&app, &who, &info).await?;
    }
    match app.runtime.cancel(info.run, cancel.when, Some(&who.id), cancel.why.as_deref()).await {
        Ok(put) => Ok(accepted(put)),
        Err(SendError::Finished(_)) => {
            let info = app.run_of(&who, &run).await?;
            Ok(Json(run_json(&info)).into_response())
        }
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
    let info = app.run_of(&who, &run).await?;
    let outcome = if body.is_error { ToolOutcome::Error } else { ToolOutcome::Ok };
    let result = ToolResult::new(body.output);
    let put = app.runtime.finish_call(info.run, PartId(body.call.0), outcome, result).await?;
    woken(&app, &info).await?;
    Ok(accepted(put))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Decision {
    question: Whole,
    answer: Answer,
}

/// The answer to a question. It goes to the audit log too.
pub(super) async fn answer(
    State(app): State<App>,
    MayApprove(who): MayApprove,
    Path(run): Path<String>,
    JsonBody(body): JsonBody<Decision>,
) -> Result<Response, ApiError> {
    let info = app.run_of(&who, &run).await?;
    match &body.answer {
        Answer::Approve { .. } | Answer::Deny { .. } | Answer::Choose(_) | Answer::Value(_) => {}
        Answer::Expired | Answer::Withdrawn => {
            return Err(ApiError::bad("bad_answer", "only the run itself can say that"));
        }
    }
    let (question, answer) = (QuestionId(body.question.0), body.answer);
    let checked = app.runtime.check_answers(info.run, [(question, &answer)], Some(&who.id)).await?;
    Deed::answer(&checked, question, &answer).keep(&app, &who, &info).await?;
    let put = app.runtime.answer(info.run, question, answer, Some(&who.id)).await?;
    woken(&app, &info).await?;
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
    let info = app.run_of(&who, &run).await?;
    if body.content.0.is_empty() {
        return Err(ApiError::bad("no_input", "`content` is empty"));
    }
    let key = match idempotency_key(&headers)? {
        Some(key) => key.to_owned(),
        None => Uuid::now_v7().to_string(),
    };
    let put = app.runtime.add_input(info.run, &key, body.content.0).await?;
    woken(&app, &info).await?;
    Ok(accepted(put))
}
