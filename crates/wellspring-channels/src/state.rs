//! The stored state of a chat, as one document.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};
use wellspring_core::{Millis, RunId};

use crate::channel::ChatKind;
use crate::incoming::IncomingFile;
use crate::schedule::PostState;
use crate::view::Reader;

/// Ids of incoming messages that are remembered to recognise repeated deliveries, which
/// networks make within minutes.
const SEEN_MAX: usize = 64;

/// Messages that wait while an answer is in progress. Beyond that, the sender is asked to wait.
pub(crate) const WAITING_MAX: usize = 20;

/// Maximum size of these messages as they are stored: a document has 64 KiB in total.
pub(crate) const WAITING_BYTES_MAX: usize = 24 * 1024;

/// Maximum number of the bot's own messages that wait to be sent. Networks allow about one message
/// per second, and people can ask faster.
pub(crate) const NOTES_MAX: usize = 10;

/// Maximum size of the completed fields of a form.
pub(crate) const FORM_BYTES_MAX: usize = 16 * 1024;

/// The stored state of a chat.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub(crate) struct ChatState {
    /// The network's id of the chat.
    pub(crate) chat: Option<Box<str>>,
    pub(crate) kind: ChatKind,
    pub(crate) posts: Vec<PostState>,
    pub(crate) answers: Vec<AnswerState>,
    /// Our own messages that are not shown yet, by the key of their post.
    pub(crate) notes: BTreeMap<Box<str>, Box<str>>,
    pub(crate) seen: VecDeque<Box<str>>,
    pub(crate) waiting: Vec<Message>,
    /// The number of the current conversation in this chat.
    pub(crate) generation: u32,
    pub(crate) agent: Option<Box<str>>,
    pub(crate) form: Option<FormState>,
    /// The time before which no call is made to the chat, because of a `retry_after`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) blocked_until: Option<Millis>,
}

/// An answer in progress.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct AnswerState {
    pub(crate) run: RunId,
    pub(crate) reply_to: Box<str>,
    #[serde(default)]
    pub(crate) topic: Option<Box<str>>,
    /// The id of the person who asked.
    pub(crate) user: Box<str>,
    pub(crate) reader: Reader,
    pub(crate) streams: bool,
    /// Whether the run has ended.
    #[serde(default)]
    pub(crate) finished: bool,
    /// The keys of posts that are complete.
    #[serde(default)]
    pub(crate) delivered: Vec<Box<str>>,
}

/// A message that waits for its run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Message {
    pub(crate) message: Box<str>,
    #[serde(default)]
    pub(crate) topic: Option<Box<str>>,
    pub(crate) user: Box<str>,
    pub(crate) reader: Reader,
    pub(crate) text: Box<str>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) files: Vec<IncomingFile>,
}

/// A form that is being filled in, field by field.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct FormState {
    pub(crate) run: RunId,
    pub(crate) question: u32,
    pub(crate) user: Box<str>,
    pub(crate) values: serde_json::Map<String, serde_json::Value>,
}

impl ChatState {
    /// Records an incoming message; `false` if it was seen before.
    pub(crate) fn is_new(&mut self, id: &str) -> bool {
        if self.seen.iter().any(|seen| **seen == *id) {
            return false;
        }
        self.seen.push_back(id.into());
        while self.seen.len() > SEEN_MAX {
            self.seen.pop_front();
        }
        true
    }

    /// Forgets an incoming message that could not be handled.
    pub(crate) fn forget(&mut self, id: &str) {
        self.seen.retain(|seen| **seen != *id);
    }

    /// The answer whose run has not ended.
    pub(crate) fn active(&self) -> Option<&AnswerState> {
        self.answers.iter().find(|answer| !answer.finished)
    }

    /// Takes the scheduler's state, and removes complete answers.
    pub(crate) fn update(&mut self, posts: Vec<PostState>) {
        let gone = |old: &&PostState| posts.iter().all(|post| post.key != old.key);
        let delivered: Vec<Box<str>> =
            self.posts.iter().filter(gone).map(|post| post.key.clone()).collect();
        for key in delivered {
            self.notes.remove(&key);
            for answer in &mut self.answers {
                if owns(answer, &key) && !answer.delivered.contains(&key) {
                    answer.delivered.push(key.clone());
                }
            }
        }
        self.posts = posts;
        let posts = &self.posts;
        self.answers
            .retain(|answer| !answer.finished || posts.iter().any(|post| owns(answer, &post.key)));
    }

    /// Whether another message can wait.
    pub(crate) fn has_room_for(&self, message: &Message) -> bool {
        let bytes: usize = self.waiting.iter().map(kept_bytes).sum();
        self.waiting.len() < WAITING_MAX && bytes + kept_bytes(message) <= WAITING_BYTES_MAX
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.posts.is_empty() && self.answers.is_empty() && self.waiting.is_empty()
    }
}

/// The stored size of a value in bytes. JSON escapes use up to six bytes per character.
pub(crate) fn kept_bytes(it: &impl Serialize) -> usize {
    serde_json::to_string(it).map_or(usize::MAX / 2, |text| text.len())
}

/// Whether a post belongs to an answer.
fn owns(answer: &AnswerState, key: &str) -> bool {
    *key == *answer_key(&answer.reply_to) || key.contains(&answer.run.to_string())
}

/// The key of the post that answers a message.
pub(crate) fn answer_key(reply_to: &str) -> Box<str> {
    format!("answer:{reply_to}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The waiting messages always fit into the document of a chat, for any text.
    #[test]
    fn what_waits_has_a_maximum() {
        for text in ["a", "\u{1}", "\u{1f600}"] {
            let mut state = ChatState::default();
            let message = Message {
                message: "m".into(),
                topic: None,
                user: "u".into(),
                reader: Reader::default(),
                text: text.repeat(1000).into(),
                files: Vec::new(),
            };
            while state.has_room_for(&message) {
                state.waiting.push(message.clone());
            }
            assert!(!state.waiting.is_empty());
            assert!(kept_bytes(&state) < WAITING_BYTES_MAX + 1024, "{text:?}");
        }
    }

    /// A network delivers a message again, and it is recognised; after many others, it is not.
    #[test]
    fn messages_are_seen_once() {
        let mut state = ChatState::default();
        assert!(state.is_new("a"));
        assert!(!state.is_new("a"));
        for n in 0..SEEN_MAX {
            assert!(state.is_new(&n.to_string()));
        }
        assert_eq!(state.seen.len(), SEEN_MAX);
        assert!(state.is_new("a"));
    }
}
