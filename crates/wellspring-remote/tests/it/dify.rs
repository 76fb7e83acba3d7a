//! Apps of Dify, with a strict fake of its API.

use std::time::Duration;

use serde_json::{Value, json};
use wellspring_core::{CancelWhen, Event};
use wellspring_engine::StartRun;
use wellspring_remote::dify::{App, DifyAgent, DifyConfig};
use wellspring_testkit::{Answer, Asked, FakeProvider};

use crate::kit::{agent, finished, play, read_until, runtime, start};

fn sse(lines: &str) -> Answer {
    let body: String = lines.lines().map(|line| format!("data: {line}\n\n")).collect();
    // A ping is an event without data.
    Answer::ok("text/event-stream; charset=utf-8", format!("event: ping\n\n{body}"))
}

/// Rejects what Dify rejects: another path, a missing key, an unknown or missing field.
fn strict(asked: &Asked, stream: &Answer) -> Answer {
    if asked.header("authorization") != Some("Bearer app-key") {
        return Answer::status(
            401,
            r#"{"code":"unauthorized","message":"Access token is invalid","status":401}"#,
        );
    }
    let fields: &[&str] = match &*asked.path {
        "/v1/chat-messages" => {
            &["inputs", "query", "response_mode", "conversation_id", "user", "files"]
        }
        "/v1/workflows/run" => &["inputs", "response_mode", "user", "files"],
        path if path.ends_with("/stop") => {
            return Answer::ok("application/json", r#"{"result":"success"}"#);
        }
        _ => {
            return Answer::status(
                404,
                r#"{"code":"not_found","message":"no such path","status":404}"#,
            );
        }
    };
    let body = asked.body.as_object().unwrap();
    let known = body.keys().all(|name| fields.contains(&name.as_str()));
    if !known || body["response_mode"] != "streaming" || !body["user"].is_string() {
        return Answer::status(
            400,
            r#"{"code":"invalid_param","message":"bad field","status":400}"#,
        );
    }
    stream.clone()
}

async fn fake(stream: Answer) -> FakeProvider {
    FakeProvider::answering(move |asked| strict(asked, &stream)).await.unwrap()
}

fn config(fake: &FakeProvider) -> DifyConfig {
    DifyConfig::new(format!("{}/v1", fake.url()), "app-key")
}

fn remote(config: DifyConfig) -> DifyAgent {
    DifyAgent::new("dify", config).unwrap()
}

const CHATFLOW: &str = include_str!("../../../wellspring-wire/fixtures/dify/chatflow.jsonl");
const WORKFLOW: &str = include_str!("../../../wellspring-wire/fixtures/dify/workflow.jsonl");

#[tokio::test]
async fn a_chat_answers_and_goes_on_in_its_conversation() {
    let fake = fake(sse(CHATFLOW)).await;
    let runtime = runtime(agent(remote(config(&fake))));
    let run = start(&runtime).await;
    insta::assert_snapshot!(finished(&runtime, run).await);
    assert_eq!(
        fake.asked()[0].body,
        json!({"inputs": {}, "query": "go", "response_mode": "streaming",
            "conversation_id": "", "user": "local"})
    );
    let thread = runtime.log().transcript(run).await.unwrap().started.unwrap().thread;
    let next = StartRun { thread: Some(thread), ..StartRun::text("agent", "more") };
    let next = runtime.local().start(next).await.unwrap().run;
    finished(&runtime, next).await;
    assert_eq!(fake.asked()[1].body["conversation_id"], "c1");
}

#[tokio::test]
async fn a_workflow_gets_the_text_in_its_variable() {
    let fake = fake(sse(WORKFLOW)).await;
    let mut config = config(&fake);
    (config.app, config.input) = (App::Workflow, "topic".into());
    insta::assert_snapshot!(play(remote(config)).await);
    assert_eq!(fake.asked()[0].body["inputs"], json!({"topic": "go"}));
}

#[tokio::test]
async fn a_cancelled_run_is_stopped_at_dify() {
    let first: String = CHATFLOW.lines().take(5).map(|line| format!("{line}\n")).collect();
    let fake = fake(sse(&first).stall()).await;
    let runtime = runtime(agent(remote(config(&fake))));
    let run = start(&runtime).await;
    let says = |event: &Event| matches!(event, Event::PartStarted { kind, .. } if kind.to_string() == "text");
    read_until(&runtime, run, says).await;
    runtime.local().cancel(run, CancelWhen::Now, None).await.unwrap();
    let said = finished(&runtime, run).await;
    assert!(said.ends_with("run finished cancelled\n"), "{said}");
    let asked = fake.asked();
    let stop = asked.last().unwrap();
    assert_eq!((&*stop.path, &stop.body), ("/v1/chat-messages/t1/stop", &json!({"user": "local"})));
}

#[tokio::test]
async fn errors_say_what_happened() {
    let error: Value = json!({"event": "error", "task_id": "t", "message_id": "m", "status": 400,
        "code": "provider_quota_exceeded", "message": "out of ink"});
    let half = r#"{"event":"message","task_id":"t","answer":"Half a"}"#;
    let mut ends = String::new();
    for (stream, key) in [
        (sse(&error.to_string()), "app-key"),
        (sse(half), "app-key"),
        (sse(half).stall(), "app-key"),
        (Answer::ok("text/html", "<p>hello</p>"), "app-key"),
        (sse("{"), "app-key"),
        (sse(half), "wrong-key"),
    ] {
        let fake = fake(stream).await;
        let mut config = config(&fake);
        config.key = key.into();
        config.silence = Duration::from_millis(200);
        let said = play(remote(config)).await;
        ends += said.lines().last().unwrap();
        ends += "\n";
    }
    insta::assert_snapshot!(ends);
}
