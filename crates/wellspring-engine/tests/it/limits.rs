//! Limits of a run, and what happens when they are reached.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use wellspring_core::{
    AgentNo, Answer, Approval, Cost, Event, FailureKind, Outcome, QuestionId, Record, ToolResult,
    ToolSpec, Transcript, Usage,
};
use wellspring_engine::tools::{FunctionTool, from_function};
use wellspring_engine::{AgentDef, Limits, Runtime, StartRun};
use wellspring_log::MemoryStore;
use wellspring_models::{Attempts, Failure, Say, Scripted};

use crate::kit::{agent, finished, log, play, read_until, with_model};

/// Returns a different result each time, so that only the tested limit ends the run.
fn ticking() -> FunctionTool {
    let ticks = std::sync::atomic::AtomicU64::new(0);
    from_function(ToolSpec::new("tick", "counts"), move |_, _| {
        let tick = ticks.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(ToolResult::new(tick))
        }
    })
}

async fn outcome(limits: Limits, tool: FunctionTool) -> String {
    let model = Scripted::with(|_| {
        let cost = Some(Cost { amount: 0.4, currency: "USD".into() });
        let usage = Usage { input: 100, output: 10, cost, ..Usage::default() };
        Say::new().call("tick", json!({})).usage(usage)
    });
    let def = with_model(std::sync::Arc::new(model), [tool]);
    let records = play(AgentDef { limits, ..def }).await;
    match &records.last().unwrap().event {
        Event::RunFinished { outcome } => {
            let turns = records.iter().filter(|it| matches!(it.event, Event::TurnStarted(_)));
            format!("{} turns, {outcome}", turns.count())
        }
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn each_budget_is_an_outcome_of_its_own() {
    let limits = Limits::default;
    for (limits, want) in [
        (limits(), "10 turns, completed turn_limit"),
        (Limits { turns: 3, ..limits() }, "3 turns, completed turn_limit"),
        (Limits { tokens: Some(300), ..limits() }, r#"3 turns, completed {"budget":"tokens"}"#),
        (Limits { cost: Some(1.0), ..limits() }, r#"3 turns, completed {"budget":"cost"}"#),
        (
            Limits { time: Some(Duration::from_secs(4)), ..limits() },
            r#"4 turns, completed {"budget":"time"}"#,
        ),
    ] {
        assert_eq!(outcome(limits, ticking()).await, want);
    }
}

/// A second of work, a pause of an hour, a second of work, a change of owner, and so on. Only the
/// working time counts.
#[tokio::test(start_paused = true)]
async fn time_is_counted_over_all_owners_and_no_pauses() {
    let log = log(&Arc::new(MemoryStore::default()), "node");
    let agent = || {
        let spec = ToolSpec { approval: Some(Approval::Ask), ..ToolSpec::new("work", "works") };
        let work = from_function(spec, |_, _| async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            Ok(ToolResult::new("worked"))
        });
        let model = Scripted::with(|_| Say::new().call("work", json!({})));
        let limits = Limits { time: Some(Duration::from_secs(25)), ..Limits::default() };
        AgentDef { limits, ..with_model(Arc::new(model), [work]) }
    };
    let mut runtime = Runtime::new(log.clone());
    runtime.register(agent());
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    for question in 0..3 {
        let asked = |event: &Event| matches!(event, Event::QuestionAsked(it) if it.question == QuestionId(question));
        read_until(&runtime, run, asked).await;
        tokio::time::sleep(Duration::from_secs(60 * 60)).await;
        runtime.shutdown(Duration::ZERO).await;
        runtime = Runtime::new(log.clone());
        runtime.register(agent());
        runtime.local().answer(run, QuestionId(question), Answer::yes()).await.unwrap();
    }
    let records = finished(&runtime, run).await;
    let transcript = Transcript::fold(&records);
    assert_eq!(transcript.outcome.unwrap().to_string(), r#"completed {"budget":"time"}"#);
    assert_eq!(transcript.worked, Duration::from_secs(30));
}

/// The usage of a failed attempt counts too.
#[tokio::test(start_paused = true)]
async fn tokens_of_broken_attempts_count() {
    let attempts = Attempts::new();
    let spent = |input, output| Usage { input, output, ..Usage::default() };
    let failure = Failure::new(FailureKind::Unavailable, "overloaded");
    let say = Say::new()
        .usage_so_far(spent(100, 1))
        .chunks(["Half"])
        .fail_first(&attempts, 1, failure)
        .chunks([" a word"])
        .usage(spent(100, 7));
    let transcript = Transcript::fold(&play(agent([say], [])).await);
    assert_eq!((transcript.usage.input, transcript.usage.output), (200, 8));
    let root = &transcript.agents[&AgentNo::ROOT];
    assert_eq!((root.usage.input, root.usage.output), (200, 8));
}

/// Each turn fails once. The third failure exceeds the limit of the run, although it is the first
/// of its turn.
#[tokio::test(start_paused = true)]
async fn a_run_tries_again_only_so_often() {
    let played = async |retries: u32| {
        let turn = |attempts: &Attempts| {
            let failure = Failure::new(FailureKind::Unavailable, "overloaded");
            Say::new().fail_first(attempts, 1, failure)
        };
        let attempts = [Attempts::new(), Attempts::new(), Attempts::new()];
        let says = [
            turn(&attempts[0]).call("tick", json!({})),
            turn(&attempts[1]).call("tick", json!({})),
            turn(&attempts[2]).chunks(["done"]),
        ];
        let def = crate::kit::agent(says, [ticking()]);
        let limits = Limits { retries, ..Limits::default() };
        let records = play(AgentDef { limits, ..def }).await;
        let of_turns = |record: &Record| match &record.event {
            Event::TurnStarted(it) => Some(format!("{}.{}", it.turn, it.attempt)),
            Event::RunFinished { outcome } => Some(outcome.to_string()),
            _ => None,
        };
        records.iter().filter_map(of_turns).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(played(3).await, "1.1 1.2 2.1 2.2 3.1 3.2 completed end_turn");
    assert_eq!(
        played(2).await,
        "1.1 1.2 2.1 2.2 3.1 failed unavailable: scripted: overloaded; the run has tried again 2 times, its limit"
    );
}

#[tokio::test(start_paused = true)]
async fn going_in_circles_is_noticed() {
    let same = from_function(ToolSpec::new("tick", "always the same"), |_, _| async {
        Ok(ToolResult::new("nothing new"))
    });
    let want = "4 turns, failed repetition: the agent made the same calls with the same results 4 times in a row";
    assert_eq!(outcome(Limits::default(), same).await, want);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_or_a_full_answer_is_how_the_run_ends() {
    for (stop, want) in [
        (wellspring_core::Stop::MaxTokens, "completed max_tokens"),
        (wellspring_core::Stop::Refusal, "completed refusal"),
        (wellspring_core::Stop::ContentFilter, "completed content_filter"),
    ] {
        let records = play(crate::kit::agent([Say::new().chunks(["x"]).stop(stop)], [])).await;
        let wellspring_core::Event::RunFinished { outcome } = &records.last().unwrap().event else {
            panic!()
        };
        assert_eq!(outcome.to_string(), want);
        assert!(matches!(**outcome, Outcome::Completed { .. }));
    }
}
