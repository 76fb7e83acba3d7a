//! Reads events of the stream, or a whole response, into a batch.

mod fast_path;
mod item;
mod whole;

use serde_json::Value;
use wellspring_core::{
    Batch, Content, ContentChange, MediaSource, ToolContent, ToolUpdate, TurnRequest,
};

use super::ORIGIN;
use super::types::{Response, StreamEvent};
use super::write::NAMES;
use crate::Frame;
use crate::provider::surroundings::Surroundings;
use crate::provider::text::member;
use crate::provider::{AnswerReader, Failure, ReadError, ToolNames, stop_reason};
use item::{Form, Item, Place, What, spoken};

/// Items per response: as many as a turn may have parts.
pub const ITEMS_MAX: usize = 4096;

/// Reads one response.
#[derive(Debug, Default)]
pub struct Reader {
    names: ToolNames,
    /// In the order in which they started.
    items: Vec<Item>,
    model: Option<Box<str>>,
    /// Whether the model called a tool that runs here.
    called: bool,
    refused: bool,
    stopped: bool,
    scratch: String,
    /// The bytes around the last delta, and the item and piece that it extended. Reset by any
    /// other event.
    last: Surroundings<(usize, usize)>,
}

impl Reader {
    /// Creates a reader for the answer to this request.
    #[must_use]
    pub fn new(request: &TurnRequest) -> Self {
        Self { names: ToolNames::new(NAMES, &request.tools), ..Self::default() }
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
                // Some compatible servers omit the status that the event's name implies.
                if response.status.as_deref().and_then(stop_reason).is_none() {
                    response.status = Some(event.kind["response.".len()..].into());
                }
                self.finish(response, batch)
            }
            // The error's members are at the top level, or in an `error` as everywhere else.
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
            // A server that cannot stream may answer with a plain body.
            "" => match event.error {
                Some(error) => Err(ReadError::Failed(Failure::of_error(&error))),
                None => self.whole(data, batch),
            },
            name => {
                match hosted_status(name) {
                    Some(status)
                        if self.find(event.output_index, event.item_id.given()).is_some() =>
                    {
                        let data = Some(serde_json::json!({ "status": status }));
                        let update = ToolUpdate { data, ..ToolUpdate::default() };
                        self.update(&event, update, batch);
                    }
                    // The end of the item repeats this.
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

    /// The arguments are complete: the tool can start before the item ends.
    fn close_call(
        &mut self,
        event: &StreamEvent<'_>,
        form: Form,
        text: &str,
        batch: &mut Batch,
    ) -> Result<(), ReadError> {
        let (item, piece) = self.piece(event, What::Call(form), Place::Arguments, batch)?;
        self.items[item].complete(piece, text, batch)?;
        // For a call that we run, the item's status decides whether it is complete: if the
        // output limit cut its arguments off, the arguments are reported as done too.
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

    /// The item of an event: found by its index or by its id; otherwise the last one.
    fn find(&self, output_index: Option<u64>, item_id: Option<&str>) -> Option<usize> {
        let open = |item: &&Item| !item.done;
        let position = |found: &dyn Fn(&Item) -> bool| self.items.iter().rposition(found);
        match (output_index, item_id) {
            (Some(index), _) => position(&|item| item.index == Some(index)),
            (None, Some(id)) => position(&|item| &*item.id == id),
            (None, None) => position(&|item| open(&item)),
        }
    }

    /// The part of an event, opened if it was not announced.
    fn piece(
        &mut self,
        event: &StreamEvent<'_>,
        what: What,
        place: Place,
        batch: &mut Batch,
    ) -> Result<(usize, usize), ReadError> {
        let item = match self.find(event.output_index, event.item_id.given()) {
            Some(item) => item,
            None if place == Place::Arguments => {
                return Err(ReadError::Order(
                    "arguments arrived for a call that was not announced".into(),
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
            escaped: String::new(),
            done: false,
        });
        Ok(self.items.len() - 1)
    }

    fn update(&mut self, event: &StreamEvent<'_>, update: ToolUpdate, batch: &mut Batch) {
        if let Some(at) = self.find(event.output_index, event.item_id.given())
            && let [piece] = &*self.items[at].pieces
            && !piece.open
            && !self.items[at].done
        {
            batch.tool_updated(piece.part, update);
        }
    }
}

impl AnswerReader for Reader {
    fn push(&mut self, frame: Frame<'_>, batch: &mut Batch) -> Result<(), ReadError> {
        let data = frame.data;
        // Events after the end are ignored.
        if self.stopped {
            return Ok(());
        }
        if let Some(read) = self.hot(data, batch) {
            return read;
        }
        self.last.forget();
        let error = match serde_json::from_slice::<StreamEvent<'_>>(data) {
            Ok(event) => return self.read(event, data, batch),
            Err(_) if data.trim_ascii() == b"[DONE]" => return Ok(()),
            Err(error) => error,
        };
        // An event whose members have unexpected types is treated as unknown.
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
        // Some compatible servers omit the status, but an empty response is not an answer.
        let said = response.output.as_ref().is_some_and(|output| !output.is_empty());
        if response.status.is_none() && response.error.is_none() && !said {
            return Err(ReadError::Truncated);
        }
        self.finish(response, batch)
    }
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
