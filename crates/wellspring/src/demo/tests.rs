use wellspring_core::{AgentNo, Answer, Outcome, QuestionId, Scope, Stop, Transcript};
use wellspring_engine::{Runtime, StartRun};
use wellspring_log::Log;

use super::*;

/// Plays a request on a fast agent; the first question gets this answer, or expires at once.
async fn play(input: &str, answer: Option<Answer>) -> Transcript {
    let options = DemoOptions { pace: Duration::ZERO, ..DemoOptions::default() };
    play_with(options, input, answer).await
}

async fn play_with(options: DemoOptions, input: &str, answer: Option<Answer>) -> Transcript {
    let mut agent = agent_with(options);
    if answer.is_none() {
        agent.timeouts.question = Duration::from_millis(1);
    }
    let runtime = Runtime::new(Log::in_memory());
    runtime.register(agent);
    let run = runtime.local().start(StartRun::text(NAME, input)).await.unwrap().run;
    let mut cursor = runtime.local().attach(run, wellspring_core::Seq(0)).await.unwrap();
    let mut answer = answer;
    while let Some(frames) = cursor.next().await.unwrap() {
        let asked = frames
            .iter()
            .flat_map(|frame| frame.records())
            .any(|record| matches!(record.event, wellspring_core::Event::QuestionAsked(_)));
        if asked && let Some(answer) = answer.take() {
            runtime.local().answer(run, QuestionId(0), answer).await.unwrap();
        }
    }
    runtime.local().wait(run).await.unwrap()
}

fn completed() -> Option<Outcome> {
    Some(Outcome::Completed { stop: Stop::EndTurn })
}

#[test]
fn it_has_no_shell_by_default() {
    let tools: Vec<_> = agent().tools.iter().map(|tool| tool.spec().name.to_string()).collect();
    assert_eq!(tools, ["update_plan", "ask_user", "clock", "count_down", "survey_files"]);
}

#[tokio::test]
async fn without_a_shell_a_yes_counts_down() {
    let edited = Answer::Approve { scope: Scope::Once, arguments: Some(json!({"from": 2})) };
    let transcript = play("Good morning", Some(edited)).await;
    let answer = transcript.answer(AgentNo::ROOT);
    assert_eq!(transcript.outcome, completed());
    assert!(answer.contains("The countdown **ran**") && answer.contains("at 2."), "{answer}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_yes_runs_the_command() {
    let here = std::env::current_dir().unwrap();
    let shell = wellspring_engine::tools::Shell::below(here).unwrap();
    let options = DemoOptions { pace: Duration::ZERO, shell: Some(Arc::new(shell)) };
    let transcript = play_with(options, "Good morning", Some(Answer::yes())).await;
    let answer = transcript.answer(AgentNo::ROOT);
    assert_eq!(transcript.outcome, completed());
    assert!(answer.contains("*Good morning*") && answer.contains("**ran**"), "{answer}");
    assert_eq!(
        transcript
            .plan
            .iter()
            .filter(|step| step.status == wellspring_core::PlanStatus::Completed)
            .count(),
        2
    );
    assert!(transcript.usage.output > 0);
}

#[tokio::test]
async fn a_no_is_told_and_respected() {
    let no = Answer::no("not today");
    let transcript = play("Good morning", Some(no)).await;
    let answer = transcript.answer(AgentNo::ROOT);
    assert_eq!(transcript.outcome, completed());
    assert!(answer.contains("did **not run**: denied: not today"), "{answer}");
}

#[tokio::test]
async fn silence_is_a_no() {
    let transcript = play("Good morning", None).await;
    let answer = transcript.answer(AgentNo::ROOT);
    assert!(answer.contains("the call was not approved in time"), "{answer}");
}

#[tokio::test]
async fn a_choice_is_told() {
    let transcript = play("ask", Some(Answer::Choose(vec!["rain".into()]))).await;
    assert!(transcript.answer(AgentNo::ROOT).contains("You chose **rain**"));
}

#[tokio::test(start_paused = true)]
async fn what_broke_off_is_said_again() {
    let transcript = play("fail", None).await;
    assert_eq!(transcript.outcome, completed());
    let answer = transcript.answer(AgentNo::ROOT);
    assert!(answer.starts_with("The first attempt **broke off**"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn failing_for_good_fails_the_run() {
    let transcript = play("fail for good", None).await;
    assert_eq!(
        transcript.outcome,
        Some(Outcome::Failed {
            kind: FailureKind::Refused,
            message: "script: you asked the script to fail for good".into(),
            retryable: false
        })
    );
}

#[tokio::test]
async fn a_long_answer_ends() {
    let transcript = play("long", None).await;
    assert!(transcript.answer(AgentNo::ROOT).ends_with("That was all."));
}
