//! The order in which calls run.
//!
//! A sequential call runs alone, by priority, then in the order of the calls. Parallel calls run
//! together, as many at once as the limit allows. By default a parallel call waits for the
//! sequential calls before it in the same turn, so that a model never reads before its own
//! write: see [`ToolOrder`]. Results keep call order whatever the queue does.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use wellspring_core::ToolMode;

use crate::turn::TurnCall;

/// Whether parallel calls wait for the sequential calls before them.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolOrder {
    /// A parallel call waits for the sequential calls that the model made before it in the same
    /// turn.
    #[default]
    AsCalled,
    /// All parallel calls run first, then the sequential ones.
    ParallelFirst,
}

/// A call that waits for its tool.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueuedToolCall {
    /// The id of the call.
    pub tool_call_id: Box<str>,
    /// The tool.
    pub tool_name: Box<str>,
    /// Its arguments.
    pub tool_args: Map<String, Value>,
    /// Among waiting sequential calls, the highest goes first; `None` is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

impl From<&TurnCall> for QueuedToolCall {
    /// A call of a turn, without a priority. Arguments that are not an object are left out.
    fn from(call: &TurnCall) -> Self {
        Self {
            tool_call_id: call.tool_call_id.clone(),
            tool_name: call.name.clone(),
            tool_args: call.arguments.as_object().cloned().unwrap_or_default(),
            priority: None,
        }
    }
}

/// The queue of a loop of your own over [`Turn`](crate::Turn)s. The engine's loop uses the same
/// rules.
///
/// ```
/// use wellspring_core::ToolMode;
/// use wellspring_engine::{QueuedToolCall, ToolOrder, ToolQueue};
///
/// let call = |name: &str, priority| QueuedToolCall {
///     tool_call_id: name.into(),
///     tool_name: name.into(),
///     tool_args: serde_json::Map::new(),
///     priority,
/// };
/// let mut queue = ToolQueue::new(ToolOrder::AsCalled, 4);
/// queue.push(ToolMode::Sequential, call("write", None));
/// queue.push(ToolMode::Parallel, call("read", None));
/// queue.push(ToolMode::Sequential, call("urgent", Some(1)));
///
/// let names: Vec<_> = queue.waiting().iter().map(|call| &*call.tool_name).collect();
/// assert_eq!(names, ["urgent", "write", "read"]);
/// assert_eq!(queue.start().map(|call| call.tool_name), Some("urgent".into()));
/// assert_eq!(queue.start(), None); // a sequential call runs alone
/// queue.finish();
/// assert_eq!(queue.start().map(|call| call.tool_name), Some("write".into()));
/// ```
#[derive(Debug)]
pub struct ToolQueue {
    queue: Queue<QueuedToolCall>,
    arrivals: u64,
}

impl ToolQueue {
    /// An empty queue that allows this many parallel calls at once.
    #[must_use]
    pub fn new(order: ToolOrder, at_once: usize) -> Self {
        Self { queue: Queue::new(order, at_once), arrivals: 0 }
    }

    /// Adds a call.
    pub fn push(&mut self, mode: ToolMode, call: QueuedToolCall) {
        let priority = call.priority.unwrap_or_default();
        self.queue.push(self.arrivals, mode, priority, call);
        self.arrivals += 1;
    }

    /// The next call that may start now. Call [`finish`](Self::finish) when it has ended.
    pub fn start(&mut self) -> Option<QueuedToolCall> {
        self.queue.start()
    }

    /// Counts a started call as ended.
    pub fn finish(&mut self) {
        self.queue.finish();
    }

    /// The calls that wait, in the order in which they will start.
    #[must_use]
    pub fn waiting(&self) -> Vec<&QueuedToolCall> {
        self.queue.in_order().into_iter().map(|waiting| &waiting.call).collect()
    }
}

/// Calls that wait to run.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    order: ToolOrder,
    at_once: usize,
    running: usize,
    alone: bool,
    /// By arrival.
    waiting: Vec<Waiting<T>>,
    /// The arrivals of sequential calls that are not decided yet.
    expected: BTreeSet<u64>,
}

#[derive(Debug)]
struct Waiting<T> {
    arrival: u64,
    mode: ToolMode,
    priority: i32,
    call: T,
}

impl<T> Queue<T> {
    pub(crate) fn new(order: ToolOrder, at_once: usize) -> Self {
        Self {
            order,
            at_once: at_once.max(1),
            running: 0,
            alone: false,
            waiting: Vec::new(),
            expected: BTreeSet::new(),
        }
    }

    /// Announces a sequential call that may follow: later parallel calls wait for it.
    pub(crate) fn expect(&mut self, arrival: u64) {
        self.expected.insert(arrival);
    }

    /// The announced call does not follow.
    pub(crate) fn forget(&mut self, arrival: u64) {
        self.expected.remove(&arrival);
    }

    /// Adds a call. Calls are ordered by `arrival`, which is unique.
    pub(crate) fn push(&mut self, arrival: u64, mode: ToolMode, priority: i32, call: T) {
        self.forget(arrival);
        let at = self.waiting.partition_point(|other| other.arrival < arrival);
        self.waiting.insert(at, Waiting { arrival, mode, priority, call });
    }

    /// Counts a call that runs without having been queued.
    pub(crate) fn note_running(&mut self) {
        self.running += 1;
    }

    /// The next call that may start now.
    pub(crate) fn start(&mut self) -> Option<T> {
        if self.alone || self.running >= self.at_once {
            return None;
        }
        let waiting: Vec<&Waiting<T>> = self.waiting.iter().collect();
        let next = self.next_of(&waiting, self.expected.first().copied())?;
        let mode = self.waiting.get(next)?.mode;
        match mode {
            ToolMode::Parallel => {}
            ToolMode::Sequential if self.running > 0 => return None,
            ToolMode::Sequential => self.alone = true,
        }
        self.running += 1;
        Some(self.waiting.remove(next).call)
    }

    /// The index of the next call: the first parallel call that waits for no sequential call, or
    /// else the sequential call of the highest priority.
    fn next_of(&self, waiting: &[&Waiting<T>], expected: Option<u64>) -> Option<usize> {
        let is_sequential = |call: &&&Waiting<T>| call.mode == ToolMode::Sequential;
        let barrier = match self.order {
            ToolOrder::AsCalled => {
                let first = waiting.iter().find(is_sequential).map(|call| call.arrival);
                first.into_iter().chain(expected).min().unwrap_or(u64::MAX)
            }
            ToolOrder::ParallelFirst => u64::MAX,
        };
        let free = |call: &&Waiting<T>| call.mode == ToolMode::Parallel && call.arrival < barrier;
        waiting.iter().position(free).or_else(|| {
            let sequential = waiting.iter().enumerate().filter(|(_, call)| is_sequential(call));
            // `min_by_key` keeps the first of equals: the order of the calls.
            sequential.min_by_key(|(_, call)| std::cmp::Reverse(call.priority)).map(|(at, _)| at)
        })
    }

    /// The waiting calls in the order in which they will start.
    fn in_order(&self) -> Vec<&Waiting<T>> {
        let mut left: Vec<&Waiting<T>> = self.waiting.iter().collect();
        let mut order = Vec::new();
        while let Some(next) = self.next_of(&left, None) {
            order.push(left.remove(next));
        }
        order
    }

    /// The waiting calls, each with how many others are ahead of it: those that run, and those
    /// that will start before it.
    pub(crate) fn places(&self) -> impl Iterator<Item = (&T, usize)> {
        let order = self.in_order().into_iter().enumerate();
        order.map(|(ahead, waiting)| (&waiting.call, self.running + ahead))
    }

    /// Counts a started call as ended.
    pub(crate) fn finish(&mut self) {
        self.running = self.running.saturating_sub(1);
        self.alone = false;
    }

    /// Drops all waiting calls.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.expected.clear();
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: [(ToolMode, i32, &str); 5] = [
        (ToolMode::Parallel, 0, "read"),
        (ToolMode::Sequential, 0, "edit"),
        (ToolMode::Parallel, 0, "search"),
        (ToolMode::Sequential, 5, "urgent"),
        (ToolMode::Sequential, 0, "later"),
    ];

    fn queue(order: ToolOrder) -> Queue<&'static str> {
        let mut queue = Queue::new(order, 8);
        for (arrival, (mode, priority, call)) in (0..).zip(CALLS) {
            queue.push(arrival, mode, priority, call);
        }
        queue
    }

    fn places(queue: &Queue<&'static str>) -> Vec<(&'static str, usize)> {
        queue.places().map(|(call, place)| (*call, place)).collect()
    }

    /// Starts all calls that may start, ends them in the order in which they started, and records
    /// which of them run together.
    fn rounds(mut queue: Queue<&'static str>) -> Vec<Vec<&'static str>> {
        let mut rounds = Vec::new();
        while !queue.is_empty() {
            let round: Vec<_> = std::iter::from_fn(|| queue.start()).collect();
            assert!(!round.is_empty(), "nothing may start, yet something waits");
            round.iter().for_each(|_| queue.finish());
            rounds.push(round);
        }
        rounds
    }

    #[test]
    fn parallel_together_then_sequential_by_priority_then_arrival() {
        let queue = queue(ToolOrder::ParallelFirst);
        let want = [("read", 0), ("search", 1), ("urgent", 2), ("edit", 3), ("later", 4)];
        assert_eq!(places(&queue), want);
        let want = [vec!["read", "search"], vec!["urgent"], vec!["edit"], vec!["later"]];
        assert_eq!(rounds(queue), want);
    }

    /// A read after a write waits for it; a call of higher priority overtakes both.
    #[test]
    fn a_parallel_call_waits_for_the_sequential_ones_before_it() {
        let queue = queue(ToolOrder::AsCalled);
        let want = [("read", 0), ("urgent", 1), ("edit", 2), ("search", 3), ("later", 4)];
        assert_eq!(places(&queue), want);
        let want = [vec!["read"], vec!["urgent"], vec!["edit"], vec!["search"], vec!["later"]];
        assert_eq!(rounds(queue), want);
    }

    /// Also for one that still waits for its approval.
    #[test]
    fn a_parallel_call_waits_for_an_undecided_sequential_one() {
        let mut queue = Queue::new(ToolOrder::AsCalled, 8);
        queue.expect(0);
        queue.push(1, ToolMode::Parallel, 0, "read");
        assert_eq!(queue.start(), None);
        queue.push(0, ToolMode::Sequential, 0, "write");
        assert_eq!(rounds(queue), [vec!["write"], vec!["read"]]);

        let mut queue = Queue::new(ToolOrder::AsCalled, 8);
        queue.expect(0);
        queue.push(1, ToolMode::Parallel, 0, "read");
        queue.forget(0);
        assert_eq!(queue.start(), Some("read"));
    }

    /// Running calls are ahead of waiting ones, and places decrease as calls end.
    #[test]
    fn places_are_true_while_calls_run() {
        let mut queue = Queue::new(ToolOrder::AsCalled, 2);
        for (arrival, call) in (0..).zip(["a", "b", "c"]) {
            queue.push(arrival, ToolMode::Sequential, 0, call);
        }
        assert_eq!(queue.start(), Some("a"));
        assert_eq!(places(&queue), [("b", 1), ("c", 2)]);
        queue.push(9, ToolMode::Sequential, 1, "urgent");
        assert_eq!(places(&queue), [("urgent", 1), ("b", 2), ("c", 3)]);
        queue.finish();
        assert_eq!(queue.start(), Some("urgent"));
        assert_eq!(places(&queue), [("b", 1), ("c", 2)]);
    }

    #[test]
    fn at_most_so_many_at_once() {
        let mut queue = Queue::new(ToolOrder::AsCalled, 2);
        for (arrival, call) in (0..).zip(["a", "b", "c"]) {
            queue.push(arrival, ToolMode::Parallel, 0, call);
        }
        assert_eq!(rounds(queue), [vec!["a", "b"], vec!["c"]]);
    }

    #[test]
    fn a_sequential_call_waits_for_what_runs() {
        let mut queue = Queue::new(ToolOrder::AsCalled, 8);
        queue.note_running();
        queue.push(0, ToolMode::Sequential, 0, "alone");
        assert_eq!(queue.start(), None);
        queue.finish();
        assert_eq!(queue.start(), Some("alone"));
        queue.push(1, ToolMode::Parallel, 0, "together");
        assert_eq!(queue.start(), None);
    }

    /// The names are those of the vocabulary.
    #[test]
    fn a_queue_mode_as_documented() {
        for (mode, json) in
            [(ToolMode::Parallel, r#""parallel""#), (ToolMode::Sequential, r#""sequential""#)]
        {
            assert_eq!(serde_json::to_string(&mode).unwrap(), json);
            assert_eq!(serde_json::from_str::<ToolMode>(json).unwrap(), mode);
        }
        assert_eq!(ToolMode::default(), ToolMode::Parallel);
    }

    /// The fields and their names are the vocabulary's.
    #[test]
    fn a_queued_call_as_documented() {
        let json = r#"{"toolCallId":"1","toolName":"edit","toolArgs":{"path":"a"},"priority":5}"#;
        let call: QueuedToolCall = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&call).unwrap(), json);
        let json = r#"{"toolCallId":"1","toolName":"edit","toolArgs":{}}"#;
        let call: QueuedToolCall = serde_json::from_str(json).unwrap();
        assert_eq!(call.priority, None);
    }
}
