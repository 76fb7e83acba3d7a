//! Reads Discord's events. Pure.

use serde_json::Value;

use crate::channel::ChatKind;
use crate::incoming::{Incoming, IncomingFile, User, What};
use crate::texts::Language;

/// The type of an interaction with a message component.
const COMPONENT: u64 = 3;

/// The message in an event; `None` if it is not meant for the bot `me`.
pub(crate) fn message(message: &Value, me: &str) -> Option<Incoming> {
    let author = &message["author"];
    // Bots that answer other bots would never stop.
    if author["bot"] == true || message["webhook_id"].is_string() {
        return None;
    }
    // Only ordinary messages and replies; other types report changes of the channel.
    if !matches!(message["type"].as_u64().unwrap_or_default(), 0 | 19) {
        return None;
    }
    let kind = kind(message);
    let mentions = message["mentions"].as_array();
    let is_named = mentions.is_some_and(|all| all.iter().any(|it| it["id"] == *me));
    if kind == ChatKind::Group && !is_named {
        return None;
    }
    let text = without_mention(message["content"].as_str().unwrap_or_default(), me);
    let files = files(message);
    if text.is_empty() && files.is_empty() && kind == ChatKind::Direct {
        return None;
    }
    let id: Box<str> = message["id"].as_str()?.into();
    Some(Incoming {
        id: id.clone(),
        chat: message["channel_id"].as_str()?.into(),
        kind,
        topic: None,
        user: user(author, &Value::Null)?,
        what: What::Message { message: id, text: text.into(), files },
    })
}

/// A press of a button; `None` for other interactions.
pub(crate) fn interaction(interaction: &Value) -> Option<Incoming> {
    if interaction["type"].as_u64()? != COMPONENT {
        return None;
    }
    let id = interaction["id"].as_str()?;
    let token = interaction["token"].as_str()?;
    let member = &interaction["member"]["user"];
    let person = if member.is_object() { member } else { &interaction["user"] };
    let channel = interaction["channel_id"].as_str().or(interaction["channel"]["id"].as_str())?;
    Some(Incoming {
        id: id.into(),
        chat: channel.into(),
        kind: kind(interaction),
        topic: None,
        user: user(person, &interaction["locale"])?,
        what: What::Press {
            press: format!("{id}/{token}").into(),
            data: interaction["data"]["custom_id"].as_str()?.into(),
        },
    })
}

fn kind(event: &Value) -> ChatKind {
    if event["guild_id"].is_string() { ChatKind::Group } else { ChatKind::Direct }
}

fn user(person: &Value, locale: &Value) -> Option<User> {
    let username = person["username"].as_str().unwrap_or_default();
    let name = match person["global_name"].as_str() {
        Some(name) => format!("{name} @{username}"),
        None => format!("@{username}"),
    };
    Some(User {
        id: person["id"].as_str()?.into(),
        name: name.into(),
        language: locale.as_str().and_then(Language::of_tag),
    })
}

/// The text without the mention of the bot at its start.
fn without_mention(text: &str, me: &str) -> String {
    let text = text.trim();
    let named = [format!("<@{me}>"), format!("<@!{me}>")];
    let rest = named.iter().find_map(|named| text.strip_prefix(named.as_str()));
    rest.unwrap_or(text).trim_start().to_owned()
}

fn files(message: &Value) -> Vec<IncomingFile> {
    let files = message["attachments"].as_array().into_iter().flatten();
    let read = |file: &Value| {
        Some(IncomingFile {
            id: file["url"].as_str()?.into(),
            media_type: file["content_type"].as_str().unwrap_or("application/octet-stream").into(),
            name: file["filename"].as_str().map(Into::into),
        })
    };
    files.filter_map(read).collect()
}
