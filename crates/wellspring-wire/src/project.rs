//! What several dialects ask of an outline. All of them show the root agent's run to
//! somebody who does not know of sub-agents.

use std::borrow::Cow;

use wellspring_core::{
    CallOutline, Outcome, Outline, OutputStream, PartId, PartOutline, PartShape, RETURN_RESULT,
    Role, VoidReason, WirePartId,
};

/// What people see when a call that was shown is taken back.
pub(crate) const TAKEN_BACK: &str = "the call was taken back";

/// What goes between words that were taken back and those that come instead, on wires that
/// can only append.
pub(crate) const PARAGRAPH: &str = "\n\n";

/// What a delta is to somebody who watches the root agent.
pub(crate) enum Grown<'a> {
    /// More of the answer.
    Message,
    /// More reasoning.
    Thought,
    /// More of what a call writes.
    Output(PartId, &'a CallOutline, OutputStream),
    /// More words of the sub-agent that serves a call.
    SubAgent(PartId, &'a CallOutline),
    /// Nothing to see.
    Hidden,
}

/// What a delta of `part` is.
pub(crate) fn grown(before: &Outline, part: PartId) -> Grown<'_> {
    let Some(part) = before.part(part) else { return Grown::Hidden };
    match part.shape {
        PartShape::Text(Role::Assistant) if part.agent.is_root() => Grown::Message,
        PartShape::Text(Role::Assistant) => sub_agent(before, part),
        PartShape::Thought if part.agent.is_root() => Grown::Thought,
        PartShape::Output(call, stream) => match shown_call(before, call) {
            Some(outline) => Grown::Output(call, outline, stream),
            None => Grown::Hidden,
        },
        PartShape::Text(Role::User) | PartShape::Thought | PartShape::Call | PartShape::Opaque => {
            Grown::Hidden
        }
    }
}

/// A child's words are its call's progress; a grandchild's are the child's affair.
fn sub_agent<'a>(before: &'a Outline, part: &PartOutline) -> Grown<'a> {
    let Some(agent) = before.agents.get(&part.agent) else { return Grown::Hidden };
    match agent.call.and_then(|call| Some((call, shown_call(before, call)?))) {
        Some((call, outline)) => Grown::SubAgent(call, outline),
        None => Grown::Hidden,
    }
}

/// A call without a result that people see: the root's own, and not the one by which it
/// hands over its result.
pub(crate) fn shown_call(before: &Outline, call: PartId) -> Option<&CallOutline> {
    before.call(call).filter(|call| call.agent.is_root() && &*call.tool.name != RETURN_RESULT)
}

/// A part's name on wires; there is none before the run has started.
pub(crate) fn wire_id(before: &Outline, part: PartId) -> Option<WirePartId> {
    before.run.as_ref().map(|head| WirePartId { run: head.run, part })
}

/// Whether something of the root's was shown, is taken back, and is going to be said anew.
pub(crate) fn breaks(
    before: &Outline,
    parts: &[PartId],
    why: VoidReason,
    shape: PartShape,
) -> bool {
    let shown = |part: &PartOutline| part.grown && part.agent.is_root() && part.shape == shape;
    match why {
        VoidReason::Restarted | VoidReason::Replaced => {
            parts.iter().filter_map(|part| before.part(*part)).any(shown)
        }
        // Nothing follows.
        VoidReason::Abandoned => false,
    }
}

/// What a person reads when a run did not complete.
pub(crate) fn failure(outcome: &Outcome) -> Option<Cow<'_, str>> {
    match outcome {
        Outcome::Completed { .. } => None,
        Outcome::Cancelled { why: Some(why), .. } => Some(format!("cancelled: {why}").into()),
        Outcome::Cancelled { why: None, .. } => Some("cancelled".into()),
        Outcome::Failed { message, .. } => Some((&**message).into()),
    }
}
