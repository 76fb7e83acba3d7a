use super::*;

fn question(properties: &Value) -> Question {
    Question::of(&json!({"type": "object", "properties": properties}))
}

fn choice(id: &str, label: &str) -> Choice {
    Choice { id: id.into(), label: label.into() }
}

#[test]
fn a_field_of_few_values_is_a_choice() {
    let cases = [
        (json!({"enum": ["r", "g"]}), vec![choice("r", "r"), choice("g", "g")]),
        (
            json!({"enum": ["r", "g"], "enumNames": ["Red"]}),
            vec![choice("r", "Red"), choice("g", "g")],
        ),
        (json!({"oneOf": [{"const": "r", "title": "Red"}]}), vec![choice("r", "Red")]),
    ];
    for (kind, choices) in cases {
        let question = question(&json!({"colour": kind}));
        assert_eq!(question.form(), Form::Choose { choices, multiple: false });
        let reply = question.reply(Answer::Choose(vec!["r".into()]));
        assert_eq!(reply, ElicitReply::Accept(json!({"colour": "r"})));
    }
}

#[test]
fn everything_else_is_a_form() {
    let too_many: Vec<String> = (0..=CHOICES_MAX).map(|n| n.to_string()).collect();
    for properties in [
        json!({"colour": {"type": "string"}}),
        json!({"colour": {"enum": []}}),
        json!({"colour": {"enum": [1, 2]}}),
        json!({"colour": {"enum": too_many}}),
        json!({"colour": {"enum": ["r"]}, "size": {"type": "integer"}}),
    ] {
        let schema = json!({"type": "object", "properties": properties});
        assert_eq!(Question::of(&schema).form(), Form::Schema(schema));
    }
}

#[test]
fn replies() {
    let confirm = || question(&json!({}));
    let form = || question(&json!({"name": {"type": "string"}}));
    let choose = || question(&json!({"colour": {"enum": ["r"]}}));
    let approve = || Answer::Approve { scope: Default::default(), arguments: None };
    let deny = || Answer::NO;
    let accept = |value: Value| ElicitReply::Accept(value);
    for (question, answer, want) in [
        (confirm(), Answer::Choose(vec![ACCEPT.into()]), accept(json!({}))),
        (confirm(), Answer::Choose(vec![DECLINE.into()]), ElicitReply::Decline),
        (confirm(), Answer::Choose(vec![]), ElicitReply::Decline),
        (confirm(), approve(), accept(json!({}))),
        (confirm(), deny(), ElicitReply::Decline),
        (form(), Answer::Value(json!({"name": "x"})), accept(json!({"name": "x"}))),
        (form(), Answer::Value(json!("x")), ElicitReply::Decline),
        (form(), approve(), ElicitReply::Decline),
        (form(), Answer::Expired, ElicitReply::Cancel),
        (choose(), Answer::Value(json!("r")), accept(json!({"colour": "r"}))),
        (choose(), Answer::Choose(vec![]), ElicitReply::Decline),
        (choose(), Answer::Withdrawn, ElicitReply::Cancel),
    ] {
        assert_eq!(question.reply(answer), want);
    }
}
