//! Spans of runs, by OpenTelemetry's conventions for generative AI.
//!
//! `invoke_agent` covers an agent until it ends or waits for people. It contains `chat` (a turn
//! with all its attempts) and `execute_tool`; a sub-agent's span is inside the span of the call.
//! `evaluate` is a user's rating of an answer. They are plain `tracing` spans with the target
//! [`SPANS`]: add a subscriber to export them. Spans are never entered, so a delta costs nothing;
//! without a subscriber there is no cost at all.
//!
//! Content is recorded only if the target [`CONTENT`] is enabled too.
//!
//! # What is deliberately absent
//!
//! OpenTelemetry itself: the command exports the spans. Lists: a field holds one value, so a list
//! is written as JSON.

use serde_json::{Value, json};
use tracing::Span;
use tracing::field::Empty;
use wellspring_core::{
    Content, Message, Model, ModelError, Outcome, PartId, PartKind, Role, Stop, ToolOutcome,
    ToolResult, ToolSpec, Usage,
};
use wellspring_log::RunInfo;

use crate::agent::{AgentDef, Backend};
use crate::run::Run;
use crate::turn::{Turn, TurnConfig};

/// The target of every span.
pub const SPANS: &str = "wellspring::genai";

/// The target that must be enabled for spans to contain messages, arguments and results.
pub const CONTENT: &str = "wellspring::content";

/// The span of an agent.
pub(crate) fn agent(parent: &Span, run: &Run, def: &AgentDef) -> Span {
    let model = match &def.backend {
        Backend::Model(model) => Some(model),
        Backend::Remote(_) => None,
    };
    tracing::info_span!(
        target: SPANS,
        parent: parent,
        "invoke_agent",
        otel.name = format!("invoke_agent {}", def.name),
        otel.kind = "internal",
        otel.status_code = Empty,
        otel.status_description = Empty,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.provider.name = model.and_then(|model| model.provider()),
        gen_ai.agent.name = &*def.name,
        gen_ai.agent.description = (!def.description.is_empty()).then_some(&*def.description),
        gen_ai.conversation.id = %run.started.thread,
        session.id = %run.started.thread,
        gen_ai.request.model = model.map(|model| model.name()),
        gen_ai.response.finish_reasons = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        gen_ai.usage.cost = Empty,
        wellspring.usage.currency = Empty,
        "error.type" = Empty,
        wellspring.run.id = %run.id(),
        wellspring.trace_id = &*run.trace_id,
    )
}

/// Records how an agent ended and the run's total usage.
pub(crate) fn agent_ended(span: &Span, outcome: &Outcome, usage: Option<&Usage>) {
    if span.is_disabled() {
        return;
    }
    if let Some(usage) = usage {
        span.record("gen_ai.usage.input_tokens", number(usage.input));
        span.record("gen_ai.usage.output_tokens", number(usage.output));
        record_cost(span, usage);
    }
    match outcome {
        Outcome::Completed { stop } => {
            span.record("gen_ai.response.finish_reasons", finish_reasons(stop));
        }
        Outcome::Cancelled { .. } => failed(span, "cancelled", &outcome.to_string()),
        Outcome::Failed { kind, message, .. } => failed(span, &word(kind), message),
    }
}

/// The span of a turn: one answer of a model, with all its attempts.
pub(crate) fn chat(parent: &Span, run: &Run, model: &dyn Model, config: &TurnConfig) -> Span {
    let name = config.model_name.as_deref().unwrap_or_else(|| model.name());
    let settings = &config.settings;
    let stops = &settings.stop_sequences;
    let span = tracing::info_span!(
        target: SPANS,
        parent: parent,
        "chat",
        otel.name = format!("chat {name}"),
        otel.kind = "client",
        otel.status_code = Empty,
        otel.status_description = Empty,
        gen_ai.operation.name = "chat",
        gen_ai.provider.name = model.provider(),
        gen_ai.conversation.id = %run.started.thread,
        session.id = %run.started.thread,
        server.address = model.server().map(|(host, _)| host),
        server.port = model.server().map(|(_, port)| i64::from(port)),
        gen_ai.request.model = name,
        gen_ai.request.max_tokens = i64::from(settings.max_output_tokens),
        gen_ai.request.temperature = settings.temperature.map(f64::from),
        gen_ai.request.stop_sequences = (!stops.is_empty()).then(|| json!(stops).to_string()),
        gen_ai.response.id = Empty,
        gen_ai.response.model = Empty,
        gen_ai.response.finish_reasons = Empty,
        gen_ai.response.time_to_first_chunk = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        gen_ai.usage.cache_read.input_tokens = Empty,
        gen_ai.usage.cache_creation.input_tokens = Empty,
        gen_ai.usage.reasoning.output_tokens = Empty,
        gen_ai.usage.cost = Empty,
        wellspring.usage.currency = Empty,
        gen_ai.system_instructions = Empty,
        gen_ai.input.messages = Empty,
        gen_ai.output.messages = Empty,
        "error.type" = Empty,
        wellspring.turn.attempts = Empty,
    );
    if has_content(&span) {
        let instructions = json!([{"type": "text", "content": &*config.instructions}]);
        span.record("gen_ai.system_instructions", instructions.to_string());
        let messages: Vec<Value> = config.messages.iter().map(message).collect();
        span.record("gen_ai.input.messages", json!(messages).to_string());
    }
    span
}

/// Records a complete answer.
pub(crate) fn chat_ended(span: &Span, turn: &Turn, attempts: u32) {
    if span.is_disabled() {
        return;
    }
    let (stop, usage) = turn.outcome();
    span.record("wellspring.turn.attempts", i64::from(attempts));
    span.record("gen_ai.response.finish_reasons", finish_reasons(&stop));
    span.record("gen_ai.response.id", turn.response_id());
    let answered = usage.as_ref().and_then(|usage| usage.model.as_deref());
    span.record("gen_ai.response.model", answered.unwrap_or_else(|| turn.model().name()));
    if let Some(usage) = &usage {
        record_cost(span, usage);
        span.record("gen_ai.usage.input_tokens", number(usage.input));
        span.record("gen_ai.usage.output_tokens", number(usage.output));
        span.record("gen_ai.usage.cache_read.input_tokens", usage.cached_input.map(number));
        span.record("gen_ai.usage.cache_creation.input_tokens", usage.cache_write.map(number));
        span.record("gen_ai.usage.reasoning.output_tokens", usage.reasoning.map(number));
    }
    if has_content(span) {
        let mut parts = Vec::new();
        if !turn.text().is_empty() {
            parts.push(json!({"type": "text", "content": turn.text()}));
        }
        parts.extend(turn.tool_calls().iter().map(
            |call| json!({"type": "tool_call", "name": &*call.name, "arguments": call.arguments}),
        ));
        let answer = json!([{
            "role": "assistant", "parts": parts, "finish_reason": finish_reason(&stop),
        }]);
        span.record("gen_ai.output.messages", answer.to_string());
    }
}

/// Records a failed turn.
pub(crate) fn chat_failed(span: &Span, error: &ModelError, attempts: u32) {
    if !span.is_disabled() {
        span.record("wellspring.turn.attempts", i64::from(attempts));
        failed(span, &word(&error.kind()), &error.to_string());
    }
}

/// The span of a tool call.
pub(crate) fn tool(
    parent: &Span,
    run: &Run,
    call: PartId,
    spec: &ToolSpec,
    arguments: &Value,
) -> Span {
    let span = tracing::info_span!(
        target: SPANS,
        parent: parent,
        "execute_tool",
        otel.name = format!("execute_tool {}", spec.name),
        otel.kind = "internal",
        otel.status_code = Empty,
        otel.status_description = Empty,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = &*spec.name,
        "gen_ai.tool.type" = "function",
        gen_ai.tool.description = (!spec.description.is_empty()).then_some(&*spec.description),
        gen_ai.tool.call.id = format!("{}-{call}", run.id()),
        gen_ai.tool.call.arguments = Empty,
        gen_ai.tool.call.result = Empty,
        "error.type" = Empty,
    );
    if has_content(&span) {
        span.record("gen_ai.tool.call.arguments", arguments.to_string());
    }
    span
}

/// Records the result of a call.
pub(crate) fn tool_ended(span: &Span, outcome: ToolOutcome, result: &ToolResult) {
    if span.is_disabled() {
        return;
    }
    let content = has_content(span);
    if content {
        span.record("gen_ai.tool.call.result", result.output.to_string());
    }
    if outcome != ToolOutcome::Ok {
        let kind = word(&outcome);
        // The message may repeat the arguments, so it counts as content.
        let said = if content { result.output.to_string() } else { kind.clone() };
        failed(span, &kind, &said);
    }
}

/// Emits the span of a rating. It has no duration, and is in the trace that the run's caller named.
pub(crate) fn rating(run: &RunInfo, part: Option<PartId>, rating: &str, by: &str) -> Span {
    tracing::info_span!(
        target: SPANS,
        parent: None,
        "evaluate",
        otel.name = "evaluate user_feedback",
        otel.kind = "internal",
        gen_ai.operation.name = "evaluate",
        gen_ai.evaluation.name = "user_feedback",
        gen_ai.evaluation.score.label = rating,
        gen_ai.conversation.id = %run.thread,
        session.id = %run.thread,
        user.id = by,
        wellspring.run.id = %run.run,
        wellspring.part = part.map(|part| part.to_string()),
    )
}

fn failed(span: &Span, kind: &str, what: &str) {
    span.record("otel.status_code", "ERROR");
    span.record("otel.status_description", what);
    span.record("error.type", kind);
}

fn has_content(span: &Span) -> bool {
    !span.is_disabled() && tracing::enabled!(target: CONTENT, tracing::Level::INFO)
}

/// The conventions have no name for cost yet; this is the name that backends read.
fn record_cost(span: &Span, usage: &Usage) {
    if let Some(cost) = &usage.cost {
        span.record("gen_ai.usage.cost", cost.amount);
        span.record("wellspring.usage.currency", &*cost.currency);
    }
}

/// Attributes are signed integers.
fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// An enum value in its serialised form.
fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        Ok(_) | Err(_) => "_OTHER".to_owned(),
    }
}

fn finish_reasons(stop: &Stop) -> String {
    json!([finish_reason(stop)]).to_string()
}

/// The stop reason as the conventions name it.
fn finish_reason(stop: &Stop) -> &str {
    match stop {
        Stop::EndTurn | Stop::StopSequence => "stop",
        Stop::ToolCalls => "tool_call",
        Stop::MaxTokens => "length",
        Stop::Refusal | Stop::ContentFilter => "content_filter",
        Stop::Paused => "paused",
        Stop::TurnLimit => "turn_limit",
        Stop::Budget(_) => "budget",
        Stop::Other(other) => other,
    }
}

fn message(message: &Message) -> Value {
    match message {
        Message::User { content } => {
            json!({"role": "user", "parts": content.iter().map(block).collect::<Vec<_>>()})
        }
        Message::Assistant { parts, .. } => {
            let parts = parts.iter().filter_map(|part| match &part.kind {
                PartKind::Text { role: Role::Assistant | Role::User } => {
                    Some(json!({"type": "text", "content": part.text}))
                }
                PartKind::Thought => Some(json!({"type": "reasoning", "content": part.text})),
                PartKind::ToolCall(call) => Some(json!({
                    "type": "tool_call",
                    "id": part.id.to_string(),
                    "name": call.name,
                    "arguments": crate::calls::arguments::parse_arguments(&part.text),
                })),
                PartKind::Output { .. } | PartKind::Opaque(_) => None,
            });
            json!({"role": "assistant", "parts": parts.collect::<Vec<_>>()})
        }
        Message::Results { results } => {
            let parts = results.iter().map(|result| {
                json!({
                    "type": "tool_call_response",
                    "id": result.call.to_string(),
                    "response": result.result.output,
                })
            });
            json!({"role": "tool", "parts": parts.collect::<Vec<_>>()})
        }
    }
}

/// Text is included; other content appears only by its type, because images are too large for a
/// span.
fn block(content: &Content) -> Value {
    match content {
        Content::Text(text) => json!({"type": "text", "content": text}),
        Content::Media { media_type, .. } => json!({"type": "blob", "mime_type": media_type}),
        Content::Link { uri, .. } => json!({"type": "uri", "uri": uri}),
        Content::Resource { uri, text, .. } => {
            json!({"type": "text", "content": text, "uri": uri})
        }
    }
}
