//! Third-party programs against our server.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use wellspring_core::{
    Approval, Context, FailureKind, Message, Model, PlanEntry, PlanStatus, Priority, Source, Tool,
    ToolResult, ToolSpec, Usage,
};
use wellspring_engine::Permission;
use wellspring_engine::tools::from_function;
use wellspring_engine::{AgentDef, Policy, Rule, Runtime};
use wellspring_log::Log;
use wellspring_models::{Failure, Gate, Say, Scripted};
use wellspring_server::{ServerConfig, ServerLimits};
use wellspring_testkit::{SOAK, soak};

use crate::kit::{Kit, agent, config, has_peer, parts};

/// Requests of all kinds, generated from the OpenAPI description: no request fails with an error of
/// the server, and every response matches the description.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemathesis() {
    if !has_peer("WELLSPRING_PEER_SCHEMATHESIS") {
        return;
    }
    let limits = ServerLimits { requests_per_token: 1_000_000, ..ServerLimits::default() };
    let config = ServerConfig { limits, ..config() };
    let mut def = agent([Say::new().text("Hello there.")], []);
    def.allow_model = true;
    let named =
        |name: &str, def: AgentDef| AgentDef { name: name.into(), allow_model: true, ..def };
    let mut kit = Kit::with(config, Runtime::new(Log::in_memory()), def).await;
    // Routes about all tenants are included.
    let tokens = kit.server.tokens();
    kit.token = Some(tokens.create("st", "default", &[Permission::Admin]).await.unwrap());
    let echo = Say::new().call("echo", json!({ "say": "x" }));
    let mut asks = agent([echo, Say::new().text("Done.")], [crate::kit::echo()]);
    asks.policy = Policy::default().rule(Rule::tool("*").decide(Approval::Ask));
    kit.runtime.register(named("asks", asks));
    let paint = Say::new().call("paint", json!({ "colour": "blue" }));
    let paints = agent([paint, Say::new().text("Painted.")], []);
    kit.runtime.register(named("paints", paints));
    let mut runs = json!({});
    for (kind, name, count) in [
        ("stays", "agent", 1),
        ("done", "agent", 20),
        ("asks", "asks", 60),
        ("paints", "paints", 20),
    ] {
        let mut of_kind = Vec::new();
        for _ in 0..count {
            let body =
                json!({ "agent": name, "input": "go", "client_tools": [{ "name": "paint" }] });
            let (status, _, body) = parts(kit.post("/v1/runs", &body).send().await.unwrap()).await;
            assert_eq!(status, 201, "{body}");
            let run = body["run"].as_str().unwrap().parse().unwrap();
            if name == "agent" {
                kit.wait(run).await;
            } else {
                kit.paused(run).await;
            }
            of_kind.push(json!({ "run": body["run"], "thread": body["thread"] }));
        }
        runs[kind] = json!(of_kind);
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = tempfile::tempdir().unwrap();
    let tally = own.path().join("tally");
    let mut schemathesis =
        Command::new(here.join("../../target/peers/schemathesis/bin/schemathesis"));
    schemathesis
        .arg("--config-file")
        .arg(here.join("tests/peer/schemathesis.toml"))
        .arg("run")
        .arg(kit.url("/openapi.json"))
        .args(["--header", &format!("Authorization: Bearer {}", kit.token.as_ref().unwrap())])
        .args(["--max-examples", &soak(20, 500).to_string()])
        .args(["--seed", "7", "--request-timeout", "10", "--no-color"])
        .env("SCHEMATHESIS_HOOKS", "schemathesis_hooks")
        .env("PYTHONPATH", here.join("tests/peer"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("WELLSPRING_RUNS", runs.to_string())
        .env("WELLSPRING_TALLY", &tally)
        .current_dir(own.path());
    // The generated requests vary from run to run, so requests that should be refused are only
    // checked in a soak, where there is time to reproduce a failure.
    if std::env::var_os(SOAK).is_none() {
        schemathesis.args(["--exclude-checks", "negative_data_rejection"]);
    }
    let output = schemathesis.output().await.unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    // Every operation succeeded at least once, so its successful responses were checked too.
    let tally = std::fs::read_to_string(tally).unwrap();
    let worked: BTreeSet<&str> = tally
        .lines()
        .filter_map(|line| line.strip_prefix('2')?.split_once(' '))
        .map(|it| it.1)
        .collect();
    let (_, _, described) = parts(kit.get("/openapi.json").send().await.unwrap()).await;
    let all = described["paths"].as_object().unwrap().iter().flat_map(|(path, operations)| {
        let methods = operations.as_object().unwrap().keys();
        methods.map(move |method| format!("{} {path}", method.to_ascii_uppercase()))
    });
    let asked = all.filter(|label| !NOT_ASKED.contains(&&**label));
    let never: Vec<_> = asked.filter(|label| !worked.contains(&**label)).collect();
    assert_eq!(never, [""; 0], "these did not work once");
}

/// Not generated from the description: the description itself, and sockets.
const NOT_ASKED: [&str; 6] = [
    "GET /ai-sdk/{agent}/socket",
    "GET /openapi.json",
    "GET /socket.io/",
    "GET /use-ai",
    "GET /v1/socket",
    "POST /socket.io/",
];

/// The official AG-UI client: text, reasoning, a tool in the page, an interrupt, an abort, a
/// re-attach, a cancellation and a drain.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ag_ui_client() {
    if !has_peer("WELLSPRING_PEER_AG_UI") {
        return;
    }
    let kit = Kit::new(agent([], [])).await;
    let register = |name: &str, def: AgentDef| {
        kit.runtime.register(AgentDef { name: name.into(), ..def });
    };
    register("talk", agent([Say::new().thought("Hm, what now?").text("Hello there.")], []));
    let paint = Say::new().call("paint", json!({"colour": "blue"}));
    register("paint", agent([paint, Say::new().text("Painted.")], []));
    let echo = Say::new().call("echo", json!({"say": "x"}));
    let mut ask = agent([echo, Say::new().text("Done.")], [crate::kit::echo()]);
    ask.policy = Policy::default().rule(Rule::tool("*").decide(Approval::Ask));
    register("ask", ask);
    let pause = Duration::from_millis(100);
    register(
        "slow",
        agent([Say::new().text("one two ").unfinished().wait(pause).more(0, "three four")], []),
    );
    register("stuck", agent([Say::new().text("one ").hang()], []));
    insta::assert_snapshot!(kit.driven_by("ag_ui.mjs").await, @"
    text and reasoning, twice in one thread
    a tool in the page, and on with its result
    an interrupt, and on after an approval
    aborting detaches, and the same run id attaches again
    cancelled, and told so
    a drain is reported
    ");
}

/// The AI SDK's own chat, over both of its transports.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ai_sdk_transports() {
    if !has_peer("WELLSPRING_PEER_AI_SDK") {
        return;
    }
    let kit = Kit::new(agent([], [])).await;
    ai_sdk_agents(&kit);
    insta::assert_snapshot!(kit.driven_by("ai_sdk.mjs").await);
}

fn ai_sdk_agents(kit: &Kit) {
    let register = |name: &str, def: AgentDef| {
        kit.runtime.register(AgentDef { name: name.into(), ..def });
    };
    register("talk", agent([Say::new().thought("Hm, what now?").text("Hello there.")], []));
    let spec = ToolSpec::new("work", "works");
    let work = from_function(spec, |_: Value, context: Context| async move {
        context.progress(json!({"percent": 50})).await;
        Ok(ToolResult::new("worked"))
    });
    let usage = Usage { input: 3, output: 4, ..Usage::default() };
    let call = Say::new().call("work", json!({})).usage(usage);
    register("work", agent([call, Say::new().text("Done.")], [work]));
    let paint = Say::new().call("paint", json!({"colour": "blue"}));
    register("paint", agent([paint, Say::new().text("Painted.")], []));
    let echo = |say: &str| Say::new().call("echo", json!({"say": say}));
    let mut ask = agent([echo("x"), Say::new().text("Done.")], [crate::kit::echo()]);
    ask.policy = Policy::default().rule(Rule::tool("*").decide(Approval::Ask));
    register("ask", ask);
    let pause = Duration::from_millis(400);
    register(
        "slow",
        agent([Say::new().text("one two ").unfinished().wait(pause).more(0, "three four")], []),
    );
    register("stuck", agent([Say::new().text("one ").hang()], []));
    let failure = Failure::new(FailureKind::Refused, "no luck");
    register("fails", agent([Say::new().text("one ").fail(failure)], []));
    // Every second attempt at its first turn breaks off after its calls.
    let attempts = AtomicU32::new(0);
    let retries = Scripted::with(move |request| {
        if request.messages.iter().any(|it| matches!(it, Message::Results { .. })) {
            return Say::new().text("Right.");
        }
        let source = Source { url: Some("https://a.example".into()), ..Source::default() };
        let attempt = |text: &str| {
            let said = Say::new().thought("Hm").text(text).source(source.clone());
            said.call("plans", json!({})).call("echo", json!({"say": text}))
        };
        if attempts.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            return attempt("Wro").break_off();
        }
        attempt("Let me see.")
    });
    let spec = ToolSpec { idempotent: true, ..ToolSpec::new("plans", "shows a plan") };
    let plans = from_function(spec, |_: Value, context: Context| async move {
        let (status, priority) = (PlanStatus::InProgress, Priority::Medium);
        context.plan(vec![PlanEntry { content: "look".into(), status, priority }]).await;
        Ok(ToolResult::new("planned"))
    });
    let model: Arc<dyn Model> = Arc::new(retries);
    let tools: Vec<Arc<dyn Tool>> = vec![Arc::new(plans), Arc::new(crate::kit::echo())];
    register("retries", AgentDef { tools, ..AgentDef::model("retries", model) });
    let counts = Scripted::with(|request| {
        let count = request.messages.len();
        Say::new().text(format!("{count} message{}", if count == 1 { "" } else { "s" }))
    });
    register("counts", AgentDef::model("counts", Arc::new(counts)));
    let gate = Gate::new();
    let gated = Say::new().text("one ").unfinished().gate(&gate).more(0, "two");
    let steered = Scripted::with(move |request| {
        if request.messages.len() == 1 { gated.clone() } else { Say::new().text("Faster.") }
    });
    register("steered", AgentDef::model("steered", Arc::new(steered)));
    let passes = Scripted::with(move |_| {
        gate.pass();
        Say::new().text("passed")
    });
    register("passes", AgentDef::model("passes", Arc::new(passes)));
    let asks = [Say::new().call("asks", json!({})), Say::new().text("Thank you.")];
    register("questions", agent(asks, [crate::page::asks()]));
}

/// A browser's own `EventSource`, through a proxy that cuts it off repeatedly: it reconnects with
/// its last id, misses nothing, and stops when the server reports that nothing follows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chromium_event_source() {
    if !has_peer("WELLSPRING_PEER_CHROMIUM") {
        return;
    }
    let words = "These are a few words that come in pieces, each one on its own.";
    let mut kit = Kit::new(agent([Say::new().text(words)], [])).await;
    kit.token = Some(kit.server.tokens().create("t", "one", &[Permission::Admin]).await.unwrap());
    let run = kit.start().await;
    kit.wait(run).await;
    let sign = kit.post(&format!("/v1/runs/{run}/stream-url"), &json!({}));
    let signed: serde_json::Value = sign.send().await.unwrap().json().await.unwrap();
    let url = format!("{}&dialect=agent_event", signed["url"].as_str().unwrap());
    let page = format!(
        "<pre id=out></pre><script>
        const source = new EventSource('{url}');
        source.onmessage = (it) => {{ out.textContent += it.lastEventId + ' ' + it.data + '\\n'; }};
        </script>"
    );
    let (proxy, connections) = cutting_proxy(kit.server.address(), page).await;
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=60000"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(["--dump-dom", &format!("http://localhost:{}/page", proxy.port())])
        .output()
        .await
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let start = dom.find("<pre id=\"out\">").unwrap() + "<pre id=\"out\">".len();
    let seen = &dom[start..dom[start..].find("</pre>").unwrap() + start];
    let events = kit.events(run, "agent_event").await;
    let want: String =
        events.iter().map(|it| format!("{} {}\n", it.id.as_deref().unwrap(), it.data)).collect();
    assert_eq!(seen, want);
    assert!(connections.load(Ordering::Relaxed) > 3, "it was cut off");
}

/// Serves one page. Of every other response, it forwards only a number of bytes.
async fn cutting_proxy(server: SocketAddr, page: String) -> (SocketAddr, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let (page, counted) = (page.clone(), Arc::clone(&counted));
            tokio::spawn(async move {
                let mut request = vec![0; 16 * 1024];
                let read = client.read(&mut request).await.unwrap();
                if request.starts_with(b"GET /page ") {
                    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close";
                    let answer = format!("{head}\r\n\r\n{page}");
                    client.write_all(answer.as_bytes()).await.unwrap();
                    return;
                }
                let round = counted.fetch_add(1, Ordering::Relaxed);
                let upstream = TcpStream::connect(server).await.unwrap();
                let (answer, mut question) = upstream.into_split();
                question.write_all(&request[..read]).await.unwrap();
                // The response's head takes about 300 of them.
                let mut some = answer.take(500 + u64::from(round) * 37);
                // The browser may have disconnected.
                let _ = tokio::io::copy(&mut some, &mut client).await;
            });
        }
    });
    (address, connections)
}
