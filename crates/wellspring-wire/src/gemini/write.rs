//! Writes a turn's request.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use wellspring_core::{
    CallResult, Content, MediaSource, Message, MessagePart, ModelSettings, OutputSchema, PartKind,
    RunsOn, Thinking, ToolChoice, ToolOutcome, ToolSpec, TurnRequest,
};

use super::schema::declared;
use super::{ORIGIN, PART, REPEATS, SIGNATURE};
use crate::provider::text::{member, object, pictures, words};
use crate::provider::{Body, LeftOut, NameRule, Written, is_of, marks};

/// Function names must start with a letter or an underscore.
pub(super) const NAMES: NameRule = NameRule { chars_max: 64, starts_with_letter: true };

/// Replaces the signature of a call that another model made, so that models which check signatures
/// accept it. See <https://ai.google.dev/gemini-api/docs/thought-signatures>.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Writes a request for one turn by `model`.
///
/// The parameters of a tool that runs at the provider are sent unchanged, in the provider's
/// format: `{"googleSearch": {}}`. `extra` members of `generationConfig` are merged with ours;
/// any other `extra` member replaces ours of that name.
///
/// ```
/// use wellspring_core::{Message, ModelSettings, TurnRequest};
/// use wellspring_wire::gemini;
///
/// let request = TurnRequest {
///     model: None,
///     instructions: "Be brief.".into(),
///     messages: [Message::user("Hello?")].into(),
///     tools: [].into(),
///     streaming: true,
///     settings: ModelSettings::default(),
/// };
/// let written = gemini::write("gemini-3-flash", &request);
/// let body: serde_json::Value = serde_json::from_slice(&written.body)?;
/// assert_eq!(body["contents"][0]["parts"][0]["text"], "Hello?");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[must_use]
pub fn write(model: &str, request: &TurnRequest) -> Written {
    let settings = &request.settings;
    let model = Generation::of(model);
    let mut left_out = LeftOut::default();
    let contents: Vec<Contents> = request
        .messages
        .iter()
        .filter_map(|message| contents(message, model, &mut left_out))
        .collect();
    let tools = tools(&request.tools);

    let mut body = Body::new(settings.extra.as_ref());
    if !request.instructions.is_empty() {
        body.member("systemInstruction", &json!({ "parts": [{ "text": request.instructions }] }));
    }
    body.fixed("contents", &contents);
    if !tools.is_empty() {
        body.member("tools", &tools);
        body.optional("toolConfig", tool_config(&settings.tool_choice));
    }
    body.member("generationConfig", &generation_config(settings, model));
    body.limits_output(settings.max_output_tokens);
    body.finish(left_out)
}

/// Differences between generations of models.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Generation {
    /// Up to 2.5: takes a thinking budget.
    Second,
    /// From 3 on: takes a thinking level, and checks the signatures of calls.
    Third,
}

impl Generation {
    fn of(model: &str) -> Self {
        let model = model.rsplit('/').next().unwrap_or(model);
        let old = ["gemini-1", "gemini-2", "gemini-pro", "gemma", "learnlm"];
        if old.iter().any(|old| model.starts_with(old)) { Self::Second } else { Self::Third }
    }
}

fn generation_config(settings: &ModelSettings, model: Generation) -> Map<String, Value> {
    let mut config = Map::new();
    config.insert("maxOutputTokens".into(), settings.max_output_tokens.into());
    if let Some(temperature) = settings.temperature {
        config.insert("temperature".into(), json!(temperature));
    }
    if !settings.stop_sequences.is_empty() {
        config.insert("stopSequences".into(), json!(settings.stop_sequences));
    }
    if let Some(thinking) = &settings.thinking {
        config.insert("thinkingConfig".into(), thinking_config(thinking, model));
    }
    if let Some(OutputSchema { schema, .. }) = &settings.output {
        config.insert("responseMimeType".into(), "application/json".into());
        config.insert("responseJsonSchema".into(), schema.clone());
    }
    config
}

fn thinking_config(thinking: &Thinking, model: Generation) -> Value {
    match (thinking, model) {
        (Thinking::Off, Generation::Second) => json!({ "thinkingBudget": 0 }),
        // Thinking cannot be turned off; this is the lowest level.
        (Thinking::Off, Generation::Third) => json!({ "thinkingLevel": "minimal" }),
        (Thinking::Effort(effort), Generation::Third) => {
            json!({ "thinkingLevel": effort, "includeThoughts": true })
        }
        (Thinking::Effort(effort), Generation::Second) => {
            let budget = match &**effort {
                "minimal" => 512,
                "low" => 1024,
                "medium" => 8192,
                // The maximum of the smaller models.
                "high" => 24_576,
                // Dynamic: the model decides.
                _ => -1,
            };
            json!({ "thinkingBudget": budget, "includeThoughts": true })
        }
        (Thinking::Budget(tokens), _) => {
            json!({ "thinkingBudget": tokens, "includeThoughts": true })
        }
    }
}

fn tools(specs: &[ToolSpec]) -> Vec<Value> {
    let (hosted, ours): (Vec<&ToolSpec>, Vec<&ToolSpec>) =
        specs.iter().partition(|tool| tool.runs_on == RunsOn::Provider);
    let mut tools = Vec::new();
    if !ours.is_empty() {
        let declared: Vec<Value> = ours.into_iter().map(declaration).collect();
        tools.push(json!({ "functionDeclarations": declared }));
    }
    tools.extend(hosted.into_iter().map(|tool| Value::clone(&tool.parameters)));
    tools
}

fn declaration(tool: &ToolSpec) -> Value {
    let mut declaration =
        json!({ "name": NAMES.legal(&tool.name), "description": tool.description });
    if let Some(parameters) = declared(&tool.parameters) {
        declaration["parameters"] = parameters;
    }
    declaration
}

fn tool_config(choice: &ToolChoice) -> Option<Value> {
    let config = match choice {
        ToolChoice::Auto => return None,
        ToolChoice::None => json!({ "mode": "NONE" }),
        ToolChoice::Required => json!({ "mode": "ANY" }),
        ToolChoice::Tool(name) => {
            json!({ "mode": "ANY", "allowedFunctionNames": [NAMES.legal(name)] })
        }
    };
    Some(json!({ "functionCallingConfig": config }))
}

#[derive(Debug, Serialize)]
struct Contents {
    role: &'static str,
    parts: Vec<Box<RawValue>>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    thought: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<FunctionCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct FunctionCall<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<Box<RawValue>>,
}

fn contents(message: &Message, model: Generation, left_out: &mut LeftOut) -> Option<Contents> {
    let mut parts = Parts::default();
    let role = match message {
        Message::User { content } => {
            for content in content {
                parts.push(&shown(content));
            }
            "user"
        }
        Message::Assistant { parts: said, .. } => {
            parts.turn(said, model, left_out);
            "model"
        }
        Message::Results { results } => {
            for result in results {
                parts.push(&response(result));
            }
            "user"
        }
    };
    (!parts.0.is_empty()).then_some(Contents { role, parts: parts.0 })
}

#[derive(Debug, Default)]
struct Parts(Vec<Box<RawValue>>);

impl Parts {
    fn push(&mut self, part: &impl Serialize) {
        // Serialisation only fails for keys that are not strings, and there are none here.
        self.0.extend(to_raw_value(part));
    }

    fn turn(&mut self, said: &[MessagePart], model: Generation, left_out: &mut LeftOut) {
        let mut called = false;
        for part in said {
            match &part.kind {
                PartKind::Text { .. } => self.text(part, false),
                PartKind::Thought if is_of(part, ORIGIN) => self.text(part, true),
                PartKind::Thought => left_out.note("thoughts without the provider's signature"),
                PartKind::ToolCall(call) if call.runs_on.is_ours() => {
                    let mut signature = signatures(part).next().map(|signed| signed.signature);
                    // The first call of a turn must be signed.
                    if !called && signature.is_none() && model == Generation::Third {
                        signature = Some(NO_SIGNATURE);
                    }
                    called = true;
                    let args = arguments(part);
                    if args.is_none() && !part.text.is_empty() {
                        left_out.note("arguments that are not a JSON object");
                    }
                    let name = NAMES.legal(&call.name);
                    let call = FunctionCall { id: part.provider_id(), name: &name, args };
                    self.push(&Part {
                        function_call: Some(call),
                        thought_signature: signature,
                        ..Part::default()
                    });
                }
                PartKind::ToolCall(_) => {
                    match marks(part, ORIGIN).find(|(name, _)| *name == PART) {
                        Some((_, raw)) => self.push(raw),
                        None => left_out.note("calls that ran at another provider"),
                    }
                }
                PartKind::Opaque(opaque) if &*opaque.origin == ORIGIN => self.push(&opaque.raw),
                PartKind::Opaque(_) => left_out.note("opaque data of another provider"),
                PartKind::Output { .. } => {}
            }
        }
        let thinks = |part: &MessagePart| matches!(part.kind, PartKind::Thought);
        if !self.0.is_empty() && said.iter().all(thinks) {
            self.0.clear();
            left_out.note("thoughts at the end of a turn that was cut short");
        }
    }

    /// Writes text in its original pieces: signed text is a part of its own.
    fn text(&mut self, part: &MessagePart, thought: bool) {
        let mut at = 0;
        let mut push = |text: &str, thought_signature: Option<&str>| {
            self.push(&Part { text: Some(text), thought, thought_signature, ..Part::default() });
        };
        for signed in signatures(part) {
            let (Some(before), Some(text)) =
                (part.text.get(at..signed.from), part.text.get(signed.from..signed.to))
            else {
                continue;
            };
            if !before.is_empty() {
                push(before, None);
            }
            push(text, Some(signed.signature));
            at = signed.to;
        }
        let rest = part.text.get(at..).unwrap_or_default();
        if !rest.is_empty() {
            push(rest, None);
        }
    }
}

struct Signed<'a> {
    signature: &'a str,
    from: usize,
    to: usize,
}

fn signatures(part: &MessagePart) -> impl Iterator<Item = Signed<'_>> {
    marks(part, ORIGIN).filter(|(name, _)| *name == SIGNATURE).filter_map(|(_, value)| {
        let at = |name: &str| {
            let at = value.get(name).and_then(Value::as_u64).unwrap_or(0);
            usize::try_from(at).ok()
        };
        Some(Signed { signature: member(value, SIGNATURE)?, from: at("from")?, to: at("to")? })
    })
}

/// The arguments byte for byte, unless a member occurs in them twice.
fn arguments(part: &MessagePart) -> Option<Box<RawValue>> {
    if marks(part, ORIGIN).any(|(name, _)| name == REPEATS) {
        let once: Value = serde_json::from_str(&part.text).ok()?;
        return to_raw_value(&once).ok();
    }
    object(&part.text)
}

fn response(result: &CallResult) -> Value {
    let said = match result.outcome {
        ToolOutcome::Ok => "output",
        ToolOutcome::Error
        | ToolOutcome::Denied
        | ToolOutcome::Interrupted
        | ToolOutcome::TimedOut => "error",
    };
    let mut response = json!({
        "name": NAMES.legal(&result.name),
        "response": { said: result.result.output },
    });
    if let Some(id) = &result.provider_id {
        response["id"] = Value::from(&**id);
    }
    let shown: Vec<Value> = pictures(result).map(|(kind, source)| media(kind, source)).collect();
    if !shown.is_empty() {
        response["parts"] = shown.into();
    }
    json!({ "functionResponse": response })
}

fn shown(content: &Content) -> Value {
    match content {
        Content::Media { media_type, source, .. } => media(media_type, source),
        Content::Text(_) | Content::Link { .. } | Content::Resource { .. } => {
            json!({ "text": words(content).unwrap_or_default() })
        }
    }
}

fn media(media_type: &str, source: &MediaSource) -> Value {
    match source {
        MediaSource::Data(data) => {
            json!({ "inlineData": { "mimeType": media_type, "data": data } })
        }
        MediaSource::Url(url) => json!({ "fileData": { "mimeType": media_type, "fileUri": url } }),
    }
}
