//! The whole bot with its model and its store, under scripted faults and killed at any call. At the
//! end, the chats show exactly the answers, and no call exceeds a rate limit.
//!
//! Each process is a separate runtime that is dropped at its end. The next process finds only the
//! store and the network.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;
use wellspring_testkit::telegram::{Logged, check_answer};
use wellspring_testkit::{Random, soak};

use super::*;

/// The moment within a call at which the process dies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Moment {
    /// Before the request arrives.
    Before,
    /// After the request took effect, before its response arrives.
    Arrived,
    /// After the response arrived, possibly before its result is stored.
    Answered,
}

/// Kills the process at a call.
#[derive(Debug)]
pub(super) struct Death {
    calls_before: AtomicUsize,
    moment: Moment,
    comes: Notify,
}

impl Death {
    fn at(call: usize, moment: Moment) -> Arc<Self> {
        Arc::new(Self { calls_before: AtomicUsize::new(call), moment, comes: Notify::new() })
    }

    /// The moment to die within this call; `None` if the process survives it.
    pub(super) fn at_this_call(&self) -> Option<Moment> {
        let before = self.calls_before.load(Ordering::Relaxed);
        // The process dies at the call that counts down to zero; the counter then wraps.
        self.calls_before.store(before.wrapping_sub(1), Ordering::Relaxed);
        (before == 0).then_some(self.moment)
    }

    pub(super) fn come(&self) {
        self.comes.notify_one();
    }
}

/// A message of a person, and its time.
#[derive(Clone, Debug)]
struct Written {
    at: u64,
    chat: i64,
    text: String,
}

/// The parts that survive a process.
struct World {
    telegram: Arc<Mutex<FakeTelegram>>,
    store: Arc<MemoryStore>,
    now: u64,
    lives: usize,
    written: Vec<Written>,
    config: InstanceConfig,
}

impl World {
    fn new(written: Vec<Written>, config: impl FnOnce(&mut InstanceConfig)) -> Self {
        let mut bot = InstanceConfig::new("bot", "agent");
        bot.access = Access { everyone: true, ..Access::default() };
        bot.stream = true;
        bot.when_busy = WhenBusy::Queue;
        config(&mut bot);
        let (telegram, store) = (Arc::default(), Arc::default());
        Self { telegram, store, now: 1_000_000, lives: 0, written, config: bot }
    }

    /// Runs a process until everything is answered and shown, or until it dies. Returns whether it
    /// died.
    fn live(&mut self, death: Option<Arc<Death>>) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        self.lives += 1;
        let (died, elapsed) = runtime.block_on(async {
            let began = tokio::time::Instant::now();
            let comes = async {
                match &death {
                    Some(death) => death.comes.notified().await,
                    None => std::future::pending().await,
                }
            };
            let died = tokio::select! {
                biased;
                () = comes => true,
                () = self.work(death.clone()) => false,
            };
            (died, u64::try_from(began.elapsed().as_millis()).unwrap())
        });
        drop(runtime);
        self.now += elapsed;
        died
    }

    async fn work(&self, death: Option<Arc<Death>>) {
        let options = LogOptions {
            node: format!("node-{}", self.lives).into(),
            clock: Arc::new(TokioClock::starting_at(Millis(self.now))),
            ..LogOptions::default()
        };
        let runtime = Runtime::new(Log::new(Arc::clone(&self.store) as _, options));
        runtime.register(AgentDef::model(
            "agent",
            Arc::new(Scripted::with(|request| said_to(&last_words(&request.messages)).0)),
        ));
        let net = Net {
            telegram: Arc::clone(&self.telegram),
            told: Arc::default(),
            started: tokio::time::Instant::now(),
            since: self.now,
            can: wire::CAPABILITIES,
            death,
            errors: Arc::default(),
        };
        let instance =
            Instance::start(self.config.clone(), Arc::new(net), runtime.clone()).await.unwrap();
        let began = tokio::time::Instant::now();
        for (number, written) in self.written.iter().enumerate() {
            let since = written.at.saturating_sub(self.now - 1_000_000);
            tokio::time::sleep_until(began + Duration::from_millis(since)).await;
            // After a restart, the network delivers every message again.
            instance.incoming(written.incoming(number)).await.unwrap();
        }
        for _ in 0..7200 {
            runtime.recover().await.unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
            let mut busy = instance.pending() > 0;
            for written in &self.written {
                let chat = written.chat.to_string();
                busy |= !instance.entry(&chat).await.unwrap().state.is_idle();
                instance.forget_if_idle(&chat);
            }
            if !busy {
                assert_eq!(instance.chats_in_memory(), 0);
                return;
            }
        }
        panic!("it does not settle: {:?}", self.telegram.lock().unwrap());
    }

    /// Checks the text of each chat and every rate limit.
    fn check(&self) {
        let telegram = self.telegram.lock().unwrap();
        check_rates(&telegram.log).unwrap();
        let mut chats: Vec<i64> = self.written.iter().map(|it| it.chat).collect();
        chats.sort_unstable();
        chats.dedup();
        for chat in chats {
            let answers = self.written.iter().filter(|it| it.chat == chat);
            let answer: String = answers.map(|it| said_to(&it.text).1).collect();
            let is_lost =
                |it: &&Logged| it.chat == chat && it.method == "sendMessage" && it.reply == "lost";
            let lost = telegram.log.iter().filter(is_lost).count();
            if let Err(what) = check_answer(telegram.shown(chat), &answer, lost) {
                panic!("chat {chat}: {what}");
            }
        }
    }
}

impl Written {
    fn incoming(&self, number: usize) -> Incoming {
        let user = User { id: "7".into(), name: "Ana".into(), language: None };
        let message = (100 + number).to_string().into();
        Incoming {
            id: number.to_string().into(),
            chat: self.chat.to_string().into(),
            kind: if self.chat < 0 { ChatKind::Group } else { ChatKind::Direct },
            topic: None,
            user,
            what: What::Message { message, text: self.text.as_str().into(), files: Vec::new() },
        }
    }
}

fn last_words(messages: &[wellspring_core::Message]) -> String {
    let last = messages.iter().rev().find_map(|message| match message {
        wellspring_core::Message::User { content } => content.iter().find_map(Content::as_text),
        wellspring_core::Message::Assistant { .. } | wellspring_core::Message::Results { .. } => {
            None
        }
    });
    last.unwrap_or_default().to_owned()
}

/// The model's answer to `WORDS MILLIS SALT`: that many words at that interval, as Markdown for the
/// model and as plain text for the oracle.
fn said_to(asked: &str) -> (Say, String) {
    let numbers: Vec<usize> = asked.split(' ').map(|it| it.parse().unwrap()).collect();
    let (words, millis, salt) = (numbers[0], numbers[1], numbers[2]);
    let (mut chunks, mut plain) = (Vec::new(), String::new());
    for n in 0..words {
        let word = format!("w{salt}x{n}");
        let (markdown, text) = match (n + salt) % 11 {
            0 => (format!("**{word}** "), word),
            3 => (format!("`{word}<&>` "), format!("{word}<&>")),
            5 => (format!("{word}.\n\n"), format!("{word}.")),
            7 => (format!("_{word}_ ü😀 "), format!("{word} ü😀")),
            _ => (format!("{word} "), word),
        };
        chunks.push(markdown);
        plain.push_str(&text);
    }
    let pace = Duration::from_millis(u64::try_from(millis).unwrap());
    let say = Say::new().pace(pace).thought("Let me think for a while about it.").chunks(chunks);
    (say, plain)
}

fn fault(random: &mut Random) -> Option<Fault> {
    match random.below(14) {
        0 => Some(Fault::RateLimited(Some(1 + random.below(60)))),
        1 => Some(Fault::RateLimited(None)),
        2 => Some(Fault::Failed),
        3 => Some(Fault::Unreached),
        4 => Some(Fault::AnswerLost),
        5 => Some(Fault::QuoteRefused),
        6 => Some(Fault::NotEditable),
        _ => None,
    }
}

/// A process is killed at every call and every moment within it, and another node takes over.
/// Nothing is lost, and only a send that was in progress can appear twice.
#[test]
fn killed_at_any_call_another_node_takes_over() {
    for chat in [7, -7] {
        let written = || {
            let write = |at, text: &str| Written { at, chat, text: text.to_owned() };
            vec![write(0, "900 14 1"), write(2_000, "5 300 2")]
        };
        let mut world = World::new(written(), |_| {});
        assert!(!world.live(None));
        world.check();
        let calls = world.telegram.lock().unwrap().log.len();
        assert!(calls >= 8, "{calls}");
        for call in 0..calls {
            for moment in [Moment::Before, Moment::Arrived, Moment::Answered] {
                let mut world = World::new(written(), |_| {});
                assert!(world.live(Some(Death::at(call, moment))), "{call} {moment:?}");
                assert!(!world.live(None));
                world.check();
            }
        }
    }
}

/// Random messages, answers, faults and crashes.
#[test]
fn any_script_ends_with_exactly_the_answers() {
    for seed in 0..u64::from(soak(100, 5000)) {
        let mut random = Random::new(seed);
        let mut written = Vec::new();
        for chat in 1..=1 + random.below(4) {
            let chat = i64::try_from(chat).unwrap();
            let chat = if random.below(3) == 0 { -chat } else { chat };
            let mut at = random.below(3_000);
            for _ in 0..=random.below(3) {
                let words = if random.below(3) == 0 { 900 } else { 40 };
                let (words, pace) = (1 + random.below(words), random.below(60));
                let text = format!("{words} {pace} {}", written.len());
                written.push(Written { at, chat, text });
                at += random.below(20_000);
            }
        }
        written.sort_by_key(|it| it.at);
        let kind = random.below(8);
        let mut world = World::new(written, |config| {
            config.stream = kind != 0;
            config.drafts = kind == 1;
        });
        let faults = (0..60).map(|_| fault(&mut random)).collect();
        world.telegram.lock().unwrap().faults = faults;
        if random.below(3) == 0 {
            let call = usize::try_from(random.below(20)).unwrap();
            let moments = [Moment::Before, Moment::Arrived, Moment::Answered];
            let moment = moments[usize::try_from(random.below(3)).unwrap()];
            world.live(Some(Death::at(call, moment)));
        }
        assert!(!world.live(None));
        world.check();
    }
}
