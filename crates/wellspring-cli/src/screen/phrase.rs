//! Short descriptions of facts, the same in all output of the command.

use std::time::Duration;

use serde_json::Value;
use uuid::Uuid;
use wellspring_core::{Answer, Budget, Content, Outcome, Scope, Stop};

use crate::text::{Style, clean, clean_line};

/// Characters of a value in one line; a screen cuts it further.
const PHRASE_CHARS_MAX: usize = 400;

/// The end of an id. In a UUIDv7 it distinguishes two ids of the same minute.
pub(crate) fn short_id(id: Uuid) -> String {
    let text = id.simple().to_string();
    text[text.len() - 8..].to_owned()
}

pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

pub(crate) fn outcome_phrase(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Completed { stop } => stop_phrase(stop),
        Outcome::Cancelled { by, why, .. } => {
            let by = by.as_deref().filter(|by| *by != wellspring_engine::LOCAL);
            let by = by.map(|by| format!(" by {}", clean_line(by)));
            let why = why.as_deref().map(|why| format!(": {}", clean_line(why)));
            format!("cancelled{}{}", by.unwrap_or_default(), why.unwrap_or_default())
        }
        Outcome::Failed { message, retryable, .. } => {
            let again = if *retryable { "; it may work later" } else { "" };
            format!("failed: {}{again}", clean_line(message))
        }
    }
}

pub(crate) fn stop_phrase(stop: &Stop) -> String {
    match stop {
        Stop::EndTurn | Stop::ToolCalls | Stop::StopSequence => "done".into(),
        Stop::MaxTokens => "stopped: the answer reached its limit of tokens".into(),
        Stop::Refusal => "stopped: the model refused".into(),
        Stop::ContentFilter => "stopped: the provider's filter stepped in".into(),
        Stop::Paused => "stopped: the provider paused".into(),
        Stop::TurnLimit => "stopped: the limit of turns was reached".into(),
        Stop::Budget(Budget::Tokens) => "stopped: the budget of tokens is spent".into(),
        Stop::Budget(Budget::Cost) => "stopped: the budget of money is spent".into(),
        Stop::Budget(Budget::Time) => "stopped: the time is up".into(),
        Stop::Other(other) => format!("stopped: {}", clean_line(other)),
    }
}

pub(crate) fn answer_phrase(answer: &Answer) -> (String, Style) {
    match answer {
        Answer::Approve { scope, arguments } => {
            let scope = match scope {
                Scope::Once => "yes",
                Scope::Thread => "yes, in this thread",
                Scope::Always => "yes, always",
            };
            let edited = if arguments.is_some() { ", with other arguments" } else { "" };
            (format!("{scope}{edited}"), Style::GREEN)
        }
        Answer::Deny { reason: None, .. } => ("no".into(), Style::YELLOW),
        Answer::Deny { reason: Some(reason), .. } => {
            (format!("no: {}", clean_line(reason)), Style::YELLOW)
        }
        Answer::Choose(chosen) => (clean_line(&chosen.join(", ")), Style::GREEN),
        Answer::Value(value) => (value_phrase(value), Style::GREEN),
        Answer::Expired => ("expired without an answer".into(), Style::YELLOW),
        Answer::Withdrawn => ("withdrawn".into(), Style::DIM),
    }
}

pub(crate) fn content_phrase(content: &Content) -> String {
    match content {
        Content::Text(text) => clean(text),
        Content::Media { media_type, name, .. } => {
            format!("[{}]", clean_line(name.as_ref().unwrap_or(media_type)))
        }
        Content::Link { uri, name, .. } => {
            format!("[{}]", clean_line(name.as_ref().unwrap_or(uri)))
        }
        Content::Resource { uri, .. } => format!("[{}]", clean_line(uri)),
    }
}

/// The arguments of a call in one line; while they are incomplete, nothing.
pub(crate) fn arguments_phrase(arguments: &str) -> String {
    serde_json::from_str(arguments).map(|value| value_phrase(&value)).unwrap_or_default()
}

/// A value in one line, without the punctuation of JSON where it is flat.
pub(crate) fn value_phrase(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.chars().take(PHRASE_CHARS_MAX).collect(),
        Value::Object(members) if members.len() == 1 => {
            return members.values().next().map(value_phrase).unwrap_or_default();
        }
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| format!("{name}: {}", flat(value));
            members.iter().map(member).collect::<Vec<_>>().join(", ")
        }
        Value::Array(items) => items.iter().map(flat).collect::<Vec<_>>().join(", "),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    };
    let line = clean_line(&text);
    line.chars().take(PHRASE_CHARS_MAX).collect()
}

fn flat(value: &Value) -> String {
    match value.as_str() {
        Some(text) => text.chars().take(PHRASE_CHARS_MAX).collect(),
        None => value.to_string(),
    }
}
