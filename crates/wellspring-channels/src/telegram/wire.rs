//! Telegram's Bot API: calls as requests, responses as results. Pure.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::channel::{Action, Body, Call, CallError, CallResult, Capabilities, Done, Rates};
use crate::markup::Markup;

/// Telegram's capabilities.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    can_stream_response: true,
    can_edit: true,
    can_draft: true,
    can_delete: true,
    can_buttons: true,
    // Telegram shows it for five seconds.
    typing: Some(Duration::from_millis(4500)),
    text_max: 4096,
    markups: &[Markup::TelegramHtml, Markup::TelegramHtmlItalic, Markup::Plain],
    rates: Rates::TELEGRAM,
    ..Capabilities::DEFAULT
};

/// The method and the parameters of a call without a file.
pub(crate) fn request(call: &Call) -> (&'static str, Value) {
    let mut params = Map::new();
    params.insert("chat_id".into(), chat_id(&call.chat));
    match &call.action {
        Action::Send { reply_to, body, markup, .. } => {
            topic(call, &mut params);
            if let Some(message) = reply_to.as_deref().and_then(number) {
                let reply = json!({"message_id": message, "allow_sending_without_reply": true});
                params.insert("reply_parameters".into(), reply);
            }
            text(body, *markup, &mut params);
            ("sendMessage", params.into())
        }
        Action::Edit { message, body, markup, .. } => {
            params.insert("message_id".into(), number(message).into());
            text(body, *markup, &mut params);
            ("editMessageText", params.into())
        }
        Action::Draft { draft, body, markup } => {
            topic(call, &mut params);
            params.insert("draft_id".into(), (*draft).into());
            params.insert("text".into(), body.text(*markup).into());
            parse_mode(*markup, &mut params);
            ("sendMessageDraft", params.into())
        }
        // Telegram has no streams: it responds that the method is unknown.
        Action::Begin { .. } => ("beginStream", params.into()),
        Action::Append { .. } => ("appendStream", params.into()),
        Action::End { .. } => ("endStream", params.into()),
        Action::Delete { message } => {
            params.insert("message_id".into(), number(message).into());
            ("deleteMessage", params.into())
        }
        Action::Typing => {
            topic(call, &mut params);
            params.insert("action".into(), "typing".into());
            ("sendChatAction", params.into())
        }
    }
}

pub(crate) fn chat_id(chat: &str) -> Value {
    number(chat).map_or_else(|| chat.into(), Into::into)
}

fn number(text: &str) -> Option<i64> {
    text.parse().ok()
}

pub(crate) fn topic(call: &Call, params: &mut Map<String, Value>) {
    if let Some(topic) = call.topic.as_deref().and_then(number) {
        params.insert("message_thread_id".into(), topic.into());
    }
}

fn text(body: &Body, markup: usize, params: &mut Map<String, Value>) {
    params.insert("text".into(), body.text(markup).into());
    parse_mode(markup, params);
    params.insert("link_preview_options".into(), json!({"is_disabled": true}));
    // An edit without a keyboard removes it.
    if !body.buttons.is_empty() {
        params.insert("reply_markup".into(), keyboard(body));
    }
}

pub(crate) fn keyboard(body: &Body) -> Value {
    let rows = body.buttons.iter().map(|row| {
        let row = row.iter().map(|it| json!({"text": it.label, "callback_data": it.data}));
        row.collect::<Value>()
    });
    json!({ "inline_keyboard": rows.collect::<Value>() })
}

fn parse_mode(markup: usize, params: &mut Map<String, Value>) {
    let html = [Markup::TelegramHtml, Markup::TelegramHtmlItalic];
    if CAPABILITIES.markups.get(markup).is_some_and(|markup| html.contains(markup)) {
        params.insert("parse_mode".into(), "HTML".into());
    }
}

/// The result of a response of the Bot API.
pub(crate) fn result(answer: &Value) -> CallResult {
    if answer["ok"] == true {
        let id = answer["result"]["message_id"].as_i64();
        return Ok(Done::new(id.map(|id| id.to_string().into())));
    }
    Err(error(answer))
}

/// The reason why the Bot API rejected a request.
pub(crate) fn error(answer: &Value) -> CallError {
    let description = answer["description"].as_str().unwrap_or("no description");
    let lower = description.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|words| lower.contains(words));
    let short: Box<str> = description.chars().take(200).collect::<String>().into();
    match answer["error_code"].as_i64().unwrap_or_default() {
        429 => {
            let after = answer["parameters"]["retry_after"].as_u64();
            CallError::RateLimited { retry_after: after.map(Duration::from_secs) }
        }
        400 if says(&["message is not modified"]) => CallError::NotModified,
        400 if says(&["message to edit not found", "message to delete not found"]) => {
            CallError::MessageGone
        }
        400 if says(&["can't parse entities", "unsupported start tag", "message is too long"]) => {
            CallError::BadMarkup(short)
        }
        400 if says(&["chat not found", "user is deactivated", "peer_id_invalid"]) => {
            CallError::ChatGone(short)
        }
        403 => CallError::ChatGone(short),
        500.. => CallError::Unavailable(short),
        _ => CallError::Refused(short),
    }
}
