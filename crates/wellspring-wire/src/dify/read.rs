//! Reads the events of an app.

use std::collections::BTreeMap;

use serde_json::Value;
use wellspring_core::{
    Annotation, Batch, Cost, Event as Fact, FailureKind, FileProduced, LocalPart, MediaSource,
    PartKind, RunsOn, Source, ToolCall, ToolKind, ToolOutcome, ToolResult, Usage, UsageScope,
    VoidReason,
};

use super::write::App;
use crate::provider::Failure;

/// The origin of extended events.
const ORIGIN: &str = "dify";

/// Steps and thoughts of one run that are tracked. Further ones are kept as extended events.
const STEPS_MAX: usize = 65_536;

/// How an app's run ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum End {
    /// It completed.
    Finished,
    /// It was stopped.
    Stopped,
    /// It failed.
    Failed {
        /// What the caller can do.
        kind: FailureKind,
        /// Dify's error message.
        message: Box<str>,
    },
}

/// Reads the events of one run.
///
/// ```
/// use serde_json::json;
/// use wellspring_core::Batch;
/// use wellspring_wire::dify::{App, End, Reader};
///
/// let (mut reader, mut batch) = (Reader::new(App::Chat), Batch::default());
/// reader.event(json!({"event": "message", "answer": "Hello"}), &mut batch);
/// reader.event(json!({"event": "message_end"}), &mut batch);
/// assert_eq!(reader.end(), Some(&End::Finished));
/// let events: Vec<String> = batch.into_events().map(|(_, event)| event.to_string()).collect();
/// assert_eq!(events, ["part 0 started text", "part 0 delta \"Hello\"", "part 0 finished"]);
/// ```
#[derive(Debug, Default)]
pub struct Reader {
    app: App,
    text: Option<LocalPart>,
    /// All text so far, to recognise a thought that repeats it.
    said: String,
    steps: BTreeMap<Box<str>, Step>,
    thoughts: BTreeMap<Box<str>, Box<str>>,
    /// The task's id, once it is known.
    task_id: Option<Box<str>>,
    conversation_id: Option<Box<str>>,
    /// Whether a workflow inside a chat has completed.
    is_complete: bool,
    end: Option<End>,
}

#[derive(Debug)]
struct Step {
    part: LocalPart,
    done: bool,
}

impl Reader {
    /// Creates a reader for an app of this kind.
    #[must_use]
    pub fn new(app: App) -> Self {
        Self { app, ..Self::default() }
    }

    /// How the run ended; `None` while it runs. Later events are ignored.
    #[must_use]
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The id of the task, by which it can be stopped.
    #[must_use]
    pub fn task_id(&self) -> Option<&str> {
        self.task_id.as_deref()
    }

    /// The id of the conversation, to continue it.
    #[must_use]
    pub fn conversation_id(&self) -> Option<&str> {
        self.conversation_id.as_deref()
    }

    /// Reads one event.
    pub fn event(&mut self, event: Value, batch: &mut Batch) {
        if self.end.is_some() {
            return;
        }
        let text = |name: &str| event[name].as_str().filter(|it| !it.is_empty());
        if let Some(task) = text("task_id").filter(|_| self.task_id.is_none()) {
            self.task_id = Some(task.into());
        }
        if let Some(conversation) =
            text("conversation_id").filter(|_| self.conversation_id.is_none())
        {
            self.conversation_id = Some(conversation.into());
        }
        match event["event"].as_str() {
            Some("message" | "agent_message") => self.say(&event["answer"], batch),
            Some("text_chunk") => self.say(&event["data"]["text"], batch),
            Some("message_replace") => self.replace(&event["answer"], batch),
            Some("text_replace") => self.replace(&event["data"]["text"], batch),
            Some("agent_thought") => self.thought(event, batch),
            Some("message_file") => file(&event, batch),
            Some("node_started") => self.step_started(event, batch),
            Some("node_finished") => self.step_finished(event, batch),
            Some("message_end") => {
                usage(&event["metadata"]["usage"], batch);
                sources(&event["metadata"]["retriever_resources"], batch);
                self.ended(End::Finished, batch);
            }
            Some("workflow_finished") => self.workflow_finished(&event["data"], batch),
            Some("error") => {
                let failure = Failure::of_error(&event);
                let kind = match event["status"].as_u64() {
                    Some(401 | 403) => FailureKind::Refused,
                    Some(429) => FailureKind::RateLimited,
                    Some(400..500) => FailureKind::BadRequest,
                    Some(_) | None => failure.kind,
                };
                self.ended(End::Failed { kind, message: failure.message }, batch);
            }
            Some("ping" | "tts_message" | "tts_message_end") => {}
            Some(name) => {
                let name = name.to_owned();
                batch.extended(ORIGIN, &name, event);
            }
            None => batch.extended(ORIGIN, "", event),
        }
    }

    fn say(&mut self, words: &Value, batch: &mut Batch) {
        let Some(words) = words.as_str().filter(|it| !it.is_empty()) else { return };
        let part = *self.text.get_or_insert_with(|| batch.start(PartKind::TEXT));
        batch.delta(part, words);
        self.said.push_str(words);
    }

    fn replace(&mut self, words: &Value, batch: &mut Batch) {
        if let Some(part) = self.text.take() {
            batch.void(part, VoidReason::Replaced);
        }
        self.said.clear();
        self.say(words, batch);
    }

    /// A thought arrives several times: empty, with its text, and with the tool's result.
    fn thought(&mut self, event: Value, batch: &mut Batch) {
        let Some(id) = event["id"].as_str().map(Box::<str>::from) else {
            return batch.extended(ORIGIN, "agent_thought", event);
        };
        let known = self.steps.contains_key(&id) || self.thoughts.contains_key(&id);
        if !known && self.steps.len() + self.thoughts.len() >= STEPS_MAX {
            return batch.extended(ORIGIN, "agent_thought", event);
        }
        let words = event["thought"].as_str().unwrap_or_default();
        let before = self.thoughts.get(&id).map_or("", |before| before);
        // An agent that streams sends its thoughts as text first.
        let is_new = !words.trim().is_empty() && words != before;
        if is_new && !self.said.contains(words.trim()) {
            let rest = words.strip_prefix(before).unwrap_or(words);
            let part = batch.start(PartKind::Thought);
            batch.delta(part, rest);
            batch.finish(part);
        }
        self.thoughts.insert(id.clone(), words.into());
        let Some(tool) = event["tool"].as_str().filter(|it| !it.is_empty()) else { return };
        let title = event["tool_labels"][tool]["en_US"].as_str();
        let arguments = &event["tool_input"];
        let arguments = match arguments.as_str() {
            Some(text) => text.to_owned(),
            None => json_text(arguments),
        };
        self.start(&id, (tool, title, ToolKind::Other), &arguments, batch);
        if let Some(observation) = event["observation"].as_str().filter(|it| !it.is_empty()) {
            self.finish(&id, ToolOutcome::Ok, ToolResult::new(observation), batch);
        }
    }

    fn step_started(&mut self, event: Value, batch: &mut Batch) {
        let data = &event["data"];
        let id = data["id"].as_str().or(data["node_id"].as_str());
        let Some(id) = id.filter(|_| self.steps.len() < STEPS_MAX).map(Box::<str>::from) else {
            return batch.extended(ORIGIN, "node_started", event);
        };
        let kind = data["node_type"].as_str().unwrap_or("node");
        let arguments = json_text(&data["inputs"]);
        let tool = (kind, data["title"].as_str(), node_kind(kind));
        self.start(&id, tool, &arguments, batch);
    }

    fn step_finished(&mut self, event: Value, batch: &mut Batch) {
        let data = &event["data"];
        let id = data["id"].as_str().or(data["node_id"].as_str()).map(Box::<str>::from);
        let Some(id) = id.filter(|id| self.steps.contains_key(id)) else {
            return batch.extended(ORIGIN, "node_finished", event);
        };
        let (outcome, result) = match data["status"].as_str() {
            Some("failed" | "exception") => {
                let error = data["error"].as_str().unwrap_or("the step failed");
                (ToolOutcome::Error, ToolResult::new(error))
            }
            Some("stopped") => (ToolOutcome::Interrupted, ToolResult::new("stopped")),
            Some(_) | None => (ToolOutcome::Ok, ToolResult::new(data["outputs"].clone())),
        };
        self.finish(&id, outcome, result, batch);
    }

    fn start(
        &mut self,
        id: &str,
        (name, title, kind): (&str, Option<&str>, ToolKind),
        arguments: &str,
        batch: &mut Batch,
    ) {
        if self.steps.contains_key(id) {
            return;
        }
        let (name, title) = (name.into(), title.map(Into::into));
        let own_id = Some(id.into());
        let tool = ToolCall { name, id: own_id, title, kind, runs_on: RunsOn::Agent };
        let part = batch.start(PartKind::ToolCall(Box::new(tool)));
        batch.annotate(part, Annotation::ProviderId(id.into()));
        batch.delta(part, arguments);
        batch.finish(part);
        batch.tool_started(part);
        self.steps.insert(id.into(), Step { part, done: false });
    }

    fn finish(&mut self, id: &str, outcome: ToolOutcome, result: ToolResult, batch: &mut Batch) {
        if let Some(step) = self.steps.get_mut(id).filter(|step| !step.done) {
            step.done = true;
            batch.tool_finished(step.part, outcome, result);
        }
    }

    fn workflow_finished(&mut self, data: &Value, batch: &mut Batch) {
        let end = match data["status"].as_str() {
            Some("failed") => {
                let message = data["error"].as_str().unwrap_or("the workflow failed").into();
                End::Failed { kind: FailureKind::Unavailable, message }
            }
            Some("stopped") => End::Stopped,
            Some(_) | None => End::Finished,
        };
        if self.app == App::Workflow && end == End::Finished {
            if self.said.is_empty() {
                self.say(&answer(&data["outputs"]), batch);
            }
            if let Some(total) = data["total_tokens"].as_u64().filter(|total| *total > 0) {
                let usage = Usage { scope: UsageScope::Run, output: total, ..Usage::default() };
                // Dify reports only the total of input and output tokens here.
                batch.event(Fact::UsageReported(Box::new(usage)));
            }
        }
        if self.app == App::Workflow || end != End::Finished {
            self.ended(end, batch);
        } else {
            // A chat ends with `message_end`.
            self.is_complete = true;
        }
    }

    /// The stream ended. The run is complete if a chat's workflow had completed; otherwise the
    /// stream was cut off.
    pub fn stream_ended(&mut self, batch: &mut Batch) {
        if self.end.is_none() && self.is_complete {
            self.ended(End::Finished, batch);
        }
    }

    fn ended(&mut self, end: End, batch: &mut Batch) {
        self.close(batch);
        self.end = Some(end);
    }

    /// Closes everything that is open, because the run ended or nothing more will arrive.
    pub fn close(&mut self, batch: &mut Batch) {
        if let Some(part) = self.text.take() {
            batch.finish(part);
        }
        for step in self.steps.values_mut().filter(|step| !step.done) {
            step.done = true;
            let result = ToolResult::new("the run ended before the step had a result");
            batch.tool_finished(step.part, ToolOutcome::Interrupted, result);
        }
    }
}

/// The answer in a workflow's outputs: the only output if it is text, otherwise all of them as
/// JSON.
fn answer(outputs: &Value) -> Value {
    match outputs.as_object() {
        Some(outputs) if outputs.len() == 1 && outputs.values().all(Value::is_string) => {
            outputs.values().next().cloned().unwrap_or_default()
        }
        Some(outputs) if outputs.is_empty() => Value::Null,
        None => Value::Null,
        Some(_) => Value::String(outputs.to_string()),
    }
}

/// A value as JSON text; empty for null.
fn json_text(value: &Value) -> String {
    if value.is_null() { String::new() } else { value.to_string() }
}

fn node_kind(node_type: &str) -> ToolKind {
    match node_type {
        "llm" | "agent" | "question-classifier" | "parameter-extractor" => ToolKind::Think,
        "knowledge-retrieval" => ToolKind::Search,
        "http-request" => ToolKind::Fetch,
        "code" => ToolKind::Execute,
        "document-extractor" => ToolKind::Read,
        _ => ToolKind::Other,
    }
}

fn file(event: &Value, batch: &mut Batch) {
    let Some(url) = event["url"].as_str().filter(|_| event["belongs_to"] != "user") else {
        return;
    };
    let path = url.split(['?', '#']).next().unwrap_or_default();
    let ending = path.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    let media_type = match (event["type"].as_str(), ending.as_str()) {
        (_, "png") => "image/png",
        (_, "jpg" | "jpeg") => "image/jpeg",
        (_, "webp") => "image/webp",
        (_, "gif") => "image/gif",
        (_, "svg") => "image/svg+xml",
        (_, "mp3") => "audio/mpeg",
        (_, "wav") => "audio/wav",
        (_, "mp4") => "video/mp4",
        (_, "pdf") => "application/pdf",
        // Dify's images are PNG unless their name says otherwise.
        (Some("image"), _) => "image/png",
        (Some(_) | None, _) => "application/octet-stream",
    };
    batch.event(Fact::FileProduced(Box::new(FileProduced {
        media_type: media_type.into(),
        source: MediaSource::Url(url.into()),
        name: event["filename"].as_str().map(Into::into),
    })));
}

fn usage(usage: &Value, batch: &mut Batch) {
    if !usage.is_object() {
        return;
    }
    let price = &usage["total_price"];
    let price = price.as_f64().or_else(|| price.as_str()?.parse().ok());
    let price = price.filter(|amount: &f64| *amount > 0.0);
    let currency = usage["currency"].as_str().unwrap_or("USD");
    batch.event(Fact::UsageReported(Box::new(Usage {
        scope: UsageScope::Run,
        input: usage["prompt_tokens"].as_u64().unwrap_or(0),
        output: usage["completion_tokens"].as_u64().unwrap_or(0),
        cost: price.map(|amount| Cost { amount, currency: currency.into() }),
        ..Usage::default()
    })));
}

fn sources(resources: &Value, batch: &mut Batch) {
    for resource in resources.as_array().into_iter().flatten() {
        let text = |name: &str| resource[name].as_str().map(Into::into);
        batch.event(Fact::SourceCited(Box::new(Source {
            id: text("segment_id").or_else(|| text("document_id")),
            title: text("document_name"),
            quote: text("content"),
            ..Source::default()
        })));
    }
}
