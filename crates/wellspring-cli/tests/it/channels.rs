//! A bot in Telegram: the real command, a strict Telegram over HTTP.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::watch;
use wellspring_channels::{Markup, Text};
use wellspring_core::{AgentNo, Transcript};
use wellspring_testkit::telegram::{FakeTelegram, Reply, Shown};
use wellspring_testkit::{Answer, FakeProvider, NatsServers};

use crate::kit::{Going, Home};

const CHAT: i64 = 7;

/// How long anything may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Telegram, and what people write to the bot there.
struct Network {
    telegram: Arc<Mutex<FakeTelegram>>,
    updates: Arc<Mutex<Vec<Value>>>,
    changed: watch::Receiver<u64>,
    server: FakeProvider,
}

impl Network {
    async fn new() -> Self {
        let telegram = Arc::new(Mutex::new(FakeTelegram::default()));
        let updates = Arc::new(Mutex::new(Vec::<Value>::new()));
        let (calls, changed) = watch::channel(0);
        let since = Instant::now();
        let (network, waiting) = (Arc::clone(&telegram), Arc::clone(&updates));
        let server = FakeProvider::answering(move |asked| {
            let method = asked.path.strip_prefix("/bot12:secret/").unwrap_or("unknown");
            let answer = match method {
                "getUpdates" => {
                    let offset = asked.body["offset"].as_i64().unwrap();
                    let waiting = waiting.lock().unwrap();
                    let new = waiting.iter().filter(|it| it["update_id"].as_i64() >= Some(offset));
                    json!({"ok": true, "result": new.collect::<Vec<_>>()})
                }
                "deleteWebhook" => json!({"ok": true, "result": true}),
                "getMe" => json!({"ok": true, "result": {"id": 12, "username": "spring_bot"}}),
                method => {
                    let at = u64::try_from(since.elapsed().as_millis()).unwrap();
                    match network.lock().unwrap().call(at, method, &asked.body) {
                        Reply::Answer(answer) => answer,
                        Reply::Unreached | Reply::Lost => Value::Null,
                    }
                }
            };
            calls.send_modify(|calls| *calls += 1);
            Answer::ok("application/json", answer.to_string())
        });
        Self { telegram, updates, changed, server: server.await.unwrap() }
    }

    fn write(&self, id: i64, text: &str) {
        self.updates.lock().unwrap().push(json!({"update_id": id, "message": {
            "message_id": 1000 + id, "text": text, "chat": {"id": CHAT, "type": "private"},
            "from": {"id": 7, "is_bot": false, "first_name": "Ana", "language_code": "pt"},
        }}));
    }

    fn shown(&self) -> Vec<Shown> {
        self.telegram.lock().unwrap().shown(CHAT).to_vec()
    }

    async fn wait_for(&mut self, what: &str, is_there: impl Fn(&[Shown]) -> bool) {
        let waited = tokio::time::timeout(PATIENCE, async {
            while !is_there(&self.shown()) {
                self.changed.changed().await.unwrap();
            }
        });
        waited.await.unwrap_or_else(|_| panic!("{what}: {:#?}", self.shown()));
    }

    fn home(&self, more: &str) -> Home {
        let config = format!(
            "demo = true\n[channels.telegram]\nstream = true\nagent = \"demo\"\n\
             base_url = \"{}\"\nsecrets = {{ token = \"12:secret\" }}\n{more}\n",
            self.server.url()
        );
        Home::with_files(&[("wellspring.toml", &config)])
    }
}

/// A bot answers, is killed in mid-answer, and goes on with the same message: nothing is lost,
/// and nothing is there twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_bot_goes_on_with_its_answer() {
    let mut network = Network::new().await;
    let home = network.home("everyone = true");
    network.write(1, "long");
    let serve = || home.paced(30, &["serve", "--listen", "127.0.0.1:0"]);
    let server = Going::start(serve());
    // After an edit, the id of the message is kept: the window of a repeated send is past.
    let telegram = Arc::clone(&network.telegram);
    let is_edited = || {
        let telegram = telegram.lock().unwrap();
        telegram.log.iter().any(|call| call.method == "editMessageText")
    };
    network.wait_for("an answer that grows", |_| is_edited()).await;
    server.signal(Signal::KILL);
    server.end();
    let server = Going::start(serve());
    let ended = |shown: &[Shown]| {
        shown.iter().all(|it| !it.text.contains('█'))
            && shown.iter().any(|it| it.text.contains("paragraph 40 of 40"))
    };
    network.wait_for("the end of the answer", ended).await;
    server.signal(Signal::KILL);
    server.end();
    let (records, outline) = home.records("last");
    assert!(outline.finished);
    let answer = Transcript::fold(&records).words(AgentNo::ROOT);
    let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    let shown: String = network.shown().iter().map(|it| it.text.as_str()).collect();
    assert_eq!(letters(&shown), letters(&Text::markdown(&answer).render(Markup::Plain)));
}

/// Two machines with one bot: one of them serves it, and when that is killed in mid-answer, the
/// other goes on with the same message. Nothing is lost, and nothing is there twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_bot_is_served_by_one_machine_at_a_time() {
    let Some(nats) = NatsServers::start(1, false) else { return };
    let mut network = Network::new().await;
    let store = format!(
        "everyone = true\n[store]\nkind = \"nats\"\naddress = \"{}\"\nlease = \"2s\"\n",
        nats.address()
    );
    let homes = [(); 2].map(|()| network.home(&store));
    network.write(1, "long");
    let serve = |home: &Home| Going::start(home.paced(30, &["serve", "--listen", "127.0.0.1:0"]));
    let one = serve(&homes[0]);
    let telegram = Arc::clone(&network.telegram);
    let is_edited = || {
        let telegram = telegram.lock().unwrap();
        telegram.log.iter().any(|call| call.method == "editMessageText")
    };
    network.wait_for("an answer that grows", |_| is_edited()).await;
    let other = serve(&homes[1]);
    one.signal(Signal::KILL);
    one.end();
    let ended = |shown: &[Shown]| {
        shown.iter().all(|it| !it.text.contains('█'))
            && shown.iter().any(|it| it.text.contains("paragraph 40 of 40"))
    };
    network.wait_for("the end of the answer", ended).await;
    let (records, outline) = homes[1].records("last");
    assert!(outline.finished);
    let answer = Transcript::fold(&records).words(AgentNo::ROOT);
    let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    let shown: String = network.shown().iter().map(|it| it.text.as_str()).collect();
    assert_eq!(letters(&shown), letters(&Text::markdown(&answer).render(Markup::Plain)));
    other.signal(Signal::KILL);
    other.end();
}

/// A stranger gets a code; `channels pair` accepts it, and `channels list` shows both.
#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_is_paired() {
    let mut network = Network::new().await;
    let home = network.home("");
    network.write(1, "Hello");
    let server = Going::start(home.paced(1, &["serve", "--listen", "127.0.0.1:0"]));
    network.wait_for("a code", |shown| shown.len() == 1).await;
    let told = network.shown()[0].text.clone();
    let code = told.split_whitespace().last().unwrap();
    assert!(told.starts_with("Você ainda não pode usar este bot."), "{told}");
    let list = home.print(&["channels", "list"]);
    assert!(list.contains(&format!("telegram\twaiting\t7\t{code}\tAna")), "{list}");
    let paired = home.print(&["channels", "pair", "telegram", code]);
    assert_eq!(paired, "7 may use telegram now\n");
    assert!(home.print(&["channels", "list"]).contains("telegram\tallowed\t7"));
    network.write(2, "/help");
    network.wait_for("help", |shown| shown.len() == 2).await;
    assert!(home.print(&["doctor", "--json"]).contains("is @spring_bot"));
    home.print(&["channels", "allow", "telegram", "7", "--revoke"]);
    assert!(!home.print(&["channels", "list"]).contains("allowed"));
    server.signal(Signal::KILL);
    server.end();
}
