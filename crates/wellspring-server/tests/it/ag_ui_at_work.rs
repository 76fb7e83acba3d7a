//! AG-UI with an agent whose tool waits for its answers without a pause of the run.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{self, BoxStream, StreamExt as _};
use serde_json::{Value, json};
use wellspring_core::{
    Ask, Batch, Choice, Context, Form, ModelError, PartKind, RemoteAgent, RemoteRequest, Stop,
    ToolResult, ToolSpec,
};
use wellspring_engine::AgentDef;
use wellspring_engine::tools::from_function;
use wellspring_log::RunFilter;
use wellspring_models::{Say, Scripted};

use crate::ag_ui::{events, input, user};
use crate::kit::Kit;

/// Asks twice, and returns the answers.
struct Asks;

impl RemoteAgent for Asks {
    fn name(&self) -> &str {
        "agent"
    }

    fn run(
        &self,
        _: RemoteRequest,
        context: Context,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<Batch, ModelError>>, ModelError>> {
        let said = stream::unfold((context, 0), |(context, asked)| async move {
            if asked == 3 {
                return None;
            }
            let mut batch = Batch::default();
            if asked == 2 {
                batch.stop(Stop::EndTurn, None);
                return Some((Ok(batch), (context, 3)));
            }
            let choice = |id: &str| Choice { id: id.into(), label: id.into() };
            let choices = vec![choice("this"), choice("that")];
            let ask = Ask::new("Which?", Form::Choose { choices, multiple: false });
            let answer = context.ask(ask).await;
            let text = batch.start(PartKind::TEXT);
            batch.delta(text, &format!("{answer:?} "));
            batch.finish(text);
            Some((Ok(batch), (context, asked + 1)))
        });
        async move { Ok(said.boxed()) }.boxed()
    }
}

/// The run ids in the events that name the run.
fn names(events: &[Value]) -> Vec<String> {
    let named = events.iter().filter(|event| event.get("runId").is_some());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    named.map(|it| format!("{} {}", text(&it["type"]), text(&it["runId"]))).collect()
}

/// Each request's stream uses the run id of that request; other streams of the run keep theirs.
#[tokio::test]
async fn an_answer_is_followed_under_the_name_that_it_brings() {
    let kit = Kit::new(AgentDef::remote("agent", Arc::new(Asks))).await;
    let messages = json!([user("m", "Go")]);
    let send = async |run: &str, resume: Option<Value>| {
        let mut body = input("t", run, messages.clone());
        if let Some(interrupt) = resume {
            body["resume"] =
                json!([{ "interruptId": interrupt, "status": "resolved", "payload": ["this"] }]);
        }
        events(kit.post("/ag-ui/agent", &body).send().await.unwrap()).await
    };
    let interrupt = |events: &[Value]| {
        let outcome = &events.last().unwrap()["outcome"];
        assert_eq!(outcome["type"], "interrupt", "{events:?}");
        outcome["interrupts"][0]["id"].clone()
    };
    let first = send("r1", None).await;
    assert_eq!(names(&first), ["RUN_STARTED r1", "RUN_FINISHED r1"]);
    let run = kit.runtime.log().store().list(RunFilter::default()).await.unwrap()[0].run;
    // One client reads the whole run live, and gets the same bytes as a client that reads it later.
    let path = format!("/v1/runs/{run}/events?dialect=ag_ui");
    let watched = kit.get(&path).send().await.unwrap();

    let second = send("r2", Some(interrupt(&first))).await;
    assert_eq!(names(&second), ["RUN_STARTED r2", "RUN_FINISHED r2"]);
    let third = send("r3", Some(interrupt(&second))).await;
    assert_eq!(names(&third), ["RUN_STARTED r3", "RUN_FINISHED r3"]);
    assert_eq!(third.last().unwrap()["outcome"], json!({"type": "success"}));

    let watched = watched.text().await.unwrap();
    assert!(watched.contains("\"runId\":\"r1\""), "{watched}");
    assert!(!watched.contains("\"runId\":\"r2\"") && !watched.contains("\"runId\":\"r3\""));
    assert_eq!(watched, kit.get(&path).send().await.unwrap().text().await.unwrap());
    for run in ["r1", "r2", "r3"] {
        let started = format!("RUN_STARTED {run}");
        assert_eq!(names(&send(run, None).await), [started, format!("RUN_FINISHED {run}")]);
    }
}

/// A model whose first turn calls a tool that asks, and which then lists its tools, its context
/// and its state.
fn lists_its_tools() -> AgentDef {
    let asking =
        from_function(ToolSpec::new("asking", "asks a person"), |_, cx: Context| async move {
            let choices = vec![Choice { id: "this".into(), label: "This".into() }];
            let answer =
                cx.ask(Ask::new("Which?", Form::Choose { choices, multiple: false })).await;
            Ok(ToolResult::new(format!("{answer:?}")))
        });
    let model = Scripted::with(|request| {
        if request.messages.len() == 1 {
            return Say::new().call("asking", json!({}));
        }
        let names: Vec<_> = request.tools.iter().map(|tool| &*tool.name).collect();
        Say::new().text(format!("{names:?} {}", request.instructions))
    });
    AgentDef { tools: vec![Arc::new(asking)], ..AgentDef::model("agent", Arc::new(model)) }
}

const LISTED: &str = "[\"asking\", \"pick\"] \n\ntime:\nlate\n\nThe state shared with the user's \
                      screen:\n{\"n\":2}";

/// Tools, context and state that come with an answer apply from the next turn on, also if the run
/// has not paused for the answer.
#[tokio::test]
async fn an_answer_brings_tools_context_and_state() {
    let kit = Kit::new(lists_its_tools()).await;
    let mut body = input("t", "r1", json!([user("m", "Go")]));
    let first = events(kit.post("/ag-ui/agent", &body).send().await.unwrap()).await;
    let interrupt = &first.last().unwrap()["outcome"]["interrupts"][0]["id"];
    body["runId"] = json!("r2");
    body["resume"] =
        json!([{ "interruptId": interrupt, "status": "resolved", "payload": ["this"] }]);
    body["tools"] = json!([{ "name": "pick", "description": "", "parameters": {} }]);
    body["context"] = json!([{ "description": "time", "value": "late" }]);
    body["state"] = json!({ "n": 2 });
    let second = events(kit.post("/ag-ui/agent", &body).send().await.unwrap()).await;
    let deltas = second.iter().filter(|event| event["type"] == "TEXT_MESSAGE_CONTENT");
    let said: String = deltas.filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!(said, LISTED, "{second:?}");
}

/// The same over the native API: with an answer, and as a separate request.
#[tokio::test]
async fn the_native_api_amends_a_running_run() {
    let kit = Kit::new(lists_its_tools()).await;
    let start = json!({ "agent": "agent", "input": "Go", "state": { "n": 0 } });
    let started = kit.post("/v1/runs", &start).send().await.unwrap();
    let started: Value = started.json().await.unwrap();
    let path = format!("/v1/runs/{}", started["run"].as_str().unwrap());
    let state = async || kit.get(&path).send().await.unwrap().json::<Value>().await.unwrap();
    let mut run = state().await;
    while run["waits_for"]["questions"][0].is_null() {
        run = state().await;
    }
    let context = json!([{ "description": "time", "value": "late" }]);
    let amend = json!({ "amend": { "context": context, "state": { "n": 1 } } });
    let amended = kit.post(&format!("{path}/input"), &amend).send().await.unwrap();
    assert_eq!(amended.status(), 202);
    let tools = json!([{ "name": "pick", "description": "", "parameters": {} }]);
    let answer = json!({
        "question": 0,
        "answer": { "choose": ["this"] },
        "amend": { "client_tools": tools, "state": { "n": 2 } },
    });
    let answered = kit.post(&format!("{path}/answers"), &answer).send().await.unwrap();
    assert_eq!(answered.status(), 202);
    let ended = kit.get(&format!("{path}/events?dialect=record")).send().await.unwrap();
    assert!(ended.text().await.unwrap().contains("run_finished"));
    assert_eq!(state().await["answer"], LISTED);
    let nothing = kit.post(&format!("{path}/input"), &json!({})).send().await.unwrap();
    assert_eq!(nothing.status(), 400);
}
