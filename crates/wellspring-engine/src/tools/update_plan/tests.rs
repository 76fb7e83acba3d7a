use serde_json::{Value, json};
use wellspring_core::{Event, Tool as _, ToolResult};

use super::*;
use crate::schema::Schema;
use crate::tools::test_host::{Heard, RecordingHost};

#[tokio::test]
async fn the_plan_is_shown_as_it_is_now() {
    let arguments = json!({"entries": [
        {"content": "Look", "status": "completed", "priority": "high"},
        {"content": "Think", "status": "in_progress", "priority": "low"},
        {"content": "Act"},
    ]});
    let (heard, result) = RecordingHost::new().call(&update_plan(), arguments).await;
    let entry =
        |content: &str, status, priority| PlanEntry { content: content.into(), status, priority };
    let entries = vec![
        entry("Look", PlanStatus::Completed, Priority::High),
        entry("Think", PlanStatus::InProgress, Priority::Low),
        entry("Act", PlanStatus::Pending, Priority::Medium),
    ];
    assert_eq!(heard, [Heard::Stated(Event::PlanUpdated { entries })]);
    assert_eq!(result, Ok(ToolResult::new("the plan is shown: 1 of 3 done")));
}

#[tokio::test]
async fn a_plan_has_a_maximum() {
    let arguments = |count| json!({"entries": vec![json!({"content": "Act"}); count]});
    let (heard, result) = RecordingHost::new().call(&update_plan(), arguments(101)).await;
    let want = "the plan has 101 entries; at most 100 are shown".to_owned();
    assert_eq!((heard, result), (vec![], Err(want)));
    let (_, result) = RecordingHost::new().call(&update_plan(), arguments(100)).await;
    assert_eq!(result, Ok(ToolResult::new("the plan is shown: 0 of 100 done")));
}

#[test]
fn the_schema_says_what_fits() {
    let schema = Schema::compile(&update_plan().spec().parameters).unwrap();
    let valid = |arguments: Value| schema.validate(&arguments).is_ok();
    assert!(valid(json!({"entries": [{"content": "Act", "status": "in_progress"}]})));
    assert!(!valid(json!({"entries": [{"content": "Act", "status": "doing"}]})));
    assert!(!valid(json!({"entries": [{"status": "completed"}]})));
    assert!(!valid(json!({"entries": vec![json!({"content": "Act"}); 101]})));
}
