//! The types of items, and what is shown of items that are calls.

use serde_json::{Map, Value, json};
use wellspring_core::{PartKind, RunsOn, ToolCall, ToolKind};

use crate::provider::text::member;

/// How an item is handled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ItemType {
    Message,
    Reasoning,
    FunctionCall,
    CustomToolCall,
    /// A call that runs at the provider.
    Hosted(Hosted),
    /// A call of a tool that the provider defines and we run; the name is the tool's.
    Action(&'static str),
    /// Anything else: kept whole, as an opaque part.
    Other,
}

impl ItemType {
    pub(super) fn of(item: &Value) -> Self {
        match member(item, "type").unwrap_or("message") {
            "message" => Self::Message,
            "reasoning" => Self::Reasoning,
            "function_call" => Self::FunctionCall,
            "custom_tool_call" => Self::CustomToolCall,
            "web_search_call" => Self::Hosted(Hosted::WebSearch),
            "file_search_call" => Self::Hosted(Hosted::FileSearch),
            "code_interpreter_call" => Self::Hosted(Hosted::CodeInterpreter),
            "image_generation_call" => Self::Hosted(Hosted::ImageGeneration),
            "mcp_call" => Self::Hosted(Hosted::Mcp),
            "computer_call" => Self::Action("computer"),
            "local_shell_call" => Self::Action("local_shell"),
            "shell_call" => Self::Action("shell"),
            "apply_patch_call" => Self::Action("apply_patch"),
            _ => Self::Other,
        }
    }
}

/// The action of a call of a provider-defined tool that we run.
pub(super) fn action(item: &Value) -> Option<&Value> {
    ["action", "actions", "operation"].iter().find_map(|name| item.get(name))
}

/// A tool that runs at the provider.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Hosted {
    WebSearch,
    FileSearch,
    CodeInterpreter,
    ImageGeneration,
    Mcp,
}

impl Hosted {
    pub(super) fn streams_code(self) -> bool {
        self == Self::CodeInterpreter
    }

    pub(super) fn streams_arguments(self) -> bool {
        self == Self::Mcp
    }

    /// The call as a part.
    pub(super) fn call(self, item: &Value) -> PartKind {
        let (name, kind) = match self {
            Self::WebSearch => ("web_search", ToolKind::Fetch),
            Self::FileSearch => ("file_search", ToolKind::Search),
            Self::CodeInterpreter => ("code_interpreter", ToolKind::Execute),
            Self::ImageGeneration => ("image_generation", ToolKind::Other),
            Self::Mcp => (member(item, "name").unwrap_or("mcp"), ToolKind::Other),
        };
        let title = member(item, "server_label").map(|server| format!("{server}: {name}").into());
        let runs_on = RunsOn::Provider;
        PartKind::ToolCall(Box::new(ToolCall { name: name.into(), id: None, title, kind, runs_on }))
    }

    /// The arguments, for calls whose arguments are not streamed.
    pub(super) fn arguments(self, item: &Value) -> Option<Value> {
        let asked = match self {
            Self::WebSearch => item.get("action")?.clone(),
            Self::FileSearch => json!({ "queries": item.get("queries")? }),
            Self::ImageGeneration => json!({ "prompt": item.get("revised_prompt")? }),
            Self::CodeInterpreter | Self::Mcp => return None,
        };
        let empty = |value: &Value| match value {
            Value::Object(members) => {
                members.values().all(|member| member.is_null() || *member == json!([]))
            }
            Value::Null => true,
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => false,
        };
        (!empty(&asked)).then_some(asked)
    }

    /// The call's output.
    pub(super) fn output(self, item: &Value) -> Value {
        let names: &[&str] = match self {
            Self::WebSearch => &["action", "results"],
            Self::FileSearch => &["results"],
            Self::CodeInterpreter => &["outputs"],
            // The image itself becomes a file of the run.
            Self::ImageGeneration => &["revised_prompt"],
            Self::Mcp => &["output", "error"],
        };
        let found = names.iter().filter_map(|name| {
            let value = item.get(name).filter(|value| !value.is_null())?;
            Some(((*name).to_owned(), value.clone()))
        });
        let mut found: Map<String, Value> = found.collect();
        match found.remove("output") {
            Some(output) if found.is_empty() => output,
            Some(output) => {
                found.insert("output".into(), output);
                Value::Object(found)
            }
            None if found.is_empty() => Value::Null,
            None => Value::Object(found),
        }
    }

    /// The generated image, in base64.
    pub(super) fn picture(self, item: &Value) -> Option<(Box<str>, &str)> {
        if self != Self::ImageGeneration {
            return None;
        }
        let format = member(item, "output_format").unwrap_or("png");
        Some((format!("image/{format}").into(), member(item, "result")?))
    }
}
