//! Many runs on several threads: the promises for one run hold for each.

use std::time::Duration;

use serde_json::json;
use wellspring::prelude::*;
use wellspring::tools::{NoArguments, function};

use crate::kit::records;

const RUNS: usize = 100;

/// In real time, so that runs race with their readers and their answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_reader_of_every_run_sees_the_same_and_every_result_comes() {
    let model = Scripted::new([
        Say::new().thought("May I?").call("risky", json!({})).call("risky", json!({})),
        Say::new().text("I did.").call("return_result", json!({"value": 42})),
    ]);
    let risky = function("risky", "Asks first.", async |_: NoArguments, cx: Context| {
        cx.progress("working").await;
        Ok(())
    })
    .kind(ToolKind::Execute);
    let agent = Agent::model(model).tool(risky);
    let runs = (0..RUNS).map(|_| {
        let agent = agent.clone();
        tokio::spawn(async move {
            let think = agent.think::<u32>().text("?").on_question(async |_| Answer::yes());
            let stream = think.stream();
            let run = stream.run_id().await.unwrap();
            let (result, other) = (stream.result(), agent.attach::<u32>(run));
            let (live, result, other): (Vec<_>, _, Vec<_>) =
                tokio::join!(stream.collect(), result, other.collect());
            assert_eq!(result.unwrap(), 42);
            assert_eq!(live, other);
            let again = agent.attach::<u32>(run);
            records(&again).await;
            assert_eq!(live, again.collect::<Vec<_>>().await);
        })
    });
    let all = futures::future::join_all(runs);
    let all = tokio::time::timeout(Duration::from_secs(120), all).await.expect("a run hangs");
    all.into_iter().for_each(|run| run.unwrap());
}
