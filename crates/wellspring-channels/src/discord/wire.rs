//! Discord's HTTP API: calls as requests, responses as results. Pure.

use std::time::Duration;

use serde_json::{Value, json};

use crate::channel::{Action, Body, Call, CallError, CallResult, Capabilities, Done, Limit, Rates};
use crate::markup::Markup;

/// Maximum number of buttons per row, and of rows per message.
const ROW_MAX: usize = 5;

/// Maximum length of a button's label.
const LABEL_CHARS_MAX: usize = 80;

/// The flag that suppresses link previews.
const SUPPRESS_EMBEDS: u32 = 1 << 2;

/// Discord's capabilities.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    can_stream_response: true,
    can_edit: true,
    can_delete: true,
    can_buttons: true,
    // Discord shows it for ten seconds.
    typing: Some(Duration::from_secs(9)),
    text_max: 2000,
    counts_markup: true,
    knows_repeats: true,
    markups: &[Markup::Discord, Markup::Plain],
    rates: Rates {
        // Discord does not document its buckets. One call per second has never exceeded them, and
        // response headers report an empty bucket.
        chat_interval: Duration::from_secs(1),
        direct_preview: Duration::from_millis(1200),
        group_preview: Duration::from_millis(1500),
        group_calls: 60,
        group_window: Duration::from_secs(60),
        // Discord allows 50.
        overall_per_second: 45,
        per_minute: &[],
    },
    command: '!',
    ..Capabilities::DEFAULT
};

/// A request: the method, the path below the API, and the body; null if there is no body.
pub(crate) type Request = (&'static str, String, Value);

/// The request of a call without a file.
pub(crate) fn request(call: &Call) -> Request {
    let messages = format!("/channels/{}/messages", call.chat);
    match &call.action {
        Action::Send { reply_to, body, markup, nonce, .. } => {
            let mut params = text(body, *markup);
            params["flags"] = SUPPRESS_EMBEDS.into();
            // For the same nonce, Discord returns the existing message.
            params["nonce"] = nonce.to_string().into();
            params["enforce_nonce"] = true.into();
            if let Some(message) = reply_to {
                params["message_reference"] =
                    json!({ "message_id": message, "fail_if_not_exists": false });
            }
            ("POST", messages, params)
        }
        Action::Edit { message, body, markup, .. } => {
            ("PATCH", format!("{messages}/{message}"), text(body, *markup))
        }
        Action::Delete { message } => ("DELETE", format!("{messages}/{message}"), Value::Null),
        Action::Typing => ("POST", format!("/channels/{}/typing", call.chat), Value::Null),
        // Discord has neither drafts nor streams: it responds that the path does not exist.
        Action::Draft { .. }
        | Action::Begin { .. }
        | Action::Append { .. }
        | Action::End { .. } => ("POST", format!("{messages}/streams"), Value::Null),
    }
}

fn text(body: &Body, markup: usize) -> Value {
    // An edit with an empty list of rows removes the buttons.
    json!({
        "content": body.text(markup), "components": rows(body),
        // Mentions in model output notify nobody.
        "allowed_mentions": {"parse": []},
    })
}

fn rows(body: &Body) -> Value {
    let buttons: Vec<Value> = body.buttons.iter().flatten().map(button).collect();
    let fits = body.buttons.len() <= ROW_MAX && body.buttons.iter().all(|it| it.len() <= ROW_MAX);
    let rows: Vec<Vec<Value>> = if fits {
        body.buttons.iter().map(|row| row.iter().map(button).collect()).collect()
    } else {
        buttons.chunks(ROW_MAX).take(ROW_MAX).map(<[Value]>::to_vec).collect()
    };
    rows.into_iter().map(|row| json!({"type": 1, "components": row})).collect()
}

fn button(button: &crate::channel::Button) -> Value {
    let label: String = button.label.chars().take(LABEL_CHARS_MAX).collect();
    json!({"type": 2, "style": 2, "label": label, "custom_id": button.data})
}

/// The rate limits in the headers of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Headers {
    /// The number of calls left in the bucket.
    pub(crate) remaining: Option<u64>,
    /// Seconds until the bucket is full again.
    pub(crate) reset_after: Option<f64>,
    /// Seconds to wait, in a rejection.
    pub(crate) retry_after: Option<f64>,
}

impl Headers {
    /// Reads them; `header` returns the value of a header.
    pub(crate) fn read<'a>(header: impl Fn(&str) -> Option<&'a str>) -> Self {
        let seconds = |name: &str| header(name)?.parse().ok();
        Self {
            remaining: header("x-ratelimit-remaining").and_then(|it| it.parse().ok()),
            reset_after: seconds("x-ratelimit-reset-after"),
            retry_after: seconds("retry-after"),
        }
    }
}

/// The result of a response. `sent` is the text of the request.
pub(crate) fn result(status: u16, headers: Headers, answer: &Value, sent: &Value) -> CallResult {
    if !(200..300).contains(&status) {
        return Err(error(status, headers, answer));
    }
    let text = |value: &Value| value["content"].as_str().unwrap_or_default().trim().to_owned();
    let is_empty = headers.remaining == Some(0);
    Ok(Done {
        message: answer["id"].as_str().map(Into::into),
        is_repeat: sent["nonce"].is_string() && text(answer) != text(sent),
        wait: headers.reset_after.filter(|_| is_empty).and_then(duration),
    })
}

/// Converts seconds, rounded up so that the wait is never too short.
fn duration(seconds: f64) -> Option<Duration> {
    let wait = Duration::try_from_secs_f64(seconds).ok()?;
    Some(Duration::from_millis(u64::try_from(wait.as_millis()).ok()? + 1))
}

/// The reason why Discord rejected a request, by its error codes.
pub(crate) fn error(status: u16, headers: Headers, answer: &Value) -> CallError {
    let what = answer["message"].as_str().unwrap_or("no message");
    let detail = answer.get("errors").map(|it| format!(": {it}")).unwrap_or_default();
    let what: Box<str> = format!("{what}{detail}").chars().take(200).collect::<String>().into();
    match (answer["code"].as_u64().unwrap_or_default(), status) {
        (_, 429) => {
            let after = answer["retry_after"].as_f64().or(headers.retry_after).and_then(duration);
            // The proxy in front of Discord rejects without a body; its limit is for all calls.
            match after {
                Some(retry_after) if answer["global"] == true || !answer.is_object() => {
                    CallError::BotLimited { retry_after, limit: Limit::Bot }
                }
                retry_after => CallError::RateLimited { retry_after },
            }
        }
        (10008, _) => CallError::MessageGone,
        // An invalid form: the text is too long, or a button is invalid.
        (50035, _) => CallError::BadMarkup(what),
        (10003 | 50001 | 50007 | 50013 | 50278 | 160_005, _) => CallError::ChatGone(what),
        (_, 500..) => CallError::AnswerLost(what),
        (_, _) => CallError::Refused(what),
    }
}
