//! The client's resources: files, terminals, MCP servers.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use wellspring_core::{Approval, CancellationToken, Context, ToolKind};
use wellspring_engine::tools::function;
use wellspring_engine::{AgentDef, Policy, Rule};
use wellspring_mcp::{Loopback, run_at_once};
use wellspring_models::Say;

use crate::client::{Client, agent, runtime};

fn allowed(name: &str, says: impl IntoIterator<Item = Say>) -> AgentDef {
    let policy = Policy::default().rule(Rule::tool("*").decide(Approval::Allow));
    let mut def = AgentDef { policy, ..agent(name, says, []) };
    // On a busy machine, releasing a client's terminal may take a while.
    def.timeouts.cancel_grace = std::time::Duration::from_secs(60);
    def
}

/// An editor with one unsaved file and a terminal.
fn editor(
    asked: &Arc<Mutex<Vec<String>>>,
) -> impl FnMut(&str, &Value) -> Result<Value, Value> + Send + use<> {
    let asked = Arc::clone(asked);
    let mut file = "unsaved".to_owned();
    move |method, params| {
        asked.lock().unwrap().push(method.to_owned());
        match method {
            "fs/read_text_file" if params["path"] == "/srv/project/a.txt" => {
                Ok(json!({"content": file}))
            }
            "fs/read_text_file" => Err(json!({"code": -32002, "message": "no such file"})),
            "fs/write_text_file" => {
                file = params["content"].as_str().unwrap().to_owned();
                Ok(json!({}))
            }
            "terminal/create" => Ok(json!({"terminalId": "t1"})),
            "terminal/wait_for_exit" => Ok(json!({"exitCode": 3})),
            "terminal/output" => Ok(json!({"output": "hello\n", "truncated": false})),
            _ => Ok(json!({})),
        }
    }
}

fn everything() -> Value {
    json!({"fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true})
}

#[tokio::test]
async fn files_and_terminals_of_the_client() {
    let says = [
        Say::new().call("read_file", json!({"path": "a.txt", "offset": 2})),
        Say::new().call("read_file", json!({"path": "../../etc/passwd"})),
        Say::new().call("read_file", json!({"path": "b.txt"})),
        Say::new().call("write_file", json!({"path": "/srv/project/a.txt", "content": "saved"})),
        Say::new().call("run_shell_command", json!({"command": "echo hello; exit 3"})),
        Say::new().text("Done."),
    ];
    let runtime = runtime([allowed("a", says)]);
    let asked = Arc::default();
    let client = Client::ready(&runtime, "a", everything()).await;
    let mut client = client.answer(editor(&asked));
    let session = client.session().await;
    client.said();
    client.prompt(&session, "Work").await.unwrap();
    // A terminal is released only after the client was told to show it.
    let shown = client.heard.iter().position(|it| it.to_string().contains("\"type\":\"terminal\""));
    let released = client.heard.iter().position(|it| it["method"] == "terminal/release");
    assert!(shown.unwrap() < released.unwrap());
    // Tool updates and tool calls are independent streams, so only the order within each is fixed.
    let said = client.said();
    let (asked, told): (Vec<_>, Vec<_>) =
        said.lines().partition(|line| line.starts_with("fs/") || line.starts_with("terminal/"));
    insta::assert_snapshot!(format!("{}\n\n{}", asked.join("\n"), told.join("\n")));
}

/// Tools that can change things ask first; tools of capabilities that the client lacks do not
/// exist.
#[tokio::test]
async fn lent_tools_ask_and_are_lent_only_where_offered() {
    let run = Say::new().call("run_shell_command", json!({"command": "true"}));
    let runtime = runtime([agent("a", [run, Say::new().text("Done.")], [])]);
    let asked = Arc::default();
    let client = Client::ready(&runtime, "a", everything()).await;
    let mut client = client.answer(editor(&asked));
    let session = client.session().await;
    client.prompt(&session, "Run").await.unwrap();
    assert_eq!(*asked.lock().unwrap(), ["session/request_permission"]);

    let mut without = Client::ready(&runtime, "a", json!({})).await;
    let session = without.session().await;
    without.said();
    without.prompt(&session, "Run").await.unwrap();
    assert!(without.said().contains("there is no tool"), "the model asked for what is not there");
}

/// A command that is cancelled is killed, and its terminal is released.
#[tokio::test]
async fn a_cancelled_command_is_killed() {
    let run = Say::new().call("run_shell_command", json!({"command": "sleep 1000"}));
    let runtime = runtime([allowed("a", [run])]);
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut editor = editor(&asked);
    let client = Client::ready(&runtime, "a", everything()).await;
    let mut client = client.answer(move |method, params| match (editor(method, params), method) {
        (_, "terminal/wait_for_exit") => Ok(Value::Null),
        (answer, _) => answer,
    });
    let session = client.session().await;
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "Go"}]});
    let id = client.send("session/prompt", prompt).await;
    client.until(|it| it["method"] == "terminal/wait_for_exit").await;
    client.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(client.result(id).await.unwrap()["stopReason"], "cancelled");
    let asked = asked.lock().unwrap().clone();
    let want = ["create", "wait_for_exit", "kill", "output", "release"];
    assert_eq!(asked, want.map(|it| format!("terminal/{it}")));
}

#[tokio::test]
async fn mcp_servers_of_the_client() {
    let shout = function("shout", "Shouts.", |words: Words, _| async move {
        Ok::<_, wellspring_core::ToolError>(words.words.to_uppercase())
    });
    let tools = vec![Arc::new(shout.kind(ToolKind::Read)) as _];
    let handler = run_at_once(|_| Context::create("trace", CancellationToken::new()));
    let server = Loopback::start("loud", tools, handler).await.unwrap();
    let (name, value) = server.header();

    let says =
        [Say::new().call("loud__shout", json!({"words": "hello"})), Say::new().text("Done.")];
    let runtime = runtime([allowed("a", says)]);
    let mut client = Client::ready(&runtime, "a", json!({})).await;
    let servers = json!([
        {"type": "http", "name": "loud", "url": server.url(), "headers": [{"name": name, "value": value}]},
        {"name": "gone", "command": "/no/such/program", "args": [], "env": []},
    ]);
    let session = client.session_with(servers.clone()).await;
    client.said();
    client.prompt(&session, "Shout").await.unwrap();
    let said = client.said();
    assert!(said.contains("\"rawOutput\":\"HELLO\""), "{said}");
    // A missing server is reported once.
    assert_eq!(said.matches("/no/such/program").count(), 1, "{said}");

    // A client that shows notices gets a notice.
    let notices = json!({"session": {"notices": {}}});
    let mut client = Client::ready(&runtime, "a", notices).await;
    let session = client.session_with(servers).await;
    let notice = client.until(|it| it["params"]["update"]["sessionUpdate"] == "notice").await;
    let told = notice["params"]["update"]["description"].as_str().unwrap();
    assert!(told.contains("/no/such/program"), "{told}");
    client.said();
    client.prompt(&session, "Shout").await.unwrap();
    assert!(!client.said().contains("/no/such/program"));
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Words {
    words: String,
}

/// A sub-agent can use the client's resources too.
#[tokio::test]
async fn agents_that_are_called_are_lent_the_same() {
    let call = json!({"agentId": "reader", "input": "Read it"});
    let asker = AgentDef {
        sub_agents: vec!["reader".into()],
        tools: vec![Arc::new(wellspring_engine::tools::call_agent([("reader", "reads")]))],
        ..allowed("asker", [Say::new().call("call-agent", call), Say::new().text("Done.")])
    };
    let reads =
        [Say::new().call("read_file", json!({"path": "a.txt"})), Say::new().text("It says so.")];
    let runtime = runtime([asker, allowed("reader", reads)]);
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let client = Client::ready(&runtime, "asker", everything()).await;
    let mut client = client.answer(editor(&asked));
    let session = client.session().await;
    client.prompt(&session, "Have it read").await.unwrap();
    assert_eq!(*asked.lock().unwrap(), ["fs/read_text_file"]);
    assert_eq!(client.words(), "Done.");
}

/// Runs a shell command in a client's terminal whose requests are answered from a list. Returns the
/// result for the model.
async fn shell(arguments: Value, mut answers: impl FnMut(&str) -> Value + Send + 'static) -> Value {
    let says = [Say::new().call("run_shell_command", arguments), Say::new().text("Done.")];
    let runtime = runtime([allowed("a", says)]);
    let client = Client::ready(&runtime, "a", everything()).await;
    let mut client = client.answer(move |method, _| Ok(answers(method)));
    let session = client.session().await;
    client.prompt(&session, "go").await.unwrap();
    let ended = |it: &&Value| {
        ["completed", "failed"].iter().any(|status| it["params"]["update"]["status"] == **status)
    };
    client.heard.iter().find(ended).unwrap()["params"]["update"]["rawOutput"].clone()
}

/// A client that keeps more of a command's output than was requested.
#[tokio::test]
async fn output_of_a_command_is_told_up_to_a_maximum() {
    let max = 64 * 1024;
    let written = format!("{}{}", "a".repeat(max), "b".repeat(max));
    let told = shell(json!({"command": "x"}), move |method| match method {
        "terminal/create" => json!({"terminalId": "t1"}),
        "terminal/wait_for_exit" => json!({"exitCode": 0}),
        "terminal/output" => json!({"output": written, "truncated": false}),
        _ => json!({}),
    })
    .await;
    assert_eq!(told, json!({"stdout": "b".repeat(max), "exit_code": 0, "truncated": true}));
}

/// The time limit has a maximum, whatever the model requests. Time is paused in this test.
#[tokio::test(start_paused = true)]
async fn a_command_takes_an_hour_at_most() {
    let arguments = json!({"command": "sleep infinity", "timeout": 1_000_000});
    let told = shell(arguments, |method| match method {
        "terminal/create" => json!({"terminalId": "t1"}),
        // It never exits.
        "terminal/wait_for_exit" => Value::Null,
        "terminal/output" => json!({"output": "so far", "truncated": false}),
        _ => json!({}),
    })
    .await;
    assert_eq!(told, "killed after 3600 s; so far it wrote so far");
}
