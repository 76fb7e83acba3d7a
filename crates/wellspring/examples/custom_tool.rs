//! How do I write a tool as a type of its own, with progress and its own error?
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::io::Write as _;
use std::path::PathBuf;

use wellspring::futures::FutureExt as _;
use wellspring::futures::future::BoxFuture;
use wellspring::prelude::*;
use wellspring::serde_json::Value;
use wellspring::{Tool, ToolResult, ToolSpec};

/// Writes numbers to a file, one per line.
struct Count {
    spec: ToolSpec,
    file: PathBuf,
}

impl Count {
    fn new(file: PathBuf) -> Self {
        let spec = ToolSpec {
            parameters: json!({
                "type": "object",
                "properties": {"to": {"type": "integer", "minimum": 1, "maximum": 100}},
                "required": ["to"],
            })
            .into(),
            kind: ToolKind::Think,
            idempotent: true, // it writes the same file again
            ..ToolSpec::new("count", "Counts.")
        };
        Self { spec, file }
    }
}

impl Tool for Count {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, arguments: Value, cx: Context) -> BoxFuture<'_, Result<ToolResult, ToolError>> {
        async move {
            // The arguments fit the schema.
            let to = arguments["to"].as_u64().unwrap_or(1);
            let mut file = std::fs::File::create(&self.file)?; // any error is the tool's error
            for number in 1..=to {
                if cx.signal().is_cancelled() {
                    return Err(ToolError::new("cancelled"));
                }
                writeln!(file, "{number}")?;
                cx.progress(json!({"percent": number * 100 / to})).await;
            }
            Ok(ToolResult::new(json!({"lines": to})))
        }
        .boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), ThinkError> {
    let model = Scripted::new([
        Say::new().call("count", json!({"to": 4})),
        Say::new().text("There are four lines."),
    ]);
    let file = std::env::temp_dir().join(format!("wellspring-count-{}", std::process::id()));
    let agent = Agent::model(model).tool(Count::new(file.clone()));
    let mut stream = agent.say("Count to four.").stream();
    while let Some(event) = stream.try_next().await? {
        println!("{event:?}");
    }
    let _ = std::fs::remove_file(file);
    println!("{}", stream.result().await?);
    Ok(())
}
