//! AG-UI with an agent that waits for its answers at work, while its run goes on.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{self, BoxStream, StreamExt as _};
use serde_json::{Value, json};
use wellspring_core::{
    Ask, Batch, Choice, Context, Form, ModelError, PartKind, RemoteAgent, RemoteRequest, Stop,
};
use wellspring_engine::AgentDef;
use wellspring_log::RunFilter;

use crate::ag_ui::{events, input, user};
use crate::kit::Kit;

/// Asks twice, and says what it was told.
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

/// The events that name the run, and what they call it.
fn names(events: &[Value]) -> Vec<String> {
    let named = events.iter().filter(|event| event.get("runId").is_some());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    named.map(|it| format!("{} {}", text(&it["type"]), text(&it["runId"]))).collect()
}

/// Each request is answered under the name that it gives the run, while others go on under theirs.
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
    // Somebody watches all of it, and is told the same bytes as whoever does so later.
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
