//! A Telegram bot under load: the time until a person sees text, a thousand simultaneous chats, and
//! the memory per idle chat.
//!
//! The network is the testkit's strict Telegram over HTTP, in real time. It enforces every rate
//! limit.
#![expect(clippy::unwrap_used, reason = "a bench that cannot go on should stop")]

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use wellspring_channels::{
    Access, Call, CallError, CallResult, Capabilities, Channel, ChatKind, Done, Incoming, Instance,
    InstanceConfig, Rates, Telegram, User, What,
};
use wellspring_engine::{AgentDef, Runtime};
use wellspring_log::{Log, SqliteOptions};
use wellspring_models::{Say, Scripted};
use wellspring_testkit::figures::{Scale, figure};
use wellspring_testkit::telegram::{FakeTelegram, Reply, check_rates};
use wellspring_testkit::{Answer, FakeProvider};

/// The time to the model's first token, and between two tokens.
const FIRST_TOKEN: Duration = Duration::from_secs(1);
const NEXT_TOKEN: Duration = Duration::from_millis(100);

/// The number of chats that write per second.
const ARRIVALS: u32 = 10;

/// The goal: 99 % of people see text within this time.
const AIM: Duration = Duration::from_secs(2);

fn main() {
    let scale = Scale::asked();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let say = match scale {
            Scale::Full | Scale::Quick => Say::new().wait(FIRST_TOKEN).pace(NEXT_TOKEN),
            Scale::Smoke => Say::new(),
        };
        let apart = Duration::from_secs(1) / ARRIVALS;
        let seen = arriving(scale.rounds(600), Some(apart), say.clone()).await;
        let name = "telegram/10 chats per second/first words";
        figure(format!("{name}, median"), percentile(&seen.first, 50), "ms", None);
        figure(format!("{name}, p99"), percentile(&seen.first, 99), "ms", None);
        figure(format!("{name}, p99 that is aimed at"), millis(AIM), "ms", None);

        let seen = arriving(scale.rounds(1_000), None, say).await;
        let name = "telegram/1,000 chats at once";
        figure(format!("{name}/first words, last chat"), percentile(&seen.first, 100), "ms", None);
        figure(format!("{name}/whole answer, last chat"), percentile(&seen.last, 100), "ms", None);
        figure(format!("{name}/calls in the busiest second"), seen.busiest, "calls", None);

        figure(
            "telegram/memory per idle chat",
            idle_chats(scale.rounds(20_000)).await,
            "bytes",
            None,
        );
    });
}

/// When people first saw text and the answer, in milliseconds after they wrote.
struct Seen {
    first: Vec<f64>,
    last: Vec<f64>,
    busiest: f64,
}

/// Each of `chats` chats writes one message, at intervals of `apart`; `None` means all at once.
async fn arriving(chats: usize, apart: Option<Duration>, say: Say) -> Seen {
    let began = Instant::now();
    let telegram = Arc::new(Mutex::new(FakeTelegram::default()));
    let network = Arc::clone(&telegram);
    let server = FakeProvider::answering(move |asked| {
        let method = asked.path.strip_prefix("/bot12:secret/").unwrap_or("unknown");
        let at = u64::try_from(began.elapsed().as_millis()).unwrap();
        let answer = match network.lock().unwrap().call(at, method, &asked.body) {
            Reply::Answer(answer) => answer,
            Reply::Unreached | Reply::Lost => Value::Null,
        };
        Answer::ok("application/json", answer.to_string())
    });
    let server = server.await.unwrap();
    let text = "It is noon in the capital, and it will be so again tomorrow at the same time.";
    let channel = Telegram::new("12:secret", Some(&server.url())).unwrap();
    let bot = bot(say.text(text), Arc::new(channel)).await;
    let mut wrote = Vec::new();
    for chat in 1..=chats {
        if let Some(apart) = apart {
            let due = began + apart * u32::try_from(chat).unwrap();
            tokio::time::sleep_until(due.into()).await;
        }
        wrote.push(began.elapsed());
        bot.instance.incoming(message(chat)).await.unwrap();
    }
    bot.is_idle(chats).await;
    let telegram = telegram.lock().unwrap();
    check_rates(&telegram.log).unwrap();
    let (mut first, mut last) = (vec![0.0; chats], vec![0.0; chats]);
    for call in telegram.log.iter().filter(|call| call.method != "sendChatAction") {
        let chat = usize::try_from(call.chat).unwrap() - 1;
        let seen = millis(Duration::from_millis(call.at).saturating_sub(wrote[chat]));
        if call.method == "sendMessage" {
            first[chat] = seen;
        }
        last[chat] = seen;
    }
    for chat in 1..=chats {
        let shown = telegram.shown(i64::try_from(chat).unwrap());
        assert!(shown.len() == 1 && shown[0].text == text, "{shown:?}");
    }
    let at: Vec<u64> = telegram.log.iter().map(|call| call.at).collect();
    let within = |from: u64| at.iter().filter(|at| (from..from + 1000).contains(*at)).count();
    let busiest = at.iter().map(|from| within(*from)).max().unwrap_or_default();
    first.sort_by(f64::total_cmp);
    last.sort_by(f64::total_cmp);
    Seen { first, last, busiest: f64::from(u32::try_from(busiest).unwrap()) }
}

/// The memory per chat that has had an answer, in bytes of the process, with SQLite. Chats before
/// the measurement warm up the process.
async fn idle_chats(chats: usize) -> f64 {
    let (warm, chats) = (chats.div_ceil(10), chats.max(2));
    let channel = Arc::new(Limitless(AtomicI64::new(0), limitless()));
    let bot = bot(Say::new().burst().text("Hello."), channel).await;
    let mut before = 0.0;
    for chat in 1..=warm + chats {
        if chat == warm + 1 {
            bot.is_idle(warm).await;
            before = memory();
        }
        bot.instance.incoming(message(chat)).await.unwrap();
        // At most 100 at once, like a busy bot.
        while bot.instance.pending() > 100 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    bot.is_idle(warm + chats).await;
    (memory() - before).max(0.0) / f64::from(u32::try_from(chats).unwrap())
}

struct Bot {
    instance: Instance,
    _directory: tempfile::TempDir,
}

async fn bot(say: Say, channel: Arc<dyn Channel>) -> Bot {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::sqlite(directory.path().join("runs.db"), SqliteOptions::default()).unwrap();
    let runtime = Runtime::new(log);
    runtime.register(AgentDef::model("agent", Arc::new(Scripted::new([say]))));
    let mut config = InstanceConfig::new("bot", "agent");
    config.stream = true;
    config.access = Access { everyone: true, ..Access::default() };
    let instance = Instance::start(config, channel, runtime).await.unwrap();
    Bot { instance, _directory: directory }
}

impl Bot {
    /// Waits until every answer is finished and delivered.
    async fn is_idle(&self, chats: usize) {
        let metrics =
            || wellspring_channels::ChannelMetrics::render([(self.instance.metrics(), 0)]);
        loop {
            let text = metrics();
            let delivered = text.lines().find_map(|line| {
                let line = line.strip_prefix("wellspring_channel_delivered_total")?;
                line.split_whitespace().last()?.parse::<usize>().ok()
            });
            if delivered >= Some(chats) && self.instance.pending() == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn message(chat: usize) -> Incoming {
    let id: Box<str> = chat.to_string().into();
    Incoming {
        id: id.clone(),
        chat: id.clone(),
        kind: ChatKind::Direct,
        topic: None,
        user: User { id, name: "Ana".into(), language: None },
        what: What::Message { message: "1".into(), text: "What time is it?".into(), files: vec![] },
    }
}

/// A network without rate limits, so that only the bot is measured.
#[derive(Debug)]
struct Limitless(AtomicI64, Capabilities);

fn limitless() -> Capabilities {
    let telegram = Telegram::new("12:secret", None).unwrap();
    let rates = Rates {
        chat_interval: Duration::ZERO,
        direct_preview: Duration::ZERO,
        group_preview: Duration::ZERO,
        group_calls: usize::MAX / 4,
        group_window: Duration::ZERO,
        overall_per_second: usize::MAX / 4,
        per_minute: &[],
    };
    Capabilities { rates, ..telegram.capabilities().clone() }
}

impl Channel for Limitless {
    fn network(&self) -> &'static str {
        "limitless"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.1
    }

    fn call(&self, _: Call) -> BoxFuture<'_, CallResult> {
        let id = self.0.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move { Ok(Done::new(Some(json!(id).to_string().into()))) })
    }

    fn check(&self) -> BoxFuture<'_, Result<String, CallError>> {
        Box::pin(async { Ok("limitless".into()) })
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The given percentile of sorted values.
fn percentile(sorted: &[f64], percent: usize) -> f64 {
    sorted[(sorted.len() * percent).div_ceil(100).max(1) - 1]
}

/// The resident memory of the process in bytes. Linux only; 0 on other systems.
fn memory() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    kib.unwrap_or_default() * 1024.0
}
