//! Standing approvals: a yes that holds for longer than one call.

use wellspring_core::Scope;
use wellspring_log::Expected;
use wellspring_log::document::segment;

use crate::run::Run;

impl Run {
    /// Whether somebody said yes to this tool for longer than one call.
    pub(crate) async fn has_standing_approval(&self, agent: &str, tool: &str) -> bool {
        for name in [self.thread_approval(agent, tool), self.agent_approval(agent, tool)] {
            match self.runtime.log().store().document(name).await {
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
        let store = self.runtime.log().store();
        let kept = store.put_document(name, Some("yes".into()), Expected::Anything).await;
        if let Err(error) = kept {
            tracing::warn!(%error, tool, "the standing approval could not be kept");
        }
    }

    fn thread_approval(&self, agent: &str, tool: &str) -> Box<str> {
        let thread = self.started.thread;
        format!("approval/thread/{thread}/{}/{}", segment(agent), segment(tool)).into()
    }

    fn agent_approval(&self, agent: &str, tool: &str) -> Box<str> {
        let tenant = segment(&self.tenant);
        format!("approval/agent/{tenant}/{}/{}", segment(agent), segment(tool)).into()
    }
}
