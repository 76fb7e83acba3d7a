//! A run's events as they are iterated: a cursor, told in the vocabulary of ThoughtEvent.

use std::collections::VecDeque;

use wellspring_core::{Outline, Seq};
use wellspring_log::{Cursor, FrameSlice};
use wellspring_wire::thought_event::{ThoughtEvent, events};

use crate::error::ThinkError;
use crate::follow::Following;

/// What an event is about: what [`include`](crate::ThoughtStream::include) chooses by.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ThoughtKind {
    /// Reasoning.
    Thought,
    /// The visible answer.
    Message,
    /// The agent wants to use a tool.
    ToolStart,
    /// A tool got on.
    ToolUpdate,
    /// A tool is done.
    ToolDone,
    /// The plan.
    Plan,
}

impl ThoughtKind {
    /// What an event is about.
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

/// Which events to give.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter(Option<Vec<ThoughtKind>>);

impl Filter {
    pub(crate) fn only(kinds: impl IntoIterator<Item = ThoughtKind>) -> Self {
        Self(Some(kinds.into_iter().collect()))
    }

    fn lets_pass(&self, event: &ThoughtEvent) -> bool {
        self.0.as_ref().is_none_or(|kinds| kinds.contains(&ThoughtKind::of(event)))
    }
}

/// A reader of a run on its way.
#[derive(Debug)]
pub(crate) struct Reading {
    following: Following,
    filter: Filter,
    position: Seq,
    cursor: Option<Cursor>,
    /// What is open after the last record that was read.
    outline: Outline,
    frames: std::vec::IntoIter<FrameSlice>,
    /// The frame being read, and how many of its records have been.
    frame: Option<(FrameSlice, usize)>,
    /// What the last record that was read still has to say; a record says little.
    said: VecDeque<ThoughtEvent>,
}

/// What a [`Reading`] gives.
pub(crate) enum Step {
    /// An event, and the last record of which all was given.
    Said(ThoughtEvent, Seq),
    /// The log failed; nothing follows.
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
            said: VecDeque::new(),
        }
    }

    /// The next event, or `None` after the last.
    pub(crate) async fn next(mut self) -> Option<(Step, Option<Self>)> {
        loop {
            if let Some(event) = self.said.pop_front() {
                if self.said.is_empty() {
                    self.position = self.outline.head;
                }
                let step = Step::Said(event, self.position);
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

    /// Reads one record of those that are here; `false` if there is none.
    fn read_record(&mut self) -> bool {
        if self.frame.is_none() {
            self.frame = self.frames.next().map(|frame| (frame, 0));
        }
        let Some((frame, at)) = &mut self.frame else { return false };
        match frame.get(*at) {
            Some(record) => {
                *at += 1;
                let said = events(&self.outline, record);
                self.said.extend(said.into_iter().filter(|event| self.filter.lets_pass(event)));
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
