//! Threads: the conversations that runs belong to.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use wellspring_core::ThreadId;
use wellspring_log::{RunFilter, THREADS_PAGE_MAX, ThreadChange, ThreadFilter, ThreadInfo};

use super::run_json;
use super::runs::page_size;
use crate::app::{App, JsonBody, MayAdminister, MayRead, MayRun, Params, run_id};
use crate::error::ApiError;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageQuery {
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    after: Option<String>,
    limit: Option<usize>,
    #[serde(default)]
    search: Box<str>,
    archived: Option<bool>,
}

fn thread_json(info: &ThreadInfo) -> Value {
    json!({
        "thread": info.thread,
        "agent": info.agent,
        "title": info.title,
        "archived": info.archived,
        "runs": info.runs,
        "state": info.state,
        "latest_run": info.latest,
        "created_at": info.created_at,
        "updated_at": info.updated_at,
    })
}

/// Threads, the one with the newest run first; archived ones only if they are asked for.
pub(super) async fn list(
    State(app): State<App>,
    MayRead(who): MayRead,
    Params(query): Params<ListQuery>,
) -> Result<Json<Value>, ApiError> {
    let limit = page_size(query.limit)?.min(THREADS_PAGE_MAX);
    let filter = ThreadFilter {
        archived: Some(query.archived.unwrap_or(false)),
        search: query.search,
        after: query.after.as_deref().map(run_id).transpose()?,
        limit,
        ..ThreadFilter::default()
    };
    let found = app.control(&who).threads(filter).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|info| info.latest);
    let threads: Vec<_> = found.iter().map(thread_json).collect();
    Ok(Json(json!({ "threads": threads, "next": next })))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Change {
    title: Option<Box<str>>,
    archived: Option<bool>,
}

/// Sets a thread's title, or archives or restores it.
pub(super) async fn change(
    State(app): State<App>,
    MayRun(who): MayRun,
    Path(id): Path<String>,
    JsonBody(change): JsonBody<Change>,
) -> Result<Json<Value>, ApiError> {
    let change = ThreadChange { title: change.title, archived: change.archived };
    let info = app.control(&who).change_thread(thread_id(&id)?, change).await?;
    Ok(Json(thread_json(&info)))
}

/// Deletes a thread whose runs have finished. Requires the `admin` permission.
pub(super) async fn remove(
    State(app): State<App>,
    MayAdminister(who): MayAdminister,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    app.control(&who).delete_thread(thread_id(&id)?).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn thread_id(id: &str) -> Result<ThreadId, ApiError> {
    id.parse().map_err(|_| ApiError::no_thread(id))
}

/// A page of a thread's newest runs, oldest first. A run's `after` is the run that it continues.
pub(super) async fn read(
    State(app): State<App>,
    MayRead(who): MayRead,
    Path(id): Path<String>,
    Params(query): Params<PageQuery>,
) -> Result<Json<Value>, ApiError> {
    let thread = thread_id(&id)?;
    let limit = page_size(query.limit)?;
    let after_run = query.after.as_deref().map(run_id).transpose()?;
    let filter = RunFilter { thread: Some(thread), after_run, limit, ..RunFilter::default() };
    let mut found = app.control(&who).list(filter).await?;
    if found.is_empty() && after_run.is_none() {
        return Err(ApiError::no_thread(&id));
    }
    let next = found.last().filter(|_| found.len() == limit).map(|info| info.run);
    found.reverse();
    let runs: Vec<_> = found.iter().map(run_json).collect();
    Ok(Json(json!({ "thread": thread, "runs": runs, "next": next })))
}
