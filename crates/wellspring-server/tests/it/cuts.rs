//! A client that is disconnected at any point and reconnects with its last id gets the same events
//! as a client that stays connected, in every dialect. The model and the tools get no additional
//! request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::StreamExt as _;
use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::{Value, json};
use wellspring_core::{Model, RunId, Tool, ToolResult, ToolSpec};
use wellspring_engine::tools::from_function;
use wellspring_engine::{AgentDef, Runtime};
use wellspring_log::{Log, SqliteOptions};
use wellspring_models::{Gate, Say, Scripted};
use wellspring_testkit::soak;
use wellspring_wire::DialectName;

use crate::kit::{Kit, SseEvent, config, parse_sse};

/// The requests to the model and the tool.
#[derive(Clone, Default)]
struct Asked {
    model: Arc<AtomicU32>,
    tool: Arc<AtomicU32>,
}

/// Two turns around a tool; the test lets out each piece.
fn def(gate: &Gate, asked: &Asked) -> AgentDef {
    let script = {
        let (gate, asked) = (gate.clone(), asked.model.clone());
        move |request: &wellspring_core::TurnRequest| {
            asked.fetch_add(1, Ordering::Relaxed);
            let first = !request
                .messages
                .iter()
                .any(|message| matches!(message, wellspring_core::Message::Assistant { .. }));
            if first {
                Say::new()
                    .gate_each(&gate)
                    .thought("Let me look around, line\nby line, before I \"answer\".")
                    .call("echo", json!({"say": "something — with ünïcode"}))
            } else {
                Say::new().gate_each(&gate).text("That is it: a few words, and then some more.")
            }
        }
    };
    let calls = asked.tool.clone();
    let spec = ToolSpec { idempotent: true, ..ToolSpec::new("echo", "says it back") };
    let tool = from_function(spec, move |arguments: Value, _| {
        let calls = calls.clone();
        async move {
            calls.fetch_add(1, Ordering::Relaxed);
            Ok(ToolResult::new(arguments["say"].clone()))
        }
    });
    let model: Arc<dyn Model> = Arc::new(Scripted::with(script));
    AgentDef { tools: vec![Arc::new(tool) as Arc<dyn Tool>], ..AgentDef::model("agent", model) }
}

/// Number of disconnections, and how many of them were during the run.
#[derive(Default)]
struct Cuts {
    all: AtomicU32,
    live: BTreeMap<DialectName, AtomicU32>,
}

/// Reads a run to its end, and disconnects after a random number of bytes each time.
async fn read_with_cuts(
    kit: &Kit,
    run: RunId,
    dialect: DialectName,
    mut random: TestRng,
    cuts: &Cuts,
    cuts_max: u32,
) -> Vec<SseEvent> {
    let mut events: Vec<SseEvent> = Vec::new();
    let mut last = None;
    loop {
        let mut request = kit.get(&format!("/v1/runs/{run}/events?dialect={dialect}"));
        if let Some(last) = &last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await.unwrap();
        if response.status() == 204 {
            return events;
        }
        assert_eq!(response.status(), 200);
        let enough = cuts.all.load(Ordering::Relaxed) >= cuts_max;
        let mut patience = if enough { usize::MAX } else { (random.next_u32() % 700) as usize };
        let mut bytes = Vec::new();
        let mut body = response.bytes_stream();
        while patience > 0
            && let Some(chunk) = body.next().await
        {
            let chunk = chunk.unwrap();
            let taken = chunk.len().min(patience);
            patience -= taken;
            bytes.extend_from_slice(&chunk[..taken]);
        }
        let whole = patience > 0;
        drop(body);
        for event in parse_sse(&String::from_utf8_lossy(&bytes)) {
            last = event.id.clone().or(last);
            events.push(event);
        }
        if whole {
            return events;
        }
        cuts.all.fetch_add(1, Ordering::Relaxed);
        if kit.runtime.is_live(run) {
            cuts.live[&dialect].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// During the run and after its end, in all dialects at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_cuts_change_nothing() {
    let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let cuts_max = soak(500, 10_000);
    let live = DialectName::ALL.map(|dialect| (dialect, AtomicU32::new(0))).into();
    let cuts = Cuts { live, ..Cuts::default() };
    let directory = tempfile::tempdir().unwrap();
    let mut rounds = 0;
    while cuts.all.load(Ordering::Relaxed) < cuts_max {
        let (gate, asked) = (Gate::new(), Asked::default());
        let file = directory.path().join(format!("{rounds}.db"));
        let log = Log::sqlite(file, SqliteOptions::default()).unwrap();
        let kit = Kit::with(config(), Runtime::new(log), def(&gate, &asked)).await;
        let run = kit.start().await;
        // The model continues while clients come and go.
        let speaking = tokio::spawn({
            let (gate, lulls) = (gate.clone(), random.next_u32() % 50);
            async move {
                for piece in 1.. {
                    gate.reached(piece).await;
                    for _ in 0..lulls * 10 {
                        tokio::task::yield_now().await;
                    }
                    gate.pass();
                }
            }
        });
        let reading = DialectName::ALL.map(|dialect| {
            let mut seed = [0; 32];
            random.fill_bytes(&mut seed);
            let random = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
            let (kit, cuts) = (&kit, &cuts);
            async move { (dialect, read_with_cuts(kit, run, dialect, random, cuts, cuts_max).await) }
        });
        let read = futures::future::join_all(reading).await;
        speaking.abort();
        let records = kit.events(run, "record").await;
        for (dialect, events) in read {
            let uncut = kit.events(run, dialect.as_str()).await;
            assert_eq!(events, uncut, "{dialect}");
        }
        assert!(records.last().unwrap().data.contains("run_finished"));
        assert_eq!(asked.model.load(Ordering::Relaxed), 2, "model calls");
        assert_eq!(asked.tool.load(Ordering::Relaxed), 1, "tool calls");
        kit.server.stop().await;
        rounds += 1;
    }
    assert!(rounds > 1);
    for (dialect, live) in &cuts.live {
        assert!(live.load(Ordering::Relaxed) > 0, "{dialect} was cut while the run went on");
    }
}
