//! A client, written by hand: it sends what a test tells it to, and keeps every line that it
//! receives.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{
    AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
};
use wellspring_acp::agent::AcpSurface;
use wellspring_core::Tool;
use wellspring_engine::{AgentDef, Runtime};
use wellspring_log::Log;
use wellspring_models::{Say, Scripted};

use crate::schema;

/// How a client answers requests.
type Answers = Box<dyn FnMut(&str, &Value) -> Result<Value, Value> + Send>;

pub(crate) struct Client {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    write: WriteHalf<DuplexStream>,
    /// The methods of our requests, by id.
    asked: BTreeMap<u64, String>,
    next: u64,
    answers: Answers,
    /// All messages, in order.
    pub(crate) heard: Vec<Value>,
    served: tokio::task::JoinHandle<std::io::Result<()>>,
}

pub(crate) fn runtime(agents: impl IntoIterator<Item = AgentDef>) -> Runtime {
    let runtime = Runtime::new(Log::in_memory());
    for agent in agents {
        runtime.register(agent);
    }
    runtime
}

pub(crate) fn agent(
    name: &str,
    says: impl IntoIterator<Item = Say>,
    tools: impl IntoIterator<Item = Arc<dyn Tool>>,
) -> AgentDef {
    let model = Arc::new(Scripted::new(says));
    AgentDef { tools: tools.into_iter().collect(), ..AgentDef::model(name, model) }
}

impl Client {
    /// A client of a runtime whose first agent is the default.
    pub(crate) fn of(runtime: &Runtime, agent: &str) -> Self {
        let surface = AcpSurface::new(runtime.local(), agent).unwrap();
        let (here, there) = tokio::io::duplex(64 * 1024);
        let (input, output) = tokio::io::split(there);
        let served = tokio::spawn(surface.serve(input, output));
        let (read, write) = tokio::io::split(here);
        Self {
            lines: BufReader::new(read).lines(),
            write,
            asked: BTreeMap::new(),
            next: 0,
            answers: Box::new(|method, _| Err(json!({"code": -32601, "message": method}))),
            heard: Vec::new(),
            served,
        }
    }

    /// A client after `initialize`.
    pub(crate) async fn ready(runtime: &Runtime, agent: &str, capabilities: Value) -> Self {
        let mut client = Self::of(runtime, agent);
        let params = json!({"protocolVersion": 1, "clientCapabilities": capabilities});
        client.call("initialize", params).await.unwrap();
        client
    }

    pub(crate) fn answer(
        mut self,
        answers: impl FnMut(&str, &Value) -> Result<Value, Value> + Send + 'static,
    ) -> Self {
        self.answers = Box::new(answers);
        self
    }

    pub(crate) async fn say(&mut self, message: &Value) {
        self.raw(format!("{message}\n").as_bytes()).await;
    }

    pub(crate) async fn raw(&mut self, bytes: &[u8]) {
        self.write.write_all(bytes).await.unwrap();
    }

    /// Sends a message repeatedly until the other side stops reading.
    pub(crate) async fn flood(&mut self, bytes: &[u8]) {
        while self.write.write_all(bytes).await.is_ok() {}
    }

    pub(crate) async fn send(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.asked.insert(id, method.to_owned());
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.say(&request).await;
        id
    }

    pub(crate) async fn notify(&mut self, method: &str, params: Value) {
        self.say(&json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
    }

    /// Receives a message, answers it if it is a request, and keeps it.
    pub(crate) async fn hear(&mut self) -> Option<Value> {
        let line = self.lines.next_line().await.unwrap()?;
        let message: Value = serde_json::from_str(&line).unwrap();
        schema::check(&message, &self.asked);
        if let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) {
            let reply = match (self.answers)(method, &message["params"]) {
                Ok(Value::Null) => None,
                Ok(result) => Some(json!({"jsonrpc": "2.0", "id": id, "result": result})),
                Err(error) => Some(json!({"jsonrpc": "2.0", "id": id, "error": error})),
            };
            if let Some(reply) = reply {
                self.say(&reply).await;
            }
        }
        self.heard.push(message.clone());
        Some(message)
    }

    /// Receives until a message matches.
    pub(crate) async fn until(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.hear().await.unwrap();
            if fits(&message) {
                return message;
            }
        }
    }

    /// Receives until a request is answered.
    pub(crate) async fn result(&mut self, id: u64) -> Result<Value, Value> {
        let answer =
            self.until(|message| message.get("method").is_none() && message["id"] == id).await;
        match answer.get("error") {
            Some(error) => Err(error.clone()),
            None => Ok(answer["result"].clone()),
        }
    }

    pub(crate) async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send(method, params).await;
        self.result(id).await
    }

    /// Creates a session, and receives its commands.
    pub(crate) async fn session(&mut self) -> String {
        self.session_with(json!([])).await
    }

    pub(crate) async fn session_with(&mut self, mcp: Value) -> String {
        let params = json!({"cwd": "/srv/project", "mcpServers": mcp});
        let opened = self.call("session/new", params).await.unwrap();
        self.until(|it| it["params"]["update"]["sessionUpdate"] == "available_commands_update")
            .await;
        opened["sessionId"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn prompt(&mut self, session: &str, text: &str) -> Result<Value, Value> {
        let prompt = json!([{"type": "text", "text": text}]);
        self.call("session/prompt", json!({"sessionId": session, "prompt": prompt})).await
    }

    /// The messages since the last call, one line each, with ids replaced by numbers.
    pub(crate) fn said(&mut self) -> String {
        let mut said = String::new();
        for message in std::mem::take(&mut self.heard) {
            let shown = match (message["method"].as_str(), message.get("id")) {
                (Some("session/update"), _) => message["params"]["update"].to_string(),
                (Some(method), Some(_)) => format!("{method} {}", message["params"]),
                (Some(method), None) => format!("{method} {}", message["params"]),
                (None, _) => match message.get("error") {
                    Some(error) => format!("error {error}"),
                    None => format!("result {}", message["result"]),
                },
            };
            said.push_str(&shown);
            said.push('\n');
        }
        plain(&said)
    }

    /// The text of the answer since the last call.
    pub(crate) fn words(&mut self) -> String {
        let heard = std::mem::take(&mut self.heard);
        let updates = heard.iter().map(|it| &it["params"]["update"]);
        let words = updates.filter(|it| it["sessionUpdate"] == "agent_message_chunk");
        words.filter_map(|it| it["content"]["text"].as_str()).collect()
    }

    /// Disconnects, and returns how serving ended.
    pub(crate) async fn leave(self) -> std::io::Result<()> {
        drop((self.lines, self.write));
        self.served.await.unwrap()
    }
}

/// A text with ids replaced by numbers and without times.
pub(crate) fn plain(text: &str) -> String {
    let id = regex::Regex::new("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").unwrap();
    let mut seen: Vec<String> = Vec::new();
    let counted = id.replace_all(text, |found: &regex::Captures<'_>| {
        let found = found[0].to_owned();
        let at = seen.iter().position(|it| *it == found).unwrap_or_else(|| {
            seen.push(found);
            seen.len() - 1
        });
        format!("id{at}")
    });
    let time = regex::Regex::new(r"20\d\d-\d\d-\d\dT[0-9:.]+Z").unwrap();
    time.replace_all(&counted, "TIME").into_owned()
}
