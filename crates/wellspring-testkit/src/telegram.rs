//! A strict fake of Telegram: it enforces every rule of the Bot API that affects what people
//! see, and keeps a log that [`check_rates`] checks independently of the caller.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};

/// The most UTF-16 units of a message after its entities are parsed.
const TEXT_UNITS_MAX: usize = 4096;

/// The minimum time between calls: to one chat, to a group, and in total.
const CHAT_MILLIS: u64 = 1000;
const GROUP_CALLS: usize = 20;
const GROUP_MILLIS: u64 = 60_000;
const OVERALL_CALLS: usize = 30;

/// A fault of a call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Fault {
    /// 429, with the seconds to wait, if given.
    RateLimited(Option<u64>),
    /// 500, and the call has no effect.
    Failed,
    /// The request never arrives.
    Unreached,
    /// The call takes effect, and the response is lost.
    AnswerLost,
    /// The quote is rejected, as by an old server.
    QuoteRefused,
    /// The message was deleted before it is edited.
    Vanished,
    /// The message cannot be edited.
    NotEditable,
}

/// What the caller receives.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// A response, as JSON.
    Answer(Value),
    /// No response; the request did not arrive.
    Unreached,
    /// No response; the request did arrive.
    Lost,
}

/// A message in a chat.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Shown {
    /// Its id.
    pub id: i64,
    /// The text without markup.
    pub text: String,
    /// The text as it was sent.
    pub raw: String,
    /// The labels and the data of its buttons.
    pub buttons: Vec<(String, String)>,
    /// The message it answers.
    pub reply_to: Option<i64>,
    /// The topic it is in.
    pub topic: Option<i64>,
    /// Whether the caller got the response to its send.
    pub answered: bool,
}

/// A received call.
#[derive(Clone, Debug, PartialEq)]
pub struct Logged {
    /// The time in milliseconds.
    pub at: u64,
    /// The method.
    pub method: String,
    /// The chat.
    pub chat: i64,
    /// The parameters.
    pub params: Value,
    /// The response, or why there was none.
    pub reply: String,
}

/// The state of the fake network.
#[derive(Debug, Default)]
pub struct FakeTelegram {
    chats: BTreeMap<i64, Vec<Shown>>,
    last_id: i64,
    /// The faults of the next calls, in order.
    pub faults: VecDeque<Option<Fault>>,
    /// Every call that arrived.
    pub log: Vec<Logged>,
    /// The end of each chat's `retry_after`.
    waits: BTreeMap<i64, u64>,
}

impl FakeTelegram {
    /// The messages of a chat, as people see them.
    #[must_use]
    pub fn shown(&self, chat: i64) -> &[Shown] {
        self.chats.get(&chat).map_or(&[], Vec::as_slice)
    }

    /// Handles a call of the Bot API at the time `at`.
    pub fn call(&mut self, at: u64, method: &str, params: &Value) -> Reply {
        let fault = self.faults.pop_front().flatten();
        if fault == Some(Fault::Unreached) {
            return Reply::Unreached;
        }
        let chat = params["chat_id"].as_i64().unwrap_or_default();
        let answer = self.answer(at, method, chat, params, fault.as_ref());
        let lost = fault == Some(Fault::AnswerLost);
        let reply = if lost { "lost".into() } else { summary(&answer) };
        let (method, params) = (method.to_owned(), params.clone());
        self.log.push(Logged { at, method, chat, params, reply });
        if lost {
            return Reply::Lost;
        }
        if let Some(id) = answer["result"]["message_id"].as_i64()
            && let Some(shown) = self.find(chat, id)
        {
            shown.answered = true;
        }
        Reply::Answer(answer)
    }

    fn answer(
        &mut self,
        at: u64,
        method: &str,
        chat: i64,
        params: &Value,
        fault: Option<&Fault>,
    ) -> Value {
        if chat == 0 {
            return refused(400, "Bad Request: chat not found");
        }
        match fault {
            Some(Fault::RateLimited(after)) => {
                if let Some(after) = after {
                    self.waits.insert(chat, at + after * 1000);
                }
                let mut answer = refused(429, "Too Many Requests: retry later");
                if let Some(after) = after {
                    answer["parameters"] = json!({ "retry_after": after });
                }
                return answer;
            }
            Some(Fault::Failed) => return refused(500, "Internal Server Error"),
            Some(Fault::QuoteRefused)
                if params["text"].as_str().is_some_and(|it| it.contains("<blockquote")) =>
            {
                return refused(
                    400,
                    "Bad Request: can't parse entities: unsupported start tag \"blockquote\"",
                );
            }
            Some(Fault::NotEditable) if method == "editMessageText" => {
                return refused(400, "Bad Request: message can't be edited");
            }
            Some(Fault::Vanished) if method == "editMessageText" => {
                let id = params["message_id"].as_i64().unwrap_or_default();
                self.remove(chat, id);
            }
            Some(
                Fault::QuoteRefused
                | Fault::NotEditable
                | Fault::Vanished
                | Fault::Unreached
                | Fault::AnswerLost,
            )
            | None => {}
        }
        match method {
            "sendMessage" => self.send(chat, params),
            "editMessageText" => self.edit(chat, params),
            "deleteMessage" => {
                let id = params["message_id"].as_i64().unwrap_or_default();
                if self.remove(chat, id) {
                    json!({"ok": true, "result": true})
                } else {
                    refused(400, "Bad Request: message to delete not found")
                }
            }
            "sendChatAction" if params["action"] == "typing" => json!({"ok": true, "result": true}),
            "sendMessageDraft" => match text(params) {
                Ok(_) if chat < 0 => refused(400, "Bad Request: TEXTDRAFT_PEER_INVALID"),
                Ok(_) if params["draft_id"].as_i64().unwrap_or_default() == 0 => {
                    refused(400, "Bad Request: draft_id is invalid")
                }
                Ok(_) => json!({"ok": true, "result": true}),
                Err(error) => error,
            },
            _ => refused(404, "Not Found"),
        }
    }

    fn send(&mut self, chat: i64, params: &Value) -> Value {
        let (text, raw) = match text(params) {
            Ok(text) => text,
            Err(error) => return error,
        };
        self.last_id += 1;
        let id = self.last_id;
        let shown = Shown {
            id,
            text,
            raw,
            buttons: buttons(params),
            reply_to: params["reply_parameters"]["message_id"].as_i64(),
            topic: params["message_thread_id"].as_i64(),
            answered: false,
        };
        self.chats.entry(chat).or_default().push(shown);
        message(chat, id)
    }

    fn edit(&mut self, chat: i64, params: &Value) -> Value {
        let (text, raw) = match text(params) {
            Ok(text) => text,
            Err(error) => return error,
        };
        let id = params["message_id"].as_i64().unwrap_or_default();
        let Some(shown) = self.find(chat, id) else {
            return refused(400, "Bad Request: message to edit not found");
        };
        let buttons = buttons(params);
        if shown.raw == raw && shown.buttons == buttons {
            return refused(
                400,
                "Bad Request: message is not modified: specified new message content and reply \
                 markup are exactly the same as a current content and reply markup of the message",
            );
        }
        (shown.text, shown.raw, shown.buttons) = (text, raw, buttons);
        message(chat, id)
    }

    fn find(&mut self, chat: i64, id: i64) -> Option<&mut Shown> {
        self.chats.get_mut(&chat)?.iter_mut().find(|shown| shown.id == id)
    }

    fn remove(&mut self, chat: i64, id: i64) -> bool {
        let Some(messages) = self.chats.get_mut(&chat) else { return false };
        let before = messages.len();
        messages.retain(|shown| shown.id != id);
        messages.len() != before
    }
}

/// Checks the network's rate limits against the calls that arrived: one call per second and
/// chat, 20 per minute and group, 30 per second in total, and none during a chat's
/// `retry_after`.
///
/// # Errors
///
/// The first call that exceeds a limit.
pub fn check_rates(log: &[Logged]) -> Result<(), String> {
    let mut log: Vec<&Logged> = log.iter().collect();
    log.sort_by_key(|call| call.at);
    let mut per_chat: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
    let mut waits: BTreeMap<i64, u64> = BTreeMap::new();
    for (index, call) in log.iter().enumerate() {
        let broken =
            |what: &str| Err(format!("{what}: {} at {} to {}", call.method, call.at, call.chat));
        let since = |times: &[u64], millis: u64| {
            times.iter().rev().take_while(|at| call.at - **at < millis).count()
        };
        let times = per_chat.entry(call.chat).or_default();
        if since(times, CHAT_MILLIS) > 0 {
            return broken("more than one call per second to a chat");
        }
        if call.chat < 0 && since(times, GROUP_MILLIS) >= GROUP_CALLS {
            return broken("more than 20 calls per minute to a group");
        }
        times.push(call.at);
        let all = log[..index].iter().rev().take_while(|other| call.at - other.at < 1000).count();
        if all >= OVERALL_CALLS {
            return broken("more than 30 calls per second in all");
        }
        if waits.get(&call.chat).is_some_and(|until| call.at < *until) {
            return broken("before the time that retry_after named");
        }
        if let Some(seconds) = call.reply.strip_prefix("429 ").and_then(|it| it.parse::<u64>().ok())
        {
            waits.insert(call.chat, call.at + seconds * 1000);
        }
    }
    Ok(())
}

/// Checks that a chat's messages, read from top to bottom, show exactly `answer`, which is plain
/// text. Where the text is split into messages does not matter, and thoughts above it are ignored.
/// At most `surplus` additional messages are accepted: sends that were repeated because their
/// responses were lost.
///
/// # Errors
///
/// The text that is shown instead.
pub fn check_answer(shown: &[Shown], answer: &str, surplus: usize) -> Result<(), String> {
    fn reads(messages: &[String], rest: &str, surplus: usize) -> bool {
        let Some((first, others)) = messages.split_first() else { return rest.is_empty() };
        let fits = rest.strip_prefix(first.as_str());
        fits.is_some_and(|rest| reads(others, rest, surplus))
            || surplus > 0 && reads(others, rest, surplus - 1)
    }
    let messages: Vec<String> = shown.iter().map(|shown| letters(&said(shown))).collect();
    if reads(&messages, &letters(answer), surplus) {
        return Ok(());
    }
    Err(format!("{shown:#?}\nis not, with at most {surplus} messages besides:\n{answer}"))
}

/// The visible text of the answer, without the thoughts.
fn said(shown: &Shown) -> String {
    let ends = [("<blockquote expandable><b>", "</blockquote>"), ("<i><b>", "</i>")];
    let without = ends.iter().find_map(|(begin, end)| {
        let thoughts = shown.raw.strip_prefix(begin).filter(|rest| rest.starts_with('🧠'))?;
        thoughts.split_once(end).map(|(_, rest)| rest)
    });
    let html = without.and_then(|html| parse_html(html).ok());
    html.unwrap_or_else(|| shown.text.clone())
}

fn letters(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

fn summary(answer: &Value) -> String {
    match answer["error_code"].as_i64() {
        None => "ok".into(),
        Some(429) => match answer["parameters"]["retry_after"].as_u64() {
            Some(after) => format!("429 {after}"),
            None => "429".into(),
        },
        Some(code) => format!("{code} {}", answer["description"].as_str().unwrap_or_default()),
    }
}

fn message(chat: i64, id: i64) -> Value {
    let kind = if chat < 0 { "supergroup" } else { "private" };
    json!({"ok": true, "result": {"message_id": id, "date": 0, "chat": {"id": chat, "type": kind}}})
}

fn refused(code: i64, description: &str) -> Value {
    json!({"ok": false, "error_code": code, "description": description})
}

fn buttons(params: &Value) -> Vec<(String, String)> {
    let rows = params["reply_markup"]["inline_keyboard"].as_array().into_iter().flatten();
    let buttons = rows.flat_map(|row| row.as_array().into_iter().flatten());
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    buttons.map(|button| (word(&button["text"]), word(&button["callback_data"]))).collect()
}

/// The text without markup, and the text as it was sent.
fn text(params: &Value) -> Result<(String, String), Value> {
    let raw = params["text"].as_str().unwrap_or_default();
    let text = match params["parse_mode"].as_str() {
        Some("HTML") => parse_html(raw)
            .map_err(|what| refused(400, &format!("Bad Request: can't parse entities: {what}")))?,
        Some(_) => return Err(refused(400, "Bad Request: unsupported parse_mode")),
        None => raw.to_owned(),
    };
    if text.trim().is_empty() {
        return Err(refused(400, "Bad Request: message text is empty"));
    }
    if text.encode_utf16().count() > TEXT_UNITS_MAX {
        return Err(refused(400, "Bad Request: message is too long"));
    }
    let rows = params["reply_markup"]["inline_keyboard"].as_array();
    if let Some(rows) = rows {
        let all = rows.iter().flat_map(|row| row.as_array().into_iter().flatten());
        for button in all {
            if button["callback_data"].as_str().is_none_or(|data| data.len() > 64) {
                return Err(refused(400, "Bad Request: BUTTON_DATA_INVALID"));
            }
        }
    }
    Ok((text, raw.to_owned()))
}

/// Parses Telegram's HTML strictly: known tags, properly nested, known entities.
///
/// # Errors
///
/// The reason why it is invalid.
pub fn parse_html(html: &str) -> Result<String, String> {
    let mut text = String::new();
    let mut open: Vec<String> = Vec::new();
    let mut rest = html;
    while let Some(c) = rest.chars().next() {
        match c {
            '<' => {
                let end = rest.find('>').ok_or("unclosed start tag")?;
                let tag = &rest[1..end];
                rest = &rest[end + 1..];
                if let Some(name) = tag.strip_prefix('/') {
                    if open.pop().as_deref() != Some(name) {
                        return Err(format!("unexpected end tag {name:?}"));
                    }
                    continue;
                }
                let name = tag.split(' ').next().unwrap_or_default();
                let known = match name {
                    "b" | "i" | "s" | "u" | "pre" => tag == name,
                    "code" => tag == name || tag.starts_with("code class=\"language-"),
                    "blockquote" => tag == name || tag == "blockquote expandable",
                    "a" => tag.starts_with("a href=\"") && tag.ends_with('"'),
                    _ => false,
                };
                if !known {
                    return Err(format!("unsupported start tag {tag:?}"));
                }
                let within = |outer: &str| open.iter().any(|it| it == outer);
                if within("code") || within("pre") && name != "code" {
                    return Err(format!("{name:?} within code"));
                }
                if name == "blockquote" && within("blockquote") || within(name) {
                    return Err(format!("{name:?} within itself"));
                }
                open.push(name.to_owned());
            }
            '&' => {
                let known = [("&lt;", '<'), ("&gt;", '>'), ("&amp;", '&'), ("&quot;", '"')];
                let found = known.iter().find(|(entity, _)| rest.starts_with(entity));
                let (entity, meant) = found.ok_or("unescaped &")?;
                text.push(*meant);
                rest = &rest[entity.len()..];
            }
            '>' => return Err("unescaped >".into()),
            c => {
                text.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    if let Some(name) = open.pop() {
        return Err(format!("can't find end tag corresponding to start tag {name:?}"));
    }
    Ok(text)
}
