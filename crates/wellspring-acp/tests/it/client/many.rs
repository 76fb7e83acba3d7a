//! Many runs on few agents.

use serde_json::json;
use wellspring_acp::client::AcpAgent;
use wellspring_core::RunRequest;
use wellspring_engine::{AgentDef, StartRun};
use wellspring_testkit::soak;

use super::kit::{config, finished, gone, runtime, schema, session, watch};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_runs_over_four_agents_do_not_mix() {
    let script = json!({"prompts": [[
        {"thought": "Hm."}, {"echo": 1}, {"flood": 50},
        {"call": {"name": "return_result", "arguments": {"n": 7}}},
        {"echo": 1},
    ]]});
    for _ in 0..soak(1, 20) {
        let runtime = runtime();
        let agents: Vec<AcpAgent> =
            (0..4).map(|it| AcpAgent::new(format!("agent-{it}"), config(&script))).collect();
        for agent in &agents {
            let name = wellspring_core::RemoteAgent::name(agent).to_owned();
            runtime.register(AgentDef::remote(name, std::sync::Arc::new(agent.clone())));
        }
        let mut runs = Vec::new();
        for number in 0..100 {
            let request = RunRequest {
                result_schema: Some(schema()),
                ..RunRequest::text(format!("mine is {number}"))
            };
            let agent = format!("agent-{}", number % 4);
            let run = runtime.start(StartRun::new(&*agent, request)).await.unwrap();
            runs.push((number, run));
        }
        let mut processes = std::collections::BTreeMap::new();
        for (number, run) in runs {
            let records = finished(&runtime, run).await;
            let transcript = runtime.log().transcript(run).await.unwrap();
            let floods: String = (0..50).map(|it| format!("{it} ")).collect();
            let want = format!("mine is {number}{floods}the result was takenmine is {number}");
            assert_eq!(transcript.answer(wellspring_core::AgentNo::ROOT).replace('\n', ""), want);
            assert_eq!(transcript.result, Some(json!({"n": 7})));
            let pid = session(&records).1;
            processes.entry(pid.as_raw_nonzero()).or_insert_with(|| watch(pid));
        }
        assert_eq!(processes.len(), 4, "one process each");
        drop((agents, runtime));
        for process in processes.into_values() {
            gone(process).await;
        }
    }
}
