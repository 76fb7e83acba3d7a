//! Brings calls to their results: which calls run, and when.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{FuturesUnordered, StreamExt as _};
use serde_json::Value;
use wellspring_core::{
    Approval, CallOutline, CallState, Event, PartId, RETURN_RESULT, RunsOn, Tool, ToolMode,
};

use super::arguments::{check_arguments, parse_arguments};
use super::queue::{Queue, ToolOrder};
use super::typed_result::ResultTool;
use super::{ReadyCall, Verdict};
use crate::agent_loop::AgentWork;
use crate::run::activity::Busy;
use crate::runtime::close::finished;
use crate::turn::TurnCall;

/// The number of places at the front of the queue that are recorded again when they change. A call
/// farther back gets one record of its place. Without a limit, a queue of n calls would need n²
/// records.
const PLACES_TOLD_AGAIN: usize = 16;

/// Calls whose tools are running.
#[derive(Default)]
pub(crate) struct Running<'a> {
    futures: FuturesUnordered<BoxFuture<'a, Busy>>,
    /// Every call that was ever added, also if it has ended.
    calls: BTreeSet<PartId>,
}

impl<'a> Running<'a> {
    fn push(&mut self, call: PartId, future: impl Future<Output = Busy> + Send + 'a) {
        self.calls.insert(call);
        self.futures.push(future.boxed());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.futures.is_empty()
    }

    /// Waits for one to end.
    pub(crate) async fn next(&mut self) -> Option<Busy> {
        self.futures.next().await
    }
}

/// Which calls get a record of their place in the queue.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Tell {
    /// Newly queued calls.
    New,
    /// Also calls whose place has changed.
    Changed,
}

impl AgentWork {
    /// Brings every call without a result to its end: asks for approval, runs our tools, and waits
    /// for the client's. Returns when all calls have results, or, after a cancellation, when the
    /// running tools have ended.
    pub(crate) async fn execute<'a>(
        &'a self,
        result_tool: Option<&'a ResultTool>,
        busy: Busy,
        mut running: Running<'a>,
    ) -> Busy {
        let mut held = Some(busy);
        let mut queue: Queue<ReadyCall> =
            Queue::new(self.def.tool_order, self.def.limits.tools_at_once);
        let mut told = BTreeMap::new();
        (0..running.futures.len()).for_each(|_| queue.note_running());
        let pending: Vec<(PartId, CallOutline)> = self.run.folded(|transcript| {
            let mine = transcript.outline.calls.iter().filter(|(call, open)| {
                open.agent == self.agent
                    && open.tool.runs_on.is_ours()
                    && !running.calls.contains(call)
            });
            mine.map(|(call, open)| (*call, open.clone())).collect()
        });
        for (call, open) in &pending {
            if self.is_sequential(open) {
                queue.expect(u64::from(call.0));
            }
        }
        let mut gates: FuturesUnordered<_> = pending
            .into_iter()
            .map(|(call, open)| async move {
                let busy = self.run.activity.busy();
                let (verdict, busy) = self.gate(call, &open, result_tool, busy).await;
                (call, verdict, busy)
            })
            .collect();
        loop {
            // All calls that are decided by now are queued before anything starts. Otherwise a call
            // could overtake another of higher priority.
            let mut decided: Vec<_> =
                std::iter::from_fn(|| gates.next().now_or_never().flatten()).collect();
            decided.sort_by_key(|(call, ..)| *call);
            for (call, verdict, busy) in decided {
                self.settle(call, verdict, &mut queue);
                held = Some(busy);
            }
            if self.run.signal.is_cancelled() {
                queue.clear();
            }
            self.tell_places(&queue, &mut told, Tell::New);
            while let Some(ready) = queue.start() {
                let busy = self.run.activity.busy();
                running.push(ready.call, self.run_call(ready, busy));
            }
            self.tell_places(&queue, &mut told, Tell::Changed);
            if gates.is_empty() && running.is_empty() {
                return held.unwrap_or_else(|| self.run.activity.busy());
            }
            // From here on only running tools and open decisions keep the run busy.
            drop(held.take());
            tokio::select! {
                Some((call, verdict, busy)) = gates.next(), if !gates.is_empty() => {
                    self.settle(call, verdict, &mut queue);
                    held = Some(busy);
                }
                Some(busy) = running.next(), if !running.is_empty() => {
                    queue.finish();
                    held = Some(busy);
                }
            }
        }
    }

    fn settle(&self, call: PartId, verdict: Verdict, queue: &mut Queue<ReadyCall>) {
        match verdict {
            Verdict::Run(ready) => {
                let priority = self.priority_of(&*ready.tool, &ready.arguments);
                queue.push(u64::from(call.0), ready.mode, priority, ready);
            }
            Verdict::Result(outcome, result) => {
                queue.forget(u64::from(call.0));
                self.run.push(self.agent, finished(call, outcome, result));
            }
            Verdict::Nothing => queue.forget(u64::from(call.0)),
        }
    }

    /// Records the places of waiting calls.
    fn tell_places(
        &self,
        queue: &Queue<ReadyCall>,
        told: &mut BTreeMap<PartId, usize>,
        tell: Tell,
    ) {
        let events: Vec<_> = self.run.folded(|transcript| {
            let waits = |call: PartId| {
                let open = transcript.outline.call(call);
                open.is_some_and(|open| {
                    matches!(open.state, CallState::Complete | CallState::Queued)
                })
            };
            let mut places: Vec<_> = queue.places().map(|(it, place)| (it.call, place)).collect();
            places.sort_unstable();
            let mut events = Vec::new();
            for (call, place) in places.into_iter().filter(|(call, _)| waits(*call)) {
                let is_due = match told.get(&call) {
                    None => true,
                    Some(before) => {
                        tell == Tell::Changed && *before != place && place < PLACES_TOLD_AGAIN
                    }
                };
                if is_due {
                    told.insert(call, place);
                    let place = u32::try_from(place).unwrap_or(u32::MAX);
                    events.push((self.agent, Event::ToolQueued { call, place }));
                }
            }
            events
        });
        if !events.is_empty() {
            self.run.owner.push_all(events);
        }
    }

    /// Whether a call will run alone, if it runs.
    fn is_sequential(&self, open: &CallOutline) -> bool {
        let tool = self.def.tool(&open.tool.name).filter(|_| open.tool.runs_on == RunsOn::Here);
        tool.is_some_and(|tool| {
            self.mode_of(&**tool, &parse_arguments(&open.arguments)) == ToolMode::Sequential
        })
    }

    /// Starts a call before its turn has ended, if that is safe: the tool is idempotent and may run
    /// without approval.
    pub(crate) async fn start_early<'a>(
        &'a self,
        call: PartId,
        asked: &TurnCall,
        earlier: &[TurnCall],
        result_tool: Option<&ResultTool>,
        running: &mut Running<'a>,
    ) {
        let runs_alone = |call: &TurnCall| {
            let tool = self.def.tool(&call.name);
            tool.is_some_and(|tool| self.mode_of(&**tool, &call.arguments) == ToolMode::Sequential)
        };
        if self.def.tool_order == ToolOrder::AsCalled && earlier.iter().any(runs_alone) {
            return;
        }
        if result_tool.is_some() && &*asked.name == RETURN_RESULT
            || running.futures.len() >= self.def.limits.tools_at_once
        {
            return;
        }
        let Some(tool) = self.def.tool(&asked.name) else { return };
        let spec = tool.spec();
        let harmless = spec.idempotent
            && self.mode_of(&**tool, &asked.arguments) == ToolMode::Parallel
            && spec.runs_on == RunsOn::Here
            && self.def.policy.decide(spec, &asked.arguments) == Approval::Allow
            && check_arguments(&**tool, &asked.arguments).await.is_ok();
        if harmless {
            let ready = ReadyCall {
                call,
                tool: Arc::clone(tool),
                arguments: asked.arguments.clone(),
                edited: false,
                mode: ToolMode::Parallel,
                caller: None,
            };
            running.push(call, self.run_call(ready, self.run.activity.busy()));
        }
    }

    pub(super) fn mode_of(&self, tool: &dyn Tool, arguments: &Value) -> ToolMode {
        match self.def.queue {
            ToolMode::Parallel => {
                let rule = self.def.queue_rules.get(&tool.spec().name);
                rule.and_then(|rule| rule.mode).unwrap_or_else(|| tool.mode(arguments))
            }
            ToolMode::Sequential => ToolMode::Sequential,
        }
    }

    fn priority_of(&self, tool: &dyn Tool, arguments: &Value) -> i32 {
        let rule = self.def.queue_rules.get(&tool.spec().name);
        rule.and_then(|rule| rule.priority).unwrap_or_else(|| tool.priority(arguments))
    }
}
