//! Sessions: the runs of a thread share one, and it survives the agent.

use serde_json::{Value, json};
use wellspring_acp::client::AcpAgent;
use wellspring_core::{Event, Record, RunId};
use wellspring_engine::{Runtime, StartRun};

use super::kit::{config, driven, finished, runtime, session, words};

async fn say(runtime: &Runtime, words: &str, after: Option<&[Record]>) -> (RunId, Vec<Record>) {
    let mut start = StartRun::text("agent", words);
    if let Some(records) = after {
        let Event::RunStarted(started) = &records[0].event else { panic!() };
        start.thread = Some(started.thread);
        start.after = Some(started.run);
    }
    let run = runtime.local().start(start).await.unwrap().run;
    (run, finished(runtime, run).await)
}

fn note(records: &[Record]) -> Option<&str> {
    records.iter().find_map(|record| match &record.event {
        Event::Extended(extended) if &*extended.name == "session" => {
            extended.value["note"].as_str()
        }
        _ => None,
    })
}

fn with(script: Value) -> Runtime {
    let runtime = runtime();
    runtime.register(driven(AcpAgent::new("scripted", config(&script))));
    runtime
}

#[tokio::test]
async fn the_runs_of_a_thread_share_a_session_and_threads_do_not() {
    let runtime = with(json!({"prompts": [[{"tell": 1}]]}));
    let (_, first) = say(&runtime, "one", None).await;
    let (_, second) = say(&runtime, "two", Some(&first)).await;
    let (_, other) = say(&runtime, "three", None).await;
    assert_eq!(session(&first).0, session(&second).0);
    assert_ne!(session(&first).0, session(&other).0);
    assert_eq!(words(&second), r#"[{"text":"two","type":"text"}]"#, "it knows what was said");
    // Another branch must not know of this one.
    let (_, branch) = say(&runtime, "other", Some(&first)).await;
    assert_ne!(session(&branch).0, session(&first).0);
    assert!(words(&branch).contains("User: one"), "{}", words(&branch));
    assert!(!words(&branch).contains("two"), "{}", words(&branch));
}

#[tokio::test]
async fn a_session_is_continued_after_the_agent_died_and_the_run_says_so() {
    let steps = json!([[{"text": "Hi."}], [{"die": "oops"}]]);
    for (capabilities, want) in [
        (json!({"loadSession": true}), "loaded"),
        (json!({"sessionCapabilities": {"resume": {}}}), "resumed"),
        (json!({}), "started anew: the agent cannot continue a session"),
    ] {
        let replay = json!([{"sessionUpdate": "agent_message_chunk",
            "content": {"type": "text", "text": "said before"}}]);
        let script = json!({"prompts": steps, "capabilities": capabilities, "replay": replay});
        let runtime = with(script);
        let (_, first) = say(&runtime, "one", None).await;
        let (_, died) = say(&runtime, "two", Some(&first)).await;
        assert_eq!(session(&first).0, session(&died).0);
        let (_, third) = say(&runtime, "three", Some(&died)).await;
        assert_eq!(note(&third), Some(want));
        assert_eq!(words(&third), "Hi.");
        assert_eq!(session(&first).0 == session(&third).0, !want.starts_with("started"));
    }
}

/// A process that continues a session may not know its mode.
#[tokio::test]
async fn a_continued_session_gets_its_mode_again() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("heard");
    let script = json!({"record": record, "capabilities": {"sessionCapabilities": {"resume": {}}},
        "prompts": [[{"text": "Hi."}], [{"die": "oops"}]]});
    let mut config = config(&script);
    config.mode = Some("code".into());
    let runtime = runtime();
    runtime.register(driven(AcpAgent::new("scripted", config)));
    let (_, first) = say(&runtime, "one", None).await;
    let (_, died) = say(&runtime, "two", Some(&first)).await;
    say(&runtime, "three", Some(&died)).await;
    let heard = std::fs::read_to_string(record).unwrap();
    let told = heard.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let methods: Vec<String> = told.map(|it| it["method"].as_str().unwrap().to_owned()).collect();
    let again = ["initialize", "session/resume", "session/set_mode", "session/prompt"];
    let first =
        ["initialize", "session/new", "session/set_mode", "session/prompt", "session/prompt"];
    assert_eq!(methods, [&first[..], &again[..]].concat());
}
