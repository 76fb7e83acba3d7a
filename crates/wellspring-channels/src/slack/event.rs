//! Reads Slack's events and presses. Pure.

use serde_json::Value;

use super::wire;
use crate::channel::ChatKind;
use crate::incoming::{Incoming, IncomingFile, User, What};

/// The message or press in a payload; `None` if it is not meant for the bot.
pub(crate) fn read(payload: &Value) -> Option<Incoming> {
    match payload["type"].as_str()? {
        "event_callback" => written(payload),
        "block_actions" => pressed(payload),
        _ => None,
    }
}

fn written(payload: &Value) -> Option<Incoming> {
    let event = &payload["event"];
    let kind = match (event["type"].as_str()?, event["channel_type"].as_str()) {
        ("message", Some("im")) => ChatKind::Direct,
        ("app_mention", _) => ChatKind::Group,
        // Other messages of a channel are not for the bot, or also arrive as a mention.
        _ => return None,
    };
    // Ignore edits, deletions and messages of bots. Bots that answer other bots would never stop.
    let subtype = event["subtype"].as_str();
    if subtype.is_some_and(|it| it != "file_share" && it != "thread_broadcast")
        || event["bot_id"].is_string()
    {
        return None;
    }
    let (channel, ts) = (event["channel"].as_str()?, event["ts"].as_str()?);
    let user = event["user"].as_str()?;
    let team = payload["team_id"].as_str().or(event["team"].as_str()).unwrap_or_default();
    let text = plain(event["text"].as_str().unwrap_or_default());
    let files = files(event);
    if text.is_empty() && files.is_empty() && kind == ChatKind::Direct {
        return None;
    }
    let thread = event["thread_ts"].as_str().unwrap_or(ts);
    let message = wire::message(ts, user, team);
    Some(Incoming {
        // A message that mentions the bot twice arrives as two events, and has one id.
        id: format!("{channel}/{ts}").into(),
        chat: wire::chat(channel, thread),
        kind,
        topic: None,
        user: User { id: user.into(), name: user.into(), language: None },
        what: What::Message { message, text: text.into(), files },
    })
}

fn pressed(payload: &Value) -> Option<Incoming> {
    let action = &payload["actions"][0];
    let user = payload["user"]["id"].as_str()?;
    let name = payload["user"]["username"].as_str().or(payload["user"]["name"].as_str());
    let channel =
        payload["channel"]["id"].as_str().or(payload["container"]["channel_id"].as_str())?;
    let message = &payload["message"];
    let thread = message["thread_ts"].as_str().or(message["ts"].as_str())?;
    let at = action["action_ts"].as_str()?;
    // Ids of direct messages begin with `D`.
    let kind = if channel.starts_with('D') { ChatKind::Direct } else { ChatKind::Group };
    Some(Incoming {
        id: format!("{user}/{at}").into(),
        chat: wire::chat(channel, thread),
        kind,
        topic: None,
        user: User { id: user.into(), name: name.unwrap_or(user).into(), language: None },
        what: What::Press {
            press: format!("{channel}/{thread}/{user}").into(),
            data: action["value"].as_str()?.into(),
        },
    })
}

fn files(event: &Value) -> Vec<IncomingFile> {
    let files = event["files"].as_array().into_iter().flatten();
    let read = |file: &Value| {
        Some(IncomingFile {
            id: file["id"].as_str()?.into(),
            media_type: file["mimetype"].as_str().unwrap_or("application/octet-stream").into(),
            name: file["name"].as_str().map(Into::into),
        })
    };
    files.filter_map(read).collect()
}

/// The text without the mention of the bot at its start, and with plain links.
fn plain(text: &str) -> String {
    let mut text = text.trim();
    if let Some(rest) = text.strip_prefix("<@")
        && let Some((_, rest)) = rest.split_once('>')
    {
        text = rest.trim_start();
    }
    let mut out = String::new();
    while let Some((before, rest)) = text.split_once('<') {
        out.push_str(before);
        match rest.split_once('>') {
            Some((link, rest)) if link.starts_with("http") || link.starts_with("mailto:") => {
                out.push_str(link.split('|').next().unwrap_or(link));
                text = rest;
            }
            _ => {
                out.push('<');
                text = rest;
            }
        }
    }
    out.push_str(text);
    out.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}
