//! Writes a turn's request.

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use wellspring_core::{
    CallResult, Content, MediaSource, Message, MessagePart, ModelSettings, PartKind, RunsOn,
    Thinking, ToolChoice, ToolSpec, TurnRequest,
};

use super::ORIGIN;
use crate::provider::call_ids::CallIds;
use crate::provider::text::{object, pictures, words};
use crate::provider::{Block, Body, LeftOut, NameRule, Written, is_of};

pub(super) const NAMES: NameRule = NameRule::COMMON;

/// Writes a request for one turn by `model`.
///
/// Members of `extra` are merged with ours, `options` member by member.
///
/// ```
/// use wellspring_core::{Message, ModelSettings, TurnRequest};
/// use wellspring_wire::ollama;
///
/// let request = TurnRequest {
///     model: None,
///     instructions: "Be brief.".into(),
///     messages: [Message::user("Hello?")].into(),
///     tools: [].into(),
///     streaming: true,
///     settings: ModelSettings::default(),
/// };
/// let written = ollama::write("qwen3", &request);
/// let body: serde_json::Value = serde_json::from_slice(&written.body)?;
/// assert_eq!(body["messages"][1]["content"], "Hello?");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[must_use]
pub fn write(model: &str, request: &TurnRequest) -> Written {
    let settings = &request.settings;
    let mut left_out = LeftOut::default();
    let mut conversation = Conversation::default();
    if !request.instructions.is_empty() {
        conversation.push(WrittenMessage::new("system", (*request.instructions).to_owned()));
    }
    for message in &*request.messages {
        conversation.message(message, &mut left_out);
    }
    let tools = tools(&request.tools, &settings.tool_choice, &mut left_out);

    let mut body = Body::new(settings.extra.as_ref());
    body.fixed("model", model);
    body.fixed("messages", &conversation.said);
    if !tools.is_empty() {
        body.member("tools", &tools);
    }
    body.optional("think", settings.thinking.as_ref().map(|thinking| think(thinking, model)));
    body.optional("format", settings.output.as_ref().map(|output| &output.schema));
    body.member("options", &options(settings));
    body.limits_output(settings.max_output_tokens);
    // Ollama streams by default.
    body.fixed("stream", &request.streaming);
    body.finish(left_out)
}

/// Most models take a boolean; these take a level.
fn think(thinking: &Thinking, model: &str) -> Value {
    let by_level = model.rsplit('/').next().unwrap_or(model).starts_with("gpt-oss");
    match thinking {
        Thinking::Off => false.into(),
        Thinking::Effort(effort) if by_level => Value::from(&**effort),
        Thinking::Budget(0..=2048) if by_level => "low".into(),
        Thinking::Budget(16_385..) if by_level => "high".into(),
        Thinking::Effort(_) | Thinking::Budget(_) => true.into(),
    }
}

fn options(settings: &ModelSettings) -> Map<String, Value> {
    let mut options = Map::new();
    options.insert("num_predict".into(), settings.max_output_tokens.into());
    if let Some(temperature) = settings.temperature {
        options.insert("temperature".into(), json!(temperature));
    }
    if !settings.stop_sequences.is_empty() {
        options.insert("stop".into(), json!(settings.stop_sequences));
    }
    options
}

fn tools<'a>(specs: &'a [ToolSpec], choice: &ToolChoice, left_out: &mut LeftOut) -> Vec<Block<'a>> {
    match choice {
        ToolChoice::Auto => {}
        ToolChoice::None => return Vec::new(),
        ToolChoice::Required | ToolChoice::Tool(_) => left_out.note("the forced tool choice"),
    }
    let mut tools = Vec::new();
    for spec in specs {
        if spec.runs_on == RunsOn::Provider {
            left_out.note("tools that run at the provider");
            continue;
        }
        let mut schema = spec.parameters.as_object().cloned().unwrap_or_default();
        schema.entry("type").or_insert_with(|| "object".into());
        let mut tool = Block::new("function");
        tool.json(
            "function",
            json!({
                "name": NAMES.legal(&spec.name),
                "description": spec.description,
                "parameters": schema,
            }),
        );
        tools.push(tool);
    }
    tools
}

#[derive(Debug, Default, Serialize)]
struct WrittenMessage {
    role: &'static str,
    content: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    thinking: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    images: Vec<Box<str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Called>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<Box<str>>,
}

impl WrittenMessage {
    fn new(role: &'static str, content: String) -> Self {
        Self { role, content, ..Self::default() }
    }
}

#[derive(Debug, Serialize)]
struct Called {
    id: Box<str>,
    function: Function,
}

#[derive(Debug, Serialize)]
struct Function {
    name: Box<str>,
    arguments: Box<RawValue>,
}

#[derive(Debug, Default)]
struct Conversation {
    said: Vec<WrittenMessage>,
    ids: CallIds,
}

impl Conversation {
    fn push(&mut self, said: WrittenMessage) {
        self.said.push(said);
    }

    fn message(&mut self, message: &Message, left_out: &mut LeftOut) {
        match message {
            Message::User { content } => {
                let mut said = WrittenMessage::new("user", String::new());
                for content in content {
                    show(content, &mut said, left_out);
                }
                self.push(said);
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
        let mut said = WrittenMessage::new("assistant", String::new());
        for part in parts {
            match &part.kind {
                PartKind::Text { .. } => said.content.push_str(&part.text),
                PartKind::Thought if is_of(part, ORIGIN) => said.thinking.push_str(&part.text),
                PartKind::Thought => left_out.note("thoughts of another provider"),
                PartKind::ToolCall(call) if call.runs_on.is_ours() => {
                    let arguments = object(&part.text);
                    if arguments.is_none() && !part.text.is_empty() {
                        left_out.note("arguments that are not a JSON object");
                    }
                    said.tool_calls.push(Called {
                        id: self.ids.name(part).into(),
                        function: Function {
                            name: NAMES.legal(&call.name).into(),
                            arguments: arguments.unwrap_or_else(Block::empty_object),
                        },
                    });
                }
                PartKind::ToolCall(_) => left_out.note("calls that ran at another provider"),
                PartKind::Opaque(_) => left_out.note("opaque data of another provider"),
                PartKind::Output { .. } => {}
            }
        }
        if !said.content.is_empty() || !said.tool_calls.is_empty() {
            self.push(said);
        } else if !said.thinking.is_empty() {
            left_out.note("thoughts at the end of a turn that was cut short");
        }
    }

    fn result(&mut self, result: &CallResult, left_out: &mut LeftOut) {
        let Some(id) = self.ids.of(result) else {
            left_out.note("results of calls that are not in the conversation");
            return;
        };
        let mut said = WrittenMessage::new("tool", result.result.output_text().into_owned());
        said.tool_name = Some(NAMES.legal(&result.name).into());
        said.tool_call_id = Some(id.into());
        for (_, source) in pictures(result) {
            picture(source, &mut said, left_out);
        }
        self.push(said);
    }
}

fn show(content: &Content, said: &mut WrittenMessage, left_out: &mut LeftOut) {
    if let Some(text) = words(content) {
        if !said.content.is_empty() {
            said.content.push_str("\n\n");
        }
        said.content.push_str(&text);
    } else if let Content::Media { media_type, source, .. } = content {
        if media_type.starts_with("image/") {
            picture(source, said, left_out);
        } else {
            left_out.note("media other than images");
        }
    }
}

fn picture(source: &MediaSource, said: &mut WrittenMessage, left_out: &mut LeftOut) {
    match source {
        MediaSource::Data(data) => said.images.push(data.clone()),
        MediaSource::Url(_) => left_out.note("images given by URL"),
    }
}
