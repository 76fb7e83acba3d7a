//! A client that is cut off anywhere and reconnects with its last id gets exactly what an
//! uncut one gets, in every dialect, and nobody is asked anything twice for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::StreamExt as _;
use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::{Value, json};
use wellspring_core::{Model, RunId, Tool, ToolResult, ToolSpec};
use wellspring_engine::AgentDef;
use wellspring_engine::tools::from_function;
use wellspring_models::{Gate, Say, Scripted};
use wellspring_testkit::soak;
use wellspring_wire::DialectName;

use crate::kit::{Kit, SseEvent, parse_sse};

/// What the model and the tool were asked.
#[derive(Clone, Default)]
struct Asked {
    model: Arc<AtomicU32>,
    tool: Arc<AtomicU32>,
}

/// Two turns around a tool, every piece let out by a gate.
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

/// Reads a run to its end, hanging up after a random number of bytes each time.
async fn read_with_cuts(
    kit: &Kit,
    run: RunId,
    dialect: DialectName,
    random: &mut TestRng,
    cuts_left: &mut u32,
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
        let mut patience = if *cuts_left > 0 {
            *cuts_left -= 1;
            (random.next_u32() % 700) as usize
        } else {
            usize::MAX
        };
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
    }
}

/// While the run goes on, and after it has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_cuts_change_nothing() {
    let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut cuts = soak(500, 10_000);
    let mut rounds = 0;
    while cuts > 0 {
        let (gate, asked) = (Gate::new(), Asked::default());
        let kit = Kit::new(def(&gate, &asked)).await;
        let run = kit.start().await;
        // The model speaks on while clients come and go.
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
        let mut read = Vec::new();
        for dialect in DialectName::ALL {
            read.push((dialect, read_with_cuts(&kit, run, dialect, &mut random, &mut cuts).await));
        }
        speaking.abort();
        let records = kit.events(run, "record").await;
        for (dialect, events) in read {
            let uncut = kit.events(run, dialect.as_str()).await;
            if dialect == DialectName::StreamDelta {
                // It is read latest-wins: what was skipped in between is no loss.
                assert_eq!(events.last(), uncut.last(), "{dialect}");
            } else {
                assert_eq!(events, uncut, "{dialect}");
            }
        }
        assert!(records.last().unwrap().data.contains("run_finished"));
        assert_eq!(asked.model.load(Ordering::Relaxed), 2, "model calls");
        assert_eq!(asked.tool.load(Ordering::Relaxed), 1, "tool calls");
        rounds += 1;
    }
    assert!(rounds > 1);
}
