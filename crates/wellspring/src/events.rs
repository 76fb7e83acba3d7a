//! Iterates over a run's events: a cursor that yields ThoughtEvents.

use std::collections::VecDeque;

use wellspring_core::{Outline, Seq};
use wellspring_log::{Cursor, FrameSlice};
use wellspring_wire::thought_event::{ThoughtEvent, events};

use crate::error::ThinkError;
use crate::follow::Following;

/// The kind of an event, for [`include`](crate::ThoughtStream::include).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ThoughtKind {
    /// Reasoning.
    Thought,
    /// The visible answer.
    Message,
    /// The agent calls a tool.
    ToolStart,
    /// Progress of a tool.
    ToolUpdate,
    /// A tool finished.
    ToolDone,
    /// The plan.
    Plan,
}

impl ThoughtKind {
    /// The kind of an event.
    #[must_use]
    pub fn of(event: &ThoughtEvent) -> Self {
        match event {
            ThoughtEvent::Thought { .. } => Self::Thought,
            ThoughtEvent::Message { .. } => Self::Message,
            ThoughtEvent::ToolStart { .. } => Self::ToolStart,
            ThoughtEvent::ToolUpdate { .. } => Self::ToolUpdate,
            ThoughtEvent::ToolDone { .. } => Self::ToolDone,
            ThoughtEvent::Plan { .. } => Self::Plan,
        }
    }
}

/// The kinds of events to yield.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter(Option<Vec<ThoughtKind>>);

impl Filter {
    pub(crate) fn only(kinds: impl IntoIterator<Item = ThoughtKind>) -> Self {
        Self(Some(kinds.into_iter().collect()))
    }

    fn includes(&self, event: &ThoughtEvent) -> bool {
        self.0.as_ref().is_none_or(|kinds| kinds.contains(&ThoughtKind::of(event)))
    }
}

/// The state of a reader.
#[derive(Debug)]
pub(crate) struct Reading {
    following: Following,
    filter: Filter,
    position: Seq,
    cursor: Option<Cursor>,
    /// The outline after the last record that was read.
    outline: Outline,
    frames: std::vec::IntoIter<FrameSlice>,
    /// The current frame, and how many of its records were read.
    frame: Option<(FrameSlice, usize)>,
    /// Events of the last record that were not yielded yet; a record gives few.
    ready: VecDeque<ThoughtEvent>,
}

/// An item of a [`Reading`].
pub(crate) enum Step {
    /// An event, and the last record whose events were all yielded.
    Event(ThoughtEvent, Seq),
    /// The log could not be read; nothing follows.
    Failed(ThinkError),
}

impl Reading {
    pub(crate) fn new(following: Following, filter: Filter, after: Seq) -> Self {
        Self {
            following,
            filter,
            position: after,
            cursor: None,
            outline: Outline::default(),
            frames: Vec::new().into_iter(),
            frame: None,
            ready: VecDeque::new(),
        }
    }

    /// The next item; `None` at the end.
    pub(crate) async fn next(mut self) -> Option<(Step, Option<Self>)> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                if self.ready.is_empty() {
                    self.position = self.outline.head;
                }
                let step = Step::Event(event, self.position);
                return Some((step, Some(self)));
            }
            if self.read_record() {
                continue;
            }
            match self.more().await {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some((Step::Failed(error), None)),
            }
        }
    }

    /// Reads one available record; `false` if there is none.
    fn read_record(&mut self) -> bool {
        if self.frame.is_none() {
            self.frame = self.frames.next().map(|frame| (frame, 0));
        }
        let Some((frame, at)) = &mut self.frame else { return false };
        match frame.get(*at) {
            Some(record) => {
                *at += 1;
                let events = events(&self.outline, record);
                self.ready.extend(events.into_iter().filter(|event| self.filter.includes(event)));
                self.outline.apply(record);
            }
            None => self.frame = None,
        }
        true
    }

    /// Waits for more frames; `false` after the run's last.
    async fn more(&mut self) -> Result<bool, ThinkError> {
        if self.cursor.is_none() {
            let cursor = self.following.cursor(self.position).await?;
            let control = &self.following.control;
            self.outline = control.outline_at(cursor.run(), self.position).await?;
            self.cursor = Some(cursor);
        }
        let Some(cursor) = &mut self.cursor else { return Ok(false) };
        match cursor.next().await? {
            Some(frames) => self.frames = frames.into_iter(),
            None => return Ok(false),
        }
        Ok(true)
    }
}
