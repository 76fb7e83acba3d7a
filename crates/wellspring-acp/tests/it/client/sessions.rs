//! Sessions: the runs of a thread share a session, which outlives the agent's process.

use std::sync::Arc;

use futures::StreamExt as _;
use serde_json::{Value, json};
use wellspring_acp::client::AcpAgent;
use wellspring_core::{
    AgentNo, CancellationToken, Context, Event, Item, PartId, Record, RemoteAgent as _,
    RemoteRequest, RunId, RunRequest, ThreadId, Transcript,
};
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
    assert_eq!(words(&second), r#"[{"type":"text","text":"two"}]"#, "it knows what was said");
    // Another branch gets a session of its own.
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
        (json!({}), "new session: the agent cannot continue a session"),
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
        assert_eq!(session(&first).0 == session(&third).0, !want.starts_with("new session"));
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

/// A process may end between opening a session and prompting it. The agent then gets the whole
/// request; an agent that had started to work is only asked to continue.
#[tokio::test]
async fn an_agent_that_was_never_prompted_gets_its_request() {
    let script = json!({"prompts": [[{"tell": 1}]], "capabilities": {"loadSession": true}});
    let run = async |attached: Option<Value>, so_far: Option<Transcript>, batches: usize| {
        let agent = AcpAgent::new("scripted", config(&script));
        let request = RemoteRequest {
            run: RunId::new(uuid::Uuid::nil()),
            thread: ThreadId::new(uuid::Uuid::nil()),
            request: RunRequest::text("Count to three."),
            instructions: "".into(),
            history: [].into(),
            tools: Vec::new(),
            attached,
            so_far: so_far.map(Arc::new),
            session: None,
        };
        let context = Context::create("trace", CancellationToken::new());
        let stream = agent.run(request, context).await.unwrap().take(batches);
        let batches: Vec<_> = stream.collect().await;
        batches.into_iter().flat_map(|batch| batch.unwrap().into_events()).collect::<Vec<_>>()
    };
    let told = |events: &[(AgentNo, Event)]| -> String {
        let chunks = events.iter().filter_map(|(_, event)| match event {
            Event::PartDelta { chunk, .. } => Some(&**chunk),
            _ => None,
        });
        chunks.collect()
    };
    // The process ends right after the session is opened.
    let opened = run(None, None, 1).await;
    let [(_, Event::Attached { handle, .. }), ..] = &opened[..] else { panic!("{opened:?}") };
    let handle = Some((**handle).clone());
    let silent = told(&run(handle.clone(), Some(Transcript::default()), usize::MAX).await);
    assert!(silent.contains("may have received") && silent.contains("Count to three."), "{silent}");
    let mut spoken = Transcript::default();
    spoken.agents.entry(AgentNo::ROOT).or_default().items.push(Item::Part(PartId(0)));
    let spoken = told(&run(handle, Some(spoken), usize::MAX).await);
    assert!(spoken.contains("go on with it") && !spoken.contains("Count to three."), "{spoken}");
}
