//! Due runs are found, however many other runs wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use uuid::Uuid;
use wellspring_core::{
    Answer, Approval, Event, Millis, QuestionId, RunId, RunRequest, RunStarted, Scope, ThreadId,
    ToolResult, ToolSpec, render,
};
use wellspring_engine::tools::from_function;
use wellspring_engine::{AgentDef, Runtime, StartRun};
use wellspring_log::{Clock, Log, LogOptions, MemoryStore, RunState, SqliteOptions, TokioClock};
use wellspring_models::{Gate, Say};
use wellspring_testkit::soak;

use crate::kit::{START, agent, finished, log, read_until};

/// An agent that asks before its only call.
fn asking() -> AgentDef {
    let spec = ToolSpec { approval: Some(Approval::Ask), ..ToolSpec::new("risky", "") };
    let risky = from_function(spec, |_, _| async { Ok(ToolResult::new("dared")) });
    agent([Say::new().call("risky", json!({})), Say::new().chunks(["ok"])], [risky])
}

fn yes() -> Answer {
    Answer::Approve { scope: Scope::Once, arguments: None }
}

/// Of many waiting runs on two processes, the oldest one continues after it is answered through
/// either process: at once if that process knows its agent, otherwise when the other process next
/// looks for due runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oldest_of_many_waiting_runs_goes_on_wherever_it_is_answered() {
    let runs = soak(1_101, 10_000);
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let path = directory.path().join("runs.db");
        Runtime::new(Log::sqlite(path, SqliteOptions::default()).unwrap())
    };
    let (one, two) = (open(), open());
    one.register(asking());
    let mut waiting = Vec::new();
    for _ in 0..runs {
        let run = one.local().start(StartRun::text("agent", "go")).await.unwrap().run;
        waiting.push(run);
    }
    for run in &waiting {
        while one.local().info(*run).await.unwrap().state != RunState::Paused {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(one.recover().await.unwrap(), [], "nothing is due");
    // The second process does not know the agent, so the first one must find the answer.
    let since = Instant::now();
    two.local().answer(waiting[0], QuestionId(0), yes()).await.unwrap();
    assert_eq!(two.recover().await.unwrap(), []);
    assert_eq!(one.recover().await.unwrap(), [waiting[0]]);
    let records = finished(&one, waiting[0]).await;
    // A server looks for due runs every second.
    let took = since.elapsed();
    eprintln!("of {runs} waiting runs, the oldest had gone on and ended after {took:?}");
    assert!(took < Duration::from_secs(1), "{took:?}, besides the time until somebody looks");
    assert!(render(&records).contains("finished ok \"dared\""), "{}", render(&records));
    // If this process knows the agent, no other process has to look.
    two.register(asking());
    two.local().answer(waiting[1], QuestionId(0), yes()).await.unwrap();
    finished(&one, waiting[1]).await;
    let adopted = [one.recover().await.unwrap(), two.recover().await.unwrap()];
    assert_eq!(adopted, [vec![], vec![]], "the others wait on");
}

/// Creates a run that lost its process.
async fn orphan(log: &Log, agent: &str) -> RunId {
    let run = RunId::new(Uuid::now_v7());
    let started = RunStarted {
        run,
        thread: ThreadId::new(Uuid::now_v7()),
        agent: agent.into(),
        after: None,
        request: RunRequest::text("go"),
    };
    drop(log.create("local", started).await.unwrap());
    while log.store().info(run).await.unwrap().unwrap().owner.is_some() {
        tokio::task::yield_now().await; // the task that releases it
    }
    run
}

/// The run of a known agent is adopted at the first look, although many runs of an unknown agent
/// are due before it; those are handled too.
#[tokio::test(start_paused = true)]
async fn runs_of_an_unknown_agent_block_nothing() {
    let store = Arc::new(MemoryStore::default());
    let (one, two) = (log(&store, "one"), Runtime::new(log(&store, "two")));
    let mut strangers = Vec::new();
    for _ in 0..1_100 {
        strangers.push(orphan(&one, "gone").await);
    }
    let known = orphan(&one, "agent").await;
    two.register(agent([Say::new().chunks(["ok"])], []));
    assert_eq!(two.recover().await.unwrap(), [known]);
    finished(&two, known).await;
    // No process adopts the other runs, so each fails after its grace period.
    let mut ended = Vec::new();
    for _ in 0..20 {
        tokio::time::advance(Duration::from_secs(60)).await;
        ended.extend(two.recover().await.unwrap());
    }
    ended.sort_unstable();
    assert_eq!(ended, strangers);
}

/// A clock whose wall-clock time steps.
struct Stepping(TokioClock, AtomicI64);

impl Clock for Stepping {
    fn now(&self) -> Millis {
        Millis(self.0.now().0.saturating_add_signed(self.1.load(Ordering::SeqCst)))
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }
}

/// A clock that steps by a year does not time a run out, neither for its owner nor for the next
/// owner.
#[tokio::test(start_paused = true)]
async fn a_clock_that_steps_by_a_year_times_nothing_out() {
    const YEAR: i64 = 365 * 24 * 60 * 60 * 1000;
    for step in [YEAR, -YEAR / 2] {
        let store = Arc::new(MemoryStore::default());
        let clock = Arc::new(Stepping(TokioClock::starting_at(START), 0.into()));
        let node = |name: &str| {
            let clock = Arc::clone(&clock) as Arc<dyn Clock>;
            let options = LogOptions { node: name.into(), clock, ..LogOptions::default() };
            Runtime::new(Log::new(Arc::clone(&store) as _, options))
        };
        let (one, two) = (node("one"), node("two"));
        let (before, after) = (Gate::new(), Gate::new());
        let say = Say::new().chunks(["Half"]).gate(&before).chunks([" a sentence"]).gate(&after);
        one.register(agent([say], []));
        two.register(agent([Say::new().chunks(["A whole one."])], []));
        let run = one.local().start(StartRun::text("agent", "go")).await.unwrap().run;
        before.reached(1).await;
        clock.1.store(step, Ordering::SeqCst);
        before.open();
        let said = |event: &Event| matches!(event, Event::PartDelta { chunk, .. } if &**chunk == " a sentence");
        read_until(&one, run, said).await;
        assert_eq!(two.recover().await.unwrap(), [], "its owner is alive");
        one.shutdown(Duration::ZERO).await;
        assert_eq!(two.recover().await.unwrap(), [run]);
        let records = finished(&two, run).await;
        assert!(render(&records).ends_with("run finished completed end_turn\n"), "{step}");
    }
}
