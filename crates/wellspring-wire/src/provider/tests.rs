//! Shared functions for the tests of the providers.

mod fast_paths;
mod maxima;
mod recorded;

use std::fmt::Write as _;
use std::sync::Arc;

use wellspring_core::{
    Batch, CallResult, Event, Message, MessagePart, ModelSettings, PartId, PartKind, Stop,
    ToolOutcome, ToolResult, TurnRequest, Usage, WirePartId,
};

use super::{AnswerReader, ReadError};
use crate::sse_reader::Framer;

/// The events that a reader returned for an answer.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Heard {
    pub(crate) events: Vec<Event>,
    pub(crate) stop: Option<(Stop, Option<Usage>)>,
    pub(crate) error: Option<String>,
}

impl Heard {
    fn take(&mut self, mut batch: Batch) {
        let stop = batch.take_stop();
        assert!(stop.is_none() || self.stop.is_none(), "it stopped twice");
        self.stop = stop.or(self.stop.take());
        self.events.extend(batch.into_events().map(|(_, event)| event));
    }

    fn failed(mut self, error: &ReadError) -> Self {
        self.error = Some(format!("{:?}: {error}", error.kind()));
        self
    }

    /// One line per event, and the end.
    pub(crate) fn lines(&self) -> String {
        let mut lines = String::new();
        for event in &self.events {
            let _ = writeln!(lines, "{event}");
        }
        if let Some((stop, usage)) = &self.stop {
            let ended = serde_json::to_string(&(stop, usage)).unwrap();
            let _ = writeln!(lines, "stop {ended}");
        }
        if let Some(error) = &self.error {
            let _ = writeln!(lines, "error {error}");
        }
        lines
    }

    /// The message that a conversation gets from it.
    pub(crate) fn message(&self) -> Message {
        let run = wellspring_testkit::RUN;
        let mut parts: Vec<MessagePart> = Vec::new();
        for event in &self.events {
            if let Event::PartStarted { part, kind } = event {
                parts.push(MessagePart {
                    id: WirePartId { run, part: *part },
                    kind: kind.clone(),
                    text: String::new(),
                    annotations: Vec::new(),
                });
            } else if let Event::PartDelta { part, chunk } = event {
                at(&mut parts, *part).text.push_str(chunk);
            } else if let Event::PartAnnotated { part, annotation } = event {
                at(&mut parts, *part).annotations.push((**annotation).clone());
            }
        }
        Message::Assistant { model: "test".into(), parts }
    }
}

fn at(parts: &mut [MessagePart], part: PartId) -> &mut MessagePart {
    &mut parts[part.0 as usize]
}

/// A request with default options.
pub(crate) fn request(messages: impl Into<Arc<[Message]>>) -> TurnRequest {
    TurnRequest {
        model: None,
        instructions: "".into(),
        messages: messages.into(),
        tools: Arc::from([]),
        streaming: true,
        settings: ModelSettings::default(),
    }
}

/// Reads chunks to the end of the stream.
pub(crate) fn stream<'c>(
    mut reader: impl AnswerReader,
    mut framer: Framer,
    chunks: impl IntoIterator<Item = &'c [u8]>,
) -> Heard {
    let mut heard = Heard::default();
    let mut batch = Batch::default();
    for mut chunk in chunks {
        while let Some(frame) = framer.next(&mut chunk).unwrap() {
            let read = reader.push(frame, &mut batch);
            if let Err(error) = read {
                heard.take(batch.take());
                return heard.failed(&error);
            }
        }
        heard.take(batch.take());
    }
    let read = match framer.end() {
        Some(frame) => reader.push(frame, &mut batch),
        None => Ok(()),
    };
    let read = read.and_then(|()| reader.end(&mut batch));
    heard.take(batch.take());
    match read {
        Ok(()) => heard,
        Err(error) => heard.failed(&error),
    }
}

/// Reads a whole stream, and checks its events against the engine's rules.
pub(crate) fn checked(reader: impl AnswerReader, framer: Framer, body: impl AsRef<[u8]>) -> Heard {
    let heard = stream(reader, framer, [body.as_ref()]);
    heard.check();
    heard
}

/// Reads an answer that was not streamed.
pub(crate) fn whole(mut reader: impl AnswerReader, body: &str) -> Heard {
    let mut heard = Heard::default();
    let mut batch = Batch::default();
    let read = reader.whole(body.as_bytes(), &mut batch);
    heard.take(batch.take());
    match read {
        Ok(()) => heard,
        Err(error) => heard.failed(&error),
    }
}

/// Reads a stream whole and cut in two at every byte, and asserts that the result is the same,
/// that no prefix of it counts as a complete answer, and that the parser reads the same as the
/// fast path.
pub(crate) fn stream_cut_anywhere<R: AnswerReader>(
    reader: impl Fn() -> R,
    framer: &Framer,
    body: &str,
) -> Heard {
    let all = cut_anywhere(&reader, framer, body);
    // The parser rejects lone surrogates.
    if !body.contains("\\ud") {
        assert_eq!(cut_anywhere(&reader, framer, &for_the_parser(body)), all, "by a parser");
    }
    all
}

/// The same stream, written so that no fast path accepts it: the first name in each event
/// contains an escape.
pub(crate) fn for_the_parser(body: &str) -> String {
    let mut spelled = String::new();
    for line in body.split_inclusive(['\n', '\r']) {
        let json = line.strip_prefix("data:").map_or(line, str::trim_start);
        let named = json.strip_prefix('{').map(str::trim_start).and_then(|it| it.strip_prefix('"'));
        match named.and_then(|named| Some((named, named.chars().next()?))) {
            Some((named, first)) if first.is_ascii_alphabetic() => {
                spelled.push_str(&line[..line.len() - named.len()]);
                let _ = write!(spelled, "\\u{:04x}{}", u32::from(first), &named[1..]);
            }
            _ => spelled.push_str(line),
        }
    }
    spelled
}

fn cut_anywhere<R: AnswerReader>(reader: &impl Fn() -> R, framer: &Framer, body: &str) -> Heard {
    let body = body.as_bytes();
    let all = stream(reader(), framer.clone(), [body]);
    let (events, _) = events(framer, [body]);
    let mut ends = ends(framer.clone(), body);
    ends.push(body.len());
    let (mut start, mut last) = (0, None);
    for (at, end) in ends.into_iter().enumerate() {
        for cut in start..=end {
            // Fields before and after an event do not change it.
            let (head, tail) = (&body[start..cut], &body[cut..end]);
            let whole = self::events(framer, [head, tail]).0;
            assert_eq!(whole, events.get(at).cloned().as_slice(), "cut at {cut}");
            // The reader's result depends only on the events.
            let (more, rest) = self::events(framer, [head]);
            let seen = Some((at + more.len(), rest));
            if seen == last {
                continue;
            }
            last = seen;
            let (head, tail) = body.split_at(cut);
            assert_eq!(stream(reader(), framer.clone(), [head, tail]), all, "cut at {cut}");
            let prefix = stream(reader(), framer.clone(), [head]);
            // Usage may arrive after the stop.
            let reason = |heard: &Heard| heard.stop.as_ref().map(|(stop, _)| stop.clone());
            assert!(prefix.stop.is_none() || reason(&prefix) == reason(&all), "cut off at {cut}");
            assert!(prefix.stop.is_some() || prefix.error.is_some(), "silent at {cut}");
        }
        start = end;
    }
    assert_eq!(stream(reader(), framer.clone(), body.chunks(1)), all, "byte by byte");
    all
}

/// The offset at which each event of a stream is complete.
fn ends(mut framer: Framer, body: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    for (at, mut byte) in body.chunks(1).enumerate() {
        while framer.next(&mut byte).unwrap().is_some() {
            ends.push(at + 1);
        }
    }
    ends
}

type Data = Vec<u8>;

/// The events in some chunks, with the incomplete one at the end of the stream.
fn events<'c>(
    framer: &Framer,
    chunks: impl IntoIterator<Item = &'c [u8]>,
) -> (Vec<(Data, Data)>, Option<Data>) {
    let mut framer = framer.clone();
    let mut events = Vec::new();
    for mut chunk in chunks {
        while let Some(frame) = framer.next(&mut chunk).unwrap() {
            events.push((frame.event.to_vec(), frame.data.to_vec()));
        }
    }
    let last = framer.end().map(|frame| frame.data.to_vec());
    (events, last)
}

impl Heard {
    /// The conversation that continues after this answer: every call of our tools has the
    /// result `done`.
    pub(crate) fn conversation(&self, question: &str) -> Vec<Message> {
        let said = self.message();
        let mut results = Vec::new();
        if let Message::Assistant { parts, .. } = &said {
            for part in parts {
                if let PartKind::ToolCall(call) = &part.kind
                    && call.runs_on.is_ours()
                {
                    results.push(CallResult {
                        call: part.id,
                        provider_id: part.provider_id().map(Into::into),
                        name: call.name.clone(),
                        outcome: ToolOutcome::Ok,
                        result: ToolResult::new("done"),
                    });
                }
            }
        }
        let mut messages = vec![Message::user(question), said];
        if !results.is_empty() {
            messages.push(Message::Results { results });
        }
        messages
    }

    /// Asserts the engine's rules for a model's events.
    pub(crate) fn check(&self) {
        let mut open = Vec::new();
        for event in &self.events {
            let about = |part: &PartId| part.0 as usize;
            if let Event::PartStarted { part, .. } = event {
                assert_eq!(about(part), open.len(), "parts count from 0");
                open.push(true);
            } else if let Event::PartDelta { part, chunk } = event {
                assert!(open[about(part)], "{event} names a closed part");
                assert!(!chunk.is_empty(), "a delta is empty");
            } else if let Event::PartFinished { part } = event {
                assert!(std::mem::take(&mut open[about(part)]), "{event} twice");
            } else if let Event::ToolStarted { call, .. }
            | Event::ToolUpdated { call, .. }
            | Event::ToolFinished { call, .. } = event
            {
                assert!(!open[about(call)], "{event} before its arguments are whole");
            } else if let Event::PartAnnotated { part, .. } = event {
                assert!(about(part) < open.len(), "{event} names no part");
            } else {
                let fits = matches!(
                    event,
                    Event::SourceCited(_)
                        | Event::FileProduced(_)
                        | Event::UsageReported(_)
                        | Event::Extended(_)
                );
                assert!(fits, "{event} is not a model's to say");
            }
        }
        assert!(self.stop.is_none() || !open.contains(&true), "a part is open at the end");
        assert!(self.stop.is_some() || self.error.is_some(), "it fell silent");
    }
}
