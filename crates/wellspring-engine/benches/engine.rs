//! The cost of an event on its way from a model through the engine and the log to a reader, and the
//! latency of the first one. The baseline is the same deltas from the model alone.
#![expect(clippy::unwrap_used, reason = "a bench that cannot go on should stop")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use wellspring_core::{Event, Message, Model, ModelSettings, Seq, ThreadId, TurnRequest};
use wellspring_engine::{AgentDef, Runtime, StartRun, Timeouts};
use wellspring_log::{Durability, Log, SqliteOptions};
use wellspring_models::{Say, Scripted};
use wellspring_testkit::figures::{Scale, figure};

fn main() {
    let scale = Scale::asked();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let deltas = scale.rounds(200_000);
        let baseline = "engine/model alone";
        figure(baseline, model_alone(deltas).await, "ns/event", None);
        for (name, readers) in [("no reader", 0), ("one cursor", 1), ("ten cursors", 10)] {
            let cost = through(&Log::in_memory(), deltas, readers).await;
            figure(format!("engine/memory/{name}"), cost, "ns/event", Some(baseline));
        }
        for (name, durability) in
            [("process-crash", Durability::ProcessCrash), ("power-loss", Durability::PowerLoss)]
        {
            let directory = tempfile::tempdir().unwrap();
            let options = SqliteOptions { durability, ..SqliteOptions::default() };
            let log = Log::sqlite(directory.path().join("runs.db"), options).unwrap();
            let cost = through(&log, deltas, 1).await;
            figure(format!("engine/sqlite {name}/one cursor"), cost, "ns/event", Some(baseline));
            let first = first_delta(&log, scale.rounds(500)).await;
            figure(format!("engine/sqlite {name}/first delta"), first, "µs", None);
        }
        let first = first_delta(&Log::in_memory(), scale.rounds(500)).await;
        figure("engine/memory/first delta", first, "µs", None);
        for runs in [10, 100, 1000] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("runs.db");
            let log = Log::sqlite(path, SqliteOptions::default()).unwrap();
            let first = first_delta_in_thread(&log, scale.rounds(runs)).await;
            figure(format!("engine/sqlite/first delta after {runs} runs"), first, "µs", None);
        }
    });
}

/// A model that emits this many words, a hundred per batch, like a busy provider.
fn talkative(deltas: usize) -> Scripted {
    let parts = deltas.div_ceil(100);
    let words: Vec<String> = (0..100.min(deltas)).map(|n| format!("word{n} ")).collect();
    let say = (0..parts).fold(Say::new().burst(), |say, _| say.chunks(words.clone()));
    Scripted::new([say])
}

async fn model_alone(deltas: usize) -> f64 {
    let request = TurnRequest {
        model: None,
        instructions: "".into(),
        messages: Arc::from([Message::user("go")]),
        tools: Arc::from([]),
        streaming: true,
        settings: ModelSettings::default(),
    };
    let model = talkative(deltas);
    let began = Instant::now();
    let mut stream = model.attempt(request).await.unwrap();
    while let Some(batch) = stream.next().await {
        std::hint::black_box(batch.unwrap().into_events().count());
    }
    nanos_each(began.elapsed(), deltas)
}

async fn through(log: &Log, deltas: usize, readers: usize) -> f64 {
    let runtime = Runtime::new(log.clone());
    let timeouts = Timeouts { turn: Duration::from_secs(3600), ..Timeouts::default() };
    let model = Arc::new(talkative(deltas));
    // One part per batch, so that the limit of a turn's parts does not affect the measurement.
    runtime.register(AgentDef { timeouts, ..AgentDef::model("agent", model) });
    let began = Instant::now();
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    let reading = (0..readers.max(1)).map(|_| {
        let runtime = runtime.clone();
        tokio::spawn(async move {
            let after = if readers == 0 { u64::MAX } else { 0 };
            let mut seen = 0_usize;
            let mut cursor = runtime.local().attach(run, Seq(0)).await.unwrap();
            if after == u64::MAX {
                // Without a reader, the bench only waits for the end.
                drop(cursor);
                while !runtime.log().store().info(run).await.unwrap().unwrap().state.is_final() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                return;
            }
            while let Some(frames) = cursor.next().await.unwrap() {
                for frame in &frames {
                    let is_delta = |event: &Event| matches!(event, Event::PartDelta { .. });
                    seen += frame.records().iter().filter(|record| is_delta(&record.event)).count();
                }
            }
            assert!(seen > 0);
        })
    });
    futures::future::join_all(reading).await.into_iter().for_each(|reader| reader.unwrap());
    nanos_each(began.elapsed(), deltas)
}

/// From the request to the first delta at a reader, in a thread with this many earlier runs of 500
/// deltas each.
async fn first_delta_in_thread(log: &Log, runs: usize) -> f64 {
    let runtime = Runtime::new(log.clone());
    runtime.register(AgentDef::model("agent", Arc::new(talkative(500))));
    let mut thread = None;
    for _ in 0..runs {
        let start = StartRun { thread, ..StartRun::text("agent", "go") };
        let run = runtime.local().start(start).await.unwrap().run;
        runtime.local().wait(run).await.unwrap();
        thread = Some(runtime.local().info(run).await.unwrap().thread);
    }
    first_delta_of(log, 10, thread).await
}

/// From the request to the first delta at a reader.
async fn first_delta(log: &Log, rounds: usize) -> f64 {
    first_delta_of(log, rounds, None).await
}

async fn first_delta_of(log: &Log, rounds: usize, thread: Option<ThreadId>) -> f64 {
    let runtime = Runtime::new(log.clone());
    runtime.register(AgentDef::model("agent", Arc::new(Scripted::new([Say::new().text("Hello")]))));
    let mut total = Duration::ZERO;
    for _ in 0..rounds {
        let began = Instant::now();
        let start = StartRun { thread, ..StartRun::text("agent", "go") };
        let run = runtime.local().start(start).await.unwrap().run;
        let mut cursor = runtime.local().attach(run, Seq(0)).await.unwrap();
        let mut first = None;
        while let Some(frames) = cursor.next().await.unwrap() {
            let mut records = frames.iter().flat_map(|frame| frame.records());
            if first.is_none() && records.any(|r| matches!(r.event, Event::PartDelta { .. })) {
                first = Some(began.elapsed());
            }
        }
        total += first.unwrap();
    }
    total.as_secs_f64() * 1e6 / f64::from(u32::try_from(rounds).unwrap())
}

#[expect(clippy::cast_precision_loss, reason = "a figure has few digits")]
fn nanos_each(time: Duration, count: usize) -> f64 {
    time.as_nanos() as f64 / count as f64
}
