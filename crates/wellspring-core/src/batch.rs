//! A batch: the events that one read of a source produced.

use std::sync::Arc;

use crate::chunk::Chunk;
use crate::event::{Annotation, Event, Extended, PartKind, Stop, Usage};
use crate::id::{AgentNo, PartId};
use crate::outline::Outline;

/// A part as its source numbers it: from 0, within one attempt or one remote run. The
/// engine maps it to a [`PartId`] of the run.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LocalPart(pub u32);

/// The events of one read of a source, with their text in one buffer.
///
/// A reader keeps one batch for its whole life and hands out [`take`](Batch::take)n copies, so
/// that part numbers continue.
#[derive(Debug, Default)]
pub struct Batch {
    text: String,
    items: Vec<Item>,
    next_part: u32,
    stop: Option<(Stop, Option<Usage>)>,
}

#[derive(Debug)]
enum Item {
    Delta { agent: AgentNo, part: u32, start: usize, end: usize },
    Event { agent: AgentNo, event: Event },
}

impl Batch {
    /// A batch whose parts count on from where a run is: for a remote agent that goes on with
    /// the parts of [`RemoteRequest::so_far`](crate::RemoteRequest::so_far).
    #[must_use]
    pub fn after(outline: &Outline) -> Self {
        Self { next_part: outline.next_part.0, ..Self::default() }
    }

    /// Opens a part.
    pub fn start(&mut self, kind: PartKind) -> LocalPart {
        self.start_of(AgentNo::ROOT, kind)
    }

    /// Opens a part of a sub-agent; `agent` is the source's own number.
    pub fn start_of(&mut self, agent: AgentNo, kind: PartKind) -> LocalPart {
        let part = self.next_part;
        self.next_part += 1;
        self.event_of(agent, Event::PartStarted { part: PartId(part), kind });
        LocalPart(part)
    }

    /// Extends a part. Empty text is ignored: the grammar has no empty deltas.
    pub fn delta(&mut self, part: LocalPart, text: &str) {
        self.delta_of(AgentNo::ROOT, part, text);
    }

    /// Extends a part of a sub-agent.
    pub fn delta_of(&mut self, agent: AgentNo, part: LocalPart, text: &str) {
        if !text.is_empty() {
            let start = self.text.len();
            self.text.push_str(text);
            self.items.push(Item::Delta { agent, part: part.0, start, end: self.text.len() });
        }
    }

    /// Annotates a part.
    pub fn annotate(&mut self, part: LocalPart, annotation: Annotation) {
        self.event(Event::PartAnnotated { part: PartId(part.0), annotation: Box::new(annotation) });
    }

    /// Closes a part.
    pub fn finish(&mut self, part: LocalPart) {
        self.event(Event::PartFinished { part: PartId(part.0) });
    }

    /// Keeps something that has no event of its own.
    pub fn extended(&mut self, origin: &str, name: &str, value: serde_json::Value) {
        self.event(Event::Extended(Box::new(Extended {
            origin: origin.into(),
            name: name.into(),
            value,
        })));
    }

    /// Any other event; the part ids in it are the source's own.
    pub fn event(&mut self, event: Event) {
        self.event_of(AgentNo::ROOT, event);
    }

    /// An event of a sub-agent; `agent` is the source's own number.
    pub fn event_of(&mut self, agent: AgentNo, event: Event) {
        self.items.push(Item::Event { agent, event });
    }

    /// The source stopped properly. Without this an end is a truncation.
    pub fn stop(&mut self, stop: Stop, usage: Option<Usage>) {
        self.stop = Some((stop, usage));
    }

    /// Whether the batch holds no events and no stop.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.stop.is_none()
    }

    /// Whether the batch holds the source's proper stop.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.is_some()
    }

    /// Bytes of text in the batch.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// Takes the events so far. This batch continues empty, and part numbers continue.
    #[must_use]
    pub fn take(&mut self) -> Self {
        // A source that sent this much at once will probably do so again: reserving the same capacity
        // is cheaper than growing to it. After a stop nothing follows.
        let room = if self.is_stopped() { 0 } else { self.items.len() };
        let next = Self {
            text: String::with_capacity(if room > 1 { self.text.len() } else { 0 }),
            items: Vec::with_capacity(room),
            next_part: self.next_part,
            stop: None,
        };
        std::mem::replace(self, next)
    }

    /// Takes how the source stopped, if it has.
    pub fn take_stop(&mut self) -> Option<(Stop, Option<Usage>)> {
        self.stop.take()
    }

    /// The events in order, with their agents. All deltas share one buffer.
    pub fn into_events(self) -> impl Iterator<Item = (AgentNo, Event)> {
        let buffer: Arc<str> = self.text.into();
        self.items.into_iter().map(move |item| match item {
            Item::Delta { agent, part, start, end } => {
                let chunk = Chunk::slice(&buffer, start, end);
                (agent, Event::PartDelta { part: PartId(part), chunk })
            }
            Item::Event { agent, event } => (agent, event),
        })
    }
}
