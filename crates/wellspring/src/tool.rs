//! Conversions to tools.

use std::future::Future;
use std::sync::Arc;

use futures::stream::{self, Stream, StreamExt as _};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wellspring_core::{Context, Tool, ToolError, ToolResult, ToolSpec};
use wellspring_engine::tools::{FunctionTool, ToolYield, from_stream, parameters, tool};
use wellspring_wire::agent_event::ToolEvent;

/// A type that can be used as a tool: a [`Tool`], a shared one, or an async function with typed
/// arguments.
///
/// A function's name is the tool's name; the doc comment of its argument type is the
/// description for the model. [`tools::tool`](crate::tools::tool) makes the same tool with
/// options: the kind, time limits, approval. For closures,
/// [`tools::function`](crate::tools::function) takes a name and a description.
///
/// ```
/// use serde::Deserialize;
/// use wellspring::prelude::*;
///
/// /// Adds numbers up.
/// #[derive(Deserialize, JsonSchema)]
/// struct Sum {
///     numbers: Vec<i64>,
/// }
///
/// async fn sum(input: Sum, _: Context) -> Result<i64, ToolError> {
///     Ok(input.numbers.iter().sum())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), wellspring::ThinkError> {
/// # let model = Scripted::new([
/// #     Say::new().call("sum", json!({"numbers": [1, 2]})),
/// #     Say::new().text("It is 3."),
/// # ]);
/// let agent = Agent::model(model).tool(sum);
/// assert_eq!(&*agent.def().tools[0].spec().description, "Adds numbers up.");
/// assert_eq!(agent.say("What is 1 + 2?").run().await?, "It is 3.");
/// # Ok(())
/// # }
/// ```
///
/// `Marker` distinguishes the implementations; it is always inferred.
pub trait IntoTool<Marker> {
    /// Converts it to a tool.
    fn into_tool(self) -> Arc<dyn Tool>;
}

/// Marks a type that is a [`Tool`].
#[derive(Debug)]
pub enum IsTool {}

/// Marks a shared tool.
#[derive(Debug)]
pub enum IsShared {}

/// Marks a function with typed arguments.
#[derive(Debug)]
pub struct IsFunction<T, O, Fut>(std::marker::PhantomData<fn(T) -> (O, Fut)>);

impl<T: Tool + 'static> IntoTool<IsTool> for T {
    fn into_tool(self) -> Arc<dyn Tool> {
        Arc::new(self)
    }
}

impl IntoTool<IsShared> for Arc<dyn Tool> {
    fn into_tool(self) -> Arc<dyn Tool> {
        self
    }
}

impl<T, O, F, Fut> IntoTool<IsFunction<T, O, Fut>> for F
where
    T: JsonSchema + DeserializeOwned + Send + 'static,
    O: Serialize + 'static,
    F: Fn(T, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, ToolError>> + Send + 'static,
{
    fn into_tool(self) -> Arc<dyn Tool> {
        Arc::new(tool(self))
    }
}

/// The schema of a type in the form that most providers support: without references where
/// possible.
pub(crate) fn schema<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    settings.into_generator().into_root_schema_for::<T>()
}

/// A tool from a function that yields [`ToolEvent`]s: progress of any shape, then one result.
/// Each event is converted with
/// [`adapt_tool_event`](crate::agent_event::ExecutionContext::adapt_tool_event); the tool's
/// name is the one given here, whatever `tool_name` the events have. A result with
/// `is_error: Some(true)` is a failed call. The stream is not polled after its result, and an
/// end without a result is an error.
///
/// ```
/// use futures::stream;
/// use wellspring::agent_event::{AgentEvent, ToolEvent};
/// use wellspring::prelude::*;
/// use wellspring::tools::NoArguments;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ThinkError> {
/// # let model = Scripted::new([Say::new().call("transfer", json!({})), Say::new().text("Sent.")]);
/// let transfer = wellspring::event_tool("transfer", "Sends a file.", |_: NoArguments, _| {
///     let tool_name = || "transfer".to_owned();
///     stream::iter([
///         ToolEvent::Progress { tool_name: tool_name(), data: json!({"percent": 65}) },
///         ToolEvent::Result { tool_name: tool_name(), output: "done".into(), is_error: None },
///     ])
/// });
/// let stream = Agent::model(model).tool(transfer).say("Send it.").stream();
/// let events: Vec<_> = stream.agent_events().collect().await;
/// assert!(events.contains(&AgentEvent::ToolProgress {
///     tool_name: "transfer".into(),
///     data: json!({"percent": 65}),
/// }));
/// # Ok(())
/// # }
/// ```
pub fn event_tool<T, F, S>(
    name: impl Into<Box<str>>,
    description: impl Into<Box<str>>,
    run: F,
) -> FunctionTool
where
    T: JsonSchema + DeserializeOwned + Send + 'static,
    F: Fn(T, Context) -> S + Send + Sync + 'static,
    S: Stream<Item = ToolEvent> + Send + 'static,
{
    let spec =
        ToolSpec { parameters: parameters::<T>().into(), ..ToolSpec::new(name, description) };
    from_stream(spec, move |arguments, context| match serde_json::from_value(arguments) {
        Ok(input) => run(input, context).map(yielded).left_stream(),
        Err(error) => {
            let error = ToolError::because("the arguments do not fit", error);
            stream::iter([ToolYield::Failed(error)]).right_stream()
        }
    })
}

fn yielded(event: ToolEvent) -> ToolYield {
    match event {
        ToolEvent::Progress { data, .. } => ToolYield::Progress(data),
        ToolEvent::Result { output, is_error: Some(true), .. } => {
            ToolYield::Failed(ToolError::new(output))
        }
        ToolEvent::Result { output, is_error, .. } => {
            let stated_success = is_error == Some(false);
            ToolYield::Result(ToolResult { stated_success, ..ToolResult::new(output) })
        }
    }
}
