//! An agent that speaks ACP and follows a script, for tests of a client.
//!
//! It is a complete program on standard input and output, written against the protocol's
//! documents and not with our types. It is strict: if a client violates the protocol, it exits
//! with a message on standard error.
//!
//! A test starts its own binary again with [`SCRIPT`] set, and calls [`play`] if the variable
//! is set.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a fake that cannot continue should stop"
)]

use std::collections::{HashMap, HashSet};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::{Value, json};

/// The variable that holds the script, as JSON:
///
/// - `prompts`: a list of steps for each prompt of a session; the last one is repeated.
/// - `capabilities`: its `agentCapabilities` [default: HTTP MCP]. `version` [default: 1].
/// - `hello`: further members of the response to `initialize`. `mute`: it does not respond.
/// - `look`: when it lists the tools of its MCP servers: `new` (default), `prompt`, `never`.
/// - `refuse`: the error that answers `session/new`; with `login`, only until `authenticate`.
///   `replay`: updates that `session/load` sends.
/// - `session`: further members of the response that opens a session: its modes and options.
/// - `opened`: updates that it sends once a session is open.
/// - `record`: a file to which it writes every message that it receives, one per line.
///
/// It accepts every method that starts with `_` or `odd/`, and responds with what it received.
pub const SCRIPT: &str = "WELLSPRING_SCRIPTED_ACP_AGENT";

/// Plays the script until the input ends.
pub fn play() {
    let script: Value = serde_json::from_str(&std::env::var(SCRIPT).unwrap()).unwrap();
    let agent = Arc::new(Agent {
        record: script["record"].as_str().map(|path| {
            let file = std::fs::File::options().create(true).append(true).open(path).unwrap();
            Mutex::new(file)
        }),
        script,
        sessions: Mutex::default(),
        waiting: Mutex::default(),
        cancelled: Mutex::default(),
        cancel: Condvar::new(),
        logged_in: Mutex::new(false),
        next: Mutex::new(0),
    });
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        if let Some(record) = &agent.record {
            writeln!(record.lock().unwrap(), "{line}").unwrap();
        }
        let message: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        Arc::clone(&agent).take(message);
    }
}

struct Agent {
    script: Value,
    record: Option<Mutex<std::fs::File>>,
    sessions: Mutex<HashMap<String, Session>>,
    waiting: Mutex<HashMap<u64, Sender<Value>>>,
    cancelled: Mutex<HashSet<String>>,
    cancel: Condvar,
    logged_in: Mutex<bool>,
    next: Mutex<u64>,
}

#[derive(Clone, Default)]
struct Session {
    servers: Vec<Value>,
    prompts: usize,
}

impl Agent {
    fn take(self: Arc<Self>, message: Value) {
        let Some(method) = message["method"].as_str() else {
            let id = message["id"].as_u64().unwrap();
            let waiting = self.waiting.lock().unwrap().remove(&id);
            waiting.expect("an answer to nothing").send(message).unwrap();
            return;
        };
        let params = message["params"].clone();
        let id = message["id"].clone();
        match method {
            "initialize" => {
                assert!(params["protocolVersion"].is_u64(), "{params}");
                assert!(params["clientCapabilities"].is_object(), "{params}");
                let own = self.script.get("capabilities").cloned();
                let capabilities =
                    own.unwrap_or_else(|| json!({"mcpCapabilities": {"http": true}}));
                let version = self.script["version"].as_u64().unwrap_or(1);
                let mut hello = self.script.get("hello").cloned().unwrap_or_else(|| json!({}));
                hello["protocolVersion"] = version.into();
                hello["agentCapabilities"] = capabilities;
                if self.script["mute"] != true {
                    self.answer(&id, hello);
                }
            }
            "authenticate" | "logout" => {
                *self.logged_in.lock().unwrap() = method == "authenticate";
                self.answer(&id, json!({"_meta": {"heard": params}}));
            }
            "session/new" => {
                let logged_in = self.script["login"] == true && *self.logged_in.lock().unwrap();
                if self.script["refuse"].is_object() && !logged_in {
                    self.say(json!({"jsonrpc": "2.0", "id": id, "error": self.script["refuse"]}));
                    return;
                }
                let session = format!("session-{}-{}", std::process::id(), self.number());
                self.open(&session, &params);
                let mut answer = self.offered();
                answer["sessionId"] = session.as_str().into();
                self.answer(&id, answer);
                self.opened(&session);
            }
            "session/set_config_option" => {
                let mut options = self.script["session"]["configOptions"].clone();
                let listed = options.as_array_mut().expect("it has no options");
                let set = listed.iter_mut().find(|it| it["id"] == params["configId"]);
                set.expect("an option that it never had")["currentValue"] = params["value"].clone();
                self.answer(&id, json!({"configOptions": options}));
            }
            "session/load" | "session/resume" => {
                let session = params["sessionId"].as_str().unwrap().to_owned();
                self.open(&session, &params);
                if method == "session/load" {
                    for update in self.script["replay"].as_array().into_iter().flatten() {
                        self.update(&session, update.clone());
                    }
                }
                self.answer(&id, self.offered());
                self.opened(&session);
            }
            "session/set_mode" | "session/set_model" | "session/close" => {
                self.answer(&id, json!({}))
            }
            "session/prompt" => {
                assert!(params["prompt"].is_array(), "{params}");
                std::thread::spawn(move || self.prompt(&id, &params));
            }
            "session/cancel" => {
                let session = params["sessionId"].as_str().unwrap().to_owned();
                self.cancelled.lock().unwrap().insert(session);
                self.cancel.notify_all();
            }
            extension if extension.starts_with('_') || extension.starts_with("odd/") => {
                if !id.is_null() {
                    self.answer(&id, json!({"heard": params}));
                }
            }
            other => panic!("unexpected response {other}"),
        }
    }

    /// The members that it sends when it opens a session.
    fn offered(&self) -> Value {
        self.script.get("session").cloned().unwrap_or_else(|| json!({}))
    }

    fn opened(&self, session: &str) {
        for update in self.script["opened"].as_array().into_iter().flatten() {
            self.update(session, update.clone());
        }
    }

    fn open(&self, session: &str, params: &Value) {
        assert!(params["cwd"].as_str().unwrap().starts_with('/'), "{params}");
        let servers = params["mcpServers"].as_array().unwrap().clone();
        if self.script["look"].as_str().unwrap_or("new") == "new" {
            for server in &servers {
                drop(Mcp::open(server));
            }
        }
        let opened = Session { servers, prompts: 0 };
        self.sessions.lock().unwrap().insert(session.to_owned(), opened);
    }

    fn prompt(&self, id: &Value, params: &Value) {
        let name = params["sessionId"].as_str().unwrap();
        self.cancelled.lock().unwrap().remove(name);
        let session = {
            let mut sessions = self.sessions.lock().unwrap();
            let session = sessions.get_mut(name).expect("a session that was never opened");
            session.prompts += 1;
            session.clone()
        };
        if self.script["look"] == "prompt" {
            for server in &session.servers {
                drop(Mcp::open(server));
            }
        }
        let prompts = self.script["prompts"].as_array().unwrap();
        let steps = prompts.get(session.prompts - 1).or(prompts.last()).unwrap();
        let mut stop = json!({"stopReason": "end_turn"});
        for step in steps.as_array().unwrap() {
            if self.cancelled.lock().unwrap().contains(name) && step.get("deaf").is_none() {
                stop = json!({"stopReason": "cancelled"});
                break;
            }
            if let Some(end) = self.step(name, &session, params, step) {
                stop = end;
                break;
            }
        }
        match stop.get("error") {
            Some(error) => self.say(json!({"jsonrpc": "2.0", "id": id, "error": error})),
            None => self.answer(id, stop),
        }
    }

    /// Runs one step. Returns the response to the prompt if the step ends it.
    fn step(&self, name: &str, session: &Session, params: &Value, step: &Value) -> Option<Value> {
        let (what, how) = step.as_object().unwrap().iter().next().unwrap();
        match what.as_str() {
            "update" => self.update(name, how.clone()),
            "text" => self.text(name, "agent_message_chunk", how.as_str().unwrap()),
            "thought" => self.text(name, "agent_thought_chunk", how.as_str().unwrap()),
            "echo" => {
                let last = params["prompt"].as_array().unwrap().last().unwrap();
                self.text(name, "agent_message_chunk", last["text"].as_str().unwrap());
            }
            // The whole prompt as text, to show how a client sends it.
            "tell" => self.text(name, "agent_message_chunk", &params["prompt"].to_string()),
            "call" => {
                let said = Mcp::open(&session.servers[0]).call(how);
                self.text(name, "agent_message_chunk", &said);
            }
            "request" => {
                let mut params = how["params"].clone();
                params["sessionId"] = name.into();
                let answer = self.ask(how["method"].as_str().unwrap(), params);
                let said = answer.get("result").or(answer.get("error")).unwrap();
                self.text(name, "agent_message_chunk", &said.to_string());
            }
            // Asks, then withdraws the request.
            "withdraw" => {
                let mut params = how["params"].clone();
                params["sessionId"] = name.into();
                let (id, told) = self.begin(how["method"].as_str().unwrap(), params);
                let cancel = json!({"requestId": id});
                let method = "$/cancel_request";
                self.say(json!({"jsonrpc": "2.0", "method": method, "params": cancel}));
                let error = told.recv().unwrap()["error"]["code"].to_string();
                self.text(name, "agent_message_chunk", &error);
            }
            "notify" => {
                let mut params = how["params"].clone();
                params["sessionId"] = name.into();
                self.say(json!({"jsonrpc": "2.0", "method": how["method"], "params": params}));
            }
            // The same, without a session.
            "notify_all" => {
                let (method, params) = (&how["method"], &how["params"]);
                self.say(json!({"jsonrpc": "2.0", "method": method, "params": params}));
            }
            "request_all" => {
                let answer = self.ask(how["method"].as_str().unwrap(), how["params"].clone());
                let said = answer.get("result").or(answer.get("error")).unwrap();
                self.text(name, "agent_message_chunk", &said.to_string());
            }
            // Many requests concurrently; each response is shown as it arrives.
            "burst" => std::thread::scope(|threads| {
                for _ in 0..how["count"].as_u64().unwrap() {
                    threads.spawn(|| self.step(name, session, params, &json!({"request": how})));
                }
            }),
            "terminal" => self.terminal(name, how),
            "flood" => {
                for number in 0..how.as_u64().unwrap() {
                    self.text(name, "agent_message_chunk", &format!("{number} "));
                }
            }
            "long" => {
                let text = "x".repeat(usize::try_from(how.as_u64().unwrap()).unwrap());
                self.text(name, "agent_message_chunk", &text);
            }
            // Creates a file to signal that the script got here.
            "mark" => std::fs::write(how.as_str().unwrap(), "").unwrap(),
            "raw" => {
                let mut out = std::io::stdout().lock();
                writeln!(out, "{}", how.as_str().unwrap()).unwrap();
                out.flush().unwrap();
            }
            "hang" => {
                let cancelled = self.cancelled.lock().unwrap();
                drop(self.cancel.wait_while(cancelled, |it| !it.contains(name)).unwrap());
                return Some(json!({"stopReason": "cancelled"}));
            }
            "deaf" => loop {
                std::thread::park();
            },
            "die" => {
                let mut stderr = std::io::stderr();
                writeln!(stderr, "{}", how.as_str().unwrap()).unwrap();
                std::process::exit(3);
            }
            "stop" => return Some(how.clone()),
            // Responds with an error.
            "fail" => return Some(json!({"error": how})),
            other => panic!("there is no step {other}"),
        }
        None
    }

    /// Runs a command through the client and shows its terminal in a call.
    fn terminal(&self, name: &str, command: &Value) {
        let mut create = command.clone();
        create["sessionId"] = name.into();
        let made = self.ask("terminal/create", create)["result"]["terminalId"].clone();
        assert!(made.is_string(), "{command}");
        let shown = json!([{"type": "terminal", "terminalId": made}]);
        self.update(
            name,
            json!({"sessionUpdate": "tool_call", "toolCallId": "sh", "title": "sh",
            "kind": "execute", "status": "in_progress", "content": shown}),
        );
        let params = json!({"sessionId": name, "terminalId": made});
        let exit = self.ask("terminal/wait_for_exit", params.clone());
        let output = self.ask("terminal/output", params.clone());
        self.update(name, json!({"sessionUpdate": "tool_call_update", "toolCallId": "sh",
            "status": "completed", "rawOutput": {"exit": exit["result"], "output": output["result"]}}));
        self.ask("terminal/release", params);
    }

    fn text(&self, session: &str, kind: &str, text: &str) {
        let content = json!({"type": "text", "text": text});
        self.update(session, json!({"sessionUpdate": kind, "content": content}));
    }

    fn update(&self, session: &str, update: Value) {
        let params = json!({"sessionId": session, "update": update});
        self.say(json!({"jsonrpc": "2.0", "method": "session/update", "params": params}));
    }

    fn ask(&self, method: &str, params: Value) -> Value {
        self.begin(method, params).1.recv().unwrap()
    }

    /// Sends a request. Returns its id and the receiver of the response.
    fn begin(&self, method: &str, params: Value) -> (u64, Receiver<Value>) {
        let id = self.number();
        let (tell, told) = channel();
        self.waiting.lock().unwrap().insert(id, tell);
        self.say(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        (id, told)
    }

    fn answer(&self, id: &Value, result: Value) {
        self.say(json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    fn say(&self, message: Value) {
        let mut out = std::io::stdout().lock();
        // Messages to a client that is gone are dropped.
        let _ = writeln!(out, "{message}").and_then(|()| out.flush());
    }

    fn number(&self) -> u64 {
        let mut next = self.next.lock().unwrap();
        *next += 1;
        *next
    }
}

/// A minimal client of one MCP server, over HTTP or stdio.
struct Mcp<'a>(&'a Value, Option<Mutex<Child>>);

impl<'a> Mcp<'a> {
    /// Connects and lists the tools.
    fn open(server: &'a Value) -> Self {
        let process = server["command"].as_str().map(|command| {
            let args = server["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap());
            let mut starting = Command::new(command);
            starting.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
            for variable in server["env"].as_array().unwrap() {
                let (name, value) = (variable["name"].as_str(), variable["value"].as_str());
                starting.env(name.unwrap(), value.unwrap());
            }
            Mutex::new(starting.spawn().unwrap())
        });
        let mcp = Self(server, process);
        let client = json!({"name": "scripted", "version": "1"});
        let hello =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        mcp.ask("initialize", hello);
        if let Some(process) = &mcp.1 {
            let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            writeln!(process.lock().unwrap().stdin.as_mut().unwrap(), "{ready}").unwrap();
        }
        mcp.ask("tools/list", json!({}));
        mcp
    }

    /// Calls a tool and returns its text.
    fn call(&self, call: &Value) -> String {
        let result = self.ask("tools/call", call.clone());
        let words = result["content"][0]["text"].as_str().unwrap();
        if result["isError"] == true { format!("error: {words}") } else { words.to_owned() }
    }

    fn ask(&self, method: &str, params: Value) -> Value {
        match &self.1 {
            Some(process) => ask_process(&mut process.lock().unwrap(), method, params),
            None => self.ask_url(method, params),
        }
    }

    fn ask_url(&self, method: &str, params: Value) -> Value {
        let url = self.0["url"].as_str().unwrap().strip_prefix("http://").unwrap();
        let (host, path) = url.split_once('/').unwrap();
        let body =
            json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let mut head = format!(
            "POST /{path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nconnection: close\r\n\
             mcp-protocol-version: 2025-06-18\r\ncontent-length: {}\r\n",
            body.len()
        );
        for header in self.0["headers"].as_array().unwrap() {
            let (name, value) = (header["name"].as_str(), header["value"].as_str());
            head += &format!("{}: {}\r\n", name.unwrap(), value.unwrap());
        }
        let mut stream = TcpStream::connect(host).unwrap();
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
        let body = read_body(&mut BufReader::new(stream));
        let messages = match body.strip_prefix('{') {
            Some(_) => vec![body],
            None => {
                body.lines().filter_map(|it| it.strip_prefix("data: ")).map(Into::into).collect()
            }
        };
        let messages = messages.iter().filter_map(|it| serde_json::from_str::<Value>(it).ok());
        let mut answer = messages.filter(|message| message["id"] == 1);
        answer.next().unwrap_or_else(|| panic!("no answer to {method}"))["result"].take()
    }
}

impl Drop for Mcp<'_> {
    fn drop(&mut self) {
        if let Some(process) = &self.1 {
            let mut process = process.lock().unwrap();
            // The process exits when its input is closed.
            drop(process.stdin.take());
            process.wait().unwrap();
        }
    }
}

fn ask_process(process: &mut Child, method: &str, params: Value) -> Value {
    let ask = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    writeln!(process.stdin.as_mut().unwrap(), "{ask}").unwrap();
    let mut line = Vec::new();
    let mut byte = [0];
    // Byte by byte, because a buffer would also take later messages.
    while process.stdout.as_mut().unwrap().read(&mut byte).unwrap() == 1 {
        line.push(byte[0]);
        if byte[0] == b'\n' {
            let message = serde_json::from_slice::<Value>(&line).unwrap_or_default();
            if message["id"] == 1 {
                return message["result"].clone();
            }
            line.clear();
        }
    }
    panic!("no answer to {method}")
}

fn read_body(stream: &mut BufReader<TcpStream>) -> String {
    let (mut chunked, mut length) = (false, None);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let line = line.trim_end().to_lowercase();
        if line.is_empty() {
            break;
        }
        chunked |= line == "transfer-encoding: chunked";
        length = length.or(line.strip_prefix("content-length: ").map(|it| it.parse().unwrap()));
    }
    let mut body = Vec::new();
    if chunked {
        loop {
            let mut size = String::new();
            stream.read_line(&mut size).unwrap();
            let size = usize::from_str_radix(size.trim(), 16).unwrap();
            let mut piece = vec![0; size + 2];
            stream.read_exact(&mut piece).unwrap();
            body.extend_from_slice(&piece[..size]);
            if size == 0 {
                break;
            }
        }
    } else {
        body = vec![0; length.unwrap_or(0)];
        stream.read_exact(&mut body).unwrap();
    }
    String::from_utf8(body).unwrap()
}
