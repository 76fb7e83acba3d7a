//! What a dialect is.

use wellspring_core::{Outline, Record, Transcript};

use crate::out::Out;

/// A projection of records into somebody's vocabulary.
///
/// # Contract
///
/// 1. Pure: the same records give the same events, however often they are encoded.
/// 2. Total: any record after any other is fine. What makes no sense says nothing.
/// 3. Stateless, but for a dialect that [`remembers`](Dialect::remembers).
/// 4. Events come from [`encode`](Dialect::encode) or from [`frame_end`](Dialect::frame_end),
///    never from both: a record's events are counted.
pub trait Dialect: Send {
    /// Says in this vocabulary what `record` says, given what was open `before` it.
    fn encode(&mut self, before: &Outline, record: &Record, out: &mut Out);

    /// Whether this record can be said in full only after a
    /// [`recall`](Dialect::recall). Most dialects never do; for the others it is rare.
    fn needs(&self, _before: &Outline, _record: &Record) -> bool {
        false
    }

    /// Hands over the conversation up to and including the record that is encoded next.
    fn recall(&mut self, _conversation: &Conversation) {}

    /// The records of one append have all been encoded: the moment for a form that is read
    /// latest-wins to show how things stand now.
    fn frame_end(&mut self, _out: &mut Out) {}

    /// Whether it keeps more than the outline does, so that resuming it takes all records
    /// from the run's start.
    fn remembers(&self) -> bool {
        false
    }
}

/// A thread as far as it has got: for what can only be said with all of it at hand.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    /// The runs before, in their order.
    pub earlier: Vec<Transcript>,
    /// The run that is shown.
    pub current: Transcript,
}

impl Conversation {
    /// A thread with one run.
    #[must_use]
    pub fn of(current: Transcript) -> Self {
        Self { earlier: Vec::new(), current }
    }
}
