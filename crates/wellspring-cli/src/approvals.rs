//! `wellspring approvals`: standing approvals of tool calls.

use std::io::Write as _;

use anyhow::Result;
use wellspring_engine::Principal;

use crate::args::ApprovalsCommand;
use crate::setup::Setup;
use crate::{Exit, Usage};

/// Lists and revokes standing approvals.
pub(crate) async fn approvals(setup: &Setup, command: ApprovalsCommand) -> Result<Exit> {
    let mut out = std::io::stdout();
    let of = |tenant: String| setup.runtime.control(Principal::local().in_tenant(tenant));
    match command {
        ApprovalsCommand::List { tenant } => {
            for approval in of(tenant).approvals().await? {
                let by = approval.by.as_deref().unwrap_or("-");
                let scope = if approval.thread.is_some() { "thread" } else { "always" };
                let (id, agent, tool) = (approval.id(), &approval.agent, &approval.tool);
                let arguments = &approval.arguments;
                writeln!(out, "{id}\t{by}\t{scope}\t{agent}\t{tool}\t{arguments}")?;
            }
        }
        ApprovalsCommand::Revoke { id, tenant } => {
            if !of(tenant).revoke_approval(&id).await? {
                anyhow::bail!(Usage(format!(
                    "there is no standing approval {id:?}; `wellspring approvals list` shows them"
                )));
            }
        }
    }
    Ok(Exit::Completed)
}
