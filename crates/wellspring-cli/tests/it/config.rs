//! Configured agents, and agents from the environment, used through the real command.

use std::process::Output;

use rustix::process::Signal;
use serde_json::{Value, json};
use wellspring_testkit::{Answer, Asked, FakeProvider};

use crate::kit::{Going, Home};
use crate::mcp_server;
use crate::providers::{anthropic, anthropic_call, chat, gemini, models, ollama, responses};

/// A command with these environment variables.
fn with(home: &Home, variables: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = home.paced(0, arguments);
    command.envs(variables.iter().copied());
    command.output().unwrap()
}

fn printed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn last(fake: &FakeProvider) -> Asked {
    fake.asked().pop().unwrap()
}

/// Without a key, the configuration that `init` writes serves the demo.
#[test]
fn init_without_a_key_can_be_served() {
    let home = Home::with_files(&[]);
    insta::assert_snapshot!(printed(&with(&home, &[], &["init"])), @r"
    wrote ./wellspring.toml
    no provider key is set, so the built-in demo answers; for a real model set a key, such as ANTHROPIC_API_KEY, and run `wellspring init --force`
    next: `wellspring doctor` checks the configuration, `wellspring` serves it
    ");
    assert!(home.print(&["run", "help"]).contains("I am a script"));
    let mut server = Going::start(home.paced(0, &["serve", "--listen", "127.0.0.1:0"]));
    server.wait_for("Wellspring is at http://127.0.0.1:");
    server.wait_for("agents: demo");
    server.signal(Signal::INT);
    let (status, ..) = server.end();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_then_doctor_then_run() {
    let home = Home::with_files(&[]);
    let fake = FakeProvider::start([
        models(&["claude-sonnet-4-5", "claude-opus-4-5"]),
        anthropic("Hello from afar."),
    ])
    .await
    .unwrap();
    let url = fake.url();
    let key = [("ANTHROPIC_API_KEY", "sk-test"), ("ANTHROPIC_BASE_URL", &url)];

    let shown = printed(&with(&home, &key, &["init"]));
    insta::assert_snapshot!(shown, @r"
    wrote ./wellspring.toml
    wrote ./agents/assistant.md
    next: `wellspring doctor` checks the configuration, `wellspring` serves it
    ");
    let again = with(&home, &key, &["init"]);
    assert_eq!(again.status.code(), Some(2));
    insta::assert_snapshot!(said(&again), @"wellspring: ./wellspring.toml exists already; `wellspring init --force` overwrites it");
    printed(&with(&home, &key, &["init", "--force"]));

    let mut listen = key.to_vec();
    listen.push(("WELLSPRING_LISTEN", "127.0.0.1:0"));
    let checked = printed(&with(&home, &listen, &["doctor", "--json"]));
    let checked: Value = serde_json::from_str(&checked).unwrap();
    assert_eq!(checked["ok"], true, "{checked:#}");
    let states: Vec<String> = checked["checks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|check| check["check"] != "provider ollama" && check["check"] != "data directory")
        .map(|check| {
            format!("{} {}: {}", check["state"], check["check"], check["says"]).replace('"', "")
        })
        .collect();
    insta::assert_snapshot!(states.join("\n"), @r"
    good configuration: wellspring.toml
    good address: 127.0.0.1:0 is free
    good provider anthropic: responds; 2 models
    unused provider gemini: no key
    unused provider openai: no key
    good agent assistant: anthropic/claude-sonnet-4-5
    good agent demo: is built in
    ");

    let shown = printed(&with(&home, &key, &["run", "Hi"]));
    assert!(shown.contains("Hello from afar."), "{shown}");
    let asked = last(&fake);
    assert_eq!(asked.path, "/v1/messages");
    assert_eq!(asked.header("x-api-key"), Some("sk-test"));
    assert_eq!(asked.body["model"], "claude-sonnet-4-5");
    let tools = asked.body["tools"].as_array().unwrap();
    let tools: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(tools, ["clock", "list_files", "read_file", "search_files"]);
    // The key appears in no record, no message and no log.
    assert!(!home.print(&["runs", "export", "last", "--format", "json"]).contains("sk-test"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_doctor_says_what_to_do() {
    let fake = FakeProvider::start([Answer::status(
        401,
        r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
    )])
    .await
    .unwrap();
    let config = format!(
        "[providers.anthropic]\nbase_url = \"{}\"\nkey_env = \"MY_KEY\"\n\
         [agents.a]\nmodel = \"anthropic\"\n[agents.b]\nmodel = \"openai/gpt-x\"\n\
         [mcp.gone]\ncommand = \"no-such-program-here\"\n\
         [server]\nlisten = \"127.0.0.1:0\"\n",
        fake.url()
    );
    let home = Home::with_files(&[("wellspring.toml", &config)]);
    let output = with(&home, &[("MY_KEY", "sk-test")], &["doctor"]);
    assert_eq!(output.status.code(), Some(1));
    let shown = String::from_utf8(output.stdout).unwrap();
    let shown: Vec<_> = shown
        .replace(&home.data().display().to_string(), "DATA")
        .lines()
        .filter(|line| !line.contains("ollama") && !line.contains("127.0.0.1:11434"))
        .map(str::to_owned)
        .collect();
    insta::assert_snapshot!(shown.join("\n"), @r#"
    ✓ configuration: wellspring.toml
    ✓ data directory: DATA
    ✓ address: 127.0.0.1:0 is free
    ✗ provider anthropic: anthropic: status 401: invalid x-api-key
      → check the key in MY_KEY
    - provider gemini: no key
      → set GEMINI_API_KEY, or GEMINI_API_KEY_FILE to a file with it
    ✗ provider openai: no key
      → set OPENAI_API_KEY, or OPENAI_API_KEY_FILE to a file with it
    ! agent a: cannot check that anthropic has the model claude-sonnet-4-5
      → see its provider
    ! agent b: cannot check that openai has the model gpt-x
      → see its provider
    ✓ agent demo: is built in
    ✗ MCP server gone: "no-such-program-here" could not be started (No such file or directory (os error 2)); is it installed and in PATH?
      → check its `command` or `url`, and what it needs in `env` or `headers`
    "#);
    // Reading runs needs no key; starting a run does.
    home.print(&["runs", "list"]);
    let output = home.output(&["run", "--agent", "b", "x"]);
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(said(&output), @r"
    wellspring: the configuration is not valid
    wellspring.toml:6: agent b: no key: set OPENAI_API_KEY, or OPENAI_API_KEY_FILE to a file with it
      `wellspring doctor` checks openai again
    ");
}

/// If only a key is set, there is an agent named after the provider.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_come_from_the_environment() {
    /// An agent, the variables of its key and its URL, the path after the URL, its response, and
    /// the path of the request.
    type Row =
        (&'static str, &'static str, &'static str, &'static str, fn(&str) -> Answer, &'static str);
    let rows: [Row; 4] = [
        ("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "", anthropic, "/v1/messages"),
        ("openai", "OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1", responses, "/v1/responses"),
        (
            "gemini",
            "GEMINI_API_KEY",
            "GOOGLE_GEMINI_BASE_URL",
            "",
            gemini,
            "/v1beta/models/large:streamGenerateContent?alt=sse",
        ),
        ("ollama", "OLLAMA_API_KEY", "OLLAMA_HOST", "", ollama, "/api/chat"),
    ];
    for (agent, key, address, suffix, answer, path) in rows {
        let home = Home::with_files(&[]);
        let fake = FakeProvider::start([answer("Hello there.")]).await.unwrap();
        let url = format!("{}{suffix}", fake.url());
        let variables = [(key, "sk-test"), (address, &*url)];
        // It is the default; a request may name another model.
        for arguments in [
            &["run", "--model", "large", "Hi"][..],
            &["run", "--agent", agent, "--model", "large", "Hi"],
        ] {
            let shown = printed(&with(&home, &variables, arguments));
            assert!(shown.contains("Hello there."), "{agent}: {shown}");
            let asked = last(&fake);
            assert_eq!(asked.path, path, "{agent}");
            if agent != "gemini" {
                assert_eq!(asked.body["model"], "large", "{agent}");
            }
        }
        let listed: Value = serde_json::from_str(&home.print(&["runs", "list", "--json"])).unwrap();
        assert_eq!(listed[0]["run"]["agent"], agent);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_models_of_each_provider() {
    let home = Home::with_files(&[]);
    let fake = FakeProvider::start([models(&["claude-x", "claude-y"])]).await.unwrap();
    let url = fake.url();
    let key = [("ANTHROPIC_API_KEY", "sk-test"), ("ANTHROPIC_BASE_URL", &*url)];
    let shown = printed(&with(&home, &key, &["models", "anthropic"]));
    assert_eq!(shown, "anthropic/claude-x\nanthropic/claude-y\n");
    let shown = printed(&with(&home, &key, &["models", "anthropic", "--json"]));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["anthropic"][1]["id"], "claude-y");
    let output = with(&home, &key, &["models", "antropic"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("did you mean anthropic?"), "{output:?}");
    let output = with(&home, &[], &["models", "openai"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("openai: no key: set OPENAI_API_KEY"), "{output:?}");
}

/// A provider in the file, with a fallback, headers, a result schema and sub-agents.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configured_provider_and_its_fallback() {
    let down = FakeProvider::start([Answer::status(503, "down")]).await.unwrap();
    let up = FakeProvider::start([chat("From the second.")]).await.unwrap();
    let config = format!(
        "[providers.first]\nkind = \"anthropic\"\nbase_url = \"{}\"\n\
         [providers.second]\nkind = \"openai-chat\"\nbase_url = \"{}/v1\"\n\
         headers = {{ x-team = \"${{TEAM}}\" }}\nmodel = \"small\"\n\
         [agents.a]\nmodel = \"first\"\nfallback = [\"second\"]\ninstructions = \"Be brief.\"\n\
         temperature = 0.5\n",
        down.url(),
        up.url()
    );
    let home = Home::with_files(&[("wellspring.toml", &config)]);
    let shown =
        printed(&with(&home, &[("TEAM", "blue"), ("OPENAI_API_KEY", "sk-other")], &["run", "Hi"]));
    assert!(shown.contains("From the second."), "{shown}");
    let asked = last(&up);
    assert_eq!((&*asked.path, asked.header("x-team")), ("/v1/chat/completions", Some("blue")));
    assert_eq!(asked.header("authorization"), None, "a key goes where it belongs");
    assert_eq!((&asked.body["model"], &asked.body["temperature"]), (&json!("small"), &json!(0.5)));
    assert_eq!(asked.body["messages"][0]["content"], "Be brief.");
    let output = with(&home, &[], &["run", "Hi"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("needs the variable TEAM"), "{output:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_of_a_configured_mcp_server() {
    let answers =
        [anthropic_call("small__echo", r#"{"text":"over there"}"#), anthropic("It said so.")];
    let fake = FakeProvider::start(answers).await.unwrap();
    let config = format!(
        "[providers.anthropic]\nbase_url = \"{}\"\n{}",
        fake.url(),
        mcp_server::table("small")
    );
    let agent = "---\nmodel: anthropic\nmcp: [small]\n---\nUse your tools.\n";
    let home = Home::with_files(&[("wellspring.toml", &config), ("agents/helper.md", agent)]);
    let result = with(&home, &[], &["run", "--json", "Say it"]);
    let result: Value = serde_json::from_str(&printed(&result)).unwrap();
    assert_eq!(result["answer"], "It said so.");
    let asked = last(&fake);
    let told = &asked.body["messages"][2]["content"][0];
    assert_eq!(told["type"], "tool_result", "{asked:#?}");
    assert_eq!(told["content"], "echo: \"over there\"");
    // The doctor finds it too.
    let checked = with(&home, &[("WELLSPRING_LISTEN", "127.0.0.1:0")], &["doctor"]);
    let shown = String::from_utf8(checked.stdout).unwrap();
    assert!(shown.contains("✓ MCP server small: has 1 tools"), "{shown}");
}

/// A server that cannot be reached is an error only for agents that need it.
#[test]
fn a_missing_mcp_server() {
    let config = "default_agent = \"demo\"\n[mcp.gone]\ncommand = \"no-such-program-here\"\n\
        [agents.a]\nmodel = \"ollama\"\nmcp = [\"gone\"]\n";
    let home = Home::with_files(&[("wellspring.toml", config)]);
    home.print(&["run", "help"]);
    let output = home.output(&["run", "--agent", "a", "x"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("could not be started"), "{output:?}");
}

#[test]
fn a_broken_configuration_is_told_by_every_command() {
    let home = Home::with_files(&[("wellspring.toml", "[server]\nlissen = \"x\"\n")]);
    for arguments in [&["run", "x"][..], &["serve"], &["runs", "list"], &["models"]] {
        let output = home.output(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(
            said(&output),
            "wellspring: the configuration is not valid\nwellspring.toml:2: unknown key `lissen` \
             in [server]\n  did you mean `listen`?\n",
            "{arguments:?}"
        );
    }
    let output = home.output(&["doctor"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("✗ configuration"), "{output:?}");
}
