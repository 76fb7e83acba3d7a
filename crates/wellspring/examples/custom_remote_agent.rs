//! How do I use an agent that runs its own loop outside Wellspring?
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use wellspring::futures::future::BoxFuture;
use wellspring::futures::stream::BoxStream;
use wellspring::futures::{FutureExt as _, StreamExt as _, stream};
use wellspring::prelude::*;
use wellspring::{Batch, ModelError, PartKind, RemoteAgent, RemoteRequest, Stop};

/// An agent that thinks and answers. A real one would speak to another machine.
struct Oracle;

impl RemoteAgent for Oracle {
    fn name(&self) -> &str {
        "oracle"
    }

    fn run(
        &self,
        request: RemoteRequest,
        _context: Context,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<Batch, ModelError>>, ModelError>> {
        async move {
            let mut batch = Batch::default();
            let thought = batch.start(PartKind::Thought);
            batch.delta(thought, &format!("The question is: {}", request.text()));
            batch.finish(thought);
            let first = batch.take(); // shown at once
            let answer = batch.start(PartKind::TEXT);
            batch.delta(answer, "Know thyself.");
            batch.finish(answer);
            batch.stop(Stop::EndTurn, None);
            Ok(stream::iter([Ok(first), Ok(batch.take())]).boxed())
        }
        .boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), ThinkError> {
    let mut stream = Agent::remote(Oracle).say("What should I do?").stream();
    while let Some(event) = stream.try_next().await? {
        println!("{event:?}");
    }
    assert_eq!(stream.result().await?, "Know thyself.");
    Ok(())
}
