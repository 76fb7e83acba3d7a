//! The audit log.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::runs::page_size;
use crate::app::{App, MayAdminister, Params};
use crate::error::ApiError;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    after: Option<u64>,
    limit: Option<usize>,
}

/// Audit entries of the caller's tenant, newest first.
pub(super) async fn read(
    State(app): State<App>,
    MayAdminister(who): MayAdminister,
    Params(query): Params<AuditQuery>,
) -> Result<Json<Value>, ApiError> {
    let limit = page_size(query.limit)?;
    let found = app.control(&who).audit(query.after, limit).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|entry| entry.number);
    let entries: Vec<Value> = found
        .into_iter()
        .map(|entry| {
            let act = entry.act;
            let mut json = act.details;
            json["at"] = json!(act.at);
            json["by"] = json!(act.by);
            json["run"] = json!(act.run);
            json["did"] = json!(act.did);
            json
        })
        .collect();
    Ok(Json(json!({ "entries": entries, "next": next })))
}
