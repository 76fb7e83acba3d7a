//! Threads: the conversations that runs belong to.

use axum::Json;
use axum::extract::{Path, State};
use serde::Deserialize;
use serde_json::{Value, json};
use wellspring_core::{RunId, ThreadId};
use wellspring_log::{RunFilter, RunInfo};

use super::run_json;
use super::runs::page_size;
use crate::app::{App, MayRead, Params};
use crate::error::ApiError;
use wellspring_engine::Principal;

/// The most runs that are looked at for one page of threads: beyond it the page is shorter
/// and says where to go on.
const SCAN_MAX: usize = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PageQuery {
    after: Option<String>,
    limit: Option<usize>,
}

/// A thread's newest runs of the caller's tenant, newest first.
pub(in super::super) async fn runs(
    app: &App,
    who: &Principal,
    thread: ThreadId,
    limit: usize,
) -> Result<Vec<RunInfo>, ApiError> {
    older(app, who, thread, None, limit).await
}

async fn older(
    app: &App,
    who: &Principal,
    thread: ThreadId,
    than: Option<RunId>,
    limit: usize,
) -> Result<Vec<RunInfo>, ApiError> {
    let (tenant, thread) = (Some((*who.tenant).into()), Some(thread));
    let filter = RunFilter { tenant, thread, after_run: than, limit, ..RunFilter::default() };
    Ok(app.runtime.log().store().list(filter).await?)
}

/// Threads, the one with the newest run first. A thread stands where its newest run does.
pub(super) async fn list(
    State(app): State<App>,
    MayRead(who): MayRead,
    Params(query): Params<PageQuery>,
) -> Result<Json<Value>, ApiError> {
    let limit = page_size(query.limit)?;
    let after_run = match &query.after {
        None => None,
        Some(after) => Some(app.run_of(&who, after).await?.run),
    };
    let tenant = Some((*who.tenant).into());
    let filter = RunFilter { tenant, after_run, limit: SCAN_MAX, ..RunFilter::default() };
    let found = app.runtime.log().store().list(filter).await?;
    let mut threads: Vec<Value> = Vec::new();
    let mut last = None;
    for info in &found {
        if threads.len() == limit {
            break;
        }
        last = Some(info.run);
        let newest = runs(&app, &who, info.thread, 1).await?;
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
    let thread = id.parse().map_err(|_| ApiError::no_thread(&id))?;
    let limit = page_size(query.limit)?;
    let than = match &query.after {
        None => None,
        Some(after) => Some(app.run_of(&who, after).await?.run),
    };
    let mut found = older(&app, &who, thread, than, limit).await?;
    if found.is_empty() && than.is_none() {
        return Err(ApiError::no_thread(&id));
    }
    let next = found.last().filter(|_| found.len() == limit).map(|info| info.run);
    found.reverse();
    let runs: Vec<_> = found.iter().map(run_json).collect();
    Ok(Json(json!({ "thread": thread, "runs": runs, "next": next })))
}
