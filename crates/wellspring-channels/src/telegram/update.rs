//! Reads Telegram's updates. Pure.

use serde_json::Value;

use crate::channel::ChatKind;
use crate::incoming::{Incoming, IncomingFile, User, What};
use crate::texts::Language;

/// The message or press in an update; `None` if it is not meant for the bot.
pub(crate) fn read(update: &Value) -> Option<Incoming> {
    let id = update["update_id"].as_i64()?.to_string().into();
    let press = &update["callback_query"];
    let (message, from, what) = if press.is_object() {
        let what = What::Press {
            press: press["id"].as_str()?.into(),
            data: press["data"].as_str()?.into(),
        };
        (&press["message"], &press["from"], what)
    } else {
        let message = &update["message"];
        let text = message["text"].as_str().or(message["caption"].as_str()).unwrap_or_default();
        let files = files(message);
        if text.is_empty() && files.is_empty() {
            return None;
        }
        let what = What::Message {
            message: message["message_id"].as_i64()?.to_string().into(),
            text: text.into(),
            files,
        };
        (message, &message["from"], what)
    };
    let chat = &message["chat"];
    let kind = match chat["type"].as_str() {
        Some("private") => ChatKind::Direct,
        Some(_) | None => ChatKind::Group,
    };
    // Bots that answer other bots would never stop.
    if from["is_bot"] == true {
        return None;
    }
    let topic = message["message_thread_id"].as_i64();
    let topic = topic.filter(|_| message["is_topic_message"] == true);
    Some(Incoming {
        id,
        chat: chat["id"].as_i64()?.to_string().into(),
        kind,
        topic: topic.map(|topic| topic.to_string().into()),
        user: user(from)?,
        what,
    })
}

fn user(from: &Value) -> Option<User> {
    let names = ["first_name", "last_name"].map(|key| from[key].as_str().unwrap_or_default());
    let mut name = names.join(" ").trim().to_owned();
    if let Some(username) = from["username"].as_str() {
        name.push_str(&format!(" @{username}"));
    }
    Some(User {
        id: from["id"].as_i64()?.to_string().into(),
        name: name.trim().into(),
        language: from["language_code"].as_str().and_then(Language::of_tag),
    })
}

fn files(message: &Value) -> Vec<IncomingFile> {
    let mut files = Vec::new();
    // A photo is given in several sizes, the largest last.
    if let Some(photo) = message["photo"].as_array().and_then(|sizes| sizes.last())
        && let Some(id) = photo["file_id"].as_str()
    {
        files.push(IncomingFile { id: id.into(), media_type: "image/jpeg".into(), name: None });
    }
    for (key, media_type) in [
        ("document", "application/octet-stream"),
        ("voice", "audio/ogg"),
        ("audio", "audio/mpeg"),
        ("video", "video/mp4"),
    ] {
        let file = &message[key];
        if let Some(id) = file["file_id"].as_str() {
            files.push(IncomingFile {
                id: id.into(),
                media_type: file["mime_type"].as_str().unwrap_or(media_type).into(),
                name: file["file_name"].as_str().map(Into::into),
            });
        }
    }
    files
}
