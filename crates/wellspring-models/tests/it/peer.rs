//! Tests against third-party servers: aimock, and llama.cpp's own.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use futures::TryStreamExt as _;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use wellspring_core::{
    AgentNo, Event, FailureKind, Message, MessagePart, Model, ModelError, PartId, PartKind, Stop,
    Tool, ToolResult, ToolSpec, Transcript, TurnRequest, Usage, WirePartId,
};
use wellspring_engine::AgentDef;
use wellspring_engine::tools::from_function;
use wellspring_models::openai_chat::Vendor;
use wellspring_models::{Anthropic, Gemini, Ollama, OpenAiChat, OpenAiResponses};

use crate::kit::{hello, outcome, play};

type Row = (&'static str, fn(&str) -> Arc<dyn Model>);

/// Each row: a wire format, and its client for a server's URL.
const AIMOCK: &[Row] = &[
    ("anthropic", |url| Arc::new(Anthropic::keyless(url).unwrap())),
    ("openai_chat", |url| Arc::new(OpenAiChat::keyless(&format!("{url}/v1")).unwrap())),
    ("openai_responses", |url| Arc::new(OpenAiResponses::keyless(&format!("{url}/v1")).unwrap())),
    ("gemini", |url| Arc::new(Gemini::keyless(url).unwrap())),
    ("ollama", |url| Arc::new(Ollama::keyless(url).unwrap())),
];

const LLAMA: &[Row] = &[
    ("anthropic", |url| Arc::new(Anthropic::keyless(url).unwrap())),
    ("openai_chat", |url| {
        let chat = OpenAiChat::keyless(&format!("{url}/v1")).unwrap();
        Arc::new(chat.vendor(Vendor::LLAMA_CPP))
    }),
    ("openai_responses", |url| Arc::new(OpenAiResponses::keyless(&format!("{url}/v1")).unwrap())),
];

/// A third-party server, killed on drop.
struct Peer {
    url: String,
    _child: Child,
}

impl Peer {
    /// Starts it, or reports that it is skipped. `cargo xtask test` sets `variable` once it has
    /// fetched the peer.
    async fn start(variable: &str, mut command: Command) -> Option<Self> {
        if std::env::var_os(variable).is_none() {
            println!("skipped: {variable} is not set; `cargo xtask test` sets it");
            return None;
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some(at) = line.find("http://127.0.0.1:") {
                let url = line[at..].trim().to_owned();
                // Keep reading, because a process blocks on a full pipe.
                tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
                return Some(Self { url, _child: child });
            }
        }
        panic!("{command:?} ended without an address");
    }

    async fn aimock() -> Option<Self> {
        let mut command = Command::new("node");
        command.arg(folder().join("node_modules/@copilotkit/aimock/dist/cli.js"));
        command.args(["--port", "0", "--log-level", "info", "--strict", "--fixtures"]);
        command.arg(folder().join("aimock.json"));
        Self::start("WELLSPRING_PEER_AIMOCK", command).await
    }

    async fn llama() -> Option<Self> {
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers");
        let mut command = Command::new(peers.join("llama/bin/python3"));
        command.arg(folder().join("llama.py"));
        Self::start("WELLSPRING_PEER_LLAMA", command).await
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer")
}

fn asking(text: &str) -> TurnRequest {
    TurnRequest { messages: [Message::user(text)].into(), ..hello() }
}

/// An answer: the parts of the turn, how it stopped, and the number of its deltas.
#[derive(Debug)]
struct Said {
    parts: Vec<MessagePart>,
    stop: Stop,
    usage: Usage,
    deltas: usize,
}

impl Said {
    fn lines(&self) -> Vec<String> {
        self.parts.iter().map(|part| format!("{}: {}", part.kind, part.text)).collect()
    }
}

async fn ask(model: &dyn Model, request: TurnRequest) -> Result<Said, ModelError> {
    let mut batches: Vec<_> = model.attempt(request).await?.try_collect().await?;
    let (stop, usage) = batches.iter_mut().find_map(|batch| batch.take_stop()).unwrap();
    let mut said = Said { parts: Vec::new(), stop, usage: usage.unwrap_or_default(), deltas: 0 };
    for (_, event) in batches.into_iter().flat_map(|batch| batch.into_events()) {
        if let Event::PartStarted { part, kind } = event {
            said.parts.push(message_part(part, kind));
        } else if let Event::PartDelta { part, chunk } = event {
            said.deltas += 1;
            said.parts[part.0 as usize].text.push_str(&chunk);
        } else if let Event::PartAnnotated { part, annotation } = event {
            said.parts[part.0 as usize].annotations.push(*annotation);
        }
    }
    Ok(said)
}

fn message_part(part: PartId, kind: PartKind) -> MessagePart {
    let id = WirePartId { run: wellspring_testkit::RUN, part };
    MessagePart { id, kind, text: String::new(), annotations: Vec::new() }
}

/// aimock splits text every 20 UTF-16 units: here, within a character.
#[tokio::test]
async fn aimock_talks() {
    let Some(peer) = Peer::aimock().await else { return };
    for (name, model) in AIMOCK {
        let model = model(&peer.url);
        let want =
            ["thought: Let me think about it.", "text: The spring is cold 😀 and \"clear\".\n"];
        for streaming in [true, false] {
            let request = TurnRequest { streaming, ..asking("words") };
            let said = ask(&*model, request).await.unwrap();
            assert_eq!(
                (said.lines(), &said.stop),
                (want.map(str::to_owned).to_vec(), &Stop::EndTurn),
                "{name}"
            );
            assert_eq!(said.deltas > 2, streaming, "{name}: {}", said.deltas);
        }
        let limited = ask(&*model, asking("limited")).await.unwrap_err();
        let wait = limited.wait().map(|wait| wait.as_secs());
        assert_eq!(
            (limited.kind(), wait),
            (FailureKind::RateLimited, Some(1)),
            "{name}: {limited}"
        );
    }
}

/// Two parallel calls, run by the engine, and the answer that uses their results.
#[tokio::test]
async fn aimock_calls_tools() {
    let Some(peer) = Peer::aimock().await else { return };
    for (name, model) in AIMOCK {
        for streaming in [true, false] {
            let zones = Arc::new(Mutex::new(Vec::new()));
            let seen = Arc::clone(&zones);
            let clock = ToolSpec::new("clock", "Tells the time.");
            let clock = from_function(clock, move |arguments: Value, _| {
                seen.lock().unwrap().push(arguments["zone"].clone());
                async { Ok(ToolResult::new("12:00")) }
            });
            let tools = vec![Arc::new(clock) as Arc<dyn Tool>];
            let def = AgentDef { tools, streaming, ..AgentDef::model("agent", model(&peer.url)) };
            let records = play(def, "What time is it?").await;
            assert_eq!(outcome(&records).to_string(), "completed end_turn", "{name}");
            assert_eq!(Transcript::fold(&records).answer(AgentNo::ROOT), "It is noon.", "{name}");
            let mut zones = zones.lock().unwrap().clone();
            zones.sort_by_key(Value::to_string);
            assert_eq!(zones, ["CET", "UTC"], "{name}");
        }
    }
}

/// A real server: it streams, counts tokens, stops at the limit, continues the conversation,
/// and rejects invalid requests.
#[tokio::test]
async fn llama_talks() {
    const LIMIT: u32 = 12;
    let Some(peer) = Peer::llama().await else { return };
    for (name, model) in LLAMA {
        let model = model(&peer.url);
        let asking = |messages: Vec<Message>, streaming: bool| {
            let mut request = TurnRequest { messages: messages.into(), streaming, ..hello() };
            request.settings.max_output_tokens = LIMIT;
            request.settings.temperature = Some(0.0);
            request
        };
        // It reports every response as completed; the usage shows that it was cut off.
        let stop = Stop::MaxTokens;
        for streaming in [true, false] {
            let said = ask(&*model, asking(vec![Message::user("Hi")], streaming)).await.unwrap();
            assert_eq!((&said.stop, said.usage.output), (&stop, u64::from(LIMIT)), "{name}");
            assert!(said.usage.input > 0, "{name}");
            assert_eq!(said.deltas > 1, streaming, "{name}: {}", said.deltas);
            let parts = said.parts;
            let again = vec![
                Message::user("Hi"),
                Message::Assistant { model: "tiny".into(), parts },
                Message::user("And?"),
            ];
            let more = ask(&*model, asking(again, streaming)).await.unwrap();
            assert!(more.usage.input > said.usage.input, "{name}");
        }
        let long = "word ".repeat(5000);
        let refused = ask(&*model, asking(vec![Message::user(long)], true)).await.unwrap_err();
        assert_eq!(refused.kind(), FailureKind::BadRequest, "{name}: {refused}");
    }
}
