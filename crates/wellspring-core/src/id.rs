//! Ids, each a type of its own so that one cannot be passed for another.
//!
//! Run and thread ids are UUIDs, minted outside of core, which has no clock. Ids within a run
//! are counted, never random, so that a run is reproducible.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps a UUID; version 7 keeps runs in the order of their start.
            #[must_use]
            pub const fn new(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The UUID inside.
            #[must_use]
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                text.parse().map(Self).map_err(|_| ParseIdError::of(text))
            }
        }
    };
}

/// A string that is not a valid id.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{text:?} is not an id: expected a UUID, or a UUID, a dash and a number for a part")]
pub struct ParseIdError {
    text: String,
}

impl ParseIdError {
    pub(crate) fn of(text: &str) -> Self {
        Self { text: text.chars().take(64).collect() }
    }
}

uuid_id! {
    /// One request to an agent, until its outcome.
    RunId
}
uuid_id! {
    /// A conversation: a tree of runs.
    ThreadId
}

macro_rules! counted_id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The next one. Saturates at the maximum, which no run reaches.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counted_id! {
    /// A record's place in its run: dense, from 1. Zero stands before the first record.
    Seq(u64)
}
counted_id! {
    /// A part of a run. A tool call's id is its part's.
    PartId(u32)
}
counted_id! {
    /// An agent within a run; 0 is the root.
    AgentNo(u32)
}
counted_id! {
    /// A question of a run.
    QuestionId(u32)
}
counted_id! {
    /// An entry of a run's inbox, in the order in which entries became durable.
    InboxNo(u64)
}

impl AgentNo {
    /// The run's root agent.
    pub const ROOT: Self = Self(0);

    /// Whether this is the run's root agent.
    #[must_use]
    pub fn is_root(&self) -> bool {
        *self == Self::ROOT
    }
}

/// Milliseconds since the Unix epoch: when a record was appended.
///
/// A number rather than a `SystemTime`, because a record is data and core has no clock.
#[derive(
    Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// How long after `earlier` this is; zero when the clock went backwards.
    #[must_use]
    pub const fn since(self, earlier: Self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// This time plus `duration`.
    #[must_use]
    pub fn plus(self, duration: std::time::Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }
}
