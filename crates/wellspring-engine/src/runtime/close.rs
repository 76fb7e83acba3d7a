//! Closes everything that is open in a run, with true results.

use wellspring_core::{
    AgentNo, Answer, Answered, CallState, Event, FailureKind, Outcome, Outline, PartId, PartShape,
    ToolOutcome, ToolResult, VoidReason,
};

/// The events that end a run whose state is `outline`: every part is closed or voided, every call
/// gets a result, every question is withdrawn, every sub-agent finishes, and then the outcome.
pub(crate) fn closing_events(outline: &Outline, outcome: Outcome) -> Vec<(AgentNo, Event)> {
    let mut events = closed_work(outline, &outcome);
    events.push((AgentNo::ROOT, Event::RunFinished { outcome: Box::new(outcome) }));
    events
}

/// The same without the outcome: open work is closed, and the run can continue.
pub(crate) fn closed_work(outline: &Outline, outcome: &Outcome) -> Vec<(AgentNo, Event)> {
    let mut events = Vec::new();
    // Children have higher numbers than their parents, so they come first.
    for agent in outline.agents.keys().rev().copied() {
        close_agent(outline, agent, outcome, &mut events);
        if !agent.is_root() {
            events.push((agent, Event::AgentFinished { outcome: Box::new(outcome.clone()) }));
        }
    }
    events
}

/// The same for one sub-agent that has not finished.
pub(crate) fn close_agent(
    outline: &Outline,
    agent: AgentNo,
    outcome: &Outcome,
    events: &mut Vec<(AgentNo, Event)>,
) {
    let incomplete_call =
        |part: PartId| outline.call(part).is_some_and(|call| call.state == CallState::Asked);
    let mut voided = Vec::new();
    for (part, open) in outline.open_parts(agent) {
        let half_a_call = open.shape == PartShape::Call && incomplete_call(part);
        if half_a_call || !open.grown && open.shape != PartShape::Call {
            voided.push(part);
        } else {
            events.push((agent, Event::PartFinished { part }));
        }
    }
    for (question, open) in &outline.questions {
        if open.agent == agent {
            let answered =
                Answered { question: *question, answer: Answer::Withdrawn, by: None, inbox: None };
            events.push((agent, Event::QuestionAnswered(Box::new(answered))));
        }
    }
    for (call, open) in &outline.calls {
        if open.agent == agent && !voided.contains(call) {
            let result = ToolResult::new(why_interrupted(open.state, outcome));
            events.push((agent, finished(*call, ToolOutcome::Interrupted, result)));
        }
    }
    if !voided.is_empty() {
        events.push((agent, Event::PartsVoided { parts: voided, why: VoidReason::Abandoned }));
    }
}

/// A `ToolFinished` event.
pub(crate) fn finished(call: PartId, outcome: ToolOutcome, result: ToolResult) -> Event {
    Event::ToolFinished { call, outcome, result: Box::new(result) }
}

/// The result of an interrupted call, which the model reads if the thread continues.
fn why_interrupted(state: CallState, outcome: &Outcome) -> String {
    let why = match outcome {
        Outcome::Completed { .. } => "the run had ended",
        Outcome::Cancelled { .. } => "the run was cancelled",
        Outcome::Failed { kind: FailureKind::Lost, .. } => "its process ended",
        Outcome::Failed { .. } => "the run failed",
    };
    match state {
        CallState::Started(_) => {
            format!("interrupted: {why} while the tool ran; it may have taken effect")
        }
        CallState::Asked | CallState::Complete | CallState::Queued => {
            format!("not run: {why} first")
        }
    }
}
