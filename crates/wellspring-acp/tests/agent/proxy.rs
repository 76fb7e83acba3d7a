//! A proxied ACP agent: a real process that follows a script, and a client that sees all of it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use wellspring_acp::client::{AcpAgent, AcpConfig};
use wellspring_core::{CancellationToken, Context};
use wellspring_engine::tools::function;
use wellspring_engine::{AgentDef, Policy, Rule, Runtime};
use wellspring_mcp::{Loopback, run_at_once};
use wellspring_testkit::acp_agent::SCRIPT;

use crate::client::{Client, plain, runtime};
use crate::schema::check_asked;

/// A runtime whose agent follows a script, in a process of its own.
pub(crate) fn behind(script: &Value) -> Runtime {
    let program = std::env::current_exe().unwrap();
    let program = program.to_str().unwrap();
    let config =
        AcpConfig::command([program, "--exact", "scripted_agent", "--nocapture", "--quiet"])
            .env(SCRIPT, script.to_string());
    let agent = AcpAgent::new("behind", config);
    // The client's files and terminals are allowed; the agent's own requests are questions.
    let policy =
        Policy::default().rule(Rule::tool("loud__*").decide(wellspring_core::Approval::Allow));
    runtime([AgentDef { policy, ..AgentDef::remote("behind", Arc::new(agent)) }])
}

struct Project(tempfile::TempDir);

impl Project {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> PathBuf {
        self.0.path().canonicalize().unwrap()
    }

    fn path(&self, name: &str) -> String {
        self.root().join(name).display().to_string()
    }

    /// A text without the parts that differ between runs.
    fn plain(&self, text: &str) -> String {
        let process = regex::Regex::new(r"session-\d+-").unwrap();
        let text = text.replace(&self.root().display().to_string(), "HERE");
        plain(&process.replace_all(&text, "session-PID-"))
    }
}

async fn open(client: &mut Client, cwd: &Path, servers: Value) -> String {
    let params = json!({"cwd": cwd, "mcpServers": servers});
    let opened = client.call("session/new", params).await.unwrap();
    heard_commands(client).await;
    client.said();
    opened["sessionId"].as_str().unwrap().to_owned()
}

async fn heard_commands(client: &mut Client) {
    client.until(|it| it["params"]["update"]["sessionUpdate"] == "available_commands_update").await;
}

/// What an agent offers: two modes and an option.
fn offers() -> Value {
    json!({
        "modes": {"currentModeId": "code", "availableModes": [
            {"id": "code", "name": "Code"}, {"id": "ask", "name": "Ask", "description": "Only asks"}]},
        "configOptions": [{"id": "effort", "name": "Effort", "type": "select", "currentValue": "low",
            "options": [{"value": "low", "name": "Low"}, {"value": "high", "name": "High"}]}],
    })
}

/// The requests to the agent, one line each.
pub(crate) fn asked_of(record: &str) -> Vec<String> {
    let heard = std::fs::read_to_string(record).unwrap();
    let asked = heard.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).unwrap();
        check_asked(&message);
        let method = message["method"].as_str()?;
        Some(format!("{method} {}", message["params"]))
    });
    asked.collect()
}

/// An editor with an unsaved file, a terminal, forms, and a user who picks the second option.
fn editor() -> impl FnMut(&str, &Value) -> Result<Value, Value> + Send {
    |method, params| match method {
        "fs/read_text_file" => Ok(json!({"content": "unsaved"})),
        "terminal/create" => Ok(json!({"terminalId": "t1"})),
        "terminal/wait_for_exit" => Ok(json!({"exitCode": 3})),
        "terminal/output" => Ok(json!({"output": "hello\n", "truncated": false})),
        "session/request_permission" => {
            let option = &params["options"][1]["optionId"];
            Ok(json!({"outcome": {"outcome": "selected", "optionId": option}}))
        }
        "elicitation/create" => {
            Ok(json!({"action": "accept", "content": {"name": "Ada", "age": 36}}))
        }
        _ => Ok(json!({})),
    }
}

fn everything() -> Value {
    json!({
        "fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true,
        "elicitation": {"form": {}}, "session": {"notices": {}, "compaction": {}},
    })
}

#[tokio::test]
async fn everything_is_kept() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Words {
        words: String,
    }
    let shout = function("shout", "Shouts.", |said: Words, _| async move {
        Ok::<_, wellspring_core::ToolError>(said.words.to_uppercase())
    });
    let handler = run_at_once(|_| Context::create("trace", CancellationToken::new()));
    let server = Loopback::start("loud", vec![Arc::new(shout) as _], handler).await.unwrap();
    let (name, value) = server.header();
    let servers = json!([{"type": "http", "name": "loud", "url": server.url(),
        "headers": [{"name": name, "value": value}]}]);

    let project = Project::new();
    let record = project.path("heard");
    let ask =
        |method: &str, params: Value| json!({"request": {"method": method, "params": params}});
    let update = |name: &str, mut update: Value| {
        update["sessionUpdate"] = name.into();
        json!({"update": update})
    };
    let option =
        |id: &str, name: &str, kind: &str| json!({"optionId": id, "name": name, "kind": kind});
    let form = json!({"type": "object", "required": ["name"],
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}});
    let runtime = behind(&json!({
        "record": record,
        "session": offers(),
        "prompts": [[
            {"call": {"name": "loud__shout", "arguments": {"words": "hello"}}},
            update("available_commands_update", json!({"availableCommands": [{"name": "compact", "description": "Theirs"}]})),
            {"thought": "Hm."},
            update("agent_message_chunk", json!({"content": {"type": "text", "text": "I edit."}, "_meta": {"m": 1}})),
            update("plan", json!({"_meta": {"m": 2}, "entries": [{"content": "edit", "priority": "high", "status": "in_progress"}]})),
            update("tool_call", json!({"toolCallId": "e", "title": "Edit a.txt", "kind": "edit", "status": "pending",
                "rawInput": {"path": "a.txt"}, "locations": [{"path": project.path("a.txt"), "line": 3}]})),
            ask("session/request_permission", json!({"toolCall": {"toolCallId": "e"}, "options": [
                option("1", "No", "reject_once"), option("2", "Yes, and always in `src`", "allow_always"),
                option("3", "Yes", "allow_once"), option("4", "Never", "reject_always")]})),
            update("tool_call", json!({"toolCallId": "d", "title": "Delete", "kind": "delete", "_meta": {"m": 3}})),
            ask("session/request_permission", json!({"_meta": {"m": 4}, "more": 1, "toolCall": {"toolCallId": "d"}, "options": [
                option("1", "No", "reject_once"), option("2", "Never", "reject_always"),
                option("3", "Perhaps", "allow_perhaps"), option("4", "Yes", "allow_once")]})),
            update("tool_call_update", json!({"toolCallId": "d", "status": "failed", "_meta": {"m": 5}})),
            ask("fs/read_text_file", json!({"path": project.path("a.txt"), "line": 2})),
            ask("fs/write_text_file", json!({"path": project.path("a.txt"), "content": "new"})),
            ask("fs/read_text_file", json!({"path": "/etc/passwd"})),
            update("tool_call_update", json!({"toolCallId": "e", "status": "completed", "rawOutput": {"lines": 1},
                "content": [{"type": "diff", "path": project.path("a.txt"), "oldText": "old", "newText": "new"}]})),
            {"terminal": {"command": "make", "args": ["test"]}},
            ask("elicitation/create", json!({"mode": "form", "message": "Who are you?", "requestedSchema": form,
                "_meta": {"m": 7}, "more": 1})),
            update("notice", json!({"severity": "info", "title": "Mind the gap"})),
            update("session_info_update", json!({"title": "Editing"})),
            update("current_mode_update", json!({"currentModeId": "ask"})),
            update("usage_update", json!({"used": 5, "size": 100, "cost": {"amount": 0.5, "currency": "USD"}})),
            update("from_the_future", json!({"x": 1})),
            {"notify": {"method": "_agent/said", "params": {"x": 1}}},
            ask("_agent/asks", json!({"x": 2})),
            {"tell": 1},
            {"stop": {"stopReason": "bored", "usage": {"totalTokens": 3, "inputTokens": 1, "outputTokens": 2}, "_meta": {"m": 6}}},
        ]],
    }));
    let client = Client::ready(&runtime, "behind", everything()).await;
    let mut client = client.answer(editor());
    let session = open(&mut client, &project.root(), servers).await;
    client.prompt(&session, "/compact now").await.unwrap();
    // The agent's use of files and terminals and the updates to the client are independent streams,
    // so only the order within each is fixed.
    let said = project.plain(&client.said());
    let is_asked = |line: &&str| {
        ["fs/", "terminal/", "_agent/asks"].iter().any(|method| line.starts_with(method))
    };
    let (asked, told): (Vec<_>, Vec<_>) = said.lines().partition(is_asked);
    insta::assert_snapshot!(format!("{}\n\n{}", asked.join("\n"), told.join("\n")));

    // The user selects modes and options, and the agent gets the selection.
    let choose = |option: &str, value: &str| json!({"sessionId": session, "configId": option, "value": value});
    for (option, value) in [("no-such", "x"), ("effort", "huge")] {
        let refused = client.call("session/set_config_option", choose(option, value)).await;
        assert_eq!(refused.unwrap_err()["code"], -32602, "{option}");
    }
    for (option, value) in [("effort", "high"), ("their-mode", "code")] {
        client.call("session/set_config_option", choose(option, value)).await.unwrap();
    }
    client.said();
    client.prompt(&session, "again").await.unwrap();
    let mut asked = asked_of(&record);
    asked.retain(|it| !it.starts_with("session/new"));
    insta::assert_snapshot!(project.plain(&asked.join("\n")));
}

/// The client gets the agent's modes and options before the first prompt, and can select them.
#[tokio::test]
async fn what_the_agent_offers_is_known_from_the_start() {
    let project = Project::new();
    let record = project.path("heard");
    let commands = |name: &str| {
        json!({"sessionUpdate": "available_commands_update",
            "availableCommands": [{"name": name, "description": "Theirs"}]})
    };
    let mut session = offers();
    session["_meta"] = json!({"m": 1});
    session["models"] =
        json!({"currentModelId": "a", "availableModels": [{"modelId": "a", "name": "A"}]});
    let runtime = behind(&json!({
        "record": record,
        "capabilities": {"sessionCapabilities": {"additionalDirectories": {}, "resume": {}}},
        "session": session,
        "opened": [commands("compact")],
        "prompts": [[{"tell": 1}, {"update": {"sessionUpdate": "current_mode_update", "currentModeId": "code"}}]],
    }));
    let mut client = Client::ready(&runtime, "behind", json!({})).await;
    let new =
        json!({"cwd": project.root(), "mcpServers": [], "additionalDirectories": ["/srv/other"]});
    let opened = client.call("session/new", new).await.unwrap();
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    while !client.heard.last().unwrap().to_string().contains("compact") {
        heard_commands(&mut client).await;
    }
    client.heard.clear();
    let set = json!({"sessionId": session, "configId": "effort", "value": "high"});
    client.call("session/set_config_option", set).await.unwrap();
    client
        .call("session/set_mode", json!({"sessionId": session, "modeId": "behind/ask"}))
        .await
        .unwrap();
    let refused =
        client.call("session/set_mode", json!({"sessionId": session, "modeId": "behind/x"}));
    assert_eq!(refused.await.unwrap_err()["code"], -32602);
    client.notify("_client/says", json!({"sessionId": session, "x": 1})).await;
    client.call("session/set_model", json!({"sessionId": session, "modelId": "a"})).await.unwrap();
    client.call("_client/asks", json!({"sessionId": session, "x": 2})).await.unwrap();
    let prompt = json!([
        {"type": "text", "text": "go", "annotations": {"priority": 1}},
        {"type": "resource_link", "uri": "file:///a", "name": "a", "title": "A", "size": 3},
        // The agent does not support this content, so it gets a note instead.
        {"type": "resource", "resource": {"uri": "file:///b", "text": "B"}, "_meta": {"m": 2}},
    ]);
    let params = json!({"sessionId": session, "prompt": prompt, "_meta": {"m": 3}});
    client.call("session/prompt", params).await.unwrap();
    let said = client.said();
    let asked = asked_of(&record).join("\n");
    let mut opened = opened;
    opened.as_object_mut().unwrap().remove("sessionId");
    insta::assert_snapshot!(project.plain(&format!("{opened}\n\n{said}\n{asked}")));

    // Another client gets the current selection.
    let mut client = Client::ready(&runtime, "behind", json!({})).await;
    let load = json!({"sessionId": session, "cwd": project.root(), "mcpServers": []});
    let loaded = client.call("session/resume", load).await.unwrap();
    assert_eq!(loaded["modes"]["currentModeId"], "behind/code");
    assert_eq!(loaded["configOptions"][0]["currentValue"], "high");
}

/// All further members of the client's answers reach the agent.
#[tokio::test]
async fn answers_reach_the_agent_in_the_clients_own_words() {
    let option =
        |id: &str, name: &str, kind: &str| json!({"optionId": id, "name": name, "kind": kind});
    let ask = |call: &str| {
        let options = [
            option("y", "Yes", "allow_once"),
            option("n", "No", "reject_once"),
            option("y2", "Yes, there", "allow_once"),
        ];
        let params = json!({"toolCall": {"toolCallId": call, "title": call}, "options": options});
        json!({"request": {"method": "session/request_permission", "params": params}})
    };
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    let form =
        json!({"mode": "form", "message": "Who?", "requestedSchema": schema, "toolCallId": "a"});
    let form = json!({"request": {"method": "elicitation/create", "params": form}});
    let answers = [
        json!({"outcome": {"outcome": "selected", "optionId": "y2", "_meta": {"m": 1}, "note": "n"},
            "_meta": {"m": 2}, "more": true}),
        json!({"outcome": {"outcome": "selected", "optionId": "n", "_meta": {"m": 3}}}),
        json!({"outcome": {"outcome": "cancelled", "_meta": {"m": 4}}, "_meta": {"m": 5}}),
        json!({"outcome": {"outcome": "later", "_meta": {"m": 6}}}),
        json!({"action": "accept", "content": {"name": "Ada"}, "_meta": {"m": 7}, "more": 1}),
        json!({"action": "cancel", "_meta": {"m": 8}}),
    ];
    let runtime = behind(&json!({"prompts": [[
        ask("a"), ask("b"), ask("c"), ask("d"), form, form, {"text": "."}]]}));
    let client = Client::ready(&runtime, "behind", everything()).await;
    let mut given = answers.clone().into_iter();
    let mut client = client.answer(move |_, _| Ok(given.next().unwrap()));
    let project = Project::new();
    let session = open(&mut client, &project.root(), json!([])).await;
    client.prompt(&session, "go").await.unwrap();
    // A form names the call by the client's id.
    let about = |it: &&Value| it["params"]["toolCall"]["title"] == "a";
    let call = &client.heard.iter().find(about).unwrap()["params"]["toolCall"]["toolCallId"];
    let mut forms = client.heard.iter().filter(|it| it["method"] == "elicitation/create");
    assert!(forms.all(|form| form["params"]["toolCallId"] == *call), "{:?}", client.heard);
    // An answer that the protocol does not define counts as a denial; its original is forwarded.
    let mut heard = answers;
    let unknown = heard[3]["outcome"].take();
    heard[3] = json!({"outcome": {"outcome": "selected", "optionId": "n"},
        "_meta": {"wellspring": {"outcome": unknown}}});
    let heard: String = heard.iter().map(Value::to_string).collect();
    assert_eq!(client.words(), format!("{heard}."));
}

/// A form has the agent's fields unchanged, and the user's values reach the agent.
#[tokio::test]
async fn forms_are_put_as_the_agent_put_them() {
    let schema = |fields: Value| json!({"type": "object", "title": "T", "properties": fields, "_meta": {"m": 1}});
    let forms = [
        (json!({}), json!({})),
        (
            json!({"colour": {"type": "string", "title": "Colour", "description": "Of the door",
                "oneOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]}}),
            json!({"colour": "b"}),
        ),
        (
            json!({"some": {"type": "array", "minItems": 1, "items": {"type": "string", "enum": ["a", "b"]}},
                "name": {"type": "string", "maxLength": 9}}),
            json!({"some": ["a"], "name": "Ada"}),
        ),
    ];
    let ask = |(fields, _): &(Value, Value)| {
        let params =
            json!({"mode": "form", "message": "?", "requestedSchema": schema(fields.clone())});
        json!({"request": {"method": "elicitation/create", "params": params}})
    };
    let runtime = behind(&json!({"prompts": [forms.iter().map(ask).collect::<Vec<_>>()]}));
    let client = Client::ready(&runtime, "behind", everything()).await;
    let replies = forms.clone().map(|(_, content)| json!({"action": "accept", "content": content}));
    let mut given = replies.clone().into_iter();
    let mut client = client.answer(move |_, _| Ok(given.next().unwrap()));
    let project = Project::new();
    let session = open(&mut client, &project.root(), json!([])).await;
    client.prompt(&session, "go").await.unwrap();
    let put = client.heard.iter().filter(|it| it["method"] == "elicitation/create");
    let put: Vec<_> = put.map(|it| it["params"]["requestedSchema"].clone()).collect();
    assert_eq!(put, forms.map(|(fields, _)| schema(fields)));
    assert_eq!(client.words(), replies.iter().map(Value::to_string).collect::<String>());
}

/// Fields that the client cannot show are not sent to it; the other values reach the agent.
#[tokio::test]
async fn an_odd_form_is_put_as_far_as_clients_know_it() {
    let schema = json!({"type": "object", "title": 5, "required": "name", "properties": {
        "name": {"type": "string", "format": "uuid", "minLength": "x", "default": 7, "title": "T"},
        "age": {"type": "integer", "minimum": 0.5, "_meta": 1},
    }});
    let params = json!({"mode": "form", "message": "?", "requestedSchema": schema});
    let ask = json!({"request": {"method": "elicitation/create", "params": params}});
    let runtime = behind(&json!({"prompts": [[ask]]}));
    let client = Client::ready(&runtime, "behind", everything()).await;
    let reply = json!({"action": "decline"});
    let given = reply.clone();
    let mut client = client.answer(move |_, _| Ok(given.clone()));
    let project = Project::new();
    let session = open(&mut client, &project.root(), json!([])).await;
    client.prompt(&session, "go").await.unwrap();
    let put = client.heard.iter().find(|it| it["method"] == "elicitation/create").unwrap();
    let fields = json!({"name": {"type": "string", "title": "T"}, "age": {"type": "integer"}});
    let want = json!({"type": "object", "properties": fields});
    assert_eq!(put["params"]["requestedSchema"], want);
    assert_eq!(client.words(), reply.to_string());
}

/// Further members of the client's cancellation reach the agent, once.
#[tokio::test]
async fn cancelling_reaches_the_agent_in_the_clients_own_words() {
    let project = Project::new();
    let record = project.path("heard");
    let prompt = json!([{"text": "one"}, {"hang": {}}]);
    let runtime = behind(&json!({"record": record, "prompts": [prompt, prompt]}));
    let mut client = Client::ready(&runtime, "behind", everything()).await;
    let session = open(&mut client, &project.root(), json!([])).await;
    let params = json!({"sessionId": session, "prompt": [{"type": "text", "text": "Go"}]});
    let is_word = |it: &Value| it["params"]["update"]["sessionUpdate"] == "agent_message_chunk";
    let said = [json!({"_meta": {"m": 1}, "why": "bored"}), json!({})];
    for more in &said {
        let id = client.send("session/prompt", params.clone()).await;
        client.until(is_word).await;
        let mut cancel = json!({"sessionId": session});
        cancel.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        client.notify("session/cancel", cancel).await;
        assert_eq!(client.result(id).await.unwrap()["stopReason"], "cancelled");
    }
    let heard = std::fs::read_to_string(&record).unwrap();
    let heard = heard.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let cancels = heard.filter(|it| it["method"] == "session/cancel").map(|mut it| {
        check_asked(&it);
        it["params"].as_object_mut().unwrap().remove("sessionId");
        it["params"].take()
    });
    assert_eq!(cancels.collect::<Vec<_>>(), said);
}

/// The agent defines which content a prompt may have, and gets the client's content unchanged.
#[tokio::test]
async fn what_the_agent_can_do_is_known_from_the_start() {
    let project = Project::new();
    let record = project.path("heard");
    let prompts = json!({"audio": true, "embeddedContext": true, "_meta": {"m": 1}});
    let capabilities = json!({"promptCapabilities": prompts, "loadSession": false, "auth": {"logout": {}},
        "_meta": {"m": 2}});
    let hello = json!({"agentInfo": {"name": "inner", "version": "3"}, "_meta": {"m": 3}});
    let runtime = behind(&json!({
        "record": record, "capabilities": capabilities, "hello": hello,
        "session": offers(), "prompts": [[{"text": "."}]],
    }));
    let mut client = Client::of(&runtime, "behind");
    let introduction = json!({
        "protocolVersion": 1, "_meta": {"m": 4}, "clientInfo": {"name": "outer", "version": "4"},
        "clientCapabilities": {"_meta": {"terminal_output": true}},
    });
    let said = client.call("initialize", introduction).await.unwrap();
    let new = json!({"cwd": project.root(), "mcpServers": [], "_meta": {"m": 5}, "more": 1});
    let opened = client.call("session/new", new).await.unwrap();
    let session = opened["sessionId"].as_str().unwrap();
    let mode = json!({"sessionId": session, "modeId": "behind/ask", "_meta": {"m": 6}});
    client.call("session/set_mode", mode).await.unwrap();
    let option =
        json!({"sessionId": session, "configId": "effort", "value": "high", "_meta": {"m": 7}});
    client.call("session/set_config_option", option).await.unwrap();
    let sound = json!({"type": "audio", "data": "QQ==", "mimeType": "audio/wav",
        "annotations": {"audience": ["assistant"]}, "_meta": {"m": 8}, "more": 1});
    // The agent declares support by the kind of block, whatever the block contains.
    let odd = json!({"type": "audio", "data": "QQ==", "mimeType": "application/ogg"});
    let file = json!({"type": "resource", "resource": {"uri": "file:///a", "blob": "QQ=="}});
    // The agent does not support this kind, so it gets a file.
    let picture = json!({"type": "image", "data": "QQ==", "mimeType": "image/png"});
    let prompt = json!([sound, odd, file, picture]);
    let params =
        json!({"sessionId": session, "prompt": prompt, "_meta": {"m": 9}, "messageId": "m"});
    client.call("session/prompt", params).await.unwrap();
    let asked = project.plain(&asked_of(&record).join("\n"));
    let version = format!("\"version\":\"{}\"", env!("CARGO_PKG_VERSION"));
    let shown = format!("{said}\n\n{asked}").replace(&version, "\"version\":\"VERSION\"");
    insta::assert_snapshot!(shown);
}

/// An agent that does not answer `initialize` delays no client.
#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_start_is_not_waited_for_long() {
    let runtime = behind(&json!({"mute": true, "prompts": []}));
    let mut client = Client::of(&runtime, "behind");
    let began = tokio::time::Instant::now();
    let said = client.call("initialize", json!({"protocolVersion": 1})).await.unwrap();
    assert_eq!(began.elapsed(), wellspring_acp::agent::INTRODUCTION_TIME);
    let prompts = json!({"image": true, "audio": false, "embeddedContext": true});
    assert_eq!(said["agentCapabilities"]["promptCapabilities"], prompts);
    // The agent continues to start, and the session waits for it.
    client.call("session/new", json!({"cwd": "/", "mcpServers": []})).await.unwrap();
    let limit = wellspring_acp::client::AcpTimeouts::default().start;
    assert!(began.elapsed() < limit * 3, "{:?}", began.elapsed());
}

/// The agent's own error reaches the client.
#[tokio::test]
async fn errors_of_the_agent_keep_their_code_and_data() {
    let odd = json!({"code": 42, "message": "Odd", "data": {"m": 2}});
    let login = json!({"code": -32000, "message": "Token expired"});
    for (error, message) in [
        (&odd, "behind: session/prompt failed: Odd (42): {\"m\":2}"),
        (&login, "behind: the agent requires a login"),
    ] {
        let runtime = behind(&json!({"prompts": [[{"text": "So."}, {"fail": error}]]}));
        let mut client = Client::ready(&runtime, "behind", json!({})).await;
        let session = open(&mut client, Path::new("/"), json!([])).await;
        let failed = client.prompt(&session, "go").await.unwrap_err();
        assert_eq!((&failed["code"], &failed["message"]), (&error["code"], &json!(message)));
        assert_eq!(failed["data"]["error"]["code"], error["code"]);
        assert_eq!(failed["data"]["error"].get("data"), error.get("data"));
        assert_eq!(client.words(), "So.");
    }
}

/// The client logs in to the agent, by the agent's methods.
#[tokio::test]
async fn a_client_logs_in_to_the_agent() {
    let refuse = json!({"code": -32000, "message": "Authentication required"});
    let login = json!({"id": "key", "name": "API key", "description": "Paste it"});
    let terminal = json!({"id": "shell", "name": "In a terminal", "type": "terminal"});
    let hello = json!({"authMethods": [login, terminal]});
    let runtime = behind(&json!({
        "refuse": refuse, "login": true, "hello": hello, "prompts": [[{"text": "In."}]],
        "capabilities": {"auth": {"logout": {}}},
    }));
    let mut client = Client::of(&runtime, "behind");
    let said = client.call("initialize", json!({"protocolVersion": 1})).await.unwrap();
    assert_eq!(said["authMethods"], json!([login]));
    let new = json!({"cwd": "/", "mcpServers": []});
    let first = client.call("session/new", new.clone()).await.unwrap_err();
    assert_eq!(first["code"], -32000, "{first}");
    let done = client.call("authenticate", json!({"methodId": "key"})).await.unwrap();
    assert_eq!(done, json!({"_meta": {"heard": {"methodId": "key"}}}));
    let opened = client.call("session/new", new.clone()).await.unwrap();
    client.prompt(opened["sessionId"].as_str().unwrap(), "go").await.unwrap();
    assert_eq!(client.words(), "In.");
    client.call("logout", json!({})).await.unwrap();
    assert_eq!(client.call("session/new", new).await.unwrap_err()["code"], -32000);
}

/// Offers in another form than the protocol's are ignored, and forwarded in `_meta`. Every line for
/// the client is validated against the schema.
#[tokio::test]
async fn what_is_offered_in_no_known_shape_is_carried() {
    let effort = offers()["configOptions"][0].clone();
    let odd = json!({"id": "odd", "name": "Odd", "type": "slider", "currentValue": 3});
    let code = offers()["modes"]["availableModes"][0].clone();
    let command = json!({"name": "compact", "description": "Theirs"});
    let update = |name: &str, mut update: Value| {
        update["sessionUpdate"] = name.into();
        update
    };
    let session = json!({
        "modes": {"currentModeId": "code", "availableModes": [code, {"id": 3, "name": "Three"}],
            "_meta": {"m": 1}},
        "configOptions": [odd, effort], "_meta": {"m": 2}, "models": {"odd": true},
    });
    let runtime = behind(&json!({
        "session": session,
        "opened": [
            update("available_commands_update",
                json!({"availableCommands": [{"name": 3}, command], "_meta": {"m": 3}})),
            update("current_mode_update", json!({"currentModeId": 3})),
        ],
        "prompts": [[
            {"update": update("config_option_update",
                json!({"configOptions": [effort, odd], "_meta": {"m": 4}}))},
            {"update": update("available_commands_update", json!({"availableCommands": "none"}))},
        ]],
    }));
    let mut client = Client::ready(&runtime, "behind", json!({})).await;
    let new = json!({"cwd": "/", "mcpServers": []});
    let mut opened = client.call("session/new", new).await.unwrap();
    let session = opened["sessionId"].take();
    let session = session.as_str().unwrap();
    while !client.heard.last().unwrap().to_string().contains("compact") {
        heard_commands(&mut client).await;
    }
    client.heard.clear();
    client.prompt(session, "go").await.unwrap();
    let set = json!({"sessionId": session, "configId": "effort", "value": "high"});
    client.call("session/set_config_option", set).await.unwrap();
    insta::assert_snapshot!(format!("{opened}\n\n{}", client.said()));
}

/// The same, with no offer in the protocol's form.
#[tokio::test]
async fn an_agent_may_offer_nonsense() {
    for nonsense in [json!("x"), json!(3), json!([[]]), json!({"a": 1})] {
        let session = json!({"modes": nonsense, "configOptions": nonsense, "_meta": nonsense});
        let changes = [
            json!({"sessionUpdate": "current_mode_update", "currentModeId": nonsense}),
            json!({"sessionUpdate": "config_option_update", "configOptions": nonsense}),
            json!({"sessionUpdate": "available_commands_update", "availableCommands": nonsense}),
        ];
        let steps: Vec<_> = changes.iter().map(|update| json!({"update": update})).collect();
        let runtime = behind(&json!({
            "capabilities": {"promptCapabilities": nonsense, "auth": nonsense, "_meta": nonsense},
            "hello": {"agentInfo": nonsense, "authMethods": nonsense, "_meta": nonsense},
            "session": session, "opened": changes, "prompts": [steps],
        }));
        let mut client = Client::ready(&runtime, "behind", json!({})).await;
        let session = open(&mut client, Path::new("/"), json!([])).await;
        let stopped = client.prompt(&session, "go").await.unwrap();
        assert_eq!(stopped["stopReason"], "end_turn", "{nonsense}");
    }
}

/// An agent that cannot be opened is reported, and a prompt returns the reason.
#[tokio::test]
async fn an_agent_that_cannot_be_opened_fails_the_prompt() {
    let runtime =
        behind(&json!({"refuse": {"code": -32603, "message": "out of luck"}, "prompts": []}));
    let mut client = Client::ready(&runtime, "behind", json!({"session": {"notices": {}}})).await;
    let project = Project::new();
    let params = json!({"cwd": project.root(), "mcpServers": []});
    let opened = client.call("session/new", params).await.unwrap();
    let notice = client.until(|it| it["params"]["update"]["sessionUpdate"] == "notice").await;
    let why = "The agent behind could not be reached: session/new failed: out of luck (-32603). \
        The next prompt tries again.";
    assert_eq!(notice["params"]["update"]["description"], why);
    let failed = client.prompt(opened["sessionId"].as_str().unwrap(), "go").await.unwrap_err();
    assert_eq!(failed["message"], "behind: session/new failed: out of luck (-32603)");
}

/// If the agent withdraws a request, the client's request is withdrawn too.
#[tokio::test]
async fn what_the_agent_withdraws_is_withdrawn() {
    let options = json!([{"optionId": "y", "name": "Yes", "kind": "allow_once"}]);
    let call = json!({"toolCallId": "c", "title": "rm a"});
    let project = Project::new();
    let runtime = behind(&json!({"prompts": [[
        {"withdraw": {"method": "session/request_permission", "params": {"toolCall": call, "options": options}}},
        {"withdraw": {"method": "_agent/asks", "params": {"x": 1}}},
    ]]}));
    let client = Client::ready(&runtime, "behind", json!({})).await;
    let mut client = client.answer(|_, _| Ok(Value::Null));
    let session = open(&mut client, &project.root(), json!([])).await;
    client.prompt(&session, "go").await.unwrap();
    let said = project.plain(&client.said());
    let (told, asked): (Vec<_>, Vec<_>) = said.lines().partition(|line| line.starts_with('{'));
    insta::assert_snapshot!(format!("{}\n\n{}", asked.join("\n"), told.join("\n")));
}

/// Methods that the client does not support are handled by us.
#[tokio::test]
async fn a_client_without_files_and_terminals_lends_none() {
    let project = Project::new();
    std::fs::write(project.root().join("a.txt"), "saved").unwrap();
    let runtime = behind(&json!({"prompts": [[
        {"request": {"method": "fs/read_text_file", "params": {"path": project.path("a.txt")}}},
        {"terminal": {"command": "echo", "args": ["hello"]}},
    ]]}));
    let mut client = Client::ready(&runtime, "behind", json!({})).await;
    let session = open(&mut client, &project.root(), json!([])).await;
    client.prompt(&session, "go").await.unwrap();
    insta::assert_snapshot!(project.plain(&client.said()));
}

/// The agent's terminals are released when it ends.
#[tokio::test]
async fn terminals_are_given_back() {
    let max = wellspring_acp::client::TERMINALS_MAX;
    let create = json!({"request": {"method": "terminal/create", "params": {"command": "x"}}});
    let project = Project::new();
    let runtime = behind(&json!({"prompts": [vec![create; max + 1]]}));
    let client = Client::ready(&runtime, "behind", json!({"terminal": true})).await;
    let made = Arc::new(Mutex::new(0));
    let mut client = client.answer(move |method, _| match method {
        "terminal/create" => {
            *made.lock().unwrap() += 1;
            Ok(json!({"terminalId": format!("t{}", made.lock().unwrap())}))
        }
        _ => Ok(json!({})),
    });
    let session = open(&mut client, &project.root(), json!([])).await;
    client.prompt(&session, "go").await.unwrap();
    let mut released = Vec::new();
    while released.len() < max {
        let heard = std::mem::take(&mut client.heard);
        let release = heard.iter().filter(|it| it["method"] == "terminal/release");
        released.extend(release.map(|it| it["params"]["terminalId"].to_string()));
        if released.len() < max {
            client.hear().await.unwrap();
        }
        let said = heard.iter().map(Value::to_string).collect::<String>();
        assert!(released.len() > max || !said.contains("t33"), "{said}");
    }
    released.sort();
    released.dedup();
    assert_eq!(released.len(), max);
}
