//! The built-in tools of an agent, as its configuration names them.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use wellspring_core::{Model, Tool};
use wellspring_engine::tools::egress::Egress;
use wellspring_engine::tools::{
    Files, Shell, ask_user, call_agent, clock, file_transfer, llm_call, update_plan,
};

use crate::config::agent::{AgentConfig, BuiltInTool};

/// Makes an agent's tools. `others` are the agents that it may call.
pub(crate) fn tools(
    agent: &AgentConfig,
    model: Option<&Arc<dyn Model>>,
    others: &[(Box<str>, Box<str>)],
) -> Result<Vec<Arc<dyn Tool>>> {
    let root = agent.directory.as_deref().unwrap_or(Path::new("."));
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    for tool in &agent.tools {
        tools.push(match tool {
            BuiltInTool::AskUser => Arc::new(ask_user()),
            BuiltInTool::Clock => Arc::new(clock()),
            BuiltInTool::UpdatePlan => Arc::new(update_plan()),
            BuiltInTool::ReadFile => Arc::new(Files::below(root)?.read_file()),
            BuiltInTool::ListFiles => Arc::new(Files::below(root)?.list_files()),
            BuiltInTool::SearchFiles => Arc::new(Files::below(root)?.search_files()),
            BuiltInTool::Shell => Arc::new(Shell::below(root)?),
            BuiltInTool::FileTransfer => {
                let ranges = agent.allow_addresses.iter().cloned();
                Arc::new(file_transfer(root, ranges.fold(Egress::new(), Egress::allow))?)
            }
            BuiltInTool::LlmCall => match model {
                Some(model) => Arc::new(llm_call(Arc::clone(model))),
                None => anyhow::bail!("llm_call needs a `model`, and an ACP agent has none"),
            },
        });
    }
    if !others.is_empty() {
        let others = others.iter().map(|(name, about)| (&**name, &**about));
        tools.push(Arc::new(call_agent(others)));
    }
    Ok(tools)
}
