//! Writes conversations as requests.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use wellspring_core::{
    Annotation, CallResult, Content, MediaSource, Message, MessagePart, OutputSchema, PartKind,
    RunsOn, Thinking, ToolChoice, ToolContent, ToolOutcome, ToolSpec, TurnRequest,
};

use super::ORIGIN;
use crate::provider::call_ids::CallIds;
use crate::provider::{Block, Body, LeftOut, NameRule, Written, decoded_text, is_of, marks};

pub(super) const NAMES: NameRule = NameRule::COMMON;

/// The smallest thinking budget that the API accepts.
const BUDGET_TOKENS_MIN: u32 = 1024;

/// Options of a request besides its content.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Options {
    /// Whether to set cache marks, so that the provider caches what the next request will begin
    /// with: the tools, the instructions and the conversation so far.
    pub cache: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { cache: true }
    }
}

/// A request for one turn by `model`.
///
/// An effort is sent as `output_config.effort` with adaptive thinking, a budget as
/// `budget_tokens` on top of the output limit. With thinking enabled, the API accepts neither a
/// temperature nor a forced tool choice.
#[must_use]
pub fn write(model: &str, request: &TurnRequest, options: &Options) -> Written {
    let settings = &request.settings;
    let mut left_out = LeftOut::default();
    let mut messages = messages(&request.messages, &mut left_out);
    let mut system = Block::new("text");
    system.text("text", &*request.instructions);
    let mut tools: Vec<Block<'_>> = request.tools.iter().map(tool).collect();
    if options.cache {
        cache_the_beginning(&mut tools, &mut system, &mut messages);
    }
    let thinks = !matches!(settings.thinking, None | Some(Thinking::Off));
    let limit = settings.max_output_tokens;
    let mut output = Map::new();

    let mut body = Body::new(settings.extra.as_ref());
    body.fixed("model", model);
    body.limits_output(match &settings.thinking {
        Some(Thinking::Budget(tokens)) => limit.saturating_add((*tokens).max(BUDGET_TOKENS_MIN)),
        Some(Thinking::Off | Thinking::Effort(_)) | None => limit,
    });
    match &settings.thinking {
        None => body.member("max_tokens", &limit),
        Some(Thinking::Off) => {
            body.member("max_tokens", &limit);
            body.member("thinking", &json!({"type": "disabled"}));
        }
        Some(Thinking::Effort(effort)) => {
            body.member("max_tokens", &limit);
            body.member("thinking", &json!({"type": "adaptive"}));
            output.insert("effort".into(), json!(effort));
        }
        Some(Thinking::Budget(tokens)) => {
            let tokens = (*tokens).max(BUDGET_TOKENS_MIN);
            body.member("max_tokens", &limit.saturating_add(tokens));
            body.member("thinking", &json!({"type": "enabled", "budget_tokens": tokens}));
        }
    }
    if let Some(OutputSchema { schema, .. }) = &settings.output {
        output.insert("format".into(), json!({"type": "json_schema", "schema": schema}));
    }
    if !output.is_empty() {
        body.member("output_config", &output);
    }
    if request.streaming {
        body.fixed("stream", &true);
    }
    if settings.temperature.is_some() && thinks {
        left_out.note("the temperature, which the API rejects with thinking");
    } else {
        body.optional("temperature", settings.temperature);
    }
    if !settings.stop_sequences.is_empty() {
        body.member("stop_sequences", &settings.stop_sequences);
    }
    if !request.instructions.is_empty() {
        body.member("system", &[system]);
    }
    if !tools.is_empty() {
        body.member("tools", &tools);
        body.optional("tool_choice", tool_choice(&settings.tool_choice, thinks, &mut left_out));
    }
    body.fixed("messages", &messages);
    body.finish(left_out)
}

#[derive(Debug, Serialize)]
struct WrittenMessage<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

fn messages<'a>(messages: &'a [Message], left_out: &mut LeftOut) -> Vec<WrittenMessage<'a>> {
    let mut said: Vec<WrittenMessage<'a>> = Vec::new();
    let mut ids = CallIds::default();
    for message in messages {
        let (role, content) = match message {
            Message::User { content } => {
                ("user", content.iter().map(|content| shown(content, left_out)).collect())
            }
            Message::Assistant { parts, .. } => ("assistant", assistant(parts, &mut ids, left_out)),
            Message::Results { results } => {
                let blocks = results.iter().filter_map(|it| result(it, &ids, left_out));
                ("user", blocks.collect())
            }
        };
        let content: Vec<Block<'a>> = content;
        if content.is_empty() {
            continue;
        }
        // Results must come right after their calls, so what the user added follows them in the
        // same message.
        match said.last_mut() {
            Some(last) if last.role == role => last.content.extend(content),
            _ => said.push(WrittenMessage { role, content }),
        }
    }
    // The last message may contain calls that the provider will continue.
    let waiting = said.len() - usize::from(said.last().is_some_and(|it| it.role == "assistant"));
    for said in &mut said[..waiting] {
        drop_unanswered(&mut said.content, left_out);
    }
    said.retain(|said| !said.content.is_empty());
    said
}

/// Drops calls at the provider without a result, as a turn that was cut short may contain.
fn drop_unanswered(content: &mut Vec<Block<'_>>, left_out: &mut LeftOut) {
    let answered: BTreeSet<String> =
        content.iter().filter_map(|it| it.word("tool_use_id")).map(str::to_owned).collect();
    content.retain(|block| {
        let own = block.is("server_tool_use") || block.is("mcp_tool_use");
        let cut = own && block.word("id").is_none_or(|id| !answered.contains(id));
        if cut {
            left_out.note("calls at the provider that were cut short");
        }
        !cut
    });
}

/// Whether the API accepts this as a call's id.
fn is_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|it| it.is_ascii_alphanumeric() || b"_-".contains(&it))
}

fn assistant<'a>(
    parts: &'a [MessagePart],
    ids: &mut CallIds,
    left_out: &mut LeftOut,
) -> Vec<Block<'a>> {
    let mut blocks: Vec<Block<'a>> =
        parts.iter().filter_map(|part| spoken(part, ids, left_out)).collect();
    while blocks.last().is_some_and(|block| block.is("thinking") || block.is("redacted_thinking")) {
        blocks.pop();
        left_out.note("thoughts at the end of a turn that was cut short");
    }
    blocks
}

fn spoken<'a>(
    part: &'a MessagePart,
    ids: &mut CallIds,
    left_out: &mut LeftOut,
) -> Option<Block<'a>> {
    let mut block = match &part.kind {
        PartKind::Text { .. } => {
            if part.text.is_empty() {
                return None;
            }
            let mut block = Block::new("text");
            block.text("text", &part.text);
            let citations: Vec<&Value> = part.annotations.iter().filter_map(citation).collect();
            if !citations.is_empty() && is_cited_here(&citations) {
                block.json("citations", json!(citations));
            }
            block
        }
        PartKind::Thought => thought(part).or_else(|| {
            left_out.note("thoughts without the provider's signature");
            None
        })?,
        PartKind::ToolCall(call) if call.runs_on.is_ours() => {
            let mut block = Block::new("tool_use");
            block.text("id", ids.name_as(part, is_id, |part| part.to_string()).to_owned());
            block.text("name", NAMES.legal(&call.name));
            block.raw("input", input(part, left_out));
            block
        }
        PartKind::ToolCall(call) => {
            if !is_of(part, ORIGIN) {
                left_out.note("calls that ran at another provider");
                return None;
            }
            let mut block = Block::new("server_tool_use");
            block.text("id", part.provider_id().unwrap_or_default());
            block.text("name", &*call.name);
            block.raw("input", input(part, left_out));
            block
        }
        PartKind::Opaque(opaque) => {
            if *opaque.origin != *ORIGIN {
                left_out.note("opaque data of another provider");
                return None;
            }
            return opaque_block(&opaque.raw, part);
        }
        PartKind::Output { .. } => return None,
    };
    for (_, members) in marks(part, ORIGIN).filter(|(name, _)| *name == "block") {
        block.amend(members);
    }
    Some(block)
}

fn thought(part: &MessagePart) -> Option<Block<'_>> {
    if !is_of(part, ORIGIN) {
        return None;
    }
    let encrypted = |it: &&Annotation| matches!(it, Annotation::Encrypted(_));
    if let Some(Annotation::Encrypted(data)) = part.annotations.iter().find(encrypted) {
        let mut block = Block::new("redacted_thinking");
        block.text("data", &**data);
        return Some(block);
    }
    // The last signature is used: a later one covers more of the thought.
    let signature = |it: &&Annotation| matches!(it, Annotation::Signature(_));
    let Some(Annotation::Signature(signature)) = part.annotations.iter().rev().find(signature)
    else {
        return None;
    };
    let mut block = Block::new("thinking");
    block.text("thinking", &part.text);
    block.text("signature", &**signature);
    Some(block)
}

fn citation(annotation: &Annotation) -> Option<&Value> {
    match annotation {
        Annotation::Citation(citation) => Some(citation),
        Annotation::Signature(_)
        | Annotation::Encrypted(_)
        | Annotation::ProviderId(_)
        | Annotation::Preamble
        | Annotation::Other(_) => None,
    }
}

/// Whether citations are Anthropic's, which name the type of their location.
fn is_cited_here(citations: &[&Value]) -> bool {
    citations.iter().all(|citation| {
        let kind = citation.get("type").and_then(Value::as_str);
        kind.is_some_and(|kind| kind.ends_with("_location"))
    })
}

/// A call's arguments: byte for byte if they are an object.
fn input(part: &MessagePart, left_out: &mut LeftOut) -> Box<RawValue> {
    let text = part.text.trim();
    let object = Some(text).filter(|text| text.starts_with('{'));
    match object.and_then(|text| RawValue::from_string(text.to_owned()).ok()) {
        Some(raw) => raw,
        None => {
            if !text.is_empty() {
                left_out.note("arguments that are not a JSON object");
            }
            Block::empty_object()
        }
    }
}

/// An opaque block, merged with the deltas that followed it.
fn opaque_block<'a>(raw: &'a Value, part: &'a MessagePart) -> Option<Block<'a>> {
    let mut members: Map<String, Value> = raw.as_object()?.clone();
    let mut input = String::new();
    for (_, delta) in marks(part, ORIGIN).filter(|(name, _)| *name == "delta") {
        let text = |name: &str| delta.get(name).and_then(Value::as_str).unwrap_or_default();
        let mut append = |name: &str, more: &str| {
            let member = members.entry(name).or_insert_with(|| Value::from(""));
            *member = Value::from(format!("{}{more}", member.as_str().unwrap_or_default()));
        };
        match text("type") {
            "text_delta" => append("text", text("text")),
            "thinking_delta" => append("thinking", text("thinking")),
            "signature_delta" => append("signature", text("signature")),
            "input_json_delta" => input.push_str(text("partial_json")),
            "citations_delta" => {
                let cited = members.entry("citations").or_insert_with(|| json!([]));
                if let (Value::Array(all), Some(one)) = (cited, delta.get("citation")) {
                    all.push(one.clone());
                }
            }
            _ => {}
        }
    }
    if let Ok(input) = serde_json::from_str(&input) {
        members.insert("input".to_owned(), input);
    }
    Some(Block::whole(members))
}

fn result<'a>(result: &'a CallResult, ids: &CallIds, left_out: &mut LeftOut) -> Option<Block<'a>> {
    let Some(id) = ids.of(result) else {
        left_out.note("results of calls that are not in the conversation");
        return None;
    };
    let mut block = Block::new("tool_result");
    block.text("tool_use_id", id.to_owned());
    let images = result.result.content.iter().filter_map(|content| match content {
        ToolContent::Content(content @ Content::Media { media_type, .. })
            if media_type.starts_with("image/") =>
        {
            Some(content)
        }
        ToolContent::Content(_) | ToolContent::Diff { .. } | ToolContent::Terminal { .. } => None,
    });
    let images: Vec<Block<'a>> = images.map(|image| shown(image, left_out)).collect();
    let output = result.result.output_text();
    if images.is_empty() {
        block.text("content", output);
    } else {
        let mut content = Vec::new();
        if !output.is_empty() {
            let mut text = Block::new("text");
            text.text("text", output);
            content.push(text);
        }
        content.extend(images);
        block.blocks("content", content);
    }
    if result.outcome != ToolOutcome::Ok {
        block.json("is_error", Value::Bool(true));
    }
    Some(block)
}

/// Content as a block that the model can read.
fn shown<'a>(content: &'a Content, left_out: &mut LeftOut) -> Block<'a> {
    let text = |text: String| {
        let mut block = Block::new("text");
        block.text("text", text);
        block
    };
    match content {
        Content::Text(words) => {
            let mut block = Block::new("text");
            block.text("text", &**words);
            block
        }
        Content::Link { uri, name, .. } => text(match name {
            Some(name) => format!("{name}: {uri}"),
            None => uri.to_string(),
        }),
        Content::Resource { uri, text, .. } => {
            let mut block = Block::new("document");
            let source = json!({"type": "text", "media_type": "text/plain", "data": text});
            block.json("source", source);
            block.text("title", &**uri);
            block
        }
        Content::Media { media_type, source, name } => {
            let is_text = media_type.starts_with("text/");
            let kind = match &**media_type {
                it if it.starts_with("image/") => "image",
                "application/pdf" => "document",
                _ if is_text => "document",
                _ => {
                    left_out.note("media that are neither images nor documents");
                    let name = name.as_deref().unwrap_or("a file");
                    return text(format!("[{name} ({media_type}) cannot be shown here]"));
                }
            };
            let source = match source {
                MediaSource::Url(url) => json!({"type": "url", "url": url}),
                MediaSource::Data(data) if is_text => {
                    let data = decoded_text(data);
                    json!({"type": "text", "media_type": "text/plain", "data": data})
                }
                MediaSource::Data(data) => {
                    json!({"type": "base64", "media_type": media_type, "data": data})
                }
            };
            let mut block = Block::new(kind);
            block.json("source", source);
            if let Some(name) = name.as_deref().filter(|_| kind == "document") {
                block.text("title", name);
            }
            block
        }
    }
}

fn tool(spec: &ToolSpec) -> Block<'_> {
    // A tool of the provider's own is sent as it was configured.
    if spec.runs_on == RunsOn::Provider
        && let Value::Object(own) = &*spec.parameters
    {
        let mut own = own.clone();
        own.entry("name").or_insert_with(|| Value::from(&*spec.name));
        return Block::whole(own);
    }
    let mut block = Block::bare();
    block.text("name", NAMES.legal(&spec.name));
    if !spec.description.is_empty() {
        block.text("description", &*spec.description);
    }
    let mut schema = spec.parameters.as_object().cloned().unwrap_or_default();
    schema.entry("type").or_insert_with(|| Value::from("object"));
    block.json("input_schema", Value::Object(schema));
    block
}

fn tool_choice(choice: &ToolChoice, thinks: bool, left_out: &mut LeftOut) -> Option<Value> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some(json!({"type": "none"})),
        ToolChoice::Required | ToolChoice::Tool(_) if thinks => {
            left_out.note("the forced tool choice, which the API rejects with thinking");
            None
        }
        ToolChoice::Required => Some(json!({"type": "any"})),
        ToolChoice::Tool(name) => Some(json!({"type": "tool", "name": NAMES.legal(name)})),
    }
}

/// Marks what the next request of this conversation will begin with. The API allows four marks:
/// on the tools, the instructions, and the ends of the last two user messages. The next request
/// contains at least the older of those two.
fn cache_the_beginning<'a>(
    tools: &mut [Block<'a>],
    system: &mut Block<'a>,
    said: &mut [WrittenMessage<'a>],
) {
    let users = said.iter_mut().rev().filter(|said| said.role == "user").take(2);
    let ends = users.filter_map(|said| said.content.last_mut());
    for block in tools.last_mut().into_iter().chain([system]).chain(ends) {
        block.json("cache_control", json!({"type": "ephemeral"}));
    }
}
