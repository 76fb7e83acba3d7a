//! How the end of a run is told to people: why it failed, was cancelled or was cut off.

use std::borrow::Cow;

use wellspring_core::{Budget, Outcome, Outline, Stop};

/// The reason why a turn ended, in the AI SDK's vocabulary.
pub(crate) fn finish_reason(stop: &Stop) -> &str {
    match stop {
        Stop::EndTurn | Stop::StopSequence => "stop",
        Stop::ToolCalls => "tool-calls",
        Stop::MaxTokens => "length",
        Stop::Refusal | Stop::ContentFilter => "content-filter",
        Stop::Paused | Stop::TurnLimit | Stop::Budget(_) => "other",
        Stop::Other(reason) => reason,
    }
}

/// The message for people if a run did not end with a complete answer: it failed, was
/// cancelled, or was cut off.
pub(crate) fn shortfall<'a>(before: &Outline, outcome: &'a Outcome) -> Option<Cow<'a, str>> {
    let Outcome::Completed { stop } = outcome else { return failure(outcome) };
    let why = match stop {
        Stop::EndTurn | Stop::StopSequence | Stop::ToolCalls | Stop::Other(_) => return None,
        Stop::MaxTokens => "the answer was cut off: the model reached its limit of output tokens",
        Stop::TurnLimit => "the run was cut off: it reached its limit of turns",
        Stop::Budget(Budget::Tokens) => "the run was cut off: its token budget is spent",
        Stop::Budget(Budget::Cost) => "the run was cut off: its cost budget is spent",
        Stop::Budget(Budget::Time) => "the run was cut off: its time budget is spent",
        Stop::Paused => "the run was cut off: the model paused and was not continued",
        Stop::Refusal => "the model refused to answer",
        Stop::ContentFilter => "the answer was cut off by the provider's content filter",
    };
    // The typed result is complete; what followed it does not matter.
    (!before.has_result).then_some(why.into())
}

/// The message for people if a run did not complete.
pub(crate) fn failure(outcome: &Outcome) -> Option<Cow<'_, str>> {
    match outcome {
        Outcome::Completed { .. } => None,
        Outcome::Cancelled { why: Some(why), .. } => Some(format!("cancelled: {why}").into()),
        Outcome::Cancelled { why: None, .. } => Some("cancelled".into()),
        Outcome::Failed { message, .. } => Some((&**message).into()),
    }
}
