//! One item of a response, and the parts that it becomes.

use serde_json::Value;
use wellspring_core::{
    Annotation, Batch, Event, FileProduced, LocalPart, MediaSource, Opaque, PartKind, Source,
    ToolOutcome, ToolResult, ToolUpdate,
};

use super::super::items::Hosted;
use super::super::{ITEM, ORIGIN, PIECE};
use crate::provider::scan::Half;
use crate::provider::text::{escape, member};
use crate::provider::{CUT_ARGUMENTS, ReadError, mark};

#[derive(Debug)]
pub(super) struct Item {
    pub(super) index: Option<u64>,
    pub(super) id: Box<str>,
    pub(super) what: What,
    /// The parts of the item, in the order in which they started.
    pub(super) pieces: Vec<Piece>,
    /// Whether it is a call that runs at the provider.
    pub(super) at_provider: bool,
    /// Whether the provider reported its arguments as complete.
    pub(super) whole: bool,
    pub(super) done: bool,
    /// A buffer for text that is escaped into a JSON string.
    pub(super) escaped: String,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum What {
    Message,
    Reasoning,
    /// A call whose arguments are streamed. It runs here, or at the provider.
    Call(Form),
    /// A call at the provider that is announced with its arguments.
    Hosted,
    /// Emitted when it is complete.
    Late,
}

/// How streamed arguments become JSON.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Form {
    /// They are JSON.
    Json,
    /// They are text: the arguments are one JSON string.
    Text,
    /// They are a program: the arguments are an object with its code.
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
pub(super) struct Piece {
    pub(super) place: Place,
    pub(super) index: u64,
    pub(super) part: LocalPart,
    /// Bytes that were streamed so far. A closing event repeats the whole text, and what was
    /// not streamed is read from there.
    pub(super) written: usize,
    pub(super) citations: usize,
    /// A high surrogate at the end of the last delta.
    pub(super) half: Half,
    pub(super) open: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    Content,
    Summary,
    Arguments,
}

impl Item {
    pub(super) fn piece(
        &mut self,
        place: Place,
        index: u64,
        batch: &mut Batch,
    ) -> Result<usize, ReadError> {
        let known =
            self.pieces.iter().rposition(|piece| piece.place == place && piece.index == index);
        if let Some(known) = known {
            return Ok(known);
        }
        let kind = match self.what {
            What::Message => PartKind::TEXT,
            What::Reasoning => PartKind::Thought,
            What::Call(_) | What::Hosted | What::Late => {
                return Err(ReadError::Order("text arrived for an item that has no text".into()));
            }
        };
        Ok(self.open(kind, place, index, batch))
    }

    pub(super) fn open(
        &mut self,
        kind: PartKind,
        place: Place,
        index: u64,
        batch: &mut Batch,
    ) -> usize {
        let part = batch.start(kind);
        self.pieces.push(Piece {
            place,
            index,
            part,
            written: 0,
            citations: 0,
            half: Half::default(),
            open: true,
        });
        self.pieces.len() - 1
    }

    pub(super) fn open_call(&mut self, kind: PartKind, batch: &mut Batch) {
        let piece = self.open(kind, Place::Arguments, 0, batch);
        if let What::Call(form) = self.what {
            batch.delta(self.pieces[piece].part, form.around().0);
        }
    }

    pub(super) fn identify(&self, id: Option<&str>, batch: &mut Batch) {
        if let (Some(id), [piece, ..]) = (id, &*self.pieces) {
            batch.annotate(piece.part, Annotation::ProviderId(id.into()));
        }
    }

    pub(super) fn delta(
        &mut self,
        piece: usize,
        text: &str,
        batch: &mut Batch,
    ) -> Result<(), ReadError> {
        if text.is_empty() {
            return Ok(());
        }
        let piece = &mut self.pieces[piece];
        if !piece.open {
            return Err(ReadError::Order("a part grew after it was done".into()));
        }
        piece.written += text.len();
        match self.what {
            What::Call(Form::Text | Form::Code) => {
                self.escaped.clear();
                escape(text, &mut self.escaped);
                batch.delta(piece.part, &self.escaped);
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

    /// Adds the end of the whole text that was not streamed.
    pub(super) fn complete(
        &mut self,
        piece: usize,
        whole: &str,
        batch: &mut Batch,
    ) -> Result<(), ReadError> {
        let written = self.pieces[piece].written;
        match whole.get(written..) {
            Some(rest) if self.pieces[piece].open => {
                if !rest.is_empty() {
                    self.pieces[piece].half = Half::default();
                }
                self.delta(piece, rest, batch)
            }
            // The final text differs from what was streamed: the streamed text stays.
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn close(&mut self, piece: usize, batch: &mut Batch) {
        let piece = &mut self.pieces[piece];
        if std::mem::take(&mut piece.open) {
            batch.delta(piece.part, piece.half.end());
            if let What::Call(form) = self.what {
                batch.delta(piece.part, form.around().1);
            }
            batch.finish(piece.part);
        }
    }

    pub(super) fn close_all(&mut self, batch: &mut Batch) {
        for piece in 0..self.pieces.len() {
            self.close(piece, batch);
        }
    }

    pub(super) fn cite(&mut self, piece: usize, citation: Value, batch: &mut Batch) {
        let piece = &mut self.pieces[piece];
        piece.citations += 1;
        if let Some(source) = source(&citation) {
            batch.event(Event::SourceCited(Box::new(source)));
        }
        batch.annotate(piece.part, Annotation::Citation(citation));
    }

    /// Completes the pieces in one list of an item, and replaces their text by the numbers of
    /// the parts that hold it.
    pub(super) fn finish_pieces(
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
            // If the final text differs from what was streamed, the final text is sent back.
            let words = if part.get("text").is_some() { "text" } else { "refusal" };
            if self.pieces[piece].written == text.len()
                && let Some(words) = part.get_mut(words)
            {
                *words = Value::from(piece);
            }
        }
        Ok(())
    }

    pub(super) fn finish_call(
        &mut self,
        mut item: Value,
        arguments: &str,
        batch: &mut Batch,
    ) -> Result<(), ReadError> {
        let text = match item.as_object_mut().and_then(|item| item.remove(arguments)) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text,
            // Some servers send the arguments themselves rather than their JSON text.
            Some(other) => other.to_string(),
        };
        self.complete(0, &text, batch)?;
        // An incomplete object is not valid JSON, so the call is not executed and the model
        // gets an error.
        if member(&item, "status") == Some("incomplete") {
            self.cut(batch);
        }
        self.close(0, batch);
        self.keep(item, batch);
        Ok(())
    }

    /// The output limit cut the arguments off. They stay incomplete.
    fn cut(&mut self, batch: &mut Batch) {
        let piece = &mut self.pieces[0];
        if std::mem::take(&mut piece.open) {
            if piece.written == 0 && self.what == What::Call(Form::Json) {
                batch.delta(piece.part, CUT_ARGUMENTS);
            }
            batch.finish(piece.part);
        }
    }

    pub(super) fn start_at_provider(&mut self, piece: usize, batch: &mut Batch) {
        if self.pieces[piece].open {
            self.close(piece, batch);
            batch.tool_started(self.pieces[piece].part);
        }
    }

    pub(super) fn finish_hosted(
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
            batch.tool_updated(self.pieces[0].part, update);
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
        let result = ToolResult::new(hosted.output(&item));
        batch.tool_finished(self.pieces[0].part, outcome, result);
        self.keep(item, batch);
        Ok(())
    }

    /// Annotates the first part with the item, so that it can be sent back.
    pub(super) fn keep(&self, item: Value, batch: &mut Batch) {
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

    /// Ends the item because the response has ended. Open text is closed; calls stay
    /// incomplete.
    pub(super) fn end(&mut self, completed: bool, batch: &mut Batch) -> Result<(), ReadError> {
        if self.done {
            return Ok(());
        }
        match self.what {
            What::Message | What::Reasoning => self.close_all(batch),
            What::Hosted | What::Call(_) if self.at_provider => {
                self.start_at_provider(0, batch);
                let result = ToolResult::default();
                batch.tool_finished(self.pieces[0].part, ToolOutcome::Interrupted, result);
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

/// Keeps an item without parts whole, as an opaque part.
pub(super) fn keep_opaque(item: Value, batch: &mut Batch) {
    let opaque = Opaque { origin: ORIGIN.into(), raw: item };
    let part = batch.start(PartKind::Opaque(Box::new(opaque)));
    batch.finish(part);
}

/// The text of a content part, under any of the names that its types use.
pub(super) fn spoken(part: &Value) -> Option<&str> {
    member(part, "text").or(member(part, "refusal"))
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
