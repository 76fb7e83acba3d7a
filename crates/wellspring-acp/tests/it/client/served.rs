//! Files and commands that an agent uses through us.

use serde_json::json;
use wellspring_acp::client::{AcpAgent, AcpConfig, FileAccess};
use wellspring_core::RunRequest;

use super::kit::{config, driven, play, shown, words};

#[tokio::test]
async fn files_are_served_below_the_working_directory_only() {
    let folder = tempfile::tempdir().unwrap();
    let request = |method: &str, params: serde_json::Value| json!({"request": {"method": method, "params": params}});
    let path = folder.path().canonicalize().unwrap().join("a.txt");
    let script = json!({"prompts": [[
        request("fs/write_text_file", json!({"path": path, "content": "one\ntwo\n"})),
        request("fs/read_text_file", json!({"path": path, "line": 2})),
        request("fs/read_text_file", json!({"path": "/etc/passwd"})),
        request("fs/levitate", json!({})),
    ]]});
    let agent = AcpAgent::new("scripted", config(&script).cwd(folder.path()));
    let said = words(&play(driven(agent), RunRequest::text("go")).await);
    let said = said.replace(&folder.path().canonicalize().unwrap().display().to_string(), "HERE");
    insta::assert_snapshot!(said, @r#"{}{"content":"two\n"}{"code":-32602,"message":"/etc/passwd is not below HERE, and only what is can be used"}{"code":-32601,"message":"there is no method \"fs/levitate\" here"}"#);
    assert_eq!(std::fs::read_to_string(path).unwrap(), "one\ntwo\n");
}

#[tokio::test]
async fn a_command_is_run_and_its_output_is_in_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let script = json!({"prompts": [[
        {"terminal": {"command": "sh", "args": ["-c", "printf one; printf two >&2; exit 4"]}},
    ]]});
    let agent = AcpAgent::new("scripted", config(&script).cwd(folder.path()));
    let records = play(driven(agent), RunRequest::text("go")).await;
    let said = words(&records);
    assert!(said.contains("one") && said.contains("two"), "{}", shown(&records));
    assert!(
        shown(&records).contains(r#""exit":{"exitCode":4,"signal":null}"#),
        "{}",
        shown(&records)
    );
}

#[tokio::test]
async fn what_an_agent_leaves_running_ends_with_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("alive");
    // A process that holds a lock on the file is alive.
    let script = json!({"prompts": [[
        {"request": {"method": "terminal/create", "params": {"command": "sh", "args":
            ["-c", format!("exec 9>{}; flock 9; sleep 1000 & sleep 1000", pipe.display())]}}},
    ]]});
    let agent = AcpAgent::new("scripted", config(&script).cwd(folder.path()));
    play(driven(agent), RunRequest::text("go")).await;
    let path = pipe.clone();
    let freed = tokio::task::spawn_blocking(move || {
        let file = std::fs::File::create(path).unwrap();
        file.lock().unwrap();
    });
    tokio::time::timeout(std::time::Duration::from_secs(60), freed)
        .await
        .expect("it lives on")
        .unwrap();
}

#[tokio::test]
async fn what_is_not_allowed_is_not_served() {
    let folder = tempfile::tempdir().unwrap();
    let script = json!({"prompts": [[
        {"request": {"method": "fs/read_text_file", "params": {"path": "a"}}},
        {"request": {"method": "terminal/create", "params": {"command": "ls"}}},
    ]]});
    let mut config = config(&script).cwd(folder.path());
    config.files = FileAccess::None;
    config.terminals = false;
    let said =
        words(&play(driven(AcpAgent::new("scripted", config)), RunRequest::text("go")).await);
    insta::assert_snapshot!(said, @r#"{"code":-32602,"message":"files are not read here"}{"code":-32601,"message":"there is no method \"terminal/create\" here"}"#);
}

/// Cargo sets `CARGO_MANIFEST_DIR` for this process; it stands for a variable with a secret.
#[tokio::test]
async fn neither_an_agent_nor_its_commands_see_our_environment() {
    const SECRET: &str = "CARGO_MANIFEST_DIR";
    assert!(std::env::var_os(SECRET).is_some());
    let folder = tempfile::tempdir().unwrap();
    let script = json!({"prompts": [[{"terminal": {"command": "env"}}]]});
    let agent = AcpAgent::new("scripted", config(&script).cwd(folder.path()));
    let said = words(&play(driven(agent), RunRequest::text("go")).await);
    assert!(said.contains("PATH=") && !said.contains(SECRET), "{said}");

    let seen = folder.path().join("seen");
    let command = AcpConfig::command(["sh", "-c", "env > seen"]).env("GIVEN", "by name");
    let agent = AcpAgent::new("shell", command.cwd(folder.path()));
    play(driven(agent), RunRequest::text("go")).await;
    let seen = std::fs::read_to_string(seen).unwrap();
    assert!(seen.contains("PATH=") && seen.contains("GIVEN=by name"), "{seen}");
    assert!(!seen.contains(SECRET), "{seen}");
}
