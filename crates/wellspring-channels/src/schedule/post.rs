//! One answer in a chat: its messages, and the next call.

use serde::{Deserialize, Serialize};

use crate::channel::{Action, Body, CallError, CallResult, Capabilities, Done, Growth, Stream};

/// Attempts of a failing call before a finished answer is given up, with an error in the log.
/// With waits of up to a minute, this is most of a day.
pub const TRIES_MAX: u32 = 1000;

/// Attempts of a call that the network rejects.
const REFUSED_TRIES_MAX: u32 = 5;

/// Consecutive failures of previews after which no more are made.
const PREVIEW_FAILURES_MAX: u32 = 3;

/// The slowest previews, as a multiple of the usual interval.
const SLOWNESS_MAX: u32 = 16;

/// The stored state of a post: everything that is needed to continue after a crash.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct PostState {
    /// Its key, unique within the chat.
    pub key: Box<str>,
    /// The message that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<Box<str>>,
    /// The topic or thread within the chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<Box<str>>,
    /// How it is shown while it grows.
    #[serde(default)]
    pub preview: Preview,
    /// The messages that show it, in order; `None` for one that must be sent again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<Option<Slot>>,
    /// Messages to delete once all others exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retired: Vec<Box<str>>,
    /// The index of the message that is being sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sending: Option<usize>,
    /// Whether a deleted message was sent again, which is done only once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reposted: bool,
    /// The index of the markup that the network accepts.
    #[serde(default)]
    pub markup: usize,
    /// The number of messages sent for this post.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sent: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// How a post is shown while it grows.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Preview {
    /// In a message that is edited.
    #[default]
    Edit,
    /// By appending to a stream. If the appended content is unknown, or the model took text back,
    /// the stream is ended and its message edited.
    Append,
    /// In a draft, which is not a message.
    Draft,
    /// Not at all: it is sent when it is finished.
    Off,
}

/// A message that shows a part of a post.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Slot {
    /// The network's id of it.
    pub message: Box<str>,
    /// Whether it has shown text of the model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shows_words: bool,
    /// Whether people have deleted it twice; it is then not sent again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
    /// Whether it is a stream that has not ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub streaming: bool,
    /// A hash of its content. Not stored: an edit after a crash is repeated, which changes
    /// nothing.
    #[serde(skip)]
    shown: Option<u64>,
    /// The content of the stream; `None` if unknown. Not stored, so it is unknown after a crash.
    #[serde(skip)]
    stream: Option<Stream>,
}

/// The look of a message after a call.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Look {
    digest: u64,
    shows_words: bool,
    stream: Option<Stream>,
}

impl Look {
    fn of(body: &Body, markup: usize) -> Self {
        let (shows_words, stream) = (body.shows_words, body.stream.clone());
        Self { digest: body.digest(markup), shows_words, stream }
    }
}

/// A post and its desired state.
#[derive(Debug)]
pub(super) struct Post {
    pub(super) state: PostState,
    wanted: Option<Vec<Body>>,
    pub(super) settled: bool,
    pub(super) failures: u32,
    refusals: u32,
    pub(super) slowness: u32,
    stopped: bool,
    /// Edits do not work: the final state is sent as new messages.
    renew: bool,
    drafted: Option<u64>,
    /// The ended stream shows the complete answer.
    is_whole: bool,
}

/// The next call of a post.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Next {
    Send(usize),
    Edit(usize),
    Draft,
    /// Start the first message as a stream; append to it; end it.
    Begin,
    Append,
    End,
    Delete(Box<str>),
}

impl Next {
    /// The index of the message that this step creates; `None` for other steps.
    pub(super) const fn makes(&self) -> Option<usize> {
        match self {
            Self::Send(index) => Some(*index),
            Self::Begin => Some(0),
            Self::Edit(_) | Self::Draft | Self::Append | Self::End | Self::Delete(_) => None,
        }
    }

    /// The name of its action.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Send(_) => "send",
            Self::Edit(_) => "edit",
            Self::Draft => "draft",
            Self::Begin => "begin",
            Self::Append => "append",
            Self::End => "end",
            Self::Delete(_) => "delete",
        }
    }
}

/// The outcome of a call, for operators.
#[derive(Debug)]
pub(super) enum Outcome {
    Fine,
    MayRepeat,
    PreviewsStopped(CallError),
    GaveUp(CallError),
}

impl Post {
    pub(super) fn new(state: PostState) -> Self {
        Self {
            state,
            wanted: None,
            settled: false,
            failures: 0,
            refusals: 0,
            slowness: 1,
            stopped: false,
            renew: false,
            drafted: None,
            is_whole: false,
        }
    }

    pub(super) fn want(&mut self, bodies: Vec<Body>, settled: bool) {
        // A settled post does not change.
        if self.settled && !settled {
            return;
        }
        if settled && self.renew {
            self.renew_all();
        }
        self.settled = settled;
        self.wanted = Some(bodies);
    }

    /// Whether previews are useful for this post.
    pub(super) fn takes_previews(&self) -> bool {
        !self.settled && !self.stopped && self.state.preview != Preview::Off
    }

    pub(super) fn is_complete(&self, can: &Capabilities) -> bool {
        self.settled && self.wanted.is_some() && self.finish(can).is_none()
    }

    pub(super) fn next(&self, can: &Capabilities) -> Option<Next> {
        let wanted = self.wanted.as_ref()?;
        if self.settled {
            return self.finish(can);
        }
        let body = wanted.first().filter(|_| !self.stopped)?;
        let digest = body.digest(self.state.markup);
        match self.state.preview {
            Preview::Off => None,
            Preview::Draft => (self.drafted != Some(digest)).then_some(Next::Draft),
            Preview::Edit | Preview::Append => match self.state.slots.first() {
                Some(Some(slot)) if slot.streaming => match (&slot.stream, &body.stream) {
                    (Some(shown), Some(wanted)) if shown == wanted => None,
                    (Some(shown), Some(wanted)) if shown.grows_to(wanted) => Some(Next::Append),
                    (Some(_) | None, _) => Some(Next::End),
                },
                Some(Some(slot)) if slot.gone || slot.shown == Some(digest) => None,
                Some(Some(_)) => can.can_edit.then_some(Next::Edit(0)),
                Some(None) | None => match self.state.preview {
                    Preview::Append if body.stream.is_some() => Some(Next::Begin),
                    Preview::Append | Preview::Edit | Preview::Draft | Preview::Off => {
                        Some(Next::Send(0))
                    }
                },
            },
        }
    }

    /// Shows previews by edits from now on.
    pub(super) const fn use_edits(&mut self) {
        self.state.preview = Preview::Edit;
    }

    /// The next call until everything is shown: messages first, then deletions.
    fn finish(&self, can: &Capabilities) -> Option<Next> {
        let wanted = self.wanted.as_ref()?;
        if self.is_whole {
            return None;
        }
        if self.state.slots.first().and_then(Option::as_ref).is_some_and(|slot| slot.streaming) {
            return Some(Next::End);
        }
        for (index, body) in wanted.iter().enumerate() {
            match self.state.slots.get(index) {
                Some(Some(slot)) if slot.gone || !can.can_edit => {}
                Some(Some(slot)) => {
                    if slot.shown != Some(body.digest(self.state.markup)) {
                        return Some(Next::Edit(index));
                    }
                }
                Some(None) | None => return Some(Next::Send(index)),
            }
        }
        if !can.can_delete {
            return None;
        }
        // Without replacement, messages with text stay.
        let may_go = |slot: &&Slot| !slot.gone && (!wanted.is_empty() || !slot.shows_words);
        let surplus = self.state.slots.iter().skip(wanted.len()).flatten().find(may_go);
        let surplus = surplus.map(|slot| &slot.message).or(self.state.retired.first());
        surplus.map(|message| Next::Delete(message.clone()))
    }

    /// The call for a step, and what the message will look like.
    pub(super) fn action(&self, next: &Next) -> (Action, Look) {
        let markup = self.state.markup;
        let preview = !self.settled;
        let body = |index: usize| {
            self.wanted.as_ref().and_then(|it| it.get(index)).cloned().unwrap_or_default()
        };
        // Only the first message answers; the others follow it.
        let reply_to = |index: usize| self.state.reply_to.clone().filter(|_| index == 0);
        let slot = |index: usize| self.state.slots.get(index).and_then(Option::as_ref);
        let message = |index: usize| slot(index).map(|it| it.message.clone()).unwrap_or_default();
        match next {
            Next::Send(index) => {
                let (body, reply_to) = (body(*index), reply_to(*index));
                let look = Look { stream: None, ..Look::of(&body, markup) };
                (Action::Send { reply_to, body, markup, preview, nonce: self.nonce() }, look)
            }
            Next::Edit(index) => {
                let (message, body) = (message(*index), body(*index));
                let look = Look::of(&body, markup);
                (Action::Edit { message, body, markup, preview }, look)
            }
            Next::Draft => {
                let body = body(0);
                let look = Look::of(&body, markup);
                (Action::Draft { draft: self.draft_id(), body, markup }, look)
            }
            Next::Begin => {
                let look = Look::of(&body(0), markup);
                let (before, after) = (Stream::default(), look.stream.clone().unwrap_or_default());
                let growth = Box::new(Growth { before, after });
                (Action::Begin { reply_to: reply_to(0), growth }, look)
            }
            Next::Append | Next::End => {
                let shown = slot(0).and_then(|slot| slot.stream.clone());
                let mut look = Look::of(&body(0), markup);
                // What cannot be appended is shown by an edit later.
                look.stream =
                    look.stream.filter(|it| shown.as_ref().is_some_and(|s| s.grows_to(it)));
                let before = shown.unwrap_or_default();
                let after = look.stream.clone().unwrap_or_else(|| before.clone());
                let (message, growth) = (message(0), Box::new(Growth { before, after }));
                let action = if *next == Next::Append {
                    Action::Append { message, growth }
                } else {
                    Action::End { message, growth }
                };
                (action, look)
            }
            Next::Delete(message) => (Action::Delete { message: message.clone() }, Look::default()),
        }
    }

    /// Stays the same until a message of this post was sent.
    fn nonce(&self) -> u64 {
        self.hash_with(self.state.sent)
    }

    fn draft_id(&self) -> u64 {
        // Some networks read it as a signed 32-bit number, and reject 0.
        (self.hash_with(0) & 0x7fff_ffff).max(1)
    }

    fn hash_with(&self, number: u32) -> u64 {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        (&self.state.key, number).hash(&mut hasher);
        hasher.finish()
    }

    pub(super) fn done(
        &mut self,
        next: &Next,
        look: Look,
        result: CallResult,
        can: &Capabilities,
    ) -> Outcome {
        self.state.sending = None;
        match result {
            Ok(done) => {
                self.succeeded(next, look, done);
                Outcome::Fine
            }
            Err(CallError::NotModified) => {
                self.succeeded(next, look, Done::default());
                Outcome::Fine
            }
            Err(error) => self.failed(next, error, can),
        }
    }

    fn succeeded(&mut self, next: &Next, look: Look, done: Done) {
        self.failures = 0;
        self.refusals = 0;
        let Look { digest, shows_words, stream } = look;
        match next {
            Next::Send(_) | Next::Begin => {
                let index = next.makes().unwrap_or_default();
                // If the network returns no id, the message cannot be edited.
                let (message, gone) = match done.message {
                    Some(message) => (message, false),
                    None => ("".into(), true),
                };
                if self.state.slots.len() <= index {
                    self.state.slots.resize(index + 1, None);
                }
                self.state.sent += 1;
                let streaming = *next == Next::Begin && !gone;
                // An earlier attempt may have sent different content.
                let shown = (!done.is_repeat && !streaming).then_some(digest);
                self.state.slots[index] =
                    Some(Slot { message, shows_words, gone, streaming, shown, stream });
            }
            Next::Edit(index) => {
                if let Some(Some(slot)) = self.state.slots.get_mut(*index) {
                    slot.shown = Some(digest);
                    slot.shows_words |= shows_words;
                }
            }
            Next::Append => {
                if let Some(slot) = self.streaming() {
                    slot.stream = stream;
                    slot.shows_words |= shows_words;
                }
            }
            Next::End => {
                let is_whole = self.settled && stream.is_some();
                if let Some(slot) = self.streaming() {
                    slot.streaming = false;
                    slot.shows_words |= is_whole && shows_words;
                }
                self.is_whole = is_whole;
            }
            Next::Draft => self.drafted = Some(digest),
            Next::Delete(message) => self.forget(message),
        }
    }

    /// The message that is an open stream.
    fn streaming(&mut self) -> Option<&mut Slot> {
        self.state.slots.first_mut().and_then(Option::as_mut).filter(|slot| slot.streaming)
    }

    /// Marks the content of the stream as unknown: the stream is ended and its message edited.
    fn doubt_stream(&mut self) {
        if let Some(slot) = self.streaming() {
            slot.stream = None;
        }
    }

    fn failed(&mut self, next: &Next, error: CallError, can: &Capabilities) -> Outcome {
        let is_preview = !self.settled;
        self.failures += 1;
        match &error {
            CallError::NotModified => Outcome::Fine,
            CallError::ChatGone(_) => Outcome::GaveUp(error),
            CallError::StreamEnded => {
                if let Some(slot) = self.streaming() {
                    (slot.streaming, slot.stream) = (false, None);
                }
                Outcome::Fine
            }
            CallError::RateLimited { .. } | CallError::BotLimited { .. } => {
                if is_preview {
                    self.slowness = (self.slowness * 2).min(SLOWNESS_MAX);
                }
                self.unless_tired(error)
            }
            CallError::AnswerLost(_) => match next {
                Next::Send(_) if can.knows_repeats => self.unless_tired(error),
                Next::Send(_) | Next::Begin => match self.unless_tired(error) {
                    Outcome::Fine => Outcome::MayRepeat,
                    outcome @ (Outcome::MayRepeat
                    | Outcome::PreviewsStopped(_)
                    | Outcome::GaveUp(_)) => outcome,
                },
                Next::Append | Next::End => {
                    self.doubt_stream();
                    self.unless_tired(error)
                }
                Next::Edit(_) | Next::Draft | Next::Delete(_) => self.after_trouble(error),
            },
            CallError::Unavailable(_) => self.after_trouble(error),
            CallError::MessageGone => {
                match next {
                    Next::Edit(_) | Next::Append | Next::End => {
                        let index = if let Next::Edit(index) = next { *index } else { 0 };
                        let slot = self.state.slots.get_mut(index);
                        self.state.preview = Preview::Edit;
                        match slot {
                            Some(slot) if !self.state.reposted => {
                                *slot = None;
                                self.state.reposted = true;
                            }
                            Some(Some(slot)) => (slot.gone, slot.streaming) = (true, false),
                            Some(None) | None => {}
                        }
                    }
                    Next::Delete(message) => self.forget(message),
                    Next::Send(_) | Next::Begin | Next::Draft => return self.refused(next, error),
                }
                Outcome::Fine
            }
            CallError::BadMarkup(_)
                if self.state.markup + 1 < can.markups.len()
                    && matches!(next, Next::Send(_) | Next::Edit(_) | Next::Draft) =>
            {
                self.state.markup += 1;
                Outcome::Fine
            }
            CallError::BadMarkup(_) | CallError::Refused(_) => self.refused(next, error),
        }
    }

    fn refused(&mut self, next: &Next, error: CallError) -> Outcome {
        match next {
            Next::Delete(message) => {
                self.forget(message);
                Outcome::Fine
            }
            Next::Draft | Next::Begin => {
                self.use_edits();
                Outcome::Fine
            }
            Next::Append => {
                self.doubt_stream();
                Outcome::Fine
            }
            // If the stream cannot be ended, its message is edited.
            Next::End => {
                if let Some(slot) = self.streaming() {
                    (slot.streaming, slot.stream) = (false, None);
                }
                Outcome::Fine
            }
            // If edits do not work, the finished answer is sent as new messages.
            Next::Edit(_) if self.settled => {
                self.renew_all();
                Outcome::Fine
            }
            Next::Edit(_) => {
                self.renew = true;
                self.stopped = true;
                Outcome::PreviewsStopped(error)
            }
            Next::Send(_) if !self.settled => {
                self.stopped = true;
                Outcome::PreviewsStopped(error)
            }
            Next::Send(_) => {
                self.refusals += 1;
                if self.refusals >= REFUSED_TRIES_MAX {
                    return Outcome::GaveUp(error);
                }
                Outcome::Fine
            }
        }
    }

    /// Handles a temporary failure.
    fn after_trouble(&mut self, error: CallError) -> Outcome {
        if !self.settled && self.failures >= PREVIEW_FAILURES_MAX {
            self.stopped = true;
            return Outcome::PreviewsStopped(error);
        }
        self.unless_tired(error)
    }

    fn unless_tired(&self, error: CallError) -> Outcome {
        if self.failures >= TRIES_MAX { Outcome::GaveUp(error) } else { Outcome::Fine }
    }

    /// Sends all messages again, and then deletes the old ones.
    fn renew_all(&mut self) {
        self.renew = false;
        let old = std::mem::take(&mut self.state.slots);
        self.state.retired.extend(old.into_iter().flatten().map(|slot| slot.message));
    }

    fn forget(&mut self, message: &str) {
        self.state.retired.retain(|it| **it != *message);
        self.state.slots.retain(|slot| slot.as_ref().is_none_or(|it| *it.message != *message));
    }
}
