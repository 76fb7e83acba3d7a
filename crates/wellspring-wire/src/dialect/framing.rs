//! How events are framed on a wire.
//!
//! A socket that carries messages needs no framing: each of [`Out::events`] is a message. But
//! frames are stored framed, so [`Framing::events`] splits them again.

use crate::dialect::out::Out;
use crate::dialect::position::WirePosition;

/// The framing of a stream of events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Framing {
    /// How each event is delimited.
    pub shape: Shape,
    /// The `Content-Type` of a response.
    pub content_type: &'static str,
    /// Further response headers that clients expect.
    pub headers: &'static [(&'static str, &'static str)],
    /// A marker after the last event, framed like an event, for clients that wait for one.
    pub marker: Option<&'static str>,
}

/// How events are delimited.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shape {
    /// Server-sent events: an `id:` for events with a position, an `event:` for those with a
    /// name, and `data:`.
    Sse,
    /// One line per event.
    Lines,
    /// Nothing: the events delimit themselves.
    Bare,
}

/// Whether readers get the positions of events, so that they can resume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Positions {
    /// Each event has its position.
    Told,
    /// The events belong to no record and have no position.
    Absent,
}

/// One event of framed bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FramedEvent<'a> {
    /// The position after this event, as written on the wire; `None` if it has none.
    pub position: Option<&'a str>,
    /// Its name, if it has one.
    pub name: Option<&'a str>,
    /// The event.
    pub data: &'a [u8],
}

impl Framing {
    /// Server-sent events without further headers or a marker.
    pub const SSE: Self =
        Self { shape: Shape::Sse, content_type: "text/event-stream", headers: &[], marker: None };

    /// A line of JSON for each event.
    pub const LINES: Self = Self {
        shape: Shape::Lines,
        content_type: "application/x-ndjson",
        headers: &[],
        marker: None,
    };

    /// Frames the events.
    #[must_use]
    pub fn frame(self, out: &Out, positions: Positions) -> Vec<u8> {
        if out.is_empty() {
            return Vec::new();
        }
        // The bytes of "id: ", "data: ", three line breaks and a position of usual length.
        let around = if self.shape == Shape::Sse { 24 } else { 1 };
        let mut bytes = Vec::with_capacity(out.bytes_len() + out.len() * around);
        let mut names = out.names().peekable();
        for (index, (position, event)) in out.events().enumerate() {
            match self.shape {
                Shape::Sse => {
                    if positions == Positions::Told {
                        bytes.extend_from_slice(b"id: ");
                        put_position(&mut bytes, position);
                        bytes.push(b'\n');
                    }
                    if let Some((_, name)) = names.next_if(|(named, _)| *named == index) {
                        bytes.extend_from_slice(b"event: ");
                        bytes.extend_from_slice(name.as_bytes());
                        bytes.push(b'\n');
                    }
                    self.event(event, &mut bytes);
                }
                Shape::Lines | Shape::Bare => self.event(event, &mut bytes),
            }
        }
        bytes
    }

    /// Splits bytes that were [framed](Framing::frame) into events, for a socket that carries
    /// each as a message. Events that delimit themselves cannot be split: the iterator is
    /// empty.
    pub fn events(self, bytes: &[u8]) -> impl Iterator<Item = FramedEvent<'_>> {
        let mut rest = bytes;
        let mut event = FramedEvent { position: None, name: None, data: b"" };
        std::iter::from_fn(move || {
            loop {
                let end = memchr::memchr(b'\n', rest).filter(|_| self.shape != Shape::Bare)?;
                let line = &rest[..end];
                rest = &rest[end + 1..];
                let text = |field: &'static str| {
                    let value = line.strip_prefix(field.as_bytes());
                    value.and_then(|value| std::str::from_utf8(value).ok())
                };
                if self.shape == Shape::Lines {
                    return Some(FramedEvent { position: None, name: None, data: line });
                } else if let Some(data) = line.strip_prefix(b"data: ") {
                    event.data = data;
                } else if let Some(position) = text("id: ") {
                    event.position = Some(position);
                } else if let Some(name) = text("event: ") {
                    event.name = Some(name);
                } else if line.is_empty() && !event.data.is_empty() {
                    let none = FramedEvent { position: None, name: None, data: b"" };
                    return Some(std::mem::replace(&mut event, none));
                }
            }
        })
    }

    /// The bytes after the last event of a stream; empty for most framings.
    #[must_use]
    pub fn end(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(marker) = self.marker {
            self.event(marker.as_bytes(), &mut bytes);
        }
        bytes
    }

    /// The bytes that tell a client how long to wait before it reconnects, if the framing can
    /// express that.
    #[must_use]
    pub fn retry(self, millis: u32) -> Option<String> {
        (self.shape == Shape::Sse).then(|| format!("retry: {millis}\n\n"))
    }

    /// The bytes that keep an idle connection open, if the framing has any.
    #[must_use]
    pub fn keep_alive(self) -> Option<&'static [u8]> {
        match self.shape {
            Shape::Sse => Some(b": keep-alive\n\n"),
            Shape::Lines | Shape::Bare => None,
        }
    }

    /// Appends one event. JSON contains no line breaks.
    fn event(self, event: &[u8], bytes: &mut Vec<u8>) {
        let (before, after): (&[u8], &[u8]) = match self.shape {
            Shape::Sse => (b"data: ", b"\n\n"),
            Shape::Lines => (b"", b"\n"),
            Shape::Bare => (b"", b""),
        };
        bytes.extend_from_slice(before);
        bytes.extend_from_slice(event);
        bytes.extend_from_slice(after);
    }
}

fn put_position(bytes: &mut Vec<u8>, position: WirePosition) {
    put_number(bytes, position.seq.0);
    if let Some(k) = position.k {
        bytes.push(b'.');
        put_number(bytes, u64::from(k));
    }
}

/// Appends decimal digits without `format!`: this runs once per event.
fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    bytes.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wellspring_core::Seq;

    use super::*;

    fn some() -> Out {
        let mut out = Out::default();
        out.begin(Seq(7));
        out.event(&"first");
        out.named("closed", &"second");
        out
    }

    fn framed(framing: Framing, positions: Positions) -> String {
        String::from_utf8(framing.frame(&some(), positions)).unwrap()
    }

    #[test]
    fn every_shape() {
        let sse = Framing { marker: Some("[DONE]"), ..Framing::SSE };
        assert_eq!(
            framed(sse, Positions::Told),
            "id: 7.1\ndata: \"first\"\n\nid: 7\nevent: closed\ndata: \"second\"\n\n"
        );
        assert_eq!(
            framed(sse, Positions::Absent),
            "data: \"first\"\n\nevent: closed\ndata: \"second\"\n\n"
        );
        assert_eq!(sse.end(), b"data: [DONE]\n\n");
        assert_eq!(framed(Framing::LINES, Positions::Told), "\"first\"\n\"second\"\n");
        assert_eq!(Framing::LINES.end(), b"");
        let bare = Framing { shape: Shape::Bare, ..Framing::LINES };
        assert_eq!(framed(bare, Positions::Told), "\"first\"\"second\"");
    }

    #[test]
    fn frames_are_taken_apart_again() {
        let events = |framing: Framing, positions| -> Vec<_> {
            let bytes = framing.frame(&some(), positions);
            let string = |it: Option<&str>| it.map(str::to_owned);
            framing
                .events(&bytes)
                .map(|it| (string(it.position), string(it.name), it.data.to_vec()))
                .collect()
        };
        let (first, second) = (b"\"first\"".to_vec(), b"\"second\"".to_vec());
        let closed = Some("closed".to_owned());
        assert_eq!(
            events(Framing::SSE, Positions::Told),
            [
                (Some("7.1".to_owned()), None, first.clone()),
                (Some("7".to_owned()), closed.clone(), second.clone()),
            ]
        );
        let unplaced = [(None, None, first.clone()), (None, closed, second.clone())];
        assert_eq!(events(Framing::SSE, Positions::Absent), unplaced);
        let lines = [(None, None, first), (None, None, second)];
        assert_eq!(events(Framing::LINES, Positions::Told), lines);
        let bare = Framing { shape: Shape::Bare, ..Framing::LINES };
        assert_eq!(events(bare, Positions::Told), []);
        assert_eq!(Framing::SSE.events(b"retry: 1\n\n: keep-alive\n\ndata: {").next(), None);
    }

    proptest! {
        #[test]
        fn positions_are_written_as_they_are_displayed(seq: u64, k: Option<u32>) {
            let mut bytes = Vec::new();
            let position = WirePosition { seq: Seq(seq), k };
            put_position(&mut bytes, position);
            prop_assert_eq!(String::from_utf8(bytes).unwrap(), position.to_string());
        }
    }
}
