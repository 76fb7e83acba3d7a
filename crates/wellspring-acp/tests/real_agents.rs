//! Drives the real agents, offline: each of them, against a mock provider, through the scenes
//! that matter, and prints a table of what came of it. `cargo xtask acp-agents` sets it up; by
//! itself it does nothing, and says so, since the agents are half a gigabyte.
//!
//! `WELLSPRING_ACP_AGENTS` is the folder: the agents' packages are in its `node_modules`, and
//! what they said is recorded in its `recordings`, and, scrubbed, in its `fixtures`. `WELLSPRING_ACP_ONLY` names some of them.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::wildcard_enum_match_arm,
    reason = "a program that talks to people, and looks for what it is about"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wellspring_acp::client::{AcpAgent, AcpConfig};
use wellspring_core::{
    AgentNo, Answer, CancelWhen, Context, Event, Form, Outcome, RunRequest, Seq, Tool, ToolResult,
    ToolSpec,
};
use wellspring_engine::tools::from_function;
use wellspring_engine::{AgentDef, Runtime, StartRun};
use wellspring_log::{Log, LogOptions, MemoryStore};
use wellspring_testkit::FakeProvider;
use wellspring_testkit::mock_model::{self, Scene};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Time limit of a scene; opencode's first start is slow.
const LIMIT: Duration = Duration::from_secs(120);

const AGENTS: [&str; 4] = ["claude", "codex", "gemini", "opencode"];

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let Some(folder) = std::env::var_os("WELLSPRING_ACP_AGENTS") else {
        println!("skipped: `cargo xtask acp-agents` fetches the agents and runs this");
        return Ok(());
    };
    let folder = PathBuf::from(folder).canonicalize()?;
    let asked = std::env::var("WELLSPRING_ACP_ONLY").unwrap_or_default();
    let asked: Vec<&str> = asked.split(',').filter(|name| !name.is_empty()).collect();
    let recordings = folder.join("recordings");
    let fixtures = folder.join("fixtures");
    std::fs::create_dir_all(&recordings)?;
    std::fs::create_dir_all(&fixtures)?;
    println!(
        "| agent | hello, with a thought | our tool | typed result, one repair | permission | cancel |"
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    let mut failed = false;
    for name in AGENTS.into_iter().filter(|it| asked.is_empty() || asked.contains(it)) {
        let provider = FakeProvider::answering(mock_model::answer).await?;
        let home = folder.join("homes").join(name);
        let _ = std::fs::remove_dir_all(&home);
        std::fs::create_dir_all(home.join("work"))?;
        let record = recordings.join(format!("{name}.txt"));
        let _ = std::fs::remove_file(&record);
        let mut config = configure(name, &folder, &home, &provider.url())?;
        config.record = Some(record.clone());
        let agent = AcpAgent::new(name, config);
        let mut row = format!("| {name} |");
        for scene in [Scene::Hello, Scene::Clock, Scene::Result, Scene::Shell, Scene::Hang] {
            let began = Instant::now();
            let played = tokio::time::timeout(LIMIT, play(&agent, scene, &home)).await;
            let said = match played {
                Ok(Ok(said)) => said,
                Ok(Err(error)) => {
                    failed = true;
                    format!("**failed**: {error}").replace('\n', " ")
                }
                Err(_) => {
                    failed = true;
                    "**failed**: it took too long".into()
                }
            };
            eprintln!("{name} {}: {said} ({} ms)", scene.word(), began.elapsed().as_millis());
            row += &format!(" {said} |");
        }
        println!("{row}");
        let recorded = std::fs::read_to_string(record)?;
        std::fs::write(fixtures.join(format!("{name}.jsonl")), scrubbed(&recorded, &home)?)?;
    }
    if failed { Err("not all scenes were played well".into()) } else { Ok(()) }
}

/// The command of an agent, with its own home and the mock provider.
fn configure(name: &str, folder: &Path, home: &Path, url: &str) -> Result<AcpConfig, Failure> {
    let modules = folder.join("node_modules");
    let node = modules.join("node/bin/node");
    let program = |path: &str| modules.join(path).display().to_string();
    let node = if node.exists() { node.display().to_string() } else { "node".to_owned() };
    let base = match name {
        "claude" => AcpConfig::command([
            node,
            program("@agentclientprotocol/claude-agent-acp/dist/index.js"),
        ])
        .env("ANTHROPIC_BASE_URL", url)
        .env("ANTHROPIC_API_KEY", "x")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("ENABLE_TOOL_SEARCH", "false"),
        "codex" => {
            let settings = format!(
                "model = \"mock\"\nmodel_provider = \"mock\"\n[model_providers.mock]\nname = \"mock\"\n\
                 base_url = \"{url}/v1\"\nwire_api = \"responses\"\nenv_key = \"MOCK_KEY\"\n"
            );
            std::fs::create_dir_all(home.join(".codex"))?;
            std::fs::write(home.join(".codex/config.toml"), settings)?;
            AcpConfig::command([program(".bin/codex-acp")])
                .env("CODEX_HOME", home.join(".codex").display().to_string())
                .env("MOCK_KEY", "x")
        }
        "gemini" => {
            // Otherwise it would download a search program, and wait long for the network.
            let tools = json!({"useRipgrep": false});
            let settings =
                json!({"security": {"auth": {"selectedType": "gemini-api-key"}}, "tools": tools});
            std::fs::create_dir_all(home.join(".gemini"))?;
            std::fs::write(home.join(".gemini/settings.json"), settings.to_string())?;
            AcpConfig::command([
                node,
                program(".bin/gemini"),
                "--acp".into(),
                "--model".into(),
                "gemini-2.5-flash".into(),
            ])
            .env("GEMINI_API_KEY", "x")
            .env("GOOGLE_GEMINI_BASE_URL", url)
            .env("GEMINI_CLI_TRUST_WORKSPACE", "true")
        }
        "opencode" => {
            let provider = json!({"npm": "@ai-sdk/openai-compatible", "name": "mock",
                "options": {"baseURL": format!("{url}/v1"), "apiKey": "x"},
                "models": {"mock": {"name": "mock", "tool_call": true}}});
            let settings = json!({"model": "mock/mock", "small_model": "mock/mock", "autoupdate": false,
                "share": "disabled", "provider": {"mock": provider}, "permission": {"bash": "ask"}});
            std::fs::create_dir_all(home.join(".config/opencode"))?;
            std::fs::write(home.join(".config/opencode/opencode.json"), settings.to_string())?;
            AcpConfig::command([program(".bin/opencode"), "acp".into()])
        }
        other => return Err(format!("{other} is not an agent that is known here").into()),
    };
    let mut config = base
        .env("HOME", home.display().to_string())
        .env("XDG_CONFIG_HOME", home.join(".config").display().to_string())
        .env("XDG_DATA_HOME", home.join(".data").display().to_string())
        .cwd(home.join("work"));
    // Otherwise a model would decide what is allowed.
    config.mode = (name == "codex").then(|| "read-only".into());
    // One of them would refuse to work.
    config.env_remove.push("IS_SANDBOX".into());
    Ok(config)
}

/// The agent's messages about its sessions, one line each, without details of this machine. Long
/// lists are cut to their first entry.
fn scrubbed(recorded: &str, home: &Path) -> Result<String, Failure> {
    let mut lines = String::new();
    let mut prompts = std::collections::BTreeMap::new();
    let mut sessions: Vec<String> = Vec::new();
    for line in recorded.lines() {
        let Some((who, line)) = line.split_once(' ') else { continue };
        let Ok(mut message) = serde_json::from_str::<Value>(line) else { continue };
        let session = message["params"]["sessionId"].as_str().map(str::to_owned);
        let session = match (who, message["method"].as_str(), session) {
            (">", Some("session/prompt"), Some(session)) => {
                prompts.insert(message["id"].to_string(), session);
                continue;
            }
            ("<", Some("session/update" | "session/request_permission"), Some(session)) => session,
            ("<", None, _) => match prompts.remove(&message["id"].to_string()) {
                Some(session) => {
                    message["sessionId"] = session.clone().into();
                    session
                }
                None => continue,
            },
            _ => continue,
        };
        let update = &mut message["params"]["update"];
        for list in ["availableCommands", "configOptions"] {
            if let Some(entries) = update.get_mut(list).and_then(Value::as_array_mut) {
                entries.truncate(1);
            }
        }
        if message["params"].is_null() {
            message.as_object_mut().map(|message| message.remove("params"));
        }
        if !sessions.contains(&session) {
            sessions.push(session);
        }
        lines += &format!("{message}\n");
    }
    for (index, session) in sessions.iter().enumerate() {
        lines = lines.replace(session, &format!("session-{}", index + 1));
    }
    Ok(lines.replace(&home.display().to_string(), "/home/user"))
}

fn clock() -> Arc<dyn Tool> {
    let mut spec = ToolSpec::new("clock", "Says what time it is somewhere.");
    spec.parameters = json!({"type": "object", "properties": {"zone": {"type": "string"}}}).into();
    Arc::new(from_function(spec, |arguments: Value, context: Context| async move {
        context.progress("looking").await;
        Ok(ToolResult::new(format!("noon in {}", arguments["zone"].as_str().unwrap_or("?"))))
    }))
}

async fn play(agent: &AcpAgent, scene: Scene, home: &Path) -> Result<String, Failure> {
    let runtime = Runtime::new(Log::new(Arc::new(MemoryStore::default()), LogOptions::default()));
    let mut def = AgentDef::remote("agent", Arc::new(agent.clone()));
    let mut request = RunRequest::text(format!("{}: go on.", scene.word()));
    match scene {
        Scene::Clock => def.tools = vec![clock()],
        Scene::Result => {
            let n = json!({"n": {"type": "integer"}});
            let schema = json!({"type": "object", "properties": n, "required": ["n"]});
            request.result_schema = Some(schema);
        }
        Scene::Hello | Scene::Shell | Scene::Hang => {}
    }
    runtime.register(def);
    let run = runtime.local().start(StartRun::new("agent", request)).await?.run;
    let mut cursor = runtime.local().attach(run, Seq(0)).await?;
    let (mut questions, mut thoughts, mut repairs) = (0, 0, 0);
    let mut cancelled_at = None;
    while let Some(frames) = cursor.next().await? {
        for record in frames.iter().flat_map(|frame| frame.records()) {
            match &record.event {
                Event::QuestionAsked(question) => {
                    questions += 1;
                    let answer = match &question.form {
                        Form::Choose { choices, .. } => {
                            let yes =
                                choices.iter().find(|it| it.label.to_lowercase().contains("allow"));
                            Answer::Choose(
                                yes.or(choices.first())
                                    .map(|it| it.id.clone())
                                    .into_iter()
                                    .collect(),
                            )
                        }
                        Form::Approve | Form::Schema(_) => Answer::yes(),
                    };
                    runtime.local().answer(run, question.question, answer).await?;
                }
                Event::PartStarted { kind: wellspring_core::PartKind::Thought, .. } => {
                    thoughts += 1
                }
                Event::PartDelta { .. } if scene == Scene::Hang && cancelled_at.is_none() => {
                    cancelled_at = Some(Instant::now());
                    runtime.local().cancel(run, CancelWhen::Now, None).await?;
                }
                Event::ToolFinished { outcome: wellspring_core::ToolOutcome::Error, .. } => {
                    repairs += 1
                }
                _ => {}
            }
        }
    }
    let transcript = runtime.log().transcript(run).await?;
    let outcome = transcript.outcome.clone().ok_or("it has no outcome")?;
    let words = transcript.answer(AgentNo::ROOT);
    let completed = matches!(outcome, Outcome::Completed { .. });
    let told = || -> Failure { format!("{outcome}; it said {words:?}").into() };
    match scene {
        Scene::Hello if completed && words.contains("Hello from the model.") => {
            Ok(if thoughts > 0 { "yes".into() } else { "yes, no thought shown".into() })
        }
        Scene::Clock if completed && words.contains("noon in Oslo") => Ok("yes".into()),
        Scene::Result if transcript.result == Some(json!({"n": 3})) && repairs == 1 => {
            Ok("yes".into())
        }
        Scene::Shell if completed && words.contains("I ran it.") => {
            let made = home.join("work/made-by-the-agent").exists();
            let asked = if questions > 0 { "asked" } else { "did not ask" };
            Ok(format!("{asked}, {}", if made { "done" } else { "not done" }))
        }
        Scene::Hang if matches!(outcome, Outcome::Cancelled { .. }) => {
            let gone = if agent.processes() == 0 { "killed" } else { "ended" };
            let took = cancelled_at.map(|at| at.elapsed().as_millis()).unwrap_or_default();
            eprintln!("  cancelled within {took} ms");
            Ok(gone.into())
        }
        Scene::Hello | Scene::Clock | Scene::Result | Scene::Shell | Scene::Hang => Err(told()),
    }
}
