//! How do I have a conversation?
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;

use wellspring::Message;
use wellspring::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let agent = Agent::model(model());
    let thread = agent.thread();
    for said in ["My name is Ada.", "I like engines.", "What do you know of me?"] {
        println!("> {said}");
        println!("{}", thread.say(said).run().await?);
    }

    // Continuing from an earlier run is a branch: it does not include later messages.
    let runs = thread.runs().await?; // the latest first
    let first = runs.last().ok_or("there are no runs")?.run;
    println!("> (after the first) What do you know of me?");
    println!("{}", thread.say("What do you know of me?").continuing(first).run().await?);
    Ok(())
}

/// Answers with all user messages, to show which of them it got.
fn model() -> Scripted {
    Scripted::with(|request| {
        let by_user = |message: &&Message| matches!(message, Message::User { .. });
        let said: Vec<_> = request.messages.iter().filter(by_user).map(Message::text).collect();
        Say::new().text(format!("You said: {}", said.join(" ")))
    })
}
