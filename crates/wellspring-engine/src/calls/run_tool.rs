//! Runs one tool: its time limits, its panics, and its result.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;

use futures::future::FutureExt as _;
use tokio::time::{Instant, sleep_until};
use wellspring_core::{
    Context, Event, FailureKind, Outcome, PartId, Tool, ToolError, ToolOutcome, ToolResult,
};

use super::ReadyCall;
use crate::agent_loop::AgentWork;
use crate::limits::TOOL_BYTES_MAX;
use crate::run::activity::Busy;
use crate::runtime::close::{close_agent, finished};
use crate::telemetry;
use crate::tool_context::RunHost;

impl AgentWork {
    /// Runs a tool: announces it, enforces its time limits, and records its result.
    pub(crate) async fn run_call(&self, ready: ReadyCall, busy: Busy) -> Busy {
        let ReadyCall { call, tool, arguments, edited, mode, caller } = ready;
        let edited = edited.then(|| Box::new(arguments.clone()));
        self.run.push(self.agent, Event::ToolStarted { call, mode, arguments: edited });
        self.run.commit().await;

        let span = telemetry::tool(&self.span, &self.run, call, tool.spec(), &arguments);
        let timeouts = tool.spec().timeouts;
        let idle = timeouts.idle.unwrap_or(self.def.timeouts.tool_idle);
        let total = timeouts.total.unwrap_or(self.def.timeouts.tool_total);
        let started = Instant::now();
        let repeatable = is_repeatable(&*tool) && caller.is_none();
        let host = RunHost::call(self.clone(), call, repeatable, span.clone(), caller.clone());
        let signal = self.run.signal.child_token();
        let context = host.context(signal.clone(), Some(started + total));
        // A panic in a tool is a failure of the call; the run continues.
        let mut work = Box::pin(AssertUnwindSafe(tool.call(arguments, context)).catch_unwind());
        let ended = loop {
            tokio::select! {
                biased;
                ended = &mut work => break Some(ended),
                () = taken_back(caller.as_ref()), if !signal.is_cancelled() => signal.cancel(),
                () = sleep_until(host.too_late_at(started, total, idle)) => {
                    if Instant::now() >= host.too_late_at(started, total, idle) {
                        break None;
                    }
                }
            }
        };
        if ended.is_none() {
            // It may clean up, but a result that it still returns is ignored.
            signal.cancel();
            let _ = tokio::time::timeout(self.def.timeouts.cancel_grace, &mut work).await;
        }
        drop(work);
        host.close();
        let (outcome, result) = match ended {
            Some(Ok(Ok(result))) => match too_large(&result) {
                None => (ToolOutcome::Ok, result),
                Some(bytes) => {
                    let message = format!(
                        "the result has {bytes} bytes, and at most {TOOL_BYTES_MAX} can be kept; \
                         ask for less at a time"
                    );
                    (ToolOutcome::Error, ToolResult::new(message))
                }
            },
            Some(Ok(Err(error))) => (ToolOutcome::Error, ToolResult::new(error.to_string())),
            Some(Err(panic)) => {
                (ToolOutcome::Error, ToolResult::new(panicked(&*panic).to_string()))
            }
            None => {
                self.close_sub_agents(call).await;
                let limit = if started.elapsed() >= total {
                    "it took longer than it may"
                } else {
                    "it made no progress"
                };
                let message = format!("timed out: {limit}; it may have taken effect");
                (ToolOutcome::TimedOut, ToolResult::new(message))
            }
        };
        telemetry::tool_ended(&span, outcome, &result);
        self.run.push(self.agent, finished(call, outcome, result));
        busy
    }

    /// Closes what sub-agents of a call left open when it was cut short.
    async fn close_sub_agents(&self, call: PartId) {
        self.run.commit().await;
        let events = self.run.folded(|transcript| {
            let outline = &transcript.outline;
            let outcome = Outcome::Failed {
                kind: FailureKind::TimedOut,
                message: "the call it worked for took too long".into(),
                retryable: true,
            };
            let mut nested = BTreeSet::new();
            for (number, agent) in &outline.agents {
                if agent.call == Some(call) || !number.is_root() && nested.contains(&agent.parent) {
                    nested.insert(*number);
                }
            }
            let mut events = Vec::new();
            for agent in nested.into_iter().rev() {
                close_agent(outline, agent, &outcome, &mut events);
                let finished = Event::AgentFinished { outcome: Box::new(outcome.clone()) };
                events.push((agent, finished));
            }
            events
        });
        self.run.owner.push_all(events);
    }
}

/// Resolves when the remote agent cancels its call.
async fn taken_back(caller: Option<&Context>) {
    match caller {
        Some(caller) => caller.signal().cancelled().await,
        None => std::future::pending().await,
    }
}

/// Whether a call can be repeated from its start after its process has died: because the tool is
/// idempotent, or because the sub-agent that it calls continues from the log.
pub(super) fn is_repeatable(tool: &dyn Tool) -> bool {
    tool.spec().idempotent || &*tool.spec().name == crate::tools::CALL_AGENT
}

/// The size of a value as JSON in bytes, if it exceeds the maximum.
pub(crate) fn too_large(value: &impl serde::Serialize) -> Option<usize> {
    let mut count = Counted(0);
    // Counting cannot fail; a value that cannot be serialised is not stored anyway.
    let _ = serde_json::to_writer(&mut count, value);
    (count.0 > TOOL_BYTES_MAX).then_some(count.0)
}

/// A writer that only counts.
struct Counted(usize);

impl std::io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> ToolError {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    ToolError::new(format!("the tool panicked: {}", said.unwrap_or("it did not say why")))
}
