//! Callbacks for programs that want to know without reading the log.

use wellspring_core::{Event, Outcome, RunId, Stop, Usage};

/// What a program is told while a run goes on. Every method does nothing by default, must
/// be quick, and cannot change the run: a consumer that may take its time is a cursor.
pub trait Hooks: Send + Sync {
    /// A delta of a text, a thought or a call's arguments is on its way to the log.
    fn on_chunk(&self, _run: RunId, _event: &Event) {}

    /// A turn has finished.
    fn on_turn(&self, _run: RunId, _report: &TurnReport) {}

    /// The run ended of its own, or failed.
    fn on_finish(&self, _run: RunId, _outcome: &Outcome) {}

    /// The run was cancelled.
    fn on_abort(&self, _run: RunId, _outcome: &Outcome) {}
}

/// What a turn did.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnReport {
    /// Counts from 1.
    pub turn: u32,
    /// Attempts it took.
    pub attempts: u32,
    /// Why the model stopped.
    pub stop: Stop,
    /// What it cost.
    pub usage: Option<Usage>,
    /// How many calls it asked for.
    pub calls: usize,
}
