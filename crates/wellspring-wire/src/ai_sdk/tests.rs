use proptest::prelude::*;
use serde_json::{Value, json};
use wellspring_core::{
    Answer, Choice, Command, FileProduced, Form, MediaSource, Outline, PartKind, PlanEntry,
    PlanStatus, Priority, QuestionId, RunsOn, Source, Stop, ToolCall, ToolOutcome, ToolResult,
    VoidReason,
};
use wellspring_testkit::arbitrary::{arb_records, arb_run};
use wellspring_testkit::{RUN, RunBuilder, samples};

use super::types::ChatRequest;
use super::{Asked, Branch, InputError};
use crate::DialectName;
use crate::test_helpers::{encode, outlined, render_samples};

#[test]
fn samples() {
    insta::assert_snapshot!(render_samples(DialectName::AiSdk));
}

fn parts(records: &[wellspring_core::Record]) -> Vec<Value> {
    let chunks = encode(DialectName::AiSdk, records);
    chunks.iter().map(|(_, json)| serde_json::from_str(json).unwrap()).collect()
}

/// The message that a client builds from these parts, by the rules of its
/// `processUIMessageStream`. The peer tests compare this model with the real one.
fn message(chunks: &[Value]) -> Vec<String> {
    let mut parts: Vec<(String, String)> = Vec::new();
    for chunk in chunks {
        let kind = chunk["type"].as_str().unwrap();
        let id = ["id", "toolCallId", "sourceId"].iter().find_map(|name| chunk[name].as_str());
        let key = |prefix: &str| format!("{prefix} {}", id.unwrap_or_default());
        let find = |parts: &mut Vec<(String, String)>, key: &str| {
            parts.iter().rposition(|(known, _)| known == key)
        };
        match kind {
            "start-step" => parts.push(("step".into(), String::new())),
            "reset-step" => {
                let from = parts.iter().rposition(|(key, _)| key == "step").map_or(0, |at| at + 1);
                parts.truncate(from);
            }
            "text-start" | "reasoning-start" | "tool-input-start" => {
                parts.push((key("part"), kind.to_owned()));
            }
            "text-delta" | "reasoning-delta" => {
                let at = find(&mut parts, &key("part")).expect("it was started");
                parts[at].1 += chunk["delta"].as_str().unwrap();
            }
            "tool-output-available"
            | "tool-output-error"
            | "tool-output-denied"
            | "tool-input-available"
            | "tool-input-error"
            | "tool-approval-request" => {
                let at = find(&mut parts, &key("part")).expect("the call is there");
                parts[at].1 = kind.to_owned();
            }
            "source-url" | "source-document" | "file" | "steering-message" => {
                parts.push((kind.to_owned(), chunk.to_string()));
            }
            _ if kind.starts_with("data-") && chunk["transient"] != true => {
                match find(&mut parts, &key(kind)) {
                    Some(at) => parts[at].1 = chunk["data"].to_string(),
                    None => parts.push((key(kind), chunk["data"].to_string())),
                }
            }
            _ => {}
        }
    }
    let shown = |(key, value): (String, String)| format!("{key}: {value}");
    parts.into_iter().map(shown).map(|it| it.replace(&RUN.to_string(), "run")).collect()
}

/// A turn that is attempted again, with a plan, a source and a file in between, and a call of
/// the previous turn whose part is in an earlier step.
#[test]
fn a_retried_turn_leaves_the_final_parts() {
    let mut run = RunBuilder::new("demo", "go");
    run.turn();
    let call = run.call("clock", &["{}"]);
    run.stop(Stop::ToolCalls).start(call);
    run.ok(call, json!("noon"));
    run.turn();
    let thought = run.open(PartKind::Thought);
    run.delta(thought, "Hm.").close(thought);
    let text = run.open(PartKind::TEXT);
    run.delta(text, "It is ele");
    let entry = |status| PlanEntry { content: "look".into(), status, priority: Priority::Medium };
    run.push(wellspring_core::Event::PlanUpdated { entries: vec![entry(PlanStatus::Pending)] });
    let source = Source { url: Some("https://a.example".into()), ..Source::default() };
    let cited = wellspring_core::Event::SourceCited(Box::new(source));
    run.push(cited.clone());
    run.push(wellspring_core::Event::FileProduced(Box::new(FileProduced {
        media_type: "text/plain".into(),
        source: MediaSource::Data("eA==".into()),
        name: None,
    })));
    let parts_voided = vec![thought, text];
    let why = VoidReason::Restarted;
    run.push(wellspring_core::Event::PartsVoided { parts: parts_voided, why });
    run.turn();
    run.push(cited);
    run.text(&["It is ", "noon."]);
    run.push(wellspring_core::Event::PlanUpdated { entries: vec![entry(PlanStatus::Completed)] });
    run.stop(Stop::EndTurn);
    insta::assert_snapshot!(message(&parts(&run.complete())).join("\n"));
}

fn request(value: Value) -> ChatRequest {
    serde_json::from_value(value).unwrap()
}

fn user(id: &str, text: &str) -> Value {
    json!({"id": id, "role": "user", "parts": [{"type": "text", "text": text}]})
}

#[test]
fn only_what_the_user_says_now_counts() {
    let answer = json!({"id": RUN.to_string(), "role": "assistant", "parts": [
        {"type": "text", "text": "forged"},
    ]});
    let messages = json!([user("1", "first"), answer, user("2", "second")]);
    let read = |extra: Value| {
        let mut value = json!({"id": "chat", "messages": messages, "trigger": "submit-message"});
        value.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        match Asked::read(&request(value)).unwrap() {
            Asked::Start { request, branch } => {
                let names = request.wire.unwrap();
                let said = request.input.iter().filter_map(|it| it.as_text()).collect::<String>();
                (said, names.thread.unwrap(), names.input.unwrap(), branch)
            }
            Asked::Answer => panic!("it is a start"),
        }
    };
    let start = |branch| ("second".to_owned(), "chat".into(), "2".into(), branch);
    assert_eq!(read(json!({})), start(None));
    assert_eq!(read(json!({"messageId": "2"})), start(Some(Branch::After(RUN))));
    let again = json!({"trigger": "regenerate-message", "messageId": "x"});
    assert_eq!(read(again), start(Some(Branch::After(RUN))));
    let first = json!({"messages": [user("2", "second")], "trigger": "regenerate-message"});
    assert_eq!(read(first), start(Some(Branch::Start)));
}

#[test]
fn files_and_page_tools_are_read() {
    let asked = Asked::read(&request(json!({
        "id": "c",
        "messages": [{"id": "1", "role": "user", "parts": [
            {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA", "filename": "a.png"},
            {"type": "file", "mediaType": "image/png", "url": "https://a.example/b.png"},
            {"type": "data-own", "data": 1},
        ]}],
        "tools": [{"name": "page", "description": "d", "inputSchema": {"type": "object"}}],
        "model": "other",
    })))
    .unwrap();
    let Asked::Start { request, .. } = asked else { panic!("it is a start") };
    insta::assert_debug_snapshot!((request.input, request.model, request.client_tools[0].runs_on));
}

#[test]
fn requests_without_anything_new_are_refused() {
    let read = |messages: Value| Asked::read(&request(json!({"id": "c", "messages": messages})));
    assert_eq!(read(json!([])), Err(InputError::NoInput));
    assert_eq!(read(json!([{"id": "1", "role": "system", "parts": []}])), Err(InputError::NoInput));
    assert_eq!(read(json!([{"id": "1", "role": "user", "parts": []}])), Err(InputError::NoInput));
    let no_text = json!([{"id": "1", "role": "user", "parts": [{"type": "text"}]}]);
    assert!(matches!(read(no_text), Err(InputError::Part { .. })));
    let bad_file = json!([{"id": "1", "role": "user", "parts": [
        {"type": "file", "mediaType": "a/b", "url": "data:text/plain,x"},
    ]}]);
    assert_eq!(read(bad_file), Err(InputError::File { id: "1".into() }));
    assert_eq!(read(json!([{"id": "1", "role": "assistant"}])), Ok(Asked::Answer));
}

/// A run with a call in the page, one of the server and a call to be approved, waiting.
fn waiting() -> (Outline, [String; 3]) {
    let mut run = RunBuilder::new("demo", "go");
    run.turn();
    let page = ToolCall { name: "page".into(), runs_on: RunsOn::Client, ..ToolCall::default() };
    let page = run.call_of(page, &["{}"]);
    let here = run.call("here", &["{}"]);
    run.stop(Stop::ToolCalls);
    let question = run.ask(Some(here), "May it?", Form::Approve);
    let mut outline = Outline::default();
    run.records().iter().for_each(|record| outline.apply(record));
    let ids =
        [format!("{RUN}-{page}"), format!("{RUN}-{here}"), format!("{RUN}-question-{question}")];
    (outline, ids)
}

#[test]
fn answers_count_for_what_is_waited_for() {
    let (outline, [page, here, question]) = waiting();
    let answers = |parts: Value| {
        let last = json!({"id": RUN.to_string(), "role": "assistant", "parts": parts});
        let request = request(json!({"id": "c", "messages": [user("1", "go"), last]}));
        Asked::answers(&request, &outline).unwrap()
    };
    let output = |id: &str| json!({"type": "tool-page", "toolCallId": id, "state": "output-available", "input": {}, "output": 7});
    let approval = |id: &str, approved: bool| {
        json!({"type": "tool-here", "toolCallId": here, "state": "approval-responded", "input": {},
               "approval": {"id": id, "approved": approved, "reason": "because"}})
    };
    assert_eq!(
        answers(json!([{"type": "step-start"}, output(&page), approval(&question, false)])),
        [
            Command::FinishCall {
                call: page.parse::<wellspring_core::WirePartId>().unwrap().part,
                outcome: ToolOutcome::Ok,
                result: ToolResult::new(7),
                wire_run: None,
            },
            Command::Answer {
                question: *outline.questions.keys().next().unwrap(),
                answer: Answer::no("because"),
                by: None,
                wire_run: None,
            },
        ]
    );
    // A call of the server's, a call of another run, and an invalid part.
    for part in [
        output(&here),
        output("01920000-0000-7000-8000-0000000000ff-0"),
        output("x"),
        approval("x", true),
        approval("01920000-0000-7000-8000-0000000000ff-question-0", true),
        json!({"state": "output-available"}),
        json!(7),
    ] {
        assert_eq!(answers(json!([part])), []);
    }
}

/// Answers that the protocol cannot carry come in the body: either all are applied, or none.
#[test]
fn questions_are_answered_in_the_body() {
    let mut run = RunBuilder::new("demo", "go");
    run.turn();
    let choice = |id: &str| Choice { id: id.into(), label: id.to_uppercase().into() };
    let choose = Form::Choose { choices: vec![choice("a"), choice("b")], multiple: false };
    let first = run.ask(None, "Which?", choose);
    let second = run.ask(None, "How many?", Form::Schema(json!({"type": "integer"})));
    let mut outline = Outline::default();
    run.records().iter().for_each(|record| outline.apply(record));
    let id = |question: QuestionId| format!("{RUN}-question-{question}");
    let answers = |answers: Value| {
        let last = json!({"id": RUN.to_string(), "role": "assistant", "parts": []});
        let body = json!({"id": "c", "messages": [user("1", "go"), last], "answers": answers});
        Asked::answers(&request(body), &outline).map_err(|error| error.to_string())
    };
    let command = |question, answer| Command::Answer { question, answer, by: None, wire_run: None };
    let chosen = json!({"id": id(first), "answer": {"choose": ["b"]}});
    let value = json!({"id": id(second), "answer": {"value": 7}});
    assert_eq!(
        answers(json!([chosen, value, chosen])),
        Ok(vec![
            command(first, Answer::Choose(vec!["b".into()])),
            command(second, Answer::Value(json!(7))),
        ])
    );
    let closed = format!("{RUN}-question-9");
    let refused =
        [json!({"id": closed, "answer": {"value": 7}}), json!({"id": id(second), "answer": 7})];
    let said = refused
        .map(|wrong| answers(json!([chosen, wrong])).unwrap_err().replace(&RUN.to_string(), "run"));
    insta::assert_snapshot!(said.join("\n"), @r#"
    no question "run-question-9" is open
    the answer to "run-question-1" is invalid: invalid type: integer `7`, expected string or map; expected {"choose": [id, …]}, {"value": …}, {"approve": {}} or {"deny": {}}
    "#);
}

/// The rules of the protocol's schema: no `null` in an optional field, and no id that was not
/// started.
fn check(chunks: &[Value]) -> Result<(), TestCaseError> {
    for chunk in chunks {
        let object = chunk.as_object().unwrap();
        for (name, value) in object {
            let free = ["output", "input", "data", "messageMetadata"].contains(&name.as_str());
            prop_assert!(free || !value.is_null(), "{chunk}");
        }
    }
    // Panics where a client would throw.
    message(chunks);
    Ok(())
}

proptest! {
    #[test]
    fn clients_take_every_run(run in arb_run()) {
        check(&parts(&run))?;
    }

    /// Any records are encoded without a panic.
    #[test]
    fn nonsense_is_told_quietly(records in arb_records()) {
        for chunk in outlined(DialectName::AiSdk, &records) {
            prop_assert!(chunk["type"].is_string());
        }
    }
}

#[test]
fn every_sample_is_one_message() {
    for sample in samples::all() {
        let chunks = parts(&sample.records);
        assert_eq!(chunks[0]["type"], "start", "{}", sample.name);
        let last = chunks.last().unwrap()["type"].as_str().unwrap();
        assert!(["finish", "abort", "error"].contains(&last), "{}: {last}", sample.name);
        check(&chunks).unwrap();
    }
}
