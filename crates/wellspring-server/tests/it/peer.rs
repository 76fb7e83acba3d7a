//! Others' programs against our server.

use std::path::Path;

use tokio::process::Command;
use wellspring_engine::Runtime;
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
