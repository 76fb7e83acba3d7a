//! From a person's message to what they see, with the scripted model, on a virtual clock and a
//! strict Telegram.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{self, BoxStream, StreamExt as _};
use serde_json::{Value, json};
use wellspring_core::{
    Approval, Batch, Context, FailureKind, FileProduced, MediaSource, Millis, ModelError,
    RemoteAgent, RemoteCapabilities, RemoteInputs, RemoteRequest, RemoteResume, Stop, ToolResult,
    ToolSpec,
};
use wellspring_engine::tools::from_function;
use wellspring_engine::{AgentDef, Permission, Principal, Runtime};
use wellspring_log::{
    Append, AppendDone, Created, Log, LogOptions, MemoryStore, NewCommand, NewFrame, NewRun,
    PutAll, Store, StoreFuture, TokioClock,
};
use wellspring_models::{Failure, Gate, Say, Scripted};
use wellspring_testkit::Lines;
use wellspring_testkit::telegram::{FakeTelegram, Fault, Reply, Shown, check_rates};

mod faults;

use super::*;
use crate::channel::{Call, CallError, CallResult, Capabilities, Channel, Limit};
use crate::incoming::User;
use crate::telegram::wire;
use crate::{Access, InstanceConfig, People};

const CHAT: i64 = 7;

/// Telegram in memory.
#[derive(Clone, Debug)]
struct Net {
    telegram: Arc<Mutex<FakeTelegram>>,
    told: Arc<Mutex<Vec<String>>>,
    /// When this process started, and the network's time at that moment.
    started: tokio::time::Instant,
    since: u64,
    can: Capabilities,
    death: Option<Arc<faults::Death>>,
    /// Errors for the next calls with these names.
    errors: Arc<Mutex<VecDeque<(&'static str, CallError)>>>,
}

impl Channel for Net {
    fn network(&self) -> &'static str {
        "telegram"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.can
    }

    fn call(&self, call: Call) -> BoxFuture<'_, CallResult> {
        Box::pin(async move {
            let moment = self.death.as_ref().and_then(|death| death.at_this_call());
            if moment == Some(faults::Moment::Before) {
                return self.die().await;
            }
            let at = self.since + u64::try_from(self.started.elapsed().as_millis()).unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            let name = call.action.name();
            let error = self.errors.lock().unwrap().pop_front_if(|(of, _)| *of == name);
            if let Some((_, error)) = error {
                return Err(error);
            }
            if let crate::Action::Send { body, .. } = &call.action
                && let Some(file) = &body.file
            {
                self.told.lock().unwrap().push(format!("file {}", file.name));
                return Ok(crate::Done::new(Some("900".into())));
            }
            let (method, params) = wire::request(&call);
            let reply = self.telegram.lock().unwrap().call(at, method, &params);
            if moment.is_some()
                && let Some(call) = self.telegram.lock().unwrap().log.last_mut()
            {
                // The result of the call is unknown.
                call.reply = "lost".into();
            }
            match moment {
                None => {}
                Some(faults::Moment::Answered) => self.death.iter().for_each(|death| death.come()),
                Some(faults::Moment::Arrived | faults::Moment::Before) => return self.die().await,
            }
            match reply {
                Reply::Answer(answer) => wire::result(&answer),
                Reply::Unreached => Err(CallError::Unavailable("no route".into())),
                Reply::Lost => Err(CallError::AnswerLost("closed".into())),
            }
        })
    }

    fn download(
        &self,
        file: &str,
        bytes_max: usize,
    ) -> BoxFuture<'_, Result<bytes::Bytes, CallError>> {
        let bytes = match file {
            "large" => vec![0; 3 * 1024 * 1024],
            _ => format!("bytes of {file}").into_bytes(),
        };
        let too_large = CallError::Refused("too large".into());
        let fits = bytes.len() <= bytes_max;
        Box::pin(async move { if fits { Ok(bytes.into()) } else { Err(too_large) } })
    }

    fn acknowledge(&self, _: &str, text: &str) -> BoxFuture<'_, Result<(), CallError>> {
        self.told.lock().unwrap().push(text.to_owned());
        Box::pin(async { Ok(()) })
    }

    fn check(&self) -> BoxFuture<'_, Result<String, CallError>> {
        Box::pin(async { Ok("@fake".into()) })
    }
}

impl Net {
    /// Kills the process: the call never returns.
    async fn die(&self) -> CallResult {
        self.death.iter().for_each(|death| death.come());
        std::future::pending().await
    }
}

/// A bot and the network that it is in.
struct Bot {
    net: Net,
    runtime: Runtime,
    instance: Instance,
    config: InstanceConfig,
    next: u32,
}

impl Bot {
    async fn new(agent: AgentDef, config: impl FnOnce(&mut InstanceConfig)) -> Self {
        Self::in_network(wire::CAPABILITIES, agent, config).await
    }

    async fn in_network(
        can: Capabilities,
        agent: AgentDef,
        config: impl FnOnce(&mut InstanceConfig),
    ) -> Self {
        Self::with_store(Arc::new(MemoryStore::default()), can, agent, config).await
    }

    async fn with_store(
        store: Arc<dyn Store>,
        can: Capabilities,
        agent: AgentDef,
        config: impl FnOnce(&mut InstanceConfig),
    ) -> Self {
        let options = LogOptions {
            clock: Arc::new(TokioClock::starting_at(Millis(1_000_000))),
            ..LogOptions::default()
        };
        let runtime = Runtime::new(Log::new(store, options));
        runtime.register(agent);
        let mut bot = InstanceConfig::new("bot", "agent");
        bot.access = Access { everyone: true, ..Access::default() };
        config(&mut bot);
        let net = Net {
            telegram: Arc::default(),
            told: Arc::default(),
            started: tokio::time::Instant::now(),
            since: 0,
            can,
            death: None,
            errors: Arc::default(),
        };
        let channel = Arc::new(net.clone());
        let instance = Instance::start(bot.clone(), channel, runtime.clone()).await.unwrap();
        Self { net, runtime, instance, config: bot, next: 0 }
    }

    async fn write(&mut self, text: &str) {
        self.write_as("7", text).await;
    }

    async fn write_as(&mut self, user: &str, text: &str) {
        let what = What::Message {
            message: (100 + self.next).to_string().into(),
            text: text.into(),
            files: Vec::new(),
        };
        self.give(user, what).await;
    }

    async fn press(&mut self, user: &str, data: &str) {
        self.give(user, What::Press { press: "p".into(), data: data.into() }).await;
    }

    async fn give(&mut self, user: &str, what: What) {
        self.next += 1;
        let user = User {
            id: user.into(),
            name: "Ana".into(),
            language: Some(crate::Language::Portuguese),
        };
        let incoming = Incoming {
            id: self.next.to_string().into(),
            chat: CHAT.to_string().into(),
            kind: ChatKind::Direct,
            topic: None,
            user,
            what,
        };
        self.instance.incoming(incoming.clone()).await.unwrap();
        // Networks deliver twice.
        self.instance.incoming(incoming).await.unwrap();
    }

    /// Waits until everything is delivered and no run is left.
    async fn settle(&self) {
        for _ in 0..600 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let active = self.instance.active_run("7").await.unwrap();
            if active.is_none() && self.instance.pending() == 0 {
                check_rates(&self.net.telegram.lock().unwrap().log).unwrap();
                return;
            }
        }
        panic!("it does not settle: {:?}", self.texts());
    }

    async fn wait_for(&self, words: &str) {
        for _ in 0..600 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            if self.texts().iter().any(|text| text.contains(words)) {
                return;
            }
        }
        panic!("{words:?} is not shown: {:?}", self.texts());
    }

    fn shown(&self) -> Vec<Shown> {
        self.net.telegram.lock().unwrap().shown(CHAT).to_vec()
    }

    fn texts(&self) -> Vec<String> {
        self.shown().into_iter().map(|shown| shown.text).collect()
    }

    fn calls(&self) -> Vec<String> {
        let log = &self.net.telegram.lock().unwrap().log;
        log.iter().map(|call| call.method.clone()).collect()
    }

    fn previews(&self) -> Vec<String> {
        let log = &self.net.telegram.lock().unwrap().log;
        let texts = log.iter().filter_map(|call| call.params["text"].as_str());
        texts.map(ToOwned::to_owned).collect()
    }
}

fn agent(turns: impl IntoIterator<Item = Say>) -> AgentDef {
    AgentDef::model("agent", Arc::new(Scripted::new(turns)))
}

fn streaming(config: &mut InstanceConfig) {
    config.stream = true;
}

/// A word every 400 ms.
fn slowly() -> Say {
    Say::new().pace(Duration::from_millis(400))
}

/// Typing, thoughts, words that grow, and the whole: one message that the answer replies with.
#[tokio::test(start_paused = true)]
async fn an_answer_grows_in_one_message() {
    let say = slowly()
        .thought("Let me think about this for a good while, really.")
        .text("It is **noon** in the capital of all the lands & seas.");
    let mut bot = Bot::new(agent([say]), streaming).await;
    bot.write("What time is it?").await;
    bot.settle().await;
    let shown = bot.shown();
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0].reply_to, Some(100));
    assert_eq!(
        shown[0].raw,
        "<blockquote expandable><b>🧠 Raciocínio</b>\nLet me think about this for a good while, \
         really.</blockquote>\nIt is <b>noon</b> in the capital of all the lands &amp; seas."
    );
    assert_eq!(bot.calls()[..2], ["sendChatAction", "sendMessage"]);
    let previews = bot.previews();
    assert!(previews[0].starts_with("<blockquote expandable><b>🧠 Pensando…</b>"), "{previews:?}");
    assert!(previews.iter().any(|text| text.ends_with('█')), "{previews:?}");
    assert!(!bot.calls().contains(&"deleteMessage".to_owned()));
}

/// The first words are seen within two seconds of the message.
#[tokio::test(start_paused = true)]
async fn the_first_words_are_seen_within_two_seconds() {
    let say = slowly().wait(Duration::from_secs(1)).text("Yes, of course.");
    let mut bot = Bot::new(agent([say]), streaming).await;
    bot.write("Really?").await;
    bot.settle().await;
    let log = &bot.net.telegram.lock().unwrap().log;
    let first = log.iter().find(|call| call.method == "sendMessage").unwrap();
    assert!(first.at < 2000, "{}", first.at);
}

/// Without `agentStreamMode`, the answer comes in one piece.
#[tokio::test(start_paused = true)]
async fn without_streaming_the_answer_comes_in_one_piece() {
    let mut bot = Bot::new(agent([slowly().text("It is noon, I think.")]), |_| {}).await;
    bot.write("What time is it?").await;
    bot.settle().await;
    assert_eq!(bot.texts(), ["It is noon, I think."]);
    let calls = bot.calls();
    assert_eq!(calls.iter().filter(|it| *it != "sendChatAction").count(), 1, "{calls:?}");
}

/// Edits fail in mid-stream: the answer comes in one piece, and the model is asked once.
#[tokio::test(start_paused = true)]
async fn a_failing_edit_falls_back_to_one_piece() {
    let say = slowly().text("A rather long answer that grows for quite a few seconds.");
    let mut bot = Bot::new(agent([say]), streaming).await;
    bot.net.telegram.lock().unwrap().faults =
        [None, None].into_iter().chain(std::iter::repeat_n(Some(Fault::NotEditable), 20)).collect();
    bot.write("Go").await;
    bot.settle().await;
    assert_eq!(bot.texts(), ["A rather long answer that grows for quite a few seconds."]);
    let runs = bot.runtime.local().list(wellspring_log::RunFilter::default()).await.unwrap();
    assert_eq!(runs.len(), 1);
}

/// An answer beyond the limit: a tail while it grows, pieces when it is finished.
#[tokio::test(start_paused = true)]
async fn a_long_answer_is_split_at_its_end() {
    let text: String = (0..1200).map(|n| format!("word{n} ")).collect();
    let say = Say::new().pace(Duration::from_millis(10)).text(&text);
    let mut bot = Bot::new(agent([say]), streaming).await;
    bot.write("Go").await;
    bot.settle().await;
    assert!(bot.previews().iter().any(|text| text.contains("⏳ Resposta longa…")));
    let texts = bot.texts();
    assert!(texts.len() >= 3);
    assert_eq!(texts.join(" "), text.trim());
}

/// A model that fails in mid-answer: what was said stays, with the reason below it.
#[tokio::test(start_paused = true)]
async fn a_failure_leaves_the_words() {
    let failure = Failure::new(FailureKind::Refused, "no more money");
    let say = slowly().text("It is almost").fail(failure);
    let mut bot = Bot::new(agent([say]), streaming).await;
    bot.write("Go").await;
    bot.settle().await;
    let texts = bot.texts();
    assert_eq!(texts.len(), 1);
    assert!(texts[0].contains("⚠️ Algo deu errado"), "{texts:?}");
}

/// A model that falls silent: the engine's idle limit ends the run, and the chat says so.
#[tokio::test(start_paused = true)]
async fn a_silent_model_becomes_an_error() {
    let mut def = agent([slowly().text("Almost there").hang()]);
    def.limits.attempts = 1;
    let mut bot = Bot::new(def, streaming).await;
    bot.write("Go").await;
    bot.settle().await;
    assert!(bot.texts()[0].contains("⚠️ Algo deu errado"), "{:?}", bot.texts());
}

/// `/stop` ends an answer: a placeholder goes, words stay.
#[tokio::test(start_paused = true)]
async fn stop_deletes_only_a_placeholder() {
    for (say, left) in [
        (Say::new().thought("Hm").hang(), vec!["⏹ Interrompendo…".to_owned()]),
        (
            slowly().text("Some words").hang(),
            vec!["Some words\n\n⏹ Interrompido.".to_owned(), "⏹ Interrompendo…".to_owned()],
        ),
    ] {
        let mut bot = Bot::new(agent([say]), streaming).await;
        bot.write("Go").await;
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(bot.texts().len(), 1);
        bot.write("/stop").await;
        bot.settle().await;
        assert_eq!(bot.texts(), left);
    }
}

/// Messages that come while an answer is given: collected and answered in one piece, or one
/// after the other, or given to the running agent.
#[tokio::test(start_paused = true)]
async fn messages_while_busy() {
    let echo = || {
        let model = Scripted::with(|request| {
            let said: Vec<String> = request
                .messages
                .iter()
                .filter_map(|message| match message {
                    wellspring_core::Message::User { content } => {
                        let texts = content.iter().filter_map(Content::as_text);
                        Some(texts.collect::<Vec<_>>().join("+"))
                    }
                    wellspring_core::Message::Assistant { .. }
                    | wellspring_core::Message::Results { .. } => None,
                })
                .collect();
            slowly().text(format!("Answer to {} now", said.last().unwrap()))
        });
        AgentDef::model("agent", Arc::new(model))
    };
    for (when_busy, want) in [
        (WhenBusy::Accumulate, vec!["Answer to one now", "Answer to two+three now"]),
        (WhenBusy::Queue, vec!["Answer to one now", "Answer to two now", "Answer to three now"]),
    ] {
        let mut bot = Bot::new(echo(), |config| {
            config.stream = true;
            config.when_busy = when_busy;
        })
        .await;
        for word in ["one", "two", "three"] {
            bot.write(word).await;
        }
        bot.settle().await;
        assert_eq!(bot.texts(), want, "{when_busy:?}");
        // Messages that are answered together get no previews.
        let shown = bot.previews();
        let first = shown.iter().position(|it| it == "Answer to one now").unwrap();
        let grows = shown[first..].iter().any(|it| it.ends_with('█'));
        assert!(!grows || when_busy == WhenBusy::Queue, "{shown:?}");
        assert_eq!(bot.instance.chats_in_memory(), 0);
    }
    let mut bot = Bot::new(echo(), |config| config.when_busy = WhenBusy::Steer).await;
    bot.write("one").await;
    bot.write("two").await;
    bot.settle().await;
    let texts = bot.texts();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].contains("Answer to two now"), "{texts:?}");
}

/// An agent in another process that takes three seconds for each prompt.
struct Elsewhere(RemoteInputs);

impl RemoteAgent for Elsewhere {
    fn name(&self) -> &str {
        "elsewhere"
    }

    fn capabilities(&self) -> RemoteCapabilities {
        RemoteCapabilities { inputs: self.0, resume: RemoteResume::NewParts }
    }

    fn run(
        &self,
        request: RemoteRequest,
        _: Context,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Result<Batch, ModelError>>, ModelError>> {
        let texts = request.request.input.iter().filter_map(Content::as_text);
        let answer = format!("Answer to {} now", texts.collect::<Vec<_>>().join("+"));
        let batches = stream::once(async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            let mut batch = Batch::default();
            let part = batch.start(PartKind::TEXT);
            batch.delta(part, &answer);
            batch.finish(part);
            batch.stop(Stop::EndTurn, None);
            Ok(batch)
        });
        async move { Ok(batches.boxed()) }.boxed()
    }
}

/// With `steer`, a remote agent gets a message during its answer as its next prompt, and the answer
/// continues in the same message. If the agent takes no input, the message is answered afterwards.
#[tokio::test(start_paused = true)]
async fn a_remote_agent_is_steered() {
    let (one, two) = ("Answer to one now", "Answer to two now");
    for (inputs, want) in [
        (RemoteInputs::FollowUp, vec![format!("{one}\n\n{two}")]),
        (RemoteInputs::Refused, vec![one.to_owned(), two.to_owned()]),
    ] {
        let def = AgentDef::remote("agent", Arc::new(Elsewhere(inputs)));
        let mut bot = Bot::new(def, |config| {
            config.stream = true;
            config.when_busy = WhenBusy::Steer;
        })
        .await;
        bot.write("one").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        bot.write("two").await;
        bot.settle().await;
        assert_eq!(bot.texts(), want, "{inputs:?}");
    }
}

/// A store that cannot create runs while it is full.
struct Full {
    store: MemoryStore,
    is_full: AtomicBool,
}

impl Store for Full {
    fn create(&self, new: NewRun, first: NewFrame) -> StoreFuture<'_, Created> {
        if self.is_full.load(Ordering::SeqCst) {
            let error = std::io::Error::other("no space left");
            return std::future::ready(Err(StoreError::failed("creating", error))).boxed();
        }
        self.store.create(new, first)
    }

    fn append(&self, append: Append, done: AppendDone) {
        self.store.append(append, done);
    }

    fn put_inbox(&self, run: RunId, commands: Vec<NewCommand>) -> StoreFuture<'_, PutAll> {
        self.store.put_inbox(run, commands)
    }

    wellspring_log::forward_store!(store);
}

/// A message that cannot be stored is refused, so the network delivers it again. The next delivery
/// is answered, and one after that is recognised.
#[tokio::test(start_paused = true)]
async fn a_refused_delivery_is_answered_when_it_comes_again() {
    let full = Arc::new(Full { store: MemoryStore::default(), is_full: AtomicBool::new(true) });
    let def = agent([Say::new().text("It is noon.")]);
    let bot = Bot::with_store(Arc::clone(&full) as _, wire::CAPABILITIES, def, streaming).await;
    let user = User { id: "7".into(), name: "Ana".into(), language: None };
    let what = What::Message { message: "100".into(), text: "Time?".into(), files: Vec::new() };
    let incoming = Incoming {
        id: "1".into(),
        chat: CHAT.to_string().into(),
        kind: ChatKind::Direct,
        topic: None,
        user,
        what,
    };
    for _ in 0..2 {
        let refused = bot.instance.incoming(incoming.clone()).await;
        assert!(matches!(refused, Err(IncomingError::Start(_))), "{refused:?}");
    }
    full.is_full.store(false, Ordering::SeqCst);
    for _ in 0..2 {
        bot.instance.incoming(incoming.clone()).await.unwrap();
    }
    bot.settle().await;
    assert_eq!(bot.texts(), ["It is noon."]);
    let runs = bot.runtime.local().list(wellspring_log::RunFilter::default()).await.unwrap();
    assert_eq!(runs.len(), 1);
}

/// A `retry_after` for the whole bot, or for one kind of call, holds after a restart too.
#[tokio::test(start_paused = true)]
async fn waits_that_all_chats_share_survive_a_restart() {
    let retry_after = Duration::from_secs(200);
    for (name, limit) in [("typing", Limit::Bot), ("send", Limit::Action)] {
        let def = agent([Say::new().text("It is noon.")]);
        let mut bot = Bot::new(def, |_| {}).await;
        let error = CallError::BotLimited { retry_after, limit };
        bot.net.errors.lock().unwrap().push_back((name, error));
        bot.write("Time?").await;
        while !bot.net.errors.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // The result is stored at once.
        tokio::time::sleep(Duration::from_millis(30)).await;
        bot.instance.stop().await;
        let channel = Arc::new(bot.net.clone());
        bot.instance =
            Instance::start(bot.config.clone(), channel, bot.runtime.clone()).await.unwrap();
        bot.settle().await;
        assert_eq!(bot.texts(), ["It is noon."]);
        let telegram = bot.net.telegram.lock().unwrap();
        let sent = telegram.log.iter().find(|call| call.method == "sendMessage").unwrap();
        assert!((200_000..202_000).contains(&sent.at), "{limit:?}: {}", sent.at);
        let others = telegram.log.iter().filter(|call| call.at < 200_000).count();
        assert!(limit == Limit::Action || others == 0, "{limit:?}: {others}");
    }
}

fn risky() -> AgentDef {
    let spec = ToolSpec { approval: Some(Approval::Ask), ..ToolSpec::new("launch", "launches") };
    let tool = from_function(spec, |_: Value, _| async move { Ok(ToolResult::new("up")) });
    let mut def =
        agent([Say::new().call("launch", json!({"rocket": 5})), Say::new().text("It is up.")]);
    def.tools.push(Arc::new(tool));
    def
}

/// An approval is asked with buttons. A stranger's press is refused and audited; the asker's
/// counts, once.
#[tokio::test(start_paused = true)]
async fn only_an_approver_presses() {
    let mut bot = Bot::new(risky(), streaming).await;
    bot.write("Launch it").await;
    bot.wait_for("❓").await;
    let asked = bot.shown().pop().unwrap();
    assert_eq!(asked.text, "❓ Allow launch?\nlaunch {\"rocket\":5}");
    let labels: Vec<&str> = asked.buttons.iter().map(|(label, _)| label.as_str()).collect();
    assert_eq!(labels, ["✅ Aprovar", "❌ Negar"]);
    bot.press("99", &asked.buttons[0].1).await;
    assert_eq!(
        bot.net.told.lock().unwrap().drain(..).next().unwrap(),
        "Só quem perguntou, ou um aprovador, pode responder."
    );
    let admin = Principal::new("default", "admin", [Permission::Admin]);
    let audit = bot.runtime.control(admin).audit(None, 10).await.unwrap();
    let entries: Vec<_> = audit.iter().map(|it| (&*it.act.did, &*it.act.by)).collect();
    assert_eq!(entries, [("refused_answer", "telegram:bot:99")]);
    bot.press("7", &asked.buttons[0].1).await;
    bot.settle().await;
    assert_eq!(bot.net.told.lock().unwrap()[0], "Anotado.");
    let texts = bot.texts();
    assert!(texts.iter().any(|text| text.ends_with("✅ Aprovado")), "{texts:?}");
    assert!(texts.iter().any(|text| text == "It is up."), "{texts:?}");
    assert!(bot.shown().iter().all(|shown| shown.buttons.is_empty()));
}

/// People who may not use the bot get a code; once an operator has accepted it, they may.
#[tokio::test(start_paused = true)]
async fn strangers_are_paired() {
    let mut bot = Bot::new(agent([Say::new().text("Welcome.")]), |config| {
        config.access = Access { users: vec!["1".into()], ..Access::default() };
    })
    .await;
    bot.write("Hello?").await;
    bot.settle().await;
    let people = People::of(&bot.runtime.local(), "bot").unwrap();
    let waiting = people.waiting().await.unwrap();
    assert_eq!(waiting.len(), 1);
    assert!(bot.texts()[0].ends_with(&*waiting[0].code), "{:?}", bot.texts());
    assert_eq!(people.pair("WRONG").await.unwrap(), None);
    assert_eq!(people.pair(&waiting[0].code).await.unwrap().unwrap().user, "7".into());
    assert_eq!(people.allowed().await.unwrap(), ["7".into()]);
    bot.write("Hello?").await;
    bot.settle().await;
    assert_eq!(bot.texts()[1], "Welcome.");
    assert!(people.forbid("7").await.unwrap());
}

/// If a person writes faster than the network lets the bot answer, the bot sends a few answers and
/// drops the rest. This holds for strangers and for people with access, and delays no other chat.
#[tokio::test(start_paused = true)]
async fn a_flood_holds_up_nobody() {
    let mut bot = Bot::new(agent([Say::new().text("Welcome.")]), |config| {
        config.access = Access { users: vec!["1".into()], ..Access::default() };
    })
    .await;
    let flood = async {
        for _ in 0..1000 {
            bot.write("Hello?").await;
            bot.write_as("1", "/help").await;
        }
        bot.write_as("1", "Hello?").await;
        bot.settle().await;
    };
    tokio::time::timeout(Duration::from_secs(60), flood).await.unwrap();
    let texts = bot.texts();
    // Some notes were sent in the meantime, which made room for more.
    assert!((NOTES_MAX + 1..100).contains(&texts.len()), "{texts:?}");
    assert!(texts.iter().any(|text| text == "Welcome."), "{texts:?}");
}

/// Files that are too large together for one request are replaced by notes.
#[tokio::test(start_paused = true)]
async fn many_large_files_are_one_request() {
    let gate = Gate::new();
    let say = Say::new().text("Wait.").gate(&gate);
    let mut bot = Bot::new(agent([say, Say::new().text("Thanks.")]), |_| {}).await;
    bot.write("Hi").await;
    gate.reached(1).await;
    for number in 0..5 {
        let sent = IncomingFile { id: "large".into(), media_type: "image/jpeg".into(), name: None };
        let message = format!("{}", 200 + number).into();
        bot.give("7", What::Message { message, text: "".into(), files: vec![sent] }).await;
    }
    gate.open();
    bot.settle().await;
    let runs = bot.runtime.local().list(wellspring_log::RunFilter::default()).await.unwrap();
    let mut inputs = Vec::new();
    for info in runs {
        let run = bot.runtime.local().transcript(info.run).await.unwrap();
        let input = run.started.unwrap().request.input.clone();
        let media = input.iter().filter(|it| matches!(it, Content::Media { .. })).count();
        inputs.push((media, input.len()));
    }
    inputs.sort_unstable();
    assert_eq!(inputs, [(0, 1), (2, 5)]);
}

/// A request that is too large for any store is rejected. It is not delivered again, so it does not
/// block messages of other people.
#[tokio::test(start_paused = true)]
async fn a_request_that_never_fits_is_refused() {
    let mut bot = Bot::new(agent([Say::new().text("Welcome.")]), |_| {}).await;
    bot.write(&"x".repeat(17 * 1024 * 1024)).await;
    bot.write("Hello?").await;
    bot.settle().await;
    let texts = bot.texts();
    assert!(texts[0].contains("Não foi possível iniciar"), "{texts:?}");
    assert_eq!(texts[1..], ["Welcome."]);
}

/// Commands: thoughts can be switched off, a new conversation begins, an agent is chosen.
#[tokio::test(start_paused = true)]
async fn commands() {
    let say = slowly().thought("A long thought indeed it is, I say.").text("Done.");
    let mut bot = Bot::new(agent([say]), streaming).await;
    bot.write("/thinking off").await;
    bot.write("/agent nobody").await;
    bot.write("/agent").await;
    bot.write("/new").await;
    bot.write("/thinking maybe").await;
    bot.write("Go").await;
    bot.settle().await;
    insta::assert_snapshot!(bot.texts().join("\n"), @"
    O raciocínio agora está off.
    Não existe o agente nobody. Agentes: agent
    Agentes: agent
    🆕 Uma nova conversa começa.
    Use /thinking on, /thinking off ou /thinking auto.
    Done.
    ");
    assert!(bot.previews().iter().all(|text| !text.contains("thought")));
}

/// A form is asked field by field, and what does not fit is asked again.
#[tokio::test(start_paused = true)]
async fn a_form_is_asked_field_by_field() {
    let mut def = agent([
        Say::new().call(
            "ask_user",
            json!({
                "question": "Where to?",
                "schema": {"type": "object", "required": ["city", "nights"], "properties": {
                    "city": {"type": "string"}, "nights": {"type": "integer"},
                }},
            }),
        ),
        Say::new().text("Booked."),
    ]);
    def.tools.push(Arc::new(wellspring_engine::tools::ask_user()));
    let mut bot = Bot::new(def, streaming).await;
    bot.write("Book").await;
    bot.wait_for("city").await;
    bot.write("Lisboa").await;
    bot.wait_for("nights").await;
    bot.write("many").await;
    bot.wait_for("Isso não serve").await;
    bot.write("3").await;
    bot.settle().await;
    assert!(bot.texts().iter().any(|text| text == "Booked."), "{:?}", bot.texts());
}

/// Files that come in are part of the request, files that the agent produces are sent.
#[tokio::test(start_paused = true)]
async fn files_in_and_out() {
    let file = FileProduced {
        media_type: "text/plain".into(),
        source: MediaSource::Data("aGk=".into()),
        name: Some("hi.txt".into()),
    };
    let mut bot = Bot::new(agent([Say::new().text("Here.").file(file)]), streaming).await;
    let sent = IncomingFile { id: "f1".into(), media_type: "image/jpeg".into(), name: None };
    let what = What::Message { message: "100".into(), text: "Look".into(), files: vec![sent] };
    bot.give("7", what).await;
    bot.settle().await;
    assert_eq!(*bot.net.told.lock().unwrap(), ["file hi.txt"]);
    let runs = bot.runtime.local().list(wellspring_log::RunFilter::default()).await.unwrap();
    let run = bot.runtime.local().transcript(runs[0].run).await.unwrap();
    let input = &run.started.unwrap().request.input;
    assert!(
        matches!(&input[1], Content::Media { media_type, .. } if &**media_type == "image/jpeg")
    );
}

/// The process stops in mid-answer, and another one goes on with the same message.
#[tokio::test(start_paused = true)]
async fn a_restart_goes_on_with_the_same_message() {
    let gate = Gate::new();
    let say = slowly().text("The first half").gate(&gate).text(" and the second.");
    let mut bot = Bot::new(agent([say]), streaming).await;
    bot.write("Go").await;
    bot.wait_for("half").await;
    let before = bot.shown();
    bot.instance.stop().await;
    gate.open();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let channel = Arc::new(bot.net.clone());
    bot.instance = Instance::start(bot.config.clone(), channel, bot.runtime.clone()).await.unwrap();
    bot.settle().await;
    assert_eq!(bot.texts(), ["The first half and the second."]);
    assert_eq!(bot.shown()[0].id, before[0].id);
    // Nothing is left to do after another restart.
    bot.instance.stop().await;
    let calls = bot.calls().len();
    let channel = Arc::new(bot.net.clone());
    bot.instance = Instance::start(bot.config.clone(), channel, bot.runtime.clone()).await.unwrap();
    bot.settle().await;
    assert_eq!(bot.calls().len(), calls);
}

/// Drafts show the preview; the answer itself is one message.
#[tokio::test(start_paused = true)]
async fn drafts_are_previews_only() {
    let say = slowly().text("A growing answer with several words.");
    let mut bot = Bot::new(agent([say]), |config| {
        config.stream = true;
        config.drafts = true;
    })
    .await;
    bot.write("Go").await;
    bot.settle().await;
    let calls = bot.calls();
    assert!(calls.iter().filter(|it| *it == "sendMessageDraft").count() >= 2, "{calls:?}");
    assert_eq!(calls.iter().filter(|it| *it == "sendMessage").count(), 1);
    assert!(!calls.contains(&"editMessageText".to_owned()));
    assert_eq!(bot.texts(), ["A growing answer with several words."]);
}

/// A network that only sends: the answer comes in one piece although the bot would stream, and
/// a question is answered with its number.
#[tokio::test(start_paused = true)]
async fn a_network_that_cannot_stream_gets_one_piece() {
    let can = Capabilities {
        markups: wire::CAPABILITIES.markups,
        text_max: 4096,
        ..Capabilities::DEFAULT
    };
    let mut bot = Bot::in_network(can, risky(), streaming).await;
    bot.write("Launch it").await;
    bot.wait_for("2. ❌ Negar").await;
    bot.write("maybe").await;
    bot.wait_for("Isso não serve: 1, 2").await;
    bot.write("1").await;
    bot.settle().await;
    assert!(bot.calls().iter().all(|call| call == "sendMessage"), "{:?}", bot.calls());
    assert_eq!(bot.texts().last().unwrap(), "It is up.");
}

/// Each answer is in the log with its trace id, duration and provider.
#[tokio::test(start_paused = true)]
async fn a_trigger_is_logged() {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let mut bot = Bot::new(agent([slowly().text("It is noon.")]), streaming).await;
    bot.write("Time?").await;
    bot.settle().await;
    let runs = bot.runtime.local().list(wellspring_log::RunFilter::default()).await.unwrap();
    let run = bot.runtime.local().transcript(runs[0].run).await.unwrap();
    let trace_id = run.started.unwrap().request.trace_id.clone().unwrap();
    let text = lines.text();
    let line = text.lines().find(|line| line.contains("answered")).unwrap();
    assert!(line.contains(&format!("trace_id=\"{trace_id}\"")), "{line}");
    assert!(line.contains("provider=\"agent\"") && line.contains("duration_ms="), "{line}");
}

/// What comes in over a webhook has to show the secret, or the signature.
#[tokio::test(start_paused = true)]
async fn webhooks_check_their_callers() {
    use axum::body::Body as HttpBody;
    use axum::http::Request;
    use hmac::Mac as _;
    use tower::ServiceExt as _;

    let bot = Bot::new(agent([Say::new().text("Hello.")]), streaming).await;
    let telegram = crate::Telegram::webhook(bot.instance.clone(), "/channels/t", "s3cret");
    let update = json!({"update_id": 1, "message": {"message_id": 100, "text": "Hi",
        "chat": {"id": CHAT, "type": "private"}, "from": {"id": 7, "is_bot": false}}});
    let post = |path: &str, header: &'static str, value: String, body: String| {
        let request = Request::post(path).header(header, value);
        request.body(HttpBody::from(body)).unwrap()
    };
    let header = "x-telegram-bot-api-secret-token";
    for (secret, body, status) in [
        ("wrong", update.to_string(), 401),
        ("", update.to_string(), 401),
        ("s3cret", "nonsense".to_owned(), 400),
        ("s3cret", update.to_string(), 200),
    ] {
        let request = post("/channels/t", header, secret.into(), body);
        let response = telegram.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{secret:?}");
    }
    bot.settle().await;
    assert_eq!(bot.texts(), ["Hello."]);

    let secrets = crate::WhatsAppSecrets {
        token: "t".into(),
        app_secret: "app".into(),
        verify_token: "mine".into(),
    };
    let whatsapp = crate::WhatsApp::new(secrets, "1", None).unwrap();
    let whatsapp = whatsapp.webhook(bot.instance.clone(), "/channels/w");
    for (token, status) in [("mine", 200), ("other", 403)] {
        let query = format!("hub.mode=subscribe&hub.verify_token={token}&hub.challenge=42");
        let request = Request::get(format!("/channels/w?{query}")).body(HttpBody::empty()).unwrap();
        assert_eq!(whatsapp.clone().oneshot(request).await.unwrap().status().as_u16(), status);
    }
    let body = json!({"entry": []}).to_string();
    let mut hmac = hmac::Hmac::<sha2::Sha256>::new_from_slice(b"app").unwrap();
    hmac.update(body.as_bytes());
    let bytes = hmac.finalize().into_bytes();
    let signature: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    for (signature, status) in [(signature, 200), ("00".repeat(32), 401)] {
        let value = format!("sha256={signature}");
        let request = post("/channels/w", "x-hub-signature-256", value, body.clone());
        assert_eq!(whatsapp.clone().oneshot(request).await.unwrap().status().as_u16(), status);
    }
}
