//! Reading: lines of the stream, or a whole response, into a batch.

use serde_json::Value;
use serde_json::value::RawValue;
use wellspring_core::{
    Annotation, Batch, Event, FileProduced, LocalPart, MediaSource, PartKind, Stop, TurnRequest,
    Usage,
};

use super::types::{Line, ToolCall};
use super::write::NAMES;
use super::{ORIGIN, THINKING};
use crate::Frame;
use crate::provider::scan::Scan;
use crate::provider::{AnswerReader, Failure, ReadError, ToolNames, mark};

/// Reads one response.
#[derive(Debug, Default)]
pub struct Reader {
    names: ToolNames,
    /// The text, or thought, that the next line may extend.
    open: Option<(LocalPart, Voice)>,
    called: bool,
    stopped: bool,
    scratch: String,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Voice {
    Thinking,
    Content,
}

impl Reader {
    /// For the answer to this request.
    #[must_use]
    pub fn new(request: &TurnRequest) -> Self {
        Self { names: ToolNames::new(NAMES, &request.tools), ..Self::default() }
    }

    /// The line that comes by the thousand, a few words and nothing else, read without a
    /// parser; `None` leaves it to one.
    fn content_line(&mut self, data: &[u8], batch: &mut Batch) -> Option<()> {
        let mut content = None;
        let mut scan = Scan::new(data);
        scan.object(|key, scan| match key {
            b"message" => scan.object(|key, scan| match key {
                b"content" => {
                    content = Some(scan.string()?);
                    Some(())
                }
                b"role" => scan.skip(),
                _ => None,
            }),
            b"model" | b"created_at" => scan.skip(),
            b"done" => scan.boolean().filter(|done| !done).map(|_| ()),
            _ => None,
        })?;
        scan.end()?;
        let Some((part, Voice::Content)) = self.open else { return None };
        batch.delta(part, content?.text(&mut self.scratch)?);
        Some(())
    }

    fn say(&mut self, voice: Voice, text: &str, batch: &mut Batch) {
        if text.is_empty() {
            return;
        }
        let part = match self.open {
            Some((part, speaking)) if speaking == voice => part,
            _ => {
                self.close(batch);
                let part = match voice {
                    Voice::Content => batch.start(PartKind::TEXT),
                    Voice::Thinking => {
                        let part = batch.start(PartKind::Thought);
                        // Says whose thought it is: another provider's does not go back.
                        batch.annotate(part, mark(ORIGIN, THINKING, Value::Bool(true)));
                        part
                    }
                };
                self.open = Some((part, voice));
                part
            }
        };
        batch.delta(part, text);
    }

    fn call(&mut self, call: &ToolCall<'_>, batch: &mut Batch) {
        self.close(batch);
        self.called = true;
        let part = batch.start(PartKind::call(self.names.ours(&call.function.name)));
        if let Some(id) = call.id.given() {
            batch.annotate(part, Annotation::ProviderId(id.into()));
        }
        if let Some(arguments) = call.function.arguments {
            match serde_json::from_str::<String>(arguments.get()) {
                // Servers that imitate it send a string, as OpenAI does.
                Ok(text) => batch.delta(part, &text),
                Err(_) => batch.delta(part, arguments.get()),
            }
        }
        batch.finish(part);
    }

    fn close(&mut self, batch: &mut Batch) {
        if let Some((part, _)) = self.open.take() {
            batch.finish(part);
        }
    }
}

impl AnswerReader for Reader {
    fn push(&mut self, frame: Frame<'_>, batch: &mut Batch) -> Result<(), ReadError> {
        // Nothing counts after the end.
        if self.stopped {
            return Ok(());
        }
        if self.content_line(frame.data, batch).is_some() {
            return Ok(());
        }
        let line: Line<'_> = match serde_json::from_slice(frame.data) {
            Ok(line) => line,
            Err(error) => {
                let Ok(value) = serde_json::from_slice(frame.data) else {
                    return Err(ReadError::NotJson(error));
                };
                batch.extended(ORIGIN, "line", value);
                return Ok(());
            }
        };
        if let Some(error) = line.error {
            return Err(ReadError::Failed(Failure::of_error(&error)));
        }
        if let Some(message) = line.message {
            self.say(Voice::Thinking, &message.thinking, batch);
            self.say(Voice::Thinking, &message.reasoning_content, batch);
            self.say(Voice::Content, &message.content, batch);
            for call in message.tool_calls.unwrap_or_default() {
                self.call(&call, batch);
            }
            for image in message.images.unwrap_or_default() {
                // The wire does not say which format; models that draw draw this one.
                batch.event(Event::FileProduced(Box::new(FileProduced {
                    media_type: "image/png".into(),
                    source: MediaSource::Data((*image).into()),
                    name: None,
                })));
            }
        }
        if line.done == Some(true) {
            self.stopped = true;
            self.close(batch);
            let stop = match line.done_reason.given() {
                Some("stop") | None if self.called => Stop::ToolCalls,
                Some("stop") | None => Stop::EndTurn,
                Some("length") => Stop::MaxTokens,
                Some(reason) => Stop::Other(reason.into()),
            };
            let counted = line.prompt_eval_count.or(line.eval_count).is_some();
            let usage = counted.then(|| Usage {
                provider: Some(ORIGIN.into()),
                model: line.model.given().map(Into::into),
                input: line.prompt_eval_count.unwrap_or(0),
                output: line.eval_count.unwrap_or(0),
                ..Usage::default()
            });
            batch.stop(stop, usage);
        }
        Ok(())
    }

    fn end(&mut self, _batch: &mut Batch) -> Result<(), ReadError> {
        if self.stopped { Ok(()) } else { Err(ReadError::Truncated) }
    }

    /// One object; or all the lines, from a server that streams under the wrong name.
    fn whole(&mut self, body: &[u8], batch: &mut Batch) -> Result<(), ReadError> {
        let lines = serde_json::Deserializer::from_slice(body).into_iter::<&RawValue>();
        for line in lines {
            let line = line.map_err(ReadError::NotJson)?;
            self.push(Frame::data(line.get().as_bytes()), batch)?;
        }
        self.end(batch)
    }
}
