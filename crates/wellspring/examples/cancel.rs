//! How do I stop a run?
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;

use wellspring::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A model that says a word and then nothing, for ever.
    let agent = Agent::model(Scripted::new([Say::new().text("Well…").hang()]));

    // By the handle: the events end, and the result says why.
    let mut stream = agent.say("Are you there?").stream();
    println!("{:?}", stream.next().await);
    stream.cancel().await?;
    println!("{:?}", stream.next().await);
    println!("{}", said(stream.result().await));

    // By a token, which can stop many runs, and by its guard, at the end of a scope.
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
