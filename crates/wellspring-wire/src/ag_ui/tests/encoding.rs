//! Both encodings of every kind of event, compared with the official encoder's output.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::proto;
use super::super::types::{Custom, Event};

#[test]
fn every_event_has_the_official_bytes() {
    let mut kinds = BTreeSet::new();
    for line in include_str!("../../../fixtures/ag_ui/events.jsonl").lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let event: Event = serde_json::from_value(line["event"].clone()).unwrap();
        // Every field is read and written again.
        assert_eq!(serde_json::to_value(&event).unwrap(), line["event"]);
        let mut bytes = Vec::new();
        proto::encode(&event, &mut bytes);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, line["hex"].as_str().unwrap(), "{}", line["event"]);
        kinds.insert(line["event"]["type"].to_string());
    }
    assert_eq!(kinds.len(), 31, "{kinds:?}");
}

/// Nesting is cut off at a limit.
#[test]
fn deep_values_are_cut() {
    let deep = |depth: usize| {
        let value = (0..depth).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        let mut bytes = Vec::new();
        proto::encode(&Custom { value, ..Custom::default() }.into(), &mut bytes);
        bytes.len()
    };
    assert!(deep(20) < deep(30));
    assert_eq!(deep(100), deep(500));
}
