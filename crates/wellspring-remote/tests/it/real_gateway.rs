//! The real gateway, offline against a mock provider: `cargo xtask openclaw`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use wellspring_core::{
    AgentNo, CancelWhen, Checker, Content, Event, Outcome, PartKind, Record, RunId, Transcript,
    render,
};
use wellspring_engine::{RequestKey, Runtime, StartRun};
use wellspring_log::{Log, LogOptions, MemoryStore};
use wellspring_remote::openclaw::{DeviceIdentity, OpenClawAgent, OpenClawConfig};
use wellspring_testkit::{FakeProvider, mock_model};

use crate::kit::{agent, read_until, runtime};

/// The directory in which `cargo xtask openclaw` has installed Node and the gateway.
const FOLDER: &str = "WELLSPRING_OPENCLAW";

/// How long the gateway may take to start: about a minute on a small machine.
const START_MAX: Duration = Duration::from_secs(240);

struct Gateway {
    _process: Child,
    _provider: FakeProvider,
    home: PathBuf,
    port: u16,
}

impl Gateway {
    async fn start(folder: &Path, home: &Path, port: u16) -> Self {
        let provider = FakeProvider::answering(mock_model::answer).await.unwrap();
        std::fs::create_dir_all(home.join(".openclaw")).unwrap();
        let model = json!({"id": "mock-1", "name": "mock-1", "reasoning": true, "input": ["text"],
            "contextWindow": 128_000, "maxTokens": 4096,
            "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}});
        let config = json!({
            "gateway": {"mode": "local", "port": port, "bind": "loopback",
                "auth": {"mode": "token", "token": "secret-token"}},
            "models": {"mode": "merge", "providers": {"mock": {"baseUrl": provider.url(),
                "apiKey": "x", "api": "anthropic-messages", "models": [model]}}},
            "agents": {"defaults": {"model": {"primary": "mock/mock-1"},
                "workspace": home.join("workspace")}},
        });
        std::fs::write(home.join(".openclaw/openclaw.json"), config.to_string()).unwrap();
        let log = std::fs::File::create(home.join("gateway.log")).unwrap();
        let process = Command::new(folder.join("node/node_modules/node/bin/node"))
            .arg(folder.join("gateway/node_modules/openclaw/openclaw.mjs"))
            .args(["gateway", "--port", &port.to_string()])
            .env_clear()
            .env("HOME", home)
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .current_dir(home)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let gateway = Self { _process: process, _provider: provider, home: home.into(), port };
        gateway.ready().await;
        gateway
    }

    async fn ready(&self) {
        let begun = Instant::now();
        loop {
            let error = match self.agent(self.port).check().await {
                Ok(_) => return,
                Err(error) => error,
            };
            if begun.elapsed() > START_MAX {
                let log = std::fs::read_to_string(self.home.join("gateway.log"));
                panic!("the gateway did not start: {error}\n{}", log.unwrap_or_default());
            }
            // Another process cannot notify us.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    fn config(port: u16) -> OpenClawConfig {
        let mut config = OpenClawConfig::new(format!("ws://127.0.0.1:{port}"));
        config.token = Some("secret-token".into());
        // The maximum wait for a gateway that was killed.
        config.idle = Duration::from_secs(20);
        config
    }

    fn agent(&self, port: u16) -> OpenClawAgent {
        OpenClawAgent::new("claw", Self::config(port)).unwrap()
    }
}

/// A relay to the gateway whose connection can be cut.
struct Relay {
    port: u16,
    cuts: watch::Sender<u32>,
}

impl Relay {
    async fn start(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let cuts = watch::Sender::new(0);
        let watched = cuts.subscribe();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut cut = watched.clone();
                cut.mark_unchanged();
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { port, cuts }
    }
}

async fn ask(runtime: &Runtime, scene: mock_model::Scene) -> RunId {
    runtime.local().start(StartRun::text("agent", scene.word())).await.unwrap().run
}

async fn finished(runtime: &Runtime, run: RunId) -> (Transcript, String) {
    let over = |event: &Event| matches!(event, Event::RunFinished { .. });
    let records: Vec<Record> = read_until(runtime, run, over).await;
    Checker::check(&records).unwrap();
    (Transcript::fold(&records), render(&records))
}

async fn speaking(runtime: &Runtime, run: RunId) {
    read_until(runtime, run, |event| matches!(event, Event::PartDelta { .. })).await;
}

fn completed(transcript: &Transcript) -> bool {
    matches!(transcript.outcome, Some(Outcome::Completed { .. }))
}

#[tokio::test]
async fn the_real_gateway_passes_the_scenarios() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        eprintln!("skipped: {FOLDER} is not set; run `cargo xtask openclaw`");
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let gateway = Gateway::start(&folder, home.path(), free).await;
    let relay = Relay::start(free).await;

    eprintln!("a wrong token, and a device that signs");
    let mut wrong = Gateway::config(free);
    wrong.token = Some("wrong".into());
    let refused = OpenClawAgent::new("claw", wrong).unwrap().check().await.unwrap_err();
    assert!(refused.to_string().contains("AUTH_TOKEN_MISMATCH"), "{refused}");
    let mut known = Gateway::config(free);
    known.identity = DeviceIdentity::from_seed([7; 32]);
    OpenClawAgent::new("claw", known).unwrap().check().await.unwrap();

    eprintln!("text and thinking");
    let one = runtime(agent(gateway.agent(relay.port)));
    let (hello, shown) = {
        let run = ask(&one, mock_model::Scene::Hello).await;
        finished(&one, run).await
    };
    assert!(completed(&hello), "{shown}");
    let words = hello.words(AgentNo::ROOT);
    assert!(!words.is_empty(), "{shown}");

    eprintln!("a tool");
    let run = ask(&one, mock_model::Scene::Shell).await;
    let (shell, shown) = finished(&one, run).await;
    assert!(completed(&shell), "{shown}");
    let calls = shell.parts.values().filter(|part| matches!(part.kind, PartKind::ToolCall(_)));
    assert!(calls.count() >= 1, "{shown}");

    eprintln!("two clients");
    let two = runtime(agent(gateway.agent(free)));
    let (first, second) =
        (ask(&one, mock_model::Scene::Hello).await, ask(&two, mock_model::Scene::Hello).await);
    assert_eq!(finished(&one, first).await.0.words(AgentNo::ROOT), words);
    assert_eq!(finished(&two, second).await.0.words(AgentNo::ROOT), words);

    eprintln!("input while the agent works");
    let run = ask(&one, mock_model::Scene::Hello).await;
    let more = vec![Content::text(mock_model::Scene::Hello.word())];
    one.local().add_input(run, RequestKey::Named("more".into()), more).await.unwrap();
    let (followed, shown) = finished(&one, run).await;
    assert!(completed(&followed), "{shown}");
    assert_eq!(followed.words(AgentNo::ROOT).matches(&words).count(), 2, "{shown}");

    eprintln!("abort");
    let run = ask(&one, mock_model::Scene::Hang).await;
    speaking(&one, run).await;
    one.local().cancel(run, CancelWhen::Now, None).await.unwrap();
    let (hang, shown) = finished(&one, run).await;
    assert!(matches!(hang.outcome, Some(Outcome::Cancelled { .. })), "{shown}");
    let said = hang.words(AgentNo::ROOT);

    eprintln!("a lost connection, then our own process ends: nothing is repeated");
    let store = Arc::new(MemoryStore::default());
    let node = || {
        let runtime = Runtime::new(Log::new(Arc::clone(&store) as _, LogOptions::default()));
        runtime.register(agent(gateway.agent(relay.port)));
        runtime
    };
    let before = node();
    let run = ask(&before, mock_model::Scene::Hang).await;
    speaking(&before, run).await;
    relay.cuts.send_modify(|cuts| *cuts += 1);
    before.shutdown(Duration::from_secs(2)).await;
    let after = node();
    assert!(after.resume(run).await);
    after.local().cancel(run, CancelWhen::Now, None).await.unwrap();
    let (resumed, shown) = finished(&after, run).await;
    assert!(said.starts_with(&resumed.words(AgentNo::ROOT)), "{shown}");

    eprintln!("the gateway is killed in mid-answer");
    let run = ask(&two, mock_model::Scene::Hang).await;
    speaking(&two, run).await;
    drop(gateway);
    let (killed, shown) = finished(&two, run).await;
    assert!(matches!(killed.outcome, Some(Outcome::Failed { .. })), "{shown}");
    assert!(said.starts_with(&killed.words(AgentNo::ROOT)), "{shown}");
}
