//! Standing approvals: approvals that apply to more than one call.
//!
//! A standing approval applies to the person who gave it and to what they were shown: the same
//! agent calls the same tool with the same arguments, in a run that this person started. It is a
//! document in the store, so that it can be listed and revoked. Granting and revoking are recorded
//! in the audit log.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use wellspring_core::{Millis, QuestionId, RunId, Scope, ThreadId};
use wellspring_log::document::segment;
use wellspring_log::{Act, DocumentFilter, Expected, NewAudit, StoreError};

use crate::control::{Control, ControlError};
use crate::principal::Permission;
use crate::run::Run;
use crate::runtime::Runtime;

/// An approval that applies to more than one call.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct StandingApproval {
    /// The principal that gave it; `None` if it had no name.
    pub by: Option<Box<str>>,
    /// The agent that may make the call.
    pub agent: Box<str>,
    /// The tool.
    pub tool: Box<str>,
    /// The exact arguments that were approved.
    pub arguments: Value,
    /// The only thread in which it applies; `None` for all threads.
    pub thread: Option<ThreadId>,
    /// The run that asked.
    pub run: RunId,
    /// The question that was answered.
    pub question: QuestionId,
    /// When it was given.
    pub at: Millis,
}

impl StandingApproval {
    /// The id that [`Control::revoke_approval`] expects.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}-{}", self.run, self.question)
    }

    fn holds(&self, run: &Run, arguments: &Value) -> bool {
        self.arguments == *arguments
            && self.by == run.started.request.by
            && self.thread.is_none_or(|thread| thread == run.started.thread)
    }
}

impl Control {
    /// The standing approvals of the principal's tenant. Requires [`Permission::Admin`].
    ///
    /// # Errors
    ///
    /// If the principal may not list them, or the store fails.
    pub async fn approvals(&self) -> Result<Vec<StandingApproval>, ControlError> {
        self.permit(Permission::Admin)?;
        let kept = self.runtime().approval_documents(&self.principal().tenant).await?;
        Ok(kept.into_iter().map(|(_, approval)| approval).collect())
    }

    /// Revokes a standing approval; `false` if the principal's tenant has none with this id.
    /// Requires [`Permission::Admin`].
    ///
    /// # Errors
    ///
    /// If the principal may not revoke it, or the store fails.
    pub async fn revoke_approval(&self, id: &str) -> Result<bool, ControlError> {
        self.permit(Permission::Admin)?;
        let (runtime, who) = (self.runtime(), self.principal());
        let kept = runtime.approval_documents(&who.tenant).await?;
        let Some((name, approval)) = kept.into_iter().find(|(_, it)| it.id() == id) else {
            return Ok(false);
        };
        let key = format!("revoke_approval-{name}");
        let at = runtime.now();
        runtime.audit_approval(&who.tenant, key, "revoke_approval", &who.id, at, &approval).await?;
        runtime.log().store().put_document(name, None, Expected::Anything).await?;
        Ok(true)
    }
}

impl Runtime {
    async fn approval_documents(
        &self,
        tenant: &str,
    ) -> Result<Vec<(Box<str>, StandingApproval)>, StoreError> {
        let mut filter = DocumentFilter::below(format!("approval/{}/", segment(tenant)));
        let mut all = Vec::new();
        loop {
            let page = self.log().store().documents(filter.clone()).await?;
            let Some(last) = page.last() else { return Ok(all) };
            filter.after = Some(last.name.clone());
            all.extend(page.into_iter().filter_map(|document| {
                let approval = serde_json::from_str(&document.text).ok()?;
                Some((document.name, approval))
            }));
        }
    }

    async fn audit_approval(
        &self,
        tenant: &str,
        key: String,
        did: &str,
        by: &str,
        at: Millis,
        approval: &StandingApproval,
    ) -> Result<(), StoreError> {
        let details = json!({
            "id": approval.id(), "agent": approval.agent, "tool": approval.tool,
            "arguments": approval.arguments, "thread": approval.thread,
        });
        let act = Act { at, by: by.into(), run: approval.run, did: did.into(), details };
        let entry = NewAudit { tenant: tenant.into(), key: key.into(), act };
        self.log().store().put_audit(entry).await.map(drop)
    }
}

impl Run {
    /// Whether the asker has approved this very call for longer than once.
    pub(crate) async fn has_standing_approval(
        &self,
        agent: &str,
        tool: &str,
        arguments: &Value,
    ) -> bool {
        // One page. With more approvals of one tool, the run asks again.
        let filter = DocumentFilter::below(self.approvals_of(agent, tool));
        match self.runtime.log().store().documents(filter).await {
            Ok(kept) => kept.iter().any(|document| {
                let approval: Result<StandingApproval, _> = serde_json::from_str(&document.text);
                approval.is_ok_and(|approval| approval.holds(self, arguments))
            }),
            Err(error) => {
                // If the store does not answer, asking is safe.
                tracing::warn!(%error, tool, "failed to read standing approvals");
                false
            }
        }
    }

    /// Stores an approval if it applies to more than one call.
    pub(crate) async fn remember_approval(&self, scope: Scope, approval: StandingApproval) {
        let thread = match scope {
            Scope::Once => return,
            Scope::Thread => Some(self.started.thread),
            Scope::Always => None,
        };
        let approval = StandingApproval { thread, ..approval };
        let prefix = self.approvals_of(&approval.agent, &approval.tool);
        let name = format!("{prefix}{}", approval.id());
        let kept = async {
            let (runtime, by) = (&self.runtime, approval.by.as_deref().unwrap_or_default());
            let key = format!("standing_approval-{name}");
            let (tenant, at) = (&self.tenant, approval.at);
            runtime.audit_approval(tenant, key, "standing_approval", by, at, &approval).await?;
            let text = serde_json::to_string(&approval)
                .map_err(|error| StoreError::failed("writing a standing approval", error))?;
            let store = runtime.log().store();
            store.put_document(name.into(), Some(text.into()), Expected::Anything).await
        };
        if let Err(error) = kept.await {
            tracing::warn!(%error, tool = %approval.tool, "failed to keep a standing approval");
        }
    }

    fn approvals_of(&self, agent: &str, tool: &str) -> String {
        let tenant = segment(&self.tenant);
        format!("approval/{tenant}/{}/{}/", segment(agent), segment(tool))
    }
}
