//! The types as the protocol documents them.

use serde::{Deserialize, Serialize};

/// More of the text.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamingEvent {
    /// Which turn: `turn-N`, from 0.
    pub request_id: String,
    /// To be appended.
    pub delta: String,
    /// Whether this is the turn's last.
    pub done: bool,
}
