//! Real processes and a real disk: a process is killed at a random moment of a run, and another one
//! continues it.
//!
//! The child process is this test binary, which a variable makes run an agent and print every
//! record that its reader receives. So every record that the parent reads was delivered, and must
//! still be there afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use wellspring_core::{
    Checker, Context, Event, Outcome, Record, RunId, Seq, ToolResult, ToolSpec, render,
};
use wellspring_engine::tools::from_function;
use wellspring_engine::{AgentDef, Runtime, StartRun};
use wellspring_log::{Log, LogOptions, RunFilter, SqliteOptions, SqliteStore};
use wellspring_models::{Say, Scripted};

use crate::kit::with_model;

/// The directory of the child's log.
const DIRECTORY: &str = "WELLSPRING_CRASH_DIRECTORY";

/// Short, so that the runs of a frozen owner are soon taken over; a live owner renews it in time.
const LEASE: Duration = Duration::from_millis(600);

fn open(directory: &Path) -> Runtime {
    let store = SqliteStore::open(directory.join("runs.db"), SqliteOptions::default()).unwrap();
    let options = LogOptions { node: store.node().into(), lease: LEASE, ..LogOptions::default() };
    Runtime::new(Log::new(Arc::new(store), options))
}

/// Thinks, calls tools that write to the disk, and answers, slowly enough to be killed at any
/// point.
fn def(directory: &Path) -> AgentDef {
    let words = |n: usize| (0..n).map(|i| format!("w{i} ")).collect::<Vec<_>>();
    let pace = Duration::from_millis(1);
    let turn = |say: Say| say.pace(pace).chunks(words(40));
    let model = Scripted::new([
        turn(Say::new()).call("trace", json!({"n": 1})).call("again", json!({"n": 2})),
        turn(Say::new().thought("Let me see.")).call("trace", json!({"n": 3})),
        turn(Say::new()),
    ]);
    let tool = |name: &'static str| {
        let directory = directory.to_owned();
        from_function(ToolSpec::new(name, "leaves a trace"), move |_, cx: Context| {
            let path = directory.join(format!("{name}-{}", cx.call_id().unwrap()));
            async move {
                let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
                file.write_all(b"x").unwrap();
                for step in 0..10 {
                    cx.progress(json!({"step": step})).await;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Ok(ToolResult::new("traced"))
            }
        })
    };
    with_model(Arc::new(model), [tool("trace"), tool("again").idempotent()])
}

/// The child: runs the agent and prints the records that a reader receives.
#[test]
fn child() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let directory = Path::new(&directory);
        let runtime = open(directory);
        runtime.register(def(directory));
        let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
        let mut cursor = runtime.local().attach(run, Seq(0)).await.unwrap();
        let mut out = std::io::stdout();
        writeln!(out, "run {run}").unwrap();
        // A frozen owner that was taken over ends here: its cursor follows the new owner.
        while let Ok(Some(frames)) = cursor.next().await {
            for frame in frames {
                for record in frame.records() {
                    writeln!(out, "{}", serde_json::to_string(record).unwrap()).unwrap();
                }
            }
            out.flush().unwrap();
        }
    });
}

struct Victim {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    run: RunId,
    seen: Vec<Record>,
}

impl Victim {
    fn start(directory: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["crash::child", "--exact", "--nocapture"])
            .env(DIRECTORY, directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let run = loop {
            let line = lines.next().unwrap().unwrap();
            // The test harness prints to the same line before the test does.
            if let Some((_, run)) = line.split_once("run ")
                && let Ok(run) = run.parse()
            {
                break run;
            }
        };
        Self { child, lines, run, seen: Vec::new() }
    }

    /// Reads `count` records, or fewer if the run ends first.
    fn see(&mut self, count: usize) {
        while self.seen.len() < count
            && let Some(Ok(line)) = self.lines.next()
        {
            self.take(&line);
        }
    }

    /// Reads the output that is left after the process has ended: those records were delivered too.
    fn see_the_rest(&mut self) {
        while let Some(Ok(line)) = self.lines.next() {
            self.take(&line);
        }
    }

    fn take(&mut self, line: &str) {
        // The last line of a killed process may be incomplete, and output of the harness is not a
        // record.
        if let Ok(record) = serde_json::from_str(line) {
            self.seen.push(record);
        }
    }

    /// Stops the process between two transactions. Within a transaction it would hold the lock that
    /// other processes need to open the file.
    fn freeze(&self, directory: &Path) {
        let path = directory.join("runs.db");
        loop {
            self.signal(rustix::process::Signal::STOP);
            if SqliteStore::open(&path, SqliteOptions::default()).is_ok() {
                return;
            }
            self.signal(rustix::process::Signal::CONT);
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

/// Adopts the run and drives it to its end. The delivered records must be its beginning.
async fn recovered(directory: &Path, run: RunId, seen: &[Record]) -> Vec<Record> {
    let runtime = open(directory);
    runtime.register(def(directory));
    // A frozen owner must first be silent for the length of a lease.
    while runtime.recover().await.unwrap().is_empty()
        && !runtime.log().store().info(run).await.unwrap().unwrap().state.is_final()
    {
        tokio::task::yield_now().await;
    }
    let mut records = Vec::new();
    let mut cursor = runtime.local().attach(run, Seq(0)).await.unwrap();
    while let Some(frames) = cursor.next().await.unwrap() {
        frames.iter().for_each(|frame| records.extend_from_slice(frame.records()));
    }
    Checker::check(&records)
        .unwrap_or_else(|violation| panic!("{violation}\n{}", render(&records)));
    assert!(records.len() >= seen.len(), "delivered records are missing");
    assert_eq!(&records[..seen.len()], seen, "delivered records have changed");
    let Event::RunFinished { outcome } = &records.last().unwrap().event else { panic!() };
    assert!(matches!(**outcome, Outcome::Completed { .. }), "{outcome}");
    let runs = runtime.log().store().list(RunFilter::default()).await.unwrap();
    assert_eq!(runs.len(), 1);
    records
}

fn was_adopted(records: &[Record]) -> bool {
    records.iter().any(|record| matches!(record.event, Event::RunAdopted { .. }))
}

/// How often the tool of each call ran, according to its files.
fn traces(directory: &Path) -> BTreeMap<String, u64> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry));
    let traces = named.filter(|(name, _)| name.starts_with("trace-") || name.starts_with("again-"));
    traces.map(|(name, entry)| (name, entry.metadata().unwrap().len())).collect()
}

/// Pseudo-random numbers, the same in every run of the tests.
fn pick(round: u32, below: u64) -> u64 {
    let mixed = u64::from(round + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)) % below
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_loses_nothing_that_was_seen() {
    let rounds = wellspring_testkit::soak(20, 500);
    let mut adopted = 0;
    for round in 0..rounds {
        let directory = tempfile::tempdir().unwrap();
        let mut victim = Victim::start(directory.path());
        victim.see(usize::try_from(pick(round, 190)).unwrap());
        victim.child.kill().unwrap();
        victim.child.wait().unwrap();
        victim.see_the_rest();
        let (run, seen) = (victim.run, std::mem::take(&mut victim.seen));
        let records = recovered(directory.path(), run, &seen).await;
        adopted += u32::from(was_adopted(&records));
        for (trace, times) in traces(directory.path()) {
            assert!(
                times == 1 || trace.starts_with("again"),
                "{trace} ran {times} times\n{}",
                render(&records)
            );
        }
    }
    assert!(adopted > rounds / 2, "only {adopted} of {rounds} runs were cut short");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_owner_that_thaws_after_a_take_over_writes_nothing() {
    for round in 0..wellspring_testkit::soak(3, 50) {
        let directory = tempfile::tempdir().unwrap();
        let mut victim = Victim::start(directory.path());
        victim.see(usize::try_from(10 + pick(round, 150)).unwrap());
        victim.freeze(directory.path());
        // Its lock says that it is alive, so only missing heartbeats let other processes take over.
        let run = victim.run;
        let records = recovered(directory.path(), run, &[]).await;
        assert!(was_adopted(&records), "the run ended before it was frozen");
        victim.signal(rustix::process::Signal::CONT);
        // It notices that it lost the run, and its reader follows the new owner.
        victim.see_the_rest();
        victim.child.wait().unwrap();
        assert_eq!(&records[..victim.seen.len()], &victim.seen[..]);
        let after = recovered(directory.path(), run, &records).await;
        assert_eq!(after, records, "the thawed owner wrote something");
    }
}
