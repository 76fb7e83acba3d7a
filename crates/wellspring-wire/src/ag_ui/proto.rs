//! The binary encoding of events, `application/vnd.ag-ui.event+proto`.
//!
//! Each event is a protobuf message, preceded by its length as four bytes, big-endian. The
//! field numbers are those of the `.proto` files that `@ag-ui/proto` 1.0 publishes. They are
//! few and never change, so the encoder is written by hand, without a code generator.
//!
//! Writing only: requests are JSON in either encoding, and remote agents are read as JSON.

mod fields;

use serde_json::{Map, Value};

use super::types::{
    Context, EncryptedSubtype, Event, Interrupt, Message, MessageContent, MessagePart, Metadata,
    PartMedia, PartSource, ResumeEntry, ResumeStatus, RunAgentInput, RunOutcome, SubagentOutcome,
    TextRole, TokenUsage, Tool, ToolCall,
};
use fields::Fields;

/// The media type of the encoding. It must have no parameters: with a charset, the official
/// client does not recognise it.
pub const MEDIA_TYPE: &str = "application/vnd.ag-ui.event+proto";

/// Appends an event, preceded by its length.
///
/// ```
/// use wellspring_wire::ag_ui::{proto, types::TextMessageEnd};
///
/// let end = TextMessageEnd { message_id: "m".into(), ..TextMessageEnd::default() };
/// let mut bytes = Vec::new();
/// proto::frame(&end.into(), &mut bytes);
/// assert_eq!(bytes, [0, 0, 0, 9, 0x1a, 7, 0x0a, 2, 0x08, 2, 0x12, 1, b'm']);
/// ```
pub fn frame(event: &Event, bytes: &mut Vec<u8>) {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    encode(event, bytes);
    // A record is never longer than four bytes can express.
    let length = u32::try_from(bytes.len() - start - 4).unwrap_or(u32::MAX);
    bytes[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends an event.
pub fn encode(event: &Event, bytes: &mut Vec<u8>) {
    /// Writes one event: its field of the envelope, its event type, the fields that every event
    /// may have, and then its own fields.
    macro_rules! event {
        ($event:ident, $field:literal, $kind:literal, |$fields:ident| $own:block) => {
            Fields::new(bytes).message($field, |$fields| {
                $fields.message(1, |base| {
                    base.number(1, $kind);
                    base.optional_integer(2, $event.timestamp);
                    base.optional_value(3, $event.raw_event.as_ref());
                    base.optional_object(4, $event.metadata.as_ref());
                });
                $own
            })
        };
    }
    match event {
        Event::TextMessageStart(e) => event!(e, 1, 0, |f| {
            f.string(2, &e.message_id);
            f.optional(3, e.role.map(text_role));
            f.optional(4, e.name.as_deref());
            f.optional(5, e.subagent_run_id.as_deref());
        }),
        Event::TextMessageContent(e) => event!(e, 2, 1, |f| {
            f.string(2, &e.message_id);
            f.string(3, &e.delta);
            f.optional(4, e.subagent_run_id.as_deref());
        }),
        Event::TextMessageEnd(e) => event!(e, 3, 2, |f| {
            f.string(2, &e.message_id);
            f.optional(3, e.subagent_run_id.as_deref());
        }),
        Event::TextMessageChunk(e) => event!(e, 17, 19, |f| {
            f.optional(2, e.message_id.as_deref());
            f.optional(3, e.role.map(text_role));
            f.optional(4, e.delta.as_deref());
            f.optional(5, e.name.as_deref());
            f.optional(6, e.subagent_run_id.as_deref());
        }),
        Event::ToolCallStart(e) => event!(e, 4, 3, |f| {
            f.string(2, &e.tool_call_id);
            f.string(3, &e.tool_call_name);
            f.optional(4, e.parent_message_id.as_deref());
            f.optional(5, e.subagent_run_id.as_deref());
        }),
        Event::ToolCallArgs(e) => event!(e, 5, 4, |f| {
            f.string(2, &e.tool_call_id);
            f.string(3, &e.delta);
            f.optional(4, e.subagent_run_id.as_deref());
        }),
        Event::ToolCallEnd(e) => event!(e, 6, 5, |f| {
            f.string(2, &e.tool_call_id);
            f.optional(3, e.subagent_run_id.as_deref());
        }),
        Event::ToolCallChunk(e) => event!(e, 18, 20, |f| {
            f.optional(2, e.tool_call_id.as_deref());
            f.optional(3, e.tool_call_name.as_deref());
            f.optional(4, e.parent_message_id.as_deref());
            f.optional(5, e.delta.as_deref());
            f.optional(6, e.subagent_run_id.as_deref());
        }),
        Event::ToolCallResult(e) => event!(e, 22, 21, |f| {
            f.optional(2, e.subagent_run_id.as_deref());
            f.string(3, &e.message_id);
            f.string(4, &e.tool_call_id);
            words(f, 5, &e.content);
            f.optional(6, e.role.map(|_| "tool"));
            parts(f, 7, &e.content);
        }),
        Event::StateSnapshot(e) => event!(e, 7, 6, |f| {
            f.value(2, &e.snapshot);
            f.optional(3, e.subagent_run_id.as_deref());
        }),
        Event::StateDelta(e) => event!(e, 8, 7, |f| {
            patch(f, 2, &e.delta);
            f.optional(3, e.subagent_run_id.as_deref());
        }),
        Event::MessagesSnapshot(e) => event!(e, 9, 8, |f| {
            for one in &e.messages {
                f.message(2, |f| message(f, one));
            }
        }),
        Event::ActivitySnapshot(e) => event!(e, 23, 22, |f| {
            f.optional(2, e.subagent_run_id.as_deref());
            f.string(3, &e.message_id);
            f.string(4, &e.activity_type);
            f.object(5, &e.content);
            f.optional_bool(6, e.replace);
        }),
        Event::ActivityDelta(e) => event!(e, 24, 23, |f| {
            f.optional(2, e.subagent_run_id.as_deref());
            f.string(3, &e.message_id);
            f.string(4, &e.activity_type);
            patch(f, 5, &e.patch);
        }),
        Event::Raw(e) => event!(e, 10, 9, |f| {
            f.value(2, &e.event);
            f.optional(3, e.source.as_deref());
            f.optional(4, e.subagent_run_id.as_deref());
        }),
        Event::Custom(e) => event!(e, 11, 10, |f| {
            f.string(2, &e.name);
            f.value(3, &e.value);
            f.optional(4, e.subagent_run_id.as_deref());
        }),
        Event::RunStarted(e) => event!(e, 12, 11, |f| {
            f.string(2, &e.thread_id);
            f.string(3, &e.run_id);
            f.optional(4, e.parent_run_id.as_deref());
            if let Some(asked) = &e.input {
                f.message(5, |f| input(f, asked));
            }
            f.optional(6, e.protocol_version.as_deref());
        }),
        Event::RunFinished(e) => event!(e, 13, 12, |f| {
            f.string(2, &e.thread_id);
            f.string(3, &e.run_id);
            f.optional_value(4, e.result.as_ref());
            let (outcome, interrupts, pending) = run_outcome(e.outcome.as_ref());
            f.string(5, outcome);
            for one in interrupts {
                f.message(6, |f| interrupt(f, one));
            }
            for one in &e.usage {
                f.message(7, |f| usage(f, one));
            }
            for id in pending {
                f.present(8, id);
            }
        }),
        Event::RunError(e) => event!(e, 14, 13, |f| {
            f.optional(2, e.code.as_deref());
            f.string(3, &e.message);
            for one in &e.usage {
                f.message(4, |f| usage(f, one));
            }
        }),
        Event::StepStarted(e) => event!(e, 15, 14, |f| {
            f.string(2, &e.step_name);
            f.optional(3, e.subagent_run_id.as_deref());
        }),
        Event::StepFinished(e) => event!(e, 16, 15, |f| {
            f.string(2, &e.step_name);
            f.optional(3, e.subagent_run_id.as_deref());
        }),
        Event::ReasoningStart(e) => event!(e, 25, 24, |f| {
            f.optional(2, e.subagent_run_id.as_deref());
            f.string(3, &e.message_id);
        }),
        Event::ReasoningMessageStart(e) => event!(e, 26, 25, |f| {
            f.optional(2, e.subagent_run_id.as_deref());
            f.string(3, &e.message_id);
            f.string(4, "reasoning");
        }),
        Event::ReasoningMessageContent(e) => event!(e, 27, 26, |f| {
            f.optional(2, e.subagent_run_id.as_deref());
            f.string(3, &e.message_id);
            f.string(4, &e.delta);
        }),
        Event::ReasoningMessageEnd(e) => event!(e, 28, 27, |f| {
            f.optional(2, e.subagent_run_id.as_deref());
            f.string(3, &e.message_id);
        }),
        Event::ReasoningMessageChunk(e) => event!(e, 29, 28, |f| {
            f.optional(2, e.subagent_run_id.as_deref());
            f.optional(3, e.message_id.as_deref());
            f.optional(4, e.delta.as_deref());
        }),
        Event::ReasoningEnd(e) => event!(e, 30, 29, |f| {
            f.optional(2, e.subagent_run_id.as_deref());
            f.string(3, &e.message_id);
        }),
        Event::ReasoningEncryptedValue(e) => event!(e, 31, 30, |f| {
            f.optional(2, e.subagent_run_id.as_deref());
            f.string(
                3,
                match e.subtype {
                    EncryptedSubtype::ToolCall => "tool-call",
                    EncryptedSubtype::Message => "message",
                },
            );
            f.string(4, &e.entity_id);
            f.string(5, &e.encrypted_value);
        }),
        Event::SubagentStarted(e) => event!(e, 19, 16, |f| {
            f.string(2, &e.subagent_run_id);
            f.string(3, &e.name);
            f.optional(4, e.description.as_deref());
            f.optional(5, e.parent_subagent_run_id.as_deref());
            f.optional(6, e.parent_tool_call_id.as_deref());
            f.optional(7, e.parent_message_id.as_deref());
        }),
        Event::SubagentFinished(e) => event!(e, 20, 17, |f| {
            f.string(2, &e.subagent_run_id);
            f.optional_value(3, e.result.as_ref());
            match &e.outcome {
                None => {}
                Some(SubagentOutcome::Success {}) => f.string(4, "success"),
                Some(SubagentOutcome::Suspended { interrupt_ids }) => {
                    f.string(4, "suspended");
                    for id in interrupt_ids {
                        f.present(5, id);
                    }
                }
            }
        }),
        Event::SubagentError(e) => event!(e, 21, 18, |f| {
            f.string(2, &e.subagent_run_id);
            f.string(3, &e.message);
            f.optional(4, e.code.as_deref());
        }),
    }
}

const fn text_role(role: TextRole) -> &'static str {
    match role {
        TextRole::Developer => "developer",
        TextRole::System => "system",
        TextRole::Assistant => "assistant",
        TextRole::User => "user",
    }
}

fn run_outcome(outcome: Option<&RunOutcome>) -> (&'static str, &[Interrupt], &[Box<str>]) {
    match outcome {
        None => ("", &[], &[]),
        Some(RunOutcome::Success { pending_tool_call_ids }) => {
            ("success", &[], pending_tool_call_ids)
        }
        Some(RunOutcome::Interrupt { interrupts }) => ("interrupt", interrupts, &[]),
        Some(RunOutcome::Cancelled {}) => ("cancelled", &[], &[]),
    }
}

/// Content that is plain text.
fn words(f: &mut Fields<'_>, field: u32, content: &MessageContent) {
    match content {
        MessageContent::Text(text) => f.present(field, text),
        MessageContent::Parts(_) => {}
    }
}

/// Content that consists of parts, which has a field of its own.
fn parts(f: &mut Fields<'_>, field: u32, content: &MessageContent) {
    match content {
        MessageContent::Text(_) => {}
        MessageContent::Parts(all) => {
            for one in all {
                f.message(field, |f| part(f, one));
            }
        }
    }
}

fn part(f: &mut Fields<'_>, part: &MessagePart) {
    match part {
        MessagePart::Text { text, id, metadata } => f.message(1, |f| {
            f.string(1, text);
            f.optional(2, id.as_deref());
            f.optional_value(3, metadata.as_ref());
        }),
        MessagePart::Image(of) => f.message(2, |f| media(f, of)),
        MessagePart::Audio(of) => f.message(3, |f| media(f, of)),
        MessagePart::Video(of) => f.message(4, |f| media(f, of)),
        MessagePart::Document(of) => f.message(5, |f| media(f, of)),
        // Deprecated: the official encoder also writes it as a document.
        MessagePart::Binary { mime_type, data, url, .. } => {
            let source = match (data, url) {
                (Some(value), _) => {
                    PartSource::Data { value: value.clone(), mime_type: mime_type.clone() }
                }
                (None, url) => PartSource::Url {
                    value: url.clone().unwrap_or_default(),
                    mime_type: Some(mime_type.clone()),
                },
            };
            f.message(5, |f| media(f, &PartMedia { source, id: None, metadata: None }));
        }
    }
}

fn media(f: &mut Fields<'_>, media: &PartMedia) {
    f.message(1, |f| match &media.source {
        PartSource::Data { value, mime_type } => f.message(1, |f| {
            f.string(1, value);
            f.string(2, mime_type);
        }),
        PartSource::Url { value, mime_type } => f.message(2, |f| {
            f.string(1, value);
            f.optional(2, mime_type.as_deref());
        }),
        PartSource::File { value, provider, mime_type } => f.message(3, |f| {
            f.string(1, value);
            f.optional(2, provider.as_deref());
            f.optional(3, mime_type.as_deref());
        }),
    });
    f.optional_value(2, media.metadata.as_ref());
    f.optional(3, media.id.as_deref());
}

/// One protobuf message holds the fields of all roles.
fn message(f: &mut Fields<'_>, message: &Message) {
    let end = |f: &mut Fields<'_>, metadata: &Option<Metadata>, tag: &Option<Box<str>>| {
        f.optional_object(9, metadata.as_ref());
        f.optional(10, tag.as_deref());
    };
    f.string(1, message.id());
    match message {
        Message::Developer(m) | Message::System(m) => {
            let is_system = matches!(message, Message::System(_));
            f.string(2, if is_system { "system" } else { "developer" });
            f.present(3, &m.content);
            f.optional(4, m.name.as_deref());
            end(f, &m.metadata, &m.subagent_run_id);
            f.optional(11, m.encrypted_value.as_deref());
        }
        Message::Assistant(m) => {
            f.string(2, "assistant");
            f.optional(3, m.content.as_deref());
            f.optional(4, m.name.as_deref());
            for call in &m.tool_calls {
                f.message(5, |f| tool_call(f, call));
            }
            end(f, &m.metadata, &m.subagent_run_id);
            f.optional(11, m.encrypted_value.as_deref());
        }
        Message::User(m) => {
            f.string(2, "user");
            words(f, 3, &m.content);
            f.optional(4, m.name.as_deref());
            parts(f, 8, &m.content);
            end(f, &m.metadata, &m.subagent_run_id);
            f.optional(11, m.encrypted_value.as_deref());
        }
        Message::Tool(m) => {
            f.string(2, "tool");
            words(f, 3, &m.content);
            f.present(6, &m.tool_call_id);
            f.optional(7, m.error.as_deref());
            parts(f, 8, &m.content);
            end(f, &m.metadata, &m.subagent_run_id);
            f.optional(11, m.encrypted_value.as_deref());
        }
        Message::Activity(m) => {
            f.string(2, "activity");
            end(f, &m.metadata, &m.subagent_run_id);
            f.present(12, &m.activity_type);
            f.object(13, &m.content);
        }
        Message::Reasoning(m) => {
            f.string(2, "reasoning");
            f.present(3, &m.content);
            end(f, &m.metadata, &m.subagent_run_id);
            f.optional(11, m.encrypted_value.as_deref());
        }
    }
}

fn tool_call(f: &mut Fields<'_>, call: &ToolCall) {
    f.string(1, &call.id);
    f.string(2, &call.kind);
    f.message(3, |f| {
        f.string(1, &call.function.name);
        f.string(2, &call.function.arguments);
    });
    f.optional_object(4, call.metadata.as_ref());
    f.optional(5, call.encrypted_value.as_deref());
}

fn interrupt(f: &mut Fields<'_>, interrupt: &Interrupt) {
    f.string(1, &interrupt.id);
    f.string(2, &interrupt.reason);
    f.optional(3, interrupt.message.as_deref());
    f.optional(4, interrupt.tool_call_id.as_deref());
    f.optional_object_value(5, interrupt.response_schema.as_ref());
    f.optional(6, interrupt.expires_at.as_deref());
    f.optional_object_value(7, interrupt.metadata.as_ref());
    f.optional(8, interrupt.subagent_run_id.as_deref());
}

fn usage(f: &mut Fields<'_>, usage: &TokenUsage) {
    let tokens =
        |tokens: Option<u64>| tokens.map(|tokens| i64::try_from(tokens).unwrap_or(i64::MAX));
    f.optional(1, usage.provider.as_deref());
    f.optional(2, usage.model.as_deref());
    f.optional_integer(3, tokens(usage.input_tokens));
    f.optional_integer(4, tokens(usage.output_tokens));
    f.optional_integer(5, tokens(usage.total_tokens));
    f.optional_integer(6, tokens(usage.reasoning_tokens));
    f.optional_integer(7, tokens(usage.cached_input_tokens));
    f.optional_integer(8, tokens(usage.cache_write_input_tokens));
}

fn patch(f: &mut Fields<'_>, field: u32, operations: &[Value]) {
    for operation in operations {
        let text = |name: &str| operation.get(name).and_then(Value::as_str);
        let op = match text("op") {
            Some("remove") => 1,
            Some("replace") => 2,
            Some("move") => 3,
            Some("copy") => 4,
            Some("test") => 5,
            _ => 0,
        };
        f.message(field, |f| {
            f.number(1, op);
            f.string(2, text("path").unwrap_or_default());
            f.optional(3, text("from"));
            f.optional_value(4, operation.get("value"));
        });
    }
}

fn input(f: &mut Fields<'_>, input: &RunAgentInput) {
    f.string(1, &input.thread_id);
    f.string(2, &input.run_id);
    f.optional(3, input.parent_run_id.as_deref());
    f.optional_value(4, input.state.as_ref());
    for one in &input.messages {
        f.message(5, |f| message(f, one));
    }
    for Tool { name, description, parameters, metadata } in &input.tools {
        f.message(6, |f| {
            f.string(1, name);
            f.string(2, description);
            f.optional_value(3, parameters.as_ref());
            f.optional_object(4, metadata.as_ref());
        });
    }
    for Context { description, value } in &input.context {
        f.message(7, |f| {
            f.string(1, description);
            f.string(2, value);
        });
    }
    f.optional_value(8, input.forwarded_props.as_ref());
    for ResumeEntry { interrupt_id, status, payload, metadata } in &input.resume {
        f.message(9, |f| {
            f.string(1, interrupt_id);
            f.string(
                2,
                match status {
                    ResumeStatus::Resolved => "resolved",
                    ResumeStatus::Cancelled => "cancelled",
                },
            );
            f.optional_value(3, payload.as_ref());
            f.optional_object(4, metadata.as_ref());
        });
    }
    f.optional(10, input.protocol_version.as_deref());
}

impl Fields<'_> {
    fn optional_value(&mut self, field: u32, value: Option<&Value>) {
        if let Some(value) = value {
            self.value(field, value);
        }
    }

    fn optional_object(&mut self, field: u32, object: Option<&Map<String, Value>>) {
        if let Some(object) = object {
            self.object(field, object);
        }
    }

    /// An object in a field that takes any value.
    fn optional_object_value(&mut self, field: u32, object: Option<&Map<String, Value>>) {
        if let Some(object) = object {
            self.message(field, |f| f.object(5, object));
        }
    }
}
