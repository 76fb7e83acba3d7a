//! The buffer that dialects write to.

use std::fmt;
use std::io::Write as _;

use serde::Serialize;
use wellspring_core::Seq;

use crate::dialect::position::WirePosition;

/// Wire events, usually JSON, one after the other in one buffer.
///
/// Encoding a frame of fifty deltas allocates nothing once the buffer has grown; reuse one and
/// [`clear`](Out::clear) it.
#[derive(Clone, Debug, Default)]
pub struct Out {
    bytes: Vec<u8>,
    /// The end of each event in `bytes`.
    ends: Vec<usize>,
    /// The records that emitted events, each with the index of its first.
    marks: Vec<Mark>,
    /// The events with a name, by index. Few events have one.
    names: Vec<(usize, &'static str)>,
    /// The record that is being encoded.
    current: Seq,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    seq: Seq,
    /// Index of its first event in the buffer.
    first: usize,
    /// The number of its events that were skipped because the reader has them.
    skipped: u32,
}

impl Out {
    /// Removes the events and keeps the capacity.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.marks.clear();
        self.names.clear();
    }

    /// The number of events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The total size of the events, in bytes.
    #[must_use]
    pub fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// Sets the record that the following events belong to.
    pub fn begin(&mut self, seq: Seq) {
        self.current = seq;
    }

    /// Adds an event.
    pub fn event(&mut self, event: &impl Serialize) {
        let start = self.bytes.len();
        match serde_json::to_writer(&mut self.bytes, event) {
            Ok(()) => self.end(),
            // Serialisation only fails for map keys that are not strings, and no wire type has
            // any. If it fails, the partial event is removed.
            Err(_) => self.bytes.truncate(start),
        }
    }

    /// Adds an event that is a JSON object, with further members at its end. `more` writes a
    /// comma before each.
    pub(crate) fn event_with(&mut self, event: &impl Serialize, more: impl FnOnce(&mut Json<'_>)) {
        let start = self.bytes.len();
        let written = serde_json::to_writer(&mut self.bytes, event);
        if written.is_err() || self.bytes.last() != Some(&b'}') {
            self.bytes.truncate(start);
            return;
        }
        self.bytes.pop();
        more(&mut Json { bytes: &mut self.bytes });
        self.bytes.push(b'}');
        self.end();
    }

    /// Adds an event with a name, for framings that carry names.
    pub fn named(&mut self, name: &'static str, event: &impl Serialize) {
        let index = self.len();
        self.event(event);
        if self.len() > index {
            self.names.push((index, name));
        }
    }

    /// Adds an event that is written by hand: for deltas, the most frequent events.
    pub fn write(&mut self, write: impl FnOnce(&mut Json<'_>)) {
        write(&mut Json { bytes: &mut self.bytes });
        self.end();
    }

    /// Adds an event that is not JSON, for binary encodings.
    pub fn bytes(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.end();
    }

    /// The events, each with the position after it.
    pub fn events(&self) -> impl Iterator<Item = (WirePosition, &[u8])> {
        let nexts = self.marks.iter().skip(1).map(|mark| mark.first).chain([self.ends.len()]);
        self.marks.iter().zip(nexts).flat_map(move |(mark, next)| {
            (mark.first..next).map(move |index| {
                let start = if index == 0 { 0 } else { self.ends[index - 1] };
                // Counted from 1. A u32 is large enough for any buffer in memory.
                let k = mark.skipped.saturating_add((index - mark.first) as u32 + 1);
                let k = (index + 1 < next).then_some(k);
                (WirePosition { seq: mark.seq, k }, &self.bytes[start..self.ends[index]])
            })
        })
    }

    /// The events with a name, by index.
    pub(crate) fn names(&self) -> impl Iterator<Item = (usize, &'static str)> {
        self.names.iter().copied()
    }

    /// Adds the events of one record from `other`, without the first `skipped`.
    pub(crate) fn append_rest(&mut self, seq: Seq, other: &Self, skipped: u32) {
        for (_, event) in other.events().skip(skipped as usize) {
            self.bytes.extend_from_slice(event);
            self.current = seq;
            self.end();
        }
        if let Some(mark) = self.marks.last_mut().filter(|mark| mark.seq == seq) {
            mark.skipped = skipped;
        }
    }

    fn end(&mut self) {
        if self.marks.last().is_none_or(|mark| mark.seq != self.current) {
            self.marks.push(Mark { seq: self.current, first: self.ends.len(), skipped: 0 });
        }
        self.ends.push(self.bytes.len());
    }
}

/// Writes JSON by hand into an [`Out`].
#[derive(Debug)]
pub struct Json<'a> {
    bytes: &'a mut Vec<u8>,
}

impl Json<'_> {
    /// Writes JSON unchanged.
    pub fn raw(&mut self, json: &str) -> &mut Self {
        self.bytes.extend_from_slice(json.as_bytes());
        self
    }

    /// Writes a string, quoted and escaped.
    pub fn string(&mut self, text: &str) -> &mut Self {
        self.value(&text)
    }

    /// Writes a string that needs no escaping, such as an id or a number.
    pub fn plain(&mut self, text: impl fmt::Display) -> &mut Self {
        // Writing to memory does not fail.
        let _ = write!(self.bytes, "\"{text}\"");
        self
    }

    /// Writes any value.
    pub fn value(&mut self, value: &impl Serialize) -> &mut Self {
        let start = self.bytes.len();
        if serde_json::to_writer(&mut *self.bytes, value).is_err() {
            self.bytes.truncate(start);
            self.raw("null");
        }
        self
    }
}
