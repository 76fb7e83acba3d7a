//! What a run may spend, and what happens when it is spent.

use std::time::Duration;

use serde_json::json;
use wellspring_core::{Cost, Outcome, ToolResult, ToolSpec, Usage};
use wellspring_engine::tools::{FunctionTool, from_function};
use wellspring_engine::{AgentDef, Limits};
use wellspring_models::{Say, Scripted};

use crate::kit::{play, with_model};

/// Never the same result twice, so that only the limit in question ends the run.
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
        wellspring_core::Event::RunFinished { outcome } => outcome.to_string(),
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn each_budget_is_an_outcome_of_its_own() {
    let limits = Limits::default;
    for (limits, want) in [
        (limits(), "completed turn_limit"),
        (Limits { turns: 3, ..limits() }, "completed turn_limit"),
        (Limits { tokens: Some(300), ..limits() }, r#"completed {"budget":"tokens"}"#),
        (Limits { cost: Some(1.0), ..limits() }, r#"completed {"budget":"cost"}"#),
        (
            Limits { time: Some(Duration::from_secs(4)), ..limits() },
            r#"completed {"budget":"time"}"#,
        ),
    ] {
        assert_eq!(outcome(limits, ticking()).await, want);
    }
}

#[tokio::test(start_paused = true)]
async fn going_in_circles_is_noticed() {
    let same = from_function(ToolSpec::new("tick", "always the same"), |_, _| async {
        Ok(ToolResult::new("nothing new"))
    });
    let want =
        "failed repetition: the agent made the same calls with the same results 4 times in a row";
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
