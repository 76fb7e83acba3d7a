//! A strict fake of Discord: it enforces the rules of the HTTP API that affect what people see,
//! with rate buckets that only the headers report. It keeps a log that [`check_rates`] checks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

/// Maximum length of a message.
const CONTENT_CHARS_MAX: usize = 2000;

/// A bucket's calls per channel and kind, and the milliseconds until it is full again.
const BUCKET_CALLS: u64 = 3;
const BUCKET_MILLIS: u64 = 5000;

/// Maximum number of calls per second in total.
const OVERALL_CALLS: usize = 50;

/// After a rejection, calls that began before its response arrived may arrive for this long: the
/// tests give a request and its response 400 ms, so the rejection is known after 400 ms at the
/// latest, and a call that began before is there 400 ms later.
const ON_THE_WAY_MILLIS: u64 = 800;

/// How long a nonce is remembered.
const NONCE_MILLIS: u64 = 5 * 60_000;

/// A fault of a call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Fault {
    /// 429, with the milliseconds to wait, for the channel or the whole bot.
    RateLimited(u64, Scope),
    /// The request does not arrive.
    Unreached,
    /// The call takes effect, and the response is lost.
    AnswerLost,
    /// The call takes effect, and the proxy reports an error.
    BadGateway,
    /// The message was deleted before it is edited.
    Vanished,
    /// The message cannot be edited.
    NotEditable,
}

/// The scope of a limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// One channel.
    Channel,
    /// The whole bot.
    Global,
}

/// Whether an earlier response reported that a bucket is empty.
#[derive(Clone, Copy, Debug)]
struct Told(bool);

/// The rate limits in the headers of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Headers {
    /// `X-RateLimit-Remaining`.
    pub remaining: u64,
    /// `X-RateLimit-Reset-After`.
    pub reset_after: f64,
}

/// What the caller receives.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// A response: its status, its headers and its JSON.
    Answer(u16, Headers, Value),
    /// No response; the request did not arrive.
    Unreached,
    /// No response; the request did arrive.
    Lost,
}

/// A message in a channel.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Shown {
    /// Its id.
    pub id: String,
    /// Its text, as it was sent.
    pub text: String,
    /// The labels and the ids of its buttons.
    pub buttons: Vec<(String, String)>,
    /// The id of the message that it replies to.
    pub reply_to: Option<String>,
}

/// A received call.
#[derive(Clone, Debug, PartialEq)]
pub struct Logged {
    /// The time in milliseconds.
    pub at: u64,
    /// The method and the kind of path.
    pub method: String,
    /// The channel.
    pub channel: String,
    /// The body.
    pub params: Value,
    /// The response, or why there was none.
    pub reply: String,
}

/// The state of the fake network.
#[derive(Debug, Default)]
pub struct FakeDiscord {
    channels: BTreeMap<String, Vec<Shown>>,
    nonces: BTreeMap<String, (u64, String)>,
    /// The buckets by channel and kind of call.
    buckets: BTreeMap<(String, String), Bucket>,
    last_id: u64,
    /// The faults of the next calls, in order.
    pub faults: VecDeque<Option<Fault>>,
    /// All calls that arrived.
    pub log: Vec<Logged>,
}

#[derive(Debug, Default)]
struct Bucket {
    full_at: u64,
    left: u64,
    /// Whether a response has reported that the bucket is empty.
    is_told: bool,
}

impl FakeDiscord {
    /// The messages of a channel, as people see them.
    #[must_use]
    pub fn shown(&self, channel: &str) -> &[Shown] {
        self.channels.get(channel).map_or(&[], Vec::as_slice)
    }

    /// Handles a request at the time `at`; `path` begins with `/channels`.
    pub fn call(&mut self, at: u64, method: &str, path: &str, params: &Value) -> Reply {
        let fault = self.faults.pop_front().flatten();
        if fault == Some(Fault::Unreached) {
            return Reply::Unreached;
        }
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        let channel = parts.get(1).copied().unwrap_or_default().to_owned();
        let kind = format!("{method} {}", parts.get(2).copied().unwrap_or_default());
        let headers = self.bucket(at, &channel, &kind);
        let (mut status, mut answer) = match (&fault, headers) {
            (Some(Fault::RateLimited(millis, scope)), _) => {
                #[expect(clippy::cast_precision_loss, reason = "a few minutes")]
                let seconds = *millis as f64 / 1000.0;
                let is_global = *scope == Scope::Global;
                (429, json!({"message": "slow down", "retry_after": seconds, "global": is_global}))
            }
            (_, Err(_)) => (429, json!({"message": "an empty bucket", "retry_after": 5.0})),
            _ => self.answer(at, method, &parts, &channel, params, fault.as_ref()),
        };
        let reply = match &fault {
            Some(Fault::AnswerLost | Fault::BadGateway) => "lost".to_owned(),
            Some(Fault::RateLimited(millis, Scope::Channel)) => format!("429 {millis}"),
            Some(Fault::RateLimited(millis, Scope::Global)) => format!("global 429 {millis}"),
            _ => match headers {
                Err(Told(true)) => "empty 429".to_owned(),
                Err(Told(false)) => "429 5000".to_owned(),
                Ok(_) => format!("{status}"),
            },
        };
        if reply.starts_with('2')
            && let Some(bucket) = self.buckets.get_mut(&(channel.clone(), kind.clone()))
        {
            bucket.is_told = bucket.left == 0;
        }
        self.log.push(Logged { at, method: kind, channel, params: params.clone(), reply });
        match fault {
            Some(Fault::AnswerLost) => return Reply::Lost,
            Some(Fault::BadGateway) => (status, answer) = (502, Value::Null),
            _ => {}
        }
        Reply::Answer(status, headers.unwrap_or_default(), answer)
    }

    /// Takes a call from its bucket. Fails if the bucket is empty.
    fn bucket(&mut self, at: u64, channel: &str, kind: &str) -> Result<Headers, Told> {
        let key = (channel.to_owned(), kind.to_owned());
        let bucket = self.buckets.entry(key).or_default();
        if at >= bucket.full_at {
            let full_at = at + BUCKET_MILLIS;
            *bucket = Bucket { full_at, left: BUCKET_CALLS, is_told: false };
        }
        bucket.left = bucket.left.checked_sub(1).ok_or(Told(bucket.is_told))?;
        #[expect(clippy::cast_precision_loss, reason = "a few seconds")]
        let reset_after = (bucket.full_at - at) as f64 / 1000.0;
        Ok(Headers { remaining: bucket.left, reset_after })
    }

    fn answer(
        &mut self,
        at: u64,
        method: &str,
        parts: &[&str],
        channel: &str,
        params: &Value,
        fault: Option<&Fault>,
    ) -> (u16, Value) {
        match (method, parts) {
            ("POST", ["channels", _, "typing"]) => (204, Value::Null),
            ("POST", ["channels", _, "messages"]) => match text(params) {
                Ok((text, buttons)) => self.send(at, channel, params, text, buttons),
                Err(error) => error,
            },
            ("PATCH" | "DELETE", ["channels", _, "messages", id]) => {
                let messages = self.channels.entry(channel.to_owned()).or_default();
                if fault == Some(&Fault::Vanished) {
                    messages.retain(|it| it.id != *id);
                }
                let Some(index) = messages.iter().position(|it| it.id == *id) else {
                    return refused(404, 10008, "Unknown Message");
                };
                if method == "DELETE" {
                    messages.remove(index);
                    return (204, Value::Null);
                }
                if fault == Some(&Fault::NotEditable) {
                    return refused(403, 50005, "Cannot edit a message by another user");
                }
                match text(params) {
                    Ok((text, buttons)) => {
                        let shown = &mut messages[index];
                        (shown.text, shown.buttons) = (text, buttons);
                        (200, message(shown, channel))
                    }
                    Err(error) => error,
                }
            }
            _ => refused(404, 0, "404: Not Found"),
        }
    }

    fn send(
        &mut self,
        at: u64,
        channel: &str,
        params: &Value,
        text: String,
        buttons: Vec<(String, String)>,
    ) -> (u16, Value) {
        let nonce = params["nonce"].as_str().unwrap_or_default();
        if nonce.len() > 25 {
            return refused(400, 50035, "nonce: must be 25 or fewer in length");
        }
        let is_known = params["enforce_nonce"] == true && !nonce.is_empty();
        if is_known
            && let Some((sent, id)) = self.nonces.get(nonce)
            && at - sent < NONCE_MILLIS
        {
            let known = self.shown(channel).iter().find(|it| it.id == *id);
            let gone = Shown { id: id.clone(), ..Shown::default() };
            return (200, message(known.unwrap_or(&gone), channel));
        }
        self.last_id += 1;
        let id = self.last_id.to_string();
        if is_known {
            self.nonces.insert(nonce.to_owned(), (at, id.clone()));
        }
        let reply_to = params["message_reference"]["message_id"].as_str().map(ToOwned::to_owned);
        let shown = Shown { id, text, buttons, reply_to };
        let answer = message(&shown, channel);
        self.channels.entry(channel.to_owned()).or_default().push(shown);
        (200, answer)
    }
}

fn message(shown: &Shown, channel: &str) -> Value {
    json!({"id": shown.id, "channel_id": channel, "content": shown.text})
}

fn refused(status: u16, code: u64, message: &str) -> (u16, Value) {
    (status, json!({"code": code, "message": message}))
}

/// The text and the buttons of a message.
#[expect(clippy::type_complexity, reason = "a message or a refusal")]
fn text(params: &Value) -> Result<(String, Vec<(String, String)>), (u16, Value)> {
    let invalid = |what: &str| refused(400, 50035, &format!("Invalid Form Body: {what}"));
    let text = params["content"].as_str().unwrap_or_default().trim();
    if text.is_empty() {
        return Err(refused(400, 50006, "Cannot send an empty message"));
    }
    if text.chars().count() > CONTENT_CHARS_MAX {
        return Err(invalid("content: must be 2000 or fewer in length"));
    }
    // Model output must not mention a whole server.
    if params["allowed_mentions"]["parse"] != json!([]) {
        return Err(invalid("allowed_mentions"));
    }
    let mut buttons = Vec::new();
    let mut ids = BTreeSet::new();
    let rows = params["components"].as_array().cloned().unwrap_or_default();
    if rows.len() > 5 {
        return Err(invalid("components: must be 5 or fewer in length"));
    }
    for row in &rows {
        let all = row["components"].as_array().cloned().unwrap_or_default();
        if row["type"] != 1 || all.is_empty() || all.len() > 5 {
            return Err(invalid("components: a row"));
        }
        for button in &all {
            let label = button["label"].as_str().unwrap_or_default();
            let id = button["custom_id"].as_str().unwrap_or_default();
            let fits = (1..=80).contains(&label.chars().count()) && (1..=100).contains(&id.len());
            if !fits || button["type"] != 2 || !ids.insert(id.to_owned()) {
                return Err(invalid("components: a button"));
            }
            buttons.push((label.to_owned(), id.to_owned()));
        }
    }
    Ok((text.to_owned(), buttons))
}

/// Checks the network's rate limits against the calls that arrived: no call to an empty bucket, at
/// most 50 per second, and none during a `retry_after` of the channel or the bot.
///
/// # Errors
///
/// The first call that exceeds a limit.
pub fn check_rates(log: &[Logged]) -> Result<(), String> {
    let mut log: Vec<&Logged> = log.iter().collect();
    log.sort_by_key(|call| call.at);
    let mut waits: BTreeMap<&str, u64> = BTreeMap::new();
    let mut bot_waits = 0..0;
    for (index, call) in log.iter().enumerate() {
        let broken =
            |what: &str| Err(format!("{what}: {} at {} to {}", call.method, call.at, call.channel));
        if call.reply == "empty 429" {
            return broken("a call to a bucket that an answer had called empty");
        }
        let within = log[..index].iter().rev().take_while(|it| call.at - it.at < 1000).count();
        if within >= OVERALL_CALLS {
            return broken("more than 50 calls per second in all");
        }
        if bot_waits.contains(&call.at)
            || waits.get(&*call.channel).is_some_and(|until| call.at < *until)
        {
            return broken("before the time that retry_after named");
        }
        if let Some(millis) = call.reply.strip_prefix("429 ").and_then(|it| it.parse::<u64>().ok())
        {
            waits.insert(&call.channel, call.at + millis);
        }
        let global = call.reply.strip_prefix("global 429 ");
        if let Some(millis) = global.and_then(|it| it.parse::<u64>().ok()) {
            bot_waits = call.at + ON_THE_WAY_MILLIS..call.at + millis;
        }
    }
    Ok(())
}
