//! HTTP: what is sent, and when connections close.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use wellspring_core::{
    AgentNo, AttemptStream, CancelWhen, Event, Model, ModelError, Outcome, Record, Seq, Transcript,
    TurnRequest,
};
use wellspring_engine::{Principal, Runtime, StartRun, Timeouts};
use wellspring_log::Log;
use wellspring_models::http::{ERROR_BODY_BYTES_MAX, GET_BYTES_MAX};
use wellspring_models::{Anthropic, Fallback, OpenAiChat, PAGES_MAX, Secret};
use wellspring_testkit::{Answer, FakeProvider};

use crate::kit::{SILENCE, agent, hello, outcome, play, providers};

/// Dropping the stream closes the connection at once, also before the response head arrived.
#[tokio::test]
async fn dropping_closes_the_connection() {
    for provider in providers() {
        let begun = provider.streams(&*provider.begun).stall();
        let server = FakeProvider::start([begun, Answer::silence()]).await.unwrap();
        let model = (provider.model)(&server.url());
        let mut stream = model.attempt(hello()).await.unwrap();
        assert!(stream.next().await.unwrap().is_ok());
        drop(stream);
        server.left(1).await;

        let mut asking = model.attempt(hello()).await.unwrap();
        tokio::select! {
            biased;
            _ = asking.next() => panic!("it never answers"),
            () = async { while server.asked().len() < 2 { tokio::task::yield_now().await } } => {}
        }
        drop(asking);
        server.left(2).await;
    }
}

/// Cancelling a run closes the connection at once, long before the server would time out.
#[tokio::test]
async fn cancelling_a_run_closes_the_connection() {
    for provider in providers() {
        let begun = provider.streams(&*provider.begun).stall();
        let server = FakeProvider::start([begun]).await.unwrap();
        let (mut def, touched) = agent((provider.model)(&server.url()), true);
        def.timeouts = Timeouts::default();
        let runtime = Runtime::new(Log::in_memory());
        runtime.register(def);
        let run = runtime.local().start(StartRun::text("agent", "go")).await.unwrap().run;
        let mut cursor = runtime.local().attach(run, Seq(0)).await.unwrap();
        let mut records: Vec<Record> = Vec::new();
        while !records.iter().any(|it| matches!(it.event, Event::PartDelta { .. })) {
            let frames = cursor.next().await.unwrap().unwrap();
            records.extend(frames.iter().flat_map(|frame| frame.records().iter().cloned()));
        }
        runtime
            .control(Principal::local().named("ann"))
            .cancel(run, CancelWhen::Now, None)
            .await
            .unwrap();
        let gone = tokio::time::timeout(SILENCE, server.left(1)).await;
        assert!(gone.is_ok(), "{}: it is still connected", provider.name);
        let outcome = runtime.local().wait(run).await.unwrap().outcome;
        assert!(matches!(outcome, Some(Outcome::Cancelled { .. })), "{outcome:?}");
        assert_eq!(touched.load(Ordering::SeqCst), 0, "{}", provider.name);
    }
}

/// The fallback model answers if the first one fails, before its first content or after it. The
/// log names both, and the first one's output is voided.
#[tokio::test]
async fn the_next_model_answers() {
    let providers = providers();
    for (first, next) in providers.iter().zip(providers.iter().cycle().skip(1)) {
        let begun = || first.streams(&*first.begun);
        let faults = [
            Answer::silence(),
            Answer::status(529, ""),
            Answer::hang_up(),
            begun(),
            begun().cut(),
            begun().stall(),
        ];
        for fault in faults {
            let broken = FakeProvider::start([fault]).await.unwrap();
            let well = FakeProvider::start([next.streams(&*next.whole)]).await.unwrap();
            let chain = Fallback::new(Named((first.model)(&broken.url()), "m"))
                .or(Named((next.model)(&well.url()), "next"));
            let (mut def, _) = agent(Arc::new(chain), true);
            def.limits.attempts = 1;
            // However short the time limit for the first content is.
            def.timeouts.first_content = SILENCE / 10;
            def.timeouts.between_chunks = SILENCE / 10;
            let records = play(def, "go").await;
            let outcome = outcome(&records).to_string();
            assert_eq!(outcome, "completed end_turn", "{} then {}", first.name, next.name);
            let transcript = Transcript::fold(&records);
            assert_eq!(transcript.answer(AgentNo::ROOT), "Done", "{}", first.name);
            let asked = records.iter().filter_map(|record| {
                let Event::TurnStarted(turn) = &record.event else { return None };
                Some(&*turn.model)
            });
            assert_eq!(asked.collect::<Vec<_>>(), ["m", "next"]);
        }
    }
}

/// A model under another name.
struct Named(Arc<dyn Model>, &'static str);

impl Model for Named {
    fn name(&self) -> &str {
        self.1
    }

    fn attempt(&self, request: TurnRequest) -> BoxFuture<'_, Result<AttemptStream, ModelError>> {
        self.0.attempt(request)
    }
}

/// Some servers send the response head after reading the prompt. That counts as waiting for the
/// first content, not as connecting, however short the connect limit is.
#[tokio::test]
async fn a_late_head_is_not_a_late_connection() {
    for provider in providers() {
        let whole = provider.streams(&*provider.whole);
        let server = FakeProvider::start([whole]).await.unwrap();
        let (mut def, _) = agent((provider.model)(&server.url()), true);
        // With this limit, only a head that is already there would be in time.
        def.timeouts.connect = std::time::Duration::ZERO;
        let outcome = outcome(&play(def, "go").await).to_string();
        assert_eq!(
            (&*outcome, server.asked().len()),
            ("completed end_turn", 1),
            "{}",
            provider.name
        );
    }
}

/// Once the model has stopped, the answer is over, even if the server keeps the connection
/// open.
#[tokio::test]
async fn the_models_stop_is_the_end() {
    for provider in providers() {
        let server =
            FakeProvider::start([provider.streams(&*provider.whole).stall()]).await.unwrap();
        let (def, _) = agent((provider.model)(&server.url()), true);
        assert_eq!(
            outcome(&play(def, "go").await).to_string(),
            "completed end_turn",
            "{}",
            provider.name
        );
        server.left(1).await;
    }
}

/// A connection that the server was just closing does not fail the request, once.
#[tokio::test]
async fn a_request_that_met_a_closing_connection_is_sent_again() {
    for provider in providers() {
        let whole = || provider.streams(&*provider.whole);
        let (hung_up, again) = (Answer::hang_up(), Answer::hang_up());
        let server = FakeProvider::start([hung_up.clone(), whole(), hung_up, again, whole()]);
        let server = server.await.unwrap();
        let model = (provider.model)(&server.url());
        let answers = async || {
            let mut stream = model.attempt(hello()).await.unwrap();
            stream.next().await.unwrap().is_ok()
        };
        let answered = [answers().await, answers().await];
        assert_eq!((answered, server.asked().len()), ([true, false], 4), "{}", provider.name);
    }
}

/// The result is the same without streaming.
#[tokio::test]
async fn answers_in_one_piece() {
    for provider in providers() {
        let json = |body: &str| Answer::ok("application/json", body);
        let answers = [json(&provider.call_at_once), json("{}")];
        let server = FakeProvider::start(answers).await.unwrap();
        let (mut def, touched) = agent((provider.model)(&server.url()), false);
        def.limits.attempts = 1;
        let records = play(def, "go").await;
        assert_eq!(touched.load(Ordering::SeqCst), 1, "{}", provider.name);
        let spent = wellspring_core::Transcript::fold(&records).usage;
        assert_eq!((spent.input, spent.output), (3, 7));
        let said = outcome(&records).to_string();
        assert!(said.ends_with("the answer ended before the model had stopped"), "{said}");
        // Ollama streams by default.
        let streams = server.asked()[0].body.get("stream").cloned();
        assert!(streams.is_none_or(|streams| streams == false), "{}", provider.name);
    }
}

/// Keys are sent, and redacted where a provider repeats them: in a stream, and in an error.
#[tokio::test]
async fn what_lets_us_in_is_sent() {
    const REPEATED: &str = r#"{"type":"error","error":{"type":"authentication_error","message":"no such key: sk-very-secret"}}"#;
    let stream = format!("event: error\ndata: {REPEATED}\n\n");
    let answers = [Answer::ok("text/event-stream", stream), Answer::status(401, REPEATED)];
    let server = FakeProvider::start(answers).await.unwrap();
    let url = server.url();
    let key = Secret::new("sk-very-secret");
    let models: [Arc<dyn wellspring_core::Model>; 2] = [
        Arc::new(
            Anthropic::new(key.clone())
                .and_then(|it| it.base_url(&format!("{url}/v1/")))
                .and_then(|it| it.header("anthropic-beta", "b"))
                .unwrap(),
        ),
        Arc::new(OpenAiChat::keyless(&format!("{url}/v1")).and_then(|it| it.key(&key)).unwrap()),
    ];
    for model in models {
        let said = model.attempt(hello()).await.unwrap().next().await.unwrap();
        let Err(error) = said else { panic!("an error is not an answer") };
        let shown = format!("{error} {error:?}");
        assert!(shown.contains("[redacted]") && !shown.contains("sk-very-secret"), "{shown}");
    }
    let asked = server.asked();
    let sent = |at: usize, name: &str| asked[at].header(name).unwrap_or_default().to_owned();
    assert_eq!(asked[0].path, "/v1/messages");
    assert_eq!(sent(0, "x-api-key"), "sk-very-secret");
    assert_eq!(sent(0, "anthropic-version"), "2023-06-01");
    assert_eq!(sent(0, "anthropic-beta"), "b");
    assert_eq!(asked[1].path, "/v1/chat/completions");
    assert_eq!(sent(1, "authorization"), "Bearer sk-very-secret");
}

/// Members that reading the answer depends on cannot be replaced: such a request is not sent.
#[tokio::test]
async fn extra_does_not_replace_what_the_answer_depends_on() {
    for provider in providers() {
        let server = FakeProvider::start([provider.streams(&*provider.whole)]).await.unwrap();
        let model = (provider.model)(&server.url());
        let conversation = match provider.name {
            "openai_responses" => "input",
            "gemini" => "contents",
            _ => "messages",
        };
        let mut request = hello();
        request.settings.extra = Some(serde_json::json!({conversation: []}));
        let Err(error) = model.attempt(request).await else { panic!("{}", provider.name) };
        let want = format!("`extra` cannot set `{conversation}`: remove it from `extra`");
        assert!(error.to_string().ends_with(&want), "{error}");
        assert_eq!(server.asked().len(), 0);
    }
}

/// The body of an error is read up to a limit: this one never ends.
#[tokio::test]
async fn errors_without_an_end() {
    let body = "x".repeat(ERROR_BODY_BYTES_MAX + 1);
    for provider in providers() {
        let server = FakeProvider::start([Answer::status(400, &*body).stall()]).await.unwrap();
        let model = (provider.model)(&server.url());
        let said = model.attempt(hello()).await.unwrap().next().await.unwrap();
        assert!(said.unwrap_err().to_string().contains("status 400"), "{}", provider.name);
        server.left(1).await;
    }
}

/// Lists of models without an end: of pages, and of bytes.
#[tokio::test]
async fn lists_without_an_end() {
    let page = r#"{"data":[{"id":"m"}],"has_more":true,"last_id":"m"}"#;
    let server = FakeProvider::start([Answer::ok("application/json", page)]).await.unwrap();
    let listed = |url: &str| {
        let model = Anthropic::new(Secret::new("sk-1")).and_then(|it| it.base_url(url)).unwrap();
        async move { model.models().await }
    };
    let models = listed(&server.url()).await.unwrap();
    assert_eq!((models.len(), server.asked().len()), (PAGES_MAX, PAGES_MAX));

    let long = vec![b' '; GET_BYTES_MAX + 1];
    let server = FakeProvider::start([Answer::ok("application/json", long).stall()]).await.unwrap();
    let error = listed(&server.url()).await.unwrap_err().to_string();
    assert_eq!(error, format!("anthropic: sent more than {GET_BYTES_MAX} bytes"));
}
