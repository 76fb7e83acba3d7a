//! The types as the protocol documents them.

use serde::{Deserialize, Serialize};

/// More of the text.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamingEvent {
    /// The turn: `turn-N`, from 0.
    pub request_id: String,
    /// Text to append.
    pub delta: String,
    /// Whether this is the last event of the turn.
    pub done: bool,
}
