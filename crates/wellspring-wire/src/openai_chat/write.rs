//! Writes conversations as requests.

use serde_json::{Value, json};
use wellspring_core::{
    CallResult, Content, MediaSource, Message, MessagePart, OutputSchema, PartKind, RunsOn,
    Thinking, ToolChoice, ToolContent, ToolSpec, TurnRequest, WirePartId,
};

use super::ORIGIN;
use super::vendor::{CallIdRule, Effort, LimitMember, ReasoningBack, SchemaForm, Vendor};
use crate::provider::call_ids::CallIds;
use crate::provider::{Block, Body, LeftOut, NameRule, Written, decoded_text, marks};

pub(super) const NAMES: NameRule = NameRule::COMMON;

/// Writes a request for one turn by `model`, for this vendor.
#[must_use]
pub fn write(model: &str, request: &TurnRequest, vendor: &Vendor) -> Written {
    let settings = &request.settings;
    let mut left_out = LeftOut::default();
    let messages = messages(request, vendor, &mut left_out);
    let tools: Vec<Block<'_>> = request.tools.iter().map(tool).collect();

    let mut body = Body::new(settings.extra.as_ref());
    body.fixed("model", model);
    let limit = match vendor.limit {
        LimitMember::MaxTokens => "max_tokens",
        LimitMember::MaxCompletionTokens => "max_completion_tokens",
    };
    body.member(limit, &settings.max_output_tokens);
    body.limits_output(settings.max_output_tokens);
    if request.streaming {
        body.fixed("stream", &true);
        if vendor.stream_usage {
            body.member("stream_options", &json!({"include_usage": true}));
        }
    }
    if let Some(thinking) = &settings.thinking {
        match effort(thinking, vendor.effort) {
            Some((name, value)) => body.member(name, &value),
            None => left_out.note("the thinking budget in tokens, which it does not support"),
        }
    }
    body.optional("temperature", settings.temperature);
    if !settings.stop_sequences.is_empty() {
        body.member("stop", &settings.stop_sequences);
    }
    if let Some(OutputSchema { name, schema }) = &settings.output {
        body.member(
            "response_format",
            &match vendor.schema {
                SchemaForm::JsonSchema => json!({"type": "json_schema",
                "json_schema": {"name": name, "schema": schema, "strict": true}}),
                SchemaForm::JsonObject => json!({"type": "json_object"}),
            },
        );
    }
    if !tools.is_empty() {
        body.member("tools", &tools);
        body.optional(
            "tool_choice",
            match &settings.tool_choice {
                ToolChoice::Auto => None,
                ToolChoice::None => Some(json!("none")),
                ToolChoice::Required => Some(json!("required")),
                ToolChoice::Tool(name) => {
                    Some(json!({"type": "function", "function": {"name": NAMES.legal(name)}}))
                }
            },
        );
    }
    body.fixed("messages", &messages);
    body.finish(left_out)
}

fn effort(thinking: &Thinking, by: Effort) -> Option<(&'static str, Value)> {
    Some(match (by, thinking) {
        (Effort::Word, Thinking::Off) => ("reasoning_effort", json!("none")),
        (Effort::Word, Thinking::Effort(word)) => ("reasoning_effort", json!(word)),
        (Effort::Word, Thinking::Budget(_)) => return None,
        (Effort::Object, Thinking::Off) => ("reasoning", json!({"enabled": false})),
        (Effort::Object, Thinking::Effort(word)) => ("reasoning", json!({"effort": word})),
        (Effort::Object, Thinking::Budget(tokens)) => ("reasoning", json!({"max_tokens": tokens})),
        (Effort::Template, thinking) => {
            let on = *thinking != Thinking::Off;
            ("chat_template_kwargs", json!({"enable_thinking": on}))
        }
    })
}

fn messages<'a>(
    request: &'a TurnRequest,
    vendor: &Vendor,
    left_out: &mut LeftOut,
) -> Vec<Block<'a>> {
    let mut out = Vec::new();
    if !request.instructions.is_empty() {
        let mut system = said_by(vendor.system_role);
        system.text("content", &*request.instructions);
        out.push(system);
    }
    let is_user = |message: &Message| matches!(message, Message::User { .. });
    let since_user = request.messages.iter().rposition(is_user).unwrap_or(0);
    let mut ids = CallIds::default();
    for (at, message) in request.messages.iter().enumerate() {
        match message {
            Message::User { content } => {
                let parts = content.iter().map(|it| shown(it, vendor, left_out)).collect();
                out.push(user(parts));
            }
            Message::Assistant { parts, .. } => {
                let recent = at > since_user;
                out.extend(assistant(parts, recent, vendor, &mut ids, left_out));
            }
            Message::Results { results } => {
                let images =
                    results.iter().flat_map(|it| images(it, vendor, left_out)).collect::<Vec<_>>();
                out.extend(results.iter().filter_map(|it| result(it, &ids, left_out)));
                if !images.is_empty() {
                    out.push(user(images));
                }
            }
        }
    }
    out
}

fn said_by(role: &'static str) -> Block<'static> {
    let mut block = Block::bare();
    block.text("role", role);
    block
}

fn user(mut parts: Vec<Block<'_>>) -> Block<'_> {
    let mut message = said_by("user");
    // Some vendors do not accept blocks, so plain text is sent as a string.
    match &mut parts[..] {
        [only] if only.is("text") => match only.take_text("text") {
            Some(text) => message.text("content", text),
            None => message.blocks("content", parts),
        },
        _ => message.blocks("content", parts),
    }
    message
}

/// Whether the vendor accepts this id of a call.
fn is_id(id: &str, rule: CallIdRule) -> bool {
    match rule {
        CallIdRule::AtMost(chars) => !id.is_empty() && id.len() <= chars,
        CallIdRule::Exactly(chars) => {
            id.len() == chars && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
        }
    }
}

/// A made-up id, the same for a part in every request.
fn made_up(part: WirePartId, rule: CallIdRule) -> String {
    let hash = part.to_string().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let id = format!("call{hash:016x}");
    match rule {
        CallIdRule::AtMost(chars) => id.chars().take(chars).collect(),
        CallIdRule::Exactly(chars) => id.chars().rev().take(chars).collect(),
    }
}

fn assistant<'a>(
    parts: &'a [MessagePart],
    recent: bool,
    vendor: &Vendor,
    ids: &mut CallIds,
    left_out: &mut LeftOut,
) -> Option<Block<'a>> {
    let (mut text, mut refusal, mut reasoning) = (String::new(), String::new(), String::new());
    let mut details: Vec<Value> = Vec::new();
    let mut calls: Vec<Block<'a>> = Vec::new();
    for part in parts {
        match &part.kind {
            PartKind::Text { .. } if marks(part, ORIGIN).any(|(name, _)| name == "refusal") => {
                refusal.push_str(&part.text);
            }
            PartKind::Text { .. } => text.push_str(&part.text),
            PartKind::Thought => {
                let own = marks(part, ORIGIN).any(|it| it == ("vendor", &json!(vendor.name)));
                match vendor.reasoning_back {
                    ReasoningBack::SinceTheUser if own && recent => reasoning.push_str(&part.text),
                    ReasoningBack::Details if own => {
                        let all = marks(part, ORIGIN).filter(|it| it.0 == "reasoning_details");
                        let all = all.filter_map(|(_, details)| details.as_array());
                        details.extend(all.flatten().cloned());
                    }
                    ReasoningBack::Never | ReasoningBack::SinceTheUser | ReasoningBack::Details => {
                        left_out.note("thoughts that it does not accept back");
                    }
                }
            }
            PartKind::ToolCall(call) if call.runs_on.is_ours() => {
                let mut function = Block::bare();
                function.text("name", NAMES.legal(&call.name));
                let none = part.text.trim().is_empty();
                function.text("arguments", if none { "{}" } else { &part.text });
                let mut block = Block::bare();
                let rule = vendor.call_ids;
                let id = ids.name_as(part, |id| is_id(id, rule), |part| made_up(part, rule));
                block.text("id", id.to_owned());
                block.text("type", "function");
                block.block("function", function);
                for (_, rest) in marks(part, ORIGIN).filter(|it| it.0 == "call") {
                    block.amend(rest);
                }
                calls.push(block);
            }
            PartKind::ToolCall(_) => left_out.note("calls that ran at another provider"),
            PartKind::Opaque(_) => left_out.note("opaque data of another provider"),
            PartKind::Output { .. } => {}
        }
    }
    let mut message = said_by("assistant");
    match (text.is_empty(), calls.is_empty(), refusal.is_empty()) {
        (true, true, true) => return None,
        (true, ..) => message.json("content", Value::Null),
        (false, ..) => message.text("content", text),
    }
    if !refusal.is_empty() {
        message.text("refusal", refusal);
    }
    if !reasoning.is_empty() {
        message.text("reasoning_content", reasoning);
    }
    if !details.is_empty() {
        message.json("reasoning_details", Value::Array(details));
    }
    if !calls.is_empty() {
        message.blocks("tool_calls", calls);
    }
    Some(message)
}

fn result<'a>(result: &'a CallResult, ids: &CallIds, left_out: &mut LeftOut) -> Option<Block<'a>> {
    let Some(id) = ids.of(result) else {
        left_out.note("results of calls that are not in the conversation");
        return None;
    };
    let mut message = said_by("tool");
    message.text("tool_call_id", id.to_owned());
    message.text("content", result.result.output_text());
    Some(message)
}

fn images<'a>(result: &'a CallResult, vendor: &Vendor, left_out: &mut LeftOut) -> Vec<Block<'a>> {
    let mut images = Vec::new();
    for content in &result.result.content {
        if let ToolContent::Content(content @ Content::Media { media_type, .. }) = content
            && media_type.starts_with("image/")
        {
            images.push(words(format!("What {} shows:", result.name)));
            images.push(shown(content, vendor, left_out));
        }
    }
    images
}

fn words(text: String) -> Block<'static> {
    let mut block = Block::new("text");
    block.text("text", text);
    block
}

/// Content as a block that the model can read.
fn shown<'a>(content: &'a Content, vendor: &Vendor, left_out: &mut LeftOut) -> Block<'a> {
    match content {
        Content::Text(text) => {
            let mut block = Block::new("text");
            block.text("text", &**text);
            block
        }
        Content::Link { uri, name, .. } => words(match name {
            Some(name) => format!("{name}: {uri}"),
            None => uri.to_string(),
        }),
        Content::Resource { uri, text, .. } => words(format!("{uri}:\n{text}")),
        Content::Media { media_type, source, name } => {
            let file_name = name.as_deref().unwrap_or("file");
            let audio = media_type.strip_prefix("audio/");
            match source {
                _ if media_type.starts_with("image/") => {
                    let mut block = Block::new("image_url");
                    block.json("image_url", json!({"url": url_of(media_type, source)}));
                    block
                }
                MediaSource::Data(data) if media_type.starts_with("text/") => {
                    words(format!("{file_name}:\n{}", decoded_text(data)))
                }
                MediaSource::Data(_) if vendor.files && &**media_type == "application/pdf" => {
                    let mut block = Block::new("file");
                    let data = url_of(media_type, source);
                    block.json("file", json!({"filename": file_name, "file_data": data}));
                    block
                }
                MediaSource::Data(data) if audio.is_some() => {
                    let format = match audio {
                        Some("mpeg" | "mp3") => "mp3",
                        _ => "wav",
                    };
                    let mut block = Block::new("input_audio");
                    block.json("input_audio", json!({"data": data, "format": format}));
                    block
                }
                MediaSource::Data(_) | MediaSource::Url(_) => {
                    left_out.note("media that it does not support");
                    words(format!("[{file_name} ({media_type}) cannot be shown here]"))
                }
            }
        }
    }
}

fn url_of(media_type: &str, source: &MediaSource) -> String {
    match source {
        MediaSource::Data(data) => format!("data:{media_type};base64,{data}"),
        MediaSource::Url(url) => url.to_string(),
    }
}

fn tool(spec: &ToolSpec) -> Block<'_> {
    // A tool of the provider's own is sent as it was configured.
    if spec.runs_on == RunsOn::Provider
        && let Value::Object(own) = &*spec.parameters
    {
        return Block::whole(own.clone());
    }
    let mut function = Block::bare();
    function.text("name", NAMES.legal(&spec.name));
    if !spec.description.is_empty() {
        function.text("description", &*spec.description);
    }
    let mut schema = spec.parameters.as_object().cloned().unwrap_or_default();
    schema.entry("type").or_insert_with(|| Value::from("object"));
    if !schema.contains_key("properties") {
        schema.insert("properties".to_owned(), json!({}));
    }
    function.json("parameters", Value::Object(schema));
    let mut block = Block::new("function");
    block.block("function", function);
    block
}
