//! Spans as a collector receives them: OTLP over HTTP, in JSON.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use rustix::process::Signal;
use serde_json::{Value, json};
use wellspring_testkit::{Answer, FakeProvider};

use crate::kit::{Going, Home};
use crate::providers::{anthropic, anthropic_call};

/// An attribute's value without its OTLP wrapper.
fn plain(value: &Value) -> Value {
    let (kind, inner) = value.as_object().unwrap().iter().next().unwrap();
    match kind.as_str() {
        // OTLP writes 64-bit numbers as text.
        "intValue" => json!(inner.as_str().map_or(inner.as_i64(), |it| it.parse().ok())),
        "arrayValue" => inner["values"].as_array().unwrap().iter().map(plain).collect(),
        _ => inner.clone(),
    }
}

/// All received spans, by start time.
pub(crate) fn spans(collector: &FakeProvider) -> Vec<Value> {
    let mut spans: Vec<Value> = Vec::new();
    for asked in collector.asked() {
        assert_eq!(asked.path, "/v1/traces");
        for resource in asked.body["resourceSpans"].as_array().unwrap() {
            let name = resource["resource"]["attributes"].as_array().unwrap().iter();
            let mut name = name.filter(|it| it["key"] == "service.name");
            assert_eq!(plain(&name.next().unwrap()["value"]), "tests");
            for scope in resource["scopeSpans"].as_array().unwrap() {
                spans.extend(scope["spans"].as_array().unwrap().iter().cloned());
            }
        }
    }
    let time = |span: &Value| span["startTimeUnixNano"].as_str().unwrap().parse::<u64>().unwrap();
    spans.sort_by_key(time);
    spans
}

/// The spans as a tree: one line per span, with its attributes, below its parent.
fn tree(collector: &FakeProvider) -> String {
    let spans = spans(collector);
    let traces: std::collections::BTreeSet<_> =
        spans.iter().map(|it| it["traceId"].to_string()).collect();
    assert_eq!(traces.len(), 1, "one run is one trace");
    let mut lines = String::new();
    below(&spans, "", 0, &mut lines);
    lines
}

fn below(spans: &[Value], parent: &str, depth: usize, lines: &mut String) {
    for span in spans {
        if span["parentSpanId"].as_str().unwrap_or_default() != parent {
            continue;
        }
        let indent = "  ".repeat(depth);
        let kind = match span["kind"].as_i64() {
            Some(1) => "internal",
            Some(3) => "client",
            other => panic!("{other:?}"),
        };
        let status = &span["status"]["code"];
        lines.push_str(&format!("{indent}{} [{kind}] {status}\n", span["name"].as_str().unwrap()));
        let attributes = span["attributes"].as_array().unwrap().iter();
        let attributes: BTreeMap<_, _> = attributes
            .map(|it| (it["key"].as_str().unwrap().to_owned(), plain(&it["value"])))
            .collect();
        for (name, value) in attributes {
            lines.push_str(&format!("{indent}    {name} = {}\n", shown(&name, &value)));
        }
        below(spans, span["spanId"].as_str().unwrap(), depth + 1, lines);
    }
}

/// Values that differ between runs are replaced by their kind.
fn shown(name: &str, value: &Value) -> String {
    match name {
        "gen_ai.response.time_to_first_chunk" => {
            assert!(value.as_f64().unwrap() > 0.0);
            "SECONDS".to_owned()
        }
        "wellspring.trace_id" => "HEX".to_owned(),
        "server.port" => "PORT".to_owned(),
        _ => without_ids(&value.to_string()),
    }
}

fn without_ids(text: &str) -> String {
    let is_id = |text: &str| {
        let fits = |(at, c): (usize, char)| match at {
            8 | 13 | 18 | 23 => c == '-',
            _ => c.is_ascii_hexdigit(),
        };
        text.len() == 36 && text.char_indices().all(fits)
    };
    let mut shown = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let id = rest.get(..36).is_some_and(is_id);
        shown.push_str(if id { "UUID" } else { &rest[..first.len_utf8()] });
        rest = &rest[if id { 36 } else { first.len_utf8() }..];
    }
    shown
}

async fn run(content: bool, answers: impl IntoIterator<Item = Answer>) -> (FakeProvider, i32) {
    let fake = FakeProvider::start(answers).await.unwrap();
    let collector = FakeProvider::start([Answer::ok("application/json", "{}")]).await.unwrap();
    let config = format!(
        "[telemetry]\nendpoint = \"{}\"\nservice_name = \"tests\"\ncontent = {content}\n\
         [providers.anthropic]\nbase_url = \"{}\"\n\
         [agents.boss]\nmodel = \"anthropic/large\"\nsub_agents = [\"clerk\"]\n\
         instructions = \"Delegate.\"\nmax_output_tokens = 100\ntemperature = 0.5\n\
         stop_sequences = [\"END\"]\nlimits = {{ attempts = 1 }}\n\
         [agents.clerk]\nmodel = \"anthropic/small\"\ntools = [\"clock\"]\n\
         description = \"Knows the time.\"\n",
        collector.url(),
        fake.url()
    );
    let home = Home::with_files(&[("wellspring.toml", &config)]);
    let mut command = home.paced(0, &["run", "--yes", "--agent", "boss", "What time is it?"]);
    let output = command.env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json").output().unwrap();
    (collector, output.status.code().unwrap())
}

fn answers() -> [Answer; 4] {
    [
        anthropic_call("call-agent", r#"{"agentId":"clerk","input":"The time, please."}"#),
        anthropic_call("clock", r#"{"tz":"Nowhere/Land"}"#),
        anthropic("Nobody knows."),
        anthropic("Late."),
    ]
}

/// An agent that calls another, which calls a tool that fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_a_tree_of_spans() {
    let (collector, code) = run(false, answers()).await;
    assert_eq!(code, 0);
    insta::assert_snapshot!(tree(&collector));
}

/// The spans have the cost of an answer and its id, if the provider reports them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cost_and_the_providers_id_are_told() {
    let choice = |delta: Value, reason: Option<&str>| {
        json!({ "id": "answer-7", "model": "m", "choices": [
            { "index": 0, "delta": delta, "finish_reason": reason },
        ] })
    };
    let usage = json!({ "id": "answer-7", "choices": [],
        "usage": { "prompt_tokens": 3, "completion_tokens": 2, "cost": 0.25 } });
    let events =
        [choice(json!({ "content": "Hi." }), None), choice(json!({}), Some("stop")), usage];
    let mut stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    stream.push_str("data: [DONE]\n\n");
    let fake = FakeProvider::start([Answer::ok("text/event-stream", stream)]).await.unwrap();
    let collector = FakeProvider::start([Answer::ok("application/json", "{}")]).await.unwrap();
    let config = format!(
        "[telemetry]\nendpoint = \"{}\"\nservice_name = \"tests\"\n[providers.router]\n\
         kind = \"openai-chat\"\nbase_url = \"{}\"\n[agents.boss]\nmodel = \"router/m\"\n",
        collector.url(),
        fake.url()
    );
    let home = Home::with_files(&[("wellspring.toml", &config)]);
    let mut command = home.paced(0, &["run", "--yes", "--agent", "boss", "Hi"]);
    let output = command.env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = tree(&collector);
    let told = ["cost", "currency", "response.id", "server.address", "session.id"];
    let lines = tree.lines().filter(|line| told.iter().any(|it| line.contains(it)));
    insta::assert_snapshot!(lines.map(str::trim).collect::<Vec<_>>().join("\n"), @r#"
    gen_ai.usage.cost = 0.25
    session.id = "UUID"
    wellspring.usage.currency = "USD"
    gen_ai.response.id = "answer-7"
    gen_ai.usage.cost = 0.25
    server.address = "127.0.0.1"
    session.id = "UUID"
    wellspring.usage.currency = "USD"
    "#);
}

/// Content is exported only if it is enabled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn content_is_told_when_asked_for() {
    let (collector, code) = run(true, answers()).await;
    assert_eq!(code, 0);
    let tree = tree(&collector);
    let content = tree.lines().filter(|line| {
        ["messages", "instructions", "arguments", "result"].iter().any(|it| line.contains(it))
    });
    let content: Vec<_> = content.map(str::trim).collect();
    insta::assert_snapshot!(content.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failure_is_told() {
    let refused = r#"{"type":"error","error":{"type":"authentication_error","message":"no"}}"#;
    let (collector, code) = run(false, [Answer::status(401, refused)]).await;
    assert_eq!(code, 1);
    let tree = tree(&collector);
    let lines = tree.lines().filter(|line| line.ends_with(" 2") || line.contains("error.type"));
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r#"
    invoke_agent boss [internal] 2
        error.type = "refused"
      chat large [client] 2
          error.type = "refused"
    "#);
}

/// A server that sends its spans to a collector, its home and its address.
pub(crate) async fn exporting_server() -> (FakeProvider, Home, Going, SocketAddr) {
    let collector = FakeProvider::start([Answer::ok("application/json", "{}")]).await.unwrap();
    let config =
        format!("[telemetry]\nendpoint = \"{}\"\nservice_name = \"tests\"\n", collector.url());
    let home = Home::with_files(&[("wellspring.toml", &config)]);
    let mut command = home.paced(0, &["serve", "--listen", "127.0.0.1:0"]);
    command.env("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json");
    let mut server = Going::start(command);
    let address = server.line().unwrap().rsplit('/').next().unwrap().trim().parse().unwrap();
    (collector, home, server, address)
}

/// The span of a run is a child of the span in the HTTP client's request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_lies_below_its_callers_span() {
    let (collector, _home, server, address) = exporting_server().await;
    let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let body = r#"{"agent":"demo","input":"long"}"#;
    let request = format!(
        "POST /v1/runs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         accept: text/event-stream\r\ntraceparent: 00-{trace}-{span}-01\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("run_finished"), "{answer}");
    server.signal(Signal::INT);
    server.end();
    let spans = spans(&collector);
    let below = |parent: &str| -> Vec<(&str, &str)> {
        let children = spans.iter().filter(|it| it["parentSpanId"] == *parent);
        let named =
            children.map(|it| (it["name"].as_str().unwrap(), it["spanId"].as_str().unwrap()));
        named.collect()
    };
    assert!(spans.iter().all(|it| it["traceId"] == trace), "{spans:?}");
    let [(name, root)] = below(span)[..] else { panic!("{spans:?}") };
    assert_eq!(name, "invoke_agent demo");
    assert!(below(root).iter().any(|(name, _)| name.starts_with("chat ")), "{spans:?}");
}

/// `doctor` sends the collector a request without spans.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_doctor_looks_at_the_collector() {
    let accepts = FakeProvider::start([Answer::ok("application/json", "{}")]).await.unwrap();
    let refuses = FakeProvider::start([Answer::status(401, "no")]).await.unwrap();
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gone = format!("http://{gone}");
    let config = "[telemetry]\nheaders = { Authorization = \"Basic ${SECRET}\" }\n\
                  endpoint = \"http://127.0.0.1:1\"\n[server]\nlisten = \"127.0.0.1:0\"\n";
    let home = Home::with_files(&[("wellspring.toml", config)]);
    let mut told = String::new();
    for url in [accepts.url(), refuses.url(), gone] {
        let mut command = home.paced(0, &["doctor"]);
        // A variable overrides the file.
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &url).env("SECRET", "hush");
        let shown = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert!(!shown.contains("hush"), "{shown}");
        let lines = shown.lines().skip_while(|line| !line.contains(" telemetry:"));
        for line in lines {
            told.push_str(&line.replace(&url, "URL"));
            told.push('\n');
        }
    }
    insta::assert_snapshot!(told);
    let asked = accepts.asked();
    let asked = asked.iter();
    let asked = asked.map(|it| (&*it.path, it.header("authorization"), it.header("content-type")));
    let protobuf = Some("application/x-protobuf");
    assert_eq!(asked.collect::<Vec<_>>(), [("/v1/traces", Some("Basic hush"), protobuf)]);
}
