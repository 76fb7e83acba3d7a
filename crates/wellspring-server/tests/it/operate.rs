//! What operators rely on: what is counted, what is logged, what is forgotten.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use wellspring_core::Millis;
use wellspring_engine::Runtime;
use wellspring_log::{Log, LogOptions, MemoryStore, RunFilter, TokioClock};
use wellspring_models::{Gate, Say};
use wellspring_server::ServerConfig;

use crate::kit::{Kit, agent, config};

/// What is counted now, by name.
async fn metrics(kit: &Kit) -> BTreeMap<String, String> {
    let response = kit.get("/metrics").send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let text = response.text().await.unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.strip_prefix("wellspring_").unwrap().to_owned(), value.to_owned())
        })
        .collect()
}

/// Who reads what was kept before they came is not behind.
#[tokio::test]
async fn only_news_can_be_late() {
    let gate = Gate::new();
    let kit = Kit::new(agent([Say::new().text("one ").gate(&gate).text("two")], [])).await;
    let run = kit.start().await;
    gate.reached(1).await;
    let watch = kit.get(&format!("/v1/runs/{run}/events")).send().await.unwrap();
    gate.open();
    watch.text().await.unwrap();
    let lag = metrics(&kit).await["reader_lag_seconds_count"].parse::<u32>().unwrap();
    assert!(lag > 0);
    let clock = kit.runtime.log().clock().clone();
    let ended_at = clock.now();
    // The next reader comes at least a millisecond later.
    while clock.now() <= ended_at {
        tokio::task::yield_now().await;
    }
    assert!(!kit.events(run, "record").await.is_empty());
    assert_eq!(metrics(&kit).await["reader_lag_seconds_count"], lag.to_string());
}

/// However many there are, none that is old enough is left; and one that is not is.
#[tokio::test]
async fn old_runs_are_forgotten_all_of_them() {
    const OLD: usize = 250;
    let keep = Duration::from_secs(60);
    let store = MemoryStore::default();
    let log = |at| {
        let clock = Arc::new(TokioClock::starting_at(at));
        Log::new(Arc::new(store.beside()), LogOptions { clock, ..LogOptions::default() })
    };
    let def = || agent([Say::new().text("Hello.")], []);
    let before = Kit::with(config(), Runtime::new(log(Millis(1_000))), def()).await;
    for _ in 0..OLD {
        let run = before.start().await;
        before.runtime.wait(run).await.unwrap();
    }
    before.server.stop().await;
    let later = log(Millis(100_000_000));
    let config = ServerConfig { retention: Some(keep), ..config() };
    let kit = Kit::with(config, Runtime::new(later), def()).await;
    let young = kit.start().await;
    kit.runtime.wait(young).await.unwrap();
    let left = loop {
        let runs = kit.runtime.log().store().list(RunFilter::default()).await.unwrap();
        if runs.len() <= 1 {
            break runs;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(left.iter().map(|info| info.run).collect::<Vec<_>>(), [young]);
}
