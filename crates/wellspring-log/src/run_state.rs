//! The state of a run: running, paused or finished.

use serde::{Deserialize, Serialize};
use wellspring_core::{Event, Outcome};

/// The state of a run.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// It has an owner, or its owner was lost.
    Running,
    /// It waits for an answer, a client's result or more input.
    Paused,
    /// It completed.
    Completed,
    /// It was cancelled.
    Cancelled,
    /// It failed.
    Failed,
}

impl RunState {
    /// Whether the run has ended.
    #[must_use]
    pub const fn is_final(self) -> bool {
        match self {
            Self::Completed | Self::Cancelled | Self::Failed => true,
            Self::Running | Self::Paused => false,
        }
    }
}

/// The state of a run after an event, if the event changes it.
pub(crate) fn state_of(event: &Event) -> Option<RunState> {
    match event {
        Event::RunStarted(_) | Event::RunAdopted { .. } | Event::RunResumed { .. } => {
            Some(RunState::Running)
        }
        Event::RunPaused { .. } => Some(RunState::Paused),
        Event::RunFinished { outcome } => Some(match **outcome {
            Outcome::Completed { .. } => RunState::Completed,
            Outcome::Cancelled { .. } => RunState::Cancelled,
            Outcome::Failed { .. } => RunState::Failed,
        }),
        Event::TurnStarted(_)
        | Event::TurnFinished { .. }
        | Event::PartStarted { .. }
        | Event::PartDelta { .. }
        | Event::PartAnnotated { .. }
        | Event::PartFinished { .. }
        | Event::PartsVoided { .. }
        | Event::ToolQueued { .. }
        | Event::ToolStarted { .. }
        | Event::ToolUpdated { .. }
        | Event::ToolFinished { .. }
        | Event::QuestionAsked(_)
        | Event::QuestionAnswered(_)
        | Event::AgentStarted { .. }
        | Event::AgentFinished { .. }
        | Event::PlanUpdated { .. }
        | Event::StateSet { .. }
        | Event::StatePatched { .. }
        | Event::SourceCited(_)
        | Event::FileProduced(_)
        | Event::UsageReported(_)
        | Event::InputAccepted { .. }
        | Event::InputApplied { .. }
        | Event::ResultReady { .. }
        | Event::Attached { .. }
        | Event::Extended(_) => None,
    }
}
