//! Our tools in a remote agent, and the typed result that it returns.

use std::sync::Arc;

use serde_json::{Value, json};
use wellspring_acp::client::AcpAgent;
use wellspring_core::{
    Context, FailureKind, Outcome, RunRequest, Stop, Tool, ToolResult, ToolSpec,
};
use wellspring_engine::AgentDef;
use wellspring_engine::tools::from_function;

use super::kit::{config, driven, outcome, play, schema, scripted, shown, words};

fn clock() -> Vec<Arc<dyn Tool>> {
    let spec = ToolSpec::new("clock", "says what time it is");
    let clock = from_function(spec, |arguments: Value, context: Context| async move {
        context.progress("looking").await;
        Ok(ToolResult::new(format!("noon in {}", arguments["zone"].as_str().unwrap_or("?"))))
    });
    vec![Arc::new(clock)]
}

fn typed() -> RunRequest {
    RunRequest { result_schema: Some(schema()), ..RunRequest::text("go") }
}

#[tokio::test]
async fn our_tools_run_here_whatever_the_agent_says_of_them() {
    let def = scripted(&json!({"prompts": [[
        {"update": {"sessionUpdate": "tool_call", "toolCallId": "x", "title": "mcp__wellspring__clock",
            "status": "pending"}},
        {"request": {"method": "session/request_permission", "params": {
            "toolCall": {"toolCallId": "x"},
            "options": [{"optionId": "y", "name": "y", "kind": "allow_once"}]}}},
        {"call": {"name": "clock", "arguments": {"zone": "Oslo"}}},
        {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "x", "status": "completed"}},
    ]]}));
    let records = play(AgentDef { tools: clock(), ..def }, RunRequest::text("go")).await;
    insta::assert_snapshot!(shown(&records), @r#"
    extended acp lent_tool_call {"sessionUpdate":"tool_call","toolCallId":"x","title":"mcp__wellspring__clock","status":"pending"}
    part 0 started text
    part 0 delta "{\"outcome\":{\"outcome\":\"selected\",\"optionId\":\"y\"}}"
    part 1 started call clock
    part 1 delta "{\"zone\":\"Oslo\"}"
    part 1 finished
    tool 1 started parallel
    tool 1 updated {"data":"looking"}
    tool 1 finished ok "noon in Oslo"
    part 0 finished
    part 2 started text
    part 2 delta "noon in Oslo"
    part 2 finished
    extended acp lent_tool_call {"sessionUpdate":"tool_call_update","toolCallId":"x","status":"completed"}
    run finished completed end_turn
    "#);
}

#[tokio::test]
async fn a_typed_result_is_repaired_and_nothing_is_lost_after_it() {
    let def = scripted(&json!({"prompts": [[
        {"call": {"name": "return_result", "arguments": {"n": "three"}}},
        {"call": {"name": "return_result", "arguments": {"n": 3}}},
        {"text": "There it is."},
    ]]}));
    let records = play(def, typed()).await;
    insta::assert_snapshot!(shown(&records), @r#"
    part 0 started call return_result
    part 0 delta "{\"n\":\"three\"}"
    part 0 finished
    tool 0 finished error "the result does not fit its schema: /n: value is not of type \"integer\"; call it again, corrected"
    part 1 started text
    part 1 delta "error: the result does not fit its schema: /n: value is not of type \"integer\"; call it again, corrected"
    part 2 started call return_result
    part 2 delta "{\"n\":3}"
    part 2 finished
    result {"n":3}
    tool 2 finished ok "the result was taken"
    part 1 finished
    part 3 started text
    part 3 delta "the result was taken"
    part 3 delta "There it is."
    part 3 finished
    run finished completed end_turn
    "#);
}

#[tokio::test]
async fn an_agent_that_forgets_its_result_is_reminded() {
    let def = scripted(&json!({"prompts": [
        [{"text": "I am done."}],
        [{"echo": true}, {"call": {"name": "return_result", "arguments": {"n": 3}}}],
    ]}));
    let records = play(def, typed()).await;
    insta::assert_snapshot!(shown(&records), @r#"
    part 0 started text
    part 0 delta "I am done."
    part 0 finished
    part 1 started text
    part 1 delta "You have not handed over the result yet. Now call the tool return_result of the MCP server wellspring with the final result."
    part 2 started call return_result
    part 2 delta "{\"n\":3}"
    part 2 finished
    result {"n":3}
    tool 2 finished ok "the result was taken"
    part 1 finished
    part 3 started text
    part 3 delta "the result was taken"
    part 3 finished
    run finished completed end_turn
    "#);
}

#[tokio::test]
async fn an_agent_that_never_hands_over_a_result_is_asked_a_bounded_number_of_times() {
    let def = scripted(&json!({"prompts": [[{"text": "."}]]}));
    let records = play(def, typed()).await;
    assert_eq!(words(&records).len(), 1 + wellspring_acp::client::REMINDERS_MAX as usize);
    assert_eq!(outcome(&records), Outcome::Completed { stop: Stop::EndTurn });
}

#[tokio::test]
async fn an_agent_that_never_looks_at_our_tools_is_a_typed_error() {
    let mut config = config(&json!({"look": "never", "prompts": [[{"text": "Hi."}]]}));
    config.timeouts.tools = std::time::Duration::ZERO;
    let def = driven(AcpAgent::new("scripted", config));
    let records = play(AgentDef { tools: clock(), ..def }, RunRequest::text("go")).await;
    let Outcome::Failed { kind, message, .. } = outcome(&records) else { panic!() };
    assert_eq!(kind, FailureKind::TimedOut);
    assert!(message.contains("cannot use our tools"), "{message}");
}

#[tokio::test]
async fn an_agent_may_look_at_our_tools_when_it_is_prompted() {
    let mut config = config(&json!({"look": "prompt", "prompts": [[
        {"call": {"name": "clock", "arguments": {"zone": "Rome"}}},
    ]]}));
    config.timeouts.tools = std::time::Duration::ZERO;
    let def = driven(AcpAgent::new("scripted", config));
    let records = play(AgentDef { tools: clock(), ..def }, RunRequest::text("go")).await;
    assert!(words(&records).ends_with("noon in Rome"), "{}", shown(&records));
}

#[tokio::test]
async fn an_agent_without_mcp_over_http_gets_our_tools_by_a_bridge() {
    let mut config = config(&json!({"capabilities": {}, "prompts": [[
        {"call": {"name": "clock", "arguments": {"zone": "Bern"}}},
    ]]}));
    let program = std::env::current_exe().unwrap();
    let bridge = [program.to_str().unwrap(), "--exact", "mcp_bridge", "--nocapture", "--quiet"];
    config.bridge = Some(bridge.map(Box::from).to_vec());
    let def = driven(AcpAgent::new("scripted", config));
    let records = play(AgentDef { tools: clock(), ..def }, RunRequest::text("go")).await;
    assert!(words(&records).ends_with("noon in Bern"), "{}", shown(&records));
}

#[tokio::test]
async fn an_agent_without_mcp_over_http_needs_a_bridge() {
    let mut config = config(&json!({"capabilities": {}, "prompts": [[]]}));
    config.bridge = Some(Vec::new());
    let def = driven(AcpAgent::new("scripted", config));
    let records = play(AgentDef { tools: clock(), ..def }, RunRequest::text("go")).await;
    let Outcome::Failed { kind: FailureKind::BadRequest, message, .. } = outcome(&records) else {
        panic!("{}", shown(&records))
    };
    assert!(message.contains("`bridge` is empty"), "{message}");
}
