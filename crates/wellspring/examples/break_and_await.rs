//! Can I stop watching and still get the result? And await it while I watch?
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;
use std::time::Duration;

use wellspring::prelude::*;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let agent = Agent::model(model());

    // Stop iterating after the first thought: the run continues.
    let mut stream = agent.think::<u32>().text("What is 7 × 6?").stream();
    while let Some(event) = stream.next().await {
        if let ThoughtEvent::Thought { text } = event {
            println!("that is enough: {text:?}");
            break;
        }
    }
    println!("and still: {}", stream.result().await?);

    // Do both at once: the future of the result does not borrow the stream.
    let mut stream = agent.think::<u32>().text("What is 7 × 6?").stream();
    let result = stream.result();
    let watch = async {
        let mut events = 0;
        while stream.next().await.is_some() {
            events += 1;
        }
        events
    };
    let (events, result) = tokio::join!(watch, result);
    println!("{events} events beside the result {}", result?);

    // Or do not iterate at all.
    println!("unwatched: {}", agent.think::<u32>().text("What is 7 × 6?").run().await?);
    Ok(())
}

fn model() -> Scripted {
    Scripted::new([Say::new()
        .pace(Duration::from_millis(20))
        .thought("Six sevens: fourteen, twenty-eight, forty-two.")
        .call("return_result", json!({"value": 42}))])
}
