//! An agent's permission requests.

use serde_json::{Value, json};
use wellspring_core::{Answer, Approval, Event, Form, RunRequest, Scope};
use wellspring_engine::{AgentDef, Policy, Rule, StartRun};

use super::kit::{finished, play, runtime, shown, steps, until, words};

fn asking() -> Value {
    let option = |id: &str, kind: &str| json!({"optionId": id, "name": id, "kind": kind});
    let call =
        json!({"toolCallId": "c", "title": "rm a", "kind": "delete", "rawInput": {"path": "a"}});
    json!([
        {"update": {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "rm a", "kind": "delete",
            "status": "pending", "rawInput": {"path": "a"}}},
        {"request": {"method": "session/request_permission", "params": {"toolCall": call, "options": [
            // The first option is misleading.
            option("for-ever", "allow_always"), option("never", "reject_always"),
            option("not-now", "reject_once"), option("just-once", "allow_once"),
        ]}}},
        {"update": {"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "failed"}},
    ])
}

/// Answers the open question, and returns the whole run.
async fn answered(answer: Answer) -> Vec<wellspring_core::Record> {
    let runtime = runtime();
    runtime.register(steps(asking()));
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    let asked = until(&runtime, run, |event| matches!(event, Event::QuestionAsked(_))).await;
    let Event::QuestionAsked(question) = &asked.last().unwrap().event else { unreachable!() };
    assert_eq!(question.form, Form::Approve);
    runtime.local().answer(run, question.question, answer).await.unwrap();
    finished(&runtime, run).await
}

#[tokio::test]
async fn a_permission_is_a_question_in_its_place() {
    let records = answered(Answer::yes()).await;
    insta::assert_snapshot!(shown(&records), @r#"
    part 0 started call delete on agent
    part 0 annotated {"provider_id":"c"}
    extended acp session/request_permission {"toolCall":{"toolCallId":"c"},"options":[{"optionId":"for-ever","name":"for-ever","kind":"allow_always"},{"optionId":"never","name":"never","kind":"reject_always"},{"optionId":"not-now","name":"not-now","kind":"reject_once"},{"optionId":"just-once","name":"just-once","kind":"allow_once"}]}
    part 0 delta "{\"path\":\"a\"}"
    part 0 finished
    question 0 asked approve "Allow rm a?"
    question 0 answered {"approve":{"scope":"once"}}
    part 1 started text
    part 1 delta "{\"outcome\":{\"outcome\":\"selected\",\"optionId\":\"just-once\"}}"
    tool 0 started parallel
    tool 0 finished error null
    part 1 finished
    run finished completed end_turn
    "#);
}

#[tokio::test]
async fn the_answer_goes_by_kind_and_never_by_place() {
    let always = Answer::Approve { scope: Scope::Always, arguments: None };
    let never = Answer::Deny { reason: None, scope: Scope::Always };
    for (answer, chosen) in [
        (Answer::yes(), "just-once"),
        (always, "for-ever"),
        (Answer::no("no"), "not-now"),
        (never, "never"),
    ] {
        let said = words(&answered(answer.clone()).await);
        assert!(said.contains(&format!("\"optionId\":\"{chosen}\"")), "{answer:?}: {said}");
    }
}

#[tokio::test]
async fn a_denied_call_is_denied() {
    let records = answered(Answer::no("not today")).await;
    insta::assert_snapshot!(shown(&records), @r#"
    part 0 started call delete on agent
    part 0 annotated {"provider_id":"c"}
    extended acp session/request_permission {"toolCall":{"toolCallId":"c"},"options":[{"optionId":"for-ever","name":"for-ever","kind":"allow_always"},{"optionId":"never","name":"never","kind":"reject_always"},{"optionId":"not-now","name":"not-now","kind":"reject_once"},{"optionId":"just-once","name":"just-once","kind":"allow_once"}]}
    part 0 delta "{\"path\":\"a\"}"
    part 0 finished
    question 0 asked approve "Allow rm a?"
    question 0 answered {"deny":{"reason":"not today"}}
    part 1 started text
    part 1 delta "{\"outcome\":{\"outcome\":\"selected\",\"optionId\":\"not-now\"}}"
    tool 0 finished denied null
    part 1 finished
    run finished completed end_turn
    "#);
}

#[tokio::test]
async fn rules_decide_before_people_do() {
    for (decision, chosen) in [(Approval::Allow, "just-once"), (Approval::Deny, "not-now")] {
        let policy = Policy::default().rule(Rule::tool("delete").decide(decision));
        let def = AgentDef { policy, ..steps(asking()) };
        let records = play(def, RunRequest::text("go")).await;
        assert!(words(&records).contains(&format!("\"optionId\":\"{chosen}\"")), "{decision:?}");
        assert!(!records.iter().any(|it| matches!(it.event, Event::QuestionAsked(_))));
    }
}
