//! Arguments of calls: parsed, and checked against the tool's schema and the policy.

use serde_json::{Map, Value};
use wellspring_core::{Approval, Tool};

use crate::agent::AgentDef;
use crate::schema::Schema;

/// Maximum characters of arguments that a question or an error message shows; the call has all of
/// them.
pub(super) const SHOWN_CHARS_MAX: usize = 500;

/// Parses arguments as JSON. Empty arguments mean an empty object. Invalid JSON is kept as a
/// string, which the error message for the model shows.
pub(crate) fn parse_arguments(text: &str) -> Value {
    if text.trim().is_empty() {
        return Value::Object(Map::new());
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.into()))
}

/// Checks arguments that an approver edited. Like the model's own, they must match the schema, and
/// the policy must not deny them. Returns the reason if not.
pub(crate) async fn check_edited(def: &AgentDef, tool: &str, edited: &Value) -> Result<(), String> {
    let tool = def.tool(tool).ok_or_else(|| format!("there is no tool {tool:?}"))?;
    check_arguments(&**tool, edited).await?;
    match def.policy.decide(tool.spec(), edited) {
        Approval::Allow | Approval::Ask => Ok(()),
        Approval::Deny => Err("the policy denies the edited arguments".into()),
    }
}

/// Checks arguments against the tool's schema. Returns what is wrong, for the model.
pub(super) async fn check_arguments(tool: &dyn Tool, arguments: &Value) -> Result<(), String> {
    let name = &tool.spec().name;
    if let Value::String(text) = arguments {
        let start: String = text.chars().take(SHOWN_CHARS_MAX).collect();
        return Err(format!("the arguments of {name} are not valid JSON: {start}"));
    }
    if !arguments.is_object() {
        let shown: String = arguments.to_string().chars().take(SHOWN_CHARS_MAX).collect();
        return Err(format!("the arguments of {name} must be a JSON object, but are: {shown}"));
    }
    let schema = Schema::compile_async(&tool.spec().parameters)
        .await
        .map_err(|error| format!("the schema of {name} cannot be used: {error}"))?;
    schema
        .validate_async(arguments)
        .await
        .map_err(|problems| format!("the arguments do not fit {name}: {}", problems.join("; ")))
}
