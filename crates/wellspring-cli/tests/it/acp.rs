//! `wellspring acp`, with messages written by hand and with third-party clients.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::kit::{BINARY, Home, json_lines, skipped};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Standard output contains only the protocol, the command ends with its input, and the run is in
/// the log.
#[test]
fn an_editor_starts_it() {
    let home = Home::new();
    let mut command = home.paced(0, &["acp", "--agent", "demo"]);
    command.env("WELLSPRING_LOG", "debug").stdin(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut call = |id: u32, method: &str, params: Value| {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(input, "{request}").unwrap();
        loop {
            let line = output.next().unwrap().unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id && message.get("method").is_none() {
                return message["result"].clone();
            }
        }
    };
    call(0, "initialize", json!({"protocolVersion": 1}));
    let opened = call(1, "session/new", json!({"cwd": home.work(), "mcpServers": []}));
    let session = opened["sessionId"].as_str().unwrap();
    let prompt = json!([{"type": "text", "text": "help"}]);
    let stopped = call(2, "session/prompt", json!({"sessionId": session, "prompt": prompt}));
    assert_eq!(stopped["stopReason"], "end_turn");
    drop(input);
    for line in output {
        serde_json::from_str::<Value>(&line.unwrap()).unwrap();
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let runs: Value = serde_json::from_str(&home.print(&["runs", "list", "--json"])).unwrap();
    assert_eq!(runs[0]["run"]["thread"], session, "{runs}");
}

#[test]
fn an_unknown_agent_is_a_usage_error() {
    let home = Home::new();
    let output = home.output(&["acp", "--agent", "nobody"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, "wellspring: there is no agent \"nobody\"; there are: demo\n");
    assert!(output.stdout.is_empty());
}

/// acpx: a client that offers its terminals and approves everything.
#[test]
fn acpx() {
    if skipped("WELLSPRING_PEER_ACP_CLIENTS") {
        return;
    }
    let home = Home::new();
    let modules = root().join("crates/wellspring-acp/tests/clients/node_modules");
    let run = |policy: &str, prompt: &str| {
        let output = Command::new(modules.join("node/bin/node"))
            .arg(modules.join("acpx/dist/cli.js"))
            .args(["--agent", &format!("{BINARY} acp")])
            .args(["--format", "json", "--timeout", "100", policy])
            .arg("--cwd")
            .arg(home.work())
            .args(["exec", prompt])
            .env("HOME", home.data())
            .env("WELLSPRING_DATA_DIR", home.data())
            .env("WELLSPRING_DEMO_PACE_MS", "0")
            .current_dir(home.work())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        // It fails if every request was denied.
        let denied = policy == "--deny-all";
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), !denied, "{said}\n{errors}");
        json_lines(&said)
    };
    let heard = run("--approve-all", "show me");
    let methods = |method: &str| heard.iter().filter(|it| it["method"] == method).count();
    assert_eq!(methods("session/request_permission"), 1);
    assert_eq!(methods("terminal/create"), 1);
    assert_eq!(methods("terminal/release"), 1);
    let update = |it: &&Value| it["method"] == "session/update";
    let updates: Vec<_> = heard.iter().filter(update).map(|it| &it["params"]["update"]).collect();
    let text = |kind: &str| -> String {
        let chunks = updates.iter().filter(|it| it["sessionUpdate"] == kind);
        chunks.filter_map(|it| it["content"]["text"].as_str()).collect()
    };
    assert!(text("agent_thought_chunk").starts_with("The user says “show me”."));
    assert!(text("agent_message_chunk").contains("The command **ran**"), "{heard:#?}");
    let done = |it: &&&Value| it["status"] == "completed";
    assert_eq!(updates.iter().filter(done).count(), 6);

    let heard = run("--deny-all", "show me");
    assert!(heard.iter().all(|it| it["method"] != "terminal/create"));
    assert!(heard.iter().any(|it| it["params"]["update"]["status"] == "failed"));
}

/// The protocol's Python SDK: permissions in both directions, a choice, a cancel, a failure, a
/// list, and the session again in another process.
#[test]
fn python_sdk() {
    if skipped("WELLSPRING_PEER_ACP_PYTHON") {
        return;
    }
    let home = Home::new();
    let output = Command::new(root().join("target/peers/acp/bin/python"))
        .arg(root().join("crates/wellspring-acp/tests/clients/client.py"))
        .arg(home.work())
        .arg(BINARY)
        .arg("--data-dir")
        .arg(home.data())
        .arg("acp")
        .env("WELLSPRING_DEMO_PACE_MS", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    insta::assert_snapshot!(said, @"
    version 1 wellspring
    mode demo
    allowed: end_turn ['Shell'] ['Clock completed', 'Look around completed', 'Plan completed', 'Plan completed', 'Plan completed', 'Shell completed']
    plan ['completed', 'completed']
    thought The user says “show me”
    said ## What just happened
    rejected: end_turn ['Shell'] ['Clock completed', 'Look around completed', 'Plan completed', 'Plan completed', 'Plan completed', 'Shell failed']
    asked: end_turn ['Which water do you like best?'] You chose **spring**. A good choice, as all of them are.
    cancelled: cancelled
    failed: script: you asked the script to fail for good
    listed [True]
    exit 0
    loaded: show meonce moreasklongfail for good ['Clock completed', 'Clock completed', 'Look around completed', 'Look around completed', 'Plan completed', 'Plan completed', 'Plan completed', 'Plan completed', 'Plan completed', 'Plan completed', 'Question completed', 'Shell completed', 'Shell failed']
    went on: end_turn
    ");
}
