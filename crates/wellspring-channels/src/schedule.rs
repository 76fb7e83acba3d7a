//! The scheduler: which call to make next, for all chats of one bot.
//!
//! It is pure: the time and what happened go in, calls come out. It knows no network and no run.
//! Per chat there is a list of *posts*, each one answer (or a question, or a notice) that should
//! look like a list of messages; the scheduler makes the calls that bring the chat there.
//!
//! # What is promised
//!
//! 1. At most one call per chat is on its way. All rates hold, wherever within its duration a
//!    call arrives: intervals are counted from its answer.
//! 2. Latest wins: what was wanted and never shown is skipped. A finished answer goes before
//!    previews, and the first message of an answer before edits of other chats.
//! 3. A `retry_after` is kept exactly. Without one, waits grow exponentially.
//! 4. A message that shows words is deleted only after its replacement stands.
//! 5. Everything that is needed to go on after a crash is in [`PostState`]. Edits and deletions
//!    may be repeated then, which changes nothing. Only a send whose answer was lost, in a crash
//!    or by the network, can show a message twice; [`Notice::MayRepeat`] says so.

mod post;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use wellspring_core::Millis;

use crate::channel::{Action, Body, Call, CallError, CallResult, Capabilities, ChatKind};
use post::{Next as PostNext, Post};
pub use post::{PostState, Preview, Slot, TRIES_MAX};

/// Of the calls per second and of those per minute and group, so many parts of four may be
/// previews; the rest is for first messages and finished answers.
const PREVIEW_QUARTERS: usize = 3;

/// Calls for all chats of a bot.
#[derive(Debug)]
pub struct Scheduler {
    can: Capabilities,
    chats: BTreeMap<Box<str>, Chat>,
    /// When the calls of the last second were answered.
    answered: VecDeque<Millis>,
    on_the_way: usize,
    /// No call at all before this: another process may just have made some.
    quiet_until: Millis,
    notices: Vec<Notice>,
}

/// One chat.
#[derive(Debug, Default)]
struct Chat {
    kind: ChatKind,
    posts: Vec<Post>,
    busy: Busy,
    /// When the last call was answered.
    last: Option<Millis>,
    /// Not before this: the network said so.
    blocked_until: Millis,
    /// When the calls of the last window were answered; groups only.
    recent: VecDeque<Millis>,
    typing: Option<Typing>,
}

#[derive(Debug, Default)]
enum Busy {
    #[default]
    No,
    /// A call is on its way.
    Calling(Doing),
    /// Its result is being kept.
    Keeping,
}

#[derive(Debug)]
struct Typing {
    topic: Option<Box<str>>,
    again_at: Millis,
}

/// What a call that is on its way is for.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Doing {
    Typing,
    Post { key: Box<str>, next: PostNext, digest: u64, shows_words: bool },
}

/// What to do next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Next {
    /// Make this call. If `keep_first`, keep the chat's state before.
    Call {
        /// The call.
        call: Call,
        /// Whether the state has to be kept before the call is made.
        keep_first: bool,
    },
    /// Nothing before this time, unless something happens.
    Wait(Millis),
    /// Nothing, until something happens.
    Idle,
}

/// Something that an operator wants to know.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Notice {
    /// A message may appear twice: the answer to its first send was lost.
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
        /// Why.
        why: CallError,
    },
    /// A post could not be delivered.
    GaveUp {
        /// The chat.
        chat: Box<str>,
        /// The post.
        key: Box<str>,
        /// Why.
        why: CallError,
    },
    /// A post is complete: everything it wants is shown.
    Delivered {
        /// The chat.
        chat: Box<str>,
        /// The post.
        key: Box<str>,
    },
}

impl Scheduler {
    /// A scheduler with nothing to do.
    #[must_use]
    pub fn new(can: Capabilities) -> Self {
        let (chats, answered) = (BTreeMap::new(), VecDeque::new());
        let (on_the_way, quiet_until) = (0, Millis(0));
        Self { can, chats, answered, on_the_way, quiet_until, notices: Vec::new() }
    }

    /// Adds a post, new or as it was kept, at the end of a chat. A post of the same key stays as
    /// it is.
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

    /// What a post should look like now. `settled` says that it will not change again.
    pub fn want(&mut self, chat: &str, key: &str, bodies: Vec<Body>, settled: bool) {
        if let Some(post) = self.post(chat, key) {
            post.want(bodies, settled);
        }
        self.finish_posts(chat);
    }

    /// Shows that someone is typing, until it is paused.
    pub fn start_typing(&mut self, chat: &str, kind: ChatKind, topic: Option<&str>) {
        if self.can.typing.is_none() {
            return;
        }
        let entry = self.chats.entry(chat.into()).or_default();
        entry.kind = kind;
        let topic = topic.map(Into::into);
        entry.typing.get_or_insert(Typing { topic, again_at: Millis(0) });
    }

    /// Stops showing that someone is typing.
    pub fn pause_typing(&mut self, chat: &str) {
        if let Some(chat) = self.chats.get_mut(chat) {
            chat.typing = None;
        }
    }

    /// What has to be kept of a chat.
    #[must_use]
    pub fn state(&self, chat: &str) -> Vec<PostState> {
        let posts = self.chats.get(chat).into_iter().flat_map(|chat| &chat.posts);
        posts.map(|post| post.state.clone()).collect()
    }

    /// Whether a post is not complete.
    #[must_use]
    pub fn has(&self, chat: &str, key: &str) -> bool {
        let posts = self.chats.get(chat).into_iter().flat_map(|chat| &chat.posts);
        posts.into_iter().any(|post| *post.state.key == *key)
    }

    /// Goes on after another process, at `now`, whose calls are not known. It may have used what
    /// each chat and the bot have for a second, and, in groups, what previews have for a minute.
    pub fn goes_on(&mut self, now: Millis) {
        self.quiet_until = now.plus(self.can.rates.chat_interval.max(Duration::from_secs(1)));
        let used = share(self.can.rates.group_calls);
        for chat in self.chats.values_mut().filter(|chat| chat.kind == ChatKind::Group) {
            chat.recent.extend(std::iter::repeat_n(now, used));
        }
    }

    /// Makes no call to a chat before this time: the network said so.
    pub fn block_until(&mut self, chat: &str, until: Millis) {
        let chat = self.chats.entry(chat.into()).or_default();
        chat.blocked_until = chat.blocked_until.max(until);
    }

    /// Before which time no call is made to a chat.
    #[must_use]
    pub fn blocked_until(&self, chat: &str) -> Option<Millis> {
        self.chats.get(chat).map(|chat| chat.blocked_until)
    }

    /// Whether a preview of this post could be shown at `now`, or the time from which it could.
    /// Before that, it is of no use to compute one.
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

    /// What operators want to know since the last time.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }

    /// How many posts are not complete.
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
        for (id, chat) in &mut self.chats {
            if let Some((urgency, at, work)) = chat.work(now, &self.can) {
                if at > now {
                    wake = Some(wake.map_or(at, |wake| wake.min(at)));
                    continue;
                }
                let room = if urgency >= Urgency::Preview { share(max) } else { max };
                if used >= room {
                    if let Some(oldest) = self.answered.front() {
                        let at = oldest.plus(second);
                        wake = Some(wake.map_or(at, |wake| wake.min(at)));
                    }
                    continue;
                }
                // The chat that has waited longest, among equally urgent ones.
                let since = chat.last.unwrap_or_default();
                if best.as_ref().is_none_or(|(other, last, ..)| (urgency, since) < (*other, *last))
                {
                    best = Some((urgency, since, id, work));
                }
            }
        }
        let Some((_, _, id, work)) = best else { return wake.map_or(Next::Idle, Next::Wait) };
        let id: Box<str> = id.into();
        self.begin(&id, work)
    }

    fn begin(&mut self, id: &str, work: Work) -> Next {
        let Some(chat) = self.chats.get_mut(id) else { return Next::Idle };
        self.on_the_way += 1;
        match work {
            Work::Typing => {
                let topic = chat.typing.as_ref().and_then(|typing| typing.topic.clone());
                chat.busy = Busy::Calling(Doing::Typing);
                let call = Call { chat: id.into(), topic, action: Action::Typing };
                Next::Call { call, keep_first: false }
            }
            Work::Post(index, next) => {
                let Some(post) = chat.posts.get_mut(index) else {
                    self.on_the_way -= 1;
                    return Next::Idle;
                };
                let (action, digest, shows_words) = post.action(&next);
                let keep_first = matches!(next, PostNext::Send(_));
                if let PostNext::Send(slot) = next {
                    post.state.sending = Some(slot);
                }
                let key = post.state.key.clone();
                let topic = post.state.topic.clone();
                chat.busy = Busy::Calling(Doing::Post { key, next, digest, shows_words });
                Next::Call { call: Call { chat: id.into(), topic, action }, keep_first }
            }
        }
    }

    /// The result of a chat's call. Then keep the chat's [`state`](Self::state), and say that it
    /// is [`kept`](Self::kept). Gives whether the state has changed.
    pub fn done(&mut self, id: &str, now: Millis, result: CallResult) -> bool {
        let Some(chat) = self.chats.get_mut(id) else { return false };
        let Busy::Calling(doing) = std::mem::replace(&mut chat.busy, Busy::Keeping) else {
            return false;
        };
        self.on_the_way = self.on_the_way.saturating_sub(1);
        self.answered.push_back(now);
        chat.last = Some(now);
        if chat.kind == ChatKind::Group {
            chat.recent.push_back(now);
        }
        let failures = match &doing {
            Doing::Post { key, .. } => chat.posts.iter().find(|it| it.state.key == *key),
            Doing::Typing => None,
        };
        let failures = failures.map_or(0, |post| post.failures);
        let wait = match &result {
            Err(CallError::RateLimited { retry_after: Some(after) }) => Some(*after),
            Err(CallError::RateLimited { retry_after: None }) => Some(backoff(failures)),
            Err(CallError::Unavailable(_) | CallError::AnswerLost(_) | CallError::Refused(_)) => {
                Some(backoff(failures))
            }
            Ok(_)
            | Err(
                CallError::NotModified
                | CallError::MessageGone
                | CallError::BadMarkup(_)
                | CallError::ChatGone(_),
            ) => None,
        };
        if let Some(wait) = wait {
            chat.blocked_until = chat.blocked_until.max(now.plus(wait));
        }
        // Another process has to wait as long.
        let mut changed = matches!(result, Err(CallError::RateLimited { retry_after: Some(_) }));
        match doing {
            Doing::Typing => {
                if let (Some(typing), Some(every)) = (&mut chat.typing, self.can.typing) {
                    typing.again_at = now.plus(every);
                }
            }
            Doing::Post { key, next, digest, shows_words } => {
                if let Some(index) = chat.posts.iter().position(|post| post.state.key == key) {
                    let before = chat.posts[index].state.clone();
                    let outcome =
                        chat.posts[index].done(&next, digest, shows_words, result, &self.can);
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

    /// The state of a chat is kept: its next call may be made.
    pub fn kept(&mut self, id: &str) {
        if let Some(chat) = self.chats.get_mut(id) {
            if let Busy::Keeping = chat.busy {
                chat.busy = Busy::No;
            }
            let is_idle = chat.posts.is_empty() && chat.typing.is_none();
            // An idle chat costs nothing, once no rate depends on it any more.
            if is_idle && matches!(chat.busy, Busy::No) {
                self.forget_idle();
            }
        }
    }

    /// Forgets chats that have nothing to do and whose calls are long ago.
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

/// How urgent a call is; the smallest first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Urgency {
    /// The first message of an answer: someone waits and sees nothing.
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
                PostNext::Send(_) if post.state.slots.iter().all(Option::is_none) => Urgency::First,
                PostNext::Delete(_) => Urgency::Delete,
                PostNext::Send(_) | PostNext::Edit(_) | PostNext::Draft if post.settled => {
                    Urgency::Final
                }
                PostNext::Send(_) | PostNext::Edit(_) | PostNext::Draft => Urgency::Preview,
            };
            let at = match urgency {
                Urgency::Preview => self.preview_at(post, can),
                Urgency::First | Urgency::Final | Urgency::Delete | Urgency::Typing => {
                    self.free_at(rates.chat_interval, self.group_room_at(rates.group_calls, can))
                }
            };
            // The messages of a chat stay in order: an answer waits for those before it.
            let sends = matches!(next, PostNext::Send(_));
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

    /// When a preview may be made.
    fn preview_at(&self, post: &Post, can: &Capabilities) -> Millis {
        let rates = &can.rates;
        let floor = match self.kind {
            ChatKind::Direct => rates.direct_preview,
            ChatKind::Group => rates.group_preview,
        };
        let interval = floor.max(rates.chat_interval) * post.slowness;
        self.free_at(interval, self.group_room_at(share(rates.group_calls), can))
    }

    /// When the interval has passed, the block is over and the group has room.
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

/// What previews may use of a budget.
const fn share(max: usize) -> usize {
    max * PREVIEW_QUARTERS / 4
}

/// How long to wait after so many failures in a row: 1 s, doubled up to a minute.
fn backoff(failures: u32) -> Duration {
    Duration::from_secs(1u64 << failures.min(6)).min(Duration::from_secs(60))
}
