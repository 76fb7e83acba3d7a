//! The typed result: a tool that the agent calls with its answer.

use serde_json::{Map, Value, json};
use wellspring_core::{RETURN_RESULT, ToolKind, ToolSpec};

use crate::schema::Schema;

/// The schema of a typed result, and the tool by which the agent returns it.
#[derive(Debug)]
pub(crate) struct ResultTool {
    pub(crate) spec: ToolSpec,
    schema: Schema,
    /// Set if the schema is not an object's: tools take objects, so the result is a member of one.
    wrapped: bool,
}

impl ResultTool {
    /// # Errors
    ///
    /// If the schema is not a valid JSON schema.
    pub(crate) async fn new(schema: &Value) -> Result<Self, crate::schema::SchemaError> {
        let wrapped = schema.get("type").and_then(Value::as_str) != Some("object");
        let parameters = if wrapped { wrap(schema) } else { schema.clone() };
        let mut spec = ToolSpec::new(
            RETURN_RESULT,
            "Hand over the final result. Call this once, when the work is done.",
        );
        spec.kind = ToolKind::Other;
        let compiled = Schema::compile_async(&parameters).await?;
        spec.parameters = parameters.into();
        Ok(Self { spec, schema: compiled, wrapped })
    }

    /// The result in these arguments.
    ///
    /// # Errors
    ///
    /// The mismatches, described so that the agent can correct them.
    pub(crate) async fn accept(&self, arguments: Value) -> Result<Value, String> {
        self.schema.validate_async(&arguments).await.map_err(|problems| {
            format!(
                "the result does not fit its schema: {}; call it again, corrected",
                problems.join("; ")
            )
        })?;
        if !self.wrapped {
            return Ok(arguments);
        }
        let mut arguments = arguments;
        Ok(arguments.get_mut("value").map(Value::take).unwrap_or_default())
    }
}

/// `{"value": <schema>}`, with the definitions at the top, where references look for them.
fn wrap(schema: &Value) -> Value {
    let mut inner = schema.clone();
    let mut outer = Map::new();
    if let Value::Object(members) = &mut inner {
        for definitions in ["$defs", "definitions"] {
            if let Some(moved) = members.shift_remove(definitions) {
                outer.insert(definitions.into(), moved);
            }
        }
        members.shift_remove("$schema");
    }
    point_inside(&mut inner);
    outer.values_mut().for_each(point_inside);
    outer.insert("type".into(), json!("object"));
    outer.insert("properties".into(), json!({"value": inner}));
    outer.insert("required".into(), json!(["value"]));
    Value::Object(outer)
}

/// Rewrites references to the schema itself so that they point into `value`: recursive types
/// have such references. Definitions stay at the top.
fn point_inside(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get_mut("$ref")
                && let Some(path) = reference.strip_prefix('#')
                && !path.starts_with("/$defs/")
                && !path.starts_with("/definitions/")
                && (path.is_empty() || path.starts_with('/'))
            {
                *reference = format!("#/properties/value{path}");
            }
            members.values_mut().for_each(point_inside);
        }
        Value::Array(items) => items.iter_mut().for_each(point_inside),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
