//! The interface of a chat network: its capabilities, its calls, and their errors.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use wellspring_core::MediaSource;
use wellspring_wire::stream_delta::StreamDelta;

use crate::markup::Markup;
use crate::sender::Sender;

/// The capabilities of a network. All are off by default, so a new network opts in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Capabilities {
    /// Whether an answer can be shown while it grows.
    pub can_stream_response: bool,
    /// Whether a message can be edited after it was sent.
    pub can_edit: bool,
    /// Whether it has previews that are not messages.
    pub can_draft: bool,
    /// Whether an answer can be a stream that is only appended to.
    pub can_append: bool,
    /// Maximum length of the text of such a stream in UTF-16 units. A longer answer is shown by
    /// edits.
    pub stream_max: usize,
    /// Whether a message can be deleted.
    pub can_delete: bool,
    /// Whether a message can have buttons.
    pub can_buttons: bool,
    /// How long a typing indicator is shown after one call; `None` if the network has no indicator.
    pub typing: Option<Duration>,
    /// Maximum length of a message in UTF-16 units.
    pub text_max: usize,
    /// Whether markup counts towards `text_max`.
    pub counts_markup: bool,
    /// Whether the network deduplicates sends by nonce: for some minutes, a repeated send returns
    /// the first message.
    pub knows_repeats: bool,
    /// The supported markups, in order of preference: if the network rejects one, the next one
    /// is tried.
    pub markups: &'static [Markup],
    /// The rate limits.
    pub rates: Rates,
    /// Set if the chats of a room share its rate limits and permissions: the character that follows
    /// the room in a chat's id. If it is `None`, every chat is its own room.
    pub room_end: Option<char>,
    /// The first character of a command. It differs from `/` where the network reserves `/`.
    pub command: char,
}

impl Capabilities {
    /// A network that only supports plain messages.
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

/// Rate limits, and how often a preview may change.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rates {
    /// Minimum time between two calls to one room.
    pub chat_interval: Duration,
    /// Minimum time between two previews in a direct chat.
    pub direct_preview: Duration,
    /// Minimum time between two previews in a group.
    pub group_preview: Duration,
    /// Maximum number of calls to one group within `group_window`.
    pub group_calls: usize,
    /// See `group_calls`.
    pub group_window: Duration,
    /// Maximum number of calls per second, over all chats.
    pub overall_per_second: usize,
    /// Maximum number of calls per minute for each kind of call, by [`Action::name`]. Kinds that
    /// are not listed have no limit of their own.
    pub per_minute: &'static [(&'static str, usize)],
}

impl Rates {
    /// Telegram: 1 call per second and chat, 20 per minute and group, 30 per second in total.
    pub const TELEGRAM: Self = Self {
        chat_interval: Duration::from_secs(1),
        direct_preview: Duration::from_millis(900),
        group_preview: Duration::from_secs(3),
        group_calls: 20,
        group_window: Duration::from_secs(60),
        overall_per_second: 30,
        per_minute: &[],
    };

    /// Maximum number of calls of this kind per minute.
    #[must_use]
    pub(crate) fn per_minute(&self, action: &str) -> Option<usize> {
        self.per_minute.iter().find(|(name, _)| *name == action).map(|(_, calls)| *calls)
    }
}

/// The kind of a chat.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChatKind {
    /// One person.
    #[default]
    Direct,
    /// Several people.
    Group,
}

/// The content of a message. Its text is given in every markup that the network may need.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Body {
    /// The text, one for each of [`Capabilities::markups`].
    pub texts: Vec<String>,
    /// Rows of buttons below it.
    pub buttons: Vec<Vec<Button>>,
    /// A file; the text is its caption.
    pub file: Option<File>,
    /// The whole answer, for networks that show it as a stream.
    pub stream: Option<Stream>,
    /// Whether it shows text of the model. A message with text is deleted only after another
    /// message shows that text.
    pub shows_words: bool,
}

impl Body {
    /// The text in the `index`th markup, or in the last one.
    #[must_use]
    pub fn text(&self, index: usize) -> &str {
        self.texts.get(index).or(self.texts.last()).map_or("", String::as_str)
    }

    /// A hash of the visible content, to detect whether two messages look the same.
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
    /// The title above the thoughts; empty if no thoughts are shown.
    pub title: Box<str>,
    /// The thoughts from the beginning.
    pub thoughts: Box<str>,
    /// Whether there is no text yet.
    pub is_thinking: bool,
    /// The title of the running tool.
    pub tool: Option<Box<str>>,
    /// The text, as the model's Markdown.
    pub words: Box<str>,
}

/// An update to an append-only stream: its current state and the desired one.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Growth {
    /// The current state.
    pub before: Stream,
    /// The desired state. Its text and thoughts start with those of `before`.
    pub after: Stream,
}

impl Stream {
    /// Whether this stream is a prefix of `later`.
    pub(crate) fn grows_to(&self, later: &Self) -> bool {
        later.words.starts_with(&*self.words) && later.thoughts.starts_with(&*self.thoughts)
    }
}

/// A button below a message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Button {
    /// The text on the button.
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
    /// Its bytes, or their URL.
    pub source: MediaSource,
}

/// One request to a network.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Call {
    /// The network's id of the chat.
    pub chat: Box<str>,
    /// The topic or thread within the chat.
    pub topic: Option<Box<str>>,
    /// The action.
    pub action: Action,
}

/// The action of a [`Call`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Sends a new message.
    Send {
        /// The message it answers.
        reply_to: Option<Box<str>>,
        /// The message.
        body: Body,
        /// The index of the markup.
        markup: usize,
        /// Whether the answer is still growing.
        preview: bool,
        /// Deduplicates repeated sends: the same for each repetition, and different for every other
        /// message of the chat.
        nonce: u64,
    },
    /// Changes a message.
    Edit {
        /// The message.
        message: Box<str>,
        /// The new content.
        body: Body,
        /// The index of the markup.
        markup: usize,
        /// Whether the answer is still growing.
        preview: bool,
    },
    /// Shows a preview that is not a message.
    Draft {
        /// The number of the preview, never 0.
        draft: u64,
        /// The preview.
        body: Body,
        /// The index of the markup.
        markup: usize,
    },
    /// Starts a new message that is a stream.
    Begin {
        /// The message it answers.
        reply_to: Option<Box<str>>,
        /// The initial content.
        growth: Box<Growth>,
    },
    /// Appends to a stream.
    Append {
        /// The message that is the stream.
        message: Box<str>,
        /// The content to append.
        growth: Box<Growth>,
    },
    /// Ends a stream. It is an ordinary message afterwards.
    End {
        /// The message that is the stream.
        message: Box<str>,
        /// The remaining content.
        growth: Box<Growth>,
    },
    /// Deletes a message.
    Delete {
        /// The message.
        message: Box<str>,
    },
    /// Shows a typing indicator.
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

/// The reason why a call failed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The rate limit was exceeded.
    #[error("too many requests")]
    RateLimited {
        /// How long to wait, if the network reports it.
        retry_after: Option<Duration>,
    },
    /// The limit for one kind of call, or for all calls of the bot, was exceeded.
    #[error("too many requests of this bot")]
    BotLimited {
        /// How long to wait.
        retry_after: Duration,
        /// The limit that was exceeded.
        limit: Limit,
    },
    /// The stream has already ended; nothing was appended.
    #[error("the stream has ended")]
    StreamEnded,
    /// The message already has this content.
    #[error("the message is not modified")]
    NotModified,
    /// The message does not exist any more.
    #[error("the message does not exist")]
    MessageGone,
    /// The network rejected the markup, or the text is too long with it.
    #[error("the markup was refused: {0}")]
    BadMarkup(Box<str>),
    /// The bot may not write to the chat, or the chat does not exist.
    #[error("the chat cannot be written to: {0}")]
    ChatGone(Box<str>),
    /// The request was refused for another reason.
    #[error("the request was refused: {0}")]
    Refused(Box<str>),
    /// The network could not be reached, or failed. The call had no effect.
    #[error("the network failed: {0}")]
    Unavailable(Box<str>),
    /// The response was lost: the call may have had an effect.
    #[error("the answer of the network was lost: {0}")]
    AnswerLost(Box<str>),
}

impl CallError {
    /// Converts the error of a request that shows nothing to people: such a request can be
    /// repeated.
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

/// The result of a successful call.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Done {
    /// The id of a new message.
    pub message: Option<Box<str>>,
    /// Whether the message was sent by an earlier attempt, so that its content may differ.
    pub is_repeat: bool,
    /// How long to make no calls to this room; `None` if the network does not report it.
    pub wait: Option<Duration>,
}

impl Done {
    /// A result with the id of the new message; `None` for calls that create no message.
    #[must_use]
    pub fn new(message: Option<Box<str>>) -> Self {
        Self { message, ..Self::default() }
    }
}

/// The result of a call, or why it failed.
pub type CallResult = Result<Done, CallError>;

/// A chat network.
///
/// # Contract
///
/// 1. [`call`](Self::call) makes one request and returns one result. It never waits for a rate
///    limit and never retries: the scheduler does both.
/// 2. A call that may have had an effect is [`CallError::AnswerLost`], never
///    [`CallError::Unavailable`].
/// 3. A successful [`Action::Send`] or [`Action::Begin`] returns the id of the message.
pub trait Channel: Send + Sync + std::fmt::Debug {
    /// The name of the network, such as `telegram`.
    fn network(&self) -> &'static str;

    /// Its capabilities.
    fn capabilities(&self) -> &Capabilities;

    /// Makes one request.
    fn call(&self, call: Call) -> BoxFuture<'_, CallResult>;

    /// Downloads a file that a person sent, by the network's id. Fails if it is larger than
    /// `bytes_max`.
    fn download(&self, file: &str, bytes_max: usize) -> BoxFuture<'_, Result<Bytes, CallError>> {
        let _ = bytes_max;
        let what = format!("this network cannot fetch the file {file}");
        Box::pin(async move { Err(CallError::Refused(what.into())) })
    }

    /// Acknowledges that a button was pressed, with a short text for the person.
    fn acknowledge(&self, press: &str, text: &str) -> BoxFuture<'_, Result<(), CallError>> {
        let _ = (press, text);
        Box::pin(async { Ok(()) })
    }

    /// Checks that the network accepts our credentials. Returns the name of the bot.
    fn check(&self) -> BoxFuture<'_, Result<String, CallError>>;

    /// Creates a view of one answer in a chat: its methods set what people should see now.
    /// `instance` schedules the view.
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

/// The current state of an answer, shown in a chat. Every call replaces the previous state:
/// nothing is queued, and a state that was never shown is skipped.
pub trait StreamSender: Send {
    /// Thoughts without text so far. Ignores deltas of other phases.
    fn on_thinking_delta(&mut self, delta: &StreamDelta);
    /// Text so far. Ignores deltas of other phases.
    fn on_content_delta(&mut self, delta: &StreamDelta);
    /// The complete answer. Ignores deltas of other phases.
    fn on_final(&mut self, delta: &StreamDelta);
    /// The answer failed. Text that was shown stays. Ignores deltas of other phases.
    fn on_error(&mut self, delta: &StreamDelta);
    /// The running tool, if any.
    fn on_tool(&mut self, line: Option<&str>);
    /// Ends the view without an answer: a message without text is deleted, text that was shown
    /// stays.
    fn abort(&mut self);
}
