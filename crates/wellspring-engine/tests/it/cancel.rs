//! Cancelling, at once and at the end of a turn, in every situation: each run gets exactly one end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use wellspring_core::{
    Approval, CancelWhen, Context, Event, Outcome, ToolResult, ToolSpec, render,
};
use wellspring_engine::tools::{FunctionTool, from_function};
use wellspring_engine::{AgentDef, ControlError, Hooks, Principal, StartRun, Timeouts};
use wellspring_models::{Gate, Say};

use crate::kit::{agent, echo, finished, read_until, runtime};

/// Records whether it was dropped.
struct Alive(Arc<AtomicBool>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// Never ends, even if it is cancelled.
fn stubborn(alive: &Arc<AtomicBool>) -> FunctionTool {
    let alive = Arc::clone(alive);
    from_function(ToolSpec::new("stubborn", "never ends"), move |_, _| {
        alive.store(true, Ordering::SeqCst);
        let guard = Alive(Arc::clone(&alive));
        async move {
            let _guard = guard;
            std::future::pending().await
        }
    })
}

/// Ends soon after it is cancelled, with a partial result.
fn polite() -> FunctionTool {
    from_function(ToolSpec::new("polite", "ends when told"), |_, cx: Context| async move {
        cx.signal().cancelled().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok(ToolResult::new("stopped after 3 of 5"))
    })
}

#[tokio::test(start_paused = true)]
async fn in_mid_sentence_keeps_what_was_said() {
    let runtime = runtime();
    runtime.register(agent([Say::new().thought("hm").chunks(["Half a"]).hang()], []));
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    read_until(
        &runtime,
        run,
        |event| matches!(event, Event::PartDelta { chunk, .. } if chunk.contains("Half")),
    )
    .await;
    runtime
        .control(Principal::local().named("ann"))
        .cancel(run, CancelWhen::Now, Some("enough"))
        .await
        .unwrap();
    let records = finished(&runtime, run).await;
    insta::assert_snapshot!(render(&records), @r#"
    run started by agent {"text":"go"}
    turn 1.1 started with scripted
    part 0 started thought
    part 0 delta "hm"
    part 0 finished
    part 1 started text
    part 1 delta "Half a"
    part 1 finished
    run finished cancelled: enough
    "#);
    let Event::RunFinished { outcome } = &records.last().unwrap().event else { panic!() };
    let Outcome::Cancelled { by, why, inbox } = &**outcome else { panic!("{outcome}") };
    assert_eq!(
        (by.as_deref(), why.as_deref(), inbox.is_some()),
        (Some("ann"), Some("enough"), true)
    );
    // A repeated cancel changes nothing, and cancelling a finished run returns that it has
    // finished.
    let again = runtime.local().cancel(run, CancelWhen::Now, None).await;
    assert!(matches!(again, Err(ControlError::Finished(_))), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn tools_get_a_grace_and_then_are_dropped() {
    let alive = Arc::new(AtomicBool::new(false));
    let say = Say::new().call("stubborn", json!({})).call("polite", json!({}));
    let runtime = runtime();
    runtime.register(agent([say], [stubborn(&alive), polite()]));
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    let mut started = 0;
    let both = |event: &Event| matches!(event, Event::ToolStarted { call, .. } if call.0 == 1);
    started += read_until(&runtime, run, both).await.len();
    assert!(started > 0 && alive.load(Ordering::SeqCst));
    runtime.local().cancel(run, CancelWhen::Now, None).await.unwrap();
    let records = finished(&runtime, run).await;
    assert!(!alive.load(Ordering::SeqCst), "the tool outlived its run");
    let lines = render(&records);
    let ends: Vec<_> = lines.lines().filter(|line| line.contains("finished")).collect();
    insta::assert_snapshot!(ends.join("\n"), @r#"
    part 0 finished
    part 1 finished
    turn finished tool_calls
    tool 1 finished ok "stopped after 3 of 5"
    tool 0 finished interrupted "interrupted: the run was cancelled while the tool ran; it may have taken effect"
    run finished cancelled
    "#);
}

#[tokio::test(start_paused = true)]
async fn after_the_turn_lets_its_tools_finish() {
    let gate = Gate::new();
    let script = [
        Say::new().chunks(["One."]).gate(&gate).call("echo", json!({"say": "x"})),
        Say::new().chunks(["Two."]),
    ];
    let runtime = runtime();
    runtime.register(agent(script, [echo()]));
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    read_until(&runtime, run, |event| matches!(event, Event::PartDelta { .. })).await;
    runtime.local().cancel(run, CancelWhen::AfterTurn, None).await.unwrap();
    gate.open();
    insta::assert_snapshot!(render(&finished(&runtime, run).await), @r#"
    run started by agent {"text":"go"}
    turn 1.1 started with scripted
    part 0 started text
    part 0 delta "One."
    part 0 finished
    part 1 started call echo
    part 1 delta "{\"say\":\"x\"}"
    part 1 finished
    turn finished tool_calls
    tool 1 queued at 0
    tool 1 started parallel
    tool 1 finished ok "x"
    run finished cancelled
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_paused_run_can_be_cancelled_by_a_node_that_never_saw_its_agent() {
    let store = Arc::new(wellspring_log::MemoryStore::default());
    let one = wellspring_engine::Runtime::new(crate::kit::log(&store, "one"));
    let spec = ToolSpec { approval: Some(Approval::Ask), ..ToolSpec::new("risky", "") };
    let risky = from_function(spec, |_, _| async { Ok(ToolResult::new("x")) });
    one.register(agent([Say::new().call("risky", json!({}))], [risky]));
    let run = one.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    read_until(&one, run, |event| matches!(event, Event::RunPaused { .. })).await;
    let two = wellspring_engine::Runtime::new(crate::kit::log(&store, "two"));
    two.control(Principal::local().named("ann")).cancel(run, CancelWhen::Now, None).await.unwrap();
    let records = finished(&two, run).await;
    insta::assert_snapshot!(render(records.iter().rev().take(4).rev()), @r#"
    run adopted by two, epoch 1
    question 0 answered withdrawn
    tool 0 finished interrupted "not run: the run was cancelled first"
    run finished cancelled
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_takes_too_long_is_stopped() {
    let def = agent([Say::new().chunks(["x"]).hang()], []);
    let timeouts = Timeouts {
        run: Duration::from_secs(50),
        between_chunks: Duration::from_secs(1000),
        ..Timeouts::default()
    };
    let records = crate::kit::play(AgentDef { timeouts, ..def }).await;
    insta::assert_snapshot!(render(records.last()), @"run finished failed timed_out: the run took longer than 50 s");
}

#[tokio::test(start_paused = true)]
async fn hooks_hear_of_chunks_turns_the_end_and_the_abort() {
    #[derive(Default)]
    struct Heard(std::sync::Mutex<Vec<String>>);
    impl Hooks for Heard {
        fn on_chunk(&self, _: wellspring_core::RunId, event: &Event) {
            self.0.lock().unwrap().push(event.to_string());
        }
        fn on_turn(&self, _: wellspring_core::RunId, report: &wellspring_engine::TurnReport) {
            self.0.lock().unwrap().push(format!("turn {} {:?}", report.turn, report.stop));
        }
        fn on_finish(&self, _: wellspring_core::RunId, outcome: &Outcome) {
            self.0.lock().unwrap().push(format!("finish {outcome}"));
        }
        fn on_abort(&self, _: wellspring_core::RunId, outcome: &Outcome) {
            self.0.lock().unwrap().push(format!("abort {outcome}"));
        }
    }
    let heard = Arc::new(Heard::default());
    let runtime = runtime();
    let hooks = Some(Arc::clone(&heard) as Arc<dyn Hooks>);
    runtime.register(AgentDef { hooks, ..agent([Say::new().chunks(["a"])], []) });
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    finished(&runtime, run).await;
    runtime.register(AgentDef {
        hooks: Some(Arc::clone(&heard) as Arc<dyn Hooks>),
        ..agent([Say::new().chunks(["b"]).hang()], [])
    });
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    read_until(&runtime, run, |event| matches!(event, Event::PartDelta { .. })).await;
    runtime.local().cancel(run, CancelWhen::Now, None).await.unwrap();
    finished(&runtime, run).await;
    runtime.shutdown(Duration::from_secs(1)).await;
    let want = [
        "part 0 delta \"a\"",
        "turn 1 EndTurn",
        "finish completed end_turn",
        "part 0 delta \"b\"",
        "abort cancelled",
    ];
    assert_eq!(*heard.0.lock().unwrap(), want);
}
