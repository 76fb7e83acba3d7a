//! What a chat network is to the rest of the crate: its capabilities, the calls that it takes,
//! and why one fails.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use wellspring_core::MediaSource;
use wellspring_wire::stream_delta::StreamDelta;

use crate::markup::Markup;
use crate::sender::Sender;

/// What a network can do. Fields that are off by default are opt-in for a new network.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Capabilities {
    /// Whether an answer can be shown while it grows.
    pub can_stream_response: bool,
    /// Whether a message can be edited after it was sent.
    pub can_edit: bool,
    /// Whether a preview can be shown that is not a message.
    pub can_draft: bool,
    /// Whether an answer can be a stream that is only appended to.
    pub can_append: bool,
    /// The most UTF-16 units of the words of such a stream. A longer answer is shown by edits.
    pub stream_max: usize,
    /// Whether a message can be deleted.
    pub can_delete: bool,
    /// Whether a message can have buttons.
    pub can_buttons: bool,
    /// Whether the network shows that someone is typing, and for how long after one call.
    pub typing: Option<Duration>,
    /// The most UTF-16 units of a message.
    pub text_max: usize,
    /// Whether markup counts for `text_max`.
    pub counts_markup: bool,
    /// Whether a send that is repeated under its nonce gives the first message, for some minutes.
    pub knows_repeats: bool,
    /// The markups to try, in order: the next one if the network refuses the one before.
    pub markups: &'static [Markup],
    /// How many calls it takes.
    pub rates: Rates,
    /// If the chats of one room share its rates and its permissions: the character after the
    /// room in the id of a chat. Without it, every chat is a room of its own.
    pub room_end: Option<char>,
    /// What a command begins with, where the network keeps `/` for itself.
    pub command: char,
}

impl Capabilities {
    /// A network that takes plain messages and nothing else.
    pub const DEFAULT: Self = Self {
        can_stream_response: false,
        can_edit: false,
        can_draft: false,
        can_append: false,
        stream_max: 0,
        can_delete: false,
        can_buttons: false,
        typing: None,
        text_max: 2000,
        counts_markup: false,
        knows_repeats: false,
        markups: &[Markup::Plain],
        rates: Rates::TELEGRAM,
        room_end: None,
        command: '/',
    };

    /// The room that a chat is in.
    #[must_use]
    pub fn room<'a>(&self, chat: &'a str) -> &'a str {
        let end = self.room_end.and_then(|end| chat.find(end));
        end.map_or(chat, |end| &chat[..end])
    }
}

/// How many calls a network takes, and how often a preview changes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rates {
    /// Between two calls to one room.
    pub chat_interval: Duration,
    /// At least this between two previews in a direct chat.
    pub direct_preview: Duration,
    /// At least this between two previews in a group.
    pub group_preview: Duration,
    /// The most calls to one group within `group_window`.
    pub group_calls: usize,
    /// See `group_calls`.
    pub group_window: Duration,
    /// The most calls in all within a second.
    pub overall_per_second: usize,
    /// The most calls of one kind within a minute, by [`Action::name`], where there is a limit.
    pub per_minute: &'static [(&'static str, usize)],
}

impl Rates {
    /// Telegram: 1 call per second and chat, 20 per minute and group, 30 per second in all.
    pub const TELEGRAM: Self = Self {
        chat_interval: Duration::from_secs(1),
        direct_preview: Duration::from_millis(900),
        group_preview: Duration::from_secs(3),
        group_calls: 20,
        group_window: Duration::from_secs(60),
        overall_per_second: 30,
        per_minute: &[],
    };

    /// The most calls of this kind within a minute.
    #[must_use]
    pub(crate) fn per_minute(&self, action: &str) -> Option<usize> {
        self.per_minute.iter().find(|(name, _)| *name == action).map(|(_, calls)| *calls)
    }
}

/// Who reads a chat.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChatKind {
    /// One person.
    #[default]
    Direct,
    /// Several people.
    Group,
}

/// A message as it should look. Its text is given in every markup that the network may take.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Body {
    /// The text, one for each of [`Capabilities::markups`].
    pub texts: Vec<String>,
    /// Rows of buttons below it.
    pub buttons: Vec<Vec<Button>>,
    /// A file; the text is its caption.
    pub file: Option<File>,
    /// The whole answer, for a network where it is a stream.
    pub stream: Option<Stream>,
    /// Whether it shows words of the model. Such a message is never deleted before another one
    /// shows them.
    pub shows_words: bool,
}

impl Body {
    /// The text in the `index`th markup, or in the last one that there is.
    #[must_use]
    pub fn text(&self, index: usize) -> &str {
        self.texts.get(index).or(self.texts.last()).map_or("", String::as_str)
    }

    /// What tells whether two messages look the same.
    pub(crate) fn digest(&self, index: usize) -> u64 {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        self.text(index).hash(&mut hasher);
        for button in self.buttons.iter().flatten() {
            (&button.label, &button.data).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// An answer as a stream that is only appended to.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Stream {
    /// The title above the thoughts; empty if there is nothing to show of them.
    pub title: Box<str>,
    /// The thoughts, from the first on.
    pub thoughts: Box<str>,
    /// Whether there are no words yet.
    pub is_thinking: bool,
    /// What a tool is doing right now.
    pub tool: Option<Box<str>>,
    /// The words, as the model's Markdown.
    pub words: Box<str>,
}

/// What is appended to a stream: the difference between what it shows and what it should.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Growth {
    /// What it shows.
    pub before: Stream,
    /// What it should show. Its words and thoughts begin as those before.
    pub after: Stream,
}

impl Stream {
    /// Whether everything that this stream shows is at the beginning of `later`.
    pub(crate) fn grows_to(&self, later: &Self) -> bool {
        later.words.starts_with(&*self.words) && later.thoughts.starts_with(&*self.thoughts)
    }
}

/// A button below a message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Button {
    /// What it says.
    pub label: Box<str>,
    /// What the network sends back when it is pressed; at most 64 bytes on Telegram.
    pub data: Box<str>,
}

/// A file to send.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct File {
    /// Its name.
    pub name: Box<str>,
    /// Its media type.
    pub media_type: Box<str>,
    /// Its bytes, or where they are.
    pub source: MediaSource,
}

/// One request to a network.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Call {
    /// The network's id of the chat.
    pub chat: Box<str>,
    /// The topic or thread within the chat.
    pub topic: Option<Box<str>>,
    /// What to do.
    pub action: Action,
}

/// What a [`Call`] does.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// A new message.
    Send {
        /// The message it answers.
        reply_to: Option<Box<str>>,
        /// The message.
        body: Body,
        /// The number of the markup to use.
        markup: usize,
        /// Whether the answer is still growing.
        preview: bool,
        /// The same if the send is repeated, and different for every other message of the chat.
        nonce: u64,
    },
    /// Another text for a message.
    Edit {
        /// The message.
        message: Box<str>,
        /// Its new look.
        body: Body,
        /// The number of the markup to use.
        markup: usize,
        /// Whether the answer is still growing.
        preview: bool,
    },
    /// A preview that is not a message.
    Draft {
        /// The number of the preview, never 0.
        draft: u64,
        /// The preview.
        body: Body,
        /// The number of the markup to use.
        markup: usize,
    },
    /// A new message that is a stream.
    Begin {
        /// The message it answers.
        reply_to: Option<Box<str>>,
        /// What it shows first.
        growth: Box<Growth>,
    },
    /// More of a stream.
    Append {
        /// The message.
        message: Box<str>,
        /// What is new.
        growth: Box<Growth>,
    },
    /// Ends a stream. From then on it is a message like any other.
    End {
        /// The message.
        message: Box<str>,
        /// What is new.
        growth: Box<Growth>,
    },
    /// Deletes a message.
    Delete {
        /// The message.
        message: Box<str>,
    },
    /// Shows that someone is typing.
    Typing,
}

impl Action {
    /// The name in metrics and logs.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Send { .. } => "send",
            Self::Edit { .. } => "edit",
            Self::Draft { .. } => "draft",
            Self::Begin { .. } => "begin",
            Self::Append { .. } => "append",
            Self::End { .. } => "end",
            Self::Delete { .. } => "delete",
            Self::Typing => "typing",
        }
    }
}

/// Why a call failed, by what can be done about it.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// Too many calls.
    #[error("too many requests")]
    RateLimited {
        /// How long to wait, if the network says so.
        retry_after: Option<Duration>,
    },
    /// Too many calls of this kind, or in all, to whatever chat.
    #[error("too many requests of this bot")]
    BotLimited {
        /// How long to wait.
        retry_after: Duration,
        /// Of what there were too many.
        limit: Limit,
    },
    /// The stream has ended: nothing was appended.
    #[error("the stream has ended")]
    StreamEnded,
    /// The message already looks like that.
    #[error("the message is not modified")]
    NotModified,
    /// The message does not exist any more.
    #[error("the message does not exist")]
    MessageGone,
    /// The network does not understand the markup, or the text is too long with it.
    #[error("the markup was refused: {0}")]
    BadMarkup(Box<str>),
    /// The bot may not write to the chat, or the chat does not exist.
    #[error("the chat cannot be written to: {0}")]
    ChatGone(Box<str>),
    /// The request was refused for another reason.
    #[error("the request was refused: {0}")]
    Refused(Box<str>),
    /// The network could not be reached, or failed. Nothing was done.
    #[error("the network failed: {0}")]
    Unavailable(Box<str>),
    /// The answer was lost: the call may have been done.
    #[error("the answer of the network was lost: {0}")]
    AnswerLost(Box<str>),
}

impl CallError {
    /// Of a request that shows nothing to anybody: it can be repeated.
    pub(crate) fn shows_nothing(self) -> Self {
        if let Self::AnswerLost(what) = self { Self::Unavailable(what) } else { self }
    }
}

/// A limit that all chats of a bot share.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Limit {
    /// Calls of one kind.
    Action,
    /// Calls of every kind.
    Bot,
}

/// What a call gives.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Done {
    /// The id of a new message.
    pub message: Option<Box<str>>,
    /// Whether it is the message of an earlier try, which may look different.
    pub is_repeat: bool,
    /// How long to make no call to this room, if the network says so.
    pub wait: Option<Duration>,
}

impl Done {
    /// A new message, or a call that gives none.
    #[must_use]
    pub fn new(message: Option<Box<str>>) -> Self {
        Self { message, ..Self::default() }
    }
}

/// What a call gives, or why it failed.
pub type CallResult = Result<Done, CallError>;

/// A chat network.
///
/// # Contract
///
/// 1. [`call`](Self::call) makes one request and reports one result. It never waits for a rate
///    and never tries again: the scheduler does both.
/// 2. A call that was perhaps done is [`CallError::AnswerLost`], never
///    [`CallError::Unavailable`].
/// 3. A successful [`Action::Send`] or [`Action::Begin`] gives the id of the message.
pub trait Channel: Send + Sync + std::fmt::Debug {
    /// The name of the network, such as `telegram`.
    fn network(&self) -> &'static str;

    /// What it can do.
    fn capabilities(&self) -> &Capabilities;

    /// Makes one request.
    fn call(&self, call: Call) -> BoxFuture<'_, CallResult>;

    /// Fetches a file that someone sent, by the network's id of it. Fails if it has more than
    /// `bytes_max`.
    fn download(&self, file: &str, bytes_max: usize) -> BoxFuture<'_, Result<Bytes, CallError>> {
        let _ = bytes_max;
        let what = format!("this network cannot fetch the file {file}");
        Box::pin(async move { Err(CallError::Refused(what.into())) })
    }

    /// Confirms that a button was pressed, with a short text for the person who did.
    fn acknowledge(&self, press: &str, text: &str) -> BoxFuture<'_, Result<(), CallError>> {
        let _ = (press, text);
        Box::pin(async { Ok(()) })
    }

    /// Checks that the network accepts our credentials; gives the name of the bot.
    fn check(&self) -> BoxFuture<'_, Result<String, CallError>>;

    /// A view of one answer in a chat: what its methods are given is what people should see
    /// now. `instance` is where the view is scheduled.
    fn create_stream_sender(
        &self,
        instance: &crate::Instance,
        chat: &str,
        reply_to: Option<&str>,
        topic: Option<&str>,
    ) -> Box<dyn StreamSender> {
        Box::new(Sender::new(instance, chat, reply_to, topic))
    }
}

/// How an answer stands, told to a chat. Every call replaces the one before: nothing is queued,
/// and a view that was never shown is simply skipped.
pub trait StreamSender: Send {
    /// Thoughts, and no words yet. Ignores deltas of other phases.
    fn on_thinking_delta(&mut self, delta: &StreamDelta);
    /// Some words. Ignores deltas of other phases.
    fn on_content_delta(&mut self, delta: &StreamDelta);
    /// All words. Ignores deltas of other phases.
    fn on_final(&mut self, delta: &StreamDelta);
    /// The answer failed. Words that were shown stay. Ignores deltas of other phases.
    fn on_error(&mut self, delta: &StreamDelta);
    /// What a tool is doing right now, if one is running.
    fn on_tool(&mut self, line: Option<&str>);
    /// Ends the view without an answer: a message that shows no words is deleted, words that
    /// were shown stay.
    fn abort(&mut self);
}
