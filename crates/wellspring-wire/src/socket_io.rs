//! The packets of Socket.IO 4: Engine.IO protocol 4 and Socket.IO protocol 5, as text.
//!
//! Only the main namespace, and no binary attachments: all payloads are JSON.
//!
//! ```
//! use wellspring_wire::socket_io::{self, Packet};
//!
//! let packet = Packet::read(r#"42["message",{"type":"abort_run"}]"#)?;
//! assert!(matches!(packet, Packet::Event { name, .. } if name == "message"));
//! assert_eq!(socket_io::event("event", br#"{"type":"RAW"}"#), r#"42["event",{"type":"RAW"}]"#);
//! # Ok::<(), wellspring_wire::socket_io::PacketError>(())
//! ```

use std::time::Duration;

use serde_json::{Value, json};

/// Separates the packets of one polling request or response.
pub const SEPARATOR: char = '\u{1e}';

/// A heartbeat of the server.
pub const PING: &str = "2";

/// The response to a [probe](Packet::Probe).
pub const PROBE_ANSWER: &str = "3probe";

/// Ends a pending polling request when the transport changes.
pub const NOOP: &str = "6";

/// Leaves the namespace and closes the connection.
pub const GOODBYE: &str = "41\u{1e}1";

/// A packet of a client.
#[derive(Clone, Debug, PartialEq)]
pub enum Packet {
    /// A heartbeat, or the response to one.
    Heartbeat,
    /// The first packet of a WebSocket that is to replace polling.
    Probe,
    /// Polling ends; the WebSocket is used from here on.
    Upgrade,
    /// The client closes the connection, or leaves the namespace.
    Close,
    /// The client joins a namespace.
    Connect {
        /// `/` is the main one.
        namespace: String,
    },
    /// An event from the client.
    Event {
        /// Its name.
        name: String,
        /// The event's first argument.
        data: Value,
        /// The id for the acknowledgement, if the client asked for one.
        ack: Option<u64>,
    },
    /// An acknowledgement. We never ask for one.
    Ack,
}

/// A text that is not a packet, or an unsupported packet.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// It is not a packet of the protocol.
    #[error("{start:?} is not the beginning of a Socket.IO packet")]
    Unknown {
        /// Its first characters.
        start: String,
    },
    /// The payload is invalid.
    #[error("the event is not a JSON list that begins with a name")]
    Payload,
    /// It has binary attachments.
    #[error("binary events are not supported: send JSON")]
    Binary,
    /// It is for another namespace.
    #[error("there is no namespace {0:?}")]
    Namespace(String),
}

impl Packet {
    /// Reads a packet.
    ///
    /// # Errors
    ///
    /// If it is not a packet that a client of the main namespace sends.
    pub fn read(text: &str) -> Result<Self, PacketError> {
        let unknown = || PacketError::Unknown { start: text.chars().take(16).collect() };
        match text {
            "2probe" => return Ok(Self::Probe),
            "5" => return Ok(Self::Upgrade),
            "1" => return Ok(Self::Close),
            "2" | "3" | "6" => return Ok(Self::Heartbeat),
            _ => {}
        }
        let message = text.strip_prefix('4').ok_or_else(unknown)?;
        let mut rest = message.chars();
        let kind = rest.next().ok_or_else(unknown)?;
        let (namespace, rest) = namespace(rest.as_str());
        match kind {
            '0' => return Ok(Self::Connect { namespace: namespace.to_owned() }),
            '5' | '6' => return Err(PacketError::Binary),
            '1' | '2' | '3' if namespace != "/" => {
                return Err(PacketError::Namespace(namespace.chars().take(64).collect()));
            }
            '1' => return Ok(Self::Close),
            '3' => return Ok(Self::Ack),
            '2' => {}
            _ => return Err(unknown()),
        }
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let ack = rest[..digits].parse().ok();
        let Ok(Value::Array(arguments)) = serde_json::from_str(&rest[digits..]) else {
            return Err(PacketError::Payload);
        };
        let mut arguments = arguments.into_iter();
        match arguments.next() {
            Some(Value::String(name)) => {
                Ok(Self::Event { name, data: arguments.next().unwrap_or_default(), ack })
            }
            _ => Err(PacketError::Payload),
        }
    }
}

/// The namespace of a packet, and the rest.
fn namespace(rest: &str) -> (&str, &str) {
    if !rest.starts_with('/') {
        return ("/", rest);
    }
    let (named, rest) = rest.split_once(',').unwrap_or((rest, ""));
    (named.split('?').next().unwrap_or(named), rest)
}

/// The first packet of a connection.
#[must_use]
pub fn open(
    session: &str,
    upgrades: &[&str],
    ping: (Duration, Duration),
    bytes_max: usize,
) -> String {
    let (interval, timeout) = ping;
    let hello = json!({
        "sid": session,
        "upgrades": upgrades,
        "pingInterval": u64::try_from(interval.as_millis()).unwrap_or(u64::MAX),
        "pingTimeout": u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        "maxPayload": bytes_max,
    });
    format!("0{hello}")
}

/// Confirms that the client joined the main namespace.
#[must_use]
pub fn connected(session: &str) -> String {
    format!("40{}", json!({ "sid": session }))
}

/// Refuses that a client joins a namespace.
#[must_use]
pub fn connect_error(namespace: &str, message: &str) -> String {
    let namespace = if namespace == "/" { String::new() } else { format!("{namespace},") };
    format!("44{namespace}{}", json!({ "message": message }))
}

/// An event with one argument, which is JSON. The name needs no escaping.
#[must_use]
pub fn event(name: &str, json: &[u8]) -> String {
    let mut packet = Vec::with_capacity(json.len() + name.len() + 8);
    put_event(&mut packet, name, json);
    // JSON is UTF-8.
    String::from_utf8(packet).unwrap_or_default()
}

/// Appends an [event].
pub fn put_event(packet: &mut Vec<u8>, name: &str, json: &[u8]) {
    let pieces: [&[u8]; 5] = [b"42[\"", name.as_bytes(), b"\",", json, b"]"];
    pieces.into_iter().for_each(|piece| packet.extend_from_slice(piece));
}

/// Acknowledges an event.
#[must_use]
pub fn ack(id: u64) -> String {
    format!("43{id}[]")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{Packet, PacketError};

    #[test]
    fn packets_are_read() {
        let event = |name: &str, data, ack| Packet::Event { name: name.into(), data, ack };
        for (text, packet) in [
            ("2probe", Packet::Probe),
            ("5", Packet::Upgrade),
            ("3", Packet::Heartbeat),
            ("41", Packet::Close),
            ("40", Packet::Connect { namespace: "/".into() }),
            (r#"40{"token":"t"}"#, Packet::Connect { namespace: "/".into() }),
            ("40/admin,{}", Packet::Connect { namespace: "/admin".into() }),
            (r#"42["message",{"a":1}]"#, event("message", json!({"a": 1}), None)),
            (r#"4217["abort_run"]"#, event("abort_run", Value::Null, Some(17))),
            ("433[]", Packet::Ack),
        ] {
            assert_eq!(Packet::read(text), Ok(packet), "{text}");
        }
    }

    #[test]
    fn what_is_not_served_is_refused() {
        for text in ["", "x", "4", "47", "42", "42{}", "42[1]", "42[\"a\"", "ü"] {
            assert!(Packet::read(text).is_err(), "{text}");
        }
        assert_eq!(
            Packet::read(r#"451-["a",{"_placeholder":true,"num":0}]"#),
            Err(PacketError::Binary)
        );
        let elsewhere = Packet::read(r#"42/admin,["a"]"#);
        assert_eq!(elsewhere, Err(PacketError::Namespace("/admin".into())));
    }

    proptest! {
        #[test]
        fn anything_can_be_read(text in "[0-9/,\\[\\]{}\"a-z\u{1e}]{0,24}") {
            let _ = Packet::read(&text);
        }
    }
}
