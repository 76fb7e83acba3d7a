//! Errors of requests and answers: without keys, and with the provider's delay before a retry.

use std::time::{Duration, SystemTime};

use reqwest::header::{DATE, HeaderMap, HeaderValue, RETRY_AFTER};
use wellspring_core::{FailureKind, ModelError};
use wellspring_wire::provider::ReadError;

/// The minimum length of a header value that is redacted in errors. Shorter values are words
/// such as `true`, and redacting those would make errors unreadable.
const SECRET_BYTES_MIN: usize = 8;

pub(super) fn redacted(error: ModelError, secrets: &[HeaderValue]) -> ModelError {
    let values = secrets.iter().filter_map(|value| value.to_str().ok());
    let keys = values.map(|value| value.strip_prefix("Bearer ").unwrap_or(value).trim());
    error.redacted(keys.filter(|key| key.len() >= SECRET_BYTES_MIN))
}

/// The provider's retry delay: `retry-after-ms`, or `retry-after` in seconds or as a date, relative
/// to the server's own clock.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let number = |text: &str| text.parse::<f64>().ok();
    if let Some(millis) = text("retry-after-ms").and_then(number) {
        return Duration::try_from_secs_f64(millis / 1000.0).ok();
    }
    let after = text(RETRY_AFTER.as_str())?;
    if let Some(seconds) = number(after) {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date =
        |text| jiff::fmt::rfc2822::parse(text).ok().map(|date| SystemTime::from(date.timestamp()));
    let now = text(DATE.as_str()).and_then(date).unwrap_or(now);
    Some(date(after)?.duration_since(now).unwrap_or_default())
}

pub(super) fn failed(provider: &str, error: ReadError) -> ModelError {
    let wait = error.retry_after();
    let kind = error.kind();
    let model_error = ModelError::new(provider, kind, error.to_string());
    let model_error = if let ReadError::NotJson(cause) = error {
        model_error.because(cause)
    } else {
        model_error
    };
    match wait {
        Some(wait) => model_error.retry_after(wait),
        None => model_error,
    }
}

pub(super) fn broken(provider: &str, what: &str, error: reqwest::Error) -> ModelError {
    let kind = if error.is_builder() {
        FailureKind::BadRequest
    } else if error.is_timeout() {
        FailureKind::TimedOut
    } else if error.is_connect() || error.is_request() {
        FailureKind::Unavailable
    } else {
        FailureKind::Protocol
    };
    // A URL may contain a key.
    ModelError::new(provider, kind, what).because(error.without_url())
}

pub(super) fn too_long(provider: &str, max: usize) -> ModelError {
    let what = format!("sent more than {max} bytes");
    ModelError::new(provider, FailureKind::Protocol, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_to_ask_again() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (headers, want) in [
            (&[("retry-after-ms", "1500.5")][..], Some(1500.5)),
            (&[("retry-after", "20"), ("retry-after-ms", "7")], Some(7.0)),
            (&[("retry-after", " 20 ")], Some(20_000.0)),
            (&[("retry-after", "0.25")], Some(250.0)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:49:40 GMT")], Some(3000.0)),
            (&[("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")], Some(0.0)),
            (
                &[
                    ("retry-after", "Sun, 06 Nov 1994 08:49:40 GMT"),
                    ("date", "Sun, 06 Nov 1994 08:49:30 GMT"),
                ],
                Some(10_000.0),
            ),
            (&[("retry-after", "soon")], None),
            (&[("retry-after", "-1")], None),
            (&[("retry-after", "NaN")], None),
            (&[], None),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.insert(*name, HeaderValue::from_static(value));
            }
            let got = retry_after(&map, now).map(|wait| wait.as_secs_f64() * 1000.0);
            assert_eq!(got, want, "{headers:?}");
        }
    }
}
