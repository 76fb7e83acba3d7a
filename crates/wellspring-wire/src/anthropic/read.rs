//! Reads answers.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use wellspring_core::{
    Annotation, Batch, Event, FileProduced, LocalPart, MediaSource, Opaque, PartKind, RunsOn,
    Source, Stop, ToolCall, ToolKind, ToolOutcome, ToolResult, TurnRequest,
};

use super::types::{BlockInput, Message, StreamEvent, Usage};
use super::{ORIGIN, write};
use crate::provider::scan::{Half, Quoted, Scan};
use crate::provider::surroundings::Surroundings;
use crate::provider::{
    AnswerReader, CUT_ARGUMENTS, Failure, ReadError, SOURCES_MAX, ToolNames, mark, stop_reason,
};
use crate::sse_reader::Frame;

/// Blocks per answer. The longest answers, with dozens of searches, have a few hundred; the
/// limit keeps a peer from filling the memory.
pub const BLOCKS_MAX: usize = 4096;

/// Reads one answer.
#[derive(Debug, Default)]
pub struct Reader {
    names: ToolNames,
    /// Every block so far, in the order in which they started. Finished blocks are kept,
    /// because a signature may arrive after its block has ended.
    blocks: Vec<Block>,
    /// A call that ended without arguments. Only the continuation of the answer shows whether it
    /// has no arguments or was cut off.
    held: Option<LocalPart>,
    model: Option<Box<str>>,
    usage: Usage,
    stop: Option<Stop>,
    cited: BTreeSet<Box<str>>,
    scratch: String,
    /// The bytes around the last delta of a usual kind, for its block's index and kind.
    last: Surroundings<(Option<u64>, BlockKind)>,
    done: bool,
}

#[derive(Debug)]
struct Block {
    index: u64,
    part: LocalPart,
    kind: BlockKind,
    /// The call's id, if it runs at the provider.
    id: Option<Box<str>>,
    /// Arguments that the block started with; deltas replace them.
    input: Option<Box<str>>,
    open: bool,
    grown: bool,
    half: Half,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum BlockKind {
    Text,
    Thought,
    Call,
    ProviderCall,
    Opaque,
}

/// A delta of one of the frequent kinds.
#[derive(Clone, Copy)]
struct HotDelta<'a> {
    index: Option<u64>,
    fits: BlockKind,
    text: Quoted<'a>,
}

impl Reader {
    /// Creates a reader for the answer to this request.
    #[must_use]
    pub fn new(request: &TurnRequest) -> Self {
        Self { names: ToolNames::new(write::NAMES, &request.tools), ..Self::default() }
    }

    fn slow(&mut self, frame: Frame<'_>, batch: &mut Batch) -> Result<(), ReadError> {
        let event: StreamEvent<'_> =
            serde_json::from_slice(frame.data).map_err(ReadError::NotJson)?;
        let named = std::str::from_utf8(frame.event).unwrap_or_default();
        let kind = event.kind.as_deref().unwrap_or(named);
        if let Some(error) = &event.error {
            return Err(ReadError::Failed(Failure::of_error(error)));
        }
        if let Some(usage) = event.usage {
            self.usage.update(usage);
        }
        match kind {
            "ping" => {}
            "message_start" => {
                if let Some(message) = event.message {
                    let message =
                        serde_json::from_str(message.get()).map_err(ReadError::NotJson)?;
                    self.message_start(message, batch)?;
                }
            }
            "content_block_start" => {
                self.release(batch);
                let block = event.content_block.map_or("{}", |block| block.get());
                self.block_start(event.index, block, batch)?;
            }
            "content_block_delta" => {
                let delta = event.delta.map_or("{}", |delta| delta.get());
                let delta = serde_json::from_str(delta).map_err(ReadError::NotJson)?;
                self.delta(event.index, &delta, batch)?;
            }
            "content_block_stop" => {
                let at = self.find(event.index)?;
                self.block_stop(at, batch);
            }
            "message_delta" => {
                let delta = event.delta.map_or("{}", |delta| delta.get());
                let delta = serde_json::from_str(delta).map_err(ReadError::NotJson)?;
                self.message_delta(delta, batch);
            }
            "message_stop" => self.message_stop(batch)?,
            "error" => return Err(ReadError::Failed(Failure::of_error(&whole(frame.data)?))),
            // Newer than this code: kept whole, never an error.
            _ => batch.extended(ORIGIN, kind, whole(frame.data)?),
        }
        Ok(())
    }

    fn message_start(&mut self, message: Message<'_>, batch: &mut Batch) -> Result<(), ReadError> {
        self.model = message.model.map(Into::into);
        if let Some(id) = &message.id {
            batch.set_response_id(id);
        }
        self.usage.update(message.usage.unwrap_or_default());
        if let Some(container) = message.container {
            batch.extended(ORIGIN, "container", container);
        }
        if self.usage.input_tokens.is_some() {
            batch.event(Event::UsageReported(Box::new(self.spent())));
        }
        // Usually empty at the start; if not, it is read.
        for block in message.content {
            self.block_start(None, block.get(), batch)?;
            self.block_stop(self.blocks.len() - 1, batch);
        }
        Ok(())
    }

    fn block_start(
        &mut self,
        index: Option<u64>,
        json: &str,
        batch: &mut Batch,
    ) -> Result<(), ReadError> {
        if self.blocks.len() >= BLOCKS_MAX {
            let what = format!("the answer has more than {BLOCKS_MAX} blocks");
            return Err(ReadError::TooMuch(what.into()));
        }
        let index = index.unwrap_or(self.blocks.len() as u64);
        if self.blocks.iter().rev().any(|block| block.open && block.index == index) {
            return Err(ReadError::Order(format!("block {index} began twice").into()));
        }
        let mut raw: Map<String, Value> = serde_json::from_str(json).map_err(ReadError::NotJson)?;
        let kind = raw.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut block = Block {
            index,
            part: LocalPart::new(0),
            kind: BlockKind::Opaque,
            id: None,
            input: None,
            open: true,
            grown: false,
            half: Half::default(),
        };
        match &*kind {
            "text" => {
                block.kind = BlockKind::Text;
                block.part = batch.start(PartKind::TEXT);
                let text = take_text(&mut raw, "text");
                block.grown = !text.is_empty();
                batch.delta(block.part, &text);
                if let Some(Value::Array(citations)) = raw.shift_remove("citations") {
                    for citation in citations {
                        self.cite(block.part, citation, batch);
                    }
                }
                raw.shift_remove("type");
            }
            "thinking" => {
                block.kind = BlockKind::Thought;
                block.part = batch.start(PartKind::Thought);
                batch.delta(block.part, &take_text(&mut raw, "thinking"));
                sign(block.part, &take_text(&mut raw, "signature"), batch);
            }
            "redacted_thinking" => {
                block.kind = BlockKind::Thought;
                block.part = batch.start(PartKind::Thought);
                let data = take_text(&mut raw, "data");
                batch.annotate(block.part, Annotation::Encrypted(data.into()));
            }
            "tool_use" => {
                block.kind = BlockKind::Call;
                let name = take_text(&mut raw, "name");
                block.part = batch.start(PartKind::call(self.names.ours(&name)));
                provider_id(block.part, &take_text(&mut raw, "id"), batch);
                block.input = whole_input(&mut raw, json)?;
                raw.shift_remove("type");
            }
            "server_tool_use" | "mcp_tool_use" => {
                block.kind = BlockKind::ProviderCall;
                let name = take_text(&mut raw, "name");
                let id = take_text(&mut raw, "id");
                let call = ToolCall {
                    kind: kind_of(&name),
                    name: name.into(),
                    title: None,
                    runs_on: RunsOn::Provider,
                    ..ToolCall::default()
                };
                block.part = batch.start(PartKind::ToolCall(Box::new(call)));
                provider_id(block.part, &id, batch);
                block.id = Some(id.into());
                block.input = whole_input(&mut raw, json)?;
            }
            _ => {
                let raw = Value::Object(std::mem::take(&mut raw));
                let opaque = Opaque { origin: ORIGIN.into(), raw };
                let told = Told::of(&opaque.raw);
                block.part = batch.start(PartKind::Opaque(Box::new(opaque)));
                self.tell(told, batch);
            }
        }
        if !raw.is_empty() {
            batch.annotate(block.part, mark(ORIGIN, "block", Value::Object(raw)));
        }
        self.blocks.push(block);
        Ok(())
    }

    fn block_stop(&mut self, at: usize, batch: &mut Batch) {
        let block = &mut self.blocks[at];
        if !std::mem::take(&mut block.open) {
            return; // A repeated report.
        }
        batch.delta(block.part, block.half.end());
        if !block.grown
            && let Some(input) = block.input.take()
        {
            batch.delta(block.part, &input);
            block.grown = true;
        }
        match block.kind {
            BlockKind::Call if !block.grown => self.held = Some(block.part),
            BlockKind::ProviderCall => {
                batch.finish(block.part);
                batch.tool_started(block.part);
            }
            BlockKind::Text | BlockKind::Thought | BlockKind::Call | BlockKind::Opaque => {
                batch.finish(block.part);
            }
        }
    }

    fn hot(&mut self, delta: HotDelta<'_>, batch: &mut Batch) -> Result<bool, ReadError> {
        let at = self.find(delta.index)?;
        let block = &mut self.blocks[at];
        let fits = match block.kind {
            BlockKind::Text | BlockKind::Thought | BlockKind::Call => block.kind == delta.fits,
            BlockKind::ProviderCall => delta.fits == BlockKind::Call,
            BlockKind::Opaque => false,
        };
        if !fits {
            return Ok(false);
        }
        let Some(text) = delta.text.text(&mut self.scratch, &mut block.half) else {
            return Ok(false);
        };
        if !block.open && !text.is_empty() {
            let what = format!("block {} got a delta after its end", block.index);
            return Err(ReadError::Order(what.into()));
        }
        block.grown |= !text.is_empty();
        batch.delta(block.part, text);
        Ok(true)
    }

    /// Reads a delta that the hot path skipped: rare, unknown, or for a block of another kind.
    fn delta(
        &mut self,
        index: Option<u64>,
        delta: &Value,
        batch: &mut Batch,
    ) -> Result<(), ReadError> {
        let at = self.find(index)?;
        let block = &mut self.blocks[at];
        let text = |name: &str| delta.get(name).and_then(Value::as_str).unwrap_or_default();
        let kind = text("type");
        let said = match (block.kind, kind) {
            (BlockKind::Text, "text_delta") => text("text"),
            (BlockKind::Thought, "thinking_delta") => text("thinking"),
            (BlockKind::Call | BlockKind::ProviderCall, "input_json_delta") => text("partial_json"),
            (BlockKind::Thought, "signature_delta") => {
                sign(block.part, text("signature"), batch);
                return Ok(());
            }
            (BlockKind::Text, "citations_delta") => {
                let part = block.part;
                if let Some(citation) = delta.get("citation") {
                    self.cite(part, citation.clone(), batch);
                }
                return Ok(());
            }
            // Encrypted data, and kinds that are newer than this code.
            _ => {
                batch.annotate(block.part, mark(ORIGIN, "delta", delta.clone()));
                return Ok(());
            }
        };
        if !block.open && !said.is_empty() {
            let what = format!("block {} got a delta after its end", block.index);
            return Err(ReadError::Order(what.into()));
        }
        block.grown |= !said.is_empty();
        batch.delta(block.part, said);
        Ok(())
    }

    fn message_delta(&mut self, mut delta: Map<String, Value>, batch: &mut Batch) {
        if let Some(Value::String(reason)) = delta.remove("stop_reason")
            && let Some(reason) = stop_reason(&reason)
        {
            self.stop = Some(stop_of(reason));
        }
        self.release(batch);
        delta.retain(|_, value| !value.is_null());
        if !delta.is_empty() {
            batch.extended(ORIGIN, "message_delta", Value::Object(delta));
        }
    }

    fn message_stop(&mut self, batch: &mut Batch) -> Result<(), ReadError> {
        self.release(batch);
        for at in 0..self.blocks.len() {
            let block = &self.blocks[at];
            match block.kind {
                BlockKind::Call | BlockKind::ProviderCall if block.open => {
                    let what =
                        format!("the model stopped within the call of block {}", block.index);
                    return Err(ReadError::Order(what.into()));
                }
                // Some servers omit the end of a block.
                BlockKind::Text | BlockKind::Thought | BlockKind::Opaque if block.open => {
                    self.block_stop(at, batch);
                }
                BlockKind::Text
                | BlockKind::Thought
                | BlockKind::Call
                | BlockKind::ProviderCall
                | BlockKind::Opaque => {}
            }
        }
        if let Some(counts) = self.usage.server_tool_use.take().filter(|counts| !counts.is_null()) {
            batch.extended(ORIGIN, "server_tool_use", counts);
        }
        let calls = self.blocks.iter().any(|block| block.kind == BlockKind::Call);
        let guessed = if calls { Stop::ToolCalls } else { Stop::EndTurn };
        batch.stop(self.stop.take().unwrap_or(guessed), Some(self.spent()));
        self.done = true;
        Ok(())
    }

    /// Closes the call that was held back.
    fn release(&mut self, batch: &mut Batch) {
        if let Some(part) = self.held.take() {
            if self.stop == Some(Stop::MaxTokens) {
                batch.delta(part, CUT_ARGUMENTS);
            }
            batch.finish(part);
        }
    }

    fn find(&self, index: Option<u64>) -> Result<usize, ReadError> {
        let found = match index {
            Some(index) => self.blocks.iter().rposition(|block| block.index == index),
            None => self.blocks.len().checked_sub(1),
        };
        found.ok_or_else(|| {
            let index = index.unwrap_or_default();
            ReadError::Order(format!("block {index} never began").into())
        })
    }

    fn cite(&mut self, part: LocalPart, citation: Value, batch: &mut Batch) {
        let text = |name: &str| citation.get(name).and_then(Value::as_str).map(Into::into);
        let url = text("url").or_else(|| text("source"));
        let title = text("title").or_else(|| text("document_title"));
        let key: Option<Box<str>> = url.clone().or_else(|| title.clone());
        if let Some(key) = key
            && self.cited.len() < SOURCES_MAX
            && self.cited.insert(key)
        {
            let quote = text("cited_text");
            let source = Source { id: text("file_id"), url, title, media_type: None, quote };
            batch.event(Event::SourceCited(Box::new(source)));
        }
        batch.annotate(part, Annotation::Citation(citation));
    }

    /// Reports the result of a call that ran at the provider. A result for a call of an earlier
    /// turn, which the provider had paused, has no open call and is skipped.
    fn tell(&self, told: Told, batch: &mut Batch) {
        let asked = |block: &&Block| block.id.as_deref() == told.id.as_deref();
        if told.id.is_some()
            && let Some(call) = self.blocks.iter().rev().find(asked)
        {
            batch.tool_finished(call.part, told.outcome, ToolResult::new(told.output));
        }
        for file in told.files {
            batch.event(Event::FileProduced(Box::new(file)));
        }
    }

    fn spent(&self) -> wellspring_core::Usage {
        let Usage {
            input_tokens,
            output_tokens,
            cache_creation_input_tokens: cache_write,
            cache_read_input_tokens: cached_input,
            server_tool_use: _,
        } = self.usage;
        let parts = [input_tokens, cache_write, cached_input];
        wellspring_core::Usage {
            provider: Some(ORIGIN.into()),
            model: self.model.clone(),
            input: parts.into_iter().flatten().fold(0, u64::saturating_add),
            output: output_tokens.unwrap_or_default(),
            cached_input,
            cache_write,
            ..wellspring_core::Usage::default()
        }
    }
}

impl AnswerReader for Reader {
    fn push(&mut self, frame: Frame<'_>, batch: &mut Batch) -> Result<(), ReadError> {
        // Gateways that also implement OpenAI's protocol send its end marker.
        if self.done || frame.data.is_empty() || frame.data == b"[DONE]" {
            return Ok(());
        }
        if let Some(((index, fits), text)) = self.last.find(frame.data)
            && self.hot(HotDelta { index, fits, text }, batch)?
        {
            return Ok(());
        }
        let mut scan = Scan::new(frame.data);
        if let Some(delta) = hot_delta(&mut scan)
            && self.hot(delta, batch)?
        {
            self.last.learn(&scan, delta.text, (delta.index, delta.fits));
            return Ok(());
        }
        self.slow(frame, batch)
    }

    fn end(&mut self, _: &mut Batch) -> Result<(), ReadError> {
        if self.done { Ok(()) } else { Err(ReadError::Truncated) }
    }

    fn whole(&mut self, body: &[u8], batch: &mut Batch) -> Result<(), ReadError> {
        let mut message: Message<'_> = serde_json::from_slice(body).map_err(ReadError::NotJson)?;
        if let Some(error) = &message.error {
            return Err(ReadError::Failed(Failure::of_error(error)));
        }
        let reason = message.stop_reason.take();
        let Some(reason) = reason.filter(|reason| stop_reason(reason).is_some()) else {
            return Err(ReadError::Truncated);
        };
        let mut delta = Map::new();
        delta.insert("stop_reason".to_owned(), Value::String(reason.into_owned()));
        delta.insert("stop_sequence".to_owned(), message.stop_sequence.take().unwrap_or_default());
        self.message_start(message, batch)?;
        self.message_delta(delta, batch);
        self.message_stop(batch)
    }
}

/// The delta in an event, if it is one of the three frequent kinds and has no other members.
fn hot_delta<'a>(scan: &mut Scan<'a>) -> Option<HotDelta<'a>> {
    let (mut index, mut fits, mut named, mut text) = (None, None, None, None);
    scan.object(|key, scan| {
        match key {
            b"type" if scan.string()?.plain()? == "content_block_delta" => {}
            b"index" => index = Some(scan.number()?),
            b"delta" => scan.object(|key, scan| {
                let member = match key {
                    b"type" => {
                        fits = Some(match scan.string()?.plain()? {
                            "text_delta" => BlockKind::Text,
                            "thinking_delta" => BlockKind::Thought,
                            "input_json_delta" => BlockKind::Call,
                            _ => return None,
                        });
                        return Some(());
                    }
                    b"text" => BlockKind::Text,
                    b"thinking" => BlockKind::Thought,
                    b"partial_json" => BlockKind::Call,
                    _ => return None,
                };
                (named, text) = (Some(member), Some(scan.string()?));
                Some(())
            })?,
            _ => return None,
        }
        Some(())
    })?;
    scan.end()?;
    let fits = fits.filter(|_| fits == named)?;
    Some(HotDelta { index, fits, text: text? })
}

/// The readable part of one of the provider's own blocks.
struct Told {
    id: Option<Box<str>>,
    outcome: ToolOutcome,
    output: Value,
    files: Vec<FileProduced>,
}

impl Told {
    fn of(block: &Value) -> Self {
        let id = block.get("tool_use_id").and_then(Value::as_str).map(Into::into);
        let content = block.get("content").unwrap_or(&Value::Null);
        let code = content.get("error_code");
        let failed = code.is_some() || block.get("is_error") == Some(&Value::Bool(true));
        let outcome = if failed { ToolOutcome::Error } else { ToolOutcome::Ok };
        let mut files = Vec::new();
        collect_files(block, &mut files);
        Self { id, outcome, output: readable(content), files }
    }
}

/// A value without its encrypted members.
fn readable(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(readable).collect(),
        Value::Object(members) => {
            let open = members.iter().filter(|(name, _)| !name.starts_with("encrypted_"));
            Value::Object(open.map(|(name, value)| (name.clone(), readable(value))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Collects the files that a block names by their id at the provider.
fn collect_files(value: &Value, files: &mut Vec<FileProduced>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_files(item, files)),
        Value::Object(members) => {
            if let Some(Value::String(id)) = members.get("file_id") {
                let url = format!("https://api.anthropic.com/v1/files/{id}/content");
                files.push(FileProduced {
                    media_type: "application/octet-stream".into(),
                    source: MediaSource::Url(url.into()),
                    name: None,
                });
            }
            members.values().for_each(|member| collect_files(member, files));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn whole(data: &[u8]) -> Result<Value, ReadError> {
    serde_json::from_slice(data).map_err(ReadError::NotJson)
}

fn take_text(block: &mut Map<String, Value>, name: &str) -> String {
    match block.shift_remove(name) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    }
}

/// The arguments that a block started with, byte for byte; `None` if they are still to come.
fn whole_input(block: &mut Map<String, Value>, json: &str) -> Result<Option<Box<str>>, ReadError> {
    let told = block.shift_remove("input").is_some_and(|input| match &input {
        Value::Object(members) => !members.is_empty(),
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => true,
    });
    if !told {
        return Ok(None);
    }
    let BlockInput { input } = serde_json::from_str(json).map_err(ReadError::NotJson)?;
    Ok(input.map(|input| input.get().into()))
}

fn sign(part: LocalPart, signature: &str, batch: &mut Batch) {
    if !signature.is_empty() {
        batch.annotate(part, Annotation::Signature(signature.into()));
    }
}

fn provider_id(part: LocalPart, id: &str, batch: &mut Batch) {
    if !id.is_empty() {
        batch.annotate(part, Annotation::ProviderId(id.into()));
    }
}

fn kind_of(name: &str) -> ToolKind {
    match name {
        "web_search" => ToolKind::Search,
        "web_fetch" => ToolKind::Fetch,
        "code_execution" | "bash_code_execution" => ToolKind::Execute,
        "text_editor_code_execution" => ToolKind::Edit,
        _ if name.starts_with("tool_search") => ToolKind::Search,
        _ => ToolKind::Other,
    }
}

fn stop_of(reason: &str) -> Stop {
    match reason {
        "end_turn" => Stop::EndTurn,
        "tool_use" => Stop::ToolCalls,
        "max_tokens" => Stop::MaxTokens,
        "stop_sequence" => Stop::StopSequence,
        "refusal" => Stop::Refusal,
        "pause_turn" => Stop::Paused,
        other => Stop::Other(other.into()),
    }
}
