//! Faulty servers: the outcome of a call, and of the next one.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe;
use wellspring_core::{Answer, Approval, Form, Tool, ToolError, ToolResult};
use wellspring_mcp::{
    INPUT_ROUNDS_MAX, MESSAGE_BYTES_MAX, McpConfig, McpConnection, McpError, McpErrorKind,
    McpServer, McpTransport, PAGES_MAX, PROGRESS_WAITING_MAX, QUESTION_BYTES_MAX,
    RESOURCES_LISTED_MAX, RESTARTS_MAX, SERVER_REQUESTS_MAX, TOOLS_MAX, connect_all,
};

use crate::scripted::server;
use crate::support::{Run, soon, tool};

async fn connect(config: McpConfig) -> McpConnection {
    soon(McpServer::new(config).connect()).await.unwrap()
}

fn of(connection: &McpConnection, name: &str) -> Arc<dyn Tool> {
    tool(&connection.tools(), &format!("s__{name}"))
}

/// The kind of the server's error in a call's error.
fn kind(error: &ToolError) -> McpErrorKind {
    let cause = error.cause().expect("there is a cause");
    cause.downcast_ref::<McpError>().expect("it is the server's").kind().clone()
}

async fn fails(tool: &Arc<dyn Tool>) -> ToolError {
    soon(tool.call(json!({}), Run::new().context())).await.unwrap_err()
}

#[tokio::test]
async fn names_and_specs() {
    let mut config = server("s", "");
    config.deny.insert("never".into());
    config.approval.insert("die".into(), Approval::Deny);
    let connection = connect(config).await;
    let rows: Vec<String> = connection
        .tools()
        .iter()
        .map(|tool| {
            let spec = tool.spec();
            format!("{} {:?} {:?} {}", spec.name, spec.kind, spec.approval(), spec.idempotent)
        })
        .collect();
    insta::assert_snapshot!(rows.join("\n"), @"
    s__echo Read Allow true
    s__die Other Deny false
    s__garbage Other Ask false
    s__flood Other Ask false
    s__huge Other Ask false
    s__late Other Ask false
    s__cancelled Other Ask false
    s__ask Other Ask false
    s__ask_oddly Other Ask false
    s__rename Other Ask false
    s__hologram Other Ask false
    s__unreadable Other Ask false
    s__linger Other Ask false
    s__fail Other Ask false
    s__a_b_108bf50c Other Ask false
    s__a_b_3a8e75c1 Other Ask false
    s__a_b_10a3f9f2 Other Ask false
    s__ask_flood Other Ask false
    s__no_schema Other Ask false
    ");
    assert_eq!(connection.instructions().as_deref(), Some("Be careful."));
    // Each is mapped back to the server's own name.
    for tool in connection.tools().iter().filter(|tool| tool.spec().name.contains("a_b")) {
        let answer = Run::new().call(tool, json!({})).await.unwrap();
        let own = answer.output.as_str().unwrap().split(':').next().unwrap().to_owned();
        assert!(["\"a.b\"", "\"a/b\"", "\"a b\""].contains(&own.as_str()), "{own}");
    }
    connection.close().await;
}

#[tokio::test]
async fn servers_of_one_name_do_not_share_tools() {
    let configs = [server("s", ""), server("s t", ""), server("s_t", ""), server("s", "")];
    let mut connections = soon(connect_all(configs)).await;
    let error = connections.pop().unwrap().unwrap_err();
    assert!(matches!(error.kind(), McpErrorKind::Configuration(_)), "{error}");
    let mut names: Vec<Box<str>> = Vec::new();
    for connection in &connections {
        let tools = connection.as_ref().unwrap().tools();
        names.extend(tools.iter().map(|tool| tool.spec().name.clone()));
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[tokio::test]
async fn a_death_in_mid_call_is_said_and_the_server_comes_back() {
    let connection = connect(server("s", "")).await;
    let (die, echo) = (of(&connection, "die"), of(&connection, "echo"));
    let error = fails(&die).await;
    assert_eq!(kind(&error), McpErrorKind::DiedMidCall { exit: Some("exit status: 3".into()) });
    assert!(error.to_string().ends_with("out of cheese"), "{error}");
    // Meanwhile the tools report the reason.
    let error = fails(&echo).await;
    let McpErrorKind::Restarting { why, .. } = kind(&error) else { panic!("{error}") };
    assert_eq!(&*why, "it ended (exit status: 3)");
    soon(connection.ready()).await.unwrap();
    let run = Run::new();
    let answer = run.call(&echo, json!({"text": "again"})).await;
    assert_eq!(answer, Ok(ToolResult::new("\"echo\": {\"text\":\"again\"}")));
}

#[tokio::test]
async fn garbage_harms_nothing() {
    let connection = connect(server("s", "")).await;
    let answer = Run::new().call(&of(&connection, "garbage"), json!({})).await;
    assert_eq!(answer, Ok(ToolResult::new("survived")));
    let answer = Run::new().call(&of(&connection, "hologram"), json!({})).await.unwrap();
    assert_eq!(answer, ToolResult::new("{\"type\":\"hologram\",\"rays\":7}\nthere"));
    let error = Run::new().call(&of(&connection, "unreadable"), json!({})).await.unwrap_err();
    assert!(error.contains("an unreadable response"), "{error}");
    let error = Run::new().call(&of(&connection, "fail"), json!({})).await;
    assert_eq!(error, Err("no such city".to_owned()));
}

#[tokio::test]
async fn a_flood_of_progress_is_bounded_and_in_order() {
    let connection = connect(server("s", "")).await;
    let run = Run::new();
    let answer = run.call(&of(&connection, "flood"), json!({})).await;
    assert_eq!(answer, Ok(ToolResult::new("flooded")));
    let heard: Vec<f64> = run.heard().iter().map(|it| it["progress"].as_f64().unwrap()).collect();
    assert!(heard.is_sorted());
    // The latest report is never dropped.
    assert_eq!(heard.last(), Some(&20_000.0));
    assert!(heard.len() >= PROGRESS_WAITING_MAX.min(20_000));
}

#[tokio::test]
async fn a_message_too_large_ends_the_server_and_says_so() {
    let connection = connect(server("s", "")).await;
    let (huge, echo) = (of(&connection, "huge"), of(&connection, "echo"));
    let error = fails(&huge).await;
    assert_eq!(kind(&error), McpErrorKind::TooLarge { bytes_max: MESSAGE_BYTES_MAX });
    soon(connection.ready()).await.unwrap();
    Run::new().call(&echo, json!({})).await.unwrap();
}

#[tokio::test]
async fn progress_after_a_cancel_is_dropped() {
    let connection = connect(server("s", "")).await;
    let late = of(&connection, "late");
    let run = Run::new();
    let calling = tokio::spawn({
        let (late, context) = (late.clone(), run.context());
        async move { late.call(json!({}), context).await.map_err(|error| error.to_string()) }
    });
    run.heard_at_least(1).await;
    run.signal.cancel();
    let ended = soon(calling).await.unwrap();
    assert_eq!(ended, Err("cancelled; the server was notified".to_owned()));
    // The server has sent its late progress before it responds to this.
    let other = Run::new();
    other.call(&of(&connection, "echo"), json!({})).await.unwrap();
    assert_eq!(run.heard(), [json!({"progress": 1.0, "message": "in time"})]);
    assert_eq!(other.heard(), [Value::Null; 0]);
}

#[tokio::test]
async fn a_dropped_call_tells_the_server() {
    let connection = connect(server("s", "")).await;
    let (never, cancelled) = (of(&connection, "never"), of(&connection, "cancelled"));
    let run = Run::new();
    let calling = never.call(json!({}), run.context());
    tokio::select! {
        _ = calling => panic!("it never answers"),
        () = run.heard_at_least(1) => {}
    }
    let answer = Run::new().call(&cancelled, json!({})).await.unwrap();
    let ids: Vec<u64> = serde_json::from_str(answer.output.as_str().unwrap()).unwrap();
    assert_eq!(ids.len(), 1);
}

#[tokio::test]
async fn questions_go_to_the_run_that_called() {
    let connection = connect(server("s", "")).await;
    let value = json!({"name": "Ada", "age": 36});
    for name in ["ask", "ask_oddly"] {
        let run = Run::new().answers([Answer::Value(value.clone())]);
        let answer = run.call(&of(&connection, name), json!({})).await.unwrap();
        let reply: Value = serde_json::from_str(answer.output.as_str().unwrap()).unwrap();
        assert_eq!(reply, json!({"action": "accept", "content": value}));
        let [(prompt, Form::Schema(schema))] = &run.asked()[..] else {
            panic!("{:?}", run.asked())
        };
        assert_eq!(prompt, "s: Who?");
        assert_eq!(schema["properties"]["age"], json!({"type": "integer"}));
    }
    let run = Run::new().answers([Answer::NO]);
    let answer = run.call(&of(&connection, "ask"), json!({})).await;
    assert_eq!(answer, Ok(ToolResult::new("{\"action\":\"decline\"}")));
    let run = Run::new().answers([Answer::Expired]);
    let answer = run.call(&of(&connection, "ask"), json!({})).await;
    assert_eq!(answer, Ok(ToolResult::new("{\"action\":\"cancel\"}")));
}

/// Over stdio it is unknown which call a question belongs to; another user must not be asked.
#[tokio::test]
async fn a_question_that_may_be_a_strangers_is_declined() {
    let connection = connect(server("s", "")).await;
    let stranger = Run::numbered(2);
    let never = of(&connection, "never");
    let waiting = never.call(json!({}), stranger.context());
    let run = Run::new().answers([Answer::Value(json!({"name": "Ada"}))]);
    let asking = async {
        stranger.heard_at_least(1).await;
        run.call(&of(&connection, "ask"), json!({})).await
    };
    let answer = tokio::select! {
        _ = waiting => panic!("it never answers"),
        answer = asking => answer,
    };
    assert_eq!(answer, Ok(ToolResult::new("{\"action\":\"decline\"}")));
    assert_eq!((run.asked(), stranger.asked()), (vec![], vec![]));
}

#[tokio::test]
async fn a_flood_of_questions_is_refused() {
    let connection = connect(server("s", "")).await;
    let run = Run::new().never_answers();
    let answer = run.call(&of(&connection, "ask_flood"), json!({})).await;
    assert_eq!(answer, Ok(ToolResult::new("8 refused")));
    assert_eq!(run.asked().len(), SERVER_REQUESTS_MAX);
    // They end with the call and no longer count: the next question is answered.
    let run = Run::new().answers([Answer::NO]);
    let answer = run.call(&of(&connection, "ask"), json!({})).await;
    assert_eq!(answer, Ok(ToolResult::new("{\"action\":\"decline\"}")));
}

#[tokio::test]
async fn what_a_server_asks_and_lists_is_bounded() {
    let mut config = server("s", "greedy");
    config.resources = true;
    let connection = connect(config).await;
    let run = Run::new().answers([Answer::NO]);
    run.call(&of(&connection, "ask_at_length"), json!({})).await.unwrap();
    let cut = 5 * 1024 - QUESTION_BYTES_MAX;
    let asked = format!("s: {}\n[... {cut} bytes left out ...]", "x".repeat(QUESTION_BYTES_MAX));
    assert_eq!(run.asked()[0].0, asked);

    let listed = Run::new().call(&of(&connection, "list_resources"), json!({})).await.unwrap();
    assert_eq!(listed.output.as_array().unwrap().len(), RESOURCES_LISTED_MAX);

    let error = fails(&of(&connection, "ask_for_ever")).await;
    let what = format!("it asked for more input {INPUT_ROUNDS_MAX} times");
    assert_eq!(kind(&error), McpErrorKind::Protocol(what.into()));
}

/// A server over HTTP that redirects in circles is followed only a few times.
#[tokio::test]
async fn redirects_are_bounded() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let circle = tokio::spawn(async move {
        let mut asked = 0;
        while let Ok((mut connection, _)) = listener.accept().await {
            let mut head = [0; 4096];
            let _ = connection.read(&mut head).await;
            asked += 1;
            let answer = "HTTP/1.1 307 Go on\r\nlocation: /mcp\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
            let _ = connection.write_all(answer.as_bytes()).await;
            if asked == 8 {
                break;
            }
        }
        asked
    });
    let error = soon(McpServer::new(McpConfig::http("s", url)).connect()).await.unwrap_err();
    assert!(error.to_string().contains("error following redirect"), "{error}");
    assert!(!circle.is_finished(), "it was followed eight times");
    circle.abort();
}

#[tokio::test]
async fn a_changed_list_is_read_again() {
    let connection = connect(server("s", "")).await;
    let mut versions = connection.versions();
    let before = *versions.borrow_and_update();
    Run::new().call(&of(&connection, "rename"), json!({})).await.unwrap();
    soon(versions.wait_for(|version| *version > before)).await.unwrap();
    let answer = Run::new().call(&of(&connection, "repeat"), json!({})).await;
    assert_eq!(answer, Ok(ToolResult::new("\"repeat\": {}")));
}

#[tokio::test]
async fn lists_are_bounded() {
    let connection = connect(server("s", "many")).await;
    assert_eq!(connection.tools().len(), TOOLS_MAX);
    let connection = connect(server("s", "pages")).await;
    assert_eq!(connection.tools().len(), PAGES_MAX);
}

#[tokio::test]
async fn a_server_that_never_introduces_itself_is_given_up() {
    let mut config = server("s", "mute");
    config.timeouts.startup = Duration::from_millis(300);
    let error = soon(McpServer::new(config).connect()).await.unwrap_err();
    assert_eq!(error.kind(), &McpErrorKind::StartupTimeout(Duration::from_millis(300)));
}

/// A server gets a few variables, and those that are given to it by name.
#[tokio::test]
async fn a_server_does_not_see_our_environment() {
    const SECRET: &str = "CARGO_MANIFEST_DIR";
    assert!(std::env::var_os(SECRET).is_some());
    let folder = tempfile::tempdir().unwrap();
    let config = McpConfig::stdio("s", "sh", ["-c", "env > seen"]);
    let config = config.env("GIVEN", "by name").cwd(folder.path());
    soon(McpServer::new(config).connect()).await.unwrap_err();
    let seen = std::fs::read_to_string(folder.path().join("seen")).unwrap();
    assert!(seen.contains("PATH=") && seen.contains("GIVEN=by name"), "{seen}");
    assert!(!seen.contains(SECRET), "{seen}");
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let error = soon(McpServer::new(server("s", "exits")).connect()).await.unwrap_err();
    let exit = Some("exit status: 2".into());
    assert_eq!(error.kind(), &McpErrorKind::EndedEarly { exit });
    assert!(error.stderr().unwrap().ends_with("no licence found"), "{error}");
    let config = McpConfig::stdio("s", "no-such-program-here", [""; 0]);
    let error = soon(McpServer::new(config).connect()).await.unwrap_err();
    insta::assert_snapshot!(error, @r#"MCP server "s": "no-such-program-here" could not be started (No such file or directory (os error 2)); is it installed and in PATH?"#);
    let config = McpConfig::http("s", "http://127.0.0.1:1/mcp");
    let error = soon(McpServer::new(config).connect()).await.unwrap_err();
    assert!(matches!(error.kind(), McpErrorKind::Unreachable(_)), "{error:?}");
    let config = McpConfig::http("s", "ftp://example.com");
    let error = soon(McpServer::new(config).connect()).await.unwrap_err();
    assert!(matches!(error.kind(), McpErrorKind::Configuration(_)), "{error:?}");
}

/// A server and all its child processes are gone when it is closed or dropped.
#[tokio::test]
async fn nothing_is_left_running() {
    for closed in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("alive");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let mut alive = pipe::OpenOptions::new().open_receiver(&fifo).unwrap();
        let connection = connect(server("s", "")).await;
        let linger = of(&connection, "linger");
        Run::new().call(&linger, json!({"fifo": fifo})).await.unwrap();
        let mut on = [0; 3];
        soon(alive.read_exact(&mut on)).await.unwrap();
        if closed {
            soon(connection.close()).await;
            let error = fails(&linger).await;
            assert_eq!(kind(&error), McpErrorKind::Closed);
        } else {
            drop(connection);
            // A tool keeps it running.
            assert!(linger.call(json!({"fifo": "/dev/null"}), Run::new().context()).await.is_ok());
            drop(linger);
        }
        // The FIFO ends when the last process that holds it ends.
        soon(alive.read_to_end(&mut Vec::new())).await.unwrap();
    }
}

#[tokio::test]
async fn restarts_go_on_until_it_works() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("left");
    std::fs::write(&file, "0").unwrap();
    let connection = connect(server("s", &format!("flaky:{}", file.display()))).await;
    let (die, echo) = (of(&connection, "die"), of(&connection, "echo"));
    std::fs::write(&file, "2").unwrap();
    fails(&die).await;
    soon(connection.ready()).await.unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "0");
    Run::new().call(&echo, json!({})).await.unwrap();
}

/// Restarts stop after a number of attempts, and resume when a call needs the server.
#[tokio::test]
async fn a_server_that_stays_away_is_down_until_it_is_needed() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("server");
    let there = || {
        std::os::unix::fs::symlink(std::env::current_exe().unwrap(), &program).unwrap();
    };
    there();
    let mut config = server("s", "");
    let McpTransport::Stdio { command, .. } = &mut config.transport else { unreachable!() };
    *command = program.to_str().unwrap().into();
    let connection = connect(config).await;
    let (die, echo) = (of(&connection, "die"), of(&connection, "echo"));
    std::fs::remove_file(&program).unwrap();
    fails(&die).await;
    // Only the clock is waited for from here on: a missing program fails at once.
    tokio::time::pause();
    let error = connection.ready().await.unwrap_err();
    let McpErrorKind::Down { attempts, why } = error.kind() else { panic!("{error}") };
    assert_eq!(*attempts, RESTARTS_MAX);
    assert!(why.contains("could not be started"), "{why}");
    tokio::time::resume();
    there();
    let mut versions = connection.versions();
    // This call finds it down, and triggers one more attempt.
    let McpErrorKind::Down { .. } = kind(&fails(&echo).await) else { panic!("it is back") };
    soon(versions.changed()).await.unwrap();
    soon(connection.ready()).await.unwrap();
    Run::new().call(&echo, json!({})).await.unwrap();
}
