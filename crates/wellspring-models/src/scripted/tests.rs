//! Whole sequences, one block per batch; then the contract of `Model`, point by point.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use insta::assert_snapshot;
use proptest::prelude::*;
use serde_json::json;
use tokio::time::Instant;
use wellspring_core::{
    Annotation, Batch, Checker, Event, Extended, FileProduced, MediaSource, MessagePart, Millis,
    ModelSettings, Outcome, PartId, PartKind, Record, RunId, RunRequest, RunStarted, Seq, Source,
    Stop, ThreadId, ToolCall, TurnStarted, Usage, WirePartId,
};

use super::*;
use wellspring_core::RunsOn;

fn asked(messages: impl IntoIterator<Item = Message>) -> TurnRequest {
    TurnRequest {
        model: None,
        instructions: "".into(),
        messages: messages.into_iter().collect(),
        tools: [].into(),
        streaming: true,
        settings: ModelSettings::default(),
    }
}

fn hello() -> TurnRequest {
    asked([Message::user("Hello.")])
}

fn blocking() -> TurnRequest {
    TurnRequest { streaming: false, ..hello() }
}

fn answer(text: &str) -> Message {
    let id = WirePartId { run: nil(), part: PartId(0) };
    let part = MessagePart { id, kind: PartKind::TEXT, text: text.into(), annotations: Vec::new() };
    Message::Assistant { model: "scripted".into(), parts: vec![part] }
}

fn nil() -> RunId {
    "00000000-0000-0000-0000-000000000000".parse().unwrap()
}

/// The batch as lines; the stop last.
fn lines(mut batch: Batch) -> String {
    let stop = batch.take_stop();
    let mut out: Vec<String> = batch.into_events().map(|(_, event)| event.to_string()).collect();
    if let Some((stop, usage)) = stop {
        out.push(format!("stop {stop:?} {:?}", usage.map(|usage| (usage.input, usage.output))));
    }
    out.join("\n")
}

/// Runs an attempt to its end: batches separated by `--`.
async fn attempt(model: &Scripted, request: TurnRequest) -> String {
    let mut stream = match model.attempt(request).await {
        Ok(stream) => stream,
        Err(error) => return format!("no attempt: {}", told(&error)),
    };
    let mut out = Vec::new();
    while let Some(item) = stream.next().await {
        out.push(match item {
            Ok(batch) => lines(batch),
            Err(error) => told(&error),
        });
    }
    out.join("\n--\n")
}

fn told(error: &ModelError) -> String {
    format!("error {:?} after {:?}: {error}", error.kind(), error.wait())
}

async fn says(say: Say) -> String {
    attempt(&Scripted::new([say]), hello()).await
}

#[tokio::test]
async fn thought_and_call() {
    let say = Say::new()
        .thought("Let me look.")
        .signature("c2ln")
        .call("clock", json!({"tz": "Europe/Berlin"}))
        .provider_id("call_1")
        .usage(Usage { input: 10, output: 5, ..Usage::default() });
    assert_snapshot!(says(say).await, @r#"
    part 0 started thought
    part 0 delta "Let "
    --
    part 0 delta "me "
    --
    part 0 delta "look."
    part 0 annotated {"signature":"c2ln"}
    part 0 finished
    --
    part 1 started call clock
    part 1 delta "{\"tz\":\"Europ"
    --
    part 1 delta "e/Berlin\"}"
    part 1 annotated {"provider_id":"call_1"}
    part 1 finished
    --
    stop ToolCalls Some((10, 5))
    "#);
}

#[tokio::test]
async fn exact_chunks_and_exact_fragments() {
    let say =
        Say::new().chunks(["It is", " n", "", "oon."]).call_fragments("broken", ["{\"a", "\": "]);
    assert_snapshot!(says(say).await, @r#"
    part 0 started text
    part 0 delta "It is"
    --
    part 0 delta " n"
    --
    part 0 delta "oon."
    part 0 finished
    --
    part 1 started call broken
    part 1 delta "{\"a"
    --
    part 1 delta "\": "
    part 1 finished
    --
    stop ToolCalls None
    "#);
}

#[tokio::test]
async fn everything_else_a_model_can_say() {
    let source = Source { url: Some("https://example.org/".into()), ..Source::default() };
    let file = FileProduced {
        media_type: "image/png".into(),
        source: MediaSource::Data("iVBORw0KGgo=".into()),
        name: None,
    };
    let extended = Extended { origin: "acme".into(), name: "weather".into(), value: json!(1) };
    let hosted = ToolCall { name: "web".into(), runs_on: RunsOn::Provider, ..ToolCall::default() };
    let say = Say::new()
        .opaque("acme", json!({"redacted": true}))
        .source(source)
        .file(file)
        .extended(extended)
        .part(PartKind::ToolCall(Box::new(hosted)), ["{}"])
        .usage_so_far(Usage { input: 3, ..Usage::default() });
    assert_snapshot!(says(say).await, @r#"
    part 0 started opaque acme
    part 0 finished
    --
    source {"url":"https://example.org/"}
    --
    file image/png
    --
    extended acme weather 1
    --
    part 1 started call web on provider
    part 1 delta "{}"
    part 1 finished
    --
    usage 3 in, 0 out
    --
    stop EndTurn None
    "#);
}

#[tokio::test]
async fn interleaved_parts() {
    let say = Say::new()
        .thought("Hm,")
        .unfinished()
        .text("So:")
        .unfinished()
        .more(0, " yes.")
        .annotate_part(0, Annotation::Signature("c2ln".into()))
        .finish(0)
        .more(1, " yes.");
    assert_snapshot!(says(say).await, @r#"
    part 0 started thought
    part 0 delta "Hm,"
    --
    part 1 started text
    part 1 delta "So:"
    --
    part 0 delta " "
    --
    part 0 delta "yes."
    --
    part 0 annotated {"signature":"c2ln"}
    part 0 finished
    --
    part 1 delta " "
    --
    part 1 delta "yes."
    part 1 finished
    --
    stop EndTurn None
    "#);
}

#[tokio::test]
async fn a_burst_is_one_batch_per_part() {
    let say = Say::new().burst().thought("One two.").text("Three four.").stop(Stop::MaxTokens);
    assert_snapshot!(says(say).await, @r#"
    part 0 started thought
    part 0 delta "One "
    part 0 delta "two."
    part 0 finished
    --
    part 1 started text
    part 1 delta "Three "
    part 1 delta "four."
    part 1 finished
    --
    stop MaxTokens None
    "#);
}

#[tokio::test]
async fn an_error_in_mid_stream() {
    let failure =
        Failure::new(FailureKind::RateLimited, "slow down").retry_after(Duration::from_secs(7));
    let say = Say::new().text("It is").unfinished().fail(failure).text("never said");
    assert_snapshot!(says(say).await, @r#"
    part 0 started text
    part 0 delta "It "
    --
    part 0 delta "is"
    --
    error RateLimited after Some(7s): scripted: slow down
    "#);
}

#[tokio::test]
async fn broken_off_without_a_stop() {
    let say = Say::new().call_fragments("clock", ["{\"tz\":"]).unfinished().break_off();
    assert_snapshot!(says(say).await, @r#"
    part 0 started call clock
    part 0 delta "{\"tz\":"
    "#);
}

#[tokio::test]
async fn the_first_attempts_fail_and_the_next_one_goes_on() {
    let attempts = Attempts::new();
    let down = Failure::new(FailureKind::Unavailable, "overloaded");
    let say =
        Say::new().chunks(["It "]).unfinished().fail_first(&attempts, 2, down).more(0, "is noon.");
    let model = Scripted::new([say]);
    let broken = "part 0 started text\npart 0 delta \"It \"\n--\n\
                  error Unavailable after None: scripted: overloaded";
    assert_eq!(attempt(&model, hello()).await, broken);
    assert_eq!(attempt(&model, hello()).await, broken);
    assert_snapshot!(attempt(&model, hello()).await, @r#"
    part 0 started text
    part 0 delta "It "
    --
    part 0 delta "is "
    --
    part 0 delta "noon."
    part 0 finished
    --
    stop EndTurn None
    "#);
    assert_eq!(attempts.count(), 3);
}

#[tokio::test]
async fn the_turn_follows_from_the_request_alone() {
    let turns = || [Say::new().chunks(["one"]), Say::new().chunks(["two"])];
    let first = "part 0 started text\npart 0 delta \"one\"\npart 0 finished\n--\nstop EndTurn None";
    let second = first.replace("\"one\"", "\"two\"");
    let third =
        "no attempt: error BadRequest after None: scripted: turn 3 is not in the script of 2";
    let results = || Message::Results { results: Vec::new() };
    let user = || Message::user("Hello.");
    for (messages, since_user, in_all) in [
        (vec![user()], first, first),
        (vec![user(), answer("one"), results()], &second, &second),
        (vec![user(), answer("one"), user()], first, &second),
        (vec![user(), answer("one"), answer("two")], third, third),
        (vec![user(), answer("one"), answer("two"), user()], first, third),
        (vec![], first, first),
    ] {
        // A new model each time, as after a crash.
        let request = asked(messages);
        assert_eq!(attempt(&Scripted::new(turns()), request.clone()).await, since_user);
        assert_eq!(attempt(&Scripted::conversation(turns()), request).await, in_all);
    }
}

#[tokio::test]
async fn an_author_decides_from_the_conversation() {
    let model = Scripted::with(|request| {
        Say::new().chunks([format!("{} messages", request.messages.len())])
    })
    .named("echo");
    assert_eq!(model.name(), "echo");
    let heard = attempt(&model, asked([Message::user("a"), answer("b"), Message::user("c")])).await;
    assert_snapshot!(heard, @r#"
    part 0 started text
    part 0 delta "3 messages"
    part 0 finished
    --
    stop EndTurn None
    "#);
}

#[tokio::test(start_paused = true)]
async fn delays_are_kept_by_the_paused_clock() {
    let second = Duration::from_secs(1);
    let say = Say::new().wait(10 * second).pace(second).chunks(["a", "b"]).wait(5 * second);
    let mut stream = Scripted::new([say]).attempt(hello()).await.unwrap();
    let start = Instant::now();
    let mut heard = Vec::new();
    while let Some(batch) = stream.next().await {
        heard.push((start.elapsed().as_secs(), lines(batch.unwrap())));
    }
    assert_eq!(
        heard,
        [
            (11, "part 0 started text\npart 0 delta \"a\"".to_owned()),
            (12, "part 0 delta \"b\"\npart 0 finished".to_owned()),
            (17, "stop EndTurn None".to_owned()),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn what_comes_before_connected_delays_or_fails_the_attempt() {
    let second = Duration::from_secs(1);
    let start = Instant::now();
    let model = Scripted::new([Say::new().wait(second).connected().wait(second).chunks(["a"])]);
    let mut stream = model.attempt(hello()).await.unwrap();
    assert_eq!(start.elapsed(), second);
    stream.next().await.unwrap().unwrap();
    assert_eq!(start.elapsed(), 2 * second);

    let down = Failure::new(FailureKind::Refused, "no key");
    assert_eq!(
        says(Say::new().fail(down).connected().text("a")).await,
        "no attempt: error Refused after None: scripted: no key"
    );
}

#[tokio::test]
async fn a_gate_holds_the_script() {
    let (gate, each) = (Gate::new(), Gate::new());
    let say = Say::new().chunks(["a"]).gate(&gate).gate_each(&each).chunks(["b", "c"]);
    let mut stream = Scripted::new([say]).attempt(hello()).await.unwrap();
    assert_eq!(
        lines(stream.next().await.unwrap().unwrap()),
        "part 0 started text\npart 0 delta \"a\"\npart 0 finished"
    );
    {
        let mut next = stream.next();
        assert!(futures::poll!(&mut next).is_pending());
        gate.reached(1).await;
        gate.pass();
        assert!(futures::poll!(&mut next).is_pending(), "the other gate is closed");
        each.pass();
        assert_eq!(lines(next.await.unwrap().unwrap()), "part 1 started text\npart 1 delta \"b\"");
    }
    {
        let mut next = stream.next();
        assert!(futures::poll!(&mut next).is_pending());
        each.reached(2).await;
        each.open();
        assert_eq!(lines(next.await.unwrap().unwrap()), "part 1 delta \"c\"\npart 1 finished");
    }
    assert_eq!(lines(stream.next().await.unwrap().unwrap()), "stop EndTurn None");
}

#[tokio::test]
async fn a_script_that_breaks_the_grammar_says_so() {
    for (say, want) in [
        (Say::new().more(0, "a"), "says more of part 0, which is not open"),
        (Say::new().chunks(["a"]).more(0, "b"), "says more of part 0, which is not open"),
        (Say::new().finish(3), "says more of part 3, which is not open"),
        (Say::new().signature("a"), "says more of part 0, which is not open"),
        (Say::new().text("a").connected(), "says something before it is connected"),
    ] {
        let heard = says(say).await;
        let want = format!("error Internal after None: scripted: the script {want}");
        assert!(heard.ends_with(&want), "{heard}");
    }
}

/// Contract 1: any script gives a turn that the grammar allows, and one stop, last.
/// Contract 4: not streaming gives the same parts, each in one delta.
#[derive(Clone, Debug)]
enum Word {
    Text(String),
    Thought(String),
    Call(String),
    Open(String),
    More(String),
    Sign,
    Opaque,
}

fn word() -> impl Strategy<Value = Word> {
    let text = "[a-zé 🙂\\n]{0,12}";
    prop_oneof![
        text.prop_map(Word::Text),
        text.prop_map(Word::Thought),
        text.prop_map(Word::Call),
        text.prop_map(Word::Open),
        text.prop_map(Word::More),
        Just(Word::Sign),
        Just(Word::Opaque),
    ]
}

fn script(words: &[Word], burst: bool) -> Say {
    let (mut say, mut parts, mut open) = (Say::new(), 0, Vec::new());
    if burst {
        say = say.burst();
    }
    for word in words {
        say = match word {
            Word::Text(text) => say.text(text),
            Word::Thought(text) => say.thought(text),
            Word::Call(text) => say.call("tool", json!({ "text": text })),
            Word::Open(text) => {
                open.push(parts);
                say.text(text).unfinished()
            }
            Word::More(text) => match open.last() {
                Some(&part) => say.more(part, text),
                None => continue,
            },
            Word::Sign if parts > 0 => say.signature("s"),
            Word::Sign => continue,
            Word::Opaque => say.opaque("acme", json!(null)),
        };
        parts += usize::from(!matches!(word, Word::More(_) | Word::Sign));
    }
    say
}

/// The turn as the log would keep it.
fn records(say: Say, streaming: bool) -> Vec<Record> {
    let request = TurnRequest { streaming, ..hello() };
    let started = RunStarted {
        run: nil(),
        thread: ThreadId::new(nil().uuid()),
        agent: "test".into(),
        after: None,
        request: RunRequest::text("Hello."),
    };
    let turn = TurnStarted { turn: 1, attempt: 1, model: "scripted".into(), streaming };
    let mut events = vec![Event::RunStarted(Arc::new(started)), Event::TurnStarted(Box::new(turn))];
    let mut stopped = None;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut stream = Scripted::new([say]).attempt(request).await.unwrap();
        while let Some(batch) = stream.next().await {
            assert_eq!(stopped, None, "the stop is last");
            let mut batch = batch.unwrap();
            assert!(!batch.is_empty());
            stopped = batch.take_stop();
            events.extend(batch.into_events().map(|(_, event)| event));
        }
    });
    let (stop, _) = stopped.expect("a stop");
    events.push(Event::TurnFinished { stop, usage: None });
    let at = |(place, event)| Record {
        seq: Seq(place as u64 + 1),
        agent: wellspring_core::AgentNo::ROOT,
        at: Millis(0),
        event,
    };
    events.into_iter().enumerate().map(at).collect()
}

proptest! {
    #[test]
    fn any_script_obeys_the_grammar(words in proptest::collection::vec(word(), 0..12), burst: bool) {
        let streamed = records(script(&words, burst), true);
        let whole = records(script(&words, burst), false);
        for records in [&streamed, &whole] {
            let mut checker = Checker::default();
            for record in records {
                checker.push(record).map_err(|violation| TestCaseError::fail(violation.to_string()))?;
            }
        }
        prop_assert_eq!(parts(&streamed), parts(&whole));
        let deltas = |part| whole.iter().filter(|record| is_delta(&record.event, part)).count();
        let most = (0..u32::try_from(words.len()).unwrap()).map(|part| deltas(PartId(part))).max();
        prop_assert!(most.unwrap_or(0) <= 1);
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the test looks at deltas only")]
fn is_delta(event: &Event, of: PartId) -> bool {
    match event {
        Event::PartDelta { part, .. } => *part == of,
        _ => false,
    }
}

/// Each part's kind, joined text and annotations.
#[expect(clippy::wildcard_enum_match_arm, reason = "the test looks at parts only")]
fn parts(records: &[Record]) -> Vec<(PartKind, String, Vec<Annotation>)> {
    let mut parts = Vec::new();
    for record in records {
        match &record.event {
            Event::PartStarted { kind, .. } => {
                parts.push((kind.clone(), String::new(), Vec::new()))
            }
            Event::PartDelta { part, chunk } => parts[part.0 as usize].1.push_str(chunk),
            Event::PartAnnotated { part, annotation } => {
                parts[part.0 as usize].2.push((**annotation).clone());
            }
            _ => {}
        }
    }
    parts
}

/// Contract 2: a turn without a stop ends with an error, or without any, but never with a stop.
#[tokio::test]
async fn contract_2_no_stop_after_a_failure_or_a_break() {
    let failure = || Failure::new(FailureKind::Protocol, "reset");
    for say in [
        Say::new().text("a").fail(failure()).stop(Stop::EndTurn),
        Say::new().text("a").break_off().stop(Stop::EndTurn),
        Say::new().break_off(),
    ] {
        for streaming in [true, false] {
            let request = TurnRequest { streaming, ..hello() };
            let heard = attempt(&Scripted::new([say.clone()]), request).await;
            assert!(!heard.contains("stop"), "{heard}");
        }
    }
}

/// Contract 3: a dropped stream consumes nothing and leaves nothing behind.
#[tokio::test(start_paused = true)]
async fn contract_3_dropping_the_stream_leaves_nothing_behind() {
    let gate = Gate::new();
    let model = Scripted::new([Say::new().gate(&gate).chunks(["a"])]);
    let mut dropped = model.attempt(hello()).await.unwrap();
    assert!(futures::poll!(dropped.next()).is_pending());
    drop(dropped);
    gate.pass();
    // The pass is still available to the next attempt, since the dropped one does not wait any
    // more.
    assert_snapshot!(attempt(&model, hello()).await, @r#"
    part 0 started text
    part 0 delta "a"
    part 0 finished
    --
    stop EndTurn None
    "#);

    let mut hung = Scripted::new([Say::new().text("a").hang()]).attempt(hello()).await.unwrap();
    hung.next().await.unwrap().unwrap();
    let waited = tokio::time::timeout(Duration::from_secs(86_400), hung.next()).await;
    assert!(waited.is_err(), "it never ends");
}

/// Contract 4, as a readable example.
#[tokio::test]
async fn contract_4_not_streaming_gives_each_part_in_one_delta() {
    let say = Say::new()
        .thought("Let me look.")
        .unfinished()
        .source(Source { title: Some("The clock".into()), ..Source::default() })
        .text("It is noon.")
        .more(0, " Well.")
        .annotate_part(0, Annotation::Signature("c2ln".into()));
    assert_snapshot!(attempt(&Scripted::new([say]), blocking()).await, @r#"
    part 0 started thought
    part 0 delta "Let me look. Well."
    part 0 annotated {"signature":"c2ln"}
    part 0 finished
    source {"title":"The clock"}
    part 1 started text
    part 1 delta "It is noon."
    part 1 finished
    stop EndTurn None
    "#);
}

/// The events of a script are a complete run once the engine's events are added.
#[test]
fn a_scripted_run_is_a_run() {
    let mut run = records(Say::new().thought("Hm.").text("It is noon."), true);
    let outcome = Box::new(Outcome::Completed { stop: Stop::EndTurn });
    let seq = Seq(run.len() as u64 + 1);
    let event = Event::RunFinished { outcome };
    run.push(Record { seq, agent: wellspring_core::AgentNo::ROOT, at: Millis(0), event });
    Checker::check(&run).unwrap();
}
