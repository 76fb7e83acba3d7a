//! Third-party agents: the examples of the protocol's own SDK, over stdio, HTTP and WebSocket. Also
//! the published schema of a client's messages.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use wellspring_acp::client::{AcpAgent, AcpConfig};
use wellspring_core::{Answer, CancelWhen, Event, Outcome, RunRequest};
use wellspring_engine::{Runtime, StartRun};

use super::kit::{config, driven, finished, outcome, play, runtime, schema, shown, until, words};

/// The peers' directory, if they are enabled.
fn peers() -> Option<PathBuf> {
    let wanted = std::env::var_os("WELLSPRING_PEER_ACP").is_some();
    wanted.then(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/peer/node_modules"))
}

fn sdk(path: &str) -> Option<String> {
    let file = peers()?.join("@agentclientprotocol/sdk").join(path);
    Some(file.to_str().unwrap().to_owned())
}

fn example(path: String) -> Runtime {
    let config = AcpConfig::command(["node", &path]).cwd(std::env::temp_dir());
    let runtime = runtime();
    runtime.register(driven(AcpAgent::new("example", config)));
    runtime
}

async fn answered(runtime: &Runtime, answer: Answer) -> String {
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    let asked = until(runtime, run, |event| matches!(event, Event::QuestionAsked(_))).await;
    let Event::QuestionAsked(question) = &asked.last().unwrap().event else { unreachable!() };
    runtime.local().answer(run, question.question, answer).await.unwrap();
    shown(&finished(runtime, run).await)
}

#[tokio::test]
async fn the_example_agent_is_driven_and_permitted() {
    let Some(path) = sdk("dist/examples/agent.js") else { return };
    insta::assert_snapshot!(answered(&example(path), Answer::yes()).await, @r##"
    part 0 started text
    part 0 delta "I'll help you with that. Let me start by reading some files to understand the current situation."
    part 0 finished
    part 1 started call read on agent
    part 1 annotated {"provider_id":"call_1"}
    part 1 delta "{\"path\":\"/project/README.md\"}"
    part 1 finished
    tool 1 started parallel
    tool 1 updated {"locations":[{"path":"/project/README.md"}]}
    tool 1 finished ok {"content":"# My Project\n\nThis is a sample project..."} [{"content":{"text":"# My Project\n\nThis is a sample project..."}}]
    part 2 started text
    part 2 delta " Now I understand the project structure. I need to make some changes to improve it."
    part 2 finished
    part 3 started call edit on agent
    part 3 annotated {"provider_id":"call_2"}
    extended acp session/request_permission {"toolCall":{"toolCallId":"call_2"},"options":[{"kind":"allow_once","name":"Allow this change","optionId":"allow"},{"kind":"reject_once","name":"Skip this change","optionId":"reject"}]}
    part 3 delta "{\"path\":\"/home/user/project/config.json\",\"content\":\"{\\\"database\\\": {\\\"host\\\": \\\"new-host\\\"}}\"}"
    part 3 finished
    question 0 asked approve "Allow Modifying critical configuration file?"
    question 0 answered {"approve":{"scope":"once"}}
    tool 3 started parallel
    tool 3 updated {"locations":[{"path":"/home/user/project/config.json"}]}
    tool 3 finished ok {"success":true,"message":"Configuration updated"}
    part 4 started text
    part 4 delta " Perfect! I've successfully updated the configuration. The changes have been applied."
    part 4 finished
    run finished completed end_turn
    "##);
}

#[tokio::test]
async fn the_example_agent_is_refused() {
    let Some(path) = sdk("dist/examples/agent.js") else { return };
    let said = answered(&example(path), Answer::no("no")).await;
    assert!(said.contains("I understand you prefer not to make that change."), "{said}");
    assert!(said.contains("tool 3 finished denied"), "{said}");
}

#[tokio::test]
async fn the_example_agent_is_cancelled() {
    let Some(path) = sdk("dist/examples/agent.js") else { return };
    let runtime = example(path);
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    until(&runtime, run, |event| matches!(event, Event::PartDelta { .. })).await;
    runtime.local().cancel(run, CancelWhen::Now, None).await.unwrap();
    let ended = outcome(&finished(&runtime, run).await);
    assert!(matches!(ended, Outcome::Cancelled { .. }), "{ended}");
}

/// The example server, killed on drop.
struct Server(Child, u16);

impl Server {
    fn start(path: String) -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut command = Command::new("node");
        command.arg(path).env("PORT", port.to_string()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        said.next().unwrap().unwrap();
        Self(child, port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_example_server_is_reached_over_http_and_websocket() {
    let Some(path) = sdk("dist/examples/http-server.js") else { return };
    let server = Server::start(path);
    for scheme in ["http", "ws"] {
        let url = format!("{scheme}://127.0.0.1:{}/acp", server.1);
        let mut config: AcpConfig = url.parse().unwrap();
        config.headers.insert("authorization".into(), "Bearer example-token".into());
        let config = config.cwd(std::env::temp_dir());
        let records = play(driven(AcpAgent::new("example", config)), RunRequest::text("go")).await;
        let said = words(&records);
        assert!(
            said.starts_with("Hello from the ACP HTTP/WebSocket example server"),
            "{}",
            shown(&records)
        );
        assert_eq!(outcome(&records), Outcome::Completed { stop: wellspring_core::Stop::EndTurn });
    }
    let url = format!("http://127.0.0.1:{}/nowhere", server.1);
    let records =
        play(driven(AcpAgent::new("example", url.parse().unwrap())), RunRequest::text("go")).await;
    let Outcome::Failed { message, .. } = outcome(&records) else { panic!() };
    assert!(message.contains("it answered with 404 Not Found"), "{message}");
}

/// Validates every message to the scripted agent against its type in the published schema, and
/// returns the types. Responses answer the script's requests, in its order.
fn hold(
    record: &std::path::Path,
    mut answers: impl Iterator<Item = &'static str>,
) -> Vec<&'static str> {
    let Some(path) = sdk("schema/schema.json") else { return Vec::new() };
    let published: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let heard = std::fs::read_to_string(record).unwrap();
    let mut checked = Vec::new();
    for line in heard.lines() {
        let message: Value = serde_json::from_str(line).unwrap();
        let (name, value) = match message["method"].as_str() {
            Some("initialize") => ("InitializeRequest", &message["params"]),
            Some("session/new") => ("NewSessionRequest", &message["params"]),
            Some("session/load") => ("LoadSessionRequest", &message["params"]),
            Some("session/resume") => ("ResumeSessionRequest", &message["params"]),
            Some("session/close") => ("CloseSessionRequest", &message["params"]),
            Some("session/set_mode") => ("SetSessionModeRequest", &message["params"]),
            Some("session/prompt") => ("PromptRequest", &message["params"]),
            Some("session/cancel") => ("CancelNotification", &message["params"]),
            Some(other) => panic!("{other}"),
            None => (answers.next().unwrap(), &message["result"]),
        };
        let mut schema = published["$defs"][name].clone();
        schema["$defs"] = published["$defs"].clone();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let errors: Vec<String> = validator.iter_errors(value).map(|it| it.to_string()).collect();
        assert_eq!(errors, [""; 0], "{name}: {line}");
        checked.push(name);
    }
    assert_eq!(answers.next(), None, "{checked:?}");
    checked
}

#[tokio::test]
async fn all_that_we_say_fits_the_published_schema() {
    if peers().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("heard");
    let ask =
        |method: &str, params: Value| json!({"request": {"method": method, "params": params}});
    let options = json!([{"optionId": "y", "name": "y", "kind": "allow_once"}]);
    let script = json!({
        "record": record,
        "capabilities": {"mcpCapabilities": {"http": true}, "loadSession": true},
        "prompts": [[
            ask("fs/write_text_file", json!({"path": "a", "content": "a"})),
            ask("fs/read_text_file", json!({"path": "a"})),
            {"terminal": {"command": "sh", "args": ["-c", "kill -9 $$"]}},
            ask("session/request_permission", json!({"toolCall": {"toolCallId": "c"}, "options": options})),
            ask("elicitation/create", json!({"mode": "url", "message": "Look", "url": "https://example.com"})),
            {"call": {"name": "return_result", "arguments": {"n": 1}}},
        ]],
    });
    let mut config = config(&script).cwd(folder.path());
    config.mode = Some("code".into());
    let mut def = driven(AcpAgent::new("scripted", config));
    let rule = wellspring_engine::Rule::tool("*").decide(wellspring_core::Approval::Allow);
    def.policy = wellspring_engine::Policy::default().rule(rule);
    let request = RunRequest { result_schema: Some(schema()), ..RunRequest::text("go") };
    let records = play(def, request).await;
    assert!(shown(&records).contains("result {\"n\":1}"), "{}", shown(&records));
    let answers = [
        "WriteTextFileResponse",
        "ReadTextFileResponse",
        "CreateTerminalResponse",
        "WaitForTerminalExitResponse",
        "TerminalOutputResponse",
        "ReleaseTerminalResponse",
        "RequestPermissionResponse",
        "CreateElicitationResponse",
    ];
    hold(&record, answers.into_iter());
}

/// A session that continues after its agent has died, is cancelled, and is closed because the tools
/// changed.
#[tokio::test]
async fn all_that_we_say_of_earlier_sessions_fits_the_published_schema() {
    if peers().is_none() {
        return;
    }
    for (capability, again) in [
        (json!({"loadSession": true, "sessionCapabilities": {"close": {}}}), "LoadSessionRequest"),
        (json!({"sessionCapabilities": {"resume": {}, "close": {}}}), "ResumeSessionRequest"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("heard");
        let mut capabilities = capability;
        capabilities["mcpCapabilities"] = json!({"http": true});
        let script = json!({"record": record, "capabilities": capabilities, "prompts": [
            [{"text": "Hi."}], [{"text": "Hm."}, {"hang": 1}],
        ]});
        let runtime = runtime();
        runtime.register(driven(AcpAgent::new("scripted", config(&script).cwd(folder.path()))));
        let first = runtime.local().start(StartRun::text("agent", "one")).await.unwrap().run;
        let records = finished(&runtime, first).await;
        let Event::RunStarted(started) = &records[0].event else { unreachable!() };
        let after = |run, request| StartRun {
            thread: Some(started.thread),
            after: Some(run),
            ..StartRun::new("agent", request)
        };
        // Cancelled in the session that was idle.
        let second =
            runtime.local().start(after(first, RunRequest::text("two"))).await.unwrap().run;
        until(&runtime, second, |event| matches!(event, Event::PartDelta { .. })).await;
        runtime.local().cancel(second, CancelWhen::Now, None).await.unwrap();
        finished(&runtime, second).await;
        // The tools changed: the session is closed and continued with the new ones. Its first
        // prompt there ends without a result, so the agent is reminded, and then cancelled.
        let request = RunRequest { result_schema: Some(schema()), ..RunRequest::text("three") };
        let third = runtime.local().start(after(second, request)).await.unwrap().run;
        until(
            &runtime,
            third,
            |event| matches!(event, Event::PartDelta { chunk, .. } if &**chunk == "Hm."),
        )
        .await;
        runtime.local().cancel(third, CancelWhen::Now, None).await.unwrap();
        finished(&runtime, third).await;
        let mut checked = hold(&record, std::iter::empty());
        checked.retain(|name| *name != "PromptRequest");
        checked.sort_unstable();
        let mut want = vec![
            "CancelNotification",
            "CancelNotification",
            "CloseSessionRequest",
            "InitializeRequest",
            again,
            "NewSessionRequest",
        ];
        want.sort_unstable();
        assert_eq!(checked, want);
    }
}
