//! Frames of the gateway. Every field is optional, because real payloads differ from the
//! published schema in both directions; unknown fields are ignored here and kept by the reader.

use serde_json::{Map, Value};

/// A frame from the gateway.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// The answer to a request. `agent` gets two: accepted, and the result.
    Response(Response),
    /// An event.
    Event(EventFrame),
    /// A frame of another type, or an invalid frame.
    Other(Value),
}

impl Frame {
    /// Reads a frame.
    ///
    /// ```
    /// use wellspring_wire::openclaw::Frame;
    ///
    /// let frame = Frame::of(serde_json::json!({"type": "event", "event": "tick", "seq": 2}));
    /// assert!(matches!(frame, Frame::Event(tick) if &*tick.event == "tick" && tick.seq == Some(2)));
    /// ```
    #[must_use]
    pub fn of(mut frame: Value) -> Self {
        match frame["type"].as_str() {
            Some("res") => Self::Response(Response {
                id: text(&frame, "id").unwrap_or_default(),
                ok: frame["ok"].as_bool().unwrap_or(false),
                error: GatewayError::of(&frame["error"]),
                payload: frame.get_mut("payload").map(Value::take).unwrap_or_default(),
            }),
            Some("event") => Self::Event(EventFrame {
                event: text(&frame, "event").unwrap_or_default(),
                seq: frame["seq"].as_u64(),
                payload: frame.get_mut("payload").map(Value::take).unwrap_or_default(),
            }),
            Some(_) | None => Self::Other(frame),
        }
    }
}

/// The answer to a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Response {
    /// The request's id.
    pub id: Box<str>,
    /// Whether it succeeded.
    pub ok: bool,
    /// The result.
    pub payload: Value,
    /// The error, if it did not succeed.
    pub error: Option<GatewayError>,
}

impl Response {
    /// `accepted`, `in_flight`, `ok`, `error`, `timeout` or another status.
    #[must_use]
    pub fn status(&self) -> &str {
        self.payload["status"].as_str().unwrap_or_default()
    }

    /// Whether another response to the same request follows.
    #[must_use]
    pub fn is_interim(&self) -> bool {
        self.ok && matches!(self.status(), "accepted" | "in_flight" | "started")
    }
}

/// An error of the gateway.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GatewayError {
    /// For example `INVALID_REQUEST` or `UNAVAILABLE`.
    pub code: Box<str>,
    /// The message for people.
    pub message: Box<str>,
    /// Further details; their shape depends on the code.
    pub details: Value,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// How long to wait before a retry, in milliseconds.
    pub retry_after_ms: Option<u64>,
}

impl GatewayError {
    fn of(error: &Value) -> Option<Self> {
        error.is_object().then(|| Self {
            code: text(error, "code").unwrap_or_default(),
            message: text(error, "message").unwrap_or_default(),
            details: error["details"].clone(),
            retryable: error["retryable"].as_bool().unwrap_or(false),
            retry_after_ms: error["retryAfterMs"].as_u64(),
        })
    }

    /// The most precise code: that of `details`, if there is one.
    #[must_use]
    pub fn detail_code(&self) -> &str {
        self.details["code"].as_str().unwrap_or(&self.code)
    }

    /// Whether the gateway is still starting, so that the request should be repeated.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        self.details["reason"] == "startup-sidecars"
    }
}

/// An event of the gateway.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventFrame {
    /// For example `agent`, `chat` or `tick`.
    pub event: Box<str>,
    /// The number of the event on this connection. A gap means that events were dropped.
    pub seq: Option<u64>,
    /// The event's data.
    pub payload: Value,
}

impl EventFrame {
    /// The run that it belongs to, for `agent` and `chat`.
    #[must_use]
    pub fn run_id(&self) -> Option<&str> {
        matches!(&*self.event, "agent" | "chat").then(|| self.payload["runId"].as_str())?
    }
}

/// The gateway's first event, with the value that a client must sign.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Challenge {
    /// The value to include in the signature.
    pub nonce: Box<str>,
    /// The gateway's time, in milliseconds.
    pub ts: u64,
}

impl Challenge {
    /// Reads a `connect.challenge`.
    #[must_use]
    pub fn of(payload: &Value) -> Self {
        Self {
            nonce: text(payload, "nonce").unwrap_or_default(),
            ts: payload["ts"].as_u64().unwrap_or(0),
        }
    }
}

/// The gateway's answer to `connect`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HelloOk {
    /// The protocol version for this connection.
    pub protocol: u64,
    /// The gateway's version.
    pub version: Box<str>,
    /// The id of the gateway's process. It changes with every restart.
    pub boot_id: Option<Box<str>>,
    /// Milliseconds between two ticks.
    pub tick_interval_ms: Option<u64>,
    /// Maximum size of a frame from us, in bytes.
    pub max_payload: Option<u64>,
}

impl HelloOk {
    /// Reads a `hello-ok`.
    #[must_use]
    pub fn of(payload: &Value) -> Self {
        Self {
            protocol: payload["protocol"].as_u64().unwrap_or(0),
            version: text(&payload["server"], "version").unwrap_or_default(),
            boot_id: text(&payload["server"], "bootId"),
            tick_interval_ms: payload["policy"]["tickIntervalMs"].as_u64(),
            max_payload: payload["policy"]["maxPayload"].as_u64(),
        }
    }
}

/// The kind of an agent event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AgentEventStream {
    /// Start and end of the run, and its models.
    Lifecycle,
    /// A tool with its arguments, progress and result. Needs the capability `tool-events`.
    Tool,
    /// Text of the answer, cumulative per message.
    Assistant,
    /// Thoughts, cumulative without an id.
    Thinking,
    /// An error of the stream.
    Error,
    /// A description of what the run does: calls with titles, preambles.
    Item,
    /// Output of a command.
    CommandOutput,
    /// Token counts.
    Usage,
    /// A stream newer than this crate.
    Other(Box<str>),
}

impl AgentEventStream {
    fn of(name: &str) -> Self {
        match name {
            "lifecycle" => Self::Lifecycle,
            "tool" => Self::Tool,
            "assistant" => Self::Assistant,
            "thinking" => Self::Thinking,
            "error" => Self::Error,
            "item" => Self::Item,
            "command_output" => Self::CommandOutput,
            "usage" => Self::Usage,
            other => Self::Other(other.into()),
        }
    }

    /// Its name on the wire.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Lifecycle => "lifecycle",
            Self::Tool => "tool",
            Self::Assistant => "assistant",
            Self::Thinking => "thinking",
            Self::Error => "error",
            Self::Item => "item",
            Self::CommandOutput => "command_output",
            Self::Usage => "usage",
            Self::Other(name) => name,
        }
    }
}

/// The payload of an `agent` event.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentEventPayload {
    /// The run's id, which we chose.
    pub run_id: Box<str>,
    /// The number of the event in its run. Gaps are normal: the gateway coalesces.
    pub seq: u64,
    /// The kind of event.
    pub stream: AgentEventStream,
    /// The gateway's time, in milliseconds.
    pub ts: u64,
    /// The event itself.
    pub data: Map<String, Value>,
    /// The session.
    pub session_key: Option<Box<str>>,
}

impl AgentEventPayload {
    /// Reads an `agent` event. Data that is not an object counts as empty.
    #[must_use]
    pub fn of(mut payload: Value) -> Self {
        let data = payload.get_mut("data").map(Value::take).unwrap_or_default();
        let data = if let Value::Object(data) = data { data } else { Map::new() };
        Self {
            run_id: text(&payload, "runId").unwrap_or_default(),
            seq: payload["seq"].as_u64().unwrap_or(0),
            stream: AgentEventStream::of(payload["stream"].as_str().unwrap_or_default()),
            ts: payload["ts"].as_u64().unwrap_or(0),
            data,
            session_key: text(&payload, "sessionKey"),
        }
    }
}

/// The active run of a session, from `chat.history`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct InFlightRun {
    /// The run.
    pub run_id: Box<str>,
    /// The text so far, of all messages.
    pub text: Box<str>,
}

impl InFlightRun {
    /// Reads the response to `chat.history`; `None` if no run is active.
    #[must_use]
    pub fn of(history: &Value) -> Option<Self> {
        let run = &history["inFlightRun"];
        Some(Self { run_id: text(run, "runId")?, text: text(run, "text").unwrap_or_default() })
    }
}

pub(super) fn text(value: &Value, name: &str) -> Option<Box<str>> {
    value[name].as_str().map(Into::into)
}
