use proptest::prelude::*;
use serde_json::json;
use wellspring_core::{CancellationToken, Context};
use wellspring_testkit::arbitrary::{arb_records, arb_run};

use super::{AgentEvent, ExecutionContext as _, ToolEvent, events};
use crate::DialectName;
use crate::testing::{encode, render_samples, typed, written};

#[test]
fn samples() {
    insta::assert_snapshot!(render_samples(DialectName::AgentEvent));
}

/// The documented shapes, read into our types and written again, are the same JSON.
#[test]
fn documented_shapes() {
    for json in [
        r#"{"type":"thought","content":"Hm."}"#,
        r#"{"type":"tool_call","toolName":"run_shell_command","toolArgs":"{\"command\":\"ls -l src\"}"}"#,
        r#"{"type":"tool_progress","toolName":"llm_call","data":"Hello, how can I"}"#,
        r#"{"type":"tool_progress","toolName":"FileTransfer","data":{"percent":65,"subtype":"transfer_progress"}}"#,
        r#"{"type":"tool_result","toolName":"x","output":"done"}"#,
        r#"{"type":"tool_result","toolName":"x","output":"no","isError":true}"#,
        r#"{"type":"stream","content":"Hi"}"#,
        r#"{"type":"final"}"#,
        r#"{"type":"error","error":"no"}"#,
    ] {
        let event: AgentEvent = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&event).unwrap(), json);
    }
}

#[test]
fn adapting_replaces_the_type() {
    let context = Context::create("trace-1", CancellationToken::new());
    assert_eq!(context.trace_id(), "trace-1");
    for (event, own, adapted) in [
        (
            ToolEvent::Progress { tool_name: "a".into(), data: json!({"percent": 1}) },
            json!({"type": "progress", "toolName": "a", "data": {"percent": 1}}),
            json!({"type": "tool_progress", "toolName": "a", "data": {"percent": 1}}),
        ),
        (
            ToolEvent::Result { tool_name: "a".into(), output: "b".into(), is_error: true },
            json!({"type": "result", "toolName": "a", "output": "b", "isError": true}),
            json!({"type": "tool_result", "toolName": "a", "output": "b", "isError": true}),
        ),
    ] {
        let event = context.tool_event(event);
        assert_eq!(serde_json::to_value(&event).unwrap(), own);
        let event = context.agent_event(context.adapt_tool_event(event));
        assert_eq!(serde_json::to_value(&event).unwrap(), adapted);
    }
}

fn is_terminal(event: &AgentEvent) -> bool {
    matches!(event, AgentEvent::Final | AgentEvent::Error { .. })
}

proptest! {
    #[test]
    fn typed_and_json_agree(run in arb_run(), nonsense in arb_records()) {
        for records in [run, nonsense] {
            prop_assert_eq!(
                written(DialectName::AgentEvent, &records),
                typed(&records, |before, record| events(before.outline(), record))
            );
        }
    }

    /// One terminal, and it is last; as many results as calls.
    #[test]
    fn one_terminal_and_every_call_answered(run in arb_run()) {
        let events: Vec<AgentEvent> = encode(DialectName::AgentEvent, &run)
            .iter()
            .map(|(_, json)| serde_json::from_str(json).unwrap())
            .collect();
        let terminals = events.iter().filter(|event| is_terminal(event)).count();
        prop_assert_eq!((terminals, events.last().is_some_and(is_terminal)), (1, true));
        let calls = events.iter().filter(|event| matches!(event, AgentEvent::ToolCall { .. }));
        let results = events.iter().filter(|event| matches!(event, AgentEvent::ToolResult { .. }));
        prop_assert_eq!(calls.count(), results.count());
    }
}
