//! Records as the parts of a UI message stream.
//!
//! The protocol can only take back a whole step. So the dialect keeps what the current step has
//! emitted, and emits what was not voided again.

use serde_json::{Map, Value, json};
use wellspring_core::{
    AgentNo, Answer, Answered, Content, ContentChange, Event, FileProduced, Form, MediaSource,
    Outcome, Outline, PartId, PartKind, PartOutline, PartShape, Question, QuestionId,
    RETURN_RESULT, Record, Role, RunHead, RunId, RunsOn, Source, Stop, ToolCall, ToolKind,
    ToolOutcome, ToolResult, ToolUpdate, Usage, WirePartId,
};

use super::types::{DataPart, FinishReason, UiMessageChunk as Chunk, UserPart};
use crate::dialect::framing::Framing;
use crate::dialect::options::{Options, Reasoning, UsageReports};
use crate::dialect::out::Out;
use crate::dialect::{Before, Closed, Dialect, Fold};

/// The dialect `ai_sdk`.
#[derive(Debug, Default)]
pub struct AiSdk {
    reasoning: Reasoning,
    usage: UsageReports,
    /// The usage of all turns so far.
    spent: Usage,
    /// What the current step has emitted, in order.
    step: Vec<Said>,
    /// The progress of running calls.
    progress: Vec<(PartId, Progress)>,
}

/// A part that the current step has emitted.
#[derive(Debug)]
struct Said {
    what: What,
    /// The chunk that opened it.
    start: String,
    /// The bytes before a delta; empty if it has none.
    delta: String,
    /// All deltas.
    text: String,
    /// The chunks that followed.
    rest: Vec<String>,
    /// Whether the last of `rest` is preliminary, so that the next one replaces it.
    passing: bool,
}

/// What a kept part stands for.
#[derive(Clone, Debug, Eq, PartialEq)]
enum What {
    Part(PartId),
    /// A data part, which the next one with its id replaces.
    Data(Box<str>),
    Source(Box<Source>),
    Other,
}

/// The progress of a call so far.
#[derive(Debug, Default)]
struct Progress {
    title: Option<Box<str>>,
    locations: Option<Value>,
    content: Vec<Value>,
    data: Option<Value>,
}

impl AiSdk {
    pub(crate) fn new(options: &Options) -> Self {
        Self { reasoning: options.reasoning, usage: options.usage, ..Self::default() }
    }

    fn say(&self, chunk: &Chunk, out: &mut Out) {
        out.event(chunk);
    }

    /// Emits a chunk and keeps it, so that it survives when the step is reset.
    fn keep(&mut self, what: What, chunk: &Chunk, out: &mut Out) {
        let start = text(chunk);
        out.write(|json| {
            json.raw(&start);
        });
        let mut kept = self.step.iter_mut();
        match kept.find(|said| what != What::Other && said.what == what) {
            Some(said) => said.start = start,
            None => self.step.push(Said {
                what,
                start,
                delta: String::new(),
                text: String::new(),
                rest: Vec::new(),
                passing: false,
            }),
        }
    }

    /// Emits another chunk of a part and keeps it.
    fn follow(&mut self, part: PartId, chunk: &Chunk, out: &mut Out) {
        let json = text(chunk);
        out.write(|out| {
            out.raw(&json);
        });
        let passing = matches!(chunk, Chunk::ToolOutputAvailable { preliminary: true, .. });
        if let Some(said) = self.step.iter_mut().find(|said| said.what == What::Part(part)) {
            if said.passing {
                said.rest.pop();
            }
            said.rest.push(json);
            said.passing = passing;
        }
    }

    fn open(&mut self, scene: &Scene<'_>, part: PartId, kind: &PartKind, out: &mut Out) {
        let id = scene.id(part);
        let (start, delta) = match kind {
            PartKind::Text { role: Role::Assistant } if scene.is_root() => {
                let delta = format!(r#"{{"type":"text-delta","id":"{id}","delta":"#);
                (Chunk::TextStart { id }, delta)
            }
            PartKind::Thought if scene.is_root() => {
                if self.reasoning == Reasoning::Hidden {
                    return;
                }
                let delta = format!(r#"{{"type":"reasoning-delta","id":"{id}","delta":"#);
                (Chunk::ReasoningStart { id }, delta)
            }
            PartKind::ToolCall(tool) if &*tool.name != RETURN_RESULT => {
                let delta =
                    format!(r#"{{"type":"tool-input-delta","toolCallId":"{id}","inputTextDelta":"#);
                let start = Chunk::ToolInputStart {
                    tool_call_id: id,
                    tool_name: tool.name.clone(),
                    provider_executed: !tool.runs_on.is_ours(),
                    tool_metadata: scene.tool_metadata(tool),
                    title: tool.title.clone(),
                };
                (start, delta)
            }
            PartKind::Text { .. }
            | PartKind::Thought
            | PartKind::ToolCall(_)
            | PartKind::Output { .. }
            | PartKind::Opaque(_) => return,
        };
        self.keep(What::Part(part), &start, out);
        if let Some(said) = self.step.last_mut().filter(|said| said.what == What::Part(part)) {
            said.delta = delta;
        }
    }

    fn grow(
        &mut self,
        scene: &Scene<'_>,
        part: PartId,
        of: &PartOutline,
        chunk: &str,
        out: &mut Out,
    ) {
        // Most deltas belong to the part that was opened last.
        let mut said = self.step.iter_mut().rev();
        if let Some(said) = said.find(|said| said.what == What::Part(part)) {
            said.text.push_str(chunk);
            out.write(|json| {
                json.raw(&said.delta).string(chunk).raw("}");
            });
            return;
        }
        let transient =
            |kind, data| Chunk::Data(DataPart { kind, id: None, data, transient: true });
        match of.shape {
            PartShape::Output(call, stream) if scene.call(call).is_some() => {
                let data = json!({"toolCallId": scene.id(call), "stream": stream, "delta": chunk});
                self.say(&transient("data-tool-output", data), out);
            }
            PartShape::Text(Role::Assistant) | PartShape::Thought if !of.agent.is_root() => {
                let is_thought = of.shape == PartShape::Thought;
                if is_thought && self.reasoning == Reasoning::Hidden {
                    return;
                }
                let kind = if is_thought { "thought" } else { "text" };
                let data = json!({"agent": scene.agent_id(of.agent), "kind": kind, "delta": chunk});
                self.say(&transient("data-agent-delta", data), out);
            }
            PartShape::Text(_)
            | PartShape::Thought
            | PartShape::Call
            | PartShape::Output(..)
            | PartShape::Opaque => {}
        }
    }

    fn close_part(&mut self, scene: &Scene<'_>, part: PartId, of: &PartOutline, out: &mut Out) {
        if !of.open {
            return;
        }
        let is_shown = self.step.iter().any(|said| said.what == What::Part(part));
        let id = scene.id(part);
        match of.shape {
            PartShape::Text(_) if is_shown => self.follow(part, &Chunk::TextEnd { id }, out),
            PartShape::Thought if is_shown => self.follow(part, &Chunk::ReasoningEnd { id }, out),
            PartShape::Call => {
                if let Some(call) = scene.call(part) {
                    let chunk = input(id, &call.tool, &call.arguments);
                    self.follow(part, &chunk, out);
                }
            }
            PartShape::Text(_) | PartShape::Thought | PartShape::Output(..) | PartShape::Opaque => {
            }
        }
    }

    /// Voids parts. The protocol resets the whole step, so the rest of it is emitted again.
    fn void(&mut self, parts: &[PartId], out: &mut Out) {
        let is_voided =
            |said: &Said| matches!(&said.what, What::Part(part) if parts.contains(part));
        if !self.step.iter().any(is_voided) {
            return;
        }
        self.step.retain(|said| !is_voided(said));
        self.say(&Chunk::ResetStep, out);
        let raw = |json: &str, out: &mut Out| {
            out.write(|out| {
                out.raw(json);
            });
        };
        for said in &self.step {
            raw(&said.start, out);
            if !said.text.is_empty() {
                out.write(|json| {
                    json.raw(&said.delta).string(&said.text).raw("}");
                });
            }
            said.rest.iter().for_each(|json| raw(json, out));
        }
    }

    fn data(&mut self, kind: &'static str, id: Box<str>, data: Value, out: &mut Out) {
        let chunk = Chunk::Data(DataPart { kind, id: Some(id.clone()), data, transient: false });
        self.keep(What::Data(id), &chunk, out);
    }

    fn transient(&self, kind: &'static str, data: Value, out: &mut Out) {
        self.say(&Chunk::Data(DataPart { kind, id: None, data, transient: true }), out);
    }

    fn updated(&mut self, scene: &Scene<'_>, call: PartId, update: &ToolUpdate, out: &mut Out) {
        if scene.call(call).is_none() {
            return;
        }
        let index = match self.progress.iter().position(|(of, _)| *of == call) {
            Some(index) => index,
            None => {
                self.progress.push((call, Progress::default()));
                self.progress.len() - 1
            }
        };
        let Some((_, progress)) = self.progress.get_mut(index) else { return };
        progress.update(update);
        let chunk = Chunk::ToolOutputAvailable {
            tool_call_id: scene.id(call),
            output: progress.output(),
            preliminary: true,
        };
        self.follow(call, &chunk, out);
    }

    fn finished(
        &mut self,
        scene: &Scene<'_>,
        call: PartId,
        outcome: ToolOutcome,
        result: &ToolResult,
        out: &mut Out,
    ) {
        let Some(shown) = scene.call(call) else { return };
        self.progress.retain(|(of, _)| *of != call);
        // A remote agent may report a result before all of the arguments.
        if scene.outline.part(call).is_some_and(|of| of.open) {
            let chunk = input(scene.id(call), &shown.tool, &shown.arguments);
            self.follow(call, &chunk, out);
        }
        let tool_call_id = scene.id(call);
        let error_text = || result.output_text().into_owned().into();
        let chunk = match outcome {
            ToolOutcome::Ok => Chunk::ToolOutputAvailable {
                tool_call_id,
                output: result.output.clone(),
                preliminary: false,
            },
            ToolOutcome::Denied => Chunk::ToolOutputDenied { tool_call_id },
            ToolOutcome::Error | ToolOutcome::Interrupted | ToolOutcome::TimedOut => {
                Chunk::ToolOutputError { tool_call_id, error_text: error_text() }
            }
        };
        self.follow(call, &chunk, out);
    }

    fn asked(&mut self, scene: &Scene<'_>, question: &Question, out: &mut Out) {
        let id = scene.question_id(question.question);
        if let (Form::Approve, Some(call)) = (&question.form, question.call)
            && scene.call(call).is_some()
        {
            let reason = Some(question.prompt.clone()).filter(|prompt| !prompt.is_empty());
            let request = Chunk::ToolApprovalRequest {
                approval_id: id,
                tool_call_id: scene.id(call),
                reason,
            };
            self.follow(call, &request, out);
            return;
        }
        let mut data = json!({
            "question": question.question,
            "prompt": question.prompt,
            "form": question.form,
        });
        if let Some(call) = question.call {
            data["toolCallId"] = json!(scene.id(call));
        }
        self.data("data-question", id, data, out);
    }

    fn answered(&mut self, scene: &Scene<'_>, answered: &Answered, out: &mut Out) {
        let Some(asked) = scene.outline.questions.get(&answered.question) else { return };
        let id = scene.question_id(answered.question);
        if let (Form::Approve, Some(call)) = (&asked.form, asked.call)
            && scene.call(call).is_some()
        {
            let (approved, reason) = match &answered.answer {
                Answer::Approve { .. } => (true, None),
                Answer::Deny { reason, .. } => (false, reason.clone()),
                Answer::Expired => {
                    (false, Some("the question expired before it was answered".into()))
                }
                Answer::Withdrawn => (false, Some("the question was withdrawn".into())),
                Answer::Choose(_) | Answer::Value(_) => (false, None),
            };
            let response = Chunk::ToolApprovalResponse { approval_id: id, approved, reason };
            self.follow(call, &response, out);
            return;
        }
        let data = json!({
            "question": answered.question,
            "prompt": asked.prompt,
            "form": asked.form,
            "answer": answered.answer,
        });
        self.data("data-question", id, data, out);
    }

    /// The metadata of the message.
    fn metadata(&self, head: &RunHead) -> Value {
        let mut metadata = json!({ "run": head.run, "thread": head.thread, "agent": head.agent });
        if let Some(usage) = self.usage() {
            metadata["usage"] = usage;
        }
        metadata
    }

    fn usage(&self) -> Option<Value> {
        let is_told = self.usage == UsageReports::Included && self.spent != Usage::default();
        is_told.then(|| {
            let Usage { input, output, reasoning, cached_input, .. } = &self.spent;
            let mut usage = json!({
                "inputTokens": input,
                "outputTokens": output,
                "totalTokens": input.saturating_add(*output),
            });
            let more = [("reasoningTokens", reasoning), ("cachedInputTokens", cached_input)];
            for (name, tokens) in more {
                if let Some(tokens) = tokens {
                    usage[name] = (*tokens).into();
                }
            }
            usage
        })
    }

    fn finish(&self, head: &RunHead, finish_reason: FinishReason, out: &mut Out) {
        let message_metadata = self.metadata(head);
        self.say(&Chunk::Finish { finish_reason, message_metadata }, out);
    }

    fn ended(&self, head: &RunHead, outcome: &Outcome, out: &mut Out) {
        match outcome {
            Outcome::Completed { stop } => self.finish(head, reason(stop), out),
            Outcome::Cancelled { why, .. } => {
                self.say(&Chunk::MessageMetadata { message_metadata: self.metadata(head) }, out);
                self.say(&Chunk::Abort { reason: why.clone() }, out);
            }
            Outcome::Failed { message, .. } => {
                self.say(&Chunk::MessageMetadata { message_metadata: self.metadata(head) }, out);
                self.say(&Chunk::Error { error_text: message.clone() }, out);
            }
        }
    }

    fn fact(&mut self, outline: &Outline, head: &RunHead, record: &Record, out: &mut Out) {
        let scene = Scene { outline, head, agent: record.agent };
        match &record.event {
            Event::PartDelta { part, chunk } => {
                if let Some(of) = outline.part(*part).filter(|of| of.open) {
                    self.grow(&scene, *part, of, chunk, out);
                }
            }
            Event::PartStarted { part, kind } => self.open(&scene, *part, kind, out),
            Event::PartFinished { part } => {
                if let Some(of) = outline.part(*part) {
                    self.close_part(&scene, *part, of, out);
                }
            }
            Event::PartsVoided { parts, .. } => self.void(parts, out),
            Event::TurnStarted(turn) => {
                let same = outline.agents.get(&record.agent);
                let again = same.is_some_and(|agent| agent.in_turn && agent.turn == turn.turn);
                if scene.is_root() && !again {
                    self.step.clear();
                    self.say(&Chunk::StartStep, out);
                }
            }
            Event::TurnFinished { usage, .. } => {
                if let Some(usage) = usage {
                    self.spent.add(usage);
                }
                let in_turn = outline.agents.get(&record.agent).is_some_and(|it| it.in_turn);
                if scene.is_root() && in_turn {
                    self.say(&Chunk::FinishStep, out);
                    let message_metadata = self.metadata(head);
                    self.say(&Chunk::MessageMetadata { message_metadata }, out);
                }
            }
            Event::ToolStarted { call, arguments, .. } => {
                if let (Some(edited), Some(shown)) = (arguments, scene.call(*call)) {
                    let chunk = Chunk::ToolInputAvailable {
                        tool_call_id: scene.id(*call),
                        tool_name: shown.tool.name.clone(),
                        input: (**edited).clone(),
                        provider_executed: !shown.tool.runs_on.is_ours(),
                    };
                    self.follow(*call, &chunk, out);
                }
            }
            Event::ToolUpdated { call, update } => self.updated(&scene, *call, update, out),
            Event::ToolFinished { call, outcome, result } => {
                self.finished(&scene, *call, *outcome, result, out);
            }
            Event::QuestionAsked(question) => self.asked(&scene, question, out),
            Event::QuestionAnswered(answered) => self.answered(&scene, answered, out),
            Event::AgentStarted { call, name, .. } => {
                let mut data = json!({ "name": name, "status": "running" });
                if let Some(call) = call {
                    data["toolCallId"] = json!(scene.id(*call));
                }
                self.data("data-agent", scene.agent_id(record.agent), data, out);
            }
            Event::AgentFinished { outcome } => {
                let Some(agent) = outline.agents.get(&record.agent) else { return };
                let mut data = json!({ "name": agent.name, "status": status(outcome) });
                if let Some(call) = agent.call {
                    data["toolCallId"] = json!(scene.id(call));
                }
                self.data("data-agent", scene.agent_id(record.agent), data, out);
            }
            Event::PlanUpdated { entries } => {
                let id = format!("{}-plan", head.run).into();
                self.data("data-plan", id, json!({ "entries": entries }), out);
            }
            Event::StateSet { state } => {
                let id = format!("{}-state", head.run).into();
                self.data("data-state", id, (**state).clone(), out);
            }
            Event::StatePatched { patch } => {
                self.transient("data-state-patch", (**patch).clone(), out);
            }
            Event::ResultReady { value } => {
                let id = format!("{}-result", head.run).into();
                self.data("data-result", id, (**value).clone(), out);
            }
            Event::SourceCited(cited) => {
                let what = What::Source(cited.clone());
                // An attempt that was taken back may have cited it before.
                if self.step.iter().all(|said| said.what != what) {
                    self.keep(what, &source(head.run, record, cited), out);
                }
            }
            Event::FileProduced(produced) => self.keep(What::Other, &file(produced), out),
            Event::InputAccepted { content, .. } if content.is_empty() => {}
            Event::InputAccepted { inbox, content, .. } => {
                let id = format!("{}-input-{inbox}", head.run).into();
                let parts = content.iter().map(user_part).collect();
                self.keep(What::Other, &Chunk::SteeringMessage { id, parts }, out);
            }
            Event::UsageReported(usage) => {
                if self.usage == UsageReports::Included {
                    self.transient("data-usage", json!(usage), out);
                }
            }
            Event::Extended(extended) => self.transient("data-extended", json!(extended), out),
            Event::RunPaused { .. } => self.finish(head, FinishReason::ToolCalls, out),
            Event::RunResumed { .. } => self.started(head, out),
            Event::RunFinished { outcome } => self.ended(head, outcome, out),
            // Owners and attach handles are internal.
            Event::RunStarted(_)
            | Event::RunAdopted { .. }
            | Event::Attached { .. }
            | Event::PartAnnotated { .. }
            | Event::ToolQueued { .. }
            | Event::InputApplied { .. } => {}
        }
    }

    fn started(&self, head: &RunHead, out: &mut Out) {
        let message_id = head.run.to_string().into();
        self.say(&Chunk::Start { message_id, message_metadata: self.metadata(head) }, out);
    }
}

impl Dialect for AiSdk {
    fn encode(&mut self, before: Before<'_>, record: &Record, out: &mut Out) {
        let outline = before.outline();
        match (&outline.run, &record.event) {
            (None, Event::RunStarted(started)) => {
                let mut after = Outline::default();
                after.apply(record);
                if let Some(head) = &after.run {
                    self.started(head, out);
                    if let Some(state) = &started.request.state {
                        let id = format!("{}-state", head.run).into();
                        self.data("data-state", id, state.clone(), out);
                    }
                }
            }
            (Some(head), _) if !outline.finished => self.fact(outline, head, record, out),
            (Some(_) | None, _) => {}
        }
    }

    fn fold(&self) -> Fold {
        Fold::Records
    }

    /// Finishes the message while a question waits: the answer comes with another request.
    fn interrupt(&self, now: &Outline, out: &mut Out) {
        if let (Some(head), false) = (&now.run, now.blocking_questions().is_empty()) {
            self.finish(head, FinishReason::ToolCalls, out);
        }
    }

    fn close(&self, why: &Closed<'_>, out: &mut Out) {
        self.say(&Chunk::Error { error_text: why.text().into() }, out);
    }

    fn framing(&self) -> Framing {
        Framing {
            headers: &[("x-vercel-ai-ui-message-stream", "v1")],
            marker: Some("[DONE]"),
            ..Framing::SSE
        }
    }
}

/// What is open at a record, and the record's agent.
struct Scene<'a> {
    outline: &'a Outline,
    head: &'a RunHead,
    agent: AgentNo,
}

impl Scene<'_> {
    fn is_root(&self) -> bool {
        self.agent.is_root()
    }

    fn id(&self, part: PartId) -> Box<str> {
        WirePartId { run: self.head.run, part }.to_string().into()
    }

    fn question_id(&self, question: QuestionId) -> Box<str> {
        format!("{}-question-{question}", self.head.run).into()
    }

    fn agent_id(&self, agent: AgentNo) -> Box<str> {
        format!("{}-agent-{agent}", self.head.run).into()
    }

    /// A call that is shown and has no result yet.
    fn call(&self, call: PartId) -> Option<&wellspring_core::CallOutline> {
        self.outline.call(call).filter(|call| &*call.tool.name != RETURN_RESULT)
    }

    fn tool_metadata(&self, tool: &ToolCall) -> Option<Value> {
        let mut metadata = Map::new();
        if tool.kind != ToolKind::Other {
            metadata.insert("kind".into(), json!(tool.kind));
        }
        if tool.runs_on != RunsOn::Here {
            metadata.insert("runsOn".into(), json!(tool.runs_on));
        }
        if !self.is_root() {
            metadata.insert("agent".into(), json!(self.agent_id(self.agent)));
        }
        Some(Value::Object(metadata)).filter(|it| it.as_object().is_some_and(|it| !it.is_empty()))
    }
}

impl Progress {
    fn update(&mut self, update: &ToolUpdate) {
        if let Some(title) = &update.title {
            self.title = Some(title.clone());
        }
        if !update.locations.is_empty() {
            self.locations = Some(json!(update.locations));
        }
        match &update.content {
            Some(ContentChange::Append(more)) => {
                self.content.extend(more.iter().map(|content| json!(content)));
            }
            Some(ContentChange::Replace(all)) => {
                self.content = all.iter().map(|content| json!(content)).collect();
            }
            None => {}
        }
        if let Some(data) = &update.data {
            self.data = Some(data.clone());
        }
    }

    /// Only the tool's own data if there is nothing else, as a tool of the SDK would yield it.
    fn output(&self) -> Value {
        let only_data = self.title.is_none() && self.locations.is_none() && self.content.is_empty();
        if let (true, Some(data)) = (only_data, &self.data) {
            return data.clone();
        }
        let mut output = Map::new();
        if let Some(title) = &self.title {
            output.insert("title".into(), json!(title));
        }
        if let Some(locations) = &self.locations {
            output.insert("locations".into(), locations.clone());
        }
        if !self.content.is_empty() {
            output.insert("content".into(), json!(self.content));
        }
        if let Some(data) = &self.data {
            output.insert("data".into(), data.clone());
        }
        Value::Object(output)
    }
}

/// A chunk as JSON. Strings and values always serialise.
fn text(chunk: &Chunk) -> String {
    serde_json::to_string(chunk).unwrap_or_default()
}

/// A call's whole arguments.
fn input(tool_call_id: Box<str>, tool: &ToolCall, arguments: &str) -> Chunk {
    let (tool_name, provider_executed) = (tool.name.clone(), !tool.runs_on.is_ours());
    let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
    match serde_json::from_str(arguments) {
        Ok(input) => {
            Chunk::ToolInputAvailable { tool_call_id, tool_name, input, provider_executed }
        }
        Err(_) => Chunk::ToolInputError {
            tool_call_id,
            tool_name,
            input: arguments.into(),
            provider_executed,
            error_text: "the arguments are not valid JSON".into(),
        },
    }
}

fn source(run: RunId, record: &Record, source: &Source) -> Chunk {
    let ours = || format!("{run}-source-{}", record.seq).into();
    let source_id = source.id.clone().unwrap_or_else(ours);
    match &source.url {
        Some(url) => Chunk::SourceUrl { source_id, url: url.clone(), title: source.title.clone() },
        None => {
            let title = source.title.clone().or_else(|| source.quote.clone());
            Chunk::SourceDocument {
                title: title.unwrap_or_else(|| source_id.clone()),
                source_id,
                media_type: source.media_type.clone().unwrap_or_else(|| "text/plain".into()),
            }
        }
    }
}

fn file(file: &FileProduced) -> Chunk {
    let url = address(&file.media_type, &file.source);
    Chunk::File { url, media_type: file.media_type.clone() }
}

fn address(media_type: &str, source: &MediaSource) -> Box<str> {
    match source {
        MediaSource::Url(url) => url.clone(),
        MediaSource::Data(data) => format!("data:{media_type};base64,{data}").into(),
    }
}

fn user_part(content: &Content) -> UserPart {
    match content {
        Content::Text(text) | Content::Resource { text, .. } => {
            UserPart::Text { text: text.clone() }
        }
        Content::Media { media_type, source, name } => UserPart::File {
            media_type: media_type.clone(),
            url: address(media_type, source),
            filename: name.clone(),
        },
        Content::Link { uri, name, media_type } => UserPart::File {
            media_type: media_type.clone().unwrap_or_else(|| "text/uri-list".into()),
            url: uri.clone(),
            filename: name.clone(),
        },
    }
}

const fn status(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Completed { .. } => "completed",
        Outcome::Cancelled { .. } => "cancelled",
        Outcome::Failed { .. } => "failed",
    }
}

const fn reason(stop: &Stop) -> FinishReason {
    match stop {
        Stop::EndTurn | Stop::StopSequence => FinishReason::Stop,
        Stop::ToolCalls => FinishReason::ToolCalls,
        Stop::MaxTokens | Stop::TurnLimit | Stop::Budget(_) => FinishReason::Length,
        Stop::Refusal | Stop::ContentFilter => FinishReason::ContentFilter,
        Stop::Paused | Stop::Other(_) => FinishReason::Other,
    }
}
