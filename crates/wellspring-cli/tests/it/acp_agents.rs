//! An ACP agent in the configuration, driven by the real program: after a crash, over the stdio
//! bridge, and behind our own ACP. The agent is this test binary, started again.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};
use wellspring_core::{Event, Record};
use wellspring_testkit::acp_agent::SCRIPT;

use crate::ag_ui_agents::{Server, address};
use crate::kit::{Going, Home, install};

/// Not a test: the agent that the tests drive.
#[test]
fn scripted_agent() {
    if std::env::var_os(SCRIPT).is_some() {
        wellspring_testkit::acp_agent::play();
        std::process::exit(0);
    }
}

/// A configuration with one agent, which follows a script.
pub(crate) fn config(script: &Value, more: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    let agent = format!("{program} --exact acp_agents::scripted_agent --nocapture --quiet");
    // A JSON string is also a TOML string.
    let (agent, script) = (json!(agent), json!(script.to_string()));
    format!(
        "default_agent = \"other\"\n[agents.other]\n{more}\n\
         acp = {{ agent = {agent}, env = {{ {SCRIPT} = {script} }} }}\n"
    )
}

fn home(script: &Value, more: &str) -> Home {
    Home::with_files(&[("wellspring.toml", &config(script, more))])
}

/// The run as lines, without the parts that differ between runs.
fn shown(home: &Home, records: &[Record]) -> String {
    let told = records.iter().skip(1).map(|record| {
        if let Event::Attached { origin, .. } = &record.event {
            format!("attached to {origin}\n")
        } else if let Event::RunAdopted { .. } = &record.event {
            "run adopted\n".to_owned()
        } else {
            format!("{}\n", record.event)
        }
    });
    let lines: String = told.collect();
    let process = regex::Regex::new(r"session-\d+-").unwrap();
    let lines = process.replace_all(&lines, "session-PID-");
    lines.replace(&home.work().canonicalize().unwrap().display().to_string(), "HERE")
}

fn sessions(records: &[Record]) -> Vec<String> {
    let handle = |record: &Record| {
        let Event::Attached { handle, .. } = &record.event else { return None };
        Some(handle["session"].to_string())
    };
    records.iter().filter_map(handle).collect()
}

/// Kills the program in the middle of a prompt, and resumes the run with an agent that then
/// follows another script.
fn crash(capabilities: &Value) -> (Home, i32, Vec<Record>) {
    let call = json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "Count",
        "kind": "think", "status": "in_progress"});
    let steps = json!([{"text": "One."}, {"update": call}, {"hang": 1}]);
    let first = json!({"capabilities": capabilities, "prompts": [steps]});
    let home = home(&first, "");
    let mut run = Going::start(home.paced(0, &["run", "--events", "record", "Count"]));
    run.wait_for("tool_started");
    run.signal(Signal::KILL);
    let (_, seen, _) = run.end();
    let said_before = json!({"sessionUpdate": "agent_message_chunk",
        "content": {"type": "text", "text": "said before"}});
    let second =
        json!({"capabilities": capabilities, "replay": [said_before], "prompts": [[{"tell": 1}]]});
    std::fs::write(home.work().join("wellspring.toml"), config(&second, "")).unwrap();
    let output = home.output(&["runs", "resume", "last", "--yes", "--events", "record"]);
    let (records, outline) = home.records("last");
    assert!(outline.finished);
    let seen: Vec<Record> = seen.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(seen, records[..seen.len()], "what anyone saw is still there");
    (home, output.status.code().unwrap(), records)
}

#[test]
fn a_killed_run_goes_on_in_the_agents_session() {
    let mut shows = Vec::new();
    for (capabilities, how) in [
        (json!({"sessionCapabilities": {"resume": {}}}), "resumed"),
        (json!({"loadSession": true}), "loaded"),
    ] {
        let (home, exit, records) = crash(&capabilities);
        assert_eq!(exit, 0);
        let sessions = sessions(&records);
        assert_eq!(sessions.len(), 2);
        assert_eq!(sessions[0], sessions[1], "the same session, in another process");
        let shown = shown(&home, &records);
        shows.push(shown.replace(&format!("\"note\":\"{how}\""), "\"note\":\"HOW\""));
    }
    assert_eq!(shows[0], shows[1]);
    insta::assert_snapshot!(shows[0], @r#"
    attached to other
    part 0 started text
    part 0 delta "One."
    part 0 finished
    part 1 started call think on agent
    part 1 annotated {"provider_id":"c"}
    part 1 delta "{}"
    part 1 finished
    tool 1 started parallel
    run adopted
    tool 1 finished interrupted "interrupted: its process ended while the tool ran; it may have taken effect"
    attached to other
    extended acp session {"session":"session-PID-1","note":"HOW"}
    part 2 started text
    part 2 delta "[{\"type\":\"text\",\"text\":\"The connection was lost while you worked on the last request. Look how far you got, and go on with it from there.\"}]"
    part 2 finished
    run finished completed end_turn
    "#);
}

#[test]
fn a_killed_run_that_the_agent_cannot_go_on_with_fails_honestly() {
    let (home, exit, records) = crash(&json!({}));
    assert_eq!(exit, 1);
    insta::assert_snapshot!(shown(&home, &records), @r#"
    attached to other
    part 0 started text
    part 0 delta "One."
    part 0 finished
    part 1 started call think on agent
    part 1 annotated {"provider_id":"c"}
    part 1 delta "{}"
    part 1 finished
    tool 1 started parallel
    run adopted
    tool 1 finished interrupted "interrupted: its process ended while the tool ran; it may have taken effect"
    run finished failed lost: other: the agent's work ended with the process that drove it, and the agent cannot continue a session; ask again
    "#);
}

/// Input is added while the agent waits for a permission; then both processes are killed. The next
/// agent process continues the same session, and each word and the added input appear once.
#[test]
fn a_steered_run_goes_on_after_both_processes_were_killed() {
    let option = |id: &str, kind: &str| json!({"optionId": id, "name": id, "kind": kind});
    let params = json!({
        "toolCall": {"toolCallId": "c", "title": "Cut the cloth", "kind": "edit", "rawInput": {}},
        "options": [option("yes", "allow_once"), option("no", "reject_once")],
    });
    let ask = json!({"request": {"method": "session/request_permission", "params": params}});
    let capabilities = json!({"sessionCapabilities": {"resume": {}}});
    let script =
        |steps: Value| config(&json!({"capabilities": capabilities, "prompts": [steps]}), "");
    let home = Home::with_files(&[(
        "wellspring.toml",
        &script(json!([{"text": "A coat, of course."}, ask])),
    )]);
    let at = address();
    let server = Server::start(&home, at);
    let run = server.post("/v1/runs", &json!({"agent": "other", "input": "A coat."}));
    let run = run["run"].as_str().unwrap().to_owned();
    server.wait_for(&run, "question_asked", 1);
    server.post(&format!("/v1/runs/{run}/input"), &json!({"content": "With a hat."}));
    server.wait_for(&run, "input_accepted", 1);
    server.kill();

    let tells = script(json!([{"tell": 1}]));
    std::fs::write(home.work().join("wellspring.toml"), tells).unwrap();
    let server = Server::start(&home, at);
    server.wait_for(&run, "run_finished", 1);
    server.kill();
    let (records, _) = home.records(&run);
    let sessions = sessions(&records);
    assert_eq!(sessions[0], sessions[1], "the same session, in another process");
    insta::assert_snapshot!(shown(&home, &records), @r#"
    attached to other
    part 0 started text
    part 0 delta "A coat, of course."
    part 0 finished
    part 1 started call edit on agent
    part 1 annotated {"provider_id":"c"}
    extended acp session/request_permission {"toolCall":{"toolCallId":"c"},"options":[{"optionId":"yes","name":"yes","kind":"allow_once"},{"optionId":"no","name":"no","kind":"reject_once"}]}
    part 1 delta "{}"
    part 1 finished
    question 0 asked approve "Allow Cut the cloth?"
    input 1 accepted [{"text":"With a hat."}]
    run adopted
    question 0 answered withdrawn
    tool 1 finished interrupted "not run: its process ended first"
    attached to other
    extended acp session {"session":"session-PID-1","note":"resumed"}
    part 2 started text
    part 2 delta "[{\"type\":\"text\",\"text\":\"The connection was lost while you worked on the last request. Look how far you got, and go on with it from there.\"}]"
    part 2 finished
    attached to other
    input 1 applied
    part 3 started text
    part 3 delta "[{\"type\":\"text\",\"text\":\"With a hat.\"}]"
    part 3 finished
    run finished completed end_turn
    "#);
}

/// An installed agent can be used by its name, without a configuration.
#[test]
fn an_installed_agent_is_asked_by_its_name() {
    let home = Home::new();
    let run = |path: &str| {
        let mut command = home.paced(0, &["run", "--agent", "claude", "Hi"]);
        command.env("PATH", path).output().unwrap()
    };
    let nowhere = run("/nowhere");
    assert_eq!(nowhere.status.code(), Some(2));
    assert_eq!(
        String::from_utf8(nowhere.stderr).unwrap(),
        "wellspring: there is no agent \"claude\": claude-agent-acp is not installed; npm install -g \
         @agentclientprotocol/claude-agent-acp\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("claude-agent-acp");
    let this = std::env::current_exe().unwrap();
    let this = format!("{} --exact acp_agents::scripted_agent --nocapture --quiet", this.display());
    let says = json!({"prompts": [[{"text": "I am here."}]]});
    install(&program, &format!("#!/bin/sh\nexport {SCRIPT}='{says}'\nexec {this}\n"));
    let asked = run(&format!("{}:/usr/bin:/bin", folder.path().display()));
    assert_eq!(asked.status.code(), Some(0), "{asked:?}");
    assert_eq!(String::from_utf8(asked.stdout).unwrap(), "I am here.\n");
}

/// For an agent that only supports MCP servers over stdio, the program itself is the bridge to our
/// tools.
#[test]
fn our_tools_reach_an_agent_by_the_real_bridge() {
    let call = json!({"call": {"name": "clock", "arguments": {}}});
    let script = json!({"capabilities": {}, "prompts": [[call, {"text": " Thanks."}]]});
    let home = home(&script, "tools = [\"clock\"]");
    let output = home.output(&["run", "What time is it?"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let (records, _) = home.records("last");
    let shown = shown(&home, &records);
    assert!(shown.contains("part 0 started call clock"), "{shown}");
    assert!(shown.contains("tool 0 finished ok"), "{shown}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("Thanks."), "{shown}");
}

/// An ACP agent behind our own ACP surface: the client sees its updates and serves its requests.
#[test]
fn an_agent_behind_our_acp() {
    let ask =
        |method: &str, params: Value| json!({"request": {"method": method, "params": params}});
    let option =
        |id: &str, name: &str, kind: &str| json!({"optionId": id, "name": name, "kind": kind});
    let home = home(
        &json!({"prompts": [[
            {"thought": "Hm."},
            {"update": {"sessionUpdate": "tool_call", "toolCallId": "e", "title": "Edit", "kind": "edit",
                "status": "pending", "rawInput": {"path": "a"}}},
            ask("session/request_permission", json!({"toolCall": {"toolCallId": "e"}, "options": [
                option("n", "Rather not", "reject_once"), option("y", "Go ahead", "allow_once")]})),
            ask("fs/read_text_file", json!({"path": "notes/one.txt"})),
            {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "e", "status": "completed",
                "content": [{"type": "diff", "path": "/a", "oldText": "old", "newText": "new"}]}},
            {"text": "Done."},
        ]]}),
        "",
    );
    let mut command = home.paced(0, &["acp", "--agent", "other"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said = Vec::new();
    let mut call = |id: u32, method: &str, params: Value| {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(input, "{request}").unwrap();
        loop {
            let message: Value = serde_json::from_str(&output.next().unwrap().unwrap()).unwrap();
            let answer = match message["method"].as_str() {
                None => return message["result"].clone(),
                Some("session/request_permission") => {
                    json!({"outcome": {"outcome": "selected", "optionId": "y"}})
                }
                Some("fs/read_text_file") => json!({"content": "unsaved"}),
                Some(_) => Value::Null,
            };
            let shown = match message["params"].get("update") {
                Some(update) => update.to_string(),
                None => format!("{} {}", message["method"], message["params"]),
            };
            said.push(shown);
            if let Some(id) = message.get("id") {
                let answer = json!({"jsonrpc": "2.0", "id": id, "result": answer});
                writeln!(input, "{answer}").unwrap();
            }
        }
    };
    let offered = json!({"fs": {"readTextFile": true}});
    call(1, "initialize", json!({"protocolVersion": 1, "clientCapabilities": offered}));
    let opened = call(2, "session/new", json!({"cwd": home.work(), "mcpServers": []}));
    let session = opened["sessionId"].as_str().unwrap();
    let prompt = json!([{"type": "text", "text": "Edit it"}]);
    let stopped = call(3, "session/prompt", json!({"sessionId": session, "prompt": prompt}));
    assert_eq!(stopped, json!({"stopReason": "end_turn"}));
    drop(input);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let ids = regex::Regex::new("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").unwrap();
    let times = regex::Regex::new(r"20\d\d-\d\d-\d\dT[0-9:.]+Z").unwrap();
    let all = said.join("\n").replace(home.work().to_str().unwrap(), "HERE");
    let all = times.replace_all(&ids.replace_all(&all, "ID"), "TIME").into_owned();
    // The agent does not wait until the client has its updates, so each side has its own order.
    let told = all.lines().filter(|line| !line.contains("available_commands"));
    let (asked, told): (Vec<&str>, Vec<&str>) = told.partition(|line| line.starts_with("\"fs/"));
    insta::assert_snapshot!([asked, told].concat().join("\n"), @r#"
    "fs/read_text_file" {"path":"HERE/notes/one.txt","sessionId":"ID"}
    {"sessionUpdate":"session_info_update","title":"Edit it","updatedAt":"TIME"}
    {"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"Hm."},"messageId":"ID-0"}
    {"sessionUpdate":"tool_call","toolCallId":"ID-1","title":"Edit","name":"edit","kind":"edit","status":"pending"}
    {"sessionUpdate":"tool_call_update","toolCallId":"ID-1","rawInput":{"path":"a"}}
    "session/request_permission" {"sessionId":"ID","toolCall":{"toolCallId":"ID-1","status":"pending","title":"Edit","name":"edit","kind":"edit","rawInput":{"path":"a"}},"options":[{"optionId":"n","name":"Rather not","kind":"reject_once"},{"optionId":"y","name":"Go ahead","kind":"allow_once"}]}
    {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"{\"outcome\":{\"outcome\":\"selected\",\"optionId\":\"y\"}}"},"messageId":"ID-2"}
    {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"{\"content\":\"unsaved\"}"},"messageId":"ID-2"}
    {"sessionUpdate":"tool_call_update","toolCallId":"ID-1","status":"in_progress"}
    {"sessionUpdate":"tool_call_update","toolCallId":"ID-1","status":"completed","content":[{"type":"diff","path":"/a","newText":"new","oldText":"old"}]}
    {"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Done."},"messageId":"ID-2"}
    "#);
}
