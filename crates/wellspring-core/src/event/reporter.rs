//! Who may report an event.

use super::Event;

/// Code that reports events to the engine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reporter {
    /// A [`Model`](crate::Model), in its attempt.
    Model,
    /// A [`Tool`](crate::Tool), through its [`Context`](crate::Context).
    Tool,
    /// A [`RemoteAgent`](crate::RemoteAgent), in its stream.
    RemoteAgent,
}

impl Event {
    /// Whether this code may report this event. Only the engine writes the others.
    #[must_use]
    pub fn may_be_reported_by(&self, reporter: Reporter) -> bool {
        match self {
            Self::SourceCited(_) | Self::FileProduced(_) | Self::Extended(_) => true,
            // A model reports only the calls that its provider runs.
            Self::PartStarted { .. }
            | Self::PartDelta { .. }
            | Self::PartAnnotated { .. }
            | Self::PartFinished { .. }
            | Self::ToolStarted { .. }
            | Self::ToolUpdated { .. }
            | Self::ToolFinished { .. }
            | Self::UsageReported(_) => reporter != Reporter::Tool,
            Self::PlanUpdated { .. } | Self::StateSet { .. } | Self::StatePatched { .. } => {
                reporter != Reporter::Model
            }
            Self::TurnStarted(_)
            | Self::TurnFinished { .. }
            | Self::PartsVoided { .. }
            | Self::ToolQueued { .. }
            | Self::AgentStarted { .. }
            | Self::AgentFinished { .. }
            | Self::ResultReady { .. }
            | Self::Attached { .. } => reporter == Reporter::RemoteAgent,
            Self::RunStarted(_)
            | Self::RunAdopted { .. }
            | Self::RunPaused { .. }
            | Self::RunResumed { .. }
            | Self::QuestionAsked(_)
            | Self::QuestionAnswered(_)
            | Self::InputAccepted { .. }
            | Self::InputApplied { .. }
            | Self::RunFinished { .. } => false,
        }
    }
}
