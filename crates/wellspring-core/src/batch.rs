//! A batch: the events that one read of a source produced.

use crate::buffer::EventBuffer;
use crate::event::{
    Annotation, Event, Extended, OutputStream, PartKind, Stop, ToolMode, ToolOutcome, ToolResult,
    ToolUpdate, Usage, VoidReason,
};
use crate::id::{AgentNo, PartId};
use crate::outline::Outline;

/// A part, as its source numbers it: from 0, within one attempt or one remote run, with the
/// source's number of the agent that it belongs to. The engine maps it to a [`PartId`] of the
/// run.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LocalPart {
    number: u32,
    agent: AgentNo,
}

impl LocalPart {
    /// The part of the root agent that is opened with this number.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self { number, agent: AgentNo::ROOT }
    }

    /// A part of [`RemoteRequest::so_far`](crate::RemoteRequest::so_far), for a remote agent that
    /// continues it.
    #[must_use]
    pub const fn resumed(agent: AgentNo, part: PartId) -> Self {
        Self { number: part.0, agent }
    }

    /// The part's id in the events of its source.
    #[must_use]
    pub const fn id(self) -> PartId {
        PartId(self.number)
    }
}

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
    /// A batch that continues a run's part numbers, for a remote agent that extends the parts
    /// of [`RemoteRequest::so_far`](crate::RemoteRequest::so_far).
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
        let part = LocalPart { number: self.next_part, agent };
        self.next_part += 1;
        self.event_of(agent, Event::PartStarted { part: part.id(), kind });
        part
    }

    /// Opens the output of a call.
    pub fn start_output(&mut self, call: LocalPart, stream: OutputStream) -> LocalPart {
        self.start_of(call.agent, PartKind::Output { call: call.id(), stream })
    }

    /// Extends a part. Empty text is ignored: the grammar has no empty deltas.
    pub fn delta(&mut self, part: LocalPart, text: &str) {
        if !text.is_empty() {
            self.events.delta(part.agent, part.id(), text);
        }
    }

    /// Annotates a part.
    pub fn annotate(&mut self, part: LocalPart, annotation: Annotation) {
        let annotation = Box::new(annotation);
        self.event_of(part.agent, Event::PartAnnotated { part: part.id(), annotation });
    }

    /// Closes a part.
    pub fn finish(&mut self, part: LocalPart) {
        self.event_of(part.agent, Event::PartFinished { part: part.id() });
    }

    /// Voids a part.
    pub fn void(&mut self, part: LocalPart, why: VoidReason) {
        self.event_of(part.agent, Event::PartsVoided { parts: vec![part.id()], why });
    }

    /// A call that runs at the source has started.
    pub fn tool_started(&mut self, call: LocalPart) {
        let (mode, arguments) = (ToolMode::Parallel, None);
        self.event_of(call.agent, Event::ToolStarted { call: call.id(), mode, arguments });
    }

    /// A call that runs at the source reports progress.
    pub fn tool_updated(&mut self, call: LocalPart, update: ToolUpdate) {
        let update = Box::new(update);
        self.event_of(call.agent, Event::ToolUpdated { call: call.id(), update });
    }

    /// A call that runs at the source has ended.
    pub fn tool_finished(&mut self, call: LocalPart, outcome: ToolOutcome, result: ToolResult) {
        let result = Box::new(result);
        self.event_of(call.agent, Event::ToolFinished { call: call.id(), outcome, result });
    }

    /// A sub-agent has started, within `call` if it has one. Both agents are the source's numbers.
    pub fn agent_started(
        &mut self,
        agent: AgentNo,
        parent: AgentNo,
        call: Option<LocalPart>,
        name: &str,
    ) {
        let (call, name) = (call.map(LocalPart::id), name.into());
        self.event_of(agent, Event::AgentStarted { parent, call, name, input: Vec::new() });
    }

    /// Adds a message of a protocol that has no event of its own.
    pub fn extended(&mut self, origin: &str, name: &str, value: serde_json::Value) {
        self.event(Event::Extended(Box::new(Extended {
            origin: origin.into(),
            name: name.into(),
            value,
        })));
    }

    /// Adds any other event of the root agent.
    pub fn event(&mut self, event: Event) {
        self.event_of(AgentNo::ROOT, event);
    }

    /// Adds an event of a sub-agent; `agent` is the source's own number.
    pub fn event_of(&mut self, agent: AgentNo, event: Event) {
        self.events.event(agent, event);
    }

    /// Sets the source's stop. A stream that ends without one was truncated.
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
        // A source that sent this many events at once will probably do so again, and reserving
        // the same capacity is cheaper than growing to it. Nothing follows a stop.
        let room = if self.is_stopped() { 0 } else { self.events.len() };
        let next = Self {
            events: EventBuffer::with_capacity(if room > 1 { self.text_bytes() } else { 0 }, room),
            next_part: self.next_part,
            stop: None,
            response_id: None,
        };
        std::mem::replace(self, next)
    }

    /// Takes the source's stop, if there is one.
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
