//! Slack and Discord: append-only streams, and messages with nonces.

use wellspring_testkit::discord::{self, FakeDiscord, Scope};
use wellspring_testkit::slack::{self, FakeSlack};

use super::*;

impl Network for FakeSlack {
    const CAN: Capabilities = crate::slack::wire::CAPABILITIES;
    const MARKUP: usize = 0;

    /// Groups are threads of two channels.
    fn id(chat: i64) -> String {
        let channel = if chat < 0 { format!("C{}", chat % 2) } else { format!("D{chat}") };
        format!("{channel}/{}.5", chat.abs())
    }

    fn post() -> PostState {
        PostState {
            key: "answer".into(),
            reply_to: Some("1.5/U7/T1".into()),
            preview: Preview::Append,
            ..PostState::default()
        }
    }

    fn call(&mut self, at: u64, call: &Call) -> CallResult {
        let (method, params) = crate::slack::wire::request(call);
        match Self::call(self, at, method, &params) {
            slack::Reply::Answer(status, after, answer) => {
                crate::slack::wire::result(status, after, &answer)
            }
            slack::Reply::Unreached => Err(CallError::Unavailable("no route".into())),
            slack::Reply::Lost => Err(CallError::AnswerLost("closed".into())),
        }
    }

    fn texts(&self, chat: i64) -> Vec<String> {
        let id = Self::id(chat);
        let (channel, thread) = id.split_once('/').unwrap();
        let shown = self.shown(channel, thread);
        // A stream stays open only if the response to its start was lost, because its id is
        // unknown.
        assert!(shown.last().is_none_or(|it| !it.is_streaming), "{shown:?}");
        shown.into_iter().map(|it| it.text).collect()
    }

    fn check_rates(&self) -> Result<(), String> {
        slack::check_rates(&self.log)
    }

    fn restart(&mut self) -> u64 {
        // The earlier counts are unknown, and expire after a minute.
        self.log.clear();
        61_000
    }

    /// A stream shows the model's own Markdown.
    fn instead(view: &View) -> Option<String> {
        match &view.delta {
            StreamDelta::Final { content, .. } => Some(content.clone()),
            StreamDelta::Thinking { .. }
            | StreamDelta::Content { .. }
            | StreamDelta::Error { .. } => None,
        }
    }
}

impl Network for FakeDiscord {
    const CAN: Capabilities = crate::discord::wire::CAPABILITIES;
    const MARKUP: usize = 0;

    /// Discord's ids have no sign.
    fn id(chat: i64) -> String {
        format!("{}{}", if chat < 0 { 8 } else { 9 }, chat.abs())
    }

    /// Posts of different chats have different keys, because their keys are the messages that they
    /// answer.
    fn call(&mut self, at: u64, call: &Call) -> CallResult {
        let mut call = call.clone();
        if let Action::Send { nonce, .. } = &mut call.action {
            *nonce ^= call.chat.parse::<u64>().unwrap();
        }
        let (method, path, params) = crate::discord::wire::request(&call);
        match Self::call(self, at, method, &path, &params) {
            discord::Reply::Answer(status, told, answer) => {
                let headers = crate::discord::wire::Headers {
                    remaining: Some(told.remaining),
                    reset_after: Some(told.reset_after),
                    retry_after: None,
                };
                crate::discord::wire::result(status, headers, &answer, &params)
            }
            discord::Reply::Unreached => Err(CallError::Unavailable("no route".into())),
            discord::Reply::Lost => Err(CallError::AnswerLost("closed".into())),
        }
    }

    fn texts(&self, chat: i64) -> Vec<String> {
        self.shown(&Self::id(chat)).iter().map(|shown| shown.text.clone()).collect()
    }

    fn check_rates(&self) -> Result<(), String> {
        discord::check_rates(&self.log)
    }

    fn restart(&mut self) -> u64 {
        // The earlier counts are unknown, and expire after a minute.
        self.log.clear();
        61_000
    }
}

fn methods(world: &World<FakeSlack>) -> Vec<&str> {
    world.network.log.iter().map(|it| it.method.as_str()).collect()
}

/// An answer in Slack is one stream: thoughts in a card, appended text, and the end.
#[test]
fn an_answer_is_a_stream() {
    let mut world = World::<FakeSlack>::new(vec![answer(7, 0, 60)], 1);
    world.play(&[]);
    world.check(0);
    let methods = methods(&world);
    assert_eq!(methods[..2], ["chat.startStream", "chat.appendStream"]);
    assert_eq!(methods.last(), Some(&"chat.stopStream"));
    assert!(methods[1..methods.len() - 1].iter().all(|it| *it == "chat.appendStream"));
    let shown = world.network.shown("D7", "7.5");
    assert_eq!(shown.len(), 1);
    let card = ("🧠 Raciocínio (complete)".to_owned(), "Hm.".to_owned());
    assert_eq!(shown[0].cards, [("thoughts".to_owned(), card)].into());
}

/// After a lost response, the content of the stream is unknown: the stream ends and edits follow.
#[test]
fn a_lost_answer_ends_the_stream() {
    for fault in
        [slack::Fault::AnswerLost, slack::Fault::InternalError, slack::Fault::StreamExpired]
    {
        let mut world = World::<FakeSlack>::new(vec![answer(7, 0, 200)], 2);
        world.network.faults = [None, None, Some(fault.clone())].into();
        world.play(&[]);
        world.check(0);
        let methods = methods(&world);
        assert!(methods.contains(&"chat.update"), "{fault:?} {methods:?}");
        assert!(!methods.contains(&"chat.postMessage"), "{fault:?} {methods:?}");
        assert_eq!(world.network.shown("D7", "7.5").len(), 1);
    }
}

/// Text that a model takes back cannot be removed from a stream, so an edit removes it.
#[test]
fn words_that_were_taken_back_are_edited_away() {
    let views = vec![
        (0, content("The answer is 41, as")),
        (3000, content("The answer is")),
        (6000, finished("The answer is 42.")),
    ];
    let mut world = World::<FakeSlack>::new(vec![Script { chat: 7, views }], 3);
    world.play(&[]);
    world.check(0);
    let want = ["chat.startStream", "chat.stopStream", "chat.update", "chat.update"];
    assert_eq!(methods(&world), want);
}

/// An app without permission to stream sends messages and edits them.
#[test]
fn without_streams_there_are_edits() {
    let mut world = World::<FakeSlack>::new(vec![answer(7, 0, 60)], 4);
    world.network.faults = [Some(slack::Fault::NoStreams)].into();
    world.play(&[]);
    world.check(0);
    assert_eq!(methods(&world)[..3], ["chat.startStream", "chat.postMessage", "chat.update"]);
}

/// An answer that is too long for a stream ends as messages.
#[test]
fn an_answer_too_long_for_a_stream_is_split() {
    let mut world = World::<FakeSlack>::new(vec![answer(7, 0, 3000)], 5);
    world.play(&[]);
    world.check(0);
    assert!(world.network.shown("D7", "7.5").len() >= 4);
}

/// More people at once than streams per minute: other answers are sent as messages without delay,
/// and every limit holds.
#[test]
fn many_threads_share_the_tiers() {
    let chats = (1..=60).map(|n| answer(if n % 5 == 0 { -n } else { n }, 20 * n as u64, 40));
    let mut world = World::<FakeSlack>::new(chats.collect(), 6);
    world.play(&[]);
    world.check(0);
    let makes = ["chat.startStream", "chat.postMessage"];
    let log = world.network.log.iter().filter(|it| makes.contains(&it.method.as_str()));
    let direct: Vec<u64> =
        log.filter(|it| it.channel.starts_with('D')).map(|it| it.at - 1_000_000).collect();
    assert!(direct.iter().take(48).all(|at| *at < 6_000), "{direct:?}");
}

/// A `retry_after` that was stored with a thread holds for its whole channel.
#[test]
fn a_restored_wait_holds_for_the_room() {
    let (one, other, elsewhere) = (-2, -4, -3);
    let mut scheduler = Scheduler::new(FakeSlack::CAN);
    let until = Millis(1_030_000);
    scheduler.block_until(&FakeSlack::id(one), until);
    let show = |scheduler: &mut Scheduler, chat| {
        let (id, bodies) =
            (FakeSlack::id(chat), render(&finished("Yes."), READER, &FakeSlack::CAN));
        scheduler.open(&id, ChatKind::Group, FakeSlack::post());
        scheduler.want(&id, "answer", bodies, true);
    };
    show(&mut scheduler, other);
    assert_eq!(scheduler.next(Millis(1_000_000)), Next::Wait(until));
    show(&mut scheduler, elsewhere);
    assert!(matches!(scheduler.next(Millis(1_000_000)), Next::Call { .. }));
}

#[test]
fn slack_under_any_faults() {
    for seed in 0..u64::from(soak(100, 5000)) {
        let mut dice = World::<FakeSlack>::new(vec![], 2000 + seed);
        let scripts = dice.scripts();
        let mut lost = 0;
        let faults = (0..40).map(|_| match dice.random(16) {
            0 => Some(slack::Fault::RateLimited(1 + dice.random(30))),
            1 => Some(slack::Fault::Unreached),
            2 | 3 => {
                lost += 1;
                Some(slack::Fault::AnswerLost)
            }
            4 => {
                lost += 1;
                Some(slack::Fault::InternalError)
            }
            5 => Some(slack::Fault::StreamExpired),
            6 => Some(slack::Fault::NoStreams),
            7 => Some(slack::Fault::NotEditable),
            _ => None,
        });
        let faults = faults.collect();
        let mut world = World::<FakeSlack>::new(scripts, seed);
        world.network.faults = faults;
        world.play(&[]);
        world.check(lost);
    }
}

#[test]
fn slack_after_a_crash_at_any_step() {
    let script = || vec![answer(7, 0, 120), answer(-8, 100, 30)];
    let steps = World::<FakeSlack>::new(script(), 11).play(&[]);
    assert!(steps > 20);
    for at in 0..steps {
        let mut world = World::<FakeSlack>::new(script(), 11);
        world.play(&[at]);
        world.check(world.cut_off);
    }
}

/// Discord reports its rate limits in headers. A lost response repeats no message, because Discord
/// deduplicates by nonce.
#[test]
fn discord_under_any_faults() {
    for seed in 0..u64::from(soak(100, 5000)) {
        let mut dice = World::<FakeDiscord>::new(vec![], 3000 + seed);
        let scripts = dice.scripts();
        let faults = (0..40).map(|_| match dice.random(14) {
            0 => Some(discord::Fault::RateLimited(1 + dice.random(20_000), Scope::Channel)),
            1 => Some(discord::Fault::RateLimited(1 + dice.random(5000), Scope::Global)),
            2 => Some(discord::Fault::Unreached),
            3 => Some(discord::Fault::AnswerLost),
            4 => Some(discord::Fault::BadGateway),
            5 => Some(discord::Fault::NotEditable),
            _ => None,
        });
        let faults = faults.collect();
        let mut world = World::<FakeDiscord>::new(scripts, seed);
        world.network.faults = faults;
        world.play(&[]);
        world.check(0);
    }
}

#[test]
fn discord_after_a_crash_at_any_step() {
    let script = || vec![answer(7, 0, 400), answer(-8, 100, 30)];
    let steps = World::<FakeDiscord>::new(script(), 11).play(&[]);
    assert!(steps > 20);
    for at in 0..steps {
        let mut world = World::<FakeDiscord>::new(script(), 11);
        world.play(&[at]);
        world.check(0);
    }
}

/// A person deletes the message: it is sent again once, with another nonce.
#[test]
fn a_message_that_vanished_in_discord_is_sent_again() {
    let mut world = World::<FakeDiscord>::new(vec![answer(7, 0, 100)], 7);
    world.network.faults = [None, Some(discord::Fault::Vanished)].into();
    world.play(&[]);
    world.check(0);
}

/// A hundred channels at once: the limits of all buckets and of the bot hold.
#[test]
fn many_channels_share_the_rate_of_discord() {
    let chats = (1..=100).map(|n| answer(if n % 5 == 0 { -n } else { n }, 10 * n as u64, 60));
    let mut world = World::<FakeDiscord>::new(chats.collect(), 9);
    world.play(&[]);
    world.check(0);
}
