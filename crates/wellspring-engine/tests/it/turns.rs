//! A turn by itself, and the agent loop.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use serde_json::json;
use wellspring_core::{
    AgentNo, AttemptStream, CancellationToken, Content, Event, FailureKind, Message, Model,
    ModelError, Outcome, PartKind, ToolError, ToolOutcome, ToolResult, TurnRequest, Usage, render,
};
use wellspring_engine::{
    AdmissionLimits, Limits, RequestKey, RuntimeUi, StartRun, Timeouts, Turn, TurnConfig,
    TurnEvent, TurnState, WhenBusy, WorkerResult, show,
};
use wellspring_models::{Attempts, Failure, Gate, Say, Scripted};

use crate::kit::{agent, echo, finished, play, read_until, runtime, with_model};

fn turn(say: Say) -> Turn {
    Turn::new(TurnConfig::new(Arc::new(Scripted::new([say])), [Message::user("hi")]))
}

/// One line per event.
async fn lines(turn: &mut Turn) -> Vec<String> {
    let events = turn.run().into_stream();
    events
        .map(|event| match event {
            TurnEvent::TextDelta { text } => format!("delta {text:?}"),
            TurnEvent::TextDone { text } => format!("done {text:?}"),
            TurnEvent::ToolCall(call) => format!("call {} {}", call.name, call.arguments),
            TurnEvent::Finished { stop, usage } => {
                format!("finished {stop:?} {:?}", usage.map(|usage| (usage.input, usage.output)))
            }
            TurnEvent::Error(error) => format!("error {error}"),
        })
        .collect()
        .await
}

#[tokio::test(start_paused = true)]
async fn a_turn_yields_text_then_calls_and_executes_nothing() {
    let usage = Usage { input: 3, output: 5, ..Usage::default() };
    let mut turn = turn(Say::new().chunks(["a", "b"]).call("echo", json!({"say": 1})).usage(usage));
    assert_eq!(turn.state(), TurnState::Pending);
    let want = [
        r#"delta "a""#,
        r#"delta "b""#,
        r#"done "ab""#,
        r#"call echo {"say":1}"#,
        "finished ToolCalls Some((3, 5))",
    ];
    assert_eq!(lines(&mut turn).await, want);
    assert_eq!(turn.state(), TurnState::Complete);
    assert_eq!(turn.text(), "ab");
    assert_eq!(turn.tool_calls().len(), 1);
}

/// A custom loop: the state is readable while it runs, and the message for the next turn is
/// complete, with the provider's ids and signatures.
#[tokio::test(start_paused = true)]
async fn a_turn_carries_a_loop_of_ones_own() {
    let mut turn = turn(
        Say::new()
            .thought("Hm.")
            .text("Let me ask.")
            .call("echo", json!({"say": 1}))
            .call("clock", json!({})),
    );
    let mut states = Vec::new();
    let mut events = turn.run();
    while let Some(event) = events.next().await {
        let kind = match event {
            TurnEvent::TextDelta { .. } => "delta",
            TurnEvent::TextDone { .. } => "done",
            TurnEvent::ToolCall(_) => "call",
            TurnEvent::Finished { .. } => "finished",
            TurnEvent::Error(_) => "error",
        };
        states.push((kind, events.state()));
    }
    states.dedup();
    let want = [
        ("delta", TurnState::Streaming),
        ("done", TurnState::Streaming),
        ("call", TurnState::ToolExecution),
        ("finished", TurnState::Complete),
    ];
    assert_eq!(states, want);

    let Message::Assistant { model, parts } = turn.message() else { panic!("an answer") };
    let said: Vec<_> = parts.iter().map(|part| &*part.text).collect();
    assert_eq!((&*model, &said[..2]), ("scripted", &["Hm.", "Let me ask."][..]));
    let calls = turn.tool_calls();
    assert_ne!(calls[0].tool_call_id, calls[1].tool_call_id);
    let results = [
        (calls[1].tool_call_id.clone(), Err(ToolError::new("no clock"))),
        (calls[0].tool_call_id.clone(), Ok(ToolResult::new("1"))),
    ];
    let Message::Results { results } = turn.results(results) else { panic!("results") };
    let told: Vec<_> =
        results.iter().map(|it| (&*it.name, it.outcome, it.result.output_text())).collect();
    let want =
        [("echo", ToolOutcome::Ok, "1".into()), ("clock", ToolOutcome::Error, "no clock".into())];
    assert_eq!(told, want);
    let ids: Vec<_> = parts[2..].iter().map(|part| part.id).collect();
    assert_eq!(results.iter().map(|result| result.call).collect::<Vec<_>>(), ids);
}

#[tokio::test(start_paused = true)]
async fn a_blocking_turn_yields_only_the_whole_text() {
    let model = Arc::new(Scripted::new([Say::new().chunks(["a", "b"])]));
    let config = TurnConfig { streaming: false, ..TurnConfig::new(model, [Message::user("hi")]) };
    let mut turn = Turn::new(config);
    assert_eq!(lines(&mut turn).await, [r#"done "ab""#, "finished EndTurn None"]);
    assert_eq!(turn.state(), TurnState::Complete);
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_breaks_says_so_last() {
    let mut truncated = turn(Say::new().text("half a sentence").break_off());
    let all = lines(&mut truncated).await;
    assert_eq!(
        all.last().map(String::as_str),
        Some("error scripted: the stream ended before the model had stopped")
    );
    assert_eq!(truncated.state(), TurnState::Error);
    assert!(!all.iter().any(|line| line.starts_with("finished")), "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn each_kind_of_waiting_has_its_own_limit() {
    let timeouts = Timeouts {
        connect: Duration::from_secs(1),
        first_content: Duration::from_secs(2),
        between_chunks: Duration::from_secs(3),
        whole_answer: Duration::from_secs(5),
        turn: Duration::from_secs(10),
        ..Timeouts::default()
    };
    let second = Duration::from_secs(1);
    for (say, streaming, want) in [
        (Say::new().wait(2 * second).connected().text("x"), true, "it did not answer within 1 s"),
        (Say::new().wait(3 * second).text("x"), true, "it fell silent within 2 s"),
        (Say::new().text("x").wait(4 * second).text("y"), true, "it fell silent within 3 s"),
        (Say::new().wait(6 * second).text("x"), false, "it fell silent within 5 s"),
        (
            Say::new().pace(2 * second).chunks(["a", "b", "c", "d", "e", "f", "g"]),
            true,
            "the turn took longer than 10 s",
        ),
    ] {
        let model = Arc::new(Watched { model: Scripted::new([say]), stalls: Mutex::default() });
        let timeouts = timeouts.clone();
        let messages = [Message::user("hi")];
        let config = TurnConfig { timeouts, streaming, ..TurnConfig::new(model.clone(), messages) };
        let last = lines(&mut Turn::new(config)).await.pop();
        let error = format!("scripted: {want}");
        assert_eq!(last, Some(format!("error {error}")));
        // A circuit breaker must learn of a stall, which the model itself cannot see.
        let stalled = want.starts_with("it ").then_some(error);
        assert_eq!(*model.stalls.lock().unwrap(), stalled.into_iter().collect::<Vec<_>>());
    }
}

/// A model that keeps the stalls that it was told about.
struct Watched {
    model: Scripted,
    stalls: Mutex<Vec<String>>,
}

impl Model for Watched {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn timed_out(&self, error: &ModelError) {
        self.stalls.lock().unwrap().push(error.to_string());
    }

    fn attempt(&self, request: TurnRequest) -> BoxFuture<'_, Result<AttemptStream, ModelError>> {
        self.model.attempt(request)
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_turn_ends_at_once() {
    let signal = CancellationToken::new();
    let model = Arc::new(Scripted::new([Say::new().text("x").hang()]));
    let config =
        TurnConfig { signal: signal.clone(), ..TurnConfig::new(model, [Message::user("hi")]) };
    let mut turn = Turn::new(config);
    let cancelling = async {
        tokio::task::yield_now().await;
        signal.cancel();
    };
    let (all, ()) = tokio::join!(lines(&mut turn), cancelling);
    // What the model said before is there, although it had not stopped.
    assert_eq!(all, [r#"delta "x""#, "error scripted: the turn was cancelled"]);
}

#[tokio::test(start_paused = true)]
async fn thoughts_tools_and_an_answer() {
    let records = play(agent(
        [
            Say::new().thought("I should ask.").call("echo", json!({"say": "four"})),
            Say::new().chunks(["It is ", "four."]),
        ],
        [echo()],
    ))
    .await;
    insta::assert_snapshot!(render(&records), @r#"
    run started by agent {"text":"go"}
    turn 1.1 started with scripted
    part 0 started thought
    part 0 delta "I "
    part 0 delta "should "
    part 0 delta "ask."
    part 0 finished
    part 1 started call echo
    part 1 delta "{\"say\":\"four"
    part 1 delta "\"}"
    part 1 finished
    turn finished tool_calls
    tool 1 queued at 0
    tool 1 started parallel
    tool 1 finished ok "four"
    turn 2.1 started with scripted
    part 2 started text
    part 2 delta "It is "
    part 2 delta "four."
    part 2 finished
    turn finished end_turn
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_broken_attempt_is_voided_and_made_again() {
    let attempts = Attempts::new();
    let failure = Failure::new(FailureKind::Unavailable, "overloaded");
    let records = play(agent(
        [Say::new().chunks(["Hel"]).fail_first(&attempts, 1, failure).chunks(["Hello"])],
        [],
    ))
    .await;
    insta::assert_snapshot!(render(&records), @r#"
    run started by agent {"text":"go"}
    turn 1.1 started with scripted
    part 0 started text
    part 0 delta "Hel"
    part 0 finished
    parts [0] voided restarted
    turn 1.2 started with scripted
    part 1 started text
    part 1 delta "Hel"
    part 1 finished
    part 2 started text
    part 2 delta "Hello"
    part 2 finished
    turn finished end_turn
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn truncation_is_never_success() {
    let records = play(agent([Say::new().text("half").break_off()], [])).await;
    insta::assert_snapshot!(render(records.iter().rev().take(3).rev()), @r#"
    part 3 delta "half"
    part 3 finished
    run finished failed protocol: scripted: the stream ended before the model had stopped
    "#);
}

#[tokio::test(start_paused = true)]
async fn half_a_call_is_never_executed() {
    let say = Say::new().call_fragments("echo", [r#"{"say":"#]).unfinished().break_off();
    let def = agent([say], [echo()]);
    let records = play(wellspring_engine::AgentDef {
        limits: Limits { attempts: 1, ..Limits::default() },
        ..def
    })
    .await;
    insta::assert_snapshot!(render(&records), @r#"
    run started by agent {"text":"go"}
    turn 1.1 started with scripted
    part 0 started call echo
    part 0 delta "{\"say\":"
    parts [0] voided abandoned
    run finished failed protocol: scripted: the stream ended before the model had stopped
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_blocking_run_shows_one_delta_per_part() {
    let def = agent([Say::new().thought("hm").chunks(["a", "b", "c"])], []);
    let records = play(wellspring_engine::AgentDef { streaming: false, ..def }).await;
    insta::assert_snapshot!(render(&records), @r#"
    run started by agent {"text":"go"}
    turn 1.1 started with scripted, not streaming
    part 0 started thought
    part 0 delta "hm"
    part 0 finished
    part 1 started text
    part 1 delta "abc"
    part 1 finished
    turn finished end_turn
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_thread_carries_its_history() {
    let model = Scripted::with(|request| {
        let said: Vec<String> = request
            .messages
            .iter()
            .map(|message| match message {
                Message::User { content } => {
                    format!("user:{}", content[0].as_text().unwrap_or_default())
                }
                Message::Assistant { parts, .. } => format!("assistant:{}", parts[0].text),
                Message::Results { .. } => "results".into(),
            })
            .collect();
        Say::new().chunks([said.join(" | ")])
    });
    let runtime = runtime();
    runtime.register(with_model(Arc::new(model), []));
    let first = runtime.local().start(StartRun::text("agent", "one")).await.unwrap().run;
    let records = finished(&runtime, first).await;
    let Event::RunStarted(started) = &records[0].event else { panic!("{records:?}") };
    let again = StartRun { thread: Some(started.thread), ..StartRun::text("agent", "two") };
    let second = runtime.local().start(again).await.unwrap().run;
    let transcript = runtime.local().wait(second).await.unwrap();
    assert_eq!(transcript.answer(AgentNo::ROOT), "user:one | assistant:user:one | user:two");
    // A branch continues from the named run, not from the latest one.
    let branch = StartRun {
        thread: Some(started.thread),
        after: Some(first),
        ..StartRun::text("agent", "other")
    };
    let third = runtime.local().start(branch).await.unwrap().run;
    let transcript = runtime.local().wait(third).await.unwrap();
    assert_eq!(transcript.answer(AgentNo::ROOT), "user:one | assistant:user:one | user:other");
}

#[tokio::test(start_paused = true)]
async fn a_busy_thread_refuses_queues_or_is_steered() {
    for when_busy in [WhenBusy::Refuse, WhenBusy::Queue, WhenBusy::Steer] {
        let gate = Gate::new();
        let script = [Say::new().gate(&gate).chunks(["one"]), Say::new().chunks(["two"])];
        let runtime = runtime();
        let model = Arc::new(Scripted::conversation(script));
        runtime.register(wellspring_engine::AgentDef { when_busy, ..with_model(model, []) });
        let first = runtime.local().start(StartRun::text("agent", "a")).await.unwrap().run;
        let records = read_until(&runtime, first, |_| true).await;
        let Event::RunStarted(started) = &records[0].event else { panic!("{records:?}") };
        let next = StartRun { thread: Some(started.thread), ..StartRun::text("agent", "b") };
        let open = async {
            tokio::task::yield_now().await;
            gate.open();
        };
        let control = runtime.local();
        let (second, ()) = tokio::join!(control.start(next), open);
        match when_busy {
            WhenBusy::Refuse => {
                let error = second.unwrap_err().to_string();
                assert!(error.contains(&first.to_string()), "{error}");
            }
            WhenBusy::Queue => {
                let second = second.unwrap().run;
                assert_ne!(second, first);
                let records = finished(&runtime, second).await;
                let Event::RunStarted(started) = &records[0].event else { panic!("{records:?}") };
                assert_eq!(started.after, Some(first));
            }
            WhenBusy::Steer => {
                assert_eq!(second.unwrap().run, first);
                let records = finished(&runtime, first).await;
                let texts: String = render(&records);
                assert!(texts.contains("input 1 applied"), "{texts}");
            }
        }
    }
}

/// A request that waits for its thread does not count as an active run, so another principal's run
/// can start.
#[tokio::test(start_paused = true)]
async fn a_queued_request_holds_no_place_that_others_need() {
    let gate = Gate::new();
    let script = [Say::new().gate(&gate).text("one"), Say::new().text("two")];
    let runtime = runtime();
    let limits = AdmissionLimits { runs: 2, runs_per_principal: 2, runs_per_tenant: None };
    assert!(runtime.limit_runs(limits));
    let model = Arc::new(Scripted::conversation(script));
    let when_busy = WhenBusy::Queue;
    runtime.register(wellspring_engine::AgentDef { when_busy, ..with_model(model, []) });
    let other = agent([Say::new().text("other")], []);
    runtime.register(wellspring_engine::AgentDef { name: "other".into(), ..other });
    let first = runtime.local().start(StartRun::text("agent", "a")).await.unwrap().run;
    gate.reached(1).await;
    let thread = runtime.local().info(first).await.unwrap().thread;
    let control = runtime.local();
    let queued = StartRun { thread: Some(thread), ..StartRun::text("agent", "b") };
    let mut queued = std::pin::pin!(control.start(queued));
    // It counts until it finds that its thread is busy.
    let mut other = None;
    for _ in 0..1000 {
        assert!(futures::poll!(&mut queued).is_pending());
        other = runtime.local().start(StartRun::text("other", "c")).await.ok();
        if other.is_some() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let other = other.expect("there is a place for it").run;
    assert_eq!(runtime.local().wait(other).await.unwrap().answer(AgentNo::ROOT), "other");
    gate.open();
    let second = queued.await.unwrap().run;
    assert_eq!(runtime.local().wait(second).await.unwrap().answer(AgentNo::ROOT), "two");
}

#[tokio::test(start_paused = true)]
async fn steering_is_applied_at_the_turns_edge() {
    let gate = Gate::new();
    let script = [
        Say::new().chunks(["First"]).gate(&gate).call("echo", json!({"say": "x"})),
        Say::new().chunks(["Then ", "this."]),
    ];
    let runtime = runtime();
    runtime.register(with_model(Arc::new(Scripted::conversation(script)), [echo()]));
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    read_until(&runtime, run, |event| matches!(event, Event::PartDelta { .. })).await;
    runtime
        .local()
        .add_input(run, RequestKey::Named("key".into()), vec![Content::text("shorter, please")])
        .await
        .unwrap();
    let again = runtime
        .local()
        .add_input(run, RequestKey::Named("key".into()), vec![Content::text("shorter, please")])
        .await
        .unwrap();
    assert!(again.existed);
    read_until(&runtime, run, |event| matches!(event, Event::InputAccepted { .. })).await;
    gate.open();
    let records = finished(&runtime, run).await;
    insta::assert_snapshot!(render(&records), @r#"
    run started by agent {"text":"go"}
    turn 1.1 started with scripted
    part 0 started text
    part 0 delta "First"
    part 0 finished
    input 1 accepted [{"text":"shorter, please"}]
    part 1 started call echo
    part 1 delta "{\"say\":\"x\"}"
    part 1 finished
    turn finished tool_calls
    tool 1 queued at 0
    tool 1 started parallel
    tool 1 finished ok "x"
    input 1 applied
    turn 2.1 started with scripted
    part 2 started text
    part 2 delta "Then "
    part 2 delta "this."
    part 2 finished
    turn finished end_turn
    run finished completed end_turn
    "#);
    let messages = runtime.local().wait(run).await.unwrap().messages(AgentNo::ROOT);
    let user = |text: &str| Message::user(text);
    assert_eq!(messages[0], user("go"));
    assert_eq!(messages[3], user("shorter, please"));
}

#[derive(Default)]
struct Screen(Vec<String>);

impl RuntimeUi for Screen {
    fn start_streaming(&mut self, request_id: &str) {
        self.0.push(format!("{request_id} start"));
    }
    fn append_streaming(&mut self, request_id: &str, delta: &str) {
        self.0.push(format!("{request_id} append {delta}"));
    }
    fn end_streaming(&mut self, request_id: &str, full_text: &str) {
        self.0.push(format!("{request_id} end {full_text}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_runtime_ui_sees_each_turn_and_a_worker_result() {
    let usage = || Usage { input: 10, output: 2, ..Usage::default() };
    let script = [
        Say::new().chunks(["Let ", "me."]).call("echo", json!({"say": "x"})).usage(usage()),
        Say::new().chunks(["Done."]).usage(usage()),
    ];
    let runtime = runtime();
    runtime.register(agent(script, [echo()]));
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    let mut screen = Screen::default();
    let cursor = runtime.local().attach(run, wellspring_core::Seq(0)).await.unwrap();
    let result = show(cursor, &mut screen).await.unwrap();
    let want = [
        "turn-0 start",
        "turn-0 append Let ",
        "turn-0 append me.",
        "turn-0 end Let me.",
        "turn-1 start",
        "turn-1 append Done.",
        "turn-1 end Done.",
    ];
    assert_eq!(screen.0, want);
    let want = WorkerResult {
        success: true,
        response: "Done.".into(),
        input_tokens: 20,
        output_tokens: 4,
        turns: 2,
        outcome: Outcome::Completed { stop: wellspring_core::Stop::EndTurn },
    };
    assert_eq!(result, Some(want));
}

/// Calls that end in a different order than they started, without any text.
#[tokio::test(start_paused = true)]
async fn a_turn_without_words_says_so_and_keeps_the_order_of_its_calls() {
    let say = Say::new()
        .part(PartKind::call("first"), ["{}"])
        .unfinished()
        .part(PartKind::call("second"), ["{}"])
        .finish(0);
    let mut turn = turn(say);
    let want = [r#"done """#, "call first {}", "call second {}", "finished ToolCalls None"];
    assert_eq!(lines(&mut turn).await, want);
    let names: Vec<_> = turn.tool_calls().iter().map(|call| &*call.name).collect();
    assert_eq!(names, ["first", "second"]);
}
