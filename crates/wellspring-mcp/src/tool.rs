//! A server's tools, as tools of ours.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use serde_json::{Value, json};
use wellspring_core::{Context, Tool, ToolError, ToolKind, ToolResult, ToolSpec};

use crate::connection::tool_error;
use crate::convert;
use crate::error::McpError;
use crate::server::Handle;
use crate::tool_name;

/// Maximum number of resources that are listed for the model.
pub const RESOURCES_LISTED_MAX: usize = 500;

/// A tool that a server provides.
#[derive(Clone, Debug)]
pub(crate) enum Offer {
    /// One of the server's tools, by the server's own name.
    Tool {
        own: Box<str>,
        spec: ToolSpec,
    },
    ListResources(ToolSpec),
    ReadResource(ToolSpec),
}

impl Offer {
    pub(crate) fn list_resources(prefix: &str) -> Self {
        let description = "Lists what this server has to read: files, pages, records. Each has \
            a uri to read it by.";
        Self::ListResources(reading(prefix, "list_resources", description))
    }

    pub(crate) fn read_resource(prefix: &str) -> Self {
        let mut spec = reading(prefix, "read_resource", "Reads a resource of this server.");
        spec.parameters = json!({
            "type": "object",
            "properties": {
                "uri": {"type": "string", "description": "The resource's URI, from the list."}
            },
            "required": ["uri"],
        })
        .into();
        Self::ReadResource(spec)
    }

    pub(crate) fn spec(&self) -> &ToolSpec {
        match self {
            Self::Tool { spec, .. } | Self::ListResources(spec) | Self::ReadResource(spec) => spec,
        }
    }

    /// The tool. It keeps the server running.
    pub(crate) fn tool(&self, handle: &Arc<Handle>) -> Arc<dyn Tool> {
        Arc::new(McpTool { offer: self.clone(), handle: handle.clone() })
    }
}

/// A tool of a server.
struct McpTool {
    offer: Offer,
    handle: Arc<Handle>,
}

impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        self.offer.spec()
    }

    fn call(
        &self,
        arguments: Value,
        context: Context,
    ) -> BoxFuture<'_, Result<ToolResult, ToolError>> {
        async move {
            if context.signal().is_cancelled() {
                return Err(ToolError::new("not started: the call was cancelled before"));
            }
            let line = self.handle.line().map_err(tool_error)?;
            match &self.offer {
                Offer::Tool { own, .. } => {
                    let Value::Object(arguments) = arguments else {
                        return Err(ToolError::new("the arguments must be an object"));
                    };
                    convert::result(&line.call(own, arguments, context).await?)
                }
                Offer::ListResources(_) => {
                    let listing = line.resources(RESOURCES_LISTED_MAX);
                    let listed = unless_cancelled(&context, listing).await?;
                    let listed: Value = listed.iter().map(listed_resource).collect();
                    Ok(ToolResult::new(listed))
                }
                Offer::ReadResource(_) => {
                    let Some(uri) = arguments["uri"].as_str() else {
                        return Err(ToolError::new("the argument `uri` is missing"));
                    };
                    let read = unless_cancelled(&context, line.read_resource(uri)).await?;
                    Ok(convert::resources(&read))
                }
            }
        }
        .boxed()
    }
}

fn reading(prefix: &str, name: &str, description: &str) -> ToolSpec {
    let spec = ToolSpec::new(tool_name::tool_name(prefix, name), description);
    ToolSpec { kind: ToolKind::Read, idempotent: true, ..spec }
}

async fn unless_cancelled<T>(
    context: &Context,
    work: impl Future<Output = Result<T, McpError>>,
) -> Result<T, ToolError> {
    tokio::select! {
        done = work => done.map_err(tool_error),
        () = context.signal().cancelled() => Err(ToolError::new("cancelled")),
    }
}

/// The members of a resource that a model needs to choose it.
fn listed_resource(resource: &Value) -> Value {
    let fields = ["uri", "name", "title", "description", "mimeType"];
    let field = |name: &str| Some((name.to_owned(), resource.get(name)?.clone()));
    Value::Object(fields.into_iter().filter_map(field).collect())
}
