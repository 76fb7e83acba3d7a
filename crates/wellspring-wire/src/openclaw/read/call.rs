//! Calls that run inside the agent.

use serde_json::{Map, Value, json};
use wellspring_core::{
    Annotation, Batch, Content, ContentChange, LocalPart, OutputStream, Part, PartKind, RunsOn,
    ToolCall, ToolContent, ToolKind, ToolOutcome, ToolResult, ToolUpdate,
};

use super::super::ORIGIN;
use super::{CALLS_MAX, Reader, SnapshotText, data_text};

/// A call of the run.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) part: LocalPart,
    stage: Stage,
    pub(super) output: SnapshotText,
    /// Whether its progress arrives as output of a command.
    is_command: bool,
    title: Option<Box<str>>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// Announced; its arguments may still arrive.
    Asked,
    Started,
    Finished,
}

impl Call {
    /// A call that an earlier reader has read.
    pub(super) fn resumed(part: LocalPart, said: &Part) -> Self {
        let progress = said.call.as_ref();
        let stage = if progress.is_some_and(|it| it.finished.is_some()) {
            Stage::Finished
        } else if said.finished {
            Stage::Started
        } else {
            Stage::Asked
        };
        let title = progress.and_then(|it| it.title.clone());
        Self { part, stage, output: SnapshotText::default(), is_command: false, title }
    }

    fn start(&mut self, arguments: Option<&Value>, batch: &mut Batch) {
        if self.stage == Stage::Asked {
            if let Some(arguments) = arguments {
                batch.delta(self.part, &arguments.to_string());
            }
            batch.finish(self.part);
            batch.tool_started(self.part);
            self.stage = Stage::Started;
        }
    }

    fn update(&mut self, update: ToolUpdate, batch: &mut Batch) {
        self.start(None, batch);
        if self.stage == Stage::Started && update != ToolUpdate::default() {
            batch.tool_updated(self.part, update);
        }
    }

    fn finish(&mut self, outcome: ToolOutcome, result: ToolResult, batch: &mut Batch) {
        self.start(None, batch);
        if self.stage == Stage::Started {
            self.output.close(batch);
            batch.tool_finished(self.part, outcome, result);
            self.stage = Stage::Finished;
        }
    }

    /// Ends a call because the run ended first.
    pub(super) fn interrupt(&mut self, batch: &mut Batch) {
        let result = ToolResult::new("the run ended before the call had a result");
        self.finish(ToolOutcome::Interrupted, result, batch);
    }
}

impl Reader {
    /// The call of an event. Text and thoughts before a call end with it. `None` if the event
    /// names no call, or if there are too many; the event is then kept whole.
    fn call(
        &mut self,
        stream: &str,
        data: &mut Map<String, Value>,
        batch: &mut Batch,
    ) -> Option<&mut Call> {
        let id: Option<Box<str>> = data_text(data, "toolCallId").map(Into::into);
        let known = id.as_ref().is_some_and(|id| self.calls.contains_key(id));
        let Some(id) = id.filter(|_| known || self.calls.len() < CALLS_MAX) else {
            batch.extended(ORIGIN, stream, Value::Object(std::mem::take(data)));
            return None;
        };
        if !known {
            self.thought.close(batch);
            self.thought.text.clear();
            self.words.close(batch);
            let name = data_text(data, "name").unwrap_or_default();
            let title: Option<Box<str>> = data_text(data, "title").map(Into::into);
            let tool = ToolCall {
                name: name.into(),
                id: Some(id.clone()),
                title: title.clone(),
                kind: kind(name),
                runs_on: RunsOn::Agent,
            };
            let part = batch.start(PartKind::ToolCall(Box::new(tool)));
            batch.annotate(part, Annotation::ProviderId(id.clone()));
            let (stage, output, is_command) = (Stage::Asked, SnapshotText::default(), false);
            self.calls.insert(id.clone(), Call { part, stage, output, is_command, title });
        }
        let call = self.calls.get_mut(&id)?;
        call.is_command |= data.get("commandBearing") == Some(&Value::Bool(true));
        Some(call)
    }

    /// Reads a description of what a call does. Without the capability `tool-events`, it is the
    /// only information about calls.
    pub(super) fn item(&mut self, mut data: Map<String, Value>, batch: &mut Batch) {
        let Some(call) = self.call("item", &mut data, batch) else { return };
        let title: Option<Box<str>> = data_text(&data, "title").map(Into::into);
        if title.is_some() && title != call.title {
            call.title.clone_from(&title);
            call.update(ToolUpdate { title, ..ToolUpdate::default() }, batch);
        }
        if data_text(&data, "phase") == Some("end") {
            let status = data_text(&data, "status").unwrap_or_default();
            let outcome = match status {
                "completed" | "" => ToolOutcome::Ok,
                "cancelled" | "aborted" => ToolOutcome::Interrupted,
                "denied" => ToolOutcome::Denied,
                _ => ToolOutcome::Error,
            };
            // The output, if there was any, is all that is known of the result.
            let result = match call.output.text.as_str() {
                "" => ToolResult::new(status),
                output => ToolResult::new(output),
            };
            call.finish(outcome, result, batch);
        }
    }

    pub(super) fn tool(&mut self, mut data: Map<String, Value>, batch: &mut Batch) {
        let Some(call) = self.call("tool", &mut data, batch) else { return };
        match data_text(&data, "phase") {
            Some("start") => call.start(data.get("args"), batch),
            Some("update") => {
                let Some(partial) = data.remove("partialResult") else { return };
                let content = if call.is_command { Vec::new() } else { contents(&partial) };
                let update = ToolUpdate {
                    content: (!content.is_empty()).then_some(ContentChange::Replace(content)),
                    data: Some(partial.get("details").cloned().unwrap_or(partial)),
                    ..ToolUpdate::default()
                };
                call.update(update, batch);
            }
            Some("result") => {
                let result = data.remove("result").unwrap_or_default();
                if let Some(details) = result.get("details").filter(|it| !it.is_null()) {
                    let details = Some(details.clone());
                    call.update(ToolUpdate { data: details, ..ToolUpdate::default() }, batch);
                }
                let outcome = match data.get("isError") {
                    Some(Value::Bool(true)) => ToolOutcome::Error,
                    Some(_) | None => ToolOutcome::Ok,
                };
                let texts: Option<String> = result["content"]
                    .as_array()
                    .and_then(|blocks| blocks.iter().map(|block| block["text"].as_str()).collect());
                let output = texts.map_or(result, Value::String);
                call.finish(outcome, ToolResult::new(output), batch);
            }
            Some(_) | None => batch.extended(ORIGIN, "tool", Value::Object(data)),
        }
    }

    /// Reads the output of a command: a snapshot, or its end if it is long.
    pub(super) fn command_output(&mut self, mut data: Map<String, Value>, batch: &mut Batch) {
        let Some(call) = self.call("command_output", &mut data, batch) else { return };
        call.is_command = true;
        call.start(None, batch);
        let output = data_text(&data, "output").unwrap_or_default();
        if call.stage == Stage::Started && !output.is_empty() {
            let part = call.part;
            let start = |batch: &mut Batch| batch.start_output(part, OutputStream::Terminal);
            call.output.becomes(output, start, batch);
        }
        if call.stage == Stage::Finished && data.contains_key("exitCode") {
            let kept = json!({
                "toolCallId": data.get("toolCallId"), "exitCode": data.get("exitCode"),
                "durationMs": data.get("durationMs"), "cwd": data.get("cwd"),
            });
            batch.extended(ORIGIN, "command_output", kept);
        }
    }
}

/// The content blocks of a result that people can read.
fn contents(result: &Value) -> Vec<ToolContent> {
    let blocks = result["content"].as_array().into_iter().flatten();
    blocks
        .filter_map(|block| block["text"].as_str())
        .map(|text| ToolContent::Content(Content::text(text)))
        .collect()
}

/// The kind of one of the gateway's tools, by its name.
fn kind(name: &str) -> ToolKind {
    match name {
        "exec" | "bash" | "process" | "shell" => ToolKind::Execute,
        "read" | "memory_get" | "sessions_history" => ToolKind::Read,
        "write" | "edit" | "apply_patch" => ToolKind::Edit,
        "web_search" | "memory_search" | "grep" | "find" | "ls" => ToolKind::Search,
        "web_fetch" | "browser" => ToolKind::Fetch,
        _ => ToolKind::Other,
    }
}
