//! WhatsApp, over Meta's Cloud API: a webhook for messages, one request per call. Messages
//! cannot be edited, so an answer is sent when it is finished.
//!
//! # Lossy
//!
//! Questions are answered with a number instead of a button. Locations, contacts, reactions and
//! stickers are ignored.

mod wire;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use futures::future::BoxFuture;
use reqwest::multipart::Form;
use serde::Deserialize;
use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;
use wellspring_core::MediaSource;

use crate::channel::{Action, Call, CallError, CallResult, Capabilities, Channel, Done, File};
use crate::http;
use crate::instance::Instance;

/// The public Cloud API, with its version.
pub const WHATSAPP_API: &str = "https://graph.facebook.com/v23.0";

/// Maximum size of a notification: Meta's have at most 3 MB.
const NOTIFICATION_BYTES_MAX: usize = 3 * 1024 * 1024;

/// The credentials of a WhatsApp app.
#[derive(Clone)]
pub struct WhatsAppSecrets {
    /// The access token.
    pub token: Arc<str>,
    /// The secret that notifications are signed with.
    pub app_secret: Arc<str>,
    /// The token that Meta sends to verify the webhook.
    pub verify_token: Arc<str>,
}

impl fmt::Debug for WhatsAppSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WhatsAppSecrets(…)")
    }
}

/// A WhatsApp number.
#[derive(Clone, Debug)]
pub struct WhatsApp {
    http: reqwest::Client,
    base: Box<str>,
    number: Box<str>,
    secrets: WhatsAppSecrets,
}

impl WhatsApp {
    /// The number with this id, at [`WHATSAPP_API`] or at another server.
    ///
    /// # Errors
    ///
    /// If TLS is not available.
    pub fn new(
        secrets: WhatsAppSecrets,
        phone_number_id: &str,
        base: Option<&str>,
    ) -> Result<Self, CallError> {
        let http = http::client()?;
        let base = base.unwrap_or(WHATSAPP_API).trim_end_matches('/').into();
        Ok(Self { http, base, number: phone_number_id.into(), secrets })
    }

    /// The routes for notifications, to mount in a server. A notification without a valid
    /// signature is rejected.
    pub fn webhook(&self, instance: Instance, path: &str) -> Router {
        Router::new()
            .route(path, get(verify).post(notified))
            .layer(DefaultBodyLimit::max(NOTIFICATION_BYTES_MAX))
            .with_state(Webhook { instance, secrets: self.secrets.clone() })
    }

    async fn answered(&self, request: reqwest::RequestBuilder) -> Result<Value, CallError> {
        let request = request.bearer_auth(&*self.secrets.token);
        let response = request.send().await.map_err(http::lost)?;
        let status = response.status();
        let body = http::answer(response).await?;
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        if status.is_success() { Ok(answer) } else { Err(wire::error(status.as_u16(), &answer)) }
    }

    async fn send(&self, message: &Value) -> CallResult {
        let url = format!("{}/{}/messages", self.base, self.number);
        let request = self.http.post(url).header("content-type", "application/json");
        let answer = self.answered(request.body(message.to_string())).await?;
        Ok(Done::new(answer["messages"][0]["id"].as_str().map(Into::into)))
    }

    /// A file as messages refer to it: by URL, or by its id after an upload.
    async fn uploaded(&self, file: &File) -> Result<Value, CallError> {
        let data = match &file.source {
            MediaSource::Url(url) => return Ok(json!({ "link": url })),
            MediaSource::Data(data) => data,
        };
        let part = http::part(file, data)?;
        let form = Form::new()
            .text("messaging_product", "whatsapp")
            .text("type", file.media_type.to_string())
            .part("file", part);
        let url = format!("{}/{}/media", self.base, self.number);
        // Nothing was sent to the person yet, so the upload can be repeated.
        let answer = self.answered(self.http.post(url).multipart(form)).await;
        let answer = answer.map_err(CallError::shows_nothing)?;
        Ok(json!({ "id": answer["id"] }))
    }
}

impl Channel for WhatsApp {
    fn network(&self) -> &'static str {
        "whatsapp"
    }

    fn capabilities(&self) -> &Capabilities {
        &wire::CAPABILITIES
    }

    fn call(&self, call: Call) -> BoxFuture<'_, CallResult> {
        Box::pin(async move {
            match &call.action {
                Action::Send { body, reply_to, markup, .. } => {
                    let message = match &body.file {
                        Some(file) => {
                            let media = self.uploaded(file).await?;
                            wire::file_message(&call.chat, file, media)
                        }
                        None => wire::message(&call.chat, reply_to.as_deref(), body.text(*markup)),
                    };
                    self.send(&message).await
                }
                Action::Edit { .. }
                | Action::Draft { .. }
                | Action::Begin { .. }
                | Action::Append { .. }
                | Action::End { .. }
                | Action::Delete { .. }
                | Action::Typing => Err(CallError::Refused("WhatsApp only sends".into())),
            }
        })
    }

    fn download(&self, file: &str, bytes_max: usize) -> BoxFuture<'_, Result<Bytes, CallError>> {
        let url = format!("{}/{file}", self.base);
        Box::pin(async move {
            let found = self.answered(self.http.get(url)).await?;
            if found["file_size"].as_u64().is_some_and(|size| size > bytes_max as u64) {
                return Err(http::too_large(bytes_max));
            }
            let url = found["url"].as_str().unwrap_or_default();
            http::at_network(url, &self.base, &["fbsbx.com", "facebook.com", "whatsapp.net"])?;
            http::download(self.http.get(url).bearer_auth(&*self.secrets.token), bytes_max).await
        })
    }

    fn check(&self) -> BoxFuture<'_, Result<String, CallError>> {
        let fields = "display_phone_number,verified_name,webhook_configuration";
        let url = format!("{}/{}?fields={fields}", self.base, self.number);
        Box::pin(async move { wire::checked(&self.answered(self.http.get(url)).await?) })
    }
}

#[derive(Clone)]
struct Webhook {
    instance: Instance,
    secrets: WhatsAppSecrets,
}

#[derive(Deserialize)]
struct Verify {
    #[serde(rename = "hub.mode", default)]
    mode: String,
    #[serde(rename = "hub.verify_token", default)]
    token: String,
    #[serde(rename = "hub.challenge", default)]
    challenge: String,
}

/// Responds to Meta's verification of the webhook.
async fn verify(
    State(webhook): State<Webhook>,
    Query(asked): Query<Verify>,
) -> Result<String, StatusCode> {
    let known = &webhook.secrets.verify_token;
    let is_known = !known.is_empty() && bool::from(asked.token.as_bytes().ct_eq(known.as_bytes()));
    if asked.mode == "subscribe" && is_known {
        Ok(asked.challenge)
    } else {
        Err(StatusCode::FORBIDDEN)
    }
}

async fn notified(State(webhook): State<Webhook>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let shown = headers.get("x-hub-signature-256").and_then(|it| it.to_str().ok());
    if !is_signed(&webhook.secrets.app_secret, shown.unwrap_or_default(), &body) {
        return StatusCode::UNAUTHORIZED;
    }
    let Ok(notification) = serde_json::from_slice::<Value>(&body) else {
        return StatusCode::BAD_REQUEST;
    };
    for incoming in wire::read(&notification) {
        let status = http::take(&webhook.instance, incoming).await;
        if !status.is_success() {
            return status;
        }
    }
    StatusCode::OK
}

/// Whether a body was signed with the secret. `shown` is `sha256=` and the HMAC in hexadecimal.
fn is_signed(secret: &str, shown: &str, body: &[u8]) -> bool {
    shown.strip_prefix("sha256=").is_some_and(|shown| http::is_hmac(secret, &[body], shown))
}
