use wellspring_core::{Scope, ToolResult};

use super::*;
use crate::tools::test_host::{Heard, RecordingHost};

fn asked(form: Form) -> Vec<Heard> {
    vec![Heard::Asked { prompt: "Which?".into(), form }]
}

#[tokio::test]
async fn the_form_follows_from_the_arguments() {
    let choice = |label: &str| Choice { id: label.into(), label: label.into() };
    let schema = json!({"type": "object", "required": ["name"]});
    let one_of = |multiple| Form::Choose { choices: vec![choice("red"), choice("blue")], multiple };
    for (more, form) in [
        (json!({}), Form::Schema(json!({"type": "string"}))),
        (json!({"schema": schema}), Form::Schema(schema.clone())),
        (json!({"choices": ["red", "blue"]}), one_of(false)),
        (json!({"choices": ["red", "blue"], "multiple": true}), one_of(true)),
    ] {
        let mut arguments = more;
        arguments["question"] = json!("Which?");
        let host = RecordingHost::that_answers(Answer::Value(json!("x")));
        let (heard, result) = host.call(&ask_user(), arguments).await;
        assert_eq!((heard, result), (asked(form), Ok(ToolResult::new("x"))));
    }
}

#[tokio::test]
async fn every_answer_is_told_honestly() {
    let chosen = |ids: &[&str]| Answer::Choose(ids.iter().map(|&id| id.into()).collect());
    for (answer, multiple, want) in [
        (chosen(&["red"]), false, Ok(json!("red"))),
        (chosen(&["red", "blue"]), true, Ok(json!(["red", "blue"]))),
        (chosen(&[]), true, Ok(json!([]))),
        (Answer::Value(json!({"name": "Ada"})), false, Ok(json!({"name": "Ada"}))),
        (Answer::Approve { scope: Scope::Once, arguments: None }, false, Ok(json!(true))),
        (Answer::NO, false, Err("the user declined to answer")),
        (Answer::no("ask Bob"), false, Err("the user declined to answer: ask Bob")),
        (Answer::Expired, false, Err("the question was not answered in time")),
        (Answer::Withdrawn, false, Err("the run ended before the question was answered")),
    ] {
        let arguments =
            json!({"question": "Which?", "choices": ["red", "blue"], "multiple": multiple});
        let (_, result) = RecordingHost::that_answers(answer).call(&ask_user(), arguments).await;
        assert_eq!(result, want.map(ToolResult::new).map_err(str::to_owned));
    }
}

#[tokio::test]
async fn questions_nobody_could_answer_are_not_asked() {
    let many: Vec<String> = (0..=CHOICES_MAX).map(|n| n.to_string()).collect();
    for (arguments, want) in [
        (
            json!({"question": "Which?", "choices": ["a"], "schema": {}}),
            "give either choices or a schema for the answer, not both",
        ),
        (
            json!({"question": "Which?", "choices": ["a", "b", "a"]}),
            "the choice \"a\" occurs twice",
        ),
        (
            json!({"question": "Which?", "choices": many}),
            "there are 51 choices; at most 50 are shown",
        ),
        (
            json!({"question": "Which?", "schema": {"type": "color"}}),
            "ask with another schema: the schema cannot be used: /type: ",
        ),
    ] {
        let (heard, result) = RecordingHost::new().call(&ask_user(), arguments).await;
        assert_eq!(heard, []);
        let error = result.unwrap_err();
        assert!(error.starts_with(want), "{error}");
    }
}
