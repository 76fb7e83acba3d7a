//! The body of an answer: its form is recognised, and it is read into events, as it arrives or whole.

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use serde_json::value::RawValue;
use wellspring_core::{AttemptStream, Batch, FailureKind, ModelError};
use wellspring_wire::provider::{AnswerReader, stop_by_usage};
use wellspring_wire::{Frame, Framer};

use super::error::{broken, failed, too_long};
use super::{ANSWER_BYTES_MAX, LINGER};

/// Bytes needed to recognise the form of an answer: the longest field name of an event stream.
const START_BYTES: usize = "event:".len();

/// Bytes of leading white space in an answer. Some servers send spaces to keep a connection
/// open while the model reads the prompt.
const BLANK_BYTES_MAX: usize = 64 * 1024;

/// Bytes of an unrecognised answer that an error shows.
const SHOWN_BYTES_MAX: usize = 200;

/// The form of an answer, recognised by its first bytes. Servers send errors as plain JSON to
/// streaming requests, stream to non-streaming ones, and may send the wrong content type for
/// both.
pub(super) enum Form {
    /// JSON that is read at its end: one value, or several.
    Whole,
    Stream(Framer),
    /// Anything else, such as a page of HTML.
    Unknown,
}

/// A response body whose first bytes were already read.
pub(super) struct Body {
    response: Response,
    content_type: String,
    /// Bytes that were read and not used yet.
    begun: Option<Bytes>,
}

impl Body {
    pub(super) async fn begin(
        mut response: Response,
        streaming: bool,
        asked: Framer,
    ) -> Result<(Self, Form), reqwest::Error> {
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
        // The head is not needed any more, and keeping it would keep the buffer that it was
        // read into.
        response.headers_mut().clear();
        let mut begun = Vec::new();
        let mut first = None;
        while start_of(&begun).len() < START_BYTES && begun.len() < BLANK_BYTES_MAX {
            let Some(chunk) = response.chunk().await? else { break };
            begun.extend_from_slice(&chunk);
            // Usually one chunk is enough and need not be copied.
            first = if begun.len() == chunk.len() { Some(chunk) } else { None };
        }
        let form = form(start_of(&begun), &content_type, streaming, asked);
        let begun = first.unwrap_or_else(|| begun.into());
        Ok((Self { response, content_type, begun: Some(begun) }, form))
    }

    /// For an answer that is always read to its end.
    pub(super) fn unread(response: Response) -> Self {
        Self { response, content_type: String::new(), begun: None }
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, reqwest::Error> {
        match self.begun.take().filter(|begun| !begun.is_empty()) {
            Some(begun) => Ok(Some(begun)),
            None => self.response.chunk().await,
        }
    }

    /// Describes an unrecognised answer for an error.
    pub(super) fn shown(&self) -> String {
        let begun = self.begun.as_deref().unwrap_or_default();
        let text = String::from_utf8_lossy(&begun[..begun.len().min(SHOWN_BYTES_MAX)]);
        let kind =
            if self.content_type.is_empty() { "no content type" } else { &self.content_type };
        format!("sent a response that is not an answer ({kind}): {:?}", text.trim())
    }
}

fn form(start: &[u8], content_type: &str, streaming: bool, asked: Framer) -> Form {
    const FIELDS: [&str; 5] = ["data:", "event:", "id:", "retry:", ":"];
    let is = |kind: &str| content_type.trim_start().starts_with(kind);
    let lines = ["application/x-ndjson", "application/jsonl", "application/x-jsonlines"];
    match start.first() {
        // The reader reports what an empty answer lacks.
        None => Form::Stream(asked),
        Some(_) if FIELDS.iter().any(|field| start.starts_with(field.as_bytes())) => {
            Form::Stream(Framer::sse())
        }
        Some(_) if lines.iter().any(|kind| is(kind)) => Form::Stream(Framer::ndjson()),
        Some(b'{' | b'[') if asked.is_ndjson() && streaming && !is("application/json") => {
            Form::Stream(asked)
        }
        Some(b'{' | b'[') => Form::Whole,
        Some(_) if is("text/event-stream") => Form::Stream(Framer::sse()),
        Some(_) => Form::Unknown,
    }
}

/// A body without leading white space and byte order mark.
fn start_of(body: &[u8]) -> &[u8] {
    body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body).trim_ascii_start()
}

/// Corrects the stop of an answer that the output limit cut off, if the server reports it as
/// complete.
pub(super) fn corrected(mut batch: Batch, output_limit: Option<u64>) -> Batch {
    if let Some((stop, usage)) = batch.take_stop() {
        batch.stop(stop_by_usage(stop, usage.as_ref(), output_limit), usage);
    }
    batch
}

/// Reads an answer that was not streamed, or a streamed one that came as a JSON list or as
/// lines.
pub(super) async fn whole(
    provider: Box<str>,
    body: Body,
    mut reader: Box<dyn AnswerReader>,
) -> Result<Batch, ModelError> {
    let (body, ended) = read_at_most(body, ANSWER_BYTES_MAX).await;
    ended.map_err(|error| match error {
        Some(error) => broken(&provider, "broke off", error),
        None => too_long(&provider, ANSWER_BYTES_MAX),
    })?;
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&body);
    let mut batch = Batch::default();
    let read = match pieces(body) {
        Some(pieces) => pieces
            .iter()
            .try_for_each(|piece| reader.push(Frame::data(piece.get().as_bytes()), &mut batch))
            .and_then(|()| reader.end(&mut batch)),
        None => reader.whole(body, &mut batch),
    };
    read.map_err(|error| failed(&provider, error))?;
    Ok(batch)
}

/// The events of a streamed answer that came as a JSON list, or as several JSON values. `None`
/// if the body is one object, or is not JSON.
fn pieces(body: &[u8]) -> Option<Vec<&RawValue>> {
    if start_of(body).first() == Some(&b'[') {
        return serde_json::from_slice(body).ok();
    }
    let values = serde_json::Deserializer::from_slice(body).into_iter::<&RawValue>();
    let values: Vec<&RawValue> = values.collect::<Result<_, _>>().ok()?;
    (values.len() > 1).then_some(values)
}

/// A streamed answer that is being read.
pub(super) struct Answer {
    provider: Box<str>,
    body: Body,
    framer: Framer,
    reader: Box<dyn AnswerReader>,
    batch: Batch,
    bytes: usize,
}

impl Answer {
    pub(super) fn stream(
        provider: Box<str>,
        body: Body,
        framer: Framer,
        reader: Box<dyn AnswerReader>,
    ) -> AttemptStream {
        let answer = Self { provider, body, framer, reader, batch: Batch::default(), bytes: 0 };
        // The state moves with every item, so it is boxed.
        stream::unfold(Some(Box::new(answer)), |answer| async move {
            let mut answer = answer?;
            match answer.next().await {
                // Dropping the answer closes the connection. Nothing is read after an error.
                Err(error) => Some((Err(error), None)),
                Ok(Next::More(batch)) => Some((Ok(batch), Some(answer))),
                Ok(Next::Last(batch)) => Some((Ok(batch), None)),
            }
        })
        .boxed()
    }

    /// Reads until there are events or the answer ends.
    async fn next(&mut self) -> Result<Next, ModelError> {
        loop {
            let chunk = self.body.chunk().await;
            let chunk = chunk.map_err(|error| broken(&self.provider, "broke off", error))?;
            let Some(chunk) = chunk else { return self.end().map(Next::Last) };
            self.read(&chunk)?;
            if self.batch.is_stopped() {
                self.linger().await;
                return Ok(Next::Last(self.batch.take()));
            }
            if !self.batch.is_empty() {
                return Ok(Next::More(self.batch.take()));
            }
        }
    }

    fn read(&mut self, chunk: &Bytes) -> Result<(), ModelError> {
        self.bytes += chunk.len();
        if self.bytes > ANSWER_BYTES_MAX {
            return Err(too_long(&self.provider, ANSWER_BYTES_MAX));
        }
        let mut rest = &chunk[..];
        loop {
            let frame = self.framer.next(&mut rest).map_err(|error| {
                ModelError::new(
                    &*self.provider,
                    FailureKind::Protocol,
                    "sent an event that is too large",
                )
                .because(error)
            })?;
            let Some(frame) = frame else { return Ok(()) };
            let read = self.reader.push(frame, &mut self.batch);
            read.map_err(|error| failed(&self.provider, error))?;
        }
    }

    fn end(&mut self) -> Result<Batch, ModelError> {
        let last = match self.framer.end() {
            Some(frame) => self.reader.push(frame, &mut self.batch),
            None => Ok(()),
        };
        let end = last.and_then(|()| self.reader.end(&mut self.batch));
        end.map_err(|error| failed(&self.provider, error))?;
        Ok(self.batch.take())
    }

    /// Waits up to [`LINGER`] for the end of the body.
    async fn linger(&mut self) {
        let rest = async { while let Ok(Some(_)) = self.body.chunk().await {} };
        let _ = tokio::time::timeout(LINGER, rest).await;
    }
}

enum Next {
    More(Batch),
    Last(Batch),
}

/// Reads the body up to a limit. An error holds the connection's error, or `None` if the limit
/// was reached.
pub(super) async fn read_at_most(
    mut from: Body,
    max: usize,
) -> (Vec<u8>, Result<(), Option<reqwest::Error>>) {
    let mut body = Vec::new();
    loop {
        match from.chunk().await {
            Ok(None) => return (body, Ok(())),
            Ok(Some(chunk)) if body.len() + chunk.len() > max => {
                body.extend_from_slice(&chunk[..max - body.len()]);
                return (body, Err(None));
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Err(error) => return (body, Err(Some(error))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of endless, valid keep-alives is limited.
    #[tokio::test]
    async fn an_answer_has_an_end() {
        let chunk = Bytes::from(format!(": {}\n", "x".repeat(1024 * 1024)));
        let count = ANSWER_BYTES_MAX / chunk.len() + 1;
        let read = async |chunks: usize| {
            let chunk = chunk.clone();
            let chunks =
                stream::iter(0..chunks).map(move |_| Ok::<_, std::io::Error>(chunk.clone()));
            let body = reqwest::Body::wrap_stream(chunks);
            let response = Response::from(hyper::Response::new(body));
            let reader = Box::new(wellspring_wire::anthropic::Reader::default());
            let body = Body::unread(response);
            let mut answer = Answer::stream("acme".into(), body, Framer::sse(), reader);
            answer.next().await.unwrap().unwrap_err().to_string()
        };
        let ended = "acme: the answer ended before the model had stopped";
        assert_eq!(read(count - 1).await, ended);
        assert_eq!(read(count).await, format!("acme: sent more than {ANSWER_BYTES_MAX} bytes"));
    }
}
