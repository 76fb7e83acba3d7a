//! Commands to a run. Only a run's owner appends to its log; all other clients put commands
//! into its inbox.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::content::Content;
use crate::event::{Answer, ToolOutcome, ToolResult};
use crate::id::{PartId, QuestionId};
use crate::request::Amendment;

/// A request to a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Stop the run.
    Cancel {
        /// At once, or after the current turn.
        #[serde(default)]
        when: CancelWhen,
        /// Who cancelled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Box<str>>,
        /// The reason given, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<Box<str>>,
    },
    /// Answer a question. Ignored if it already has an answer.
    Answer {
        /// The question.
        question: QuestionId,
        /// The answer.
        answer: Answer,
        /// Who answered.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Box<str>>,
        /// The run id that the client's own protocol uses from now on, if it changes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wire_run: Option<Box<str>>,
    },
    /// Deliver the result of a call that ran in the client. Ignored if it already has one.
    FinishCall {
        /// The call.
        call: PartId,
        /// Whether it succeeded.
        outcome: ToolOutcome,
        /// The result.
        result: ToolResult,
        /// The run id that the client's own protocol uses from now on, if it changes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wire_run: Option<Box<str>>,
    },
    /// Change the request of a run that has started. If it is sent together with answers, it is
    /// applied before them, so that the next turn has the changes.
    Resume {
        /// What changed in the request.
        amended: Box<Amendment>,
        /// The current state of the client that is shared with the agent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        state: Option<Box<Value>>,
        /// The run id that the client's own protocol uses from now on, if it changes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        wire_run: Option<Box<str>>,
    },
    /// Add user input. The model sees it from its next turn on.
    AddInput {
        /// The added content.
        content: Vec<Content>,
        /// The client's own id of the message. A message that is sent again is added once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<Box<str>>,
    },
}

/// When a cancellation takes effect.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelWhen {
    /// At once.
    #[default]
    Now,
    /// When the current turn has finished, tools included.
    AfterTurn,
}
