use proptest::prelude::*;
use serde_json::{Value, json};
use wellspring_core::{
    AgentNo, Annotation, Answer, Choice, Content, Cost, Event, Extended, Form, Millis, Outcome,
    Outline, PartId, PartKind, Question, QuestionId, Record, Scope, Seq, Stop, ToolUpdate, Usage,
};
use wellspring_testkit::RUN;
use wellspring_testkit::arbitrary::arb_run;

use super::{
    Asked, Asking, Offers, PromptError, RUNNING_BYTES_MAX, SHOWN_BYTES_MAX, prompt, prompt_response,
};
use crate::DialectName;
use crate::test_helpers::{encode, render_samples, written};

#[test]
fn samples() {
    insta::assert_snapshot!(render_samples(DialectName::Acp));
}

fn question(form: Form) -> Question {
    let question = QuestionId(3);
    Question {
        question,
        call: None,
        prompt: "Which one?".into(),
        form,
        expires_at: None,
        blocking: false,
        key: None,
    }
}

fn asking(form: Form, has_forms: bool) -> Asking {
    match Asked::new(&question(form), &Outline::default(), "s", has_forms) {
        Asked::Request(asking) => asking,
        Asked::Unaskable(answer) => panic!("{answer:?}"),
    }
}

#[test]
fn an_approval_is_a_permission_request() {
    let mut outline = Outline::default();
    let run = wellspring_testkit::samples::tool_with_content();
    let asked = run.iter().position(|it| matches!(it.event, Event::ToolStarted { .. })).unwrap();
    run[..asked].iter().for_each(|record| outline.apply(record));
    let (call, _) = outline.calls.first_key_value().unwrap();
    let question = Question { call: Some(*call), ..question(Form::Approve) };
    let Asked::Request(asking) = Asked::new(&question, &outline, "s", true) else { panic!() };
    let shown = format!("{} {:#}", asking.method, asking.params).replace(&RUN.to_string(), "run");
    insta::assert_snapshot!(shown);
    for (option, want) in [
        ("allow_once", Answer::yes()),
        ("allow_session", Answer::Approve { scope: Scope::Thread, arguments: None }),
        ("allow_always", Answer::Approve { scope: Scope::Always, arguments: None }),
        ("reject_once", Answer::NO),
        ("anything", Answer::NO),
    ] {
        let reply = json!({"outcome": {"outcome": "selected", "optionId": option}});
        assert_eq!(asking.answer(&reply), want, "{option}");
    }
    for reply in [
        json!({"outcome": {"outcome": "cancelled"}}),
        json!({"outcome": {"outcome": "cancelled", "optionId": "allow_once"}}),
        json!({"optionId": "allow_once"}),
        json!(null),
    ] {
        assert_eq!(asking.answer(&reply), Answer::NO, "{reply}");
    }
}

fn choices(multiple: bool) -> Form {
    let choices = ["a", "b"].map(|id| Choice { id: id.into(), label: id.to_uppercase().into() });
    Form::Choose { choices: choices.into(), multiple }
}

#[test]
fn a_choice_is_a_form_or_a_selection() {
    let one = asking(choices(false), true);
    assert_eq!(
        one.params,
        json!({
            "sessionId": "s", "mode": "form", "message": "Which one?",
            "requestedSchema": {
                "type": "object",
                "properties": {"answer": {"type": "string", "oneOf": [
                    {"const": "a", "title": "A"}, {"const": "b", "title": "B"},
                ]}},
                "required": ["answer"],
            },
        })
    );
    let accept = |answer: Value| json!({"action": "accept", "content": {"answer": answer}});
    assert_eq!(one.answer(&accept(json!("b"))), Answer::Choose(vec!["b".into()]));
    let both = Answer::Choose(vec!["a".into(), "b".into()]);
    assert_eq!(asking(choices(true), true).answer(&accept(json!(["a", "b"]))), both);
    let no = Answer::NO;
    for reply in
        [json!({"action": "decline"}), json!({"action": "cancel"}), accept(json!(3)), json!(null)]
    {
        assert_eq!(one.answer(&reply), no, "{reply}");
    }

    let selection = asking(choices(true), false);
    assert_eq!(selection.method, "session/request_permission");
    assert_eq!(
        selection.params,
        json!({
            "sessionId": "s",
            "toolCall": {"toolCallId": "-question-3", "status": "pending", "title": "Which one?"},
            "options": [
                {"optionId": "choice-0", "name": "A", "kind": "allow_once"},
                {"optionId": "choice-1", "name": "B", "kind": "allow_once"},
                {"optionId": "reject_once", "name": "None of these", "kind": "reject_once"},
            ],
        })
    );
    let select = |id: &str| json!({"outcome": {"outcome": "selected", "optionId": id}});
    assert_eq!(selection.answer(&select("choice-1")), Answer::Choose(vec!["b".into()]));
    assert_eq!(selection.answer(&select("reject_once")), no);
}

/// A proxied agent's refusal is never offered as a permission.
#[test]
fn what_an_agent_behind_us_offers_keeps_its_meaning() {
    let mut outline = Outline::default();
    let run = wellspring_testkit::samples::remote_agent();
    let asked = run.iter().position(|it| matches!(it.event, Event::ToolFinished { .. })).unwrap();
    run[..asked].iter().for_each(|record| outline.apply(record));
    let (call, _) = outline.calls.first_key_value().unwrap();
    let offered = [("yes", "Yes"), ("no", "No, and stop"), ("abort_all", "Stop"), ("x", "Don't")];
    let choices = offered.map(|(id, label)| Choice { id: id.into(), label: label.into() });
    let form = Form::Choose { choices: choices.into(), multiple: false };
    let question = Question { call: Some(*call), ..question(form) };
    let Asked::Request(asking) = Asked::new(&question, &outline, "s", false) else { panic!() };
    let options = asking.params["options"].as_array().unwrap();
    let kinds: Vec<_> = options.iter().map(|it| it["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["allow_once", "reject_once", "reject_once", "reject_once"]);
}

/// The members of a proxied agent's options are passed on unchanged.
#[test]
fn options_that_were_given_with_a_permission_are_passed_on() {
    let run = wellspring_testkit::samples::remote_agent();
    let asked = run.iter().position(|it| matches!(it.event, Event::ToolFinished { .. })).unwrap();
    let mut outline = Outline::default();
    run[..asked].iter().for_each(|record| outline.apply(record));
    let (call, _) = outline.calls.first_key_value().unwrap();
    let question = Question { call: Some(*call), ..question(Form::Approve) };
    let passed_on = |question: &Question, options: Value| {
        let mut offers = Offers::default();
        let id = Box::new(Annotation::ProviderId("c".into()));
        offers.read(&Event::PartAnnotated { part: *call, annotation: id });
        let value = json!({"toolCall": {"toolCallId": "c"}, "options": options, "_meta": {"m": 1}});
        let name = "session/request_permission".into();
        offers.read(&Event::Extended(Box::new(Extended { origin: "acp".into(), name, value })));
        Asked::passed_on(question, &outline, "s", &mut offers)
    };
    let options = json!([
        {"optionId": "1", "name": "Yes, and always allow `make`", "kind": "allow_always", "_meta": {"o": 2}},
        {"optionId": "2", "name": "Yes", "kind": "allow_once"},
        {"optionId": "3", "name": "Never", "kind": "reject_always"},
    ]);
    let Some(Asked::Request(asking)) = passed_on(&question, options.clone()) else { panic!() };
    assert_eq!(asking.params["options"], options);
    assert_eq!(asking.params["_meta"], json!({"m": 1}));
    let select = |id: &str| json!({"outcome": {"outcome": "selected", "optionId": id}});
    let always = Answer::Approve { scope: Scope::Always, arguments: None };
    assert_eq!(asking.answer(&select("1")), always);
    let never = Answer::Deny { reason: None, scope: Scope::Always };
    assert_eq!(asking.answer(&select("3")), never);
    assert_eq!(asking.answer(&select("made up")), Answer::NO);

    // With an option of an unknown kind, the selection is returned by its id.
    let options = json!([
        {"optionId": "1", "name": "Hm", "kind": "perhaps"},
        {"optionId": "2", "name": "No", "kind": "reject_once"},
        {"optionId": "3", "name": "Never", "kind": "reject_always"},
    ]);
    let choice = |id: &str| Choice { id: id.into(), label: id.into() };
    let form = |ids: &[&str]| Form::Choose {
        choices: ids.iter().map(|id| choice(id)).collect(),
        multiple: false,
    };
    let several = Question { form: form(&["1", "2", "3"]), ..question.clone() };
    let Some(Asked::Request(asking)) = passed_on(&several, options.clone()) else { panic!() };
    let mut offered = options.clone();
    offered[0]["kind"] = "allow_once".into();
    offered[0]["_meta"] = json!({"wellspring": {"kind": "perhaps"}});
    assert_eq!(asking.params["options"], offered);
    assert_eq!(asking.answer(&select("3")), Answer::Choose(vec!["3".into()]));
    // Another question about the same call does not come from the agent.
    let other = Question { form: form(&["a", "b"]), ..question.clone() };
    assert_eq!(passed_on(&other, options), None);
}

#[test]
fn a_schema_is_a_form_where_there_are_forms() {
    let accept = |content: Value| json!({"action": "accept", "content": content});
    let flat = json!({
        "type": "object", "additionalProperties": false, "required": ["name"],
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    });
    let asked = asking(Form::Schema(flat), true);
    let want = json!({
        "type": "object", "required": ["name"],
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    });
    assert_eq!(asked.params["requestedSchema"], want);
    let content = json!({"name": "Ada", "age": 36});
    assert_eq!(asked.answer(&accept(content.clone())), Answer::Value(content));

    let number = asking(Form::Schema(json!({"type": "number"})), true);
    assert_eq!(number.answer(&accept(json!({"answer": 2.5}))), Answer::Value(json!(2.5)));

    let nested = json!({"type": "object", "properties": {"tags": {"type": "array"}}});
    let asked = asking(Form::Schema(nested.clone()), true);
    assert_eq!(
        asked.params["requestedSchema"]["properties"]["answer"]["description"],
        r#"JSON that fits {"type":"object","properties":{"tags":{"type":"array"}}}"#
    );
    let typed = accept(json!({"answer": r#"{"tags":[1]}"#}));
    assert_eq!(asked.answer(&typed), Answer::Value(json!({"tags": [1]})));
    assert_eq!(asked.answer(&accept(json!({"answer": "oh"}))), Answer::Value(json!("oh")));

    let yes_no = asking(Form::Schema(json!({"type": "boolean"})), false);
    let select = json!({"outcome": {"outcome": "selected", "optionId": "choice-1"}});
    assert_eq!(yes_no.answer(&select), Answer::Value(json!(false)));

    let words = question(Form::Schema(json!({"type": "string"})));
    let unaskable = Asked::new(&words, &Outline::default(), "s", false);
    assert!(matches!(unaskable, Asked::Unaskable(Answer::Deny { reason: Some(_), .. })));
}

#[test]
fn prompts() {
    let blocks = [
        json!({"type": "text", "text": "a", "annotations": {"priority": 1}}),
        json!({"type": "image", "data": "AA==", "mimeType": "image/png", "uri": "file:///a.png"}),
        json!({"type": "audio", "data": "AA==", "mimeType": "audio/wav"}),
        json!({"type": "resource_link", "uri": "file:///b", "name": "b"}),
        json!({"type": "resource", "resource": {"uri": "file:///c", "text": "c", "mimeType": "text/x"}}),
        json!({"type": "resource", "resource": {"uri": "file:///d", "blob": "AA=="}}),
    ];
    let contents = prompt(&blocks).unwrap();
    insta::assert_json_snapshot!(contents);
    // Content that was read is written unchanged, except for annotations.
    let mut written: Vec<Value> = contents.iter().map(super::content_block).collect();
    written[0]["annotations"] = json!({"priority": 1});
    written[5]["resource"].as_object_mut().unwrap().remove("mimeType");
    assert_eq!(written, blocks);
    for (block, want) in [
        (
            json!({"type": "video"}),
            "block 0 of the prompt is \"video\"; it can be text, image, audio, resource_link or resource",
        ),
        (json!({"type": "text"}), "block 0 of the prompt has no text in \"text\""),
        (json!({"type": "resource"}), "block 0 of the prompt has no text in \"uri\""),
        (json!(3), "block 0 of the prompt has no type"),
    ] {
        let error: PromptError = prompt(&[block]).unwrap_err();
        assert_eq!(error.to_string(), want);
    }
}

#[test]
fn how_a_prompt_is_answered() {
    let free = Usage::default();
    let answered = |stop| prompt_response(&Outcome::Completed { stop }, &free, None).unwrap();
    for (stop, reason) in [
        (Stop::EndTurn, "end_turn"),
        (Stop::MaxTokens, "max_tokens"),
        (Stop::TurnLimit, "max_turn_requests"),
        (Stop::ContentFilter, "refusal"),
        (Stop::Other("cancelled".into()), "cancelled"),
    ] {
        assert_eq!(answered(stop), json!({"stopReason": reason}));
    }
    let odd = json!({"stopReason": "end_turn", "_meta": {"wellspring": {"stopReason": "bored"}}});
    assert_eq!(answered(Stop::Other("bored".into())), odd);

    // A proxied agent's response is kept; values without a member of their own are in `_meta`.
    let cost = Some(Cost { amount: 0.5, currency: "USD".into() });
    let spent = Usage { input: 1, output: 2, cost, ..Usage::default() };
    let theirs = json!({"stopReason": "bored", "usage": {"totalTokens": 9}, "x": 1,
        "_meta": {"quota": 3, "wellspring": {"theirs": true}}});
    let outcome = Outcome::Completed { stop: Stop::Other("bored".into()) };
    assert_eq!(
        prompt_response(&outcome, &spent, Some(&theirs)).unwrap(),
        json!({
            "stopReason": "end_turn",
            "usage": {"totalTokens": 3, "inputTokens": 1, "outputTokens": 2},
            "x": 1,
            "_meta": {"quota": 3, "wellspring": {
                "theirs": true, "stopReason": "bored", "cost": {"amount": 0.5, "currency": "USD"},
            }},
        })
    );
}

/// A call streams text without end: the bytes written stay proportional to the text.
#[test]
fn a_call_that_talks_for_ever_is_kept_short() {
    let record = |seq, event| Record { seq: Seq(seq), agent: AgentNo::ROOT, at: Millis(0), event };
    let call = PartId(0);
    let mut run = wellspring_testkit::samples::tool_with_content()[..2].to_vec();
    run.push(record(3, Event::PartStarted { part: call, kind: PartKind::call("talk") }));
    run.push(record(4, Event::PartFinished { part: call }));
    let piece = "0123456789abcde\n".repeat(4);
    let pieces = 20_000;
    for index in 0..pieces {
        let data = Some(json!({"subtype": "stdout_chunk", "content": piece}));
        let update = Box::new(ToolUpdate { data, ..ToolUpdate::default() });
        run.push(record(5 + index, Event::ToolUpdated { call, update }));
    }
    let said = pieces as usize * piece.len();
    let written = written(DialectName::Acp, &run);
    let longest = written.iter().map(|it| it.to_string().len()).max().unwrap();
    assert!(longest < 2 * RUNNING_BYTES_MAX, "{longest}");
    let all: usize = written.iter().map(|it| it.to_string().len()).sum();
    assert!(all < 2 * said, "{all} for {said}");
    let last = &written.last().unwrap()["content"][0]["content"]["text"];
    assert!(last.as_str().unwrap().starts_with("```\n…"), "{last}");
}

/// A call adds blocks without end: the oldest are dropped.
#[test]
fn a_call_that_shows_for_ever_is_kept_short() {
    let record = |seq, event| Record { seq: Seq(seq), agent: AgentNo::ROOT, at: Millis(0), event };
    let call = PartId(0);
    let mut run = wellspring_testkit::samples::tool_with_content()[..2].to_vec();
    run.push(record(3, Event::PartStarted { part: call, kind: PartKind::call("show") }));
    let block = "x".repeat(SHOWN_BYTES_MAX / 8);
    for index in 0..32 {
        let text = wellspring_core::ToolContent::Content(Content::text(format!("{index} {block}")));
        let content = Some(wellspring_core::ContentChange::Append(vec![text]));
        let update = Box::new(ToolUpdate { content, ..ToolUpdate::default() });
        run.push(record(4 + index, Event::ToolUpdated { call, update }));
    }
    let written = written(DialectName::Acp, &run);
    let last = written.last().unwrap()["content"].as_array().unwrap();
    let starts: Vec<_> = last
        .iter()
        .map(|it| it["content"]["text"].as_str().unwrap().split(' ').next().unwrap())
        .collect();
    assert_eq!(starts, ["25", "26", "27", "28", "29", "30", "31"]);
}

proptest! {
    /// Each call is announced once, ends once, and is mentioned only in between.
    #[test]
    fn calls_are_bracketed(run in arb_run()) {
        let mut calls = std::collections::BTreeMap::new();
        for (_, json) in encode(DialectName::Acp, &run) {
            let update: Value = serde_json::from_str(&json).unwrap();
            let Some(id) = update["toolCallId"].as_str().map(str::to_owned) else { continue };
            let done = matches!(update["status"].as_str(), Some("completed" | "failed"));
            if update["sessionUpdate"] == "tool_call" {
                prop_assert_eq!(calls.insert(id, false), None);
            } else {
                prop_assert_eq!(calls.insert(id, done), Some(false));
            }
        }
        prop_assert!(calls.values().all(|done| *done), "{:?}", calls);
    }
}
