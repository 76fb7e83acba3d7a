//! The limits of an agent's concurrent requests, each reached once.

use futures::StreamExt as _;
use serde_json::json;
use wellspring_acp::client::{AcpAgent, SERVED_MAX, SESSIONS_KEPT_MAX, TERMINALS_MAX};
use wellspring_core::{
    Answer, CancellationToken, Context, Event, Record, RemoteAgent as _, RemoteRequest, RunId,
    RunRequest, ThreadId,
};
use wellspring_engine::{Runtime, StartRun};

use super::kit::{config, driven, finished, play, runtime, scripted, steps, until, words};

/// Whether an event contains this text.
fn said(words: &'static str) -> impl Fn(&Event) -> bool {
    move |event| matches!(event, Event::PartDelta { chunk, .. } if chunk.contains(words))
}

#[tokio::test]
async fn questions_at_once() {
    let params = json!({"toolCall": {"toolCallId": "c", "title": "go on"},
        "options": [{"optionId": "y", "name": "y", "kind": "allow_once"}]});
    let burst =
        json!({"count": SERVED_MAX + 1, "method": "session/request_permission", "params": params});
    let runtime = runtime();
    runtime.register(steps(json!([{"burst": burst}])));
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    // No answer is given until the last question was refused.
    let asked = until(&runtime, run, said("too many concurrent questions")).await;
    let mut questions = 0;
    for record in &asked {
        if let Event::QuestionAsked(question) = &record.event {
            runtime.local().answer(run, question.question, Answer::yes()).await.unwrap();
            questions += 1;
        }
    }
    assert_eq!(questions, SERVED_MAX);
    let said = words(&finished(&runtime, run).await);
    assert_eq!(said.matches("\"selected\"").count(), SERVED_MAX, "{said}");
    assert_eq!(said.matches("too many concurrent questions").count(), 1, "{said}");
}

#[tokio::test]
async fn requests_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    let lock = std::fs::File::create(&path).unwrap();
    lock.lock().unwrap();
    let create = json!({"method": "terminal/create", "params": {"command": "flock", "args": [path, "true"]}});
    let wait = json!({"count": SERVED_MAX + 1, "method": "terminal/wait_for_exit",
        "params": {"terminalId": "terminal-1"}});
    let runtime = runtime();
    runtime.register(steps(json!([{"request": create}, {"burst": wait}])));
    let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
    // The command runs until the last request was refused.
    until(&runtime, run, said("too many concurrent requests")).await;
    lock.unlock().unwrap();
    let said = words(&finished(&runtime, run).await);
    assert_eq!(said.matches(r#""exitCode":0"#).count(), SERVED_MAX, "{said}");
    assert_eq!(said.matches("too many concurrent requests").count(), 1, "{said}");
}

#[tokio::test]
async fn terminals_at_once() {
    let create = json!({"request": {"method": "terminal/create", "params": {"command": "true"}}});
    let release =
        json!({"request": {"method": "terminal/release", "params": {"terminalId": "terminal-1"}}});
    let mut all = vec![create.clone(); TERMINALS_MAX + 1];
    all.extend([release, create]);
    let said = words(&play(steps(all.into()), RunRequest::text("go")).await);
    assert_eq!(said.matches("\"terminalId\"").count(), TERMINALS_MAX + 1, "{said}");
    assert_eq!(said.matches("there are 32 terminals already; release some").count(), 1, "{said}");
}

async fn say(runtime: &Runtime, after: Option<&[Record]>) -> Vec<Record> {
    let mut start = StartRun::text("agent", "go");
    if let Some(Event::RunStarted(started)) = after.map(|records| &records[0].event) {
        start.thread = Some(started.thread);
        start.after = Some(started.run);
    }
    let run = runtime.local().start(start).await.unwrap().run;
    finished(runtime, run).await
}

fn is_continued(records: &[Record]) -> bool {
    let is_note = |event: &Event| matches!(event, Event::Extended(it) if &*it.name == "session");
    records.iter().any(|record| is_note(&record.event))
}

#[tokio::test]
async fn sessions_that_rest() {
    let capabilities = json!({"sessionCapabilities": {"resume": {}, "close": {}}});
    let runtime = runtime();
    runtime
        .register(scripted(&json!({"capabilities": capabilities, "prompts": [[{"text": "Hi."}]]})));
    let first = say(&runtime, None).await;
    let second = say(&runtime, None).await;
    for _ in 1..SESSIONS_KEPT_MAX {
        say(&runtime, None).await;
    }
    // The session that was idle longest was closed, and is resumed. The next one is unchanged.
    assert!(!is_continued(&say(&runtime, Some(&second)).await));
    assert!(is_continued(&say(&runtime, Some(&first)).await));
}

/// However much output an agent sends, it is forwarded in pieces.
#[tokio::test]
async fn words_read_at_once() {
    const BATCH_BYTES_MAX: usize = 64 * 1024;
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let made = std::process::Command::new("mkfifo").arg(&mark).status().unwrap();
    assert!(made.success());
    let text = json!({"long": BATCH_BYTES_MAX / 2});
    let (pieces, quick) = (100, 96);
    let mut steps = vec![text; pieces];
    // The pipe holds the last few messages.
    steps.insert(quick, json!({"mark": mark}));
    let agent = AcpAgent::new("scripted", config(&json!({"prompts": [steps]})));
    let id = uuid::Uuid::nil();
    let request = RemoteRequest {
        run: RunId::new(id),
        thread: ThreadId::new(id),
        request: RunRequest::text("go"),
        instructions: "".into(),
        history: [].into(),
        tools: Vec::new(),
        attached: None,
        so_far: None,
        session: None,
    };
    let context = Context::create("trace", CancellationToken::new());
    let mut batches = agent.run(request, context).await.unwrap();
    // The session and the first output. After that, it sends as much as it can.
    let mut sizes = Vec::new();
    for _ in 0..2 {
        sizes.push(batches.next().await.unwrap().unwrap().text_bytes());
    }
    tokio::task::spawn_blocking(move || std::fs::read(mark).unwrap()).await.unwrap();
    while let Some(batch) = batches.next().await {
        sizes.push(batch.unwrap().text_bytes());
    }
    assert_eq!(sizes.iter().sum::<usize>(), pieces * BATCH_BYTES_MAX / 2);
    assert_eq!(sizes.iter().max(), Some(&BATCH_BYTES_MAX), "{sizes:?}");
    let full = sizes.iter().filter(|size| **size == BATCH_BYTES_MAX).count();
    assert!(full > quick / 3, "{sizes:?}");
}

/// A process handles a limited number of prompts at a time; another process is started for further
/// ones.
#[tokio::test]
async fn prompts_in_one_process() {
    let mut config = config(&json!({"prompts": [[{"text": "Hm."}, {"hang": 1}]]}));
    config.sessions_per_process = 2;
    let agent = AcpAgent::new("scripted", config);
    let runtime = runtime();
    runtime.register(driven(agent.clone()));
    let mut runs = Vec::new();
    for _ in 0..5 {
        let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
        until(&runtime, run, |event| matches!(event, Event::PartDelta { .. })).await;
        runs.push(run);
    }
    assert_eq!(agent.processes(), 3);
    for run in runs {
        runtime.local().cancel(run, wellspring_core::CancelWhen::Now, None).await.unwrap();
        finished(&runtime, run).await;
    }
}
