//! Tools of all forms, their context, and agents that call agents.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use wellspring::crates::core::AgentNo;
use wellspring::prelude::*;
use wellspring::tools::{NoArguments, function};
use wellspring::{Content, Event, Tool, Usage};

use crate::kit::{lines, records, soon};

/// Doubles a number.
#[derive(Deserialize, JsonSchema)]
struct Double {
    /// Which.
    number: i64,
}

async fn double(input: Double, _: Context) -> Result<i64, ToolError> {
    Ok(input.number * 2)
}

/// Calls a tool once and answers with its result.
fn calls(name: &'static str, arguments: serde_json::Value) -> Agent {
    Agent::model(Scripted::with(move |request| match request.messages.last() {
        Some(wellspring::Message::Results { results }) => {
            Say::new().text(results[0].result.output_text())
        }
        _ => Say::new().call(name, arguments.clone()),
    }))
}

#[tokio::test(start_paused = true)]
async fn a_function_a_closure_a_tool_and_a_shared_one_can_be_given() {
    let agent = || calls("double", json!({"number": 21}));
    assert_eq!(soon(agent().say("?").tool(double).run()).await.unwrap(), "42");
    let closure = async |input: Double, _: Context| Ok(input.number + 1);
    assert_eq!(soon(agent().say("?").tool(closure).run()).await.unwrap(), "22");
    let built = || function("double", "", async |input: Double, _| Ok(input.number + 2));
    assert_eq!(soon(agent().say("?").tool(built()).run()).await.unwrap(), "23");
    let shared: Arc<dyn Tool> = Arc::new(built());
    assert_eq!(soon(agent().say("?").tool(shared).run()).await.unwrap(), "23");
}

#[test]
fn a_function_is_named_by_itself_and_described_by_its_arguments() {
    let agent = Agent::model(Scripted::new([])).tool(double);
    let spec = agent.def().tools[0].spec();
    assert_eq!((&*spec.name, &*spec.description), ("double", "Doubles a number."));
    let want = json!({
        "type": "object",
        "properties": {"number": {"type": "integer", "format": "int64", "description": "Which."}},
        "required": ["number"],
    });
    assert_eq!(*spec.parameters, want);
}

#[tokio::test(start_paused = true)]
async fn a_tool_knows_its_run() {
    let know = function("know", "Knows.", async |_: NoArguments, cx: Context| {
        Ok(json!({
            "trace": cx.trace_id(),
            "cwd": cx.cwd(),
            "messages": cx.messages().len(),
            "call": cx.call_id().is_some_and(|id| id.run == cx.facts().run),
        }))
    });
    let agent = calls("know", json!({})).tool(know);
    let said = soon(agent.say("?").trace_id("trace-1").cwd("/srv").run()).await.unwrap();
    assert_eq!(said, r#"{"trace":"trace-1","cwd":"/srv","messages":1,"call":true}"#);
}

#[tokio::test(start_paused = true)]
async fn the_agent_is_told_notes_and_the_directory() {
    let model = Scripted::with(|request| Say::new().text(&request.instructions));
    let think = Agent::model(model).instructions("Be kind.").say("?");
    let said = soon(think.cwd("/srv").note("The page", "Basket").run()).await.unwrap();
    assert_eq!(said, "Be kind.\n\nThe working directory is /srv\n\nThe page:\nBasket");
}

#[tokio::test(start_paused = true)]
async fn a_request_can_think_with_another_model_and_content() {
    let agent = Agent::model(Scripted::new([Say::new().text("first")]));
    let other = Scripted::with(|request| match &request.messages[..] {
        [wellspring::Message::User { content }] => {
            Say::new().text(format!("{} {:?}", content.len(), request.model))
        }
        _ => Say::new(),
    });
    let link = Content::Link { uri: "file:///a".into(), name: None, media_type: None };
    let think = agent.say("look: ").content(link).model(other).model_name("large");
    assert_eq!(soon(think.run()).await.unwrap(), r#"2 Some("large")"#);
    assert_eq!(soon(agent.say("?").run()).await.unwrap(), "first");
}

#[tokio::test(start_paused = true)]
async fn agents_call_agents_that_call_agents() {
    let usage = || Usage { input: 1, output: 1, ..Usage::default() };
    let caller = |name: &'static str, callee: &'static str| {
        let arguments = json!({"agentId": callee, "input": "go on"});
        let call = Say::new().call("call-agent", arguments).usage(usage());
        let done = Say::new().text(format!("{name} is done.")).usage(usage());
        Agent::model(Scripted::new([call, done])).named(name)
    };
    let inner = Agent::model(Scripted::new([Say::new().text("inner speaks").usage(usage())]));
    let inner = inner.named("inner").description("Speaks.");
    let middle = caller("middle", "inner").sub_agent(&inner).description("Passes on.");
    let outer = caller("outer", "middle").sub_agent(&middle);

    let stream = outer.say("?").stream();
    assert_eq!(soon(stream.result()).await.unwrap(), "outer is done.");
    let records = records(&stream).await;
    let began = records.iter().filter_map(|record| match &record.event {
        Event::AgentStarted { parent, name, .. } => Some((record.agent, *parent, &**name)),
        _ => None,
    });
    let want = [(AgentNo(1), AgentNo(0), "middle"), (AgentNo(2), AgentNo(1), "inner")];
    assert_eq!(began.collect::<Vec<_>>(), want);
    assert_eq!(soon(stream.transcript()).await.unwrap().usage.input, 5);
    insta::assert_snapshot!(lines(stream).await.join("\n"), @r#"
    {"type":"tool_start","id":"0","title":"Agent","kind":"other"}
    {"type":"tool_update","id":"0","status":"in_progress"}
    {"type":"tool_update","id":"0","status":"in_progress","content":[{"type":"content","content":{"type":"text","text":"middle "}}]}
    {"type":"tool_update","id":"0","status":"in_progress","content":[{"type":"content","content":{"type":"text","text":"is "}}]}
    {"type":"tool_update","id":"0","status":"in_progress","content":[{"type":"content","content":{"type":"text","text":"done."}}]}
    {"type":"tool_done","id":"0","status":"completed"}
    {"type":"message","text":"outer "}
    {"type":"message","text":"is "}
    {"type":"message","text":"done."}
    "#);
}
