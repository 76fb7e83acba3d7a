//! How do I test code that uses a model, one turn at a time?
//!
//! A `Turn` is one model call: configuration in, events out, state to read. It never runs a
//! tool, so a test sees exactly what the model requested.
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::sync::Arc;

use wellspring::prelude::*;
use wellspring::{Message, Turn, TurnConfig, TurnEvent, TurnState};

#[tokio::main]
async fn main() {
    let model = Scripted::new([Say::new()
        .chunks(["Let me ", "look."])
        .call("clock", json!({"tz": "UTC"}))]);
    let mut turn = Turn::new(TurnConfig::new(Arc::new(model), [Message::user("What time is it?")]));
    assert_eq!(turn.state(), TurnState::Pending);

    {
        let mut events = turn.run();
        while let Some(event) = events.next().await {
            match event {
                TurnEvent::TextDelta { text } => println!("text_delta {text:?}"),
                TurnEvent::TextDone { text } => println!("text_done {text:?}"),
                TurnEvent::ToolCall(call) => println!("tool_call {} {}", call.name, call.arguments),
                TurnEvent::Finished { stop, .. } => println!("finished {stop:?}"),
                TurnEvent::Error(error) => println!("error {error}"),
            }
        }
    }

    assert_eq!(turn.text(), "Let me look.");
    assert_eq!(turn.tool_calls().len(), 1);
    assert_eq!(turn.state(), TurnState::Complete);
    println!("the turn is where it should be: {:?}", turn.state());
}
