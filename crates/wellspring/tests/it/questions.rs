//! Questions: a program decides what an agent may do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::Barrier;
use wellspring::crates::core::Ask;
use wellspring::prelude::*;
use wellspring::tools::{FunctionTool, NoArguments, function};
use wellspring::{ControlError, Form, Policy, Rule, Scope};

use crate::kit::{Ended, lines, soon};

#[derive(Deserialize, JsonSchema)]
struct Remove {
    path: String,
}

/// Asks first, because of its kind. Counts its calls.
fn remove(ran: &Arc<AtomicUsize>) -> FunctionTool {
    let ran = Arc::clone(ran);
    function("remove", "Removes.", move |input: Remove, cx: Context| {
        ran.fetch_add(1, Ordering::SeqCst);
        async move {
            cx.progress(format!("removing {}", input.path)).await;
            Ok(())
        }
    })
    .kind(ToolKind::Delete)
}

fn remover(paths: &[&str]) -> (Agent, Arc<AtomicUsize>) {
    let ran = Arc::new(AtomicUsize::new(0));
    let calls =
        paths.iter().fold(Say::new(), |say, path| say.call("remove", json!({"path": path})));
    let agent = Agent::model(Scripted::new([calls, Say::new().text("Done.")])).tool(remove(&ran));
    (agent, ran)
}

#[tokio::test(start_paused = true)]
async fn a_yes_lets_the_tool_run_and_a_no_does_not() {
    let (agent, ran) = remover(&["a", "b"]);
    let stream = agent
        .say("?")
        .on_question(async |question| {
            if question.prompt.contains(r#""a""#) { Answer::yes() } else { Answer::no("keep b") }
        })
        .stream();
    assert_eq!(soon(stream.result()).await.unwrap(), "Done.");
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    let lines = lines(stream.include([ThoughtKind::ToolDone])).await;
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.contains(&r#"{"type":"tool_done","id":"0","status":"completed"}"#.to_owned()));
    assert!(lines.contains(&r#"{"type":"tool_done","id":"1","status":"failed"}"#.to_owned()));
}

#[tokio::test(start_paused = true)]
async fn many_questions_are_answered_at_once() {
    let (agent, ran) = remover(&["a", "b", "c"]);
    // Blocks until all three questions were asked.
    let all_asked = Arc::new(Barrier::new(3));
    let think = agent.say("?").on_question(move |_| {
        let all_asked = Arc::clone(&all_asked);
        async move {
            all_asked.wait().await;
            Answer::yes()
        }
    });
    assert_eq!(soon(think.run()).await.unwrap(), "Done.");
    assert_eq!(ran.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn arguments_can_be_edited() {
    let (agent, _) = remover(&["everything"]);
    let stream = agent
        .say("?")
        .on_question(async |_| Answer::Approve {
            scope: Scope::Once,
            arguments: Some(json!({"path": "little"})),
        })
        .stream();
    insta::assert_snapshot!(lines(stream).await.join("\n"), @r#"
    {"type":"tool_start","id":"0","title":"remove","kind":"delete"}
    {"type":"tool_update","id":"0","status":"waiting","content":[{"type":"content","content":{"type":"text","text":"Allow remove {\"path\":\"everything\"}?"}},{"type":"content","content":{"type":"text","text":"{\"subtype\":\"question\",\"question\":0,\"prompt\":\"Allow remove {\\\"path\\\":\\\"everything\\\"}?\",\"form\":\"approve\"}"}}]}
    {"type":"tool_update","id":"0","status":"in_progress"}
    {"type":"tool_update","id":"0","status":"in_progress","content":[{"type":"content","content":{"type":"text","text":"removing little"}}]}
    {"type":"tool_done","id":"0","status":"completed"}
    {"type":"message","text":"Done."}
    "#);
}

#[tokio::test(start_paused = true)]
async fn questions_are_answered_also_when_nobody_holds_the_stream() {
    let (agent, ran) = remover(&["a"]);
    let (hooks, mut ended) = Ended::new();
    drop(agent.hooks(hooks).say("?").on_question(async |_| Answer::yes()).stream());
    soon(ended.recv()).await.unwrap();
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn questions_can_be_read_and_answered_by_hand() {
    let (agent, ran) = remover(&["a"]);
    let stream = agent.say("?").wait_for_answers().stream();
    let mut questions = stream.questions();
    let question = soon(questions.next()).await.unwrap();
    assert_eq!(&*question.prompt, r#"Allow remove {"path":"a"}?"#);
    assert_eq!(question.form, Form::Approve);
    soon(stream.answer(question.question, Answer::yes())).await.unwrap();
    assert_eq!(soon(stream.result()).await.unwrap(), "Done.");
    assert_eq!(soon(questions.next()).await, None);
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    // It is closed now.
    let late = soon(stream.answer(question.question, Answer::yes())).await.unwrap_err();
    let ThinkError::Control(cause) = late else { panic!("{late:?}") };
    assert!(matches!(*cause, ControlError::Finished(_)), "{cause:?}");
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_back_finds_the_questions_that_wait() {
    let (agent, ran) = remover(&["a"]);
    let stream = agent.say("?").wait_for_answers().stream();
    soon(stream.questions().next()).await.unwrap();
    let run = soon(stream.run_id()).await.unwrap();
    drop(stream);
    let again = agent.attach::<String>(run).on_question(async |_| Answer::yes());
    assert_eq!(soon(again.result()).await.unwrap(), "Done.");
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    // Answered questions are not asked again.
    assert_eq!(soon(agent.attach::<String>(run).questions().next()).await, None);
}

#[tokio::test(start_paused = true)]
async fn only_who_asked_may_answer() {
    let (agent, ran) = remover(&["a"]);
    let stream = agent.say("?").by("ada").wait_for_answers().stream();
    let question = soon(stream.questions().next()).await.unwrap();
    let stranger = agent.attach::<String>(soon(stream.run_id()).await.unwrap());
    let error = soon(stranger.answer(question.question, Answer::yes())).await.unwrap_err();
    let ThinkError::Control(cause) = error else { panic!("{error:?}") };
    assert!(matches!(*cause, ControlError::NotAnApprover), "{cause:?}");
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    soon(stream.answer(question.question, Answer::yes())).await.unwrap();
    assert_eq!(soon(stream.result()).await.unwrap(), "Done.");
}

#[tokio::test(start_paused = true)]
async fn a_named_approver_may_answer_too() {
    let (agent, ran) = remover(&["a"]);
    let agent = agent.approver("grace");
    let run = soon(agent.say("?").by("ada").stream().run_id()).await.unwrap();
    let approver = agent.attach::<String>(run).by("grace").on_question(async |_| Answer::yes());
    assert_eq!(soon(approver.result()).await.unwrap(), "Done.");
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    let transcript = soon(approver.transcript()).await.unwrap();
    let answered = transcript.questions.values().filter_map(|asked| asked.answered.as_ref());
    let by: Vec<_> = answered.map(|answered| answered.by.as_deref()).collect();
    assert_eq!(by, [Some("grace")]);
}

#[tokio::test(start_paused = true)]
async fn a_policy_decides_what_is_asked_at_all() {
    let (agent, ran) = remover(&["a"]);
    let allowed = agent.clone().policy(Policy::allow_all());
    assert_eq!(soon(allowed.say("?").run()).await.unwrap(), "Done.");
    assert_eq!(ran.load(Ordering::SeqCst), 1);
    let deny = Rule::tool("remove").decide(wellspring::Approval::Deny);
    let denied = agent.policy(Policy::default().rule(deny));
    assert_eq!(soon(denied.say("?").run()).await.unwrap(), "Done.");
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_tool_can_ask_for_itself() {
    let ask = function("ask", "Asks.", async |_: NoArguments, cx: Context| {
        let form = Form::Schema(json!({"type": "string"}));
        let ask = Ask::new("Which colour?", form);
        match cx.ask(ask).await {
            Answer::Value(value) => Ok(value),
            other => Err(ToolError::new(format!("{other:?}"))),
        }
    });
    let model = Scripted::with(|request| match request.messages.last() {
        Some(wellspring::Message::Results { results }) => {
            Say::new().text(results[0].result.output_text())
        }
        _ => Say::new().call("ask", json!({})),
    });
    let think = Agent::model(model).say("?").tool(ask);
    let answered = think.on_question(async |question| {
        assert_eq!(&*question.prompt, "Which colour?");
        Answer::Value(json!("blue"))
    });
    assert_eq!(soon(answered.run()).await.unwrap(), "blue");
}

/// Without `on_question`, questions are denied at once, and the model gets the reason.
#[tokio::test(start_paused = true)]
async fn a_program_that_never_answers_denies_at_once() {
    let (agent, ran) = remover(&["a"]);
    let stream = agent.say("?").stream();
    let started = tokio::time::Instant::now();
    assert_eq!(soon(stream.result()).await.unwrap(), "Done.");
    assert_eq!(started.elapsed(), std::time::Duration::ZERO);
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    let transcript = soon(stream.transcript()).await.unwrap();
    let result = transcript.parts.values().find_map(|part| part.call.as_ref()?.finished.clone());
    let (outcome, told) = result.unwrap();
    assert_eq!(outcome, wellspring::ToolOutcome::Denied);
    let want = "denied: this program does not answer questions, so the answer is no";
    assert_eq!(told.output_text(), want);
}
