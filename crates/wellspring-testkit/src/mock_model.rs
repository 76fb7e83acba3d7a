//! A scripted model behind the protocols of four providers, for external agents that need one.
//!
//! Its behaviour depends on the user's last message ([`Scene`]), and on the number of results
//! since then. It knows neither ACP nor our types.

use serde_json::{Value, json};

use crate::fake_provider::{Answer, Asked};

/// The model's behaviour for a prompt, which must contain the scene's word.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scene {
    /// Thinks, and answers with a greeting.
    Hello,
    /// Calls the tool `clock`, and repeats its output.
    Clock,
    /// Calls `return_result` with a string in place of a number, then with the number.
    Result,
    /// Makes the agent run a command.
    Shell,
    /// Starts an answer and never ends it.
    Hang,
}

impl Scene {
    /// All scenes.
    pub const ALL: [Self; 5] = [Self::Hello, Self::Clock, Self::Result, Self::Shell, Self::Hang];

    /// The word that a prompt must contain.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Hello => "SCENE-HELLO",
            Self::Clock => "SCENE-CLOCK",
            Self::Result => "SCENE-RESULT",
            Self::Shell => "SCENE-SHELL",
            Self::Hang => "SCENE-HANG",
        }
    }
}

/// The command that [`Scene::Shell`] runs.
pub const COMMAND: &str = "echo made > made-by-the-agent";

/// The answer to an agent's internal requests.
const ON_THE_SIDE: &str = r#"{"reasoning":"It is simple.","model_choice":"flash","complexity_reasoning":"It is simple.","complexity_score":1,"next_speaker":"user"}"#;

/// One answer of the model.
enum ModelAnswer {
    Words { thought: Option<&'static str>, text: String, hang: bool },
    Call { name: String, arguments: Value },
}

/// A conversation, as any provider's request holds it.
struct Conversation {
    /// The scene of the last user message.
    scene: Option<Scene>,
    /// The results of the calls since then.
    results: Vec<String>,
    /// The names of the tools, with the names of their arguments.
    tools: Vec<(String, Vec<String>)>,
}

/// Answers a request to any of the four providers.
#[must_use]
pub fn answer(asked: &Asked) -> Answer {
    let path = asked.path.split('?').next().unwrap_or_default();
    let body = &asked.body;
    if path.ends_with("/messages") {
        anthropic(body)
    } else if path.ends_with("/responses") {
        responses(body)
    } else if path.ends_with("/chat/completions") {
        chat(body)
    } else if path.ends_with(":streamGenerateContent") {
        let said = Conversation::gemini(body).say();
        let events = gemini(&said).into_iter().map(|it| format!("data: {it}\r\n\r\n"));
        stream(events.collect(), &said)
    } else if path.ends_with(":generateContent") {
        // An agent's internal requests ask for JSON.
        let said = if body["generationConfig"]["responseMimeType"] == "application/json" {
            ModelAnswer::Words { thought: None, text: ON_THE_SIDE.into(), hang: false }
        } else {
            Conversation::gemini(body).say()
        };
        Answer::ok("application/json", gemini(&said).pop().unwrap_or_default().to_string())
    } else if path.ends_with(":countTokens") || path.ends_with("/count_tokens") {
        Answer::ok("application/json", r#"{"totalTokens":1,"input_tokens":1}"#)
    } else if path.ends_with("/models") {
        Answer::ok("application/json", r#"{"object":"list","data":[],"models":[]}"#)
    } else {
        Answer::status(404, r#"{"error":{"message":"there is nothing here"}}"#)
            .header("content-type", "application/json")
    }
}

fn stream(events: String, said: &ModelAnswer) -> Answer {
    let answer = Answer::ok("text/event-stream", events);
    if matches!(said, ModelAnswer::Words { hang: true, .. }) { answer.stall() } else { answer }
}

impl Conversation {
    fn new(tools: Vec<(String, Vec<String>)>) -> Self {
        Self { scene: None, results: Vec::new(), tools }
    }

    fn heard(&mut self, text: &str) {
        let last = Scene::ALL
            .into_iter()
            .filter_map(|it| Some((text.rfind(it.word())?, it)))
            .max_by_key(|it| it.0);
        if let Some((_, scene)) = last {
            self.scene = Some(scene);
            self.results.clear();
        }
    }

    fn tool(&self, fits: impl Fn(&str) -> bool) -> Option<&(String, Vec<String>)> {
        self.tools.iter().find(|(name, _)| fits(name))
    }

    fn say(&self) -> ModelAnswer {
        let words =
            |text: &str| ModelAnswer::Words { thought: None, text: text.into(), hang: false };
        let call = |name: &str, arguments: Value| match self.tool(|it| it.ends_with(name)) {
            Some((name, _)) => ModelAnswer::Call { name: name.clone(), arguments },
            None => words(&format!("There is no tool {name}.")),
        };
        match (self.scene, &self.results[..]) {
            (Some(Scene::Clock), []) => call("clock", json!({"zone": "Oslo"})),
            (Some(Scene::Clock), [said, ..]) => words(&format!("The clock says: {said}")),
            (Some(Scene::Result), []) => call("return_result", json!({"n": "three"})),
            (Some(Scene::Result), [_]) => call("return_result", json!({"n": 3})),
            (Some(Scene::Result), _) => words("Handed over."),
            (Some(Scene::Shell), []) => self.shell(),
            (Some(Scene::Shell), _) => words("I ran it."),
            (Some(Scene::Hang), _) => {
                ModelAnswer::Words { thought: None, text: "Working".into(), hang: true }
            }
            (Some(Scene::Hello) | None, _) => {
                let (thought, text) = (Some("Let me think."), "Hello from the model.".into());
                ModelAnswer::Words { thought, text, hang: false }
            }
        }
    }

    /// A call that runs the command, for any agent's shell tool.
    fn shell(&self) -> ModelAnswer {
        let known =
            ["Bash", "bash", "run_shell_command", "exec_command", "shell_command", "shell", "exec"];
        let tool = known.iter().find_map(|known| self.tool(|name| name == *known));
        let Some((name, arguments)) = tool else {
            return ModelAnswer::Words {
                thought: None,
                text: "There is no shell.".into(),
                hang: false,
            };
        };
        let takes = |argument: &str| arguments.iter().any(|it| it == argument);
        let mut given = if takes("cmd") {
            json!({"cmd": COMMAND})
        } else if name == "shell" {
            json!({"command": ["bash", "-lc", COMMAND]})
        } else if name == "exec" {
            json!({"command": COMMAND})
        } else {
            json!({"command": COMMAND, "description": "makes a file"})
        };
        // In a sandbox, the agent must ask for permission to leave it.
        if takes("sandbox_permissions") {
            given["sandbox_permissions"] = "require_escalated".into();
            given["justification"] = "It makes a file.".into();
        }
        let arguments = given;
        ModelAnswer::Call { name: name.clone(), arguments }
    }

    fn anthropic(body: &Value) -> Self {
        let mut all = Self::new(tools(&body["tools"], "/name", "/input_schema"));
        for message in items(&body["messages"]) {
            if let Some(text) = message["content"].as_str() {
                all.heard(text);
            }
            for block in items(&message["content"]) {
                match block["type"].as_str() {
                    Some("text") if message["role"] == "user" => all.heard(text(&block["text"])),
                    Some("tool_result") => all.results.push(flat(&block["content"])),
                    _ => {}
                }
            }
        }
        all
    }

    fn responses(body: &Value) -> Self {
        let mut all = Self::new(tools(&body["tools"], "/name", "/parameters"));
        for item in items(&body["input"]) {
            match item["type"].as_str() {
                Some("message") if item["role"] == "user" => all.heard(&flat(&item["content"])),
                Some("function_call_output") => all.results.push(flat(&item["output"])),
                _ => {}
            }
        }
        // Tools of MCP servers are in namespaces.
        for space in items(&body["tools"]).filter(|tool| tool["type"] == "namespace") {
            all.tools.extend(tools(&space["tools"], "/name", "/parameters"));
        }
        all
    }

    fn chat(body: &Value) -> Self {
        let mut all = Self::new(tools(&body["tools"], "/function/name", "/function/parameters"));
        for message in items(&body["messages"]) {
            match message["role"].as_str() {
                Some("user") => all.heard(&flat(&message["content"])),
                Some("tool") => all.results.push(flat(&message["content"])),
                _ => {}
            }
        }
        all
    }

    fn gemini(body: &Value) -> Self {
        let mut all = Self::new(Vec::new());
        for group in items(&body["tools"]) {
            for schema in ["/parametersJsonSchema", "/parameters"] {
                all.tools.extend(tools(&group["functionDeclarations"], "/name", schema));
            }
        }
        for content in items(&body["contents"]) {
            for part in items(&content["parts"]) {
                if part["functionResponse"].is_object() {
                    all.results.push(flat(&part["functionResponse"]["response"]));
                } else if content["role"] == "user" {
                    all.heard(text(&part["text"]));
                }
            }
        }
        all
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The text in a value.
fn flat(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(flat).collect(),
        Value::Object(members) => members
            .iter()
            .filter(|(name, _)| *name != "type")
            .map(|(_, value)| flat(value))
            .collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => String::new(),
    }
}

fn tools(listed: &Value, name: &str, schema: &str) -> Vec<(String, Vec<String>)> {
    let tools = items(listed).filter_map(|tool| {
        let name = tool.pointer(name)?.as_str()?.to_owned();
        let arguments = tool.pointer(schema).and_then(|schema| schema["properties"].as_object());
        Some((name, arguments.map(|it| it.keys().cloned().collect()).unwrap_or_default()))
    });
    tools.collect()
}

fn anthropic(body: &Value) -> Answer {
    let said = Conversation::anthropic(body).say();
    let (blocks, stop) = match &said {
        ModelAnswer::Words { thought, text, .. } => {
            let thought =
                thought.map(|it| json!({"type": "thinking", "thinking": it, "signature": "c2ln"}));
            let text = json!({"type": "text", "text": text});
            (thought.into_iter().chain([text]).collect(), "end_turn")
        }
        ModelAnswer::Call { name, arguments } => {
            let id = format!("toolu_{}", fresh());
            (
                vec![json!({"type": "tool_use", "id": id, "name": name, "input": arguments})],
                "tool_use",
            )
        }
    };
    let usage = json!({"input_tokens": 10, "output_tokens": 5});
    let message = |content: &[Value], stop: Value| {
        json!({"id": format!("msg_{}", fresh()), "type": "message", "role": "assistant",
            "model": body["model"], "content": content, "stop_reason": stop, "stop_sequence": null,
            "usage": usage})
    };
    if body["stream"] != true {
        let whole: Vec<Value> = blocks;
        return Answer::ok("application/json", message(&whole, json!(stop)).to_string());
    }
    let mut events = Vec::new();
    events.push(json!({"type": "message_start", "message": message(&[], Value::Null)}));
    for (index, block) in blocks.iter().enumerate() {
        let (start, deltas) = match block["type"].as_str() {
            Some("thinking") => (
                json!({"type": "thinking", "thinking": "", "signature": ""}),
                vec![
                    json!({"type": "thinking_delta", "thinking": block["thinking"]}),
                    json!({"type": "signature_delta", "signature": block["signature"]}),
                ],
            ),
            Some("tool_use") => (
                json!({"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}}),
                vec![
                    json!({"type": "input_json_delta", "partial_json": block["input"].to_string()}),
                ],
            ),
            _ => (
                json!({"type": "text", "text": ""}),
                vec![json!({"type": "text_delta", "text": block["text"]})],
            ),
        };
        events.push(json!({"type": "content_block_start", "index": index, "content_block": start}));
        for delta in deltas {
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    if !matches!(said, ModelAnswer::Words { hang: true, .. }) {
        let delta = json!({"stop_reason": stop, "stop_sequence": null});
        events.push(json!({"type": "message_delta", "delta": delta, "usage": usage}));
        events.push(json!({"type": "message_stop"}));
    }
    let events = events.iter().map(|it| format!("event: {}\ndata: {it}\n\n", text(&it["type"])));
    stream(events.collect(), &said)
}

fn responses(body: &Value) -> Answer {
    let said = Conversation::responses(body).say();
    let id = format!("resp_{}", fresh());
    let mut events = vec![json!({"type": "response.created", "response": {"id": id}})];
    let mut item = |item: Value| {
        events.push(json!({"type": "response.output_item.added", "output_index": 0, "item": item}));
        events.push(json!({"type": "response.output_item.done", "output_index": 0, "item": item}));
    };
    match &said {
        ModelAnswer::Words { thought, text, hang } => {
            if let Some(thought) = thought {
                let summary = json!([{"type": "summary_text", "text": thought}]);
                item(
                    json!({"type": "reasoning", "id": format!("rs_{}", fresh()), "summary": summary}),
                );
            }
            let message = format!("msg_{}", fresh());
            let open =
                json!({"type": "message", "id": message, "role": "assistant", "content": []});
            events.push(
                json!({"type": "response.output_item.added", "output_index": 1, "item": open}),
            );
            events.push(json!({"type": "response.output_text.delta", "item_id": message,
                "output_index": 1, "content_index": 0, "delta": text}));
            if !hang {
                let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
                let done = json!({"type": "message", "id": message, "role": "assistant", "content": content});
                events.push(
                    json!({"type": "response.output_item.done", "output_index": 1, "item": done}),
                );
            }
        }
        ModelAnswer::Call { name, arguments } => {
            let id = fresh();
            let space = items(&body["tools"]).find(|tool| {
                tool["type"] == "namespace" && items(&tool["tools"]).any(|it| it["name"] == **name)
            });
            let mut call = json!({"type": "function_call", "id": format!("fc_{id}"),
                "call_id": format!("call_{id}"), "name": name, "arguments": arguments.to_string()});
            if let Some(space) = space {
                call["namespace"] = space["name"].clone();
            }
            item(call);
        }
    }
    if !matches!(said, ModelAnswer::Words { hang: true, .. }) {
        let usage = json!({"input_tokens": 10, "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 15});
        events.push(json!({"type": "response.completed", "response": {"id": id, "usage": usage}}));
    }
    let events = events.iter().map(|it| format!("event: {}\ndata: {it}\n\n", text(&it["type"])));
    stream(events.collect(), &said)
}

fn chat(body: &Value) -> Answer {
    let said = Conversation::chat(body).say();
    let (deltas, finish) = match &said {
        ModelAnswer::Words { thought, text, .. } => {
            let thought = thought.map(|it| json!({"reasoning_content": it}));
            (thought.into_iter().chain([json!({"content": text})]).collect(), "stop")
        }
        ModelAnswer::Call { name, arguments } => {
            let function = json!({"name": name, "arguments": arguments.to_string()});
            let id = format!("call_{}", fresh());
            let call = json!({"index": 0, "id": id, "type": "function", "function": function});
            (vec![json!({"role": "assistant", "tool_calls": [call]})], "tool_calls")
        }
    };
    let deltas: Vec<Value> = deltas;
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15});
    let id = format!("chatcmpl-{}", fresh());
    if body["stream"] != true {
        let message = deltas.iter().fold(json!({"role": "assistant"}), |mut all, delta| {
            for (name, value) in delta.as_object().into_iter().flatten() {
                all[name] = value.clone();
            }
            all
        });
        let choice = json!({"index": 0, "message": message, "finish_reason": finish});
        let whole = json!({"id": id, "object": "chat.completion", "model": body["model"],
            "choices": [choice], "usage": usage});
        return Answer::ok("application/json", whole.to_string());
    }
    let chunk = |choices: Value| {
        json!({"id": id, "object": "chat.completion.chunk", "model": body["model"], "created": 1,
            "choices": choices})
    };
    let mut events: Vec<Value> = deltas
        .iter()
        .map(|delta| chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}])))
        .collect();
    let mut end = String::new();
    if !matches!(said, ModelAnswer::Words { hang: true, .. }) {
        events.push(chunk(json!([{"index": 0, "delta": {}, "finish_reason": finish}])));
        let mut last = chunk(json!([]));
        last["usage"] = usage;
        events.push(last);
        end = "data: [DONE]\n\n".into();
    }
    let events: String = events.iter().map(|it| format!("data: {it}\n\n")).collect();
    stream(events + &end, &said)
}

fn gemini(said: &ModelAnswer) -> Vec<Value> {
    let usage = json!({"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15});
    let chunk = |parts: Value, finish: Value| {
        let content = json!({"role": "model", "parts": parts});
        json!({"candidates": [{"index": 0, "content": content, "finishReason": finish}],
            "usageMetadata": usage, "modelVersion": "mock", "responseId": fresh()})
    };
    match said {
        ModelAnswer::Words { thought, text, hang } => {
            let thought =
                thought.map(|it| chunk(json!([{"text": it, "thought": true}]), Value::Null));
            let finish = if *hang { Value::Null } else { json!("STOP") };
            thought.into_iter().chain([chunk(json!([{"text": text}]), finish)]).collect()
        }
        ModelAnswer::Call { name, arguments } => {
            let call = json!([{"functionCall": {"name": name, "args": arguments}}]);
            vec![chunk(call, json!("STOP"))]
        }
    }
}

/// A new id.
fn fresh() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}
