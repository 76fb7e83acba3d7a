//! Metrics, the access log and retention.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use wellspring_core::Millis;
use wellspring_engine::Runtime;
use wellspring_log::{Log, LogOptions, MemoryStore, RunFilter, TokioClock};
use wellspring_models::{Gate, Say};
use wellspring_server::ServerConfig;

use crate::kit::{Kit, agent, config};

/// The current metrics, by name.
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

/// The metrics match what happened.
#[tokio::test]
async fn what_happened_is_counted() {
    let runtime = Runtime::new(Log::in_memory());
    let gate = Gate::new();
    let def = agent([Say::new().text("one ").gate(&gate).text("two")], []);
    let kit = Kit::with(config(), runtime, def).await;
    let (first, second) = (kit.start().await, kit.start().await);
    gate.reached(2).await;
    let watch = kit.get(&format!("/v1/runs/{first}/events")).send().await.unwrap();
    let now = metrics(&kit).await;
    assert_eq!((&*now["runs"], &*now["streams"], &*now["runs_started_total"]), ("2", "1", "2"));
    let cancelled = kit.post(&format!("/v1/runs/{second}/cancel"), &serde_json::json!({}));
    assert_eq!(cancelled.send().await.unwrap().status(), 202);
    kit.wait(second).await;
    gate.open();
    let bytes = watch.text().await.unwrap().len();
    assert_eq!(kit.get("/v1/runs/x").send().await.unwrap().status(), 404);
    // Readers see the end of a run slightly before the metrics do.
    let now = loop {
        let now = metrics(&kit).await;
        let over = ["completed", "cancelled"]
            .map(|outcome| now[&format!("runs_finished_total{{outcome=\"{outcome}\"}}")] == "1");
        if over == [true, true] && now["streams"] == "0" {
            break now;
        }
        tokio::task::yield_now().await;
    };
    for (name, want) in [
        ("runs", "0"),
        ("runs_finished_total{outcome=\"failed\"}", "0"),
        ("errors_total{code=\"no_run\"}", "1"),
        ("streams_opened_total", "1"),
        ("stream_bytes_total", &bytes.to_string()),
        ("turns_total", "1"),
    ] {
        assert_eq!(now.get(name).map(String::as_str), Some(want), "{name}: {now:#?}");
    }
}

/// A reader of events that are older than its request does not count as lagging.
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
    // The next reader comes later than the precision of a record's time.
    while clock.now().since(ended_at) <= Duration::from_millis(2) {
        tokio::task::yield_now().await;
    }
    assert!(!kit.events(run, "record").await.is_empty());
    assert_eq!(metrics(&kit).await["reader_lag_seconds_count"], lag.to_string());
}

/// All runs that are old enough are deleted, however many there are, and no others.
#[tokio::test]
async fn old_runs_are_forgotten_all_of_them() {
    const OLD: usize = 250;
    let keep = Duration::from_secs(60);
    let store = MemoryStore::default();
    let log = |at| {
        let clock = Arc::new(TokioClock::starting_at(at));
        Log::new(Arc::new(store.reopen()), LogOptions { clock, ..LogOptions::default() })
    };
    let def = || agent([Say::new().text("Hello.")], []);
    let before = Kit::with(config(), Runtime::new(log(Millis(1_000))), def()).await;
    for _ in 0..OLD {
        let run = before.start().await;
        before.wait(run).await;
    }
    before.server.stop().await;
    let later = log(Millis(100_000_000));
    let config = ServerConfig { retention: Some(keep), ..config() };
    let kit = Kit::with(config, Runtime::new(later), def()).await;
    let young = kit.start().await;
    kit.wait(young).await;
    // Far less than the interval of retention.
    let few = tokio::time::timeout(Duration::from_secs(30), async {
        loop {
            let runs = kit.runtime.log().store().list(RunFilter::default()).await.unwrap();
            if runs.len() <= 1 {
                break runs;
            }
            tokio::task::yield_now().await;
        }
    });
    let left = few.await.expect("old runs are left");
    assert_eq!(left.iter().map(|info| info.run).collect::<Vec<_>>(), [young]);
}
