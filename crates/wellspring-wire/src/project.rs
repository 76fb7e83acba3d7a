//! Questions that several dialects ask of an outline. All of them show the root agent's run to
//! clients that do not know about sub-agents.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;
use wellspring_core::{
    AgentNo, Budget, CallOutline, Form, Outcome, Outline, OutputStream, PartId, PartOutline,
    PartShape, Question, QuestionId, RETURN_RESULT, Role, Stop, VoidReason, WirePartId,
};

/// What people see when a call that was shown is taken back.
pub(crate) const TAKEN_BACK: &str = "the call was taken back";

/// What goes between words that were taken back and those that come instead, on wires that
/// can only append.
pub(crate) const PARAGRAPH: &str = "\n\n";

/// Why a turn ended, in the words of the AI SDK.
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
    /// More reasoning of the sub-agent that serves a call.
    SubAgentThought(&'a CallOutline),
    /// Nothing to see.
    Hidden,
}

/// What a delta of `part` is.
pub(crate) fn grown(before: &Outline, part: PartId) -> Grown<'_> {
    let Some(part) = before.part(part) else { return Grown::Hidden };
    match part.shape {
        PartShape::Text(Role::Assistant) if part.agent.is_root() => Grown::Message,
        PartShape::Text(Role::Assistant) => match sub_agent(before, part) {
            Some((call, outline)) => Grown::SubAgent(call, outline),
            None => Grown::Hidden,
        },
        PartShape::Thought if part.agent.is_root() => Grown::Thought,
        PartShape::Thought => match sub_agent(before, part) {
            Some((_, outline)) => Grown::SubAgentThought(outline),
            None => Grown::Hidden,
        },
        PartShape::Output(call, stream) => match shown_call(before, call) {
            Some(outline) => Grown::Output(call, outline, stream),
            None => Grown::Hidden,
        },
        PartShape::Text(Role::User) | PartShape::Call | PartShape::Opaque => Grown::Hidden,
    }
}

/// A child's words are its call's progress; a grandchild's are the child's affair.
fn sub_agent<'a>(before: &'a Outline, part: &PartOutline) -> Option<(PartId, &'a CallOutline)> {
    let call = before.agents.get(&part.agent)?.call?;
    Some((call, shown_call(before, call)?))
}

/// What waits for the answer to a question, for somebody who watches the root agent.
pub(crate) enum AskedBy<'a> {
    /// One of the root's calls: its tool asks, needs approval, or is served by a sub-agent that
    /// asks.
    Call(PartId, &'a CallOutline),
    /// The run itself.
    Run,
    /// Nothing that is shown.
    Hidden,
}

/// What waits for the answer to a question of `agent` about `call`.
pub(crate) fn asked_by(before: &Outline, agent: AgentNo, call: Option<PartId>) -> AskedBy<'_> {
    let (mut agent, mut call) = (agent, call);
    // A parent is always older than its children, so this ends.
    while let Some(outline) = before.agents.get(&agent).filter(|_| !agent.is_root()) {
        if outline.parent >= agent {
            return AskedBy::Hidden;
        }
        (agent, call) = (outline.parent, outline.call);
    }
    match call.map(|call| (call, shown_call(before, call))) {
        Some((call, Some(outline))) => AskedBy::Call(call, outline),
        Some((_, None)) => AskedBy::Hidden,
        None => AskedBy::Run,
    }
}

/// A question as the progress of a call: what is asked, and what may be answered.
#[derive(Serialize)]
pub(crate) struct Asking<'a> {
    subtype: &'static str,
    question: QuestionId,
    prompt: &'a str,
    form: &'a Form,
}

impl<'a> Asking<'a> {
    pub(crate) fn of(question: &'a Question) -> Self {
        let Question { question, prompt, form, .. } = question;
        Self { subtype: "question", question: *question, prompt, form }
    }
}

/// The words of progress data: the data itself, or the content of a `…_chunk`.
pub(crate) fn chunk_words(data: &Value) -> Option<&str> {
    if let Some(text) = data.as_str() {
        return Some(text);
    }
    let subtype = data.get("subtype")?.as_str()?;
    data.get("content")?.as_str().filter(|_| subtype.ends_with("_chunk"))
}

/// A call without a result that people see: the root's own, and not the one by which it
/// hands over its result.
pub(crate) fn shown_call(before: &Outline, call: PartId) -> Option<&CallOutline> {
    before.call(call).filter(|call| call.agent.is_root() && &*call.tool.name != RETURN_RESULT)
}

/// A part's id on wires; `None` before the run has started.
pub(crate) fn wire_id(before: &Outline, part: PartId) -> Option<WirePartId> {
    before.run.as_ref().map(|head| WirePartId { run: head.run, part })
}

/// Whether parts of the root agent that clients have seen are voided and will be written again.
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

/// What a person reads when a run ended in any other way than by a whole answer: it failed, was
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
    // The typed result is complete, whatever came after it.
    (!before.has_result).then_some(why.into())
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
