//! How do I write the loop around the model myself?
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;
use std::sync::Arc;

use wellspring::prelude::*;
use wellspring::tools::{NoArguments, function};
use wellspring::{
    Message, QueuedToolCall, Tool, ToolOrder, ToolQueue, Turn, TurnConfig, TurnEvent,
};

const TURNS_MAX: usize = 10;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let model = Arc::new(Scripted::new([
        Say::new().text("Let me look.").call("clock", json!({})).call("calendar", json!({})),
        Say::new().text("It is noon on Monday."),
    ]));
    let clock = function("clock", "Tells the time.", async |_: NoArguments, _| Ok("12:00"));
    let calendar =
        function("calendar", "Tells the day.", async |_: NoArguments, _| Ok("Monday")).sequential();
    let tools: [Arc<dyn Tool>; 2] = [Arc::new(clock), Arc::new(calendar)];
    let named = |name: &str| {
        let tool = tools.iter().find(|tool| &*tool.spec().name == name);
        tool.ok_or_else(|| format!("there is no tool {name}"))
    };
    let signal = CancellationToken::new();

    let mut messages = vec![Message::user("What time is it?")];
    for _ in 0..TURNS_MAX {
        let mut turn = Turn::new(TurnConfig {
            tools: tools.iter().map(|tool| tool.spec().clone()).collect(),
            signal: signal.clone(),
            ..TurnConfig::new(model.clone(), messages.clone())
        });
        // One model call. It executes nothing.
        let mut events = turn.run();
        while let Some(event) = events.next().await {
            match event {
                TurnEvent::TextDelta { text } => print!("{text}"),
                TurnEvent::TextDone { .. } => println!(),
                TurnEvent::ToolCall(call) => println!("{} {}", call.name, call.arguments),
                TurnEvent::Finished { stop, .. } => println!("({stop:?})"),
                TurnEvent::Error(error) => return Err(error.into()),
            }
        }
        if turn.tool_calls().is_empty() {
            return Ok(());
        }
        // The queue decides which calls may run now. A real loop would run parallel calls
        // concurrently.
        let mut queue = ToolQueue::new(ToolOrder::AsCalled, 4);
        for call in turn.tool_calls() {
            queue.push(named(&call.name)?.mode(&call.arguments), QueuedToolCall::from(call));
        }
        let mut results = Vec::new();
        while let Some(call) = queue.start() {
            let context = Context::create("trace-1", signal.clone());
            let tool = named(&call.tool_name)?;
            results.push((call.tool_call_id, tool.call(call.tool_args.into(), context).await));
            queue.finish();
        }
        // The model's message is sent back unchanged, followed by the result of each call.
        let results = turn.results(results);
        messages.extend([turn.message(), results]);
    }
    Err("too many turns".into())
}
