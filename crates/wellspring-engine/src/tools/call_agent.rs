//! `call-agent`: calls another agent.

use serde::Deserialize;
use serde_json::{Value, json};
use wellspring_core::{Content, ToolResult, ToolSpec};

use super::function::{FunctionTool, from_function, typed};

/// The tool's name. The engine knows it: after a crash, such a call continues with its sub-agent.
pub const CALL_AGENT: &str = "call-agent";

/// A tool by which the model calls one of these agents, each with a description. The result is the
/// agent's whole text. The engine limits the depth and waits for the end.
///
/// ```
/// use serde_json::json;
/// use wellspring_core::Tool as _;
/// use wellspring_engine::tools::call_agent;
///
/// let tool = call_agent([("librarian", "Finds books.")]);
/// assert_eq!(tool.spec().parameters["properties"]["agentId"]["enum"], json!(["librarian"]));
/// ```
#[must_use]
pub fn call_agent<'a>(agents: impl IntoIterator<Item = (&'a str, &'a str)>) -> FunctionTool {
    let mut description =
        "Lets another agent work on something and gives back what it says. The agent sees only \
         the input, so put everything it needs there. Agents:"
            .to_owned();
    let mut names = Vec::new();
    for (name, purpose) in agents {
        description.push_str(&format!("\n- {name}: {purpose}"));
        names.push(name);
    }
    let parameters = json!({
        "type": "object",
        "properties": {
            "agentId": {"type": "string", "enum": names, "description": "Which agent."},
            "input": {"type": "string", "description": "What it is asked."},
        },
        "required": ["agentId", "input"],
    });
    let spec = ToolSpec { parameters: parameters.into(), ..ToolSpec::new(CALL_AGENT, description) };
    from_function(spec, async |arguments: Value, context| {
        let Arguments { agent_id, input } = typed(arguments)?;
        let text = context.call_agent(agent_id, vec![Content::text(input)]).await?;
        Ok(ToolResult::new(text))
    })
    .title("Agent")
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    agent_id: Box<str>,
    input: Box<str>,
}

#[cfg(test)]
mod tests;
