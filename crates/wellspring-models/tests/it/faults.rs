//! Every fault of every provider, and how the engine reacts.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::future::join_all;
use insta::assert_snapshot;
use wellspring_core::{AgentNo, Event, Transcript};
use wellspring_testkit::{Answer, FakeProvider};

use crate::kit::{Provider, Remembering, agent, outcome, play, providers};

/// Each row: a fault, and the server's answers. The last answer is repeated.
pub(crate) fn faults(provider: &Provider) -> Vec<(&'static str, Vec<Answer>)> {
    let whole = || provider.streams(&*provider.whole);
    let begun = || provider.streams(&*provider.begun);
    let then_well = |answer: Answer| vec![answer, whole()];
    let limited = |name: &str, value: &str| {
        then_well(Answer::status(429, provider.error_body).header(name, value))
    };
    vec![
        ("nothing", vec![whole()]),
        ("a call", vec![provider.streams(&*provider.call), whole()]),
        (
            "an error in mid-stream",
            then_well(provider.streams(provider.begun.clone() + &provider.error)),
        ),
        ("an error first", then_well(provider.streams(&*provider.error))),
        ("an end in mid-stream", then_well(begun())),
        ("a connection that breaks", then_well(begun().cut())),
        ("silence in mid-stream", then_well(begun().stall())),
        ("silence before the head", then_well(Answer::silence())),
        ("an empty answer", then_well(provider.streams(""))),
        ("garbage", then_well(provider.streams("data: {\"choices\": nonsense}\n\n"))),
        (
            "garbage in mid-stream",
            then_well(provider.streams(provider.begun.clone() + "data: }{\n\n")),
        ),
        ("bytes of no sort", then_well(provider.streams(vec![0xff_u8; 4096]))),
        ("an end in mid-stream, always", vec![begun()]),
        (
            "an error body with success",
            then_well(Answer::ok("application/json", provider.error_body)),
        ),
        ("a page of HTML with success", then_well(Answer::ok("text/html", "<html>Sign in</html>"))),
        ("429, seconds", limited("retry-after", "0")),
        ("429, milliseconds", limited("retry-after-ms", "1.5")),
        ("429, a date", limited("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")),
        ("429, too long", vec![Answer::status(429, "").header("retry-after", "3600")]),
        ("500", then_well(Answer::status(500, provider.error_body).header("retry-after-ms", "1"))),
        ("529", then_well(Answer::status(529, "").header("retry-after-ms", "1"))),
        ("529, always", vec![Answer::status(529, "").header("retry-after-ms", "1")]),
        ("400", vec![Answer::status(400, "{\"error\":{\"message\":\"no such model\"}}")]),
        ("401", vec![Answer::status(401, "{\"error\":{\"message\":\"who are you?\"}}")]),
        ("a redirect", vec![Answer::status(307, "").header("location", "http://127.0.0.1:1/")]),
    ]
}

async fn line(provider: &Provider, fault: &str, answers: Vec<Answer>) -> String {
    let server = FakeProvider::start(answers).await.unwrap();
    let errors = Arc::default();
    let model = (provider.model)(&server.url());
    let model = Remembering { model, errors: Arc::clone(&errors) };
    let (def, touched) = agent(Arc::new(model), true);
    let records = play(def, "go").await;
    let transcript = Transcript::fold(&records);
    let attempts = records.iter().filter(|it| matches!(it.event, Event::TurnStarted(_))).count();
    let asked = server.asked().len();
    assert_eq!(
        attempts, asked,
        "{fault}: each attempt that is answered is one request, and none is made behind its back"
    );
    // Silence is detected by the engine, which drops the attempt.
    let first = errors.lock().unwrap().first().cloned().unwrap_or_else(|| "-".to_owned());
    format!(
        "{fault}: asked {asked}, touched {}, said {:?}, {}\n    {first}",
        touched.load(Ordering::SeqCst),
        transcript.answer(AgentNo::ROOT),
        outcome(&records),
    )
}

/// The table is the same for every provider, except for documented differences.
#[tokio::test]
async fn outcomes() {
    let providers = providers();
    let tables = join_all(providers.iter().map(async |provider| {
        let faults = faults(provider).into_iter();
        let lines = faults.map(async |(fault, answers)| line(provider, fault, answers).await);
        let table = join_all(lines).await.join("\n");
        // They differ only in name.
        let names = [provider.name, "openai-compatible", "openai"];
        names.iter().fold(table, |table, name| table.replace(name, "provider"))
    }));
    let tables: Vec<String> = tables.await;
    let first = &tables[0];
    assert_snapshot!(first, @r#"
    nothing: asked 1, touched 0, said "Done", completed end_turn
        -
    a call: asked 2, touched 1, said "Done", completed end_turn
        -
    an error in mid-stream: asked 2, touched 0, said "Done", completed end_turn
        Unavailable: provider: Overloaded
    an error first: asked 2, touched 0, said "Done", completed end_turn
        Unavailable: provider: Overloaded
    an end in mid-stream: asked 2, touched 0, said "Done", completed end_turn
        Protocol: provider: the answer ended before the model had stopped
    a connection that breaks: asked 2, touched 0, said "Done", completed end_turn
        Protocol: provider: broke off
    silence in mid-stream: asked 2, touched 0, said "Done", completed end_turn
        -
    silence before the head: asked 2, touched 0, said "Done", completed end_turn
        -
    an empty answer: asked 2, touched 0, said "Done", completed end_turn
        Protocol: provider: the answer ended before the model had stopped
    garbage: asked 2, touched 0, said "Done", completed end_turn
        Protocol: provider: an event is not the expected JSON
    garbage in mid-stream: asked 2, touched 0, said "Done", completed end_turn
        Protocol: provider: an event is not the expected JSON
    bytes of no sort: asked 2, touched 0, said "Done", completed end_turn
        Protocol: provider: the answer ended before the model had stopped
    an end in mid-stream, always: asked 4, touched 0, said "Half", failed protocol: provider: the answer ended before the model had stopped
        Protocol: provider: the answer ended before the model had stopped
    an error body with success: asked 2, touched 0, said "Done", completed end_turn
        Unavailable: provider: Broken
    a page of HTML with success: asked 2, touched 0, said "Done", completed end_turn
        Protocol: provider: sent a response that is not an answer (text/html): "<html>Sign in</html>"
    429, seconds: asked 2, touched 0, said "Done", completed end_turn
        Unavailable: provider: status 429: Broken (wait 0ns)
    429, milliseconds: asked 2, touched 0, said "Done", completed end_turn
        Unavailable: provider: status 429: Broken (wait 1.5ms)
    429, a date: asked 2, touched 0, said "Done", completed end_turn
        Unavailable: provider: status 429: Broken (wait 0ns)
    429, too long: asked 1, touched 0, said "", failed rate_limited: provider: status 429
        RateLimited: provider: status 429 (wait 3600s)
    500: asked 2, touched 0, said "Done", completed end_turn
        Unavailable: provider: status 500: Broken (wait 1ms)
    529: asked 2, touched 0, said "Done", completed end_turn
        Unavailable: provider: status 529 (wait 1ms)
    529, always: asked 4, touched 0, said "", failed unavailable: provider: status 529
        Unavailable: provider: status 529 (wait 1ms)
    400: asked 1, touched 0, said "", failed bad_request: provider: status 400: no such model
        BadRequest: provider: status 400: no such model
    401: asked 1, touched 0, said "", failed refused: provider: status 401: who are you?
        Refused: provider: status 401: who are you?
    a redirect: asked 1, touched 0, said "", failed bad_request: provider: status 307
        BadRequest: provider: status 307
    "#);
    // Any nonsense is a line of JSON, and Ollama's errors have no code, so the status decides.
    let mut differences = String::new();
    for (provider, table) in providers.iter().zip(&tables) {
        assert_eq!(table.lines().count(), first.lines().count(), "{}", provider.name);
        let mut fault = "";
        for (line, usual) in table.lines().zip(first.lines()) {
            if line != usual {
                let name = provider.name;
                differences += &format!("{name}, {fault}: {}\n", line.trim_start());
            }
            fault = line.split_once(':').map_or(line, |(fault, _)| fault);
        }
    }
    assert_snapshot!(differences, @r"
    ollama, bytes of no sort: Protocol: provider: an event is not the expected JSON
    ollama, 429, seconds: RateLimited: provider: status 429: Broken (wait 0ns)
    ollama, 429, milliseconds: RateLimited: provider: status 429: Broken (wait 1.5ms)
    ollama, 429, a date: RateLimited: provider: status 429: Broken (wait 0ns)
    ");
}
