//! Slack's Web API: calls as requests, responses as results. Pure.

use std::time::Duration;

use serde_json::{Value, json};

use crate::channel::{
    Action, Body, Call, CallError, CallResult, Capabilities, Done, Growth, Limit, Rates,
};
use crate::markup::Markup;

/// Maximum length of a task card's field.
const TASK_CHARS_MAX: usize = 250;

/// Maximum length of a section in a message with buttons.
const SECTION_CHARS_MAX: usize = 2900;

/// Maximum number of buttons per row.
const ROW_MAX: usize = 25;

/// The id of the card with the thoughts, above the text of a stream.
const THOUGHTS_CARD: &str = "thoughts";
const TOOL_CARD: &str = "tool";

/// Slack's capabilities. A chat is a thread; the threads of a channel share its rate limit.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    can_stream_response: true,
    can_edit: true,
    can_append: true,
    stream_max: 12_000,
    can_delete: true,
    can_buttons: true,
    // Slack shows the status for two minutes.
    typing: Some(Duration::from_secs(90)),
    // Slack accepts 4,000 characters in an edit, including entities.
    text_max: 4000,
    counts_markup: true,
    markups: &[Markup::Slack, Markup::Plain],
    rates: Rates {
        chat_interval: Duration::from_secs(1),
        direct_preview: Duration::from_secs(1),
        group_preview: Duration::from_secs(2),
        group_calls: 60,
        group_window: Duration::from_secs(60),
        overall_per_second: 30,
        // The tiers of Slack's methods, per workspace.
        per_minute: &[("begin", 20), ("append", 100), ("end", 20), ("edit", 50), ("delete", 50)],
    },
    room_end: Some('/'),
    command: '!',
    ..Capabilities::DEFAULT
};

/// The id of a chat: a thread of a channel.
pub(crate) fn chat(channel: &str, thread: &str) -> Box<str> {
    format!("{channel}/{thread}").into()
}

/// The channel and the thread of a chat.
pub(crate) fn place(chat: &str) -> (&str, Option<&str>) {
    chat.split_once('/').map_or((chat, None), |(channel, thread)| (channel, Some(thread)))
}

/// The id of a person's message, with the user and the team that a stream requires.
pub(crate) fn message(ts: &str, user: &str, team: &str) -> Box<str> {
    format!("{ts}/{user}/{team}").into()
}

/// The method and the arguments of a call without a file.
pub(crate) fn request(call: &Call) -> (&'static str, Value) {
    let (channel, thread) = place(&call.chat);
    let mut params = json!({ "channel": channel });
    let in_thread = |params: &mut Value| {
        if let Some(thread) = thread {
            params["thread_ts"] = thread.into();
        }
    };
    match &call.action {
        Action::Send { body, markup, .. } => {
            in_thread(&mut params);
            text(body, *markup, &mut params);
            params["unfurl_links"] = false.into();
            params["unfurl_media"] = false.into();
            ("chat.postMessage", params)
        }
        Action::Edit { message, body, markup, .. } => {
            params["ts"] = (**message).into();
            text(body, *markup, &mut params);
            // An edit without these fields would keep the buttons and the streamed content.
            if body.buttons.is_empty() {
                params["blocks"] = json!([]);
            }
            ("chat.update", params)
        }
        Action::Begin { reply_to, growth } => {
            in_thread(&mut params);
            let mut asker = reply_to.as_deref().unwrap_or_default().split('/').skip(1);
            for key in ["recipient_user_id", "recipient_team_id"] {
                if let Some(id) = asker.next().filter(|id| !id.is_empty()) {
                    params[key] = id.into();
                }
            }
            params["task_display_mode"] = "timeline".into();
            params["chunks"] = chunks(growth);
            ("chat.startStream", params)
        }
        Action::Append { message, growth } => {
            params["ts"] = (**message).into();
            params["chunks"] = chunks(growth);
            ("chat.appendStream", params)
        }
        Action::End { message, growth } => {
            params["ts"] = (**message).into();
            if growth.before != growth.after {
                params["chunks"] = chunks(growth);
            }
            ("chat.stopStream", params)
        }
        Action::Delete { message } => {
            params["ts"] = (**message).into();
            ("chat.delete", params)
        }
        Action::Typing => (
            "assistant.threads.setStatus",
            json!({
                "channel_id": channel, "thread_ts": thread.unwrap_or_default(),
                "status": "is thinking…",
            }),
        ),
        // Slack has no drafts: it responds that the method is unknown.
        Action::Draft { .. } => ("chat.draft", params),
    }
}

/// The new content of a stream: cards for the thoughts and the tool, then text.
fn chunks(growth: &Growth) -> Value {
    let (before, after) = (&growth.before, &growth.after);
    let mut chunks = Vec::new();
    let thoughts = &after.thoughts[before.thoughts.len().min(after.thoughts.len())..];
    let status = if after.is_thinking { "in_progress" } else { "complete" };
    let title = if after.title.is_empty() { &before.title } else { &after.title };
    if !title.is_empty()
        && (before.title != after.title
            || before.is_thinking != after.is_thinking
            || !thoughts.is_empty())
    {
        let card = |details: &str| {
            let mut card = task(THOUGHTS_CARD, title, status);
            if !details.is_empty() {
                // Slack appends to details, and replaces the title and the status.
                card["details"] = details.into();
            }
            card
        };
        let letters: Vec<char> = thoughts.chars().collect();
        let mut pieces = letters.chunks(TASK_CHARS_MAX).map(|it| it.iter().collect::<String>());
        chunks.push(card(&pieces.next().unwrap_or_default()));
        chunks.extend(pieces.map(|piece| card(&piece)));
    }
    if before.tool != after.tool {
        match (&after.tool, &before.tool) {
            (Some(tool), _) => chunks.push(task(TOOL_CARD, tool, "in_progress")),
            (None, Some(tool)) => chunks.push(task(TOOL_CARD, tool, "complete")),
            (None, None) => {}
        }
    }
    let words = harmless(&after.words);
    let shown = harmless(&before.words);
    let words = words.strip_prefix(&shown).unwrap_or_default();
    if !words.is_empty() {
        chunks.push(json!({ "type": "markdown_text", "text": words }));
    }
    chunks.into()
}

fn task(id: &str, title: &str, status: &str) -> Value {
    let title: String = title.chars().take(TASK_CHARS_MAX).collect();
    json!({ "type": "task_update", "id": id, "title": title, "status": status })
}

/// Removes mentions: model output must not notify a whole channel.
fn harmless(words: &str) -> String {
    words.replace("<!", "<\u{200b}!")
}

fn text(body: &Body, markup: usize, params: &mut Value) {
    let is_marked = CAPABILITIES.markups.get(markup) == Some(&Markup::Slack);
    let text = body.text(markup);
    let text = if is_marked { text.to_owned() } else { escape(text) };
    if !body.buttons.is_empty() {
        let kind = if is_marked { "mrkdwn" } else { "plain_text" };
        let section =
            |text: String| json!({"type": "section", "text": {"type": kind, "text": text}});
        let sections = pieces(&text, SECTION_CHARS_MAX).into_iter().map(section);
        let buttons: Vec<_> = body.buttons.iter().flatten().enumerate().map(button).collect();
        let rows = buttons.chunks(ROW_MAX).map(|row| json!({"type": "actions", "elements": row}));
        params["blocks"] = sections.chain(rows).collect();
    }
    params["text"] = text.into();
}

fn button((number, button): (usize, &crate::channel::Button)) -> Value {
    json!({
        "type": "button", "action_id": format!("b{number}"), "value": button.data,
        "text": {"type": "plain_text", "text": button.label, "emoji": true},
    })
}

/// Splits a text into pieces of at most `max` characters, at line breaks if possible.
fn pieces(text: &str, max: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for line in text.split_inclusive('\n') {
        let letters: Vec<char> = line.chars().collect();
        for part in letters.chunks(max) {
            let piece = pieces.last().map_or(0, |piece| piece.chars().count());
            if piece + part.len() > max {
                pieces.push(String::new());
            }
            if let Some(piece) = pieces.last_mut() {
                piece.extend(part);
            }
        }
    }
    pieces
}

pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The result of a response of the Web API. `retry_after` is the header's value in seconds.
pub(crate) fn result(status: u16, retry_after: Option<u64>, answer: &Value) -> CallResult {
    if answer["ok"] == true {
        return Ok(Done::new(answer["ts"].as_str().map(Into::into)));
    }
    Err(error(status, retry_after, answer))
}

/// The reason why the Web API rejected a request.
pub(crate) fn error(status: u16, retry_after: Option<u64>, answer: &Value) -> CallError {
    let code = answer["error"].as_str().unwrap_or_default();
    let needed = answer["needed"].as_str().map(|it| format!(" (the app needs the scope {it})"));
    let what: Box<str> = format!(
        "{}{}",
        if code.is_empty() { "no reason" } else { code },
        needed.unwrap_or_default()
    )
    .chars()
    .take(200)
    .collect::<String>()
    .into();
    match (code, status) {
        ("ratelimited" | "rate_limited", _) | (_, 429) => match retry_after {
            Some(seconds) => {
                let retry_after = Duration::from_secs(seconds);
                CallError::BotLimited { retry_after, limit: Limit::Action }
            }
            None => CallError::RateLimited { retry_after: None },
        },
        ("message_not_in_streaming_state", _) => CallError::StreamEnded,
        ("message_not_found", _) => CallError::MessageGone,
        ("msg_too_long" | "invalid_blocks" | "msg_blocks_too_long", _) => {
            CallError::BadMarkup(what)
        }
        (
            "channel_not_found" | "not_in_channel" | "is_archived" | "user_disabled"
            | "user_not_found" | "restricted_action" | "account_inactive" | "thread_not_found",
            _,
        ) => CallError::ChatGone(what),
        ("service_unavailable" | "team_added_to_org", _) => CallError::Unavailable(what),
        // Slack documents that these may have taken effect in part.
        ("internal_error" | "fatal_error" | "request_timeout", _) | (_, 500..) => {
            CallError::AnswerLost(what)
        }
        (_, _) => CallError::Refused(what),
    }
}
