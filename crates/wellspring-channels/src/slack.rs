//! Slack, over its Web API. Events arrive over a webhook or a socket; each call is one request. An
//! answer is a native stream in a thread, and each thread is a separate conversation.
//!
//! # Lossy
//!
//! The language and the name of a person are unknown: people are identified by their ids, and the
//! bot's own messages are in the bot's language. If the model takes text back, the stream is ended
//! and its message edited.

pub(crate) mod event;
mod socket;
pub(crate) mod wire;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use wellspring_core::MediaSource;

use crate::channel::{Action, Call, CallError, CallResult, Capabilities, Channel, Done, File};
use crate::http;
use crate::instance::Instance;

/// The public Web API.
pub const SLACK_API: &str = "https://slack.com/api";

/// Maximum age of a signed request, and the maximum by which its clock may be ahead, as Slack
/// recommends.
const REPLAY_WINDOW: Duration = Duration::from_secs(5 * 60);

/// Maximum size of an event: Slack's are below 100 KB.
const EVENT_BYTES_MAX: usize = 1024 * 1024;

/// The permissions that the bot requires.
const SCOPES: &[&str] =
    &["app_mentions:read", "chat:write", "files:read", "files:write", "im:history"];

/// The credentials of a Slack app.
#[derive(Clone)]
pub struct SlackSecrets {
    /// The bot token, `xoxb-…`.
    pub token: Arc<str>,
    /// The secret that signs requests to the webhook; empty without a webhook.
    pub signing_secret: Arc<str>,
    /// The app-level token for the socket, `xapp-…`; empty if the webhook is used.
    pub app_token: Arc<str>,
}

impl fmt::Debug for SlackSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SlackSecrets(…)")
    }
}

/// A Slack bot.
#[derive(Clone, Debug)]
pub struct Slack {
    http: reqwest::Client,
    base: Box<str>,
    secrets: SlackSecrets,
}

impl Slack {
    /// A bot with these credentials, at [`SLACK_API`] or at another server.
    ///
    /// # Errors
    ///
    /// If TLS is not available.
    pub fn new(secrets: SlackSecrets, base: Option<&str>) -> Result<Self, CallError> {
        let base = base.unwrap_or(SLACK_API).trim_end_matches('/').into();
        Ok(Self { http: http::client()?, base, secrets })
    }

    /// Whether events arrive over a socket instead of the webhook.
    #[must_use]
    pub fn has_socket(&self) -> bool {
        !self.secrets.app_token.is_empty()
    }

    /// The route for events and presses, to mount in a server. A request whose signature is invalid
    /// or too old is rejected.
    pub fn webhook(&self, instance: Instance, path: &str) -> Router {
        Router::new()
            .route(path, post(take))
            .layer(DefaultBodyLimit::max(EVENT_BYTES_MAX))
            .with_state(Webhook { instance, secret: Arc::clone(&self.secrets.signing_secret) })
    }

    async fn request(
        &self,
        token: &str,
        method: &str,
        params: &Value,
    ) -> Result<Answer, CallError> {
        let url = format!("{}/{method}", self.base);
        let request = self.http.post(url).bearer_auth(token);
        let request = request.header("content-type", "application/json; charset=utf-8");
        answered(request.body(params.to_string())).await
    }

    async fn asked(&self, token: &str, method: &str, params: &Value) -> Result<Value, CallError> {
        self.request(token, method, params).await?.checked()
    }

    /// Calls a method that does not accept JSON.
    async fn read(&self, method: &str, params: &[(&str, &str)]) -> Result<Value, CallError> {
        let url = format!("{}/{method}", self.base);
        let url = reqwest::Url::parse_with_params(&url, params);
        let url = url.map_err(|error| CallError::Refused(error.to_string().into()))?;
        answered(self.http.get(url).bearer_auth(&*self.secrets.token)).await?.checked()
    }

    async fn send_file(&self, call: &Call, file: &File) -> CallResult {
        let (channel, thread) = wire::place(&call.chat);
        let token = &self.secrets.token;
        let bytes = match &file.source {
            MediaSource::Url(url) => {
                let text = format!("<{}|{}>", wire::escape(url), wire::escape(&file.name));
                let mut params = json!({"channel": channel, "text": text});
                if let Some(thread) = thread {
                    params["thread_ts"] = thread.into();
                }
                return self.request(token, "chat.postMessage", &params).await?.result();
            }
            MediaSource::Data(data) => http::decoded(data)?,
        };
        // The person sees nothing before the upload is complete, so it can be repeated.
        let again = CallError::shows_nothing;
        let length = bytes.len().to_string();
        let params = [("filename", &*file.name), ("length", &*length)];
        let place = self.read("files.getUploadURLExternal", &params).await.map_err(again)?;
        let (Some(url), Some(id)) = (place["upload_url"].as_str(), place["file_id"].as_str())
        else {
            return Err(CallError::Refused("Slack gave no place for a file".into()));
        };
        let uploaded = self.http.post(url).body(bytes).send().await.map_err(http::lost);
        let uploaded = uploaded.map_err(again)?;
        if !uploaded.status().is_success() {
            return Err(CallError::Unavailable(uploaded.status().to_string().into()));
        }
        let mut params = json!({
            "files": [{"id": id, "title": file.name}], "channel_id": channel,
        });
        if let Some(thread) = thread {
            params["thread_ts"] = thread.into();
        }
        self.asked(token, "files.completeUploadExternal", &params).await?;
        Ok(Done::default())
    }
}

impl Channel for Slack {
    fn network(&self) -> &'static str {
        "slack"
    }

    fn capabilities(&self) -> &Capabilities {
        &wire::CAPABILITIES
    }

    fn call(&self, call: Call) -> BoxFuture<'_, CallResult> {
        Box::pin(async move {
            if let Action::Send { body, .. } = &call.action
                && let Some(file) = &body.file
            {
                return self.send_file(&call, file).await;
            }
            let (method, params) = wire::request(&call);
            self.request(&self.secrets.token, method, &params).await?.result()
        })
    }

    fn download(&self, file: &str, bytes_max: usize) -> BoxFuture<'_, Result<Bytes, CallError>> {
        let file = file.to_owned();
        Box::pin(async move {
            let token = &self.secrets.token;
            let found = self.read("files.info", &[("file", &file)]).await?;
            let file = &found["file"];
            if file["size"].as_u64().is_some_and(|size| size > bytes_max as u64) {
                return Err(http::too_large(bytes_max));
            }
            let url = file["url_private_download"].as_str().or(file["url_private"].as_str());
            let url = url.unwrap_or_default();
            // External files have the URL of another service.
            http::at_network(url, &self.base, &["slack.com"])?;
            http::download(self.http.get(url).bearer_auth(token), bytes_max).await
        })
    }

    fn acknowledge(&self, press: &str, text: &str) -> BoxFuture<'_, Result<(), CallError>> {
        let mut ids = press.split('/');
        let mut id = || ids.next().unwrap_or_default();
        let params = json!({
            "channel": id(), "thread_ts": id(), "user": id(), "text": wire::escape(text),
        });
        Box::pin(async move {
            self.asked(&self.secrets.token, "chat.postEphemeral", &params).await.map(drop)
        })
    }

    fn check(&self) -> BoxFuture<'_, Result<String, CallError>> {
        Box::pin(async move {
            let answer = self.request(&self.secrets.token, "auth.test", &json!({})).await?;
            let scopes = answer.scopes.clone();
            let me = answer.checked()?;
            if let Some(scopes) = scopes {
                let has = |scope: &str| scopes.split(',').any(|it| it.trim() == scope);
                let missing: Vec<_> = SCOPES.iter().copied().filter(|it| !has(it)).collect();
                if !missing.is_empty() {
                    let what = format!("the app needs the scopes {}", missing.join(", "));
                    return Err(CallError::Refused(what.into()));
                }
            }
            if self.has_socket() {
                self.asked(&self.secrets.app_token, "apps.connections.open", &json!({})).await?;
            }
            let word = |key: &str| me[key].as_str().unwrap_or("unknown").to_owned();
            Ok(format!("@{} in {}", word("user"), word("team")))
        })
    }
}

/// A response of the Web API.
struct Answer {
    status: u16,
    retry_after: Option<u64>,
    /// The permissions of the token, separated by commas.
    scopes: Option<String>,
    body: Value,
}

async fn answered(request: reqwest::RequestBuilder) -> Result<Answer, CallError> {
    let response = request.send().await.map_err(http::lost)?;
    let header = |name: &str| response.headers().get(name)?.to_str().ok();
    let retry_after = header("retry-after").and_then(|it| it.parse().ok());
    let scopes = header("x-oauth-scopes").map(ToOwned::to_owned);
    let status = response.status().as_u16();
    let body = http::answer(response).await?;
    let body = serde_json::from_slice(&body).unwrap_or_default();
    Ok(Answer { status, retry_after, scopes, body })
}

impl Answer {
    fn result(&self) -> CallResult {
        wire::result(self.status, self.retry_after, &self.body)
    }

    fn checked(self) -> Result<Value, CallError> {
        self.result().map(|_| self.body)
    }
}

#[derive(Clone)]
struct Webhook {
    instance: Instance,
    secret: Arc<str>,
}

async fn take(State(webhook): State<Webhook>, headers: HeaderMap, body: Bytes) -> Response {
    let header = |name: &str| headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let now = webhook.instance.now().0 / 1000;
    let at = header("x-slack-request-timestamp");
    if !is_signed(&webhook.secret, at, now, header("x-slack-signature"), &body) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let payload = if header("content-type").starts_with("application/x-www-form-urlencoded") {
        payload_of_form(&body)
    } else {
        serde_json::from_slice::<Value>(&body).ok()
    };
    let Some(payload) = payload else { return StatusCode::BAD_REQUEST.into_response() };
    if payload["type"] == "url_verification" {
        return payload["challenge"].as_str().unwrap_or_default().to_owned().into_response();
    }
    match event::read(&payload) {
        Some(incoming) => http::take(&webhook.instance, incoming).await.into_response(),
        None => StatusCode::OK.into_response(),
    }
}

/// Whether a request has a recent and valid signature: `v0=` and the HMAC of the version, the time
/// and the body.
fn is_signed(secret: &str, at: &str, now: u64, shown: &str, body: &[u8]) -> bool {
    let Ok(seconds) = at.parse::<u64>() else { return false };
    let Some(shown) = shown.strip_prefix("v0=") else { return false };
    seconds.abs_diff(now) <= REPLAY_WINDOW.as_secs()
        && http::is_hmac(secret, &[b"v0:", at.as_bytes(), b":", body], shown)
}

/// The payload of a press, which is a form field.
fn payload_of_form(body: &[u8]) -> Option<Value> {
    let url = reqwest::Url::parse(&format!("form:?{}", std::str::from_utf8(body).ok()?)).ok()?;
    let payload = url.query_pairs().find(|(key, _)| key == "payload")?.1;
    serde_json::from_str(&payload).ok()
}
