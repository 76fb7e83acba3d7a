//! Callbacks for programs that do not read the log.

use wellspring_core::{Event, Outcome, RunId, Stop, Usage};

/// Callbacks during a run. Every method does nothing by default, must return quickly, and
/// cannot change the run. A consumer that needs time should use a cursor.
pub trait Hooks: Send + Sync {
    /// A delta of a text, a thought or a call's arguments is on its way to the log.
    fn on_chunk(&self, _run: RunId, _event: &Event) {}

    /// A turn has finished.
    fn on_turn(&self, _run: RunId, _report: &TurnReport) {}

    /// The run completed or failed.
    fn on_finish(&self, _run: RunId, _outcome: &Outcome) {}

    /// The run was cancelled.
    fn on_abort(&self, _run: RunId, _outcome: &Outcome) {}
}

/// What a turn did.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnReport {
    /// The turn's number, from 1.
    pub turn: u32,
    /// Attempts it took.
    pub attempts: u32,
    /// Why the model stopped.
    pub stop: Stop,
    /// The turn's usage.
    pub usage: Option<Usage>,
    /// How many calls it made.
    pub calls: usize,
}
