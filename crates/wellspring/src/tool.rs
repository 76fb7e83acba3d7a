//! What can be given to an agent as a tool.

use std::future::Future;
use std::sync::Arc;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wellspring_core::{Context, Tool, ToolError};
use wellspring_engine::tools::function;

/// What can be given to an agent as a tool: a [`Tool`], a shared one, or an async function
/// over typed arguments.
///
/// A function takes its name from the type of its arguments, in snake case, and its
/// description from that type's doc comment: what the model reads about the tool stands
/// where its arguments are declared. [`tools::function`](crate::tools::function) names
/// things itself, and can say more: the kind, the time it may take, whether it asks first.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::Deserialize;
/// use wellspring::prelude::*;
/// # use serde_json::json;
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
/// `Marker` tells the ways apart; it is always inferred.
pub trait IntoTool<Marker> {
    /// Makes a tool of it.
    fn into_tool(self) -> Arc<dyn Tool>;
}

/// Marks what is a [`Tool`] itself.
#[derive(Debug)]
pub enum IsTool {}

/// Marks a tool that is shared.
#[derive(Debug)]
pub enum IsShared {}

/// Marks a function over typed arguments.
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
        let schema = schema::<T>();
        let description = schema.get("description").and_then(|text| text.as_str());
        let name = snake_case(&T::schema_name());
        Arc::new(function(name, description.unwrap_or_default(), self))
    }
}

/// A type's schema in the form that providers take best: no references where they can be
/// avoided.
pub(crate) fn schema<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    settings.into_generator().into_root_schema_for::<T>()
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

#[cfg(test)]
mod tests {
    use super::snake_case;

    #[test]
    fn names_are_in_snake_case() {
        for (name, want) in [
            ("ReadFile", "read_file"),
            ("Sum", "sum"),
            ("read_file", "read_file"),
            ("Area51Map", "area51_map"),
            ("HTTPGet", "httpget"),
        ] {
            assert_eq!(snake_case(name), want);
        }
    }
}
