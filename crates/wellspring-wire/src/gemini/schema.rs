//! Reduces JSON schemas to the subset that function declarations support.
//!
//! The provider rejects a whole request over one unknown keyword. So known keywords are kept,
//! equivalent ones are translated, references are inlined, and the rest is dropped. The reduced
//! schema still accepts every valid call; the engine validates arguments against the full
//! schema and reports errors to the model.

use serde_json::{Map, Value, json};

/// Maximum number of schemas in one schema after its references are resolved; the rest accepts
/// any value. Definitions that refer to each other can double with each step, and no tool that
/// a model understands has this many.
const SCHEMAS_MAX: usize = 4096;

/// The schema of a function's parameters. `None` for an empty one: the provider rejects an
/// object without properties.
pub(super) fn declared(schema: &Value) -> Option<Value> {
    let translated = Translation { root: schema, inside: Vec::new(), count: 0 }.of(schema);
    let properties = translated.get("properties").and_then(Value::as_object);
    properties.is_some_and(|properties| !properties.is_empty()).then_some(translated)
}

struct Translation<'a> {
    root: &'a Value,
    /// The references that are being resolved, to detect cycles.
    inside: Vec<&'a str>,
    count: usize,
}

impl<'a> Translation<'a> {
    fn of(&mut self, schema: &'a Value) -> Value {
        self.count += 1;
        match schema.as_object().filter(|_| self.count <= SCHEMAS_MAX) {
            Some(members) => self.object(members),
            // `true`, or an invalid schema: any value is accepted.
            None => json!({}),
        }
    }

    fn object(&mut self, members: &'a Map<String, Value>) -> Value {
        if let Some(target) = members.get("$ref").and_then(Value::as_str) {
            let mut put = self.reference(target);
            if let (Some(description), Value::Object(put)) = (members.get("description"), &mut put)
            {
                put.insert("description".into(), description.clone());
            }
            return put;
        }
        let mut out = Map::new();
        for (name, value) in members {
            match (name.as_str(), value) {
                ("type", Value::Array(types)) => many_types(types, &mut out),
                (
                    "type" | "title" | "description" | "required" | "minItems" | "maxItems"
                    | "minimum" | "maximum" | "minLength" | "maxLength" | "minProperties"
                    | "maxProperties" | "pattern" | "nullable" | "default" | "propertyOrdering",
                    _,
                ) => {
                    out.insert(name.clone(), value.clone());
                }
                ("properties", Value::Object(properties)) => {
                    let translated =
                        properties.iter().map(|(name, schema)| (name.clone(), self.of(schema)));
                    out.insert(name.clone(), Value::Object(translated.collect()));
                }
                ("items", _) => {
                    out.insert(name.clone(), self.of(value));
                }
                ("anyOf" | "oneOf", Value::Array(choices)) => {
                    self.alternatives(choices, &mut out);
                }
                ("allOf", Value::Array(all)) => {
                    for part in all {
                        if let Value::Object(part) = self.of(part) {
                            join(&mut out, part);
                        }
                    }
                }
                ("enum", Value::Array(values)) => choices(values, &mut out),
                ("const", value) => choices(std::slice::from_ref(value), &mut out),
                ("format", Value::String(format))
                    if matches!(
                        format.as_str(),
                        "int32" | "int64" | "float" | "double" | "date-time" | "enum"
                    ) =>
                {
                    out.insert(name.clone(), value.clone());
                }
                _ => {}
            }
        }
        if out.contains_key("properties") {
            out.entry("type").or_insert_with(|| "object".into());
            keep_required(&mut out);
        }
        if out.get("type") == Some(&json!("array")) {
            out.entry("items").or_insert_with(|| json!({}));
        }
        Value::Object(out)
    }

    fn reference(&mut self, target: &'a str) -> Value {
        if self.inside.contains(&target) {
            return json!({ "type": "object" });
        }
        let Some(found) = target.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer))
        else {
            return json!({});
        };
        self.inside.push(target);
        let put = self.of(found);
        self.inside.pop();
        put
    }

    /// A choice between one schema and null is that schema, nullable.
    fn alternatives(&mut self, choices: &'a [Value], out: &mut Map<String, Value>) {
        let is_null = |choice: &&Value| choice.get("type") == Some(&json!("null"));
        if choices.iter().any(|choice| is_null(&choice)) {
            out.insert("nullable".into(), true.into());
        }
        let others = choices.iter().filter(|choice| !is_null(choice));
        let mut others: Vec<Value> = others.map(|choice| self.of(choice)).collect();
        match others.pop() {
            Some(Value::Object(only)) if others.is_empty() => join(out, only),
            Some(last) => {
                others.push(last);
                out.insert("anyOf".into(), others.into());
            }
            None => {}
        }
    }
}

/// `["string", "null"]` is a nullable string; several other types become `anyOf`.
fn many_types(types: &[Value], out: &mut Map<String, Value>) {
    let mut others = types.iter().filter(|kind| **kind != "null");
    let first = others.next().cloned();
    if types.iter().any(|kind| *kind == "null") {
        out.insert("nullable".into(), true.into());
    }
    let more: Vec<Value> = others.map(|kind| json!({ "type": kind })).collect();
    match first {
        Some(first) if more.is_empty() => {
            out.insert("type".into(), first);
        }
        Some(first) => {
            let mut all = vec![json!({ "type": first })];
            all.extend(more);
            out.insert("anyOf".into(), all.into());
        }
        None => {}
    }
}

/// Enumerations are supported for strings only. For other values, only the type is kept.
fn choices(values: &[Value], out: &mut Map<String, Value>) {
    if values.contains(&Value::Null) {
        out.insert("nullable".into(), true.into());
    }
    let strings: Vec<Value> = values.iter().filter(|value| value.is_string()).cloned().collect();
    let others = values.iter().filter(|value| !value.is_string() && !value.is_null()).count();
    if others == 0 && !strings.is_empty() {
        out.entry("type").or_insert_with(|| "string".into());
        out.insert("enum".into(), strings.into());
    }
}

fn join(out: &mut Map<String, Value>, more: Map<String, Value>) {
    for (name, value) in more {
        match (out.get_mut(&name), value) {
            (Some(Value::Object(known)), Value::Object(value)) => join(known, value),
            (Some(Value::Array(known)), Value::Array(value)) if name == "required" => {
                known.extend(value);
            }
            (Some(_), _) => {}
            (None, value) => {
                out.insert(name, value);
            }
        }
    }
}

/// The provider rejects required properties that are not declared.
fn keep_required(out: &mut Map<String, Value>) {
    let Some(Value::Object(properties)) = out.get("properties") else { return };
    let known: Vec<String> = properties.keys().cloned().collect();
    if let Some(Value::Array(required)) = out.get_mut("required") {
        required.retain(|name| known.iter().any(|known| name == known));
        if required.is_empty() {
            out.shift_remove("required");
        }
    }
}
