//! Writes a turn's request.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use wellspring_core::{
    Annotation, CallResult, Content, MediaSource, Message, MessagePart, OutputSchema, PartKind,
    Role, RunsOn, Thinking, ToolChoice, ToolSpec, TurnRequest, WirePartId,
};

use super::{ITEM, ORIGIN, PIECE};
use crate::provider::call_ids::CallIds;
use crate::provider::text::{member, object, pictures, words};
use crate::provider::{Body, LeftOut, NameRule, Written, marks};

pub(super) const NAMES: NameRule = NameRule::COMMON;

/// Writes a request for one turn by `model`.
///
/// The parameters of a tool that runs at the provider are sent unchanged, in the provider's
/// format: `{"type": "web_search"}`.
///
/// ```
/// use wellspring_core::{Message, ModelSettings, TurnRequest};
/// use wellspring_wire::openai_responses;
///
/// let request = TurnRequest {
///     model: None,
///     instructions: "Be brief.".into(),
///     messages: [Message::user("Hello?")].into(),
///     tools: [].into(),
///     streaming: true,
///     settings: ModelSettings::default(),
/// };
/// let written = openai_responses::write("gpt-4.1", &request);
/// let body: serde_json::Value = serde_json::from_slice(&written.body)?;
/// assert_eq!(body["input"][0]["content"][0]["text"], "Hello?");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[must_use]
pub fn write(model: &str, request: &TurnRequest) -> Written {
    let settings = &request.settings;
    let mut left_out = LeftOut::default();
    let mut input = Input::default();
    for message in &*request.messages {
        input.message(message, &mut left_out);
    }
    let tools: Vec<Value> = request.tools.iter().map(tool).collect();
    let reasoning = reasoning(settings.thinking.as_ref());
    if !settings.stop_sequences.is_empty() {
        left_out.note("stop sequences");
    }

    let mut body = Body::new(settings.extra.as_ref());
    body.fixed("model", model);
    body.optional("instructions", some(&request.instructions));
    body.fixed("input", &input.items);
    if !tools.is_empty() {
        body.member("tools", &tools);
        body.optional("tool_choice", tool_choice(&settings.tool_choice));
    }
    // Models without reasoning reject the member.
    if reasoning.is_some() || reasons(model) {
        body.member("include", &["reasoning.encrypted_content"]);
    }
    body.optional("reasoning", reasoning);
    // The conversation is in our log, so the provider need not store it.
    body.member("store", &false);
    body.member("max_output_tokens", &settings.max_output_tokens);
    body.limits_output(settings.max_output_tokens);
    body.optional("temperature", settings.temperature);
    body.optional("text", settings.output.as_ref().map(output_format));
    if request.streaming {
        body.fixed("stream", &true);
    }
    body.finish(left_out)
}

/// The format of the answer: a JSON schema.
fn output_format(OutputSchema { name, schema }: &OutputSchema) -> Value {
    let name = NAMES.legal(name);
    json!({ "format": { "type": "json_schema", "name": name, "schema": schema } })
}

fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn tool(tool: &ToolSpec) -> Value {
    if tool.runs_on == RunsOn::Provider {
        return Value::clone(&tool.parameters);
    }
    let given = tool.parameters.as_object().is_some_and(|schema| !schema.is_empty());
    let parameters =
        if given { Value::clone(&tool.parameters) } else { json!({ "type": "object" }) };
    json!({
        "type": "function",
        "name": NAMES.legal(&tool.name),
        "description": tool.description,
        "parameters": parameters,
        "strict": false,
    })
}

fn tool_choice(choice: &ToolChoice) -> Option<Value> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some("none".into()),
        ToolChoice::Required => Some("required".into()),
        ToolChoice::Tool(name) => Some(json!({ "type": "function", "name": NAMES.legal(name) })),
    }
}

fn reasoning(thinking: Option<&Thinking>) -> Option<Value> {
    let effort = match thinking? {
        Thinking::Off => return Some(json!({ "effort": "none" })),
        Thinking::Effort(effort) => effort,
        // This wire has no budget, so ranges of tokens are mapped to its levels.
        Thinking::Budget(0..=2048) => "low",
        Thinking::Budget(2049..=16_384) => "medium",
        Thinking::Budget(16_385..) => "high",
    };
    Some(json!({ "effort": effort, "summary": "auto" }))
}

/// Whether a model reasons by default: `o3`, `gpt-5`, and their successors.
fn reasons(model: &str) -> bool {
    let model = model.rsplit('/').next().unwrap_or(model);
    let digit = |rest: &str| rest.bytes().next().is_some_and(|byte| byte.is_ascii_digit());
    match (model.strip_prefix('o'), model.strip_prefix("gpt-")) {
        (Some(rest), _) => digit(rest),
        (None, Some(rest)) => digit(rest) && !rest.starts_with(['3', '4']),
        (None, None) => model.starts_with("codex"),
    }
}

/// The conversation as a list of items.
#[derive(Default)]
struct Input {
    items: Vec<Value>,
    ids: CallIds,
    /// The types of calls other than function calls: their outputs need a matching type.
    calls: BTreeMap<WirePartId, Box<str>>,
}

impl Input {
    fn message(&mut self, message: &Message, left_out: &mut LeftOut) {
        match message {
            Message::User { content } => {
                let content: Vec<Value> =
                    content.iter().filter_map(|content| input_part(content, left_out)).collect();
                if !content.is_empty() {
                    self.items.push(json!({
                        "type": "message", "role": "user", "content": content,
                    }));
                }
            }
            Message::Assistant { parts, .. } => self.turn(parts, left_out),
            Message::Results { results } => {
                for result in results {
                    self.result(result, left_out);
                }
            }
        }
    }

    fn turn(&mut self, parts: &[MessagePart], left_out: &mut LeftOut) {
        let mut items: Vec<(Value, Whose)> = Vec::new();
        for part in parts {
            let mark = marks(part, ORIGIN).next();
            match (mark, &part.kind) {
                (Some((ITEM, item)), _) => {
                    let kind = member(item, "type").unwrap_or_default();
                    self.calls.insert(part.id, kind.into());
                    self.ids.name(part);
                    items.push((whole(item, part, parts), Whose::Ours));
                }
                // Already written with its item.
                (Some((PIECE, _)), _) => {}
                (_, PartKind::Opaque(opaque)) if &*opaque.origin == ORIGIN => {
                    items.push((opaque.raw.clone(), Whose::Ours));
                }
                (_, PartKind::Text { role }) => {
                    let (role, kind) = match role {
                        Role::Assistant => ("assistant", "output_text"),
                        Role::User => ("user", "input_text"),
                    };
                    if !part.text.is_empty() {
                        // llama.cpp rejects assistant items without a type.
                        let content = [json!({ "type": kind, "text": part.text })];
                        let item = json!({ "type": "message", "role": role, "content": content });
                        items.push((item, Whose::Foreign));
                    }
                }
                (_, PartKind::ToolCall(call)) => match call.runs_on {
                    RunsOn::Here | RunsOn::Client => {
                        let arguments = object(&part.text);
                        if arguments.is_none() && !part.text.is_empty() {
                            left_out.note("arguments that are not a JSON object");
                        }
                        let item = json!({
                            "type": "function_call",
                            "call_id": self.ids.name(part),
                            "name": NAMES.legal(&call.name),
                            "arguments": arguments.as_ref().map_or("{}", |it| it.get()),
                        });
                        items.push((item, Whose::Foreign));
                    }
                    RunsOn::Provider | RunsOn::Agent => {
                        left_out.note("calls that ran at another provider")
                    }
                },
                (_, PartKind::Thought) => {
                    left_out.note("thoughts without the provider's signature")
                }
                (_, PartKind::Opaque(_)) => left_out.note("opaque data of another provider"),
                (_, PartKind::Output { .. }) => {}
            }
        }
        self.items.extend(followed(items, left_out));
    }

    fn result(&mut self, result: &CallResult, left_out: &mut LeftOut) {
        let Some(call_id) = self.ids.of(result) else {
            left_out.note("results of calls that are not in the conversation");
            return;
        };
        let output = match self.calls.get(&result.call).map(|kind| &**kind) {
            // The only call whose output is an image.
            Some("computer_call") => {
                let picture = pictures(result).next().map(|(kind, source)| url(kind, source));
                json!({ "type": "computer_screenshot", "image_url": picture })
            }
            _ => output(result),
        };
        let kind = self.calls.get(&result.call).map_or("function_call", |kind| kind);
        self.items.push(json!({
            "type": format!("{kind}_output"), "call_id": call_id, "output": output,
        }));
    }
}

/// The output of a call for the model: text, or text and images.
fn output(result: &CallResult) -> Value {
    let text = result.result.output_text();
    let mut parts: Vec<Value> = pictures(result)
        .map(|(kind, source)| json!({ "type": "input_image", "image_url": url(kind, source) }))
        .collect();
    if parts.is_empty() {
        return Value::from(&*text);
    }
    if !text.is_empty() {
        parts.insert(0, json!({ "type": "input_text", "text": text }));
    }
    Value::Array(parts)
}

fn url(media_type: &str, source: &MediaSource) -> String {
    match source {
        MediaSource::Data(data) => format!("data:{media_type};base64,{data}"),
        MediaSource::Url(url) => url.to_string(),
    }
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Whose {
    Ours,
    Foreign,
}

/// Drops reasoning that no item follows: the provider rejects reasoning without its following
/// item, which an abort may have removed.
fn followed(items: Vec<(Value, Whose)>, left_out: &mut LeftOut) -> Vec<Value> {
    let mut kept = Vec::new();
    let mut next = Whose::Foreign;
    for (item, whose) in items.into_iter().rev() {
        if member(&item, "type") == Some("reasoning") && next == Whose::Foreign {
            left_out.note("reasoning without the item that follows it");
        } else {
            kept.push(item);
            next = whose;
        }
    }
    kept.reverse();
    kept
}

/// An item with its text put back.
fn whole(item: &Value, first: &MessagePart, parts: &[MessagePart]) -> Value {
    let mut item = item.clone();
    let id = member(&item, "id").unwrap_or_default().to_owned();
    let is_piece = |part: &&MessagePart| {
        marks(part, ORIGIN).any(|(name, of)| name == PIECE && of.as_str() == Some(&id))
    };
    let pieces: Vec<&MessagePart> =
        std::iter::once(first).chain(parts.iter().filter(is_piece)).collect();
    let Value::Object(members) = &mut item else { return item };
    // An item without a type was read as a message, and some servers reject items without one.
    members.entry("type").or_insert_with(|| "message".into());
    match members.get("type").and_then(Value::as_str) {
        Some("function_call") => {
            members.insert("arguments".into(), first.text.clone().into());
        }
        Some("custom_tool_call") => {
            let input = serde_json::from_str(&first.text).unwrap_or_default();
            members.insert("input".into(), input);
        }
        _ => {
            for list in ["summary", "content"] {
                let Some(Value::Array(list)) = members.get_mut(list) else { continue };
                list.iter_mut().filter_map(Value::as_object_mut).for_each(|part| {
                    put_back(part, &pieces);
                });
            }
        }
    }
    item
}

fn put_back(part: &mut Map<String, Value>, pieces: &[&MessagePart]) {
    for words in ["text", "refusal"] {
        let piece = part.get(words).and_then(Value::as_u64);
        let piece = piece.and_then(|piece| pieces.get(usize::try_from(piece).ok()?));
        let Some(piece) = piece else { continue };
        part.insert(words.into(), piece.text.clone().into());
        if part.contains_key("annotations") {
            let citations = piece.annotations.iter().filter_map(|annotation| match annotation {
                Annotation::Citation(citation) => Some(citation.clone()),
                Annotation::Signature(_)
                | Annotation::Encrypted(_)
                | Annotation::ProviderId(_)
                | Annotation::Preamble
                | Annotation::Other(_) => None,
            });
            part.insert("annotations".into(), citations.collect());
        }
    }
}

fn input_part(content: &Content, left_out: &mut LeftOut) -> Option<Value> {
    if let Some(text) = words(content) {
        return Some(json!({ "type": "input_text", "text": text }));
    }
    let Content::Media { media_type, source, name } = content else { return None };
    let is_image = media_type.starts_with("image/");
    if media_type.starts_with("audio/") || media_type.starts_with("video/") {
        left_out.note("media that are neither images nor documents");
        return None;
    }
    let name = name.as_deref().unwrap_or("file");
    Some(match source {
        _ if is_image => json!({ "type": "input_image", "image_url": url(media_type, source) }),
        MediaSource::Data(_) => json!({
            "type": "input_file", "filename": name, "file_data": url(media_type, source),
        }),
        MediaSource::Url(url) => json!({ "type": "input_file", "file_url": url }),
    })
}
