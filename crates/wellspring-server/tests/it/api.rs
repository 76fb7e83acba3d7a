//! Our own API.

use serde_json::json;
use wellspring_core::Outcome;
use wellspring_models::{Gate, Say};

use crate::kit::{Kit, agent, models, parts};

#[tokio::test]
async fn a_run_is_started_watched_and_read() {
    let kit = Kit::new(agent([Say::new().thought("Hm.").text("Hello there.")], [])).await;
    let run = kit.start().await;
    let events = kit.events(run, "agent_event").await;
    let events: Vec<_> = events
        .iter()
        .map(|it| format!("{} {}", it.id.as_deref().unwrap_or("-"), it.data))
        .collect();
    insta::assert_snapshot!(events.join("\n"), @r#"
    4 {"type":"thought","content":"Hm."}
    7 {"type":"stream","content":"Hello "}
    8 {"type":"stream","content":"there."}
    11 {"type":"final"}
    "#);
    let (status, _, body) = parts(kit.get(&format!("/v1/runs/{run}")).send().await.unwrap()).await;
    assert_eq!(status, 200);
    assert_eq!(body["answer"], json!("Hello there."));
    assert_eq!(body["state"], json!("completed"));
}

/// Requests with the same key start one run.
#[tokio::test]
async fn a_key_starts_one_run() {
    let kit = Kit::new(agent([Say::new().text("Hello.")], [])).await;
    let body = json!({ "agent": "agent", "input": "go" });
    let ask = async |body: &serde_json::Value| {
        let request = kit.post("/v1/runs", body).header("idempotency-key", "k");
        let (status, headers, body) = parts(request.send().await.unwrap()).await;
        let replayed = headers.contains_key("idempotent-replayed");
        (status, replayed, body["run"].as_str().unwrap_or_default().to_owned())
    };
    let answers = futures::future::join_all((0..8).map(|_| ask(&body))).await;
    let started: Vec<_> = answers.iter().filter(|(status, ..)| *status == 201).collect();
    assert_eq!(started.len(), 1);
    assert!(
        answers.iter().all(|(status, replayed, run)| {
            *run == started[0].2 && *replayed == (*status == 200)
        })
    );
    let (_, _, runs) = parts(kit.get("/v1/runs").send().await.unwrap()).await;
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1);
    let other = json!({ "agent": "agent", "input": "go away" });
    assert_eq!(ask(&other).await, (422, false, String::new()));
    // A failed request changes nothing.
    let wrong = json!({ "agent": "nobody", "input": "go" });
    let request = kit.post("/v1/runs", &wrong).header("idempotency-key", "l");
    let (status, _, body) = parts(request.send().await.unwrap()).await;
    assert_eq!((status, body["error"]["code"].as_str()), (404, Some("no_agent")));
    let long = "k".repeat(256);
    for key in ["", "two words", "\u{e9}", &long] {
        let key = reqwest::header::HeaderValue::from_bytes(key.as_bytes()).unwrap();
        let request = kit.post("/v1/runs", &other).header("idempotency-key", key);
        let (status, _, body) = parts(request.send().await.unwrap()).await;
        assert_eq!((status, body["error"]["code"].as_str()), (400, Some("bad_idempotency_key")));
    }
}

/// A chain of references that would overflow the stack if it were compiled and validated
/// recursively.
fn endless_schema() -> serde_json::Value {
    let defs = (0..4000).map(|number| {
        (format!("d{number}"), json!({ "$ref": format!("#/$defs/d{}", number + 1) }))
    });
    json!({ "$ref": "#/$defs/d0", "$defs": defs.collect::<serde_json::Map<_, _>>() })
}

/// Invalid bodies and queries get an error that explains what is wrong.
#[tokio::test]
async fn requests_that_make_no_sense() {
    let kit = Kit::new(agent([Say::new().text("Hello.")], [])).await;
    let run = kit.start().await;
    kit.wait(run).await;
    let mut said = Vec::new();
    for (path, body) in [
        ("/v1/runs", json!({})),
        ("/v1/runs", json!([])),
        ("/v1/runs", json!({ "agent": "agent" })),
        ("/v1/runs", json!({ "agent": "agent", "input": 1 })),
        ("/v1/runs", json!({ "agent": "agent", "input": [] })),
        ("/v1/runs", json!({ "agent": "agent", "input": "x", "more": 1 })),
        ("/v1/runs", json!({ "agent": "agent", "input": "x", "thread": "t" })),
        ("/v1/runs", json!({ "agent": "agent", "input": "x", "model": "m" })),
        (
            "/v1/runs",
            json!({ "agent": "agent", "input": "x", "result_schema": { "type": "objekt" } }),
        ),
        ("/v1/runs", json!({ "agent": "agent", "input": "x", "result_schema": endless_schema() })),
        ("/v1/runs?dialect=x", json!({ "agent": "agent", "input": "x" })),
        ("/v1/runs?x=y", json!({ "agent": "agent", "input": "x" })),
        ("{run}/answers", json!({ "question": 0, "answer": "expired" })),
        ("{run}/answers", json!({ "question": 0, "answer": { "approve": {} } })),
        ("{run}/tool-results", json!({ "call": 0, "output": 1 })),
        ("{run}/input", json!({ "content": "more" })),
        ("{run}/stream-url", json!({ "seconds": 0 })),
    ] {
        let path = path.replace("{run}", &format!("/v1/runs/{run}"));
        let (status, _, body) = parts(kit.post(&path, &body).send().await.unwrap()).await;
        let error = &body["error"];
        let message = error["message"].as_str().unwrap().replace(&run.to_string(), "RUN");
        // The list of dialects is in the message; other tests check it.
        let message = message.split(": known are").next().unwrap();
        said.push(format!("{status} {} {message}", error["code"].as_str().unwrap()));
    }
    insta::assert_snapshot!(said.join("\n"), @r#"
    400 bad_json the body: missing field `agent` at line 1 column 2
    400 bad_json the body: a list, where an object belongs
    400 bad_json the body: missing field `input` at line 1 column 17
    400 bad_json the body: invalid type: integer `1`, expected a text, or a list of content blocks at line 1 column 26
    400 no_input `input` is empty
    400 bad_json the body: unknown field `more`, expected one of `agent`, `input`, `thread`, `after`, `model`, `streaming`, `result_schema`, `client_tools`, `context`, `state` at line 1 column 35
    404 no_thread there is no thread t
    400 model_not_allowed the agent agent does not allow a request to choose its model; leave the model out
    422 bad_result_schema the result cannot be typed: the schema cannot be used: /properties/value/type: value is not valid under any of the schemas listed in the 'anyOf' keyword; closest: /properties/value/type: value is not one of "array", "boolean" or 5 other candidates
    422 bad_result_schema the result cannot be typed: the schema cannot be used: it is nested deeper than 512, references included
    400 unknown_dialect "x" is not a dialect
    400 bad_query Failed to deserialize query string: x: unknown field `x`, expected `dialect` or `model`
    409 finished run RUN has already finished
    409 finished run RUN has already finished
    409 finished run RUN has already finished
    409 finished run RUN has already finished
    400 bad_seconds `seconds` is 1 to 3600
    "#);
    let nothing = kit.get("/nothing").send().await.unwrap();
    assert_eq!(parts(nothing).await.2["error"]["code"], json!("no_route"));
    let wrong = kit.request(reqwest::Method::PUT, "/v1/runs").send().await.unwrap();
    assert_eq!(parts(wrong).await.2["error"]["code"], json!("wrong_method"));
}

/// Runs continue threads, and lists are paged.
#[tokio::test]
async fn threads_and_pages() {
    let kit = Kit::new(agent([Say::new().text("Hello.")], [])).await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        let run = kit.start().await;
        kit.wait(run).await;
        runs.push(run.to_string());
    }
    let info = kit.runtime.log().store().info(runs[0].parse().unwrap()).await.unwrap().unwrap();
    let body = json!({ "agent": "agent", "input": "more", "thread": info.thread });
    let (_, _, second) = parts(kit.post("/v1/runs", &body).send().await.unwrap()).await;
    assert_eq!(second["after"], json!(runs[0]));
    kit.wait(second["run"].as_str().unwrap().parse().unwrap()).await;
    let (_, _, thread) =
        parts(kit.get(&format!("/v1/threads/{}", info.thread)).send().await.unwrap()).await;
    let of_thread: Vec<_> =
        thread["runs"].as_array().unwrap().iter().map(|it| &it["run"]).collect();
    assert_eq!(of_thread, [&json!(runs[0]), &second["run"]]);
    assert_eq!(thread["next"], json!(null));
    // A thread's newest runs come first, page by page; within a page, the oldest run is first.
    let page = async |query: &str| {
        let path = format!("/v1/threads/{}{query}", info.thread);
        let (status, _, page) = parts(kit.get(&path).send().await.unwrap()).await;
        (status, page["runs"].clone(), page["next"].clone())
    };
    let one = |at: usize| json!([thread["runs"][at]]);
    assert_eq!(page("?limit=1").await, (200, one(1), second["run"].clone()));
    let after = format!("?limit=1&after={}", second["run"].as_str().unwrap());
    assert_eq!(page(&after).await, (200, one(0), json!(runs[0])));
    assert_eq!(page(&format!("?after={}", runs[0])).await, (200, json!([]), json!(null)));
    for (path, field, id, all) in
        [("/v1/runs", "runs", "run", 4), ("/v1/threads", "threads", "thread", 3)]
    {
        let (_, _, whole) = parts(kit.get(path).send().await.unwrap()).await;
        let ids = |page: &serde_json::Value| -> Vec<serde_json::Value> {
            page[field].as_array().unwrap().iter().map(|it| it[id].clone()).collect()
        };
        let (mut paged, mut next) = (Vec::new(), String::new());
        loop {
            let path = format!("{path}?limit=1{next}");
            let (_, _, page) = parts(kit.get(&path).send().await.unwrap()).await;
            paged.extend(ids(&page));
            match page["next"].as_str() {
                Some(run) => next = format!("&after={run}"),
                None => break,
            }
        }
        assert_eq!(paged.len(), all, "{path}");
        assert_eq!(paged, ids(&whole), "{path}");
    }
}

/// A thread is found by its title and by its text, renamed, archived and deleted; another tenant's
/// thread is not found.
#[tokio::test]
async fn threads_are_found_renamed_archived_and_deleted() {
    let kit = Kit::new(agent([Say::new().text("The penguins are well.")], [])).await;
    let mut threads = Vec::new();
    for input in ["How is the weather in Rome?", "And the zoo?"] {
        let body = json!({ "agent": "agent", "input": input });
        let (_, _, run) = parts(kit.post("/v1/runs", &body).send().await.unwrap()).await;
        kit.wait(run["run"].as_str().unwrap().parse().unwrap()).await;
        threads.push(run["thread"].as_str().unwrap().to_owned());
    }
    let found = async |query: &str| {
        let path = format!("/v1/threads{query}");
        let (_, _, page) = parts(kit.get(&path).send().await.unwrap()).await;
        let titles = page["threads"].as_array().unwrap().iter().map(|it| it["title"].to_string());
        titles.collect::<Vec<_>>().join(" ")
    };
    let (rome, zoo) = ("\"How is the weather in Rome?\"", "\"And the zoo?\"");
    assert_eq!(found("").await, format!("{zoo} {rome}"));
    assert_eq!(found("?search=rome%20WEA").await, rome);
    assert_eq!(found("?search=penguin").await, format!("{zoo} {rome}"));
    assert_eq!(found("?search=penguin&limit=1").await, zoo);
    assert_eq!(found("?search=lions").await, "");

    let path = format!("/v1/threads/{}", threads[0]);
    let change = async |path: &str, body: serde_json::Value| {
        let request = kit.request(reqwest::Method::PATCH, path).json(&body);
        let (status, _, body) = parts(request.send().await.unwrap()).await;
        (status, body)
    };
    let (status, changed) = change(&path, json!({ "title": "Rome" })).await;
    assert_eq!((status, &changed["title"], &changed["runs"]), (200, &json!("Rome"), &json!(1)));
    let (status, changed) = change(&path, json!({ "archived": true })).await;
    assert_eq!(
        (status, &changed["title"], &changed["archived"]),
        (200, &json!("Rome"), &json!(true))
    );
    assert_eq!(found("").await, zoo);
    assert_eq!(found("?archived=true").await, "\"Rome\"");
    for (path, body, want) in [
        (&*path, json!({ "title": "two\nlines" }), (400, "bad_title")),
        (&*path, json!({ "titel": "x" }), (400, "bad_json")),
        ("/v1/threads/nothing", json!({}), (404, "no_thread")),
        ("/v1/threads/00000000-0000-0000-0000-000000000000", json!({}), (404, "no_thread")),
    ] {
        let (status, body) = change(path, body).await;
        assert_eq!((status, body["error"]["code"].as_str().unwrap()), want, "{path}");
    }
    let delete =
        async || kit.request(reqwest::Method::DELETE, &path).send().await.unwrap().status();
    assert_eq!(delete().await, 204);
    assert_eq!(delete().await, 404);
    assert_eq!(kit.get(&path).send().await.unwrap().status(), 404);
    assert_eq!(found("?archived=true").await, "");
    assert_eq!(found("").await, zoo);
}

/// The result of a client's tool reaches the run, which continues with it.
#[tokio::test]
async fn a_tool_of_the_client_is_answered() {
    let turns = [Say::new().call("paint", json!({ "colour": "blue" })), Say::new().text("Done.")];
    let kit = Kit::new(agent(turns, [])).await;
    let body = json!({
        "agent": "agent", "input": "go",
        "client_tools": [{ "name": "paint", "runs_on": "client" }],
    });
    let (status, _, run) = parts(kit.post("/v1/runs", &body).send().await.unwrap()).await;
    assert_eq!(status, 201, "{run}");
    let run = run["run"].as_str().unwrap().parse().unwrap();
    kit.paused(run).await;
    let (_, _, waits) = parts(kit.get(&format!("/v1/runs/{run}")).send().await.unwrap()).await;
    let call = &waits["waits_for"]["calls"][0];
    assert_eq!(call["tool"], json!("paint"));
    assert_eq!(call["arguments"], json!(r#"{"colour":"blue"}"#));
    let path = format!("/v1/runs/{run}/tool-results");
    let result = json!({ "call": call["call"], "output": "painted" });
    let (status, _, put) = parts(kit.post(&path, &result).send().await.unwrap()).await;
    assert_eq!((status, &put["existed"]), (202, &json!(false)), "{put}");
    let transcript = kit.wait(run).await;
    assert_eq!(transcript.answer(wellspring_core::AgentNo::ROOT), "Done.");
    let (status, _, body) = parts(kit.post(&path, &result).send().await.unwrap()).await;
    assert_eq!((status, body["error"]["code"].as_str()), (409, Some("finished")));
}

/// Input is added once per key. A cancelled run keeps who cancelled it, and why.
#[tokio::test]
async fn a_run_is_steered_and_stopped() {
    let gate = Gate::new();
    let kit = Kit::new(agent([Say::new().text("one ").gate(&gate).text("two")], [])).await;
    let run = kit.start().await;
    gate.reached(1).await;
    let mut taken = Vec::new();
    for key in ["k", "k", "l"] {
        let more = json!({ "content": "more" });
        let request = kit.post(&format!("/v1/runs/{run}/input"), &more);
        let (status, _, put) =
            parts(request.header("idempotency-key", key).send().await.unwrap()).await;
        assert_eq!(status, 202);
        taken.push((put["inbox"].as_u64().unwrap(), put["existed"].as_bool().unwrap()));
    }
    assert_eq!(taken, [(1, false), (1, true), (2, false)]);
    let path = format!("/v1/runs/{run}/cancel");
    let (status, ..) =
        parts(kit.post(&path, &json!({ "why": "enough" })).send().await.unwrap()).await;
    assert_eq!(status, 202);
    let transcript = kit.wait(run).await;
    let Some(Outcome::Cancelled { by, why, .. }) = transcript.outcome else {
        panic!("{:?}", transcript.outcome)
    };
    assert_eq!((by.as_deref(), why.as_deref()), (Some("local"), Some("enough")));
    let (status, _, body) = parts(kit.post(&path, &json!({})).send().await.unwrap()).await;
    assert_eq!((status, &body["state"]), (200, &json!("cancelled")));
}

/// An export equals the log. A deleted run is not found.
#[tokio::test]
async fn exported_and_deleted() {
    let kit = Kit::new(agent([Say::new().text("Hello.")], [])).await;
    let run = kit.start().await;
    kit.wait(run).await;
    let text =
        kit.get(&format!("/v1/runs/{run}/export")).send().await.unwrap().text().await.unwrap();
    let lines: Vec<_> = text.lines().collect();
    let records = kit.events(run, "record").await;
    assert_eq!(lines, records.iter().map(|it| it.data.as_str()).collect::<Vec<_>>());
    let path = format!("/v1/runs/{run}");
    let gone = kit.request(reqwest::Method::DELETE, &path).send().await.unwrap();
    assert_eq!(gone.status(), 204);
    assert_eq!(kit.get(&path).send().await.unwrap().status(), 404);
}

/// A request over HTTP/2 without an upgrade (prior knowledge).
#[tokio::test]
async fn http2_is_spoken() {
    let kit = Kit::new(agent([Say::new().text("Hello.")], [])).await;
    let run = kit.start().await;
    let client = reqwest::Client::builder().http2_prior_knowledge().no_proxy().build().unwrap();
    let url = kit.url(&format!("/v1/runs/{run}/events"));
    let response = client.get(url).send().await.unwrap();
    assert_eq!(response.version(), reqwest::Version::HTTP_2);
    assert_eq!(
        crate::kit::parse_sse(&response.text().await.unwrap()),
        kit.events(run, "record").await
    );
}

/// Streams are never compressed; other responses are, if the client accepts it.
#[tokio::test]
async fn only_streams_are_not_compressed() {
    let kit = Kit::new(agent([Say::new().text("Hello.")], [])).await;
    let run = kit.start().await;
    let encoding = async |path: &str, accept: &str| {
        let client = reqwest::Client::builder().no_proxy().no_gzip().build().unwrap();
        let request = client.get(kit.url(path)).header("accept-encoding", "gzip");
        let response = request.header("accept", accept).send().await.unwrap();
        let media_type = response.headers()["content-type"].to_str().unwrap().to_owned();
        let encoding = response.headers().get("content-encoding");
        (media_type, encoding.map(|it| it.to_str().unwrap().to_owned()))
    };
    let plain = |media_type: &str| (media_type.to_owned(), None);
    let packed = |media_type: &str| (media_type.to_owned(), Some("gzip".to_owned()));
    assert_eq!(encoding("/openapi.json", "*/*").await, packed("application/json"));
    let events = format!("/v1/runs/{run}/events");
    assert_eq!(encoding(&events, "text/event-stream").await, plain("text/event-stream"));
    assert_eq!(encoding(&events, "application/json").await, packed("application/json"));
    let ag_ui = format!("/ag-ui/agent/runs/{run}");
    assert_eq!(encoding(&ag_ui, "text/event-stream").await, plain("text/event-stream"));
    let binary = "application/vnd.ag-ui.event+proto";
    assert_eq!(encoding(&ag_ui, binary).await, plain(binary));
}

/// Where the agent allows it, a request may name another model of its provider.
#[tokio::test]
async fn a_request_may_name_a_model() {
    let mut def = agent([Say::new().text("Hello.")], []);
    def.allow_model = true;
    let kit = Kit::new(def).await;
    let mut used = Vec::new();
    for (path, model) in [
        ("/v1/runs", json!(null)),
        ("/v1/runs", json!("large")),
        ("/v1/runs?model=small", json!(null)),
        ("/v1/runs?model=small", json!("large")),
    ] {
        let body = json!({ "agent": "agent", "input": "Hi", "model": model });
        let (status, _, body) = parts(kit.post(path, &body).send().await.unwrap()).await;
        assert_eq!(status, 201, "{body}");
        let run = body["run"].as_str().unwrap().parse().unwrap();
        used.push(models(&kit.wait(run).await));
    }
    assert_eq!(used, [["scripted"], ["large"], ["small"], ["large"]]);
}
