use proptest::prelude::*;
use serde_json::json;
use wellspring_core::{AgentNo, Item, Stop, Transcript};
use wellspring_testkit::RunBuilder;
use wellspring_testkit::arbitrary::{arb_records, arb_run};

use super::{TurnEvent, TurnEvents};
use crate::DialectName;
use crate::test_helpers::{encode, render_samples, typed, written};

#[test]
fn samples() {
    insta::assert_snapshot!(render_samples(DialectName::TurnEvent));
}

/// The documented shapes survive reading into our types and writing again.
#[test]
fn documented_shapes() {
    for json in [
        r#"{"type":"text_delta","text":"a"}"#,
        r#"{"type":"text_done","text":"a"}"#,
        r#"{"type":"tool_call","toolCallId":"1","toolName":"a","args":{"b":1}}"#,
        r#"{"type":"tool_result","toolCallId":"1","toolName":"a","output":[1],"isError":false}"#,
        r#"{"type":"finished","finishReason":"stop"}"#,
        r#"{"type":"finished","finishReason":"stop","usage":{"input":1,"output":2}}"#,
        r#"{"type":"error","error":{"message":"no"}}"#,
    ] {
        let event: TurnEvent = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&event).unwrap(), json);
    }
}

fn texts_done(events: &[TurnEvent]) -> Vec<String> {
    let text = |event: &TurnEvent| match event {
        TurnEvent::TextDone { text } => Some(text.clone()),
        TurnEvent::TextDelta { .. }
        | TurnEvent::ToolCall { .. }
        | TurnEvent::ToolResult { .. }
        | TurnEvent::Finished { .. }
        | TurnEvent::Error { .. } => None,
    };
    events.iter().filter_map(text).filter(|text| !text.is_empty()).collect()
}

proptest! {
    #[test]
    fn typed_and_json_agree(run in arb_run(), nonsense in arb_records()) {
        for records in [run, nonsense] {
            let turns = TurnEvents::default();
            prop_assert_eq!(
                written(DialectName::TurnEvent, &records),
                typed(&records, |before, record| turns.events(before, record))
            );
        }
    }

    /// `text_done` has the transcript's text, also after voids; each result follows its call,
    /// and each call has one result.
    #[test]
    fn texts_are_the_transcripts(run in arb_run()) {
        let events: Vec<TurnEvent> = encode(DialectName::TurnEvent, &run)
            .iter()
            .map(|(_, json)| serde_json::from_str(json).unwrap())
            .collect();
        let transcript = Transcript::fold(&run);
        let root = &transcript.agents[&AgentNo::ROOT];
        let said: Vec<String> = root.items.iter().filter_map(|item| match item {
            Item::Turn(turn) if turn.stop.is_some() => {
                let texts = turn.parts.iter().map(|part| &*transcript.parts[part]);
                let words = |part: &&wellspring_core::Part| {
                    part.kind == wellspring_core::PartKind::TEXT
                };
                Some(texts.filter(words).map(|part| &*part.text).collect())
            }
            Item::Turn(_) | Item::Part(_) | Item::Input(_) => None,
        }).filter(|text: &String| !text.is_empty()).collect();
        // A run without turns has its text at the end.
        if root.items.iter().any(|item| matches!(item, Item::Turn(_))) {
            prop_assert_eq!(texts_done(&events), said);
        }
        let mut open = std::collections::BTreeSet::new();
        for event in events {
            match event {
                TurnEvent::ToolCall { tool_call_id, .. } => {
                    prop_assert!(open.insert(tool_call_id));
                }
                TurnEvent::ToolResult { tool_call_id, .. } => {
                    prop_assert!(open.remove(&tool_call_id), "{tool_call_id}");
                }
                TurnEvent::TextDelta { .. }
                | TurnEvent::TextDone { .. }
                | TurnEvent::Finished { .. }
                | TurnEvent::Error { .. } => {}
            }
        }
        prop_assert!(open.is_empty(), "{:?}", open);
    }
}

/// A tool that finishes before the model's turn does not change the order: first the text, then
/// the calls and the end of the turn, and then the results.
#[test]
fn early_results_come_after_the_text() {
    let mut run = RunBuilder::new("demo", "Go.");
    run.turn();
    run.text(&["Let me look."]);
    let early = run.call("look", &[r#"{"at":1}"#]);
    run.start(early).ok(early, "seen");
    let late = run.call("wait", &["{}"]);
    run.stop(Stop::ToolCalls).start(late).ok(late, "waited");
    run.turn().text(&["Done."]);
    run.stop(Stop::EndTurn);
    let kinds: Vec<_> = written(DialectName::TurnEvent, &run.complete())
        .into_iter()
        .map(|event| match event["toolName"].as_str() {
            Some(name) => format!("{} {name}", event["type"].as_str().unwrap()),
            None => event["type"].as_str().unwrap().to_owned(),
        })
        .collect();
    let want = json!([
        "text_delta",
        "text_done",
        "tool_call look",
        "tool_call wait",
        "finished",
        "tool_result look",
        "tool_result wait",
        "text_delta",
        "text_done",
        "finished",
    ]);
    assert_eq!(json!(kinds), want);
}
