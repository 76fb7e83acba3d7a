//! Who decided what: kept before it is done, beside the runs, so that deleting a run leaves
//! what was decided in it.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use wellspring_core::{Answer, PartKind, QuestionId, Transcript};
use wellspring_log::{Act, AuditEntry, AuditFilter, NewAudit, RunInfo};

use super::runs::page_size;
use crate::app::{App, MayAdminister, Params};
use crate::error::ApiError;
use wellspring_engine::Principal;

/// Bytes of a prompt, of arguments or of an answer that an entry keeps: a command that someone
/// allowed, not the file that it writes.
const DETAIL_BYTES_MAX: usize = 4096;

/// Something that somebody is about to do to a run.
pub(in super::super) struct Deed {
    did: &'static str,
    /// What makes it one deed, besides the run and who does it.
    key: String,
    details: Value,
}

impl Deed {
    /// An answer to a question that the run has open.
    pub(in super::super) fn answer(
        run: &Transcript,
        question: QuestionId,
        answer: &Answer,
    ) -> Self {
        let did = match answer {
            Answer::Approve { .. } => "approve",
            Answer::Deny { .. } => "deny",
            Answer::Choose(_) | Answer::Value(_) | Answer::Expired | Answer::Withdrawn => "answer",
        };
        let asked = run.questions.get(&question).map(|asked| &asked.question);
        let part = asked.and_then(|asked| asked.call).and_then(|call| run.parts.get(&call));
        let call = part.and_then(|part| match &part.kind {
            PartKind::ToolCall(tool) => Some((&tool.name, shortened(&part.text))),
            PartKind::Text { .. }
            | PartKind::Thought
            | PartKind::Output { .. }
            | PartKind::Opaque(_) => None,
        });
        let answer = json!(answer);
        let text = answer.to_string();
        let answer = if text.len() > DETAIL_BYTES_MAX { shortened(&text).into() } else { answer };
        let details = json!({
            "question": question,
            "prompt": asked.map(|asked| shortened(&asked.prompt)),
            "tool": call.as_ref().map(|(tool, _)| tool),
            "arguments": call.as_ref().map(|(_, arguments)| arguments),
            "answer": answer,
        });
        Self { did, key: format!("answer-{question}"), details }
    }

    pub(in super::super) fn cancel(why: Option<&str>) -> Self {
        let details = json!({ "why": why.map(shortened) });
        Self { did: "cancel", key: "cancel".into(), details }
    }

    pub(super) fn delete() -> Self {
        Self { did: "delete", key: "delete".into(), details: json!({}) }
    }

    /// Takes note of it; only then may it be done. Told twice, it is kept once.
    pub(in super::super) async fn keep(
        self,
        app: &App,
        who: &Principal,
        info: &RunInfo,
    ) -> Result<(), ApiError> {
        let Self { did, key, mut details } = self;
        details["agent"] = json!(info.agent);
        let log = app.runtime.log();
        let act = Act {
            at: log.clock().now(),
            by: (*who.id).into(),
            run: info.run,
            did: did.into(),
            details,
        };
        let entry = NewAudit {
            tenant: (*who.tenant).into(),
            key: format!("{} {key} {}", info.run, who.id).into(),
            act,
        };
        log.store().put_audit(entry).await?;
        tracing::info!(
            target: "wellspring::audit",
            by = &*who.id, tenant = &*who.tenant, run = %info.run, key, said = did,
        );
        Ok(())
    }
}

/// As much of a text as an entry keeps.
fn shortened(text: &str) -> String {
    let end = text.floor_char_boundary(DETAIL_BYTES_MAX);
    let more = if end < text.len() { "…" } else { "" };
    format!("{}{more}", &text[..end])
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    after: Option<u64>,
    limit: Option<usize>,
}

/// What the people of the caller's tenant decided, newest first.
pub(super) async fn read(
    State(app): State<App>,
    MayAdminister(who): MayAdminister,
    Params(query): Params<AuditQuery>,
) -> Result<Json<Value>, ApiError> {
    let limit = page_size(query.limit)?;
    let filter = AuditFilter { tenant: (*who.tenant).into(), before: query.after, limit };
    let found = app.runtime.log().store().audit(filter).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|entry| entry.number);
    let entries: Vec<Value> = found
        .into_iter()
        .map(|AuditEntry { act, .. }| {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_is_kept_short() {
        let max = DETAIL_BYTES_MAX;
        assert_eq!(shortened(&"x".repeat(max)), "x".repeat(max));
        assert_eq!(shortened(&"x".repeat(max + 1)), "x".repeat(max) + "…");
        assert_eq!(shortened(&"ä".repeat(max)), "ä".repeat(max / 2) + "…");
        let text = "y".repeat(2 * max);
        let deed = Deed::answer(&Transcript::default(), QuestionId(3), &Answer::Value(json!(text)));
        let kept = deed.details["answer"].as_str().unwrap();
        assert_eq!((deed.did, kept.len()), ("answer", max + "…".len()));
    }
}
