//! Questions: permission requests, and forms if the client supports them.

use std::sync::Arc;

use serde_json::{Value, json};
use wellspring_core::{Answer, Approval, QuestionId, Tool, ToolKind};
use wellspring_engine::tools::{NoArguments, ask_user, function};
use wellspring_engine::{AgentDef, Policy, Rule};
use wellspring_log::RunFilter;
use wellspring_models::Say;

use crate::client::{Client, agent, runtime};

fn delete() -> Arc<dyn Tool> {
    let tool = function("delete_cache", "Deletes it.", |_: NoArguments, _| async {
        Ok::<_, wellspring_core::ToolError>("deleted")
    });
    Arc::new(tool.title("Delete the cache").kind(ToolKind::Delete))
}

fn deleter() -> AgentDef {
    let says = [Say::new().call("delete_cache", json!({})), Say::new().text("Done.")];
    agent("deleter", says, [delete()])
}

fn select(option: &'static str) -> impl FnMut(&str, &Value) -> Result<Value, Value> + Send {
    move |_, _| Ok(json!({"outcome": {"outcome": "selected", "optionId": option}}))
}

#[tokio::test]
async fn a_call_that_is_allowed() {
    let runtime = runtime([deleter()]);
    let client = Client::ready(&runtime, "deleter", json!({})).await;
    let mut client = client.answer(select("allow_session"));
    let session = client.session().await;
    client.said();
    client.prompt(&session, "Clean up").await.unwrap();
    insta::assert_snapshot!(client.said());
    // The approval applies to the session, so there is no second question.
    client.prompt(&session, "Once more").await.unwrap();
    let said = client.said();
    assert!(!said.contains("request_permission") && said.contains("\"deleted\""), "{said}");
    // In another session there is a question again.
    let other = client.session().await;
    client.prompt(&other, "Clean up").await.unwrap();
    assert!(client.said().contains("request_permission"));
}

#[tokio::test]
async fn a_call_that_is_not() {
    for answer in [
        Ok(json!({"outcome": {"outcome": "selected", "optionId": "reject_once"}})),
        Ok(json!({"outcome": {"outcome": "cancelled"}})),
        Ok(json!({"outcome": "yes"})),
        Err(json!({"code": -32601, "message": "I do not ask"})),
    ] {
        let runtime = runtime([deleter()]);
        let client = Client::ready(&runtime, "deleter", json!({})).await;
        let mut client = client.answer(move |_, _| answer.clone());
        let session = client.session().await;
        client.prompt(&session, "Clean up").await.unwrap();
        let said = client.said();
        assert!(said.contains("\"status\":\"failed\"") && !said.contains("\"deleted\""), "{said}");
    }
}

/// A client that cancels while a question is open.
#[tokio::test]
async fn cancelled_at_a_question() {
    let runtime = runtime([deleter()]);
    // `null` is not a valid answer.
    let client = Client::ready(&runtime, "deleter", json!({})).await;
    let mut client = client.answer(|_, _| Ok(Value::Null));
    let session = client.session().await;
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "Go"}]});
    let id = client.send("session/prompt", prompt).await;
    let asked = client.until(|it| it["method"] == "session/request_permission").await;
    client.notify("session/cancel", json!({"sessionId": session})).await;
    let cancelled = json!({"outcome": {"outcome": "cancelled"}});
    client.say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": cancelled})).await;
    assert_eq!(client.result(id).await, Ok(json!({"stopReason": "cancelled"})));
}

/// If the question is answered through another surface, the client's request is withdrawn.
#[tokio::test]
async fn answered_elsewhere() {
    let runtime = runtime([deleter()]);
    let client = Client::ready(&runtime, "deleter", json!({})).await;
    let mut client = client.answer(|_, _| Ok(Value::Null));
    let session = client.session().await;
    let prompt = json!({"sessionId": session, "prompt": [{"type": "text", "text": "Go"}]});
    let id = client.send("session/prompt", prompt).await;
    let asked = client.until(|it| it["method"] == "session/request_permission").await;
    let runs = runtime.log().store().list(RunFilter::default()).await.unwrap();
    runtime.local().answer(runs[0].run, QuestionId(0), Answer::yes()).await.unwrap();
    let withdrawn = client.until(|it| it["method"] == "$/cancel_request").await;
    assert_eq!(withdrawn["params"], json!({"requestId": asked["id"]}));
    assert_eq!(client.result(id).await.unwrap()["stopReason"], "end_turn");
}

fn asker(question: Value) -> AgentDef {
    let says = [Say::new().call("ask_user", question), Say::new().text("Thanks.")];
    let policy = Policy::default().rule(Rule::tool("*").decide(Approval::Allow));
    AgentDef { policy, ..agent("asker", says, [Arc::new(ask_user()) as _]) }
}

async fn asked(question: Value, capabilities: Value, answer: Value) -> String {
    let runtime = runtime([asker(question)]);
    let client = Client::ready(&runtime, "asker", capabilities).await;
    let mut client = client.answer(move |_, _| Ok(answer.clone()));
    let session = client.session().await;
    client.said();
    client.prompt(&session, "Ask me").await.unwrap();
    let said = client.said();
    let told = |line: &&str| {
        line.starts_with("session/request")
            || line.starts_with("elicit")
            || line.contains("rawOutput")
    };
    said.lines().filter(told).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn choices_and_forms() {
    let choice = json!({"question": "Which?", "choices": ["spring", "river"]});
    let select = json!({"outcome": {"outcome": "selected", "optionId": "choice-1"}});
    let accept = json!({"action": "accept", "content": {"answer": "river"}});
    let forms = json!({"elicitation": {"form": {}}});
    let form = json!({"question": "Who?", "schema": {"type": "object", "properties": {"name": {"type": "string"}}}});
    let named = json!({"action": "accept", "content": {"name": "Ada"}});
    let said = [
        asked(choice.clone(), json!({}), select).await,
        asked(choice, forms.clone(), accept).await,
        asked(form.clone(), forms, named).await,
        asked(form, json!({}), json!({})).await,
    ];
    insta::assert_snapshot!(said.join("\n\n"));
}
