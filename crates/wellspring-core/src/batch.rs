//! A batch: the events that one read of a source produced.

use crate::buffer::EventBuffer;
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
    events: EventBuffer<AgentNo>,
    next_part: u32,
    stop: Option<(Stop, Option<Usage>)>,
    response_id: Option<Box<str>>,
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
            self.events.delta(agent, PartId(part.0), text);
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
        self.events.event(agent, event);
    }

    /// The source stopped properly. Without this an end is a truncation.
    pub fn stop(&mut self, stop: Stop, usage: Option<Usage>) {
        self.stop = Some((stop, usage));
    }

    /// Whether the batch holds no events and no stop.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.stop.is_none()
    }

    /// Whether the batch holds the source's proper stop.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.is_some()
    }

    /// Bytes of text in the batch.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        self.events.text_bytes()
    }

    /// Takes the events so far. This batch continues empty, and part numbers continue.
    #[must_use]
    pub fn take(&mut self) -> Self {
        // A source that sent this much at once will probably do so again: reserving the same capacity
        // is cheaper than growing to it. After a stop nothing follows.
        let room = if self.is_stopped() { 0 } else { self.events.len() };
        let next = Self {
            events: EventBuffer::with_capacity(if room > 1 { self.text_bytes() } else { 0 }, room),
            next_part: self.next_part,
            stop: None,
            response_id: None,
        };
        std::mem::replace(self, next)
    }

    /// Takes how the source stopped, if it has.
    pub fn take_stop(&mut self) -> Option<(Stop, Option<Usage>)> {
        self.stop.take()
    }

    /// Sets the provider's id of the whole answer.
    pub fn set_response_id(&mut self, id: &str) {
        self.response_id = Some(id.into());
    }

    /// The provider's id of the whole answer, if it came with this batch.
    pub fn take_response_id(&mut self) -> Option<Box<str>> {
        self.response_id.take()
    }

    /// The events in order, with their agents. All deltas share one buffer.
    pub fn into_events(self) -> impl Iterator<Item = (AgentNo, Event)> {
        self.events.into_events()
    }
}
