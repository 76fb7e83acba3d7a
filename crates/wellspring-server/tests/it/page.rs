//! The page at `/`, in a real browser, used as a person would.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, mpsc};
use wellspring_core::{
    Approval, Ask, Choice, FailureKind, Form, Model, Tool, ToolResult, ToolSpec,
};
use wellspring_engine::tools::{FunctionTool, from_function, update_plan};
use wellspring_engine::{AgentDef, Policy, Rule};
use wellspring_models::{Attempts, Failure, Gate, Say, Scripted};

use crate::kit::{Kit, agent, echo, has_peer};

/// Time limit of a whole browser test.
const PATIENCE: Duration = Duration::from_secs(120);

/// A tool that reports progress and waits.
fn work(gate: &Arc<Semaphore>) -> FunctionTool {
    let gate = Arc::clone(gate);
    let spec = ToolSpec { idempotent: true, ..ToolSpec::new("work", "works") };
    from_function(spec, move |_: Value, context| {
        let gate = Arc::clone(&gate);
        async move {
            context.progress(json!({ "content": "half of it\n", "percent": 50 })).await;
            gate.acquire().await.unwrap().forget();
            Ok(ToolResult::new("all of it"))
        }
    })
}

/// An agent that shows every feature. It waits at each point that the script checks.
fn busy(thinking: &Gate, working: &Arc<Semaphore>, talking: &Gate, never: &Gate) -> AgentDef {
    let plan = json!({ "entries": [
        { "content": "Look", "status": "in_progress" }, { "content": "Tell" },
    ] });
    let turns = [
        Say::new().thought("I should look first.").gate(thinking).call("update_plan", plan),
        Say::new().call("work", json!({ "on": "the matter" })),
        Say::new().call("echo", json!({ "say": "hello" })),
        Say::new().text("one ").gate(talking).text("two"),
        Say::new().text("Brief, then."),
        Say::new().text("a").gate(never).text(" b"),
    ];
    let model: Arc<dyn Model> = Arc::new(Scripted::conversation(turns));
    let tools = [update_plan(), work(working), echo()];
    let tools = tools.map(|tool| Arc::new(tool) as Arc<dyn Tool>).to_vec();
    let policy = Policy::default().rule(Rule::tool("echo").decide(Approval::Ask));
    AgentDef { tools, policy, ..AgentDef::model("agent", model) }
}

/// Thoughts that fold, tool cards with progress, the plan, a question, steering, stopping and
/// reloading. Every stream is cut off repeatedly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_uses_the_page() {
    if !has_chromium() {
        return;
    }
    let (thinking, talking, never) = (Gate::new(), Gate::new(), Gate::new());
    let working = Arc::new(Semaphore::new(0));
    let kit = Kit::new(busy(&thinking, &working, &talking, &never)).await;
    let said = in_browser(&kit, "use", "", |passed| match passed {
        0 => thinking.pass(),
        1 => working.add_permits(1),
        _ => talking.pass(),
    });
    let (said, cuts) = said.await;
    insta::assert_snapshot!(said);
    assert!(cuts > 3, "streams were cut off");
}

/// A card belongs to its call, whatever the tool's name, and voided text disappears.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cards_go_by_call_and_voided_text_is_removed() {
    if !has_chromium() {
        return;
    }
    let gates = [Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0))];
    let (talking, attempts) = (Gate::new(), Attempts::new());
    let failure =
        Failure::new(FailureKind::Unavailable, "the line broke").retry_after(Duration::ZERO);
    let turns = [
        Say::new().call("fetch", json!({ "n": 0 })).call("fetch", json!({ "n": 1 })),
        Say::new().text("Half").gate(&talking).fail_first(&attempts, 1, failure).text(" and half."),
    ];
    let spec = ToolSpec { idempotent: true, ..ToolSpec::new("fetch", "fetches") };
    let waiting = gates.clone();
    let fetch = from_function(spec, move |arguments: Value, _| {
        let n = arguments["n"].as_u64().unwrap();
        let gate = Arc::clone(&waiting[usize::try_from(n).unwrap()]);
        async move {
            gate.acquire().await.unwrap().forget();
            Ok(ToolResult::new(format!("result {n}")))
        }
    });
    let kit = Kit::new(agent(turns, [fetch])).await;
    let said = in_browser(&kit, "parallel", "", |passed| match passed {
        0 => gates[1].add_permits(1),
        1 => gates[0].add_permits(1),
        _ => talking.open(),
    });
    insta::assert_snapshot!(said.await.0);
}

/// A message that the server could not take is kept in the browser and sent when it can.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_survives_a_server_that_is_away() {
    if !has_chromium() {
        return;
    }
    let kit = Kit::new(agent([Say::new().text("Heard.")], [])).await;
    let said = in_browser(&kit, "away", "", |_| {}).await.0;
    insta::assert_snapshot!(said);
}

/// All tabs of a browser share few connections, of which it has six.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_tabs_work_at_once() {
    if !has_chromium() {
        return;
    }
    let gate = Arc::new(Semaphore::new(0));
    let turns = [Say::new().call("work", json!({})), Say::new().text("Done.")];
    let kit = Kit::new(agent(turns, [work(&gate)])).await;
    let mut threads = Vec::new();
    for _ in 0..8 {
        let run = kit.start().await;
        let info = kit.runtime.log().store().info(run).await.unwrap().unwrap();
        threads.push(info.thread.to_string());
    }
    let threads = threads.join(",");
    let said = in_browser(&kit, "tabs", &threads, |_| gate.add_permits(100));
    insta::assert_snapshot!(said.await.0, @r"
    8 tabs show their runs
    user: go; ok: ✓ work; text: Done.
    ");
}

/// A tool that asks five questions and returns the answers.
pub(crate) fn asks() -> FunctionTool {
    let choice = |id: &str, label: &str| Choice { id: id.into(), label: label.into() };
    let choices = vec![choice("spring", "Spring"), choice("river", "River")];
    let person = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "title": "Name" },
            "age": { "type": "integer", "title": "Age", "minimum": 0 },
            "colour": { "enum": ["red", "blue"], "title": "Colour" },
            "code": { "type": "string", "title": "Code", "not": { "maxLength": 4, "minLength": 4 } },
            "email": { "type": "string", "format": "email", "title": "Email" },
        },
        "required": ["name", "age", "colour"],
    });
    let questions = [
        ("Who are you?", Form::Schema(person)),
        ("Anything else?", Form::Schema(json!({ "type": "string" }))),
        ("Which one?", Form::Choose { choices: choices.clone(), multiple: false }),
        ("Which ones?", Form::Choose { choices, multiple: true }),
        ("How many?", Form::Schema(json!({ "type": "integer" }))),
    ];
    let spec = ToolSpec { idempotent: true, ..ToolSpec::new("asks", "asks") };
    from_function(spec, move |_: Value, context| {
        let questions = questions.clone();
        async move {
            let mut answers = Vec::new();
            for (prompt, form) in questions {
                answers.push(json!(context.ask(Ask::new(prompt, form)).await));
            }
            Ok(ToolResult::new(json!(answers).to_string()))
        }
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_of_every_form_are_answered_and_declined() {
    if !has_chromium() {
        return;
    }
    let turns = [Say::new().call("asks", json!({})), Say::new().text("Thank you.")];
    let kit = Kit::new(agent(turns, [asks()])).await;
    let said = in_browser(&kit, "forms", "", |_| {}).await.0;
    insta::assert_snapshot!(said);
}

/// Other pages can read AgentEvents with the same client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_its_own_reads_agent_events() {
    if !has_chromium() {
        return;
    }
    let gate = Arc::new(Semaphore::new(1));
    let turns = [
        Say::new().thought("I should look.").call("work", json!({ "on": "it" })),
        Say::new().text("It is done."),
    ];
    let kit = Kit::new(agent(turns, [work(&gate)])).await;
    let run = kit.start().await;
    let said = in_browser(&kit, "agent_events", &run.to_string(), |_| {}).await.0;
    insta::assert_snapshot!(said, @r#"
    thought: I should look.
    tool: work {"on":"it"} 50% half of it -> all of it done
    text: It is done.
    done: true, error: undefined
    "#);
}

pub(crate) fn has_chromium() -> bool {
    has_peer("WELLSPRING_PEER_CHROMIUM")
}

/// Runs a script in a browser. Returns its output, and how many streams were cut off. `pass` is
/// called each time the script lets the test continue, with the number of earlier calls.
async fn in_browser(kit: &Kit, script: &str, hash: &str, pass: impl Fn(u32)) -> (String, u32) {
    let (between, mut told) = Between::open(kit.server.address()).await;
    let profile = tempfile::tempdir().unwrap();
    let url = format!("http://localhost:{}/test/page?{script}#{hash}", between.address.port());
    let mut browser = chromium(profile.path(), &[&url]);
    let mut passed = 0;
    let said = loop {
        match tokio::time::timeout(PATIENCE, told.recv()).await.unwrap().unwrap() {
            Told::Pass => {
                pass(passed);
                passed += 1;
            }
            Told::Said(said) => break said,
        }
    };
    browser.kill().await.unwrap();
    (said, between.cuts.load(Ordering::Relaxed))
}

pub(crate) fn chromium(profile: &Path, arguments: &[&str]) -> Child {
    Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-popup-blocking"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Messages of the script to the test.
enum Told {
    /// The agent may continue.
    Pass,
    /// What the script saw.
    Said(String),
}

/// The scripts that use the page.
const SCRIPTS: [(&str, &str); 7] = [
    ("kit", include_str!("../peer/page/kit.js")),
    ("use", include_str!("../peer/page/use.js")),
    ("parallel", include_str!("../peer/page/parallel.js")),
    ("away", include_str!("../peer/page/away.js")),
    ("tabs", include_str!("../peer/page/tabs.js")),
    ("forms", include_str!("../peer/page/forms.js")),
    ("agent_events", include_str!("../peer/page/agent_events.js")),
];

/// A proxy between the browser and the server: serves the scripts, forwards the rest, cuts off
/// event streams, and drops every request while the server is supposed to be down.
#[derive(Clone)]
struct Between {
    address: SocketAddr,
    server: SocketAddr,
    cuts: Arc<AtomicU32>,
    away: Arc<AtomicBool>,
    tell: mpsc::UnboundedSender<Told>,
}

impl Between {
    async fn open(server: SocketAddr) -> (Self, mpsc::UnboundedReceiver<Told>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, told) = mpsc::unbounded_channel();
        let (cuts, away) = (Arc::default(), Arc::default());
        let between = Self { address, server, cuts, away, tell };
        let serving = between.clone();
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let between = serving.clone();
                tokio::spawn(async move { between.serve(client).await });
            }
        });
        (between, told)
    }

    /// Serves one request. A browser that has disconnected is ignored.
    async fn serve(&self, mut client: TcpStream) -> Option<()> {
        let (head, body) = request(&mut client).await?;
        let line = head.lines().next()?.to_owned();
        let path = line.split(' ').nth(1)?;
        if let Some(path) = path.strip_prefix("/test/") {
            let (kind, answer) = self.test(path, body)?;
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close");
            return client.write_all(format!("{head}\r\n\r\n{answer}").as_bytes()).await.ok();
        }
        if self.away.load(Ordering::Relaxed) {
            return None;
        }
        let upstream = TcpStream::connect(self.server).await.ok()?;
        let (answers, mut asks) = upstream.into_split();
        // One request per connection, so that the proxy sees every request.
        let is_stream = head.contains("text/event-stream");
        let head = head.replace("Connection: keep-alive", "Connection: close");
        asks.write_all(head.as_bytes()).await.ok()?;
        asks.write_all(&body).await.ok()?;
        // Enough for the response's head and a record; each time, slightly more is let through.
        let round = u64::from(self.cuts.load(Ordering::Relaxed));
        let limit = if is_stream { 1100 + round * 97 } else { u64::MAX };
        let copied = tokio::io::copy(&mut answers.take(limit), &mut client).await.ok()?;
        if copied == limit {
            self.cuts.fetch_add(1, Ordering::Relaxed);
        }
        Some(())
    }

    /// The test's own responses: its page, its scripts, and the messages of a script.
    fn test(&self, path: &str, body: Vec<u8>) -> Option<(&'static str, String)> {
        if let Some(name) = path.strip_prefix("page?") {
            let script = format!("<script type=module src=/test/{name}.js></script>");
            return Some(("text/html", format!("<!doctype html><title>{name}</title>{script}")));
        }
        if let Some(name) = path.strip_suffix(".js") {
            let (_, text) = SCRIPTS.iter().find(|(known, _)| *known == name)?;
            return Some(("text/javascript", (*text).to_owned()));
        }
        match path {
            "pass" => self.tell.send(Told::Pass).ok()?,
            "away" => self.away.store(true, Ordering::Relaxed),
            "back" => self.away.store(false, Ordering::Relaxed),
            _ => self.tell.send(Told::Said(String::from_utf8(body).ok()?)).ok()?,
        }
        Some(("text/plain", String::new()))
    }
}

/// A request's head and body.
async fn request(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if client.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let mut body = bytes.split_off(end);
    let head = String::from_utf8(bytes).ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    while body.len() < length.unwrap_or(0) {
        if client.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some((head, body))
}
