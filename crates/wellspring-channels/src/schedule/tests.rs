//! The scheduler against strict networks on a virtual clock, under random faults and crashes.

mod networks;

use std::collections::BTreeMap;

use wellspring_core::Millis;
use wellspring_testkit::telegram::{FakeTelegram, Fault, Reply, check_rates};
use wellspring_testkit::{Random, soak};
use wellspring_wire::stream_delta::StreamDelta;

use super::*;
use crate::telegram::wire;
use crate::view::{Reader, ThinkingMode, View, render};

const READER: Reader = Reader { language: crate::Language::Portuguese, thinking: ThinkingMode::On };

/// What one chat is told, and when.
#[derive(Clone, Debug)]
struct Script {
    chat: i64,
    views: Vec<(u64, View)>,
}

impl Script {
    fn kind(&self) -> ChatKind {
        if self.chat < 0 { ChatKind::Group } else { ChatKind::Direct }
    }
}

/// A network in memory.
trait Network: Default {
    const CAN: Capabilities;
    /// The index of the markup in which `texts` returns what people read.
    const MARKUP: usize;
    /// The id of a chat.
    fn id(chat: i64) -> String {
        chat.to_string()
    }
    /// The initial state of a post.
    fn post() -> PostState {
        PostState { key: "answer".into(), ..PostState::default() }
    }
    /// A call that arrives at `at`.
    fn call(&mut self, at: u64, call: &Call) -> CallResult;
    /// The visible text of each message.
    fn texts(&self, chat: i64) -> Vec<String>;
    fn check_rates(&self) -> Result<(), String>;
    /// Replaces the process. Returns the time until the next process starts, in milliseconds.
    fn restart(&mut self) -> u64;
    /// An alternative text that people may read at the end, instead of the messages of the last
    /// view.
    fn instead(view: &View) -> Option<String> {
        let _ = view;
        None
    }
}

impl Network for FakeTelegram {
    const CAN: Capabilities = wire::CAPABILITIES;
    const MARKUP: usize = 2;

    fn call(&mut self, at: u64, call: &Call) -> CallResult {
        let (method, params) = wire::request(call);
        match Self::call(self, at, method, &params) {
            Reply::Answer(answer) => wire::result(&answer),
            Reply::Unreached => Err(CallError::Unavailable("no route".into())),
            Reply::Lost => Err(CallError::AnswerLost("closed".into())),
        }
    }

    fn texts(&self, chat: i64) -> Vec<String> {
        self.shown(chat).iter().map(|shown| shown.text.clone()).collect()
    }

    fn check_rates(&self) -> Result<(), String> {
        check_rates(&self.log)
    }

    fn restart(&mut self) -> u64 {
        // Calls in flight have arrived by then.
        400
    }
}

/// A world: the network, the scheduler, what it kept, and the calls on their way.
struct World<N> {
    now: u64,
    network: N,
    scheduler: Scheduler,
    kept: BTreeMap<i64, Vec<PostState>>,
    scripts: Vec<Script>,
    told: Vec<usize>,
    calls: Vec<OnTheWay>,
    random: Random,
    /// Sends that a crash has cut off after they arrived.
    cut_off: usize,
    notices: Vec<Notice>,
}

type Telegram = World<FakeTelegram>;

struct OnTheWay {
    done_at: u64,
    chat: i64,
    result: CallResult,
    sends: bool,
}

impl<N: Network> World<N> {
    fn new(scripts: Vec<Script>, seed: u64) -> Self {
        let mut world = Self {
            now: 1_000_000,
            network: N::default(),
            scheduler: Scheduler::new(N::CAN),
            kept: BTreeMap::new(),
            told: vec![0; scripts.len()],
            scripts,
            calls: Vec::new(),
            random: Random::new(seed),
            cut_off: 0,
            notices: Vec::new(),
        };
        for script in world.scripts.clone() {
            world.scheduler.open(&N::id(script.chat), script.kind(), N::post());
            world.keep(script.chat);
        }
        world
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random.below(below)
    }

    /// Random answers in a few chats.
    fn scripts(&mut self) -> Vec<Script> {
        let chats = 1 + self.random(4);
        let scripts = (1..=chats).map(|n| {
            let chat = n as i64;
            let chat = if self.random(3) == 0 { -chat } else { chat };
            let words = 1 + self.random(700) as usize;
            answer(chat, self.random(3000), words)
        });
        scripts.collect()
    }

    fn keep(&mut self, chat: i64) {
        // Serialised, because only the stored part is known after a crash.
        let text = serde_json::to_string(&self.scheduler.state(&N::id(chat))).unwrap();
        self.kept.insert(chat, serde_json::from_str(&text).unwrap());
    }

    /// Tells the scheduler what is new, and starts the calls that it wants.
    fn step(&mut self) -> Option<u64> {
        for (index, script) in self.scripts.iter().enumerate() {
            let before = self.told[index];
            while let Some((at, _)) = script.views.get(self.told[index]) {
                if self.now < 1_000_000 + at {
                    break;
                }
                self.told[index] += 1;
            }
            if self.told[index] > before {
                let view = &script.views[self.told[index] - 1].1;
                let bodies = render(view, READER, &N::CAN);
                let settled = view.is_settled();
                self.scheduler.want(&N::id(script.chat), "answer", bodies, settled);
            }
        }
        loop {
            match self.scheduler.next(Millis(self.now)) {
                Next::Idle => return None,
                Next::Wait(until) => return Some(until.0),
                Next::Call { call, keep_first } => {
                    let is_its = |script: &&Script| N::id(script.chat) == *call.chat;
                    let chat = self.scripts.iter().find(is_its).unwrap().chat;
                    if keep_first {
                        self.keep(chat);
                    }
                    let takes = 1 + self.random(400);
                    let arrives = self.now + self.random(takes);
                    let result = self.network.call(arrives, &call);
                    let sends = matches!(call.action, Action::Send { .. } | Action::Begin { .. });
                    self.calls.push(OnTheWay { done_at: self.now + takes, chat, result, sends });
                }
            }
        }
    }

    /// The process dies: only what was kept is left. Calls that are on their way arrive.
    fn crash(&mut self) {
        for call in self.calls.drain(..) {
            if call.sends && call.result.is_ok() {
                self.cut_off += 1;
            }
        }
        let before = std::mem::replace(&mut self.scheduler, Scheduler::new(N::CAN));
        self.now += self.network.restart();
        for (index, script) in self.scripts.iter().enumerate() {
            let chat = N::id(script.chat);
            for state in self.kept.get(&script.chat).into_iter().flatten() {
                self.scheduler.open(&chat, script.kind(), state.clone());
                self.told[index] = 0;
            }
            // A bot stores this with the chat.
            if let Some(until) = before.blocked_until(&chat) {
                self.scheduler.block_until(&chat, until);
            }
        }
        let now = Millis(self.now);
        self.scheduler.obey(&before.shared_waits(now), now.plus(Duration::from_secs(3600)));
        self.scheduler.goes_on(now);
    }

    /// Plays to the end. `crash_at` are numbers of steps.
    fn play(&mut self, crash_at: &[usize]) -> usize {
        for step in 0..20_000 {
            if crash_at.contains(&step) {
                self.network.check_rates().unwrap();
                self.crash();
            }
            let wake = self.step();
            self.notices.extend(self.scheduler.take_notices());
            let next_view =
                self.scripts.iter().zip(&self.told).filter_map(|(script, told)| {
                    script.views.get(*told).map(|(at, _)| 1_000_000 + at)
                });
            let next_call = self.calls.iter().map(|call| call.done_at);
            let Some(next) = next_view.chain(next_call).chain(wake).min() else {
                assert_eq!(self.scheduler.pending(), 0, "{:?}", self.scheduler);
                self.network.check_rates().unwrap();
                return step;
            };
            self.now = self.now.max(next);
            let mut done = Vec::new();
            let now = self.now;
            self.calls.retain_mut(|call| {
                let is_done = call.done_at <= now;
                if is_done {
                    done.push((call.chat, call.result.clone()));
                }
                !is_done
            });
            for (chat, result) in done {
                let id = N::id(chat);
                self.scheduler.done(&id, Millis(self.now), result);
                self.keep(chat);
                self.scheduler.kept(&id);
            }
        }
        panic!("it does not come to an end: {:?}", self.scheduler);
    }

    /// What people see at the end is exactly the answer; a message more only where the answer
    /// to its send was lost.
    fn check(&self, lost: usize) {
        let mut surplus = 0;
        for script in &self.scripts {
            let view = &script.views.last().unwrap().1;
            let bodies = render(view, READER, &N::CAN);
            let want: Vec<String> = bodies.iter().map(|body| body.text(N::MARKUP).into()).collect();
            let shown = self.network.texts(script.chat);
            let mut missing = match N::instead(view) {
                Some(whole) if shown.contains(&whole) => vec![whole],
                Some(_) | None => want.clone(),
            };
            let all = missing.clone();
            for message in &shown {
                match missing.iter().position(|text| text == message) {
                    Some(index) => drop(missing.remove(index)),
                    None => surplus += 1,
                }
            }
            assert!(missing.is_empty(), "{}: {missing:#?} of {shown:#?}", script.chat);
            if lost == 0 && self.notices.iter().all(|it| matches!(it, Notice::Delivered { .. })) {
                assert_eq!(shown, all);
            }
        }
        assert!(surplus <= lost, "{surplus} messages more, {lost} answers lost");
    }
}

fn thinking(text: &str) -> View {
    View::of(StreamDelta::Thinking { thinking: text.into(), thinking_elapsed_ms: 5 })
}

fn content(text: &str) -> View {
    let (thinking, thinking_duration_ms) = (Some("Hm.".into()), Some(5));
    View::of(StreamDelta::Content { content: text.into(), thinking, thinking_duration_ms })
}

fn finished(text: &str) -> View {
    let (thinking, thinking_duration_ms) = (Some("Hm.".into()), Some(5));
    View::of(StreamDelta::Final { content: text.into(), thinking, thinking_duration_ms })
}

/// An answer of so many words, growing every 200 ms after a second of thinking.
fn answer(chat: i64, start: u64, words: usize) -> Script {
    let word = |n: usize| match n % 7 {
        0 => format!("**word{n}** "),
        3 => format!("`x<{n}>` "),
        5 => "\n\n".to_owned(),
        _ => format!("word{n} "),
    };
    let mut views = vec![(start, thinking("Hm")), (start + 500, thinking("Hm."))];
    let mut text = String::new();
    let step = (words / 40).max(1);
    for n in 0..words {
        text.push_str(&word(n));
        if n % step == 0 {
            views.push((start + 1000 + 200 * (n / step) as u64, content(&text)));
        }
    }
    let end = views.last().map_or(start, |(at, _)| at + 150);
    views.push((end, finished(&text)));
    Script { chat, views }
}

/// The calls of one answer without trouble: the first message at once, edits a second apart,
/// and the end as soon as it may be.
#[test]
fn one_answer() {
    let mut world = Telegram::new(vec![answer(7, 0, 12)], 1);
    world.play(&[]);
    world.check(0);
    let log: Vec<String> = world
        .network
        .log
        .iter()
        .map(|it| format!("{} {}", it.method, it.params["text"].as_str().unwrap_or_default()))
        .collect();
    insta::assert_snapshot!(log.join("\n---\n"));
}

/// In a group, previews are three seconds apart; in a direct chat, one.
#[test]
fn previews_keep_their_distance() {
    for (chat, millis) in [(7, 900), (-7, 3000)] {
        let mut world = Telegram::new(vec![answer(chat, 0, 100)], 2);
        world.play(&[]);
        world.check(0);
        let log = &world.network.log;
        assert!(log.len() > 3);
        let previews = log.iter().filter(|it| it.params["text"].as_str().unwrap().contains('█'));
        let times: Vec<u64> = previews.map(|it| it.at).collect();
        assert!(times.windows(2).all(|two| two[1] - two[0] >= millis), "{times:?}");
    }
}

/// A long answer is shown from its end while it grows, and split properly when it is finished.
#[test]
fn a_long_answer_has_a_tail_and_then_pieces() {
    let mut world = Telegram::new(vec![answer(7, 0, 1500)], 3);
    world.play(&[]);
    world.check(0);
    let long = |it: &&wellspring_testkit::telegram::Logged| {
        it.params["text"].as_str().unwrap().contains("⏳ Resposta longa…")
    };
    let tails: Vec<_> = world.network.log.iter().filter(long).collect();
    assert!(!tails.is_empty());
    for tail in tails {
        let text = wellspring_testkit::telegram::parse_html(tail.params["text"].as_str().unwrap());
        let units = text.unwrap().encode_utf16().count();
        assert!((3400..=3800).contains(&units), "{units}");
    }
    assert!(world.network.shown(7).len() >= 3);
}

/// `retry_after` is kept to the millisecond, for minutes; without one, waits double.
#[test]
fn retry_after_is_exact() {
    let mut world = Telegram::new(vec![answer(7, 0, 12)], 4);
    world.network.faults = [None, Some(Fault::RateLimited(Some(250)))].into();
    world.play(&[]);
    world.check(0);
    let at: Vec<u64> = world.network.log.iter().map(|it| it.at).collect();
    let replies: Vec<_> = world.network.log.iter().map(|it| it.reply.as_str()).collect();
    assert_eq!(replies, ["ok", "429 250", "ok"]);
    assert!((250_000..251_500).contains(&(at[2] - at[1])), "{at:?}");

    let mut world = Telegram::new(vec![answer(7, 0, 12)], 4);
    world.network.faults = std::iter::repeat_n(Some(Fault::RateLimited(None)), 4).collect();
    world.play(&[]);
    world.check(0);
    let at: Vec<u64> = world.network.log.iter().map(|it| it.at).collect();
    for (two, seconds) in at.windows(2).zip([1, 2, 4, 8]) {
        assert!((two[1] - two[0]).abs_diff(seconds * 1000) < 1000, "{at:?}");
    }
}

/// An old server refuses the quote: thoughts become italic, and the answer is the same.
#[test]
fn a_refused_quote_becomes_italic() {
    let mut world = Telegram::new(vec![answer(7, 0, 12)], 5);
    world.network.faults = std::iter::repeat_n(Some(Fault::QuoteRefused), 50).collect();
    world.play(&[]);
    world.check(0);
    assert!(world.network.shown(7)[0].raw.starts_with("<i><b>🧠 Raciocínio</b>\nHm.</i>"));
}

/// Edits that the network refuses: previews stop, the end is sent as a new message, and the old
/// one is deleted after.
#[test]
fn without_edits_the_end_is_sent_in_one_piece() {
    let mut world = Telegram::new(vec![answer(7, 0, 100)], 6);
    world.network.faults =
        std::iter::once(None).chain(std::iter::repeat_n(Some(Fault::NotEditable), 50)).collect();
    world.play(&[]);
    world.check(0);
    let calls: Vec<_> = world.network.log.iter().map(|it| it.method.as_str()).collect();
    assert_eq!(calls, ["sendMessage", "editMessageText", "sendMessage", "deleteMessage"]);
    assert!(matches!(world.notices[0], Notice::PreviewsStopped { .. }));
}

/// Someone deletes the message: it is sent again once, and then left alone.
#[test]
fn a_vanished_message_is_sent_again_once() {
    let mut world = Telegram::new(vec![answer(7, 0, 100)], 7);
    world.network.faults = [None, Some(Fault::Vanished)].into();
    world.play(&[]);
    world.check(0);
    let mut world = Telegram::new(vec![answer(7, 0, 100)], 7);
    world.network.faults = [None, Some(Fault::Vanished), None, Some(Fault::Vanished)].into();
    world.play(&[]);
    assert_eq!(world.network.shown(7), []);
}

/// A placeholder without words is deleted when the answer is aborted; words stay.
#[test]
fn an_abort_deletes_only_a_placeholder() {
    for (view, left) in [(thinking(""), 0), (content("Some words"), 1)] {
        let mut world = Telegram::new(vec![Script { chat: 7, views: vec![(0, view)] }], 8);
        let mut scheduler =
            std::mem::replace(&mut world.scheduler, Scheduler::new(wire::CAPABILITIES));
        scheduler.open(
            "7",
            ChatKind::Direct,
            PostState { key: "answer".into(), ..PostState::default() },
        );
        world.scheduler = scheduler;
        world.step();
        let call = world.calls.remove(0);
        world.scheduler.done("7", Millis(world.now), call.result);
        world.scheduler.kept("7");
        world.scheduler.want("7", "answer", Vec::new(), true);
        world.now += 5000;
        world.play(&[]);
        assert_eq!(world.network.shown(7).len(), left);
    }
}

/// First messages go before edits in other chats, and nothing breaks a rate, with a hundred chats
/// at once, of which some are groups.
#[test]
fn many_chats_share_the_budgets() {
    let chats = (1..=100).map(|n| answer(if n % 5 == 0 { -n } else { n }, 10 * n as u64, 60));
    let mut world = Telegram::new(chats.collect(), 9);
    world.play(&[]);
    world.check(0);
    let firsts = world.network.log.iter().filter(|it| it.method == "sendMessage").map(|it| it.at);
    // A hundred first messages take five seconds at thirty per second.
    assert!(firsts.take(100).max().unwrap() < 1_000_000 + 6_000);
}

/// Random faults: what a person sees at the end is exactly the answer, and no call breaks a rate.
#[test]
fn any_faults() {
    for seed in 0..u64::from(soak(100, 5000)) {
        let mut world = Telegram::new(vec![], 1000 + seed);
        let scripts = world.scripts();
        let mut faults = Vec::new();
        let mut lost = 0;
        for _ in 0..40 {
            faults.push(match world.random(14) {
                0 => Some(Fault::RateLimited(Some(1 + world.random(30)))),
                1 => Some(Fault::RateLimited(None)),
                2 => Some(Fault::Failed),
                3 => Some(Fault::Unreached),
                4 => {
                    lost += 1;
                    Some(Fault::AnswerLost)
                }
                5 => Some(Fault::QuoteRefused),
                6 => Some(Fault::NotEditable),
                _ => None,
            });
        }
        let mut world = Telegram::new(scripts, seed);
        world.network.faults = faults.into();
        world.play(&[]);
        world.check(lost);
    }
}

/// The process is killed between any two steps: nothing is lost, and a message is there twice
/// only if its send was on its way.
#[test]
fn a_crash_at_any_step() {
    let script = || vec![answer(7, 0, 1200), answer(-8, 100, 30)];
    let steps = Telegram::new(script(), 11).play(&[]);
    assert!(steps > 20);
    for at in 0..steps {
        let mut world = Telegram::new(script(), 11);
        world.play(&[at]);
        world.check(world.cut_off);
        let said = world.notices.iter().filter(|it| matches!(it, Notice::MayRepeat { .. })).count();
        assert!(said >= world.cut_off, "killed at {at}: {:?}", world.notices);
    }
}
