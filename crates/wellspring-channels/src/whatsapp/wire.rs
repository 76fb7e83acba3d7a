//! The Cloud API's requests and responses. Pure.

use std::time::Duration;

use serde_json::{Value, json};

use crate::channel::{CallError, Capabilities, ChatKind, File, Rates};
use crate::incoming::{Incoming, IncomingFile, User, What};
use crate::markup::Markup;

/// WhatsApp's capabilities.
pub(super) const CAPABILITIES: Capabilities = Capabilities {
    text_max: 4096,
    markups: &[Markup::WhatsApp, Markup::Plain],
    rates: Rates {
        chat_interval: Duration::from_secs(1),
        direct_preview: Duration::from_secs(1),
        group_preview: Duration::from_secs(1),
        group_calls: 60,
        group_window: Duration::from_secs(60),
        overall_per_second: 80,
        per_minute: &[],
    },
    ..Capabilities::DEFAULT
};

pub(super) fn message(to: &str, reply_to: Option<&str>, text: &str) -> Value {
    let mut message = json!({
        "messaging_product": "whatsapp", "recipient_type": "individual", "to": to,
        "type": "text", "text": {"preview_url": false, "body": text},
    });
    if let Some(id) = reply_to {
        message["context"] = json!({ "message_id": id });
    }
    message
}

pub(super) fn file_message(to: &str, file: &File, mut media: Value) -> Value {
    let is_image = matches!(&*file.media_type, "image/jpeg" | "image/png");
    let kind = if is_image { "image" } else { "document" };
    if !is_image {
        media["filename"] = json!(file.name);
    }
    let mut message = json!({
        "messaging_product": "whatsapp", "recipient_type": "individual", "to": to, "type": kind,
    });
    message[kind] = media;
    message
}

/// Maps an error response, by Meta's codes.
pub(super) fn error(status: u16, answer: &Value) -> CallError {
    let error = &answer["error"];
    let what = error["message"].as_str().unwrap_or("no message");
    let what: Box<str> = what.chars().take(200).collect::<String>().into();
    match (error["code"].as_i64().unwrap_or_default(), status) {
        (4 | 80007 | 130_429 | 131_048 | 131_056, _) | (_, 429) => {
            CallError::RateLimited { retry_after: None }
        }
        // The person cannot be reached: not on WhatsApp, or silent for a day.
        (131_026 | 131_047 | 131_030, _) => CallError::ChatGone(what),
        (_, 500..) => CallError::Unavailable(what),
        (_, _) => CallError::Refused(what),
    }
}

/// The name of the number, and the URL that its notifications are sent to. Meta reports neither
/// failed deliveries nor which notifications were chosen.
pub(super) fn checked(number: &Value) -> Result<String, CallError> {
    let word = |key: &str| number[key].as_str().unwrap_or("unknown").to_owned();
    // A URL of the number takes precedence over one of its account, and both over the app's.
    let urls = ["phone_number", "whatsapp_business_account", "application"];
    let urls = urls.map(|level| number["webhook_configuration"][level].as_str());
    let Some(url) = urls.into_iter().flatten().find(|url| !url.is_empty()) else {
        let what = "the app has no webhook, so messages cannot be delivered";
        return Err(CallError::Refused(what.into()));
    };
    let (number, name) = (word("display_phone_number"), word("verified_name"));
    Ok(format!("{number} ({name}), whose messages are delivered to {url}"))
}

/// The messages in a notification. Everything else is ignored.
pub(super) fn read(notification: &Value) -> Vec<Incoming> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut all = Vec::new();
    for entry in list(&notification["entry"]) {
        for change in list(&entry["changes"]) {
            let value = &change["value"];
            let name = value["contacts"][0]["profile"]["name"].as_str().unwrap_or_default();
            all.extend(list(&value["messages"]).iter().filter_map(|it| incoming(it, name)));
        }
    }
    all
}

fn incoming(message: &Value, name: &str) -> Option<Incoming> {
    let id: Box<str> = message["id"].as_str()?.into();
    let from: Box<str> = message["from"].as_str()?.into();
    let kind = message["type"].as_str()?;
    let body = &message[kind];
    let (text, files) = match kind {
        "text" => (body["body"].as_str()?, Vec::new()),
        "image" | "document" | "audio" | "video" => {
            let file = IncomingFile {
                id: body["id"].as_str()?.into(),
                media_type: body["mime_type"].as_str().unwrap_or("application/octet-stream").into(),
                name: body["filename"].as_str().map(Into::into),
            };
            (body["caption"].as_str().unwrap_or_default(), vec![file])
        }
        _ => return None,
    };
    Some(Incoming {
        id: id.clone(),
        chat: from.clone(),
        kind: ChatKind::Direct,
        topic: None,
        user: User { id: from, name: name.into(), language: None },
        what: What::Message { message: id, text: text.into(), files },
    })
}
