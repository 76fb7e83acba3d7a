//! Shared helpers of these tests.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use ::ag_ui::server::EventVerifier;
use axum::Router;
use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::Command;
use wellspring_core::{Event, Model, RunId, Seq, Tool, ToolSpec, Transcript};
use wellspring_engine::tools::{FunctionTool, from_function};
use wellspring_engine::{AgentDef, Runtime};
use wellspring_log::Log;
use wellspring_models::{Say, Scripted};
use wellspring_server::{Api, Server, ServerConfig, router};
use wellspring_testkit::ag_ui_validate;

/// A server with one agent, and a client for it.
pub(crate) struct Kit {
    pub(crate) server: Server,
    pub(crate) runtime: Runtime,
    pub(crate) client: Client,
    pub(crate) token: Option<String>,
    /// The prefix of every path.
    base: String,
}

pub(crate) fn config() -> ServerConfig {
    ServerConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        drain: Duration::from_millis(50),
        ..ServerConfig::default()
    }
}

impl Kit {
    pub(crate) async fn new(def: AgentDef) -> Self {
        Self::with(config(), Runtime::new(Log::in_memory()), def).await
    }

    pub(crate) async fn with(config: ServerConfig, runtime: Runtime, def: AgentDef) -> Self {
        runtime.register(def);
        let server = Server::builder(runtime.clone()).config(config).start().await.unwrap();
        let client = Client::builder().no_proxy().build().unwrap();
        let base = format!("http://{}", server.address());
        Self { server, runtime, client, token: None, base }
    }

    /// The same server, mounted below `/agents` in an application.
    pub(crate) async fn mounted(mut self) -> Self {
        let api = Api::builder(self.runtime.clone()).open().await.unwrap();
        let app = Router::new().nest("/agents", router(&api));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        self.base = format!("http://{}/agents", listener.local_addr().unwrap());
        let service = app.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, service).await.unwrap() });
        self
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, self.url(path));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.request(Method::GET, path)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        self.request(Method::POST, path).json(body)
    }

    /// Starts a run of the agent.
    pub(crate) async fn start(&self) -> RunId {
        let body = json!({ "agent": "agent", "input": "go" });
        let response = self.post("/v1/runs", &body).send().await.unwrap();
        let (status, _, body) = parts(response).await;
        assert_eq!(status, 201, "{body}");
        body["run"].as_str().unwrap().parse().unwrap()
    }

    /// Waits until a run of any tenant has ended.
    pub(crate) async fn wait(&self, run: RunId) -> Transcript {
        let mut cursor = self.runtime.log().cursor(run, Seq(0)).await.unwrap();
        while cursor.next().await.unwrap().is_some() {}
        self.runtime.log().transcript(run).await.unwrap()
    }

    /// Waits until a run is paused.
    pub(crate) async fn paused(&self, run: RunId) {
        let mut cursor = self.runtime.log().cursor(run, Seq(0)).await.unwrap();
        while let Some(frames) = cursor.next().await.unwrap() {
            let mut records = frames.iter().flat_map(|frame| frame.iter());
            if records.any(|record| matches!(record.event, Event::RunPaused { .. })) {
                return;
            }
        }
        panic!("the run ended without waiting for anybody");
    }

    /// Runs a peer's script against the server and returns its output, one line per observation.
    /// The server begins to drain when the script prints `drain`.
    pub(crate) async fn driven_by(self, script: &str) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer").join(script);
        let mut peer = Command::new("node")
            .arg(script)
            .arg(self.url(""))
            // Selects some of the script's scenes, for debugging.
            .args(std::env::var("WELLSPRING_SCENES"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(peer.stdout.take().unwrap()).lines();
        let (mut said, mut server, mut stopping) = (String::new(), Some(self.server), None);
        while let Some(line) = lines.next_line().await.unwrap() {
            if line == "drain" {
                stopping = server.take().map(|server| tokio::spawn(server.stop()));
            } else {
                said += &format!("{line}\n");
            }
        }
        let mut errors = String::new();
        peer.stderr.take().unwrap().read_to_string(&mut errors).await.unwrap();
        assert!(peer.wait().await.unwrap().success(), "{said}\n{errors}");
        if let Some(stopping) = stopping {
            stopping.await.unwrap();
        }
        said
    }

    /// Every event of a run in a dialect, with its id, from the start to the end.
    pub(crate) async fn events(&self, run: RunId, dialect: &str) -> Vec<SseEvent> {
        let path = format!("/v1/runs/{run}/events?dialect={dialect}");
        let text = self.get(&path).send().await.unwrap().text().await.unwrap();
        if dialect == "ag_ui" {
            verify_ag_ui(&text, &json!([]));
        }
        parse_sse(&text)
    }
}

/// The events of an AG-UI stream, checked by two other implementations' verifiers, for a client
/// that has some messages already.
pub(crate) fn verify_ag_ui(text: &str, messages: &Value) -> Vec<Value> {
    let events: Vec<Value> =
        parse_sse(text).iter().map(|event| serde_json::from_str(&event.data).unwrap()).collect();
    if let Some(judged) = ag_ui_validate(text) {
        judged.unwrap_or_else(|findings| panic!("{findings}"));
    }
    let mut verifier = EventVerifier::new();
    for event in &events {
        let mut shown = event.clone();
        if event["type"] == "RUN_STARTED" {
            shown["input"] = json!({ "threadId": "t", "runId": "r", "messages": messages });
        }
        let typed: ::ag_ui::Event = serde_json::from_value(shown).unwrap();
        verifier.observe(&typed).unwrap_or_else(|error| panic!("{event}: {error}"));
    }
    events
}

/// A status, the headers and a JSON body.
pub(crate) async fn parts(response: Response) -> (u16, HeaderMap, Value) {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = response.text().await.unwrap();
    (status, headers, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// One server-sent event, as a browser delivers it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct SseEvent {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) data: String,
}

/// The complete events of a text. An event ends with a blank line.
pub(crate) fn parse_sse(text: &str) -> Vec<SseEvent> {
    let mut events = Vec::new();
    let Some(end) = text.rfind("\n\n") else { return events };
    for block in text[..end].split("\n\n") {
        let mut event = SseEvent { id: None, name: None, data: String::new() };
        for line in block.lines() {
            match line.split_once(": ") {
                Some(("id", id)) => event.id = Some(id.to_owned()),
                Some(("event", name)) => event.name = Some(name.to_owned()),
                Some(("data", data)) => event.data.push_str(data),
                _ => {}
            }
        }
        if !event.data.is_empty() {
            events.push(event);
        }
    }
    events
}

/// An agent with a scripted model and these tools.
pub(crate) fn agent(
    turns: impl IntoIterator<Item = Say>,
    tools: impl IntoIterator<Item = FunctionTool>,
) -> AgentDef {
    let model: Arc<dyn Model> = Arc::new(Scripted::new(turns));
    let tools = tools.into_iter().map(|tool| Arc::new(tool) as Arc<dyn Tool>).collect();
    AgentDef { tools, ..AgentDef::model("agent", model) }
}

/// A tool that returns its arguments and needs no approval.
pub(crate) fn echo() -> FunctionTool {
    let spec = ToolSpec { idempotent: true, ..ToolSpec::new("echo", "says it back") };
    from_function(spec, |arguments: Value, _| async move {
        Ok(wellspring_core::ToolResult::new(arguments["say"].clone()))
    })
}

/// Whether a peer is installed, according to its variable.
#[expect(clippy::print_stdout, reason = "a skipped test must not look like one that passed")]
pub(crate) fn has_peer(variable: &str) -> bool {
    let there = std::env::var_os(variable).is_some();
    if !there {
        println!("skipped: {variable} is not set; `cargo xtask test` sets it");
    }
    there
}

/// The models of a run's turns.
pub(crate) fn models(transcript: &wellspring_core::Transcript) -> Vec<String> {
    let items = transcript.agents.values().flat_map(|agent| &agent.items);
    items
        .filter_map(|item| match item {
            wellspring_core::Item::Turn(turn) => Some(turn.model.to_string()),
            wellspring_core::Item::Part(_) | wellspring_core::Item::Input(_) => None,
        })
        .collect()
}
