//! Who decided what. The log of the runs is the audit log: there is no second one that could
//! say otherwise.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use wellspring_core::{Answer, Outcome, PartKind, QuestionId, RunId};
use wellspring_log::RunFilter;

use super::runs::page_size;
use crate::app::{App, MayAdminister, Params};
use crate::auth::Principal;
use crate::error::ApiError;

/// Says in the server's own log that somebody decided something.
pub(in super::super) fn answered(
    who: &Principal,
    run: RunId,
    question: QuestionId,
    answer: &Answer,
) {
    let said = match answer {
        Answer::Approve { .. } => "approve",
        Answer::Deny { .. } => "deny",
        Answer::Choose(_) | Answer::Value(_) | Answer::Expired | Answer::Withdrawn => "answer",
    };
    tracing::info!(
        target: "wellspring::audit",
        by = &*who.id, tenant = &*who.tenant, %run, question = question.0, said,
    );
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    after: Option<String>,
    limit: Option<usize>,
}

/// Every answer and every cancellation in the runs of the caller's tenant, newest run first.
/// `limit` counts the runs that are looked at.
pub(super) async fn read(
    State(app): State<App>,
    MayAdminister(who): MayAdminister,
    Params(query): Params<AuditQuery>,
) -> Result<Json<Value>, ApiError> {
    let limit = page_size(query.limit)?;
    let after_run = match &query.after {
        None => None,
        Some(after) => Some(app.run_of(&who, after).await?.run),
    };
    let log = app.runtime.log();
    let tenant = Some((*who.tenant).into());
    let filter = RunFilter { tenant, after_run, limit, ..RunFilter::default() };
    let found = log.store().list(filter).await?;
    let mut entries = Vec::new();
    for info in &found {
        let transcript = log.transcript(info.run).await?;
        for asked in transcript.questions.values() {
            let Some(answered) = &asked.answered else { continue };
            let part = asked.question.call.and_then(|call| transcript.parts.get(&call));
            let tool = part.and_then(|part| match &part.kind {
                PartKind::ToolCall(tool) => Some(&tool.name),
                PartKind::Text { .. }
                | PartKind::Thought
                | PartKind::Output { .. }
                | PartKind::Opaque(_) => None,
            });
            entries.push(json!({
                "run": info.run,
                "agent": info.agent,
                "question": asked.question.question,
                "prompt": asked.question.prompt,
                "tool": tool,
                "arguments": part.filter(|_| tool.is_some()).map(|part| &part.text),
                "answer": answered.answer,
                "by": answered.by,
            }));
        }
        if let Some(Outcome::Cancelled { by, why, .. }) = &transcript.outcome {
            entries.push(json!({
                "run": info.run,
                "agent": info.agent,
                "cancelled": { "why": why },
                "by": by,
            }));
        }
    }
    let next = found.last().filter(|_| found.len() == limit).map(|info| info.run);
    Ok(Json(json!({ "entries": entries, "next": next })))
}
