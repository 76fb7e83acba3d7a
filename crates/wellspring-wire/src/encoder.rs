//! A reader's way through a run in one dialect.

use std::fmt;

use wellspring_core::{Outline, Record};

use crate::dialect::{Conversation, Dialect};
use crate::name::DialectName;
use crate::out::Out;
use crate::position::WirePosition;

/// A dialect and the outline it needs, going through a run.
pub struct Encoder {
    dialect: Box<dyn Dialect>,
    outline: Outline,
    after: WirePosition,
    scratch: Out,
    recalled: Option<Box<Conversation>>,
}

impl Encoder {
    /// From the run's start.
    #[must_use]
    pub fn new(name: DialectName) -> Self {
        Self::resume(name, Outline::default(), WirePosition::START)
    }

    /// From a position on. `outline` is any at or before [`WirePosition::whole`]; the records
    /// after it have to be pushed, and those up to the position are folded silently. They go in
    /// frames of their own: what is [needed](Encoder::needs) is told by what was seen before.
    ///
    /// A dialect that [remembers](DialectName::remembers) must be given the empty outline,
    /// and so all the records: it is rebuilt from them.
    #[must_use]
    pub fn resume(name: DialectName, outline: Outline, after: WirePosition) -> Self {
        Self::of(name.dialect(), outline, after)
    }

    /// The same for a dialect that has no name, or more to go by than its name.
    #[must_use]
    pub fn of(dialect: Box<dyn Dialect>, outline: Outline, after: WirePosition) -> Self {
        Self { dialect, outline, after, scratch: Out::default(), recalled: None }
    }

    /// What is open after the records so far.
    #[must_use]
    pub fn outline(&self) -> &Outline {
        &self.outline
    }

    /// Whether the records of one append can be said in full only after a
    /// [`recall`](Encoder::recall). Without one they are said as well as can be.
    #[must_use]
    pub fn needs(&self, records: &[Record]) -> bool {
        let mut new = records.iter().filter(|record| record.seq > self.outline.head);
        new.any(|record| self.dialect.needs(&self.outline, record))
    }

    /// Hands over the conversation, folded up to the [outline's](Encoder::outline) head, for the
    /// records of the next append.
    pub fn recall(&mut self, conversation: Conversation) {
        self.recalled = Some(Box::new(conversation));
    }

    /// Encodes the records of one append. Those it has had already are left out.
    pub fn frame(&mut self, records: &[Record], out: &mut Out) {
        for record in records {
            if record.seq > self.outline.head {
                self.push(record, out);
            }
        }
        if self.outline.head > self.after.seq {
            out.begin(self.outline.head);
            self.dialect.frame_end(out);
        }
        self.recalled = None;
    }

    fn push(&mut self, record: &Record, out: &mut Out) {
        if let Some(conversation) = &mut self.recalled
            && conversation.current.outline.head == self.outline.head
        {
            conversation.current.apply(record);
            if self.dialect.needs(&self.outline, record) {
                self.dialect.recall(conversation);
            }
        }
        if record.seq > self.after.seq {
            out.begin(record.seq);
            self.dialect.encode(&self.outline, record, out);
        } else {
            self.skip(record, out);
        }
        self.outline.apply(record);
    }

    /// Encodes a record of which the reader has something already.
    fn skip(&mut self, record: &Record, out: &mut Out) {
        let rest = self.after.k.filter(|_| record.seq == self.after.seq);
        if rest.is_none() && !self.dialect.remembers() {
            return;
        }
        self.scratch.clear();
        self.scratch.begin(record.seq);
        self.dialect.encode(&self.outline, record, &mut self.scratch);
        if let Some(seen) = rest {
            out.append_rest(record.seq, &self.scratch, seen);
        }
        if record.seq == self.after.seq {
            // What the reader was shown at the end of its last frame is not news.
            self.dialect.frame_end(&mut self.scratch);
        }
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder")
            .field("outline", &self.outline)
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}
