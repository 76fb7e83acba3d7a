//! An agent's questions to the user are questions of the run.

use serde_json::{Value, json};
use wellspring_core::{Answer, CancelWhen, Event, Form};
use wellspring_engine::{Runtime, StartRun};

use super::kit::{finished, runtime, shown, steps, until, words};

fn asking(params: &Value) -> Runtime {
    let runtime = runtime();
    let ask = json!({"request": {"method": "elicitation/create", "params": params}});
    runtime.register(steps(json!([{"text": "One thing. "}, ask])));
    runtime
}

fn form(schema: &Value) -> Value {
    json!({"mode": "form", "message": "Who are you?", "requestedSchema": schema})
}

async fn answered(schema: &Value, answer: Answer) -> (Form, Vec<wellspring_core::Record>) {
    let runtime = asking(&form(schema));
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    let asked = until(&runtime, run, |event| matches!(event, Event::QuestionAsked(_))).await;
    let Event::QuestionAsked(question) = &asked.last().unwrap().event else { unreachable!() };
    runtime.local().answer(run, question.question, answer).await.unwrap();
    (question.form.clone(), finished(&runtime, run).await)
}

#[tokio::test]
async fn a_form_is_a_question_in_its_place() {
    let schema = json!({"type": "object", "required": ["name"],
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}});
    let (form, records) = answered(&schema, Answer::Value(json!({"name": "Ada"}))).await;
    assert_eq!(form, Form::Schema(schema));
    insta::assert_snapshot!(shown(&records), @r#"
    part 0 started text
    part 0 delta "One thing. "
    extended acp elicitation/create {"requestedSchema":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"age":{"type":"integer"}}}}
    question 0 asked {"schema":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"age":{"type":"integer"}}}} "Who are you?"
    question 0 answered {"value":{"name":"Ada"}}
    part 0 delta "{\"action\":\"accept\",\"content\":{\"name\":\"Ada\"}}"
    part 0 finished
    run finished completed end_turn
    "#);
}

#[tokio::test]
async fn few_values_are_a_choice_and_a_no_is_a_no() {
    let schema = json!({"type": "object", "properties": {"colour": {"enum": ["red", "green"]}}});
    let choose = Answer::Choose(vec!["green".into()]);
    for (answer, want) in [
        (choose, r#"{"action":"accept","content":{"colour":"green"}}"#),
        (Answer::no("no"), r#"{"action":"decline"}"#),
    ] {
        let (form, records) = answered(&schema, answer).await;
        assert!(matches!(form, Form::Choose { multiple: false, .. }), "{form:?}");
        assert_eq!(words(&records), format!("One thing. {want}"));
    }
}

/// URL questions are declined, because opening a page is not safe, and so are unknown kinds.
#[tokio::test]
async fn other_kinds_are_declined() {
    for mode in ["url", "telepathy"] {
        let params = json!({"mode": mode, "message": "Look", "url": "https://example.com"});
        let runtime = asking(&params);
        let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
        let records = finished(&runtime, run).await;
        assert_eq!(words(&records), r#"One thing. {"action":"decline"}"#);
    }
}

#[tokio::test]
async fn a_question_that_nobody_answers_is_cancelled_with_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("heard");
    let ask = json!({"request": {"method": "elicitation/create", "params": form(&json!({}))}});
    let script = json!({"record": record, "prompts": [[ask, {"hang": 1}]]});
    let runtime = runtime();
    runtime.register(super::kit::scripted(&script));
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    until(&runtime, run, |event| matches!(event, Event::QuestionAsked(_))).await;
    runtime.local().cancel(run, CancelWhen::Now, None).await.unwrap();
    finished(&runtime, run).await;
    let heard = std::fs::read_to_string(record).unwrap();
    assert!(heard.contains(r#""result":{"action":"cancel"}"#), "{heard}");
}
