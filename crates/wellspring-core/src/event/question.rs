//! Questions that a run asks people, and their answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::{InboxNo, Millis, PartId, QuestionId};

/// Something that somebody has to decide: approvals, elicitations and interrupts alike.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Question {
    /// Its id.
    pub question: QuestionId,
    /// The call that waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<PartId>,
    /// What a person reads.
    pub prompt: Box<str>,
    /// What an answer looks like.
    pub form: Form,
    /// When it answers itself with [`Answer::Expired`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Millis>,
    /// Whether the asker keeps running while it waits (a remote agent, a tool in mid-call), so
    /// that the run does not pause. Stored under its first name, `in_place`.
    #[serde(default, rename = "in_place", skip_serializing_if = "std::ops::Not::not")]
    pub blocking: bool,
}

/// What an answer looks like.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Yes or no, to a call.
    Approve,
    /// Some of these.
    Choose {
        /// What there is to choose from.
        choices: Vec<Choice>,
        /// Whether several may be chosen.
        #[serde(default)]
        multiple: bool,
    },
    /// A value of this JSON schema.
    Schema(Value),
}

/// One of several possible answers.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Choice {
    /// What an answer names.
    pub id: Box<str>,
    /// What a person reads.
    pub label: Box<str>,
}

/// A question's end.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Answered {
    /// Which.
    pub question: QuestionId,
    /// What was decided.
    pub answer: Answer,
    /// Who decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Box<str>>,
    /// The inbox entry it came by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbox: Option<InboxNo>,
}

/// What was decided.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Yes.
    Approve {
        /// For how long.
        #[serde(default)]
        scope: Scope,
        /// With these arguments instead of the model's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        arguments: Option<Value>,
    },
    /// No.
    Deny {
        /// What the model is told about it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Box<str>>,
        /// For how long. Only who asks can make more of it than a no to this call.
        #[serde(default, skip_serializing_if = "Scope::is_once")]
        scope: Scope,
    },
    /// These ones.
    Choose(Vec<Box<str>>),
    /// A value that fits the form's schema.
    Value(Value),
    /// Nobody answered in time.
    Expired,
    /// The run ended first, or whoever asked does not want to know any more.
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

    /// No, and what the model is told about it.
    #[must_use]
    pub fn no(reason: impl Into<Box<str>>) -> Self {
        Self::Deny { reason: Some(reason.into()), scope: Scope::Once }
    }
}

/// For how long an answer holds.
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
