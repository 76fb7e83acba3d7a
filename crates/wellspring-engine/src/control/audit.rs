//! The audit log: who decided what. An entry is written in the same step as its command, or before
//! it. Deleting a run leaves its entries.

use serde_json::{Value, json};
use wellspring_core::{Answer, PartKind, QuestionId, Transcript};
use wellspring_log::{Act, AuditEntry, AuditFilter, NewAudit, RunInfo};

use super::{Control, ControlError};
use crate::principal::Permission;

/// Bytes of a prompt, of arguments or of an answer that an entry keeps: enough for an approved
/// command, not for the file that it writes.
const DETAIL_BYTES_MAX: usize = 4096;

/// The action of an entry, and its details.
pub(crate) struct Entry {
    did: &'static str,
    details: Value,
}

impl Entry {
    /// An answer to a question that the run has open.
    pub(crate) fn answer(run: &Transcript, question: QuestionId, answer: &Answer) -> Self {
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
        Self { did, details }
    }

    pub(crate) fn cancel(why: Option<&str>) -> Self {
        Self { did: "cancel", details: json!({ "why": why.map(shortened) }) }
    }

    pub(crate) fn refused(question: QuestionId) -> Self {
        Self { did: "refused_answer", details: json!({ "question": question }) }
    }

    pub(crate) fn delete() -> Self {
        Self { did: "delete", details: json!({}) }
    }
}

impl Control {
    /// The audit entries of the principal's tenant, newest first, older than `before`.
    /// Requires [`Permission::Admin`].
    ///
    /// # Errors
    ///
    /// If the principal may not read them, or the store fails.
    pub async fn audit(
        &self,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<AuditEntry>, ControlError> {
        self.permit(Permission::Admin)?;
        let filter = AuditFilter { tenant: (*self.who.tenant).into(), before, limit };
        Ok(self.log().store().audit(filter).await?)
    }

    /// An entry, kept once per run and key.
    pub(super) fn audited(&self, info: &RunInfo, key: &str, entry: Entry) -> NewAudit {
        let Entry { did, mut details } = entry;
        details["agent"] = json!(info.agent);
        let who = &self.who;
        tracing::info!(
            target: "wellspring::audit",
            by = &*who.id, tenant = &*who.tenant, run = %info.run, key, said = did,
        );
        let at = self.runtime.now();
        let act = Act { at, by: (*who.id).into(), run: info.run, did: did.into(), details };
        let key = format!("{} {key}", info.run).into();
        NewAudit { tenant: info.tenant.clone(), key, act }
    }
}

/// The start of a text, as much as an entry keeps.
fn shortened(text: &str) -> String {
    let end = text.floor_char_boundary(DETAIL_BYTES_MAX);
    let more = if end < text.len() { "…" } else { "" };
    format!("{}{more}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_shortened() {
        let max = DETAIL_BYTES_MAX;
        assert_eq!(shortened(&"x".repeat(max)), "x".repeat(max));
        assert_eq!(shortened(&"x".repeat(max + 1)), "x".repeat(max) + "…");
        assert_eq!(shortened(&"ä".repeat(max)), "ä".repeat(max / 2) + "…");
        let text = "y".repeat(2 * max);
        let entry =
            Entry::answer(&Transcript::default(), QuestionId(3), &Answer::Value(json!(text)));
        let kept = entry.details["answer"].as_str().unwrap();
        assert_eq!((entry.did, kept.len()), ("answer", max + "…".len()));
    }
}
