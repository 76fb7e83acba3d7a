//! Many runs on few agents.

use serde_json::json;
use wellspring_acp::client::AcpAgent;
use wellspring_core::RunRequest;
use wellspring_engine::{AgentDef, StartRun};
use wellspring_testkit::soak;

use super::kit::{config, finished, gone, runtime, schema, session, watch};

/// Marks a process that runs no other tests, so that its memory is that of the runs.
const ALONE: &str = "WELLSPRING_TEST_ALONE";

/// Maximum growth of this process's memory, for all runs and their log in memory together. It was
/// 36 MiB without optimisation: about 350 KiB for each run with its session, its queue and its
/// server of tools, and about 100 bytes of log for each of 20,000 pieces of text.
const PEAK_BYTES_MAX: u64 = 64 * 1024 * 1024;

#[test]
fn a_hundred_runs_over_four_agents_do_not_mix() {
    if std::env::var_os(ALONE).is_some() {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        return runtime.block_on(a_hundred_runs());
    }
    let test = "client::many::a_hundred_runs_over_four_agents_do_not_mix";
    let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
    let alone = alone.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
    assert!(alone.status.success(), "{alone:#?}");
}

/// A value from this process's status, in bytes.
fn memory(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(what)).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap() * 1024
}

async fn a_hundred_runs() {
    let before = memory("VmRSS:");
    let script = json!({"prompts": [[
        {"thought": "Hm."}, {"echo": 1}, {"flood": 200},
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
            let run = runtime.local().start(StartRun::new(&*agent, request)).await.unwrap().run;
            runs.push((number, run));
        }
        let mut processes = std::collections::BTreeMap::new();
        for (number, run) in runs {
            let records = finished(&runtime, run).await;
            let transcript = runtime.log().transcript(run).await.unwrap();
            let floods: String = (0..200).map(|it| format!("{it} ")).collect();
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
    let added = memory("VmHWM:").saturating_sub(before);
    assert!(added < PEAK_BYTES_MAX, "{added} bytes");
}
