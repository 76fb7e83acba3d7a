//! Errors that a provider reports.

use std::fmt;
use std::time::Duration;

use serde_json::Value;
use wellspring_core::FailureKind;

/// Characters of a provider's message that an error repeats: enough for every message seen so
/// far, too few for a page of HTML.
const MESSAGE_CHARS_MAX: usize = 1000;

/// A provider's failure, and what the caller can do about it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// What the caller can do.
    pub kind: FailureKind,
    /// The provider's error message.
    pub message: Box<str>,
    /// The provider's `Retry-After`.
    pub retry_after: Option<Duration>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Failure {
    /// The failure for a response with an error status.
    #[must_use]
    pub fn of_status(status: u16, body: &[u8]) -> Self {
        let parsed: Option<Value> = serde_json::from_slice(body).ok();
        let said = parsed.as_ref().map(ErrorMembers::of).unwrap_or_default();
        let words = match said.message {
            Some(message) => shortened(message),
            None => shortened(String::from_utf8_lossy(body).trim()),
        };
        let message = if words.is_empty() {
            format!("status {status}")
        } else {
            format!("status {status}: {words}")
        };
        let kind = said.kind().filter(|_| !matches!(status, 401 | 403)).unwrap_or(of_code(status));
        Self { kind, message: message.into(), retry_after: said.retry_after }
    }

    /// The failure for an error inside a successful response: in the middle of a stream, or as
    /// the whole body.
    #[must_use]
    pub fn of_error(error: &Value) -> Self {
        let said = ErrorMembers::of(error);
        let words = match (said.message, said.code) {
            (Some(message), _) => shortened(message),
            (None, Some(code)) => format!("status {code}"),
            (None, None) => shortened(&error.to_string()),
        };
        let kind = said.kind().or(said.code.map(of_code)).unwrap_or(FailureKind::Unavailable);
        Self { kind, message: words.into(), retry_after: said.retry_after }
    }
}

/// The members of any provider's error: `{"error": {"message", "type", "code"}}`, the same
/// without its wrapper or in a list, or a bare string.
#[derive(Default)]
struct ErrorMembers<'a> {
    message: Option<&'a str>,
    words: [Option<&'a str>; 3],
    code: Option<u16>,
    retry_after: Option<Duration>,
}

impl<'a> ErrorMembers<'a> {
    fn of(value: &'a Value) -> Self {
        let value = value.get(0).unwrap_or(value);
        let error = value.get("error").filter(|error| !error.is_null()).unwrap_or(value);
        if let Some(message) = error.as_str() {
            return Self { message: Some(message), ..Self::default() };
        }
        let text = |name: &str| error.get(name).and_then(Value::as_str);
        let code = error.get("code").or(error.get("status")).and_then(Value::as_u64);
        Self {
            message: ["message", "detail", "msg", "error_description"].into_iter().find_map(text),
            words: [text("type"), text("code"), text("status")],
            code: code.and_then(|code| u16::try_from(code).ok()),
            retry_after: retry_delay(error),
        }
    }

    /// The kind by the provider's error codes, which are more precise than the status.
    fn kind(&self) -> Option<FailureKind> {
        self.words.into_iter().flatten().find_map(|word| {
            Some(match word {
                "overloaded_error"
                | "api_error"
                | "server_error"
                | "internal_server_error"
                | "service_unavailable"
                | "UNAVAILABLE"
                | "INTERNAL"
                | "ABORTED"
                | "engine_overloaded"
                | "slow_down"
                | "vector_store_timeout" => FailureKind::Unavailable,
                "rate_limit_error"
                | "rate_limit_exceeded"
                | "rate_limit"
                | "tokens"
                | "requests"
                | "RESOURCE_EXHAUSTED" => FailureKind::RateLimited,
                "authentication_error"
                | "permission_error"
                | "billing_error"
                | "insufficient_quota"
                | "invalid_api_key"
                | "billing_hard_limit_reached"
                | "PERMISSION_DENIED"
                | "UNAUTHENTICATED" => FailureKind::Refused,
                "timeout_error" | "DEADLINE_EXCEEDED" => FailureKind::TimedOut,
                "invalid_request_error"
                | "not_found_error"
                | "request_too_large"
                | "context_length_exceeded"
                | "exceed_context_size_error"
                | "model_not_found"
                | "invalid_prompt"
                | "INVALID_ARGUMENT"
                | "NOT_FOUND"
                | "FAILED_PRECONDITION"
                | "OUT_OF_RANGE"
                | "UNIMPLEMENTED" => FailureKind::BadRequest,
                _ => return None,
            })
        })
    }
}

fn of_code(status: u16) -> FailureKind {
    match status {
        401..=403 => FailureKind::Refused,
        408 | 504 => FailureKind::TimedOut,
        429 => FailureKind::RateLimited,
        // A conflict, and a request that was sent too early, are temporary.
        409 | 425 => FailureKind::Unavailable,
        501 | 505 => FailureKind::BadRequest,
        500.. => FailureKind::Unavailable,
        // An error with the status of a success or a redirect: a retry does not help.
        _ => FailureKind::BadRequest,
    }
}

/// Gemini's `{"details": [{"@type": ".../google.rpc.RetryInfo", "retryDelay": "17.5s"}]}`.
fn retry_delay(error: &Value) -> Option<Duration> {
    let details = error.get("details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    let seconds: f64 = delay.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bodies_of_errors() {
        let long = "x".repeat(5000);
        let shown = format!("status 500: {}…", "x".repeat(MESSAGE_CHARS_MAX));
        for (status, body, kind, message) in [
            (
                529,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                FailureKind::Unavailable,
                "status 529: Overloaded",
            ),
            (
                429,
                r#"{"error":{"message":"Slow down","type":"tokens","code":"rate_limit_exceeded"}}"#,
                FailureKind::RateLimited,
                "status 429: Slow down",
            ),
            (
                429,
                r#"{"error":{"message":"Pay","type":"insufficient_quota","code":"insufficient_quota"}}"#,
                FailureKind::Refused,
                "status 429: Pay",
            ),
            (
                400,
                r#"[{"error":{"code":400,"message":"API key not valid","status":"INVALID_ARGUMENT"}}]"#,
                FailureKind::BadRequest,
                "status 400: API key not valid",
            ),
            (
                401,
                r#"{"error":{"message":"no key","type":"invalid_request_error"}}"#,
                FailureKind::Refused,
                "status 401: no key",
            ),
            (
                404,
                r#"{"error":"model 'x' not found"}"#,
                FailureKind::BadRequest,
                "status 404: model 'x' not found",
            ),
            (
                422,
                r#"{"detail":"no such field"}"#,
                FailureKind::BadRequest,
                "status 422: no such field",
            ),
            (503, "<html>down</html>\n", FailureKind::Unavailable, "status 503: <html>down</html>"),
            (504, "", FailureKind::TimedOut, "status 504"),
            (302, "", FailureKind::BadRequest, "status 302"),
            (500, &long, FailureKind::Unavailable, &shown),
        ] {
            let want = Failure { kind, message: message.into(), retry_after: None };
            assert_eq!(Failure::of_status(status, body.as_bytes()), want);
        }
    }

    #[test]
    fn errors_within_answers() {
        for (error, kind, message) in [
            (
                json!({"type": "overloaded_error", "message": "Overloaded"}),
                FailureKind::Unavailable,
                "Overloaded",
            ),
            (json!({"code": 429, "message": "busy"}), FailureKind::RateLimited, "busy"),
            (json!({"error": {"code": 502}}), FailureKind::Unavailable, "status 502"),
            (json!("it broke"), FailureKind::Unavailable, "it broke"),
            (json!({"what": 1}), FailureKind::Unavailable, r#"{"what":1}"#),
        ] {
            let want = Failure { kind, message: message.into(), retry_after: None };
            assert_eq!(Failure::of_error(&error), want);
        }
        let limited = json!({"error": {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED",
            "details": [{"@type": "x"}, {"@type": "google.rpc.RetryInfo", "retryDelay": "17.5s"}]}});
        assert_eq!(
            Failure::of_error(&limited),
            Failure {
                kind: FailureKind::RateLimited,
                message: "quota".into(),
                retry_after: Some(Duration::from_millis(17_500)),
            }
        );
    }
}
