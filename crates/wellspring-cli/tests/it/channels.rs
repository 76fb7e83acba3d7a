//! A bot in Telegram: the real command, a strict Telegram over HTTP.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::watch;
use wellspring_channels::{Markup, Text};
use wellspring_core::{AgentNo, Transcript};
use wellspring_log::LEASE;
use wellspring_testkit::telegram::{FakeTelegram, Reply, Shown, check_answer};
use wellspring_testkit::{Answer, FakeGateway, FakeProvider, GatewayOptions, NatsServers, soak};

use crate::kit::{Going, Home};
use crate::who_may_run::{asked, serve};

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

/// The people in a chat are not the user of this machine, so the demo that answers them has no
/// shell, even without tokens.
#[tokio::test(flavor = "multi_thread")]
async fn the_demo_of_a_bot_has_no_shell() {
    let network = Network::new().await;
    let home = network.home("everyone = true");
    let (server, address, _) = serve(&home);
    let run = asked(address, "");
    let records = home.print(&["runs", "export", &run]);
    assert!(records.contains("count_down"), "{records}");
    assert!(!records.contains("run_shell_command"), "{records}");
    server.signal(Signal::INT);
    server.end();
}

/// The process of a bot is killed in the middle of an answer. The next one continues the same
/// message; no text is lost or duplicated.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_bot_goes_on_with_its_answer() {
    let mut network = Network::new().await;
    let home = network.home("everyone = true");
    network.write(1, "long");
    let serve = || home.paced(30, &["serve", "--listen", "127.0.0.1:0"]);
    let server = Going::start(serve());
    // After an edit, the message's id is stored, so the message is not sent again.
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

/// The process is killed at each call of an answer, before and after the network gets it. The next
/// process completes the answer; only a message whose sending was interrupted may appear twice.
#[tokio::test(flavor = "multi_thread")]
async fn killed_at_its_calls_a_bot_loses_nothing() {
    for call in 2..2 + soak(1, 12) {
        let mut network = Network::new().await;
        let home = network.home("everyone = true");
        network.write(1, "long");
        let serve = || home.paced(10, &["serve", "--listen", "127.0.0.1:0"]);
        let server = Going::start(serve());
        let calls = |telegram: &Arc<Mutex<FakeTelegram>>| telegram.lock().unwrap().log.len();
        let telegram = Arc::clone(&network.telegram);
        let call = usize::try_from(call).unwrap();
        // The answer to the call is still on its way when the process is killed, or has just
        // arrived.
        network.wait_for("a call", |_| calls(&telegram) >= call).await;
        server.signal(Signal::KILL);
        server.end();
        let server = Going::start(serve());
        let ended = |shown: &[Shown]| {
            let is_last = |it: &Shown| it.text.contains("paragraph 40 of 40");
            shown.last().is_some_and(|it| is_last(it) && !it.text.contains('█'))
        };
        network.wait_for("the end of the answer", ended).await;
        server.signal(Signal::KILL);
        server.end();
        let (records, _) = home.records("last");
        let answer = Transcript::fold(&records).words(AgentNo::ROOT);
        let answer = Text::markdown(&answer).render(Markup::Plain);
        check_answer(&network.shown(), &answer, 1).unwrap();
    }
}

/// From a user in Telegram to an agent of an OpenClaw gateway and back: thoughts, growing text, and
/// the whole answer, once, although the connection to the gateway is lost in between.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_a_gateway_answers_in_telegram() {
    let mut network = Network::new().await;
    let gateway = FakeGateway::start(GatewayOptions::default()).await.unwrap();
    let config = format!(
        "[agents.claw]\nopenclaw = {{ url = \"{}\", token_env = \"CLAW_TOKEN\" }}\n\
         [channels.telegram]\nstream = true\nagent = \"claw\"\neveryone = true\n\
         base_url = \"{}\"\nsecrets = {{ token = \"12:secret\" }}\n",
        gateway.url(),
        network.server.url()
    );
    let home = Home::with_files(&[("wellspring.toml", &config)]);
    network.write(1, "/thinking on");
    network.write(2, "think:Let_me_see. hold say:It_is hold say:_noon.");
    let mut serve = home.paced(1, &["serve", "--listen", "127.0.0.1:0"]);
    let server = Going::start({
        serve.env("CLAW_TOKEN", "secret-token");
        serve
    });
    let shows = |words: &'static str| {
        move |shown: &[Shown]| shown.iter().any(|shown| shown.text.contains(words))
    };
    network.wait_for("thoughts", shows("🧠 Pensando…\nLet me see.")).await;
    gateway.release();
    network.wait_for("words", shows("It is█")).await;
    gateway.cut();
    gateway.release();
    let ended = |shown: &[Shown]| {
        shown.iter().any(|it| it.text == "🧠 Raciocínio\nLet me see.\nIt is noon.")
    };
    network.wait_for("the answer", ended).await;
    check_answer(&network.shown()[1..], "It is noon.", 0).unwrap();
    assert_eq!(gateway.asked().iter().filter(|it| it.0 == "agent").count(), 1);
    server.signal(Signal::KILL);
    server.end();
}

/// Two machines have the same bot, and one of them serves it. When it is killed in the middle of an
/// answer, the other one continues the same message; no text is lost or duplicated.
#[tokio::test(flavor = "multi_thread")]
async fn a_bot_is_served_by_one_machine_at_a_time() {
    let Some(nats) = NatsServers::start(1, false) else { return };
    let network = Network::new().await;
    let store = format!(
        "everyone = true\n[store]\nkind = \"nats\"\naddress = \"{}\"\nlease = \"2s\"\n",
        nats.address()
    );
    let homes = [(); 2].map(|()| network.home(&store));
    is_taken_over(network, [&homes[0], &homes[1]]).await;
}

/// Two processes share a data directory. When the one that serves the bot is killed, the other one
/// continues at once, long before the lease of 30 s is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_bot_is_served_by_one_process_at_a_time() {
    let network = Network::new().await;
    let home = network.home("everyone = true");
    let waited = is_taken_over(network, [&home, &home]).await;
    assert!(waited < LEASE, "{waited:?}");
}

/// Kills the first of two processes in the middle of an answer. Returns how long it took until the
/// second one called the network.
async fn is_taken_over(mut network: Network, homes: [&Home; 2]) -> Duration {
    network.write(1, "long");
    let serve = |home: &Home| Going::start(home.paced(30, &["serve", "--listen", "127.0.0.1:0"]));
    let one = serve(homes[0]);
    let telegram = Arc::clone(&network.telegram);
    let edits = || {
        let telegram = telegram.lock().unwrap();
        telegram.log.iter().filter(|call| call.method == "editMessageText").count()
    };
    network.wait_for("an answer that grows", |_| edits() > 0).await;
    let other = serve(homes[1]);
    one.signal(Signal::KILL);
    one.end();
    let (before, killed) = (edits(), Instant::now());
    network.wait_for("an edit of the other process", |_| edits() > before).await;
    let waited = killed.elapsed();
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
    waited
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
