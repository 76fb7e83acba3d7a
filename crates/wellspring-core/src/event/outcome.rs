//! How turns and runs end.

use serde::{Deserialize, Serialize};

use crate::id::InboxNo;

/// Why a model, or a whole run, stopped.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// It had said everything.
    EndTurn,
    /// It wants tools to run.
    ToolCalls,
    /// The output limit was reached.
    MaxTokens,
    /// A stop sequence came up.
    StopSequence,
    /// The model refused.
    Refusal,
    /// The provider's filter stepped in.
    ContentFilter,
    /// The provider paused the turn and wants to be asked again.
    Paused,
    /// The run's limit of turns was reached.
    TurnLimit,
    /// A budget of the run was spent.
    Budget(Budget),
    /// A reason we have no word for.
    Other(Box<str>),
}

/// What can run out.
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
    /// It came to an end of its own.
    Completed {
        /// Which.
        stop: Stop,
    },
    /// Somebody stopped it.
    Cancelled {
        /// Who.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<Box<str>>,
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<Box<str>>,
        /// The inbox entry that asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        inbox: Option<InboxNo>,
    },
    /// It could not go on.
    Failed {
        /// What a caller can do about it.
        kind: FailureKind,
        /// What a person reads.
        message: Box<str>,
        /// Whether the same request may work later.
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
    /// Credentials, quota or permission: the user must act first.
    Refused,
    /// The request itself was wrong.
    BadRequest,
    /// A peer stopped in mid-stream, or broke its protocol.
    Protocol,
    /// A limit of time was reached.
    TimedOut,
    /// The agent repeated itself without getting anywhere.
    Repetition,
    /// The run lost its process and could not be continued.
    Lost,
    /// A fault of ours.
    Internal,
}
