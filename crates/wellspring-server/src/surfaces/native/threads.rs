//! Threads: the conversations that runs belong to.

use axum::Json;
use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::{Value, json};
use wellspring_core::ThreadId;
use wellspring_log::RunFilter;

use super::run_json;
use super::runs::page_size;
use crate::app::{App, MayRead, Params, run_id};
use crate::error::ApiError;

/// The most runs that are looked at for one page of threads: beyond it the page is shorter
/// and says where to go on.
const SCAN_MAX: usize = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageQuery {
    after: Option<String>,
    limit: Option<usize>,
}

/// Threads, the one with the newest run first. A thread stands where its newest run does.
pub(super) async fn list(
    State(app): State<App>,
    MayRead(who): MayRead,
    Params(query): Params<PageQuery>,
) -> Result<Json<Value>, ApiError> {
    let limit = page_size(query.limit)?;
    let control = app.control(&who);
    let after_run = query.after.as_deref().map(run_id).transpose()?;
    let filter = RunFilter { after_run, limit: SCAN_MAX, ..RunFilter::default() };
    let found = control.list(filter).await?;
    let mut threads: Vec<Value> = Vec::new();
    let mut last = None;
    for info in &found {
        if threads.len() == limit {
            break;
        }
        last = Some(info.run);
        let thread = Some(info.thread);
        let newest = control.list(RunFilter { thread, limit: 1, ..RunFilter::default() }).await?;
        if newest.first().is_some_and(|newest| newest.run == info.run) {
            threads.push(json!({
                "thread": info.thread,
                "agent": info.agent,
                "title": info.title,
                "state": info.state,
                "latest_run": info.run,
                "updated_at": info.updated_at,
            }));
        }
    }
    let more = found.len() == SCAN_MAX || found.last().map(|info| info.run) != last;
    let next = last.filter(|_| more);
    Ok(Json(json!({ "threads": threads, "next": next })))
}

/// A thread: its newest runs, oldest first, and where those before them are. `after` of a run
/// says which one it continues.
pub(super) async fn read(
    State(app): State<App>,
    MayRead(who): MayRead,
    Path(id): Path<String>,
    Params(query): Params<PageQuery>,
) -> Result<Json<Value>, ApiError> {
    let thread: ThreadId = id.parse().map_err(|_| ApiError::no_thread(&id))?;
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
