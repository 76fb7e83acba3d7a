//! Typed results: validated against the whole schema, and repaired a limited number of times.

use serde_json::{Value, json};
use wellspring_core::{Content, RETURN_RESULT, RunRequest, ToolResult, ToolSpec, render};
use wellspring_engine::tools::from_function;
use wellspring_engine::{AgentDef, Limits, RequestKey, StartError, StartRun};
use wellspring_models::{Gate, Say, Scripted};

use crate::kit::{agent, echo, finished, runtime, with_model};

async fn played(def: AgentDef, schema: Value) -> String {
    let runtime = runtime();
    runtime.register(def);
    let request = RunRequest { result_schema: Some(schema), ..RunRequest::text("go") };
    let run = runtime.local().start(StartRun::new("agent", request)).await.unwrap().run;
    render(&finished(&runtime, run).await)
}

fn number() -> Value {
    json!({
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 1}},
        "required": ["n"],
        "additionalProperties": false,
    })
}

/// A tool of this name would be mistaken for the result tool, and its calls would not be shown.
#[tokio::test]
async fn the_name_of_the_result_is_reserved() {
    let spec = ToolSpec::new(RETURN_RESULT, "is no result");
    let its_own = from_function(spec.clone(), |_: Value, _| async { Ok(ToolResult::new(1)) });
    let asked = RunRequest { client_tools: vec![spec], ..RunRequest::text("go") };
    for (def, request) in [(agent([], [its_own]), RunRequest::text("go")), (agent([], []), asked)] {
        let runtime = runtime();
        runtime.register(def);
        let refused = runtime.local().start(StartRun::new("agent", request)).await;
        assert!(matches!(refused, Err(StartError::ReservedTool)), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalid_result_goes_back_to_be_repaired() {
    let script = [
        Say::new().call(RETURN_RESULT, json!({"n": 0})),
        Say::new().call(RETURN_RESULT, json!({"n": 1, "extra": true})),
        Say::new().call(RETURN_RESULT, json!({"n": 1})).call("echo", json!({"say": "still run"})),
    ];
    insta::assert_snapshot!(played(agent(script, [echo()]), number()).await, @r#"
    run started by agent {"text":"go"}
    turn 1.1 started with scripted
    part 0 started call return_result
    part 0 delta "{\"n\":0}"
    part 0 finished
    turn finished tool_calls
    tool 0 finished error "the result does not fit its schema: /n: value is less than the minimum of 1; call it again, corrected"
    turn 2.1 started with scripted
    part 1 started call return_result
    part 1 delta "{\"n\":1,\"extr"
    part 1 delta "a\":true}"
    part 1 finished
    turn finished tool_calls
    tool 1 finished error "the result does not fit its schema: top level: Additional properties are not allowed ('extra' was unexpected); call it again, corrected"
    turn 3.1 started with scripted
    part 2 started call return_result
    part 2 delta "{\"n\":1}"
    part 2 finished
    part 3 started call echo
    part 3 delta "{\"say\":\"stil"
    part 3 delta "l run\"}"
    part 3 finished
    turn finished tool_calls
    result {"n":1}
    tool 2 finished ok "the result was taken"
    tool 3 queued at 0
    tool 3 started parallel
    tool 3 finished ok "still run"
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn repair_has_an_end() {
    let model = Scripted::with(|_| Say::new().call(RETURN_RESULT, json!({"n": 0})));
    let def = with_model(std::sync::Arc::new(model), []);
    let limits = Limits { repairs: 2, ..Limits::default() };
    let lines = played(AgentDef { limits, ..def }, number()).await;
    insta::assert_snapshot!(lines.lines().last().unwrap(), @"run finished failed protocol: the agent gave no valid result in 3 tries");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_forgets_the_result_is_reminded() {
    let model = Scripted::conversation([
        Say::new().chunks(["It is one."]),
        Say::new().call(RETURN_RESULT, json!({"n": 1})),
    ]);
    let def = with_model(std::sync::Arc::new(model), []);
    insta::assert_snapshot!(played(def, number()).await, @r#"
    run started by agent {"text":"go"}
    turn 1.1 started with scripted
    part 0 started text
    part 0 delta "It is one."
    part 0 finished
    turn finished end_turn
    input 1 accepted [{"text":"Now call return_result with the final result."}]
    input 1 applied
    turn 2.1 started with scripted
    part 1 started call return_result
    part 1 delta "{\"n\":1}"
    part 1 finished
    turn finished tool_calls
    result {"n":1}
    tool 1 finished ok "the result was taken"
    run finished completed end_turn
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_result_need_not_be_an_object() {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "array",
        "items": {"$ref": "#/$defs/Word"},
        "$defs": {"Word": {"type": "string"}},
    });
    let script = [
        Say::new().call(RETURN_RESULT, json!({"value": [1]})),
        Say::new().call(RETURN_RESULT, json!({"value": ["a", "b"]})),
    ];
    let lines = played(agent(script, []), schema).await;
    let result = lines.lines().find(|line| line.starts_with("result"));
    assert_eq!(result, Some(r#"result ["a","b"]"#), "{lines}");
}

#[tokio::test(start_paused = true)]
async fn a_result_that_is_not_an_object_may_contain_itself() {
    let schema = json!({
        "oneOf": [
            {"type": "integer"},
            {"type": "array", "items": {"$ref": "#"}},
            {"$ref": "#/$defs/Pair"},
        ],
        "$defs": {"Pair": {
            "type": "object",
            "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#/oneOf/0"}},
            "required": ["left", "right"],
        }},
    });
    let script = [
        Say::new().call(RETURN_RESULT, json!({"value": [1, ["a"]]})),
        Say::new().call(RETURN_RESULT, json!({"value": [1, [2, {"left": [3], "right": 4}]]})),
    ];
    let lines = played(agent(script, []), schema).await;
    let result = lines.lines().find(|line| line.starts_with("result"));
    assert_eq!(result, Some(r#"result [1,[2,{"left":[3],"right":4}]]"#), "{lines}");
}

/// A schema in the request overrides the agent's own.
#[tokio::test(start_paused = true)]
async fn an_agents_own_schema_is_the_requests_where_that_brings_none() {
    let result = |n: u32| Say::new().call(RETURN_RESULT, json!({"n": n}));
    let mut def = agent([result(7)], []);
    def.result_schema = Some(number());
    let runtime = runtime();
    runtime.register(def);
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    let transcript = runtime.local().wait(run).await.unwrap();
    assert_eq!(transcript.result, Some(json!({"n": 7})));
    assert_eq!(transcript.started.unwrap().request.result_schema, Some(number()));

    let words = json!({"type": "object", "required": ["words"]});
    let request = RunRequest { result_schema: Some(words), ..RunRequest::text("go") };
    let run = runtime.local().start(StartRun::new("agent", request)).await.unwrap().run;
    assert_eq!(runtime.local().wait(run).await.unwrap().result, None);
}

/// Input from the user does not count as a reminder, however much there is.
#[tokio::test(start_paused = true)]
async fn steering_is_not_counted_as_reminding() {
    let gate = Gate::new();
    let model = Scripted::conversation([
        Say::new().gate(&gate).chunks(["One."]),
        Say::new().chunks(["Two."]),
        Say::new().call(RETURN_RESULT, json!({"n": 2})),
    ]);
    let runtime = runtime();
    runtime.register(with_model(std::sync::Arc::new(model), []));
    let request = RunRequest { result_schema: Some(number()), ..RunRequest::text("go") };
    let run = runtime.local().start(StartRun::new("agent", request)).await.unwrap().run;
    for key in 0..Limits::default().repairs + 1 {
        let more = vec![Content::text("and another thing")];
        runtime
            .local()
            .add_input(run, RequestKey::Named(key.to_string().into()), more)
            .await
            .unwrap();
    }
    gate.open();
    finished(&runtime, run).await;
    let transcript = runtime.local().wait(run).await.unwrap();
    assert_eq!(transcript.result, Some(json!({"n": 2})));
}
