//! Others' programs against our server.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tokio::process::Command;
use wellspring_core::Approval;
use wellspring_engine::{AgentDef, Policy, Rule, Runtime};
use wellspring_log::Log;
use wellspring_models::Say;
use wellspring_server::{ServerConfig, ServerLimits, TokenScope};
use wellspring_testkit::soak;

use crate::kit::{Kit, agent, config};

/// Requests of all kinds, made from the description alone: nothing fails, and every answer is
/// one that the description promises.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemathesis() {
    if std::env::var_os("WELLSPRING_PEER_SCHEMATHESIS").is_none() {
        println!("skipped: WELLSPRING_PEER_SCHEMATHESIS is not set; `cargo xtask test` sets it");
        return;
    }
    let limits = ServerLimits { requests_per_token: 1_000_000, ..ServerLimits::default() };
    let config = ServerConfig { limits, ..config() };
    let def = agent([Say::new().text("Hello there.")], []);
    let mut kit = Kit::with(config, Runtime::new(Log::in_memory()), def).await;
    kit.token = Some(kit.server.tokens().create("st", "one", &[TokenScope::Admin]).await.unwrap());
    for _ in 0..3 {
        kit.start().await;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(root.join("target/peers/schemathesis/bin/schemathesis"))
        .arg("run")
        .arg(kit.url("/openapi.json"))
        .args(["--header", &format!("Authorization: Bearer {}", kit.token.as_ref().unwrap())])
        .args(["--max-examples", &soak(20, 500).to_string()])
        // What a schema cannot say may still be refused: an agent's only model, a cursor ahead.
        .args(["--exclude-checks", "positive_data_acceptance"])
        .args(["--seed", "7", "--request-timeout", "10", "--no-color"])
        .current_dir(tempfile::tempdir().unwrap().path())
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// The official AG-UI client: text, reasoning, a tool in the page, an interrupt, an abort, a
/// re-attach and a cancellation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ag_ui_client() {
    if std::env::var_os("WELLSPRING_PEER_AG_UI").is_none() {
        println!("skipped: WELLSPRING_PEER_AG_UI is not set; `cargo xtask test` sets it");
        return;
    }
    let kit = Kit::new(agent([], [])).await;
    let register = |name: &str, def: AgentDef| {
        kit.runtime.register(AgentDef { name: name.into(), ..def });
    };
    register("talk", agent([Say::new().thought("Hm, what now?").text("Hello there.")], []));
    let paint = Say::new().call("paint", json!({"colour": "blue"}));
    register("paint", agent([paint, Say::new().text("Painted.")], []));
    let echo = Say::new().call("echo", json!({"say": "x"}));
    let mut ask = agent([echo, Say::new().text("Done.")], [crate::kit::echo()]);
    ask.policy = Policy::default().rule(Rule::tool("*").decide(Approval::Ask));
    register("ask", ask);
    let pause = Duration::from_millis(100);
    register(
        "slow",
        agent([Say::new().text("one two ").unfinished().wait(pause).more(0, "three four")], []),
    );
    register("stuck", agent([Say::new().text("one ").hang()], []));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer/ag_ui.mjs");
    let output = Command::new("node").arg(script).arg(kit.url("")).output().await.unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    insta::assert_snapshot!(out, @"
    text and reasoning, twice in one thread
    a tool in the page, and on with its result
    an interrupt, and on after an approval
    aborting detaches, and the same run id attaches again
    cancelled, and told so
    ");
}
