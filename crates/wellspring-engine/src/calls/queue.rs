//! The order in which calls run.
//!
//! Parallel calls start together, as many at once as the limit allows, in the order in which
//! they came. A sequential call runs alone: once no parallel call waits or
//! runs, by priority, then arrival. Results keep call order whatever the queue does.

use std::collections::VecDeque;

use wellspring_core::ToolMode;

/// Calls that wait to run.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    at_once: usize,
    running: usize,
    alone: bool,
    parallel: VecDeque<T>,
    /// By priority, highest first, then by arrival.
    sequential: VecDeque<(i32, T)>,
}

impl<T> Queue<T> {
    pub(crate) fn new(at_once: usize) -> Self {
        Self {
            at_once: at_once.max(1),
            running: 0,
            alone: false,
            parallel: VecDeque::new(),
            sequential: VecDeque::new(),
        }
    }

    /// Adds a call; returns how many calls are ahead of it.
    pub(crate) fn push(&mut self, mode: ToolMode, priority: i32, call: T) -> usize {
        match mode {
            ToolMode::Parallel => {
                self.parallel.push_back(call);
                self.parallel.len() - 1
            }
            ToolMode::Sequential => {
                let at = self.sequential.iter().take_while(|(other, _)| *other >= priority).count();
                self.sequential.insert(at, (priority, call));
                self.parallel.len() + at
            }
        }
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
        let next = match self.parallel.pop_front() {
            Some(call) => Some(call),
            None if self.running == 0 => self.sequential.pop_front().map(|(_, call)| {
                self.alone = true;
                call
            }),
            None => None,
        };
        self.running += usize::from(next.is_some());
        next
    }

    /// Counts a started call as ended.
    pub(crate) fn finish(&mut self) {
        self.running = self.running.saturating_sub(1);
        self.alone = false;
    }

    /// Drops all waiting calls.
    pub(crate) fn clear(&mut self) {
        self.parallel.clear();
        self.sequential.clear();
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.parallel.is_empty() && self.sequential.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts what may start, ending calls in the order in which they started, and writes
    /// down what runs together.
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
        let mut queue = Queue::new(8);
        let places: Vec<_> = [
            (ToolMode::Parallel, 0, "read"),
            (ToolMode::Sequential, 0, "edit"),
            (ToolMode::Parallel, 0, "search"),
            (ToolMode::Sequential, 5, "urgent"),
            (ToolMode::Sequential, 0, "later"),
        ]
        .map(|(mode, priority, call)| queue.push(mode, priority, call))
        .into();
        assert_eq!(places, [0, 1, 1, 2, 4]);
        let want = [vec!["read", "search"], vec!["urgent"], vec!["edit"], vec!["later"]];
        assert_eq!(rounds(queue), want);
    }

    #[test]
    fn at_most_so_many_at_once() {
        let mut queue = Queue::new(2);
        for call in ["a", "b", "c"] {
            queue.push(ToolMode::Parallel, 0, call);
        }
        assert_eq!(rounds(queue), [vec!["a", "b"], vec!["c"]]);
    }

    #[test]
    fn a_sequential_call_waits_for_what_runs() {
        let mut queue = Queue::new(8);
        queue.note_running();
        queue.push(ToolMode::Sequential, 0, "alone");
        assert_eq!(queue.start(), None);
        queue.finish();
        assert_eq!(queue.start(), Some("alone"));
        queue.push(ToolMode::Parallel, 0, "beside");
        assert_eq!(queue.start(), None);
    }
}
