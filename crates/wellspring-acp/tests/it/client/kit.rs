//! Shared helpers of these tests.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::{Value, json};
use wellspring_acp::client::{AcpAgent, AcpConfig};
use wellspring_core::{Checker, Event, Outcome, Record, RunId, RunRequest, Seq, render};
use wellspring_engine::{AgentDef, Runtime, StartRun};
use wellspring_log::{Cursor, Log, LogOptions, MemoryStore};
use wellspring_testkit::acp_agent::SCRIPT;

/// Long enough that only a hang exceeds it, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

pub(super) fn runtime() -> Runtime {
    Runtime::new(Log::new(Arc::new(MemoryStore::default()), LogOptions::default()))
}

/// The command of an agent that follows a script.
pub(super) fn config(script: &Value) -> AcpConfig {
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    AcpConfig::command([program, "--exact", "scripted_agent", "--nocapture", "--quiet"])
        .env(SCRIPT, script.to_string())
        .cwd(std::env::temp_dir())
}

/// An agent that performs these steps for every prompt.
pub(super) fn steps(steps: Value) -> AgentDef {
    scripted(&json!({"prompts": [steps]}))
}

pub(super) fn scripted(script: &Value) -> AgentDef {
    driven(AcpAgent::new("scripted", config(script)))
}

/// An agent that ends by itself when it is asked to, which may take a while on a busy machine.
pub(super) fn driven(agent: AcpAgent) -> AgentDef {
    within_grace(agent, LIMIT)
}

/// An agent that never ends by itself, so it is killed after a short grace period.
pub(super) fn deaf(agent: AcpAgent) -> AgentDef {
    within_grace(agent, Duration::from_millis(100))
}

fn within_grace(agent: AcpAgent, cancel_grace: Duration) -> AgentDef {
    let mut def = AgentDef::remote("agent", Arc::new(agent));
    def.timeouts.cancel_grace = cancel_grace;
    def
}

/// Runs an agent to its end.
pub(super) async fn play(def: AgentDef, request: RunRequest) -> Vec<Record> {
    let runtime = runtime();
    runtime.register(def);
    let run = runtime.local().start(StartRun::new("agent", request)).await.unwrap().run;
    finished(&runtime, run).await
}

/// The records of a run that ends, checked.
pub(super) async fn finished(runtime: &Runtime, run: RunId) -> Vec<Record> {
    let records = until(runtime, run, |event| matches!(event, Event::RunFinished { .. })).await;
    Checker::check(&records)
        .unwrap_or_else(|violation| panic!("{violation}\n{}", render(&records)));
    records
}

/// The records up to the first one that matches.
pub(super) async fn until(
    runtime: &Runtime,
    run: RunId,
    fits: impl Fn(&Event) -> bool,
) -> Vec<Record> {
    let cursor = runtime.local().attach(run, Seq(0)).await.unwrap();
    let mut records = Vec::new();
    let reading = read(cursor, &mut records, fits);
    if tokio::time::timeout(LIMIT, reading).await.is_err() {
        panic!("nothing fits in\n{}", render(&records));
    }
    records
}

async fn read(mut cursor: Cursor, records: &mut Vec<Record>, fits: impl Fn(&Event) -> bool) {
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
}

/// The run as lines, without the parts that differ between runs.
pub(super) fn shown(records: &[Record]) -> String {
    let told = records
        .iter()
        .filter(|record| !matches!(record.event, Event::RunStarted(_) | Event::Attached { .. }));
    told.map(|record| format!("{}\n", record.event)).collect()
}

pub(super) fn outcome(records: &[Record]) -> Outcome {
    match &records.last().unwrap().event {
        Event::RunFinished { outcome } => (**outcome).clone(),
        other => panic!("{other}"),
    }
}

/// The text of a run.
pub(super) fn words(records: &[Record]) -> String {
    let deltas = records.iter().filter_map(|record| match &record.event {
        Event::PartDelta { chunk, .. } => Some(&**chunk),
        _ => None,
    });
    deltas.collect()
}

/// The id of the agent's session, and of its process.
pub(super) fn session(records: &[Record]) -> (String, Pid) {
    let handle = records.iter().find_map(|record| match &record.event {
        Event::Attached { handle, .. } => handle["session"].as_str().map(str::to_owned),
        _ => None,
    });
    let session = handle.unwrap();
    let pid = session.split('-').nth(1).unwrap().parse().unwrap();
    (session, Pid::from_raw(pid).unwrap())
}

/// Watches a process.
pub(super) fn watch(pid: Pid) -> OwnedFd {
    pidfd_open(pid, PidfdFlags::empty()).unwrap()
}

/// Waits until a process has ended.
pub(super) async fn gone(process: OwnedFd) {
    let waiting = tokio::task::spawn_blocking(move || {
        let limit = Timespec { tv_sec: LIMIT.as_secs().cast_signed(), tv_nsec: 0 };
        poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).unwrap()
    });
    assert_eq!(waiting.await.unwrap(), 1, "it never ended");
}

pub(super) fn schema() -> Value {
    json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
}
