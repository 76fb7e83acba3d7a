//! The scheduler: decides the next call, for all chats of one bot.
//!
//! It is pure: time and results go in, calls come out. It knows neither a network nor runs.
//! Each chat has a list of *posts*, each of which is one answer (or a question, or a notice)
//! that should look like a list of messages; the scheduler makes the calls that bring the chat
//! into that state.
//!
//! # What is promised
//!
//! 1. At most one call per chat is in progress. All rate limits hold, no matter when within its
//!    duration a call takes effect: intervals are counted from its response.
//! 2. The latest state wins: a state that was never shown is skipped. Finished answers take
//!    precedence over previews, and the first message of an answer over edits in other chats.
//! 3. A `retry_after` is obeyed exactly. Without one, retries back off exponentially.
//! 4. A message with text is deleted only after its replacement exists.
//! 5. [`PostState`] contains everything that is needed to continue after a crash. Edits and
//!    deletions may then be repeated, which changes nothing. Only a send whose response was
//!    lost, in a crash or by the network, can show a message twice; [`Notice::MayRepeat`]
//!    reports that.

mod post;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wellspring_core::Millis;

use crate::channel::{
    Action, Body, Call, CallError, CallResult, Capabilities, ChatKind, Limit, Rates,
};
use post::{Look, Next as PostNext, Post};
pub use post::{PostState, Preview, Slot, TRIES_MAX};

/// Quarters of the rate limits (per second, and per minute and group) that previews may use;
/// the rest is for first messages and finished answers.
const PREVIEW_QUARTERS: usize = 3;

const MINUTE: Duration = Duration::from_secs(60);

/// Decides the calls for all chats of a bot.
#[derive(Debug)]
pub struct Scheduler {
    can: Capabilities,
    chats: BTreeMap<Box<str>, Chat>,
    /// When the calls of the last second got their responses.
    answered: VecDeque<Millis>,
    on_the_way: usize,
    /// The recent calls of each kind that has its own limit.
    kinds: BTreeMap<Box<str>, Kind>,
    /// The shared state of each room, for networks with rooms.
    rooms: BTreeMap<Box<str>, Room>,
    /// No calls before this time, because of a `retry_after` for the whole bot.
    blocked_until: Millis,
    /// No calls before this time: another process may just have made some.
    quiet_until: Millis,
    notices: Vec<Notice>,
}

/// The waits that all chats of a bot share, because of a `retry_after`, to be stored.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct SharedWaits {
    /// No calls before this time.
    pub bot: Option<Millis>,
    /// No calls of one kind before this time, by [`Action::name`].
    pub actions: BTreeMap<Box<str>, Millis>,
}

/// The recent calls of one kind, over all chats.
#[derive(Debug, Default)]
struct Kind {
    /// When the calls of the last minute got their responses.
    answered: VecDeque<Millis>,
    on_the_way: usize,
    blocked_until: Millis,
}

/// A room: chats that share rate limits.
#[derive(Debug, Default)]
struct Room {
    is_busy: bool,
    last: Option<Millis>,
    blocked_until: Millis,
}

/// One chat.
#[derive(Debug, Default)]
struct Chat {
    kind: ChatKind,
    posts: Vec<Post>,
    busy: Busy,
    /// When the last call got its response.
    last: Option<Millis>,
    /// No calls before this time, because of a `retry_after`.
    blocked_until: Millis,
    /// When the calls of the last window got their responses; groups only.
    recent: VecDeque<Millis>,
    typing: Option<Typing>,
}

#[derive(Debug, Default)]
enum Busy {
    #[default]
    No,
    /// A call is in progress.
    Calling(Doing),
    /// Its result is being stored.
    Keeping,
}

#[derive(Debug)]
struct Typing {
    topic: Option<Box<str>>,
    again_at: Millis,
}

/// The purpose of a call that is in progress.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Doing {
    Typing,
    Post { key: Box<str>, next: PostNext, look: Look },
}

/// The next step.
#[derive(Clone, Debug, Eq, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "it is matched at once, and never stored")]
pub enum Next {
    /// Make this call. If `keep_first`, store the chat's state before.
    Call {
        /// The call.
        call: Call,
        /// Whether the state must be stored before the call is made.
        keep_first: bool,
    },
    /// Wait until this time, or until something happens.
    Wait(Millis),
    /// Wait until something happens.
    Idle,
}

/// A notice for operators.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Notice {
    /// A message may appear twice: the response to its first send was lost.
    MayRepeat {
        /// The chat.
        chat: Box<str>,
        /// The post.
        key: Box<str>,
    },
    /// Previews of a post have stopped; its end is sent in one piece.
    PreviewsStopped {
        /// The chat.
        chat: Box<str>,
        /// The post.
        key: Box<str>,
        /// The reason.
        why: CallError,
    },
    /// A post could not be delivered.
    GaveUp {
        /// The chat.
        chat: Box<str>,
        /// The post.
        key: Box<str>,
        /// The reason.
        why: CallError,
    },
    /// A post is complete: its final state is shown.
    Delivered {
        /// The chat.
        chat: Box<str>,
        /// The post.
        key: Box<str>,
    },
}

impl Scheduler {
    /// A scheduler without chats.
    #[must_use]
    pub fn new(can: Capabilities) -> Self {
        Self {
            can,
            chats: BTreeMap::new(),
            answered: VecDeque::new(),
            on_the_way: 0,
            kinds: BTreeMap::new(),
            rooms: BTreeMap::new(),
            blocked_until: Millis(0),
            quiet_until: Millis(0),
            notices: Vec::new(),
        }
    }

    /// Adds a post, new or restored, at the end of a chat. An existing post with the same key
    /// is not changed.
    pub fn open(&mut self, chat: &str, kind: ChatKind, state: PostState) {
        let entry = self.chats.entry(chat.into()).or_default();
        entry.kind = kind;
        if entry.posts.iter().any(|post| post.state.key == state.key) {
            return;
        }
        if state.sending.is_some() {
            let key = state.key.clone();
            self.notices.push(Notice::MayRepeat { chat: chat.into(), key });
        }
        entry.posts.push(Post::new(state));
    }

    /// Sets the desired state of a post. `settled` means that it will not change again.
    pub fn want(&mut self, chat: &str, key: &str, bodies: Vec<Body>, settled: bool) {
        if let Some(post) = self.post(chat, key) {
            post.want(bodies, settled);
        }
        self.finish_posts(chat);
    }

    /// Shows a typing indicator until it is paused.
    pub fn start_typing(&mut self, chat: &str, kind: ChatKind, topic: Option<&str>) {
        if self.can.typing.is_none() {
            return;
        }
        let entry = self.chats.entry(chat.into()).or_default();
        entry.kind = kind;
        let topic = topic.map(Into::into);
        entry.typing.get_or_insert(Typing { topic, again_at: Millis(0) });
    }

    /// Stops showing the typing indicator.
    pub fn pause_typing(&mut self, chat: &str) {
        if let Some(chat) = self.chats.get_mut(chat) {
            chat.typing = None;
        }
    }

    /// The state of a chat to store.
    #[must_use]
    pub fn state(&self, chat: &str) -> Vec<PostState> {
        let posts = self.chats.get(chat).into_iter().flat_map(|chat| &chat.posts);
        posts.map(|post| post.state.clone()).collect()
    }

    /// Whether a chat has an incomplete post with this key.
    #[must_use]
    pub fn has(&self, chat: &str, key: &str) -> bool {
        let posts = self.chats.get(chat).into_iter().flat_map(|chat| &chat.posts);
        posts.into_iter().any(|post| *post.state.key == *key)
    }

    /// Continues after another process, whose calls are unknown. It may have used the limits of
    /// each chat and of the bot for a second, and, in groups, the previews' share of a minute.
    /// `now` is the current time.
    pub fn goes_on(&mut self, now: Millis) {
        self.quiet_until = now.plus(self.can.rates.chat_interval.max(Duration::from_secs(1)));
        let used = share(self.can.rates.group_calls);
        for chat in self.chats.values_mut().filter(|chat| chat.kind == ChatKind::Group) {
            chat.recent.extend(std::iter::repeat_n(now, used));
        }
    }

    /// Makes no call to a chat, and to the other chats of its room, before this time, because of a
    /// `retry_after`.
    pub fn block_until(&mut self, chat: &str, until: Millis) {
        if self.can.room_end.is_some() {
            let room = self.rooms.entry(self.can.room(chat).into()).or_default();
            room.blocked_until = room.blocked_until.max(until);
        }
        let chat = self.chats.entry(chat.into()).or_default();
        chat.blocked_until = chat.blocked_until.max(until);
    }

    /// The time before which no call is made to a chat.
    #[must_use]
    pub fn blocked_until(&self, chat: &str) -> Option<Millis> {
        self.chats.get(chat).map(|chat| chat.blocked_until)
    }

    /// The waits that all chats share and that are not over yet.
    #[must_use]
    pub fn shared_waits(&self, now: Millis) -> SharedWaits {
        let waits = |until: Millis| (until > now).then_some(until);
        let kinds = self.kinds.iter();
        SharedWaits {
            bot: waits(self.blocked_until),
            actions: kinds
                .filter_map(|(name, kind)| Some((name.clone(), waits(kind.blocked_until)?)))
                .collect(),
        }
    }

    /// Waits as long as another process had to, but not beyond `latest`.
    pub fn obey(&mut self, waits: &SharedWaits, latest: Millis) {
        let bot = waits.bot.unwrap_or_default();
        self.blocked_until = self.blocked_until.max(bot.min(latest));
        for (name, until) in &waits.actions {
            let kind = self.kinds.entry(name.clone()).or_default();
            kind.blocked_until = kind.blocked_until.max((*until).min(latest));
        }
    }

    /// The earliest time, not before `now`, at which a preview of this post can be shown; `None` if
    /// it takes no previews. A preview that is rendered earlier is not shown.
    #[must_use]
    pub fn preview_at(&self, chat: &str, key: &str, now: Millis) -> Option<Millis> {
        let entry = self.chats.get(chat)?;
        let post = entry.posts.iter().find(|post| *post.state.key == *key)?;
        if !post.takes_previews() {
            return None;
        }
        let at = entry.preview_at(post, &self.can);
        Some(at.max(now))
    }

    /// The notices since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// The number of incomplete posts.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.chats.values().map(|chat| chat.posts.len()).sum()
    }

    /// The next call, of the most urgent chat.
    pub fn next(&mut self, now: Millis) -> Next {
        if now < self.quiet_until {
            let waits = |chat: &Chat| !chat.posts.is_empty() || chat.typing.is_some();
            let waits = self.chats.values().any(waits);
            return if waits { Next::Wait(self.quiet_until) } else { Next::Idle };
        }
        let second = Duration::from_secs(1);
        while self.answered.front().is_some_and(|at| now.since(*at) >= second && *at <= now) {
            self.answered.pop_front();
        }
        let used = self.on_the_way + self.answered.len();
        let max = self.can.rates.overall_per_second;
        let mut best: Option<(Urgency, Millis, &str, Work)> = None;
        let mut wake: Option<Millis> = None;
        let mut wake_at = |at: Millis| wake = Some(wake.map_or(at, |wake| wake.min(at)));
        for kind in self.kinds.values_mut() {
            kind.forget_before(now);
        }
        for (id, chat) in &mut self.chats {
            let Some((urgency, at, mut work)) = chat.work(now, &self.can) else { continue };
            let room = room_of(&self.rooms, &self.can, id);
            if room.is_some_and(|room| room.is_busy) {
                continue;
            }
            let room_at = room.map_or(Millis(0), |room| room.free_at(self.can.rates.chat_interval));
            let at = at.max(room_at).max(self.blocked_until);
            if at > now {
                wake_at(at);
                continue;
            }
            let is_preview = urgency >= Urgency::Preview;
            if used >= if is_preview { share(max) } else { max } {
                if let Some(oldest) = self.answered.front() {
                    wake_at(oldest.plus(second));
                }
                continue;
            }
            let kind_free_at = |name| kind_free_at(&self.kinds, &self.can.rates, name, is_preview);
            let mut kind_at = kind_free_at(work.name());
            // Sending an ordinary message now is better than waiting to start a stream.
            if kind_at.is_none_or(|at| at > now)
                && let Work::Post(index, next @ PostNext::Begin) = &mut work
                && let Some(post) = chat.posts.get_mut(*index)
            {
                post.use_edits();
                *next = PostNext::Send(0);
                kind_at = kind_free_at(next.name());
            }
            match kind_at {
                Some(at) if at > now => {
                    wake_at(at);
                    continue;
                }
                Some(_) => {}
                // A call of this kind is in flight; its result triggers the next search.
                None => continue,
            }
            // Among equally urgent chats, the one that has waited longest.
            let since = chat.last.unwrap_or_default();
            if best.as_ref().is_none_or(|(other, last, ..)| (urgency, since) < (*other, *last)) {
                best = Some((urgency, since, id, work));
            }
        }
        let Some((_, _, id, work)) = best else { return wake.map_or(Next::Idle, Next::Wait) };
        let id: Box<str> = id.into();
        self.begin(&id, work)
    }

    fn begin(&mut self, id: &str, work: Work) -> Next {
        let Some(chat) = self.chats.get_mut(id) else { return Next::Idle };
        let name = work.name();
        let (doing, topic, action, keep_first) = match work {
            Work::Typing => {
                let topic = chat.typing.as_ref().and_then(|typing| typing.topic.clone());
                (Doing::Typing, topic, Action::Typing, false)
            }
            Work::Post(index, next) => {
                let Some(post) = chat.posts.get_mut(index) else { return Next::Idle };
                let (action, look) = post.action(&next);
                let makes = next.makes();
                if makes.is_some() {
                    post.state.sending = makes;
                }
                let key = post.state.key.clone();
                let topic = post.state.topic.clone();
                (Doing::Post { key, next, look }, topic, action, makes.is_some())
            }
        };
        chat.busy = Busy::Calling(doing);
        self.on_the_way += 1;
        if self.can.rates.per_minute(name).is_some() {
            self.kinds.entry(name.into()).or_default().on_the_way += 1;
        }
        if self.can.room_end.is_some() {
            let room = self.rooms.entry(self.can.room(id).into()).or_default();
            room.is_busy = true;
        }
        Next::Call { call: Call { chat: id.into(), topic, action }, keep_first }
    }

    /// Handles the result of a chat's call. Then store the chat's [`state`](Self::state), and
    /// call [`kept`](Self::kept). Returns whether the state has changed.
    pub fn done(&mut self, id: &str, now: Millis, result: CallResult) -> bool {
        let Some(chat) = self.chats.get_mut(id) else { return false };
        let Busy::Calling(doing) = std::mem::replace(&mut chat.busy, Busy::Keeping) else {
            return false;
        };
        self.on_the_way = self.on_the_way.saturating_sub(1);
        self.answered.push_back(now);
        chat.last = Some(now);
        let name = match &doing {
            Doing::Typing => Action::Typing.name(),
            Doing::Post { next, .. } => next.name(),
        };
        if let Some(kind) = self.kinds.get_mut(name)
            && self.can.rates.per_minute(name).is_some()
        {
            kind.on_the_way = kind.on_the_way.saturating_sub(1);
            kind.answered.push_back(now);
        }
        if chat.kind == ChatKind::Group {
            chat.recent.push_back(now);
        }
        let failures = match &doing {
            Doing::Post { key, .. } => chat.posts.iter().find(|it| it.state.key == *key),
            Doing::Typing => None,
        };
        let failures = failures.map_or(0, |post| post.failures);
        let wait = match &result {
            Ok(done) => done.wait,
            Err(CallError::BotLimited { retry_after, limit }) => {
                let until = now.plus(*retry_after);
                let blocked = match limit {
                    Limit::Bot => &mut self.blocked_until,
                    Limit::Action => &mut self.kinds.entry(name.into()).or_default().blocked_until,
                };
                *blocked = until.max(*blocked);
                None
            }
            Err(CallError::RateLimited { retry_after: Some(after) }) => Some(*after),
            Err(CallError::RateLimited { retry_after: None }) => Some(backoff(failures)),
            Err(CallError::Unavailable(_) | CallError::AnswerLost(_) | CallError::Refused(_)) => {
                Some(backoff(failures))
            }
            Err(
                CallError::NotModified
                | CallError::StreamEnded
                | CallError::MessageGone
                | CallError::BadMarkup(_)
                | CallError::ChatGone(_),
            ) => None,
        };
        let wait_until = now.plus(wait.unwrap_or_default());
        chat.blocked_until = chat.blocked_until.max(wait_until);
        if self.can.room_end.is_some() {
            let room = self.rooms.entry(self.can.room(id).into()).or_default();
            (room.is_busy, room.last) = (false, Some(now));
            room.blocked_until = room.blocked_until.max(wait_until);
        }
        // Another process has to wait as long.
        let mut changed = matches!(result, Err(CallError::RateLimited { retry_after: Some(_) }));
        match doing {
            Doing::Typing => {
                if let (Some(typing), Some(every)) = (&mut chat.typing, self.can.typing) {
                    typing.again_at = now.plus(every);
                }
            }
            Doing::Post { key, next, look } => {
                if let Some(index) = chat.posts.iter().position(|post| post.state.key == key) {
                    let before = chat.posts[index].state.clone();
                    let outcome = chat.posts[index].done(&next, look, result, &self.can);
                    changed |= chat.posts[index].state != before;
                    let chat_id: Box<str> = id.into();
                    match outcome {
                        post::Outcome::Fine => {}
                        post::Outcome::MayRepeat => {
                            self.notices.push(Notice::MayRepeat { chat: chat_id, key });
                        }
                        post::Outcome::PreviewsStopped(why) => {
                            self.notices.push(Notice::PreviewsStopped { chat: chat_id, key, why })
                        }
                        post::Outcome::GaveUp(why) => {
                            chat.posts.remove(index);
                            changed = true;
                            self.notices.push(Notice::GaveUp { chat: chat_id, key, why });
                        }
                    }
                }
            }
        }
        self.finish_posts(id) || changed
    }

    /// The state of a chat is stored: its next call may be made.
    pub fn kept(&mut self, id: &str) {
        if let Some(chat) = self.chats.get_mut(id) {
            if let Busy::Keeping = chat.busy {
                chat.busy = Busy::No;
            }
            let is_idle = chat.posts.is_empty() && chat.typing.is_none();
            // An idle chat is removed once no rate limit depends on it.
            if is_idle && matches!(chat.busy, Busy::No) {
                self.forget_idle();
            }
        }
    }

    /// Removes chats without posts whose calls are long ago.
    fn forget_idle(&mut self) {
        let newest = self.answered.back().copied().unwrap_or_default();
        let window = self.can.rates.group_window.max(self.can.rates.chat_interval);
        self.chats.retain(|_, chat| {
            !chat.posts.is_empty()
                || chat.typing.is_some()
                || !matches!(chat.busy, Busy::No)
                || chat.blocked_until > newest
                || chat.last.is_some_and(|last| newest.since(last) <= window)
        });
        self.rooms.retain(|_, room| {
            room.is_busy
                || room.blocked_until > newest
                || room.last.is_some_and(|last| newest.since(last) <= window)
        });
    }

    fn post(&mut self, chat: &str, key: &str) -> Option<&mut Post> {
        let chat = self.chats.get_mut(chat)?;
        chat.posts.iter_mut().find(|post| *post.state.key == *key)
    }

    /// Removes the posts that are complete.
    fn finish_posts(&mut self, id: &str) -> bool {
        let Some(chat) = self.chats.get_mut(id) else { return false };
        let calling = match &chat.busy {
            Busy::Calling(Doing::Post { key, .. }) => Some(key.clone()),
            Busy::Calling(Doing::Typing) | Busy::No | Busy::Keeping => None,
        };
        let before = chat.posts.len();
        let (notices, can) = (&mut self.notices, &self.can);
        chat.posts.retain(|post| {
            let complete = post.is_complete(can) && Some(&post.state.key) != calling.as_ref();
            if complete {
                let key = post.state.key.clone();
                notices.push(Notice::Delivered { chat: id.into(), key });
            }
            !complete
        });
        chat.posts.len() != before
    }
}

/// The urgency of a call; the smallest first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Urgency {
    /// The first message of an answer: the person sees nothing yet.
    First,
    /// A finished answer.
    Final,
    Preview,
    Delete,
    Typing,
}

#[derive(Clone, Debug)]
enum Work {
    Typing,
    Post(usize, PostNext),
}

impl Work {
    const fn name(&self) -> &'static str {
        match self {
            Self::Typing => Action::Typing.name(),
            Self::Post(_, next) => next.name(),
        }
    }
}

impl Kind {
    fn forget_before(&mut self, now: Millis) {
        while self.answered.front().is_some_and(|at| *at <= now && now.since(*at) >= MINUTE) {
            self.answered.pop_front();
        }
    }

    /// The time from which fewer than `max` calls are within a minute; `None` if `max` calls are
    /// still in progress.
    fn free_at(&self, max: usize) -> Option<Millis> {
        let used = self.on_the_way + self.answered.len();
        if used < max {
            return Some(self.blocked_until);
        }
        let oldest = self.answered.get(used - max)?;
        Some(oldest.plus(MINUTE).max(self.blocked_until))
    }
}

impl Room {
    fn free_at(&self, interval: Duration) -> Millis {
        let after_last = self.last.map_or(Millis(0), |last| last.plus(interval));
        after_last.max(self.blocked_until)
    }
}

/// The time from which a call of this kind may be made; `None` if a call in progress must finish
/// first.
fn kind_free_at(
    kinds: &BTreeMap<Box<str>, Kind>,
    rates: &Rates,
    name: &str,
    is_preview: bool,
) -> Option<Millis> {
    let Some(kind) = kinds.get(name) else { return Some(Millis(0)) };
    match rates.per_minute(name) {
        Some(max) if is_preview => kind.free_at(share(max).max(1)),
        Some(max) => kind.free_at(max),
        None => Some(kind.blocked_until),
    }
}

/// The room of a chat; `None` if the network has no rooms, or the room has not been called yet.
fn room_of<'a>(
    rooms: &'a BTreeMap<Box<str>, Room>,
    can: &Capabilities,
    chat: &str,
) -> Option<&'a Room> {
    can.room_end.and_then(|_| rooms.get(can.room(chat)))
}

impl Chat {
    /// The most urgent call of this chat, and when it may be made.
    fn work(&mut self, now: Millis, can: &Capabilities) -> Option<(Urgency, Millis, Work)> {
        if !matches!(self.busy, Busy::No) {
            return None;
        }
        let rates = &can.rates;
        while self
            .recent
            .front()
            .is_some_and(|at| *at <= now && now.since(*at) >= rates.group_window)
        {
            self.recent.pop_front();
        }
        let mut best: Option<(Urgency, Millis, Work)> = None;
        for (index, post) in self.posts.iter().enumerate() {
            let Some(next) = post.next(can) else { continue };
            let urgency = match &next {
                next if next.makes().is_some() && post.state.slots.iter().all(Option::is_none) => {
                    Urgency::First
                }
                PostNext::Delete(_) => Urgency::Delete,
                PostNext::Send(_)
                | PostNext::Edit(_)
                | PostNext::Draft
                | PostNext::Begin
                | PostNext::Append
                | PostNext::End => {
                    if post.settled {
                        Urgency::Final
                    } else {
                        Urgency::Preview
                    }
                }
            };
            let at = match urgency {
                Urgency::Preview => self.preview_at(post, can),
                Urgency::First | Urgency::Final | Urgency::Delete | Urgency::Typing => {
                    self.free_at(rates.chat_interval, self.group_room_at(rates.group_calls, can))
                }
            };
            // A chat's messages stay in order, so an answer waits until earlier answers are sent.
            let sends = next.makes().is_some();
            let in_order = |other: &Post| other.settled && other.next(can).is_some();
            if sends && self.posts[..index].iter().any(in_order) {
                continue;
            }
            if best.as_ref().is_none_or(|(other, ..)| urgency < *other) {
                best = Some((urgency, at, Work::Post(index, next)));
            }
        }
        if best.is_some() {
            return best;
        }
        let typing = self.typing.as_ref()?;
        let at =
            self.free_at(rates.chat_interval, self.group_room_at(share(rates.group_calls), can));
        Some((Urgency::Typing, at.max(typing.again_at), Work::Typing))
    }

    /// When a preview may be shown.
    fn preview_at(&self, post: &Post, can: &Capabilities) -> Millis {
        let rates = &can.rates;
        let floor = match self.kind {
            ChatKind::Direct => rates.direct_preview,
            ChatKind::Group => rates.group_preview,
        };
        let interval = floor.max(rates.chat_interval) * post.slowness;
        self.free_at(interval, self.group_room_at(share(rates.group_calls), can))
    }

    /// When the interval has passed, the `retry_after` is over and the group has capacity.
    fn free_at(&self, interval: Duration, room_at: Millis) -> Millis {
        let after_last = self.last.map_or(Millis(0), |last| last.plus(interval));
        after_last.max(self.blocked_until).max(room_at)
    }

    /// When fewer than `max` calls are within the group's window.
    fn group_room_at(&self, max: usize, can: &Capabilities) -> Millis {
        if self.kind == ChatKind::Direct || self.recent.len() < max {
            return Millis(0);
        }
        let oldest = self.recent.get(self.recent.len() - max).copied().unwrap_or_default();
        oldest.plus(can.rates.group_window)
    }
}

/// The share of a limit that previews may use.
const fn share(max: usize) -> usize {
    max * PREVIEW_QUARTERS / 4
}

/// The wait after this many consecutive failures: 1 s, doubling up to a minute.
fn backoff(failures: u32) -> Duration {
    Duration::from_secs(1u64 << failures.min(6)).min(Duration::from_secs(60))
}
