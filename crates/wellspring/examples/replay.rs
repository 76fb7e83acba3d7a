//! How do I return to a run, even in another process?
//!
//! Run it with `--features sqlite`.
#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use wellspring::prelude::*;
use wellspring::{Log, LogOptions};
use wellspring::{SqliteOptions, SqliteStore};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("runs.db");

    // Run an agent, read three events, and keep only the run's id and the position.
    let (run, position) = {
        let mut stream = agent(&file)?.say("Count.").stream();
        for _ in 0..3 {
            println!("live:     {:?}", stream.next().await);
        }
        stream.outcome().await?;
        (stream.run_id().await?, stream.position())
    };

    // Open the file again: the same run continues from the position …
    let agent = agent(&file)?;
    let mut rest = agent.attach::<String>(run).after(position);
    while let Some(event) = rest.next().await {
        println!("resumed:  {event:?}");
    }

    // … or from its start, and its result is available too.
    let again = agent.attach::<String>(run);
    println!("result:   {}", again.result().await?);
    println!("replayed: {} events", again.count().await);
    Ok(())
}

fn agent(file: &Path) -> Result<Agent, Box<dyn Error>> {
    let store = SqliteStore::open(file, SqliteOptions::default())?;
    let log = Log::new(Arc::new(store), LogOptions::default());
    Ok(Agent::model(Scripted::new([Say::new().text("one two three four five")])).log(log))
}
