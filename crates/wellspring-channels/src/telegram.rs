//! Telegram, over its Bot API: long polling or a webhook for updates, one request per call.
//!
//! # Lossy
//!
//! Only one option of a multiple choice can be selected. Stickers, locations and contacts are
//! ignored.

mod update;
pub(crate) mod wire;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest as _, Request, State};
use axum::http::StatusCode;
use axum::routing::post;
use futures::future::BoxFuture;
use reqwest::multipart::Form;
use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;
use wellspring_core::MediaSource;
use wellspring_log::Expected;

use crate::channel::{Action, Call, CallError, CallResult, Capabilities, Channel, File};
use crate::http;
use crate::instance::Instance;

/// The public Bot API.
pub const TELEGRAM_API: &str = "https://api.telegram.org";

/// How long a request for updates waits, in seconds.
const POLL_SECONDS: u64 = 25;

/// The pause before the next request for updates if there were no updates.
const POLL_AGAIN: Duration = Duration::from_secs(1);

/// Maximum size of an update: Telegram's have a few kilobytes.
const UPDATE_BYTES_MAX: usize = 1024 * 1024;

/// A Telegram bot.
#[derive(Clone)]
pub struct Telegram {
    http: reqwest::Client,
    base: Box<str>,
    token: Arc<str>,
}

impl fmt::Debug for Telegram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telegram").field("base", &self.base).finish_non_exhaustive()
    }
}

impl Telegram {
    /// A bot with this token, at [`TELEGRAM_API`] or at another server of the Bot API.
    ///
    /// # Errors
    ///
    /// If TLS is not available.
    pub fn new(token: &str, base: Option<&str>) -> Result<Self, CallError> {
        let http = http::client()?;
        let base = base.unwrap_or(TELEGRAM_API).trim_end_matches('/').into();
        Ok(Self { http, base, token: token.into() })
    }

    /// Makes a request. Returns the whole response of the Bot API.
    async fn request(&self, method: &str, params: &Value) -> Result<Value, CallError> {
        let url = format!("{}/bot{}/{method}", self.base, self.token);
        let body = params.to_string();
        let request = self.http.post(url).header("content-type", "application/json").body(body);
        self.answered(request).await
    }

    async fn answered(&self, request: reqwest::RequestBuilder) -> Result<Value, CallError> {
        let response = request.send().await.map_err(http::lost)?;
        let status = response.status().as_u16();
        let body = http::answer(response).await?;
        // A proxy may return something else.
        Ok(serde_json::from_slice(&body).unwrap_or_else(|_| {
            json!({"ok": false, "error_code": status, "description": "not an answer of the Bot API"})
        }))
    }

    /// Makes a request and returns its result.
    async fn result(&self, method: &str, params: &Value) -> Result<Value, CallError> {
        let mut answer = self.request(method, params).await?;
        if answer["ok"] == true { Ok(answer["result"].take()) } else { Err(wire::error(&answer)) }
    }

    async fn send_file(&self, call: &Call, file: &File) -> CallResult {
        let is_photo = matches!(&*file.media_type, "image/jpeg" | "image/png" | "image/webp");
        let (method, field) =
            if is_photo { ("sendPhoto", "photo") } else { ("sendDocument", "document") };
        let mut params = serde_json::Map::new();
        wire::topic(call, &mut params);
        let answer = match &file.source {
            MediaSource::Url(url) => {
                params.insert("chat_id".into(), wire::chat_id(&call.chat));
                params.insert(field.into(), (**url).into());
                self.request(method, &params.into()).await?
            }
            MediaSource::Data(data) => {
                let part = http::part(file, data)?;
                let mut form = Form::new().text("chat_id", call.chat.to_string()).part(field, part);
                if let Some(topic) = &call.topic {
                    form = form.text("message_thread_id", topic.to_string());
                }
                let url = format!("{}/bot{}/{method}", self.base, self.token);
                self.answered(self.http.post(url).multipart(form)).await?
            }
        };
        wire::result(&answer)
    }

    /// Polls for updates until the bot stops. Each update is durable before the next one is
    /// requested.
    pub async fn poll(&self, instance: &Instance) {
        let mut offset = match self.position(instance).await {
            Ok(offset) => offset,
            Err(error) => {
                tracing::error!(%error, "failed to read the position of a bot");
                0
            }
        };
        loop {
            let params = json!({
                "offset": offset, "timeout": POLL_SECONDS,
                "allowed_updates": ["message", "callback_query"],
            });
            let updates = tokio::select! {
                updates = self.result("getUpdates", &params) => updates,
                () = instance.stopped() => return,
            };
            let taken = match updates {
                Ok(updates) => {
                    let updates = updates.as_array().cloned().unwrap_or_default();
                    // A server that does not wait must not be polled in a tight loop.
                    let quiet = updates.is_empty();
                    self.take_all(instance, &updates, &mut offset).await && !quiet
                }
                Err(error) => {
                    tracing::warn!(bot = instance.name(), %error, "could not get updates; trying again");
                    false
                }
            };
            if !taken {
                tokio::select! {
                    () = tokio::time::sleep(POLL_AGAIN) => {}
                    () = instance.stopped() => return,
                }
            }
        }
    }

    /// Handles updates in order; `false` if one could not be stored, and must be delivered
    /// again.
    async fn take_all(&self, instance: &Instance, updates: &[Value], offset: &mut i64) -> bool {
        for update in updates {
            if let Some(incoming) = update::read(update)
                && let Err(error) = instance.incoming(incoming).await
            {
                tracing::error!(%error, "an update could not be kept; it will come again");
                return false;
            }
            let id = update["update_id"].as_i64().unwrap_or_default();
            *offset = (*offset).max(id + 1);
        }
        if !updates.is_empty() {
            let position = offset.to_string();
            let documents = &instance.inner.documents;
            let kept = documents.put("updates", Some(&position), Expected::Anything);
            if let Err(error) = kept.await {
                // Updates that are delivered again are recognised.
                tracing::warn!(%error, "failed to keep the position of a bot");
            }
        }
        true
    }

    async fn position(&self, instance: &Instance) -> Result<i64, wellspring_engine::ControlError> {
        let document = instance.inner.documents.get("updates").await?;
        Ok(document.and_then(|it| it.text.parse().ok()).unwrap_or_default())
    }

    /// Removes a webhook: Telegram delivers updates either by webhook or by polling.
    ///
    /// # Errors
    ///
    /// If Telegram rejects the request or cannot be reached.
    pub async fn use_polling(&self) -> Result<(), CallError> {
        self.result("deleteWebhook", &json!({})).await.map(drop)
    }

    /// Sets the webhook's URL, and the secret that Telegram must send.
    ///
    /// # Errors
    ///
    /// If Telegram rejects the request or cannot be reached.
    pub async fn use_webhook(&self, url: &str, secret: &str) -> Result<(), CallError> {
        let params = json!({
            "url": url, "secret_token": secret, "allowed_updates": ["message", "callback_query"],
        });
        self.result("setWebhook", &params).await.map(drop)
    }

    /// The route for updates, to mount in a server. A request without the secret is rejected.
    pub fn webhook(instance: Instance, path: &str, secret: &str) -> Router {
        Router::new()
            .route(path, post(take_update))
            .layer(DefaultBodyLimit::max(UPDATE_BYTES_MAX))
            .with_state(Webhook { instance, secret: secret.into() })
    }
}

#[derive(Clone)]
struct Webhook {
    instance: Instance,
    secret: Arc<str>,
}

async fn take_update(State(webhook): State<Webhook>, request: Request) -> StatusCode {
    // Checked before anything is read: everyone can send a request here.
    let shown = request.headers().get("x-telegram-bot-api-secret-token");
    let shown = shown.map(|it| it.as_bytes()).unwrap_or_default();
    if webhook.secret.is_empty() || !bool::from(shown.ct_eq(webhook.secret.as_bytes())) {
        return StatusCode::UNAUTHORIZED;
    }
    let body = match Bytes::from_request(request, &()).await {
        Ok(body) => body,
        Err(error) => return error.status(),
    };
    let Ok(update) = serde_json::from_slice::<Value>(&body) else {
        return StatusCode::BAD_REQUEST;
    };
    let Some(incoming) = update::read(&update) else { return StatusCode::OK };
    http::take(&webhook.instance, incoming).await
}

impl Channel for Telegram {
    fn network(&self) -> &'static str {
        "telegram"
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
            wire::result(&self.request(method, &params).await?)
        })
    }

    fn download(&self, file: &str, bytes_max: usize) -> BoxFuture<'_, Result<Bytes, CallError>> {
        let params = json!({ "file_id": file });
        Box::pin(async move {
            let found = self.result("getFile", &params).await?;
            if found["file_size"].as_u64().is_some_and(|size| size > bytes_max as u64) {
                return Err(http::too_large(bytes_max));
            }
            let path = found["file_path"].as_str().unwrap_or_default();
            let url = format!("{}/file/bot{}/{path}", self.base, self.token);
            http::download(self.http.get(url), bytes_max).await
        })
    }

    fn acknowledge(&self, press: &str, text: &str) -> BoxFuture<'_, Result<(), CallError>> {
        let params = json!({ "callback_query_id": press, "text": text });
        Box::pin(async move { self.result("answerCallbackQuery", &params).await.map(drop) })
    }

    fn check(&self) -> BoxFuture<'_, Result<String, CallError>> {
        Box::pin(async move {
            let me = self.result("getMe", &json!({})).await?;
            // Other implementations of the Bot API may not have this method.
            let webhook = self.result("getWebhookInfo", &json!({})).await.unwrap_or_default();
            let failing = webhook["last_error_message"].as_str();
            if let (Some(url), Some(error)) = (webhook["url"].as_str(), failing)
                && !url.is_empty()
            {
                let what = format!("updates cannot be delivered to {url}: {error}");
                return Err(CallError::Refused(what.chars().take(300).collect()));
            }
            let name = me["username"].as_str().unwrap_or("unknown");
            let groups = match me["can_read_all_group_messages"].as_bool() {
                Some(false) => ", which sees only commands and replies in groups",
                Some(true) | None => "",
            };
            Ok(format!("@{name}{groups}"))
        })
    }
}
