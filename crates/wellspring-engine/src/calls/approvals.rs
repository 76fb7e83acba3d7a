//! Standing approvals: a yes that holds for longer than one call.

use wellspring_core::Scope;

use crate::run::Run;

impl Run {
    /// Whether somebody said yes to this tool for longer than one call.
    pub(crate) async fn has_standing_approval(&self, agent: &str, tool: &str) -> bool {
        for name in [self.thread_approval(agent, tool), self.agent_approval(agent, tool)] {
            match self.runtime.log().store().setting(name).await {
                Ok(Some(_)) => return true,
                Ok(None) => {}
                // Without the answer of the store, the safe thing is to ask.
                Err(error) => tracing::warn!(%error, tool, "standing approvals could not be read"),
            }
        }
        false
    }

    pub(crate) async fn remember_approval(&self, scope: Scope, agent: &str, tool: &str) {
        let name = match scope {
            Scope::Once => return,
            Scope::Thread => self.thread_approval(agent, tool),
            Scope::Always => self.agent_approval(agent, tool),
        };
        if let Err(error) = self.runtime.log().store().put_setting(name, Some("yes".into())).await {
            tracing::warn!(%error, tool, "the standing approval could not be kept");
        }
    }

    fn thread_approval(&self, agent: &str, tool: &str) -> Box<str> {
        format!("approval/thread/{}/{agent}/{tool}", self.started.thread).into()
    }

    fn agent_approval(&self, agent: &str, tool: &str) -> Box<str> {
        format!("approval/agent/{}/{agent}/{tool}", self.tenant).into()
    }
}
