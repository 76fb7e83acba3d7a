//! How does one agent call another one?
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;

use wellspring::prelude::*;
use wellspring::{Seq, render};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let librarian = Agent::model(Scripted::new([Say::new().text("Try Middlemarch.")]))
        .named("librarian")
        .description("Knows every book.");
    let host = Agent::model(Scripted::new([
        Say::new().call("call-agent", json!({"agentId": "librarian", "input": "A long novel?"})),
        Say::new().text("The librarian says: Middlemarch."),
    ]))
    .named("host")
    .sub_agent(&librarian);

    // For readers, the other agent's text is progress of a tool.
    let mut stream = host.say("What shall I read?").stream();
    while let Some(event) = stream.next().await {
        println!("{event:?}");
    }
    println!("{}\n", stream.result().await?);

    // In the log it belongs to the other agent, under its own number.
    let mut records = stream.records(Seq(0));
    while let Some(record) = records.next().await {
        let record = record?;
        if !record.agent.is_root() {
            print!("{}", render(&[record]));
        }
    }
    Ok(())
}
