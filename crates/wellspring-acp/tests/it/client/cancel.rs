//! Cancelling reaches the agent, and waits for a limited time.

use serde_json::json;
use wellspring_acp::client::AcpAgent;
use wellspring_core::{CancelWhen, Event, Outcome, RunId, RunRequest};
use wellspring_engine::{Principal, Runtime, StartRun};

use super::kit::{
    config, deaf, driven, finished, gone, outcome, play, runtime, session, shown, steps, until,
    watch,
};

async fn cancel(runtime: &Runtime, run: RunId) {
    runtime
        .control(Principal::local().named("me"))
        .cancel(run, CancelWhen::Now, None)
        .await
        .unwrap();
}

fn is_cancelled(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Cancelled { .. })
}

#[tokio::test]
async fn a_cancelled_prompt_ends_and_the_agent_stays() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("heard");
    let script = json!({"record": record, "prompts": [[{"text": "Working."}, {"hang": true}]]});
    let agent = AcpAgent::new("scripted", config(&script));
    let runtime = runtime();
    runtime.register(driven(agent.clone()));
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    until(&runtime, run, |event| matches!(event, Event::PartDelta { .. })).await;
    cancel(&runtime, run).await;
    let records = finished(&runtime, run).await;
    assert!(is_cancelled(&outcome(&records)));
    assert_eq!(agent.processes(), 1);
    let heard = std::fs::read_to_string(record).unwrap();
    assert!(heard.contains("\"session/cancel\""), "{heard}");
}

#[tokio::test]
async fn an_agent_that_does_not_hear_is_killed_with_its_group() {
    let agent =
        AcpAgent::new("scripted", config(&json!({"prompts": [[{"text": "La la."}, {"deaf": 1}]]})));
    let runtime = runtime();
    runtime.register(deaf(agent.clone()));
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    let records = until(&runtime, run, |event| matches!(event, Event::PartDelta { .. })).await;
    let process = watch(session(&records).1);
    cancel(&runtime, run).await;
    let records = finished(&runtime, run).await;
    assert!(is_cancelled(&outcome(&records)), "{}", shown(&records));
    gone(process).await;
    assert_eq!(agent.processes(), 0);
}

#[tokio::test]
async fn an_agent_that_does_not_hear_is_killed_once_it_serves_nobody_else() {
    let agent = AcpAgent::new(
        "scripted",
        config(&json!({"prompts": [
            [{"echo": 1}, {"request": {"method": "session/request_permission", "params": {
                "toolCall": {"toolCallId": "c", "title": "go on"},
                "options": [{"optionId": "y", "name": "y", "kind": "allow_once"}]}}}, {"echo": 1}, {"deaf": 1}],
        ]})),
    );
    let runtime = runtime();
    runtime.register(deaf(agent.clone()));
    let asked = |event: &Event| matches!(event, Event::QuestionAsked(_));
    let deaf = runtime.local().start(StartRun::text("agent", "deaf")).await.unwrap().run;
    let first = until(&runtime, deaf, asked).await;
    let other = runtime.local().start(StartRun::text("agent", "other")).await.unwrap().run;
    let second = until(&runtime, other, asked).await;
    assert_eq!(session(&first).1, session(&second).1, "they share a process");
    let process = watch(session(&first).1);
    // After the question it ignores messages.
    let Event::QuestionAsked(question) = &first.last().unwrap().event else { unreachable!() };
    runtime.local().answer(deaf, question.question, wellspring_core::Answer::yes()).await.unwrap();
    let echoed = |event: &Event| matches!(event, Event::PartDelta { part, chunk } if part.0 == 2 && !chunk.starts_with('{'));
    until(&runtime, deaf, echoed).await;
    cancel(&runtime, deaf).await;
    assert!(is_cancelled(&outcome(&finished(&runtime, deaf).await)));
    assert_eq!(agent.processes(), 0, "it takes no more prompts");
    // Another run of the same process is not affected, and the process ends after it.
    let Event::QuestionAsked(question) = &second.last().unwrap().event else { unreachable!() };
    runtime.local().answer(other, question.question, wellspring_core::Answer::yes()).await.unwrap();
    until(&runtime, other, echoed).await;
    cancel(&runtime, other).await;
    assert!(is_cancelled(&outcome(&finished(&runtime, other).await)));
    gone(process).await;
}

#[tokio::test]
async fn a_question_that_is_open_when_the_run_is_cancelled_is_cancelled_too() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("heard");
    let script = json!({"record": record, "prompts": [[
        {"request": {"method": "session/request_permission", "params": {
            "toolCall": {"toolCallId": "c", "title": "go on"},
            "options": [{"optionId": "y", "name": "y", "kind": "allow_once"}]}}},
        {"hang": 1},
    ]]});
    let runtime = runtime();
    runtime.register(driven(AcpAgent::new("scripted", config(&script))));
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    until(&runtime, run, |event| matches!(event, Event::QuestionAsked(_))).await;
    cancel(&runtime, run).await;
    let records = finished(&runtime, run).await;
    assert!(is_cancelled(&outcome(&records)));
    let heard = std::fs::read_to_string(record).unwrap();
    assert!(heard.contains(r#""outcome":{"outcome":"cancelled"}"#), "{heard}");
}

/// A question that the agent withdraws is no longer open.
#[tokio::test]
async fn an_agent_withdraws_what_it_asked() {
    let call = json!({"toolCallId": "c", "title": "rm a"});
    let options = json!([{"optionId": "y", "name": "Yes", "kind": "allow_once"}]);
    let form = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    let records = play(
        steps(json!([
            {"withdraw": {"method": "session/request_permission", "params": {"toolCall": call, "options": options}}},
            {"withdraw": {"method": "elicitation/create",
                "params": {"mode": "form", "message": "How many?", "requestedSchema": form}}},
            {"request": {"method": "terminal/create", "params": {"command": "sleep", "args": ["600"]}}},
            {"withdraw": {"method": "terminal/wait_for_exit", "params": {"terminalId": "terminal-1"}}},
        ])),
        RunRequest::text("go"),
    )
    .await;
    insta::assert_snapshot!(shown(&records), @r#"
    part 0 started call tool on agent
    part 0 annotated {"provider_id":"c"}
    extended acp session/request_permission {"toolCall":{"toolCallId":"c"},"options":[{"optionId":"y","name":"Yes","kind":"allow_once"}]}
    part 0 delta "{}"
    part 0 finished
    question 0 asked approve "Allow rm a?"
    question 0 answered withdrawn
    part 1 started text
    part 1 delta "-32800"
    extended acp elicitation/create {"requestedSchema":{"type":"object","properties":{"n":{"type":"integer"}}}}
    question 1 asked {"schema":{"type":"object","properties":{"n":{"type":"integer"}}}} "How many?"
    question 1 answered withdrawn
    part 1 delta "-32800"
    part 1 delta "{\"terminalId\":\"terminal-1\"}"
    part 1 delta "-32800"
    part 1 finished
    tool 0 finished interrupted "the agent did not say how it ended"
    run finished completed end_turn
    "#);
}
