//! Who decided what. The log of the runs is the audit log: there is no second one that could
//! say otherwise. It lasts as long as its runs do: only an operator can delete one, and the
//! server's own log says who did.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use wellspring_core::{Answer, Event, Millis, Outcome, PartKind, QuestionId, RunId, Seq};
use wellspring_log::{Log, ReadError, RunFilter, RunInfo};

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

/// Says in the server's own log that somebody ended or deleted a run.
pub(in super::super) fn did(who: &Principal, run: RunId, said: &str) {
    tracing::info!(
        target: "wellspring::audit",
        by = &*who.id, tenant = &*who.tenant, %run, said,
    );
}

/// When a run's questions were answered.
async fn answered_at(log: &Log, info: &RunInfo) -> Result<BTreeMap<QuestionId, Millis>, ReadError> {
    let mut times = BTreeMap::new();
    let mut cursor = log.cursor(info.run, Seq(0)).await?;
    while cursor.position() < info.head
        && let Some(frames) = cursor.next().await?
    {
        for record in frames.iter().flat_map(|frame| frame.iter()) {
            if let Event::QuestionAnswered(answered) = &record.event {
                times.insert(answered.question, record.at);
            }
        }
    }
    Ok(times)
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
        let times = if transcript.questions.is_empty() {
            BTreeMap::new()
        } else {
            answered_at(log, info).await?
        };
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
                "at": times.get(&asked.question.question),
            }));
        }
        if let Some(Outcome::Cancelled { by, why, .. }) = &transcript.outcome {
            entries.push(json!({
                "run": info.run,
                "agent": info.agent,
                "cancelled": { "why": why },
                "by": by,
                "at": info.updated_at,
            }));
        }
    }
    let next = found.last().filter(|_| found.len() == limit).map(|info| info.run);
    Ok(Json(json!({ "entries": entries, "next": next })))
}
