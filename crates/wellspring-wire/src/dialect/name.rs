//! The dialects by name.

use std::fmt;
use std::str::FromStr;

use crate::acp::Acp;
use crate::ag_ui::{AgUi, AgUiBinary};
use crate::agent_event::AgentEvents;
use crate::ai_sdk::AiSdk;
use crate::dialect::Dialect;
use crate::dialect::options::{Encoding, OptionError, OptionName, Options};
use crate::record::Records;
use crate::stream_delta::StreamDeltas;
use crate::streaming_event::StreamingEvents;
use crate::thought_event::ThoughtEvents;
use crate::turn_event::TurnEvents;
use crate::use_ai::UseAi;

/// A dialect that can be requested by name, in a URL or on the command line.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum DialectName {
    /// The records themselves.
    Record,
    /// For users of the library: thoughts, text, tool calls and plans.
    ThoughtEvent,
    /// A model's turns: text, tool calls and results.
    TurnEvent,
    /// The text only, turn by turn.
    StreamingEvent,
    /// For browsers: thoughts, text, and tools with their progress.
    AgentEvent,
    /// Snapshots of the whole answer so far.
    StreamDelta,
    /// AG-UI 1.0.
    AgUi,
    /// The updates of ACP 1.
    Acp,
    /// The AI SDK's UI message stream, version 1.
    AiSdk,
    /// use-ai's variant of AG-UI.
    UseAi,
}

impl DialectName {
    /// All dialects.
    pub const ALL: [Self; 10] = [
        Self::Record,
        Self::ThoughtEvent,
        Self::TurnEvent,
        Self::StreamingEvent,
        Self::AgentEvent,
        Self::StreamDelta,
        Self::AgUi,
        Self::Acp,
        Self::AiSdk,
        Self::UseAi,
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
            Self::AiSdk => "ai_sdk",
            Self::UseAi => "use_ai",
        }
    }

    /// Its index in [`ALL`](DialectName::ALL).
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The options that its readers can choose.
    #[must_use]
    pub const fn offers(self) -> &'static [OptionName] {
        use OptionName::{Encoding, Kinds, Reasoning, ReasoningEvents, SubAgents, Usage};
        match self {
            Self::Record => &[Kinds],
            Self::ThoughtEvent | Self::StreamDelta => &[Reasoning],
            Self::AgentEvent => &[Reasoning, SubAgents],
            Self::TurnEvent => &[Usage],
            Self::StreamingEvent => &[],
            Self::AgUi => &[Reasoning, Usage, Encoding],
            Self::Acp | Self::AiSdk => &[Reasoning, Usage],
            Self::UseAi => &[Reasoning, ReasoningEvents, Usage],
        }
    }

    /// The dialect, with default options.
    #[must_use]
    pub fn dialect(self) -> Box<dyn Dialect> {
        self.make(&Options::default())
    }

    /// The dialect with the reader's options.
    ///
    /// # Errors
    ///
    /// If the dialect does not [offer](DialectName::offers) an option that was chosen.
    pub fn with(self, options: Options) -> Result<DialectChoice, OptionError> {
        options.check(self)?;
        Ok(DialectChoice { name: self, options })
    }

    fn make(self, options: &Options) -> Box<dyn Dialect> {
        match self {
            Self::Record => Box::new(Records::new(options)),
            Self::ThoughtEvent => Box::new(ThoughtEvents::new(options)),
            Self::TurnEvent => Box::new(TurnEvents::new(options)),
            Self::StreamingEvent => Box::new(StreamingEvents),
            Self::AgentEvent => Box::new(AgentEvents::new(options)),
            Self::StreamDelta => Box::new(StreamDeltas::new(options)),
            Self::AgUi => match options.encoding {
                Encoding::Json => Box::new(AgUi::new(options)),
                Encoding::Binary => Box::new(AgUiBinary::new(options)),
            },
            Self::Acp => Box::new(Acp::new(options)),
            Self::AiSdk => Box::new(AiSdk::new(options)),
            Self::UseAi => Box::new(UseAi::new(options)),
        }
    }
}

impl<D: Dialect + 'static> From<D> for Box<dyn Dialect> {
    fn from(dialect: D) -> Self {
        Box::new(dialect)
    }
}

impl From<DialectName> for Box<dyn Dialect> {
    fn from(name: DialectName) -> Self {
        name.dialect()
    }
}

/// A dialect with validated options.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DialectChoice {
    name: DialectName,
    options: Options,
}

impl DialectChoice {
    /// Which dialect.
    #[must_use]
    pub fn name(&self) -> DialectName {
        self.name
    }

    /// The reader's options.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The dialect.
    #[must_use]
    pub fn dialect(&self) -> Box<dyn Dialect> {
        self.name.make(&self.options)
    }
}

impl From<DialectName> for DialectChoice {
    fn from(name: DialectName) -> Self {
        Self { name, options: Options::default() }
    }
}

impl From<&DialectChoice> for Box<dyn Dialect> {
    fn from(choice: &DialectChoice) -> Self {
        choice.dialect()
    }
}

impl fmt::Display for DialectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The name of a dialect that does not exist.
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
        for (index, name) in DialectName::ALL.into_iter().enumerate() {
            assert_eq!(name.as_str().parse(), Ok(name));
            assert_eq!(name.index(), index);
        }
        insta::assert_snapshot!(
            "agui".parse::<DialectName>().unwrap_err(),
            @r#""agui" is not a dialect: known are record, thought_event, turn_event, streaming_event, agent_event, stream_delta, ag_ui, acp, ai_sdk, use_ai"#
        );
    }
}
