//! How do I add my own tools, and show their progress?
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wellspring::prelude::*;
use wellspring::thought_event::{ContentBlock, ToolContent};
use wellspring::tools::function;

/// Counts the words of a text.
#[derive(Deserialize, JsonSchema)]
struct CountWords {
    text: String,
}

// A function can be a tool: it gives the name, and its argument type the description.
async fn count_words(input: CountWords, _: Context) -> Result<usize, ToolError> {
    Ok(input.text.split_whitespace().count())
}

#[derive(Deserialize, JsonSchema)]
struct Download {
    /// Which file.
    name: String,
}

#[derive(Serialize)]
struct Downloaded {
    bytes: u64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // `function` sets further options, and any tool can report progress.
    let download = function("download", "Fetches a file.", async |input: Download, cx: Context| {
        for percent in [30, 60, 90] {
            tokio::time::sleep(Duration::from_millis(100)).await;
            cx.progress(format!("{}: {percent} %", input.name)).await;
        }
        Ok(Downloaded { bytes: 1234 })
    })
    .title("Download")
    .kind(ToolKind::Fetch)
    .timeout(Duration::from_secs(10));

    let mut stream = Agent::model(model())
        .say("How long is report.txt?")
        .tool(count_words)
        .tool(download)
        .stream();

    while let Some(event) = stream.next().await {
        match event {
            ThoughtEvent::ToolStart { title, kind, .. } => println!("{title} ({kind:?})"),
            ThoughtEvent::ToolUpdate { content: Some(content), .. } => show(&content),
            ThoughtEvent::ToolDone { status, .. } => println!("  {status:?}"),
            ThoughtEvent::ToolUpdate { content: None, .. }
            | ThoughtEvent::Thought { .. }
            | ThoughtEvent::Message { .. }
            | ThoughtEvent::Plan { .. } => {}
        }
    }
    println!("{}", stream.result().await?);
    Ok(())
}

fn show(content: &[ToolContent]) {
    for content in content {
        if let ToolContent::Content { content: ContentBlock::Text { text } } = content {
            println!("  {text}");
        }
    }
}

fn model() -> Scripted {
    Scripted::new([
        Say::new()
            .call("download", json!({"name": "report.txt"}))
            .call("count_words", json!({"text": "all is well"})),
        Say::new().text("It has 1234 bytes, and its summary has three words."),
    ])
}
