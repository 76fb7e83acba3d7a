//! The names of events, as their JSON has them.

use wellspring_core::Event;

/// An event's name.
pub(crate) fn kind(event: &Event) -> &'static str {
    match event {
        Event::RunStarted(_) => "run_started",
        Event::RunAdopted { .. } => "run_adopted",
        Event::RunPaused { .. } => "run_paused",
        Event::RunResumed { .. } => "run_resumed",
        Event::TurnStarted(_) => "turn_started",
        Event::TurnFinished { .. } => "turn_finished",
        Event::PartStarted { .. } => "part_started",
        Event::PartDelta { .. } => "part_delta",
        Event::PartAnnotated { .. } => "part_annotated",
        Event::PartFinished { .. } => "part_finished",
        Event::PartsVoided { .. } => "parts_voided",
        Event::ToolQueued { .. } => "tool_queued",
        Event::ToolStarted { .. } => "tool_started",
        Event::ToolUpdated { .. } => "tool_updated",
        Event::ToolFinished { .. } => "tool_finished",
        Event::QuestionAsked(_) => "question_asked",
        Event::QuestionAnswered(_) => "question_answered",
        Event::AgentStarted { .. } => "agent_started",
        Event::AgentFinished { .. } => "agent_finished",
        Event::PlanUpdated { .. } => "plan_updated",
        Event::StateSet { .. } => "state_set",
        Event::StatePatched { .. } => "state_patched",
        Event::SourceCited(_) => "source_cited",
        Event::FileProduced(_) => "file_produced",
        Event::UsageReported(_) => "usage_reported",
        Event::InputAccepted { .. } => "input_accepted",
        Event::InputApplied { .. } => "input_applied",
        Event::ResultReady { .. } => "result_ready",
        Event::Attached { .. } => "attached",
        Event::Extended(_) => "extended",
        Event::RunFinished { .. } => "run_finished",
    }
}

/// Every name there is.
pub(crate) const KINDS: [&str; 31] = [
    "run_started",
    "run_adopted",
    "run_paused",
    "run_resumed",
    "turn_started",
    "turn_finished",
    "part_started",
    "part_delta",
    "part_annotated",
    "part_finished",
    "parts_voided",
    "tool_queued",
    "tool_started",
    "tool_updated",
    "tool_finished",
    "question_asked",
    "question_answered",
    "agent_started",
    "agent_finished",
    "plan_updated",
    "state_set",
    "state_patched",
    "source_cited",
    "file_produced",
    "usage_reported",
    "input_accepted",
    "input_applied",
    "result_ready",
    "attached",
    "extended",
    "run_finished",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The names are those of the JSON, and all that the samples have are known.
    #[test]
    fn names_are_those_of_the_json() {
        for sample in wellspring_testkit::samples::all() {
            for record in &sample.records {
                let json = serde_json::to_value(&record.event).unwrap();
                let names: Vec<_> = json.as_object().unwrap().keys().cloned().collect();
                assert_eq!(names, [kind(&record.event)]);
                assert!(KINDS.contains(&kind(&record.event)));
            }
        }
    }
}
