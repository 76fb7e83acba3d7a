//! Shared helpers of these tests.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use wellspring_core::{Checker, Event, Millis, Model, Record, RunId, Seq, Tool, ToolSpec, render};
use wellspring_engine::tools::{FunctionTool, from_function};
use wellspring_engine::{AgentDef, Runtime, StartRun};
use wellspring_log::{Cursor, Log, LogOptions, MemoryStore, TokioClock};
use wellspring_models::{Say, Scripted};

/// The time at which every test starts, in 2026.
pub(crate) const START: Millis = Millis(1_790_000_000_000);

/// A log over tokio's clock, so that pausing time affects the records too.
pub(crate) fn log(store: &Arc<MemoryStore>, node: &str) -> Log {
    let options = LogOptions {
        node: node.into(),
        clock: Arc::new(TokioClock::starting_at(START)),
        ..LogOptions::default()
    };
    Log::new(Arc::clone(store) as _, options)
}

pub(crate) fn runtime() -> Runtime {
    Runtime::new(log(&Arc::new(MemoryStore::default()), "one"))
}

/// An agent with a script and tools.
pub(crate) fn agent<const N: usize>(
    turns: [Say; N],
    tools: impl IntoIterator<Item = FunctionTool>,
) -> AgentDef {
    with_model(Arc::new(Scripted::new(turns)), tools)
}

pub(crate) fn with_model(
    model: Arc<dyn Model>,
    tools: impl IntoIterator<Item = FunctionTool>,
) -> AgentDef {
    let tools = tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>).collect();
    AgentDef { tools, ..AgentDef::model("agent", model) }
}

/// A tool that returns its arguments.
pub(crate) fn echo() -> FunctionTool {
    from_function(ToolSpec::new("echo", "says it back"), |arguments: Value, _| async move {
        Ok(wellspring_core::ToolResult::new(arguments["say"].clone()))
    })
}

/// Runs an agent to its end and returns the checked records.
pub(crate) async fn play(def: AgentDef) -> Vec<Record> {
    let runtime = runtime();
    runtime.register(def);
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    finished(&runtime, run).await
}

/// The records of a run that ends.
pub(crate) async fn finished(runtime: &Runtime, run: RunId) -> Vec<Record> {
    let records =
        read_until(runtime, run, |event| matches!(event, Event::RunFinished { .. })).await;
    Checker::check(&records)
        .unwrap_or_else(|violation| panic!("{violation}\n{}", render(&records)));
    records
}

/// The records up to the first one that matches.
pub(crate) async fn read_until(
    runtime: &Runtime,
    run: RunId,
    fits: impl Fn(&Event) -> bool,
) -> Vec<Record> {
    // Read from the log, whatever the run's tenant.
    let mut cursor = runtime.log().cursor(run, Seq(0)).await.unwrap();
    collect_until(&mut cursor, fits).await
}

pub(crate) async fn collect_until(
    cursor: &mut Cursor,
    fits: impl Fn(&Event) -> bool,
) -> Vec<Record> {
    let mut records = Vec::new();
    // Under paused time, a run that hangs would hang the test.
    let reading = async {
        while let Some(frames) = cursor.next().await.unwrap() {
            for frame in frames {
                for record in frame.records() {
                    records.push(record.clone());
                    if fits(&record.event) {
                        return;
                    }
                }
            }
        }
    };
    let hour = Duration::from_secs(7 * 24 * 60 * 60);
    if tokio::time::timeout(hour, reading).await.is_err() {
        panic!("nothing fits in\n{}", render(&records));
    }
    records
}
