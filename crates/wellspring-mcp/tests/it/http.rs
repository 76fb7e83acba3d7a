//! A third-party server over streamable HTTP: the TypeScript SDK, with sessions.

use std::process::Stdio;
use std::sync::Arc;

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use wellspring_core::{Answer, Choice, Form, Tool, ToolResult};
use wellspring_mcp::{McpConfig, McpConnection, McpErrorKind, McpServer};

use crate::support::{Run, peers, soon, tool};

/// The server, which ends with its input, and its URL.
async fn start(answers: &str) -> Option<(Child, String)> {
    let mut command = Command::new("node");
    command.arg(peers()?.join("server.mjs")).arg(answers).kill_on_drop(true);
    let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    soon(stdout.read_line(&mut port)).await.unwrap();
    Some((server, format!("http://127.0.0.1:{}/mcp", port.trim())))
}

async fn connect(url: &str) -> McpConnection {
    let config = McpConfig::http("h", url).header("X-Key", "k");
    soon(McpServer::new(config).connect()).await.unwrap()
}

fn of(connection: &McpConnection, name: &str) -> Arc<dyn Tool> {
    tool(&connection.tools(), &format!("h__{name}"))
}

/// Over HTTP a question arrives on the stream of its call: each run gets its own questions,
/// however many run.
#[tokio::test]
async fn each_run_is_asked_its_own_question() {
    let Some((_server, url)) = start("streams").await else { return };
    let connection = connect(&url).await;
    let ask = of(&connection, "ask");
    let asking = ["red", "green", "red", "green"].into_iter().enumerate().map(|(n, colour)| {
        let ask = &ask;
        async move {
            let answer = Answer::Choose(vec![colour.into()]);
            let run = Run::numbered(n as u128).answers([answer]);
            let answered = run.call(ask, json!({})).await;
            let want = json!({"action": "accept", "content": {"colour": colour}});
            assert_eq!(answered, Ok(ToolResult::new(want.to_string())));
            let choices = ["red", "green"].map(|id| Choice { id: id.into(), label: id.into() });
            let form = Form::Choose { choices: choices.into(), multiple: false };
            assert_eq!(run.asked(), [("h: Which colour?".to_owned(), form)]);
        }
    });
    soon(futures::future::join_all(asking)).await;
    connection.close().await;
}

#[tokio::test]
async fn progress_and_cancel() {
    let Some((_server, url)) = start("streams").await else { return };
    let connection = connect(&url).await;
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
    // The cancellation is a request of its own, and may arrive after the next one.
    let cancelled = of(&connection, "cancelled");
    soon(async {
        while Run::new().call(&cancelled, json!({})).await != Ok(ToolResult::new("1")) {}
    })
    .await;
}

#[tokio::test]
async fn a_server_that_says_no_and_one_that_is_gone() {
    let Some((mut server, url)) = start("streams").await else { return };
    let without = || McpServer::new(McpConfig::http("h", format!("{url}?key=secret"))).connect();
    let error = soon(without()).await.unwrap_err();
    assert_eq!(error.kind(), &McpErrorKind::Unauthorized, "{error}");
    let connection = connect(&url).await;
    let cancelled = of(&connection, "cancelled");
    Run::new().call(&cancelled, json!({})).await.unwrap();
    soon(server.kill()).await.unwrap();
    let error = Run::new().call(&cancelled, json!({})).await.unwrap_err();
    assert!(error.contains("MCP server \"h\""), "{error}");
    let error = soon(without()).await.unwrap_err();
    assert!(error.to_string().contains("could not be reached"), "{error}");
    // The error may be logged where others read it.
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[tokio::test]
async fn plain_answers() {
    let Some((_server, url)) = start("json").await else { return };
    let connection = connect(&url).await;
    let names: Vec<Box<str>> =
        connection.tools().iter().map(|tool| tool.spec().name.clone()).collect();
    assert_eq!(names, ["h__ask", "h__wait", "h__cancelled"].map(Box::from));
    let answer = Run::new().call(&of(&connection, "cancelled"), json!({})).await;
    assert_eq!(answer, Ok(ToolResult::new("0")));
    connection.close().await;
}
