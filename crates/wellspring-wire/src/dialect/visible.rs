//! What is visible to clients that do not know about sub-agents: the root agent's run, and its
//! sub-agents as progress of its calls.

use serde::Serialize;
use serde_json::Value;
use wellspring_core::{
    AgentNo, CallOutline, Form, Outline, OutputStream, PartId, PartOutline, PartShape, Question,
    QuestionId, RETURN_RESULT, Role, VoidReason, WirePartId,
};

/// The result of a shown call that is voided.
pub(crate) const TAKEN_BACK: &str = "the call was taken back";

/// Separates voided text from the text that replaces it, on wires that can only append.
pub(crate) const PARAGRAPH: &str = "\n\n";

/// The kind of a delta, for clients that see only the root agent.
pub(crate) enum Grown<'a> {
    /// Text of the answer.
    Message,
    /// Reasoning.
    Thought,
    /// Output of a call.
    Output(PartId, &'a CallOutline, OutputStream),
    /// Text of the sub-agent that serves a call.
    SubAgent(PartId, &'a CallOutline),
    /// Reasoning of the sub-agent that serves a call.
    SubAgentThought(&'a CallOutline),
    /// Not shown.
    Hidden,
}

/// The kind of a delta of `part`.
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

/// A sub-agent's text is progress of its call; the text of its own sub-agents is not shown.
fn sub_agent<'a>(before: &'a Outline, part: &PartOutline) -> Option<(PartId, &'a CallOutline)> {
    let call = before.agents.get(&part.agent)?.call?;
    Some((call, shown_call(before, call)?))
}

/// Where a question is shown, for clients that see only the root agent.
pub(crate) enum AskedBy<'a> {
    /// At one of the root agent's calls: its tool asks, it needs approval, or it is served by a
    /// sub-agent that asks.
    Call(PartId, &'a CallOutline),
    /// The run itself.
    Run,
    /// Not shown.
    Hidden,
}

/// Where a question of `agent` about `call` is shown.
pub(crate) fn asked_by(before: &Outline, agent: AgentNo, call: Option<PartId>) -> AskedBy<'_> {
    let (mut agent, mut call) = (agent, call);
    // A parent is always older than its children, so this terminates.
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

/// A question as the progress of a call: the prompt and the form of its answer.
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

/// The text in progress data: the data itself, or the content of a `…_chunk`.
pub(crate) fn chunk_words(data: &Value) -> Option<&str> {
    if let Some(text) = data.as_str() {
        return Some(text);
    }
    let subtype = data.get("subtype")?.as_str()?;
    data.get("content")?.as_str().filter(|_| subtype.ends_with("_chunk"))
}

/// A call of the root agent that has no result yet, unless it is the call that returns the
/// typed result.
pub(crate) fn shown_call(before: &Outline, call: PartId) -> Option<&CallOutline> {
    before.call(call).filter(|call| call.agent.is_root() && &*call.tool.name != RETURN_RESULT)
}

/// A part's id on wires; `None` before the run has started.
pub(crate) fn wire_id(before: &Outline, part: PartId) -> Option<WirePartId> {
    before.run.as_ref().map(|head| WirePartId { run: head.run, part })
}

/// Whether visible parts of the root agent are voided and will be written again.
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
        // No further attempt follows.
        VoidReason::Abandoned => false,
    }
}
