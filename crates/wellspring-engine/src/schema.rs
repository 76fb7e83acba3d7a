//! Compiled JSON schemas, for tool arguments, answers and typed results.
//!
//! A schema may come from a client, a model or a peer, and so may the value that is validated.
//! Together they can require more work than a machine can do, and more stack than a thread has.
//!
//! # What is promised
//!
//! 1. What a schema has, and what its references expand to, has a maximum. A larger one is
//!    refused before it is compiled.
//! 2. Validating a value takes a bounded number of steps, counted by the value itself.
//! 3. Work that could take longer than a moment is not done on an async worker, but on a few
//!    threads with a large stack.
//!
//! # What is deliberately absent
//!
//! Fetching: a reference to another document does not compile. A schema comes from a tool,
//! a peer or a request, and none of these may make us open a connection or a file.

mod size;
mod work_limit;

use std::fmt;
use std::sync::Arc;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;
use tokio::sync::Semaphore;

use self::size::Size;
use self::work_limit::{Budget, Exhausted, Metered, MeteredNode};

/// Maximum number of errors reported about one value: more would not help a model or a person.
pub const COMPLAINTS_MAX: usize = 16;

/// Backtracking steps of a `pattern` before it counts as no match. Sensible patterns need far
/// fewer; this bounds malicious ones.
const PATTERN_BACKTRACK_MAX: usize = 10_000;

/// Bytes of a compiled `pattern`, so that a schema from a client cannot exhaust memory.
const PATTERN_BYTES_MAX: usize = 256 * 1024;

/// Steps of validating one value: about a second without optimisation. A list of 100,000 records
/// of ten members takes a tenth of it.
const STEPS_MAX: u64 = 50_000_000;

/// Steps to count for a string that patterns may read: about the cost of [`PATTERN_BACKTRACK_MAX`].
const STEPS_PER_PATTERN: u64 = 2_000;

/// Steps of a validation on the caller's thread: less than a millisecond.
const STEPS_HERE_MAX: u64 = 20_000;

/// Bytes of stack for a validation on the caller's thread.
const STACK_HERE_BYTES: usize = 512 * 1024;

/// Maximum size of a schema without patterns that is compiled on the caller's thread.
const EXPANDED_HERE_MAX: usize = 1_000;

/// Number of schemas that are processed concurrently on threads of their own. Others wait: each
/// takes a second at most, and only requests and runs that were admitted wait.
const AT_ONCE: usize = 2;

/// Stack size of a thread for schemas. Only the used part takes memory.
const STACK_BYTES: usize = 16 * 1024 * 1024;

/// The error if a thread cannot be started.
const NO_THREAD: &str = "the system has no thread to check it on; try again in a few seconds";

static PLACES: Semaphore = Semaphore::const_new(AT_ONCE);

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
#[derive(Clone)]
pub struct Schema {
    validator: Arc<Validator<Metered>>,
    size: Size,
}

/// A JSON value that is not a schema, or that uses something we do not support.
#[derive(Debug, thiserror::Error)]
#[error("the schema cannot be used: {what}")]
pub struct SchemaError {
    what: String,
    #[source]
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl SchemaError {
    fn because(what: impl Into<String>) -> Self {
        Self { what: what.into(), cause: None }
    }
}

impl Schema {
    /// Compiles a schema, in the draft that it names or else in 2020-12. A large one takes up to a
    /// second: in async code use [`compile_async`](Self::compile_async).
    ///
    /// # Errors
    ///
    /// If it is not a schema, refers to another document, or is too large: a schema may come from
    /// a client.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        Self::compile_sized(schema, Size::of(schema).map_err(SchemaError::because)?)
    }

    /// Compiles a schema; a large one on a thread of its own.
    ///
    /// # Errors
    ///
    /// As [`compile`](Self::compile), and if the system cannot start a thread.
    pub async fn compile_async(schema: &Value) -> Result<Self, SchemaError> {
        let size = Size::of(schema).map_err(SchemaError::because)?;
        if size.patterns == 0 && size.expanded <= EXPANDED_HERE_MAX {
            return Self::compile_sized(schema, size);
        }
        let schema = schema.clone();
        let compiled = on_a_thread(move || Self::compile_sized(&schema, size)).await;
        compiled.ok_or_else(|| SchemaError::because(NO_THREAD))?
    }

    fn compile_sized(schema: &Value, size: Size) -> Result<Self, SchemaError> {
        let patterns = PatternOptions::fancy_regex()
            .backtrack_limit(PATTERN_BACKTRACK_MAX)
            .size_limit(PATTERN_BYTES_MAX);
        jsonschema::options_for::<Metered>()
            .offline()
            .with_pattern_options(patterns)
            .build(schema)
            .map(|validator| Self { validator: Arc::new(validator), size })
            .map_err(|error| SchemaError {
                what: complaint(&error),
                cause: Some(Box::new(error.to_owned())),
            })
    }

    /// Validates a value against the whole schema. A large value takes up to a second: in async
    /// code use [`validate_async`](Self::validate_async).
    ///
    /// # Errors
    ///
    /// The problems, each with its JSON pointer; at most
    /// [`COMPLAINTS_MAX`], then a note that there are more. The value itself is not repeated:
    /// it may be long, or secret.
    pub fn validate(&self, value: &Value) -> Result<(), Vec<String>> {
        self.finish(value, self.budget(STEPS_MAX, STACK_HERE_BYTES))
    }

    /// Validates a value; on a thread of its own if that takes many steps.
    ///
    /// # Errors
    ///
    /// As [`validate`](Self::validate), and if the system cannot start a thread.
    pub async fn validate_async(&self, value: &Value) -> Result<(), Vec<String>> {
        let here = self.budget(STEPS_HERE_MAX, STACK_HERE_BYTES);
        if let Ok(complaints) = self.complaints(value, here) {
            return or_complaints(complaints);
        }
        let (this, value) = (self.clone(), value.clone());
        let budget = self.budget(STEPS_MAX, STACK_BYTES - STACK_HERE_BYTES * 2);
        let validated = on_a_thread(move || this.finish(&value, budget)).await;
        validated.unwrap_or_else(|| Err(vec![NO_THREAD.into()]))
    }

    fn budget(&self, steps: u64, stack_bytes: usize) -> Budget {
        let per_string = if self.size.patterns == 0 { 0 } else { STEPS_PER_PATTERN };
        Budget { steps, stack_bytes, per_recursion: self.size.expanded as u64, per_string }
    }

    /// Validates with the final budget: exceeding it is an error.
    fn finish(&self, value: &Value, budget: Budget) -> Result<(), Vec<String>> {
        if let Ok(complaints) = self.complaints(value, budget) {
            return or_complaints(complaints);
        }
        // Collecting the errors takes more steps than detecting that there are some.
        Err(vec![match work_limit::within(budget, || self.validator.is_valid(MeteredNode(value))) {
            Ok(true) => return Ok(()),
            Ok(false) => "the value does not fit, in too many places to name them".into(),
            Err(Exhausted) => {
                "checking the value takes too many steps; use a smaller value or a simpler schema"
                    .into()
            }
        }])
    }

    fn complaints(&self, value: &Value, budget: Budget) -> Result<Vec<String>, Exhausted> {
        work_limit::within(budget, || {
            let mut errors = self.validator.iter_errors(MeteredNode(value));
            let mut complaints: Vec<String> =
                errors.by_ref().take(COMPLAINTS_MAX).map(|error| complaint(&error)).collect();
            if errors.next().is_some() {
                complaints.push(format!("more than {COMPLAINTS_MAX} problems"));
            }
            complaints
        })
    }
}

fn or_complaints(complaints: Vec<String>) -> Result<(), Vec<String>> {
    if complaints.is_empty() { Ok(()) } else { Err(complaints) }
}

/// Runs a job on a thread with a large stack, one of a limited number at a time. `None` if the
/// thread cannot be started.
async fn on_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let place = PLACES.acquire().await.ok()?;
    let done = tokio::task::spawn_blocking(move || {
        // Held until the job ends, even if its caller no longer waits.
        let _place = place;
        let thread = std::thread::Builder::new().name("schema".into()).stack_size(STACK_BYTES);
        Some(thread.spawn(work).ok()?.join())
    });
    match done.await.ok()?? {
        Ok(done) => Some(done),
        Err(panic) => std::panic::resume_unwind(panic),
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
