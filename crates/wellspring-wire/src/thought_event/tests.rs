use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;
use wellspring_core::{
    Answer, Batch, Form, Outcome, Outline, PartId, QuestionId, Record, Stop, WirePartId,
};
use wellspring_testkit::arbitrary::{arb_records, arb_run};
use wellspring_testkit::{RUN, RunBuilder};

use super::{
    ContentBlock, DoneStatus, PlanEntry, PlanStatus, Priority, ThoughtEvent, ToolContent, ToolKind,
    ToolStatus, events,
};
use crate::DialectName;
use crate::test_helpers::{encode, render_samples, typed, written};

#[test]
fn samples() {
    insta::assert_snapshot!(render_samples(DialectName::ThoughtEvent));
}

/// The documented shapes survive reading into our types and writing again.
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
        r#"{"type":"tool_update","id":"1","status":"halfway"}"#,
        r#"{"type":"tool_done","id":"1","status":"completed"}"#,
        r#"{"type":"tool_done","id":"1","status":"failed"}"#,
        r#"{"type":"tool_update","id":"1","status":"in_progress","content":[{"type":"content","content":{"type":"text","text":"a"}},{"type":"content","content":{"type":"resource_link","uri":"file:///a","name":"a"}}]}"#,
        r#"{"type":"plan","entries":[{"content":"a","status":"in_progress","priority":"high"},{"content":"b","status":"pending","priority":"medium"},{"content":"c","status":"completed","priority":"low"}]}"#,
    ] {
        let event: ThoughtEvent = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&event).unwrap(), json);
    }
    let kinds = [
        "read",
        "edit",
        "delete",
        "move",
        "search",
        "execute",
        "think",
        "fetch",
        "switch_mode",
        "other",
    ];
    for kind in kinds {
        let read: ToolKind = serde_json::from_value(json!(kind)).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), kind);
    }
}

/// What a status is called on a screen is what it is on the wire.
#[test]
fn statuses_are_displayed_as_on_the_wire() {
    for status in ["pending", "in_progress", "waiting", "completed", "failed", "halfway"] {
        let read: ToolStatus = serde_json::from_value(json!(status)).unwrap();
        assert_eq!(read.to_string(), status);
    }
    for done in [DoneStatus::Completed, DoneStatus::Failed] {
        assert_eq!(json!(done), done.to_string());
    }
}

/// Whether further events of a tool may follow.
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

    /// Each tool starts once and ends once, and is mentioned only in between.
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

fn said(records: &[Record]) -> Vec<ThoughtEvent> {
    let mut outline = Outline::default();
    let mut all = Vec::new();
    for record in records {
        all.extend(events(&outline, record));
        outline.apply(record);
    }
    all
}

fn id(part: PartId) -> String {
    WirePartId { run: RUN, part }.to_string()
}

fn update(id: &str, status: ToolStatus, texts: &[&str]) -> ThoughtEvent {
    let text = |text: &&str| ToolContent::Content {
        content: ContentBlock::Text { text: (*text).to_owned() },
    };
    let content: Vec<_> = texts.iter().map(text).collect();
    let content = Some(content).filter(|content| !content.is_empty());
    ThoughtEvent::ToolUpdate { id: id.into(), status, content }
}

/// Shell output is shown as text; any other object that a tool reports is shown as JSON.
#[test]
fn structured_progress_is_content() {
    let mut run = RunBuilder::new("demo", "Go.");
    run.turn();
    let call = run.call("work", &["{}"]);
    run.stop(Stop::ToolCalls).start(call);
    run.progress(call, json!({"subtype": "stdout_chunk", "content": "file1.txt\n"}));
    run.progress(call, json!({"subtype": "transfer_progress", "percent": 65}));
    run.progress(call, json!("Hello"));
    run.progress(call, json!([1, {"deep": null}]));
    run.ok(call, "done");
    let id = id(call);
    let updates: Vec<_> = said(&run.complete())
        .into_iter()
        .filter(|event| matches!(event, ThoughtEvent::ToolUpdate { .. }))
        .collect();
    let transfer = json!({"subtype": "transfer_progress", "percent": 65}).to_string();
    let want = [
        update(&id, ToolStatus::InProgress, &[]),
        update(&id, ToolStatus::InProgress, &["file1.txt\n"]),
        update(&id, ToolStatus::InProgress, &[&transfer]),
        update(&id, ToolStatus::InProgress, &["Hello"]),
        update(&id, ToolStatus::InProgress, &[r#"[1,{"deep":null}]"#]),
    ];
    assert_eq!(updates, want);
}

/// A waiting run shows the question and how to answer it.
#[test]
fn a_question_is_shown_as_waiting() {
    let mut run = RunBuilder::new("demo", "Go.");
    run.turn();
    let call = run.call("wipe", &["{}"]);
    run.stop(Stop::ToolCalls);
    let approve = run.ask(Some(call), "Allow wipe {}?", Form::Approve);
    run.answer(approve, Answer::yes()).start(call);
    let asks = run.ask_blocking(Some(call), "Which disk?", Form::Approve);
    run.answer(asks, Answer::yes()).ok(call, "done");
    let own = run.ask_blocking(None, "Go on?", Form::Approve);
    run.answer(own, Answer::NO);
    let waiting: Vec<_> = said(&run.complete())
        .into_iter()
        .filter_map(|event| match event {
            ThoughtEvent::ToolUpdate { id, status: ToolStatus::Waiting, content } => {
                Some((id, texts(&content?)))
            }
            ThoughtEvent::ToolUpdate { .. }
            | ThoughtEvent::Thought { .. }
            | ThoughtEvent::Message { .. }
            | ThoughtEvent::ToolStart { .. }
            | ThoughtEvent::ToolDone { .. }
            | ThoughtEvent::Plan { .. } => None,
        })
        .collect();
    let asked = |number: QuestionId, prompt: &str| {
        let number = number.0;
        let data = format!(
            r#"{{"subtype":"question","question":{number},"prompt":"{prompt}","form":"approve"}}"#
        );
        vec![prompt.to_owned(), data]
    };
    let want = [
        (id(call), asked(approve, "Allow wipe {}?")),
        (id(call), asked(asks, "Which disk?")),
        (format!("{RUN}-question-{own}"), asked(own, "Go on?")),
    ];
    assert_eq!(waiting, want);
}

fn texts(content: &[ToolContent]) -> Vec<String> {
    let text = |content: &ToolContent| match content {
        ToolContent::Content { content: ContentBlock::Text { text } } => Some(text.clone()),
        ToolContent::Content { .. } | ToolContent::Diff { .. } | ToolContent::Terminal { .. } => {
            None
        }
    };
    content.iter().filter_map(text).collect()
}

/// The question of a sub-agent belongs to the call that it serves. A question of the run itself
/// starts and ends like a tool.
#[test]
fn questions_of_sub_agents_and_of_the_run() {
    let mut run = RunBuilder::new("demo", "Go.");
    run.turn();
    let call = run.call("call-agent", &["{}"]);
    run.stop(Stop::ToolCalls).start(call);
    run.sub_agent("poet", Some(call));
    run.turn();
    let inner = run.call("wipe", &["{}"]);
    run.stop(Stop::ToolCalls);
    let asked = run.ask(Some(inner), "Allow wipe?", Form::Approve);
    run.answer(asked, Answer::yes()).ok(inner, "done");
    run.sub_agent_done(Outcome::Completed { stop: Stop::EndTurn }).ok(call, "done");
    let own = run.ask_blocking(None, "Go on?", Form::Approve);
    run.answer(own, Answer::NO);
    let events = said(&run.complete());
    let kinds: Vec<_> = events
        .iter()
        .map(|event| match event {
            ThoughtEvent::ToolStart { title, .. } => format!("start {title}"),
            ThoughtEvent::ToolUpdate { status, .. } => format!("{status:?}"),
            ThoughtEvent::ToolDone { status, .. } => format!("done {status:?}"),
            ThoughtEvent::Thought { .. }
            | ThoughtEvent::Message { .. }
            | ThoughtEvent::Plan { .. } => "other".to_owned(),
        })
        .collect();
    let want = [
        "start call-agent",
        "InProgress",
        "Waiting",
        "InProgress",
        "done Completed",
        "start Go on?",
        "Waiting",
        "done Failed",
    ];
    assert_eq!(kinds, want);
}

/// Reports of an ACP agent map as in the documented table: one event per update, under the
/// agent's own id.
#[test]
fn acp_updates_one_by_one() {
    let updates = [
        json!({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "Hm."}}),
        json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Hi."}}),
        json!({"sessionUpdate": "tool_call", "toolCallId": "toolu_1", "title": "Read a.txt", "kind": "read", "status": "in_progress"}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "toolu_1", "status": "in_progress"}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "toolu_1", "status": "in_progress"}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "toolu_1", "status": "in_progress",
            "content": [{"type": "diff", "path": "a", "oldText": "b", "newText": "c"}, {"type": "terminal", "terminalId": "t"}]}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "toolu_1", "status": "completed"}),
        json!({"sessionUpdate": "tool_call", "toolCallId": "toolu_2", "title": "Run", "kind": "execute"}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "toolu_2", "status": "failed",
            "content": [{"type": "content", "content": {"type": "text", "text": "no such file"}}]}),
        json!({"sessionUpdate": "plan", "entries": [{"content": "a", "status": "in_progress", "priority": "high"}]}),
        json!({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "Go."}}),
        json!({"sessionUpdate": "available_commands_update", "availableCommands": []}),
        json!({"sessionUpdate": "current_mode_update", "currentModeId": "code"}),
        json!({"sessionUpdate": "config_option_update", "configOptions": []}),
        json!({"sessionUpdate": "session_info_update", "title": "A title"}),
    ];
    let mut reader = crate::acp::Reader::default();
    let mut run = RunBuilder::new("acp", "Go.");
    let mut told = Vec::new();
    for update in updates {
        let mut batch = Batch::default();
        reader.update(update, &mut batch);
        let mut events = Vec::new();
        for (_, event) in batch.into_events() {
            let before = run.outline().clone();
            run.push(event);
            let records = run.clone().records();
            let record = records.last().unwrap();
            events.extend(super::events(&before, record));
        }
        told.push(events);
    }
    let (id, start) = ("toolu_1".to_owned(), "Read a.txt".to_owned());
    let failed = "toolu_2".to_owned();
    let shown = vec![
        ToolContent::Diff { path: "a".into(), old_text: "b".into(), new_text: "c".into() },
        ToolContent::Terminal { terminal_id: "t".into() },
    ];
    let entry =
        PlanEntry { content: "a".into(), status: PlanStatus::InProgress, priority: Priority::High };
    let want = [
        vec![ThoughtEvent::Thought { text: "Hm.".into() }],
        vec![ThoughtEvent::Message { text: "Hi.".into() }],
        vec![ThoughtEvent::ToolStart { id: id.clone(), title: start, kind: Some(ToolKind::Read) }],
        vec![update(&id, ToolStatus::InProgress, &[])],
        vec![update(&id, ToolStatus::InProgress, &[])],
        vec![ThoughtEvent::ToolUpdate {
            id: id.clone(),
            status: ToolStatus::InProgress,
            content: Some(shown),
        }],
        vec![ThoughtEvent::ToolDone { id, status: DoneStatus::Completed }],
        vec![ThoughtEvent::ToolStart {
            id: failed.clone(),
            title: "Run".into(),
            kind: Some(ToolKind::Execute),
        }],
        // What a call shows with its end comes before the end.
        vec![
            update(&failed, ToolStatus::Failed, &["no such file"]),
            ThoughtEvent::ToolDone { id: failed, status: DoneStatus::Failed },
        ],
        vec![ThoughtEvent::Plan { entries: vec![entry] }],
        vec![],
        vec![],
        vec![],
        vec![],
        vec![],
    ];
    assert_eq!(told, want);
}
