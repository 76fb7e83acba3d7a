//! How do I write a client for a model that Wellspring does not support?
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use wellspring::futures::future::BoxFuture;
use wellspring::futures::{FutureExt as _, StreamExt as _, stream};
use wellspring::prelude::*;
use wellspring::{
    AttemptStream, Batch, FailureKind, Message, Model, ModelError, PartKind, Stop, TurnRequest,
};

/// Repeats its input, word by word. A real client would send a request and read the answer.
struct Echo;

impl Model for Echo {
    fn name(&self) -> &str {
        "echo"
    }

    fn attempt(&self, request: TurnRequest) -> BoxFuture<'_, Result<AttemptStream, ModelError>> {
        async move {
            let said = request.messages.last().map(Message::text).unwrap_or_default();
            if said.is_empty() {
                // The kind decides whether the engine tries again.
                let kind = FailureKind::BadRequest;
                return Err(ModelError::new("echo", kind, "there is no text to repeat"));
            }
            // One batch numbers all parts; each read returns the events that it has taken.
            let mut batch = Batch::default();
            let text = batch.start(PartKind::TEXT);
            let mut batches = vec![Ok(batch.take())];
            for word in said.split_inclusive(' ') {
                batch.delta(text, word);
                batches.push(Ok(batch.take()));
            }
            batch.finish(text);
            batch.stop(Stop::EndTurn, None); // an end without a stop is a failure
            batches.push(Ok(batch.take()));
            Ok(stream::iter(batches).boxed())
        }
        .boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), ThinkError> {
    let answer = Agent::model(Echo).say("Is anybody there?").run().await?;
    assert_eq!(answer, "Is anybody there?");
    println!("{answer}");
    Ok(())
}
