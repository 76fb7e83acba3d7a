//! A strict fake of Slack: it enforces the rules of the Web API that affect what people see, and
//! keeps a log that [`check_rates`] checks independently of the caller.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

/// Maximum lengths of a message, an appended text, a section and a card's field.
const TEXT_CHARS_MAX: usize = 4000;
const MARKDOWN_CHARS_MAX: usize = 12_000;
const SECTION_CHARS_MAX: usize = 3000;
const FIELD_CHARS_MAX: usize = 256;

/// Minimum time between calls to one channel, in milliseconds.
const CHANNEL_MILLIS: u64 = 1000;

/// After a rejection, calls that began before its response arrived may arrive for this long: the
/// tests give a request and its response 400 ms, so the rejection is known after 400 ms at the
/// latest, and a call that began before is there 400 ms later.
const ON_THE_WAY_MILLIS: u64 = 800;

/// Maximum number of calls per minute of each method.
const TIERS: &[(&str, usize)] = &[
    ("chat.startStream", 20),
    ("chat.appendStream", 100),
    ("chat.stopStream", 20),
    ("chat.update", 50),
    ("chat.delete", 50),
];

/// A fault of a call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Fault {
    /// 429, with the seconds to wait, for every call of the method.
    RateLimited(u64),
    /// The request does not arrive.
    Unreached,
    /// The call takes effect, and the response is lost.
    AnswerLost,
    /// The call takes effect, and Slack reports an internal error.
    InternalError,
    /// The stream ended before the call, as after a long silence.
    StreamExpired,
    /// The app may not stream.
    NoStreams,
    /// The message cannot be edited.
    NotEditable,
}

/// What the caller receives.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// A response: its status, its `retry-after` in seconds, and its JSON.
    Answer(u16, Option<u64>, Value),
    /// No response; the request did not arrive.
    Unreached,
    /// No response; the request did arrive.
    Lost,
}

/// A message in a thread.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Shown {
    /// Its id.
    pub ts: String,
    /// The id of its thread.
    pub thread: String,
    /// The text, with the markup as it was sent.
    pub text: String,
    /// The title and the details of each card, by id.
    pub cards: BTreeMap<String, (String, String)>,
    /// Whether it is a stream that has not ended.
    pub is_streaming: bool,
    /// The labels and the values of its buttons.
    pub buttons: Vec<(String, String)>,
}

/// A received call.
#[derive(Clone, Debug, PartialEq)]
pub struct Logged {
    /// The time in milliseconds.
    pub at: u64,
    /// The method.
    pub method: String,
    /// The channel.
    pub channel: String,
    /// The arguments.
    pub params: Value,
    /// The response, or why there was none.
    pub reply: String,
}

/// The state of the fake workspace.
#[derive(Debug, Default)]
pub struct FakeSlack {
    channels: BTreeMap<String, Vec<Shown>>,
    last: u64,
    /// The faults of the next calls, in order.
    pub faults: VecDeque<Option<Fault>>,
    /// All calls that arrived.
    pub log: Vec<Logged>,
}

impl FakeSlack {
    /// The messages of a thread, as people see them.
    #[must_use]
    pub fn shown(&self, channel: &str, thread: &str) -> Vec<Shown> {
        let all = self.channels.get(channel).into_iter().flatten();
        all.filter(|shown| shown.thread == thread).cloned().collect()
    }

    /// Handles a call of the Web API at the time `at`.
    pub fn call(&mut self, at: u64, method: &str, params: &Value) -> Reply {
        let fault = self.faults.pop_front().flatten();
        if fault == Some(Fault::Unreached) {
            return Reply::Unreached;
        }
        let channel = params["channel"].as_str().or(params["channel_id"].as_str());
        let channel = channel.unwrap_or_default().to_owned();
        let (mut status, mut after) = (200, None);
        let answer = match &fault {
            Some(Fault::RateLimited(seconds)) => {
                (status, after) = (429, Some(*seconds));
                refused("ratelimited")
            }
            _ => self.answer(method, &channel, params, fault.as_ref()),
        };
        let reply = match (&fault, &answer["error"]) {
            (Some(Fault::AnswerLost | Fault::InternalError), _) => "lost".to_owned(),
            (Some(Fault::RateLimited(seconds)), _) => format!("429 {seconds}"),
            (_, Value::Null) => "ok".to_owned(),
            (_, error) => error.as_str().unwrap_or_default().to_owned(),
        };
        let (method, params) = (method.to_owned(), params.clone());
        self.log.push(Logged { at, method, channel, params, reply });
        match fault {
            Some(Fault::AnswerLost) => Reply::Lost,
            Some(Fault::InternalError) => Reply::Answer(200, None, refused("internal_error")),
            _ => Reply::Answer(status, after, answer),
        }
    }

    fn answer(
        &mut self,
        method: &str,
        channel: &str,
        params: &Value,
        fault: Option<&Fault>,
    ) -> Value {
        if !channel.starts_with(['C', 'D']) {
            return refused("channel_not_found");
        }
        match method {
            "chat.postMessage" => match text(params) {
                Ok((text, buttons)) => {
                    let thread = params["thread_ts"].as_str().unwrap_or_default().to_owned();
                    self.add(channel, Shown { thread, text, buttons, ..Shown::default() })
                }
                Err(error) => refused(error),
            },
            "chat.startStream" => self.start(channel, params, fault),
            "assistant.threads.setStatus" => {
                let has = |key: &str| params[key].as_str().is_some_and(|it| !it.is_empty());
                if ["channel_id", "thread_ts", "status"].into_iter().all(has) {
                    json!({ "ok": true })
                } else {
                    refused("invalid_arguments")
                }
            }
            "chat.update" | "chat.appendStream" | "chat.stopStream" | "chat.delete" => {
                let ts = params["ts"].as_str().unwrap_or_default();
                let messages = self.channels.entry(channel.to_owned()).or_default();
                let Some(index) = messages.iter().position(|it| it.ts == ts) else {
                    return refused("message_not_found");
                };
                if method == "chat.delete" {
                    messages.remove(index);
                    return json!({"ok": true, "channel": channel, "ts": ts});
                }
                match change(&mut messages[index], method, params, fault) {
                    Ok(()) => json!({"ok": true, "channel": channel, "ts": ts}),
                    Err(error) => refused(error),
                }
            }
            _ => refused("unknown_method"),
        }
    }

    fn start(&mut self, channel: &str, params: &Value, fault: Option<&Fault>) -> Value {
        if fault == Some(&Fault::NoStreams) {
            return refused("method_not_supported_for_channel_type");
        }
        let Some(thread) = params["thread_ts"].as_str() else {
            return refused("invalid_thread_ts");
        };
        for key in ["recipient_user_id", "recipient_team_id"] {
            if channel.starts_with('C') && !params[key].is_string() {
                return refused(&format!("missing_{key}"));
            }
        }
        let mut shown = Shown { thread: thread.to_owned(), is_streaming: true, ..Shown::default() };
        match append(&mut shown, params) {
            Ok(_) => self.add(channel, shown),
            Err(error) => refused(error),
        }
    }

    fn add(&mut self, channel: &str, mut shown: Shown) -> Value {
        self.last += 1;
        shown.ts = format!("{}.{:06}", 1_700_000_000 + self.last, self.last);
        let answer = json!({"ok": true, "channel": channel, "ts": shown.ts});
        self.channels.entry(channel.to_owned()).or_default().push(shown);
        answer
    }
}

fn change(
    shown: &mut Shown,
    method: &str,
    params: &Value,
    fault: Option<&Fault>,
) -> Result<(), &'static str> {
    if method == "chat.update" {
        if fault == Some(&Fault::NotEditable) {
            return Err("cant_update_message");
        }
        if shown.is_streaming {
            return Err("streaming_state_conflict");
        }
        // An edit without blocks keeps the existing blocks.
        if !params["blocks"].is_array() {
            return Err("the_old_blocks_are_left");
        }
        (shown.text, shown.buttons) = text(params)?;
        shown.cards.clear();
        return Ok(());
    }
    if fault == Some(&Fault::StreamExpired) {
        shown.is_streaming = false;
    }
    if !shown.is_streaming {
        return Err("message_not_in_streaming_state");
    }
    if method == "chat.stopStream" && params.get("chunks").is_none() {
        shown.is_streaming = false;
        return Ok(());
    }
    let added = append(shown, params)?;
    if method == "chat.stopStream" {
        shown.is_streaming = false;
    } else if added == 0 {
        return Err("no_chunks");
    }
    Ok(())
}

/// Appends the chunks of a call to a message. Returns their number.
fn append(shown: &mut Shown, params: &Value) -> Result<usize, &'static str> {
    if params.get("markdown_text").is_some() {
        return Err("streaming_mode_mismatch");
    }
    let chunks = params["chunks"].as_array().ok_or("no_chunks")?;
    let mut changed = shown.clone();
    for chunk in chunks {
        let word = |key: &str| chunk[key].as_str();
        match word("type") {
            Some("markdown_text") => {
                let text = word("text").filter(|it| !it.is_empty()).ok_or("no_text")?;
                if text.chars().count() > MARKDOWN_CHARS_MAX {
                    return Err("msg_too_long");
                }
                changed.text.push_str(text);
            }
            Some("task_update") => {
                let id = word("id").ok_or("invalid_chunks")?;
                let title = word("title").filter(|it| !it.is_empty()).ok_or("invalid_chunks")?;
                let status = word("status").ok_or("invalid_chunks")?;
                let known = ["pending", "in_progress", "complete", "error"];
                let details = word("details").unwrap_or_default();
                let long = |text: &str| text.chars().count() > FIELD_CHARS_MAX;
                if !known.contains(&status) || long(id) || long(title) || long(details) {
                    return Err("invalid_chunks");
                }
                // The title and the status are replaced; details are appended.
                let card = changed.cards.entry(id.to_owned()).or_default();
                card.0 = format!("{title} ({status})");
                card.1.push_str(details);
            }
            _ => return Err("invalid_chunks"),
        }
    }
    *shown = changed;
    Ok(chunks.len())
}

/// The label and the value of a button.
type Button = (String, String);

/// The text and the buttons of a message.
fn text(params: &Value) -> Result<(String, Vec<Button>), &'static str> {
    let text = params["text"].as_str().unwrap_or_default();
    if text.trim().is_empty() {
        return Err("no_text");
    }
    if text.chars().count() > TEXT_CHARS_MAX {
        return Err("msg_too_long");
    }
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('&') {
        if !["amp;", "lt;", "gt;"].iter().any(|it| after.starts_with(it)) {
            return Err("an_unescaped_ampersand");
        }
        rest = after;
    }
    let mut buttons = Vec::new();
    let mut ids = BTreeSet::new();
    for block in params["blocks"].as_array().into_iter().flatten() {
        match block["type"].as_str() {
            Some("section") => {
                let long = block["text"]["text"].as_str().unwrap_or_default().chars().count();
                if long == 0 || long > SECTION_CHARS_MAX {
                    return Err("invalid_blocks");
                }
            }
            Some("actions") => {
                let elements = block["elements"].as_array().ok_or("invalid_blocks")?;
                if elements.is_empty() || elements.len() > 25 {
                    return Err("invalid_blocks");
                }
                for button in elements {
                    let label = button["text"]["text"].as_str().unwrap_or_default();
                    let value = button["value"].as_str().unwrap_or_default();
                    let id = button["action_id"].as_str().unwrap_or_default();
                    let fits = (1..=75).contains(&label.chars().count()) && value.len() <= 2000;
                    if !fits || !ids.insert(id.to_owned()) {
                        return Err("invalid_blocks");
                    }
                    buttons.push((label.to_owned(), value.to_owned()));
                }
            }
            _ => return Err("invalid_blocks"),
        }
    }
    Ok((text.to_owned(), buttons))
}

fn refused(error: &str) -> Value {
    json!({"ok": false, "error": error})
}

/// Checks the network's rate limits against the calls that arrived: one call per second and
/// channel, the tiers of the methods, and no call of a method during its `retry-after`.
///
/// # Errors
///
/// The first call that exceeds a limit.
pub fn check_rates(log: &[Logged]) -> Result<(), String> {
    let mut log: Vec<&Logged> = log.iter().collect();
    log.sort_by_key(|call| call.at);
    let mut per_channel: BTreeMap<&str, u64> = BTreeMap::new();
    let mut per_method: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let mut waits: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for call in log {
        let broken =
            |what: &str| Err(format!("{what}: {} at {} to {}", call.method, call.at, call.channel));
        let last = per_channel.insert(&call.channel, call.at);
        if last.is_some_and(|last| call.at - last < CHANNEL_MILLIS) {
            return broken("more than one call per second to a channel");
        }
        let times = per_method.entry(&call.method).or_default();
        let within = times.iter().rev().take_while(|at| call.at - **at < 60_000).count();
        let tier = TIERS.iter().find(|(method, _)| *method == call.method);
        if tier.is_some_and(|(_, calls)| within >= *calls) {
            return broken("more calls of a method than its tier has");
        }
        times.push(call.at);
        let wait = waits.get(&*call.method);
        if wait.is_some_and(|(from, until)| (*from..*until).contains(&call.at)) {
            return broken("before the time that retry-after named");
        }
        if let Some(seconds) = call.reply.strip_prefix("429 ").and_then(|it| it.parse::<u64>().ok())
        {
            let wait = (call.at + ON_THE_WAY_MILLIS, call.at + seconds * 1000);
            waits.insert(&call.method, wait);
        }
    }
    Ok(())
}
