//! How do I show an agent's thoughts, and get a typed result?
//!
//! Reasoning goes to stderr as it arrives; the result goes to stdout.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

use std::error::Error;
use std::time::Duration;

use serde::Deserialize;
use wellspring::prelude::*;

#[derive(Debug, Deserialize, JsonSchema)]
struct Review {
    /// Whether the change can go in as it is.
    approve: bool,
    /// What should be better, most important first.
    remarks: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let agent = Agent::model(model());
    let mut stream = agent
        .think::<Review>()
        .text("Review this change:")
        .quote("- let timeout = 30;\n+ let timeout = 30_000;")
        .stream();

    while let Some(event) = stream.next().await {
        if let ThoughtEvent::Thought { text } = event {
            eprint!("{text}");
        }
    }
    eprintln!();

    let review = stream.result().await?;
    println!("approve: {}", review.approve);
    for remark in review.remarks {
        println!("- {remark}");
    }
    Ok(())
}

/// A script stands in for a model, so that this runs without network.
fn model() -> Scripted {
    Scripted::new([Say::new()
        .pace(Duration::from_millis(40))
        .thought("The unit changed from seconds to milliseconds, and the name does not say so.")
        .call(
            "return_result",
            json!({"approve": false, "remarks": ["Use a Duration instead of a number."]}),
        )])
}
