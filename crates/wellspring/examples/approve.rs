//! How does my program decide what an agent may do?
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;

use serde::Deserialize;
use wellspring::prelude::*;
use wellspring::tools::function;

#[derive(Deserialize, JsonSchema)]
struct Remove {
    path: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A tool of this kind asks first.
    let remove = function("remove", "Removes a file.", async |input: Remove, _| {
        Ok(format!("{} is gone", input.path))
    })
    .kind(ToolKind::Delete);

    let answer = Agent::model(model())
        .say("Tidy up.")
        .tool(remove)
        .on_question(async |question| {
            let allowed = question.prompt.contains("/tmp/");
            println!("{} {}", question.prompt, if allowed { "yes" } else { "no" });
            if allowed { Answer::yes() } else { Answer::no("only below /tmp") }
        })
        .run()
        .await?;
    println!("{answer}");
    Ok(())
}

fn model() -> Scripted {
    Scripted::new([
        Say::new()
            .call("remove", json!({"path": "/tmp/old.log"}))
            .call("remove", json!({"path": "/etc/passwd"})),
        Say::new().text("I removed the log, and was not allowed to remove the rest."),
    ])
}
