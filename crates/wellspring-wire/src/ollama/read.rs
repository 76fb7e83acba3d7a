//! Reads lines of the stream, or a whole response, into a batch.

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
use crate::provider::scan::{Half, Quoted, Scan};
use crate::provider::surroundings::Surroundings;
use crate::provider::think_tags::{Held, Piece, ThinkTags};
use crate::provider::{
    AnswerReader, Failure, ReadError, ToolNames, mark, stop_reason, thought_text,
};

/// Reads one response.
#[derive(Debug, Default)]
pub struct Reader {
    names: ToolNames,
    /// The text, or thought, that the next line may extend.
    open: Option<(LocalPart, TextKind)>,
    tags: ThinkTags,
    called: bool,
    stopped: bool,
    scratch: String,
    /// A high surrogate at the end of the last line.
    half: Half,
    /// The bytes around the last piece of text.
    last: Surroundings<TextKind>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum TextKind {
    Thinking,
    Content,
}

impl Reader {
    /// Creates a reader for the answer to this request.
    #[must_use]
    pub fn new(request: &TurnRequest) -> Self {
        Self { names: ToolNames::new(NAMES, &request.tools), ..Self::default() }
    }

    /// Reads the most frequent line (a piece of text and nothing else) without a parser; `None`
    /// leaves it to the parser.
    fn hot_line(&mut self, data: &[u8], batch: &mut Batch) -> Option<()> {
        if let Some((voice, said)) = self.last.find(data) {
            return self.hear(voice, said, batch);
        }
        let (mut content, mut thinking) = (Quoted::default(), Quoted::default());
        let mut scan = Scan::new(data);
        scan.object(|key, scan| match key {
            b"message" => scan.object(|key, scan| {
                match key {
                    b"content" => content = scan.string()?,
                    b"thinking" | b"reasoning_content" => thinking = scan.string()?,
                    b"role" => scan.skip()?,
                    _ => return None,
                }
                Some(())
            }),
            b"model" => scan.skip(),
            b"created_at" => scan.vary(),
            b"done" => scan.boolean().filter(|done| !done).map(drop),
            _ => None,
        })?;
        scan.end()?;
        self.hear(TextKind::Thinking, thinking, batch)?;
        self.hear(TextKind::Content, content, batch)?;
        match (thinking == Quoted::default(), content == Quoted::default()) {
            (false, true) => self.last.learn(&scan, thinking, TextKind::Thinking),
            (true, false) => self.last.learn(&scan, content, TextKind::Content),
            (true, true) | (false, false) => {}
        }
        Some(())
    }

    /// Adds text as it is on the wire. It may end in a high surrogate, which no parser accepts.
    fn hear(&mut self, voice: TextKind, said: Quoted<'_>, batch: &mut Batch) -> Option<()> {
        if said == Quoted::default() {
            return Some(());
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let heard = if self.tags.is_watching() {
            said.text(&mut scratch, &mut self.half).map(|text| self.say(voice, text, batch))
        } else {
            let part = self.speaker(voice, batch);
            said.text(&mut scratch, &mut self.half).map(|text| batch.delta(part, text))
        };
        self.scratch = scratch;
        heard
    }

    fn say(&mut self, voice: TextKind, text: &str, batch: &mut Batch) {
        if text.is_empty() {
            return;
        }
        match voice {
            TextKind::Content if !self.tags.is_plain(text) => self.say_tagged(text, batch),
            TextKind::Content => self.add(voice, text, batch),
            // The server separates thoughts itself, so tags are text.
            TextKind::Thinking => {
                self.stop_tags(batch);
                self.add(voice, text, batch);
            }
        }
    }

    fn add(&mut self, voice: TextKind, text: &str, batch: &mut Batch) {
        if !text.is_empty() {
            let part = self.speaker(voice, batch);
            batch.delta(part, text);
        }
    }

    /// Adds text that may contain `<think>` tags.
    fn say_tagged(&mut self, text: &str, batch: &mut Batch) {
        let mut tags = std::mem::take(&mut self.tags);
        tags.push(text, |piece| match piece {
            Piece::Text(text) => self.add(TextKind::Content, text, batch),
            Piece::Thought(text) => self.add(TextKind::Thinking, text, batch),
            Piece::AllWasThought => {
                if let Some((part, TextKind::Content)) = self.open {
                    batch.annotate(part, Annotation::Preamble);
                    self.close_part(batch);
                }
            }
        });
        self.tags = tags;
    }

    /// Stops looking for tags. Text that was held back is added.
    fn stop_tags(&mut self, batch: &mut Batch) {
        if let Some((held, kind)) = self.tags.stop() {
            let voice = if kind == Held::Text { TextKind::Content } else { TextKind::Thinking };
            self.add(voice, &held, batch);
        }
    }

    /// The part that continues, or a new one if the kind of content changed.
    fn speaker(&mut self, voice: TextKind, batch: &mut Batch) -> LocalPart {
        if let Some((part, speaking)) = self.open
            && speaking == voice
        {
            return part;
        }
        self.close_part(batch);
        let part = match voice {
            TextKind::Content => batch.start(PartKind::TEXT),
            TextKind::Thinking => {
                let part = batch.start(PartKind::Thought);
                // Marks the thought as ours: thoughts of other providers are not sent back.
                batch.annotate(part, mark(ORIGIN, THINKING, Value::Bool(true)));
                part
            }
        };
        self.open = Some((part, voice));
        part
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
                // Some compatible servers send a string, as OpenAI does.
                Ok(text) => batch.delta(part, &text),
                Err(_) => batch.delta(part, arguments.get()),
            }
        }
        batch.finish(part);
    }

    fn close(&mut self, batch: &mut Batch) {
        self.stop_tags(batch);
        self.close_part(batch);
    }

    fn close_part(&mut self, batch: &mut Batch) {
        if let Some((part, _)) = self.open.take() {
            batch.delta(part, self.half.end());
            batch.finish(part);
        }
    }
}

impl AnswerReader for Reader {
    fn push(&mut self, frame: Frame<'_>, batch: &mut Batch) -> Result<(), ReadError> {
        // Lines after the end are ignored.
        if self.stopped {
            return Ok(());
        }
        if self.hot_line(frame.data, batch).is_some() {
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
            let names = [message.thinking, message.reasoning_content, message.reasoning];
            let thought = names.iter().flatten().map(thought_text).find(|it| !it.is_empty());
            self.say(TextKind::Thinking, &thought.unwrap_or_default(), batch);
            self.say(TextKind::Content, &message.content, batch);
            for call in message.tool_calls.unwrap_or_default() {
                self.call(&call, batch);
            }
            for image in message.images.unwrap_or_default() {
                // The wire does not give the format. Models that generate images generate PNG.
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
            let stop = match stop_reason(&line.done_reason) {
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

    /// Reads one object, or all lines at once from a server that streams with the wrong content
    /// type.
    fn whole(&mut self, body: &[u8], batch: &mut Batch) -> Result<(), ReadError> {
        let lines = serde_json::Deserializer::from_slice(body).into_iter::<&RawValue>();
        for line in lines {
            let line = line.map_err(ReadError::NotJson)?;
            self.push(Frame::data(line.get().as_bytes()), batch)?;
        }
        self.end(batch)
    }
}
