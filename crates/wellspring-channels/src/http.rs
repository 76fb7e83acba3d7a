//! HTTP helpers that all networks share.

use std::time::Duration;

use axum::http::StatusCode;
use base64::Engine as _;
use bytes::Bytes;
use hmac::{Hmac, Mac as _};
use reqwest::multipart::Part;
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use crate::channel::{CallError, File};
use crate::incoming::Incoming;
use crate::instance::Instance;

/// Timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(50);

/// Maximum size of a response: the largest are a hundred updates of Telegram.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

pub(crate) fn client() -> Result<reqwest::Client, CallError> {
    // No network redirects, and a redirect could lead a request to another host.
    let redirects = reqwest::redirect::Policy::none();
    let http = reqwest::Client::builder().timeout(REQUEST_TIMEOUT).redirect(redirects).build();
    http.map_err(|error| CallError::Refused(error.to_string().into()))
}

/// Converts an error of the connection. The error's own text is dropped, because its URL may
/// contain a token.
pub(crate) fn lost(error: reqwest::Error) -> CallError {
    let unsent = error.is_connect() || error.is_builder();
    let what: Box<str> = error.without_url().to_string().into();
    if unsent { CallError::Unavailable(what) } else { CallError::AnswerLost(what) }
}

/// The body of a response. Fails if it is larger than `bytes_max`.
async fn body(mut response: reqwest::Response, bytes_max: usize) -> Result<Bytes, CallError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(lost)? {
        if bytes.len() + chunk.len() > bytes_max {
            return Err(too_large(bytes_max));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.into())
}

/// The body of the response to a call.
pub(crate) async fn answer(response: reqwest::Response) -> Result<Bytes, CallError> {
    body(response, ANSWER_BYTES_MAX).await.map_err(|error| {
        if let CallError::Refused(what) = error { CallError::AnswerLost(what) } else { error }
    })
}

/// Downloads a file.
pub(crate) async fn download(
    request: reqwest::RequestBuilder,
    bytes_max: usize,
) -> Result<Bytes, CallError> {
    let response = request.send().await.map_err(lost)?;
    if !response.status().is_success() {
        return Err(CallError::Unavailable(response.status().to_string().into()));
    }
    body(response, bytes_max).await
}

/// Checks that a file is at the network: at the API's own origin, or over HTTPS at one of `hosts` or
/// below it. A network may name files that are elsewhere, and those get neither our token nor a
/// request from this machine.
pub(crate) fn at_network(file: &str, base: &str, hosts: &[&str]) -> Result<(), CallError> {
    let is_at = |url: &reqwest::Url| {
        let host = url.host_str().unwrap_or_default();
        let is_below =
            |of: &&str| host.strip_suffix(*of).is_some_and(|it| it.is_empty() || it.ends_with('.'));
        let is_ours = reqwest::Url::parse(base).is_ok_and(|base| base.origin() == url.origin());
        is_ours || url.scheme() == "https" && hosts.iter().any(is_below)
    };
    match reqwest::Url::parse(file) {
        Ok(url) if is_at(&url) => Ok(()),
        Ok(_) | Err(_) => Err(CallError::Refused("the file is not stored at the network".into())),
    }
}

pub(crate) fn too_large(bytes_max: usize) -> CallError {
    CallError::Refused(format!("it has more than {bytes_max} bytes").into())
}

/// Decodes the base64 data of a file from the agent.
pub(crate) fn decoded(data: &str) -> Result<Vec<u8>, CallError> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(data);
    bytes.map_err(|error| CallError::Refused(error.to_string().into()))
}

/// A file as a part of a multipart form.
pub(crate) fn part(file: &File, data: &str) -> Result<Part, CallError> {
    let part = Part::bytes(decoded(data)?).file_name(file.name.to_string());
    part.mime_str(&file.media_type).map_err(|error| CallError::Refused(error.to_string().into()))
}

/// Whether `shown` is the HMAC-SHA256 of the pieces in hexadecimal. Always `false` for an empty
/// secret.
pub(crate) fn is_hmac(secret: &str, pieces: &[&[u8]], shown: &str) -> bool {
    let Ok(mut hmac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else { return false };
    if secret.is_empty() {
        return false;
    }
    pieces.iter().for_each(|piece| hmac.update(piece));
    let expected: String =
        hmac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    shown.as_bytes().ct_eq(expected.as_bytes()).into()
}

/// Decodes hexadecimal digits.
pub(crate) fn unhex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
    digits.chunks(2).map(byte).collect()
}

/// Handles an event from a webhook and returns the status to respond with. If the event could not
/// be stored, the status makes the network deliver it again. Continues even if the network closes
/// the connection.
pub(crate) async fn take(instance: &Instance, incoming: Incoming) -> StatusCode {
    let instance = instance.clone();
    let taken = tokio::spawn(async move { instance.incoming(incoming).await });
    match taken.await {
        Ok(Ok(())) => StatusCode::OK,
        Ok(Err(error)) => {
            tracing::error!(%error, "what came in could not be kept; it will come again");
            StatusCode::SERVICE_UNAVAILABLE
        }
        Err(error) => {
            tracing::error!(%error, "failed to take what came in");
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_elsewhere_are_refused() {
        let base = "http://127.0.0.1:81/api";
        for (file, is_at) in [
            ("https://files.slack.com/files-pri/T1-F1/a.png", true),
            ("https://slack.com/a.png", true),
            ("http://127.0.0.1:81/files/a.png", true),
            ("http://files.slack.com/a.png", false),
            ("https://slack.com.example.org/a.png", false),
            ("https://notslack.com/a.png", false),
            ("https://user@example.org/slack.com", false),
            ("http://127.0.0.1:82/a.png", false),
            ("http://169.254.169.254/latest/meta-data", false),
            ("files.slack.com/a.png", false),
            ("", false),
        ] {
            assert_eq!(at_network(file, base, &["slack.com"]).is_ok(), is_at, "{file}");
        }
    }
}
