//! Events whose deltas have their text in one buffer.

use std::sync::Arc;

use crate::chunk::Chunk;
use crate::event::Event;
use crate::id::PartId;

/// Collects events, each with a tag, and stores the text of all deltas in one allocation. Used
/// for a source's batches, for joining the deltas of a frame, and for decoding stored frames.
/// The caller must limit its size.
#[derive(Debug)]
pub struct EventBuffer<T> {
    text: String,
    items: Vec<(T, Item)>,
}

#[derive(Debug)]
enum Item {
    Delta { part: PartId, start: usize, end: usize },
    Event(Event),
}

impl<T> Default for EventBuffer<T> {
    fn default() -> Self {
        Self { text: String::new(), items: Vec::new() }
    }
}

impl<T> EventBuffer<T> {
    /// A buffer with capacity for this much text and this many events.
    #[must_use]
    pub fn with_capacity(text_bytes: usize, events: usize) -> Self {
        Self { text: String::with_capacity(text_bytes), items: Vec::with_capacity(events) }
    }

    /// Adds a delta.
    pub fn delta(&mut self, tag: T, part: PartId, text: &str) {
        let start = self.text.len();
        self.text.push_str(text);
        self.items.push((tag, Item::Delta { part, start, end: self.text.len() }));
    }

    /// Appends to the previous delta if it belongs to the same part and `merge` returns `true`;
    /// `merge` may change the tag of the previous delta. Otherwise adds a delta.
    pub fn join(
        &mut self,
        tag: T,
        part: PartId,
        text: &str,
        merge: impl FnOnce(&mut T, &T) -> bool,
    ) {
        if let Some((last_tag, Item::Delta { part: last_part, end, .. })) = self.items.last_mut()
            && *last_part == part
            && merge(last_tag, &tag)
        {
            self.text.push_str(text);
            *end = self.text.len();
        } else {
            self.delta(tag, part, text);
        }
    }

    /// Adds an event.
    pub fn event(&mut self, tag: T, event: Event) {
        self.items.push((tag, Item::Event(event)));
    }

    /// The number of events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are no events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Bytes of text in the deltas.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// The events in order, with their tags.
    pub fn into_events(self) -> impl ExactSizeIterator<Item = (T, Event)> {
        let text: Arc<str> = self.text.into();
        self.items.into_iter().map(move |(tag, item)| match item {
            Item::Delta { part, start, end } => {
                (tag, Event::PartDelta { part, chunk: Chunk::slice(&text, start, end) })
            }
            Item::Event(event) => (tag, event),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_joined_where_the_caller_agrees() {
        let mut buffer = EventBuffer::default();
        for (tag, part, text) in [(1, 0, "a"), (1, 0, "b"), (2, 0, "c"), (2, 1, "d")] {
            buffer.join(tag, PartId(part), text, |last, next| last == next);
        }
        buffer.event(3, Event::PartFinished { part: PartId(1) });
        buffer.join(3, PartId(1), "e", |_, _| true);
        assert_eq!((buffer.len(), buffer.text_bytes()), (5, 5));
        let delta =
            |part, chunk: &str| Event::PartDelta { part: PartId(part), chunk: chunk.into() };
        let events: Vec<_> = buffer.into_events().collect();
        let finished = Event::PartFinished { part: PartId(1) };
        assert_eq!(
            events,
            [
                (1, delta(0, "ab")),
                (2, delta(0, "c")),
                (2, delta(1, "d")),
                (3, finished),
                (3, delta(1, "e"))
            ]
        );
    }
}
