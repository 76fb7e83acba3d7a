//! Prompts and their outcomes.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::BoxStream;
use serde_json::{Value, json};
use wellspring_core::{
    AgentNo, Batch, Context, ContextWindow, Event, Extended, FailureKind, ModelError, Outcome,
    RemoteAgent, RemoteRequest, Stop, Usage,
};
use wellspring_engine::AgentDef;
use wellspring_engine::tools::update_plan;
use wellspring_log::RunFilter;
use wellspring_models::{Failure, Say};

use crate::client::{Client, agent, runtime};

#[tokio::test]
async fn a_conversation() {
    let usage = Usage {
        input: 12,
        output: 34,
        context: Some(ContextWindow { used: 46, size: 1000 }),
        ..Usage::default()
    };
    let entries = json!({"entries": [{"content": "Answer", "status": "in_progress"}]});
    let says = [
        Say::new().thought("Hm, what now?").call("update_plan", entries).usage(usage.clone()),
        Say::new().text("Hello there.").usage(usage),
    ];
    let runtime = runtime([
        agent("greeter", says, [Arc::new(update_plan()) as _]),
        AgentDef {
            description: "Says no.".into(),
            ..agent("refuser", [Say::new().text("No.")], [])
        },
    ]);
    let mut client = Client::of(&runtime, "greeter");
    client.call("initialize", json!({"protocolVersion": 7})).await.unwrap();
    let session = client.session().await;
    insta::assert_snapshot!(client.said());
    client.prompt(&session, "Hi").await.unwrap();
    insta::assert_snapshot!(client.said());
    client.leave().await.unwrap();
}

#[tokio::test]
async fn pictures_and_files_reach_the_model() {
    let runtime = runtime([agent("a", [Say::new().text("Seen.")], [])]);
    let mut client = Client::ready(&runtime, "a", json!({})).await;
    let session = client.session().await;
    let prompt = json!([
        {"type": "text", "text": "Look:"},
        {"type": "image", "data": "AA==", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///a.rs", "text": "fn a() {}"}},
        {"type": "resource_link", "uri": "file:///b.rs", "name": "b.rs"},
    ]);
    let params = json!({"sessionId": session, "prompt": prompt});
    client.call("session/prompt", params).await.unwrap();
    let runs = runtime.log().store().list(RunFilter::default()).await.unwrap();
    let started = runtime.local().wait(runs[0].run).await.unwrap().started.unwrap();
    assert_eq!(started.request.cwd.as_deref(), Some("/srv/project"));
    insta::assert_json_snapshot!(started.request.input);
}

#[tokio::test]
async fn failures_are_errors_and_stops_have_reasons() {
    let refusal = Failure::new(FailureKind::Refused, "the key is not valid");
    let runtime = runtime([
        agent("fails", [Say::new().text("So ").fail(refusal)], []),
        agent("runs out", [Say::new().text("And so on and").stop(Stop::MaxTokens)], []),
        agent("refuses", [Say::new().text("No.").stop(Stop::Refusal)], []),
    ]);
    for (name, want) in [
        ("fails", Err(json!(-32603))),
        ("runs out", Ok(json!("max_tokens"))),
        ("refuses", Ok(json!("refusal"))),
    ] {
        let mut client = Client::ready(&runtime, name, json!({})).await;
        let session = client.session().await;
        let stopped = client.prompt(&session, "Go").await;
        let shown = stopped.as_ref().map(|it| it["stopReason"].clone());
        assert_eq!(shown.map_err(|it| it["code"].clone()), want, "{name}");
        if let Err(error) = stopped {
            assert!(error["message"].as_str().unwrap().contains("the key is not valid"), "{error}");
            assert_eq!(error["data"]["kind"], "refused");
        }
    }
}

/// Cancelled while it hangs, right after it was sent, and by the request's id.
#[tokio::test]
async fn cancel_ends_a_prompt() {
    let runtime = runtime([agent("stuck", [Say::new().text("one ").hang()], [])]);
    let mut client = Client::ready(&runtime, "stuck", json!({})).await;
    let session = client.session().await;
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "Go"}]});
    let is_word = |it: &Value| it["params"]["update"]["sessionUpdate"] == "agent_message_chunk";

    let id = client.send("session/prompt", prompt.clone()).await;
    client.until(is_word).await;
    let busy = client.call("session/prompt", prompt.clone()).await.unwrap_err();
    assert_eq!(
        busy["message"],
        "the session is busy with a prompt; wait for its end, or cancel it"
    );
    client.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(client.result(id).await, Ok(json!({"stopReason": "cancelled"})));

    let id = client.send("session/prompt", prompt.clone()).await;
    client.notify("session/cancel", json!({"sessionId": session})).await;
    assert_eq!(client.result(id).await, Ok(json!({"stopReason": "cancelled"})));

    let id = client.send("session/prompt", prompt.clone()).await;
    client.until(is_word).await;
    client.notify("$/cancel_request", json!({"requestId": id})).await;
    assert_eq!(client.result(id).await, Ok(json!({"stopReason": "cancelled"})));

    let runs = runtime.log().store().list(RunFilter::default()).await.unwrap();
    for info in runs {
        let outcome = runtime.local().wait(info.run).await.unwrap().outcome.unwrap();
        assert!(matches!(outcome, Outcome::Cancelled { .. }), "{outcome:?}");
    }
}

/// A client that does not read only delays its own cursor: the run ends, memory stays bounded, and
/// no text is lost.
#[tokio::test]
async fn a_client_that_does_not_read_holds_up_nothing() {
    let word = "spring ";
    let chunks: Vec<String> = (0..20_000).map(|index| format!("{word}{index} ")).collect();
    let all = chunks.concat();
    let runtime = runtime([agent("talker", [Say::new().chunks(chunks)], [])]);
    let mut client = Client::ready(&runtime, "talker", json!({})).await;
    let session = client.session().await;
    client.heard.clear();
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "Go"}]});
    let id = client.send("session/prompt", prompt).await;
    let run = loop {
        let runs = runtime.log().store().list(RunFilter::default()).await.unwrap();
        match runs.first() {
            Some(info) => break info.run,
            None => tokio::task::yield_now().await,
        }
    };
    let transcript = runtime.local().wait(run).await.unwrap();
    assert_eq!(transcript.answer(AgentNo::ROOT), all);
    assert!(runtime.log().tail_bytes() <= 256 * 1024, "{}", runtime.log().tail_bytes());
    assert_eq!(client.result(id).await.unwrap()["stopReason"], "end_turn");
    assert_eq!(client.words(), all);
}

/// A client that disconnects does not affect the run.
#[tokio::test]
async fn a_client_that_leaves_cancels_nothing() {
    let gate = wellspring_models::Gate::new();
    let says = Say::new().text("one ").unfinished().gate(&gate).more(0, "two");
    let runtime = runtime([agent("slow", [says], [])]);
    let mut client = Client::ready(&runtime, "slow", json!({})).await;
    let session = client.session().await;
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "Go"}]});
    client.send("session/prompt", prompt).await;
    client.until(|it| it["params"]["update"]["sessionUpdate"] == "agent_message_chunk").await;
    client.leave().await.unwrap();
    gate.open();
    let runs = runtime.log().store().list(RunFilter::default()).await.unwrap();
    let transcript = runtime.local().wait(runs[0].run).await.unwrap();
    assert_eq!(transcript.answer(AgentNo::ROOT), "one two");
}

#[tokio::test]
async fn modes_and_commands() {
    let runtime = runtime([
        AgentDef { allow_model: true, ..agent("a", [Say::new().text("I am a.")], []) },
        agent("b", [Say::new().text("I am b.")], []),
    ]);
    let mut client = Client::ready(&runtime, "a", json!({})).await;
    let session = client.session().await;
    client.words();
    client.prompt(&session, "Who?").await.unwrap();
    assert_eq!(client.words(), "I am a.");
    let mode = |id: &str| json!({"sessionId": session, "modeId": id});
    assert_eq!(client.call("session/set_mode", mode("b")).await, Ok(json!({})));
    client.prompt(&session, "Who?").await.unwrap();
    assert_eq!(client.words(), "I am b.");
    let unknown = client.call("session/set_mode", mode("c")).await.unwrap_err();
    assert_eq!(unknown["code"], -32602);
    client.said();
    for command in ["/agent", "/agent c", "/agent a", "/model", "/model big", "/runs", "/usage"] {
        assert_eq!(client.prompt(&session, command).await, Ok(json!({"stopReason": "end_turn"})));
    }
    insta::assert_snapshot!(client.said());
    // Commands that are not ours go to the agent.
    client.prompt(&session, "/who").await.unwrap();
    assert_eq!(client.words(), "I am a.");
    let runs = runtime.log().store().list(RunFilter::default()).await.unwrap();
    let asked = runtime.local().wait(runs[0].run).await.unwrap().started.unwrap().request.clone();
    assert_eq!(asked.model.as_deref(), Some("big"));
}

/// Sends updates like an ACP agent, some of which have no event of their own.
struct Behind;

impl RemoteAgent for Behind {
    fn name(&self) -> &str {
        "behind"
    }

    fn run(
        &self,
        request: RemoteRequest,
        _: Context,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<Batch, ModelError>>, ModelError>> {
        let mut batch = Batch::default();
        let mut say = |value: Value| {
            let name = value["sessionUpdate"].as_str().unwrap_or_default().into();
            batch.event(Event::Extended(Box::new(Extended { origin: "acp".into(), name, value })));
        };
        say(json!({
            "sessionUpdate": "available_commands_update",
            "availableCommands": [{"name": "runs", "description": "Theirs"}],
        }));
        say(json!({"sessionUpdate": "notice", "severity": "info", "title": "Mind the gap"}));
        say(json!({"sessionUpdate": "current_mode_update", "currentModeId": "theirs"}));
        let text = batch.start(wellspring_core::PartKind::TEXT);
        let asked = request.request.input.first().and_then(wellspring_core::Content::as_text);
        batch.delta(text, asked.unwrap_or_default());
        batch.finish(text);
        batch.stop(Stop::EndTurn, None);
        async move { Ok(futures::stream::iter([Ok(batch)]).boxed()) }.boxed()
    }
}

/// Updates of a proxied agent that have no event of their own are forwarded unchanged. Its commands
/// are listed before ours.
#[tokio::test]
async fn an_agent_behind_us_is_passed_on() {
    let runtime = runtime([AgentDef::remote("behind", Arc::new(Behind))]);
    let notices = json!({"session": {"notices": {}}});
    let mut client = Client::ready(&runtime, "behind", notices).await;
    let session = client.session().await;
    client.said();
    client.prompt(&session, "Hi").await.unwrap();
    client.prompt(&session, "/runs").await.unwrap();
    insta::assert_snapshot!(client.said());
}

/// No message of a client breaks the connection.
#[tokio::test]
async fn nonsense_is_answered() {
    let runtime = runtime([agent("a", [Say::new().text("Yes.")], [])]);
    let mut client = Client::of(&runtime, "a");
    let mut said = String::new();
    for line in [
        "\n  \nnonsense\n",
        "[]\n",
        "{\"jsonrpc\":\"2.0\"}\n",
        "{\"id\":77,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"no/such\"}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session/new\",\"params\":{\"cwd\":\"here\",\"mcpServers\":[]}}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session/new\",\"params\":[]}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session/new\",\"params\":{\"cwd\":\"/\",\"mcpServers\":[{\"type\":\"sse\",\"name\":\"s\",\"url\":\"http://x\",\"headers\":[]}]}}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session/prompt\",\"params\":{\"sessionId\":\"s\"}}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"session/load\",\"params\":{\"sessionId\":\"01920000-0000-7000-8000-000000000002\",\"cwd\":\"/\",\"mcpServers\":[]}}\n",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"authenticate\",\"params\":{\"methodId\":\"x\"}}\n",
    ] {
        client.raw(line.as_bytes()).await;
        client.hear().await.unwrap();
        said += &client.said();
    }
    insta::assert_snapshot!(said);
    let session = client.session().await;
    for prompt in [json!([]), json!("x"), json!([{"type": "hologram"}])] {
        let params = json!({"sessionId": session, "prompt": prompt});
        assert_eq!(client.call("session/prompt", params).await.unwrap_err()["code"], -32602);
    }
    client.prompt(&session, "Still there?").await.unwrap();
    assert_eq!(client.words(), "Yes.");
}

#[tokio::test(start_paused = true)]
async fn a_message_without_end_ends_the_connection() {
    let runtime = runtime([agent("a", [], [])]);
    let mut client = Client::of(&runtime, "a");
    let max = wellspring_wire::EVENT_BYTES_MAX;
    client.flood(&vec![b'x'; 1024 * 1024]).await;
    let told = client.hear().await.unwrap();
    assert_eq!(told["error"]["code"], -32700);
    assert!(client.hear().await.is_none());
    let ended = tokio::time::timeout(Duration::from_secs(5), client.leave()).await.unwrap();
    assert_eq!(ended.unwrap_err().to_string(), format!("an event has more than {max} bytes"));
}
