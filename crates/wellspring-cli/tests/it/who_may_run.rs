//! Permission to run commands, with the real binary.

use std::net::SocketAddr;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::kit::{Going, Home};
use crate::serve::answer;

/// A server, its address, and the names of its agents.
pub(crate) fn serve(home: &Home) -> (Going, SocketAddr, String) {
    let mut server = Going::start(home.paced(0, &["serve", "--listen", "127.0.0.1:0"]));
    let line = server.line().unwrap().to_owned();
    let address = line.strip_prefix("Wellspring is at http://").unwrap().parse().unwrap();
    let agents = server.line().unwrap().strip_prefix("agents:").unwrap().trim().to_owned();
    (server, address, agents)
}

fn stop(server: Going) {
    server.signal(Signal::INT);
    assert_eq!(server.end().0.code(), Some(0));
}

/// Starts a run of `demo`, reads it up to its question, and returns its id.
pub(crate) fn asked(address: SocketAddr, headers: &str) -> String {
    let body = r#"{"agent":"demo","input":"hello"}"#;
    let (status, run) = answer(address, "POST", "/v1/runs", headers, body);
    assert_eq!(status, 201, "{run}");
    let run = run["run"].as_str().unwrap().to_owned();
    events(address, headers, &run, "run_paused");
    run
}

/// The events of a run as lines, up to the first one with this text.
fn events(address: SocketAddr, headers: &str, run: &str, until: &str) -> String {
    let (mut after, mut all) = ("0".to_owned(), String::new());
    while !all.contains(until) {
        let path = format!("/v1/runs/{run}/events?after={after}&wait=10");
        let (status, page) = answer(address, "GET", &path, headers, "");
        assert_eq!(status, 200, "{page}");
        all.push_str(&page["events"].to_string());
        after = page["next"].as_str().unwrap().to_owned();
    }
    all
}

fn bearer(home: &Home) -> String {
    let create =
        ["token", "create", "ci", "--scope", "run", "--scope", "read", "--scope", "approve"];
    format!("authorization: Bearer {}\r\n", home.print(&create).trim())
}

/// Approves the open question of a run with another command.
pub(crate) fn approve_with(address: SocketAddr, headers: &str, run: &str, arguments: &Value) {
    let answered = json!({"approve": {"arguments": arguments}});
    let body = json!({"question": 0, "answer": answered}).to_string();
    let path = format!("/v1/runs/{run}/answers");
    let (status, said) = answer(address, "POST", &path, headers, &body);
    assert_eq!(status, 202, "{said}");
}

#[test]
fn with_a_token_there_is_no_demo_and_no_shell_unless_the_configuration_says_so() {
    let home = Home::with_files(&[("wellspring.toml", "")]);
    let headers = bearer(&home);
    for (config, agents, tool) in [
        ("", "", None),
        ("demo = false", "", None),
        ("demo = true", "demo", Some("count_down")),
        ("demo = \"shell\"", "demo", Some("run_shell_command")),
    ] {
        std::fs::write(home.work().join("wellspring.toml"), config).unwrap();
        let (server, address, there) = serve(&home);
        assert_eq!(there, agents, "{config}");
        if let Some(tool) = tool {
            let run = asked(address, &headers);
            let records = home.print(&["runs", "export", &run]);
            for other in ["count_down", "run_shell_command"] {
                assert_eq!(records.contains(other), other == tool, "{config}: {other}");
            }
        }
        stop(server);
    }
}

#[test]
fn the_first_token_takes_the_shell_from_a_running_demo() {
    let home = Home::with_files(&[("wellspring.toml", "")]);
    let (server, address, agents) = serve(&home);
    assert_eq!(agents, "demo");
    let headers = bearer(&home);
    while answer(address, "GET", "/v1/runs", "", "").0 != 401 {
        std::thread::yield_now();
    }
    let run = asked(address, &headers);
    approve_with(address, &headers, &run, &json!({"command": "echo $((6 * 7)) > answer"}));
    let records = events(address, &headers, &run, "run_finished");
    assert!(records.contains("this server has tokens"), "{records}");
    assert!(!home.work().join("answer").exists());
    stop(server);
}

/// The `/proc` files of a process that is not dumpable belong to root, so that no other process of
/// its user can read its environment. If the test runs as root, it starts the process as another
/// user.
#[cfg(target_os = "linux")]
#[test]
fn other_processes_of_the_user_cannot_read_our_environment() {
    use std::os::unix::fs::MetadataExt as _;

    let home = Home::with_files(&[("wellspring.toml", "")]);
    let mut command = home.paced(0, &["--ephemeral", "serve", "--listen", "127.0.0.1:0"]);
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        use std::os::unix::process::CommandExt as _;
        // Only root can read the home directory of this test.
        command.current_dir("/").env("WELLSPRING_CONFIG", "/dev/null").uid(NOBODY).gid(NOBODY);
    }
    let mut server = Going::start(command);
    server.wait_for("Wellspring is at");
    let process = std::path::Path::new("/proc").join(server.id().to_string());
    let status = std::fs::read_to_string(process.join("status")).unwrap();
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    let user: u32 = user.split_whitespace().next().unwrap().parse().unwrap();
    assert_ne!(user, 0);
    assert_eq!(std::fs::metadata(process.join("environ")).unwrap().uid(), 0);
    if !is_root {
        assert!(std::fs::read(process.join("environ")).is_err());
    }
    stop(server);
}

#[cfg(target_os = "linux")]
const NOBODY: u32 = 65534;
