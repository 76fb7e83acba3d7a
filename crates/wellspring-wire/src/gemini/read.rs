//! Reads chunks of the stream, or a whole response, into a batch.

mod fast_path;

use std::collections::BTreeSet;

use serde_json::{Value, json};
use wellspring_core::{
    Annotation, Batch, Event, FailureKind, FileProduced, LocalPart, MediaSource, Opaque, PartKind,
    RunsOn, Source, Stop, ToolCall, ToolKind, ToolOutcome, ToolResult, TurnRequest, Usage,
};

use super::arguments::{Arguments, Piece};
use super::types::{Candidate, Chunk, FunctionCall, Part, UsageMetadata};
use super::write::NAMES;
use super::{ORIGIN, PART, REPEATS, SIGNATURE};
use crate::Frame;
use crate::provider::scan::{Half, Quoted};
use crate::provider::surroundings::Surroundings;
use crate::provider::text::member;
use crate::provider::{
    AnswerReader, CUT_ARGUMENTS, Failure, ReadError, SOURCES_MAX, ToolNames, mark, stop_reason,
};

/// Reads one response.
#[derive(Debug, Default)]
pub struct Reader {
    names: ToolNames,
    /// The text, or thought, that the next chunk may extend.
    open: Option<OpenText>,
    /// A call whose arguments are still arriving.
    call: Option<(LocalPart, Arguments)>,
    /// A program whose result has not arrived.
    program: Option<LocalPart>,
    /// The last text of the answer, which sources refer to.
    answer: Option<LocalPart>,
    sources: BTreeSet<Box<str>>,
    /// Whether the model called a tool that runs here.
    called: bool,
    model: Option<Box<str>>,
    usage: Option<UsageMetadata>,
    stop: Option<Stop>,
    stopped: bool,
    scratch: String,
    /// The bytes around the last chunk that held only text, and whether the text was a thought.
    last: Surroundings<bool>,
}

#[derive(Clone, Copy, Debug)]
struct OpenText {
    part: LocalPart,
    thought: bool,
    bytes: usize,
    /// A high surrogate at the end of the last chunk.
    half: Half,
}

impl Reader {
    /// Creates a reader for the answer to this request.
    #[must_use]
    pub fn new(request: &TurnRequest) -> Self {
        Self { names: ToolNames::new(NAMES, &request.tools), ..Self::default() }
    }

    /// Adds text as it is on the wire. It may end in a high surrogate, which no parser accepts.
    fn words(&mut self, text: Quoted<'_>, thought: bool, batch: &mut Batch) -> Option<()> {
        if text == Quoted::default() {
            return Some(());
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let open = self.open_text(thought, batch);
        let read = text.text(&mut scratch, &mut open.half).map(|text| {
            open.bytes += text.len();
            batch.delta(open.part, text);
        });
        self.scratch = scratch;
        read
    }

    /// The text or thought that continues, or a new one if the kind of content changed.
    fn open_text(&mut self, thought: bool, batch: &mut Batch) -> &mut OpenText {
        if self.open.is_some_and(|open| open.thought != thought) {
            self.close_text(batch);
        }
        let answer = &mut self.answer;
        self.open.get_or_insert_with(|| {
            let part = batch.start(if thought { PartKind::Thought } else { PartKind::TEXT });
            if thought {
                batch.annotate(part, mark(ORIGIN, PART, json!({ "thought": true })));
            } else {
                *answer = Some(part);
            }
            OpenText { part, thought, bytes: 0, half: Half::default() }
        })
    }

    fn candidate(&mut self, candidate: Candidate<'_>, batch: &mut Batch) -> Result<(), ReadError> {
        for raw in candidate.content.unwrap_or_default().parts.iter() {
            self.part(raw.get(), batch)?;
        }
        if let Some(grounding) = candidate.grounding_metadata {
            self.ground(&grounding, batch);
            batch.extended(ORIGIN, "groundingMetadata", grounding);
        }
        if let Some(citations) = candidate.citation_metadata {
            let list = citations.get("citationSources").or(citations.get("citations"));
            for citation in list.and_then(Value::as_array).into_iter().flatten() {
                self.cite(member(citation, "uri"), member(citation, "title"), batch);
                self.annotate_answer(Annotation::Citation(citation.clone()), batch);
            }
        }
        if let Some(fetched) = candidate.url_context_metadata {
            batch.extended(ORIGIN, "urlContextMetadata", fetched);
        }
        // The first value of a protobuf enum means that it is not set.
        let reason = stop_reason(&candidate.finish_reason);
        match reason.filter(|reason| *reason != "FINISH_REASON_UNSPECIFIED") {
            Some(reason) => self.finish(reason, &candidate.finish_message, batch),
            None => Ok(()),
        }
    }

    fn part(&mut self, raw: &str, batch: &mut Batch) -> Result<(), ReadError> {
        let Ok(part) = serde_json::from_str::<Part<'_>>(raw) else {
            return self.hot_part(raw, batch).unwrap_or_else(|| {
                self.keep(raw, batch);
                Ok(())
            });
        };
        let thought = part.thought == Some(true);
        if let Some(text) = &part.text {
            self.text(text, thought, part.thought_signature.given(), raw, batch);
        } else if let Some(call) = part.function_call {
            self.close_text(batch);
            self.function_call(call, part.thought_signature.given(), batch)?;
        } else if let Some(code) = part.executable_code {
            self.close_text(batch);
            self.end_program(batch);
            let call = batch.start(PartKind::ToolCall(Box::new(ToolCall {
                id: None,
                name: "code_execution".into(),
                title: None,
                kind: ToolKind::Execute,
                runs_on: RunsOn::Provider,
            })));
            batch.delta(call, code.get());
            batch.annotate(call, mark(ORIGIN, PART, json_of(raw)));
            batch.finish(call);
            batch.tool_started(call);
            self.program = Some(call);
        } else if let Some(result) = part.code_execution_result {
            self.keep(raw, batch);
            if let Some(call) = self.program.take() {
                let outcome = match &*result.outcome {
                    "OUTCOME_OK" | "" => ToolOutcome::Ok,
                    "OUTCOME_DEADLINE_EXCEEDED" => ToolOutcome::TimedOut,
                    _ => ToolOutcome::Error,
                };
                batch.tool_finished(call, outcome, ToolResult::new(&*result.output));
            }
        } else {
            // A draft of an image is a thought; only the last one is a file.
            let file = if thought { None } else { file(&part) };
            self.keep(raw, batch);
            if let Some(file) = file {
                batch.event(Event::FileProduced(Box::new(file)));
            }
        }
        Ok(())
    }

    fn text(
        &mut self,
        text: &str,
        thought: bool,
        signature: Option<&str>,
        raw: &str,
        batch: &mut Batch,
    ) {
        let goes_on = self.open.is_some_and(|open| open.thought == thought);
        if text.is_empty() && !goes_on {
            // A signature may arrive without text: it is kept at its position.
            if signature.is_some() {
                self.keep(raw, batch);
            }
            return;
        }
        let open = self.open_text(thought, batch);
        let from = open.bytes;
        open.bytes += text.len();
        batch.delta(open.part, text);
        if let Some(signature) = signature {
            let span = json!({ SIGNATURE: signature, "from": from, "to": open.bytes });
            batch.annotate(open.part, mark(ORIGIN, SIGNATURE, span));
        }
    }

    fn function_call(
        &mut self,
        call: FunctionCall<'_>,
        signature: Option<&str>,
        batch: &mut Batch,
    ) -> Result<(), ReadError> {
        let continues = call.will_continue == Some(true);
        if call.name.given().is_some() {
            if self.call.is_some() {
                return Err(cut_call());
            }
            self.called = true;
            let part = batch.start(PartKind::call(self.names.ours(&call.name)));
            if let Some(id) = call.id.given() {
                batch.annotate(part, Annotation::ProviderId(id.into()));
            }
            if let Some(args) = call.args
                && !continues
                && call.partial_args.is_empty()
            {
                batch.delta(part, args.get());
                sign(part, signature, batch);
                batch.finish(part);
                return Ok(());
            }
            if call.partial_args.is_empty() && !continues {
                sign(part, signature, batch);
                batch.finish(part);
                return Ok(());
            }
            self.call = Some((part, Arguments::default()));
        }
        let Some((part, _)) = self.call else { return Err(unannounced()) };
        sign(part, signature, batch);
        self.argue(call.partial_args.iter().map(Piece::of), batch)?;
        if !continues && let Some((part, arguments)) = self.call.take() {
            let text = &mut self.scratch;
            text.clear();
            let repeats = arguments.end(text);
            batch.delta(part, text);
            if repeats {
                batch.annotate(part, mark(ORIGIN, REPEATS, Value::Bool(true)));
            }
            batch.finish(part);
        }
        Ok(())
    }

    /// Adds to the arguments of the open call.
    fn argue<'a>(
        &mut self,
        pieces: impl IntoIterator<Item = Piece<'a>>,
        batch: &mut Batch,
    ) -> Result<(), ReadError> {
        let (part, arguments) = self.call.as_mut().ok_or_else(unannounced)?;
        self.scratch.clear();
        for piece in pieces {
            arguments.push(piece, &mut self.scratch)?;
        }
        batch.delta(*part, &self.scratch);
        Ok(())
    }

    fn finish(&mut self, reason: &str, message: &str, batch: &mut Batch) -> Result<(), ReadError> {
        if let Some((part, arguments)) = self.call.take() {
            if reason != "MAX_TOKENS" {
                return Err(cut_call());
            }
            // An incomplete object is not valid JSON, so the call is not executed and the model
            // gets an error.
            if arguments.is_empty() {
                batch.delta(part, CUT_ARGUMENTS);
            }
            batch.finish(part);
        }
        self.end_program(batch);
        let stop = match reason {
            "STOP" if self.called => Stop::ToolCalls,
            "STOP" => Stop::EndTurn,
            "MAX_TOKENS" => Stop::MaxTokens,
            "SAFETY"
            | "RECITATION"
            | "BLOCKLIST"
            | "PROHIBITED_CONTENT"
            | "SPII"
            | "MODEL_ARMOR"
            | "IMAGE_SAFETY"
            | "IMAGE_PROHIBITED_CONTENT"
            | "IMAGE_RECITATION" => Stop::ContentFilter,
            // The model tried to call a tool and wrote invalid output: another attempt may
            // succeed.
            "MALFORMED_FUNCTION_CALL" | "MALFORMED_RESPONSE" | "UNEXPECTED_TOOL_CALL" => {
                let colon = if message.is_empty() { "" } else { ": " };
                let what = format!("the model stopped with {reason}{colon}{message}");
                return Err(ReadError::Order(what.into()));
            }
            "MISSING_THOUGHT_SIGNATURE" => {
                return Err(ReadError::Failed(Failure {
                    kind: FailureKind::BadRequest,
                    message: "the conversation lacks a thought signature".into(),
                    retry_after: None,
                }));
            }
            // LANGUAGE, OTHER, TOO_MANY_TOOL_CALLS, IMAGE_OTHER, NO_IMAGE, and unknown ones.
            other => Stop::Other(other.into()),
        };
        self.stop = Some(stop);
        Ok(())
    }

    fn ground(&mut self, grounding: &Value, batch: &mut Batch) {
        let list = |name: &str| grounding.get(name).and_then(Value::as_array).into_iter().flatten();
        for chunk in list("groundingChunks") {
            let found = ["web", "retrievedContext", "maps"].iter().find_map(|kind| chunk.get(kind));
            if let Some(found) = found {
                self.cite(member(found, "uri"), member(found, "title"), batch);
            }
        }
        for support in list("groundingSupports") {
            self.annotate_answer(Annotation::Citation(support.clone()), batch);
        }
    }

    fn cite(&mut self, url: Option<&str>, title: Option<&str>, batch: &mut Batch) {
        let Some(key) = url.or(title) else { return };
        if self.sources.len() < SOURCES_MAX && self.sources.insert(key.into()) {
            let (url, title) = (url.map(Into::into), title.map(Into::into));
            batch.event(Event::SourceCited(Box::new(Source { url, title, ..Source::default() })));
        }
    }

    fn annotate_answer(&self, annotation: Annotation, batch: &mut Batch) {
        if let Some(part) = self.answer {
            batch.annotate(part, annotation);
        }
    }

    /// Keeps a part so that it is sent back unchanged.
    fn keep(&mut self, raw: &str, batch: &mut Batch) {
        self.close_text(batch);
        let opaque = Opaque { origin: ORIGIN.into(), raw: json_of(raw) };
        let part = batch.start(PartKind::Opaque(Box::new(opaque)));
        batch.finish(part);
    }

    fn close_text(&mut self, batch: &mut Batch) {
        if let Some(mut open) = self.open.take() {
            batch.delta(open.part, open.half.end());
            batch.finish(open.part);
        }
    }

    fn end_program(&mut self, batch: &mut Batch) {
        if let Some(call) = self.program.take() {
            batch.tool_finished(call, ToolOutcome::Interrupted, ToolResult::default());
        }
    }

    fn usage(&self, usage: &UsageMetadata) -> Usage {
        let some = |count: Option<u64>| count.unwrap_or(0);
        Usage {
            provider: Some(ORIGIN.into()),
            model: self.model.clone(),
            input: some(usage.prompt_token_count)
                .saturating_add(some(usage.tool_use_prompt_token_count)),
            output: some(usage.candidates_token_count)
                .saturating_add(some(usage.thoughts_token_count)),
            reasoning: usage.thoughts_token_count,
            cached_input: usage.cached_content_token_count,
            ..Usage::default()
        }
    }
}

impl AnswerReader for Reader {
    fn push(&mut self, frame: Frame<'_>, batch: &mut Batch) -> Result<(), ReadError> {
        let data = frame.data;
        // Chunks after the end are ignored.
        if self.stopped {
            return Ok(());
        }
        if let Some(read) = self.hot(data, batch) {
            return read;
        }
        let chunk: Chunk<'_> = match serde_json::from_slice(data) {
            Ok(chunk) => chunk,
            Err(_) if data.trim_ascii() == b"[DONE]" => return Ok(()),
            Err(error) => {
                let Ok(value) = serde_json::from_slice(data) else {
                    return Err(ReadError::NotJson(error));
                };
                batch.extended(ORIGIN, "chunk", value);
                return Ok(());
            }
        };
        if let Some(error) = chunk.error {
            return Err(ReadError::Failed(Failure::of_error(&error)));
        }
        if let Some(model) = chunk.model_version.given()
            && self.model.as_deref() != Some(model)
        {
            self.model = Some(model.into());
        }
        if let Some(id) = chunk.response_id.given() {
            batch.set_response_id(id);
        }
        let is_counted = chunk.usage_metadata.is_some();
        self.usage = chunk.usage_metadata.or(self.usage.take());
        if let Some(candidate) = chunk.candidates.0 {
            self.candidate(candidate, batch)?;
        }
        if let Some(feedback) = chunk.prompt_feedback {
            if member(&feedback, "blockReason").is_some() {
                self.stop = Some(Stop::ContentFilter);
            }
            batch.extended(ORIGIN, "promptFeedback", feedback);
        }
        // The last chunk has both a finish reason and usage. Without usage, more may follow.
        if is_counted && self.stop.is_some() { self.end(batch) } else { Ok(()) }
    }

    fn end(&mut self, batch: &mut Batch) -> Result<(), ReadError> {
        if self.stopped {
            return Ok(());
        }
        let stop = self.stop.take().ok_or(ReadError::Truncated)?;
        if self.call.is_some() {
            return Err(cut_call());
        }
        self.close_text(batch);
        self.end_program(batch);
        let usage = self.usage.take().map(|usage| self.usage(&usage));
        self.stopped = true;
        batch.stop(stop, usage);
        Ok(())
    }

    fn whole(&mut self, body: &[u8], batch: &mut Batch) -> Result<(), ReadError> {
        self.push(Frame::data(body), batch)?;
        self.end(batch)
    }
}

fn sign(part: LocalPart, signature: Option<&str>, batch: &mut Batch) {
    if let Some(signature) = signature {
        batch.annotate(part, mark(ORIGIN, SIGNATURE, json!({ SIGNATURE: signature })));
    }
}

fn file(part: &Part<'_>) -> Option<FileProduced> {
    let name = |name: &str| (!name.is_empty()).then(|| name.into());
    if let Some(blob) = &part.inline_data {
        return Some(FileProduced {
            media_type: (*blob.mime_type).into(),
            source: MediaSource::Data((*blob.data).into()),
            name: name(&blob.display_name),
        });
    }
    part.file_data.as_ref().map(|file| FileProduced {
        media_type: (*file.mime_type).into(),
        source: MediaSource::Url((*file.file_uri).into()),
        name: name(&file.display_name),
    })
}

/// Parses JSON that serde has already read as raw JSON.
fn json_of(raw: &str) -> Value {
    serde_json::from_str(raw).unwrap_or_else(|_| Value::from(raw))
}

fn unannounced() -> ReadError {
    ReadError::Order("arguments arrived for a call that was not announced".into())
}

fn cut_call() -> ReadError {
    ReadError::Order("the answer ended inside a call".into())
}
