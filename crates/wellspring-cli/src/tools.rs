//! Builds the built-in tools that an agent's configuration names.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use wellspring_core::{Model, Tool, ToolError};
use wellspring_engine::tools::egress::Egress;
use wellspring_engine::tools::{
    Files, Shell, ask_user, call_agent, clock, file_transfer, llm_call, update_plan,
};

use crate::config::agent::{AgentConfig, BuiltInTool};
use crate::launch::launcher;

/// Builds an agent's tools. `others` are the agents that it may call.
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
            BuiltInTool::ReadFile => Arc::new(Files::below(root).map_err(unusable)?.read_file()),
            BuiltInTool::ListFiles => Arc::new(Files::below(root).map_err(unusable)?.list_files()),
            BuiltInTool::SearchFiles => {
                Arc::new(Files::below(root).map_err(unusable)?.search_files())
            }
            BuiltInTool::Shell => Arc::new(shell(agent, root)?),
            BuiltInTool::FileTransfer => {
                let ranges = agent.allow_addresses.iter().cloned();
                Arc::new(
                    file_transfer(root, ranges.fold(Egress::new(), Egress::allow))
                        .map_err(unusable)?,
                )
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

fn shell(agent: &AgentConfig, root: &Path) -> Result<Shell> {
    let launcher = launcher(root, agent.sandbox.as_ref())?;
    let inherited = |name: &str| Some((name.to_owned(), std::env::var_os(name)?));
    let variables = agent.variables.iter().filter_map(|name| inherited(name));
    let shell = Shell::below(root).map_err(unusable)?.launcher(launcher);
    Ok(variables.fold(shell, |shell, (name, value)| shell.variable(name, value)))
}

/// The reason why a built-in tool cannot be built.
pub(crate) fn unusable(error: ToolError) -> anyhow::Error {
    anyhow::Error::from_boxed(error.into())
}
