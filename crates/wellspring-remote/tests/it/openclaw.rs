//! Agents of an OpenClaw gateway.

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use wellspring_core::{CancelWhen, Checker, Event, Record, RunId, render};
use wellspring_engine::{RequestKey, Runtime, StartRun};
use wellspring_log::{Log, LogOptions, MemoryStore};
use wellspring_remote::openclaw::{
    DeviceIdentity, OpenClawAgent, OpenClawConfig, RUNS_MAX, RUNS_WAITING_MAX,
};
use wellspring_testkit::{FakeGateway, GatewayOptions, Lines};

use crate::kit::{agent, read_until, runtime};

async fn gateway() -> FakeGateway {
    FakeGateway::start(GatewayOptions::default()).await.unwrap()
}

fn config(gateway: &FakeGateway) -> OpenClawConfig {
    let mut config = OpenClawConfig::new(gateway.url());
    config.token = Some("secret-token".into());
    config
}

fn remote(config: OpenClawConfig) -> OpenClawAgent {
    OpenClawAgent::new("claw", config).unwrap()
}

fn asking(gateway: &FakeGateway) -> Runtime {
    runtime(agent(remote(config(gateway))))
}

async fn ask(runtime: &Runtime, script: &str) -> RunId {
    runtime.local().start(StartRun::text("agent", script)).await.unwrap().run
}

async fn finished(runtime: &Runtime, run: RunId) -> Vec<Record> {
    let over = |event: &Event| matches!(event, Event::RunFinished { .. });
    let records = read_until(runtime, run, over).await;
    Checker::check(&records).unwrap_or_else(|it| panic!("{it}\n{}", render(&records)));
    records
}

/// Without what differs from run to run: names, and the pieces in which text came.
fn told(records: &[Record]) -> String {
    let skip = |line: &str| {
        ["attached", "extended", "run adopted"].iter().any(|word| line.starts_with(word))
            || line.contains("provider_id")
    };
    let mut told = String::new();
    let mut open: Option<(wellspring_core::PartId, String)> = None;
    for record in &records[1..] {
        if let Event::PartDelta { part, chunk } = &record.event {
            match &mut open {
                Some((known, text)) if known == part => text.push_str(chunk.as_str()),
                _ => open = Some((*part, chunk.as_str().to_owned())),
            }
            continue;
        }
        let line = render([record]);
        if !skip(&line) {
            if let Some((part, text)) = open.take() {
                told += &format!("part {part} says {text:?}\n");
            }
            told += &line;
        }
    }
    told
}

async fn play(script: &str) -> String {
    let gateway = gateway().await;
    let runtime = asking(&gateway);
    let run = ask(&runtime, script).await;
    told(&finished(&runtime, run).await)
}

/// Waits until the run has this many deltas.
async fn said(runtime: &Runtime, run: RunId, deltas: usize) {
    let seen = std::cell::Cell::new(0);
    read_until(runtime, run, |event| {
        seen.set(seen.get() + usize::from(matches!(event, Event::PartDelta { .. })));
        seen.get() == deltas
    })
    .await;
}

#[tokio::test]
async fn it_thinks_uses_a_tool_and_answers() {
    insta::assert_snapshot!(
        play("think:Hm, think:_well. say:Let_me say:_look. tool think:Aha. say:It_says_hi.").await
    );
}

#[tokio::test]
async fn text_in_one_lump_is_said_once() {
    insta::assert_snapshot!(play("lump:All_at_once.").await);
}

#[tokio::test]
async fn an_error_of_the_provider_is_a_failure() {
    insta::assert_snapshot!(play("say:Half fail").await);
}

#[tokio::test]
async fn a_cancel_aborts_the_run_at_the_gateway() {
    let gateway = gateway().await;
    let runtime = asking(&gateway);
    let run = ask(&runtime, "say:On_and hang").await;
    said(&runtime, run, 1).await;
    runtime.local().cancel(run, CancelWhen::Now, None).await.unwrap();
    insta::assert_snapshot!(told(&finished(&runtime, run).await));
    let asked = gateway.asked();
    let (_, abort) = asked.iter().find(|it| it.0 == "chat.abort").unwrap();
    let (_, prompt) = asked.iter().find(|it| it.0 == "agent").unwrap();
    assert_eq!(abort["runId"], prompt["idempotencyKey"]);
    assert_eq!(abort["sessionKey"], prompt["sessionKey"]);
}

#[tokio::test]
async fn a_lost_connection_repeats_nothing() {
    let gateway = gateway().await;
    let runtime = asking(&gateway);
    let run = ask(&runtime, "think:Hm. say:One hold say:_two hold say:_three").await;
    said(&runtime, run, 2).await;
    gateway.cut();
    // The run continues without a reader.
    gateway.release();
    said(&runtime, run, 3).await;
    gateway.cut();
    gateway.was_asked("agent.wait", 3).await;
    gateway.release();
    insta::assert_snapshot!(told(&finished(&runtime, run).await));
    let prompts = gateway.asked().iter().filter(|it| it.0 == "agent").count();
    assert_eq!(prompts, 1, "to ask again would run the agent twice");
}

#[tokio::test]
async fn a_gateway_that_is_killed_in_mid_answer_is_a_failure_that_keeps_the_words() {
    let gateway = gateway().await;
    let runtime = asking(&gateway);
    let run = ask(&runtime, "say:Half_an hang").await;
    said(&runtime, run, 1).await;
    gateway.restart();
    insta::assert_snapshot!(told(&finished(&runtime, run).await));
    assert_eq!(gateway.asked().iter().filter(|it| it.0 == "agent").count(), 1);
}

/// Our process ends during an answer, and another process finds the run by its handle.
#[tokio::test]
async fn a_run_is_found_again_by_another_process() {
    let gateway = gateway().await;
    let store = Arc::new(MemoryStore::default());
    let node = || {
        let log = Log::new(Arc::clone(&store) as _, LogOptions::default());
        let runtime = Runtime::new(log);
        runtime.register(agent(remote(config(&gateway))));
        runtime
    };
    let first = node();
    let run = ask(&first, "think:Hm. say:One hold say:_two").await;
    said(&first, run, 2).await;
    first.shutdown(Duration::ZERO).await;
    gateway.release();
    let second = node();
    assert!(second.resume(run).await);
    insta::assert_snapshot!(told(&finished(&second, run).await));
}

#[tokio::test]
async fn two_clients_get_only_their_own_runs() {
    let gateway = gateway().await;
    let (one, two) = (asking(&gateway), asking(&gateway));
    let (first, second) =
        (ask(&one, "say:A hold say:B").await, ask(&two, "say:C hold say:D").await);
    said(&one, first, 1).await;
    said(&two, second, 1).await;
    gateway.release();
    gateway.release();
    let words = |records: &[Record]| {
        wellspring_core::Transcript::fold(records).words(wellspring_core::AgentNo::ROOT)
    };
    assert_eq!(words(&finished(&one, first).await), "AB");
    assert_eq!(words(&finished(&two, second).await), "CD");
}

#[tokio::test]
async fn one_connection_carries_fifty_runs_and_the_next_one_waits() {
    let gateway = gateway().await;
    let runtime = asking(&gateway);
    let mut runs = Vec::new();
    for _ in 0..=RUNS_MAX {
        runs.push(ask(&runtime, "say:A hold say:B").await);
    }
    gateway.was_asked("agent", RUNS_MAX).await;
    assert_eq!(gateway.asked().iter().filter(|it| it.0 == "agent").count(), RUNS_MAX);
    for _ in 0..=RUNS_MAX {
        gateway.release();
    }
    for run in runs {
        let records = finished(&runtime, run).await;
        assert!(
            told(&records).ends_with("run finished completed end_turn\n"),
            "{}",
            told(&records)
        );
    }
    assert_eq!(gateway.connections(), 1);
}

#[tokio::test]
async fn a_silent_run_times_out_and_is_aborted() {
    let gateway = gateway().await;
    let mut config = config(&gateway);
    config.idle = Duration::from_millis(50);
    let runtime = runtime(agent(remote(config)));
    let run = ask(&runtime, "say:Hm hang").await;
    let said = told(&finished(&runtime, run).await);
    assert_eq!(
        said.lines().last().unwrap(),
        "run finished failed timed_out: claw: said nothing for 0.05 s and was aborted"
    );
    gateway.was_asked("chat.abort", 1).await;
}

#[tokio::test]
async fn a_gateway_that_stops_ticking_is_left() {
    let options = GatewayOptions { tick_ms: 50, ..GatewayOptions::default() };
    let gateway = FakeGateway::start(options).await.unwrap();
    let runtime = asking(&gateway);
    let run = ask(&runtime, "say:One hold say:_two").await;
    said(&runtime, run, 1).await;
    gateway.freeze(true);
    // The connection counts as dead after two ticks; a new one finds the run.
    while gateway.connections() < 2 {
        tokio::task::yield_now().await;
    }
    gateway.freeze(false);
    gateway.release();
    let said = told(&finished(&runtime, run).await);
    assert!(said.contains("part 0 says \"One two\""), "{said}");
}

#[tokio::test]
async fn a_gateway_that_is_starting_is_asked_again() {
    let options = GatewayOptions { starting: 3, ..GatewayOptions::default() };
    let gateway = FakeGateway::start(options).await.unwrap();
    let runtime = asking(&gateway);
    let run = ask(&runtime, "say:Up.").await;
    let said = told(&finished(&runtime, run).await);
    assert!(said.ends_with("run finished completed end_turn\n"), "{said}");
    assert_eq!(gateway.connections(), 4);
}

#[tokio::test]
async fn refusals_say_what_to_do() {
    let mut ends = String::new();
    let identity = DeviceIdentity::from_seed([7; 32]);
    let good = GatewayOptions::default;
    let pairing = GatewayOptions { pairing: true, ..good() };
    for (options, token, identity) in [
        (good(), "wrong", None),
        (GatewayOptions { protocol: 5, ..good() }, "secret-token", None),
        (
            GatewayOptions { protocol: 5, accepts_any_protocol: true, ..good() },
            "secret-token",
            None,
        ),
        (pairing.clone(), "secret-token", None),
        (pairing, "secret-token", identity),
    ] {
        let gateway = FakeGateway::start(options).await.unwrap();
        let config = OpenClawConfig { token: Some(token.into()), identity, ..config(&gateway) };
        let error = remote(config).check().await.unwrap_err();
        ends += &format!("{:?} {error}\n", error.kind());
    }
    insta::assert_snapshot!(ends);
}

#[tokio::test]
async fn a_gateway_that_keeps_failing_is_left_alone() {
    let gateway = gateway().await;
    let runtime = asking(&gateway);
    for _ in 0..5 {
        let run = ask(&runtime, "fail").await;
        finished(&runtime, run).await;
    }
    let run = ask(&runtime, "say:Hello").await;
    let said = told(&finished(&runtime, run).await);
    assert_eq!(
        said,
        "run finished failed unavailable: claw: is suspended after 5 failures in a row\n"
    );
}

#[tokio::test]
async fn added_input_is_the_next_prompt_in_the_same_session() {
    let gateway = gateway().await;
    let runtime = asking(&gateway);
    let run = ask(&runtime, "say:One. hold").await;
    said(&runtime, run, 1).await;
    let more = vec![wellspring_core::Content::text("say:Two.")];
    runtime.local().add_input(run, RequestKey::Named("more".into()), more).await.unwrap();
    gateway.release();
    insta::assert_snapshot!(told(&finished(&runtime, run).await));
    let asked = gateway.asked();
    let prompts: Vec<_> = asked.iter().filter(|it| it.0 == "agent").map(|it| &it.1).collect();
    assert_eq!(prompts.len(), 2);
    assert_eq!(prompts[0]["sessionKey"], prompts[1]["sessionKey"]);
    assert_ne!(prompts[0]["idempotencyKey"], prompts[1]["idempotencyKey"]);
}

/// The gateway checks the signature of a device over its challenge.
#[tokio::test]
async fn a_device_is_known_by_its_signature() {
    let gateway = gateway().await;
    let identity = DeviceIdentity::from_seed([7; 32]).unwrap();
    let id = identity.id().to_owned();
    let config = OpenClawConfig { identity: Some(identity), ..config(&gateway) };
    assert_eq!(&*remote(config).check().await.unwrap(), "2026.9.6");
    assert_eq!(gateway.asked()[0].1["device"]["id"], id);
}

/// The queue has a maximum length: the next run fails immediately, with an error that says so.
#[tokio::test]
async fn the_queue_for_a_place_is_bounded() {
    let gateway = gateway().await;
    let runtime = asking(&gateway);
    let mut runs = Vec::new();
    for _ in 0..RUNS_MAX + RUNS_WAITING_MAX + 1 {
        runs.push(ask(&runtime, "say:A hang").await);
    }
    gateway.was_asked("agent", RUNS_MAX).await;
    let runtime = &runtime;
    let mut ended = std::pin::pin!(
        futures::stream::iter(runs)
            .map(|run| async move { told(&finished(runtime, run).await) })
            .buffer_unordered(RUNS_MAX + RUNS_WAITING_MAX + 1)
    );
    let said = ended.next().await.unwrap();
    assert_eq!(
        said,
        "run finished failed unavailable: claw: 1000 runs wait for the gateway already\n"
    );
    assert!(ended.next().now_or_never().is_none());
}

/// The gateway stops sending ticks while our runs keep sending requests.
#[tokio::test]
async fn requests_do_not_keep_a_dead_connection_alive() {
    let options = GatewayOptions { tick_ms: 50, ..GatewayOptions::default() };
    let gateway = FakeGateway::start(options).await.unwrap();
    let runtime = asking(&gateway);
    let run = ask(&runtime, "say:One hang").await;
    said(&runtime, run, 1).await;
    gateway.freeze(true);
    let mut more = tokio::time::interval(Duration::from_millis(20));
    while gateway.connections() < 2 {
        more.tick().await;
        ask(&runtime, "say:More hang").await;
    }
}

/// After a lost connection, the client polls the gateway. A response that the run is still active
/// does not reset the idle timeout.
#[tokio::test]
async fn a_silent_run_times_out_after_a_lost_connection_too() {
    let options = GatewayOptions { wait_ms_max: 20, ..GatewayOptions::default() };
    let gateway = FakeGateway::start(options).await.unwrap();
    let mut config = config(&gateway);
    config.idle = Duration::from_millis(500);
    let runtime = runtime(agent(remote(config)));
    let run = ask(&runtime, "say:Hm hang").await;
    said(&runtime, run, 1).await;
    gateway.cut();
    let said = told(&finished(&runtime, run).await);
    assert_eq!(
        said.lines().last().unwrap(),
        "run finished failed timed_out: claw: said nothing for 0.5 s and was aborted"
    );
    gateway.was_asked("agent.wait", 5).await;
    gateway.was_asked("chat.abort", 1).await;
}

/// Runs survive lost connections, so a cancelled run is stopped at the gateway even if the
/// connection was lost.
#[tokio::test]
async fn a_cancel_without_a_connection_aborts_the_run_too() {
    let gateway = gateway().await;
    let runtime = asking(&gateway);
    let run = ask(&runtime, "say:On_and hang").await;
    said(&runtime, run, 1).await;
    gateway.cut();
    runtime.local().cancel(run, CancelWhen::Now, None).await.unwrap();
    let said = told(&finished(&runtime, run).await);
    assert!(said.ends_with("run finished cancelled\n"), "{said}");
    gateway.was_asked("chat.abort", 1).await;
    assert_eq!(gateway.asked().iter().filter(|it| it.0 == "agent").count(), 1);
}

/// A gateway that answers nothing while a run is looked for does not delay a cancel.
#[tokio::test]
async fn a_silent_gateway_does_not_delay_a_cancel() {
    let gateway = gateway().await;
    let store = Arc::new(MemoryStore::default());
    let node = || {
        let runtime = Runtime::new(Log::new(Arc::clone(&store) as _, LogOptions::default()));
        let mut def = agent(remote(config(&gateway)));
        def.timeouts.cancel_grace = Duration::from_secs(60);
        runtime.register(def);
        runtime
    };
    let first = node();
    let run = ask(&first, "say:One hang").await;
    said(&first, run, 1).await;
    first.shutdown(Duration::ZERO).await;
    gateway.freeze(true);
    let second = node();
    assert!(second.resume(run).await);
    gateway.was_asked("connect", 2).await;
    let since = std::time::Instant::now();
    second.local().cancel(run, CancelWhen::Now, None).await.unwrap();
    let said = told(&finished(&second, run).await);
    assert!(said.ends_with("run finished cancelled\n"), "{said}");
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
}

/// Our process restarts while the gateway is unreachable, and finds the run later.
#[tokio::test]
async fn a_gateway_that_is_away_for_a_while_is_tried_again() {
    let gateway = gateway().await;
    let store = Arc::new(MemoryStore::default());
    let node = || {
        let runtime = Runtime::new(Log::new(Arc::clone(&store) as _, LogOptions::default()));
        runtime.register(agent(remote(config(&gateway))));
        runtime
    };
    let first = node();
    let run = ask(&first, "say:One hold say:_two").await;
    said(&first, run, 1).await;
    first.shutdown(Duration::ZERO).await;
    gateway.go_away(true);
    let second = node();
    assert!(second.resume(run).await);
    while gateway.connections() < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    gateway.go_away(false);
    gateway.release();
    let said = told(&finished(&second, run).await);
    assert!(said.contains("part 0 says \"One two\""), "{said}");
}

/// Lost events are reported in the log, and the text is complete.
#[tokio::test]
async fn a_gap_is_logged_and_the_text_is_whole() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let said = play("say:One skip say:_two").await;
    assert!(said.contains("says \"One two\""), "{said}");
    let text = lines.text();
    let gaps: Vec<_> =
        text.lines().filter(|it| it.contains("the gateway skipped events")).collect();
    assert_eq!(gaps.len(), 1, "{text}");
    assert!(gaps[0].contains("agent=\"claw\" last="), "{}", gaps[0]);
}
