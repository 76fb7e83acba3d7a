//! How do I stop a run?
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;

use wellspring::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A model that sends one word and then nothing.
    let agent = Agent::model(Scripted::new([Say::new().text("Well…").hang()]));

    // With the handle: the events end, and the result holds the reason.
    let mut stream = agent.say("Are you there?").stream();
    println!("{:?}", stream.next().await);
    stream.cancel().await?;
    println!("{:?}", stream.next().await);
    println!("{}", said(stream.result().await));

    // With a token, which can cancel many runs, and with its guard, at the end of a scope.
    let signal = CancellationToken::new();
    let stream = {
        let _guard = signal.clone().drop_guard();
        agent.say("Are you there?").signal(signal).stream()
    };
    println!("{}", said(stream.result().await));
    Ok(())
}

fn said(result: Result<String, ThinkError>) -> String {
    result.unwrap_or_else(|error| error.to_string())
}
