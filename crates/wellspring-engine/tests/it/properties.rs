//! Whatever a model's output is, wherever it is cut, and whenever the run is cancelled or its node
//! goes away: the run obeys the grammar and ends once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use wellspring_core::{
    CancelWhen, Checker, Context, Event, FailureKind, Record, RunId, Stop, ToolResult, ToolSpec,
    render,
};
use wellspring_engine::tools::{FunctionTool, from_function};
use wellspring_engine::{AgentDef, Limits, Runtime, StartRun};
use wellspring_log::MemoryStore;
use wellspring_models::{Failure, Say, Scripted};

use crate::kit::{finished, log, with_model};

/// A step of a model's turn.
#[derive(Clone, Debug)]
enum Step {
    Text(Vec<String>),
    Thought(String),
    Call(&'static str),
    BadCall,
    Wait(u64),
    BreakOff,
    Fail(FailureKind),
    Unfinished,
    Stop(Stop),
}

fn step() -> impl Strategy<Value = Step> {
    let word = "[a-z ]{1,6}";
    prop_oneof![
        4 => prop::collection::vec(word, 1..4).prop_map(Step::Text),
        2 => word.prop_map(Step::Thought),
        3 => prop::sample::select(vec!["quick", "slow", "again", "nobody"]).prop_map(Step::Call),
        1 => Just(Step::BadCall),
        2 => (1_u64..90).prop_map(Step::Wait),
        1 => Just(Step::BreakOff),
        1 => prop::sample::select(vec![
            FailureKind::Unavailable,
            FailureKind::RateLimited,
            FailureKind::Refused,
            FailureKind::BadRequest,
        ])
        .prop_map(Step::Fail),
        1 => Just(Step::Unfinished),
        1 => prop::sample::select(vec![Stop::MaxTokens, Stop::Refusal, Stop::Paused]).prop_map(Step::Stop),
    ]
}

fn say(steps: &[Step]) -> Say {
    steps.iter().cloned().fold(Say::new(), |say, step| match step {
        Step::Text(chunks) => say.chunks(chunks),
        Step::Thought(text) => say.thought(text),
        Step::Call(tool) => say.call(tool, json!({"x": 1})),
        Step::BadCall => say.call_fragments("quick", ["{\"x\":", "oops"]),
        Step::Wait(seconds) => say.wait(Duration::from_secs(seconds)),
        Step::BreakOff => say.break_off(),
        Step::Fail(kind) => say.fail(Failure::new(kind, "scripted trouble")),
        Step::Unfinished => say.chunks(["open"]).unfinished(),
        Step::Stop(stop) => say.stop(stop),
    })
}

/// How often the tool of each call ran.
type Runs = Arc<Mutex<BTreeMap<String, usize>>>;

fn tools(runs: &Runs) -> Vec<FunctionTool> {
    let tool = |name: &'static str, seconds: u64| {
        let runs = Arc::clone(runs);
        from_function(ToolSpec::new(name, ""), move |_, cx: Context| {
            let call = format!("{name} {}", cx.call_id().unwrap());
            *runs.lock().unwrap().entry(call).or_default() += 1;
            async move {
                cx.progress("working").await;
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                Ok(ToolResult::new("done"))
            }
        })
    };
    vec![tool("quick", 0), tool("slow", 20), tool("again", 5).idempotent()]
}

fn def(script: &[Vec<Step>], runs: &Runs) -> AgentDef {
    let turns: Vec<Say> = script.iter().map(|steps| say(steps)).collect();
    let model = Arc::new(Scripted::new(turns));
    let limits = Limits { turns: 4, attempts: 2, ..Limits::default() };
    AgentDef { limits, ..with_model(model, tools(runs)) }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(work)
}

/// A tool that is not idempotent never runs twice for one call.
fn assert_ran_once(runs: &Runs, records: &[Record]) {
    for (call, times) in runs.lock().unwrap().iter() {
        let harmless = call.starts_with("again");
        assert!(harmless || *times <= 1, "{call} ran {times} times\n{}", render(records));
    }
}

fn one_terminal(records: &[Record]) -> usize {
    records.iter().filter(|r| matches!(r.event, Event::RunFinished { .. })).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: wellspring_testkit::soak(150, 5000), ..ProptestConfig::default() })]

    #[test]
    fn any_script_cut_anywhere_obeys_the_grammar(
        script in prop::collection::vec(prop::collection::vec(step(), 0..6), 1..4),
        cancel_after in prop::option::of(0_u64..120),
    ) {
        block_on(async {
            let runs = Runs::default();
            let runtime = Runtime::new(log(&Arc::new(MemoryStore::default()), "one"));
            runtime.register(def(&script, &runs));
            let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
            if let Some(seconds) = cancel_after {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                let _ = runtime.local().cancel(run, CancelWhen::Now, None).await;
            }
            let records = finished(&runtime, run).await;
            assert_eq!(one_terminal(&records), 1);
            assert_ran_once(&runs, &records);
        });
    }

    #[test]
    fn a_run_survives_its_nodes_wherever_they_go_away(
        script in prop::collection::vec(prop::collection::vec(step(), 0..6), 1..4),
        lives in prop::collection::vec(0_u64..60, 1..4),
    ) {
        block_on(async {
            let runs = Runs::default();
            let store = Arc::new(MemoryStore::default());
            let node = |number: usize| {
                let runtime = Runtime::new(log(&store, &format!("node-{number}")));
                runtime.register(def(&script, &runs));
                runtime
            };
            let first = node(0);
            let run = first.local().start(StartRun::text("agent", "go")).await.unwrap().run;
            let mut current = first;
            for (number, seconds) in lives.iter().enumerate() {
                tokio::time::sleep(Duration::from_secs(*seconds)).await;
                let seen = records(&current, run).await;
                current.shutdown(Duration::ZERO).await;
                current = node(number + 1);
                current.recover().await.unwrap();
                let now = records(&current, run).await;
                assert_eq!(&now[..seen.len()], &seen[..], "what was seen is still there");
            }
            let records = finished(&current, run).await;
            assert_eq!(one_terminal(&records), 1);
            assert_ran_once(&runs, &records);
        });
    }
}

/// The records that are committed now.
async fn records(runtime: &Runtime, run: RunId) -> Vec<Record> {
    let head = runtime.log().store().info(run).await.unwrap().unwrap().head;
    let mut cursor = runtime.local().attach(run, wellspring_core::Seq(0)).await.unwrap();
    let mut records = Vec::new();
    while cursor.position() < head {
        for frame in cursor.next().await.unwrap().unwrap_or_default() {
            records.extend(frame.records().iter().cloned());
        }
    }
    Checker::check(&records)
        .unwrap_or_else(|violation| panic!("{violation}\n{}", render(&records)));
    records
}
