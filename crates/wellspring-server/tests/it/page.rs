//! The page at `/`, in a real browser, used as a person would.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, mpsc};
use wellspring_core::{Approval, Model, Tool, ToolResult, ToolSpec};
use wellspring_engine::tools::{FunctionTool, from_function, update_plan};
use wellspring_engine::{AgentDef, Policy, Rule};
use wellspring_models::{Gate, Say, Scripted};

use crate::kit::{Kit, echo};

/// How long a browser may take for all of it.
const PATIENCE: Duration = Duration::from_secs(120);

/// A tool that says how far it is, and waits.
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

/// An agent with something of everything to see. It waits wherever somebody has to look.
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
/// reloading; and every stream is cut off again and again on the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn somebody_uses_the_page() {
    if std::env::var_os("WELLSPRING_PEER_CHROMIUM").is_none() {
        println!("skipped: WELLSPRING_PEER_CHROMIUM is not set; `cargo xtask test` sets it");
        return;
    }
    let (thinking, talking, never) = (Gate::new(), Gate::new(), Gate::new());
    let working = Arc::new(Semaphore::new(0));
    let kit = Kit::new(busy(&thinking, &working, &talking, &never)).await;
    let (between, mut told) = Between::open(kit.server.address()).await;
    let profile = tempfile::tempdir().unwrap();
    let url = format!("http://localhost:{}/test/page", between.port());
    let mut browser = chromium(profile.path(), &[&url]);
    let mut passed = 0;
    let said = loop {
        match tokio::time::timeout(PATIENCE, told.recv()).await.unwrap().unwrap() {
            Told::Pass => {
                match passed {
                    0 => thinking.pass(),
                    1 => working.add_permits(1),
                    _ => talking.pass(),
                }
                passed += 1;
            }
            Told::Said(said) => break said,
        }
    };
    browser.kill().await.unwrap();
    insta::assert_snapshot!(said);
    assert!(between.cuts.load(Ordering::Relaxed) > 3, "streams were cut off");
}

fn chromium(profile: &Path, arguments: &[&str]) -> Child {
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

/// What the page's user tells the test.
enum Told {
    /// The agent may go on.
    Pass,
    /// What was to be seen.
    Said(String),
}

/// Stands between the browser and the server: serves the user's own page, hands on the rest, and
/// cuts streams of events off.
struct Between {
    address: SocketAddr,
    cuts: Arc<AtomicU32>,
}

impl Between {
    async fn open(server: SocketAddr) -> (Self, mpsc::UnboundedReceiver<Told>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cuts = Arc::new(AtomicU32::new(0));
        let (tell, told) = mpsc::unbounded_channel();
        let counted = Arc::clone(&cuts);
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(hand_on(client, server, tell.clone(), Arc::clone(&counted)));
            }
        });
        (Self { address, cuts }, told)
    }

    fn port(&self) -> u16 {
        self.address.port()
    }
}

/// Serves one request; whoever is gone is gone.
async fn hand_on(
    mut client: TcpStream,
    server: SocketAddr,
    tell: mpsc::UnboundedSender<Told>,
    cuts: Arc<AtomicU32>,
) -> Option<()> {
    let (head, body) = request(&mut client).await?;
    let answer = |kind: &str, body: &str| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n{body}")
    };
    let line = head.lines().next()?.to_owned();
    if line.starts_with("GET /test/page ") {
        let page = include_str!("../peer/page.html");
        return client.write_all(answer("text/html", page).as_bytes()).await.ok();
    }
    if line.starts_with("POST /test/") {
        let passes = line.starts_with("POST /test/pass ");
        let told = if passes { Told::Pass } else { Told::Said(String::from_utf8(body).ok()?) };
        tell.send(told).ok()?;
        return client.write_all(answer("text/plain", "").as_bytes()).await.ok();
    }
    let upstream = TcpStream::connect(server).await.ok()?;
    let (answers, mut asks) = upstream.into_split();
    // One request per connection, so that what follows the first is not missed.
    let head = head.replace("Connection: keep-alive", "Connection: close");
    asks.write_all(head.as_bytes()).await.ok()?;
    asks.write_all(&body).await.ok()?;
    // The answer's head takes about 300 bytes of it; each time a little more comes through.
    let round = u64::from(cuts.load(Ordering::Relaxed));
    let is_stream = line.contains("/events?");
    let limit = if is_stream { 600 + round * 97 } else { u64::MAX };
    let copied = tokio::io::copy(&mut answers.take(limit), &mut client).await.ok()?;
    if copied == limit {
        cuts.fetch_add(1, Ordering::Relaxed);
    }
    Some(())
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
