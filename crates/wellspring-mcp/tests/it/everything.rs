//! The protocol's own example server, `@modelcontextprotocol/server-everything`, over stdio.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wellspring_core::{Answer, Approval, Content, Form, MediaSource, Tool, ToolContent, ToolKind};
use wellspring_mcp::{McpConfig, McpConnection, McpServer};

use crate::support::{Run, peers, soon, tool};

async fn connect() -> Option<McpConnection> {
    let folder = peers()?;
    let server = folder.join("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let mut config = McpConfig::stdio("everything", "node", [server.to_str().unwrap(), "stdio"])
        .cwd(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"));
    config.resources = true;
    let connection = soon(McpServer::new(config).connect()).await.unwrap();
    // It adds some tools only after the handshake, and then announces that the list changed.
    let mut versions = connection.versions();
    let all = |_: &u64| {
        let tools = connection.tools();
        tools.iter().any(|tool| &*tool.spec().name == "everything__trigger-elicitation-request")
    };
    soon(versions.wait_for(all)).await.unwrap();
    Some(connection)
}

fn of(connection: &McpConnection, name: &str) -> Arc<dyn Tool> {
    tool(&connection.tools(), &format!("everything__{name}"))
}

#[tokio::test]
async fn tools_results_and_resources() {
    let Some(connection) = connect().await else { return };
    let call = async |name: &str, arguments: Value| {
        Run::new().call(&of(&connection, name), arguments).await.unwrap()
    };

    let sum = of(&connection, "get-sum");
    assert_eq!(sum.spec().title.as_deref(), Some("Get Sum Tool"));
    assert_eq!((sum.spec().kind, sum.spec().idempotent), (ToolKind::Read, true));
    let asks = of(&connection, "trigger-elicitation-request");
    assert_eq!((asks.spec().approval(), asks.spec().idempotent), (Approval::Ask, false));

    let output = call("get-sum", json!({"a": 2, "b": 40})).await.output;
    assert_eq!(output, json!("The sum of 2 and 40 is 42."));

    let weather = call("get-structured-content", json!({"location": "Chicago"})).await;
    let want = json!({"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82});
    assert_eq!(weather.output, want);

    let image = call("get-tiny-image", json!({})).await;
    let [_, ToolContent::Content(Content::Media { media_type, source, .. }), _] =
        &image.content[..]
    else {
        panic!("{image:?}")
    };
    assert_eq!(&**media_type, "image/png");
    assert!(matches!(source, MediaSource::Data(data) if data.starts_with("iVBORw0KGgo")));
    let want = "Here's the image you requested:\n[image/png]\nThe image above is the MCP logo.";
    assert_eq!(image.output, json!(want));

    let links = call("get-resource-links", json!({"count": 2})).await.content;
    assert!(matches!(&links[1], ToolContent::Content(Content::Link { .. })), "{links:?}");

    let listed = call("list_resources", json!({})).await.output;
    let uri = listed[0]["uri"].as_str().unwrap();
    let read = call("read_resource", json!({"uri": uri})).await;
    let [ToolContent::Content(Content::Resource { uri: of, text, .. })] = &read.content[..] else {
        panic!("{read:?}")
    };
    assert_eq!(&**of, uri);
    assert!(!text.is_empty());
    let gone = of_error(&connection, "read_resource", json!({"uri": "demo://no/such"})).await;
    assert!(gone.contains("MCP server \"everything\""), "{gone}");

    // The configured directory is its root.
    let roots = call("get-roots-list", json!({})).await.output;
    assert!(roots.as_str().unwrap().contains("wellspring-mcp/tests/"), "{roots}");

    let wrong = of_error(&connection, "get-sum", json!({"a": "two"})).await;
    assert!(wrong.contains("expected number"), "{wrong}");
    soon(connection.close()).await;
}

async fn of_error(connection: &McpConnection, name: &str, arguments: Value) -> String {
    Run::new().call(&of(connection, name), arguments).await.unwrap_err()
}

#[tokio::test]
async fn progress_in_order_then_the_result() {
    let Some(connection) = connect().await else { return };
    let operation = of(&connection, "trigger-long-running-operation");
    let run = Run::new();
    let result = run.call(&operation, json!({"duration": 0.2, "steps": 4})).await.unwrap();
    let want: Vec<Value> =
        (1..=4).map(|n| json!({"progress": f64::from(n), "total": 4.0})).collect();
    assert_eq!(run.heard(), want);
    let want = "Long running operation completed. Duration: 0.2 seconds, Steps: 4.";
    assert_eq!(result.output, json!(want));
}

/// The server continues to send progress after a cancel; it is dropped.
#[tokio::test]
async fn cancel() {
    let Some(connection) = connect().await else { return };
    let operation = of(&connection, "trigger-long-running-operation");
    let run = Run::new();
    let began = Instant::now();
    let calling = tokio::spawn({
        let (operation, context) = (operation.clone(), run.context());
        let arguments = json!({"duration": 60, "steps": 600});
        async move { operation.call(arguments, context).await.map_err(|error| error.to_string()) }
    });
    run.heard_at_least(2).await;
    run.signal.cancel();
    let ended = soon(calling).await.unwrap();
    assert_eq!(ended, Err("cancelled; the server was notified".to_owned()));
    let heard = run.heard().len();
    // Another call's progress shows that the server had time to send more progress of the
    // first.
    let other = Run::new();
    other.call(&operation, json!({"duration": 0.4, "steps": 2})).await.unwrap();
    assert_eq!((run.heard().len(), other.heard().len()), (heard, 2));
    assert!(began.elapsed() < Duration::from_secs(50));
}

#[tokio::test]
async fn questions() {
    let Some(connection) = connect().await else { return };
    let asks = of(&connection, "trigger-elicitation-request");
    let answer = json!({"name": "Ada", "check": true, "integer": 7});
    let run = Run::new().answers([Answer::Value(answer)]);
    let result = run.call(&asks, json!({})).await.unwrap();
    let text = result.output.as_str().unwrap();
    assert!(text.contains("- Name: Ada\n- Agreed to terms: true\n- Favorite Integer: 7"), "{text}");
    let [(prompt, Form::Schema(schema))] = &run.asked()[..] else { panic!("{:?}", run.asked()) };
    assert_eq!(prompt, "everything: Please provide inputs for the following fields:");
    assert_eq!(schema["required"], json!(["name"]));
    assert_eq!(schema["properties"]["titledSingleSelectEnum"]["oneOf"][0]["title"], "Superman");

    let run = Run::new().answers([Answer::NO]);
    let result = run.call(&asks, json!({})).await.unwrap();
    assert!(result.output.as_str().unwrap().contains("declined"), "{result:?}");
}
