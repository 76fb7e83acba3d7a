//! What others want of a run. Only a run's owner appends to its log; everyone else puts a
//! command into its inbox.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::Content;
use crate::event::{Answer, ToolOutcome, ToolResult};
use crate::id::{PartId, QuestionId};
use crate::request::Amendment;

/// What somebody wants of a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Stop.
    Cancel {
        /// At once, or at the turn's edge.
        #[serde(default)]
        when: CancelWhen,
        /// Who says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Box<str>>,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<Box<str>>,
    },
    /// Take this as the answer to a question, unless it has one.
    Answer {
        /// Which.
        question: QuestionId,
        /// The answer.
        answer: Answer,
        /// Who says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Box<str>>,
        /// The id under which the asker's own protocol continues the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wire_run: Option<Box<str>>,
    },
    /// Take this as the result of a call that ran in the client, unless it has one.
    FinishCall {
        /// Which.
        call: PartId,
        /// How it went.
        outcome: ToolOutcome,
        /// What came of it.
        result: ToolResult,
        /// The id under which the asker's own protocol continues the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wire_run: Option<Box<str>>,
    },
    /// Go on from a pause under the asker's new words: first of what answers the run.
    Resume {
        /// What changed of the request.
        amended: Box<Amendment>,
        /// The state shared with the screen, as it is there now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<Box<Value>>,
        /// The id under which the asker's own protocol continues the run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wire_run: Option<Box<str>>,
    },
    /// Let the model see this from its next turn on.
    AddInput {
        /// What the user adds.
        content: Vec<Content>,
    },
}

/// When a cancellation takes effect.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelWhen {
    /// At once.
    #[default]
    Now,
    /// When the turn that is going on has finished, tools included.
    AfterTurn,
}
