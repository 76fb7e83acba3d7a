//! Shared functions of these tests.

use std::sync::Arc;

use wellspring_core::{Checker, Event, Record, RemoteAgent, RunId, Seq, render};
use wellspring_engine::{AgentDef, Runtime, StartRun};
use wellspring_log::{Log, LogOptions, MemoryStore};

pub(crate) fn runtime(def: AgentDef) -> Runtime {
    let runtime = Runtime::new(Log::new(Arc::new(MemoryStore::default()), LogOptions::default()));
    runtime.register(def);
    runtime
}

pub(crate) fn agent(remote: impl RemoteAgent) -> AgentDef {
    AgentDef::remote("agent", Arc::new(remote))
}

pub(crate) async fn start(runtime: &Runtime) -> RunId {
    runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run
}

/// The records of a run that ends, without its first one.
pub(crate) async fn finished(runtime: &Runtime, run: RunId) -> String {
    let records =
        read_until(runtime, run, |event| matches!(event, Event::RunFinished { .. })).await;
    Checker::check(&records)
        .unwrap_or_else(|violation| panic!("{violation}\n{}", render(&records)));
    render(&records[1..])
}

/// Runs an agent to its end.
pub(crate) async fn play(remote: impl RemoteAgent) -> String {
    let runtime = runtime(agent(remote));
    let run = start(&runtime).await;
    finished(&runtime, run).await
}

/// The records up to the first one that matches.
pub(crate) async fn read_until(
    runtime: &Runtime,
    run: RunId,
    fits: impl Fn(&Event) -> bool,
) -> Vec<Record> {
    let mut records = Vec::new();
    let mut cursor = runtime.log().cursor(run, Seq(0)).await.unwrap();
    while let Some(frames) = cursor.next().await.unwrap() {
        for frame in frames {
            for record in frame.records() {
                records.push(record.clone());
                if fits(&record.event) {
                    return records;
                }
            }
        }
    }
    panic!("nothing fits in\n{}", render(&records));
}
