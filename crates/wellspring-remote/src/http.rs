//! Requests to a configured URL, with the rules of all our HTTP clients: HTTP or HTTPS only, no
//! redirects (credentials are only for the configured host), no proxy for this machine, a
//! connect timeout, and a maximum size of bodies.

use std::time::Duration;

use futures::StreamExt as _;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response, Url};

/// How long connecting may take, including TLS.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of an error's body that are read.
pub(crate) const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;

/// An invalid configuration.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The URL is not an HTTP URL.
    #[error("{url:?} is not an http or https URL")]
    BadUrl {
        /// The URL.
        url: Box<str>,
    },
    /// HTTP does not allow the header. Its value is not shown.
    #[error("header {name:?} is not a legal header")]
    BadHeader {
        /// Its name.
        name: Box<str>,
    },
    /// The HTTP client could not be created.
    #[error("no HTTP client could be made: {why}")]
    NoClient {
        /// The cause.
        why: Box<str>,
    },
}

pub(crate) fn client(
    url: &str,
    headers: &[(Box<str>, Box<str>)],
) -> Result<(Url, Client), SetupError> {
    let parsed = Url::parse(url).ok();
    let parsed = parsed.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = parsed.ok_or_else(|| SetupError::BadUrl { url: url.into() })?;
    let mut sent = HeaderMap::new();
    for (name, value) in headers {
        let bad = || SetupError::BadHeader { name: name.clone() };
        let known: HeaderName = name.parse().map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
        value.set_sensitive(true);
        sent.insert(known, value);
    }
    let mut client = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .default_headers(sent)
        .tcp_nodelay(true);
    if is_loopback(&url) {
        client = client.no_proxy();
    }
    let client =
        client.build().map_err(|error| SetupError::NoClient { why: error.to_string().into() })?;
    Ok((url, client))
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let loopback = host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    loopback || host == "localhost" || host.ends_with(".localhost")
}

/// The start of an error's body.
pub(crate) async fn error_body(response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(Ok(chunk)) = chunks.next().await {
        body.extend_from_slice(&chunk);
        if body.len() >= ERROR_BODY_BYTES_MAX {
            body.truncate(ERROR_BODY_BYTES_MAX);
            break;
        }
    }
    body
}
