//! Functions as tools.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use futures::{Stream, StreamExt as _};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wellspring_core::{
    Approval, Context, Tool, ToolError, ToolKind, ToolMode, ToolResult, ToolSpec, ToolUpdate,
};

/// A tool from an async function over typed arguments; the schema is the type's.
///
/// `T` should be a struct, since models call tools with an object; use [`NoArguments`] for a tool
/// without arguments. Doc comments on its fields become descriptions for the model.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::Deserialize;
/// use serde_json::json;
/// use wellspring_core::{CancellationToken, Context, Tool as _};
/// use wellspring_engine::tools::function;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Sum {
///     /// What to add up.
///     numbers: Vec<i64>,
/// }
///
/// let sum = function("sum", "Adds numbers.", async |input: Sum, cx: Context| {
///     cx.progress(json!({"count": input.numbers.len()})).await;
///     Ok(input.numbers.iter().sum::<i64>())
/// })
/// .idempotent();
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let cx = Context::create("trace-1", CancellationToken::new());
/// let result = sum.call(json!({"numbers": [1, 2, 3]}), cx).await?;
/// assert_eq!(result.output, json!(6));
/// # Ok::<(), wellspring_core::ToolError>(()) }).unwrap();
/// ```
pub fn function<T, O, F, Fut>(
    name: impl Into<Box<str>>,
    description: impl Into<Box<str>>,
    run: F,
) -> FunctionTool
where
    T: JsonSchema + DeserializeOwned + Send + 'static,
    O: Serialize,
    F: Fn(T, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, ToolError>> + Send + 'static,
{
    let spec =
        ToolSpec { parameters: parameters::<T>().into(), ..ToolSpec::new(name, description) };
    FunctionTool::new(spec, move |arguments, context| match typed(arguments) {
        Ok(input) => {
            let output = run(input, context);
            async move { result(&output.await?) }.boxed()
        }
        Err(error) => std::future::ready(Err(error)).boxed(),
    })
}

/// A tool from an async function, named after it. Its description is the doc comment of its
/// argument type.
///
/// A closure has no name; its tool is named after its argument type, in snake case.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::Deserialize;
/// use wellspring_core::{Context, Tool as _, ToolError, ToolKind};
/// use wellspring_engine::tools::tool;
///
/// /// Reads a file.
/// #[derive(Deserialize, JsonSchema)]
/// struct ReadFile {
///     path: String,
/// }
///
/// async fn read_file(input: ReadFile, _: Context) -> Result<String, ToolError> {
///     Ok(std::fs::read_to_string(input.path)?)
/// }
///
/// let read_file = tool(read_file).kind(ToolKind::Read);
/// assert_eq!(&*read_file.spec().name, "read_file");
/// assert_eq!(&*read_file.spec().description, "Reads a file.");
/// ```
pub fn tool<T, O, F, Fut>(run: F) -> FunctionTool
where
    T: JsonSchema + DeserializeOwned + Send + 'static,
    O: Serialize,
    F: Fn(T, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, ToolError>> + Send + 'static,
{
    let schema = settings().into_generator().into_root_schema_for::<T>();
    let description = schema.get("description").and_then(|text| text.as_str());
    let name = function_name(std::any::type_name::<F>());
    let name = name.unwrap_or_else(|| snake_case(&T::schema_name()));
    function(name, description.unwrap_or_default(), run)
}

/// The name of a function from the name of its type; `None` for closures and pointers.
fn function_name(type_name: &str) -> Option<String> {
    let path = type_name.split('<').next()?;
    let last = path.rsplit("::").next()?;
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    (!last.is_empty() && last.chars().all(is_name)).then(|| last.to_owned())
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    let mut after_lower = false;
    for letter in name.chars() {
        if letter.is_uppercase() && after_lower {
            snake.push('_');
        }
        after_lower = letter.is_lowercase() || letter.is_numeric();
        snake.extend(letter.to_lowercase());
    }
    snake
}

/// A tool from an async function over JSON, with a hand-written spec.
pub fn from_function<F, Fut>(spec: ToolSpec, run: F) -> FunctionTool
where
    F: Fn(Value, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<ToolResult, ToolError>> + Send + 'static,
{
    FunctionTool::new(spec, move |arguments, context| run(arguments, context).boxed())
}

/// A tool from a stream: any number of progress items, then one result. The stream is not
/// polled after the result; an end without one is an error.
///
/// ```
/// use futures::stream;
/// use serde_json::json;
/// use wellspring_core::{CancellationToken, Context, Tool as _, ToolResult, ToolSpec};
/// use wellspring_engine::tools::{ToolYield, from_stream};
///
/// let spec = ToolSpec::new("count", "Counts to three.");
/// let count = from_stream(spec, |_, _| {
///     let steps = [1, 2, 3].map(|n| ToolYield::Progress(json!(n)));
///     let end = ToolYield::Result(ToolResult::new("counted"));
///     stream::iter(steps.into_iter().chain([end]))
/// });
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let cx = Context::create("trace-1", CancellationToken::new());
/// assert_eq!(count.call(json!({}), cx).await?, ToolResult::new("counted"));
/// # Ok::<(), wellspring_core::ToolError>(()) }).unwrap();
/// ```
pub fn from_stream<F, S>(spec: ToolSpec, run: F) -> FunctionTool
where
    F: Fn(Value, Context) -> S + Send + Sync + 'static,
    S: Stream<Item = ToolYield> + Send + 'static,
{
    let name = spec.name.clone();
    FunctionTool::new(spec, move |arguments, context| {
        let yields = run(arguments, context.clone());
        let name = name.clone();
        async move {
            let mut yields = pin!(yields);
            while let Some(next) = yields.next().await {
                match next {
                    ToolYield::Progress(data) => context.progress(data).await,
                    ToolYield::Update(update) => context.update(update).await,
                    ToolYield::Result(result) => return Ok(result),
                    ToolYield::Failed(error) => return Err(error),
                }
            }
            Err(ToolError::new(format!("{name} ended without a result")))
        }
        .boxed()
    })
}

/// An item of a [`from_stream`] tool.
#[derive(Debug)]
pub enum ToolYield {
    /// Progress in the tool's own shape.
    Progress(Value),
    /// Progress that every surface can show.
    Update(ToolUpdate),
    /// The one result.
    Result(ToolResult),
    /// The tool failed.
    Failed(ToolError),
}

/// The arguments of a tool without arguments.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct NoArguments {}

/// A function as a tool, with its spec.
pub struct FunctionTool {
    spec: ToolSpec,
    run: Box<Run>,
    rank: Option<Box<Rank>>,
    mode: Option<Box<Mode>>,
}

type Run =
    dyn Fn(Value, Context) -> BoxFuture<'static, Result<ToolResult, ToolError>> + Send + Sync;

type Rank = dyn Fn(&Value) -> i32 + Send + Sync;

type Mode = dyn Fn(&Value) -> ToolMode + Send + Sync;

impl FunctionTool {
    fn new(
        spec: ToolSpec,
        run: impl Fn(Value, Context) -> BoxFuture<'static, Result<ToolResult, ToolError>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self { spec, run: Box::new(run), rank: None, mode: None }
    }

    /// Sets the title for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<Box<str>>) -> Self {
        self.spec.title = Some(title.into());
        self
    }

    /// Sets the kind. Unless [`approval`](Self::approval) is set, the kind
    /// also decides whether the tool asks first.
    #[must_use]
    pub fn kind(mut self, kind: ToolKind) -> Self {
        self.spec.kind = kind;
        self
    }

    /// Makes the tool sequential: it runs alone.
    #[must_use]
    pub fn sequential(mut self) -> Self {
        self.spec.mode = ToolMode::Sequential;
        self
    }

    /// Decides by the arguments of each call whether it runs alone.
    #[must_use]
    pub fn mode_by(mut self, mode: impl Fn(&Value) -> ToolMode + Send + Sync + 'static) -> Self {
        self.mode = Some(Box::new(mode));
        self
    }

    /// Sets the description that the model reads.
    #[must_use]
    pub fn description(mut self, description: impl Into<Box<str>>) -> Self {
        self.spec.description = description.into();
        self
    }

    /// Sets the priority: among waiting sequential calls, the highest goes first.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.spec.priority = priority;
        self
    }

    /// As [`priority`](Self::priority), from the arguments of each call.
    #[must_use]
    pub fn priority_by(mut self, rank: impl Fn(&Value) -> i32 + Send + Sync + 'static) -> Self {
        self.rank = Some(Box::new(rank));
        self
    }

    /// Sets whether the tool may run without asking.
    #[must_use]
    pub fn approval(mut self, approval: Approval) -> Self {
        self.spec.approval = Some(approval);
        self
    }

    /// Sets how long it may run without progress.
    #[must_use]
    pub fn idle_timeout(mut self, time: Duration) -> Self {
        self.spec.timeouts.idle = Some(time);
        self
    }

    /// Sets how long it may run in total.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.spec.timeouts.total = Some(time);
        self
    }

    /// Promises that running twice has the same effect as running once. Such a call may start before
    /// the model has stopped, and runs again after a crash.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.spec.idempotent = true;
        self
    }
}

impl fmt::Debug for FunctionTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionTool").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl Tool for FunctionTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn mode(&self, arguments: &Value) -> ToolMode {
        self.mode.as_ref().map_or(self.spec.mode, |mode| mode(arguments))
    }

    fn priority(&self, arguments: &Value) -> i32 {
        self.rank.as_ref().map_or(self.spec.priority, |rank| rank(arguments))
    }

    fn call(
        &self,
        arguments: Value,
        context: Context,
    ) -> BoxFuture<'_, Result<ToolResult, ToolError>> {
        // The function itself may act when it is called; this future does nothing until it is polled.
        async move { (self.run)(arguments, context).await }.boxed()
    }
}

/// The schema of a tool's arguments for [`ToolSpec::parameters`], in the form that most providers
/// accept: references inlined where possible, and without the type's own name and description,
/// since the tool has its own.
#[must_use]
pub fn parameters<T: JsonSchema>() -> Value {
    let mut schema = settings().into_generator().into_root_schema_for::<T>().to_value();
    if let Some(members) = schema.as_object_mut() {
        members.shift_remove("title");
        members.shift_remove("description");
    }
    schema
}

fn settings() -> SchemaSettings {
    SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    })
}

pub(crate) fn typed<T: DeserializeOwned>(arguments: Value) -> Result<T, ToolError> {
    serde_json::from_value(arguments)
        .map_err(|error| ToolError::because("the arguments do not fit", error))
}

fn result(output: &impl Serialize) -> Result<ToolResult, ToolError> {
    serde_json::to_value(output)
        .map(ToolResult::new)
        .map_err(|error| ToolError::because("the result is not JSON", error))
}

#[cfg(test)]
mod tests;
