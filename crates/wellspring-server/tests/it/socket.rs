//! Our own API on one WebSocket.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use wellspring_core::{Approval, Outcome, ToolSpec};
use wellspring_engine::{AgentDef, Permission, Policy, Rule, Runtime};
use wellspring_log::Log;
use wellspring_models::{Gate, Say};
use wellspring_server::{ServerConfig, ServerLimits, Tokens};

use crate::access::two_tenants;
use crate::kit::{Kit, agent, config, echo};

/// A client of one socket.
pub(crate) struct Socket {
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// Messages that arrived while the test waited for another one.
    kept: VecDeque<Value>,
}

/// Time limit for a message that is expected, so that a test fails instead of waiting for ever.
const PATIENCE: Duration = Duration::from_secs(30);

impl Socket {
    /// Opens a socket, with a token as a browser sends it.
    pub(crate) async fn open(kit: &Kit, path: &str) -> Result<Self, Error> {
        let url = kit.url(path).replacen("http", "ws", 1);
        let mut request = url.into_client_request().unwrap();
        if let Some(token) = &kit.token {
            let offered = format!("wellspring, bearer.{token}").parse().unwrap();
            request.headers_mut().insert("sec-websocket-protocol", offered);
        }
        let (socket, response) = connect_async(request).await?;
        let taken = response.headers().get("sec-websocket-protocol");
        assert_eq!(taken.map(|it| it.to_str().unwrap()), kit.token.as_ref().map(|_| "wellspring"));
        Ok(Self { stream: socket, kept: VecDeque::new() })
    }

    pub(crate) async fn send(&mut self, message: &Value) {
        self.send_text(&message.to_string()).await;
    }

    pub(crate) async fn send_text(&mut self, message: &str) {
        self.stream.send(Message::text(message)).await.unwrap();
    }

    /// The next message; `None` after the end, whose close frame is kept.
    pub(crate) async fn next(&mut self) -> Result<Value, Option<(u16, String)>> {
        match self.kept.pop_front() {
            Some(kept) => Ok(kept),
            None => self.receive().await,
        }
    }

    async fn receive(&mut self) -> Result<Value, Option<(u16, String)>> {
        let text = self.receive_text().await?;
        Ok(serde_json::from_str(&text).unwrap())
    }

    /// The next message of a protocol whose messages are not bare JSON.
    pub(crate) async fn receive_text(&mut self) -> Result<String, Option<(u16, String)>> {
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let next = tokio::time::timeout_at(until, self.stream.next()).await;
            match next.unwrap() {
                Some(Ok(Message::Text(text))) => return Ok(text.to_string()),
                Some(Ok(Message::Close(frame))) => {
                    let said = frame.map(|it| (CloseCode::into(it.code), it.reason.to_string()));
                    return Err(said);
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(None),
            }
        }
    }

    /// The answer to a request; events in between are kept.
    pub(crate) async fn ask(&mut self, message: &Value) -> Value {
        self.send(message).await;
        loop {
            let answer = self.receive().await.unwrap();
            if answer["type"] != "events" && answer["type"] != "ended" {
                return answer;
            }
            self.kept.push_back(answer);
        }
    }

    /// Events of a subscription until it has ended, or until one contains this.
    pub(crate) async fn events(&mut self, id: &str, until: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let message = self.next().await.unwrap();
            if message["id"] != id {
                continue;
            }
            match message["type"].as_str().unwrap() {
                "events" => {
                    let new = message["events"].as_array().unwrap();
                    events.extend(new.iter().cloned());
                    let says = |it: &Value| it["data"].to_string().contains(until);
                    if !until.is_empty() && new.iter().any(says) {
                        return events;
                    }
                }
                "ended" => return events,
                other => panic!("{other}: {message}"),
            }
        }
    }
}

pub(crate) fn started(answer: &Value) -> String {
    assert_eq!(answer["type"], "started", "{answer}");
    answer["run"]["run"].as_str().unwrap().to_owned()
}

/// Two runs on one socket, in two dialects: each sends the same as its stream over HTTP.
#[tokio::test]
async fn many_runs_on_one_socket() {
    let turns =
        [Say::new().thought("Hm.").call("echo", json!({"say": "x"})), Say::new().text("A b c.")];
    let kit = Kit::new(agent(turns, [echo()])).await;
    let mut socket = Socket::open(&kit, "/v1/socket").await.unwrap();
    let start = json!({ "id": "1", "type": "start", "agent": "agent", "input": "go" });
    let first = started(&socket.ask(&start).await);
    let second = started(
        &socket
            .ask(&json!({
                "id": "2", "type": "start", "agent": "agent", "input": "go", "idempotency_key": "k",
            }))
            .await,
    );
    let again = socket
        .ask(&json!({
            "id": "3", "type": "start", "agent": "agent", "input": "go", "idempotency_key": "k",
        }))
        .await;
    assert_eq!((started(&again), again["replayed"].as_bool()), (second.clone(), Some(true)));
    for (id, run, dialect) in
        [("a", &first, "record"), ("b", &second, "ag_ui"), ("c", &first, "stream_delta")]
    {
        let subscribe = json!({ "id": id, "type": "subscribe", "run": run, "dialect": dialect });
        let answer = socket.ask(&subscribe).await;
        assert_eq!((&answer["type"], &answer["id"]), (&json!("subscribed"), &json!(id)));
    }
    let mut said = BTreeMap::<String, Vec<Value>>::new();
    let mut ended = 0;
    while ended < 3 {
        let message = socket.next().await.unwrap();
        let of = said.entry(message["id"].as_str().unwrap().to_owned()).or_default();
        match message["type"].as_str().unwrap() {
            "events" => of.extend(message["events"].as_array().unwrap().iter().cloned()),
            "ended" => ended += 1,
            other => panic!("{other}"),
        }
    }
    for (id, run, dialect) in
        [("a", &first, "record"), ("b", &second, "ag_ui"), ("c", &first, "stream_delta")]
    {
        let over_http = kit.events(run.parse().unwrap(), dialect).await;
        let pairs = |it: &Value| {
            (
                it["id"].as_str().map(str::to_owned),
                serde_json::from_value::<Value>(it["data"].clone()).unwrap(),
            )
        };
        let got: Vec<_> = said[id].iter().map(pairs).collect();
        let want: Vec<_> = over_http
            .into_iter()
            .map(|event| (event.id, serde_json::from_str::<Value>(&event.data).unwrap()))
            .collect();
        // A dialect that only sends the latest state depends on how frames were cut.
        if dialect == "stream_delta" {
            assert_eq!(got.last(), want.last());
        } else {
            assert_eq!(got, want, "{dialect}");
        }
    }
}

/// A start with `subscribe` is followed by the run's events from the first one on; so is a repeated
/// start. An invalid subscription is reported before anything starts.
#[tokio::test]
async fn a_start_can_subscribe() {
    let kit = Kit::new(agent([Say::new().text("A b c.")], [])).await;
    let mut socket = Socket::open(&kit, "/v1/socket").await.unwrap();
    let start = |id: &str, subscribe: Value| {
        json!({
            "id": id, "type": "start", "agent": "agent", "input": "go", "idempotency_key": "k",
            "subscribe": subscribe,
        })
    };
    for (subscribe, code) in [
        (json!(7), "bad_json"),
        (json!({"credit": -1}), "bad_json"),
        (json!({"after": "1"}), "bad_json"),
        (json!({"dialect": "x"}), "unknown_dialect"),
    ] {
        let refused = socket.ask(&start("0", subscribe)).await;
        assert_eq!(refused["error"]["code"], code, "{refused}");
    }
    let mut runs = Vec::new();
    for id in ["1", "2"] {
        let answer = socket.ask(&start(id, json!({"dialect": "ag_ui", "credit": 1000}))).await;
        let run = started(&answer);
        let events = socket.events(id, "").await;
        let over_http = kit.events(run.parse().unwrap(), "ag_ui").await;
        let data: Vec<_> = events.iter().map(|event| event["data"].clone()).collect();
        let want: Vec<Value> =
            over_http.iter().map(|event| serde_json::from_str(&event.data).unwrap()).collect();
        assert_eq!(data, want);
        runs.push((run, answer["replayed"].clone()));
    }
    let run = runs[0].0.clone();
    assert_eq!(runs, [(run.clone(), json!(false)), (run, json!(true))]);
}

/// Every command to a run, while events of another run continue.
#[tokio::test]
async fn a_run_is_answered_steered_and_stopped() {
    let gate = Gate::new();
    let turns = [
        Say::new().call("echo", json!({"say": "x"})).call("page", json!({})),
        Say::new().text("Then").gate(&gate).text(" this."),
    ];
    let mut def = agent(turns, [echo()]);
    def.policy = Policy::default().rule(Rule::tool("echo").decide(Approval::Ask));
    let kit = Kit::new(def).await;
    let mut socket = Socket::open(&kit, "/v1/socket").await.unwrap();
    let tool = ToolSpec::new("page", "runs in the page");
    let run = started(
        &socket
            .ask(&json!({
                "id": "1", "type": "start", "agent": "agent", "input": "go", "client_tools": [tool],
            }))
            .await,
    );
    socket.ask(&json!({ "id": "s", "type": "subscribe", "run": run })).await;
    socket.events("s", "run_paused").await;
    let accepted = |answer: Value, id: &str| {
        assert_eq!((&answer["type"], &answer["id"]), (&json!("accepted"), &json!(id)), "{answer}");
    };
    let result =
        json!({ "id": "2", "type": "tool_result", "run": run, "call": 1, "output": "done" });
    accepted(socket.ask(&result).await, "2");
    let answer = json!({
        "id": "3", "type": "answer", "run": run, "question": 0, "answer": { "approve": {} },
    });
    accepted(socket.ask(&answer).await, "3");
    socket.events("s", "Then").await;
    let input = json!({ "id": "4", "type": "input", "run": run, "content": "and more" });
    accepted(socket.ask(&input).await, "4");
    let cancel = json!({ "id": "5", "type": "cancel", "run": run, "why": "enough" });
    accepted(socket.ask(&cancel).await, "5");
    let events = socket.events("s", "").await;
    assert!(events.last().unwrap()["data"].to_string().contains("run_finished"));
    let transcript = kit.wait(run.parse().unwrap()).await;
    assert!(matches!(transcript.outcome, Some(Outcome::Cancelled { .. })));
    // A finished run does not change.
    let over = socket.ask(&json!({ "id": "6", "type": "cancel", "run": run })).await;
    assert_eq!((&over["type"], &over["state"]), (&json!("accepted"), &json!("cancelled")));
}

/// A subscription without credit sends nothing, and the others continue.
#[tokio::test]
async fn a_slow_subscription_stalls_no_other() {
    const WORDS: usize = 2_000;
    let say = (0..WORDS).fold(Say::new(), |say, _| say.text("word "));
    let kit = Kit::new(agent([say], [])).await;
    let mut socket = Socket::open(&kit, "/v1/socket").await.unwrap();
    let run = kit.start().await;
    let whole = kit.events(run, "record").await.len();
    let subscribe = |id: &str, credit: Value| {
        let mut message = json!({ "id": id, "type": "subscribe", "run": run });
        message["credit"] = credit;
        message
    };
    socket.ask(&subscribe("slow", json!(1))).await;
    let first = socket.next().await.unwrap();
    let mut slow = first["events"].as_array().unwrap().len();
    assert!(slow < whole, "the credit held it back: {slow} of {whole}");
    let mut quick = subscribe("quick", Value::Null);
    quick.as_object_mut().unwrap().remove("credit");
    socket.ask(&quick).await;
    assert_eq!(socket.events("quick", "").await.len(), whole);
    // With credit, the slow subscription continues where it stopped.
    let mut ended = false;
    let mut asked = 0;
    while !ended {
        asked += 1;
        let credit = json!({ "id": format!("c{asked}"), "type": "credit", "subscription": "slow", "more": whole });
        socket.send(&credit).await;
        loop {
            let message = socket.next().await.unwrap();
            match message["type"].as_str().unwrap() {
                "events" => slow += message["events"].as_array().unwrap().len(),
                "ended" => ended = true,
                "credited" if slow < whole => break,
                "credited" => continue,
                other => panic!("{other}"),
            }
            if ended {
                break;
            }
        }
    }
    assert_eq!(slow, whole);
}

/// Every invalid message gets an error, and the socket continues if it can.
#[tokio::test]
async fn malformed_messages_get_errors() {
    let limits = ServerLimits { body_bytes: 4096, ..ServerLimits::default() };
    let runtime = Runtime::new(Log::in_memory());
    let gate = Gate::new();
    let def = agent([Say::new().text("Hello").gate(&gate)], []);
    let kit = Kit::with(ServerConfig { limits, ..config() }, runtime, def).await;
    let run = kit.start().await;
    let mut socket = Socket::open(&kit, "/v1/socket").await.unwrap();
    let unknown = "01920000-0000-7000-8000-000000000001";
    for (message, code) in [
        ("{".to_owned(), "bad_json"),
        ("[]".into(), "bad_json"),
        ("null".into(), "bad_json"),
        ("{}".into(), "bad_id"),
        (r#"{"id":7,"type":"start"}"#.into(), "bad_id"),
        (json!({"id": "x".repeat(256), "type": "start"}).to_string(), "bad_id"),
        (r#"{"id":"a"}"#.into(), "unknown_type"),
        (r#"{"id":"a","type":"dance"}"#.into(), "unknown_type"),
        (r#"{"id":"a","type":"subscribe"}"#.into(), "bad_json"),
        (r#"{"id":"a","type":"subscribe","run":7}"#.into(), "bad_json"),
        (r#"{"id":"a","type":"subscribe","run":"nothing"}"#.into(), "no_run"),
        (json!({"id": "a", "type": "subscribe", "run": unknown}).to_string(), "no_run"),
        (json!({"id": "a", "type": "subscribe", "run": run, "after": "x"}).to_string(), "bad_cursor"),
        (json!({"id": "a", "type": "subscribe", "run": run, "after": "99"}).to_string(), "cursor_ahead"),
        (json!({"id": "a", "type": "subscribe", "run": run, "dialect": "x"}).to_string(), "unknown_dialect"),
        (json!({"id": "a", "type": "subscribe", "run": run, "kinds": "x"}).to_string(), "unknown_kind"),
        (json!({"id": "a", "type": "subscribe", "run": run, "credit": -1}).to_string(), "bad_json"),
        (json!({"id": "a", "type": "subscribe", "run": run, "usage": "omitted"}).to_string(), "no_option"),
        (r#"{"id":"a","type":"unsubscribe","subscription":"s"}"#.into(), "no_subscription"),
        (r#"{"id":"a","type":"credit","subscription":"s","more":1}"#.into(), "no_subscription"),
        (r#"{"id":"a","type":"start","agent":"agent"}"#.into(), "bad_json"),
        (r#"{"id":"a","type":"start","agent":"agent","input":""}"#.into(), "thread"),
        (r#"{"id":"a","type":"start","agent":"agent","input":[]}"#.into(), "no_input"),
        (r#"{"id":"a","type":"start","agent":"nobody","input":"x"}"#.into(), "no_agent"),
        (r#"{"id":"a","type":"cancel"}"#.into(), "bad_json"),
        (json!({"id": "a", "type": "cancel", "run": unknown}).to_string(), "no_run"),
        (json!({"id": "a", "type": "answer", "run": run, "question": 0, "answer": {"approve": {}}}).to_string(), "no_question"),
        (json!({"id": "a", "type": "tool_result", "run": run, "call": 9, "output": 1}).to_string(), "no_call"),
        (json!({"id": "a", "type": "input", "run": run, "content": []}).to_string(), "no_input"),
    ] {
        socket.stream.send(Message::text(message.clone())).await.unwrap();
        let answer = socket.next().await.unwrap();
        if code == "thread" {
            // An empty text is valid input.
            assert_eq!(answer["type"], "started", "{message}: {answer}");
            continue;
        }
        assert_eq!(answer["type"], "error", "{message}: {answer}");
        assert_eq!(answer["error"]["code"], code, "{message}: {answer}");
        assert!(!answer["error"]["remedy"].as_str().unwrap().is_empty());
        let has_id = serde_json::from_str::<Value>(&message).is_ok_and(|it| it["id"] == "a");
        assert_eq!(answer["id"] == "a", has_id, "{answer}");
    }
    socket.ask(&json!({ "id": "s", "type": "subscribe", "run": run })).await;
    let twice = socket.ask(&json!({ "id": "s", "type": "subscribe", "run": run })).await;
    assert_eq!(twice["error"]["code"], "subscription_exists");
    // The socket is closed after these.
    for (message, code, closed) in [
        (Message::binary(Bytes::from_static(b"{}")), "binary_message", 1003),
        (Message::text("x".repeat(5000)), "too_large", 1009),
    ] {
        let mut socket = Socket::open(&kit, "/v1/socket").await.unwrap();
        socket.stream.send(message).await.unwrap();
        assert_eq!(socket.next().await.unwrap()["error"]["code"], code);
        assert_eq!(socket.next().await, Err(Some((closed, code.to_owned()))));
    }
    let metrics = kit.get("/metrics").send().await.unwrap().text().await.unwrap();
    for line in ["wellspring_errors_total{code=\"bad_json\"} 8", "wellspring_connections "] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    gate.open();
    kit.wait(run).await;
}

/// Subscriptions beyond a maximum are refused, by the thousand, without a cost for other clients.
#[tokio::test]
async fn thousands_of_subscriptions_are_refused() {
    let gate = Gate::new();
    let kit = Kit::new(agent([Say::new().text("Hello").gate(&gate).text("!")], [])).await;
    let run = kit.start().await;
    let mut socket = Socket::open(&kit, "/v1/socket").await.unwrap();
    let (mut subscribed, mut refused) = (0, 0);
    for id in 0..1200 {
        let message =
            json!({ "id": format!("{id}"), "type": "subscribe", "run": run, "credit": 0 });
        let answer = socket.ask(&message).await;
        match answer["type"].as_str().unwrap() {
            "subscribed" => subscribed += 1,
            _ => {
                assert_eq!(answer["error"]["code"], "too_many_subscriptions");
                refused += 1;
            }
        }
    }
    assert_eq!((subscribed, refused), (1024, 176));
    assert_eq!(
        socket.ask(&json!({ "id": "x", "type": "unsubscribe", "subscription": "7" })).await["type"],
        "unsubscribed"
    );
    socket.ask(&json!({ "id": "7", "type": "subscribe", "run": run })).await;
    gate.open();
    let events = socket.events("7", "").await;
    assert!(events.last().unwrap()["data"].to_string().contains("run_finished"));
    drop(socket);
}

/// A socket is authenticated, limited and refused like a request.
#[tokio::test]
async fn a_socket_is_let_in_as_a_request_is() {
    let limits = ServerLimits { streams_per_token: 2, ..ServerLimits::default() };
    let (mut kit, [mine, other]) = two_tenants(ServerConfig { limits, ..config() }).await;
    let run = kit.start().await;
    let refused = |opened: Result<Socket, Error>| match opened {
        Err(Error::Http(response)) => response.status().as_u16(),
        Err(error) => panic!("{error}"),
        Ok(_) => 101,
    };
    kit.token = None;
    assert_eq!(refused(Socket::open(&kit, "/v1/socket").await), 401);
    kit.token = Some("wrong".into());
    assert_eq!(refused(Socket::open(&kit, "/v1/socket").await), 401);
    // A page of another site cannot open one with its visitor's credentials.
    let mut request =
        kit.url("/v1/socket").replacen("http", "ws", 1).into_client_request().unwrap();
    request.headers_mut().insert("origin", "https://evil.example".parse().unwrap());
    assert!(matches!(connect_async(request).await, Err(Error::Http(it)) if it.status() == 403));
    // Without an upgrade, the response explains what the route is.
    kit.token = Some(mine.clone());
    assert_eq!(kit.get("/v1/socket").send().await.unwrap().status(), 426);
    let mut socket = Socket::open(&kit, "/v1/socket").await.unwrap();
    let subscribe = |id: &str| json!({ "id": id, "type": "subscribe", "run": run });
    assert_eq!(socket.ask(&subscribe("a")).await["type"], "subscribed");
    assert_eq!(socket.ask(&subscribe("b")).await["error"]["code"], "too_many_streams");
    assert_eq!(refused(Socket::open(&kit, "/v1/socket").await), 429);
    kit.token = Some(other);
    let mut theirs = Socket::open(&kit, "/v1/socket").await.unwrap();
    assert_eq!(theirs.ask(&subscribe("a")).await["error"]["code"], "no_run");
}

/// A revoked token ends its sockets at their next message, and a token that may only read cannot do
/// more over a socket.
#[tokio::test]
async fn a_token_counts_for_every_message() {
    let runtime = Runtime::new(Log::in_memory());
    let tokens = Tokens::new(runtime.log().store().clone());
    let secret = tokens.create("reader", "one", &[Permission::Read]).await.unwrap();
    let mut kit = Kit::with(config(), runtime, agent([], [])).await;
    kit.token = Some(secret);
    let mut socket = Socket::open(&kit, "/v1/socket").await.unwrap();
    let start = json!({ "id": "1", "type": "start", "agent": "agent", "input": "go" });
    assert_eq!(socket.ask(&start).await["error"]["code"], "scope");
    kit.server.tokens().revoke("reader").await.unwrap();
    assert_eq!(socket.ask(&start).await["error"]["code"], "bad_token");
    assert_eq!(socket.next().await, Err(Some((1008, "bad_token".to_owned()))));
}

/// A server that shuts down sends an event on every subscription, also on one without credit, and
/// then one for the socket. It does not wait for a client that stays connected.
#[tokio::test]
async fn a_drain_ends_a_socket_out_loud() {
    let gate = Gate::new();
    let config = ServerConfig { drain: Duration::from_millis(10), ..config() };
    let def: AgentDef = agent([Say::new().text("Hello").gate(&gate)], []);
    let kit = Kit::with(config, Runtime::new(Log::in_memory()), def).await;
    let run = kit.start().await;
    let mut socket = Socket::open(&kit, "/v1/socket").await.unwrap();
    for (id, credit) in [("a", 1000), ("b", 0)] {
        let subscribe = json!({ "id": id, "type": "subscribe", "run": run, "credit": credit });
        assert_eq!(socket.ask(&subscribe).await["type"], "subscribed");
    }
    let stopping = tokio::spawn(kit.server.stop());
    let mut said = Vec::new();
    let closed = loop {
        match socket.next().await {
            Ok(message) => said.push(message),
            Err(closed) => break closed,
        }
    };
    assert_eq!(closed, Some((1012, "draining".to_owned())));
    for id in ["a", "b"] {
        let of: Vec<_> = said.iter().filter(|it| it["id"] == id).collect();
        let [.., events, ended] = &of[..] else { panic!("{of:?}") };
        let last = events["events"].as_array().unwrap().last().unwrap();
        assert_eq!(
            (&last["name"], &last["data"]["error"]["code"]),
            (&json!("closed"), &json!("draining"))
        );
        assert_eq!(ended["type"], "ended");
    }
    let last = said.last().unwrap();
    assert_eq!((&last["type"], &last["error"]["code"]), (&json!("error"), &json!("draining")));
    stopping.await.unwrap();
}
