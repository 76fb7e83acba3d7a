//! Reading: events of the stream, or a whole response, into a batch.

use serde_json::Value;
use wellspring_core::{
    Annotation, Batch, Content, ContentChange, Event, FileProduced, LocalPart, MediaSource, Opaque,
    PartId, PartKind, Source, Stop, ToolContent, ToolMode, ToolOutcome, ToolResult, ToolUpdate,
    TurnRequest, Usage,
};

use super::items::{Hosted, ItemType};
use super::types::{Response, StreamEvent, UsageBody};
use super::write::NAMES;
use super::{ITEM, ORIGIN, PIECE};
use crate::Frame;
use crate::provider::scan::{Quoted, Scan};
use crate::provider::{AnswerReader, CUT_ARGUMENTS, Failure, ReadError, ToolNames, mark};
use crate::text::member;

/// Items that one response may have: as many as a turn may have parts.
pub const ITEMS_MAX: usize = 4096;

/// Reads one response.
#[derive(Debug, Default)]
pub struct Reader {
    names: ToolNames,
    /// In the order in which they began.
    items: Vec<Item>,
    model: Option<Box<str>>,
    /// Whether the model wants a tool that runs here.
    called: bool,
    refused: bool,
    stopped: bool,
    scratch: String,
}

#[derive(Debug)]
struct Item {
    index: Option<u64>,
    id: Box<str>,
    what: What,
    /// The parts it became, in the order in which they began.
    pieces: Vec<Piece>,
    /// Whether it is a call that runs at the provider.
    at_provider: bool,
    /// Whether its arguments were said to be whole.
    whole: bool,
    done: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum What {
    Message,
    Reasoning,
    /// A call whose arguments stream; they run here, or at the provider.
    Call(Form),
    /// A call at the provider that is announced whole.
    Hosted,
    /// Shown when it is done.
    Late,
}

/// How what the wire streams becomes JSON.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Form {
    /// It is JSON.
    Json,
    /// It is text: the arguments are one string.
    Text,
    /// It is a program: the arguments are an object with its code.
    Code,
}

impl Form {
    fn around(self) -> (&'static str, &'static str) {
        match self {
            Self::Json => ("", ""),
            Self::Text => ("\"", "\""),
            Self::Code => ("{\"code\":\"", "\"}"),
        }
    }
}

#[derive(Debug)]
struct Piece {
    place: Place,
    index: u64,
    part: LocalPart,
    /// Bytes of it that came so far: a closing event repeats all of it, and what was not
    /// streamed is taken from there.
    written: usize,
    citations: usize,
    open: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    Content,
    Summary,
    Arguments,
}

impl Reader {
    /// For the answer to this request.
    #[must_use]
    pub fn new(request: &TurnRequest) -> Self {
        Self { names: ToolNames::new(NAMES, &request.tools), ..Self::default() }
    }

    /// The event that comes by the thousand, read without a parser; `None` leaves it to one.
    fn text_delta(&mut self, data: &[u8], batch: &mut Batch) -> Option<Result<(), ReadError>> {
        let (mut output_index, mut content_index) = (None, 0);
        let mut delta = Quoted::default();
        let mut is_delta = false;
        let mut scan = Scan::new(data);
        scan.object(|key, scan| {
            match key {
                b"type" => {
                    is_delta = scan.string()?.plain()? == "response.output_text.delta";
                    return is_delta.then_some(());
                }
                b"output_index" => output_index = Some(scan.number()?),
                b"content_index" => content_index = scan.number()?,
                b"delta" => delta = scan.string()?,
                _ => scan.skip()?,
            }
            Some(())
        })?;
        scan.end()?;
        let index = output_index.filter(|_| is_delta)?;
        let item = self.items.iter_mut().rev().find(|item| item.index == Some(index))?;
        let piece = item
            .pieces
            .iter()
            .rposition(|piece| piece.place == Place::Content && piece.index == content_index)?;
        let text = delta.text(&mut self.scratch)?;
        Some(item.delta(piece, text, batch))
    }

    fn read(
        &mut self,
        event: StreamEvent<'_>,
        data: &[u8],
        batch: &mut Batch,
    ) -> Result<(), ReadError> {
        match &*event.kind {
            "response.output_text.delta" | "response.refusal.delta" => {
                self.refused |= event.kind.starts_with("response.refusal");
                self.delta(&event, What::Message, Place::Content, batch)
            }
            "response.reasoning_text.delta" => {
                self.delta(&event, What::Reasoning, Place::Content, batch)
            }
            "response.reasoning_summary_text.delta" => {
                self.delta(&event, What::Reasoning, Place::Summary, batch)
            }
            "response.function_call_arguments.delta" | "response.mcp_call_arguments.delta" => {
                self.delta(&event, What::Call(Form::Json), Place::Arguments, batch)
            }
            "response.custom_tool_call_input.delta" => {
                self.delta(&event, What::Call(Form::Text), Place::Arguments, batch)
            }
            "response.code_interpreter_call_code.delta" => {
                self.delta(&event, What::Call(Form::Code), Place::Arguments, batch)
            }
            "response.output_text.done" => {
                self.complete(&event, What::Message, Place::Content, &event.text, batch)
            }
            "response.refusal.done" => {
                self.refused = true;
                self.complete(&event, What::Message, Place::Content, &event.refusal, batch)
            }
            "response.reasoning_text.done" => {
                self.complete(&event, What::Reasoning, Place::Content, &event.text, batch)
            }
            "response.reasoning_summary_text.done" => {
                self.complete(&event, What::Reasoning, Place::Summary, &event.text, batch)
            }
            "response.function_call_arguments.done" | "response.mcp_call_arguments.done" => {
                self.close_call(&event, Form::Json, &event.arguments, batch)
            }
            "response.custom_tool_call_input.done" => {
                self.close_call(&event, Form::Text, &event.input, batch)
            }
            "response.code_interpreter_call_code.done" => {
                self.close_call(&event, Form::Code, &event.code, batch)
            }
            "response.content_part.added" | "response.reasoning_summary_part.added" => {
                let (what, place) = self.part_place(&event);
                self.piece(&event, what, place, batch).map(|_| ())
            }
            "response.content_part.done" | "response.reasoning_summary_part.done" => {
                let (what, place) = self.part_place(&event);
                let text = event.part.as_ref().and_then(spoken).unwrap_or_default();
                let (item, piece) = self.piece(&event, what, place, batch)?;
                self.items[item].complete(piece, text, batch)?;
                self.items[item].close(piece, batch);
                Ok(())
            }
            "response.output_text.annotation.added" => {
                let (item, piece) = self.piece(&event, What::Message, Place::Content, batch)?;
                if let Some(annotation) = event.annotation {
                    self.items[item].cite(piece, annotation, batch);
                }
                Ok(())
            }
            "response.output_item.added" => match event.item {
                Some(item) => self.begin_item(event.output_index, &item, batch).map(|_| ()),
                None => Ok(()),
            },
            "response.output_item.done" => match event.item {
                Some(item) => self.finish_item(event.output_index, item, batch),
                None => Ok(()),
            },
            "response.created" | "response.queued" | "response.in_progress" => {
                if let Some(response) = event.response {
                    self.model = response.model.or(self.model.take());
                }
                Ok(())
            }
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled" => {
                let mut response = event.response.unwrap_or_default();
                // An emulator may leave out the status that the event's name says.
                response.status.get_or_insert_with(|| event.kind["response.".len()..].into());
                self.finish(response, batch)
            }
            // Its members are at the top, or in an `error` as everywhere else.
            "error" => {
                let error = event.error.or_else(|| serde_json::from_slice(data).ok());
                Err(ReadError::Failed(Failure::of_error(&error.unwrap_or_default())))
            }
            "response.image_generation_call.partial_image" => {
                let picture = Content::Media {
                    media_type: "image/png".into(),
                    source: MediaSource::Data((*event.partial_image_b64).into()),
                    name: None,
                };
                let content = ContentChange::Replace(vec![ToolContent::Content(picture)]);
                let update = ToolUpdate { content: Some(content), ..ToolUpdate::default() };
                self.update(&event, update, batch);
                Ok(())
            }
            "keepalive" | "ping" => Ok(()),
            // A provider that cannot stream may answer with the body.
            "" => match event.error {
                Some(error) => Err(ReadError::Failed(Failure::of_error(&error))),
                None => self.whole(data, batch),
            },
            name => {
                match hosted_status(name) {
                    Some(status) if self.find(&event).is_some() => {
                        let data = Some(serde_json::json!({ "status": status }));
                        let update = ToolUpdate { data, ..ToolUpdate::default() };
                        self.update(&event, update, batch);
                    }
                    // The item's end says the same.
                    Some(_) => {}
                    None => {
                        let value = serde_json::from_slice(data).unwrap_or(Value::Null);
                        batch.extended(ORIGIN, name, value);
                    }
                }
                Ok(())
            }
        }
    }

    fn delta(
        &mut self,
        event: &StreamEvent<'_>,
        what: What,
        place: Place,
        batch: &mut Batch,
    ) -> Result<(), ReadError> {
        let (item, piece) = self.piece(event, what, place, batch)?;
        self.items[item].delta(piece, &event.delta, batch)
    }

    fn complete(
        &mut self,
        event: &StreamEvent<'_>,
        what: What,
        place: Place,
        text: &str,
        batch: &mut Batch,
    ) -> Result<(), ReadError> {
        let (item, piece) = self.piece(event, what, place, batch)?;
        self.items[item].complete(piece, text, batch)
    }

    /// The arguments are whole: the tool can start before the item's end is told.
    fn close_call(
        &mut self,
        event: &StreamEvent<'_>,
        form: Form,
        text: &str,
        batch: &mut Batch,
    ) -> Result<(), ReadError> {
        let (item, piece) = self.piece(event, What::Call(form), Place::Arguments, batch)?;
        self.items[item].complete(piece, text, batch)?;
        // Whether a call that runs here is whole, its item tells: an output limit cuts
        // arguments too, and then says they are done.
        self.items[item].whole = true;
        if self.items[item].at_provider {
            self.items[item].start_at_provider(piece, batch);
        }
        Ok(())
    }

    fn part_place(&self, event: &StreamEvent<'_>) -> (What, Place) {
        if event.kind.starts_with("response.reasoning_summary_part") {
            return (What::Reasoning, Place::Summary);
        }
        let kind = event.part.as_ref().and_then(|part| member(part, "type"));
        match kind {
            Some("reasoning_text") => (What::Reasoning, Place::Content),
            _ => (What::Message, Place::Content),
        }
    }

    /// The item that an event is about: by its place, or by its id, or the last one.
    fn find(&self, event: &StreamEvent<'_>) -> Option<usize> {
        let open = |item: &&Item| !item.done;
        let position = |found: &dyn Fn(&Item) -> bool| self.items.iter().rposition(found);
        match (event.output_index, event.item_id.given()) {
            (Some(index), _) => position(&|item| item.index == Some(index)),
            (None, Some(id)) => position(&|item| &*item.id == id),
            (None, None) => position(&|item| open(&item)),
        }
    }

    /// The piece that an event is about, opened if nobody announced it.
    fn piece(
        &mut self,
        event: &StreamEvent<'_>,
        what: What,
        place: Place,
        batch: &mut Batch,
    ) -> Result<(usize, usize), ReadError> {
        let item = match self.find(event) {
            Some(item) => item,
            None if place == Place::Arguments => {
                return Err(ReadError::Order(
                    "arguments came for a call that was not announced".into(),
                ));
            }
            None => self.add(event.output_index, event.item_id.given().unwrap_or(""), what)?,
        };
        let index = match place {
            Place::Content => event.content_index,
            Place::Summary => event.summary_index,
            Place::Arguments => None,
        };
        let index = index.unwrap_or(0);
        Ok((item, self.items[item].piece(place, index, batch)?))
    }

    fn add(&mut self, index: Option<u64>, id: &str, what: What) -> Result<usize, ReadError> {
        if self.items.len() >= ITEMS_MAX {
            return Err(ReadError::TooMuch("the response has too many items".into()));
        }
        self.items.push(Item {
            index,
            id: id.into(),
            what,
            pieces: Vec::new(),
            at_provider: false,
            whole: false,
            done: false,
        });
        Ok(self.items.len() - 1)
    }

    fn begin_item(
        &mut self,
        index: Option<u64>,
        item: &Value,
        batch: &mut Batch,
    ) -> Result<usize, ReadError> {
        let id = member(item, "id").unwrap_or_default();
        let kind = ItemType::of(item);
        let what = match &kind {
            ItemType::Message => What::Message,
            ItemType::Reasoning => What::Reasoning,
            ItemType::FunctionCall => What::Call(Form::Json),
            ItemType::CustomToolCall => What::Call(Form::Text),
            ItemType::Hosted(hosted) if hosted.streams_code() => What::Call(Form::Code),
            ItemType::Hosted(hosted) if hosted.streams_arguments() => What::Call(Form::Json),
            ItemType::Hosted(_) => What::Hosted,
            ItemType::Action(_) | ItemType::Other => What::Late,
        };
        let at = self.add(index, id, what)?;
        match kind {
            ItemType::FunctionCall | ItemType::CustomToolCall => {
                self.called = true;
                let name = self.names.ours(member(item, "name").unwrap_or_default()).to_owned();
                self.items[at].open_call(PartKind::call(name), batch);
                let call_id = member(item, "call_id").or(member(item, "id"));
                self.items[at].identify(call_id, batch);
            }
            ItemType::Hosted(hosted) => {
                self.items[at].at_provider = true;
                self.items[at].open_call(hosted.call(item), batch);
                self.items[at].identify(member(item, "id"), batch);
                if what == What::Hosted {
                    if let Some(arguments) = hosted.arguments(item) {
                        self.items[at].delta(0, &arguments.to_string(), batch)?;
                    }
                    self.items[at].start_at_provider(0, batch);
                }
            }
            ItemType::Message | ItemType::Reasoning | ItemType::Action(_) | ItemType::Other => {}
        }
        Ok(at)
    }

    /// An item is complete: whatever was not streamed is taken from it, its parts are closed,
    /// and what must go back with them is kept.
    fn finish_item(
        &mut self,
        index: Option<u64>,
        mut value: Value,
        batch: &mut Batch,
    ) -> Result<(), ReadError> {
        let known = self.items.iter().rposition(|item| match index {
            Some(index) => item.index == Some(index),
            None => !item.id.is_empty() && Some(&*item.id) == member(&value, "id"),
        });
        let at = match known {
            Some(at) if self.items[at].done => return Ok(()),
            Some(at) => at,
            None => self.begin_item(index, &value, batch)?,
        };
        self.items[at].done = true;
        let item = &mut self.items[at];
        match ItemType::of(&value) {
            ItemType::Message => {
                self.refused |= list(&value, "content").any(|part| part.get("refusal").is_some());
                item.finish_pieces(&mut value, "content", Place::Content, batch)?;
                item.close_all(batch);
                item.keep(value, batch);
            }
            ItemType::Reasoning => {
                item.finish_pieces(&mut value, "summary", Place::Summary, batch)?;
                item.finish_pieces(&mut value, "content", Place::Content, batch)?;
                if item.pieces.is_empty() {
                    item.piece(Place::Summary, 0, batch)?;
                }
                item.close_all(batch);
                item.keep(value, batch);
            }
            ItemType::FunctionCall => item.finish_call(value, "arguments", batch)?,
            ItemType::CustomToolCall => item.finish_call(value, "input", batch)?,
            ItemType::Hosted(hosted) => item.finish_hosted(hosted, value, batch)?,
            ItemType::Action(name) => {
                self.called = true;
                item.open_call(PartKind::call(name), batch);
                item.identify(member(&value, "call_id").or(member(&value, "id")), batch);
                let arguments = super::items::action(&value).cloned().unwrap_or_default();
                item.delta(0, &arguments.to_string(), batch)?;
                item.close(0, batch);
                item.keep(value, batch);
            }
            ItemType::Other => keep_opaque(value, batch),
        }
        Ok(())
    }

    fn finish(&mut self, response: Response, batch: &mut Batch) -> Result<(), ReadError> {
        if let Some(error) = response.error {
            return Err(ReadError::Failed(Failure::of_error(&error)));
        }
        self.model = response.model.or(self.model.take());
        for (index, item) in response.output.unwrap_or_default().into_iter().enumerate() {
            let index = self.index_of(index as u64, &item);
            self.finish_item(index, item, batch)?;
        }
        let completed = response.status.as_deref() != Some("incomplete");
        for item in &mut self.items {
            item.end(completed, batch)?;
        }
        let usage = response.usage.map(|usage| self.usage(&usage));
        let stop = match response.status.as_deref() {
            Some("completed") | None if self.refused => Stop::Refusal,
            Some("completed") | None if self.called => Stop::ToolCalls,
            Some("completed") | None => Stop::EndTurn,
            Some("incomplete") => {
                match response.incomplete_details.and_then(|details| details.reason).as_deref() {
                    Some("max_output_tokens" | "max_tokens") | None => Stop::MaxTokens,
                    Some("content_filter") => Stop::ContentFilter,
                    Some(reason) => Stop::Other(reason.into()),
                }
            }
            Some(status @ ("failed" | "cancelled")) => {
                let error = Value::from(format!("the response was {status}"));
                return Err(ReadError::Failed(Failure::of_error(&error)));
            }
            Some(status) => {
                return Err(ReadError::Order(format!("the response ended as {status}").into()));
            }
        };
        if !std::mem::replace(&mut self.stopped, true) {
            batch.stop(stop, usage);
        }
        Ok(())
    }

    /// The place under which an item of the whole response is known: emulators that leave out
    /// `output_index` give ids.
    fn index_of(&self, index: u64, item: &Value) -> Option<u64> {
        let id = member(item, "id").unwrap_or_default();
        let by_id = self.items.iter().find(|known| !id.is_empty() && &*known.id == id);
        match by_id {
            Some(known) => known.index,
            None if self.items.iter().all(|known| known.index.is_some()) => Some(index),
            None => None,
        }
    }

    fn usage(&self, usage: &UsageBody) -> Usage {
        Usage {
            provider: Some("openai".into()),
            model: self.model.clone(),
            input: usage.input_tokens.unwrap_or(0),
            output: usage.output_tokens.unwrap_or(0),
            reasoning: usage
                .output_tokens_details
                .as_ref()
                .and_then(|details| details.reasoning_tokens),
            cached_input: usage
                .input_tokens_details
                .as_ref()
                .and_then(|details| details.cached_tokens),
            ..Usage::default()
        }
    }

    fn update(&mut self, event: &StreamEvent<'_>, update: ToolUpdate, batch: &mut Batch) {
        if let Some(at) = self.find(event)
            && let [piece] = &*self.items[at].pieces
            && !piece.open
            && !self.items[at].done
        {
            let call = PartId(piece.part.0);
            batch.event(Event::ToolUpdated { call, update: Box::new(update) });
        }
    }
}

impl AnswerReader for Reader {
    fn push(&mut self, frame: Frame<'_>, batch: &mut Batch) -> Result<(), ReadError> {
        let data = frame.data;
        // Nothing counts after the end.
        if self.stopped {
            return Ok(());
        }
        if let Some(read) = self.text_delta(data, batch) {
            return read;
        }
        let error = match serde_json::from_slice::<StreamEvent<'_>>(data) {
            Ok(event) => return self.read(event, data, batch),
            Err(_) if data.trim_ascii() == b"[DONE]" => return Ok(()),
            Err(error) => error,
        };
        // Members of an unexpected shape make it an event that we do not know.
        let Ok(value) = serde_json::from_slice::<Value>(data) else {
            return Err(ReadError::NotJson(error));
        };
        let name = member(&value, "type").unwrap_or_default().to_owned();
        batch.extended(ORIGIN, &name, value);
        Ok(())
    }

    fn end(&mut self, _batch: &mut Batch) -> Result<(), ReadError> {
        if self.stopped { Ok(()) } else { Err(ReadError::Truncated) }
    }

    fn whole(&mut self, body: &[u8], batch: &mut Batch) -> Result<(), ReadError> {
        let response: Response = serde_json::from_slice(body).map_err(ReadError::NotJson)?;
        // An emulator may leave out its status; but nothing at all is no answer.
        let said = response.output.as_ref().is_some_and(|output| !output.is_empty());
        if response.status.is_none() && response.error.is_none() && !said {
            return Err(ReadError::Truncated);
        }
        self.finish(response, batch)
    }
}

impl Item {
    fn piece(&mut self, place: Place, index: u64, batch: &mut Batch) -> Result<usize, ReadError> {
        let known =
            self.pieces.iter().rposition(|piece| piece.place == place && piece.index == index);
        if let Some(known) = known {
            return Ok(known);
        }
        let kind = match self.what {
            What::Message => PartKind::TEXT,
            What::Reasoning => PartKind::Thought,
            What::Call(_) | What::Hosted | What::Late => {
                return Err(ReadError::Order("text came for an item that has none".into()));
            }
        };
        Ok(self.open(kind, place, index, batch))
    }

    fn open(&mut self, kind: PartKind, place: Place, index: u64, batch: &mut Batch) -> usize {
        let part = batch.start(kind);
        self.pieces.push(Piece { place, index, part, written: 0, citations: 0, open: true });
        self.pieces.len() - 1
    }

    fn open_call(&mut self, kind: PartKind, batch: &mut Batch) {
        let piece = self.open(kind, Place::Arguments, 0, batch);
        if let What::Call(form) = self.what {
            batch.delta(self.pieces[piece].part, form.around().0);
        }
    }

    fn identify(&self, id: Option<&str>, batch: &mut Batch) {
        if let (Some(id), [piece, ..]) = (id, &*self.pieces) {
            batch.annotate(piece.part, Annotation::ProviderId(id.into()));
        }
    }

    fn delta(&mut self, piece: usize, text: &str, batch: &mut Batch) -> Result<(), ReadError> {
        if text.is_empty() {
            return Ok(());
        }
        let piece = &mut self.pieces[piece];
        if !piece.open {
            return Err(ReadError::Order("a part went on after it was done".into()));
        }
        piece.written += text.len();
        match self.what {
            What::Call(Form::Text | Form::Code) => {
                let quoted = Value::from(text).to_string();
                batch.delta(piece.part, &quoted[1..quoted.len() - 1]);
            }
            What::Call(Form::Json)
            | What::Message
            | What::Reasoning
            | What::Hosted
            | What::Late => {
                batch.delta(piece.part, text);
            }
        }
        Ok(())
    }

    /// Adds what of the whole text has not come yet.
    fn complete(&mut self, piece: usize, whole: &str, batch: &mut Batch) -> Result<(), ReadError> {
        let written = self.pieces[piece].written;
        match whole.get(written..) {
            Some(rest) if self.pieces[piece].open => self.delta(piece, rest, batch),
            // It ends in other words than it came in: what was shown stays.
            Some(_) | None => Ok(()),
        }
    }

    fn close(&mut self, piece: usize, batch: &mut Batch) {
        let piece = &mut self.pieces[piece];
        if std::mem::take(&mut piece.open) {
            if let What::Call(form) = self.what {
                batch.delta(piece.part, form.around().1);
            }
            batch.finish(piece.part);
        }
    }

    fn close_all(&mut self, batch: &mut Batch) {
        for piece in 0..self.pieces.len() {
            self.close(piece, batch);
        }
    }

    fn cite(&mut self, piece: usize, citation: Value, batch: &mut Batch) {
        let piece = &mut self.pieces[piece];
        piece.citations += 1;
        if let Some(source) = source(&citation) {
            batch.event(Event::SourceCited(Box::new(source)));
        }
        batch.annotate(piece.part, Annotation::Citation(citation));
    }

    /// Completes the pieces in one list of an item, and puts their numbers in place of their
    /// words: the words are the parts' own.
    fn finish_pieces(
        &mut self,
        item: &mut Value,
        list: &str,
        place: Place,
        batch: &mut Batch,
    ) -> Result<(), ReadError> {
        let Some(Value::Array(parts)) = item.get_mut(list) else { return Ok(()) };
        for (index, part) in parts.iter_mut().enumerate() {
            let Some(text) = spoken(part).map(str::to_owned) else { continue };
            let piece = self.piece(place, index as u64, batch)?;
            self.complete(piece, &text, batch)?;
            if let Some(Value::Array(citations)) = part.get_mut("annotations") {
                let told = self.pieces[piece].citations.min(citations.len());
                for citation in citations.drain(..).skip(told) {
                    self.cite(piece, citation, batch);
                }
            }
            // Where the end differs from what was streamed, the end is what goes back.
            let words = if part.get("text").is_some() { "text" } else { "refusal" };
            if self.pieces[piece].written == text.len()
                && let Some(words) = part.get_mut(words)
            {
                *words = Value::from(piece);
            }
        }
        Ok(())
    }

    fn finish_call(
        &mut self,
        mut item: Value,
        arguments: &str,
        batch: &mut Batch,
    ) -> Result<(), ReadError> {
        let text = item.as_object_mut().and_then(|item| item.remove(arguments));
        let text = text.as_ref().and_then(Value::as_str).unwrap_or_default();
        self.complete(0, text, batch)?;
        // Half of an object is no JSON, so nobody runs it; the model is told.
        if member(&item, "status") == Some("incomplete") {
            self.cut(batch);
        }
        self.close(0, batch);
        self.keep(item, batch);
        Ok(())
    }

    /// The output limit cut the arguments. What is there stays as it is, with no end put to it.
    fn cut(&mut self, batch: &mut Batch) {
        let piece = &mut self.pieces[0];
        if std::mem::take(&mut piece.open) {
            if piece.written == 0 && self.what == What::Call(Form::Json) {
                batch.delta(piece.part, CUT_ARGUMENTS);
            }
            batch.finish(piece.part);
        }
    }

    fn start_at_provider(&mut self, piece: usize, batch: &mut Batch) {
        if self.pieces[piece].open {
            self.close(piece, batch);
            let call = PartId(self.pieces[piece].part.0);
            batch.event(Event::ToolStarted { call, mode: ToolMode::Parallel, arguments: None });
        }
    }

    fn finish_hosted(
        &mut self,
        hosted: Hosted,
        item: Value,
        batch: &mut Batch,
    ) -> Result<(), ReadError> {
        let text = match self.what {
            What::Call(Form::Code) => member(&item, "code"),
            What::Call(Form::Json | Form::Text) => member(&item, "arguments"),
            What::Message | What::Reasoning | What::Hosted | What::Late => None,
        };
        self.complete(0, text.unwrap_or_default(), batch)?;
        self.start_at_provider(0, batch);
        if self.what == What::Hosted
            && self.pieces[0].written == 0
            && let Some(data) = hosted.arguments(&item)
        {
            let update = ToolUpdate { data: Some(data), ..ToolUpdate::default() };
            let call = PartId(self.pieces[0].part.0);
            batch.event(Event::ToolUpdated { call, update: Box::new(update) });
        }
        if let Some((media_type, data)) = hosted.picture(&item) {
            batch.event(Event::FileProduced(Box::new(FileProduced {
                media_type,
                source: MediaSource::Data(data.into()),
                name: None,
            })));
        }
        let outcome = match (member(&item, "status"), item.get("error")) {
            (Some("failed" | "incomplete"), _) => ToolOutcome::Error,
            (_, Some(error)) if !error.is_null() => ToolOutcome::Error,
            _ => ToolOutcome::Ok,
        };
        let result = Box::new(ToolResult::new(hosted.output(&item)));
        let call = PartId(self.pieces[0].part.0);
        batch.event(Event::ToolFinished { call, outcome, result });
        self.keep(item, batch);
        Ok(())
    }

    /// The item as it goes back, with its first part.
    fn keep(&self, item: Value, batch: &mut Batch) {
        match &*self.pieces {
            [first, more @ ..] => {
                batch.annotate(first.part, mark(ORIGIN, ITEM, item));
                for piece in more {
                    batch.annotate(piece.part, mark(ORIGIN, PIECE, Value::from(&*self.id)));
                }
            }
            [] => keep_opaque(item, batch),
        }
    }

    /// The response is over. Words that nobody closed end here; a call does not become whole
    /// by that.
    fn end(&mut self, completed: bool, batch: &mut Batch) -> Result<(), ReadError> {
        if self.done {
            return Ok(());
        }
        match self.what {
            What::Message | What::Reasoning => self.close_all(batch),
            What::Hosted | What::Call(_) if self.at_provider => {
                self.start_at_provider(0, batch);
                let result = Box::new(ToolResult::default());
                let call = PartId(self.pieces[0].part.0);
                let outcome = ToolOutcome::Interrupted;
                batch.event(Event::ToolFinished { call, outcome, result });
            }
            What::Hosted | What::Call(_) if self.whole && completed => self.close_all(batch),
            What::Hosted | What::Call(_) if !completed => self.cut(batch),
            What::Hosted | What::Call(_) => {
                return Err(ReadError::Order("the response ended inside a call".into()));
            }
            What::Late => {}
        }
        self.done = true;
        Ok(())
    }
}

/// An item without parts goes back whole.
fn keep_opaque(item: Value, batch: &mut Batch) {
    let opaque = Opaque { origin: ORIGIN.into(), raw: item };
    let part = batch.start(PartKind::Opaque(Box::new(opaque)));
    batch.finish(part);
}

/// The words of a content part, whatever its type calls them.
fn spoken(part: &Value) -> Option<&str> {
    member(part, "text").or(member(part, "refusal"))
}

fn list<'v>(item: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    item.get(name).and_then(Value::as_array).into_iter().flatten()
}

/// `searching` of `response.web_search_call.searching`.
fn hosted_status(name: &str) -> Option<&str> {
    let (tool, status) = name.strip_prefix("response.")?.split_once('.')?;
    let known = matches!(
        status,
        "in_progress" | "searching" | "interpreting" | "generating" | "completed" | "failed"
    );
    ((tool.ends_with("_call") || tool == "mcp_list_tools") && known).then_some(status)
}

fn source(citation: &Value) -> Option<Source> {
    let text = |name| member(citation, name).map(Into::into);
    match member(citation, "type")? {
        "url_citation" => {
            Some(Source { url: text("url"), title: text("title"), ..Source::default() })
        }
        "file_citation" | "container_file_citation" | "file_path" => {
            Some(Source { id: text("file_id"), title: text("filename"), ..Source::default() })
        }
        _ => None,
    }
}
