//! Our tools for other programs: with the SDK's own client, with the TypeScript SDK, and by
//! hand.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use serde_json::{Value, json};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::sync::watch;
use wellspring_core::{
    CancellationToken, Content, Context, MediaSource, Tool, ToolContent, ToolError, ToolKind,
    ToolResult, ToolSpec,
};
use wellspring_mcp::{
    BODY_BYTES_MAX, CALLS_MAX, CONNECTIONS_MAX, Loopback, McpConfig, McpConnection, McpErrorKind,
    McpServer, NeverSeen, bridge, run_at_once,
};

use crate::support::{Run, peers, soon, tool};

type Work =
    fn(Value, Context, watch::Sender<u32>) -> BoxFuture<'static, Result<ToolResult, ToolError>>;

/// A tool of ours, which counts its cancelled calls.
struct Ours {
    spec: ToolSpec,
    work: Work,
    cancelled: watch::Sender<u32>,
}

impl Tool for Ours {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(
        &self,
        arguments: Value,
        context: Context,
    ) -> BoxFuture<'_, Result<ToolResult, ToolError>> {
        (self.work)(arguments, context, self.cancelled.clone())
    }
}

fn ours(name: &str, kind: ToolKind, cancelled: &watch::Sender<u32>, work: Work) -> Arc<dyn Tool> {
    let spec = ToolSpec { kind, ..ToolSpec::new(name, "One of ours.") };
    Arc::new(Ours { spec, work, cancelled: cancelled.clone() })
}

fn tools(cancelled: &watch::Sender<u32>) -> Vec<Arc<dyn Tool>> {
    vec![
        ours("echo", ToolKind::Read, cancelled, |arguments, _, _| {
            async move { Ok(ToolResult::new(arguments["text"].clone())) }.boxed()
        }),
        ours("fail", ToolKind::Delete, cancelled, |_, _, _| {
            async move { Err(ToolError::new("no such city")) }.boxed()
        }),
        ours("count", ToolKind::Other, cancelled, |arguments, context, _| {
            async move {
                let to = arguments["to"].as_u64().unwrap();
                for n in 1..=to {
                    context
                        .progress(json!({"progress": n, "total": to, "message": format!("at {n}")}))
                        .await;
                }
                let media = Content::Media {
                    media_type: "image/png".into(),
                    source: MediaSource::Data("aW1n".into()),
                    name: None,
                };
                let content = vec![ToolContent::Content(media)];
                Ok(ToolResult { output: json!({"counted": to}), content, ..ToolResult::default() })
            }
            .boxed()
        }),
        ours("wait", ToolKind::Other, cancelled, |_, context, cancelled| {
            async move {
                context.progress("waiting").await;
                context.signal().cancelled().await;
                cancelled.send_modify(|count| *count += 1);
                Err(ToolError::new("cancelled"))
            }
            .boxed()
        }),
    ]
}

/// A server with all our tools, the run of their calls, and the number of cancelled calls.
async fn start() -> (Loopback, Run, watch::Receiver<u32>) {
    let cancelled = watch::Sender::new(0);
    let run = Run::new();
    let handler = run_at_once({
        let run = run.clone();
        move |_| run.context()
    });
    let loopback = Loopback::start("loop", tools(&cancelled), handler).await.unwrap();
    (loopback, run, cancelled.subscribe())
}

async fn connect(loopback: &Loopback) -> McpConnection {
    let (name, value) = loopback.header();
    let config = McpConfig::http("loop", loopback.url()).header(name, value);
    soon(McpServer::new(config).connect()).await.unwrap()
}

fn of(connection: &McpConnection, name: &str) -> Arc<dyn Tool> {
    tool(&connection.tools(), &format!("loop__{name}"))
}

#[tokio::test]
async fn our_own_client() {
    let (loopback, at_home, mut cancelled) = start().await;
    let connection = connect(&loopback).await;
    soon(loopback.seen(Duration::from_secs(10))).await.unwrap();

    let echoed = Run::new().call(&of(&connection, "echo"), json!({"text": "hi"})).await;
    assert_eq!(echoed, Ok(ToolResult::new("hi")));
    let failed = Run::new().call(&of(&connection, "fail"), json!({})).await;
    assert_eq!(failed, Err("no such city".to_owned()));

    // Progress arrives on both sides, in order and completely.
    let run = Run::new();
    let counted = run.call(&of(&connection, "count"), json!({"to": 3})).await.unwrap();
    assert_eq!(counted.output, json!({"counted": 3}));
    assert_eq!(counted.content.len(), 2);
    let far =
        |n: u32| json!({"progress": f64::from(n), "total": 3.0, "message": format!("at {n}")});
    assert_eq!(run.heard(), [far(1), far(2), far(3)]);
    assert_eq!(at_home.heard().len(), 3);

    // A cancelled call is cancelled here too, and so is a dropped one.
    let wait = of(&connection, "wait");
    let run = Run::new();
    let mut calling = wait.call(json!({}), run.context());
    tokio::select! {
        _ = &mut calling => panic!("it waits"),
        () = run.heard_at_least(1) => {}
    }
    assert_eq!(run.heard(), [json!({"progress": 1.0, "message": "waiting"})]);
    run.signal.cancel();
    soon(calling).await.unwrap_err();
    soon(cancelled.wait_for(|count| *count == 1)).await.unwrap();
    let run = Run::new();
    tokio::select! {
        _ = wait.call(json!({}), run.context()) => panic!("it waits"),
        () = run.heard_at_least(1) => {}
    }
    soon(cancelled.wait_for(|count| *count == 2)).await.unwrap();
    connection.close().await;
}

#[tokio::test]
async fn many_calls_do_not_mix() {
    let (loopback, _, _) = start().await;
    let connection = connect(&loopback).await;
    let (echo, count) = (of(&connection, "echo"), of(&connection, "count"));
    let calls = (0..50).map(|n| {
        let (echo, count) = (&echo, &count);
        async move {
            let run = Run::new();
            let echoed = run.call(echo, json!({"text": n.to_string()})).await;
            assert_eq!(echoed, Ok(ToolResult::new(n.to_string())));
            let counted = run.call(count, json!({"to": n % 7})).await.unwrap();
            assert_eq!(counted.output, json!({"counted": n % 7}));
            assert_eq!(run.heard().len(), n % 7);
        }
    });
    soon(futures::future::join_all(calls)).await;
}

#[tokio::test]
async fn calls_at_a_time_are_bounded() {
    let (loopback, _, mut cancelled) = start().await;
    let connection = connect(&loopback).await;
    let (wait, echo) = (of(&connection, "wait"), of(&connection, "echo"));
    let mut waiting = Vec::new();
    for _ in 0..CALLS_MAX {
        let run = Run::new();
        let mut calling = wait.call(json!({}), run.context());
        tokio::select! {
            _ = &mut calling => panic!("it waits"),
            () = run.heard_at_least(1) => waiting.push(calling),
        }
    }
    let refused = Run::new().call(&echo, json!({"text": "hi"})).await;
    let why = "too many concurrent calls; try again when one has ended";
    assert_eq!(refused, Err(why.to_owned()));
    drop(waiting);
    soon(cancelled.wait_for(|count| *count as usize == CALLS_MAX)).await.unwrap();
}

/// Connections beyond the maximum wait until another one closes.
#[tokio::test]
async fn connections_at_a_time_are_bounded() {
    let (loopback, _, _) = start().await;
    let address = loopback.url().split('/').nth(2).unwrap();
    let connect = async || tokio::net::TcpStream::connect(address).await.unwrap();
    let ask = async |connection: &mut tokio::net::TcpStream| {
        let head = format!("GET / HTTP/1.1\r\nhost: {address}\r\n\r\n");
        connection.write_all(head.as_bytes()).await.unwrap();
    };
    let answered = async |connection: &mut tokio::net::TcpStream| {
        let mut answer = [0; 4096];
        assert!(soon(connection.read(&mut answer)).await.unwrap() > 0);
    };
    let mut inside = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        let mut connection = connect().await;
        ask(&mut connection).await;
        answered(&mut connection).await;
        inside.push(connection);
    }
    let mut outside = connect().await;
    ask(&mut outside).await;
    // The open connections are still served, and no other was served meanwhile.
    ask(&mut inside[0]).await;
    answered(&mut inside[0]).await;
    let waits = outside.try_read(&mut [0; 1]).unwrap_err().kind();
    assert_eq!(waits, std::io::ErrorKind::WouldBlock);
    drop(inside.pop());
    answered(&mut outside).await;
}

#[tokio::test]
async fn what_is_seen_is_known() {
    let (loopback, _, _) = start().await;
    let within = Duration::from_millis(50);
    assert_eq!(loopback.seen(within).await, Err(NeverSeen { within, visited: false }));
    let request = post(&loopback).bearer_auth(loopback.token());
    let pinged = request.json(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})).send();
    assert!(soon(pinged).await.unwrap().status().is_success());
    assert_eq!(loopback.seen(within).await, Err(NeverSeen { within, visited: true }));
    let connection = connect(&loopback).await;
    assert_eq!(loopback.seen(within).await, Ok(()));
    // The same tools again count as listed; other tools do not, until they are listed.
    let cancelled = watch::Sender::new(0);
    loopback.offer(tools(&cancelled));
    assert_eq!(loopback.seen(within).await, Ok(()));
    loopback.offer(tools(&cancelled).split_off(1));
    assert_eq!(loopback.seen(within).await, Err(NeverSeen { within, visited: true }));
    let gone = Run::new().call(&of(&connection, "echo"), json!({})).await.unwrap_err();
    assert!(gone.contains("there is no tool \"echo\" in this turn"), "{gone}");
    let again = connect(&loopback).await;
    assert_eq!((loopback.seen(within).await, again.tools().len()), (Ok(()), 3));
}

fn post(loopback: &Loopback) -> reqwest::RequestBuilder {
    let accept = "application/json, text/event-stream";
    reqwest::Client::new().post(loopback.url()).header("Accept", accept)
}

#[tokio::test]
async fn only_the_invited_come_in() {
    let (loopback, _, _) = start().await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let (right, wrong) = (loopback.token(), "x".repeat(loopback.token().len()));
    let elsewhere = format!("{}x", loopback.url());
    let client = reqwest::Client::new();
    for (request, want) in [
        (post(&loopback).bearer_auth(right).json(&list), 200),
        (post(&loopback).json(&list), 401),
        (post(&loopback).bearer_auth("").json(&list), 401),
        (post(&loopback).bearer_auth(wrong).json(&list), 401),
        (post(&loopback).bearer_auth(format!("{right}x")).json(&list), 401),
        (client.post(elsewhere).bearer_auth(right).json(&list), 404),
        (post(&loopback).bearer_auth(right).header("Host", "example.com").json(&list), 403),
        (
            post(&loopback).bearer_auth(right).header("Origin", "https://example.com").json(&list),
            403,
        ),
        (post(&loopback).bearer_auth(right).body(vec![b' '; BODY_BYTES_MAX + 1]), 413),
        (client.get(loopback.url()).bearer_auth(right), 405),
    ] {
        let shown = format!("{request:?}");
        assert_eq!(soon(request.send()).await.unwrap().status(), want, "{shown}");
    }
    let config = McpConfig::http("loop", loopback.url());
    let error = soon(McpServer::new(config).connect()).await.unwrap_err();
    assert_eq!(error.kind(), &McpErrorKind::Unauthorized, "{error}");
    assert!(!format!("{loopback:?}").contains(loopback.token()));
}

#[tokio::test]
async fn dropped_it_is_gone() {
    let (loopback, _, mut cancelled) = start().await;
    let connection = connect(&loopback).await;
    let wait = of(&connection, "wait");
    let run = Run::new();
    let mut calling = wait.call(json!({}), run.context());
    tokio::select! {
        _ = &mut calling => panic!("it waits"),
        () = run.heard_at_least(1) => {}
    }
    drop(loopback);
    soon(calling).await.unwrap_err();
    soon(cancelled.wait_for(|count| *count == 1)).await.unwrap();
    let error = Run::new().call(&of(&connection, "echo"), json!({})).await.unwrap_err();
    assert!(error.contains("MCP server \"loop\""), "{error}");
}

/// Reads responses until all of these ids have one.
async fn answers(lines: &mut (impl AsyncBufRead + Unpin), ids: &[i64]) -> Vec<Value> {
    let mut answers = Vec::new();
    while answers.iter().filter(|it: &&Value| it.get("id").is_some()).count() < ids.len() {
        let mut line = String::new();
        assert!(soon(lines.read_line(&mut line)).await.unwrap() > 0, "it ended early: {answers:?}");
        answers.push(serde_json::from_str(&line).unwrap());
    }
    answers
}

#[tokio::test]
async fn over_the_bridge() {
    let (loopback, _, _) = start().await;
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (input, output) = tokio::io::split(far);
    let (url, token) = (loopback.url().to_owned(), loopback.token().to_owned());
    let bridging = tokio::spawn(async move { bridge(&url, &token, input, output).await });
    let (lines, mut say) = tokio::io::split(near);
    let mut lines = BufReader::new(lines);
    let mut send = async |message: Value| {
        say.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    };
    let client = json!({"name": "by hand", "version": "1"});
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    send(json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})).await;
    let hello = answers(&mut lines, &[1]).await;
    assert_eq!(hello[0]["result"]["serverInfo"]["name"], "loop");
    send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    let params = json!({"name": "count", "arguments": {"to": 2}, "_meta": {"progressToken": "p"}});
    send(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params})).await;
    let counted = answers(&mut lines, &[2]).await;
    let shown: Vec<Value> = counted
        .iter()
        .map(|it| match it["method"].as_str() {
            Some(_) => it["params"]["progress"].clone(),
            None => it["result"]["structuredContent"].clone(),
        })
        .collect();
    assert_eq!(shown, [json!(1.0), json!(2.0), json!({"counted": 2})]);
    soon(say.shutdown()).await.unwrap();
    soon(bridging).await.unwrap().unwrap();
}

/// The official TypeScript SDK, over HTTP and over the bridge.
#[tokio::test]
async fn typescript_sdk() {
    let Some(folder) = peers() else { return };
    for over_bridge in [false, true] {
        let (loopback, _, mut cancelled) = start().await;
        let mut client = tokio::process::Command::new("node");
        client.arg(folder.join("client.mjs")).kill_on_drop(true).stderr(Stdio::inherit());
        if over_bridge {
            client.arg("stdio").arg(std::env::current_exe().unwrap());
            client.args([
                "loopback::bridges_when_started_as_a_bridge",
                "--exact",
                "--nocapture",
                "--quiet",
            ]);
            client.env(BRIDGE, format!("{} {}", loopback.url(), loopback.token()));
        } else {
            client.args(["http", loopback.url(), loopback.token()]);
        }
        let output = soon(client.output()).await.unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{said}");
        insta::allow_duplicates! {
            insta::assert_snapshot!(said, @r#"
            {"server":"loop"}
            {"tools":[{"name":"echo","hints":{"readOnlyHint":true,"idempotentHint":false}},{"name":"fail","hints":{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false}},{"name":"count","hints":{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":false}},{"name":"wait","hints":{"readOnlyHint":false,"destructiveHint":false,"idempotentHint":false}}]}
            {"echo":{"content":[{"type":"text","text":"hi"}],"isError":false}}
            {"fail":{"content":[{"type":"text","text":"no such city"}],"isError":true}}
            {"counted":{"counted":3},"progress":[{"progress":1,"total":3,"message":"at 1"},{"progress":2,"total":3,"message":"at 2"},{"progress":3,"total":3,"message":"at 3"}]}
            {"waited":"until it was cancelled"}
            {"unknown":-32602}
            "#);
        }
        soon(cancelled.wait_for(|count| *count == 1)).await.unwrap();
    }
}

const BRIDGE: &str = "WELLSPRING_TEST_MCP_BRIDGE";

/// This test binary, started again by the client, is the bridge.
#[test]
fn bridges_when_started_as_a_bridge() {
    let Ok(where_to) = std::env::var(BRIDGE) else { return };
    let (url, token) = where_to.split_once(' ').unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (input, output) = (tokio::io::stdin(), tokio::io::stdout());
    runtime.block_on(bridge(url, token, input, output)).unwrap();
    std::process::exit(0);
}

#[tokio::test]
async fn a_context_of_its_own_is_enough() {
    let handler = run_at_once(|_| Context::create("trace", CancellationToken::new()));
    let cancelled = watch::Sender::new(0);
    let loopback = Loopback::start("loop", tools(&cancelled), handler).await.unwrap();
    let connection = connect(&loopback).await;
    let run = Run::new();
    run.call(&of(&connection, "count"), json!({"to": 2})).await.unwrap();
    assert_eq!(run.heard().len(), 2);
}
