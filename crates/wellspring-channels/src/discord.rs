//! Discord, over its HTTP API. Messages arrive over the gateway, and button presses over the
//! gateway or a webhook. Each call is one request, and an answer grows by edits.
//!
//! # Lossy
//!
//! In a server, the bot reads only messages that mention it or reply to it. Discord reports a
//! person's language with button presses, not with messages. Commands begin with `!`, because
//! Discord reserves `/`.

pub(crate) mod event;
mod gateway;
mod session;
pub(crate) mod wire;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use tests::introductions;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use futures::future::BoxFuture;
use reqwest::multipart::Form;
use serde_json::{Value, json};
use wellspring_core::MediaSource;

use crate::channel::{Action, Call, CallError, CallResult, Capabilities, Channel, File};
use crate::http;
use crate::instance::Instance;

/// The public API, with its version.
pub const DISCORD_API: &str = "https://discord.com/api/v10";

/// Discord requires a user agent of this form.
const USER_AGENT: &str = concat!(
    "DiscordBot (https://github.com/wellspring-rs/wellspring, ",
    env!("CARGO_PKG_VERSION"),
    ")"
);

/// Maximum age of a signed request, and the maximum by which its clock may be ahead.
const REPLAY_WINDOW: Duration = Duration::from_secs(5 * 60);

/// Maximum size of an interaction: Discord's have some kilobytes.
const INTERACTION_BYTES_MAX: usize = 1024 * 1024;

/// The flag of a message that only one person sees.
const EPHEMERAL: u32 = 1 << 6;

/// A Discord bot.
#[derive(Clone)]
pub struct Discord {
    http: reqwest::Client,
    base: Box<str>,
    token: Arc<str>,
    public_key: Option<Arc<[u8]>>,
}

impl fmt::Debug for Discord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discord").field("base", &self.base).finish_non_exhaustive()
    }
}

impl Discord {
    /// A bot with this token, at [`DISCORD_API`] or at another server. If the application's public
    /// key is given, in hexadecimal, the bot accepts button presses at a webhook.
    ///
    /// # Errors
    ///
    /// If TLS is not available, or the key is invalid.
    pub fn new(
        token: &str,
        public_key: Option<&str>,
        base: Option<&str>,
    ) -> Result<Self, CallError> {
        let key = |text: &str| {
            let bytes = http::unhex(text).filter(|bytes| bytes.len() == 32);
            bytes.ok_or_else(|| {
                CallError::Refused("public_key has to be 64 hexadecimal digits".into())
            })
        };
        let public_key = public_key.map(key).transpose()?.map(Into::into);
        let base = base.unwrap_or(DISCORD_API).trim_end_matches('/').into();
        Ok(Self { http: http::client()?, base, token: token.into(), public_key })
    }

    /// Whether the webhook accepts button presses.
    #[must_use]
    pub const fn has_webhook(&self) -> bool {
        self.public_key.is_some()
    }

    /// The route for button presses, to mount in a server. A request whose signature is invalid or
    /// too old is rejected. Without a public key, every request is rejected.
    pub fn webhook(&self, instance: Instance, path: &str) -> Router {
        Router::new()
            .route(path, post(take))
            .layer(DefaultBodyLimit::max(INTERACTION_BYTES_MAX))
            .with_state(Webhook { instance, public_key: self.public_key.clone() })
    }

    fn request(&self, method: &str, path: &str) -> Result<reqwest::RequestBuilder, CallError> {
        let method = method.parse().map_err(|_| CallError::Refused("not a method".into()))?;
        let request = self.http.request(method, format!("{}{path}", self.base));
        let token = format!("Bot {}", self.token);
        Ok(request.header("authorization", token).header("user-agent", USER_AGENT))
    }

    async fn answered(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<(u16, wire::Headers, Value), CallError> {
        let response = request.send().await.map_err(http::lost)?;
        let status = response.status().as_u16();
        let headers = response.headers();
        let headers = wire::Headers::read(|name| headers.get(name)?.to_str().ok());
        let body = http::answer(response).await?;
        Ok((status, headers, serde_json::from_slice(&body).unwrap_or_default()))
    }

    async fn raw(
        &self,
        method: &str,
        path: &str,
        params: &Value,
    ) -> Result<(u16, wire::Headers, Value), CallError> {
        let mut request = self.request(method, path)?;
        if !params.is_null() {
            request = request.header("content-type", "application/json").body(params.to_string());
        }
        self.answered(request).await
    }

    async fn asked(&self, method: &str, path: &str, params: &Value) -> Result<Value, CallError> {
        let (status, headers, answer) = self.raw(method, path, params).await?;
        if (200..300).contains(&status) {
            return Ok(answer);
        }
        Err(wire::error(status, headers, &answer))
    }

    async fn send_file(&self, call: &Call, file: &File) -> CallResult {
        let (method, path, mut params) = wire::request(call);
        let (status, headers, answer) = match &file.source {
            MediaSource::Url(url) => {
                params["content"] = format!("{}: {url}", file.name).into();
                self.raw(method, &path, &params).await?
            }
            MediaSource::Data(data) => {
                let part = http::part(file, data)?;
                let form = Form::new().text("payload_json", params.to_string());
                let request = self.request(method, &path)?;
                self.answered(request.multipart(form.part("files[0]", part))).await?
            }
        };
        wire::result(status, headers, &answer, &params)
    }
}

impl Channel for Discord {
    fn network(&self) -> &'static str {
        "discord"
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
            let (method, path, params) = wire::request(&call);
            let (status, headers, answer) = self.raw(method, &path, &params).await?;
            wire::result(status, headers, &answer, &params)
        })
    }

    fn download(&self, file: &str, bytes_max: usize) -> BoxFuture<'_, Result<Bytes, CallError>> {
        let request = self.http.get(file).header("user-agent", USER_AGENT);
        let is_at = http::at_network(file, &self.base, &["discordapp.com", "discordapp.net"]);
        Box::pin(async move {
            is_at?;
            http::download(request, bytes_max).await
        })
    }

    fn acknowledge(&self, press: &str, text: &str) -> BoxFuture<'_, Result<(), CallError>> {
        let path = format!("/interactions/{press}/callback");
        let data = json!({"content": text, "flags": EPHEMERAL, "allowed_mentions": {"parse": []}});
        let params = json!({"type": 4, "data": data});
        Box::pin(async move { self.asked("POST", &path, &params).await.map(drop) })
    }

    fn check(&self) -> BoxFuture<'_, Result<String, CallError>> {
        Box::pin(async move {
            let me = self.asked("GET", "/users/@me", &Value::Null).await?;
            if let Some(key) = &self.public_key {
                let application = self.asked("GET", "/applications/@me", &Value::Null).await?;
                let theirs = application["verify_key"].as_str().and_then(http::unhex);
                if theirs.as_deref() != Some(&**key) {
                    let what = "public_key is not the one of the application";
                    return Err(CallError::Refused(what.into()));
                }
            }
            Ok(format!("@{}", me["username"].as_str().unwrap_or("unknown")))
        })
    }
}

#[derive(Clone)]
struct Webhook {
    instance: Instance,
    public_key: Option<Arc<[u8]>>,
}

async fn take(State(webhook): State<Webhook>, headers: HeaderMap, body: Bytes) -> Response {
    let header = |name: &str| headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default();
    let (at, signature) = (header("x-signature-timestamp"), header("x-signature-ed25519"));
    let now = webhook.instance.now().0 / 1000;
    let key = webhook.public_key.as_deref().unwrap_or_default();
    if !is_signed(key, at, now, signature, &body) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let Ok(interaction) = serde_json::from_slice::<Value>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    // Discord verifies the endpoint, and that it checks signatures.
    if interaction["type"] == 1 {
        let pong = json!({ "type": 1 }).to_string();
        return ([("content-type", "application/json")], pong).into_response();
    }
    match event::interaction(&interaction) {
        // The response to the press is sent as a separate request, so none is needed here.
        Some(incoming) => match http::take(&webhook.instance, incoming).await {
            StatusCode::OK => StatusCode::ACCEPTED.into_response(),
            status => status.into_response(),
        },
        None => StatusCode::BAD_REQUEST.into_response(),
    }
}

/// Whether a request has a recent and valid Ed25519 signature of its time and body by the
/// application's key.
fn is_signed(key: &[u8], at: &str, now: u64, signature: &str, body: &[u8]) -> bool {
    let Ok(seconds) = at.parse::<u64>() else { return false };
    let Some(signature) = http::unhex(signature) else { return false };
    let signed = [at.as_bytes(), body].concat();
    seconds.abs_diff(now) <= REPLAY_WINDOW.as_secs()
        && UnparsedPublicKey::new(&ED25519, key).verify(&signed, &signature).is_ok()
}
