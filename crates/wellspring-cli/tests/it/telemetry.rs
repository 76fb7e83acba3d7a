//! Spans, as a collector gets them: OTLP over HTTP, in JSON.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wellspring_testkit::{Answer, FakeProvider};

use crate::kit::Home;
use crate::providers::{anthropic, anthropic_call};

/// An attribute's value without its wrapping.
fn plain(value: &Value) -> Value {
    let (kind, inner) = value.as_object().unwrap().iter().next().unwrap();
    match kind.as_str() {
        // OTLP writes 64-bit numbers as text.
        "intValue" => json!(inner.as_str().map_or(inner.as_i64(), |it| it.parse().ok())),
        "arrayValue" => inner["values"].as_array().unwrap().iter().map(plain).collect(),
        _ => inner.clone(),
    }
}

/// Every span that came, as a tree: a line each, with its attributes, below its parent.
fn tree(collector: &FakeProvider) -> String {
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

/// What differs every time is shown by its kind.
fn shown(name: &str, value: &Value) -> String {
    match name {
        "gen_ai.response.time_to_first_chunk" => {
            assert!(value.as_f64().unwrap() > 0.0);
            "SECONDS".to_owned()
        }
        "wellspring.trace_id" => "HEX".to_owned(),
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

/// What was said is told only when asked for.
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
