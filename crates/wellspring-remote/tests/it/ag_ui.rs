//! Agents that speak AG-UI.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use wellspring_core::{CancelWhen, Event, ToolResult, ToolSpec};
use wellspring_engine::AgentDef;
use wellspring_engine::tools::from_function;
use wellspring_remote::ag_ui::{AgUiAgent, AgUiConfig};
use wellspring_testkit::{Answer, FakeProvider};

use crate::kit::{agent, finished, play, read_until, runtime, start};

fn sse(events: &[Value]) -> Answer {
    let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    Answer::ok("text/event-stream", body)
}

fn started() -> Value {
    json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r"})
}

fn says(words: &str) -> Value {
    json!({"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": words})
}

fn ended() -> Value {
    json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r"})
}

fn remote(fake: &FakeProvider) -> AgUiAgent {
    AgUiAgent::new("far", AgUiConfig::new(fake.url())).unwrap()
}

/// Ids of runs and threads are random, so the handle is not shown.
fn told(records: &str) -> String {
    let lines = records.lines().filter(|line| !line.starts_with("attached"));
    lines.map(|line| format!("{line}\n")).collect()
}

#[tokio::test]
async fn it_calls_our_tool_and_gets_the_result_in_its_next_run() {
    let fake = FakeProvider::start([
        sse(&[
            started(),
            says("Let me look. "),
            json!({"type": "TOOL_CALL_START", "toolCallId": "c1", "toolCallName": "clock"}),
            json!({"type": "TOOL_CALL_ARGS", "toolCallId": "c1", "delta": "{\"zone\":\"UTC\"}"}),
            json!({"type": "TOOL_CALL_END", "toolCallId": "c1"}),
            json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r",
                "outcome": {"type": "success", "pendingToolCallIds": ["c1"]}}),
        ]),
        sse(&[
            started(),
            json!({"type": "TEXT_MESSAGE_CHUNK", "messageId": "m2", "delta": "Noon."}),
            ended(),
        ]),
    ])
    .await
    .unwrap();
    let clock = from_function(ToolSpec::new("clock", "says the time"), |_: Value, _| async {
        Ok(ToolResult::new("12:00"))
    });
    let def = AgentDef { tools: vec![Arc::new(clock)], ..agent(remote(&fake)) };
    let runtime = runtime(def);
    let run = start(&runtime).await;
    insta::assert_snapshot!(told(&finished(&runtime, run).await), @r#"
    part 0 started text
    part 0 annotated {"provider_id":"m"}
    part 0 delta "Let me look. "
    part 0 finished
    part 1 started call clock
    part 1 annotated {"provider_id":"c1"}
    part 1 delta "{\"zone\":\"UTC\"}"
    part 1 finished
    tool 1 started parallel
    tool 1 finished ok "12:00"
    part 2 started text
    part 2 annotated {"provider_id":"m2"}
    part 2 delta "Noon."
    part 2 finished
    run finished completed end_turn
    "#);

    let asked = fake.asked();
    let said: Vec<Vec<&Value>> = asked
        .iter()
        .map(|asked| asked.body["messages"].as_array().unwrap().iter().collect())
        .collect();
    let offered = &asked[0].body["tools"];
    assert_eq!(
        offered,
        &json!([{"name": "clock", "description": "says the time",
        "parameters": {"type": "object"}}])
    );
    let told: Vec<_> = said[1].iter().map(|it| (&it["role"], &it["content"])).collect();
    assert_eq!(
        told,
        [
            (&json!("user"), &json!("go")),
            (&json!("assistant"), &json!("Let me look. ")),
            (&json!("assistant"), &Value::Null),
            (&json!("tool"), &json!("12:00")),
        ]
    );
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_a_failure() {
    let fake = FakeProvider::start([sse(&[started(), says("Half a")]).cut()]).await.unwrap();
    insta::assert_snapshot!(told(&play(remote(&fake)).await), @r#"
    part 0 started text
    part 0 annotated {"provider_id":"m"}
    part 0 delta "Half a"
    part 0 finished
    run finished failed protocol: far: broke off before its run had ended: error decoding response body: error reading a body from connection: unexpected EOF during chunk size line
    "#);
    assert_eq!(fake.asked().len(), 1, "to ask again would run the agent twice");
}

#[tokio::test]
async fn errors_say_what_happened() {
    let answers = [
        Answer::status(401, r#"{"error":"who are you?"}"#),
        Answer::ok("text/html", "<p>hello</p>"),
        sse(&[json!({"type": "RUN_ERROR", "message": "out of ink"})]),
        sse(&[started(), started()]),
    ];
    let mut ends = String::new();
    for answer in answers {
        let fake = FakeProvider::start([answer]).await.unwrap();
        let said = play(remote(&fake)).await;
        ends += said.lines().last().unwrap();
        ends += "\n";
    }
    insta::assert_snapshot!(ends, @r#"
    run finished failed refused: far: status 401: who are you?
    run finished failed protocol: far: answered with text/html, not with text/event-stream
    run finished failed unavailable: far: out of ink
    run finished failed protocol: far: broke the protocol: RUN_STARTED before the end of the previous run
    "#);
}

/// Clients see the errors of an agent, but not the headers that it was sent.
#[tokio::test]
async fn a_header_that_an_agent_repeats_is_redacted() {
    let repeated = "unknown: Bearer far-secret";
    for answer in [
        Answer::status(401, json!({ "error": repeated }).to_string()),
        sse(&[json!({"type": "RUN_ERROR", "message": repeated})]),
    ] {
        let fake = FakeProvider::start([answer]).await.unwrap();
        let headers = vec![("authorization".into(), "Bearer far-secret".into())];
        let config = AgUiConfig { headers, ..AgUiConfig::new(fake.url()) };
        let said = play(AgUiAgent::new("far", config).unwrap()).await;
        assert!(said.contains("unknown: Bearer [redacted]"), "{said}");
        assert!(!said.contains("far-secret"), "{said}");
    }
}

#[tokio::test]
async fn a_cancelled_run_closes_the_connection() {
    let fake = FakeProvider::start([sse(&[started(), says("On and")]).stall()]).await.unwrap();
    let runtime = runtime(agent(remote(&fake)));
    let run = start(&runtime).await;
    read_until(&runtime, run, |event| matches!(event, Event::PartDelta { .. })).await;
    runtime.local().cancel(run, CancelWhen::Now, None).await.unwrap();
    insta::assert_snapshot!(told(&finished(&runtime, run).await), @r#"
    part 0 started text
    part 0 annotated {"provider_id":"m"}
    part 0 delta "On and"
    part 0 finished
    run finished cancelled
    "#);
    fake.left(1).await;
}

#[tokio::test]
async fn a_silent_agent_times_out() {
    let fake = FakeProvider::start([sse(&[started(), says("Hm")]).stall()]).await.unwrap();
    let mut config = AgUiConfig::new(fake.url());
    config.silence = Duration::from_millis(1);
    let said = play(AgUiAgent::new("far", config).unwrap()).await;
    insta::assert_snapshot!(said.lines().last().unwrap(), @"run finished failed timed_out: far: sent nothing for 0.001 s");
}
