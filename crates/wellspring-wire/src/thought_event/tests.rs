use std::collections::BTreeMap;

use proptest::prelude::*;
use wellspring_testkit::arbitrary::{arb_records, arb_run};

use super::{ThoughtEvent, events};
use crate::DialectName;
use crate::testing::{encode, render_samples, typed, written};

#[test]
fn samples() {
    insta::assert_snapshot!(render_samples(DialectName::ThoughtEvent));
}

/// The documented shapes, read into our types and written again, are the same JSON.
#[test]
fn documented_shapes() {
    for json in [
        r#"{"type":"thought","text":"Hm."}"#,
        r#"{"type":"message","text":"Hello."}"#,
        r#"{"type":"tool_start","id":"1","title":"Read"}"#,
        r#"{"type":"tool_start","id":"1","title":"Read","kind":"switch_mode"}"#,
        r#"{"type":"tool_update","id":"1","status":"in_progress"}"#,
        r#"{"type":"tool_update","id":"1","status":"in_progress","content":[{"type":"diff","path":"a","oldText":"b","newText":"c"},{"type":"terminal","terminalId":"t"}]}"#,
        r#"{"type":"tool_update","id":"1","status":"completed","content":[{"type":"content","content":{"type":"image","data":"AA==","mimeType":"image/png"}},{"type":"content","content":{"type":"resource_link","uri":"file:///a"}}]}"#,
        r#"{"type":"tool_done","id":"1","status":"completed"}"#,
        r#"{"type":"tool_done","id":"1","status":"failed"}"#,
        r#"{"type":"plan","entries":[{"content":"a","status":"in_progress","priority":"high"}]}"#,
    ] {
        let event: ThoughtEvent = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&event).unwrap(), json);
    }
}

/// Whether a tool may still be heard of.
#[derive(Debug, Eq, PartialEq)]
enum Tool {
    Running,
    Done,
}

proptest! {
    #[test]
    fn typed_and_json_agree(run in arb_run(), nonsense in arb_records()) {
        for records in [run, nonsense] {
            prop_assert_eq!(
                written(DialectName::ThoughtEvent, &records),
                typed(&records, |before, record| events(before.outline(), record))
            );
        }
    }

    /// Each tool starts once and is done once, and is heard of only in between.
    #[test]
    fn tools_are_bracketed(run in arb_run()) {
        let mut tools = BTreeMap::new();
        for (_, json) in encode(DialectName::ThoughtEvent, &run) {
            match serde_json::from_str(&json).unwrap() {
                ThoughtEvent::ToolStart { id, .. } => {
                    prop_assert_eq!(tools.insert(id, Tool::Running), None);
                }
                ThoughtEvent::ToolUpdate { id, .. } => {
                    prop_assert_eq!(tools.get(&id), Some(&Tool::Running));
                }
                ThoughtEvent::ToolDone { id, .. } => {
                    prop_assert_eq!(tools.insert(id, Tool::Done), Some(Tool::Running));
                }
                ThoughtEvent::Thought { .. }
                | ThoughtEvent::Message { .. }
                | ThoughtEvent::Plan { .. } => {}
            }
        }
        prop_assert!(tools.values().all(|tool| *tool == Tool::Done), "{:?}", tools);
    }
}
