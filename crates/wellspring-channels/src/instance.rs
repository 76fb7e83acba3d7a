//! One bot: a channel, its scheduler, and the stored state of its chats.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, Notify, OwnedMutexGuard};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wellspring_core::Millis;
use wellspring_engine::{Control, ControlError, Documents, Permission, Principal, Runtime};
use wellspring_log::document::{DOCUMENT_BYTES_MAX, segment};
use wellspring_log::{Expected, Written};

use crate::channel::{Body, Call, CallError, Capabilities, Channel, ChatKind};
use crate::metrics::ChannelMetrics;
use crate::schedule::{Next, Notice, PostState, Preview, Scheduler, SharedWaits};
use crate::sender;
use crate::state::ChatState;
use crate::texts::Language;
use crate::view::Reader;

/// How long a call may take until its response counts as lost: networks respond within seconds,
/// and uploads take up to a minute.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// How long to wait before a failed write of a chat's state is retried.
const KEEP_AGAIN: Duration = Duration::from_secs(1);

/// The longest `retry_after` that another process obeys: networks name minutes, and a wrong clock
/// must not silence a chat for longer.
const BLOCKED_MAX: Duration = Duration::from_secs(60 * 60);

/// The document with the waits that all chats share.
const WAITS: &str = "waits";

/// The configuration of a bot.
#[derive(Clone, Debug)]
pub struct InstanceConfig {
    /// Its name in the configuration.
    pub name: Box<str>,
    /// The tenant of its runs.
    pub tenant: Box<str>,
    /// The agent that answers in chats that have not chosen another.
    pub agent: Box<str>,
    /// Whether answers are shown while they grow (`agentStreamMode`).
    pub stream: bool,
    /// What to do with a message while another one is being answered.
    pub when_busy: WhenBusy,
    /// Whether the line about running tools is shown.
    pub show_tools: bool,
    /// Whether previews are drafts, if the network supports them.
    pub drafts: bool,
    /// The language for people whose own is not known.
    pub language: Language,
    /// Access to the bot.
    pub access: Access,
}

impl InstanceConfig {
    /// A bot with an agent and default settings.
    #[must_use]
    pub fn new(name: impl Into<Box<str>>, agent: impl Into<Box<str>>) -> Self {
        Self {
            name: name.into(),
            tenant: wellspring_engine::DEFAULT_TENANT.into(),
            agent: agent.into(),
            stream: false,
            when_busy: WhenBusy::default(),
            show_tools: true,
            drafts: false,
            language: Language::default(),
            access: Access::default(),
        }
    }
}

/// What to do with messages while another one is being answered.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum WhenBusy {
    /// Collect them and answer them together.
    #[default]
    Accumulate,
    /// Answer them one by one, in order.
    Queue,
    /// Add them to the running answer as input.
    Steer,
}

/// Access to a bot.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Access {
    /// Ids of people with access; others get a code that an operator can accept.
    pub users: Vec<Box<str>>,
    /// Ids of chats in which all people have access.
    pub chats: Vec<Box<str>>,
    /// Whether all people have access.
    pub everyone: bool,
}

/// A running bot. Cheap to clone.
#[derive(Clone)]
pub struct Instance {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) config: InstanceConfig,
    pub(crate) channel: Arc<dyn Channel>,
    pub(crate) runtime: Runtime,
    /// The control of the bot itself: it reads runs and stores documents.
    pub(crate) control: Control,
    pub(crate) documents: Documents,
    scheduler: Mutex<Scheduler>,
    wake: Notify,
    entries: Mutex<BTreeMap<Box<str>, Arc<AsyncMutex<Entry>>>>,
    live: Mutex<BTreeMap<Box<str>, Live>>,
    /// Locked while the waits that all chats share are stored, so that the latest are kept.
    keeping_waits: AsyncMutex<()>,
    pub(crate) metrics: ChannelMetrics,
    pub(crate) tasks: TaskTracker,
    pub(crate) stopping: CancellationToken,
}

/// How the current answer of a chat is shown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Live {
    pub(crate) kind: ChatKind,
    pub(crate) reader: Reader,
    pub(crate) streams: bool,
}

/// A chat in memory.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    pub(crate) state: ChatState,
    kept: Option<(u64, String)>,
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance").field("name", &self.inner.config.name).finish_non_exhaustive()
    }
}

impl Instance {
    /// Starts a bot: resumes what it was doing before, and makes the calls of its chats. Pass
    /// incoming messages to [`incoming`](Self::incoming).
    ///
    /// # Errors
    ///
    /// If the stored state of its chats cannot be read.
    pub async fn start(
        config: InstanceConfig,
        channel: Arc<dyn Channel>,
        runtime: Runtime,
    ) -> Result<Self, ControlError> {
        let id = format!("channel:{}", config.name);
        let permissions = [Permission::Run, Permission::Read];
        let control = runtime.control(Principal::new(&*config.tenant, id, permissions));
        let documents = control.documents(&format!("channel:{}", config.name))?;
        let metrics = ChannelMetrics::new(&config.name, channel.network());
        let inner = Inner {
            scheduler: Mutex::new(Scheduler::new(channel.capabilities().clone())),
            config,
            channel,
            runtime,
            control,
            documents,
            wake: Notify::new(),
            entries: Mutex::default(),
            live: Mutex::default(),
            keeping_waits: AsyncMutex::default(),
            metrics,
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
        };
        let instance = Self { inner: Arc::new(inner) };
        instance.restore().await?;
        instance.inner.tasks.spawn(instance.clone().make_calls());
        Ok(instance)
    }

    /// Stops making calls. Remaining calls are made after the next start.
    pub async fn stop(&self) {
        self.inner.stopping.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    /// Resolves when the bot stops, which also happens if another process has taken it over.
    pub async fn stopped(&self) {
        self.inner.stopping.cancelled().await;
    }

    /// The name in the configuration.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.config.name
    }

    /// The counters.
    #[must_use]
    pub fn metrics(&self) -> &ChannelMetrics {
        &self.inner.metrics
    }

    /// The number of chats in memory. An idle chat is not in memory.
    #[must_use]
    pub fn chats_in_memory(&self) -> usize {
        lock(&self.inner.entries).len().max(lock(&self.inner.live).len())
    }

    /// The number of answers, questions and notices that are not delivered yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.scheduler().pending()
    }

    pub(crate) fn capabilities(&self) -> &Capabilities {
        self.inner.channel.capabilities()
    }

    pub(crate) fn now(&self) -> Millis {
        self.inner.runtime.now()
    }

    pub(crate) fn set_live(&self, chat: &str, live: Live) {
        lock(&self.inner.live).insert(chat.into(), live);
    }

    fn live(&self, chat: &str) -> Live {
        lock(&self.inner.live).get(chat).copied().unwrap_or_default()
    }

    pub(crate) fn reader(&self, chat: &str) -> Reader {
        self.live(chat).reader
    }

    pub(crate) fn preview(&self, chat: &str) -> Preview {
        let live = self.live(chat);
        let drafts = self.inner.config.drafts && live.kind == ChatKind::Direct;
        sender::preview(live.streams, drafts, self.capabilities())
    }

    pub(crate) fn open(&self, chat: &str, state: PostState) {
        let kind = self.live(chat).kind;
        self.scheduler().open(chat, kind, state);
    }

    pub(crate) fn want(&self, chat: &str, key: &str, bodies: Vec<Body>, settled: bool) {
        self.scheduler().want(chat, key, bodies, settled);
        self.inner.wake.notify_one();
    }

    pub(crate) fn has_post(&self, chat: &str, key: &str) -> bool {
        self.scheduler().has(chat, key)
    }

    pub(crate) fn preview_at(&self, chat: &str, key: &str) -> Option<Millis> {
        self.scheduler().preview_at(chat, key, self.now())
    }

    pub(crate) fn start_typing(&self, chat: &str, topic: Option<&str>) {
        let kind = self.live(chat).kind;
        self.scheduler().start_typing(chat, kind, topic);
        self.inner.wake.notify_one();
    }

    pub(crate) fn pause_typing(&self, chat: &str) {
        self.scheduler().pause_typing(chat);
    }

    fn scheduler(&self) -> MutexGuard<'_, Scheduler> {
        lock(&self.inner.scheduler)
    }

    /// Makes the calls of the scheduler, until the bot stops.
    async fn make_calls(self) {
        loop {
            let next = {
                let mut scheduler = self.scheduler();
                let next = scheduler.next(self.now());
                let notices = scheduler.take_notices();
                drop(scheduler);
                notices.iter().for_each(|notice| self.note_down(notice));
                next
            };
            let wait = match next {
                Next::Call { call, keep_first } => {
                    let this = self.clone();
                    self.inner.tasks.spawn(async move { this.make_call(call, keep_first).await });
                    continue;
                }
                Next::Wait(until) => Some(until.since(self.now())),
                Next::Idle => None,
            };
            tokio::select! {
                () = self.inner.wake.notified() => {}
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
                () = self.inner.stopping.cancelled() => return,
            }
        }
    }

    /// Makes one call. Before a message is sent, the chat's state records that, so that after a
    /// crash it is known that the message may exist.
    async fn make_call(&self, call: Call, keep_first: bool) {
        let chat = call.chat.clone();
        let action = call.action.name();
        if keep_first && !self.keep_chat(&chat).await {
            return;
        }
        if self.inner.stopping.is_cancelled() {
            return;
        }
        let called = tokio::time::timeout(CALL_TIMEOUT, self.inner.channel.call(call));
        let result = called
            .await
            .unwrap_or_else(|_| Err(CallError::AnswerLost("no answer within a minute".into())));
        if let Err(error) = &result {
            tracing::debug!(chat = &*chat, action, %error, "a call to a chat network failed");
        }
        self.inner.metrics.called(action, &result);
        let is_shared_wait = matches!(result, Err(CallError::BotLimited { .. }));
        // Times are whole milliseconds, rounded down; no wait may begin before the call has ended.
        let ended = self.now().plus(Duration::from_millis(1));
        let changed = self.scheduler().done(&chat, ended, result);
        if is_shared_wait {
            self.keep_shared_waits().await;
        }
        if changed {
            self.keep_chat(&chat).await;
        }
        self.scheduler().kept(&chat);
        self.forget_if_idle(&chat);
        self.inner.wake.notify_one();
    }

    /// Stores the waits that all chats share, so that another process waits as long.
    async fn keep_shared_waits(&self) {
        let _guard = self.inner.keeping_waits.lock().await;
        let waits = self.scheduler().shared_waits(self.now());
        // Plain data always serialises.
        let text = serde_json::to_string(&waits).unwrap_or_default();
        let kept = self.inner.documents.put(WAITS, Some(&text), Expected::Anything).await;
        if let Err(error) = kept {
            let bot = &*self.inner.config.name;
            tracing::warn!(bot, %error, "failed to store how long a bot must wait");
        }
    }

    fn note_down(&self, notice: &Notice) {
        let bot = &*self.inner.config.name;
        match notice {
            Notice::MayRepeat { chat, key } => {
                self.inner.metrics.may_repeat();
                tracing::warn!(bot, %chat, %key, "a message may appear twice: the answer to its send was lost");
            }
            Notice::PreviewsStopped { chat, key, why } => {
                tracing::warn!(bot, %chat, %key, error = %why, "previews stopped; the answer comes in one piece");
            }
            Notice::GaveUp { chat, key, why } => {
                self.inner.metrics.gave_up();
                tracing::error!(bot, %chat, %key, error = %why, "could not deliver a message");
            }
            Notice::Delivered { chat, key } => {
                self.inner.metrics.delivered();
                tracing::debug!(bot, %chat, %key, "delivered");
            }
        }
    }

    /// Locks a chat, loading it if it is not in memory.
    pub(crate) async fn entry(&self, chat: &str) -> Result<OwnedMutexGuard<Entry>, ControlError> {
        let entry = Arc::clone(lock(&self.inner.entries).entry(chat.into()).or_default());
        let mut entry = entry.lock_owned().await;
        if entry.kept.is_none()
            && let Some(document) = self.inner.documents.get(&chat_name(chat)).await?
        {
            entry.state = serde_json::from_str(&document.text).unwrap_or_else(|error| {
                tracing::error!(chat, %error, "the state of a chat cannot be read; starting anew");
                ChatState::default()
            });
            entry.kept = Some((document.revision, document.text.into()));
            self.obey_block(chat, &entry.state);
        }
        Ok(entry)
    }

    /// Stores a chat's state, including the scheduler's; `false` if the bot must stop.
    pub(crate) async fn keep(&self, chat: &str, entry: &mut Entry) -> bool {
        let now = self.now();
        {
            let scheduler = self.scheduler();
            entry.state.update(scheduler.state(chat));
            let blocked_until = scheduler.blocked_until(chat).filter(|until| *until > now);
            // An expired block is not stored.
            entry.state.blocked_until = blocked_until;
        }
        // Plain data always serialises.
        let text = serde_json::to_string(&entry.state).unwrap_or_default();
        if entry.kept.as_ref().is_some_and(|(_, kept)| *kept == text) {
            return true;
        }
        if text.len() > DOCUMENT_BYTES_MAX {
            // Every part of the state has a maximum size, so this is unexpected. A retry would
            // never succeed and would block every other chat.
            tracing::error!(chat, bytes = text.len(), "the state of a chat is too large to keep");
            return true;
        }
        loop {
            let expected =
                entry.kept.as_ref().map_or(Expected::Absent, |(it, _)| Expected::Revision(*it));
            match self.inner.documents.put(&chat_name(chat), Some(&text), expected).await {
                Ok(Written::Done(revision)) => {
                    entry.kept = Some((revision, text));
                    return true;
                }
                Ok(Written::Conflict(Some(found))) if *found.text == *text => {
                    entry.kept = Some((found.revision, text));
                    return true;
                }
                Ok(Written::Conflict(_)) => {
                    tracing::error!(
                        bot = &*self.inner.config.name,
                        chat,
                        "another process writes to this chat; stopping this bot here"
                    );
                    self.inner.stopping.cancel();
                    return false;
                }
                Err(error) => {
                    tracing::error!(chat, %error, "failed to keep the state of a chat; trying again");
                    tokio::select! {
                        () = tokio::time::sleep(KEEP_AGAIN) => {}
                        () = self.inner.stopping.cancelled() => return false,
                    }
                }
            }
        }
    }

    pub(crate) async fn keep_chat(&self, chat: &str) -> bool {
        loop {
            match self.entry(chat).await {
                Ok(mut entry) => return self.keep(chat, &mut entry).await,
                Err(error) => {
                    tracing::error!(chat, %error, "failed to read the state of a chat; trying again");
                    tokio::select! {
                        () = tokio::time::sleep(KEEP_AGAIN) => {}
                        () = self.inner.stopping.cancelled() => return false,
                    }
                }
            }
        }
    }

    /// Removes an idle chat from memory: its document is enough.
    pub(crate) fn forget_if_idle(&self, chat: &str) {
        let mut entries = lock(&self.inner.entries);
        let is_idle = entries.get(chat).is_some_and(|entry| {
            Arc::strong_count(entry) == 1
                && entry.try_lock().is_ok_and(|entry| entry.state.is_idle())
        });
        if is_idle {
            entries.remove(chat);
            lock(&self.inner.live).remove(chat);
        }
    }

    /// Resumes all chats that are not idle.
    async fn restore(&self) -> Result<(), ControlError> {
        if let Some(document) = self.inner.documents.get(WAITS).await? {
            // Invalid data is as good as no data: the network names the wait again.
            let waits: SharedWaits = serde_json::from_str(&document.text).unwrap_or_default();
            let latest = self.now().plus(BLOCKED_MAX);
            self.scheduler().obey(&waits, latest);
        }
        let documents = self.inner.documents.list("chat/").await?;
        let is_new = documents.is_empty();
        for document in documents {
            let Ok(state) = serde_json::from_str::<ChatState>(&document.text) else { continue };
            if state.is_idle() {
                continue;
            }
            let Some(chat) = state.chat.clone() else { continue };
            let entry = Entry {
                kept: Some((document.revision, document.text.into())),
                state: state.clone(),
            };
            lock(&self.inner.entries).insert(chat.clone(), Arc::new(AsyncMutex::new(entry)));
            for post in &state.posts {
                self.scheduler().open(&chat, state.kind, post.clone());
            }
            self.obey_block(&chat, &state);
            self.resume(&chat, &state);
        }
        if !is_new {
            let now = self.now();
            self.scheduler().goes_on(now);
        }
        Ok(())
    }

    /// Applies the `retry_after` that another process stored.
    fn obey_block(&self, chat: &str, state: &ChatState) {
        if let Some(until) = state.blocked_until {
            let until = until.min(self.now().plus(BLOCKED_MAX));
            self.scheduler().block_until(chat, until);
        }
    }
}

fn chat_name(chat: &str) -> String {
    format!("chat/{}", segment(chat))
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data behind these locks is always consistent, even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
