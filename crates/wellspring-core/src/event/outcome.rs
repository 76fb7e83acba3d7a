//! How turns and runs end.

use serde::{Deserialize, Serialize};

use crate::id::InboxNo;

/// Why a model, or a whole run, stopped.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The model finished its answer.
    EndTurn,
    /// The model asked for tool calls.
    ToolCalls,
    /// The output limit was reached.
    MaxTokens,
    /// The model produced a stop sequence.
    StopSequence,
    /// The model refused.
    Refusal,
    /// The provider's content filter intervened.
    ContentFilter,
    /// The provider paused the turn and wants to be asked again.
    Paused,
    /// The run's limit of turns was reached.
    TurnLimit,
    /// A budget of the run was spent.
    Budget(Budget),
    /// Any other reason, as the source names it.
    Other(Box<str>),
}

/// A budget that can run out.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Budget {
    /// Tokens in and out.
    Tokens,
    /// Money.
    Cost,
    /// Wall-clock time.
    Time,
}

/// How a run, or a sub-agent, ended. Cancellation is an outcome, not an error.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was not cancelled and did not fail.
    Completed {
        /// The reason.
        stop: Stop,
    },
    /// It was cancelled.
    Cancelled {
        /// Who cancelled it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Box<str>>,
        /// The reason given, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<Box<str>>,
        /// The inbox entry that cancelled it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        inbox: Option<InboxNo>,
    },
    /// It failed.
    Failed {
        /// What a caller can do about it.
        kind: FailureKind,
        /// The message for people.
        message: Box<str>,
        /// Whether the same request may succeed later.
        #[serde(default)]
        retryable: bool,
    },
}

/// What a caller can do about a failed run.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The provider is unavailable or overloaded: try later.
    Unavailable,
    /// The provider limits the rate: try later.
    RateLimited,
    /// Credentials, quota or permission are missing: the user must act first.
    Refused,
    /// The request is invalid.
    BadRequest,
    /// A peer stopped in mid-stream, or broke its protocol.
    Protocol,
    /// A time limit was reached.
    TimedOut,
    /// The agent repeated itself without progress.
    Repetition,
    /// The run lost its process and could not be continued.
    Lost,
    /// A bug in Wellspring.
    Internal,
}
