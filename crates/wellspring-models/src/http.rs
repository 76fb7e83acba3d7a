//! HTTP for all providers: sends requests and turns the bodies of answers into events.
//!
//! An `Endpoint` holds a provider's address and credentials; an `Exchange` is one request and the
//! reader of its answer. Dropping the attempt's stream drops the response and closes the
//! connection.
//!
//! # What is deliberately absent
//!
//! Retries, and time limits except for connecting: the engine has both, because it knows how
//! far an attempt has come. (A request that meets a connection which the server is closing is
//! sent once more: the server has not started to answer.) Redirects: a key must not go to
//! another server.

mod answer;
mod error;

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures::stream;
use futures::{FutureExt as _, StreamExt as _, TryFutureExt as _};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Response, Url};
use serde_json::Value;
use wellspring_core::{AttemptStream, FailureKind, ModelError};
use wellspring_wire::Framer;
use wellspring_wire::provider::{AnswerReader, Failure, ReadError, Written};

use self::answer::{Answer, Body, Form, corrected, read_at_most, whole};
use self::error::{broken, failed, redacted, retry_after, too_long};
use crate::error::SetupError;
use crate::secret::Secret;

/// How long connecting may take, including TLS. After that the server is likely down, and another
/// attempt helps more than waiting.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of an error response that are read. The rest would not be shown anyway.
pub const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;

/// Bytes of an answer, whole or streamed. The longest answers, a million tokens with one frame
/// each, stay below. A server that never ends its answer must not fill the memory.
pub const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// How long the end of the body may take once the model has stopped. Usually it has arrived
/// already; waiting for it lets the connection be reused.
pub const LINGER: Duration = Duration::from_millis(100);

/// How long a small request, such as a list of models, may take.
pub const GET_TIMEOUT: Duration = Duration::from_secs(20);

/// Bytes of the response to a small request. The longest lists of models, those of gateways,
/// have a few megabytes.
pub const GET_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How often a request is sent again if the server was just closing the connection. Some servers
/// (such as llama.cpp's) close connections after each streamed answer without announcing it.
const RESENDS_MAX: usize = 1;

/// How long an unused connection is kept: shorter than the five seconds after which many
/// servers close theirs, so that few requests meet a connection that is being closed.
const IDLE_CONNECTION_TIME: Duration = Duration::from_secs(4);

/// Headers whose values are not secret.
const OPEN_HEADERS: [&str; 2] = ["anthropic-beta", "anthropic-version"];

/// Connections that are kept for the next request, per provider. More are opened as needed.
const IDLE_CONNECTIONS_MAX: usize = 64;

/// A provider's address and credentials.
#[derive(Clone)]
pub(crate) struct Endpoint {
    provider: Box<str>,
    base_url: Box<str>,
    host: Box<str>,
    port: u16,
    headers: HeaderMap,
    file_key: Option<Arc<Mutex<FileKey>>>,
    client: reqwest::Client,
    /// The last path and its URL. Most requests use the same path, and parsing a URL takes
    /// longer than writing a short request.
    last: Arc<Mutex<Option<CachedUrl>>>,
}

/// A key from a file, and the header that holds it.
struct FileKey {
    name: &'static str,
    prefix: &'static str,
    key: Secret,
}

#[derive(Clone, Debug)]
struct CachedUrl {
    path: Box<str>,
    url: Url,
}

/// Shows neither keys nor other header values.
impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("provider", &self.provider)
            .field("base_url", &self.base_url)
            .finish_non_exhaustive()
    }
}

/// One request and the reader of its answer.
pub(crate) struct Exchange {
    /// Relative to the base URL, with its leading slash.
    pub(crate) path: Cow<'static, str>,
    pub(crate) written: Written,
    pub(crate) framer: Framer,
    pub(crate) reader: Box<dyn AnswerReader>,
    pub(crate) streaming: bool,
}

impl Endpoint {
    /// A provider's endpoint: its name for errors, and its URL.
    pub(crate) fn new(provider: impl Into<Box<str>>, base_url: &str) -> Result<Self, SetupError> {
        let Server { base_url, host, port, client } = connect_to(base_url)?;
        let (provider, headers, last) = (provider.into(), HeaderMap::new(), Arc::default());
        let file_key = None;
        Ok(Self { provider, base_url, host, port, headers, file_key, client, last })
    }

    /// Replaces the base URL.
    pub(crate) fn base_url(self, url: &str) -> Result<Self, SetupError> {
        let Server { base_url, host, port, client } = connect_to(url)?;
        Ok(Self { base_url, host, port, client, last: Arc::default(), ..self })
    }

    /// The base URL, for tests.
    #[cfg(test)]
    pub(crate) fn url(&self) -> &str {
        &self.base_url
    }

    /// The names of the headers, for tests.
    #[cfg(test)]
    pub(crate) fn header_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    /// The host and port of the base URL.
    pub(crate) fn server(&self) -> Option<(&str, u16)> {
        Some((&*self.host, self.port))
    }

    /// The provider's name in errors.
    pub(crate) fn provider(&self) -> &str {
        &self.provider
    }

    /// Replaces the name.
    pub(crate) fn named(mut self, provider: impl Into<Box<str>>) -> Self {
        self.provider = provider.into();
        self
    }

    /// Adds a header, replacing one of the same name.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Result<Self, SetupError> {
        let bad = || SetupError::BadHeader { name: name.into() };
        let known: HeaderName = name.parse().map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(value).map_err(|_| bad())?;
        value.set_sensitive(true);
        self.headers.insert(known, value);
        Ok(self)
    }

    /// Sends a key in a header, after a prefix. A key file is read again when it changes.
    pub(crate) fn key(
        self,
        name: &'static str,
        prefix: &'static str,
        key: &Secret,
    ) -> Result<Self, SetupError> {
        let mut endpoint = self.header(name, &format!("{prefix}{}", key.expose()))?;
        let file = key.is_from_file().then(|| FileKey { name, prefix, key: key.clone() });
        endpoint.file_key = file.map(|it| Arc::new(Mutex::new(it)));
        Ok(endpoint)
    }

    /// The headers of a request, with the current key.
    fn headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        if let Some(file_key) = &self.file_key {
            let mut current = file_key.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(changed) = current.key.changed() {
                tracing::info!(provider = %self.provider, "read the changed key file");
                current.key = changed;
            }
            let value = format!("{}{}", current.prefix, current.key.expose());
            if let Ok(mut value) = HeaderValue::from_str(&value) {
                value.set_sensitive(true);
                headers.insert(current.name, value);
            }
        }
        headers
    }

    /// Makes one attempt. The request is sent when the stream is polled: some servers send the
    /// response head only after reading the prompt, or with the whole answer. Waiting for the
    /// head therefore counts as waiting for the answer; connecting has its own limit.
    pub(crate) fn attempt(self, exchange: Exchange) -> AttemptStream {
        for (what, count) in &exchange.written.left_out {
            tracing::info!(provider = %self.provider, count, "the request leaves out {what}");
        }
        for name in &exchange.written.replaced {
            tracing::warn!(provider = %self.provider, "`extra` replaces `{name}` in the request");
        }
        let Exchange { path, written, framer, reader, streaming } = exchange;
        let accept = if streaming { "text/event-stream" } else { "application/json" };
        let limit = written.output_limit;
        let secrets = self.secrets();
        let answer = async move {
            let response = self.send(&path, written.body, accept).await?;
            let (body, form) = Body::begin(response, streaming, framer)
                .await
                .map_err(|error| broken(&self.provider, "broke off", error))?;
            Ok(match form {
                Form::Whole => stream::once(whole(self.provider, body, reader)).boxed(),
                Form::Stream(framer) => Answer::stream(self.provider, body, framer, reader),
                Form::Unknown => {
                    let error =
                        ModelError::new(&*self.provider, FailureKind::Protocol, body.shown());
                    stream::once(std::future::ready(Err(error))).boxed()
                }
            })
        };
        // Boxed separately, so that the state of the request is freed before the answer
        // streams.
        let answer = answer.boxed().try_flatten_stream();
        // A provider may repeat a key in its error, and clients and logs show errors.
        answer
            .map(move |read| {
                read.map(|batch| corrected(batch, limit)).map_err(|error| redacted(error, &secrets))
            })
            .boxed()
    }

    async fn send(
        &self,
        path: &str,
        body: Vec<u8>,
        accept: &'static str,
    ) -> Result<Response, ModelError> {
        let request = self
            .client
            .post(self.address(path)?)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, accept)
            .body(body);
        self.ask(request).await
    }

    fn address(&self, path: &str) -> Result<Url, ModelError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(asked) = last.as_ref().filter(|asked| *asked.path == *path) {
            return Ok(asked.url.clone());
        }
        let url = Url::parse(&format!("{}{path}", self.base_url)).map_err(|error| {
            let what = format!("has an invalid path {path:?}");
            ModelError::new(&*self.provider, FailureKind::BadRequest, what).because(error)
        })?;
        *last = Some(CachedUrl { path: path.into(), url: url.clone() });
        Ok(url)
    }

    /// Makes a small GET request, with a time limit.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, ModelError> {
        let request = self
            .client
            .get(self.address(path)?)
            .header(ACCEPT, "application/json")
            .timeout(GET_TIMEOUT);
        let (body, ended) =
            read_at_most(Body::unread(self.ask(request).await?), GET_BYTES_MAX).await;
        ended.map_err(|error| match error {
            Some(error) => broken(&self.provider, "broke off", error),
            None => too_long(&self.provider, GET_BYTES_MAX),
        })?;
        serde_json::from_slice(&body)
            .map_err(|error| failed(&self.provider, ReadError::NotJson(error)))
    }

    async fn ask(&self, request: reqwest::RequestBuilder) -> Result<Response, ModelError> {
        let request = request.headers(self.headers());
        let response = send(request)
            .await
            .map_err(|error| broken(&self.provider, "could not be reached", error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status().as_u16();
        let wait = retry_after(response.headers(), SystemTime::now());
        // An incomplete body says less about the error, but the status is enough.
        let (body, _) = read_at_most(Body::unread(response), ERROR_BODY_BYTES_MAX).await;
        let mut failure = Failure::of_status(status, &body);
        failure.retry_after = wait.or(failure.retry_after);
        let error = failed(&self.provider, ReadError::Failed(failure));
        Err(redacted(error, &self.secrets()))
    }

    /// The values of secret headers, with the current key.
    fn secrets(&self) -> Vec<HeaderValue> {
        let headers = self.headers();
        let secret = headers.iter().filter(|(name, _)| !OPEN_HEADERS.contains(&name.as_str()));
        secret.map(|(_, value)| value.clone()).collect()
    }
}

async fn send(request: reqwest::RequestBuilder) -> Result<Response, reqwest::Error> {
    for _ in 0..RESENDS_MAX {
        // Only a complete body can be sent twice, and ours are complete.
        let Some(first) = request.try_clone() else { break };
        match first.send().await {
            Err(error) if hung_up(&error) => {}
            sent => return sent,
        }
    }
    request.send().await
}

/// Whether the connection was closed before the response started.
fn hung_up(error: &reqwest::Error) -> bool {
    let causes = std::iter::successors(std::error::Error::source(error), |error| error.source());
    let mut causes = causes.filter_map(|cause| cause.downcast_ref::<hyper::Error>());
    causes.any(|cause| cause.is_incomplete_message() || cause.is_closed() || cause.is_canceled())
}

/// A parsed URL, and the client for it.
struct Server {
    base_url: Box<str>,
    host: Box<str>,
    port: u16,
    client: reqwest::Client,
}

fn connect_to(url: &str) -> Result<Server, SetupError> {
    let parsed = Url::parse(url).ok().filter(|url| {
        matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none()
    });
    let Some(parsed) = parsed else { return Err(SetupError::BadUrl { url: url.into() }) };
    let mut client = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .pool_idle_timeout(IDLE_CONNECTION_TIME)
        .redirect(reqwest::redirect::Policy::none())
        .tcp_nodelay(true);
    if is_here(&parsed) {
        client = client.no_proxy();
    }
    let client = client.build().map_err(|error| SetupError::NoHttp(error.into()))?;
    let host = parsed.host_str().unwrap_or_default().into();
    let port = parsed.port_or_known_default().unwrap_or_default();
    Ok(Server { base_url: url.trim_end_matches('/').into(), host, port, client })
}

/// Whether a server is on this machine, so that no proxy is used.
fn is_here(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let loopback = host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
    loopback || host == "localhost" || host.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_a_provider_repeats_is_redacted() {
        let endpoint = Endpoint::new("acme", "https://api.example.com/").unwrap();
        let key = Secret::new("sk-very-secret");
        let endpoint = endpoint.key("authorization", "Bearer ", &key).unwrap();
        let endpoint = endpoint.header("anthropic-version", "2023-06-01").unwrap();
        let said = "no such key: sk-very-secret; use version 2023-06-01";
        let error = ModelError::new("acme", FailureKind::Refused, said);
        assert_eq!(
            redacted(error, &endpoint.secrets()).to_string(),
            "acme: no such key: [redacted]; use version 2023-06-01"
        );
    }

    #[test]
    fn nothing_secret_is_shown() {
        let endpoint = Endpoint::new("acme", "https://api.example.com/").unwrap();
        let endpoint = endpoint.key("authorization", "Bearer ", &Secret::new("sk-secret")).unwrap();
        let shown = format!("{endpoint:?} {:?}", endpoint.headers);
        assert_eq!(
            shown,
            "Endpoint { provider: \"acme\", base_url: \"https://api.example.com\", .. } \
             {\"authorization\": Sensitive}"
        );
        let bad = endpoint.header("x-key", "sk\nsecret").unwrap_err();
        assert_eq!(
            bad.to_string(),
            "the header \"x-key\" has a name or a value that HTTP does not allow"
        );
    }

    #[test]
    fn a_key_file_that_changes_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        std::fs::write(&file, "first").unwrap();
        let key = Secret::from_file(&file).unwrap();
        let endpoint = Endpoint::new("acme", "https://api.example.com").unwrap();
        let endpoint = endpoint.key("authorization", "Bearer ", &key).unwrap();
        let sent = || endpoint.headers()["authorization"].to_str().unwrap().to_owned();
        assert_eq!(sent(), "Bearer first");
        std::fs::write(&file, "the second").unwrap();
        assert_eq!(sent(), "Bearer the second");
        // While the file is being replaced, the last key is used.
        std::fs::remove_file(&file).unwrap();
        assert_eq!(sent(), "Bearer the second");
    }

    #[test]
    fn addresses() {
        for url in ["", "api.example.com", "ftp://x", "https://x?key=1", "unix:/x"] {
            assert!(matches!(Endpoint::new("acme", url), Err(SetupError::BadUrl { .. })), "{url}");
        }
        for (url, here) in [
            ("http://localhost:1", true),
            ("http://127.0.0.1", true),
            ("http://[::1]:8", true),
            ("https://api.example.com", false),
            ("https://localhost.example.com", false),
        ] {
            assert_eq!(is_here(&Url::parse(url).unwrap()), here, "{url}");
        }
    }
}
