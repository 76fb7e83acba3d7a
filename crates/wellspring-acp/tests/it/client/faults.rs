//! Agents that die, flood, print garbage or refuse: a clear outcome, and bounded memory.

use serde_json::json;
use wellspring_acp::client::{AcpAgent, AcpConfig, GARBAGE_LINES_MAX, LINE_BYTES_MAX};
use wellspring_core::{FailureKind, Outcome, RunRequest};

use super::kit::{config, driven, outcome, play, scripted, steps, words};

fn failed(outcome: Outcome) -> (FailureKind, String) {
    match outcome {
        Outcome::Failed { kind, message, .. } => (kind, message.into()),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn an_agent_that_dies_leaves_its_last_words() {
    let records =
        play(steps(json!([{"text": "I am "}, {"die": "out of cheese"}])), RunRequest::text("go"))
            .await;
    let (kind, message) = failed(outcome(&records));
    assert_eq!(kind, FailureKind::Unavailable);
    let want = "scripted: the agent ended (exit status: 3); its last words were:\nout of cheese";
    assert_eq!(message, want);
    assert_eq!(words(&records), "I am ");
}

#[tokio::test]
async fn a_flood_is_kept_whole_and_in_order() {
    let records = play(steps(json!([{"flood": 20_000}])), RunRequest::text("go")).await;
    let want: String = (0..20_000).map(|number| format!("{number} ")).collect();
    assert!(words(&records) == want);
}

#[tokio::test]
async fn some_garbage_is_overlooked() {
    let records = play(
        steps(json!([{"raw": "Welcome!"}, {"raw": "[1]"}, {"text": "Hi."}])),
        RunRequest::text("go"),
    )
    .await;
    assert_eq!(words(&records), "Hi.");
}

#[tokio::test]
async fn much_garbage_is_not() {
    let garbage = vec![json!({"raw": "lalala"}); GARBAGE_LINES_MAX + 1];
    let records = play(steps(garbage.into()), RunRequest::text("go")).await;
    let (kind, message) = failed(outcome(&records));
    assert_eq!(kind, FailureKind::Protocol);
    assert!(message.contains("it printed invalid messages, such as \"lalala"), "{message}");
}

#[tokio::test]
async fn a_message_without_end_is_not_waited_for() {
    let endless = "x".repeat(LINE_BYTES_MAX + 1);
    // Too long for an environment variable, so it is read from a file.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("line");
    std::fs::write(&file, endless).unwrap();
    let config = AcpConfig::command(["cat", file.to_str().unwrap()]);
    let records = play(driven(AcpAgent::new("cat", config)), RunRequest::text("go")).await;
    let (kind, message) = failed(outcome(&records));
    assert_eq!(kind, FailureKind::Protocol);
    assert!(message.contains("a message has more than"), "{message}");
}

#[tokio::test]
async fn other_versions_logins_and_missing_programs_are_told_apart() {
    let refuse = json!({"code": -32000, "message": "Authentication required"});
    for (def, kind, what) in [
        (
            scripted(&json!({"version": 9, "prompts": [[]]})),
            FailureKind::Protocol,
            "the agent speaks version 9 of ACP, and this is version 1",
        ),
        (
            scripted(&json!({"refuse": refuse, "prompts": [[]]})),
            FailureKind::Refused,
            "the agent requires a login",
        ),
        (
            scripted(&json!({"refuse": {"code": -32603, "message": "no disk"}, "prompts": [[]]})),
            FailureKind::Protocol,
            "session/new failed: no disk (-32603)",
        ),
        (
            driven(AcpAgent::new("scripted", AcpConfig::command(["no-such-program-here"]))),
            FailureKind::Refused,
            "no-such-program-here could not be started: No such file or directory (os error 2)",
        ),
        (
            driven(AcpAgent::new("scripted", config(&json!({})).cwd("/no/such/place"))),
            FailureKind::BadRequest,
            "/no/such/place cannot be worked in: No such file or directory (os error 2)",
        ),
    ] {
        let records = play(def, RunRequest::text("go")).await;
        assert_eq!(failed(outcome(&records)), (kind, format!("scripted: {what}")));
    }
}

#[tokio::test]
async fn an_agent_that_says_nothing_is_given_up() {
    let mut config = config(&json!({"prompts": [[{"deaf": 1}]]}));
    config.timeouts.silence = std::time::Duration::from_millis(50);
    let records = play(driven(AcpAgent::new("scripted", config)), RunRequest::text("go")).await;
    let (kind, message) = failed(outcome(&records));
    assert_eq!(kind, FailureKind::TimedOut);
    assert!(message.contains("saying anything at all"), "{message}");
}
