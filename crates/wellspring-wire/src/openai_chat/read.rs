//! Reads answers.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use wellspring_core::{
    Annotation, Batch, Cost, Event, FileProduced, LocalPart, MediaSource, PartKind, Source, Stop,
    TurnRequest, Usage,
};

use super::{ORIGIN, write};
use crate::provider::scan::{Half, Quoted, Scan};
use crate::provider::surroundings::Surroundings;
use crate::provider::think_tags::{self, Held, Piece, ThinkTags};
use crate::provider::{
    AnswerReader, CUT_ARGUMENTS, Failure, ReadError, SOURCES_MAX, ToolNames, mark,
    media_of_data_url, stop_reason, thought_text,
};
use crate::sse_reader::Frame;

/// Calls per answer; the limit keeps a peer from filling the memory.
pub const CALLS_MAX: usize = 1024;

/// The members that hold thoughts, by server, in the order in which they are tried.
const THOUGHTS: [&str; 5] =
    ["reasoning_content", "reasoning", "reasoning_text", "thinking", "reasoning_details"];

/// Bytes of arguments that are buffered until the call's name arrives.
pub const EARLY_BYTES_MAX: usize = 64 * 1024;

/// Reads one answer.
#[derive(Debug)]
pub struct Reader {
    names: ToolNames,
    provider: Box<str>,
    model: Option<Box<str>>,
    /// The text or thought that is growing. Several calls may be open at once, but only one
    /// text or thought.
    open: Option<(Words, LocalPart)>,
    half: Half,
    tags: ThinkTags,
    calls: Vec<Call>,
    refused: bool,
    usage: Option<Usage>,
    stop: Option<Stop>,
    cited: BTreeSet<Box<str>>,
    scratch: String,
    /// The bytes around the last delta of a frequent kind.
    last: Surroundings<HotKind>,
    begun: bool,
    done: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Words {
    Text,
    Thought,
    Refusal,
}

#[derive(Debug)]
struct Call {
    index: Option<u64>,
    id: Option<Box<str>>,
    /// The name from the server; empty until it has arrived.
    name: Box<str>,
    /// Set once the name has arrived.
    part: Option<LocalPart>,
    /// Arguments that arrived before the name.
    early: String,
    /// Tracks whether the arguments may be complete: their braces balance.
    depth: Depth,
    half: Half,
}

/// Counts braces outside strings, to detect whether JSON that arrives in pieces is complete.
#[derive(Debug, Default)]
struct Depth {
    open: u32,
    in_string: bool,
    escaped: bool,
    any: bool,
}

impl Depth {
    fn push(&mut self, text: &str) {
        for byte in text.bytes() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.in_string => self.escaped = true,
                b'"' => self.in_string = !self.in_string,
                _ if self.in_string => {}
                b'{' | b'[' => self.open += 1,
                b'}' | b']' => self.open = self.open.saturating_sub(1),
                _ => continue,
            }
            self.any = true;
        }
    }

    fn is_whole(&self) -> bool {
        self.any && self.open == 0 && !self.in_string
    }
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            names: ToolNames::default(),
            provider: super::Vendor::COMPATIBLE.name.into(),
            model: None,
            open: None,
            half: Half::default(),
            tags: ThinkTags::default(),
            calls: Vec::new(),
            refused: false,
            usage: None,
            stop: None,
            cited: BTreeSet::new(),
            scratch: String::new(),
            last: Surroundings::default(),
            begun: false,
            done: false,
        }
    }
}

impl Reader {
    /// Creates a reader for the answer to this request by this vendor.
    #[must_use]
    pub fn new(request: &TurnRequest, vendor: &super::Vendor) -> Self {
        Self {
            names: ToolNames::new(write::NAMES, &request.tools),
            provider: vendor.name.into(),
            ..Self::default()
        }
    }

    fn slow(&mut self, data: &[u8], batch: &mut Batch) -> Result<(), ReadError> {
        let mut chunk: Value = serde_json::from_slice(data).map_err(ReadError::NotJson)?;
        self.envelope(&chunk, batch)?;
        let Some(choice) = chunk.get_mut("choices").and_then(|choices| choices.get_mut(0)) else {
            return Ok(());
        };
        // Further choices were not requested and are ignored.
        if choice.get("index").and_then(Value::as_u64).unwrap_or(0) != 0 {
            return Ok(());
        }
        let choice = choice.take();
        if let Some(Value::Object(delta)) = choice.get("delta").or(choice.get("message")) {
            self.delta(delta, batch)?;
        }
        self.finish_reason(&choice, batch)
    }

    /// Reads the members around the choices.
    fn envelope(&mut self, chunk: &Value, batch: &mut Batch) -> Result<(), ReadError> {
        let error = chunk.get("error").filter(|error| !error.is_null());
        if let Some(error) = error {
            return Err(ReadError::Failed(Failure::of_error(error)));
        }
        if let Some(model) = chunk.get("model").and_then(Value::as_str)
            && self.model.is_none()
        {
            self.model = Some(model.into());
        }
        if let Some(id) = chunk.get("id").and_then(Value::as_str) {
            batch.set_response_id(id);
        }
        let groq = || chunk.get("x_groq").and_then(|groq| groq.get("usage"));
        let usage = chunk.get("usage").filter(|usage| usage.is_object()).or_else(groq);
        if let Some(usage) = usage {
            self.usage = Some(self.spent(usage));
        }
        Ok(())
    }

    fn delta(&mut self, delta: &Map<String, Value>, batch: &mut Batch) -> Result<(), ReadError> {
        let text = |name: &str| delta.get(name).and_then(Value::as_str).unwrap_or_default();
        // Servers that send two of these send the same text in both.
        let thought = THOUGHTS.iter().filter_map(|name| delta.get(*name)).map(thought_text);
        let thought = thought.into_iter().find(|text| !text.is_empty()).unwrap_or_default();
        self.say(Words::Thought, &thought, batch);
        if let Some(details @ Value::Array(items)) = delta.get("reasoning_details")
            && !items.is_empty()
        {
            let part = self.words(Words::Thought, batch);
            batch.annotate(part, mark(ORIGIN, "reasoning_details", details.clone()));
        }
        match delta.get("content") {
            Some(Value::Array(blocks)) => self.blocks(blocks, batch),
            _ => self.say(Words::Text, text("content"), batch),
        }
        self.say(Words::Refusal, text("refusal"), batch);
        if let Some(Value::Array(annotations)) = delta.get("annotations") {
            for annotation in annotations {
                self.cite(annotation, batch);
            }
        }
        for image in delta.get("images").and_then(Value::as_array).into_iter().flatten() {
            file(image, batch);
        }
        let calls = delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
        for (at, call) in calls.enumerate() {
            // Two deltas of one call never share a chunk, so without an index they are two
            // calls.
            let apart = at > 0 && call.get("index").is_none_or(Value::is_null);
            self.call_delta(call, apart, batch)?;
        }
        // The deprecated form of tool calls; an answer has at most one.
        if let Some(function @ Value::Object(_)) = delta.get("function_call") {
            let call = serde_json::json!({"index": 0, "function": function});
            self.call_delta(&call, false, batch)?;
        }
        if let Some(extra) = delta.get("extra_content").filter(|extra| !extra.is_null()) {
            batch.extended(ORIGIN, "extra_content", extra.clone());
        }
        Ok(())
    }

    /// Reads content in blocks, as Mistral's reasoning models send it.
    fn blocks(&mut self, blocks: &[Value], batch: &mut Batch) {
        for block in blocks {
            let text = |block: &Value| block.get("text").and_then(Value::as_str).map(str::to_owned);
            if let Some(thought) = block.get("thinking") {
                self.say(Words::Thought, &thought_text(thought), batch);
            } else if let Some(words) = text(block) {
                self.say(Words::Text, &words, batch);
            } else {
                batch.extended(ORIGIN, "content", block.clone());
            }
        }
    }

    /// The part for text of this kind, opened if necessary.
    fn words(&mut self, words: Words, batch: &mut Batch) -> LocalPart {
        match self.open {
            Some((open, part)) if open == words => part,
            _ => {
                self.close_part(batch);
                let part = batch.start(match words {
                    Words::Text | Words::Refusal => PartKind::TEXT,
                    Words::Thought => PartKind::Thought,
                });
                match words {
                    Words::Text => {}
                    Words::Thought => {
                        batch.annotate(part, mark(ORIGIN, "vendor", (&*self.provider).into()));
                    }
                    Words::Refusal => {
                        self.refused = true;
                        batch.annotate(part, mark(ORIGIN, "refusal", Value::Null));
                    }
                }
                self.open = Some((words, part));
                part
            }
        }
    }

    fn say(&mut self, words: Words, text: &str, batch: &mut Batch) {
        if text.is_empty() {
            return;
        }
        match words {
            Words::Text if !self.tags.is_plain(text) => self.say_tagged(text, batch),
            // The server separates thoughts itself, so tags are text.
            Words::Thought => {
                self.stop_tags(batch);
                self.add(words, text, batch);
            }
            Words::Text | Words::Refusal => self.add(words, text, batch),
        }
    }

    fn add(&mut self, words: Words, text: &str, batch: &mut Batch) {
        if !text.is_empty() {
            let part = self.words(words, batch);
            batch.delta(part, text);
        }
    }

    /// Adds text that may contain `<think>` tags.
    fn say_tagged(&mut self, text: &str, batch: &mut Batch) {
        let mut tags = std::mem::take(&mut self.tags);
        tags.push(text, |piece| match piece {
            Piece::Text(text) => self.add(Words::Text, text, batch),
            Piece::Thought(text) => self.add(Words::Thought, text, batch),
            Piece::AllWasThought => {
                if let Some((Words::Text, part)) = self.open {
                    batch.annotate(part, Annotation::Preamble);
                    self.close_part(batch);
                }
            }
        });
        self.tags = tags;
    }

    /// Stops looking for tags. Text that was held back is added.
    fn stop_tags(&mut self, batch: &mut Batch) {
        if self.tags.is_watching()
            && let Some((held, kind)) = self.tags.stop()
        {
            let words = if kind == Held::Text { Words::Text } else { Words::Thought };
            self.add(words, &held, batch);
        }
    }

    fn close_words(&mut self, batch: &mut Batch) {
        self.stop_tags(batch);
        self.close_part(batch);
    }

    fn close_part(&mut self, batch: &mut Batch) {
        if let Some((_, part)) = self.open.take() {
            batch.delta(part, self.half.end());
            batch.finish(part);
        }
    }

    fn call_delta(
        &mut self,
        delta: &Value,
        apart: bool,
        batch: &mut Batch,
    ) -> Result<(), ReadError> {
        let function = delta.get("function").unwrap_or(&Value::Null);
        let text =
            |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let id = delta.get("id").and_then(text);
        let name = function.get("name").and_then(text);
        let index = delta.get("index").and_then(Value::as_u64);
        let arguments = match function.get("arguments") {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(arguments)) => arguments.clone(),
            // Some servers send the arguments themselves rather than their JSON text. A value
            // that is not an object is kept too, so that the call fails rather than runs
            // without arguments.
            Some(other) => other.to_string(),
        };
        let found = match (&name, apart) {
            (Some(_), true) => None,
            (Some(name), false) => {
                self.find_named(index, id.as_deref(), name, !arguments.trim().is_empty())
            }
            (None, _) => self.find(index, id.as_deref()),
        };
        let at = match found {
            Some(at) => at,
            None => self.open_call(index, id.as_deref())?,
        };
        if self.calls[at].part.is_none()
            && let Some(name) = name
        {
            self.close_words(batch);
            let part = batch.start(PartKind::call(self.names.ours(&name)));
            let call = &mut self.calls[at];
            call.part = Some(part);
            call.name = name.into();
            if let Some(id) = &call.id {
                batch.annotate(part, Annotation::ProviderId(id.clone()));
            }
            batch.delta(part, &std::mem::take(&mut call.early));
        }
        self.keep_rest(at, delta, batch);
        self.argue(at, &arguments, batch)
    }

    /// The call that a delta continues: found by index or by id; otherwise the last one.
    fn find(&self, index: Option<u64>, id: Option<&str>) -> Option<usize> {
        self.calls.iter().rposition(|call| match (index, id) {
            (Some(index), _) => call.index == Some(index),
            (None, Some(id)) => call.id.as_deref() == Some(id),
            (None, None) => true,
        })
    }

    /// The call that a delta with a name continues; `None` if it starts one.
    ///
    /// Normally the index decides. But some servers omit it or always send 0, and some give all
    /// calls the same id, or no id. So a delta starts a call if its id or its name differs, or if
    /// the arguments of the previous call are complete.
    fn find_named(
        &self,
        index: Option<u64>,
        id: Option<&str>,
        name: &str,
        has_arguments: bool,
    ) -> Option<usize> {
        let at = self.find(index, id)?;
        let call = &self.calls[at];
        let other_id = id.is_some() && call.id.is_some() && id != call.id.as_deref();
        let other_name = call.part.is_some() && *call.name != *name;
        // A server that repeats id and name in every delta may do so once more at the end.
        let over = call.part.is_some() && call.depth.is_whole() && (id.is_none() || has_arguments);
        (!(other_id || other_name || over)).then_some(at)
    }

    fn open_call(&mut self, index: Option<u64>, id: Option<&str>) -> Result<usize, ReadError> {
        if self.calls.len() >= CALLS_MAX {
            let what = format!("the answer asks for more than {CALLS_MAX} calls");
            return Err(ReadError::TooMuch(what.into()));
        }
        self.calls.push(Call {
            index,
            id: id.map(Into::into),
            name: "".into(),
            part: None,
            early: String::new(),
            depth: Depth::default(),
            half: Half::default(),
        });
        Ok(self.calls.len() - 1)
    }

    fn argue(&mut self, at: usize, arguments: &str, batch: &mut Batch) -> Result<(), ReadError> {
        let call = &mut self.calls[at];
        call.depth.push(arguments);
        match call.part {
            Some(part) => batch.delta(part, arguments),
            None if call.early.len() + arguments.len() > EARLY_BYTES_MAX => {
                return Err(ReadError::TooMuch("a call has arguments and no name".into()));
            }
            None => call.early.push_str(arguments),
        }
        Ok(())
    }

    /// Keeps unknown members of a call, for example a signature of Gemini's.
    fn keep_rest(&self, at: usize, delta: &Value, batch: &mut Batch) {
        let known = ["index", "id", "type", "function"];
        let rest: Map<String, Value> = delta
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, value)| !known.contains(&name.as_str()) && !value.is_null())
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if let (Some(part), false) = (self.calls[at].part, rest.is_empty()) {
            batch.annotate(part, mark(ORIGIN, "call", Value::Object(rest)));
        }
    }

    fn cite(&mut self, annotation: &Value, batch: &mut Batch) {
        let cited = annotation.get("url_citation").unwrap_or(annotation);
        let text = |name: &str| cited.get(name).and_then(Value::as_str).map(Into::into);
        let source = Source { url: text("url"), title: text("title"), ..Source::default() };
        if let Some(url) = &source.url
            && self.cited.len() < SOURCES_MAX
            && self.cited.insert(url.clone())
        {
            batch.event(Event::SourceCited(Box::new(source)));
        }
        let part = self.words(Words::Text, batch);
        batch.annotate(part, Annotation::Citation(annotation.clone()));
    }

    fn finish_reason(&mut self, choice: &Value, batch: &mut Batch) -> Result<(), ReadError> {
        let reason = choice.get("finish_reason").and_then(Value::as_str).and_then(stop_reason);
        let Some(reason) = reason else { return Ok(()) };
        let stop = match reason {
            "stop" | "end_turn" | "eos" => Stop::EndTurn,
            "tool_calls" | "function_call" | "tool_use" => Stop::ToolCalls,
            "length" | "max_tokens" | "model_length" => Stop::MaxTokens,
            "content_filter" => Stop::ContentFilter,
            "error" => {
                let error = choice.get("error").unwrap_or(&Value::Null);
                return Err(ReadError::Failed(Failure::of_error(error)));
            }
            other => Stop::Other(other.into()),
        };
        self.close(Some(stop), batch)
    }

    /// Closes everything that is open, because the model has stopped.
    fn close(&mut self, stop: Option<Stop>, batch: &mut Batch) -> Result<(), ReadError> {
        self.close_words(batch);
        for call in &mut self.calls {
            let Some(part) = call.part else {
                return Err(ReadError::Order("a call has no name".into()));
            };
            batch.delta(part, call.half.end());
            // No finish reason arrived, so the call may have been cut off here.
            if stop.is_none() && !call.depth.is_whole() {
                return Err(ReadError::Truncated);
            }
            if !call.depth.any && stop == Some(Stop::MaxTokens) {
                batch.delta(part, CUT_ARGUMENTS);
            }
            batch.finish(part);
        }
        let called = !std::mem::take(&mut self.calls).is_empty();
        let stop = match stop {
            // Some servers have no finish reason for calls.
            None | Some(Stop::EndTurn) if called => Stop::ToolCalls,
            None | Some(Stop::EndTurn) if self.refused => Stop::Refusal,
            None => Stop::EndTurn,
            Some(stop) => stop,
        };
        // Some servers repeat the finish reason in the chunk with the usage.
        self.stop.get_or_insert(stop);
        Ok(())
    }

    fn stop(&mut self, batch: &mut Batch) -> Result<(), ReadError> {
        if self.stop.is_none() || self.open.is_some() || !self.calls.is_empty() {
            self.close(None, batch)?;
        }
        batch.stop(self.stop.take().unwrap_or(Stop::EndTurn), self.usage.take());
        self.done = true;
        Ok(())
    }

    fn spent(&self, usage: &Value) -> Usage {
        let count = |name: &str| usage.get(name).and_then(Value::as_u64);
        let detail = |group: &str, name: &str| usage.get(group)?.get(name)?.as_u64();
        let cached = detail("prompt_tokens_details", "cached_tokens");
        let cost = usage.get("cost").and_then(Value::as_f64);
        Usage {
            provider: Some(self.provider.clone()),
            model: self.model.clone(),
            input: count("prompt_tokens").unwrap_or_default(),
            output: count("completion_tokens").unwrap_or_default(),
            reasoning: detail("completion_tokens_details", "reasoning_tokens"),
            cached_input: cached.or_else(|| count("prompt_cache_hit_tokens")),
            cost: cost.map(|amount| Cost { amount, currency: "USD".into() }),
            ..Usage::default()
        }
    }

    /// Reads a delta of a frequent kind; `None` leaves it to the parser.
    fn hot(&mut self, data: &[u8], batch: &mut Batch) -> Option<()> {
        let mut scratch = std::mem::take(&mut self.scratch);
        let taken = match self.last.find(data) {
            Some((kind, text)) => self.take(kind, text, &mut scratch, batch),
            None => {
                let mut scan = Scan::new(data);
                hot_delta(&mut scan).and_then(|HotDelta { kind, text }| {
                    if let Some(kind) = kind {
                        self.take(kind, text, &mut scratch, batch)?;
                        self.last.learn(&scan, text, kind);
                    }
                    Some(())
                })
            }
        };
        self.scratch = scratch;
        taken
    }

    fn take(
        &mut self,
        kind: HotKind,
        text: Quoted<'_>,
        scratch: &mut String,
        batch: &mut Batch,
    ) -> Option<()> {
        match kind {
            HotKind::Words(words) => {
                if text == Quoted::default() {
                    return Some(());
                }
                if self.tags.is_watching() {
                    // A high surrogate of a refusal must not be joined with other text.
                    if self.open.is_some_and(|(open, _)| open == Words::Refusal) {
                        self.close_part(batch);
                    }
                    let text = text.text(scratch, &mut self.half)?;
                    self.say(words, text, batch);
                    return Some(());
                }
                // Before the text is read: a high surrogate of another part must not be joined
                // with it.
                let part = self.words(words, batch);
                batch.delta(part, text.text(scratch, &mut self.half)?);
            }
            HotKind::Arguments(index) => {
                let at = self.find(index, None)?;
                let arguments = text.text(scratch, &mut self.calls[at].half)?;
                self.argue(at, arguments, batch).ok()?;
            }
        }
        Some(())
    }
}

impl AnswerReader for Reader {
    fn push(&mut self, frame: Frame<'_>, batch: &mut Batch) -> Result<(), ReadError> {
        let data = frame.data.trim_ascii();
        if self.done || data.is_empty() {
            return Ok(());
        }
        if data == b"[DONE]" {
            // Some servers send `[DONE]` after an error, or instead of an answer.
            return if self.begun { self.stop(batch) } else { Err(ReadError::Truncated) };
        }
        if self.hot(data, batch).is_none() {
            self.slow(data, batch)?;
        }
        self.begun = true;
        Ok(())
    }

    fn end(&mut self, batch: &mut Batch) -> Result<(), ReadError> {
        match (self.done, &self.stop) {
            (true, _) => Ok(()),
            (false, Some(_)) => self.stop(batch),
            (false, None) => Err(ReadError::Truncated),
        }
    }

    fn whole(&mut self, body: &[u8], batch: &mut Batch) -> Result<(), ReadError> {
        let body: Value = serde_json::from_slice(body).map_err(ReadError::NotJson)?;
        self.envelope(&body, batch)?;
        let choice = body.get("choices").and_then(|choices| choices.get(0));
        let Some(choice) = choice else { return Err(ReadError::Truncated) };
        let Some(Value::Object(message)) = choice.get("message") else {
            return Err(ReadError::Truncated);
        };
        let mut message = message.clone();
        if let Some(Value::String(text)) = message.get("content") {
            let (thought, answer) = think_tags::split(text);
            let (thought, answer) = (thought.map(str::to_owned), answer.to_owned());
            if let Some(thought) = thought {
                message.insert("content".to_owned(), answer.into());
                self.say(Words::Thought, &thought, batch);
            }
        }
        self.stop_tags(batch);
        // A whole answer has one entry per call, so ids are not needed to join deltas.
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        for (at, call) in calls.into_iter().flatten().enumerate() {
            if let Some(call) = call.as_object_mut() {
                call.insert("index".to_owned(), at.into());
            }
        }
        self.delta(&message, batch)?;
        self.finish_reason(choice, batch)?;
        if self.stop.is_none() {
            self.close(Some(Stop::EndTurn), batch)?;
        }
        self.stop(batch)
    }
}

/// The content of a chunk that has only one kind.
#[derive(Clone, Copy, Default)]
struct HotDelta<'a> {
    kind: Option<HotKind>,
    text: Quoted<'a>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum HotKind {
    Words(Words),
    Arguments(Option<u64>),
}

impl<'a> HotDelta<'a> {
    /// Several members at once are rare; the parser handles them.
    fn set(&mut self, kind: HotKind, text: Quoted<'a>) -> Option<()> {
        if text == Quoted::default() && self.kind.is_some() {
            return Some(());
        }
        if self.kind.is_some() && self.text != Quoted::default() {
            return None;
        }
        (self.kind, self.text) = (Some(kind), text);
        Some(())
    }
}

/// The delta in a chunk that only continues a text, a thought or a call's arguments.
fn hot_delta<'a>(scan: &mut Scan<'a>) -> Option<HotDelta<'a>> {
    let mut hot = HotDelta::default();
    let mut choices = 0;
    scan.object(|key, scan| match key {
        b"choices" => scan.array(|scan| {
            choices += 1;
            scan.object(|key, scan| match key {
                b"index" => (scan.number()? == 0).then_some(()),
                b"delta" => hot_members(scan, &mut hot),
                b"finish_reason" => scan.null(),
                b"logprobs" | b"native_finish_reason" | b"token_ids" => scan.skip(),
                _ => None,
            })
        }),
        b"id"
        | b"object"
        | b"created"
        | b"model"
        | b"system_fingerprint"
        | b"service_tier"
        | b"provider" => scan.skip(),
        b"obfuscation" | b"timings" => scan.vary(),
        b"usage" | b"error" | b"x_groq" => scan.null(),
        _ => None,
    })?;
    scan.end()?;
    (choices == 1).then_some(hot)
}

fn hot_members<'a>(scan: &mut Scan<'a>, hot: &mut HotDelta<'a>) -> Option<()> {
    scan.object(|key, scan| match key {
        b"role" => scan.skip(),
        b"content" => hot_words(Words::Text, scan, hot),
        b"reasoning_content" | b"reasoning" => hot_words(Words::Thought, scan, hot),
        b"tool_calls" if scan.null().is_some() => Some(()),
        b"tool_calls" => scan.array(|scan| {
            let (mut index, mut arguments) = (None, None);
            scan.object(|key, scan| match key {
                b"index" => {
                    index = Some(scan.number()?);
                    Some(())
                }
                b"type" => scan.skip(),
                b"id" => scan.null(),
                b"function" => scan.object(|key, scan| match key {
                    b"arguments" => {
                        arguments = Some(scan.string()?);
                        Some(())
                    }
                    b"name" => scan.null(),
                    _ => None,
                }),
                _ => None,
            })?;
            hot.set(HotKind::Arguments(index), arguments?)
        }),
        b"refusal" | b"annotations" | b"function_call" => scan.null(),
        _ => None,
    })
}

fn hot_words<'a>(words: Words, scan: &mut Scan<'a>, hot: &mut HotDelta<'a>) -> Option<()> {
    match scan.null() {
        Some(()) => Some(()),
        None => {
            let said = scan.string()?;
            hot.set(HotKind::Words(words), said)
        }
    }
}

fn file(image: &Value, batch: &mut Batch) {
    let url = image.get("image_url").and_then(|image| image.get("url")).and_then(Value::as_str);
    let Some(url) = url else { return };
    let (media_type, source) =
        media_of_data_url(url).unwrap_or_else(|| ("image/*".into(), MediaSource::Url(url.into())));
    batch.event(Event::FileProduced(Box::new(FileProduced { media_type, source, name: None })));
}
