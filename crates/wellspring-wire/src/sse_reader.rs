//! Splits bytes into events: server-sent events, or one JSON value per line.
//!
//! A [`Framer`] takes the chunks of a body as the network delivers them, and yields one [`Frame`]
//! after another. A frame within one chunk is borrowed from it; only frames that cross chunks are
//! copied. Lines are kept as bytes until they are complete, so a character that is split between
//! chunks is not a problem.
//!
//! ```
//! use wellspring_wire::Framer;
//!
//! let mut framer = Framer::sse();
//! let mut seen = Vec::new();
//! for mut chunk in [&b"event: ping\ndata: {\"a\""[..], b":1}\r\n\r\ndata: x\n\n"] {
//!     while let Some(frame) = framer.next(&mut chunk)? {
//!         seen.push((frame.event.to_vec(), frame.data.to_vec()));
//!     }
//! }
//! assert_eq!(seen, [(b"ping".to_vec(), b"{\"a\":1}".to_vec()), (vec![], b"x".to_vec())]);
//! # Ok::<(), wellspring_wire::FrameError>(())
//! ```
//!
//! # What is deliberately absent
//!
//! IO, and the meaning of the data. The framer does not check that data are UTF-8; the parser
//! that decodes a string does.

use memchr::{memchr, memchr2};

/// Default maximum size of one event. The largest events that providers send are images and
/// documents in base64, of a few megabytes. The limit keeps a peer that never ends an event
/// from filling the memory.
pub const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// One event of a stream.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Frame<'a> {
    /// Its name; empty if it has none. Lines of JSON never have one.
    pub event: &'a [u8],
    /// Its data, several lines joined by line feeds.
    pub data: &'a [u8],
}

impl<'a> Frame<'a> {
    /// An event without a name.
    #[must_use]
    pub fn data(data: &'a [u8]) -> Self {
        Self { event: b"", data }
    }
}

/// A stream that cannot be split into events.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// An event exceeds the limit.
    #[error("an event has more than {max} bytes")]
    TooLarge {
        /// The limit.
        max: usize,
    },
}

/// Splits the chunks of a body into events.
///
/// After an error it returns the same error again.
#[derive(Clone, Debug)]
pub struct Framer {
    format: Format,
    event_bytes_max: usize,
    /// The start of a line that is not complete yet.
    line: Vec<u8>,
    /// The name of an event that started in an earlier chunk.
    event: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// Bytes of this event's lines so far, in this chunk and earlier ones.
    event_bytes: usize,
    /// The last chunk ended in CR: a following LF belongs to it.
    skip_lf: bool,
    at_start: bool,
    /// The buffers were returned as a frame and can be cleared.
    given: bool,
    last_id: Vec<u8>,
    retry_millis: Option<u64>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Format {
    Sse,
    Ndjson,
}

impl Framer {
    /// Splits server-sent events.
    #[must_use]
    pub fn sse() -> Self {
        Self::new(Format::Sse)
    }

    /// Splits one JSON value per line.
    #[must_use]
    pub fn ndjson() -> Self {
        Self::new(Format::Ndjson)
    }

    /// Whether it splits lines of JSON rather than server-sent events.
    #[must_use]
    pub fn is_ndjson(&self) -> bool {
        self.format == Format::Ndjson
    }

    fn new(format: Format) -> Self {
        Self {
            format,
            event_bytes_max: EVENT_BYTES_MAX,
            line: Vec::new(),
            event: Vec::new(),
            data: Vec::new(),
            has_data: false,
            event_bytes: 0,
            skip_lf: false,
            at_start: true,
            given: false,
            last_id: Vec::new(),
            retry_millis: None,
        }
    }

    /// Replaces the default limit [`EVENT_BYTES_MAX`].
    #[must_use]
    pub fn event_bytes_max(mut self, bytes: usize) -> Self {
        self.event_bytes_max = bytes;
        self
    }

    /// The id of the last event that had one, to resume from.
    #[must_use]
    pub fn last_id(&self) -> &[u8] {
        &self.last_id
    }

    /// The reconnect delay, if the peer has sent one.
    #[must_use]
    pub fn retry_millis(&self) -> Option<u64> {
        self.retry_millis
    }

    /// Returns the next event and removes it from the front of `input`; `None` if it holds no
    /// complete event.
    ///
    /// # Errors
    ///
    /// If an event exceeds the limit.
    pub fn next<'f, 'i: 'f>(
        &'f mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Frame<'f>>, FrameError> {
        self.forget_given();
        match self.format {
            Format::Sse => self.next_event(input),
            Format::Ndjson => self.next_line(input),
        }
    }

    /// Returns the event that was incomplete when the body ended.
    ///
    /// The standard for server-sent events drops it. But some servers omit the last empty line,
    /// and a JSON parser can tell a complete event from a truncated one.
    pub fn end(&mut self) -> Option<Frame<'_>> {
        self.forget_given();
        self.given = true;
        let line = std::mem::take(&mut self.line);
        let line = if self.at_start { line.strip_prefix(BOM).unwrap_or(&line) } else { &line };
        match self.format {
            Format::Sse => self.keep_field(line),
            Format::Ndjson => {
                self.data.extend_from_slice(line);
                self.has_data = !self.data.trim_ascii().is_empty();
            }
        }
        self.has_data.then_some(Frame { event: &self.event, data: &self.data })
    }

    fn next_event<'f, 'i: 'f>(
        &'f mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Frame<'f>>, FrameError> {
        // The name of an event that started in this chunk.
        let mut event: Option<&'i [u8]> = None;
        let mut data: Option<&'i [u8]> = None;
        if self.skip_lf && !input.is_empty() {
            self.skip_lf = false;
            *input = input.strip_prefix(b"\n").unwrap_or(input);
        }
        while let Some(end) = memchr2(b'\n', b'\r', input) {
            self.check(self.event_bytes + self.line.len() + end)?;
            let (head, tail) = input.split_at(end);
            // CR, LF, or both. If the chunk ends between the two, the next chunk decides.
            *input = match tail {
                [b'\r', b'\n', rest @ ..] => rest,
                [_, rest @ ..] => {
                    self.skip_lf = tail == b"\r";
                    rest
                }
                [] => tail,
            };
            let carried = !self.line.is_empty();
            if !carried && head.is_empty() && !self.at_start {
                self.event_bytes = 0;
                if data.is_some() || self.has_data {
                    self.given = true;
                    return Ok(Some(Frame {
                        event: event.unwrap_or(&self.event),
                        data: data.unwrap_or(&self.data),
                    }));
                }
                event = None;
                self.event.clear();
                continue;
            }
            if carried {
                self.line.extend_from_slice(head);
                let mut line = std::mem::take(&mut self.line);
                // Everything earlier in this event is already kept: only the end of a chunk
                // splits a line, and this is the first line after one.
                self.keep_line(&line);
                line.clear();
                self.line = line;
                continue;
            }
            let head = self.after_bom(head);
            match Field::of(head) {
                Field::Data(value) if data.is_none() && !self.has_data => data = Some(value),
                Field::Data(value) => {
                    if let Some(first) = data.take() {
                        self.keep_data(first);
                    }
                    self.keep_data(value);
                }
                Field::Event(value) => event = Some(value),
                Field::Comment => continue,
                other @ (Field::Id(_) | Field::Retry(_) | Field::Unknown) => self.note(other),
            }
            self.event_bytes += head.len();
        }
        self.check(self.event_bytes + self.line.len() + input.len())?;
        if let Some(event) = event {
            self.event.clear();
            self.event.extend_from_slice(event);
        }
        if let Some(data) = data {
            self.keep_data(data);
        }
        self.line.extend_from_slice(input);
        *input = &[];
        Ok(None)
    }

    fn next_line<'f, 'i: 'f>(
        &'f mut self,
        input: &mut &'i [u8],
    ) -> Result<Option<Frame<'f>>, FrameError> {
        while let Some(end) = memchr(b'\n', input) {
            self.check(self.line.len() + end)?;
            let (head, tail) = input.split_at(end);
            *input = &tail[1..];
            if self.line.is_empty() {
                let line = self.after_bom(head);
                if !line.trim_ascii().is_empty() {
                    self.given = true;
                    return Ok(Some(Frame::data(without_cr(line))));
                }
                continue;
            }
            // The buffers are swapped, so that the line is cleared once it was read.
            self.line.extend_from_slice(head);
            std::mem::swap(&mut self.line, &mut self.data);
            let bom = if std::mem::take(&mut self.at_start) { BOM.len() } else { 0 };
            let start = if self.data.starts_with(BOM) { bom } else { 0 };
            if self.data[start..].trim_ascii().is_empty() {
                self.data.clear();
                continue;
            }
            self.given = true;
            return Ok(Some(Frame::data(without_cr(&self.data[start..]))));
        }
        self.check(self.line.len() + input.len())?;
        self.line.extend_from_slice(input);
        *input = &[];
        Ok(None)
    }

    /// Reads a line that crosses chunks: nothing can be borrowed from it.
    fn keep_line(&mut self, line: &[u8]) {
        let line = self.after_bom(line);
        if !line.starts_with(b":") {
            self.event_bytes += line.len();
        }
        self.keep_field(line);
    }

    fn keep_field(&mut self, line: &[u8]) {
        match Field::of(line) {
            Field::Data(value) => self.keep_data(value),
            Field::Event(value) => {
                self.event.clear();
                self.event.extend_from_slice(value);
            }
            other @ (Field::Id(_) | Field::Retry(_) | Field::Unknown | Field::Comment) => {
                self.note(other);
            }
        }
    }

    fn keep_data(&mut self, value: &[u8]) {
        if self.has_data {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
        self.has_data = true;
    }

    fn note(&mut self, field: Field<'_>) {
        match field {
            Field::Id(id) => {
                self.last_id.clear();
                self.last_id.extend_from_slice(id);
            }
            Field::Retry(millis) => self.retry_millis = Some(millis),
            Field::Data(_) | Field::Event(_) | Field::Comment | Field::Unknown => {}
        }
    }

    fn after_bom<'l>(&mut self, line: &'l [u8]) -> &'l [u8] {
        if std::mem::take(&mut self.at_start) {
            line.strip_prefix(BOM).unwrap_or(line)
        } else {
            line
        }
    }

    fn forget_given(&mut self) {
        if std::mem::take(&mut self.given) {
            self.event.clear();
            self.data.clear();
            self.has_data = false;
        }
    }

    fn check(&self, bytes: usize) -> Result<(), FrameError> {
        let max = self.event_bytes_max;
        if bytes > max { Err(FrameError::TooLarge { max }) } else { Ok(()) }
    }
}

fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

enum Field<'a> {
    Data(&'a [u8]),
    Event(&'a [u8]),
    Id(&'a [u8]),
    Retry(u64),
    Comment,
    /// An unknown field, or an invalid value.
    Unknown,
}

impl<'a> Field<'a> {
    fn of(line: &'a [u8]) -> Self {
        // Nearly every line is one of these two.
        if let Some(value) = line.strip_prefix(b"data:") {
            return Self::Data(without_space(value));
        }
        if let Some(value) = line.strip_prefix(b"event:") {
            return Self::Event(without_space(value));
        }
        let (name, value) = match memchr(b':', line) {
            Some(0) => return Self::Comment,
            Some(colon) => (&line[..colon], without_space(&line[colon + 1..])),
            None => (line, &line[line.len()..]),
        };
        match name {
            b"data" => Self::Data(value),
            b"event" => Self::Event(value),
            b"id" if !value.contains(&0) => Self::Id(value),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let millis = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                millis.map_or(Self::Unknown, Self::Retry)
            }
            _ => Self::Unknown,
        }
    }
}

fn without_space(value: &[u8]) -> &[u8] {
    value.strip_prefix(b" ").unwrap_or(value)
}

#[cfg(test)]
mod tests;
