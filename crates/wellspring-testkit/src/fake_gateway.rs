//! An OpenClaw gateway that plays scripts.
//!
//! It is strict: a request with a missing or unknown parameter, a first frame that is not
//! `connect`, or an unknown method is rejected as the real gateway rejects it. Frames have the
//! shapes of recordings of the real gateway. A prompt is a script, one word per step:
//!
//! | word | the run |
//! | --- | --- |
//! | `think:TEXT`, `say:TEXT` | thinks or says more, as snapshots of the whole message |
//! | `lump:TEXT` | says it in one piece at the end |
//! | `tool` | a preamble, a command with output, and a new message |
//! | `hold` | waits for [`FakeGateway::release`] |
//! | `fail` | ends as after an error of the provider |
//! | `hang` | never continues |
//! | `skip` | loses events: their numbers are skipped |
//!
//! Underscores stand for spaces. Runs outlive the connection that requested them, and every
//! client gets the events of all runs.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, broadcast, watch};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio_tungstenite::accept_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

/// Number of events that a client may lag behind.
const EVENTS_MAX: usize = 4_096;

/// Options of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// The token that clients must send.
    pub token: String,
    /// Milliseconds between two ticks.
    pub tick_ms: u64,
    /// The number of handshakes to reject because the gateway is starting.
    pub starting: u32,
    /// Whether unknown devices must be paired first.
    pub pairing: bool,
    /// The protocol version.
    pub protocol: u64,
    /// Whether it accepts every range of protocol versions, and reports its version only in the
    /// response.
    pub accepts_any_protocol: bool,
    /// The longest that it lets `agent.wait` wait, in milliseconds.
    pub wait_ms_max: u64,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        let token = "secret-token".to_owned();
        Self {
            token,
            tick_ms: 30_000,
            starting: 0,
            pairing: false,
            protocol: 4,
            accepts_any_protocol: false,
            wait_ms_max: 60_000,
        }
    }
}

/// A gateway on its own port. It stops when dropped.
#[derive(Debug)]
pub struct FakeGateway {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    options: Mutex<GatewayOptions>,
    state: Mutex<State>,
    /// Events for all clients, without sequence numbers.
    events: broadcast::Sender<Value>,
    /// Incremented to close all connections.
    cuts: watch::Sender<u32>,
    /// `false` while the gateway sends nothing, not even ticks.
    alive: watch::Sender<bool>,
    /// Whether connections are closed as soon as they are made.
    away: AtomicBool,
    released: Semaphore,
    asked: watch::Sender<Vec<(String, Value)>>,
}

#[derive(Debug, Default)]
struct State {
    boot: u32,
    runs: BTreeMap<String, Run>,
    connections: u32,
}

#[derive(Debug)]
struct Run {
    session: String,
    /// The whole text, as `chat` events contain it.
    text: String,
    /// The text of the last message.
    message: String,
    item: u32,
    seq: u64,
    /// The last response.
    done: Option<Value>,
    playing: Option<AbortHandle>,
}

impl FakeGateway {
    /// Starts a gateway.
    ///
    /// # Errors
    ///
    /// If no port is free.
    pub async fn start(options: GatewayOptions) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            options: Mutex::new(options),
            state: Mutex::default(),
            events: broadcast::Sender::new(EVENTS_MAX),
            cuts: watch::Sender::new(0),
            alive: watch::Sender::new(true),
            away: AtomicBool::new(false),
            released: Semaphore::new(0),
            asked: watch::Sender::default(),
        });
        let serving = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                clients.spawn(async move { shared.serve(client).await });
            }
        });
        Ok(Self { address, shared, accepting })
    }

    /// The URL of the gateway.
    #[must_use]
    pub fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    /// The methods that were called, with their parameters.
    #[must_use]
    pub fn asked(&self) -> Vec<(String, Value)> {
        self.shared.asked.borrow().clone()
    }

    /// Waits until a method was called `times` times.
    pub async fn was_asked(&self, method: &str, times: usize) {
        let mut asked = self.shared.asked.subscribe();
        let count = |asked: &Vec<(String, Value)>| asked.iter().filter(|it| it.0 == method).count();
        // The sender lives as long as `self`.
        let _ = asked.wait_for(|asked| count(asked) >= times).await;
    }

    /// The number of connections so far.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.shared.state().connections
    }

    /// Lets a run in `hold` continue, now or when it gets there.
    pub fn release(&self) {
        self.shared.released.add_permits(1);
    }

    /// Closes all connections. Runs continue.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Restarts: all connections are closed, and all runs are lost.
    pub fn restart(&self) {
        {
            let mut state = self.shared.state();
            state.boot += 1;
            for run in std::mem::take(&mut state.runs).into_values() {
                if let Some(playing) = run.playing {
                    playing.abort();
                }
            }
        }
        self.cut();
    }

    /// Makes the gateway unreachable, or reachable again. Runs continue.
    pub fn go_away(&self, away: bool) {
        self.shared.away.store(away, Ordering::Relaxed);
        if away {
            self.cut();
        }
    }

    /// Stops or resumes sending to all clients, including ticks.
    pub fn freeze(&self, frozen: bool) {
        self.shared.alive.send_replace(!frozen);
    }
}

impl Drop for FakeGateway {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn refusal(code: &str, message: &str, details: &Value) -> Value {
    json!({"code": code, "message": message, "details": details})
}

/// The parameters of a method: required ones, and other known ones.
fn parameters(method: &str) -> Option<(&'static [&'static str], &'static [&'static str])> {
    Some(match method {
        "connect" => (
            &["minProtocol", "maxProtocol", "client"],
            &["role", "scopes", "caps", "auth", "locale", "userAgent", "device"],
        ),
        "agent" => (
            &["message", "idempotencyKey"],
            &["sessionKey", "deliver", "extraSystemPrompt", "model", "attachments"],
        ),
        "agent.wait" => (&["runId"], &["timeoutMs"]),
        "chat.abort" => (&["sessionKey"], &["runId"]),
        "chat.history" => (&["sessionKey"], &["limit"]),
        "sessions.messages.subscribe" => (&["key"], &[]),
        _ => return None,
    })
}

fn invalid(method: &str, params: &Value) -> Option<Value> {
    let bad = |message: String| Some(refusal("INVALID_REQUEST", &message, &Value::Null));
    let Some((required, optional)) = parameters(method) else {
        return bad(format!("unknown method: {method}"));
    };
    let names: BTreeSet<&str> =
        params.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    if let Some(missing) = required.iter().find(|name| !names.contains(**name)) {
        return bad(format!("invalid {method} params: must have required property '{missing}'"));
    }
    let unknown = names.iter().find(|name| !required.contains(name) && !optional.contains(name));
    unknown.and_then(|name| bad(format!("invalid {method} params: unexpected property '{name}'")))
}

type Socket = tokio_tungstenite::WebSocketStream<TcpStream>;

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn options(&self) -> MutexGuard<'_, GatewayOptions> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(self: Arc<Self>, client: TcpStream) -> Option<()> {
        let nonce = format!("nonce-{}", self.state().connections);
        self.state().connections += 1;
        if self.away.load(Ordering::Relaxed) {
            return None;
        }
        let mut socket = accept_async(client).await.ok()?;
        let challenge = json!({"type": "event", "event": "connect.challenge",
            "payload": {"nonce": nonce, "ts": 1_794_765_175_772_u64}});
        send(&mut socket, &challenge).await?;
        let first = receive(&mut socket).await?;
        if first["method"] != "connect" {
            let close =
                CloseFrame { code: CloseCode::Policy, reason: "invalid request frame".into() };
            return socket.close(Some(close)).await.ok();
        }
        self.note(&first);
        let (protocol, tick_ms) = {
            let options = self.options();
            (options.protocol, options.tick_ms)
        };
        if let Some((error, code)) = self.refuses(&first["params"], &nonce) {
            let answer = json!({"type": "res", "id": first["id"], "ok": false, "error": error});
            send(&mut socket, &answer).await?;
            let close = CloseFrame { code, reason: "refused".into() };
            return socket.close(Some(close)).await.ok();
        }
        let boot = self.state().boot;
        let hello = json!({
            "type": "hello-ok", "protocol": protocol,
            "server": {"version": "2026.9.6", "bootId": format!("boot-{boot}"), "connId": nonce},
            "features": {"methods": ["agent"], "events": ["agent", "chat", "tick"]},
            "snapshot": {}, "policy": {"maxPayload": 26_214_400, "tickIntervalMs": tick_ms},
        });
        let answer = json!({"type": "res", "id": first["id"], "ok": true, "payload": hello});
        // This client gets the events after the response.
        let events = self.events.subscribe();
        send(&mut socket, &answer).await?;
        self.talk(socket, events, Duration::from_millis(tick_ms)).await
    }

    fn note(&self, frame: &Value) {
        let method = frame["method"].as_str().unwrap_or_default().to_owned();
        self.asked.send_modify(|asked| asked.push((method, frame["params"].clone())));
    }

    fn refuses(&self, params: &Value, nonce: &str) -> Option<(Value, CloseCode)> {
        if let Some(error) = invalid("connect", params) {
            return Some((error, CloseCode::Policy));
        }
        let mut options = self.options();
        if options.starting > 0 {
            options.starting -= 1;
            let error = json!({"code": "UNAVAILABLE", "message": "gateway starting",
                "retryable": true, "retryAfterMs": 10, "details": {"reason": "startup-sidecars"}});
            return Some((error, CloseCode::Again));
        }
        let range = params["minProtocol"].as_u64()..=params["maxProtocol"].as_u64();
        if !options.accepts_any_protocol && !range.contains(&Some(options.protocol)) {
            let details =
                json!({"code": "PROTOCOL_MISMATCH", "expectedProtocol": options.protocol});
            let error = refusal("INVALID_REQUEST", "protocol mismatch", &details);
            return Some((error, CloseCode::Protocol));
        }
        let client = &params["client"];
        if client["id"] != "gateway-client" || client["mode"] != "backend" {
            let error = refusal("INVALID_REQUEST", "invalid client", &Value::Null);
            return Some((error, CloseCode::Policy));
        }
        if params["auth"]["token"] != json!(options.token) {
            let details = json!({"code": "AUTH_TOKEN_MISMATCH", "authReason": "token_mismatch"});
            let message = "unauthorized: gateway token mismatch (provide gateway auth token)";
            return Some((refusal("INVALID_REQUEST", message, &details), CloseCode::Policy));
        }
        let device = &params["device"];
        if options.pairing || !device.is_null() {
            let details = if device.is_null() {
                json!({"code": "DEVICE_IDENTITY_REQUIRED"})
            } else if device["nonce"] != nonce {
                json!({"code": "DEVICE_AUTH_NONCE_MISMATCH"})
            } else if !is_signed(params, nonce) {
                json!({"code": "DEVICE_AUTH_SIGNATURE_INVALID"})
            } else if !options.pairing {
                return None;
            } else {
                json!({"code": "PAIRING_REQUIRED", "requestId": "req-7", "reason": "not-paired"})
            };
            return Some((refusal("NOT_PAIRED", "pairing required", &details), CloseCode::Policy));
        }
        None
    }

    async fn talk(
        self: Arc<Self>,
        mut socket: Socket,
        mut events: broadcast::Receiver<Value>,
        tick: Duration,
    ) -> Option<()> {
        let (answers, mut answered) = tokio::sync::mpsc::channel::<Value>(EVENTS_MAX);
        let mut cuts = self.cuts.subscribe();
        let mut alive = self.alive.subscribe();
        let mut ticks = tokio::time::interval(tick);
        let mut seq = 0_u64;
        loop {
            alive.wait_for(|alive| *alive).await.ok()?;
            let mut event: Value = tokio::select! {
                biased;
                _ = cuts.changed() => return None,
                // As at the gateway, responses follow the events that led to them.
                event = events.recv() => event.ok()?,
                frame = receive(&mut socket) => {
                    let frame = frame?;
                    self.note(&frame);
                    for answer in self.answer(&frame, &answers) {
                        send(&mut socket, &answer).await?;
                    }
                    continue;
                }
                answer = answered.recv() => {
                    send(&mut socket, &answer?).await?;
                    continue;
                }
                _ = ticks.tick() => json!({"type": "event", "event": "tick", "payload": {"ts": 1}}),
            };
            if cuts.has_changed().ok()? {
                return None;
            }
            if !*alive.borrow() {
                alive.wait_for(|alive| *alive).await.ok()?;
            }
            seq += event["skips"].as_u64().unwrap_or(1);
            if !event["skips"].is_null() {
                continue;
            }
            event["seq"] = json!(seq);
            send(&mut socket, &event).await?;
        }
    }

    /// The immediate responses to a request. Later ones go to `answers`.
    fn answer(
        self: &Arc<Self>,
        frame: &Value,
        answers: &tokio::sync::mpsc::Sender<Value>,
    ) -> Vec<Value> {
        let (id, params) = (&frame["id"], &frame["params"]);
        let method = frame["method"].as_str().unwrap_or_default();
        if let Some(error) = invalid(method, params) {
            return vec![json!({"type": "res", "id": id, "ok": false, "error": error})];
        }
        let ok = |payload: Value| json!({"type": "res", "id": id, "ok": true, "payload": payload});
        let text = |name: &str| params[name].as_str().unwrap_or_default().to_owned();
        match method {
            "agent" => {
                let run_id = text("idempotencyKey");
                let mut state = self.state();
                if let Some(run) = state.runs.get(&run_id) {
                    let running = json!({"runId": run_id, "status": "in_flight"});
                    return vec![ok(run.done.clone().unwrap_or(running))];
                }
                let run = Run {
                    session: text("sessionKey"),
                    text: String::new(),
                    message: String::new(),
                    item: 1,
                    seq: 0,
                    done: None,
                    playing: None,
                };
                state.runs.insert(run_id.clone(), run);
                let (shared, answers) = (Arc::clone(self), answers.clone());
                let (script, request, name) = (text("message"), id.clone(), run_id.clone());
                let playing = tokio::spawn(async move {
                    shared.play(&name, &script).await;
                    if let Some(answer) = shared.result(&name, &request) {
                        let _ = answers.send(answer).await;
                    }
                });
                if let Some(run) = state.runs.get_mut(&run_id) {
                    run.playing = Some(playing.abort_handle());
                }
                vec![ok(json!({"runId": run_id, "sessionKey": text("sessionKey"),
                    "agentId": "main", "status": "accepted", "acceptedAt": 1}))]
            }
            "agent.wait" => {
                let (shared, answers, id) = (Arc::clone(self), answers.clone(), id.clone());
                let (run_id, time) = (text("runId"), params["timeoutMs"].as_u64().unwrap_or(0));
                let time = time.min(self.options().wait_ms_max);
                let mut events = self.events.subscribe();
                tokio::spawn(async move {
                    let done = || {
                        let state = shared.state();
                        let run = state.runs.get(&run_id)?;
                        let done = run.done.as_ref()?;
                        Some(json!({"runId": run_id, "status": done["status"], "endedAt": 2,
                            "error": done["error"],
                            "terminalReply": {"disposition": "visible", "text": run.message}}))
                    };
                    let waiting = async {
                        loop {
                            if let Some(done) = done() {
                                return done;
                            }
                            // Any event may have been the last one.
                            let _ = events.recv().await;
                        }
                    };
                    let waited = tokio::time::timeout(Duration::from_millis(time), waiting).await;
                    let still = json!({"runId": run_id, "status": "timeout"});
                    let payload = waited.ok().unwrap_or(still);
                    let answer = json!({"type": "res", "id": id, "ok": true, "payload": payload});
                    let _ = answers.send(answer).await;
                });
                Vec::new()
            }
            "chat.abort" => {
                let run_id = text("runId");
                let aborted = self.abort(&run_id);
                let _ = answers
                    .try_send(ok(json!({"ok": true, "aborted": aborted, "runIds": [run_id]})));
                Vec::new()
            }
            "chat.history" => {
                let state = self.state();
                let run = state
                    .runs
                    .iter()
                    .find(|(_, run)| run.done.is_none() && run.session == text("sessionKey"));
                let run = run.map(|(id, run)| json!({"runId": id, "text": run.text}));
                vec![ok(
                    json!({"sessionKey": text("sessionKey"), "messages": [], "inFlightRun": run}),
                )]
            }
            _ => vec![ok(json!({"subscribed": true}))],
        }
    }

    fn abort(&self, run_id: &str) -> bool {
        let mut state = self.state();
        let Some(run) = state.runs.get_mut(run_id).filter(|run| run.done.is_none()) else {
            return false;
        };
        if let Some(playing) = run.playing.take() {
            playing.abort();
        }
        run.done = Some(json!({"runId": run_id, "status": "timeout", "summary": "aborted"}));
        // The last word is only in this message.
        run.text += " bye";
        let message = json!({"role": "assistant", "content": [{"type": "text", "text": run.text}]});
        let chat = json!({"type": "event", "event": "chat", "payload": {"runId": run_id,
            "state": "aborted", "stopReason": "rpc", "message": message}});
        let _ = self.events.send(chat);
        drop(state);
        self.agent(run_id, "lifecycle", &json!({"phase": "end", "aborted": true}));
        let late =
            json!({"phase": "error", "aborted": true, "error": "This operation was aborted"});
        self.agent(run_id, "lifecycle", &late);
        true
    }

    fn agent(&self, run_id: &str, stream: &str, data: &Value) {
        let mut state = self.state();
        let Some(run) = state.runs.get_mut(run_id) else { return };
        run.seq += 1;
        let payload = json!({"runId": run_id, "sessionKey": run.session, "agentId": "main",
            "stream": stream, "data": data, "seq": run.seq, "ts": 1, "unheardOf": {"x": 1}});
        let _ = self.events.send(json!({"type": "event", "event": "agent", "payload": payload}));
    }

    fn say(&self, run_id: &str, more: &str) {
        let (message, item) = {
            let mut state = self.state();
            let Some(run) = state.runs.get_mut(run_id) else { return };
            run.message += more;
            run.text += more;
            (run.message.clone(), run.item)
        };
        let item = format!("{run_id}:{item}");
        self.agent(run_id, "assistant", &json!({"text": message, "delta": more, "itemId": item}));
    }

    async fn play(&self, run_id: &str, script: &str) {
        self.agent(run_id, "lifecycle", &json!({"phase": "start", "startedAt": 1}));
        let model = json!({"phase": "model", "provider": "mock", "model": "mock-1"});
        self.agent(run_id, "lifecycle", &model);
        let (mut thought, mut lump) = (String::new(), String::new());
        for step in script.split_whitespace() {
            let (word, text) = step.split_once(':').unwrap_or((step, ""));
            let text = text.replace('_', " ");
            match word {
                "think" => {
                    thought += &text;
                    self.agent(run_id, "thinking", &json!({"text": thought, "delta": text}));
                }
                "say" => self.say(run_id, &text),
                "lump" => lump += &text,
                "tool" => {
                    self.tool(run_id);
                    thought.clear();
                }
                "hold" => {
                    if let Ok(permit) = self.released.acquire().await {
                        permit.forget();
                    }
                }
                "hang" => return std::future::pending().await,
                "skip" => drop(self.events.send(json!({"skips": 3}))),
                "fail" => {
                    let detail = json!({"provider": "mock", "failoverReason": "rate_limit"});
                    let mut state = self.state();
                    if let Some(run) = state.runs.get_mut(run_id) {
                        run.done = Some(json!({"runId": run_id, "status": "error",
                            "error": "the provider is busy"}));
                    }
                    drop(state);
                    let error = json!({"phase": "error", "error": "the provider is busy",
                        "errorObservation": detail, "executionSettled": true});
                    return self.agent(run_id, "lifecycle", &error);
                }
                _ => {}
            }
        }
        if !lump.is_empty() {
            self.say(run_id, &lump);
        }
        self.agent(run_id, "usage", &json!({"outputTokens": 7}));
        let (message, text) = {
            let mut state = self.state();
            let Some(run) = state.runs.get_mut(run_id) else { return };
            run.done = Some(json!({"runId": run_id, "status": "ok", "summary": "completed",
                "result": {"payloads": [{"text": run.message, "mediaUrl": null}], "meta": {
                    "agentMeta": {"provider": "mock", "model": "mock-1",
                        "usage": {"input": 11, "output": 7, "cacheRead": 0}}}}}));
            (run.message.clone(), run.text.clone())
        };
        self.agent(
            run_id,
            "lifecycle",
            &json!({"phase": "end", "aborted": false,
            "stopReason": "stop", "executionSettled": true,
            "terminalReply": {"disposition": "visible", "text": message}}),
        );
        let message = json!({"role": "assistant", "content": [{"type": "text", "text": text}]});
        let _ = self.events.send(json!({"type": "event", "event": "chat", "payload": {
            "runId": run_id, "state": "final", "stopReason": "stop", "message": message}}));
    }

    /// A command: the text before it becomes a preamble, and a new message follows.
    fn tool(&self, run_id: &str) {
        let said = {
            let state = self.state();
            state.runs.get(run_id).map(|run| run.message.clone()).unwrap_or_default()
        };
        if !said.is_empty() {
            self.agent(
                run_id,
                "item",
                &json!({"kind": "preamble", "phase": "end",
                "progressText": said, "itemId": "commentary-0"}),
            );
        }
        let item = json!({"itemId": "tool:t1", "toolCallId": "t1", "name": "exec", "kind": "tool",
            "phase": "start", "title": "Exec print text", "status": "running",
            "commandBearing": true});
        self.agent(run_id, "item", &item);
        for data in [
            json!({"phase": "start", "name": "exec", "toolCallId": "t1",
                "args": {"command": "echo hi"}}),
            json!({"phase": "update", "name": "exec", "toolCallId": "t1",
                "partialResult": {"content": [{"type": "text", "text": "hi\n"}],
                    "details": {"status": "running"}}}),
        ] {
            self.agent(run_id, "tool", &data);
        }
        self.agent(
            run_id,
            "command_output",
            &json!({"phase": "delta", "toolCallId": "t1",
            "name": "exec", "output": "hi", "status": "running"}),
        );
        self.agent(
            run_id,
            "tool",
            &json!({"phase": "result", "name": "exec", "toolCallId": "t1",
            "isError": false, "result": {"content": [{"type": "text", "text": "hi"}]}}),
        );
        let mut state = self.state();
        let Some(run) = state.runs.get_mut(run_id) else { return };
        run.item += 1;
        if !run.message.is_empty() {
            run.text += "\n\n";
        }
        run.message.clear();
    }

    fn result(&self, run_id: &str, request: &Value) -> Option<Value> {
        let state = self.state();
        let payload = state.runs.get(run_id)?.done.clone()?;
        if payload["status"] == "error" {
            let error = json!({"code": "UNAVAILABLE", "message": payload["error"]});
            return Some(json!({"type": "res", "id": request, "ok": false, "payload": payload,
                "error": error}));
        }
        Some(json!({"type": "res", "id": request, "ok": true, "payload": payload}))
    }
}

/// Whether a device has signed what the gateway compares: version 3 of the text.
fn is_signed(params: &Value, nonce: &str) -> bool {
    let (client, device) = (&params["client"], &params["device"]);
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let decoded = |value: &Value| BASE64_URL_SAFE_NO_PAD.decode(word(value)).unwrap_or_default();
    let public_key = decoded(&device["publicKey"]);
    let id: String = Sha256::digest(&public_key).iter().map(|byte| format!("{byte:02x}")).collect();
    let scopes: Vec<String> = params["scopes"].as_array().into_iter().flatten().map(word).collect();
    let signed = [
        "v3".to_owned(),
        id.clone(),
        word(&client["id"]),
        word(&client["mode"]),
        word(&params["role"]),
        scopes.join(","),
        device["signedAt"].to_string(),
        word(&params["auth"]["token"]),
        nonce.to_owned(),
        word(&client["platform"]).to_lowercase(),
        word(&client["deviceFamily"]),
    ];
    let key = UnparsedPublicKey::new(&ED25519, public_key);
    word(&device["id"]) == id
        && key.verify(signed.join("|").as_bytes(), &decoded(&device["signature"])).is_ok()
}

async fn send(socket: &mut Socket, frame: &Value) -> Option<()> {
    socket.send(Message::text(frame.to_string())).await.ok()
}

async fn receive(socket: &mut Socket) -> Option<Value> {
    loop {
        match socket.next().await? {
            Ok(Message::Text(text)) => return serde_json::from_str(&text).ok(),
            Ok(Message::Close(_)) | Err(_) => return None,
            Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
        }
    }
}
