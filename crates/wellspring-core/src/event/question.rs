//! Questions that a run asks people, and their answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{InboxNo, Millis, PartId, QuestionId};

/// A question to a person: approvals, elicitations and interrupts alike.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Question {
    /// Its id.
    pub question: QuestionId,
    /// The call that waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<PartId>,
    /// The text that a person reads.
    pub prompt: Box<str>,
    /// The kind of answer it takes.
    pub form: Form,
    /// When it expires ([`Answer::Expired`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Millis>,
    /// Whether the asker keeps running while it waits (a remote agent, a tool in mid-call), so
    /// that the run does not pause. Stored under its first name, `in_place`.
    #[serde(default, rename = "in_place", skip_serializing_if = "std::ops::Not::not")]
    pub blocking: bool,
    /// The asker's own name for it, by which a remote agent finds its question again after a
    /// pause or a crash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Box<str>>,
}

/// The kind of answer that a question takes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Yes or no to a call.
    Approve,
    /// A choice among several.
    Choose {
        /// The options.
        choices: Vec<Choice>,
        /// Whether several may be chosen.
        #[serde(default)]
        multiple: bool,
    },
    /// A value that matches this JSON schema.
    Schema(Value),
}

/// An option of a choice.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Choice {
    /// The id that an answer names.
    pub id: Box<str>,
    /// The text that a person reads.
    pub label: Box<str>,
}

/// The answer to a question.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Answered {
    /// The question.
    pub question: QuestionId,
    /// The answer.
    pub answer: Answer,
    /// Who answered; `None` for the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Box<str>>,
    /// The inbox entry that brought it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbox: Option<InboxNo>,
}

/// An answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Yes.
    Approve {
        /// How long the approval holds.
        #[serde(default)]
        scope: Scope,
        /// Run the call with these arguments in place of the model's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Value>,
    },
    /// No.
    Deny {
        /// The reason for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Box<str>>,
        /// How long the denial holds. Only remote agents make use of anything but one call.
        #[serde(default, skip_serializing_if = "Scope::is_once")]
        scope: Scope,
    },
    /// The ids of the chosen options.
    Choose(Vec<Box<str>>),
    /// A value that fits the form's schema.
    Value(Value),
    /// The question expired before it was answered.
    Expired,
    /// The run ended first, or the asker no longer needs the answer.
    Withdrawn,
}

impl Answer {
    /// No, this once.
    pub const NO: Self = Self::Deny { reason: None, scope: Scope::Once };

    /// Yes, this once.
    #[must_use]
    pub fn yes() -> Self {
        Self::Approve { scope: Scope::Once, arguments: None }
    }

    /// No, with a reason for the model.
    #[must_use]
    pub fn no(reason: impl Into<Box<str>>) -> Self {
        Self::Deny { reason: Some(reason.into()), scope: Scope::Once }
    }
}

/// How long an answer holds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// This call.
    #[default]
    Once,
    /// Every call of the tool in this thread.
    Thread,
    /// Every call of the tool by this agent.
    Always,
}

impl Scope {
    fn is_once(&self) -> bool {
        *self == Self::Once
    }
}
