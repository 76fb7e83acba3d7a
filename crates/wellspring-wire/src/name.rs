//! The dialects by name.

use std::fmt;
use std::str::FromStr;

use crate::acp::Acp;
use crate::ag_ui::AgUi;
use crate::agent_event::AgentEvents;
use crate::dialect::Dialect;
use crate::record::Records;
use crate::stream_delta::StreamDeltas;
use crate::streaming_event::StreamingEvents;
use crate::thought_event::ThoughtEvents;
use crate::turn_event::TurnEvents;

/// A dialect that can be asked for by name: in a URL, on the command line.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum DialectName {
    /// The records themselves.
    Record,
    /// What a library user watches.
    ThoughtEvent,
    /// What the model does, turn by turn.
    TurnEvent,
    /// Only the words, turn by turn.
    StreamingEvent,
    /// What a browser shows.
    AgentEvent,
    /// The answer so far, all of it each time.
    StreamDelta,
    /// AG-UI 1.0.
    AgUi,
    /// The updates of ACP 1.
    Acp,
}

impl DialectName {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Record,
        Self::ThoughtEvent,
        Self::TurnEvent,
        Self::StreamingEvent,
        Self::AgentEvent,
        Self::StreamDelta,
        Self::AgUi,
        Self::Acp,
    ];

    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::ThoughtEvent => "thought_event",
            Self::TurnEvent => "turn_event",
            Self::StreamingEvent => "streaming_event",
            Self::AgentEvent => "agent_event",
            Self::StreamDelta => "stream_delta",
            Self::AgUi => "ag_ui",
            Self::Acp => "acp",
        }
    }

    /// The dialect, at the start of a run.
    #[must_use]
    pub fn dialect(self) -> Box<dyn Dialect> {
        match self {
            Self::Record => Box::new(Records),
            Self::ThoughtEvent => Box::new(ThoughtEvents),
            Self::TurnEvent => Box::new(TurnEvents::default()),
            Self::StreamingEvent => Box::new(StreamingEvents),
            Self::AgentEvent => Box::new(AgentEvents),
            Self::StreamDelta => Box::new(StreamDeltas::default()),
            Self::AgUi => Box::new(AgUi::default()),
            Self::Acp => Box::new(Acp::default()),
        }
    }

    /// Whether resuming it takes all records from the run's start.
    #[must_use]
    pub fn remembers(self) -> bool {
        self.dialect().remembers()
    }
}

impl fmt::Display for DialectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Nobody speaks like that.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{name:?} is not a dialect: known are {}", DialectName::ALL.map(DialectName::as_str).join(", "))]
pub struct UnknownDialect {
    name: String,
}

impl FromStr for DialectName {
    type Err = UnknownDialect;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|known| known.as_str() == name);
        known.ok_or_else(|| UnknownDialect { name: name.chars().take(64).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::DialectName;

    #[test]
    fn names_are_found_again() {
        for name in DialectName::ALL {
            assert_eq!(name.as_str().parse(), Ok(name));
        }
        insta::assert_snapshot!(
            "agui".parse::<DialectName>().unwrap_err(),
            @r#""agui" is not a dialect: known are record, thought_event, turn_event, streaming_event, agent_event, stream_delta, ag_ui, acp"#
        );
    }
}
