//! use-ai's wire: `socket.io-client` against our server, the plain WebSocket, and how both work
//! together with the other wires.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use wellspring_core::{
    Approval, FailureKind, Model, RunId, Tool, ToolResult, ToolSpec, Transcript, TurnRequest,
};
use wellspring_engine::tools::from_function;
use wellspring_engine::{AgentDef, Policy, Rule, Runtime};
use wellspring_log::Log;
use wellspring_models::{Anthropic, Failure, Gate, Say, Scripted};
use wellspring_server::{ServerConfig, ServerLimits, UseAiConfig};
use wellspring_testkit::{Answer, FakeProvider};

use crate::access::two_tenants;
use crate::kit::{Kit, agent, config, echo, has_peer, parts};
use crate::socket::Socket;

/// A server with an agent for each scene.
async fn stage() -> Kit {
    let workflows = [("dify/summary".into(), "talk".into())].into();
    let use_ai = UseAiConfig { default_agent: None, workflows };
    let config = ServerConfig { use_ai, drain: Duration::ZERO, ..config() };
    let kit = Kit::with(config, Runtime::new(Log::in_memory()), agent([], [])).await;
    let register = |name: &str, def: AgentDef| {
        kit.runtime.register(AgentDef { name: name.into(), ..def });
    };
    let model = |model: Scripted| AgentDef::model("m", Arc::new(model) as Arc<dyn Model>);
    register("talk", agent([Say::new().thought("Hm.").text("Hello there.")], []));
    let paint = Say::new().call("paint", json!({"colour": "blue"}));
    register("paint", agent([paint, Say::new().text("Painted.")], []));
    let calls = Say::new().call("echo", json!({"say": "x"}));
    let mut asks = agent([calls, Say::new().text("Done.")], [echo()]);
    asks.policy = Policy::default().rule(Rule::tool("*").decide(Approval::Ask));
    register("ask", asks);
    register("stuck", agent([Say::new().text("one ").hang()], []));
    let gate = Gate::new();
    let gated = Say::new().text("before ").unfinished().gate(&gate).more(0, "after");
    register("gated", model(Scripted::with(move |_| gated.clone())));
    register(
        "open-gate",
        model(Scripted::with(move |_| {
            gate.pass();
            Say::new().text("open")
        })),
    );
    for (name, kind) in [
        ("overloaded", FailureKind::Unavailable),
        ("limited", FailureKind::RateLimited),
        ("broken", FailureKind::Internal),
    ] {
        let mut def = agent([Say::new().fail(Failure::new(kind, "because"))], []);
        def.limits.retries = 0;
        register(name, def);
    }
    kit
}

/// Every message in both directions, polling and upgrade, disconnections and invalid input. At the
/// end the server shuts down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn socket_io_client() {
    if !has_peer("WELLSPRING_PEER_SOCKET_IO") {
        return;
    }
    let said = stage().await.driven_by("use_ai/socket_io.mjs").await;
    insta::assert_snapshot!(said, @"
    polling only
    WebSocket only
    polling, then a WebSocket in mid-run
    several runs on one socket
    a tool in the page, answered in mid-run
    approved, and denied
    aborted by message, and by a bare event
    lost in mid-run, and back without a repeated word
    a result after the socket was lost
    feedback is kept with the run
    a workflow, and one that there is not
    reasoning by its older names
    failures by use-ai's names
    nonsense of every kind
    a drain is told
    ");
}

pub(crate) fn run_agent(agent: &str, run: &str, more: &Value) -> Value {
    let mut data = json!({
        "threadId": format!("t-{run}"), "runId": run,
        "messages": [{"id": format!("m-{run}"), "role": "user", "content": "go"}],
        "forwardedProps": {"agent": agent},
    });
    for (name, value) in more.as_object().unwrap() {
        data[name] = value.clone();
    }
    json!({"type": "run_agent", "data": data})
}

pub(crate) async fn until(socket: &mut Socket, kind: &str) -> Vec<Value> {
    let mut events = Vec::new();
    loop {
        let event = socket.next().await.unwrap();
        let is_last = event["type"] == kind;
        events.push(event);
        if is_last {
            return events;
        }
    }
}

/// The plain WebSocket: Socket.IO's named events are CUSTOM events; everything else is the same.
#[tokio::test]
async fn the_plain_socket_speaks_bare_json() {
    let kit = stage().await;
    let mut socket = Socket::open(&kit, "/use-ai").await.unwrap();
    let agents = socket.next().await.unwrap();
    assert_eq!((&agents["type"], &agents["name"]), (&json!("CUSTOM"), &json!("agents")));
    assert_eq!(agents["value"]["defaultAgent"], "agent");
    let config = socket.next().await.unwrap();
    assert_eq!(
        (&config["name"], &config["value"]),
        (&json!("config"), &json!({"langfuseEnabled": true}))
    );
    socket.send(&json!("nonsense")).await;
    assert_eq!(socket.next().await.unwrap()["code"], "bad_message");
    socket.send(&run_agent("ask", "r1", &json!({}))).await;
    let asked = until(&mut socket, "TOOL_APPROVAL_REQUEST").await;
    let id = &asked.last().unwrap()["toolCallId"];
    let yes = json!({"toolCallId": id, "approved": true});
    socket.send(&json!({"type": "tool_approval_response", "data": yes})).await;
    let rest = until(&mut socket, "RUN_FINISHED").await;
    assert_eq!(rest.last().unwrap()["result"], "Done.");
    socket.send(&run_agent("stuck", "r2", &json!({}))).await;
    until(&mut socket, "TEXT_MESSAGE_CONTENT").await;
    socket.send(&json!({"type": "abort_run", "data": {"runId": "r2"}})).await;
    let end = until(&mut socket, "RUN_ERROR").await;
    assert_eq!(end.last().unwrap()["message"], "Run aborted by user");
    // The aborted run is part of the conversation.
    socket.send(&run_agent("talk", "r3", &json!({"threadId": "t-r2"}))).await;
    let next = until(&mut socket, "RUN_FINISHED").await;
    let history = next.iter().find(|event| event["type"] == "MESSAGES_SNAPSHOT").unwrap();
    let said = history["messages"].as_array().unwrap().iter().map(|it| &it["content"]);
    assert_eq!(said.collect::<Vec<_>>(), ["go", "one ", "go"]);
}

/// An abort closes the connection to the model's provider.
#[tokio::test]
async fn an_abort_reaches_the_model_call() {
    let begun = [
        json!({"type": "message_start", "message": {"id": "m", "model": "m", "role": "assistant",
            "content": [], "usage": {"input_tokens": 1, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": "Well,"}}),
    ];
    let begun = begun.map(|data| {
        let kind = data["type"].as_str().unwrap();
        format!("event: {kind}\ndata: {data}\n\n")
    });
    let answer = Answer::ok("text/event-stream", begun.concat()).stall();
    let provider = FakeProvider::start([answer]).await.unwrap();
    let kit = stage().await;
    let model = Arc::new(Anthropic::keyless(&provider.url()).unwrap()) as Arc<dyn Model>;
    kit.runtime.register(AgentDef::model("remote", model));
    let mut socket = Socket::open(&kit, "/use-ai").await.unwrap();
    socket.send(&run_agent("remote", "r", &json!({}))).await;
    until(&mut socket, "TEXT_MESSAGE_CONTENT").await;
    socket.send(&json!({"type": "abort_run", "data": {"runId": "r"}})).await;
    until(&mut socket, "RUN_ERROR").await;
    let left = tokio::time::timeout(Duration::from_secs(30), provider.left(1)).await;
    assert!(left.is_ok(), "the provider is still connected");
}

/// A tool of the client is answered during the run over use-ai, and between turns over AG-UI and
/// the AI SDK. The run is the same.
#[tokio::test]
async fn a_tool_answered_in_mid_run_or_at_the_boundary_leaves_the_same_transcript() {
    let kit = stage().await;
    let tools =
        json!([{"name": "paint", "description": "paints", "parameters": {"type": "object"}}]);
    let mut socket = Socket::open(&kit, "/use-ai").await.unwrap();
    socket.send(&run_agent("paint", "mid", &json!({"tools": tools}))).await;
    let events = until(&mut socket, "TOOL_CALL_END").await;
    let call = events.last().unwrap()["toolCallId"].as_str().unwrap().to_owned();
    let result =
        json!({"messageId": "x", "toolCallId": call, "content": "{\"ok\":true}", "role": "tool"});
    socket.send(&json!({"type": "tool_result", "data": result})).await;
    until(&mut socket, "RUN_FINISHED").await;
    let mid = said_and_done(&kit, &call).await;

    let mut input = run_agent("paint", "boundary", &json!({"tools": tools}))["data"].clone();
    let first = kit.post("/ag-ui/paint", &input).send().await.unwrap().text().await.unwrap();
    let events: Vec<Value> = crate::kit::parse_sse(&first)
        .iter()
        .map(|event| serde_json::from_str(&event.data).unwrap())
        .collect();
    let end = events.iter().find(|event| event["type"] == "TOOL_CALL_END").unwrap();
    let call = end["toolCallId"].as_str().unwrap().to_owned();
    input["runId"] = json!("boundary-2");
    let answered =
        json!({"id": "x", "role": "tool", "toolCallId": call, "content": "{\"ok\":true}"});
    input["messages"].as_array_mut().unwrap().push(answered);
    kit.post("/ag-ui/paint", &input).send().await.unwrap().text().await.unwrap();
    assert_eq!(mid, said_and_done(&kit, &call).await);

    let text = json!([{"type": "text", "text": "go"}]);
    let mut request = json!({
        "id": "chat", "messages": [{"id": "m", "role": "user", "parts": text}],
        "tools": [{"name": "paint", "description": "paints", "inputSchema": {"type": "object"}}],
    });
    let first = kit.post("/ai-sdk/paint", &request).send().await.unwrap().text().await.unwrap();
    let asked = crate::kit::parse_sse(&first);
    let asked = asked.iter().find(|event| event.data.contains("tool-input-available")).unwrap();
    let asked: Value = serde_json::from_str(&asked.data).unwrap();
    let call = asked["toolCallId"].as_str().unwrap().to_owned();
    let answered = json!({
        "type": "tool-paint", "toolCallId": call, "state": "output-available",
        "input": asked["input"], "output": {"ok": true},
    });
    let answered = json!({"id": "a", "role": "assistant", "parts": [answered]});
    request["messages"].as_array_mut().unwrap().push(answered);
    kit.post("/ai-sdk/paint", &request).send().await.unwrap().text().await.unwrap();
    assert_eq!(mid, said_and_done(&kit, &call).await);
}

/// A result that comes while a tool of the server runs brings other tools: the next turn has them.
#[tokio::test]
async fn a_result_brings_tools_while_another_tool_runs() {
    let kit = stage().await;
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let spec = ToolSpec { idempotent: true, ..ToolSpec::new("wait", "waits for the test") };
    let held = Arc::clone(&go);
    let wait = from_function(spec, move |_: Value, _| {
        let held = Arc::clone(&held);
        async move {
            held.acquire().await?.forget();
            Ok(ToolResult::new("waited"))
        }
    });
    let model = Scripted::with(|request: &TurnRequest| match request.messages.len() {
        1 => Say::new().call("paint", json!({})).call("wait", json!({})),
        _ => {
            let names: Vec<_> = request.tools.iter().map(|tool| &*tool.name).collect();
            Say::new().text(names.join(" "))
        }
    });
    let def = AgentDef::model("both", Arc::new(model) as Arc<dyn Model>);
    kit.runtime.register(AgentDef { tools: vec![Arc::new(wait) as Arc<dyn Tool>], ..def });

    let tool = |name: &str| json!({"name": name, "description": name, "parameters": {}});
    let mut socket = Socket::open(&kit, "/use-ai").await.unwrap();
    socket.send(&run_agent("both", "brings", &json!({"tools": [tool("paint")]}))).await;
    let mut call = Value::Null;
    loop {
        let event = socket.next().await.unwrap();
        if event["type"] == "TOOL_CALL_START" && event["toolCallName"] == "paint" {
            call = event["toolCallId"].clone();
        }
        if event["name"] == "tool_started" {
            break;
        }
    }
    let result = json!({
        "messageId": "x", "toolCallId": call, "content": "true", "role": "tool",
        "forwardedProps": {"tools": [tool("paint"), tool("sing")]},
    });
    socket.send(&json!({"type": "tool_result", "data": result})).await;
    let told = until(&mut socket, "TOOL_CALL_RESULT").await;
    assert_eq!(told.last().unwrap()["toolCallId"], call);
    go.add_permits(1);
    let rest = until(&mut socket, "RUN_FINISHED").await;
    assert_eq!(rest.last().unwrap()["result"], "wait paint sing");
}

/// The text and the calls of a run, without ids and times.
async fn said_and_done(kit: &Kit, call: &str) -> Value {
    let run: RunId = call.rsplit_once('-').unwrap().0.parse().unwrap();
    let Transcript { parts, agents, outcome, .. } = kit.wait(run).await;
    let parts: Vec<Value> = parts
        .values()
        .map(|part| {
            let call = part.call.as_ref().and_then(|call| call.finished.as_ref());
            // Some wires send a result as text, others as any JSON. The model gets the same either
            // way.
            let result = call.map(|(outcome, result)| json!([outcome, result.output_text()]));
            json!([part.kind, part.text, result])
        })
        .collect();
    let turns = agents.values().map(|agent| agent.items.len()).sum::<usize>();
    json!({"parts": parts, "turns": turns, "outcome": outcome})
}

/// A run id that another thread uses is refused: joining that run would lose the request's message.
#[tokio::test]
async fn a_run_id_of_another_thread_is_refused() {
    let kit = stage().await;
    let mut socket = Socket::open(&kit, "/use-ai").await.unwrap();
    socket.send(&run_agent("talk", "r", &json!({"threadId": "a"}))).await;
    until(&mut socket, "RUN_FINISHED").await;
    socket.send(&run_agent("talk", "r", &json!({"threadId": "b"}))).await;
    let events = until(&mut socket, "RUN_ERROR").await;
    assert_eq!(events.last().unwrap()["code"], "run_exists");
}

/// Each message on a socket counts as a request. A client beyond its rate gets use-ai's error for
/// it.
#[tokio::test]
async fn asking_too_often_is_said_by_use_ais_name() {
    let limits = ServerLimits { requests_per_token: 1, ..ServerLimits::default() };
    let (kit, _) = two_tenants(ServerConfig { limits, ..config() }).await;
    let mut socket = Socket::open(&kit, "/use-ai").await.unwrap();
    for name in ["agents", "config"] {
        assert_eq!(socket.next().await.unwrap()["name"], name);
    }
    let mut said = Vec::new();
    for _ in 0..2 {
        socket.send(&json!({"type": "dance"})).await;
        let error = socket.next().await.unwrap();
        said.push(json!([error["type"], error["message"], error["code"]]));
    }
    let refused = |name: &str, code: &str| json!(["RUN_ERROR", name, code]);
    assert_eq!(
        said,
        [refused("UNKNOWN_ERROR", "bad_message"), refused("RATE_LIMITED", "too_often")]
    );
}

/// A call in the page without a result expires. The agent gets the error, and the client sees it.
#[tokio::test]
async fn an_unanswered_call_in_the_page_expires() {
    let kit = stage().await;
    let turns = [Say::new().call("paint", json!({})), Say::new().text("Then not.")];
    let mut def = AgentDef { name: "waits".into(), ..agent(turns, []) };
    def.timeouts.client_call = Duration::from_millis(100);
    kit.runtime.register(def);
    let tools = json!([{"name": "paint", "description": "paints", "parameters": {}}]);
    let mut socket = Socket::open(&kit, "/use-ai").await.unwrap();
    socket.send(&run_agent("waits", "expires", &json!({"tools": tools}))).await;
    let events = until(&mut socket, "RUN_FINISHED").await;
    let result = events.iter().find(|event| event["type"] == "TOOL_CALL_RESULT").unwrap();
    assert_eq!(events.last().unwrap()["result"], "Then not.");
    // Too late.
    let late = json!({"toolCallId": result["toolCallId"], "content": "1", "role": "tool"});
    socket.send(&json!({"type": "tool_result", "data": late})).await;
    assert_eq!(socket.next().await.unwrap()["type"], "RUN_ERROR");
    let call = result["toolCallId"].as_str().unwrap();
    let done = said_and_done(&kit, call).await;
    assert_eq!(done["parts"][0][2][0], "timed_out", "{done}");
}

/// Every request of a polling client gets a response, also an invalid one, and the session
/// continues.
#[tokio::test]
async fn nonsense_of_a_client_that_polls_is_answered() {
    let limits = ServerLimits { body_bytes: 4096, ..ServerLimits::default() };
    let def = agent([Say::new().text("Hello there.")], []);
    let config = ServerConfig { limits, ..config() };
    let kit = Kit::with(config, Runtime::new(Log::in_memory()), def).await;
    let path = "/socket.io/?EIO=4&transport=polling";
    let (_, _, hello) = parts(kit.get(path).send().await.unwrap()).await;
    let hello: Value = serde_json::from_str(&hello.as_str().unwrap()[1..]).unwrap();
    let path = format!("{path}&sid={}", hello["sid"].as_str().unwrap());
    let push = async |packets: Vec<u8>| {
        let request = kit.request(Method::POST, &path).body(packets);
        let (status, _, answer) = parts(request.send().await.unwrap()).await;
        (status, answer["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    // Requests that HTTP itself rejects; the session continues.
    for (packets, status, code) in [
        (vec![b'4'; 5000], 413, "too_large"),
        (vec![b'4', 0xff, 0xfe], 400, "bad_utf8"),
        (vec![0x1e; 100], 400, "too_many_packets"),
    ] {
        assert_eq!(push(packets).await, (status, code.to_owned()));
    }
    // Readable but invalid messages get an error event.
    assert_eq!(push(b"40".to_vec()).await.0, 200);
    let nonsense = ["bAAEC", "4", "42{", "42[1]", r#"42["message",7]"#, r#"451-["message",{}]"#];
    for packet in nonsense {
        assert_eq!(push(packet.into()).await.0, 200, "{packet}");
    }
    let message = json!(["message", run_agent("agent", "r", &json!({}))]);
    assert_eq!(push(format!("42{message}").into_bytes()).await.0, 200);
    let mut events: Vec<Value> = Vec::new();
    while events.last().is_none_or(|last| last["type"] != "RUN_FINISHED") {
        let (_, _, packets) = parts(kit.get(&path).send().await.unwrap()).await;
        let packets = packets.as_str().unwrap().split('\u{1e}');
        let packets = packets.filter_map(|packet| packet.strip_prefix(r#"42["event","#));
        events
            .extend(packets.map(|it| serde_json::from_str::<Value>(&it[..it.len() - 1]).unwrap()));
    }
    let refused = events.iter().filter(|event| event["type"] == "RUN_ERROR");
    let refused: Vec<_> = refused.map(|event| event["code"].as_str().unwrap()).collect();
    let bad = ["bad_packet", "bad_packet", "bad_packet", "bad_packet", "bad_message", "bad_packet"];
    assert_eq!(refused, bad);
    assert_eq!(events.last().unwrap()["result"], "Hello there.");
}

/// An agent with default limits: at most ten turns, and 4,096 output tokens per turn. Steps are
/// reported in order, a limit ends the run, and the time to the first token is measured.
#[tokio::test]
async fn steps_go_on_up_to_the_limit() {
    let kit = stage().await;
    let model = Scripted::with(|request: &TurnRequest| {
        assert_eq!(request.settings.max_output_tokens, 4096);
        let count = request.messages.len();
        Say::new().text("Again. ").call("echo", json!({"say": count}))
    });
    let def = AgentDef::model("steps", Arc::new(model) as Arc<dyn Model>);
    kit.runtime.register(AgentDef { tools: vec![Arc::new(echo()) as Arc<dyn Tool>], ..def });
    let mut socket = Socket::open(&kit, "/use-ai").await.unwrap();
    socket.send(&run_agent("steps", "limit", &json!({}))).await;
    let events = until(&mut socket, "RUN_FINISHED").await;
    let steps = |kind: &str| -> Vec<u64> {
        let steps = events.iter().filter(|event| event["type"] == kind);
        steps.map(|event| event["stepNumber"].as_u64().unwrap()).collect()
    };
    let all: Vec<u64> = (0..10).collect();
    assert_eq!((steps("STEP_STARTED"), steps("STEP_FINISHED")), (all.clone(), all));
    let metrics = kit.get("/metrics").send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("first_delta_seconds_count 1"), "{metrics}");
}

/// A client that polls gets an error event for its run when the server shuts down, and then the
/// end of its session.
#[tokio::test]
async fn a_drain_is_reported_to_a_client_that_polls() {
    let kit = stage().await;
    let path = "/socket.io/?EIO=4&transport=polling";
    let hello = kit.get(path).send().await.unwrap().text().await.unwrap();
    let hello: Value = serde_json::from_str(hello.strip_prefix('0').unwrap()).unwrap();
    let path = format!("{path}&sid={}", hello["sid"].as_str().unwrap());
    let message = json!(["message", run_agent("stuck", "r", &json!({}))]);
    let packets = format!("40\u{1e}42{message}");
    kit.request(Method::POST, &path).body(packets).send().await.unwrap();
    let mut said = String::new();
    while !said.contains("TEXT_MESSAGE_CONTENT") {
        said += &kit.get(&path).send().await.unwrap().text().await.unwrap();
    }
    let (poll, stopping) = (kit.get(&path).send(), tokio::spawn(kit.server.stop()));
    let last = poll.await.unwrap().text().await.unwrap();
    let [error, leave, close] = &last.split('\u{1e}').collect::<Vec<_>>()[..] else {
        panic!("{last}")
    };
    let error = error.strip_prefix(r#"42["event","#).unwrap();
    let error: Value = serde_json::from_str(&error[..error.len() - 1]).unwrap();
    assert_eq!((&error["type"], &error["code"]), (&json!("RUN_ERROR"), &json!("draining")));
    assert_eq!((*leave, *close), ("41", "1"));
    stopping.await.unwrap();
}
