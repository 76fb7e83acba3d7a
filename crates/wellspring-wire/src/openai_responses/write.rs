//! Writing: a turn's request in the provider's words.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use wellspring_core::{
    Annotation, CallResult, Content, MediaSource, Message, MessagePart, PartKind, Role, RunsOn,
    Thinking, ToolChoice, ToolContent, ToolSpec, TurnRequest, WirePartId,
};

use super::{ITEM, NAME_RULE, ORIGIN, PIECE};
use crate::provider::{Body, LeftOut, Written, marks};
use crate::text::{member, words};

/// Writes a request for `model`.
///
/// Members of [`extra`](wellspring_core::ModelSettings::extra) replace ours of the same name;
/// its `tools` and `include` are added to ours, so that hosted tools stand beside functions.
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
/// let written = openai_responses::write(&request, "gpt-4.1");
/// let body: serde_json::Value = serde_json::from_slice(&written.body)?;
/// assert_eq!(body["input"][0]["content"][0]["text"], "Hello?");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[must_use]
pub fn write(request: &TurnRequest, model: &str) -> Written {
    let settings = &request.settings;
    let mut left_out = LeftOut::default();
    let (extra, mut tools, mut include) = split(settings.extra.as_ref());

    let mut input = Input::default();
    for message in &*request.messages {
        input.message(message, &mut left_out);
    }
    let functions = request.tools.iter().map(function);
    tools.splice(0..0, functions);
    let reasoning = reasoning(settings.thinking.as_ref());
    // Models that do not reason refuse to be asked for it.
    if reasoning.is_some() || reasons(model) {
        include.insert(0, "reasoning.encrypted_content".into());
    }
    if !settings.stop_sequences.is_empty() {
        left_out.note("stop sequences");
    }

    let mut body = Body::new(extra.as_ref());
    body.member("model", model);
    body.optional("instructions", some(&request.instructions));
    body.member("input", &input.items);
    if !tools.is_empty() {
        body.member("tools", &tools);
        body.optional("tool_choice", tool_choice(&settings.tool_choice));
    }
    body.optional("reasoning", reasoning);
    if !include.is_empty() {
        body.member("include", &include);
    }
    // The conversation is ours; nothing is left at the provider that would have to be found.
    body.member("store", &false);
    body.member("max_output_tokens", &settings.max_output_tokens);
    body.optional("temperature", settings.temperature);
    body.member("stream", &request.streaming);
    left_out.written(body.finish())
}

/// The caller's members, without the lists that are joined with ours.
fn split(extra: Option<&Value>) -> (Option<Value>, Vec<Value>, Vec<Value>) {
    let mut extra = extra.cloned();
    let mut take = |name: &str| {
        let members = extra.as_mut().and_then(Value::as_object_mut);
        match members.and_then(|members| members.remove(name)) {
            Some(Value::Array(list)) => list,
            Some(_) | None => Vec::new(),
        }
    };
    let (tools, include) = (take("tools"), take("include"));
    (extra, tools, include)
}

fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn function(tool: &ToolSpec) -> Value {
    let given = tool.parameters.as_object().is_some_and(|schema| !schema.is_empty());
    let parameters = if given { tool.parameters.clone() } else { json!({ "type": "object" }) };
    json!({
        "type": "function",
        "name": NAME_RULE.legal(&tool.name),
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
        ToolChoice::Tool(name) => {
            Some(json!({ "type": "function", "name": NAME_RULE.legal(name) }))
        }
    }
}

fn reasoning(thinking: Option<&Thinking>) -> Option<Value> {
    let effort = match thinking? {
        Thinking::Off => return Some(json!({ "effort": "none" })),
        Thinking::Effort(effort) => effort,
        // There is no budget on this wire; these are the steps between its words.
        Thinking::Budget(0..=2048) => "low",
        Thinking::Budget(2049..=16_384) => "medium",
        Thinking::Budget(16_385..) => "high",
    };
    Some(json!({ "effort": effort, "summary": "auto" }))
}

/// Whether a model reasons without being told to: `o3`, `gpt-5`, and what follows them.
fn reasons(model: &str) -> bool {
    let model = model.rsplit('/').next().unwrap_or(model);
    let digit = |rest: &str| rest.bytes().next().is_some_and(|byte| byte.is_ascii_digit());
    match (model.strip_prefix('o'), model.strip_prefix("gpt-")) {
        (Some(rest), _) => digit(rest),
        (None, Some(rest)) => digit(rest) && !rest.starts_with(['3', '4']),
        (None, None) => model.starts_with("codex"),
    }
}

/// The list of items that the conversation is.
#[derive(Default)]
struct Input {
    items: Vec<Value>,
    /// The type of each call that is not a plain function's: its output has a type to match.
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
                    self.result(result);
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
                    if kind != "function_call" {
                        self.calls.insert(part.id, kind.into());
                    }
                    items.push((whole(item, part, parts), Whose::Ours));
                }
                // It went with its item.
                (Some((PIECE, _)), _) => {}
                (_, PartKind::Opaque(opaque)) if &*opaque.origin == ORIGIN => {
                    items.push((opaque.raw.clone(), Whose::Ours));
                }
                (_, PartKind::Text { role }) => {
                    let role = match role {
                        Role::Assistant => "assistant",
                        Role::User => "user",
                    };
                    if !part.text.is_empty() {
                        let item = json!({ "role": role, "content": part.text });
                        items.push((item, Whose::Foreign));
                    }
                }
                (_, PartKind::ToolCall(call)) => match call.runs_on {
                    RunsOn::Here | RunsOn::Client => {
                        let arguments = some(&part.text).unwrap_or("{}");
                        let item = json!({
                            "type": "function_call",
                            "call_id": call_id(part.provider_id(), part.id),
                            "name": NAME_RULE.legal(&call.name),
                            "arguments": arguments,
                        });
                        items.push((item, Whose::Foreign));
                    }
                    RunsOn::Provider | RunsOn::Agent => left_out.note("call that ran elsewhere"),
                },
                (_, PartKind::Thought) => left_out.note("thought of another model"),
                (_, PartKind::Opaque(_)) => left_out.note("opaque part of another provider"),
                (_, PartKind::Output { .. }) => {}
            }
        }
        self.items.extend(followed(items, left_out));
    }

    fn result(&mut self, result: &CallResult) {
        let call_id = call_id(result.provider_id.as_deref(), result.call);
        let output = result.result.output_text();
        let item = match self.calls.get(&result.call).map(|kind| &**kind) {
            Some("computer_call") => json!({
                "type": "computer_call_output", "call_id": call_id,
                "output": { "type": "computer_screenshot", "image_url": picture(result) },
            }),
            Some(kind) => json!({
                "type": format!("{kind}_output"), "call_id": call_id, "output": output,
            }),
            None => json!({
                "type": "function_call_output", "call_id": call_id, "output": output,
            }),
        };
        self.items.push(item);
    }
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Whose {
    Ours,
    Foreign,
}

/// Leaves out reasoning that nothing follows: the provider refuses it without the item that
/// it led to, which an abort may have taken.
fn followed(items: Vec<(Value, Whose)>, left_out: &mut LeftOut) -> Vec<Value> {
    let mut kept = Vec::new();
    let mut next = Whose::Foreign;
    for (item, whose) in items.into_iter().rev() {
        if member(&item, "type") == Some("reasoning") && next == Whose::Foreign {
            left_out.note("reasoning without what it led to");
        } else {
            kept.push(item);
            next = whose;
        }
    }
    kept.reverse();
    kept
}

/// An item as it came, its words put back where they were.
fn whole(item: &Value, first: &MessagePart, parts: &[MessagePart]) -> Value {
    let mut item = item.clone();
    let id = member(&item, "id").unwrap_or_default().to_owned();
    let is_piece = |part: &&MessagePart| {
        marks(part, ORIGIN).any(|(name, of)| name == PIECE && of.as_str() == Some(&id))
    };
    let pieces: Vec<&MessagePart> =
        std::iter::once(first).chain(parts.iter().filter(is_piece)).collect();
    let Value::Object(members) = &mut item else { return item };
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

fn call_id(provider_id: Option<&str>, call: WirePartId) -> String {
    provider_id.map_or_else(|| call.to_string(), str::to_owned)
}

fn input_part(content: &Content, left_out: &mut LeftOut) -> Option<Value> {
    if let Some(text) = words(content) {
        return Some(json!({ "type": "input_text", "text": text }));
    }
    let Content::Media { media_type, source, name } = content else { return None };
    let is_image = media_type.starts_with("image/");
    if media_type.starts_with("audio/") || media_type.starts_with("video/") {
        left_out.note("sound or film");
        return None;
    }
    let name = name.as_deref().unwrap_or("file");
    Some(match source {
        MediaSource::Data(data) => {
            let url = format!("data:{media_type};base64,{data}");
            if is_image {
                json!({ "type": "input_image", "image_url": url })
            } else {
                json!({ "type": "input_file", "filename": name, "file_data": url })
            }
        }
        MediaSource::Url(url) if is_image => json!({ "type": "input_image", "image_url": url }),
        MediaSource::Url(url) => json!({ "type": "input_file", "file_url": url }),
    })
}

/// What a computer shows after an action: the first picture that the tool made.
fn picture(result: &CallResult) -> Option<String> {
    result.result.content.iter().find_map(|content| match content {
        ToolContent::Content(Content::Media { media_type, source, .. }) => Some(match source {
            MediaSource::Data(data) => format!("data:{media_type};base64,{data}"),
            MediaSource::Url(url) => url.to_string(),
        }),
        ToolContent::Content(
            Content::Text(_) | Content::Link { .. } | Content::Resource { .. },
        )
        | ToolContent::Diff { .. }
        | ToolContent::Terminal { .. } => None,
    })
}
