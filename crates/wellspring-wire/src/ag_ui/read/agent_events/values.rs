//! Maps single values of AG-UI to ours.

use serde_json::Value;
use wellspring_core::{
    AgentNo, Batch, Event as Fact, Extended, PartKind, Role, Stop, ToolKind, Usage, UsageScope,
};

use super::super::super::types::{
    Event, MessageContent, MessagePart, Metadata, TextRole, TokenUsage,
};

/// The origin of extended events.
pub(super) const ORIGIN: &str = "ag-ui";

/// The part kind of a streamed message; `None` for instructions to a model, which are not shown.
pub(super) fn text_kind(role: TextRole) -> Option<PartKind> {
    match role {
        TextRole::Assistant => Some(PartKind::TEXT),
        TextRole::User => Some(PartKind::Text { role: Role::User }),
        TextRole::Developer | TextRole::System => None,
    }
}

pub(super) fn custom(name: Box<str>, value: Value) -> Fact {
    let known = match &*name {
        "source" => serde_json::from_value(value.clone()).ok().map(Fact::SourceCited),
        "file" => serde_json::from_value(value.clone()).ok().map(Fact::FileProduced),
        _ => None,
    };
    known.unwrap_or_else(|| {
        Fact::Extended(Box::new(Extended { origin: ORIGIN.into(), name, value }))
    })
}

/// Keeps an event whole, as an extended event.
pub(super) fn keep(batch: &mut Batch, agent: AgentNo, event: &Event) {
    let name = name_of(event).into();
    // Our own types always serialise.
    let value = serde_json::to_value(event).unwrap_or_default();
    let extended = Extended { origin: ORIGIN.into(), name, value };
    batch.event_of(agent, Fact::Extended(Box::new(extended)));
}

/// Whether this event ends the message that a chunk opened.
pub(super) fn ends_chunk(event: &Event) -> bool {
    !matches!(
        event,
        Event::TextMessageChunk(_)
            | Event::ToolCallChunk(_)
            | Event::ReasoningMessageChunk(_)
            | Event::StateSnapshot(_)
            | Event::StateDelta(_)
            | Event::ActivitySnapshot(_)
            | Event::ActivityDelta(_)
            | Event::Raw(_)
            | Event::Custom(_)
    )
}

pub(super) fn words(content: &MessageContent) -> String {
    match content {
        MessageContent::Text(text) => text.clone(),
        MessageContent::Parts(parts) => {
            let texts = parts.iter().filter_map(|part| match part {
                MessagePart::Text { text, .. } => Some(text.as_str()),
                MessagePart::Image(_)
                | MessagePart::Audio(_)
                | MessagePart::Video(_)
                | MessagePart::Document(_)
                | MessagePart::Binary { .. } => None,
            });
            texts.collect::<Vec<_>>().join("\n")
        }
    }
}

pub(super) fn metadata_text(metadata: Option<&Metadata>, name: &str) -> Option<Box<str>> {
    metadata?.get(name)?.as_str().map(Into::into)
}

pub(super) fn metadata_kind(metadata: Option<&Metadata>) -> ToolKind {
    let kind = metadata.and_then(|metadata| metadata.get("kind"));
    kind.and_then(|kind| serde_json::from_value(kind.clone()).ok()).unwrap_or_default()
}

pub(super) fn stop(reason: Option<&str>) -> Stop {
    match reason {
        None | Some("end_turn" | "stop") => Stop::EndTurn,
        Some("max_tokens" | "length") => Stop::MaxTokens,
        Some("refusal") => Stop::Refusal,
        Some("content_filter" | "content-filter") => Stop::ContentFilter,
        Some("stop_sequence") => Stop::StopSequence,
        Some("turn_limit") => Stop::TurnLimit,
        Some(other) => Stop::Other(other.into()),
    }
}

/// The total usage of all models, since a run has one stop.
pub(super) fn usage(entries: &[TokenUsage]) -> Option<Usage> {
    let first = entries.first()?;
    let mut total = Usage {
        scope: UsageScope::Run,
        provider: first.provider.clone(),
        model: first.model.clone(),
        ..Usage::default()
    };
    for entry in entries {
        total.add(&Usage {
            input: entry.input_tokens.unwrap_or(0),
            output: entry.output_tokens.unwrap_or(0),
            reasoning: entry.reasoning_tokens,
            cached_input: entry.cached_input_tokens,
            cache_write: entry.cache_write_input_tokens,
            ..Usage::default()
        });
    }
    Some(total)
}

pub(super) const fn name_of(event: &Event) -> &'static str {
    match event {
        Event::TextMessageStart(_) => "TEXT_MESSAGE_START",
        Event::TextMessageContent(_) => "TEXT_MESSAGE_CONTENT",
        Event::TextMessageEnd(_) => "TEXT_MESSAGE_END",
        Event::TextMessageChunk(_) => "TEXT_MESSAGE_CHUNK",
        Event::ToolCallStart(_) => "TOOL_CALL_START",
        Event::ToolCallArgs(_) => "TOOL_CALL_ARGS",
        Event::ToolCallEnd(_) => "TOOL_CALL_END",
        Event::ToolCallChunk(_) => "TOOL_CALL_CHUNK",
        Event::ToolCallResult(_) => "TOOL_CALL_RESULT",
        Event::StateSnapshot(_) => "STATE_SNAPSHOT",
        Event::StateDelta(_) => "STATE_DELTA",
        Event::MessagesSnapshot(_) => "MESSAGES_SNAPSHOT",
        Event::ActivitySnapshot(_) => "ACTIVITY_SNAPSHOT",
        Event::ActivityDelta(_) => "ACTIVITY_DELTA",
        Event::Raw(_) => "RAW",
        Event::Custom(_) => "CUSTOM",
        Event::RunStarted(_) => "RUN_STARTED",
        Event::RunFinished(_) => "RUN_FINISHED",
        Event::RunError(_) => "RUN_ERROR",
        Event::StepStarted(_) => "STEP_STARTED",
        Event::StepFinished(_) => "STEP_FINISHED",
        Event::ReasoningStart(_) => "REASONING_START",
        Event::ReasoningMessageStart(_) => "REASONING_MESSAGE_START",
        Event::ReasoningMessageContent(_) => "REASONING_MESSAGE_CONTENT",
        Event::ReasoningMessageEnd(_) => "REASONING_MESSAGE_END",
        Event::ReasoningMessageChunk(_) => "REASONING_MESSAGE_CHUNK",
        Event::ReasoningEnd(_) => "REASONING_END",
        Event::ReasoningEncryptedValue(_) => "REASONING_ENCRYPTED_VALUE",
        Event::SubagentStarted(_) => "SUBAGENT_STARTED",
        Event::SubagentFinished(_) => "SUBAGENT_FINISHED",
        Event::SubagentError(_) => "SUBAGENT_ERROR",
    }
}
