//! How a run on the gateway ends.

use serde_json::Value;
use wellspring_core::{FailureKind, Stop};

use super::super::types::GatewayError;

/// How a run on the gateway ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum End {
    /// It completed.
    Finished {
        /// Why it stopped.
        stop: Stop,
    },
    /// It was aborted, by us or by another client.
    Aborted,
    /// It failed.
    Failed {
        /// What the caller can do.
        kind: FailureKind,
        /// The gateway's error message.
        message: Box<str>,
    },
}

impl End {
    /// Maps an error of the gateway to the end of the run.
    #[must_use]
    pub fn of_error(error: &GatewayError) -> Self {
        let kind = match error.detail_code() {
            "INVALID_REQUEST" => FailureKind::BadRequest,
            "FORBIDDEN" | "MISSING_SCOPE" | "NOT_PAIRED" | "PAIRING_REQUIRED" => {
                FailureKind::Refused
            }
            code if code.starts_with("AUTH_") || code.starts_with("DEVICE_") => {
                FailureKind::Refused
            }
            "PROTOCOL_MISMATCH" => FailureKind::Protocol,
            "AGENT_TIMEOUT" => FailureKind::TimedOut,
            _ => FailureKind::Unavailable,
        };
        Self::Failed { kind, message: error.message.clone() }
    }
}

pub(super) fn aborted(data: &Value) -> bool {
    data["aborted"] == true || data["status"] == "cancelled"
}

pub(super) fn stop(reason: Option<&str>) -> Stop {
    match reason {
        None | Some("stop" | "end_turn" | "completed" | "") => Stop::EndTurn,
        Some("length" | "max_tokens") => Stop::MaxTokens,
        Some("refusal") => Stop::Refusal,
        Some("content_filter") => Stop::ContentFilter,
        Some("stop_sequence") => Stop::StopSequence,
        Some(other) => Stop::Other(other.into()),
    }
}

/// A failure of the agent or of its provider.
pub(super) fn failure(message: &Value, detail: &Value) -> End {
    let message = message.as_str().or(message["message"].as_str()).filter(|it| !it.is_empty());
    let word = ["failoverReason", "errorKind", "providerErrorType", "stopReason"]
        .into_iter()
        .find_map(|name| detail[name].as_str());
    let kind = match word {
        Some("rate_limit" | "overloaded") => FailureKind::RateLimited,
        Some("auth" | "auth_permanent" | "billing") => FailureKind::Refused,
        Some("format" | "context_length" | "model_not_found" | "refusal") => {
            FailureKind::BadRequest
        }
        Some("timeout") => FailureKind::TimedOut,
        Some(_) | None if detail["status"] == "timeout" => FailureKind::TimedOut,
        Some(_) | None => FailureKind::Unavailable,
    };
    End::Failed { kind, message: message.unwrap_or("the run failed without a reason").into() }
}
