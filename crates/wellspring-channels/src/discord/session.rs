//! A session of Discord's gateway: maps frames to actions. Pure.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::event;
use crate::incoming::Incoming;

/// Messages in servers and direct messages. Messages that mention the bot include their content
/// without a privileged intent.
const INTENTS: u32 = 1 << 9 | 1 << 12;

/// The stored state of a session, so that another process can resume it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Session {
    /// The id of the session; `None` if there is nothing to resume.
    #[serde(default)]
    pub(crate) id: Option<Box<str>>,
    /// The URL for resuming the session.
    #[serde(default)]
    pub(crate) url: Box<str>,
    /// The number of the last handled event.
    #[serde(default)]
    pub(crate) seq: u64,
    /// The bot's user id.
    #[serde(default)]
    pub(crate) me: Box<str>,
}

/// The action that a frame requires.
#[derive(Debug)]
pub(crate) enum Heard {
    /// Start sending heartbeats at this interval in milliseconds, then identify or resume.
    Hello(u64),
    /// The session is established.
    Ready,
    /// The heartbeat was acknowledged.
    Beaten,
    /// Send a heartbeat now.
    Beat,
    /// Open a new connection.
    Reconnect,
    /// An event with its number, and the message or press in it, if any.
    Event(u64, Option<Incoming>),
    Nothing,
}

/// The consequence of a closed connection for the session.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum After {
    Resume,
    Identify,
    /// Discord rejects the bot: its configuration must be changed first.
    GiveUp(&'static str),
}

impl Session {
    /// The response to the gateway's first frame: identifies, or resumes a session.
    pub(crate) fn introduction(&self, token: &str) -> Value {
        match &self.id {
            Some(id) => {
                json!({"op": 6, "d": {"token": token, "session_id": id, "seq": self.seq}})
            }
            None => {
                let us = "wellspring";
                let properties = json!({"os": std::env::consts::OS, "browser": us, "device": us});
                json!({"op": 2, "d": {
                    "token": token, "intents": INTENTS, "properties": properties,
                }})
            }
        }
    }

    /// A heartbeat. `seen` is the number of the last received event.
    pub(crate) fn beat(seen: u64) -> Value {
        let seen = if seen == 0 { Value::Null } else { seen.into() };
        json!({ "op": 1, "d": seen })
    }

    /// Reads a frame, and updates the session.
    pub(crate) fn hear(&mut self, frame: &Value) -> Heard {
        match frame["op"].as_u64() {
            Some(10) => Heard::Hello(frame["d"]["heartbeat_interval"].as_u64().unwrap_or(41_250)),
            Some(11) => Heard::Beaten,
            Some(1) => Heard::Beat,
            Some(7) => Heard::Reconnect,
            Some(9) => {
                if frame["d"] != true {
                    self.id = None;
                }
                Heard::Reconnect
            }
            Some(0) => self.event(frame),
            Some(_) | None => Heard::Nothing,
        }
    }

    fn event(&mut self, frame: &Value) -> Heard {
        let seq = frame["s"].as_u64().unwrap_or_default();
        let event = &frame["d"];
        let incoming = match frame["t"].as_str() {
            Some("READY") => {
                let word = |value: &Value| value.as_str().unwrap_or_default().into();
                self.id = event["session_id"].as_str().map(Into::into);
                self.url = word(&event["resume_gateway_url"]);
                self.me = word(&event["user"]["id"]);
                self.seq = seq;
                return Heard::Ready;
            }
            Some("RESUMED") => return Heard::Ready,
            Some("MESSAGE_CREATE") => event::message(event, &self.me),
            Some("INTERACTION_CREATE") => event::interaction(event),
            Some(_) | None => None,
        };
        Heard::Event(seq, incoming)
    }

    /// The action after a connection was closed with this code.
    pub(crate) fn after(code: Option<u16>) -> After {
        match code {
            Some(4004) => After::GiveUp("the token is refused"),
            Some(4010..=4012) => After::GiveUp("this version of the gateway is refused"),
            Some(4013 | 4014) => After::GiveUp("the intents are refused"),
            // Discord no longer knows the session.
            Some(1000 | 1001 | 4003 | 4007 | 4009) => After::Identify,
            Some(_) | None => After::Resume,
        }
    }
}
