//! use-ai's wire: `socket.io-client` against our server, the plain WebSocket, and what both
//! have to do with the other wires.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::Command;
use wellspring_core::{
    Approval, FailureKind, Model, RunId, Tool, ToolResult, ToolSpec, Transcript, TurnRequest,
};
use wellspring_engine::tools::from_function;
use wellspring_engine::{AgentDef, Policy, Rule, Runtime};
use wellspring_log::Log;
use wellspring_models::{Failure, Gate, Say, Scripted};
use wellspring_server::{ServerConfig, UseAiConfig};

use crate::kit::{Kit, agent, config, echo, has_peer};
use crate::socket::Socket;

/// Bytes of each of the deltas that a client does not read: together far more than the buffers
/// of a connection take.
const UNREAD_DELTA_BYTES: usize = 1000;

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
    let padding = "x".repeat(UNREAD_DELTA_BYTES);
    let words: Vec<String> = (0..10_000).map(|index| format!("w{index}:{padding} ")).collect();
    register("flood", agent([Say::new().chunks(words)], []));
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

/// Every message both ways, polling and upgrade, cuts, nonsense, and a client that does not
/// read. At the end the server is drained under it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn socket_io_client() {
    if !has_peer("WELLSPRING_PEER_SOCKET_IO") {
        return;
    }
    let kit = stage().await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peer/use_ai/socket_io.mjs");
    let mut client = Command::new("node")
        .arg(script)
        .arg(kit.url(""))
        .args(std::env::var("WELLSPRING_SCENES"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    let (mut said, mut kit) = (Vec::new(), Some(kit));
    let mut stopping = None;
    while let Some(line) = lines.next_line().await.unwrap() {
        if line == "drain" {
            stopping = kit.take().map(|kit| tokio::spawn(kit.server.stop()));
        } else {
            said.push(line);
        }
    }
    let mut errors = String::new();
    client.stderr.take().unwrap().read_to_string(&mut errors).await.unwrap();
    assert!(client.wait().await.unwrap().success(), "{said:#?}\n{errors}");
    if let Some(stopping) = stopping {
        stopping.await.unwrap();
    }
    insta::assert_snapshot!(said.join("\n"), @"
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
    10,000 deltas for a client that did not read
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

/// The plain WebSocket: what Socket.IO has names for are CUSTOM events, all else is the same.
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
}

/// A tool that runs in the client, answered in mid-run here and at the boundary there: the run
/// is the same.
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

/// What was said and done in a call's run, without ids and times.
async fn said_and_done(kit: &Kit, call: &str) -> Value {
    let run: RunId = call.rsplit_once('-').unwrap().0.parse().unwrap();
    let Transcript { parts, agents, outcome, .. } = kit.wait(run).await;
    let parts: Vec<Value> = parts
        .values()
        .map(|part| {
            let call = part.call.as_ref().and_then(|call| call.finished.as_ref());
            let result = call.map(|(outcome, result)| json!([outcome, result.output]));
            json!([part.kind, part.text, result])
        })
        .collect();
    let turns = agents.values().map(|agent| agent.items.len()).sum::<usize>();
    json!({"parts": parts, "turns": turns, "outcome": outcome})
}
