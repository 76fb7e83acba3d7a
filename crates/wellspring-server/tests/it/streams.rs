//! Event streams: detaching, lagging, draining, cursors, pages.

use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Value, json};
use wellspring_core::{Context, Seq};
use wellspring_engine::tools::{NoArguments, function};
use wellspring_models::{Gate, Say};
use wellspring_server::ServerConfig;
use wellspring_wire::DialectName;

use crate::kit::{Kit, agent, config, parse_sse, parts, verify_ag_ui};

fn records(kit_events: &[crate::kit::SseEvent]) -> Vec<Value> {
    kit_events.iter().map(|event| serde_json::from_str(&event.data).unwrap()).collect()
}

#[tokio::test]
async fn detaching_is_not_cancelling() {
    let gate = Gate::new();
    let kit = Kit::new(agent([Say::new().text("one ").gate(&gate).text("two")], [])).await;
    let run = kit.start().await;
    let response = kit.get(&format!("/v1/runs/{run}/events")).send().await.unwrap();
    let mut body = response.bytes_stream();
    let first = body.next().await.unwrap().unwrap();
    assert!(!first.is_empty());
    drop(body);
    gate.open();
    let transcript = kit.wait(run).await;
    assert_eq!(transcript.words(wellspring_core::AgentNo::ROOT), "one two");
}

/// Each invalid cursor gets an error that explains it.
#[tokio::test]
async fn cursors_that_make_no_sense() {
    let kit = Kit::new(agent([Say::new().text("Hello.")], [])).await;
    let run = kit.start().await;
    kit.wait(run).await;
    let mut said = Vec::new();
    for after in ["-1", "x", "1.", "1.2.3", "99999", "99999.1", "18446744073709551616", "now"] {
        let path = format!("/v1/runs/{run}/events?after={after}");
        let (status, _, body) = parts(kit.get(&path).send().await.unwrap()).await;
        said.push(format!("{after}: {status} {}", body["error"]["code"].as_str().unwrap()));
    }
    insta::assert_snapshot!(said.join("\n"), @"
    -1: 400 bad_cursor
    x: 400 bad_cursor
    1.: 400 bad_cursor
    1.2.3: 400 bad_cursor
    99999: 409 cursor_ahead
    99999.1: 409 cursor_ahead
    18446744073709551616: 400 bad_cursor
    now: 400 bad_cursor
    ");
    // The header wins over the URL's parameter, which a browser repeats.
    let path = format!("/v1/runs/{run}/events?after=1");
    let head = kit.runtime.log().store().info(run).await.unwrap().unwrap().head;
    let response = kit.get(&path).header("last-event-id", head.0.to_string()).send().await;
    assert_eq!(response.unwrap().status(), 204, "nothing more will come");
    // A deleted run is not found.
    kit.request(reqwest::Method::DELETE, &format!("/v1/runs/{run}")).send().await.unwrap();
    let (status, _, body) = parts(kit.get(&path).send().await.unwrap()).await;
    assert_eq!((status, body["error"]["code"].as_str()), (404, Some("no_run")));
}

#[tokio::test]
async fn a_run_started_as_a_stream_is_its_events() {
    let kit = Kit::new(agent([Say::new().text("Hello.")], [])).await;
    let body = json!({ "agent": "agent", "input": "go" });
    let request = kit.post("/v1/runs?dialect=agent_event", &body);
    let response = request.header("accept", "text/event-stream").send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let run = response.headers()["x-run-id"].to_str().unwrap().parse().unwrap();
    let text = response.text().await.unwrap();
    assert_eq!(parse_sse(&text), kit.events(run, "agent_event").await);
    assert!(text.ends_with("data: {\"type\":\"final\"}\n\n"), "{text}");
}

/// The data of each server-sent event is one agent event, without a wrapper, and nothing else is
/// sent.
#[tokio::test]
async fn agent_events_over_sse_are_the_events_themselves() {
    let echo = function("echo", "Says it back.", async |_: NoArguments, cx: Context| {
        cx.progress(json!({"subtype": "transfer_progress", "percent": 65})).await;
        Ok("done")
    });
    let turns =
        [Say::new().chunks([" Hm"]).thought("Hm.").call("echo", json!({})), Say::new().text("Hi")];
    let kit = Kit::new(agent(turns, [echo])).await;
    let run = kit.start().await;
    kit.wait(run).await;
    let path = format!("/v1/runs/{run}/events?dialect=agent_event");
    let text = kit.get(&path).send().await.unwrap().text().await.unwrap();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let data: Vec<_> = data.filter(|data| !data.is_empty()).collect();
    insta::assert_snapshot!(data.join("\n"), @r#"
    {"type":"stream","content":" Hm"}
    {"type":"thought","content":"Hm."}
    {"type":"tool_call","toolName":"echo","toolArgs":"{}"}
    {"type":"tool_progress","toolName":"echo","data":{"subtype":"transfer_progress","percent":65}}
    {"type":"tool_result","toolName":"echo","output":"done"}
    {"type":"stream","content":"Hi"}
    {"type":"final"}
    "#);
}

/// A viewer that does not read does not affect the others, and still gets everything.
#[tokio::test]
async fn a_slow_viewer_gets_everything_later() {
    let (gate, long) = (Gate::new(), "word ".repeat(40_000));
    let script = Say::new().text("start").gate(&gate).text(&long);
    let kit = Kit::new(agent([script], [])).await;
    let run = kit.start().await;
    let slow = kit.get(&format!("/v1/runs/{run}/events")).send().await.unwrap();
    let fast = kit.get(&format!("/v1/runs/{run}/events")).send().await.unwrap();
    gate.open();
    let fast = parse_sse(&fast.text().await.unwrap());
    assert!(fast.last().unwrap().data.contains("run_finished"));
    assert_eq!(parse_sse(&slow.text().await.unwrap()), fast);
    let words: String = records(&fast)
        .iter()
        .filter_map(|record| record["event"]["part_delta"]["chunk"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(words, format!("start{long}"));
}

/// A server that shuts down ends its streams with an event of their dialect that has no id.
#[tokio::test]
async fn draining_says_so_and_hands_over() {
    let gate = Gate::new();
    let def = agent([Say::new().text("one ").gate(&gate).text("two")], []);
    let kit = Kit::new(def).await;
    let run = kit.start().await;
    let mut open = Vec::new();
    for dialect in DialectName::ALL {
        let path = format!("/v1/runs/{run}/events?dialect={dialect}");
        open.push((dialect, kit.get(&path).send().await.unwrap()));
    }
    gate.reached(1).await;
    let Kit { server, runtime, .. } = kit;
    let (runtime, stopped) = (runtime, tokio::spawn(server.stop()));
    let mut last = Vec::new();
    for (dialect, response) in open {
        let text = response.text().await.unwrap();
        if dialect == DialectName::AgUi {
            verify_ag_ui(&text, &json!([]));
        }
        let mut events = parse_sse(&text);
        // Some streams have a marker after their last event.
        events.retain(|event| event.data != "[DONE]");
        let event = events.last().unwrap();
        assert_eq!(event.id, None);
        last.push(format!("{dialect}: {:?} {}", event.name, event.data));
    }
    stopped.await.unwrap();
    last.sort_unstable();
    insta::assert_snapshot!(last.join("\n"), @r#"
    acp: Some("closed") {"error":{"code":"draining","message":"the server is shutting down","remedy":"try again shortly; runs continue"}}
    ag_ui: None {"type":"RUN_ERROR","message":"the server is shutting down; try again shortly; runs continue","code":"draining"}
    agent_event: None {"type":"error","error":"the server is shutting down; try again shortly; runs continue"}
    ai_sdk: None {"type":"error","errorText":"the server is shutting down; try again shortly; runs continue"}
    record: Some("closed") {"error":{"code":"draining","message":"the server is shutting down","remedy":"try again shortly; runs continue"}}
    stream_delta: None {"phase":"error","error":"the server is shutting down; try again shortly; runs continue"}
    streaming_event: Some("closed") {"error":{"code":"draining","message":"the server is shutting down","remedy":"try again shortly; runs continue"}}
    thought_event: Some("closed") {"error":{"code":"draining","message":"the server is shutting down","remedy":"try again shortly; runs continue"}}
    turn_event: None {"type":"error","error":{"message":"the server is shutting down; try again shortly; runs continue"}}
    use_ai: None {"type":"RUN_ERROR","message":"API_OVERLOADED","error":"the server is shutting down; try again shortly; runs continue","code":"draining"}
    "#);
    // The run is still there, unfinished, for the next client.
    let info = runtime.log().store().info(run).await.unwrap().unwrap();
    assert!(!info.state.is_final() && info.head > Seq(1));
}

#[tokio::test]
async fn a_quiet_stream_says_that_it_is_alive() {
    let gate = Gate::new();
    let config = ServerConfig { keep_alive: Duration::from_millis(20), ..config() };
    let runtime = wellspring_engine::Runtime::new(wellspring_log::Log::in_memory());
    let def = agent([Say::new().gate(&gate).text("Hello.")], []);
    let kit = Kit::with(config, runtime, def).await;
    let run = kit.start().await;
    let response = kit.get(&format!("/v1/runs/{run}/events")).send().await.unwrap();
    let mut body = response.bytes_stream();
    let mut text = String::new();
    while text.matches(": keep-alive\n\n").count() < 3 {
        text.push_str(std::str::from_utf8(&body.next().await.unwrap().unwrap()).unwrap());
    }
    gate.open();
    while let Some(chunk) = body.next().await {
        text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
    }
    assert!(text.contains("run_finished"));
}

/// The same events, page by page.
#[tokio::test]
async fn pages_are_the_stream_in_pieces() {
    let gate = Gate::new();
    let def = agent([Say::new().text("one ").gate(&gate).text("two")], []);
    let kit = Kit::new(def).await;
    let run = kit.start().await;
    gate.reached(1).await;
    let mut pages = Vec::new();
    let mut next = "0".to_owned();
    for _ in 0..1000 {
        let path = format!("/v1/runs/{run}/events?dialect=agent_event&after={next}&wait=10");
        let request = kit.get(&path).header("accept", "application/json");
        let (status, _, page) = parts(request.send().await.unwrap()).await;
        assert_eq!(status, 200);
        gate.open();
        next = page["next"].as_str().unwrap().to_owned();
        for event in page["events"].as_array().unwrap() {
            pages.push((event["id"].as_str().unwrap().to_owned(), event["data"].to_string()));
        }
        if page["done"] == json!(true) {
            break;
        }
    }
    let stream = kit.events(run, "agent_event").await;
    let stream: Vec<_> = stream
        .into_iter()
        .map(|event| {
            let data: Value = serde_json::from_str(&event.data).unwrap();
            (event.id.unwrap(), data.to_string())
        })
        .collect();
    assert_eq!(pages, stream);
    // Without `wait` it returns the available events at once.
    let path = format!("/v1/runs/{run}/events?after={next}");
    let request = kit.get(&path).header("accept", "application/json");
    let (_, _, page) = parts(request.send().await.unwrap()).await;
    assert_eq!(page, json!({ "events": [], "next": next, "done": true }));
}

/// A client that has all events gets 204, also if the run's end is not an event of its dialect.
/// This stops a browser, which reconnects with its last id.
#[tokio::test]
async fn a_reader_that_has_everything_is_told_not_to_come_back() {
    let kit = Kit::new(agent([Say::new().thought("Hm.").text("Hello.")], [])).await;
    let run = kit.start().await;
    kit.wait(run).await;
    let dialects = DialectName::ALL.map(|dialect| format!("dialect={dialect}"));
    let kinds = ["run_started", "part_delta", "run_finished"].map(|kind| format!("kinds={kind}"));
    for query in dialects.into_iter().chain(kinds) {
        let path = format!("/v1/runs/{run}/events?{query}");
        let events = parse_sse(&kit.get(&path).send().await.unwrap().text().await.unwrap());
        // The marker after a stream's last event has no id.
        let events = events.iter().filter(|event| event.data != "[DONE]");
        let ids: Vec<_> = events.map(|event| event.id.clone().unwrap()).collect();
        let (last, before) = ids.split_last().unwrap();
        let again = async |after: &str| {
            let request = kit.get(&path).header("last-event-id", after);
            request.send().await.unwrap().status().as_u16()
        };
        assert_eq!(again(last).await, 204, "{query}");
        if let Some(one_before) = before.last() {
            assert_eq!(again(one_before).await, 200, "{query}");
        }
    }
    let none = kit.get(&format!("/v1/runs/{run}/events?kinds=question_asked"));
    assert_eq!(none.send().await.unwrap().status(), 204, "there was never any");
}

/// During a shutdown every request gets a response: active runs can be read to their end, and no
/// run starts.
#[tokio::test]
async fn a_server_that_drains_still_answers() {
    let gate = Gate::new();
    let config = ServerConfig { drain: Duration::from_secs(600), ..config() };
    let runtime = wellspring_engine::Runtime::new(wellspring_log::Log::in_memory());
    let def = agent([Say::new().text("one ").gate(&gate).text("two")], []);
    let Kit { server, runtime, client, .. } = Kit::with(config, runtime, def).await;
    let url = format!("http://{}", server.address());
    let start = async |client: &reqwest::Client| {
        let body = json!({ "agent": "agent", "input": "go" });
        parts(client.post(format!("{url}/v1/runs")).json(&body).send().await.unwrap()).await
    };
    let ready = async |client: &reqwest::Client| {
        let (status, _, body) =
            parts(client.get(format!("{url}/readyz")).send().await.unwrap()).await;
        (status, body["error"]["code"].as_str().map(str::to_owned))
    };
    assert_eq!(ready(&client).await, (200, None));
    let (_, _, begun) = start(&client).await;
    let run = begun["run"].as_str().unwrap().parse().unwrap();
    gate.reached(1).await;
    let stopped = tokio::spawn(server.stop());
    let stranger = reqwest::Client::builder().no_proxy().build().unwrap();
    // Nothing signals that the task that stops the server has begun.
    while ready(&stranger).await.0 == 200 {
        tokio::task::yield_now().await;
    }
    assert_eq!(ready(&stranger).await, (503, Some("draining".into())));
    let (status, headers, refused) = start(&stranger).await;
    assert_eq!((status, &refused["error"]["code"]), (503, &json!("draining")));
    assert!(headers.contains_key("retry-after"));
    let watch = stranger.get(format!("{url}/v1/runs/{run}/events")).send().await.unwrap();
    gate.open();
    assert!(watch.text().await.unwrap().contains("run_finished"));
    stopped.await.unwrap();
    assert_eq!(
        runtime.local().wait(run).await.unwrap().answer(wellspring_core::AgentNo::ROOT),
        "one two"
    );
    assert!(stranger.get(format!("{url}/readyz")).send().await.is_err(), "it is gone");
}

/// Only some kinds of records.
#[tokio::test]
async fn records_can_be_chosen_by_kind() {
    let kit = Kit::new(agent([Say::new().text("Hello.")], [])).await;
    let run = kit.start().await;
    let path = format!("/v1/runs/{run}/events?kinds=run_started,run_finished");
    let text = kit.get(&path).send().await.unwrap().text().await.unwrap();
    let all = kit.events(run, "record").await;
    let want: Vec<_> = [all.first(), all.last()].into_iter().flatten().cloned().collect();
    assert_eq!(parse_sse(&text), want);
    for (query, code) in [
        ("kinds=x", "unknown_kind"),
        ("kinds=run_started&dialect=agent_event", "no_option"),
        ("reasoning=hidden", "no_option"),
        ("usage=omitted&dialect=streaming_event", "no_option"),
    ] {
        let (status, _, body) =
            parts(kit.get(&format!("/v1/runs/{run}/events?{query}")).send().await.unwrap()).await;
        assert_eq!((status, body["error"]["code"].as_str()), (400, Some(code)));
    }
}
