//! Access and lifetime of the shell tool's commands, with the real binary.

use std::io::Read as _;

use rustix::process::Signal;
use serde_json::{Value, json};
use wellspring_testkit::FakeProvider;

use crate::kit::{Going, Home};
use crate::providers::{anthropic, anthropic_call};
use crate::who_may_run::{approve_with, asked, serve};

/// A command and its background processes end when the server is killed.
#[test]
fn a_command_ends_with_its_server() {
    let home = Home::with_files(&[("wellspring.toml", "")]);
    let pipe = home.work().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (server, address, _) = serve(&home);
    let run = asked(address, "");
    let command = "exec 3> pipe; (sleep 20; echo > finished) & echo begun >&3; sleep 20";
    approve_with(address, "", &run, &json!({ "command": command }));
    // Opens when the command has opened it, and ends when no process holds the other end.
    let mut pipe = std::fs::File::open(pipe).unwrap();
    let mut begun = [0; 6];
    pipe.read_exact(&mut begun).unwrap();
    assert_eq!(&begun, b"begun\n");
    server.signal(Signal::KILL);
    let mut rest = Vec::new();
    pipe.read_to_end(&mut rest).unwrap();
    assert!(!home.work().join("finished").exists(), "the command went on to its end");
}

/// The output of a command of a configured agent.
async fn output(sandbox: &str, command: &str) -> Value {
    let arguments = json!({ "command": command }).to_string();
    let answers = [anthropic_call("run_shell_command", &arguments), anthropic("Done.")];
    let fake = FakeProvider::start(answers).await.unwrap();
    let config = format!(
        "[providers.anthropic]\nbase_url = \"{}\"\n[agents.a]\nmodel = \"anthropic\"\n\
         tools = [\"run_shell_command\"]\nvariables = [\"TEAM\"]\n{sandbox}",
        fake.url(),
    );
    let home = Home::with_files(&[("wellspring.toml", &config)]);
    std::fs::create_dir(home.work().join("../shared")).unwrap();
    std::fs::write(home.work().join("../shared/words"), "shared\n").unwrap();
    let mut command = home.paced(0, &["run", "--yes", "Go"]);
    command.env("TEAM", "blue").env("OTHER", "red");
    let (status, _, stderr) = Going::start(command).end();
    assert_eq!(status.code(), Some(0), "{stderr}");
    let asked = fake.asked().pop().unwrap();
    let told = asked.body["messages"][2]["content"][0]["content"].clone();
    serde_json::from_str(told.as_str().unwrap()).unwrap()
}

/// Each line tries one thing and prints whether it was possible.
const TRIES: &str = r#"
can() { if "$@" > /dev/null 2>&1; then echo "yes $*"; else echo "no $*"; fi; }
can cat notes/one.txt
can touch mine
can ls ../data
can cat ../shared/words
can touch ../shared/mine
can touch ../mine
can mktemp
can kill -0 1
can grep -q root /etc/passwd
echo "$TEAM$OTHER"
exit 3
"#;

/// Whether the kernel supports sandboxes.
#[cfg(target_os = "linux")]
fn has_sandbox() -> bool {
    let tried = Home::new().output(&["launch", "--sandbox", "--", "/bin/true"]);
    let has = tried.status.success();
    if !has {
        println!("skipped: {}", String::from_utf8_lossy(&tried.stderr));
    }
    has
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_confines_commands() {
    if !has_sandbox() {
        return;
    }
    let free = output("", TRIES).await;
    let stdout = free["stdout"].as_str().unwrap();
    assert!(stdout.contains("yes touch ../mine\n"), "{stdout}");
    let table = "[agents.a.sandbox]\nread = [\"../shared\"]\n";
    let confined = output(table, TRIES).await;
    let expected = "yes cat notes/one.txt\nyes touch mine\nno ls ../data\n\
        yes cat ../shared/words\nno touch ../shared/mine\nno touch ../mine\nyes mktemp\n\
        no kill -0 1\nyes grep -q root /etc/passwd\nblue\n";
    assert_eq!(confined, json!({ "stdout": expected, "stderr": "", "exit_code": 3 }));
}

/// Without `network`, a command can reach neither the server that runs it nor any other.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_has_no_network_unless_it_is_allowed() {
    if !has_sandbox() {
        return;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let reach = format!(
        "if bash -c 'exec 3<> /dev/tcp/127.0.0.1/{port}' 2> /dev/null; then echo yes; else echo no; fi"
    );
    for (table, expected) in [
        ("", "yes\n"),
        ("[agents.a.sandbox]\n", "no\n"),
        ("[agents.a.sandbox]\nnetwork = true\n", "yes\n"),
    ] {
        assert_eq!(output(table, &reach).await["stdout"], expected, "{table}");
    }
}
