//! One answer in a chat: its messages, and the next call.

use serde::{Deserialize, Serialize};

use crate::channel::{Action, Body, CallError, CallResult, Capabilities};

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
}

/// How a post is shown while it grows.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Preview {
    /// In a message that is edited.
    #[default]
    Edit,
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
    /// A hash of its content. Not stored: an edit after a crash is repeated, which changes
    /// nothing.
    #[serde(skip)]
    shown: Option<u64>,
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
}

/// The next call of a post.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Next {
    Send(usize),
    Edit(usize),
    Draft,
    Delete(Box<str>),
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
            Preview::Edit => match self.state.slots.first() {
                Some(Some(slot)) if slot.gone || slot.shown == Some(digest) => None,
                Some(Some(_)) => can.can_edit.then_some(Next::Edit(0)),
                Some(None) | None => Some(Next::Send(0)),
            },
        }
    }

    /// The next call until everything is shown: messages first, then deletions.
    fn finish(&self, can: &Capabilities) -> Option<Next> {
        let wanted = self.wanted.as_ref()?;
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

    /// The call for a step, a hash of the new content, and whether it shows text of the model.
    pub(super) fn action(&self, next: &Next) -> (Action, u64, bool) {
        let markup = self.state.markup;
        let preview = !self.settled;
        let body = |index: usize| {
            self.wanted.as_ref().and_then(|it| it.get(index)).cloned().unwrap_or_default()
        };
        let shown = |body: &Body| (body.digest(markup), body.shows_words);
        let (action, (digest, shows_words)) = match next {
            Next::Send(index) => {
                let body = body(*index);
                let shown = shown(&body);
                // Only the first message is a reply; the others follow it.
                let reply_to = self.state.reply_to.clone().filter(|_| *index == 0);
                (Action::Send { reply_to, body, markup, preview }, shown)
            }
            Next::Edit(index) => {
                let body = body(*index);
                let shown = shown(&body);
                let slot = self.state.slots.get(*index).and_then(Option::as_ref);
                let message = slot.map(|slot| slot.message.clone()).unwrap_or_default();
                (Action::Edit { message, body, markup, preview }, shown)
            }
            Next::Draft => {
                let body = body(0);
                let shown = shown(&body);
                (Action::Draft { draft: self.draft_id(), body, markup }, shown)
            }
            Next::Delete(message) => (Action::Delete { message: message.clone() }, (0, false)),
        };
        (action, digest, shows_words)
    }

    fn draft_id(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        self.state.key.hash(&mut hasher);
        // Networks read it as a signed 32-bit number, and 0 is not allowed.
        (hasher.finish() & 0x7fff_ffff).max(1)
    }

    pub(super) fn done(
        &mut self,
        next: &Next,
        digest: u64,
        shows_words: bool,
        result: CallResult,
        can: &Capabilities,
    ) -> Outcome {
        self.state.sending = None;
        match result {
            Ok(message) => {
                self.succeeded(next, digest, shows_words, message);
                Outcome::Fine
            }
            Err(CallError::NotModified) => {
                self.succeeded(next, digest, shows_words, None);
                Outcome::Fine
            }
            Err(error) => self.failed(next, error, can),
        }
    }

    fn succeeded(
        &mut self,
        next: &Next,
        digest: u64,
        shows_words: bool,
        message: Option<Box<str>>,
    ) {
        self.failures = 0;
        self.refusals = 0;
        match next {
            Next::Send(index) => {
                // If the network returns no id, the message cannot be edited.
                let (message, gone) = match message {
                    Some(message) => (message, false),
                    None => ("".into(), true),
                };
                if self.state.slots.len() <= *index {
                    self.state.slots.resize(index + 1, None);
                }
                self.state.slots[*index] =
                    Some(Slot { message, shows_words, gone, shown: Some(digest) });
            }
            Next::Edit(index) => {
                if let Some(Some(slot)) = self.state.slots.get_mut(*index) {
                    slot.shown = Some(digest);
                    slot.shows_words |= shows_words;
                }
            }
            Next::Draft => self.drafted = Some(digest),
            Next::Delete(message) => self.forget(message),
        }
    }

    fn failed(&mut self, next: &Next, error: CallError, can: &Capabilities) -> Outcome {
        let is_preview = !self.settled;
        self.failures += 1;
        match &error {
            CallError::NotModified => Outcome::Fine,
            CallError::ChatGone(_) => Outcome::GaveUp(error),
            CallError::RateLimited { .. } => {
                if is_preview {
                    self.slowness = (self.slowness * 2).min(SLOWNESS_MAX);
                }
                self.unless_tired(error)
            }
            CallError::AnswerLost(_) => match next {
                Next::Send(_) => match self.unless_tired(error) {
                    Outcome::Fine => Outcome::MayRepeat,
                    outcome @ (Outcome::MayRepeat
                    | Outcome::PreviewsStopped(_)
                    | Outcome::GaveUp(_)) => outcome,
                },
                Next::Edit(_) | Next::Draft | Next::Delete(_) => self.after_trouble(error),
            },
            CallError::Unavailable(_) => self.after_trouble(error),
            CallError::MessageGone => {
                match next {
                    Next::Edit(index) => {
                        let slot = self.state.slots.get_mut(*index);
                        match slot {
                            Some(slot) if !self.state.reposted => {
                                *slot = None;
                                self.state.reposted = true;
                            }
                            Some(Some(slot)) => slot.gone = true,
                            Some(None) | None => {}
                        }
                    }
                    Next::Delete(message) => self.forget(message),
                    Next::Send(_) | Next::Draft => return self.refused(next, error),
                }
                Outcome::Fine
            }
            CallError::BadMarkup(_) if self.state.markup + 1 < can.markups.len() => {
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
            Next::Draft => {
                self.state.preview = Preview::Edit;
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
