//! The options that a reader may choose.

use std::collections::BTreeSet;

use crate::dialect::name::DialectName;

/// The options of a reader. A dialect [offers](DialectName::offers) some of them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Options {
    /// Whether the model's reasoning is sent.
    pub reasoning: Reasoning,
    /// The events that carry the model's reasoning.
    pub reasoning_events: ReasoningEvents,
    /// Whether token usage is sent.
    pub usage: UsageReports,
    /// The encoding of events.
    pub encoding: Encoding,
    /// The [kinds](crate::record::KINDS) of records that are shown; all if `None`.
    pub kinds: Option<BTreeSet<&'static str>>,
    /// Which output of sub-agents is sent.
    pub sub_agents: SubAgents,
}

/// Whether the model's reasoning is sent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Reasoning {
    /// It is sent.
    #[default]
    Shown,
    /// It is left out.
    Hidden,
}

/// The events that carry the model's reasoning: AG-UI renamed them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ReasoningEvents {
    /// `REASONING_*`.
    #[default]
    Reasoning,
    /// `THINKING_*` and `THINKING_TEXT_MESSAGE_*`, the older names.
    Thinking,
}

/// Whether token usage is sent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum UsageReports {
    /// It is sent if the vocabulary has a place for it.
    #[default]
    Included,
    /// It is left out.
    Omitted,
}

/// Which output of sub-agents is sent, as the progress of the calls that they serve.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SubAgents {
    /// Their text.
    #[default]
    Words,
    /// Their text and their thoughts.
    Thoughts,
}

/// The encoding of events.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Encoding {
    /// As JSON.
    #[default]
    Json,
    /// In the protocol's binary encoding.
    Binary,
}

/// The name of an option, as used in URLs and errors.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(missing_docs, reason = "they are the fields of `Options`")]
pub enum OptionName {
    Reasoning,
    ReasoningEvents,
    Usage,
    Encoding,
    Kinds,
    SubAgents,
}

impl OptionName {
    /// Its name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reasoning => "reasoning",
            Self::ReasoningEvents => "reasoning_events",
            Self::Usage => "usage",
            Self::Encoding => "encoding",
            Self::Kinds => "kinds",
            Self::SubAgents => "sub_agents",
        }
    }
}

impl Options {
    /// The options that differ from the default.
    fn chosen(&self) -> impl Iterator<Item = OptionName> {
        let Self { reasoning, reasoning_events, usage, encoding, kinds, sub_agents } = self;
        let chosen = [
            (OptionName::Reasoning, *reasoning != Reasoning::default()),
            (OptionName::ReasoningEvents, *reasoning_events != ReasoningEvents::default()),
            (OptionName::Usage, *usage != UsageReports::default()),
            (OptionName::Encoding, *encoding != Encoding::default()),
            (OptionName::Kinds, kinds.is_some()),
            (OptionName::SubAgents, *sub_agents != SubAgents::default()),
        ];
        chosen.into_iter().filter(|(_, chosen)| *chosen).map(|(name, _)| name)
    }

    /// Whether every option has its default.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.chosen().next().is_none()
    }

    /// Checks that a dialect offers the options that were chosen.
    pub(crate) fn check(&self, dialect: DialectName) -> Result<(), OptionError> {
        match self.chosen().find(|name| !dialect.offers().contains(name)) {
            Some(name) => Err(OptionError { dialect, name }),
            None => Ok(()),
        }
    }
}

/// An option that the dialect does not offer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the dialect {dialect} has no option `{}`; it offers {}", name.as_str(), offered(*dialect))]
pub struct OptionError {
    dialect: DialectName,
    name: OptionName,
}

fn offered(dialect: DialectName) -> String {
    match dialect.offers() {
        [] => "none".to_owned(),
        names => names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", "),
    }
}
