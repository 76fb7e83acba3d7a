//! Compiled JSON schemas, for tool arguments and typed results.
//!
//! # What is deliberately absent
//!
//! Fetching: a reference to another document does not compile. A schema comes from a tool,
//! a peer or a request, and none of these may make us open a connection or a file.

use std::fmt;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

/// Complaints reported about one value: more would not help a model or a person.
pub const COMPLAINTS_MAX: usize = 16;

/// Backtracking steps of a `pattern` before it counts as no match. Sensible patterns need far
/// fewer; this bounds malicious ones.
const PATTERN_BACKTRACK_MAX: usize = 100_000;

/// Bytes of a compiled `pattern`, so that a schema from a client cannot exhaust memory.
const PATTERN_BYTES_MAX: usize = 256 * 1024;

/// Maximum number of values in a schema, nested ones included: more than any published tool has.
const NODES_MAX: usize = 20_000;

/// Patterns in a schema. Each may take a few milliseconds and [`PATTERN_BYTES_MAX`] to compile.
const PATTERNS_MAX: usize = 64;

/// Characters of all patterns of a schema together, as they are written.
const PATTERN_CHARS_MAX: usize = 8 * 1024;

/// A compiled JSON schema.
///
/// ```
/// use serde_json::json;
/// use wellspring_engine::schema::Schema;
///
/// let schema = Schema::compile(&json!({
///     "type": "object",
///     "properties": {"age": {"type": "integer"}},
///     "required": ["age"]
/// }))?;
/// assert_eq!(schema.validate(&json!({"age": 7})), Ok(()));
/// assert_eq!(
///     schema.validate(&json!({"age": "seven"})),
///     Err(vec![r#"/age: value is not of type "integer""#.to_owned()])
/// );
/// # Ok::<(), wellspring_engine::schema::SchemaError>(())
/// ```
pub struct Schema {
    validator: Validator,
}

/// A JSON value that is not a schema, or that uses something we do not support.
#[derive(Debug, thiserror::Error)]
#[error("the schema cannot be used: {what}")]
pub struct SchemaError {
    what: String,
    #[source]
    cause: Box<dyn std::error::Error + Send + Sync>,
}

impl Schema {
    /// Compiles a schema, in the draft that it names or else in 2020-12.
    ///
    /// # Errors
    ///
    /// If it is not a schema, or refers to another document.
    ///
    /// Also if it is too large to compile: a schema may come from a client.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        let size = Size::of(schema);
        if let Some(what) = size.too_large() {
            return Err(SchemaError { what: what.clone(), cause: what.into() });
        }
        let patterns = PatternOptions::fancy_regex()
            .backtrack_limit(PATTERN_BACKTRACK_MAX)
            .size_limit(PATTERN_BYTES_MAX);
        jsonschema::options()
            .offline()
            .with_pattern_options(patterns)
            .build(schema)
            .map(|validator| Self { validator })
            .map_err(|error| SchemaError {
                what: complaint(&error),
                cause: Box::new(error.to_owned()),
            })
    }

    /// Validates a value against the whole schema.
    ///
    /// # Errors
    ///
    /// The problems, each with its JSON pointer; at most
    /// [`COMPLAINTS_MAX`], then a note that there are more. The value itself is not repeated:
    /// it may be long, or secret.
    pub fn validate(&self, value: &Value) -> Result<(), Vec<String>> {
        let mut errors = self.validator.iter_errors(value);
        let mut complaints: Vec<String> =
            errors.by_ref().take(COMPLAINTS_MAX).map(|error| complaint(&error)).collect();
        if errors.next().is_some() {
            complaints.push(format!("more than {COMPLAINTS_MAX} things are wrong"));
        }
        if complaints.is_empty() { Ok(()) } else { Err(complaints) }
    }
}

/// How much there is to compile.
#[derive(Default)]
struct Size {
    nodes: usize,
    patterns: usize,
    pattern_chars: usize,
}

impl Size {
    fn of(schema: &Value) -> Self {
        let mut size = Self::default();
        let mut left = vec![schema];
        while let Some(value) = left.pop() {
            size.nodes += 1;
            // What is left is bounded by the document; there is no need to count all of it.
            if size.nodes > NODES_MAX {
                break;
            }
            match value {
                Value::Array(items) => left.extend(items),
                Value::Object(members) => {
                    if let Some(Value::String(pattern)) = members.get("pattern") {
                        size.pattern(pattern);
                    }
                    if let Some(Value::Object(patterns)) = members.get("patternProperties") {
                        patterns.keys().for_each(|pattern| size.pattern(pattern));
                    }
                    left.extend(members.values());
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        size
    }

    fn pattern(&mut self, pattern: &str) {
        self.patterns += 1;
        self.pattern_chars += pattern.len();
    }

    fn too_large(&self) -> Option<String> {
        if self.nodes > NODES_MAX {
            return Some(format!("it has more than {NODES_MAX} values"));
        }
        if self.patterns > PATTERNS_MAX {
            return Some(format!("it has {} patterns, more than {PATTERNS_MAX}", self.patterns));
        }
        if self.pattern_chars > PATTERN_CHARS_MAX {
            let chars = self.pattern_chars;
            return Some(format!(
                "its patterns have {chars} characters, more than {PATTERN_CHARS_MAX}"
            ));
        }
        None
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema").finish_non_exhaustive()
    }
}

fn complaint(error: &ValidationError<'_>) -> String {
    let what = match error.instance_path().as_str() {
        "" => format!("top level: {}", error.masked()),
        path => format!("{path}: {}", error.masked()),
    };
    match closest(error.kind()) {
        Some(inner) => format!("{what}; closest: {}", complaint(inner)),
        None => what,
    }
}

/// If no alternative matches, the problems of the closest one.
fn closest(kind: &ValidationErrorKind) -> Option<&ValidationError<'static>> {
    let (ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context }) =
        kind
    else {
        return None;
    };
    context.iter().filter(|errors| !errors.is_empty()).min_by_key(|errors| errors.len())?.first()
}

#[cfg(test)]
mod tests;
